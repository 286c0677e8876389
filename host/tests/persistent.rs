//! Steps that do their layers in one launch, beside steps of five launches a layer: the same bits.
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

fn options(mode: Mode, activations: Activations, persistent: bool) -> DecoderOptions {
    DecoderOptions { mode, activations, persistent, ..Default::default() }
}

fn session(model: &Model, options: DecoderOptions) -> Session {
    Session::new(model, options).unwrap()
}

/// A model, the activations of its steps, how many of its layers are done in few launches, and in how many. Where the next layer wants
/// other codes, one of these does nothing but make them, which a launch of the product before does else.
type Kind = (Synthetic, Activations, usize, usize);

/// The file's order: embedding, then of each layer queries, keys, values, output, gate, up, down.
fn by_matrix(layers: &[[Format; 7]]) -> Synthetic {
    let formats = [vec![Format::Q6_K], layers.concat()].concat();
    Synthetic { layers: layers.len(), ..tiny_model(&formats) }
}

fn tiny_model(formats: &[Format]) -> Synthetic {
    Synthetic {
        layers: 2,
        hidden: 256,
        feed_forward: 256,
        head_dim: 64,
        formats: formats.to_vec(),
        ..Synthetic::default()
    }
}

/// Launches of so many layers, if they are not done in few: of queries, keys and values, neighbours of equal format are one.
fn apart(kind: &Synthetic, layers: usize) -> usize {
    if layers < kind.layers {
        return 5 * layers;
    }
    let formats: Vec<Format> = kind.formats.iter().copied().cycle().skip(1).take(7 * layers).collect();
    formats.chunks(7).map(|f| 5 + usize::from(f[0] != f[1]) + usize::from(f[1] != f[2])).sum()
}

/// Models of every kind.
fn models() -> Vec<Kind> {
    use Activations::{F16, F16x2, F32, Int8, Int16};
    let of = |f| tiny_model(&[f]);
    let by_layer = |layers: &[Format]| by_matrix(&layers.iter().map(|f| [*f; 7]).collect::<Vec<_>>());
    let (q1_0, q8_0, q4_0, q4_k, q6_k) = (Format::Q1_0, Format::Q8_0, Format::Q4_0, Format::Q4_K, Format::Q6_K);
    // As files of Q4_K_M have some of them.
    let more_bits = [q4_k, q4_k, q6_k, q4_k, q4_k, q4_k, q6_k];
    vec![
        (of(q1_0), F32, 2, 1),
        (Synthetic { layers: 3, ..of(q1_0) }, Int16, 3, 1),
        (of(q1_0), Int16, 2, 1),
        (Synthetic { architecture: "llama", rope_freqs: true, tied: true, ..of(Format::TQ2_0) }, Int16, 2, 1),
        (Synthetic { architecture: "qwen2", window: 3, kv_heads: 1, ..of(q8_0) }, F32, 2, 1),
        (Synthetic { architecture: "qwen2", kv_heads: 1, ..of(q8_0) }, Int16, 2, 1),
        (of(q4_k), Int16, 2, 1),
        (of(Format::Q5_K), Int8, 2, 1),
        (Synthetic { architecture: "qwen2", ..of(q1_0) }, Int8, 2, 1),
        (of(Format::PTQ1_0), Int8, 2, 1),
        (of(Format::IQ4_XS), Int16, 2, 1),
        // Of these the default is two f16.
        (Synthetic { architecture: "qwen2", ..of(Format::F16) }, Int16, 2, 1),
        (Synthetic { layers: 3, ..of(Format::Q3_K) }, Int16, 3, 1),
        (of(q4_k), F16, 2, 1),
        (of(q1_0), F16x2, 2, 1),
        (
            Synthetic { hidden: 100, feed_forward: 36, heads: 3, kv_heads: 1, head_dim: 128, ..of(Format::BF16) },
            F16,
            2,
            1,
        ),
        (by_matrix(&[[Format::Q3_K, Format::IQ2_XS, Format::F16, q6_k, q4_0, q4_0, q8_0]]), F16, 1, 1),
        // Layers of several formats, in one launch with others.
        (by_matrix(&[more_bits, [q4_k; 7], more_bits]), Int16, 3, 1),
        (Synthetic { architecture: "qwen2", ..by_matrix(&[[q4_k; 7], more_bits]) }, Int8, 2, 1),
        (by_matrix(&[[Format::Q3_K, Format::IQ2_XS, Format::F16, q6_k, q4_0, q4_0, q8_0]]), F32, 1, 1),
        (
            Synthetic { hidden: 100, feed_forward: 36, heads: 3, kv_heads: 1, head_dim: 128, ..of(Format::F16) },
            F32,
            2,
            1,
        ),
        // A layer that does not rotate stands alone.
        (Synthetic { architecture: "smollm3", layers: 5, ..of(q8_0) }, Int16, 5, 3),
        // Layers of two formats take turns; codes are made anew where they are of another kind.
        (by_layer(&[q8_0, q8_0, q1_0, Format::F32, q8_0]), Int16, 5, 5),
        // There is no kernel for a layer between two others; the output projection, in Q6_K, wants other codes than the last one.
        (by_matrix(&[[q1_0; 7], [q1_0, q1_0, q1_0, q8_0, q1_0, q1_0, q1_0], [q1_0; 7]]), Int16, 2, 3),
        // Gates and ups of two formats are launches of their own.
        (by_matrix(&[[q4_0, q4_0, q4_0, q4_0, q4_0, q8_0, q4_0]]), F32, 0, 0),
        (of(Format::Q2_K), F32, 2, 1),
    ]
}

#[test]
fn layers_in_one_launch_have_the_bits_of_five_launches_each() {
    // Races between the phases, undefined memory and barriers that not all reach would be findings.
    let _checked = software::check(Checks { profile: false, ..Checks::ALL });
    for (kind, activations, layers, launches) in models() {
        let file = kind.file();
        let model = load(&file);
        let mut five = session(&model, options(Mode::Eager, activations, false));
        let mut one = [Mode::Eager, Mode::Graph].map(|mode| session(&model, options(mode, activations, true)));
        for s in &one {
            assert_eq!(s.persistent_layers(), layers, "{kind:?} {activations}");
            assert!(s.persistent_launches() <= launches, "{kind:?} {activations}");
            let all = five.launches_per_step() - apart(&kind, layers) + launches;
            assert_eq!(s.launches_per_step(), all, "{kind:?} {activations}");
        }
        // As many as a window has, and one more.
        let positions = kind.window + if kind.window > 0 { 1 } else { 2 };
        for p in 0..positions {
            let t = token(p, file.config().vocab);
            let want = feed(&mut five, t);
            for s in &mut one {
                let mode = s.decoder().mode();
                assert_eq!(feed(s, t), want, "position {p}, {mode:?}, {kind:?} {activations}");
            }
        }
        let graph = one[1].graph().map(|g| (g.nodes, g.replays));
        assert_eq!(graph, Some((one[0].launches_per_step(), positions as u64)), "{kind:?}");
    }
}

/// Blocks of a cooperative launch wait for one another, which they could not while those of another hold their places: layers in
/// one launch are ordinary launches among programmatic ones.
#[test]
fn layers_in_one_launch_among_programmatic_launches_have_the_same_bits() {
    let _checked = software::check(Checks { profile: false, ..Checks::ALL });
    for (kind, activations, layers, _) in models().into_iter().filter(|m| m.2 > 0).take(2) {
        let file = kind.file();
        let model = load(&file);
        let mut plain = session(&model, options(Mode::Eager, activations, true));
        let mut all = [Mode::Eager, Mode::Graph]
            .map(|mode| session(&model, DecoderOptions { programmatic: true, ..options(mode, activations, true) }));
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
fn what_is_not_done_in_one_launch_says_why() {
    let why = |formats: &[Format], activations| {
        let model = load(&Synthetic { layers: 1, ..tiny_model(formats) }.file());
        session(&model, options(Mode::Eager, activations, true)).not_persistent()
    };
    let (q4_0, q8_0, q1_0) = (Format::Q4_0, Format::Q8_0, Format::Q1_0);
    for (format, a) in Format::ALL.into_iter().flat_map(|f| Activations::ALL.map(|a| (f, a))) {
        assert_eq!(why(&[format], a), None, "{format} {a}");
    }
    let ups = why(&[q4_0, q4_0, q4_0, q4_0, q4_0, q4_0, q8_0, q4_0], Activations::F32).unwrap();
    assert_eq!(ups, "layer 0: gates and ups are in several formats, each a launch of its own");
    let down = why(&[q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, q1_0], Activations::Int16).unwrap();
    assert!(down.starts_with("layer 0: Q8_0 times int16 beside Q1_0 times int16"), "{down}");
    let down = why(&[q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, Format::F16], Activations::Int16).unwrap();
    assert!(down.starts_with("layer 0: Q8_0 times int16 beside F16 times f16x2"), "{down}");
    let heads = load(&Synthetic { layers: 1, head_dim: 96, ..tiny_model(&[q8_0]) }.file());
    let heads = session(&heads, options(Mode::Eager, Activations::F32, true)).not_persistent().unwrap();
    assert!(heads.starts_with("layer 0: heads of 96 elements"), "{heads}");
    let model = load(&Synthetic { layers: 1, ..tiny_model(&[q8_0]) }.file());
    let decoder = options(Mode::Eager, Activations::F32, true);
    let sequence = SequenceOptions { kv: KvType::Int8, ..Default::default() };
    let s = Session::new(&model, SessionOptions { decoder, ..sequence.into() }).unwrap();
    assert!(s.not_persistent().unwrap().starts_with("a cache of int8"), "{:?}", s.not_persistent());
}

#[test]
fn golden_logits_of_layers_in_one_launch() {
    let model = tiny(f16_path());
    let mut s = session(&model, options(Mode::Graph, Activations::F32, true));
    assert_eq!(s.persistent_layers(), model.config().layers);
    let logits = golden("tiny-qwen3-f16.logits.f64");
    for (p, &token) in PROMPT.iter().enumerate() {
        s.feed(token).unwrap();
        let got = s.logits().unwrap().into_iter().map(f64::from);
        let off = worst(got, logits[p * 256..][..256].iter().copied()) / STD_F16;
        // The bound of a cache of f16, as for steps of five launches.
        assert!(off <= 2.5e-3, "position {p}: {off:e}");
    }
}

#[test]
fn what_it_does_not_take_is_done_in_five_launches() {
    let model = load(&Synthetic { formats: vec![Format::Q1_0], hidden: 128, ..Synthetic::default() }.file());
    let five = session(&model, options(Mode::Eager, Activations::F32, false)).launches_per_step();
    for kv in [KvType::F32, KvType::Int8] {
        let options = SessionOptions::from(SequenceOptions { kv, ..Default::default() });
        let decoder = DecoderOptions { persistent: true, activations: Activations::F32, ..options.decoder };
        let s = Session::new(&model, SessionOptions { decoder, ..options }).unwrap();
        assert_eq!((s.persistent_layers(), s.launches_per_step()), (0, five), "{options:?}");
    }
    // Two sequences, and a prompt, beside steps of one.
    let options = DecoderOptions { batch: 2, persistent: true, activations: Activations::F32, ..Default::default() };
    let (mut decoder, mut plain) = (
        Decoder::new(&model, options).unwrap(),
        Decoder::new(&model, DecoderOptions { persistent: false, ..options }).unwrap(),
    );
    assert_eq!(decoder.launches_per_step(2, KvType::F16).unwrap(), five);
    assert_eq!(decoder.persistent_launches(), 1);
    assert_eq!(decoder.launches_per_step(1, KvType::F16).unwrap(), five - 5 * decoder.persistent_layers() + 1);
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
