//! Graphs.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::{api, api_unsupported};
use crate::software::{exec, graph, nodes};
use crate::types::*;

api! {
    rows graph_rows;
    [cuGraphCreate 10000] cuGraphCreate(graph: *mut CUgraph, flags: c_uint) => graph::create;
    [cuGraphDestroy 10000] cuGraphDestroy(graph: CUgraph) => graph::destroy;
    [cuGraphClone 10000] cuGraphClone(clone: *mut CUgraph, original: CUgraph) => graph::clone;
    [cuGraphNodeFindInClone 10000] cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) => graph::find_in_clone;
    [cuGraphGetNodes 10000] cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => graph::get_nodes;
    [cuGraphGetRootNodes 10000] cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => graph::get_root_nodes;
    [cuGraphGetEdges 10000] cuGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize,
    ) => graph::get_edges;
    [cuGraphNodeGetDependencies 10000] cuGraphNodeGetDependencies(
        node: CUgraphNode, dependencies: *mut CUgraphNode, count: *mut usize,
    ) => graph::get_dependencies;
    [cuGraphNodeGetDependentNodes 10000] cuGraphNodeGetDependentNodes(
        node: CUgraphNode, dependents: *mut CUgraphNode, count: *mut usize,
    ) => graph::get_dependents;
    [cuGraphAddDependencies 10000] cuGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize,
    ) => graph::add_dependencies;
    [cuGraphRemoveDependencies 10000] cuGraphRemoveDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize,
    ) => graph::remove_dependencies;
    [cuGraphNodeGetType 10000] cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_int) => graph::node_type;
    [cuGraphDestroyNode 10000] cuGraphDestroyNode(node: CUgraphNode) => graph::destroy_node;
    [cuGraphDebugDotPrint 11030] cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) => graph::dot;

    [cuGraphAddKernelNode 10000] cuGraphAddKernelNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const KernelNodeParams,
    ) => nodes::add_kernel;
    [cuGraphAddKernelNode 12000] cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const KernelNodeParamsV2,
    ) => nodes::add_kernel_v2;
    [cuGraphKernelNodeGetParams 10000] cuGraphKernelNodeGetParams(node: CUgraphNode, parameters: *mut KernelNodeParams) => nodes::get_kernel;
    [cuGraphKernelNodeGetParams 12000] cuGraphKernelNodeGetParams_v2(node: CUgraphNode, parameters: *mut KernelNodeParamsV2) => nodes::get_kernel_v2;
    [cuGraphKernelNodeSetParams 10000] cuGraphKernelNodeSetParams(node: CUgraphNode, parameters: *const KernelNodeParams) => nodes::set_kernel;
    [cuGraphKernelNodeSetParams 12000] cuGraphKernelNodeSetParams_v2(node: CUgraphNode, parameters: *const KernelNodeParamsV2) => nodes::set_kernel_v2;
    [cuGraphAddMemcpyNode 10000] cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, copy: *const Memcpy3D, context: CUcontext,
    ) => nodes::add_memcpy;
    [cuGraphMemcpyNodeGetParams 10000] cuGraphMemcpyNodeGetParams(node: CUgraphNode, copy: *mut Memcpy3D) => nodes::get_memcpy;
    [cuGraphMemcpyNodeSetParams 10000] cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: *const Memcpy3D) => nodes::set_memcpy;
    [cuGraphAddMemsetNode 10000] cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, fill: *const MemsetNodeParams, context: CUcontext,
    ) => nodes::add_memset;
    [cuGraphMemsetNodeGetParams 10000] cuGraphMemsetNodeGetParams(node: CUgraphNode, fill: *mut MemsetNodeParams) => nodes::get_memset;
    [cuGraphMemsetNodeSetParams 10000] cuGraphMemsetNodeSetParams(node: CUgraphNode, fill: *const MemsetNodeParams) => nodes::set_memset;
    [cuGraphAddHostNode 10000] cuGraphAddHostNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const HostNodeParams,
    ) => nodes::add_host;
    [cuGraphHostNodeGetParams 10000] cuGraphHostNodeGetParams(node: CUgraphNode, parameters: *mut HostNodeParams) => nodes::get_host;
    [cuGraphHostNodeSetParams 10000] cuGraphHostNodeSetParams(node: CUgraphNode, parameters: *const HostNodeParams) => nodes::set_host;
    [cuGraphAddEmptyNode 10000] cuGraphAddEmptyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
    ) => nodes::add_empty;
    [cuGraphAddChildGraphNode 10000] cuGraphAddChildGraphNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph,
    ) => nodes::add_child;
    [cuGraphAddEventRecordNode 11010] cuGraphAddEventRecordNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent,
    ) => nodes::add_event_record;
    [cuGraphAddEventWaitNode 11010] cuGraphAddEventWaitNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent,
    ) => nodes::add_event_wait;

    [cuGraphInstantiate 10000] cuGraphInstantiate(
        exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_size: usize,
    ) => exec::instantiate;
    [cuGraphInstantiate 11000] cuGraphInstantiate_v2(
        exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_size: usize,
    ) => exec::instantiate;
    [cuGraphInstantiateWithFlags 11040] cuGraphInstantiateWithFlags(
        exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong,
    ) => exec::instantiate_with_flags;
    [cuGraphInstantiateWithParams 12000 | cuGraphInstantiateWithParams_ptsz] cuGraphInstantiateWithParams(
        exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut GraphInstantiateParams,
    ) => exec::instantiate_with_params;
    [cuGraphUpload 11010 | cuGraphUpload_ptsz] cuGraphUpload(exec: CUgraphExec, stream: CUstream) => exec::upload;
    [cuGraphLaunch 10000 | cuGraphLaunch_ptsz] cuGraphLaunch(exec: CUgraphExec, stream: CUstream) => exec::launch;
    [cuGraphExecDestroy 10000] cuGraphExecDestroy(exec: CUgraphExec) => exec::destroy;
    [cuGraphExecUpdate 10020] cuGraphExecUpdate(
        exec: CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, result: *mut c_int,
    ) => exec::update;
    [cuGraphExecUpdate 12000] cuGraphExecUpdate_v2(
        exec: CUgraphExec, graph: CUgraph, result: *mut GraphExecUpdateResultInfo,
    ) => exec::update_v2;
    [cuGraphExecKernelNodeSetParams 10010] cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const KernelNodeParams,
    ) => exec::set_kernel;
    [cuGraphExecKernelNodeSetParams 12000] cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const KernelNodeParamsV2,
    ) => exec::set_kernel_v2;
    [cuGraphExecMemcpyNodeSetParams 10020] cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, copy: *const Memcpy3D, context: CUcontext,
    ) => exec::set_memcpy;
    [cuGraphExecMemsetNodeSetParams 10020] cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, fill: *const MemsetNodeParams, context: CUcontext,
    ) => exec::set_memset;
    [cuGraphExecHostNodeSetParams 10020] cuGraphExecHostNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const HostNodeParams,
    ) => exec::set_host;
}

api_unsupported! {
    rows unsupported_graph_rows;
    [cuGraphAddMemAllocNode 11040] cuGraphAddMemAllocNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *mut c_void,
    );
    [cuGraphAddMemFreeNode 11040] cuGraphAddMemFreeNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, address: CUdeviceptr,
    );
    [cuGraphRetainUserObject 11030] cuGraphRetainUserObject(graph: CUgraph, object: *mut c_void, count: c_uint, flags: c_uint);
    [cuGraphReleaseUserObject 11030] cuGraphReleaseUserObject(graph: CUgraph, object: *mut c_void, count: c_uint);
    [cuDeviceGraphMemTrim 11040] cuDeviceGraphMemTrim(device: CUdevice);
}
