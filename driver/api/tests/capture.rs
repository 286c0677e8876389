//! Stream capture and graphs on the software engine.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

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
fn host_functions_and_empty_and_child_nodes() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p) = (stream(), upload(&[1]));
    let mut count = Box::new(0u32);
    begin(s, THREAD_LOCAL);
    ok(cu!(cuLaunchHostFunc(s, Some(increment), (&raw mut *count).cast())));
    ok(launch_step(step, p, s));
    let inner = end(s).unwrap();
    let (mut graph, mut a, mut b, mut c) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    is(cu!(cuGraphCreate(&mut graph, 1)), 1);
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    ok(cu!(cuGraphAddEmptyNode(&mut a, graph, null(), 0)));
    ok(cu!(cuGraphAddChildGraphNode(&mut b, graph, &a, 1, inner)));
    ok(cu!(cuGraphAddChildGraphNode(&mut c, graph, &b, 1, inner)));
    is(cu!(cuGraphAddChildGraphNode(&mut c, graph, null(), 0, graph)), 1);
    ok(cu!(cuGraphDestroy(inner)));
    let exec = instantiate(graph);
    ok(cu!(cuGraphLaunch(exec, s)));
    ok(cu!(cuGraphLaunch(exec, s)));
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!((*count, download(p, 1)[0]), (4, step_n(4, 1)));
}

fn kernel_params(func: CUfunction, list: &mut [*mut c_void]) -> KernelNodeParams {
    KernelNodeParams {
        func,
        grid: [1, 1, 1],
        block: [1, 1, 1],
        shared_mem_bytes: 0,
        kernel_params: list.as_mut_ptr(),
        extra: null_mut(),
    }
}

#[test]
fn graphs_by_hand() {
    let _gpu = gpu();
    let module = load(PTX);
    let (step, poke) = (function(module, "step"), function(module, "poke"));
    let (s, mut p) = (stream(), upload(&[5]));
    let mut list = [(&raw mut p).cast::<c_void>()];
    let params = kernel_params(step, &mut list);
    let (mut graph, mut first, mut second) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    ok(cu!(cuGraphAddKernelNode(&mut first, graph, null(), 0, &params)));
    // The second is made without order, then put before the first.
    let clear = MemsetNodeParams { dst: p, pitch: 0, value: 1, element_size: 4, width: 1, height: 1 };
    ok(cu!(cuGraphAddMemsetNode(&mut second, graph, null(), 0, &clear, CUcontext::NULL)));
    ok(cu!(cuGraphAddDependencies(graph, &second, &first, 1)));
    is(cu!(cuGraphAddDependencies(graph, &second, &first, 1)), 1);
    is(cu!(cuGraphAddDependencies(graph, &first, &first, 1)), 1);
    let exec = instantiate(graph);
    ok(cu!(cuGraphLaunch(exec, s)));
    assert_eq!(download(p, 1), [4]);
    // A cycle cannot be instantiated.
    ok(cu!(cuGraphAddDependencies(graph, &first, &second, 1)));
    let mut log = [1 as std::ffi::c_char; 64];
    let mut cyclic = CUgraphExec::NULL;
    is(cu!(cuGraphInstantiate_v2(&mut cyclic, graph, null_mut(), log.as_mut_ptr(), 64)), 1);
    // SAFETY: the driver terminated it.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(log.as_ptr()) }, c"the graph has a cycle");
    ok(cu!(cuGraphRemoveDependencies(graph, &first, &second, 1)));
    is(cu!(cuGraphRemoveDependencies(graph, &first, &second, 1)), 1);

    // Reading back, and changing.
    let mut read = params;
    ok(cu!(cuGraphKernelNodeGetParams(first, &mut read)));
    assert_eq!(read.func, step);
    // SAFETY: the node's own copies of its arguments.
    assert_eq!(unsafe { (*read.kernel_params).cast::<u64>().read() }, p);
    is(cu!(cuGraphKernelNodeGetParams(second, &mut read)), 1);
    let mut q = upload(&[7]);
    let mut other = [(&raw mut q).cast::<c_void>()];
    ok(cu!(cuGraphExecKernelNodeSetParams(exec, first, &kernel_params(step, &mut other))));
    ok(cu!(cuGraphLaunch(exec, s)));
    assert_eq!((download(p, 1)[0], download(q, 1)[0]), (1, 22));
    is(cu!(cuGraphExecKernelNodeSetParams(exec, second, &params)), 1);
    is(cu!(cuGraphExecKernelNodeSetParams(exec, CUgraphNode::NULL, &params)), 1);
    let mut bad = params;
    bad.block = [2048, 1, 1];
    is(cu!(cuGraphAddKernelNode(&mut first.clone(), graph, null(), 0, &bad)), 1);
    is(cu!(cuGraphAddKernelNode(&mut first.clone(), graph, &CUgraphNode::NULL, 1, &params)), 1);

    // A clone is a graph of its own.
    let (mut clone, mut twin) = (CUgraph::NULL, CUgraphNode::NULL);
    ok(cu!(cuGraphClone(&mut clone, graph)));
    ok(cu!(cuGraphNodeFindInClone(&mut twin, first, clone)));
    assert_ne!(twin, first);
    ok(cu!(cuGraphKernelNodeSetParams(twin, &kernel_params(poke, &mut list))));
    ok(cu!(cuGraphDestroyNode(second)));
    is(cu!(cuGraphDestroyNode(second)), 1);
    assert_eq!((node_count(graph), node_count(clone)), (1, 2));
    ok(cu!(cuGraphLaunch(instantiate(clone), s)));
    assert_eq!(download(p, 1), [0]);
    ok(cu!(cuGraphDestroy(graph)));
    is(cu!(cuGraphDestroy(graph)), 1);
    is(cu!(cuGraphNodeGetType(first, &mut 0)), 1);
}

#[test]
fn memcpy_nodes() {
    let _gpu = gpu();
    let (s, x, y) = (stream(), upload(&[1, 2, 3, 4]), upload(&[0; 4]));
    let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
    let copy = Memcpy3D {
        src_x_in_bytes: 4,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_memory_type: 2,
        src_host: null(),
        src_device: x,
        src_array: null_mut(),
        reserved0: null_mut(),
        src_pitch: 0,
        src_height: 0,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: 2,
        dst_host: null_mut(),
        dst_device: y,
        dst_array: null_mut(),
        reserved1: null_mut(),
        dst_pitch: 0,
        dst_height: 0,
        width_in_bytes: 12,
        height: 1,
        depth: 1,
    };
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    ok(cu!(cuGraphAddMemcpyNode(&mut node, graph, null(), 0, &copy, CUcontext::NULL)));
    let too_long = Memcpy3D { width_in_bytes: 16, ..copy };
    is(cu!(cuGraphAddMemcpyNode(&mut node, graph, null(), 0, &too_long, CUcontext::NULL)), 1);
    ok(cu!(cuGraphLaunch(instantiate(graph), s)));
    assert_eq!(download(y, 4), [2, 3, 4, 0]);
    let mut back = too_long;
    ok(cu!(cuGraphMemcpyNodeGetParams(node, &mut back)));
    assert_eq!((back.src_device, back.width_in_bytes), (x + 4, 12));
}

fn captured(s: CUstream, body: impl FnOnce()) -> CUgraph {
    begin(s, THREAD_LOCAL);
    body();
    end(s).unwrap()
}

#[test]
fn updates_need_the_same_shape() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p, q) = (stream(), upload(&[1]), upload(&[1]));
    let two = |p| {
        captured(s, || {
            ok(launch_step(step, p, s));
            ok(launch_step(step, p, s));
        })
    };
    let exec = instantiate(two(p));
    let (mut node, mut result) = (CUgraphNode::NULL, -1);
    ok(cu!(cuGraphExecUpdate(exec, two(q), &mut node, &mut result)));
    assert_eq!(result, 0);
    ok(cu!(cuGraphLaunch(exec, s)));
    assert_eq!((download(p, 1)[0], download(q, 1)[0]), (1, step_n(2, 1)));

    let one = captured(s, || ok(launch_step(step, p, s)));
    is(cu!(cuGraphExecUpdate(exec, one, &mut node, &mut result)), 910);
    assert_eq!(result, 2, "another number of nodes");
    let mixed = captured(s, || {
        ok(launch_step(step, p, s));
        ok(cu!(cuMemsetD32Async(p, 0, 1, s)));
    });
    is(cu!(cuGraphExecUpdate(exec, mixed, &mut node, &mut result)), 910);
    assert_eq!((result, node), (3, nodes(mixed)[1]));
    let loose = two(p);
    let pair = nodes(loose);
    ok(cu!(cuGraphRemoveDependencies(loose, &pair[0], &pair[1], 1)));
    is(cu!(cuGraphExecUpdate(exec, loose, &mut node, &mut result)), 910);
    assert_eq!(result, 2, "another edge");
    // The failures left it as it was.
    ok(cu!(cuGraphLaunch(exec, s)));
    assert_eq!(download(q, 1)[0], step_n(4, 1));
    let mut info = GraphExecUpdateResultInfo { result: -1, error_node: node, error_from_node: node };
    ok(cu!(cuGraphExecUpdate_v2(exec, two(p), &mut info)));
    assert_eq!(info.result, 0);
}

#[test]
fn a_graph_whose_kernel_is_gone_is_an_error() {
    let _gpu = gpu();
    let module = load(PTX);
    let step = function(module, "step");
    let (s, p) = (stream(), upload(&[1]));
    let graph = captured(s, || ok(launch_step(step, p, s)));
    let exec = instantiate(graph);
    ok(cu!(cuModuleUnload(module)));
    is(cu!(cuGraphLaunch(exec, s)), 400);
    assert!(software::last_report().unwrap().contains("no longer exists"));
    is(cu!(cuGraphInstantiateWithFlags(&mut CUgraphExec::NULL.clone(), graph, 0)), 400);
    is(cu!(cuGraphInstantiateWithFlags(&mut CUgraphExec::NULL.clone(), graph, 4)), 801);
    ok(cu!(cuCtxSynchronize()));
}

#[test]
fn memory_freed_under_a_graph_fails_the_context() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p) = (stream(), upload(&[1]));
    let exec = instantiate(captured(s, || ok(launch_step(step, p, s))));
    ok(cu!(cuMemFree_v2(p)));
    ok(cu!(cuGraphLaunch(exec, s)));
    is(cu!(cuStreamSynchronize(s)), 700);
    is(cu!(cuGraphLaunch(exec, s)), 700);
}

#[test]
fn graphs_are_not_launched_into_captures() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, t, p) = (stream(), stream(), upload(&[1]));
    let exec = instantiate(captured(s, || ok(launch_step(step, p, s))));
    begin(t, THREAD_LOCAL);
    is(cu!(cuGraphLaunch(exec, t)), 900);
    assert_eq!(end(t), Err(901));
    begin(t, THREAD_LOCAL);
    ok(cu!(cuGraphLaunch(exec, s)));
    end(t).unwrap();
    assert_eq!(download(p, 1), [4]);
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
