//! The verdict against the f64 reference in models as deep as real ones: right ones pass, one wrong layer fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_host::decode::{
    Activations, Comparison, DecoderOptions, KvType, Mode, Precision, SequenceOptions, Session, SessionOptions, bound,
    compare,
};
use warpsmith_host::gguf::{Gguf, GgufWriter};
use warpsmith_host::model::ModelFile;

/// As deep as models of 30 to 70 billion weights.
const LAYERS: usize = 64;

fn deep() -> Synthetic {
    Synthetic { layers: LAYERS, architecture: "llama", formats: vec![Format::F16], ..Default::default() }
}

/// What `run` decodes, compared with the reference of `right`.
fn verdict(run: &ModelFile, right: &ModelFile, precision: Precision, tokens: usize) -> Comparison {
    let Precision { kv, activations, fast_prefill } = precision;
    let options = SessionOptions {
        sequence: SequenceOptions { kv, ..Default::default() },
        decoder: DecoderOptions { activations, fast_prefill, prompt_logits: true, ..Default::default() },
    };
    let mut session = Session::new(&load(run), options).unwrap();
    let fed: Vec<u32> = (0..tokens).map(|p| token(p, right.config().vocab)).collect();
    let mut logits = Vec::new();
    session.prefill_each(&fed, |row| logits.push(row.logits)).unwrap();
    let c = compare(right, precision, &fed, &logits, &[], |_| {}).unwrap();
    assert_eq!(c.positions, tokens);
    c
}

fn of(kv: KvType) -> Precision {
    Precision { kv, ..Default::default() }
}

/// Roundings of each layer add up: 1e-3, which shallow models stay below, is not enough.
#[test]
fn a_right_model_of_64_layers_passes_with_every_cache() {
    let file = deep().file();
    let mut largest = 0f64;
    for kv in KvType::ALL {
        for fast_prefill in [false, true] {
            let c = verdict(&file, &file, Precision { fast_prefill, ..of(kv) }, 24);
            eprintln!("{kv}, fast_prefill {fast_prefill}: {:.1e} of {:.1e}", c.max_difference_in_std, c.bound_in_std);
            assert!(c.passed(), "{kv} {fast_prefill}: {c:?}");
            // A bound that nothing comes near would tell nothing.
            assert!(
                kv == KvType::F32 || fast_prefill || c.max_difference_in_std > c.bound_in_std / 50.0,
                "{kv}: {c:?}"
            );
            largest = largest.max(if kv == KvType::F16 { c.max_difference_in_std } else { 0.0 });
        }
    }
    assert!(largest > 1e-3, "{largest:e}: this model would not show a constant bound of shallow ones");
}

fn open(w: &GgufWriter) -> ModelFile {
    ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap()
}

fn change(w: &mut GgufWriter, name: &str, f: impl Fn(usize, f32) -> f32) {
    for (i, b) in w.tensor_data_mut(name).unwrap().as_chunks_mut::<2>().0.iter_mut().enumerate() {
        *b = half::f16::from_f32(f(i, half::f16::from_le_bytes(*b).to_f32())).to_le_bytes();
    }
}

type Defect = fn(&mut GgufWriter);

/// What kernels get wrong, in one layer of 64: a head that is not there, a sign, a product that is not added.
const GROSS: [(&str, Defect); 3] = [
    ("values of one head are zero", |w| change(w, "blk.31.attn_v.weight", |i, x| if i < 64 * 128 { 0.0 } else { x })),
    ("attention is subtracted", |w| change(w, "blk.40.attn_output.weight", |_, x| -x)),
    ("the last feed-forward part is left out", |w| change(w, "blk.63.ffn_down.weight", |_, _| 0.0)),
];

/// Finer ones, which caches of f16 and f32 leave room to see.
const FINE: [(&str, Defect); 2] = [
    ("values are a tenth too large", |w| change(w, "blk.31.attn_v.weight", |_, x| 1.1 * x)),
    ("queries of one head are zero", |w| change(w, "blk.20.attn_q.weight", |i, x| if i < 64 * 128 { 0.0 } else { x })),
];

#[test]
fn one_wrong_layer_of_64_fails_with_every_cache() {
    let writer = deep().writer();
    let right = open(&writer);
    for (i, (name, plant)) in GROSS.into_iter().chain(FINE).enumerate() {
        let mut w = writer.clone();
        plant(&mut w);
        let wrong = open(&w);
        for kv in KvType::ALL.into_iter().filter(|&kv| i < GROSS.len() || kv != KvType::Int8) {
            let c = verdict(&wrong, &right, of(kv), 4);
            eprintln!("{name}, {kv}: {:.1e}, bound {:.1e}", c.max_difference_in_std, c.bound_in_std);
            assert!(!c.passed(), "{name}, {kv}: {c:?}");
        }
    }
}

/// Rounded activations in the deep model, and the same by the steps of decoding.
#[test]
fn rounded_activations_add_up_with_depth_too() {
    for (layers, activations) in
        [(4, Activations::Int16), (36, Activations::Int16), (4, Activations::Int8), (36, Activations::Int8)]
            .into_iter()
            .chain([(4, Activations::F16), (36, Activations::F16)])
    {
        let file = Synthetic { layers, hidden: 256, formats: vec![Format::Q1_0], ..Default::default() }.file();
        let mut session =
            Session::new(&load(&file), DecoderOptions { activations, mode: Mode::Graph, ..Default::default() })
                .unwrap();
        let fed: Vec<u32> = (0..3).map(|p| token(p, 96)).collect();
        let logits: Vec<Vec<f32>> = fed
            .iter()
            .map(|&t| {
                session.feed(t).unwrap();
                session.logits().unwrap()
            })
            .collect();
        let precision = Precision { activations, ..Default::default() };
        let c = compare(&file, precision, &fed, &logits, &[], |_| {}).unwrap();
        eprintln!("{layers} layers, {activations}: {:.1e} of {:.1e}", c.max_difference_in_std, c.bound_in_std);
        assert!(c.passed() && c.max_difference_in_std > c.bound_in_std / 50.0, "{layers} {activations}: {c:?}");
    }
}

#[test]
fn bounds_grow_with_the_root_of_the_depth_and_end_at_another_text() {
    for kv in KvType::ALL {
        assert!((bound(64, of(kv)) / bound(16, of(kv)) - 2.0).abs() < 1e-12);
        assert_eq!(bound(0, of(kv)), bound(1, of(kv)));
    }
    assert!(
        bound(9, of(KvType::F32)) < bound(9, of(KvType::F16)) && bound(9, of(KvType::F16)) < bound(9, of(KvType::Int8))
    );
    assert_eq!(bound(80, Precision { activations: Activations::Int8, ..Default::default() }), 1.0);
}

/// The logits of a prompt fed at once are those of its tokens fed one by one, to the bit, and so is what follows.
#[test]
fn a_prompt_gives_the_logits_of_every_token() {
    let file = Synthetic { layers: 2, ..Default::default() }.file();
    let model = load(&file);
    let fed: Vec<u32> = (0..21).map(|p| token(p, 96)).collect();
    let mut alone = Session::new(&model, options(Mode::Eager, KvType::F16)).unwrap();
    let want: Vec<_> = fed.iter().map(|&t| feed(&mut alone, t)).collect();
    for chunk in [1, 4, 20, 64] {
        let options = DecoderOptions { chunk, prompt_logits: true, ..Default::default() };
        let mut session = Session::new(&model, options).unwrap();
        let mut got = Vec::new();
        let next = session.prefill_each(&fed, |row| got.push(bits(&row.logits))).unwrap();
        assert_eq!(got, want, "chunks of {chunk}");
        assert_eq!(session.feed(next).unwrap(), alone.feed(next).unwrap());
        assert_eq!(bits(&session.logits().unwrap()), bits(&alone.logits().unwrap()));
        alone.rollback(fed.len()).unwrap();
    }
    // Who did not ask for the memory is told.
    assert!(Session::new(&model, SessionOptions::default()).unwrap().prefill_each(&fed, |_| ()).is_err());
}
