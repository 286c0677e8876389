//! Captures: what they refuse, what a failed one leaves behind, and what other threads do meanwhile.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use warpsmith_driver_api::software::{call_counts, inject_failure, reset_call_counts};
use warpsmith_host::{Device, Error, Stream};

#[test]
fn fe_4_nothing_but_recording_is_possible_inside_a_capture() {
    let (device, stream) = device();
    let other = device.stream().unwrap();
    let fresh = Device::open(0).unwrap();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let pinned = device.pinned::<u32>(4).unwrap();
    let event = stream.record().unwrap();
    let graph = stream.capture(|scope| scope.fill(&mut cells, 1)).unwrap();
    let mut refused = Vec::new();
    let outer = stream
        .capture(|scope| {
            scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })?;
            let mut no = |result: Result<(), Error>| match result {
                Err(Error::InsideCapture { call }) => refused.push(call),
                Err(other) => panic!("{other}"),
                Ok(()) => panic!("possible after {refused:?}"),
            };
            no(device.alloc::<u32>(1).map(drop));
            no(device.pinned::<u32>(1).map(drop));
            no(device.stream().map(drop));
            no(device.synchronize());
            no(device.memory_info().map(drop));
            no(fresh.load(&KERNELS));
            no(other.zeros::<u32>(1).map(drop));
            no(other.read(&cells).map(drop));
            no(other.fill(&mut cells, 1));
            no(other.launch(Bump { cells: &mut cells, n: 4, by: 1 }));
            no(other.record().map(drop));
            no(stream.synchronize());
            no(stream.capture(|_| Ok(())).map(drop));
            no(other.capture(|_| Ok(())).map(drop));
            no(graph.launch(&other));
            no(graph.launch(&stream));
            no(pinned.get().map(drop));
            no(pinned.set(&[1; 4]));
            no(event.synchronize());
            Ok(())
        })
        .unwrap();
    assert_eq!(refused.len(), 19);
    assert_eq!(outer.nodes(), 1, "nothing of it got into the graph");
    outer.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [1; 4]);
    fresh.load(&KERNELS).unwrap();
}

#[test]
fn fe_4_memory_dropped_inside_a_capture_is_freed_afterwards() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let doomed = stream.zeros::<u32>(1000).unwrap();
    let address = doomed.address();
    let (pinned, graph) = (device.pinned::<u32>(4).unwrap(), stream.capture(|s| s.fill(&mut cells, 3)).unwrap());
    let live = device.live_allocations();
    let frees = ["cuMemFree_v2", "cuMemFreeHost", "cuGraphExecDestroy"];
    let outer = stream
        .capture(|scope| {
            scope.fill(&mut cells, 5)?;
            reset_call_counts();
            drop((doomed, pinned, graph));
            let counts = call_counts();
            assert_eq!(frees.map(|f| counts.get(f)), [0; 3]);
            Ok(())
        })
        .unwrap();
    let counts = call_counts();
    assert_eq!(frees.map(|f| counts.get(f)), [1; 3], "once the capture has ended");
    assert_eq!(device.live_allocations(), live - 1);
    assert!(device.take_deferred_error().is_none());
    outer.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [5; 4]);
    println!("{address:#x} was freed");
}

#[test]
fn fe_10_failed_capture_leaves_a_usable_stream() {
    let (device, stream) = device();
    let x = stream.zeros::<f32>(4).unwrap();
    let mut y = stream.zeros::<f32>(4).unwrap();
    let live = device.live_allocations();
    // A launch that breaks its contract, in the middle of a capture.
    let error = stream
        .capture(|scope| {
            scope.launch(Axpy { x: &x, y: &mut y, n: 4, a: 1.0 })?;
            scope.launch(Axpy { x: &x, y: &mut y, n: 5, a: 1.0 })?;
            unreachable!("the closure has returned")
        })
        .unwrap_err();
    assert!(matches!(&error, Error::CaptureFailed { stage: "recording", .. }), "{error}");
    assert!(matches!(error.root(), Error::Contract(e) if e.argument == "x"), "{error}");
    all_is_well(&stream);
    assert_eq!(device.live_allocations(), live);
    // A failure that the closure ignores is still a failure: the graph would lack a launch.
    let error = stream
        .capture(|scope| {
            let _ = scope.launch(Axpy { x: &x, y: &mut y, n: 5, a: 1.0 });
            scope.launch(Axpy { x: &x, y: &mut y, n: 4, a: 1.0 })
        })
        .unwrap_err();
    assert!(matches!(error.root(), Error::Ignored { message } if message.contains("axpy")), "{error}");
    all_is_well(&stream);
}

#[test]
fn fe_10_an_error_of_the_users_own_type_comes_back_as_it_is() {
    #[derive(Debug)]
    enum Mine {
        Enough(u32),
        Runtime(Error),
    }
    impl From<Error> for Mine {
        fn from(error: Error) -> Mine {
            Mine::Runtime(error)
        }
    }
    let (_device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let error = stream.try_capture(|scope| {
        scope.fill(&mut cells, 1)?;
        Err(Mine::Enough(3))
    });
    assert!(matches!(error, Err(Mine::Enough(3))));
    let error =
        stream.try_capture(|scope| -> Result<(), Mine> { Ok(scope.launch(Bump { cells: &mut cells, n: 5, by: 1 })?) });
    assert!(matches!(error, Err(Mine::Runtime(Error::Contract(_)))));
    all_is_well(&stream);
}

#[test]
fn rz_11_a_panic_inside_the_closure_ends_the_capture() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.capture(|scope| {
            scope.fill(&mut cells, 1)?;
            let _dropped_while_unwinding = &device;
            panic!("in the middle");
        })
    }));
    assert!(panicked.is_err());
    all_is_well(&stream);
    device.alloc::<u32>(1).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [0; 4]);
}

/// One step as a decoder does it: capture, replay, read back.
fn capture_and_replay(
    stream: &Stream,
    cells: &mut warpsmith_host::Buffer<u32>,
    output: &warpsmith_host::Pinned<u32>,
) -> Result<Vec<u32>, Error> {
    let graph = stream.capture(|scope| {
        scope.fill(cells, 5)?;
        scope.launch(Bump { cells, n: 64, by: 1 })?;
        scope.read_pinned(cells, output)
    })?;
    graph.launch(stream)?;
    output.get()
}

#[test]
fn fe_10_rz_4_failures_at_every_driver_call_of_a_capture_and_a_replay() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(64).unwrap();
    let output = device.pinned::<u32>(64).unwrap();
    let right = capture_and_replay(&stream, &mut cells, &output).unwrap();
    assert_eq!(right, [6; 64]);
    let live = device.live_allocations();
    let mut failures = 0;
    for code in [1, 901] {
        for nth in 0.. {
            let guard = inject_failure(None, nth, code);
            let result = capture_and_replay(&stream, &mut cells, &output);
            let fired = guard.fired();
            drop(guard);
            match result {
                // A call whose failure has nobody to be told, such as one of `drop`.
                Ok(got) => assert_eq!(got, right, "call {nth}"),
                Err(error) => {
                    assert!(fired, "call {nth}: {error}");
                    assert!(error.code().is_some(), "call {nth}: {error}");
                    failures += 1;
                }
            }
            while device.take_deferred_error().is_some() {}
            all_is_well(&stream);
            assert_eq!(capture_and_replay(&stream, &mut cells, &output).unwrap(), right, "after call {nth}");
            assert_eq!(device.live_allocations(), live, "after call {nth}");
            if !fired {
                assert!(nth > 10, "only {nth} calls");
                break;
            }
        }
    }
    assert!(failures >= 18, "{failures}");
}

#[test]
fn rz_4_an_end_that_fails_is_a_typed_error_and_the_stream_recovers() {
    let (_device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    for (function, stage) in [
        ("cuStreamBeginCapture_v2", "beginning"),
        ("cuStreamEndCapture", "ending"),
        ("cuGraphGetNodes", "counting nodes"),
        ("cuGraphInstantiateWithFlags", "instantiating"),
        ("cuGraphUpload", "uploading"),
    ] {
        for code in [901, 719, 2] {
            let guard = inject_failure(Some(function), 0, code);
            let error = stream.capture(|scope| scope.fill(&mut cells, 1)).unwrap_err();
            assert!(guard.fired());
            drop(guard);
            match &error {
                Error::CaptureFailed { stage: s, source } => {
                    assert_eq!(*s, stage);
                    assert!(
                        matches!(&**source, Error::Driver { call, code: c, .. } if *call == function && *c == code),
                        "{error}"
                    );
                }
                other => panic!("{other}"),
            }
            all_is_well(&stream);
        }
    }
}

#[test]
fn ox_19_other_threads_go_on_while_a_stream_is_captured() {
    let (device, stream) = device();
    let stop = AtomicBool::new(false);
    let started = Barrier::new(4);
    std::thread::scope(|scope| {
        for t in 0..2u32 {
            let (device, stop, started) = (&device, &stop, &started);
            scope.spawn(move || {
                // Allocates, uploads, launches, reads and frees all the while.
                let stream = device.stream().unwrap();
                started.wait();
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds < 20 {
                    let mut cells = stream.upload(&vec![t; 4096]).unwrap();
                    stream.launch(Bump { cells: &mut cells, n: 4096, by: 1 }).unwrap();
                    assert!(stream.read(&cells).unwrap().iter().all(|&v| v == t + 1));
                    rounds += 1;
                }
            });
        }
        let capture = |stream: &Stream| {
            for i in 0..30u32 {
                let mut cells = stream.zeros::<u32>(64).unwrap();
                let graph = stream
                    .capture(|scope| {
                        for _ in 0..5 {
                            scope.launch(Bump { cells: &mut cells, n: 64, by: i })?;
                            std::thread::yield_now();
                        }
                        Ok(())
                    })
                    .unwrap();
                graph.launch(stream).unwrap();
                assert_eq!(stream.read(&cells).unwrap(), [5 * i; 64]);
            }
        };
        // Two threads capture at once, too.
        let second = {
            let (device, started) = (&device, &started);
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                started.wait();
                capture(&stream);
            })
        };
        started.wait();
        capture(&stream);
        second.join().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    assert!(device.take_deferred_error().is_none());
}

#[test]
fn ox_19_devices_streams_and_modules_come_and_go_while_a_stream_is_captured() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let graph = stream
        .capture(|scope| {
            scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })?;
            // Waiting for the whole context would void the capture.
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let own = Device::open(0).unwrap();
                    own.load(&KERNELS).unwrap();
                    let stream = own.stream().unwrap();
                    let mut cells = stream.zeros::<u32>(4).unwrap();
                    stream.launch(Bump { cells: &mut cells, n: 4, by: 1 }).unwrap();
                    own.synchronize().unwrap();
                    let graph = stream.capture(|scope| scope.fill(&mut cells, 9)).unwrap();
                    graph.launch(&stream).unwrap();
                    drop((own, stream, cells, graph));
                    assert!(matches!(device.synchronize(), Err(Error::StreamCapturing { .. })));
                });
            });
            scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })
        })
        .unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [2; 4]);
    device.synchronize().unwrap();
}

#[test]
fn ox_19_another_thread_cannot_use_the_stream_that_is_captured() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let other = stream.zeros::<u32>(4).unwrap();
    let graph = stream
        .capture(|scope| {
            scope.fill(&mut cells, 1)?;
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let busy = |result: Result<(), Error>| matches!(result, Err(Error::StreamCapturing { .. }));
                    assert!(busy(stream.synchronize()));
                    assert!(busy(stream.read(&other).map(drop)));
                    assert!(busy(stream.record().map(drop)));
                    assert!(busy(stream.capture(|_| Ok(())).map(drop)));
                    device.alloc::<u32>(1).unwrap();
                });
            });
            Ok(())
        })
        .unwrap();
    assert_eq!(graph.nodes(), 1);
    all_is_well(&stream);
}

#[test]
fn a_failed_capture_leaks_nothing() {
    if !is_child() {
        return child_passes("a_failed_capture_leaks_nothing", &[]);
    }
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(1 << 10).unwrap();
    all_is_well(&stream);
    let free = device.memory_info().unwrap().free;
    let (mut made, mut destroyed) = (0, 0);
    for i in 0..100 {
        reset_call_counts();
        let result = stream.capture(|scope| {
            scope.launch(Bump { cells: &mut cells, n: 1 << 10, by: 1 })?;
            if i % 2 == 0 { Err(Error::StagingLost { call: "test" }) } else { Ok(()) }
        });
        assert_eq!(result.is_ok(), i % 2 == 1);
        drop(result);
        let counts = call_counts();
        made += counts.get("cuStreamEndCapture") + counts.get("cuGraphInstantiateWithFlags");
        destroyed += counts.get("cuGraphDestroy") + counts.get("cuGraphExecDestroy");
    }
    assert_eq!((made, destroyed), (150, 150));
    // A GPU's memory is other processes' too.
    if device.is_software() {
        assert_eq!(device.memory_info().unwrap().free, free);
    }
}
