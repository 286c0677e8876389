//! Sequences of calls with handles, addresses and sizes that are live, stale, of another kind, or invented: every call
//! answers a code that CUDA has, none panics inside, and the driver works afterwards.
//!
//! Pointers to host memory are the caller's word, in CUDA as here, so they are null or good.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use common::*;
use proptest::prelude::*;
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: pointers to host memory are null, or to live memory of the length said; everything
/// else is for the driver to check.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

/// One call: which, and four numbers that choose its arguments.
type Call = (u8, [u64; 4]);

/// What the calls made so far: every handle that was ever answered, whatever its kind and whether it still lives.
struct World {
    handles: Vec<u64>,
    addresses: Vec<u64>,
    host: Vec<u8>,
}

impl World {
    fn handle(&self, choice: u64) -> *mut c_void {
        let invented = [0, 1, 2, 3, 0x5700_0010, 0xffff_ffff, 1 << 47, u64::MAX];
        let id = match choice % 8 {
            0 => invented[(choice / 8) as usize % invented.len()],
            _ if self.handles.is_empty() => 0,
            _ => self.handles[(choice / 8) as usize % self.handles.len()],
        };
        std::ptr::without_provenance_mut(id as usize)
    }

    fn address(&self, choice: u64) -> u64 {
        let invented = [0, 1, 4095, 1 << 48, (1 << 48) + 64, 1 << 55, u64::MAX, u64::MAX - 3];
        match choice % 6 {
            0 => invented[(choice / 6) as usize % invented.len()],
            _ if self.addresses.is_empty() => 0,
            n => self.addresses[(choice / 6) as usize % self.addresses.len()]
                .wrapping_add([0, 0, 0, 4, 60, 1000][n as usize]),
        }
    }

    fn size(choice: u64) -> usize {
        [0, 1, 4, 60, 64, 65, 4096, 1 << 20, 1 << 40, usize::MAX / 8, usize::MAX][(choice % 11) as usize]
    }

    fn small(choice: u64) -> usize {
        [0, 1, 2, 4, 16, 64][(choice % 6) as usize]
    }
}

/// What a call is given.
#[derive(Clone, Copy)]
struct Given {
    numbers: [u64; 4],
    handles: [*mut c_void; 3],
    addresses: [u64; 2],
    bytes: usize,
    few_bytes: usize,
    host: *mut c_void,
}

/// What a call makes.
struct Made {
    handle: *mut c_void,
    address: u64,
    bytes: usize,
}

fn perform(w: &mut World, (which, numbers): Call) -> CUresult {
    let [a, b, c, d] = numbers;
    let given = Given {
        numbers,
        handles: [w.handle(a), w.handle(b), w.handle(c)],
        addresses: [w.address(a), w.address(b)],
        bytes: World::size(d),
        few_bytes: World::small(d),
        host: w.host.as_mut_ptr().cast(),
    };
    let mut made = Made { handle: null_mut(), address: 0, bytes: 0 };
    let code = match which % 64 {
        n @ (0..=10 | 44..=50 | 56..=58 | 63) => memory(n, &given, &mut made),
        n @ (11..=22 | 51 | 61..=62) => streams(n, &given, &mut made),
        n @ (23..=36 | 59..=60) => graphs(n, &given, &mut made),
        n => code(n, w, &given, &mut made),
    };
    if code == 0 {
        if !made.handle.is_null() {
            w.handles.push(made.handle.addr() as u64);
        }
        if made.address != 0 {
            w.addresses.push(made.address);
        }
    }
    code
}

/// Calls about memory.
fn memory(which: u8, given: &Given, made: &mut Made) -> CUresult {
    let [a, b, c, d] = given.numbers;
    let [h1, h2, h3] = given.handles;
    let [p, q] = given.addresses;
    let (n, within) = (given.bytes, given.few_bytes);
    let host = given.host;
    let place = |wanted: bool| if wanted { host } else { null_mut() };
    match which {
        0 => cu!(cuMemAlloc_v2(&mut made.address, n.min(1 << 21))),
        1 => cu!(cuMemFree_v2(p)),
        2 => cu!(cuMemAllocAsync(&mut made.address, within, CUstream(h2))),
        3 => cu!(cuMemFreeAsync(p, CUstream(h2))),
        4 => cu!(cuMemcpyHtoD_v2(p, place(b & 1 == 0), within)),
        5 => cu!(cuMemcpyDtoH_v2(place(b & 1 == 0), p, within)),
        6 => cu!(cuMemcpyDtoD_v2(p, q, n)),
        7 => cu!(cuMemcpyDtoDAsync_v2(p, q, n, CUstream(h3))),
        8 => cu!(cuMemsetD8_v2(p, 1, n)),
        9 => cu!(cuMemsetD32Async(p, 1, n, CUstream(h2))),
        10 => cu!(cuMemsetD2D16_v2(p, n, 3, within, World::size(c))),
        44 => cu!(cuMemPoolDestroy(CUmemoryPool(h1))),
        45 => cu!(cuMemPoolGetAttribute(CUmemoryPool(h1), (b % 10) as i32, host)),
        46 => cu!(cuPointerGetAttribute(host, (b % 25) as i32, p)),
        47 => cu!(cuMemGetAddressRange_v2(&mut made.address, &mut made.bytes, p)),
        48 => cu!(cuMemHostAlloc(&mut made.handle, n.min(1 << 16), (a % 16) as u32)),
        49 => cu!(cuMemFreeHost(std::ptr::without_provenance_mut(p as usize))),
        50 => cu!(cuMemAllocManaged(&mut made.address, within, (b % 4) as u32)),
        56 => cu!(cuArrayDestroy(h1)),
        57 => {
            let shape =
                ArrayDescriptor { width: n, height: World::size(c), format: (a % 40) as u32, channels: (b % 5) as u32 };
            // Small ones alone: a large one is memory, not a wrong argument.
            if n.saturating_mul(World::size(c)) > 1 << 21 && n < usize::MAX / 8 {
                return 0;
            }
            cu!(cuArrayCreate_v2(&mut made.handle, &shape))
        }
        58 => {
            let side = |kind: u64| (kind % 5) as u32;
            let copy = Memcpy2D {
                src_x_in_bytes: World::size(a / 7),
                src_y: within,
                src_memory_type: if side(a) == 4 { 2 } else { side(a) },
                src_host: null(),
                src_device: p,
                src_array: h1,
                src_pitch: n,
                dst_x_in_bytes: within,
                dst_y: World::size(b / 7),
                dst_memory_type: if side(b) == 4 { 2 } else { side(b) },
                dst_host: null_mut(),
                dst_device: q,
                dst_array: h2,
                dst_pitch: World::size(c),
                width_in_bytes: World::size(c / 11),
                height: World::size(d / 11),
            };
            // Host memory is the caller's word, and here there is none.
            if copy.src_memory_type == 1 || copy.dst_memory_type == 1 {
                return 0;
            }
            cu!(cuMemcpy2D_v2(&copy))
        }
        _ => cu!(cuModuleGetGlobal_v2(&mut made.address, &mut made.bytes, CUmodule(h1), c"seven".as_ptr())),
    }
}

/// Calls about streams, events and captures.
fn streams(which: u8, given: &Given, made: &mut Made) -> CUresult {
    let [a, b, c, d] = given.numbers;
    let [h1, h2, h3] = given.handles;
    let list = [CUgraphNode(h2), CUgraphNode(h3)];
    match which {
        11 => cu!(cuStreamCreate((&raw mut made.handle).cast(), (a % 4) as u32)),
        12 => cu!(cuStreamDestroy_v2(CUstream(h1))),
        13 => cu!(cuStreamSynchronize(CUstream(h1))),
        14 => cu!(cuStreamWaitEvent(CUstream(h1), CUevent(h2), (c % 3) as u32)),
        15 => cu!(cuEventCreate((&raw mut made.handle).cast(), (a % 9) as u32)),
        16 => cu!(cuEventDestroy_v2(CUevent(h1))),
        17 => cu!(cuEventRecord(CUevent(h1), CUstream(h2))),
        18 => cu!(cuEventSynchronize(CUevent(h1))),
        19 => cu!(cuEventElapsedTime(&mut 0f32, CUevent(h1), CUevent(h2))),
        20 => cu!(cuStreamBeginCapture_v2(CUstream(h1), (b % 4) as i32)),
        21 => cu!(cuStreamEndCapture(CUstream(h1), (&raw mut made.handle).cast())),
        22 => cu!(cuStreamIsCapturing(CUstream(h1), &mut 0)),
        51 => cu!(cuCtxSynchronize()),
        61 => cu!(cuStreamUpdateCaptureDependencies(
            CUstream(h1),
            list.as_ptr().cast_mut(),
            (d % 3) as usize,
            (c % 3) as u32
        )),
        _ => cu!(cuThreadExchangeStreamCaptureMode(&mut ((a % 4) as i32))),
    }
}

/// Calls about graphs.
fn graphs(which: u8, given: &Given, made: &mut Made) -> CUresult {
    let [a, b, c, d] = given.numbers;
    let [h1, h2, h3] = given.handles;
    let [p, _] = given.addresses;
    let (n, within) = (given.bytes, given.few_bytes);
    let list = [CUgraphNode(h2), CUgraphNode(h3)];
    match which {
        23 => cu!(cuGraphCreate((&raw mut made.handle).cast(), (a % 2) as u32)),
        24 => cu!(cuGraphDestroy(CUgraph(h1))),
        25 => cu!(cuGraphAddEmptyNode((&raw mut made.handle).cast(), CUgraph(h1), list.as_ptr(), (d % 3) as usize)),
        26 => cu!(cuGraphAddChildGraphNode((&raw mut made.handle).cast(), CUgraph(h1), null(), 0, CUgraph(h2))),
        27 => {
            let fill =
                MemsetNodeParams { dst: p, pitch: n, value: 9, element_size: (c % 5) as u32, width: within, height: 2 };
            cu!(cuGraphAddMemsetNode((&raw mut made.handle).cast(), CUgraph(h2), null(), 0, &fill, CUcontext(h3)))
        }
        28 => cu!(cuGraphAddDependencies(CUgraph(h1), &list[0], &list[1], 1)),
        29 => cu!(cuGraphDestroyNode(CUgraphNode(h1))),
        30 => cu!(cuGraphInstantiateWithFlags((&raw mut made.handle).cast(), CUgraph(h1), d % 16)),
        31 => cu!(cuGraphLaunch(CUgraphExec(h1), CUstream(h2))),
        32 => cu!(cuGraphExecDestroy(CUgraphExec(h1))),
        33 => cu!(cuGraphExecUpdate(CUgraphExec(h1), CUgraph(h2), (&raw mut made.handle).cast(), &mut 0)),
        34 => cu!(cuGraphClone((&raw mut made.handle).cast(), CUgraph(h1))),
        35 => cu!(cuGraphGetNodes(CUgraph(h1), null_mut(), &mut made.bytes)),
        36 => cu!(cuGraphNodeGetType(CUgraphNode(h1), &mut 0)),
        59 => cu!(cuGraphNodeSetEnabled(CUgraphExec(h1), CUgraphNode(h2), (c % 2) as u32)),
        _ => cu!(cuUserObjectRelease(CUuserObject(h1), (b % 3) as u32)),
    }
}

/// Calls about modules, functions and libraries.
fn code(which: u8, w: &World, given: &Given, made: &mut Made) -> CUresult {
    let [a, b, c, d] = given.numbers;
    let [h1, _, h3] = given.handles;
    let (n, _) = (given.bytes, given.few_bytes);
    match which {
        37 => cu!(cuModuleGetFunction((&raw mut made.handle).cast(), CUmodule(h1), c"step".as_ptr())),
        38 => cu!(cuModuleUnload(CUmodule(h1))),
        39 => {
            let text = CString::new(PTX).unwrap();
            cu!(cuModuleLoadData((&raw mut made.handle).cast(), text.as_ptr().cast()))
        }
        40 => {
            // `step` takes one pointer: whatever the handle is, eight readable bytes are what it may need.
            let argument = [w.addresses.first().copied().unwrap_or(0); 4];
            let arguments = [(&raw const argument).cast_mut().cast::<c_void>(); 4];
            let dim = |n: u64| [1, 0, 1, 2, 1024, u32::MAX][(n % 6) as usize];
            let known = w.handles.first().copied().unwrap_or(0);
            let f = if b & 3 == 0 { h1 } else { std::ptr::without_provenance_mut(known as usize) };
            cu!(cuLaunchKernel(
                CUfunction(f),
                1,
                dim(a / 3),
                1,
                1,
                dim(d),
                1,
                (World::size(c) as u32) / 2,
                CUstream(h3),
                arguments.as_ptr().cast_mut(),
                null_mut()
            ))
        }
        41 => cu!(cuFuncGetAttribute(&mut 0, (b % 20) as i32, CUfunction(h1))),
        42 => cu!(cuFuncSetAttribute(CUfunction(h1), (b % 12) as i32, d as i32)),
        43 => cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut 0, CUfunction(h1), d as i32, n)),
        52 => cu!(cuLinkCreate_v2(0, null_mut(), null_mut(), (&raw mut made.handle).cast())),
        53 => cu!(cuLinkDestroy(CUlinkState(h1))),
        54 => cu!(cuLibraryUnload(CUlibrary(h1))),
        _ => cu!(cuKernelGetFunction((&raw mut made.handle).cast(), CUkernel(h1))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_is_answered(calls in proptest::collection::vec((any::<u8>(), any::<[u64; 4]>()), 1..80)) {
        let _gpu = gpu();
        let module = load(PTX);
        let mut world = World {
            handles: vec![function(module, "step").0.addr() as u64, module.0.addr() as u64, stream().0.addr() as u64],
            addresses: vec![upload(&[1; 16])],
            host: vec![0; 4096],
        };
        let _ = software::take_report();
        for call in calls {
            let code = perform(&mut world, call);
            prop_assert!(result_name(code).starts_with("CUDA_"), "{call:?} answers {code}");
            prop_assert_ne!(code, 999, "{:?}: {:?}", call, software::last_report());
        }
        let report = software::last_report().unwrap_or_default();
        prop_assert!(!report.contains("internal error"), "{}", report);
        // Whatever was done to it, a device that is reset works again.
        let mut mode = 0;
        ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
        ok(cu!(cuDevicePrimaryCtxReset_v2(0)));
        let (mut context, mut p) = (CUcontext::NULL, 0);
        ok(cu!(cuDevicePrimaryCtxRetain(&mut context, 0)));
        ok(cu!(cuCtxSetCurrent(context)));
        ok(cu!(cuMemAlloc_v2(&mut p, 4)));
        ok(cu!(cuMemsetD32_v2(p, 5, 1)));
        prop_assert_eq!(download(p, 1), [5]);
    }

    #[test]
    fn any_text_is_a_module_or_an_error(text in "[ -~\n]{0,200}", cut in 0..2000usize) {
        let _gpu = gpu();
        for text in [text.as_str(), &PTX[..cut.min(PTX.len())]] {
            let text = CString::new(text).unwrap();
            let mut module = CUmodule::NULL;
            let code = cu!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
            prop_assert!(matches!(code, 0 | 200 | 209 | 218), "{}", result_name(code));
            prop_assert_eq!(code == 0, module != CUmodule::NULL);
        }
    }
}

/// Null for every pointer of every function that does something: an error code, or nothing done.
#[test]
fn null_pointers_are_errors() {
    let _gpu = gpu();
    let null_stream = CUstream::NULL;
    let calls: [(&str, CUresult); 24] = [
        ("cuDeviceGet", cu!(cuDeviceGet(null_mut(), 0))),
        ("cuDeviceGetCount", cu!(cuDeviceGetCount(null_mut()))),
        ("cuDeviceGetName", cu!(cuDeviceGetName(null_mut(), 5, 0))),
        ("cuCtxGetCurrent", cu!(cuCtxGetCurrent(null_mut()))),
        ("cuCtxCreate_v2", cu!(cuCtxCreate_v2(null_mut(), 0, 0))),
        ("cuMemAlloc_v2", cu!(cuMemAlloc_v2(null_mut(), 4))),
        ("cuMemAllocAsync", cu!(cuMemAllocAsync(null_mut(), 4, null_stream))),
        ("cuMemGetInfo_v2", cu!(cuMemGetInfo_v2(null_mut(), null_mut()))),
        ("cuMemHostAlloc", cu!(cuMemHostAlloc(null_mut(), 4, 0))),
        ("cuMemcpy2D_v2", cu!(cuMemcpy2D_v2(null()))),
        ("cuMemcpy3D_v2", cu!(cuMemcpy3D_v2(null()))),
        ("cuModuleLoadData", cu!(cuModuleLoadData(null_mut(), c"".as_ptr().cast()))),
        ("cuModuleLoad", cu!(cuModuleLoad(&mut CUmodule::NULL.clone(), null()))),
        ("cuLibraryGetKernel", cu!(cuLibraryGetKernel(null_mut(), CUlibrary::NULL, null()))),
        ("cuStreamCreate", cu!(cuStreamCreate(null_mut(), 0))),
        ("cuEventCreate", cu!(cuEventCreate(null_mut(), 0))),
        ("cuLaunchHostFunc", cu!(cuLaunchHostFunc(null_stream, None, null_mut()))),
        ("cuGraphCreate", cu!(cuGraphCreate(null_mut(), 0))),
        ("cuGraphAddKernelNode", cu!(cuGraphAddKernelNode(null_mut(), CUgraph::NULL, null(), 0, null()))),
        ("cuGraphAddNode", cu!(cuGraphAddNode(null_mut(), CUgraph::NULL, null(), 0, null_mut()))),
        ("cuPointerGetAttribute", cu!(cuPointerGetAttribute(null_mut(), 2, 4096))),
        ("cuArrayCreate_v2", cu!(cuArrayCreate_v2(null_mut(), null()))),
        ("cuGetProcAddress_v2", cu!(cuGetProcAddress_v2(null(), &mut null_mut(), 12000, 0, null_mut()))),
        ("cuMemPoolCreate", cu!(cuMemPoolCreate(null_mut(), null()))),
    ];
    for (name, code) in calls {
        assert_eq!(code, 1, "{name} answers {}", result_name(code));
    }
}

/// The codes that `cust_raw` 0.11.3 declares, read off its source: any other would be undefined behaviour in a program on it.
const CUST_RAW: [std::ops::RangeInclusive<i32>; 14] = [
    0..=8,
    34..=34,
    100..=102,
    200..=202,
    205..=224,
    300..=304,
    400..=401,
    500..=500,
    600..=600,
    700..=705,
    708..=720,
    800..=809,
    900..=911,
    999..=999,
];

/// Every function of CUDA 13.5, with nothing but zeros, and when it is told to fail with a code of later versions.
#[test]
fn no_function_answers_a_code_that_cust_does_not_know() {
    let _gpu = gpu();
    let list = include_str!("cuda-13.5.txt");
    let names = list.lines().filter(|l| !l.starts_with('#')).flat_map(|l| l.split_whitespace().skip(1));
    let names: Vec<&str> = names.map(|n| n.split_once(':').map_or(n, |(_, name)| name)).collect();
    assert!(names.len() > 600, "{}", names.len());
    let known = |code: i32| CUST_RAW.iter().any(|range| range.contains(&code));
    for name in names {
        let (text, mut address) = (CString::new(name).unwrap(), null_mut());
        let found = cu!(cuGetProcAddress_v2(text.as_ptr(), &mut address, 13050, 0, null_mut()));
        // CUDA gives `cuGetProcAddress` out under its base name only.
        if found != 0 || name.starts_with("cuGetProcAddress") {
            assert!(known(found), "{name}: {found}");
            continue;
        }
        // SAFETY: a function of the C ABI that is given more arguments than it takes ignores them; null is null, and 0 is
        // no handle.
        let f: unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> CUresult =
            unsafe { std::mem::transmute(address) };
        let code = cu!(f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        assert!(known(code), "{name} answers {code}");
        assert_ne!(code, 999, "{name} answered a code that was cut: {}", last_raw_result());
        for newer in [36, 46, 226, 402, 721, 812, 912, 918, 1000, -1] {
            let _armed = software::inject_failure(Some(name), 0, newer);
            let code = cu!(f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
            assert!(known(code), "{name}, told to answer {newer}, answers {code}");
        }
    }
}
