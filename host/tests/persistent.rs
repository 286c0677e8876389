//! Steps that do a layer in one launch, beside steps of five launches a layer: the same bits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_host::decode::{Activations, Decoder, DecoderOptions, Feed, KvType, Mode, Model};
use warpsmith_host::decode::{Sequence, SequenceOptions, Session, SessionOptions};
use warpsmith_host::driver::software::{self, Checks};

fn session(model: &Model, mode: Mode, persistent: bool) -> Session {
    Session::new(model, DecoderOptions { mode, persistent, ..Default::default() }).unwrap()
}

/// Models of every kind, and how many of their layers the kernel takes.
fn models() -> Vec<(Synthetic, usize)> {
    let tiny = Synthetic { layers: 2, hidden: 256, feed_forward: 256, head_dim: 64, ..Synthetic::default() };
    let of = |f| Synthetic { formats: vec![f], ..tiny.clone() };
    vec![
        (of(Format::Q1_0), 2),
        (Synthetic { architecture: "llama", rope_freqs: true, tied: true, ..of(Format::TQ2_0) }, 2),
        (Synthetic { architecture: "qwen2", window: 3, kv_heads: 1, ..of(Format::Q8_0) }, 2),
        (Synthetic { hidden: 100, feed_forward: 36, heads: 3, kv_heads: 1, head_dim: 80, ..of(Format::F16) }, 2),
        // The file's order: embedding, queries, keys, values, output, gate, up, down.
        (
            Synthetic {
                layers: 1,
                formats: [vec![Format::Q6_K], vec![Format::Q4_K; 3], vec![Format::Q5_K; 3]].concat(),
                ..tiny.clone()
            },
            1,
        ),
        // Values in a format of their own are a launch of their own.
        (
            Synthetic {
                layers: 1,
                formats: [vec![Format::Q4_0; 3], vec![Format::Q8_0], vec![Format::Q4_0; 5]].concat(),
                ..tiny.clone()
            },
            0,
        ),
        (of(Format::MXFP4), 0),
    ]
}

#[test]
fn a_layer_in_one_launch_has_the_bits_of_five_launches() {
    // Races between the phases, undefined memory and barriers that not all reach would be findings.
    let _checked = software::check(Checks { profile: false, ..Checks::ALL });
    for (kind, layers) in models() {
        let file = kind.file();
        let model = load(&file);
        let mut five = session(&model, Mode::Eager, false);
        let mut one = [Mode::Eager, Mode::Graph].map(|mode| session(&model, mode, true));
        for s in &one {
            assert_eq!(s.persistent_layers(), layers, "{kind:?}");
            assert_eq!(s.launches_per_step(), five.launches_per_step() - 4 * layers, "{kind:?}");
        }
        for p in 0..4 {
            let t = token(p, file.config().vocab);
            let want = feed(&mut five, t);
            for s in &mut one {
                assert_eq!(feed(s, t), want, "position {p}, {:?}, {kind:?}", s.decoder().mode());
            }
        }
        assert_eq!(one[1].graph().map(|g| (g.nodes, g.replays)), Some((one[0].launches_per_step(), 4)), "{kind:?}");
    }
}

/// Blocks of a cooperative launch wait for one another, which they could not while those of another hold their places: layers in
/// one launch are ordinary launches among programmatic ones.
#[test]
fn layers_in_one_launch_among_programmatic_launches_have_the_same_bits() {
    let _checked = software::check(Checks { profile: false, ..Checks::ALL });
    for (kind, layers) in models().into_iter().filter(|m| m.1 > 0).take(2) {
        let file = kind.file();
        let model = load(&file);
        let mut plain = session(&model, Mode::Eager, true);
        let mut all = [Mode::Eager, Mode::Graph].map(|mode| {
            let options = DecoderOptions { mode, persistent: true, programmatic: true, ..Default::default() };
            Session::new(&model, options).unwrap()
        });
        assert!(all.iter().all(|s| s.decoder().programmatic() == (model.device().sm() >= 90)), "{kind:?}");
        for p in 0..3 {
            let t = token(p, file.config().vocab);
            let want = feed(&mut plain, t);
            for s in &mut all {
                assert_eq!((feed(s, t), s.persistent_layers()), (want.clone(), layers), "position {p}, {kind:?}");
            }
        }
    }
}

#[test]
fn golden_logits_of_a_layer_in_one_launch() {
    for (path, name, std) in [(f16_path(), "tiny-qwen3-f16", STD_F16), (q4_0_path(), "tiny-qwen3-q4_0", STD_Q4_0)] {
        let model = tiny(path);
        let mut s = session(&model, Mode::Graph, true);
        assert_eq!(s.persistent_layers(), model.config().layers);
        let logits = golden(&format!("{name}.logits.f64"));
        for (p, &token) in PROMPT.iter().enumerate() {
            s.feed(token).unwrap();
            let got = s.logits().unwrap().into_iter().map(f64::from);
            let off = worst(got, logits[p * 256..][..256].iter().copied()) / std;
            // The bound of a cache of f16, as for steps of five launches.
            assert!(off <= 2.5e-3, "{name} position {p}: {off:e}");
        }
    }
}

#[test]
fn what_it_does_not_take_is_done_in_five_launches() {
    let model = load(&Synthetic { formats: vec![Format::Q1_0], hidden: 128, ..Synthetic::default() }.file());
    let five = session(&model, Mode::Eager, false).launches_per_step();
    for (options, launches) in [
        (SessionOptions::from(SequenceOptions { kv: KvType::F32, ..Default::default() }), five),
        (SequenceOptions { kv: KvType::Int8, ..Default::default() }.into(), five),
        (DecoderOptions { activations: Activations::Int8, ..Default::default() }.into(), 0),
    ] {
        let decoder = DecoderOptions { persistent: true, ..options.decoder };
        let s = Session::new(&model, SessionOptions { decoder, ..options }).unwrap();
        let same = Session::new(&model, options).unwrap();
        assert_eq!(s.persistent_layers(), 0, "{options:?}");
        assert_eq!(s.launches_per_step(), same.launches_per_step(), "{options:?}");
        assert!(launches == 0 || launches == s.launches_per_step(), "{options:?}");
    }
    // Two sequences, and a prompt, beside steps of one.
    let options = DecoderOptions { batch: 2, persistent: true, ..Default::default() };
    let (mut decoder, mut plain) = (
        Decoder::new(&model, options).unwrap(),
        Decoder::new(&model, DecoderOptions { persistent: false, ..options }).unwrap(),
    );
    assert_eq!(decoder.launches_per_step(2, KvType::F16).unwrap(), five);
    assert_eq!(decoder.launches_per_step(1, KvType::F16).unwrap(), five - 4 * decoder.persistent_layers());
    let run = |decoder: &mut Decoder| {
        let mut pair = [(); 2].map(|()| Sequence::new(&model, SequenceOptions::default()).unwrap());
        let mut tokens =
            [decoder.prefill(&mut pair[0], &[1, 2, 3]).unwrap(), decoder.prefill(&mut pair[1], &[4]).unwrap()];
        let mut all = tokens.to_vec();
        for i in [0, 1, 0] {
            let [a, b] = &mut pair;
            let feeds = &mut [Feed { sequence: a, token: tokens[0] }, Feed { sequence: b, token: tokens[1] }];
            tokens.copy_from_slice(decoder.step(feeds).unwrap());
            let feed = Feed { sequence: &mut pair[i], token: tokens[i] };
            tokens[i] = decoder.step(&mut [feed]).unwrap()[0];
            all.extend(tokens);
        }
        (all, bits(&decoder.logits(0).unwrap()))
    };
    assert_eq!(run(&mut decoder), run(&mut plain));
}
