//! When kernels are loaded: each at its first use, or ahead of it, and by a decoder before it captures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/loads.rs"]
mod loads;

use common::*;
use gpu_kernels::elementwise::{ResidualAdd, Swiglu};
use gpu_kernels::format::Format;
use loads::{fresh, loaded};
use warpsmith_host::decode::{DecodeError, DecoderOptions, Mode, Session};
use warpsmith_host::device::Kernel as _;
use warpsmith_host::driver::software;
use warpsmith_host::{Error, builtin_image};

#[test]
fn a_first_use_loads_one_kernel() {
    let Some((_device, stream)) = fresh() else { return };
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    assert_eq!(loaded(), 0);
    for _ in 0..2 {
        stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
        assert_eq!(loaded(), 1);
    }
    assert_eq!(stream.read(&y).unwrap(), [2.0; 64]);
    stream.launch(Swiglu { gate: &x, up: &x, y: &mut y, n: 64 }).unwrap();
    assert_eq!(loaded(), 2);
}

#[test]
fn what_is_warm_is_not_loaded_again() {
    let Some((device, stream)) = fresh() else { return };
    device.warm([ResidualAdd::META, Swiglu::META, Swiglu::META]).unwrap();
    assert_eq!(loaded(), 2);
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    let graph = stream
        .capture(|scope| {
            let refused = device.warm([ResidualAdd::META]);
            assert!(matches!(refused, Err(Error::InsideCapture { call: "Device::warm" })));
            scope.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 })
        })
        .unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [2.0; 64]);
    assert_eq!(loaded(), 2);
}

#[test]
fn a_capture_may_be_the_first_use() {
    let Some((device, stream)) = fresh() else { return };
    device.load(builtin_image()).unwrap();
    assert_eq!(loaded(), 0);
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    let graph = stream.capture(|scope| scope.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 })).unwrap();
    assert_eq!((loaded(), graph.nodes()), (1, 1));
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [2.0; 64]);
}

#[test]
fn threads_that_use_a_kernel_at_once_load_it_once() {
    let Some((device, _)) = fresh() else { return };
    let barrier = std::sync::Barrier::new(4);
    let sum: u64 = std::thread::scope(|scope| {
        let one = || {
            software::reset_call_counts();
            barrier.wait();
            device.warm([Swiglu::META]).unwrap();
            loaded()
        };
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, 1);
}

#[test]
fn everything_can_be_warmed() {
    let Some((device, stream)) = fresh() else { return };
    device.warm_all(builtin_image()).unwrap();
    let kernels = builtin_image().manifest().unwrap().kernels.len() as u64;
    assert_eq!(loaded(), kernels);
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    stream.launch(Swiglu { gate: &x, up: &x, y: &mut y, n: 64 }).unwrap();
    device.warm_all(builtin_image()).unwrap();
    assert_eq!(loaded(), kernels);
}

#[test]
fn a_decoder_loads_what_its_steps_launch_before_it_captures_them() {
    let Some((device, stream)) = fresh() else { return };
    drop((device, stream));
    let file = Synthetic { hidden: 256, formats: vec![Format::Q8_0], ..Default::default() }.file();
    let options = DecoderOptions { mode: Mode::Graph, ..Default::default() };
    let feed = || Session::new(&device::load(&file), options)?.feed(7);
    software::reset_call_counts();
    feed().unwrap();
    let loads = loaded();
    let all = builtin_image().manifest().unwrap().kernels.len() as u64;
    assert!((3..all / 4).contains(&loads), "{loads} of {all} kernels");
    // If a load fails it is said to have, and not that a capture did.
    for nth in 0..loads {
        let guard = software::inject_failure(Some("cuModuleLoadDataEx"), nth, 2);
        let error = feed().unwrap_err();
        assert!(guard.fired(), "load {nth}");
        assert!(matches!(&error, DecodeError::Runtime(Error::ModuleLoad { .. })), "load {nth}: {error}");
    }
}
