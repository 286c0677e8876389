//! Decoding with rounded activations: launches, bits, and distance from the f64 reference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_host::decode::{
    Activations, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Sequence, SequenceOptions, Session, SessionOptions,
};
use warpsmith_host::model::ModelFile;
use warpsmith_host::reference::{KvRounding, Reference};

fn session(model: &Model, mode: Mode, activations: Activations) -> Session {
    Session::new(
        model,
        SessionOptions {
            sequence: SequenceOptions { kv: KvType::F32, ..Default::default() },
            decoder: DecoderOptions { mode, activations, ..Default::default() },
        },
    )
    .unwrap()
}

/// A model of width 256, so that blocks of every format fit.
fn wide(formats: &[Format]) -> Synthetic {
    Synthetic { hidden: 256, formats: formats.to_vec(), ..Default::default() }
}

#[test]
fn codes_come_with_what_they_are_of() {
    let launches = |formats: &[Format], activations| {
        let mut s = session(&load(&wide(formats).file()), Mode::Graph, activations);
        s.feed(1).unwrap();
        let g = s.graph().unwrap();
        assert_eq!((g.nodes, g.eager_launches), (s.launches_per_step(), s.launches_per_step()));
        g.nodes
    };
    // Two layers; the embedding, the output projection and the choice of a token.
    for format in [Format::Q1_0, Format::Q4_K, Format::Q2_K, Format::F16, Format::F32] {
        assert_eq!(Activations::ALL.map(|a| launches(&[format], a)), [2 * 5 + 3; 5], "{format}");
    }
    // Matrices as small as these are as fast with f32.
    let options = DecoderOptions { activations: Activations::Int8, tuned: true, ..Default::default() };
    let small = Session::new(&load(&wide(&[Format::Q1_0]).file()), options).unwrap();
    assert_eq!(small.launches_per_step(), 2 * 5 + 3);
    // Embedding, q, k, v, output, gate, up, down and so on: with a layer of two kinds of codes and f32 between them.
    let mixed = [
        Format::F16,
        Format::Q1_0,
        Format::Q4_K,
        Format::Q1_0,
        Format::F16,
        Format::Q6_K,
        Format::Q8_0,
        Format::F32,
        Format::F16,
    ];
    let one_layer = |activations| {
        let m = Synthetic { layers: 1, ..wide(&mixed) };
        session(&load(&m.file()), Mode::Eager, activations).launches_per_step()
    };
    // q, k, v; attention; output; gate, up, SwiGLU; down; and the three of every step.
    assert_eq!(one_layer(Activations::F32), 3 + 1 + 1 + 3 + 1 + 3);
    // Codes for q and v come with the embedding; codes for k, and one kind of codes for gate and up, of what a product without codes
    // computes, do not.
    for activations in [Activations::Int8, Activations::Int16] {
        assert_eq!(one_layer(activations), 12 + 1 + 1);
    }
}

/// Graph and eager steps, and steps with other sequences, give the same bits.
#[test]
fn bits_depend_on_nothing_else() {
    for (format, activations) in [
        (Format::Q1_0, Activations::Int16),
        (Format::TQ2_0_G128, Activations::Int8),
        (Format::Q5_K, Activations::Int8),
        (Format::Q4_K, Activations::Int16),
        (Format::Q6_K, Activations::F16),
        (Format::BF16, Activations::F16),
        (Format::F16, Activations::F16x2),
        (Format::Q3_K, Activations::Int16),
    ] {
        let model = load(&wide(&[format]).file());
        let [mut eager, mut graph] = [Mode::Eager, Mode::Graph].map(|m| session(&model, m, activations));
        let alone: Vec<_> = (0..4).map(|p| feed(&mut eager, token(p, 96))).collect();
        let replayed: Vec<_> = (0..4).map(|p| feed(&mut graph, token(p, 96))).collect();
        assert_eq!(alone, replayed, "{format} {activations}");
        assert_eq!(graph.graph().unwrap().replays, 4);

        let options = DecoderOptions { batch: 3, activations, ..Default::default() };
        let mut decoder = Decoder::new(&model, options).unwrap();
        let new = || Sequence::new(&model, SequenceOptions { kv: KvType::F32, ..Default::default() }).unwrap();
        let mut all = [new(), new(), new()];
        for (p, want) in alone.iter().enumerate() {
            let tokens = [token(p + 50, 96), token(p, 96), token(p + 70, 96)];
            let mut feeds: Vec<Feed<'_>> =
                all.iter_mut().zip(tokens).map(|(sequence, token)| Feed { sequence, token }).collect();
            decoder.step(&mut feeds).unwrap();
            assert_eq!(&bits(&decoder.logits(1).unwrap()), want, "{format} {activations} position {p}");
        }
    }
}

/// The greatest and the root mean square distance of logits over some tokens, in standard deviations of the reference's.
fn distance(file: &ModelFile, activations: Activations, tokens: usize) -> (f64, f64) {
    let mut reference = Reference::new(file, KvRounding::F32);
    let mut s = session(&load(file), Mode::Graph, activations);
    let (mut most, mut squares, mut count) = (0f64, 0f64, 0usize);
    for p in 0..tokens {
        let t = token(p, file.config().vocab);
        let want = reference.feed(t).unwrap().logits;
        s.feed(t).unwrap();
        let std = deviation(&want);
        for (got, want) in s.logits().unwrap().into_iter().zip(want) {
            let d = (f64::from(got) - want).abs() / std;
            assert!(d.is_finite());
            most = most.max(d);
            squares += d * d;
            count += 1;
        }
    }
    (most, (squares / count as f64).sqrt())
}

/// Bounds of the greatest and of the root mean square distance: two to five times what was measured.
fn holds(name: &str, file: &ModelFile, wide: [f64; 2], narrow: [f64; 2]) {
    let [exact, _, int16, _, int8] = Activations::ALL.map(|a| distance(file, a, 3));
    let most = [exact, int16, int8].map(|d| format!("{:.1e} (rms {:.1e})", d.0, d.1));
    eprintln!("{name}: f32, int16, int8: {} of the logits' standard deviation", most.join(", "));
    let within = |d: (f64, f64), bound: [f64; 2]| d.0 <= bound[0] && d.1 <= bound[1];
    assert!(within(exact, [1e-4, 1e-5]), "{name}: f32 {exact:?}");
    // Codes show: else nothing but f32 was run.
    assert!(within(int16, wide) && int16.1 > 2.0 * exact.1, "{name}: int16 {int16:?}");
    assert!(within(int8, narrow) && int8.1 > 10.0 * exact.1, "{name}: int8 {int8:?}");
}

#[test]
fn int16_is_nearly_exact_and_int8_is_near() {
    const INT16: [f64; 2] = [1e-3, 2e-4];
    const INT8: [f64; 2] = [0.2, 0.05];
    for format in [Format::Q1_0, Format::TQ2_0_G128, Format::Q8_0, Format::Q4_K, Format::Q6_K] {
        holds(format.name(), &wide(&[format]).file(), INT16, INT8);
    }
    holds("tiny Q4_0", &ModelFile::open(q4_0_path()).unwrap(), INT16, INT8);
    // A channel of every normed activation is 26 times as large as the others.
    let outlier = Synthetic { outlier: 26.0, ..wide(&[Format::Q1_0]) };
    holds("Q1_0, outlier", &outlier.file(), [3e-3, 1e-3], [0.5, 0.15]);
}

/// Weights and activations in f16, of every format that has such products; an outlier makes nothing worse.
#[test]
fn f16_is_near_whatever_the_outliers() {
    let all = Format::ALL.into_iter().filter(|f| Activations::F16.take(*f)).map(|f| (f, 1.0));
    for (format, outlier) in all.chain([(Format::Q8_0, 26.0), (Format::NVFP4, 26.0)]) {
        let file = Synthetic { outlier, ..wide(&[format]) }.file();
        let [exact, f16] = [Activations::F32, Activations::F16].map(|a| distance(&file, a, 3));
        eprintln!("{format}, outlier {outlier}: f16 {:.1e} (rms {:.1e})", f16.0, f16.1);
        // Two to five times what was measured; and it shows.
        assert!(f16.0 <= 1e-2 && f16.1 <= 3e-3 && f16.1 > 2.0 * exact.1, "{format}: {f16:?}, {exact:?}");
    }
}

/// Two f16 for each activation of weights that are f16 are as near as f32, and of others, nearer than one.
#[test]
fn two_f16_are_as_near_as_f32_where_weights_are_f16() {
    for (format, outlier) in [(Format::F16, 1.0), (Format::BF16, 26.0), (Format::MXFP4, 1.0), (Format::Q1_0, 26.0)] {
        let file = Synthetic { outlier, ..wide(&[format]) }.file();
        let split = distance(&file, Activations::F16x2, 3);
        eprintln!("{format}, outlier {outlier}: f16x2 {:.1e} (rms {:.1e})", split.0, split.1);
        // As f32 is held to above.
        assert!(split.0 <= 1e-4 && split.1 <= 1e-5, "{format}: {split:?}");
    }
    for format in [Format::Q2_K, Format::IQ3_S, Format::F8_E4M3, Format::Q4_K] {
        let file = wide(&[format]).file();
        let [split, one] = [Activations::F16x2, Activations::F16].map(|a| distance(&file, a, 3));
        eprintln!("{format}: f16x2 {:.1e} (rms {:.1e}), f16 {:.1e}", split.0, split.1, one.1);
        assert!(split.0 <= 1e-2 && split.1 <= 3e-3 && split.1 < one.1, "{format}: {split:?}, {one:?}");
    }
}

/// A prompt of so many tokens is multiplied in large blocks, and a step in small ones: the same bits.
#[test]
fn long_prompts_give_the_bits_of_steps() {
    for (format, activations, kv) in [
        (Format::Q4_K, Activations::F16, KvType::F16),
        (Format::F16, Activations::F16, KvType::F32),
        (Format::F16, Activations::F16x2, KvType::F32),
        (Format::Q4_K, Activations::F32, KvType::F32),
        (Format::Q4_K, Activations::Int16, KvType::F32),
    ] {
        let model = load(&Synthetic { layers: 1, context: 192, ..wide(&[format]) }.file());
        let tokens: Vec<u32> = (0..140).map(|p| token(p, 96)).collect();
        let [steps, at_once] = [1, 140].map(|chunk| {
            let options = DecoderOptions { chunk, activations, ..Default::default() };
            let mut decoder = Decoder::new(&model, options).unwrap();
            let mut sequence = Sequence::new(&model, SequenceOptions { kv, ..Default::default() }).unwrap();
            decoder.prefill(&mut sequence, &tokens).unwrap();
            bits(&decoder.logits(0).unwrap())
        });
        assert_eq!(at_once, steps, "{format}, {activations}, {kv:?}");
        let mut decoder = Decoder::new(&model, DecoderOptions { activations, ..Default::default() }).unwrap();
        let mut sequence = Sequence::new(&model, SequenceOptions { kv, ..Default::default() }).unwrap();
        for &token in &tokens {
            decoder.step(&mut [Feed { sequence: &mut sequence, token }]).unwrap();
        }
        assert_eq!(bits(&decoder.logits(0).unwrap()), steps, "{format}, {activations}, {kv:?}: single tokens");
    }
}

/// A model that was trained, by the check that programs run.
#[test]
fn a_trained_model_passes_its_check() {
    let model = tiny(root().join("models/warpsmith-2m-q1_0.gguf"));
    for activations in [Activations::Int16, Activations::F16, Activations::Int8] {
        let c = model.self_check(&[84, 104], KvType::F16, activations).unwrap();
        eprintln!("{activations}: {:.1e} of {:.0e}", c.max_difference_in_std, c.bound_in_std);
        assert!(c.passed() && c.positions == 4, "{activations}: {c:?}");
    }
}
