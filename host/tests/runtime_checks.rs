//! Findings of the checks are errors of the calls that wait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, Engine, Error};

#[test]
fn a_read_of_undefined_memory_fails_the_thread_that_did_it() {
    let checked = software::check(Checks::ALL);
    let device = Device::open(0).unwrap();
    println!("engine: {}", device.engine());
    if !matches!(device.engine(), Engine::Software { .. }) {
        return;
    }
    let stream = device.stream().unwrap();
    let buffer = device.alloc::<f32>(16).unwrap();
    let Err(Error::Findings { count, text }) = stream.read(&buffer) else { panic!("no finding") };
    assert_eq!(count, 1, "{text}");
    assert!(text.contains("error[init::output]") && text.contains("64 undefined"), "{text}");
    // It has been told.
    stream.synchronize().unwrap();
    // What is written is defined; another thread is not checked, nor this one once the guard is gone.
    let written = stream.zeros::<f32>(16).unwrap();
    stream.read(&written).unwrap();
    std::thread::scope(|s| s.spawn(|| stream.read(&buffer).map(|_| ()).unwrap()).join().unwrap());
    drop(checked);
    stream.read(&buffer).unwrap();
    device.synchronize().unwrap();
}
