//! What CUDA 12 and 13 added, and what graphs own: libraries and their kernels, arrays, generic nodes,
//! nodes that allocate, user objects, capture into a graph that exists.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

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

fn library(text: &str) -> CUlibrary {
    let text = CString::new(text).unwrap();
    let mut library = CUlibrary::NULL;
    ok(cu!(cuLibraryLoadData(
        &mut library,
        text.as_ptr().cast(),
        null_mut(),
        null_mut(),
        0,
        null_mut(),
        null_mut(),
        0
    )));
    library
}

fn kernel(library: CUlibrary, name: &CStr) -> CUkernel {
    let mut kernel = CUkernel::NULL;
    ok(cu!(cuLibraryGetKernel(&mut kernel, library, name.as_ptr())));
    kernel
}

#[test]
fn libraries_need_no_context_and_work_in_every_one() {
    let gpu = gpu();
    ok(cu!(cuCtxSetCurrent(CUcontext::NULL)));
    let library = library(PTX);
    let step = kernel(library, c"step");
    assert_eq!(kernel(library, c"step"), step, "a name has one handle");
    is(cu!(cuLibraryGetKernel(&mut CUkernel::NULL.clone(), library, c"absent".as_ptr())), 500);
    let mut count = 0;
    ok(cu!(cuLibraryGetKernelCount(&mut count, library)));
    // The entries of the text above, counted there.
    assert_eq!(count as usize, PTX.matches(".entry").count());
    let mut all = vec![CUkernel::NULL; count as usize];
    ok(cu!(cuLibraryEnumerateKernels(all.as_mut_ptr(), count, library)));
    assert!(all.contains(&step));
    let mut name = null();
    ok(cu!(cuKernelGetName(&mut name, step)));
    // SAFETY: just answered.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"step");
    let (mut offset, mut size, mut parameters) = (9, 9, 9);
    ok(cu!(cuKernelGetParamInfo(step, 0, &mut offset, &mut size)));
    ok(cu!(cuKernelGetParamCount(step, &mut parameters)));
    assert_eq!((offset, size, parameters), (0, 8, 1));
    is(cu!(cuKernelGetParamInfo(step, 1, &mut offset, &mut size)), 1);
    // What needs a context says so.
    is(cu!(cuKernelGetFunction(&mut CUfunction::NULL.clone(), step)), 201);

    let mut own = CUcontext::NULL;
    ok(cu!(cuCtxCreate_v2(&mut own, 0, 0)));
    let mut functions = [CUfunction::NULL; 2];
    for (function, context) in functions.iter_mut().zip([gpu.context, own]) {
        ok(cu!(cuCtxSetCurrent(context)));
        ok(cu!(cuKernelGetFunction(function, step)));
        let p = upload(&[5]);
        // The kernel's handle is good where a function's is.
        ok(launch_step(CUfunction(step.0), p, CUstream::NULL));
        ok(launch_step(*function, p, CUstream::NULL));
        assert_eq!(download(p, 1), [49]);
        let (mut address, mut bytes) = (0, 0);
        ok(cu!(cuLibraryGetGlobal(&mut address, &mut bytes, library, c"seven".as_ptr())));
        assert_eq!((bytes, download(address, 1)), (4, vec![7]));
        let mut blocks = 0;
        ok(cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, CUfunction(step.0), 32, 0)));
        assert!(blocks > 0);
    }
    assert_ne!(functions[0], functions[1], "each context has its function");
    ok(cu!(cuCtxDestroy_v2(own)));
    ok(cu!(cuCtxSetCurrent(gpu.context)));
    ok(cu!(cuLibraryUnload(library)));
    is(cu!(cuLibraryUnload(library)), 400);
    is(launch_step(CUfunction(step.0), upload(&[1]), CUstream::NULL), 400);
}

#[test]
fn attributes_of_kernels_reach_their_functions() {
    let _gpu = gpu();
    let library = library(PTX);
    let last = kernel(library, c"shared_last");
    let (bytes, p) = (64 * 1024u32, alloc(4));
    let run = || launch(CUfunction(last.0), 1, 1, bytes, CUstream::NULL, &[arg(&p), arg(&bytes)]);
    is(run(), 1);
    is(cu!(cuKernelSetAttribute(8, 1 << 30, last, 0)), 1);
    is(cu!(cuKernelSetAttribute(8, 64 * 1024, last, 7)), 101);
    ok(cu!(cuKernelSetAttribute(8, 64 * 1024, last, 0)));
    let mut value = 0;
    ok(cu!(cuKernelGetAttribute(&mut value, 8, last, 0)));
    assert_eq!(value, 64 * 1024);
    ok(run());
    assert_eq!(download(p, 1), [bytes]);
}

#[test]
fn bad_libraries_are_refused_with_a_log() {
    let _gpu = gpu();
    let mut log = [1i8; 400];
    let mut library = CUlibrary::NULL;
    let mut options = [5, 6];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(400)];
    let code = cu!(cuLibraryLoadData(
        &mut library,
        c".version 7.0\n.target sm_75\n.address_size 64\n.entry k() { nonsense; }".as_ptr().cast(),
        options.as_mut_ptr(),
        values.as_mut_ptr(),
        2,
        null_mut(),
        null_mut(),
        0
    ));
    is(code, 218);
    // SAFETY: just written, NUL-terminated.
    let text = unsafe { CStr::from_ptr(log.as_ptr()) }.to_str().unwrap();
    assert!(text.contains("line 4") && text.contains("nonsense"), "{text}");
    is(cu!(cuLibraryLoadData(&mut library, null(), null_mut(), null_mut(), 0, null_mut(), null_mut(), 0)), 1);
}

#[test]
fn links_write_their_logs() {
    let _gpu = gpu();
    let mut log = [1i8; 300];
    let mut options = [5, 6];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(300)];
    let mut link = CUlinkState(null_mut());
    ok(cu!(cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut link)));
    let head = ".version 7.0\n.target sm_75\n.address_size 64\n";
    let add = |text: &str| {
        let text = CString::new(format!("{head}{text}")).unwrap();
        let n = text.as_bytes_with_nul().len();
        cu!(cuLinkAddData_v2(link, 1, text.as_ptr().cast_mut().cast(), n, c"part".as_ptr(), 0, null_mut(), null_mut()))
    };
    ok(add(".visible .entry good() { ret; }"));
    ok(add(".visible .entry bad() { nonsense; }"));
    let (mut image, mut size) = (null_mut(), 0);
    is(cu!(cuLinkComplete(link, &mut image, &mut size)), 218);
    // SAFETY: just written, NUL-terminated.
    let text = unsafe { CStr::from_ptr(log.as_ptr()) }.to_str().unwrap();
    assert!(text.contains("nonsense"), "{text}");
    assert_eq!(values[1].addr(), text.len() + 1, "how much was written");
    ok(cu!(cuLinkDestroy(link)));
    is(cu!(cuLinkComplete(link, &mut image, &mut size)), 400);
}

#[test]
fn arrays_are_boxes_for_copies() {
    let _gpu = gpu();
    let mut array = null_mut();
    // 5 x 3 texels of two 16-bit channels: rows of 20 bytes.
    let shape = ArrayDescriptor3D { width: 5, height: 3, depth: 0, format: 0x02, channels: 2, flags: 0 };
    is(cu!(cuArray3DCreate_v2(&mut array, &ArrayDescriptor3D { channels: 3, ..shape })), 1);
    is(cu!(cuArray3DCreate_v2(&mut array, &ArrayDescriptor3D { width: 0, ..shape })), 1);
    is(cu!(cuArray3DCreate_v2(&mut array, &ArrayDescriptor3D { height: 0, depth: 4, ..shape })), 1);
    is(cu!(cuArray3DCreate_v2(&mut array, null())), 1);
    ok(cu!(cuArray3DCreate_v2(&mut array, &shape)));
    let source: Vec<u8> = (0..60).collect();
    let whole = Memcpy2D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_memory_type: 1,
        src_host: source.as_ptr().cast(),
        src_device: 0,
        src_array: null_mut(),
        src_pitch: 20,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_memory_type: 3,
        dst_host: null_mut(),
        dst_device: 0,
        dst_array: array,
        dst_pitch: 0,
        width_in_bytes: 20,
        height: 3,
    };
    ok(cu!(cuMemcpy2D_v2(&whole)));
    is(cu!(cuMemcpy2D_v2(&Memcpy2D { dst_y: 1, ..whole })), 1);
    is(cu!(cuMemcpy2D_v2(&Memcpy2D { dst_x_in_bytes: 1, ..whole })), 1);
    let mut out = [0u8; 8];
    let part = Memcpy2D {
        src_x_in_bytes: 4,
        src_y: 1,
        src_memory_type: 3,
        src_array: array,
        dst_memory_type: 1,
        dst_host: out.as_mut_ptr().cast(),
        dst_array: null_mut(),
        dst_pitch: 4,
        width_in_bytes: 4,
        height: 2,
        ..whole
    };
    ok(cu!(cuMemcpy2D_v2(&part)));
    assert_eq!(out, [24, 25, 26, 27, 44, 45, 46, 47]);
    ok(cu!(cuMemcpyAtoH_v2(out.as_mut_ptr().cast(), array, 16, 4)));
    assert_eq!(out[..4], [16, 17, 18, 19]);
    is(cu!(cuMemcpyAtoH_v2(out.as_mut_ptr().cast(), array, 16, 5)), 1);
    let mut got = ArrayDescriptor { width: 0, height: 0, format: 0, channels: 0 };
    ok(cu!(cuArrayGetDescriptor_v2(&mut got, array)));
    assert_eq!((got.width, got.height, got.format, got.channels), (5, 3, 2, 2));
    ok(cu!(cuArrayDestroy(array)));
    is(cu!(cuArrayDestroy(array)), 400);
    is(cu!(cuMemcpy2D_v2(&part)), 400);
}

fn generic(kind: i32) -> GraphNodeParams {
    GraphNodeParams { kind, reserved0: [0; 3], parameters: [0; 29], reserved2: 0 }
}

/// SAFETY: `T` is one of the API's structures, smaller than the area.
fn with_payload<T: Copy>(kind: i32, value: T) -> GraphNodeParams {
    let mut p = generic(kind);
    assert!(size_of::<T>() <= size_of_val(&p.parameters));
    // SAFETY: see above.
    unsafe { (&raw mut p.parameters).cast::<T>().write(value) };
    p
}

#[test]
fn nodes_of_every_kind_through_one_structure() {
    let _gpu = gpu();
    let step = kernel(library(PTX), c"step");
    let p = alloc(16);
    let (mut graph, mut fill, mut run) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    let v1 = MemsetNodeParams { dst: p, pitch: 0, value: 2, element_size: 4, width: 4, height: 1 };
    let mut memset = with_payload(2, MemsetNodeParamsV2 { v1, context: CUcontext::NULL });
    ok(cu!(cuGraphAddNode(&mut fill, graph, null(), 0, &mut memset)));
    let mut list = [(&raw const p).cast_mut().cast::<c_void>()];
    let launch = KernelNodeParams {
        func: CUfunction::NULL,
        grid: [1; 3],
        block: [1; 3],
        shared_mem_bytes: 0,
        kernel_params: list.as_mut_ptr(),
        extra: null_mut(),
    };
    let mut launch = with_payload(0, KernelNodeParamsV2 { v1: launch, kern: step.0, ctx: CUcontext::NULL });
    let edge = GraphEdgeData::default();
    ok(cu!(cuGraphAddNode_v2(&mut run, graph, &fill, &edge, 1, &mut launch)));
    let programmatic = GraphEdgeData { kind: 1, ..edge };
    is(cu!(cuGraphAddNode_v2(&mut run.clone(), graph, &fill, &programmatic, 1, &mut launch)), 801);
    is(cu!(cuGraphAddNode(&mut run.clone(), graph, null(), 0, &mut generic(13))), 801);
    is(cu!(cuGraphAddNode(&mut run.clone(), graph, null(), 0, &mut generic(99))), 1);
    let mut kind = -1;
    ok(cu!(cuGraphNodeGetType(run, &mut kind)));
    assert_eq!((kind, edge_count(graph)), (0, 1));
    let (mut edges, mut n, mut from) = ([GraphEdgeData { kind: 7, ..edge }; 1], 1, CUgraphNode::NULL);
    ok(cu!(cuGraphNodeGetDependencies_v2(run, &mut from, edges.as_mut_ptr(), &mut n)));
    assert_eq!((from, edges[0], n), (fill, edge, 1));

    let exec = instantiate(graph);
    ok(cu!(cuGraphLaunch(exec, CUstream::NULL)));
    assert_eq!(download(p, 4), [7, 2, 2, 2]);
    // Switched off, the kernel does nothing; the fill still runs.
    ok(cu!(cuGraphNodeSetEnabled(exec, run, 0)));
    let mut enabled = 9;
    ok(cu!(cuGraphNodeGetEnabled(exec, run, &mut enabled)));
    assert_eq!(enabled, 0);
    ok(cu!(cuGraphLaunch(exec, CUstream::NULL)));
    assert_eq!(download(p, 1), [2]);
    ok(cu!(cuGraphNodeSetEnabled(exec, run, 1)));
    let v1 = MemsetNodeParams { value: 10, ..v1 };
    let mut memset = with_payload(2, MemsetNodeParamsV2 { v1, context: CUcontext::NULL });
    ok(cu!(cuGraphExecNodeSetParams(exec, fill, &mut memset)));
    is(cu!(cuGraphExecNodeSetParams(exec, run, &mut memset)), 1);
    ok(cu!(cuGraphLaunch(exec, CUstream::NULL)));
    assert_eq!(download(p, 2), [31, 10]);
}

#[test]
fn graphs_allocate_and_free() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let s = stream();
    begin(s, 0);
    let mut p = 0;
    ok(cu!(cuMemAllocAsync(&mut p, 64, s)));
    ok(cu!(cuMemsetD32Async(p, 1, 16, s)));
    ok(launch_step(step, p, s));
    let graph = end(s).unwrap();
    let kinds: Vec<i32> = nodes(graph)
        .into_iter()
        .map(|n| {
            let mut kind = -1;
            ok(cu!(cuGraphNodeGetType(n, &mut kind)));
            kind
        })
        .collect();
    assert_eq!(kinds, [10, 2, 0]);
    is(cu!(cuGraphClone(&mut CUgraph::NULL.clone(), graph)), 801);
    let exec = instantiate(graph);
    ok(cu!(cuGraphLaunch(exec, s)));
    assert_eq!(download(p, 2), [4, 1]);
    // It has not been freed: the next launch would allocate it twice.
    is(cu!(cuGraphLaunch(exec, s)), 1);
    let mut used = 0u64;
    ok(cu!(cuDeviceGetGraphMemAttribute(0, 0, (&raw mut used).cast())));
    assert_eq!(used, 64);
    ok(cu!(cuMemFreeAsync(p, s)));
    is(cu!(cuMemFreeAsync(p, s)), 1);
    ok(cu!(cuGraphLaunch(exec, s)));
    ok(cu!(cuMemFree_v2(p)));

    // With automatic free a launch takes back what the last one gave.
    let mut again = CUgraphExec::NULL;
    ok(cu!(cuGraphInstantiateWithFlags(&mut again, graph, 1)));
    let mut flags = 0;
    ok(cu!(cuGraphExecGetFlags(again, &mut flags)));
    assert_eq!(flags, 1);
    ok(cu!(cuGraphLaunch(again, s)));
    ok(cu!(cuGraphLaunch(again, s)));
    ok(cu!(cuMemFreeAsync(p, s)));

    // A graph that frees what it allocates can be launched again and again.
    begin(s, 0);
    let mut q = 0;
    ok(cu!(cuMemAllocAsync(&mut q, 4, s)));
    ok(cu!(cuMemsetD32Async(q, 3, 1, s)));
    ok(cu!(cuMemcpyDtoDAsync_v2(p, q, 4, s)));
    ok(cu!(cuMemFreeAsync(q, s)));
    is(cu!(cuMemFreeAsync(12345, s)), 1);
    let inner = end(s).unwrap();
    let inner = instantiate(inner);
    ok(cu!(cuGraphLaunch(exec, s)));
    ok(cu!(cuGraphLaunch(inner, s)));
    ok(cu!(cuGraphLaunch(inner, s)));
    assert_eq!(download(p, 1), [3]);
}

static DESTROYED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn destroyed(n: *mut c_void) {
    DESTROYED.fetch_add(n.addr() as u32, Ordering::Relaxed);
}

#[test]
fn user_objects_live_as_long_as_a_graph_holds_them() {
    let _gpu = gpu();
    let mut object = CUuserObject::NULL;
    let data = std::ptr::without_provenance_mut(5);
    is(cu!(cuUserObjectCreate(&mut object, data, Some(destroyed), 1, 0)), 1);
    is(cu!(cuUserObjectCreate(&mut object, data, None, 1, 1)), 1);
    ok(cu!(cuUserObjectCreate(&mut object, data, Some(destroyed), 1, 1)));
    let mut graph = CUgraph::NULL;
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    // The graph takes over the one reference.
    ok(cu!(cuGraphRetainUserObject(graph, object, 1, 1)));
    let exec = instantiate(graph);
    ok(cu!(cuGraphDestroy(graph)));
    assert_eq!(DESTROYED.load(Ordering::Relaxed), 0);
    ok(cu!(cuGraphExecDestroy(exec)));
    assert_eq!(DESTROYED.load(Ordering::Relaxed), 5);
    is(cu!(cuUserObjectRelease(object, 1)), 1);
}

#[test]
fn a_capture_continues_a_graph() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p) = (stream(), upload(&[1]));
    let (mut graph, mut first) = (CUgraph::NULL, CUgraphNode::NULL);
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    ok(cu!(cuGraphAddEmptyNode(&mut first, graph, null(), 0)));
    ok(cu!(cuStreamBeginCaptureToGraph(s, graph, &first, null(), 1, 0)));
    is(cu!(cuStreamBeginCaptureToGraph(stream(), graph, null(), null(), 0, 0)), 1);
    ok(launch_step(step, p, s));
    assert_eq!(end(s), Ok(graph));
    assert_eq!((node_count(graph), edge_count(graph)), (2, 1));
    // A capture that fails leaves the graph, which was there before.
    ok(cu!(cuStreamBeginCaptureToGraph(s, graph, null(), null(), 0, 0)));
    is(cu!(cuStreamSynchronize(s)), 900);
    assert_eq!(end(s), Err(901));
    let exec = instantiate(graph);
    ok(cu!(cuGraphLaunch(exec, s)));
    assert_eq!(download(p, 1), [4]);
}

#[test]
fn many_questions_about_a_pointer_at_once() {
    let gpu = gpu();
    let p = alloc(100);
    let (mut kind, mut base, mut device, mut context) = (0u32, 0u64, -9, CUcontext::NULL);
    let mut attributes = [2, 11, 9, 1];
    let mut places: [*mut c_void; 4] =
        [(&raw mut kind).cast(), (&raw mut base).cast(), (&raw mut device).cast(), (&raw mut context).cast()];
    ok(cu!(cuPointerGetAttributes(4, attributes.as_mut_ptr(), places.as_mut_ptr(), p + 10)));
    assert_eq!((kind, base, device, context), (2, p, 0, gpu.context));
    // An address that nobody knows is not an error here.
    ok(cu!(cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), 4096)));
    assert_eq!((kind, base, device), (0, 0, -2));
    is(cu!(cuPointerGetAttributes(1, null_mut(), places.as_mut_ptr(), p)), 1);
}

#[test]
fn every_name_of_the_api_resolves() {
    let _gpu = gpu();
    for (name, version, exported) in [
        ("cuGraphAddNode", 12030, "cuGraphAddNode_v2"),
        ("cuGraphAddNode", 13050, "cuGraphAddNode_v3"),
        ("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"),
        ("cuCtxGetDevice", 12000, "cuCtxGetDevice"),
        ("cuMemAlloc", 2000, "cuMemAlloc"),
        ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
        ("cuTensorMapEncodeTiled", 12000, "cuTensorMapEncodeTiled"),
    ] {
        let (mut found, mut status) = (null_mut(), -1);
        let symbol = CString::new(name).unwrap();
        ok(cu!(cuGetProcAddress_v2(symbol.as_ptr(), &mut found, version, 0, &mut status)));
        assert_eq!(status, 0, "{name}");
        assert_eq!(found.cast_const(), warpsmith_driver_api::exported(exported).unwrap(), "{name} of {version}");
    }
    let (mut found, mut status) = (null_mut(), -1);
    is(cu!(cuGetProcAddress_v2(c"cuLibraryLoadData".as_ptr(), &mut found, 11080, 0, &mut status)), 500);
    assert_eq!((found, status), (null_mut(), 2), "known, but newer");
    is(cu!(cuGetProcAddress_v2(c"cuNoSuchThing".as_ptr(), &mut found, 13050, 0, &mut status)), 500);
    assert_eq!((found, status), (null_mut(), 1));
}

/// The list is of names and version numbers, read off CUDA 13.5's own headers.
#[test]
fn every_function_of_cuda_13_5_is_there() {
    let _gpu = gpu();
    let list = include_str!("cuda-13.5.txt");
    let (mut bases, mut names) = (0, 0);
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split(' ');
        let base = words.next().unwrap();
        bases += 1;
        for word in words {
            names += 1;
            let Some((version, name)) = word.split_once(':') else {
                assert!(exported(word).is_some(), "{word} is not exported");
                continue;
            };
            let address = exported(name).unwrap_or_else(|| panic!("{name} is not exported"));
            let (symbol, version) = (CString::new(base).unwrap(), version.parse().unwrap());
            let (mut found, mut status) = (null_mut(), -1);
            ok(cu!(cuGetProcAddress_v2(symbol.as_ptr(), &mut found, version, 0, &mut status)));
            assert_eq!((found.cast_const(), status), (address, 0), "{base} of {version}");
        }
    }
    assert!(bases > 480 && names > 680, "{bases} names, {names} functions");
}
