//! Memory operations of streams, batches and conditions in graphs.

use super::P;
use crate::api::api_unsupported;

api_unsupported! {
    rows streams_rows;
    [cuGraphAddBatchMemOpNode 11070] cuGraphAddBatchMemOpNode(a: P, b: P, c: P, d: usize, e: P);
    [cuGraphAddExternalSemaphoresSignalNode 11020] cuGraphAddExternalSemaphoresSignalNode(a: P, b: P, c: P, d: usize, e: P);
    [cuGraphAddExternalSemaphoresWaitNode 11020] cuGraphAddExternalSemaphoresWaitNode(a: P, b: P, c: P, d: usize, e: P);
    [cuGraphBatchMemOpNodeGetParams 11070] cuGraphBatchMemOpNodeGetParams(a: P, b: P);
    [cuGraphBatchMemOpNodeSetParams 11070] cuGraphBatchMemOpNodeSetParams(a: P, b: P);
    [cuGraphChildGraphNodeGetGraph 10000] cuGraphChildGraphNodeGetGraph(a: P, b: P);
    [cuGraphConditionalHandleCreate 12030] cuGraphConditionalHandleCreate(a: P, b: P, c: P, d: u32, e: u32);
    [cuGraphExecBatchMemOpNodeSetParams 11070] cuGraphExecBatchMemOpNodeSetParams(a: P, b: P, c: P);
    [cuGraphExecExternalSemaphoresSignalNodeSetParams 11020] cuGraphExecExternalSemaphoresSignalNodeSetParams(a: P, b: P, c: P);
    [cuGraphExecExternalSemaphoresWaitNodeSetParams 11020] cuGraphExecExternalSemaphoresWaitNodeSetParams(a: P, b: P, c: P);
    [cuGraphExecGetId 13010] cuGraphExecGetId(a: P, b: P);
    [cuGraphExternalSemaphoresSignalNodeGetParams 11020] cuGraphExternalSemaphoresSignalNodeGetParams(a: P, b: P);
    [cuGraphExternalSemaphoresSignalNodeSetParams 11020] cuGraphExternalSemaphoresSignalNodeSetParams(a: P, b: P);
    [cuGraphExternalSemaphoresWaitNodeGetParams 11020] cuGraphExternalSemaphoresWaitNodeGetParams(a: P, b: P);
    [cuGraphExternalSemaphoresWaitNodeSetParams 11020] cuGraphExternalSemaphoresWaitNodeSetParams(a: P, b: P);
    [cuGraphGetId 13010] cuGraphGetId(a: P, b: P);
    [cuGraphNodeGetLocalId 13010] cuGraphNodeGetLocalId(a: P, b: P);
    [cuGraphNodeGetParams 13020] cuGraphNodeGetParams(a: P, b: P);
    [cuGraphNodeGetToolsId 13010] cuGraphNodeGetToolsId(a: P, b: P);
    [cuStreamBatchMemOp 8000 | cuStreamBatchMemOp_ptsz] cuStreamBatchMemOp(a: P, b: u32, c: P, d: u32);
    [cuStreamBatchMemOp 11070 | cuStreamBatchMemOp_v2_ptsz] cuStreamBatchMemOp_v2(a: P, b: u32, c: P, d: u32);
    [cuStreamBeginCaptureToCig 13010 | cuStreamBeginCaptureToCig_ptsz] cuStreamBeginCaptureToCig(a: P, b: P);
    [cuStreamBeginRecaptureToGraph 13030 | cuStreamBeginRecaptureToGraph_ptsz] cuStreamBeginRecaptureToGraph(a: P, b: i32, c: P, d: P, e: P);
    [cuStreamEndCaptureToCig 13010 | cuStreamEndCaptureToCig_ptsz] cuStreamEndCaptureToCig(a: P);
    [cuStreamWaitValue32 8000 | cuStreamWaitValue32_ptsz] cuStreamWaitValue32(a: P, b: u64, c: u32, d: u32);
    [cuStreamWaitValue32 11070 | cuStreamWaitValue32_v2_ptsz] cuStreamWaitValue32_v2(a: P, b: u64, c: u32, d: u32);
    [cuStreamWaitValue64 9000 | cuStreamWaitValue64_ptsz] cuStreamWaitValue64(a: P, b: u64, c: u64, d: u32);
    [cuStreamWaitValue64 11070 | cuStreamWaitValue64_v2_ptsz] cuStreamWaitValue64_v2(a: P, b: u64, c: u64, d: u32);
    [cuStreamWriteValue32 8000 | cuStreamWriteValue32_ptsz] cuStreamWriteValue32(a: P, b: u64, c: u32, d: u32);
    [cuStreamWriteValue32 11070 | cuStreamWriteValue32_v2_ptsz] cuStreamWriteValue32_v2(a: P, b: u64, c: u32, d: u32);
    [cuStreamWriteValue64 9000 | cuStreamWriteValue64_ptsz] cuStreamWriteValue64(a: P, b: u64, c: u64, d: u32);
    [cuStreamWriteValue64 11070 | cuStreamWriteValue64_v2_ptsz] cuStreamWriteValue64_v2(a: P, b: u64, c: u64, d: u32);
}
