//! Decoding on a device against golden values and the f64 reference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_host::decode::{Activations, DecoderOptions, KvType, Mode, Precision, Session, bound};
use warpsmith_host::model::ModelFile;
use warpsmith_host::reference::{KvRounding, Reference};

/// Kernels compute in f32 and keep keys and values in f32: `1e-4` of the logits' standard deviation.
const EXACT: f64 = 1e-4;

/// What rounding keys and values to f16 adds, whoever computes: five times the unit roundoff `2^-11`.
///
/// Every key and value is off by up to `2^-11` of itself. A value enters the result as it is; a key enters a score
/// of `|q| |k| / sqrt(64)`, which the head norms of these models let reach 18, so that a score is off by some
/// `18 * 2^-11 / sqrt(64)` in the mean square and attention weights by as much of themselves; and the residual
/// stream carries both, from two layers, to the logits undiminished. The f64 reference with a rounded cache is
/// itself up to 3.6 roundoffs from the one without (`fe_21` prints it), so no decoder with such a cache is nearer.
const F16_CACHE: f64 = 2.5e-3;

/// Against a reference that rounds keys and values as the device does, only f32 arithmetic remains, and now and
/// then an f32 result on the other side of a rounding boundary: that element then differs by a whole `2^-10`.
const F16_CACHE_MODELLED: f64 = 4e-4;

fn golden_model(path: std::path::PathBuf, name: &str, std: f64, kv: KvType, bound: f64) {
    let model = tiny(path);
    let (logits, hidden) = (golden(&format!("{name}.logits.f64")), golden(&format!("{name}.hidden.f64")));
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = Session::new(&model, exact(mode, kv)).unwrap();
        let mut next = 0;
        let mut worst_logit = 0f64;
        for (p, &token) in PROMPT.iter().enumerate() {
            next = s.feed(token).unwrap();
            let got = s.logits().unwrap();
            assert_eq!(got.len(), 256);
            let want = logits[p * 256..(p + 1) * 256].iter().copied();
            worst_logit = worst_logit.max(worst(got.iter().map(|&v| v.into()), want));
        }
        eprintln!("{name} {mode:?} {kv}: logits within {:.2e} of their standard deviation", worst_logit / std);
        assert!(worst_logit <= bound * std, "{name} {mode:?} {kv}: {:e}", worst_logit / std);
        let mut generated = vec![next];
        while generated.len() < 8 {
            generated.push(s.feed(generated[generated.len() - 1]).unwrap());
        }
        assert_eq!(generated, GREEDY, "{name} {mode:?} {kv}");
    }
    let mut s = Session::new(&model, exact(Mode::Graph, kv)).unwrap();
    for (p, &token) in PROMPT.iter().enumerate() {
        let h = s.feed_with_hidden(token).unwrap();
        assert_eq!(h.states.len(), 4);
        for (stage, got) in h.states.iter().enumerate() {
            let want = &hidden[(stage * 8 + p) * 256..][..256];
            let d = worst(got.iter().map(|&v| v.into()), want.iter().copied());
            assert!(d <= bound * deviation(want), "{name} {kv} position {p} stage {stage}: {d:e}");
        }
    }
    assert_eq!(s.feed(GREEDY[0]).unwrap(), GREEDY[1]);
}

#[test]
fn f16_model_with_f32_cache_matches_the_golden_values() {
    golden_model(f16_path(), "tiny-qwen3-f16", STD_F16, KvType::F32, EXACT);
}

#[test]
fn q4_0_model_with_f32_cache_matches_the_golden_values() {
    golden_model(q4_0_path(), "tiny-qwen3-q4_0", STD_Q4_0, KvType::F32, EXACT);
}

#[test]
fn f16_model_with_f16_cache_matches_the_golden_values() {
    golden_model(f16_path(), "tiny-qwen3-f16", STD_F16, KvType::F16, F16_CACHE);
}

#[test]
fn q4_0_model_with_f16_cache_matches_the_golden_values() {
    golden_model(q4_0_path(), "tiny-qwen3-q4_0", STD_Q4_0, KvType::F16, F16_CACHE);
}

/// The greatest difference to the reference over `tokens` positions, in standard deviations of the logits.
fn distance(file: &ModelFile, s: &mut Session, rounding: KvRounding, tokens: usize) -> f64 {
    let mut reference = Reference::new(file, rounding);
    let (mut differences, mut squares, mut count) = (0f64, 0f64, 0usize);
    for p in 0..tokens {
        let t = token(p, file.config().vocab);
        let want = reference.feed(t).unwrap().logits;
        s.feed(t).unwrap();
        let got = s.logits().unwrap();
        assert_eq!(got.len(), want.len());
        differences = differences.max(worst(got.iter().map(|&v| v.into()), want.iter().copied()));
        squares += want.iter().map(|x| x * x).sum::<f64>();
        count += want.len();
    }
    differences / (squares / count as f64).sqrt()
}

/// FE-21: over many tokens, by the distance of logits and not by equal tokens.
#[test]
fn fe_21_errors_do_not_grow_over_a_hundred_tokens() {
    let file = ModelFile::open(q4_0_path()).unwrap();
    let model = load(&file);
    let (mut exact, mut rounded) = (Reference::new(&file, KvRounding::None), Reference::new(&file, KvRounding::F16));
    let own = (0..100).map(|p| {
        let step = |r: &mut Reference| r.feed(token(p, 256)).unwrap().logits;
        worst(step(&mut exact), step(&mut rounded))
    });
    let own = own.fold(0.0, f64::max) / STD_Q4_0;
    eprintln!("f64 with a cache rounded to f16: {own:.2e} of the standard deviation");
    assert!(own > F16_CACHE_MODELLED && own < F16_CACHE);
    for (kv, rounding, bound) in [
        (KvType::F32, KvRounding::None, EXACT),
        (KvType::F16, KvRounding::F16, F16_CACHE_MODELLED),
        (KvType::F16, KvRounding::None, F16_CACHE),
    ] {
        let mut s = Session::new(&model, device::exact(Mode::Graph, kv)).unwrap();
        let d = distance(&file, &mut s, rounding, 100);
        eprintln!("{kv} cache against {rounding:?}: {d:.2e} of the standard deviation over 100 tokens");
        assert!(d <= bound, "{kv} {rounding:?}: {d:e}");
    }
}

/// Synthetic models of every kind against the reference, with an f32 cache.
fn agrees(m: Synthetic) {
    let file = m.file();
    let model = load(&file);
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = Session::new(&model, exact(mode, KvType::F32)).unwrap();
        let d = distance(&file, &mut s, KvRounding::None, 6);
        assert!(d <= EXACT, "{mode:?} {d:e} {m:?}");
    }
    let mut s = Session::new(&model, exact(Mode::Graph, KvType::F16)).unwrap();
    let d = distance(&file, &mut s, KvRounding::F16, 6);
    // In so narrow models a single element on the other side of a rounding boundary weighs much.
    assert!(d <= F16_CACHE, "f16 cache: {d:e} {m:?}");
}

#[test]
fn every_format_agrees_with_the_reference() {
    // All others are in the mixed files below, and in the tests of the kernels.
    use Format::*;
    for (i, format) in [F32, F16, Q1_0, TQ2_0_G128, Q4_0, Q8_0, Q4_K].into_iter().enumerate() {
        let (formats, hidden, seed) = (vec![format], format.block_elems().max(128), i as u64);
        let (architecture, tied) = if i % 2 == 0 { ("llama", true) } else { ("qwen3", false) };
        agrees(Synthetic { formats, hidden, seed, architecture, tied, ..Default::default() });
    }
}

#[test]
fn mixed_formats_within_one_model_agree_with_the_reference() {
    // A file has one meaning of type id 42.
    for (shift, but) in [(0, Format::Q2_0), (5, Format::TQ2_0_G128), (10, Format::Q2_0), (15, Format::TQ2_0_G128)] {
        let mut formats: Vec<Format> = Format::ALL.into_iter().filter(|f| *f != but).collect();
        formats.rotate_left(shift);
        agrees(Synthetic { formats, layers: 3, hidden: 256, seed: 40 + shift as u64, ..Default::default() });
    }
    // q and k stacked, v apart; gate and up apart.
    let formats = vec![Format::Q8_0, Format::Q4_0, Format::Q4_0, Format::F16, Format::F16, Format::F32, Format::Q1_0];
    agrees(Synthetic { formats, ..Default::default() });
}

/// FE-16: `heads * head_dim` is not `hidden`, in either direction.
#[test]
fn fe_16_query_width_differs_from_hidden_width() {
    for (hidden, heads, kv_heads, head_dim) in [
        (128, 8, 2, 32),
        (256, 2, 1, 64),
        (128, 4, 4, 128),
        (64, 3, 1, 96),
        (96, 5, 5, 80),
        (160, 4, 2, 256),
        (64, 2, 2, 192),
    ] {
        for architecture in ["qwen3", "llama"] {
            agrees(Synthetic {
                architecture,
                hidden,
                heads,
                kv_heads,
                head_dim,
                feed_forward: 96,
                formats: vec![if (heads * head_dim) % 32 == 0 { Format::Q8_0 } else { Format::F16 }],
                ..Default::default()
            });
        }
    }
}

#[test]
fn groups_of_one_to_sixteen_query_heads_agree_with_the_reference() {
    for kv_heads in [1, 2, 4, 8] {
        let (heads, head_dim) = (8, 32);
        agrees(Synthetic { heads, kv_heads, head_dim, tied: kv_heads == 2, seed: 7, ..Default::default() });
    }
    agrees(Synthetic { heads: 6, kv_heads: 2, head_dim: 32, hidden: 192, seed: 8, ..Default::default() });
    agrees(Synthetic { window: 3, seed: 10, ..Default::default() });
    agrees(Synthetic { heads: 16, kv_heads: 1, head_dim: 32, seed: 9, ..Default::default() });
}

/// RZ-22: rows that are a multiple of no load width but the format's block.
#[test]
fn rz_22_odd_widths_agree_with_the_reference() {
    for (hidden, feed_forward, format) in [
        (50, 70, Format::F32),
        (50, 70, Format::F16),
        (33, 1, Format::F16),
        (96, 160, Format::Q8_0),
        (96, 352, Format::Q4_0),
        (384, 128, Format::Q1_0),
        (1, 3, Format::F32),
    ] {
        let formats = vec![format];
        let (heads, kv_heads, head_dim) = if format == Format::Q1_0 { (3, 1, 128) } else { (4, 2, 32) };
        agrees(Synthetic { hidden, feed_forward, heads, kv_heads, head_dim, formats, vocab: 37, ..Default::default() });
    }
}

#[test]
fn one_to_five_layers_scaling_and_frequency_factors_agree_with_the_reference() {
    for layers in 1..=5 {
        let architecture = if layers % 2 == 0 { "llama" } else { "qwen3" };
        agrees(Synthetic {
            architecture,
            layers,
            rope_freqs: layers >= 3,
            linear_scale: (layers == 2 || layers == 5).then_some(2.5),
            formats: vec![Format::F16, Format::Q4_0],
            seed: layers as u64,
            ..Default::default()
        });
    }
}

#[test]
fn partial_rotation_agrees_with_the_reference() {
    for architecture in ["qwen3", "llama"] {
        let m = Synthetic { architecture, ..Default::default() };
        let mut w = m.writer();
        w.key(format!("{architecture}.rope.dimension_count"), 24u32);
        let file = ModelFile::from_gguf(warpsmith_host::gguf::Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
        let mut s = Session::new(&load(&file), exact(Mode::Graph, KvType::F32)).unwrap();
        let d = distance(&file, &mut s, KvRounding::None, 6);
        assert!(d <= EXACT, "{architecture}: {d:e}");
    }
}

#[test]
fn one_tensor_of_queries_keys_and_values_and_longrope_agree_with_the_reference() {
    let of = |formats: &[Format]| Synthetic { architecture: "phi3", formats: formats.to_vec(), ..Default::default() };
    agrees(of(&[Format::Q4_0]));
    agrees(Synthetic { hidden: 256, ..of(&[Format::Q8_0, Format::F16, Format::Q4_K]) });
    agrees(Synthetic { window: 3, tied: true, head_dim: 96, ..of(&[Format::F16]) });
    let mut w = of(&[Format::Q4_0]).writer();
    w.key("phi3.rope.dimension_count", 48u32)
        .key("phi3.rope.scaling.type", "longrope")
        .key("phi3.rope.scaling.original_context_length", 16u32)
        .key("phi3.rope.scaling.attn_factor", 1.19f32);
    for (name, step) in [("short", 0.01), ("long", 0.7)] {
        let factors: Vec<f32> = (0..24).map(|i| 1.0 + step * i as f32).collect();
        w.tensor_f32(format!("rope_factors_{name}.weight"), &[24], &factors).unwrap();
    }
    let open = |positions| {
        let gguf = warpsmith_host::gguf::Gguf::from_bytes(w.to_bytes()).unwrap();
        ModelFile::from_gguf_within(gguf, positions).unwrap()
    };
    let (short, long) = (open(16), open(17));
    assert_ne!(short.rope_freqs(), long.rope_freqs());
    for file in [short, long] {
        let mut s = Session::new(&load(&file), exact(Mode::Graph, KvType::F32)).unwrap();
        let d = distance(&file, &mut s, KvRounding::None, 12);
        assert!(d <= EXACT, "{d:e}");
    }
}

#[test]
fn layers_that_do_not_rotate_agree_with_the_reference() {
    let of = Synthetic { architecture: "smollm3", layers: 5, ..Default::default() };
    agrees(of.clone());
    agrees(Synthetic { layers: 4, window: 3, tied: true, formats: vec![Format::F16], ..of });
}

#[test]
fn norms_on_both_sides_gelu_and_windows_in_some_layers_agree_with_the_reference() {
    let of = Synthetic { architecture: "gemma3", layers: 7, window: 3, tied: true, ..Default::default() };
    agrees(of.clone());
    // Embedding, its scale, logits and token; seven launches a layer, and two more where products read codes.
    let launches = |activations| {
        let decoder = DecoderOptions { activations, ..Default::default() };
        Session::new(&load(&of.file()), decoder).unwrap().launches_per_step()
    };
    assert_eq!((launches(Activations::F32), launches(Activations::Int16)), (4 + 7 * 7, 4 + 1 + 9 * 7));
    // Gates and ups apart; columns of no whole vectors.
    let apart = [Format::F16, Format::F16, Format::F16, Format::F16, Format::F32, Format::F16, Format::F32];
    agrees(Synthetic { hidden: 50, feed_forward: 70, formats: apart.to_vec(), ..of.clone() });
    // The model whose scores are divided by something else; files name it by its layers alone.
    let deep = Synthetic { layers: 62, hidden: 64, feed_forward: 32, head_dim: 32, tied: false, ..of };
    let file = deep.file();
    assert_eq!(file.config().score_scale, 0.25);
    let mut s = Session::new(&load(&file), exact(Mode::Graph, KvType::F32)).unwrap();
    let d = distance(&file, &mut s, KvRounding::None, 5);
    assert!(d <= EXACT, "{d:e}");
}

#[test]
fn capped_scores_and_logits_agree_with_the_reference() {
    let of = Synthetic { architecture: "gemma2", layers: 3, window: 3, tied: true, ..Default::default() };
    let with_caps = |of: &Synthetic, caps: [f32; 2]| {
        let mut w = of.writer();
        w.key("gemma2.attn_logit_softcapping", caps[0]).key("gemma2.final_logit_softcapping", caps[1]);
        ModelFile::from_gguf(warpsmith_host::gguf::Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap()
    };
    agrees(of.clone());
    agrees(Synthetic { head_dim: 256, kv_heads: 1, formats: vec![Format::F16], ..of.clone() });
    for (caps, launches) in [([1.5, 2.0], 5 + 8 * 3), ([1.5, 0.0], 4 + 8 * 3), ([0.0, 2.0], 5 + 7 * 3)] {
        let file = with_caps(&of, caps);
        let mut options = exact(Mode::Graph, KvType::F32);
        let mut s = Session::new(&load(&file), options).unwrap();
        let d = distance(&file, &mut s, KvRounding::None, 8);
        assert!(d <= EXACT, "{caps:?}: {d:e}");
        options.decoder.activations = Activations::F32;
        assert_eq!(Session::new(&load(&file), options).unwrap().launches_per_step(), launches, "{caps:?}");
    }
    // The model whose scores are divided by something else.
    let deep = Synthetic { layers: 46, hidden: 64, feed_forward: 32, head_dim: 32, ..of };
    let file = with_caps(&deep, [4.0, 0.0]);
    assert_eq!(file.config().score_scale, 0.25);
    let mut s = Session::new(&load(&file), exact(Mode::Graph, KvType::F32)).unwrap();
    let d = distance(&file, &mut s, KvRounding::None, 5);
    assert!(d <= EXACT, "{d:e}");
}

/// Windows in some layers, layers that do not rotate, and caps, in prompts that attend in tiles.
#[test]
fn fast_prompts_of_models_whose_layers_differ_lie_within_their_bounds() {
    let tokens: Vec<u32> = (0..40).map(|p| token(p, 96)).collect();
    for (architecture, layers) in [("gemma3", 7), ("gemma2", 3), ("smollm3", 5), ("phi3", 2)] {
        let file = Synthetic { architecture, layers, window: 7, ..Default::default() }.file();
        let model = load(&file);
        let prompt = |fast_prefill, kv| {
            let mut options = exact(Mode::Graph, kv);
            options.decoder.fast_prefill = fast_prefill;
            let mut s = Session::new(&model, options).unwrap();
            s.prefill(&tokens).unwrap();
            s.logits().unwrap()
        };
        for kv in [KvType::F16, KvType::Int8] {
            let mut reference = Reference::new(&file, kv.into());
            let mut want = Vec::new();
            tokens.iter().for_each(|&t| want = reference.feed(t).unwrap().logits);
            let got = prompt(true, kv);
            let d = worst(got.iter().map(|&v| v.into()), want.iter().copied()) / deviation(&want);
            let most = bound(layers, Precision { kv, fast_prefill: true, activations: Activations::F32 });
            eprintln!("{architecture} {kv}: {d:.2e} of {most:.2e}");
            assert!(d <= most, "{architecture} {kv}: {d:e} of {most:e}");
            // There are no tiles for capped scores.
            assert_eq!(prompt(false, kv) == got, architecture == "gemma2", "{architecture} {kv}");
        }
    }
}

/// Eager and graph give the same bits for 200 tokens, whatever position the graph starts from; RZ-10, FE-7.
fn two_hundred(file: &ModelFile, start: usize) {
    let (model, vocab) = (load(file), file.config().vocab);
    let mut eager = sequence(&model, Mode::Eager);
    let mut graph = sequence(&model, Mode::Graph);
    for p in 0..start {
        let t = token(p, vocab);
        eager.feed(t).unwrap();
        // The graph must first be captured at `start`.
        graph.set_mode(Mode::Eager);
        graph.feed(t).unwrap();
    }
    graph.set_mode(Mode::Graph);
    assert_eq!(graph.graph(), None);
    for p in start..start + 200 {
        let t = token(p, vocab);
        assert_eq!(feed(&mut eager, t), feed(&mut graph, t), "position {p} after a start at {start}");
    }
    assert_eq!(eager.snapshot().unwrap(), graph.snapshot().unwrap());
    let info = graph.graph().unwrap();
    assert_eq!((info.nodes, info.eager_launches, info.replays), (graph.launches_per_step(), info.nodes, 200));
    assert_eq!(graph.stats().captures, 1);
}

#[test]
fn rz_10_eager_and_graph_agree_in_every_bit_from_position_0() {
    two_hundred(&ModelFile::open(q4_0_path()).unwrap(), 0);
}

#[test]
fn rz_10_eager_and_graph_agree_in_every_bit_from_position_1() {
    two_hundred(&Synthetic { context: 320, ..Default::default() }.file(), 1);
}

#[test]
fn rz_10_eager_and_graph_agree_in_every_bit_from_position_7() {
    two_hundred(&Synthetic { context: 320, ..Default::default() }.file(), 7);
}

#[test]
fn rz_10_eager_and_graph_agree_in_every_bit_from_position_100() {
    two_hundred(&Synthetic { context: 320, ..Default::default() }.file(), 100);
}

/// Keys, values and lengths are the same for eager, capture at the first token, capture at the fifth.
#[test]
fn the_cache_does_not_depend_on_when_the_step_is_captured() {
    let model = tiny(q4_0_path());
    let run = |mode, capture_after| {
        let o = DecoderOptions { mode, capture_after, ..Default::default() };
        let mut s = Session::new(&model, o).unwrap();
        let logits: Vec<_> = (0..12).map(|p| feed(&mut s, token(p, 256))).collect();
        (logits, s.snapshot().unwrap(), s.len(), s.stats())
    };
    let eager = run(Mode::Eager, 0);
    let first = run(Mode::Graph, 0);
    let fifth = run(Mode::Graph, 4);
    assert_eq!((&eager.0, &eager.1, eager.2), (&first.0, &first.1, first.2));
    assert_eq!((&eager.0, &eager.1, eager.2), (&fifth.0, &fifth.1, fifth.2));
    assert_eq!((first.3.eager_steps, first.3.replays), (0, 12));
    assert_eq!((fifth.3.eager_steps, fifth.3.replays, fifth.3.captures), (4, 8, 1));
}

#[test]
fn generation_stops_when_told_and_feeds_nothing_needless() {
    let model = tiny(q4_0_path());
    let mut s = sequence(&model, Mode::Graph);
    let all = s.generate(&PROMPT, 8, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(all, GREEDY);
    assert_eq!(s.len(), 8 + 7);
    s.reset();
    let stop = |t| if t == GREEDY[2] { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) };
    assert_eq!(s.generate(&PROMPT, 8, stop).unwrap(), GREEDY[..3]);
    s.reset();
    assert_eq!(s.generate(&PROMPT, 0, |_| std::ops::ControlFlow::Continue(())).unwrap(), [0u32; 0]);
    assert!(s.is_empty());
}
