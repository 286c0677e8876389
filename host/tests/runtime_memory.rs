//! Buffers, staging memory, copies and streams.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use warpsmith_device::{DeviceSlice, F32x4, f16};
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::{Buffer, Device, Error, Launcher, MemoryInfo};

#[test]
fn uploads_come_back() {
    let (_device, stream) = device();
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(stream.read(&stream.upload(&bytes).unwrap()).unwrap(), bytes);
    let halves: Vec<f16> = (0..100).map(|i| f16::from_f32(i as f32)).collect();
    assert_eq!(stream.read(&stream.upload(&halves).unwrap()).unwrap(), halves);
    let vectors = [F32x4([1.0, 2.0, 3.0, 4.0]); 7];
    let buffer = stream.upload(&vectors).unwrap();
    assert_eq!(buffer.address().raw() % 256, 0);
    assert_eq!(stream.read(&buffer[3..4]).unwrap(), [vectors[3]]);
    assert_eq!(stream.read(buffer.cast::<f32>().unwrap()).unwrap().len(), 28);
}

#[test]
fn empty_buffers_work() {
    let (device, stream) = device();
    let mut empty: Buffer<f32> = device.alloc(0).unwrap();
    let other: Buffer<f32> = device.alloc(0).unwrap();
    assert!(empty.is_empty() && empty.address() != other.address());
    stream.write(&mut empty, &[]).unwrap();
    stream.fill(&mut empty, 1.0).unwrap();
    stream.copy(&other, &mut empty).unwrap();
    assert!(stream.read(&empty).unwrap().is_empty());
    assert_eq!(stream.upload::<u64>(&[]).unwrap().len(), 0);
    assert_eq!(stream.zeros::<u64>(0).unwrap().len(), 0);
    assert_eq!(stream.copies(), 0, "nothing is issued for nothing");
    let graph = stream.capture(|scope| scope.fill(&mut empty, 1.0)).unwrap();
    assert_eq!(graph.nodes(), 0);
    graph.launch(&stream).unwrap();
    let pinned = device.pinned::<u32>(0).unwrap();
    assert!(pinned.get().unwrap().is_empty());
}

#[test]
fn fills_and_copies() {
    let (_device, stream) = device();
    let mut a = stream.zeros::<u16>(10).unwrap();
    stream.fill(&mut a[2..5], 0x1234).unwrap();
    let mut b = stream.zeros::<u16>(10).unwrap();
    stream.fill(&mut b, 9).unwrap();
    stream.copy(&a[..5], &mut b[5..]).unwrap();
    assert_eq!(stream.read(&b).unwrap(), [9, 9, 9, 9, 9, 0, 0, 0x1234, 0x1234, 0x1234]);
    let mut c = stream.zeros::<f32>(3).unwrap();
    stream.fill(&mut c, -1.5).unwrap();
    assert_eq!(stream.read(&c).unwrap(), [-1.5; 3]);
    let mut d = stream.zeros::<f64>(3).unwrap();
    assert!(matches!(stream.fill(&mut d, 1.1), Err(Error::FillPattern { bytes: 8 })));
    stream.fill(&mut d, 0.0).unwrap();
    let mut bytes = stream.zeros::<u8>(7).unwrap();
    stream.fill(&mut bytes[1..], 200).unwrap();
    assert_eq!(stream.read(&bytes).unwrap(), [0, 200, 200, 200, 200, 200, 200]);
}

#[test]
fn lengths_that_differ_are_refused() {
    let (device, stream) = device();
    let mut a = stream.zeros::<u32>(4).unwrap();
    let b = stream.zeros::<u32>(3).unwrap();
    let pinned = device.pinned::<u32>(5).unwrap();
    let sizes = |error| match error {
        Error::SizeMismatch { to, from, .. } => (to, from),
        other => panic!("{other}"),
    };
    assert_eq!(sizes(stream.copy(&b, &mut a).unwrap_err()), (4, 3));
    assert_eq!(sizes(stream.write(&mut a, &[1, 2]).unwrap_err()), (4, 2));
    assert_eq!(sizes(stream.read_into(&a, &mut [0; 5]).unwrap_err()), (5, 4));
    assert_eq!(sizes(stream.write_pinned(&pinned, &mut a).unwrap_err()), (4, 5));
    assert_eq!(sizes(stream.read_pinned(&a, &pinned).unwrap_err()), (5, 4));
    assert_eq!(sizes(pinned.set(&[1]).unwrap_err()), (5, 1));
    assert_eq!(sizes(pinned.get_into(&mut [0; 6]).unwrap_err()), (6, 5));
    assert!(matches!(pinned.get_at(5), Err(Error::OutOfBounds { index: 5, len: 5, .. })));
    assert!(matches!(pinned.set_at(9, 0), Err(Error::OutOfBounds { index: 9, len: 5, .. })));
}

#[test]
fn staging_memory_waits_for_the_device() {
    let (device, stream) = device();
    let other = device.stream().unwrap();
    let (input, output) = (device.pinned::<u32>(64).unwrap(), device.pinned::<u32>(64).unwrap());
    assert_eq!(input.get().unwrap(), [0; 64], "zeroed");
    let mut cells = stream.zeros::<u32>(64).unwrap();
    for round in 0..50u32 {
        input.set(&[round; 64]).unwrap();
        input.set_at(7, round + 100).unwrap();
        stream.write_pinned(&input, &mut cells).unwrap();
        stream.launch(Bump { cells: &mut cells, n: 64, by: 1 }).unwrap();
        stream.read_pinned(&cells, &output).unwrap();
        // The memory is then used on another stream, which comes after the first one's use of it.
        let ready = stream.record().unwrap();
        other.wait(&ready).unwrap();
        other.read_pinned(&cells, &output).unwrap();
        let got = output.get().unwrap();
        assert!(got.iter().enumerate().all(|(i, &v)| v == round + 1 + if i == 7 { 100 } else { 0 }));
        assert_eq!(output.get_at(7).unwrap(), round + 101);
    }
}

#[test]
fn staging_memory_outlives_its_copies() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(1 << 16).unwrap();
    for i in 0..20 {
        let input = device.pinned::<u32>(1 << 16).unwrap();
        input.set(&vec![i; 1 << 16]).unwrap();
        stream.write_pinned(&input, &mut cells).unwrap();
        drop(input); // While the copy may be going on.
    }
    assert!(stream.read(&cells).unwrap().iter().all(|&v| v == 19));
    assert!(device.take_deferred_error().is_none());
}

#[test]
fn rz_5_pageable_uploads_are_ordered_with_the_launches_after_them() {
    // The software driver copies at once, in whatever order; what CUDA promises of it, only the checks know.
    let _checked = software::check(Checks::ALL);
    let (_device, stream) = device();
    let n = (1 << 20) / 4; // 1 MiB.
    let mut cells = stream.zeros::<u32>(n).unwrap();
    let rounds = 50;
    for round in 0..rounds {
        let values = vec![round; n];
        stream.write(&mut cells, &values).unwrap();
        drop(values);
        // All of it on every tenth round; else its ends, which arrive first and last.
        if round % 10 == 0 {
            stream.launch(Bump { cells: &mut cells, n: n as u32, by: 1 }).unwrap();
            assert!(stream.read(&cells).unwrap().iter().all(|&v| v == round + 1), "round {round}");
        } else {
            stream.launch(Bump { cells: &mut cells[..128], n: 128, by: 1 }).unwrap();
            stream.launch(Bump { cells: &mut cells[n - 128..], n: 128, by: 1 }).unwrap();
            assert_eq!(stream.read(&cells[..128]).unwrap(), [round + 1; 128], "round {round}");
            assert_eq!(stream.read(&cells[n - 128..]).unwrap(), [round + 1; 128], "round {round}");
        }
    }
    let found = software::take_findings();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn ids_are_never_reused() {
    let device = Device::open(0).unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut addresses = std::collections::HashSet::new();
    for _ in 0..100 {
        let buffer = device.alloc::<u8>(4096).unwrap();
        addresses.insert(buffer.address());
        assert!(seen.insert(buffer.id()), "the same id, whatever the address");
    }
    println!("{} addresses for 100 buffers", addresses.len());
}

#[test]
fn memory_is_given_back() {
    if !is_child() {
        return child_passes("memory_is_given_back", &[]);
    }
    let (device, stream) = device();
    let (live, free) = memory_of_child(&device);
    assert!(free <= device.memory_info().unwrap().total);
    for _ in 0..50 {
        let a = stream.zeros::<f32>(1 << 20).unwrap();
        let b = stream.zeros::<f32>(1 << 20).unwrap();
        assert_eq!(device.live_allocations(), live + 2);
        drop((b, a));
    }
    let after = memory_of_child(&device);
    assert_eq!(after.0, live);
    // A GPU's memory is other processes' too.
    if device.is_software() {
        assert_eq!(after.1, free);
    }
    assert!(device.take_deferred_error().is_none());
}

#[test]
fn too_much_memory_is_a_typed_error_with_numbers() {
    let (device, stream) = device();
    let MemoryInfo { total, .. } = device.memory_info().unwrap();
    for len in [total as usize + 1, usize::MAX / 2, usize::MAX] {
        match device.alloc::<u8>(len).unwrap_err() {
            Error::OutOfMemory { requested, free, total: t } => {
                assert!(requested >= len as u64 && t == total && free <= total, "{requested} {free}");
            }
            other => panic!("{other}"),
        }
    }
    let overflow = device.alloc::<u64>(usize::MAX / 4).unwrap_err();
    assert!(matches!(overflow, Error::OutOfMemory { requested: u64::MAX, .. }), "{overflow}");
    let overflow = device.pinned::<u64>(usize::MAX / 4).unwrap_err();
    assert!(matches!(overflow, Error::OutOfHostMemory { requested: u64::MAX }), "{overflow}");
    assert_eq!(stream.read(&stream.upload(&[1u32]).unwrap()).unwrap(), [1], "the device goes on");
}

#[test]
fn a_small_device_runs_out_and_recovers() {
    if !is_child() {
        let small = [("WARPSMITH_DRIVER", "software"), ("WARPSMITH_MEMORY", "1M")];
        return child_passes("a_small_device_runs_out_and_recovers", &small);
    }
    let (device, stream) = device();
    let total = device.memory_info().unwrap().total;
    assert_eq!(total, 1 << 20);
    let mut buffers = Vec::new();
    let error = loop {
        match stream.zeros::<u8>(100_000) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
    };
    assert!((5..=10).contains(&buffers.len()), "{}", buffers.len());
    assert!(matches!(error, Error::OutOfMemory { requested: 100_000, total: t, .. } if t == total));
    assert!(error.to_string().contains("WARPSMITH_MEMORY"), "{error}");
    buffers.clear();
    let mut cells = stream.zeros::<u32>(100_000).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 100_000, by: 1 }).unwrap();
    assert!(stream.read(&cells).unwrap().iter().all(|&v| v == 1));
}

#[test]
fn memory_that_nobody_here_owns_may_be_launched_on_but_not_captured() {
    let (_device, stream) = device();
    // SAFETY: freed below, after its last use.
    let foreign = unsafe { cust::memory::cuda_malloc::<u32>(4) }.unwrap();
    // SAFETY: four words that nothing else uses.
    let slice = || unsafe { DeviceSlice::<u32>::from_raw_mut(foreign.as_raw(), 4) };
    stream.fill(slice(), 5).unwrap();
    stream.launch(Bump { cells: slice(), n: 4, by: 1 }).unwrap();
    assert_eq!(stream.read(slice()).unwrap(), [6; 4]);
    let error = stream.capture(|scope| scope.launch(Bump { cells: slice(), n: 4, by: 1 })).unwrap_err();
    assert!(matches!(error.root(), Error::UnknownOwner { operation: "bump", argument: "cells", .. }), "{error}");
    let error = stream.capture(|scope| scope.fill(slice(), 0)).unwrap_err();
    assert!(matches!(error.root(), Error::UnknownOwner { argument: "to", .. }), "{error}");
    // SAFETY: allocated above; the stream has been waited for.
    unsafe { cust::memory::cuda_free(foreign) }.unwrap();
}

#[test]
fn two_handles_of_one_device_share_its_memory() {
    let (_first, stream) = device();
    let (_second, other) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    stream.synchronize().unwrap();
    other.launch(Bump { cells: &mut cells, n: 4, by: 1 }).unwrap();
    other.synchronize().unwrap();
    let graph = other.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })).unwrap();
    assert!(graph.uses(cells.id()));
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [2; 4]);
}

#[test]
fn staging_memory_is_freed_with_its_last_owner() {
    let (device, stream) = device();
    if !device.is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let (staging, mut cells) = (device.pinned::<u32>(4).unwrap(), stream.zeros::<u32>(4).unwrap());
    let graph = stream.capture(|scope| scope.write_pinned(&staging, &mut cells)).unwrap();
    let guard = software::inject_failure(Some("cuMemFreeHost"), 0, 999);
    drop(staging);
    assert!(!guard.fired(), "the graph has it too");
    drop(graph);
    assert!(guard.fired());
    drop(guard);
    assert_eq!(device.take_deferred_error().and_then(|error| error.code()), Some(999));
}

#[test]
fn events_order_streams_and_have_times() {
    let (device, a) = device();
    let b = device.stream().unwrap();
    let mut cells = a.zeros::<u32>(1 << 16).unwrap();
    let start = a.record().unwrap();
    for round in 0..20 {
        let (one, two) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        one.launch(Bump { cells: &mut cells, n: 1 << 16, by: 1 }).unwrap();
        two.wait(&one.record().unwrap()).unwrap();
    }
    let end = a.record().unwrap();
    end.synchronize().unwrap();
    assert!(end.is_done().unwrap() && start.is_done().unwrap());
    let (ms, time) = (start.elapsed_ms(&end).unwrap(), start.elapsed(&end).unwrap());
    assert!(ms >= 0.0 && (time.as_secs_f64() * 1e3 - f64::from(ms)).abs() < 1e-3);
    assert!(a.read(&cells).unwrap().iter().all(|&v| v == 20));
}

#[test]
fn streams_and_buffers_go_from_thread_to_thread() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(1000).unwrap();
    // The stream is shared, the buffer is handed from thread to thread and back.
    for round in 0..4 {
        let stream = &stream;
        cells = std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    stream.launch(Bump { cells: &mut cells, n: 1000, by: 1 }).unwrap();
                    cells
                })
                .join()
                .unwrap()
        });
        assert_eq!(stream.read(&cells).unwrap(), [round + 1; 1000]);
    }
    // Everything dropped by another thread than the one that made it.
    std::thread::spawn(move || drop((cells, stream))).join().unwrap();
    assert!(device.take_deferred_error().is_none());
}

#[test]
fn rz_21_retain_release_and_stream_churn_across_threads() {
    let threads: Vec<_> = (0..4)
        .map(|t: u32| {
            std::thread::spawn(move || {
                for i in 0..100 {
                    let device = Device::open(0).unwrap();
                    let stream = device.stream().unwrap();
                    let mut cells = stream.upload(&[t, i]).unwrap();
                    if i % 10 == 0 {
                        device.load(&KERNELS).unwrap();
                        stream.launch(Bump { cells: &mut cells, n: 2, by: 1 }).unwrap();
                        assert_eq!(stream.read(&cells).unwrap(), [t + 1, i + 1]);
                    } else {
                        assert_eq!(stream.read(&cells).unwrap(), [t, i]);
                    }
                    if i % 25 == 0 {
                        // A thread that never opened the device has no current context.
                        let (stream, cells) = (&stream, &mut cells);
                        std::thread::scope(|scope| {
                            let elsewhere = scope.spawn(move || {
                                stream.write(cells, &[i, t])?;
                                let mut more = stream.upload(&[i])?;
                                stream.fill(&mut more, 7)?;
                                Ok::<_, Error>((stream.read(cells)?, stream.read(&more)?))
                            });
                            assert_eq!(elsewhere.join().unwrap().unwrap(), (vec![i, t], vec![7]));
                        });
                    }
                    // In any order; `cells` outlives all of them at times.
                    match i % 3 {
                        0 => drop((device, stream, cells)),
                        1 => drop((cells, stream, device)),
                        _ => drop((stream, cells, device)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn a_context_that_others_changed_is_made_current_again() {
    let (_device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    // SAFETY: no context is a valid current context.
    assert_eq!(unsafe { cust::sys::cuCtxSetCurrent(std::ptr::null_mut()) }, cust::sys::CUresult::CUDA_SUCCESS);
    stream.launch(Bump { cells: &mut cells, n: 4, by: 1 }).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [1; 4]);
}

#[test]
fn one_body_runs_on_a_stream_and_in_a_capture() {
    fn body(on: &mut impl Launcher, a: &Buffer<u32>, b: &mut Buffer<u32>) -> Result<(), Error> {
        on.copy(a, b)?;
        on.launch(Bump { cells: &mut b[..2], n: 2, by: 10 })?;
        on.fill(&mut b[3..], 1)
    }
    let (_device, mut stream) = device();
    let a = stream.upload(&[1u32, 2, 3, 4]).unwrap();
    let mut b = stream.zeros::<u32>(4).unwrap();
    body(&mut stream, &a, &mut b).unwrap();
    let eager = stream.read(&b).unwrap();
    assert_eq!(eager, [11, 12, 3, 1]);
    stream.fill(&mut b, 0).unwrap();
    body(&mut &stream, &a, &mut b).unwrap();
    let graph = stream.capture(|scope| body(scope, &a, &mut b)).unwrap();
    assert_eq!((graph.nodes(), graph.launches(), graph.copies()), (3, 1, 2));
    stream.fill(&mut b, 0).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&b).unwrap(), eager);
}
