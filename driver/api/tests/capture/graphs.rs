//! Graphs that are made node by node, updated, or launched when they should not be.

use super::*;

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
