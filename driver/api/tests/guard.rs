//! Checks that a guard switches on, without `WARPSMITH_CHECK`.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ptr::null_mut;

use common::*;
use software::{Checks, check, take_findings};
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: every pointer is to a live value of the type and length that the function documents.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

#[inline(never)]
fn an_allocation_with_a_name() -> CUdeviceptr {
    // Not in tail position, where it would take this function's place on the stack.
    std::hint::black_box(alloc(4))
}

fn rules() -> Vec<String> {
    take_findings().iter().map(|r| r.finding.rule.name().to_owned()).collect()
}

#[test]
fn a_guard_keeps_places_from_its_start_to_its_end() {
    let _gpu = gpu();
    let before = alloc(4);
    assert!(software::allocation_at(before).is_none());
    let p = {
        let _guard = check(Checks::ALL);
        let p = an_allocation_with_a_name();
        let _inner = check(Checks::default());
        let frames = software::allocation_at(p).unwrap().allocated_at.frames();
        assert!(frames.iter().any(|f| f.contains("an_allocation_with_a_name")), "{frames:#?}");
        assert!(software::allocation_at(before).is_none(), "it was there before");
        p
    };
    assert!(software::allocation_at(p).is_none() && software::operations().is_empty());
    ok(cu!(cuMemFree_v2(p)));
    ok(cu!(cuMemFree_v2(before)));
}

/// A use after free names who allocated and who freed.
#[test]
fn a_finding_under_a_guard_has_its_allocation() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let _guard = check(Checks::ALL);
    let p = an_allocation_with_a_name();
    ok(cu!(cuMemFree_v2(p)));
    ok(launch_step(step, p, CUstream::NULL));
    let found = take_findings();
    let [report] = &found[..] else { panic!("{found:?}") };
    let text = report.to_string();
    for part in
        ["memory::use-after-free", "memory allocated by cuMemAlloc_v2", "an_allocation_with_a_name", "memory freed"]
    {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
}

#[test]
fn operations_that_may_overlap_are_found_under_a_guard() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (a, b, p) = (stream(), stream(), upload(&[1]));
    // What ran before counts as complete.
    ok(launch_step(step, p, a));
    {
        let _guard = check(Checks::ALL);
        ok(launch_step(step, p, b));
        assert_eq!(rules(), [""; 0]);
        ok(launch_step(step, p, a));
        assert_eq!(rules(), ["race::stream"]);
        ok(launch_step(step, p, a));
        assert_eq!(rules(), [""; 0], "each follows the one before it");
    }
    // Nobody saw this wait: a later guard must not take the launches on `a` for unordered ones.
    ok(cu!(cuStreamSynchronize(a)));
    let _guard = check(Checks::ALL);
    ok(launch_step(step, p, b));
    assert_eq!(rules(), [""; 0]);
    ok(launch_step(step, p, a));
    assert_eq!(rules(), ["race::stream"]);
}

#[test]
fn what_a_context_leaves_behind_is_told_under_a_guard() {
    let gpu = gpu();
    let mut own = CUcontext::NULL;
    let _guard = check(Checks::ALL);
    ok(cu!(cuCtxCreate_v2(&mut own, 0, 0)));
    an_allocation_with_a_name();
    ok(cu!(cuCtxDestroy_v2(own)));
    let found = take_findings();
    let [report] = &found[..] else { panic!("{found:?}") };
    assert_eq!(report.finding.message(), "4 bytes of device memory were not freed before its context was destroyed");
    assert!(report.to_string().contains("an_allocation_with_a_name"), "{report}");
    ok(cu!(cuCtxSetCurrent(gpu.context)));
}

/// A guard of before the engine is one from its start.
#[test]
fn a_guard_may_come_before_the_engine() {
    let here = std::env::current_exe().unwrap();
    let output = std::process::Command::new(here)
        .args(["--exact", "first_a_guard_then_the_engine", "--ignored", "--nocapture"])
        .env_remove("WARPSMITH_CHECK")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{err}", String::from_utf8_lossy(&output.stdout));
}

/// Not a test of its own: it wants a process of its own.
#[test]
#[ignore = "what `a_guard_may_come_before_the_engine` runs"]
fn first_a_guard_then_the_engine() {
    let _guard = check(Checks::ALL);
    let _gpu = gpu();
    assert!(software::allocation_at(an_allocation_with_a_name()).is_some());
    let mut pinned = null_mut();
    ok(cu!(cuMemHostAlloc(&mut pinned, 32, 0)));
    assert!(software::allocation_at(pinned.addr() as u64).is_some());
}

/// A refused call does nothing: who does not look at the code is told.
#[test]
fn calls_that_are_refused_are_told() {
    let _gpu = gpu();
    let p = alloc(16);
    let _guard = check(Checks::ALL);
    ok(cu!(cuMemFree_v2(p)));
    assert_eq!(rules(), [""; 0]);
    is(cu!(cuMemFree_v2(p)), 1);
    let found = take_findings();
    let [report] = &found[..] else { panic!("{found:?}") };
    let text = report.to_string();
    let first = "warning[api::misuse]: cuMemFree_v2 is refused: CUDA_ERROR_INVALID_VALUE (1), invalid argument\n";
    assert!(text.starts_with(first) && text.contains("called by cuMemFree_v2") && text.contains("guard.rs"), "{text}");
    let gone = stream();
    ok(cu!(cuStreamDestroy_v2(gone)));
    is(cu!(cuStreamSynchronize(gone)), 400);
    assert_eq!(rules(), ["api::misuse"]);
    // A launch that is refused for its geometry, and once only.
    is(launch(function(load(PTX), "bounded"), 1, 65, 0, CUstream::NULL, &[no_args()]), 1);
    assert_eq!(rules().len(), 1);
    // Questions are answered.
    let (mut value, mut context) = (0u32, CUcontext::NULL);
    is(cu!(cuPointerGetAttribute((&raw mut value).cast(), 2, 64)), 1);
    ok(cu!(cuCtxGetCurrent(&mut context)));
    assert_eq!(rules(), [""; 0]);
    // Nobody asked.
    drop(_guard);
    is(cu!(cuMemFree_v2(p)), 1);
    assert_eq!(rules(), [""; 0]);
}

/// The kernel, its line and the memory that was undefined are named where the host copies the result back.
#[test]
fn an_undefined_output_names_the_kernel_and_both_allocations() {
    let _gpu = gpu();
    let add = function(load(PTX), "add");
    let _guard = check(Checks::ALL);
    let (x, y) = (an_allocation_with_a_name(), upload(&[1]));
    let (k, n) = (5u32, 1u32);
    ok(launch(add, 1, 1, 0, CUstream::NULL, &[arg(&x), arg(&y), arg(&k), arg(&n)]));
    download(y, 1);
    let found = take_findings();
    let [report] = &found[..] else { panic!("{found:?}") };
    let text = report.to_string();
    for part in [
        "error[init::output]: a copy of 4 bytes to the host contains 4 undefined ones",
        "in kernel `add`",
        "st.global.u32 [%rd5], %r7;",
        "ld.global.u32 %r7, [%rd4];",
        &format!("of the allocation of 4 bytes at {x:#x}: never written"),
        "memory of the undefined data allocated by cuMemAlloc_v2",
        "an_allocation_with_a_name",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    assert!(!text.contains("has given these bytes a value"), "{text}");
}

#[test]
fn a_copy_of_nothing_takes_nothing_undefined_along() {
    let _gpu = gpu();
    let _guard = check(Checks::ALL);
    let p = alloc(16);
    let mut word = 0u32;
    ok(cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), p, 0)));
    ok(cu!(cuMemcpyDtoHAsync_v2((&raw mut word).cast(), p, 0, CUstream::NULL)));
    ok(cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), p + 16, 0)));
    assert_eq!(rules(), [""; 0]);
}

#[test]
fn addresses_of_freed_memory_come_again_under_a_guard() {
    let _gpu = gpu();
    let free = |p| assert_eq!(cu!(cuMemFree_v2(p)), 0);
    let lost = alloc(5000);
    free(lost);
    let guard = software::reuse_addresses();
    let inner = software::reuse_addresses();
    let p = alloc(5000);
    assert_ne!(p, lost, "freed before");
    free(p);
    drop(inner);
    assert_eq!(alloc(5000), p);
    free(p);
    drop(guard);
    assert_ne!(alloc(5000), p);
}
