//! Faults that other decoders have shipped when something fails, runs out or runs at once, each as a test under the
//! number it has in the project's notes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    Activations, DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Sampling, Sequence, SequenceOptions,
    Session, SessionOptions,
};
use warpsmith_host::model::ModelFile;

const OUT_OF_MEMORY: i32 = 2;
const CAPTURE_INVALIDATED: i32 = 901;
const LAUNCH_FAILED: i32 = 719;
/// Of those that leave the device usable.
const UNKNOWN: i32 = 999;

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
            assert!(guard.fired(), "{function} was not called");
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

/// What a step that fails leaves of itself: no logits, no part of what it wrote for its sampling, and no work under way. OX-13, RZ-6.
#[test]
fn after_a_failed_step_there_are_no_logits_and_everything_is_written_anew() {
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let model = tiny(q4_0_path());
    for mode in [Mode::Eager, Mode::Graph] {
        let mut decoder = Decoder::new(&model, DecoderOptions { mode, ..Default::default() }).unwrap();
        let mut s = Sequence::new(&model, SequenceOptions::default()).unwrap();
        let mut clean = sequence(&model, Mode::Eager);
        let step = |decoder: &mut Decoder, s: &mut Sequence, token| {
            decoder.step(&mut [Feed { sequence: s, token }]).map(|next| next[0])
        };
        for p in 0..2 {
            assert_eq!(step(&mut decoder, &mut s, token(p, 256)).unwrap(), clean.feed(token(p, 256)).unwrap());
        }
        // The first copy of a step is that of its sampling, where that has changed.
        let hot = Sampling { temperature: 2.0, seed: 5, ..Default::default() };
        s.set_sampling(hot).unwrap();
        let guard = software::inject_failure(Some("cuMemcpyHtoDAsync_v2"), 0, LAUNCH_FAILED);
        software::reset_call_counts();
        step(&mut decoder, &mut s, 7).unwrap_err();
        let counts = software::call_counts();
        assert!(guard.fired());
        drop(guard);
        // The buffers that launches count in may have been left midway, and what was queued must be over.
        assert!(counts.get("cuStreamSynchronize") > 0 && counts.get("cuMemsetD8Async") > 0, "{mode:?}: {counts:?}");
        // The step before had logits; they are not those of where the sequence would be.
        assert!(matches!(decoder.logits(0), Err(DecodeError::NoLogits)), "{mode:?}");
        // Chosen as before again: nothing of the failed step's sampling may be on the device.
        s.set_sampling(Sampling::default()).unwrap();
        for p in 2..6 {
            let next = step(&mut decoder, &mut s, token(p, 256)).unwrap();
            assert_eq!(next, clean.feed(token(p, 256)).unwrap(), "{mode:?} position {p}");
            assert_eq!(bits(&decoder.logits(0).unwrap()), bits(&clean.logits().unwrap()), "{mode:?} position {p}");
        }
        // The second copy is of the columns: the sampling was written, and the step fails behind it.
        s.set_sampling(hot).unwrap();
        let guard = software::inject_failure(Some("cuMemcpyHtoDAsync_v2"), 1, LAUNCH_FAILED);
        step(&mut decoder, &mut s, 7).unwrap_err();
        assert!(guard.fired());
        drop(guard);
        software::reset_call_counts();
        step(&mut decoder, &mut s, 7).unwrap();
        assert_eq!(software::call_counts().get("cuMemcpyHtoDAsync_v2"), 2, "{mode:?}: both are copied again");
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
        let o = SequenceOptions { capacity: Some(4), ..Default::default() };
        let mut s = Session::new(&model, o).unwrap();
        for p in 0..8 {
            let t = token(p, 256);
            if p == 0 || p == 4 {
                s.set_mode(Mode::Graph);
                if p == 4 {
                    // Positions past those that were prepared ask for a new graph.
                    s.set_capacity(100).unwrap();
                }
                let before = s.snapshot().unwrap();
                let guard = software::inject_failure(Some(function), 0, CAPTURE_INVALIDATED);
                let e = s.feed(t).unwrap_err();
                assert!(guard.fired(), "{function} was not called");
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

/// FE-18: what sequences and models take is given back. Other tests use the device too: a process of its own.
#[test]
fn fe_18_memory_is_given_back() {
    in_its_own_process("inner_memory_is_given_back", "64M");
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
            let budget = 2 * Session::device_bytes(&model, 64, KvType::F16, Activations::F32).unwrap();
            assert!(taken <= budget, "{taken} of {budget}");
            drop(s);
            assert_eq!((d.live_allocations(), d.memory_info().unwrap()), loaded, "round {round}");
        }
        drop(model);
        assert_eq!((d.live_allocations(), d.memory_info().unwrap()), start, "round {round}");
    }
    assert!(d.take_deferred_error().is_none());
}

/// What is compared with free memory before anything is allocated is what is taken then.
#[test]
fn sequences_and_decoders_take_the_memory_that_they_are_said_to_take() {
    in_its_own_process("inner_memory_is_as_it_was_said", "64M");
}

#[test]
#[ignore = "run by `sequences_and_decoders_take_the_memory_that_they_are_said_to_take` in a process of its own"]
fn inner_memory_is_as_it_was_said() {
    let d = device();
    let model = load(&Synthetic::default().file());
    let free = || d.memory_info().unwrap().free;
    let before = free();
    for kv in KvType::ALL {
        let options = SequenceOptions { capacity: Some(9), kv, ..Default::default() };
        let sequence = Sequence::new(&model, options).unwrap();
        assert_eq!(Sequence::device_bytes(&model, 9, kv), Some(before - free()), "{kv}");
        drop(sequence);
        assert_eq!(free(), before);
    }
    let exact = DecoderOptions { chunk: 1, positions: Some(16), activations: Activations::F32, ..Default::default() };
    let wide = DecoderOptions { batch: 8, prompt_logits: true, activations: Activations::Int8, ..Default::default() };
    for options in [DecoderOptions::default(), exact, wide] {
        let decoder = Decoder::new(&model, options).unwrap();
        // With as many tokens in a chunk as memory allows.
        assert_eq!(Decoder::device_bytes(&model, decoder.options()), Some(before - free()), "{options:?}");
        drop(decoder);
        assert_eq!(free(), before);
    }
}

#[test]
fn rz_23_a_token_allocates_nothing_and_costs_two_copies() {
    if !device().is_software() {
        return eprintln!("skipped: calls are counted by the software driver");
    }
    let model = tiny(q4_0_path());
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = sequence(&model, mode);
        s.feed(1).unwrap();
        s.feed(2).unwrap();
        software::reset_call_counts();
        for p in 2..52 {
            s.feed(token(p, 256)).unwrap();
        }
        let counts = software::call_counts();
        let of = |name: &str| counts.get(name);
        let forbidden = |(n, _): &(&str, u64)| n.contains("Alloc") || n.contains("Free") || n.contains("Create");
        assert_eq!(counts.iter().find(forbidden), None, "{mode:?}: {counts:?}");
        assert_eq!((of("cuMemcpyHtoDAsync_v2"), of("cuMemcpyDtoHAsync_v2")), (50, 50), "{mode:?}: {counts:?}");
        let launches = 50 * s.launches_per_step() as u64;
        let want = if mode == Mode::Eager { (launches, 0) } else { (0, 50) };
        let kernels = of("cuLaunchKernel") + of("cuLaunchKernelEx");
        assert_eq!((kernels, of("cuGraphLaunch")), want, "{mode:?}: {counts:?}");
    }
}

/// Lets each driver call of `work` fail once. A failure is an error and leaves nothing behind, or is none; either way the
/// work can be done after it, and `same` compares what it did with an undisturbed run.
fn every_call_may_fail<T, R: PartialEq + std::fmt::Debug>(
    what: &str,
    mut start: impl FnMut() -> T,
    mut work: impl FnMut(&mut T) -> Result<(), DecodeError>,
    mut outcome: impl FnMut(&mut T) -> R,
) {
    let d = device();
    let mut undisturbed = start();
    work(&mut undisturbed).unwrap();
    let want = outcome(&mut undisturbed);
    drop(undisturbed);
    let mut failures = 0;
    for n in 0.. {
        let before = (d.live_allocations(), d.memory_info().unwrap());
        let mut subject = start();
        let ready = (d.live_allocations(), d.memory_info().unwrap());
        let guard = software::inject_failure(None, n, UNKNOWN);
        let result = work(&mut subject);
        let fired = guard.fired();
        drop(guard);
        if !fired {
            result.unwrap();
            assert!(n > 2 && failures > 2, "{what}: {n} calls, {failures} failures");
            return;
        }
        // The next call frees what could not be freed.
        d.synchronize().unwrap();
        if let Err(error) = result {
            failures += 1;
            assert!(!error.to_string().is_empty());
            assert_eq!((d.live_allocations(), d.memory_info().unwrap()), ready, "{what}, call {n}: {error}");
            work(&mut subject).unwrap_or_else(|e| panic!("{what}, call {n}, repeated: {e}"));
        }
        assert_eq!(outcome(&mut subject), want, "{what}, call {n}");
        drop(subject);
        while d.take_deferred_error().is_some() {}
        assert_eq!((d.live_allocations(), d.memory_info().unwrap()), before, "{what}, call {n}: something stays");
    }
}

/// Other tests use the device too: a process of its own, where memory can be counted.
#[test]
fn every_driver_call_of_loading_and_resizing_may_fail() {
    in_its_own_process("inner_loading_and_resizing", "64M");
}

#[test]
#[ignore = "run by `every_driver_call_of_loading_and_resizing_may_fail` in a process of its own"]
fn inner_loading_and_resizing() {
    let d = device();
    let file = Synthetic { layers: 1, hidden: 64, feed_forward: 64, ..Default::default() }.file();
    let model = Model::load(&d, &file).unwrap();
    let o = || SequenceOptions { capacity: Some(4), ..Default::default() };
    let fill = |s: &mut Session| -> Vec<u32> { (0..3).flat_map(|p| feed(s, token(p, 96))).collect() };
    // The kernels' code is loaded once for all.
    fill(&mut Session::new(&model, o()).unwrap());

    every_call_may_fail(
        "Model::load",
        || None,
        |loaded| Model::load(&d, &file).map(|m| *loaded = Some(m)),
        |loaded| fill(&mut Session::new(loaded.as_ref().unwrap(), o()).unwrap()),
    );
    every_call_may_fail(
        "Session::new",
        || None,
        |made| Session::new(&model, o()).map(|s| *made = Some(s)),
        |made| fill(made.as_mut().unwrap()),
    );
    let filled = || {
        let mut s = Session::new(&model, o()).unwrap();
        fill(&mut s);
        s
    };
    every_call_may_fail("set_capacity", filled, |s| s.set_capacity(50), |s| (s.snapshot().unwrap(), feed(s, 7)));
    let snapshot = filled().snapshot().unwrap();
    every_call_may_fail(
        "restore",
        || Session::new(&model, o()).unwrap(),
        |s| s.restore(&snapshot),
        |s| (s.snapshot().unwrap(), feed(s, 7)),
    );
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
    let e = Session::new(&model, SessionOptions::default()).unwrap_err();
    assert!(matches!(&e, DecodeError::Memory { needed, free, .. } if needed > free), "{e}");
    assert!(e.to_string().contains("positions in f16"), "{e}");
    Session::new(&model, SequenceOptions { capacity: Some(16), ..Default::default() }).unwrap().feed(1).unwrap();
}

#[test]
fn a_model_that_does_not_fit_into_memory_is_refused_with_the_sizes() {
    in_its_own_process("inner_small_device", "1M");
}

#[test]
#[ignore = "run by `a_model_that_does_not_fit_into_memory_is_refused_with_the_sizes` on a device of 1 MiB"]
fn inner_small_device() {
    let file = ModelFile::open(f16_path()).unwrap();
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
    // Buffers for few tokens of a prompt fit, those for a large batch do not.
    let e = Decoder::new(&model, DecoderOptions { batch: 1024, ..Default::default() }).unwrap_err();
    assert!(matches!(&e, DecodeError::Memory { what: "the decoder", .. }), "{e}");
    let mut session = Session::new(&model, SessionOptions::default()).unwrap();
    assert!((1..64).contains(&session.decoder().chunk()), "{:?}", session.decoder());
    session.prefill(&[1; 40]).unwrap();
}
