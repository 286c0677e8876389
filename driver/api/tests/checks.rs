//! Under `WARPSMITH_CHECK`: the order of operations as the API makes it, and the records of allocations.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::process::Command;
use std::ptr::{null, null_mut};

use common::*;
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: every pointer is null on purpose, or to a live value of the
/// type and length that the function documents.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

/// A thread of its own for the engine, which reads the variable when it starts.
fn checked() -> Gpu {
    // SAFETY: every test of this file begins here with the same value, and nothing else reads the environment meanwhile.
    unsafe { std::env::set_var("WARPSMITH_CHECK", "1") };
    gpu()
}

fn newest() -> software::OperationRecord {
    software::operations().pop().expect("an operation")
}

/// The operation that a launch on a stream made.
fn launched(f: CUfunction, p: CUdeviceptr, s: CUstream) -> software::Ordering {
    ok(launch_step(f, p, s));
    let record = newest();
    assert_eq!(record.what, "step");
    record.ordering
}

#[test]
fn streams_events_and_waits_order_operations() {
    let _gpu = checked();
    let step = function(load(PTX), "step");
    let (p, a, b) = (upload(&[1]), stream(), stream());
    let upload_op = newest();
    assert_eq!(upload_op.what, "copy");
    let first = launched(step, p, a);
    assert!(first.ordered_before(upload_op.op), "the host waited for the copy");
    let other = launched(step, p, b);
    assert!(!other.ordered_before(first.id()), "two streams without an edge");
    let done = event();
    ok(cu!(cuEventRecord(done, a)));
    let later = launched(step, p, a);
    ok(cu!(cuStreamWaitEvent(b, done, 0)));
    let waiter = launched(step, p, b);
    assert!(waiter.ordered_before(first.id()) && !waiter.ordered_before(later.id()));

    ok(cu!(cuStreamSynchronize(a)));
    let c = stream();
    assert!(launched(step, p, c).ordered_before(later.id()), "the host waited");
    assert!(!launched(step, p, c).ordered_before(waiter.id()));

    // The default stream and a blocking one wait for each other; a non-blocking one takes no part.
    let blocking = launched(step, p, blocking_stream());
    let default = launched(step, p, CUstream::NULL);
    assert!(default.ordered_before(blocking.id()) && !default.ordered_before(waiter.id()));
    assert!(!launched(step, p, c).ordered_before(default.id()));
    // A fill is not waited for by the host; a copy to the host is.
    ok(cu!(cuMemsetD32_v2(p, 0, 1)));
    let fill = newest();
    assert!(!launched(step, p, c).ordered_before(fill.op));
    download(p, 1);
    assert!(launched(step, p, c).ordered_before(fill.op));
    ok(cu!(cuCtxSynchronize()));
    assert!(launched(step, p, c).ordered_before(waiter.id()));
}

#[test]
fn branches_of_a_launched_graph_are_unordered() {
    let _gpu = checked();
    let step = function(load(PTX), "step");
    let (p, a, b) = (upload(&[1]), stream(), stream());
    let before = launched(step, p, a);
    let (fork, joined) = (event(), event());
    begin(a, 0);
    ok(launch_step(step, p, a));
    ok(cu!(cuEventRecord(fork, a)));
    ok(cu!(cuStreamWaitEvent(b, fork, 0)));
    ok(launch_step(step, p, b));
    ok(launch_step(step, p, a));
    ok(cu!(cuEventRecord(joined, b)));
    ok(cu!(cuStreamWaitEvent(a, joined, 0)));
    let inner = end(a).unwrap();
    // As a child, to see that its branches are told apart there too.
    let (mut outer, mut root, mut child) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    ok(cu!(cuGraphCreate(&mut outer, 0)));
    ok(cu!(cuGraphAddEmptyNode(&mut root, outer, null(), 0)));
    ok(cu!(cuGraphAddChildGraphNode(&mut child, outer, &root, 1, inner)));
    let exec = instantiate(outer);
    let n = software::operations().len();
    ok(cu!(cuGraphLaunch(exec, a)));
    let nodes: Vec<_> = software::operations().split_off(n);
    let names: Vec<&str> = nodes.iter().map(|r| r.what.as_str()).collect();
    assert_eq!(names, ["empty node", "step", "step", "step"]);
    let [_, head, left, right] = &nodes[..] else { panic!("four operations") };
    assert!(head.ordering.ordered_before(before.id()));
    assert!(left.ordering.ordered_before(head.op) && right.ordering.ordered_before(head.op));
    assert!(!right.ordering.ordered_before(left.op), "two branches");
    let after = launched(step, p, a);
    assert!(nodes.iter().all(|n| after.ordered_before(n.op)));
    assert!(nodes.iter().all(|n| !launched(step, p, b).ordered_before(n.op)), "another stream");
}

#[test]
fn stream_ordered_memory_has_its_operations() {
    let _gpu = checked();
    let (a, b) = (stream(), stream());
    let step = function(load(PTX), "step");
    let mut p = 0;
    ok(cu!(cuMemAllocAsync(&mut p, 64, a)));
    let record = software::allocation_at(p + 63).unwrap();
    assert_eq!((record.address, record.bytes, record.kind), (p, 64, software::AllocationKind::Pool));
    assert_ne!(record.allocated_by, 0);
    ok(cu!(cuMemsetD32Async(p, 1, 16, a)));
    assert!(newest().ordering.ordered_before(record.allocated_by));
    // Another stream may not use it yet, nor after the free in its own stream.
    let early = launched(step, p, b);
    assert!(!early.ordered_before(record.allocated_by));
    ok(cu!(cuMemFreeAsync(p, a)));
    let free = newest();
    assert_eq!(free.what, "free");
    assert!(!free.ordering.ordered_before(early.id()), "the free does not wait for the other stream");
    let freed = software::allocation_at(p).unwrap().freed.unwrap();
    assert_eq!(freed.0, free.op);
    // A free by the host waits for everything, as the driver does.
    let q = upload(&[1]);
    let user = launched(step, q, b);
    ok(cu!(cuMemFree_v2(q)));
    assert!(launched(step, upload(&[2]), a).ordered_before(user.id()));
}

#[inline(never)]
fn an_allocation_with_a_name() -> CUdeviceptr {
    // Not in tail position, where it would take this function's place on the stack.
    std::hint::black_box(alloc(1000))
}

#[test]
fn allocations_know_where_they_were_made() {
    let _gpu = checked();
    let p = an_allocation_with_a_name();
    let record = software::allocation_at(p + 999).unwrap();
    let frames = record.allocated_at.frames();
    let named = frames.iter().position(|f| f.contains("an_allocation_with_a_name"));
    assert!(named.is_some_and(|at| at <= 2), "{frames:#?}");
    assert!(frames.iter().all(|f| !f.contains("warpsmith_driver_api::software")), "{frames:#?}");
    assert!(software::allocation_at(p + 1000).is_none());
    let module = load(PTX);
    let (mut address, mut bytes) = (0, 0);
    ok(cu!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"seven".as_ptr())));
    let variable = software::allocation_at(address).unwrap();
    assert_eq!((variable.name.as_deref(), variable.kind), (Some("seven"), software::AllocationKind::Variable));
    let mut pinned = null_mut();
    ok(cu!(cuMemHostAlloc(&mut pinned, 32, 0)));
    assert_eq!(software::allocation_at(pinned.addr() as u64).unwrap().kind, software::AllocationKind::Pinned);
    ok(cu!(cuMemFreeHost(pinned)));
    ok(cu!(cuMemFree_v2(p)));
    assert!(software::allocation_at(p).unwrap().freed.is_some());
    ok(cu!(cuModuleUnload(module)));
    assert!(software::live_allocations().is_empty(), "{:?}", software::live_allocations());
    assert!(software::leaks().is_empty());
}

#[test]
fn what_a_context_leaves_behind_is_told() {
    let gpu = checked();
    let mut own = CUcontext::NULL;
    ok(cu!(cuCtxCreate_v2(&mut own, 0, 0)));
    let (kept, freed) = (an_allocation_with_a_name(), alloc(8));
    ok(cu!(cuMemFree_v2(freed)));
    let twins: Vec<CUdeviceptr> = (0..2).map(|_| alloc(16)).collect();
    assert_eq!(software::leaks().len(), 2);
    software::take_findings();
    ok(cu!(cuCtxDestroy_v2(own)));
    let found = software::take_findings();
    let [one, two] = &found[..] else { panic!("{found:?}") };
    let (one, two) = if one.finding.count == 1 { (one, two) } else { (two, one) };
    let text = one.to_string();
    let first = "warning[memory::leak]: 1000 bytes of device memory were not freed before its context was destroyed\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains(&format!("{kept:#x}")) && text.contains("an_allocation_with_a_name"), "{text}");
    let text = two.to_string();
    assert!(
        text.contains(": 32 bytes of device memory were") && text.contains("destroyed (2 allocations)\n"),
        "{text}"
    );
    assert!(twins.iter().any(|p| text.contains(&format!("the first is 16 bytes at {p:#x}"))), "{text}");
    assert_eq!(two.to_json()["count"], 2);
    ok(cu!(cuCtxSetCurrent(gpu.context)));
    assert!(software::leaks().is_empty(), "they went with their context");
}

#[inline(never)]
fn a_launch_with_a_name(f: CUfunction, p: CUdeviceptr) {
    ok(std::hint::black_box(launch_step(f, p, CUstream::NULL)));
}

#[test]
fn a_use_after_free_names_all_three_places() {
    let _gpu = checked();
    let step = function(load(PTX), "step");
    let p = an_allocation_with_a_name();
    ok(cu!(cuMemFree_v2(p)));
    a_launch_with_a_name(step, p);
    let text = software::last_report().unwrap();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("launched at") < at("a_launch_with_a_name"));
    assert!(at("allocated at") < at("an_allocation_with_a_name"));
    assert!(at("an_allocation_with_a_name") < at("freed at"));
    assert!(text[at("freed at")..].contains("a_use_after_free_names_all_three_places"), "{text}");
}

/// Not a test of its own: what [`the_end_of_the_process_tells_leaks`] runs.
#[test]
#[ignore = "leaks on purpose"]
fn leaves_something_behind() {
    select(Choice::Software).unwrap();
    let mut context = CUcontext::NULL;
    ok(cu!(cuInit(0)));
    ok(cu!(cuDevicePrimaryCtxRetain(&mut context, 0)));
    ok(cu!(cuCtxSetCurrent(context)));
    an_allocation_with_a_name();
}

#[test]
fn the_end_of_the_process_tells_leaks() {
    let run = |check: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "leaves_something_behind", "--ignored", "--nocapture"])
            .env("WARPSMITH_CHECK", check)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = run("1");
    let line = "warning[memory::leak]: 1000 bytes of device memory were not freed before the process ended\n";
    assert_eq!(told.matches(line).count(), 1, "{told}");
    assert!(told.contains("an_allocation_with_a_name"), "{told}");
    assert!(!told.contains("error["), "{told}");
    assert!(!run("0").contains("[memory::leak]"), "off");
}

/// Names and severities of the findings that calls of this thread have caused.
fn rules() -> Vec<String> {
    software::take_findings().iter().map(|r| r.finding.rule.name().to_owned()).collect()
}

#[test]
fn operations_that_may_overlap_are_found() {
    let _gpu = checked();
    let step = function(load(PTX), "step");
    let (a, b) = (stream(), stream());
    let p = upload(&[1]);
    rules();
    // Two launches that write one word, without an edge between their streams.
    ok(launch_step(step, p, a));
    assert_eq!(rules(), [""; 0]);
    ok(launch_step(step, p, b));
    let found = software::take_findings();
    let [report] = &found[..] else { panic!("{found:?}") };
    let text = report.to_string();
    assert_eq!(report.finding.rule.name(), "race::stream", "{text}");
    assert!(text.contains("`step`") && text.contains("checks.rs"), "{text}");
    // An event makes it right, and so does waiting.
    let done = event();
    ok(cu!(cuEventRecord(done, b)));
    ok(cu!(cuStreamWaitEvent(a, done, 0)));
    ok(launch_step(step, p, a));
    ok(cu!(cuStreamSynchronize(a)));
    ok(launch_step(step, p, b));
    assert_eq!(rules(), [""; 0]);
    // A fill on another stream; a copy to the host that nobody ordered behind the launch.
    ok(launch_step(step, p, a));
    ok(cu!(cuStreamSynchronize(b)));
    rules();
    ok(cu!(cuMemsetD32Async(p, 7, 1, b)));
    assert_eq!(rules(), ["race::stream"]);
    ok(cu!(cuCtxSynchronize()));
    ok(launch_step(step, p, a));
    let mut word = 0u32;
    ok(cu!(cuMemcpyDtoHAsync_v2((&raw mut word).cast(), p, 4, b)));
    assert_eq!(rules(), ["race::stream"]);
    ok(cu!(cuCtxSynchronize()));
    ok(cu!(cuMemcpyDtoHAsync_v2((&raw mut word).cast(), p, 4, b)));
    assert_eq!(rules(), [""; 0]);
}

/// A copy to ordinary host memory has ended when the call returns, and all before it in its stream; one to pinned memory
/// has not.
#[test]
fn a_copy_to_pageable_memory_is_waited_for() {
    let _gpu = checked();
    let step = function(load(PTX), "step");
    let (a, b) = (stream(), stream());
    let mut pinned = std::ptr::null_mut();
    ok(cu!(cuMemHostAlloc(&mut pinned, 4, 0)));
    let mut word = 0u32;
    for (to, expected) in [((&raw mut word).cast(), vec![]), (pinned, vec!["race::free".to_owned()])] {
        let mut p = 0;
        ok(cu!(cuMemAllocAsync(&mut p, 4, a)));
        ok(cu!(cuMemsetD32Async(p, 0, 1, a)));
        ok(launch_step(step, p, a));
        ok(cu!(cuMemcpyDtoHAsync_v2(to, p, 4, a)));
        rules();
        ok(cu!(cuMemFreeAsync(p, b)));
        let mut found = rules();
        found.dedup();
        assert_eq!(found, expected);
    }
    ok(cu!(cuCtxSynchronize()));
    ok(cu!(cuMemFreeHost(pinned)));
}

#[test]
fn a_free_that_overtakes_a_launch_is_found() {
    let _gpu = checked();
    let step = function(load(PTX), "step");
    let (a, b) = (stream(), stream());
    for (free_on, expected) in [(a, vec![]), (b, vec!["race::free".to_owned()])] {
        let mut p = 0;
        ok(cu!(cuMemAllocAsync(&mut p, 4, a)));
        ok(cu!(cuMemsetD32Async(p, 0, 1, a)));
        ok(launch_step(step, p, a));
        rules();
        ok(cu!(cuMemFreeAsync(p, free_on)));
        let mut found = rules();
        found.dedup();
        assert_eq!(found, expected);
    }
}
