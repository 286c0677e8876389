//! Graphs.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::api;
use crate::software::functions::{exec, graph, graph_memory, node_params, nodes, objects};
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

    [cuGraphAddMemAllocNode 11040] cuGraphAddMemAllocNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *mut c_void,
    ) => graph_memory::add_alloc;
    [cuGraphMemAllocNodeGetParams 11040] cuGraphMemAllocNodeGetParams(node: CUgraphNode, parameters: *mut c_void) => graph_memory::get_alloc;
    [cuGraphAddMemFreeNode 11040] cuGraphAddMemFreeNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, address: CUdeviceptr,
    ) => graph_memory::add_free;
    [cuGraphMemFreeNodeGetParams 11040] cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) => graph_memory::get_free;
    [cuDeviceGraphMemTrim 11040] cuDeviceGraphMemTrim(device: CUdevice) => graph_memory::trim;
    [cuDeviceGetGraphMemAttribute 11040] cuDeviceGetGraphMemAttribute(
        device: CUdevice, attribute: c_int, value: *mut c_void,
    ) => graph_memory::get_attribute;

    [cuUserObjectCreate 11030] cuUserObjectCreate(
        object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, references: c_uint, flags: c_uint,
    ) => objects::create;
    [cuUserObjectRetain 11030] cuUserObjectRetain(object: CUuserObject, count: c_uint) => objects::retain;
    [cuUserObjectRelease 11030] cuUserObjectRelease(object: CUuserObject, count: c_uint) => objects::release;
    [cuGraphRetainUserObject 11030] cuGraphRetainUserObject(
        graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint,
    ) => objects::graph_retain;
    [cuGraphReleaseUserObject 11030] cuGraphReleaseUserObject(
        graph: CUgraph, object: CUuserObject, count: c_uint,
    ) => objects::graph_release;

    [cuGraphGetEdges 12030] cuGraphGetEdges_v2(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut GraphEdgeData, count: *mut usize,
    ) => graph::get_edges_v2;
    [cuGraphNodeGetDependencies 12030] cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, dependencies: *mut CUgraphNode, edges: *mut GraphEdgeData, count: *mut usize,
    ) => graph::get_dependencies_v2;
    [cuGraphNodeGetDependentNodes 12030] cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode, dependents: *mut CUgraphNode, edges: *mut GraphEdgeData, count: *mut usize,
    ) => graph::get_dependents_v2;
    [cuGraphAddDependencies 12030] cuGraphAddDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const GraphEdgeData, count: usize,
    ) => graph::add_dependencies_v2;
    [cuGraphRemoveDependencies 12030] cuGraphRemoveDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const GraphEdgeData, count: usize,
    ) => graph::remove_dependencies_v2;
    [cuGraphNodeGetContainingGraph 13010] cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph) => graph::containing;

    [cuGraphAddNode 12020] cuGraphAddNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *mut GraphNodeParams,
    ) => node_params::add;
    [cuGraphAddNode 12030] cuGraphAddNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const GraphEdgeData, count: usize,
        parameters: *mut GraphNodeParams,
    ) => node_params::add_v2;
    [cuGraphAddNode 13040] cuGraphAddNode_v3(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const GraphEdgeData, count: usize,
        parameters: *mut GraphNodeParams,
    ) => node_params::add_v2;
    [cuGraphNodeSetParams 13040] cuGraphNodeSetParams_v2(node: CUgraphNode, parameters: *mut GraphNodeParams) => node_params::set;
    [cuGraphNodeSetParams 12020] cuGraphNodeSetParams(node: CUgraphNode, parameters: *mut GraphNodeParams) => node_params::set;
    [cuGraphExecNodeSetParams 12020] cuGraphExecNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, parameters: *mut GraphNodeParams,
    ) => node_params::set_in_exec;

    [cuGraphEventRecordNodeGetEvent 11010] cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) => nodes::get_event_record;
    [cuGraphEventRecordNodeSetEvent 11010] cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) => nodes::set_event_record;
    [cuGraphEventWaitNodeGetEvent 11010] cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) => nodes::get_event_wait;
    [cuGraphEventWaitNodeSetEvent 11010] cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) => nodes::set_event_wait;
    [cuGraphKernelNodeGetAttribute 11000] cuGraphKernelNodeGetAttribute(
        node: CUgraphNode, attribute: c_uint, value: *mut c_void,
    ) => nodes::get_attribute;
    [cuGraphKernelNodeSetAttribute 11000] cuGraphKernelNodeSetAttribute(
        node: CUgraphNode, attribute: c_uint, value: *const c_void,
    ) => nodes::set_attribute;
    [cuGraphKernelNodeCopyAttributes 11000] cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) => nodes::copy_attributes;
    [cuGraphExecGetFlags 12000] cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut c_ulonglong) => exec::get_flags;
    [cuGraphNodeSetEnabled 11060] cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) => exec::set_enabled;
    [cuGraphNodeGetEnabled 11060] cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) => exec::get_enabled;
    [cuGraphExecChildGraphNodeSetParams 11010] cuGraphExecChildGraphNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, child: CUgraph,
    ) => exec::set_child;
    [cuGraphExecEventRecordNodeSetEvent 11010] cuGraphExecEventRecordNodeSetEvent(
        exec: CUgraphExec, node: CUgraphNode, event: CUevent,
    ) => exec::set_event_record;
    [cuGraphExecEventWaitNodeSetEvent 11010] cuGraphExecEventWaitNodeSetEvent(
        exec: CUgraphExec, node: CUgraphNode, event: CUevent,
    ) => exec::set_event_wait;
}
