//! The way to NVIDIA's driver, with a stand-in for it: a small library that answers what a newer
//! driver might. Each case runs in a process of its own, which is this test binary again.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use warpsmith_driver_api::*;

const STAND_IN: &str = r#"
#[no_mangle] pub extern "C" fn cuInit(flags: u32) -> i32 { if flags == 0 { set("STAND_IN_INIT").unwrap_or(0) } else { 1 } }
#[no_mangle] pub unsafe extern "C" fn cuDriverGetVersion(v: *mut i32) -> i32 { *v = set("STAND_IN_VERSION").unwrap_or(13010); 0 }
fn set(name: &str) -> Option<i32> { std::env::var(name).ok()?.parse().ok() }
#[no_mangle] pub unsafe extern "C" fn cuDeviceGetCount(n: *mut i32) -> i32 {
    *n = set("STAND_IN_DEVICES").unwrap_or(1);
    0
}
#[no_mangle] pub unsafe extern "C" fn cuDeviceGet(d: *mut i32, ordinal: i32) -> i32 { *d = ordinal; 0 }
#[no_mangle] pub unsafe extern "C" fn cuDeviceGetName(p: *mut u8, n: i32, _: i32) -> i32 {
    for (i, b) in b"Stand-in\0".iter().enumerate().take(n as usize) { *p.add(i) = *b; }
    0
}
#[no_mangle] pub unsafe extern "C" fn cuDeviceGetAttribute(v: *mut i32, id: i32, _: i32) -> i32 { *v = id; 0 }
// A code of CUDA 12 that CUDA 11.4 does not have.
#[no_mangle] pub extern "C" fn cuCtxSynchronize() -> i32 { 226 }
#[no_mangle] pub unsafe extern "C" fn cuMemAlloc_v2(p: *mut u64, bytes: usize) -> i32 { *p = bytes as u64 + 1; 0 }
#[no_mangle] pub extern "C" fn cuStreamSynchronize_ptsz(s: usize) -> i32 { s as i32 }
#[no_mangle] pub unsafe extern "C" fn cuGetProcAddress(name: *const i8, f: *mut usize, _: i32, _: u64) -> i32 {
    *f = if *name.add(2) as u8 == b'Z' { 4096 } else { 0 };
    if *f == 0 { 500 } else { 0 }
}
"#;

fn stand_in() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder =
            std::env::current_exe().unwrap().parent().unwrap().join(format!("stand-in-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("stand_in.rs"), folder.join("libcuda-stand-in.so"));
        std::fs::write(&source, STAND_IN).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--crate-type=cdylib", "--edition=2021", "-Awarnings", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(status.success());
        library
    })
}

/// Whether this process was started by a test; `--include-ignored` starts no such process.
fn is_child() -> bool {
    std::env::var_os("WARPSMITH_TEST_CHILD").is_some()
}

#[track_caller]
fn child(name: &str, devices: &str, driver: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("WARPSMITH_CUDA_LIBRARY", stand_in())
        .env("WARPSMITH_TEST_CHILD", "1")
        .env("WARPSMITH_DRIVER", driver)
        .env("STAND_IN_DEVICES", devices)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:#?}");
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn forwards() {
    if !is_child() {
        return;
    }
    let probe = probe_real().unwrap();
    assert_eq!((probe.version, probe.devices), (13010, vec![("Stand-in".to_owned(), (75, 76)); 2]));
    assert_eq!(engine(), None);
    let (mut p, mut version) = (0, 0);
    // SAFETY: live places and NUL-terminated names.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert!(matches!(engine(), Some(Engine::Cuda { version: 13010, .. })));
        assert_eq!((cuDriverGetVersion(&mut version), version), (0, 13010));
        assert_eq!((cuMemAlloc_v2(&mut p, 41), p), (0, 42));
        // What callers cannot hold becomes 999, and is kept.
        assert_eq!((cuCtxSynchronize(), last_raw_result()), (999, 226));
        // The twin is a symbol of its own; the function itself is missing here, and says so.
        assert_eq!(cuStreamSynchronize_ptsz(CUstream(5 as *mut _)), 5);
        assert_eq!(cuStreamSynchronize(CUstream::NULL), 500);
        assert_eq!(cuStreamSynchronize(CUstream::NULL), 500);
        // Injected failures and counts work the same.
        let guard = software::inject_failure(Some("cuMemAlloc_v2"), 0, 2);
        assert_eq!(cuMemAlloc_v2(&mut p, 1), 2);
        assert!(guard.fired());
        assert_eq!(software::call_counts().get("cuMemAlloc_v2"), 2);
        // Names that this library lacks go to the driver; those it has do not.
        let mut f = std::ptr::null_mut();
        assert_eq!(cuGetProcAddress(c"cuZebra".as_ptr(), &mut f, 13000, 0), 0);
        assert_eq!(f as usize, 4096);
        assert_eq!(cuGetProcAddress(c"cuYak".as_ptr(), &mut f, 13000, 0), 500);
        assert_eq!(cuGetProcAddress(c"cuMemAlloc".as_ptr(), &mut f, 13000, 0), 0);
        assert_eq!(f.cast_const(), exported("cuMemAlloc_v2").unwrap());
        // Errors are described by this library whatever the driver knows.
        let mut text = std::ptr::null();
        assert_eq!(cuGetErrorString(226, &mut text), 0);
    }
}

#[test]
fn calls_go_to_the_driver() {
    child("forwards", "2", "cuda");
    child("forwards", "2", "auto");
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn no_devices() {
    if !is_child() {
        return;
    }
    // SAFETY: no pointers.
    let code = unsafe { cuInit(0) };
    match std::env::var("WARPSMITH_DRIVER").as_deref() {
        Ok("cuda") => {
            assert_eq!(code, 100);
            assert!(init_error().unwrap().contains("has no device"));
        }
        _ => {
            assert_eq!(code, 0);
            assert!(matches!(engine(), Some(Engine::Software { .. })));
            assert!(why_not_cuda().unwrap().contains("has no device"));
        }
    }
}

#[test]
fn a_driver_without_devices_is_not_taken() {
    child("no_devices", "0", "cuda");
    child("no_devices", "0", "auto");
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn refused() {
    if !is_child() {
        return;
    }
    // SAFETY: no pointers.
    let code = unsafe { cuInit(0) };
    assert_eq!(code, 100);
    let library = std::env::var("WARPSMITH_CUDA_LIBRARY").unwrap();
    let mut text = init_error().unwrap().replace(&library, "libcuda.so.1");
    // What this machine's kernel module is, if it has one.
    let known = |t: &str| t.find("The kernel module is ").map(|at| (at, at + t[at..].find(',').unwrap()));
    if let Some((from, to)) = known(&text) {
        text.replace_range(from..to, "The kernel module's version is in /proc/driver/nvidia/version");
    }
    println!("<<{text}>>");
}

/// Compares what is said of a driver with a file in `messages/`; `WARPSMITH_MESSAGES=write` writes it.
#[track_caller]
fn says(name: &str, environment: [(&str, &str); 2]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "refused", "--ignored", "--nocapture"])
        .env("WARPSMITH_CUDA_LIBRARY", stand_in())
        .env("WARPSMITH_TEST_CHILD", "1")
        .env("WARPSMITH_DRIVER", "cuda")
        .envs(environment)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.split_once("<<").and_then(|(_, t)| t.split_once(">>")).expect("a message").0;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/messages/{name}.txt"));
    if std::env::var("WARPSMITH_MESSAGES").is_ok_and(|v| v == "write") {
        std::fs::write(&path, format!("{said}\n")).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stands.trim_end() == said, "{} is\n{stands}\nthe message is\n{said}", path.display());
}

#[test]
fn drivers_that_cannot_be_used_say_what_is_needed() {
    says("old_driver", [("STAND_IN_VERSION", "10020"), ("STAND_IN_INIT", "0")]);
    says("stub", [("STAND_IN_VERSION", "0"), ("STAND_IN_INIT", "34")]);
    says("mismatched_driver", [("STAND_IN_VERSION", "12040"), ("STAND_IN_INIT", "803")]);
    says("compatibility_library", [("STAND_IN_VERSION", "13010"), ("STAND_IN_INIT", "804")]);
}
