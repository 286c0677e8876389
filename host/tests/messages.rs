//! What is said of the mistakes that people make most often: each is made here, and what it says is compared with a file in
//! `messages/`. docs/mistakes.md quotes them. `WARPSMITH_MESSAGES=write` writes the files.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use std::path::Path;
use warpsmith_host::driver::software::inject_failure;
use warpsmith_host::driver::{Choice, select};
use warpsmith_host::{Device, Error};

/// Compares a message with its file.
#[track_caller]
fn says<T>(name: &str, result: Result<T, Error>) {
    let error = result.map(|_| ()).unwrap_err();
    let text = error.to_string();
    // A `main` that returns it prints this.
    assert_eq!(format!("{error:?}"), text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/messages/{name}.txt"));
    if std::env::var("WARPSMITH_MESSAGES").is_ok_and(|v| v == "write") {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stands.trim_end() == text, "{} is\n{stands}\nthe message is\n{text}", path.display());
}

#[test]
fn launches() {
    select(Choice::Software).unwrap();
    let (device, stream) = device();
    let (x, mut y) = (stream.zeros::<f32>(1000).unwrap(), stream.zeros::<f32>(1000).unwrap());
    says("too_short", stream.launch(Axpy { x: &x[..999], y: &mut y, n: 1000, a: 1.0 }));
    says("no_blocks", stream.launch(Axpy { x: &x, y: &mut y, n: 0, a: 1.0 }));
    let mut word = stream.zeros::<u32>(1).unwrap();
    says("shared_memory", stream.launch(LastWord { out: &mut word, words: 1 << 20 }));
    let mut met = stream.zeros::<u32>(1 << 16).unwrap();
    says("not_cooperative", stream.launch(Meet { word: &mut word, out: &mut met[..8], cooperative: 0 }));
    says("too_many_resident", stream.launch(Meet { word: &mut word, out: &mut met, cooperative: 1 }));
    says("lengths_differ", stream.copy(&x[..10], &mut y));
    says("no_device", Device::open(7));

    // The kernels' library was never given to this device.
    let empty = Device::open(0).unwrap();
    let on = empty.stream().unwrap();
    let mut cells = on.zeros::<u32>(1).unwrap();
    says("not_loaded", on.launch(Bump { cells: &mut cells, n: 1, by: 1 }));

    // PTX of a source in which an argument had another name.
    let older = MANIFEST.replace(r#""name": "by""#, r#""name": "step""#);
    let stale = Device::open(0).unwrap();
    stale.load(&image(("warpsmith-host", older.leak(), &[(75, PTX)]))).unwrap();
    let on = stale.stream().unwrap();
    let mut cells = on.zeros::<u32>(1).unwrap();
    says("stale_ptx", on.launch(Bump { cells: &mut cells, n: 1, by: 1 }));

    says("no_code_for_device", device.load(&image(("warpsmith-host", MANIFEST, &[(100, PTX), (120, PTX)]))));
    // What a driver of before the PTX's version answers.
    let guard = inject_failure(Some("cuModuleLoadDataEx"), 0, 222);
    says("driver_too_old", Device::open(0).unwrap().load(&KERNELS));
    drop(guard);
}

#[test]
fn captures() {
    select(Choice::Software).unwrap();
    let (device, stream) = device();
    let (mut a, mut b) = (stream.zeros::<u32>(64).unwrap(), stream.zeros::<u32>(64).unwrap());
    says("allocation_in_capture", stream.capture(|_| device.alloc::<u32>(64).map(drop)));
    says(
        "failure_passed_over",
        stream.capture(|scope| {
            let _ = scope.launch(Bump { cells: &mut a, n: 65, by: 1 });
            Ok(())
        }),
    );
    let mut graph = stream.capture(|scope| scope.launch(Bump { cells: &mut a, n: 64, by: 1 })).unwrap();
    says("other_work", graph.update(&stream, |scope| scope.copy(&a, &mut b)));
    let mut builder = stream.graph_builder().unwrap();
    builder.fill(&mut a, 1).unwrap();
    builder.after(&[]).unwrap();
    says("no_order", builder.copy(&a, &mut b));
}

/// Runs a test of this binary again, as `child_passes`, in an environment of its own.
fn elsewhere(name: &str, environment: &[(&str, &str)]) -> bool {
    if !is_child() {
        child_passes(name, environment);
    }
    is_child()
}

#[test]
fn no_driver() {
    let environment = [("WARPSMITH_DRIVER", "cuda"), ("WARPSMITH_CUDA_LIBRARY", "/nowhere/libcuda.so.1")];
    if elsewhere("no_driver", &environment) {
        says("no_driver", Device::open(0));
    }
}

#[test]
fn an_engine_that_is_none() {
    if elsewhere("an_engine_that_is_none", &[("WARPSMITH_DRIVER", "gpu")]) {
        says("unknown_engine", Device::open(0));
    }
}

#[test]
fn memory_that_there_is_not() {
    let environment = [("WARPSMITH_DRIVER", "software"), ("WARPSMITH_MEMORY", "64M")];
    if elsewhere("memory_that_there_is_not", &environment) {
        says("out_of_memory", Device::open(0).unwrap().alloc::<f32>(1 << 25));
    }
}

#[test]
fn a_device_that_is_lost() {
    if elsewhere("a_device_that_is_lost", &[("WARPSMITH_DRIVER", "software")]) {
        let (_device, stream) = device();
        let mut out = stream.zeros::<u32>(4).unwrap();
        stream.launch(Wild { out: &mut out, offset: 1 << 40 }).ok();
        says("device_lost", stream.synchronize());
    }
}
