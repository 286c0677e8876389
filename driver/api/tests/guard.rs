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
    assert_eq!(report.finding.message, "4 bytes of device memory were not freed before its context was destroyed");
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
