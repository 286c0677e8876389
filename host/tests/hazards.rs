//! Faults that other decoders have shipped, each as a test under the number it has in the project's notes.

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_driver::software;
use warpsmith_host::decode::{DecodeError, KvType, Mode, Model, Sequence, SequenceOptions};
use warpsmith_host::gguf::{Gguf, TensorType};
use warpsmith_host::model::{ModelError, ModelFile};

const OUT_OF_MEMORY: i32 = 2;
const CAPTURE_INVALIDATED: i32 = 901;
const LAUNCH_FAILED: i32 = 719;

/// Logits of a fresh sequence of a freshly loaded model.
fn fresh(file: &ModelFile, tokens: std::ops::Range<usize>) -> Vec<Vec<u32>> {
    let mut s = sequence(&load(file), Mode::Eager);
    tokens.map(|p| feed(&mut s, token(p, file.config().vocab))).collect()
}

/// Three models of equal depth: two of one shape, one of another format.
fn trio() -> [ModelFile; 3] {
    let a = Synthetic { seed: 11, ..Default::default() };
    let b = Synthetic { seed: 12, ..a.clone() };
    let c = Synthetic { formats: vec![Format::Q1_0], seed: 13, ..a.clone() };
    [a.file(), b.file(), c.file()]
}

#[test]
fn ox_1_models_of_equal_depth_alternate_without_sharing_weights() {
    let files = trio();
    let want: Vec<_> = files.iter().map(|f| fresh(f, 0..6)).collect();
    let mut sequences: Vec<_> = files.iter().map(|f| sequence(&load(f), Mode::Graph)).collect();
    for p in 0..6 {
        for (i, s) in sequences.iter_mut().enumerate() {
            assert_eq!(feed(s, token(p, 96)), want[i][p], "model {i} position {p}");
        }
    }
    assert_ne!(want[0], want[1]);
}

#[test]
fn ox_2_a_model_at_the_addresses_of_a_dropped_one_is_another_model() {
    let [a, b, _] = trio();
    let want = fresh(&b, 0..3);
    let mut s = sequence(&load(&a), Mode::Graph);
    feed(&mut s, 1);
    let snapshot = s.snapshot().unwrap();
    drop(s);
    // The same sizes in the same order: an allocator may hand out the same addresses.
    let mut s = sequence(&load(&b), Mode::Graph);
    assert!(matches!(s.restore(&snapshot), Err(DecodeError::Snapshot { .. })));
    let got: Vec<_> = (0..3).map(|p| feed(&mut s, token(p, 96))).collect();
    assert_eq!(got, want);
    // The same file loaded twice is two models as well.
    let (x, y) = (load(&b), load(&b));
    let s = sequence(&x, Mode::Eager);
    let snapshot = s.snapshot().unwrap();
    assert!(matches!(sequence(&y, Mode::Eager).restore(&snapshot), Err(DecodeError::Snapshot { .. })));
    sequence(&x, Mode::Eager).restore(&snapshot).unwrap();
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
    for p in 0..4 {
        assert_eq!(feed(&mut s, token(p, 96)), want_a[p]);
        assert_eq!(feed(&mut t, token(p, 96)), want_b[p]);
    }
    // Two sequences of one model have a graph each, over their own caches.
    let model = load(&a);
    let (mut s, mut t) = (sequence(&model, Mode::Graph), sequence(&model, Mode::Graph));
    feed(&mut s, 9);
    feed(&mut s, 10);
    for p in 0..4 {
        assert_eq!(feed(&mut t, token(p, 96)), want_a[p]);
    }
}

#[test]
fn ox_4_a_new_cache_makes_a_new_graph() {
    let file = Synthetic { context: 64, ..Default::default() }.file();
    let want = fresh(&file, 0..20);
    let model = load(&file);
    let o = SequenceOptions { capacity: Some(8), ..Default::default() };
    let mut s = Sequence::new(&model, o).unwrap();
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
    assert_eq!((s.stats().captures, s.stats().replays, s.len()), (4, 20, 20));
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
        let mut s = Sequence::new(&model, SequenceOptions { capacity: Some(capacity), ..Default::default() }).unwrap();
        for (p, want) in want.iter().enumerate() {
            assert_eq!(&feed(&mut s, token(p, 96)), want, "capacity {capacity} position {p}");
        }
    }
}

#[test]
fn ox_6_ox_7_prefill_is_the_same_as_single_steps_and_decoding_goes_on_from_it() {
    let model = tiny(q4_0_path());
    let tokens: Vec<u32> = (0..20).map(|p| token(p, 256)).collect();
    for mode in [Mode::Eager, Mode::Graph] {
        let (mut one, mut all) = (sequence(&model, mode), sequence(&model, mode));
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
    let mut s = sequence(&model, Mode::Eager);
    // Ten launches a layer and one for the embedding; norm, projection and argmax at the end of the prompt.
    assert_eq!(s.launches_per_step(), 2 * 10 + 1 + 3);
    s.prefill(&PROMPT).unwrap();
    assert_eq!(s.stats().eager_launches, 8 * 21 + 3);
    assert_eq!(s.stats().eager_steps, 8);
    // A format of its own for each of q, k, v and of gate, up costs a launch for each.
    let mixed = Synthetic {
        formats: vec![Format::F32, Format::Q8_0, Format::Q4_0, Format::F16, Format::F16, Format::F32, Format::Q8_0, Format::F16],
        layers: 1,
        ..Default::default()
    };
    assert_eq!(sequence(&load(&mixed.file()), Mode::Eager).launches_per_step(), 10 + 3 + 4);
}

/// RZ-3: every launch of the step is in the graph.
#[test]
fn rz_3_graphs_have_a_node_for_every_launch() {
    for (m, launches) in [(Synthetic::default(), 24), (Synthetic { layers: 5, architecture: "llama", ..Default::default() }, 54)] {
        let mut s = sequence(&load(&m.file()), Mode::Graph);
        s.feed(1).unwrap();
        let g = s.graph().unwrap();
        assert_eq!((g.nodes, g.eager_launches, s.launches_per_step()), (launches, launches, launches));
    }
}

/// Runs until a failure of `function` is injected into step `n`; the call must fail with a typed error, leave
/// length and cache alone, and the repeated call and all that follow must give what a clean run gives.
fn failure_at(function: &'static str, code: i32, n: usize, mode: Mode) {
    let file = ModelFile::open(q4_0_path()).unwrap();
    let model = load(&file);
    let mut clean = sequence(&model, Mode::Eager);
    let mut s = sequence(&model, mode);
    for p in 0..10 {
        let t = token(p, 256);
        if p == n {
            let before = s.snapshot().unwrap();
            let guard = software::inject_failure(Some(function), 0, code);
            let e = s.feed(t).unwrap_err();
            drop(guard);
            assert_eq!(s.len(), n, "{function} {mode:?}: {e}");
            assert_eq!(s.snapshot().unwrap(), before, "{function} {mode:?}");
        }
        assert_eq!(feed(&mut s, t), feed(&mut clean, t), "{function} {mode:?} position {p}");
    }
    assert_eq!(s.snapshot().unwrap(), clean.snapshot().unwrap(), "{function} {mode:?}");
    assert_eq!(s.len(), 10);
}

#[test]
fn ox_13_rz_6_a_failed_step_changes_nothing_and_can_be_repeated() {
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    for n in [0, 1, 5] {
        failure_at("cuLaunchKernel", LAUNCH_FAILED, n, Mode::Eager);
        failure_at("cuMemcpyHtoDAsync_v2", LAUNCH_FAILED, n, Mode::Eager);
        failure_at("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, n, Mode::Graph);
        failure_at("cuGraphLaunch", LAUNCH_FAILED, n, Mode::Graph);
    }
}

/// FE-10, RZ-4, RZ-11: every call of a capture may fail.
#[test]
fn fe_10_rz_4_a_failed_capture_leaves_stream_and_sequence_usable() {
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    for function in [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphGetNodes",
        "cuGraphInstantiateWithFlags",
        "cuGraphUpload",
        "cuLaunchKernel",
    ] {
        let model = tiny(q4_0_path());
        let mut clean = sequence(&model, Mode::Eager);
        let mut s = sequence(&model, Mode::Graph);
        for p in 0..8 {
            let t = token(p, 256);
            if p == 0 || p == 4 {
                s.set_mode(Mode::Graph);
                if p == 4 {
                    // A new cache asks for a new graph.
                    s.set_capacity(100).unwrap();
                }
                let before = s.snapshot().unwrap();
                let guard = software::inject_failure(Some(function), 0, CAPTURE_INVALIDATED);
                let e = s.feed(t).unwrap_err();
                drop(guard);
                assert!(matches!(e, DecodeError::Capture { .. }), "{function}: {e}");
                assert_eq!((s.len(), s.graph().is_some()), (p, p == 4), "{function}");
                assert_eq!(s.snapshot().unwrap(), before, "{function}");
                // No silent fallback; the caller chooses to go on eagerly.
                s.set_mode(if p == 0 { Mode::Eager } else { Mode::Graph });
            }
            if p == 2 {
                s.set_mode(Mode::Graph);
            }
            assert_eq!(feed(&mut s, t), feed(&mut clean, t), "{function} position {p}");
        }
        assert_eq!(s.snapshot().unwrap(), clean.snapshot().unwrap(), "{function}");
        assert_eq!((s.stats().eager_steps, s.stats().replays, s.stats().captures), (2, 6, 2), "{function}");
    }
}

fn at_the_limit(mode: Mode, kv: KvType) {
    let file = Synthetic { layers: 2, ..Default::default() }.file();
    let model = load(&file);
    let o = SequenceOptions { capacity: Some(5), mode, kv, ..Default::default() };
    let mut s = Sequence::new(&model, o).unwrap();
    for p in 0..5 {
        s.feed(token(p, 96)).unwrap();
    }
    let (cache, logits) = (s.raw_cache().unwrap(), bits(&s.logits().unwrap()));
    let stats = s.stats();
    for _ in 0..2 {
        let e = s.feed(1).unwrap_err();
        assert!(matches!(e, DecodeError::ContextFull { tokens: 1, length: 5, capacity: 5, .. }), "{e}");
    }
    assert_eq!((s.len(), s.stats()), (5, stats));
    assert_eq!(s.raw_cache().unwrap(), cache);
    assert_eq!(bits(&s.logits().unwrap()), logits);
    s.rollback(4).unwrap();
    assert_eq!(feed(&mut s, token(4, 96)), logits);
}

#[test]
fn ox_14_position_at_capacity_is_an_error() {
    for kv in [KvType::F16, KvType::F32] {
        at_the_limit(Mode::Eager, kv);
    }
}

#[test]
fn rz_7_a_replay_past_the_context_is_an_error() {
    at_the_limit(Mode::Graph, KvType::F16);
}

#[test]
fn ox_14_a_step_writes_its_own_rows_of_the_cache_and_no_others() {
    let m = Synthetic { layers: 3, ..Default::default() };
    let model = load(&m.file());
    for (kv, size) in [(KvType::F16, 2), (KvType::F32, 4)] {
        let o = SequenceOptions { capacity: Some(7), kv, ..Default::default() };
        let mut s = Sequence::new(&model, o).unwrap();
        let row = m.head_dim * size;
        let mut before = s.raw_cache().unwrap();
        assert_eq!(before.len(), 2 * 3 * m.kv_heads * 7 * row);
        for p in 0..7 {
            s.feed(token(p, 96)).unwrap();
            let after = s.raw_cache().unwrap();
            for (i, (b, a)) in before.chunks(row).zip(after.chunks(row)).enumerate() {
                assert_eq!(b != a, i % 7 == p, "{kv} position {p}: row {i}");
            }
            before = after;
        }
    }
}

/// FE-11 and FE-5: captured when the cache is almost empty, replayed until it is full.
#[test]
fn fe_5_fe_11_a_graph_serves_every_length_up_to_the_capacity() {
    let file = Synthetic { context: 130, ..Default::default() }.file();
    let model = load(&file);
    let (mut eager, mut graph) = (sequence(&model, Mode::Eager), sequence(&model, Mode::Graph));
    for p in 0..130 {
        assert_eq!(feed(&mut eager, token(p, 96)), feed(&mut graph, token(p, 96)), "position {p}");
    }
    for s in [&mut eager, &mut graph] {
        assert!(matches!(s.feed(0), Err(DecodeError::ContextFull { .. })));
    }
}

#[test]
fn fe_11_a_prompt_longer_than_the_context_is_refused_as_a_whole() {
    let model = load(&Synthetic::default().file());
    let mut s = Sequence::new(&model, SequenceOptions { capacity: Some(4), ..Default::default() }).unwrap();
    let e = s.prefill(&[1, 2, 3, 4, 5]).unwrap_err();
    assert!(matches!(e, DecodeError::ContextFull { tokens: 5, length: 0, capacity: 4, most: 64 }), "{e}");
    assert!(s.is_empty() && s.stats() == Default::default());
    s.prefill(&[1, 2, 3, 4]).unwrap();
    assert!(matches!(s.prefill(&[]), Err(DecodeError::EmptyPrompt)));
    for capacity in [0, 65, usize::MAX] {
        let o = SequenceOptions { capacity: Some(capacity), ..Default::default() };
        assert!(matches!(Sequence::new(&model, o), Err(DecodeError::Capacity { .. })), "{capacity}");
    }
}

#[test]
fn ox_15_heads_that_the_kernels_cannot_hold_are_refused_before_anything_runs() {
    let file = Synthetic { heads: 1, kv_heads: 1, head_dim: 320, formats: vec![Format::F16], ..Default::default() }.file();
    let e = Sequence::new(&load(&file), SequenceOptions::default()).unwrap_err();
    assert!(e.to_string().contains("head_dim") && e.to_string().contains("320"), "{e}");
    // Rows that are no whole number of blocks do not even open.
    let mut w = Synthetic::default().writer();
    w.remove_tensor("output.weight");
    w.tensor("output.weight", &[96, 128], TensorType::F16, vec![0; 2 * 96 * 128]).unwrap();
    let mut bytes = w.to_bytes();
    let name = b"output.weight";
    let at = bytes.windows(name.len()).position(|x| x == name).unwrap() + name.len() + 20;
    bytes[at] = 41;
    let e = Gguf::from_bytes(bytes).unwrap_err();
    assert!(e.to_string().contains("not a multiple of the 128 elements"), "{e}");
}

#[test]
fn ox_18_logits_are_as_many_as_the_vocabulary_and_never_stale() {
    let model = load(&Synthetic { vocab: 97, ..Default::default() }.file());
    let mut s = sequence(&model, Mode::Graph);
    assert!(matches!(s.logits(), Err(DecodeError::NoLogits)));
    s.prefill(&[1, 2, 3]).unwrap();
    assert_eq!(s.logits().unwrap().len(), 97);
    s.rollback(1).unwrap();
    assert!(matches!(s.logits(), Err(DecodeError::NoLogits)));
    s.feed(2).unwrap();
    s.reset();
    assert!(matches!(s.logits(), Err(DecodeError::NoLogits)));
    // A small model after a large one on the same device: nothing of the large one is left in its logits.
    let small = Synthetic { vocab: 5, ..Default::default() }.file();
    assert_eq!(fresh(&small, 0..2)[1].len(), 5);
}

#[test]
fn ox_21_ties_go_to_the_lowest_token_and_nan_never_wins() {
    let m = Synthetic { formats: vec![Format::F32], vocab: 40, ..Default::default() };
    let mut w = m.writer();
    let row = m.hidden * 4;
    let out = w.tensor_data_mut("output.weight").unwrap();
    let first: Vec<u8> = out[..row].to_vec();
    for r in 1..40 {
        out[r * row..(r + 1) * row].copy_from_slice(&first);
    }
    let file = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    let mut s = sequence(&load(&file), Mode::Graph);
    assert_eq!(s.feed(7).unwrap(), 0);
    let logits = s.logits().unwrap();
    assert!(logits.iter().all(|l| l.to_bits() == logits[0].to_bits()));

    // A norm so large that every logit is inf - inf.
    let norm = w.tensor_data_mut("output_norm.weight").unwrap();
    for (i, v) in norm.chunks_exact_mut(4).enumerate() {
        v.copy_from_slice(&(if i % 2 == 0 { f32::MAX } else { -f32::MAX }).to_le_bytes());
    }
    let out = w.tensor_data_mut("output.weight").unwrap();
    out.chunks_exact_mut(4).for_each(|v| v.copy_from_slice(&1e30f32.to_le_bytes()));
    let file = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    let mut s = sequence(&load(&file), Mode::Graph);
    let e = s.feed(7).unwrap_err();
    assert!(matches!(e, DecodeError::NotANumber { position: 0 }), "{e}");
    assert!(s.is_empty() && matches!(s.logits(), Err(DecodeError::NoLogits)));
}

/// FE-27 and OX-17: the last token is fine, the one after it is an error.
#[test]
fn fe_27_tokens_outside_the_vocabulary_are_refused() {
    let model = load(&Synthetic { vocab: 77, ..Default::default() }.file());
    let mut s = sequence(&model, Mode::Graph);
    s.feed(76).unwrap();
    for bad in [77, 78, u32::MAX] {
        let e = s.prefill(&[1, bad]).unwrap_err();
        assert!(matches!(e, DecodeError::Token { token, index: 1, vocab: 77 } if token == bad), "{e}");
        assert!(matches!(s.feed_with_hidden(bad), Err(DecodeError::Token { .. })));
    }
    assert_eq!(s.len(), 1);
}

/// FE-17: sizes in elements and bytes are not mixed up, for either element type, beyond the first layer.
#[test]
fn fe_17_f16_and_f32_caches_hold_the_same_values() {
    let m = Synthetic { layers: 4, kv_heads: 4, ..Default::default() };
    let model = load(&m.file());
    let run = |kv| {
        let mut s = Sequence::new(&model, SequenceOptions { capacity: Some(9), kv, ..Default::default() }).unwrap();
        s.prefill(&(0..9).map(|p| token(p, 96)).collect::<Vec<_>>()).unwrap();
        s.snapshot().unwrap()
    };
    let (half, full) = (run(KvType::F16), run(KvType::F32));
    assert_eq!(half.keys().len() * 2, full.keys().len());
    assert_eq!(full.values().len(), 4 * 4 * 9 * 64 * 4);
    for (h, f) in [(half.keys(), full.keys()), (half.values(), full.values())] {
        let pairs = h.as_chunks::<2>().0.iter().zip(f.as_chunks::<4>().0);
        for (i, (h, f)) in pairs.enumerate() {
            let (h, f) = (half::f16::from_le_bytes(*h).to_f32(), f32::from_le_bytes(*f));
            // The first layer's entries are exactly rounded; later layers also see rounded attention.
            assert!((h - f).abs() <= 4e-3 * (1.0 + f.abs()), "element {i}: {h} {f}");
            if i < 4 * 9 * 64 {
                assert_eq!(h, half::f16::from_f32(f).to_f32(), "element {i}");
            }
        }
    }
}

/// FE-18: what sequences and models take is given back. Other tests use the device too: a process of its own.
#[test]
fn fe_18_memory_is_given_back() {
    alone("inner_memory_is_given_back", "64M");
}

#[test]
#[ignore = "run by `fe_18_memory_is_given_back` in a process of its own"]
fn inner_memory_is_given_back() {
    let d = device();
    let file = Synthetic::default().file();
    let start = (d.live_allocations(), d.memory_info().unwrap());
    for round in 0..3 {
        let model = Model::load(&d, &file).unwrap();
        let loaded = (d.live_allocations(), d.memory_info().unwrap());
        assert!(loaded.1.free + model.bytes() >= start.1.free, "the budget covers what is taken");
        for _ in 0..10 {
            let mut s = sequence(&model, Mode::Graph);
            s.prefill(&[1, 2, 3]).unwrap();
            s.set_capacity(32).unwrap();
            s.feed(4).unwrap();
            let taken = loaded.1.free - d.memory_info().unwrap().free;
            let budget = 2 * Sequence::device_bytes(&model, 64, KvType::F16).unwrap();
            assert!(taken <= budget, "{taken} of {budget}");
            drop(s);
            assert_eq!((d.live_allocations(), d.memory_info().unwrap()), loaded, "round {round}");
        }
        drop(model);
        assert_eq!((d.live_allocations(), d.memory_info().unwrap()), start, "round {round}");
    }
    assert!(d.take_deferred_error().is_none());
}

/// Runs an ignored test of this file alone, on a software device with this much memory.
fn alone(test: &str, memory: &str) {
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs([("WARPSMITH_DRIVER", "software"), ("WARPSMITH_MEMORY", memory)])
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
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
    let want = feed(&mut s, 3);
    let mut t = Sequence::new(&model, SequenceOptions { capacity: Some(20), ..Default::default() }).unwrap();
    t.feed(200).unwrap();
    t.restore(&snapshot).unwrap();
    assert_eq!(t.len(), 8);
    assert_eq!(feed(&mut t, 3), want);
    let mut f32s = Sequence::new(&model, options(Mode::Graph, KvType::F32)).unwrap();
    assert!(f32s.restore(&snapshot).unwrap_err().to_string().contains("it holds f16, the cache f32"));
    let mut short = Sequence::new(&model, SequenceOptions { capacity: Some(7), ..Default::default() }).unwrap();
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
    // One graph with logits, one without.
    assert_eq!(s.stats().captures, 2);
}

/// RZ-12: IQ4_NL and Q4_0 have blocks of one size; only the declared type decides.
#[test]
fn rz_12_types_are_declared_and_never_inferred_from_sizes() {
    let mut w = Synthetic::default().writer();
    let data = w.tensor_data_mut("output.weight").unwrap().to_vec();
    w.remove_tensor("output.weight");
    w.tensor("output.weight", &[128, 96], TensorType::IQ4_NL, data).unwrap();
    let e = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap_err();
    assert!(matches!(&e, ModelError::TensorType { actual: "IQ4_NL", .. }), "{e}");
    // And the file's hint about its type is not believed either.
    let mut w = Synthetic::default().writer();
    w.key("general.file_type", 7u32);
    ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
}

#[test]
fn rz_23_a_token_allocates_nothing_and_costs_two_copies() {
    if !device().is_software() {
        return eprintln!("skipped: calls are counted by the software driver");
    }
    let model = tiny(q4_0_path());
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = sequence(&model, mode);
        s.prefill(&[1, 2]).unwrap();
        software::reset_call_counts();
        for p in 2..52 {
            s.feed(token(p, 256)).unwrap();
        }
        let counts = software::call_counts();
        let of = |name: &str| counts.0.get(name).copied().unwrap_or(0);
        for (name, _) in counts.0.iter().filter(|(n, _)| n.contains("Alloc") || n.contains("Free") || n.contains("Create")) {
            panic!("{mode:?}: {name} was called: {counts:?}");
        }
        assert_eq!((of("cuMemcpyHtoDAsync_v2"), of("cuMemcpyDtoHAsync_v2")), (50, 50), "{mode:?}: {counts:?}");
        let launches = 50 * s.launches_per_step() as u64;
        let want = if mode == Mode::Eager { (launches, 0) } else { (0, 50) };
        assert_eq!((of("cuLaunchKernel"), of("cuGraphLaunch")), want, "{mode:?}: {counts:?}");
    }
}

#[test]
fn threads_decode_side_by_side() {
    let files = trio();
    let want: Vec<_> = files.iter().map(|f| fresh(f, 0..6)).collect();
    let models: Vec<_> = files.iter().map(load).collect();
    std::thread::scope(|scope| {
        for i in 0..6 {
            let (model, want) = (&models[i % 3], &want[i % 3]);
            scope.spawn(move || {
                let mut s = sequence(model, if i < 3 { Mode::Graph } else { Mode::Eager });
                for (p, want) in want.iter().enumerate() {
                    assert_eq!(&feed(&mut s, token(p, 96)), want, "thread {i}");
                }
            });
        }
    });
}

#[test]
fn parts_may_be_dropped_in_any_order() {
    let file = Synthetic::default().file();
    let device = device();
    let model = Model::load(&device, &file).unwrap();
    let mut s = sequence(&model, Mode::Graph);
    drop((device, model, file));
    s.feed(1).unwrap();
    let model = s.model().clone();
    drop(s);
    sequence(&model, Mode::Graph).feed(1).unwrap();
}

#[test]
fn a_context_that_does_not_fit_into_memory_is_refused_with_the_sizes() {
    let file = Synthetic { context: u32::MAX as usize, layers: 1, ..Default::default() }.file();
    let model = load(&file);
    let e = Sequence::new(&model, SequenceOptions::default()).unwrap_err();
    assert!(matches!(&e, DecodeError::Memory { needed, free, .. } if needed > free), "{e}");
    assert!(e.to_string().contains("positions in f16"), "{e}");
    Sequence::new(&model, SequenceOptions { capacity: Some(16), ..Default::default() }).unwrap().feed(1).unwrap();
}

#[test]
fn a_model_that_does_not_fit_into_memory_is_refused_with_the_sizes() {
    alone("inner_small_device", "400000");
}

#[test]
#[ignore = "run by `a_model_that_does_not_fit_into_memory_is_refused_with_the_sizes` on a device of 400 kB"]
fn inner_small_device() {
    let file = ModelFile::open(q4_0_path()).unwrap();
    let d = device();
    let before = d.live_allocations();
    let e = Model::load(&d, &file).unwrap_err();
    assert!(matches!(&e, DecodeError::Memory { what: "the model", needed, total, .. } if needed > total), "{e}");
    assert_eq!(d.live_allocations(), before);
    let small = Synthetic { layers: 1, ..Default::default() }.file();
    let model = Model::load(&d, &small).unwrap();
    // Out of memory midway, which no budget foresees: an error, and everything is given back.
    let before = d.live_allocations();
    let guard = software::inject_failure(Some("cuMemAlloc_v2"), 3, OUT_OF_MEMORY);
    let e = Model::load(&d, &small).unwrap_err();
    drop(guard);
    assert!(matches!(&e, DecodeError::Runtime(warpsmith_host::Error::OutOfMemory { .. })), "{e}");
    assert_eq!(d.live_allocations(), before);
    sequence(&model, Mode::Graph).feed(1).unwrap();
}
