//! Choosing an engine: each case in a process of its own, which is this test binary again.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

use warpsmith_driver_api::*;

/// Whether this process was started by a test; `--include-ignored` starts no such process.
fn is_child() -> bool {
    std::env::var_os("WARPSMITH_TEST_CHILD").is_some()
}

/// Runs the ignored test `name` of this binary with the variables given.
fn child(name: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    for variable in ["DRIVER", "SM", "DEVICES", "MEMORY", "THREADS", "CUDA_LIBRARY"].map(|v| format!("WARPSMITH_{v}")) {
        command.env_remove(variable);
    }
    command.env("WARPSMITH_TEST_CHILD", "1").envs(variables.iter().copied()).output().unwrap()
}

#[track_caller]
fn says(output: &Output, expected: &str) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(expected), "expected `{expected}` in:\n{text}");
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn tell() {
    if !is_child() {
        return;
    }
    let mut p = 0;
    // SAFETY: live places.
    let early = unsafe { (cuMemAlloc_v2(&mut p, 4), cuDeviceGetCount(&mut 0)) };
    println!("before init: {early:?}");
    // SAFETY: no pointers.
    let code = unsafe { cuInit(0) };
    println!("cuInit: {code} {}", result_name(code));
    println!("engine: {}", engine().map_or("none".to_owned(), |e| e.to_string()));
    println!("reason: {}", init_error().unwrap_or_default());
    println!("not cuda: {}", why_not_cuda().unwrap_or_default());
    if code == 0 {
        let (mut n, mut bytes) = (0, 0);
        // SAFETY: live places.
        unsafe {
            cuDeviceGetCount(&mut n);
            cuDeviceTotalMem_v2(&mut bytes, n - 1);
        }
        println!("devices: {n} of {bytes} bytes");
    }
}

#[test]
fn the_software_engine_by_name() {
    let output = child("tell", &[("WARPSMITH_DRIVER", "software"), ("WARPSMITH_SM", "80"), ("WARPSMITH_DEVICES", "2")]);
    says(&output, "before init: (3, 3)");
    says(&output, "cuInit: 0 CUDA_SUCCESS");
    says(&output, "engine: software (sm_80, 2 device(s))");
    says(&output, "devices: 2 of 17179869184 bytes");
    let output = child("tell", &[("WARPSMITH_DRIVER", "software"), ("WARPSMITH_MEMORY", "64M")]);
    says(&output, "devices: 1 of 67108864 bytes");
}

#[test]
fn the_real_driver_by_name_but_absent() {
    let output = child("tell", &[("WARPSMITH_DRIVER", "cuda"), ("WARPSMITH_CUDA_LIBRARY", "/nowhere/libcuda.so.1")]);
    says(&output, "cuInit: 100 CUDA_ERROR_NO_DEVICE");
    says(&output, "engine: none");
    says(&output, "reason: the CUDA driver was asked for but cannot be used: no CUDA driver library loads");
    says(&output, "/nowhere/libcuda.so.1");
    says(&output, "WARPSMITH_DRIVER=software");
}

#[test]
fn auto_falls_back_and_says_why() {
    let output = child("tell", &[("WARPSMITH_CUDA_LIBRARY", "/nowhere/libcuda.so.1")]);
    says(&output, "engine: software (sm_90, 1 device(s))");
    says(&output, "not cuda: no CUDA driver library loads (/nowhere/libcuda.so.1");
}

#[test]
fn values_that_make_no_sense() {
    for (name, value) in [
        ("WARPSMITH_DRIVER", "gpu"),
        ("WARPSMITH_SM", "12"),
        ("WARPSMITH_DEVICES", "none"),
        ("WARPSMITH_MEMORY", "1"),
        ("WARPSMITH_THREADS", "-3"),
    ] {
        let mut variables = vec![(name, value)];
        if name != "WARPSMITH_DRIVER" {
            variables.push(("WARPSMITH_DRIVER", "software"));
        }
        let output = child("tell", &variables);
        says(&output, "cuInit: 1 CUDA_ERROR_INVALID_VALUE");
        says(&output, &format!("reason: {name}"));
        says(&output, value);
    }
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn switch() {
    if !is_child() {
        return;
    }
    assert_eq!(select(Choice::Software), Ok(()));
    // SAFETY: no pointers.
    assert_eq!(unsafe { cuInit(0) }, 0);
    assert_eq!(select(Choice::Auto), Ok(()));
    assert_eq!(select(Choice::Software), Ok(()));
    println!("{}", select(Choice::Cuda).unwrap_err());
    // SAFETY: no pointers.
    assert_eq!(unsafe { cuInit(1) }, 1);
}

#[test]
fn an_engine_that_runs_stays() {
    // `select` goes before the variable.
    let output = child("switch", &[("WARPSMITH_DRIVER", "cuda")]);
    assert!(output.status.success(), "{output:?}");
    says(&output, "already runs in this process: choose `cuda` before the first cuInit");
}

#[test]
fn probing_does_not_choose() {
    match probe_real() {
        Ok(found) => assert!(!found.devices.is_empty()),
        Err(why) => assert!(!why.is_empty()),
    }
    assert_eq!(engine(), None);
}

/// Calls that come when thread-local values are destroyed.
struct Late(CUcontext);
impl Drop for Late {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        let code = unsafe { cuCtxSetCurrent(self.0) };
        println!("late: {code}");
        assert!(code == 0 || code == 4, "{code}");
    }
}
thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });

extern "C" fn at_exit() {
    // SAFETY: a live place.
    let code = unsafe { cuDeviceGetCount(&mut 0) };
    // Standard output may be gone by now; the exit code tells.
    if code != 4 {
        std::process::abort();
    }
}

#[cfg(unix)]
unsafe extern "C" {
    fn atexit(f: extern "C" fn()) -> i32;
}

#[cfg(unix)]
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn late_calls() {
    if !is_child() {
        return;
    }
    // Registered first, so run last: after the driver's own.
    // SAFETY: the handler takes nothing.
    assert_eq!(unsafe { atexit(at_exit) }, 0);
    assert_eq!(select(Choice::Software), Ok(()));
    let mut context = CUcontext::NULL;
    // SAFETY: live places.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
    }
    let address = context.0 as usize;
    std::thread::spawn(move || {
        // Made before the driver's own thread-local values, destroyed after them.
        let context = CUcontext(address as *mut _);
        LATE.with(|l| *l.borrow_mut() = Some(Late(context)));
        // SAFETY: no pointers.
        assert_eq!(unsafe { cuCtxSetCurrent(context) }, 0);
    })
    .join()
    .unwrap();
}

#[cfg(unix)]
#[test]
fn calls_after_the_end_answer_deinitialized() {
    let output = child("late_calls", &[]);
    assert!(output.status.success(), "{output:?}");
    says(&output, "late: ");
}
