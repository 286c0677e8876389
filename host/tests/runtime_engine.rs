//! Which engine runs, what is said if there is none, and what a fault leaves behind.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use warpsmith_host::{Device, Error};

#[test]
fn ox_23_the_engine_is_always_told() {
    let (device, _stream) = device();
    let engine = device.engine().to_string();
    assert!(engine.starts_with("software") || engine.starts_with("cuda"), "{engine}");
    assert_eq!(device.is_software(), engine.starts_with("software"));
    assert!(device.sm() >= 75);
    let limits = device.limits();
    assert!(limits.threads >= 1024 && limits.grid[0] >= 65535 && limits.multiprocessors > 0, "{limits:?}");
}

#[test]
fn ox_23_a_device_that_does_not_exist_is_a_typed_error_never_another_device() {
    let count = Device::count().unwrap();
    let error = Device::open(count).unwrap_err();
    assert!(matches!(error, Error::NoDevice { ordinal, count: c, .. } if ordinal == count && c == count), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("no device {count}")) && text.contains("WARPSMITH_DEVICES"), "{text}");
    assert!(matches!(Device::open(u32::MAX), Err(Error::NoDevice { .. })));
    Device::open(0).unwrap();
}

#[test]
fn ox_23_a_forced_engine_that_is_absent_is_an_error_with_the_reason() {
    if !is_child() {
        let forced = [("WARPSMITH_DRIVER", "cuda"), ("WARPSMITH_CUDA_LIBRARY", "/nonexistent/libcuda.so.1")];
        return child_passes("ox_23_a_forced_engine_that_is_absent_is_an_error_with_the_reason", &forced);
    }
    match Device::open(0) {
        Err(Error::NoEngine { reason }) => {
            let text = Error::NoEngine { reason: reason.clone() }.to_string();
            assert!(reason.len() > 10 && text.contains("WARPSMITH_DRIVER=software"), "{text}");
        }
        Err(other) => panic!("{other}"),
        Ok(device) => assert!(!device.is_software(), "forced is forced"),
    }
}

#[test]
fn an_unknown_engine_is_refused_by_name() {
    if !is_child() {
        return child_passes("an_unknown_engine_is_refused_by_name", &[("WARPSMITH_DRIVER", "vulkan")]);
    }
    let error = Device::open(0).unwrap_err();
    assert!(matches!(&error, Error::NoEngine { reason } if reason.contains("vulkan")), "{error}");
}

#[test]
fn two_devices_work_side_by_side_and_are_not_mixed_up() {
    if !is_child() {
        let two = [("WARPSMITH_DRIVER", "software"), ("WARPSMITH_DEVICES", "2")];
        return child_passes("two_devices_work_side_by_side_and_are_not_mixed_up", &two);
    }
    assert_eq!(Device::count().unwrap(), 2);
    let (a, b) = (Device::open(0).unwrap(), Device::open(1).unwrap());
    a.load(&KERNELS).unwrap();
    b.load(&KERNELS).unwrap();
    let (on_a, on_b) = (a.stream().unwrap(), b.stream().unwrap());
    let mut of_a = on_a.zeros::<u32>(4).unwrap();
    let mut of_b = on_b.zeros::<u32>(4).unwrap();
    for _ in 0..10 {
        on_a.launch(Bump { cells: &mut of_a, n: 4, by: 1 }).unwrap();
        on_b.launch(Bump { cells: &mut of_b, n: 4, by: 2 }).unwrap();
    }
    assert_eq!(on_a.read(&of_a).unwrap(), [10; 4]);
    assert_eq!(on_b.read(&of_b).unwrap(), [20; 4]);
    let graph = on_b.capture(|scope| scope.launch(Bump { cells: &mut of_b, n: 4, by: 1 })).unwrap();

    let foreign = |error| match error {
        Error::ForeignDevice { owner, device, what, .. } => (owner, device, what),
        other => panic!("{other}"),
    };
    let error = on_a.launch(Bump { cells: &mut of_b, n: 4, by: 1 }).unwrap_err();
    assert_eq!(foreign(error), (1, 0, "cells"));
    assert_eq!(foreign(on_b.read(&of_a).unwrap_err()), (0, 1, "from"));
    // Nothing is touched of what is empty, wherever it lies.
    on_a.fill(&mut of_b[2..2], 1).unwrap();
    assert_eq!(foreign(graph.launch(&on_a).unwrap_err()), (1, 0, "the graph"));
    let staging = a.pinned::<u32>(4).unwrap();
    assert_eq!(foreign(on_b.write_pinned(&staging, &mut of_b).unwrap_err()), (0, 1, "staging memory"));
    let error = on_a.capture(|scope| scope.copy(&of_b, &mut of_a)).unwrap_err();
    assert!(matches!(error.root(), Error::ForeignDevice { owner: 1, device: 0, .. }), "{error}");
    graph.launch(&on_b).unwrap();
    assert_eq!(on_b.read(&of_b).unwrap(), [21; 4]);
}

#[test]
fn a_kernel_fault_is_reported_with_its_place_and_the_device_is_lost() {
    if !is_child() {
        return child_passes("a_kernel_fault_is_reported_with_its_place_and_the_device_is_lost", &[]);
    }
    let (device, stream) = device();
    let mut out = stream.zeros::<u32>(4).unwrap();
    stream.launch(Wild { out: &mut out, offset: 8 }).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [0, 0, 1, 0]);
    stream.launch(Wild { out: &mut out, offset: 1 << 40 }).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    assert_eq!(error.code(), Some(700), "{error}");
    let text = error.to_string();
    assert!(text.contains("cuStreamSynchronize"), "{text}");
    if device.is_software() {
        assert!(text.contains("wild"), "the report names the kernel: {text}");
    }
    // Everything fails from here on, and says so; nothing hangs, nothing panics.
    assert!(stream.read(&out).unwrap_err().is_device_lost());
    let error = stream.capture(|scope| scope.fill(&mut out, 0)).unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    assert!(device.alloc::<u32>(1).unwrap_err().is_device_lost());
    drop(out);
    if let Some(error) = device.take_deferred_error() {
        assert!(error.is_device_lost(), "{error}");
    }
}

#[test]
fn errors_of_drop_are_kept_for_whoever_asks() {
    let (device, stream) = device();
    let buffer = stream.zeros::<u32>(4).unwrap();
    {
        let _fails = warpsmith_driver_api::software::inject_failure(Some("cuMemFree_v2"), 0, 1);
        drop(buffer);
    }
    let error = device.take_deferred_error().unwrap();
    assert!(matches!(error, Error::Driver { call: "cuMemFree_v2", code: 1, .. }), "{error}");
    assert!(device.take_deferred_error().is_none());
}

/// What a graph owns is given back though the driver fails when it is dropped: at once, or at the next call.
#[test]
fn a_graph_that_is_dropped_while_the_driver_fails_is_not_lost() {
    if !is_child() {
        return child_passes("a_graph_that_is_dropped_while_the_driver_fails_is_not_lost", &[]);
    }
    let (device, stream) = device();
    if !device.is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let fail = |function| warpsmith_driver_api::software::inject_failure(Some(function), 0, 999);
    for failing in [&["cuCtxGetCurrent"][..], &["cuCtxGetCurrent", "cuCtxSetCurrent"], &["cuMemFree_v2"]] {
        let before = memory_of_child(&device);
        let mut buffers: Vec<_> = (0..26).map(|_| stream.zeros::<u32>(64).unwrap()).collect();
        let graph = stream
            .capture(|scope| buffers.iter_mut().try_for_each(|cells| scope.launch(Bump { cells, n: 64, by: 1 })))
            .unwrap();
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        drop(buffers);
        let guards: Vec<_> = failing.iter().map(|f| fail(f)).collect();
        drop(graph);
        assert!(guards.iter().all(|g| g.fired()), "{failing:?}");
        drop(guards);
        // Any call that enters the device.
        stream.synchronize().unwrap();
        assert_eq!(memory_of_child(&device), before, "{failing:?}");
        while device.take_deferred_error().is_some() {}
    }
}
