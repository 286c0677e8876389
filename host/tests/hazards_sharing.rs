//! Faults that other decoders have shipped in what models, sequences and graphs share, each as a test under the
//! number it has in the project's notes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_host::decode::{DecodeError, DecoderOptions, KvType, Mode, SequenceOptions, Session, SessionOptions};
use warpsmith_host::gguf::Gguf;
use warpsmith_host::model::ModelFile;

#[test]
fn ox_1_models_of_equal_depth_alternate_without_sharing_weights() {
    let files = trio();
    let want: Vec<_> = files.iter().map(|f| fresh(f, 0..6)).collect();
    let mut sequences: Vec<_> = files.iter().map(|f| sequence(&load(f), Mode::Graph)).collect();
    for p in 0..6 {
        for (i, (s, want)) in sequences.iter_mut().zip(&want).enumerate() {
            assert_eq!(feed(s, token(p, 96)), want[p], "model {i} position {p}");
        }
    }
    assert_ne!(want[0], want[1]);
}

#[test]
fn ox_3_a_graph_belongs_to_one_model_and_its_epsilon() {
    let m = Synthetic { seed: 3, ..Default::default() };
    let mut w = m.writer();
    w.key("qwen3.attention.layer_norm_rms_epsilon", 0.5f32);
    let other = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    let (a, b) = (m.file(), other);
    let (want_a, want_b) = (fresh(&a, 0..4), fresh(&b, 0..4));
    assert_ne!(want_a, want_b);
    let (mut s, mut t) = (sequence(&load(&a), Mode::Graph), sequence(&load(&b), Mode::Graph));
    for (p, (want_a, want_b)) in want_a.iter().zip(&want_b).enumerate() {
        assert_eq!(&feed(&mut s, token(p, 96)), want_a);
        assert_eq!(&feed(&mut t, token(p, 96)), want_b);
    }
    // Two sequences of one model have a graph each, over their own caches.
    let model = load(&a);
    let (mut s, mut t) = (sequence(&model, Mode::Graph), sequence(&model, Mode::Graph));
    feed(&mut s, 9);
    feed(&mut s, 10);
    for (p, want) in want_a.iter().enumerate() {
        assert_eq!(&feed(&mut t, token(p, 96)), want);
    }
}

#[test]
fn ox_4_a_cache_may_grow_and_shrink_under_a_graph() {
    let file = Synthetic { context: 64, ..Default::default() }.file();
    let want = fresh(&file, 0..20);
    let model = load(&file);
    let o = SequenceOptions { capacity: Some(8), ..Default::default() };
    let mut s = Session::new(&model, o).unwrap();
    for (p, want) in want.iter().enumerate() {
        match p {
            8 => {
                let e = s.feed(token(p, 96)).unwrap_err();
                assert!(matches!(e, DecodeError::ContextFull { length: 8, capacity: 8, most: 64, .. }), "{e}");
                s.set_capacity(16).unwrap();
            }
            14 => s.set_capacity(64).unwrap(),
            17 => s.set_capacity(20).unwrap(),
            _ => {}
        }
        assert_eq!(&feed(&mut s, token(p, 96)), want, "position {p}");
    }
    // A graph does not refer to the cache; what it does refer to, the tables of positions, grew twice.
    assert_eq!((s.stats().captures, s.stats().replays, s.len()), (3, 20, 20));
    assert!(matches!(s.set_capacity(19), Err(DecodeError::CapacityInUse { capacity: 19, length: 20 })));
    assert!(matches!(s.set_capacity(65), Err(DecodeError::Capacity { capacity: 65, most: 64 })));
}

/// RZ-8 is the same with a cache that is made anew.
#[test]
fn rz_8_caches_of_different_size_are_independent() {
    let file = Synthetic::default().file();
    let model = load(&file);
    let want = fresh(&file, 0..10);
    for capacity in [10, 64, 11] {
        let mut s = Session::new(&model, SequenceOptions { capacity: Some(capacity), ..Default::default() }).unwrap();
        for (p, want) in want.iter().enumerate() {
            assert_eq!(&feed(&mut s, token(p, 96)), want, "capacity {capacity} position {p}");
        }
    }
    // One that is given another size has memory of that size, with what it had, in every mode.
    for mode in [Mode::Eager, Mode::Graph] {
        let sequence = SequenceOptions { capacity: Some(3), ..Default::default() };
        let decoder = DecoderOptions { mode, ..Default::default() };
        let options = SessionOptions { sequence, decoder };
        let mut s = Session::new(&model, options).unwrap();
        let row = s.raw_cache().unwrap().len() / 3;
        for (p, want) in want.iter().enumerate() {
            let capacity = [3, 3, 3, 7, 7, 7, 7, 64, 64, 10][p];
            s.set_capacity(capacity).unwrap();
            assert_eq!(s.raw_cache().unwrap().len(), capacity * row, "{mode:?} position {p}");
            assert_eq!(&feed(&mut s, token(p, 96)), want, "{mode:?} position {p}");
        }
    }
}

#[test]
fn ox_6_ox_7_prefill_is_the_same_as_single_steps_and_decoding_goes_on_from_it() {
    let model = tiny(q4_0_path());
    let tokens: Vec<u32> = (0..20).map(|p| token(p, 256)).collect();
    for mode in [Mode::Eager, Mode::Graph] {
        let new = || Session::new(&model, options(mode, KvType::F16)).unwrap();
        let (mut one, mut all) = (new(), new());
        let mut next = 0;
        for &t in &tokens {
            next = one.feed(t).unwrap();
        }
        assert_eq!(all.prefill(&tokens).unwrap(), next, "{mode:?}");
        assert_eq!(bits(&one.logits().unwrap()), bits(&all.logits().unwrap()), "{mode:?}");
        assert_eq!(one.snapshot().unwrap(), all.snapshot().unwrap(), "{mode:?}");
        for p in 20..24 {
            assert_eq!(feed(&mut one, token(p, 256)), feed(&mut all, token(p, 256)), "{mode:?}");
        }
    }
}

#[test]
fn ox_8_a_prompt_costs_its_launches_and_no_more() {
    let model = tiny(q4_0_path());
    let exact = exact(Mode::Eager, KvType::F16);
    let mut s = Session::new(&model, exact).unwrap();
    // Five launches a layer and one for the embedding; projection and choice of a token at the end.
    assert_eq!(s.launches_per_step(), 2 * 5 + 1 + 2);
    // A prompt stores its keys and values in a launch of its own, for all tokens at once.
    s.prefill(&PROMPT).unwrap();
    assert_eq!(s.stats().eager_launches, 2 * 6 + 1 + 2);
    assert_eq!(s.stats().eager_steps, 1);
    let o = DecoderOptions { chunk: 3, ..exact.decoder };
    let mut s = Session::new(&model, o).unwrap();
    s.prefill(&PROMPT).unwrap();
    assert_eq!((s.stats().eager_launches, s.stats().eager_steps), (3 * (2 * 6 + 1) + 2, 3));
    // A format of its own for each of q, k, v and of gate, up costs a launch for each.
    let mixed = Synthetic {
        formats: vec![
            Format::F32,
            Format::Q8_0,
            Format::Q4_0,
            Format::F16,
            Format::F16,
            Format::F32,
            Format::Q8_0,
            Format::F16,
        ],
        layers: 1,
        ..Default::default()
    };
    assert_eq!(Session::new(&load(&mixed.file()), exact).unwrap().launches_per_step(), 5 + 3 + 4);
}

/// RZ-3: every launch of the step is in the graph.
#[test]
fn rz_3_graphs_have_a_node_for_every_launch() {
    for (m, launches) in
        [(Synthetic::default(), 13), (Synthetic { layers: 5, architecture: "llama", ..Default::default() }, 28)]
    {
        let mut s = Session::new(&load(&m.file()), exact(Mode::Graph, KvType::F16)).unwrap();
        s.feed(1).unwrap();
        let g = s.graph().unwrap();
        assert_eq!((g.nodes, g.eager_launches, s.launches_per_step()), (launches, launches, launches));
    }
}

/// FE-20: what one sequence did leaves no trace in another, in any order.
#[test]
fn fe_20_the_order_of_sequences_does_not_matter() {
    let file = Synthetic::default().file();
    let model = load(&file);
    let want = fresh(&file, 0..8);
    for lengths in [[8, 2, 5], [2, 8, 5], [5, 2, 8]] {
        for n in lengths {
            let mut s = sequence(&model, Mode::Graph);
            for (p, want) in want.iter().enumerate().take(n) {
                assert_eq!(&feed(&mut s, token(p, 96)), want, "{lengths:?}");
            }
        }
    }
}

#[test]
fn rz_7_eager_steps_and_replays_alternate_in_any_order() {
    let model = tiny(q4_0_path());
    let mut eager = sequence(&model, Mode::Eager);
    let mut mixed = sequence(&model, Mode::Graph);
    let mut rng = Rng(5);
    for p in 0..30 {
        mixed.set_mode(if rng.below(2) == 0 { Mode::Eager } else { Mode::Graph });
        assert_eq!(feed(&mut eager, token(p, 256)), feed(&mut mixed, token(p, 256)), "position {p}");
    }
    assert_eq!(eager.snapshot().unwrap(), mixed.snapshot().unwrap());
    assert!(mixed.stats().eager_steps > 5 && mixed.stats().replays > 5 && mixed.stats().captures == 1);
}

/// Rollback, as after rejected speculation, then replay.
#[test]
fn rollback_then_replay_gives_the_same_bits() {
    let model = tiny(q4_0_path());
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = sequence(&model, mode);
        let first: Vec<_> = (0..12).map(|p| feed(&mut s, token(p, 256))).collect();
        for to in [11, 5, 0, 0] {
            s.rollback(to).unwrap();
            for junk in 0..(12 - to).min(4) {
                s.feed(junk as u32).unwrap();
            }
            s.rollback(to).unwrap();
            let again: Vec<_> = (to..12).map(|p| feed(&mut s, token(p, 256))).collect();
            assert_eq!(again, first[to..], "{mode:?} from {to}");
        }
        assert!(matches!(s.rollback(13), Err(DecodeError::Rollback { to: 13, length: 12 })));
        assert!(s.stats().captures <= 1);
    }
}

#[test]
fn a_snapshot_continues_where_it_was_taken() {
    let model = tiny(q4_0_path());
    let mut s = sequence(&model, Mode::Graph);
    s.prefill(&PROMPT).unwrap();
    let snapshot = s.snapshot().unwrap();
    // Of two layers, two key heads, eight positions and 64 elements of f16.
    assert_eq!([snapshot.keys(), snapshot.values()].map(<[u8]>::len), [2 * 2 * 8 * 64 * 2; 2]);
    assert_ne!(snapshot.keys(), snapshot.values());
    assert!(snapshot.key_scales().is_empty() && snapshot.value_scales().is_empty());
    let want = feed(&mut s, 3);
    let mut t = Session::new(&model, SequenceOptions { capacity: Some(20), ..Default::default() }).unwrap();
    t.feed(200).unwrap();
    t.restore(&snapshot).unwrap();
    assert_eq!(t.len(), 8);
    assert_eq!(feed(&mut t, 3), want);
    let mut f32s = Session::new(&model, options(Mode::Graph, KvType::F32)).unwrap();
    assert!(f32s.restore(&snapshot).unwrap_err().to_string().contains("it holds f16, the cache f32"));
    let mut short = Session::new(&model, SequenceOptions { capacity: Some(7), ..Default::default() }).unwrap();
    assert!(matches!(short.restore(&snapshot), Err(DecodeError::Snapshot { .. })));
}

#[test]
fn rz_9_a_longer_prompt_after_capture_is_decoded_like_any_other() {
    let model = tiny(q4_0_path());
    let mut s = sequence(&model, Mode::Graph);
    s.prefill(&[1]).unwrap();
    let long: Vec<u32> = (0..40).map(|p| token(p, 256)).collect();
    for n in [3, 40, 7] {
        s.reset();
        s.prefill(&long[..n]).unwrap();
        let mut fresh = sequence(&model, Mode::Eager);
        fresh.prefill(&long[..n]).unwrap();
        assert_eq!(bits(&s.logits().unwrap()), bits(&fresh.logits().unwrap()), "{n} tokens");
    }
    // Prompts are launched one by one.
    assert_eq!(s.stats().captures, 1);
    // A prompt longer than the tables of positions were made for moves them: the graph of before is not launched again.
    let o = SequenceOptions { capacity: Some(4), ..Default::default() };
    let (mut s, mut fresh) = (Session::new(&model, o).unwrap(), sequence(&model, Mode::Eager));
    for (grown, captures) in [(false, 1), (true, 2)] {
        if grown {
            s.set_capacity(48).unwrap();
            s.prefill(&long[..40]).unwrap();
            fresh.prefill(&long[..40]).unwrap();
        }
        for &t in &long[..3] {
            assert_eq!(feed(&mut s, t), feed(&mut fresh, t), "grown: {grown}");
        }
        assert_eq!(s.stats().captures, captures, "grown: {grown}");
    }
}
