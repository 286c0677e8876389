//! Stream capture and graphs on the software engine.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

use std::ffi::c_void;
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

mod graphs;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn status(s: CUstream) -> i32 {
    let mut status = -1;
    ok(cu!(cuStreamIsCapturing(s, &mut status)));
    status
}

fn step_n(n: u32, from: u32) -> u32 {
    (0..n).fold(from, |x, _| x.wrapping_mul(3).wrapping_add(1))
}

#[test]
fn replays_equal_eager_launches() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, eager, graphed) = (stream(), upload(&[1]), upload(&[1]));
    for _ in 0..15 {
        ok(launch_step(step, eager, s));
    }
    begin(s, THREAD_LOCAL);
    assert_eq!(status(s), 1);
    for _ in 0..5 {
        ok(launch_step(step, graphed, s));
    }
    let graph = end(s).unwrap();
    assert_eq!(status(s), 0);
    assert_eq!(download(graphed, 1), [1], "capture does not run anything");
    assert_eq!((node_count(graph), edge_count(graph)), (5, 4));
    let exec = instantiate(graph);
    ok(cu!(cuGraphDestroy(graph)));
    ok(cu!(cuGraphUpload(exec, s)));
    for _ in 0..3 {
        ok(cu!(cuGraphLaunch(exec, s)));
    }
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(download(graphed, 1), download(eager, 1));
    assert_eq!(download(graphed, 1), [step_n(15, 1)]);
    ok(cu!(cuGraphExecDestroy(exec)));
    is(cu!(cuGraphExecDestroy(exec)), 1);
    is(cu!(cuGraphLaunch(exec, s)), 1);
}

#[test]
fn arguments_are_copied_and_host_memory_is_not() {
    let _gpu = gpu();
    let add = function(load(PTX), "add");
    let (s, x, y) = (stream(), alloc(4), alloc(4));
    let mut input = Box::new(10u32);
    let mut output = Box::new(0u32);
    let (mut k, one) = (5u32, 1u32);
    begin(s, THREAD_LOCAL);
    ok(cu!(cuMemcpyHtoDAsync_v2(x, (&raw const *input).cast(), 4, s)));
    ok(launch(add, 1, 32, 0, s, &[arg(&x), arg(&y), arg(&k), arg(&one)]));
    ok(cu!(cuMemcpyDtoHAsync_v2((&raw mut *output).cast(), y, 4, s)));
    ok(cu!(cuMemsetD32Async(y, 1, 1, s)));
    let graph = end(s).unwrap();
    k = 1000;
    let exec = instantiate(graph);
    for given in [10, 20] {
        *input = given;
        ok(cu!(cuGraphLaunch(exec, s)));
        ok(cu!(cuStreamSynchronize(s)));
        assert_eq!(*output, given + 5);
    }
    assert_eq!((k, download(y, 1)), (1000, vec![1]));
    let kinds: Vec<i32> = nodes(graph)
        .into_iter()
        .map(|n| {
            let mut kind = -1;
            ok(cu!(cuGraphNodeGetType(n, &mut kind)));
            kind
        })
        .collect();
    assert_eq!(kinds, [1, 0, 1, 2]);
}

#[test]
fn events_fork_and_join() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (a, b, p, q) = (stream(), stream(), upload(&[1]), upload(&[2]));
    let (fork, join) = (event(), event());
    begin(a, THREAD_LOCAL);
    ok(launch_step(step, p, a));
    ok(cu!(cuEventRecord(fork, a)));
    ok(cu!(cuStreamWaitEvent(b, fork, 0)));
    assert_eq!(status(b), 1);
    ok(launch_step(step, q, b));
    ok(launch_step(step, p, a));
    ok(cu!(cuEventRecord(join, b)));
    is(cu!(cuStreamEndCapture(b, &mut CUgraph::NULL.clone())), 903);
    ok(cu!(cuStreamWaitEvent(a, join, 0)));
    ok(launch_step(step, p, a));
    let (mut state, mut id, mut graph, mut deps, mut n) = (0, 0, CUgraph::NULL, null(), 0);
    ok(cu!(cuStreamGetCaptureInfo_v2(a, &mut state, &mut id, &mut graph, &mut deps, &mut n)));
    assert_eq!((state, n), (1, 1));
    assert_ne!(id, 0);
    // SAFETY: the driver keeps the list until it is asked again.
    let last = unsafe { deps.read() };
    let ended = end(a).unwrap();
    assert_eq!(ended, graph);
    assert_eq!((status(a), status(b)), (0, 0));
    assert_eq!((node_count(graph), edge_count(graph)), (4, 4));
    let (mut two, mut one) = (0, 0);
    ok(cu!(cuGraphNodeGetDependencies(last, null_mut(), &mut two)));
    ok(cu!(cuGraphGetRootNodes(graph, null_mut(), &mut one)));
    assert_eq!((two, one), (2, 1));
    ok(cu!(cuGraphLaunch(instantiate(graph), b)));
    assert_eq!((download(p, 1)[0], download(q, 1)[0]), (step_n(3, 1), step_n(1, 2)));
    // The events belong to a capture that is over.
    is(cu!(cuStreamWaitEvent(a, fork, 0)), 907);
    is(cu!(cuEventSynchronize(fork)), 907);
    ok(cu!(cuEventRecord(fork, a)));
    ok(cu!(cuEventSynchronize(fork)));
}

#[test]
fn work_that_is_not_joined() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (a, b, p, fork) = (stream(), stream(), upload(&[1]), event());
    begin(a, THREAD_LOCAL);
    ok(cu!(cuEventRecord(fork, a)));
    ok(cu!(cuStreamWaitEvent(b, fork, 0)));
    ok(launch_step(step, p, b));
    assert_eq!(end(a), Err(904));
    assert_eq!((status(a), status(b)), (0, 0));
    ok(launch_step(step, p, b));
    assert_eq!(download(p, 1), [4]);
}

#[test]
fn beginning_and_ending_out_of_place() {
    let _gpu = gpu();
    let s = stream();
    is(cu!(cuStreamBeginCapture_v2(s, 3)), 1);
    is(cu!(cuStreamBeginCapture_v2(CUstream::NULL, 0)), 900);
    is(cu!(cuStreamBeginCapture(CUstream(std::ptr::without_provenance_mut(1)))), 900);
    assert_eq!(end(s), Err(401));
    begin(s, THREAD_LOCAL);
    is(cu!(cuStreamBeginCapture_v2(s, 1)), 401);
    let handle = s.0 as usize;
    let context = _gpu.context;
    std::thread::spawn(move || {
        ok(cu!(cuCtxSetCurrent(context)));
        assert_eq!(end(CUstream(handle as *mut c_void)), Err(908));
    })
    .join()
    .unwrap();
    let empty = end(s).unwrap();
    assert_eq!(node_count(empty), 0);
    // A relaxed capture may end anywhere.
    begin(s, RELAXED);
    std::thread::spawn(move || {
        ok(cu!(cuCtxSetCurrent(context)));
        end(CUstream(handle as *mut c_void)).unwrap();
    })
    .join()
    .unwrap();
}

/// Every call that waits, or may wait inside the driver, spoils a capture of its own thread.
#[test]
fn what_may_not_happen_while_capturing() {
    let gpu = gpu();
    let module = load(PTX);
    let step = function(module, "step");
    let (p, done) = (upload(&[1]), event());
    ok(cu!(cuEventRecord(done, CUstream::NULL)));
    let mut word = 0u32;
    let out: *mut c_void = (&raw mut word).cast();
    let image = std::ffi::CString::new(PTX).unwrap();
    let other = stream();
    type Call<'a> = Box<dyn Fn(CUstream) -> CUresult + 'a>;
    let calls: Vec<(&str, i32, Call<'_>)> = vec![
        ("synchronize the stream", 900, Box::new(|s| cu!(cuStreamSynchronize(s)))),
        ("query the stream", 900, Box::new(|s| cu!(cuStreamQuery(s)))),
        ("destroy the stream", 900, Box::new(|s| cu!(cuStreamDestroy_v2(s)))),
        ("synchronize the context", 900, Box::new(|_| cu!(cuCtxSynchronize()))),
        ("synchronize another stream", 900, Box::new(|_| cu!(cuStreamSynchronize(other)))),
        ("synchronize an event", 900, Box::new(|_| cu!(cuEventSynchronize(done)))),
        ("allocate", 900, Box::new(|_| cu!(cuMemAlloc_v2(&mut 0, 4)))),
        ("free", 900, Box::new(|_| cu!(cuMemFree_v2(p)))),
        ("allocate host memory", 900, Box::new(|_| cu!(cuMemAllocHost_v2(&mut null_mut(), 4)))),
        ("allocate managed memory", 900, Box::new(|_| cu!(cuMemAllocManaged(&mut 0, 4, 1)))),
        ("copy and wait", 900, Box::new(|_| cu!(cuMemcpyDtoH_v2(out, p, 4)))),
        ("load a module", 900, Box::new(|_| cu!(cuModuleLoadData(&mut CUmodule::NULL.clone(), image.as_ptr().cast())))),
        ("unload a module", 900, Box::new(|_| cu!(cuModuleUnload(module)))),
        ("wait for an event from outside", 905, Box::new(|s| cu!(cuStreamWaitEvent(s, done, 0)))),
        (
            "synchronize a captured event",
            907,
            Box::new(|s| {
                let e = event();
                ok(cu!(cuEventRecord(e, s)));
                cu!(cuEventSynchronize(e))
            }),
        ),
    ];
    for mode in [GLOBAL, THREAD_LOCAL] {
        for (what, expected, call) in &calls {
            let s = stream();
            begin(s, mode);
            ok(launch_step(step, p, s));
            assert_eq!(call(s), *expected, "{what}, mode {mode}");
            assert_eq!(status(s), 2, "{what} spoils the capture");
            is(launch_step(step, p, s), 901);
            assert_eq!(end(s), Err(901), "{what}");
            assert_eq!(status(s), 0, "{what}: the stream is usable again");
        }
    }
    assert_eq!(download(p, 1), [1], "none of it ran");
    // A relaxed capture minds only what concerns its own stream.
    let s = stream();
    begin(s, RELAXED);
    let q = alloc(4);
    ok(cu!(cuMemcpyDtoH_v2(out, p, 4)));
    ok(cu!(cuStreamSynchronize(other)));
    ok(cu!(cuMemFree_v2(q)));
    end(s).unwrap();
    drop(gpu);
}

#[test]
fn the_legacy_stream_beside_a_blocking_capture() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (p, blocking) = (upload(&[1]), blocking_stream());
    begin(blocking, RELAXED);
    let mut answer = 0;
    is(cu!(cuStreamIsCapturing(CUstream::NULL, &mut answer)), 906);
    assert_eq!(status(blocking), 1, "asking does not spoil");
    is(launch_step(step, p, CUstream::NULL), 906);
    assert_eq!(end(blocking), Err(901));
    // A non-blocking stream does not mind.
    let s = stream();
    begin(s, RELAXED);
    ok(launch_step(step, p, CUstream::NULL));
    end(s).unwrap();
    assert_eq!(download(p, 1), [4]);
    // The legacy stream cannot join a capture.
    let e = event();
    begin(s, RELAXED);
    ok(cu!(cuEventRecord(e, s)));
    is(cu!(cuStreamWaitEvent(CUstream::NULL, e, 0)), 906);
    assert_eq!(end(s), Err(901));
}

#[test]
fn two_captures_do_not_merge() {
    let _gpu = gpu();
    let (a, b, e) = (stream(), stream(), event());
    begin(a, THREAD_LOCAL);
    begin(b, THREAD_LOCAL);
    ok(cu!(cuEventRecord(e, a)));
    is(cu!(cuStreamWaitEvent(b, e, 0)), 902);
    assert_eq!((end(a), end(b)), (Err(901), Err(901)));
}

#[test]
fn modes_between_threads() {
    let gpu = gpu();
    let context = gpu.context;
    let elsewhere = |f: fn() -> CUresult| {
        std::thread::spawn(move || {
            ok(cu!(cuCtxSetCurrent(context)));
            f()
        })
        .join()
        .unwrap()
    };
    fn allocate() -> CUresult {
        cu!(cuMemAlloc_v2(&mut 0, 4))
    }
    let s = stream();
    begin(s, GLOBAL);
    is(elsewhere(allocate), 900);
    assert_eq!(end(s), Err(901));
    begin(s, GLOBAL);
    ok(elsewhere(|| {
        let mut mode = THREAD_LOCAL;
        ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
        assert_eq!(mode, GLOBAL);
        allocate()
    }));
    end(s).unwrap();
    begin(s, THREAD_LOCAL);
    ok(elsewhere(allocate));
    let mut mode = RELAXED;
    ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
    ok(allocate());
    ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
    assert_eq!(mode, RELAXED);
    end(s).unwrap();
    mode = 9;
    is(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)), 1);
}

extern "C" fn increment(data: *mut c_void) {
    // SAFETY: the test gave the address of a live number, which only the driver's thread touches meanwhile.
    unsafe { *data.cast::<u32>() += 1 };
}

#[test]
fn capture_dependencies_can_be_set() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p) = (stream(), upload(&[1]));
    begin(s, THREAD_LOCAL);
    ok(launch_step(step, p, s));
    ok(cu!(cuStreamUpdateCaptureDependencies(s, null_mut(), 0, 1)));
    ok(launch_step(step, p, s));
    is(cu!(cuStreamUpdateCaptureDependencies(s, &mut CUgraphNode::NULL.clone(), 1, 0)), 1);
    is(cu!(cuStreamUpdateCaptureDependencies(s, null_mut(), 0, 2)), 1);
    // The first node is now no one's dependency; the origin must still reach every stream's last nodes.
    let graph = end(s).unwrap();
    assert_eq!((node_count(graph), edge_count(graph)), (2, 0));
}

#[test]
fn per_thread_default_stream_twins() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let p = upload(&[1]);
    let mut args = [(&raw const p).cast_mut().cast::<c_void>()];
    ok(cu!(cuStreamBeginCapture_v2_ptsz(CUstream::NULL, RELAXED)));
    ok(cu!(cuLaunchKernel_ptsz(step, 1, 1, 1, 1, 1, 1, 0, CUstream::NULL, args.as_mut_ptr(), null_mut())));
    assert_eq!(status(CUstream(2 as *mut c_void)), 1);
    let mut graph = CUgraph::NULL;
    ok(cu!(cuStreamEndCapture_ptsz(CUstream::NULL, &mut graph)));
    assert_eq!(node_count(graph), 1);
    assert_eq!(download(p, 1), [1]);
}

#[test]
fn an_injected_failure_in_a_capture_leaves_a_usable_stream() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p) = (stream(), upload(&[1]));
    for nth in 0..3 {
        begin(s, THREAD_LOCAL);
        {
            let _armed = software::inject_failure(Some("cuLaunchKernel"), nth, 999);
            let codes: Vec<i32> = (0..3).map(|_| launch_step(step, p, s)).collect();
            assert_eq!(codes.iter().position(|c| *c == 999), Some(nth as usize));
        }
        assert_eq!(node_count(end(s).unwrap()), 2);
        ok(launch_step(step, p, s));
    }
    assert_eq!(download(p, 1), [step_n(3, 1)]);
}
