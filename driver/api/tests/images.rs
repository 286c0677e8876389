//! What can be loaded: fat binaries as `nvcc` makes them, by every function that takes an image; what the linker joins, and
//! what options say of the compiled code.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::{CString, c_int, c_void};
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

const NONE: &[u8] = include_bytes!("data/fatbin/none.fatbin");
const SIZE: &[u8] = include_bytes!("data/fatbin/size.fatbin");
const SPEED: &[u8] = include_bytes!("data/fatbin/speed.fatbin");
const GROUP: &[u8] = include_bytes!("data/fatbin/group.fatbin");
const CUBIN: &[u8] = include_bytes!("data/fatbin/cubin.fatbin");

fn module_of(image: *const c_void) -> CUmodule {
    let mut module = CUmodule::NULL;
    let code = cu!(cuModuleLoadData(&mut module, image));
    assert_eq!(code, 0, "{}", software::last_report().unwrap_or_default());
    module
}

/// What `architecture` of the samples writes: for which one the PTX that runs was compiled.
fn architecture(f: CUfunction) -> f32 {
    let p = alloc(4);
    ok(launch(f, 1, 1, 0, CUstream::NULL, &[arg(&p)]));
    f32::from_bits(download(p, 1)[0])
}

#[test]
fn fat_binaries_load_by_every_function() {
    let _gpu = gpu();
    for image in [NONE, SIZE, SPEED, GROUP] {
        let mut modules = vec![module_of(image.as_ptr().cast())];
        let mut module = CUmodule::NULL;
        ok(cu!(cuModuleLoadFatBinary(&mut module, image.as_ptr().cast())));
        modules.push(module);
        ok(cu!(cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 0, null_mut(), null_mut())));
        modules.push(module);

        let path = std::env::temp_dir().join(format!("warpsmith-{}-{}.fatbin", std::process::id(), image.len()));
        std::fs::write(&path, image).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        ok(cu!(cuModuleLoad(&mut module, name.as_ptr())));
        modules.push(module);
        std::fs::remove_file(&path).unwrap();

        let (mut library, none) = (CUlibrary::NULL, null_mut());
        ok(cu!(cuLibraryLoadData(&mut library, image.as_ptr().cast(), none, null_mut(), 0, none, null_mut(), 0)));
        ok(cu!(cuLibraryGetModule(&mut module, library)));
        modules.push(module);

        let (mut link, mut joined, mut size) = (CUlinkState::NULL, null_mut(), 0);
        ok(cu!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut link)));
        let data = image.as_ptr().cast_mut().cast();
        ok(cu!(cuLinkAddData_v2(link, 2, data, image.len(), null(), 0, null_mut(), null_mut())));
        ok(cu!(cuLinkComplete(link, &mut joined, &mut size)));
        modules.push(module_of(joined));
        ok(cu!(cuLinkDestroy(link)));

        for module in modules {
            // The software device is an sm_90: of what it can run, that is the newest.
            assert_eq!(architecture(function(module, "architecture")), 90.0);
        }
    }
}

/// The structure that `nvcc` puts into programs, and the runtime registers.
#[test]
fn what_programs_register_is_followed_to_its_fat_binary() {
    #[repr(C)]
    struct Wrapper(i32, i32, *const u8, *const c_void);
    let _gpu = gpu();
    let wrapper = Wrapper(0x466_243b1, 1, SIZE.as_ptr(), null());
    let module = module_of((&raw const wrapper).cast());
    assert_eq!(architecture(function(module, "architecture")), 90.0);
    let mut bad = CUmodule::NULL;
    let nowhere = Wrapper(0x466_243b1, 1, null(), null());
    is(cu!(cuModuleLoadData(&mut bad, (&raw const nowhere).cast())), 200);
    let text = Wrapper(0x466_243b1, 1, c".version 7.0".as_ptr().cast(), null());
    is(cu!(cuModuleLoadData(&mut bad, (&raw const text).cast())), 200);
}

#[test]
fn what_holds_no_ptx_says_so() {
    let _gpu = gpu();
    let mut bad = CUmodule::NULL;
    is(cu!(cuModuleLoadData(&mut bad, CUBIN.as_ptr().cast())), 209);
    let report = software::last_report().unwrap();
    assert!(report.contains("machine code for sm_80") && report.contains("code=compute_90"), "{report}");
    let empty = [0x50u8, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    is(cu!(cuModuleLoadData(&mut bad, empty.as_ptr().cast())), 209);
    // A header that claims more than any container has.
    let vast = [0x50u8, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f];
    is(cu!(cuModuleLoadData(&mut bad, vast.as_ptr().cast())), 200);
    assert_eq!(bad, CUmodule::NULL);
}

#[test]
fn constants_count_for_every_kernel_of_their_module() {
    let _gpu = gpu();
    let module = module_of(SIZE.as_ptr().cast());
    // `cuobjdump -res-usage` says CONSTANT[3]:128 of the module's machine code.
    for name in ["twice", "architecture"] {
        let mut bytes = 0;
        ok(cu!(cuFuncGetAttribute(&mut bytes, 2, function(module, name))));
        assert_eq!(bytes, 128, "{name}");
    }
}

/// Twenty values that are all live at once.
fn hungry(head: &str) -> CString {
    let mut text =
        format!(".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {head}{{\n");
    text.push_str(".reg .b32 %r<20>; .reg .b64 %rd; ld.param.u64 %rd, [p];\n");
    (0..20).for_each(|i| text.push_str(&format!("ld.global.u32 %r{i}, [%rd+{}];\n", 4 * i)));
    (0..20).for_each(|i| text.push_str(&format!("st.global.u32 [%rd+{}], %r{i};\n", 4 * (19 - i))));
    text.push_str("ret; }\n");
    CString::new(text).unwrap()
}

/// Registers and the largest block of `k`, loaded under options.
fn limits(text: &CString, options: &[(c_int, usize)]) -> (i32, i32) {
    let mut names: Vec<c_int> = options.iter().map(|o| o.0).collect();
    let mut values: Vec<*mut c_void> = options.iter().map(|o| std::ptr::without_provenance_mut(o.1)).collect();
    let mut module = CUmodule::NULL;
    let n = options.len() as u32;
    ok(cu!(cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), n, names.as_mut_ptr(), values.as_mut_ptr())));
    let (mut registers, mut threads) = (0, 0);
    ok(cu!(cuFuncGetAttribute(&mut registers, 4, function(module, "k"))));
    ok(cu!(cuFuncGetAttribute(&mut threads, 0, function(module, "k"))));
    (registers, threads)
}

#[test]
fn options_limit_the_compiled_code() {
    let _gpu = gpu();
    let plain = hungry("");
    let (all, _) = limits(&plain, &[]);
    assert!(all > 20, "{all}");
    assert_eq!(limits(&plain, &[(0, 16)]).0, 16);
    assert_eq!(limits(&plain, &[(32, 96)]).1, 96);
    // 65536 registers for 1024 threads are 64 each: enough.
    assert_eq!(limits(&plain, &[(1, 1024)]).0, all);
    // What the kernel says of itself stands, unless it is told not to.
    assert_eq!(limits(&hungry(".maxnreg 24 "), &[]).0, 24);
    assert_eq!(limits(&hungry(".maxnreg 24 "), &[(0, 16)]).0, 24);
    assert_eq!(limits(&hungry(".maxnreg 24 "), &[(0, 16), (33, 1)]).0, 16);
    assert_eq!(limits(&hungry(".maxntid 64, 2, 1 "), &[(32, 96)]).1, 128);
    assert_eq!(limits(&hungry(".maxntid 64, 2, 1 "), &[(32, 96), (33, 1)]).1, 96);
    assert_eq!(limits(&hungry(".maxntid 64, 2, 1 "), &[(0, 16)]).0, all);
}

#[test]
fn a_linked_image_keeps_the_options_of_the_linker() {
    let _gpu = gpu();
    let text = hungry("");
    let (mut link, mut image) = (CUlinkState::NULL, null_mut());
    let (mut names, mut values) = ([0], [std::ptr::without_provenance_mut::<c_void>(16)]);
    ok(cu!(cuLinkCreate_v2(1, names.as_mut_ptr(), values.as_mut_ptr(), &mut link)));
    let data = text.as_ptr().cast_mut().cast();
    ok(cu!(cuLinkAddData_v2(link, 1, data, text.count_bytes(), null(), 0, null_mut(), null_mut())));
    ok(cu!(cuLinkComplete(link, &mut image, null_mut())));
    let mut registers = 0;
    ok(cu!(cuFuncGetAttribute(&mut registers, 4, function(module_of(image), "k"))));
    assert_eq!(registers, 16);
    ok(cu!(cuLinkDestroy(link)));
}

#[test]
fn a_name_that_two_inputs_define_is_in_the_log() {
    let _gpu = gpu();
    let text = hungry("");
    let mut log = [0u8; 512];
    let (mut names, mut values) = ([5, 6], [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(512)]);
    let (mut link, mut image) = (CUlinkState::NULL, null_mut());
    ok(cu!(cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &mut link)));
    for name in [c"one.ptx", c"two.ptx"] {
        let data = text.as_ptr().cast_mut().cast();
        ok(cu!(cuLinkAddData_v2(link, 1, data, text.count_bytes(), name.as_ptr(), 0, null_mut(), null_mut())));
    }
    is(cu!(cuLinkComplete(link, &mut image, null_mut())), 218);
    let log = std::ffi::CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert_eq!(log, "'k' is defined in input 1 (one.ptx) and in input 2 (two.ptx)");
    is(cu!(cuLinkAddData_v2(link, 9, null_mut(), 0, null(), 0, null_mut(), null_mut())), 1);
    ok(cu!(cuLinkDestroy(link)));
}

#[test]
fn flags_of_instantiation_that_exclude_each_other() {
    let _gpu = gpu();
    let mut graph = CUgraph::NULL;
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    let mut exec = CUgraphExec::NULL;
    // AUTO_FREE_ON_LAUNCH 1, UPLOAD 2, DEVICE_LAUNCH 4, USE_NODE_PRIORITY 8.
    for (flags, code) in
        [(0, 0), (1, 0), (4, 801), (5, 1), (7, 1), (8, 0), (9, 0), (12, 801), (13, 1), (16, 1), (20, 1)]
    {
        is(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, flags)), code);
    }
    let mut p =
        GraphInstantiateParams { flags: 3, upload_stream: CUstream::NULL, error_node: CUgraphNode::NULL, result: 0 };
    ok(cu!(cuGraphInstantiateWithParams(&mut exec, graph, &mut p)));
    let mut flags = 0;
    ok(cu!(cuGraphExecGetFlags(exec, &mut flags)));
    assert_eq!(flags, 1, "the upload was the instantiation's");
}

/// A launch of no blocks is refused as a node, too: see `cuLaunchKernel`.
#[test]
fn a_node_without_blocks_is_refused_when_it_is_made() {
    let _gpu = gpu();
    let nothing = function(load(PTX), "nothing");
    let mut graph = CUgraph::NULL;
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    let mut node = CUgraphNode::NULL;
    let p = KernelNodeParams {
        func: nothing,
        grid: [1, 1, 1],
        block: [1, 1, 1],
        shared_mem_bytes: 0,
        kernel_params: null_mut(),
        extra: null_mut(),
    };
    for axis in 0..3 {
        let mut empty = p;
        empty.grid[axis] = 0;
        is(cu!(cuGraphAddKernelNode(&mut node, graph, null(), 0, &empty)), 1);
        assert_eq!(node_count(graph), 0);
    }
    ok(cu!(cuGraphAddKernelNode(&mut node, graph, null(), 0, &p)));
    let exec = instantiate(graph);
    is(cu!(cuGraphExecKernelNodeSetParams(exec, node, &KernelNodeParams { grid: [0, 1, 1], ..p })), 1);
    ok(cu!(cuGraphLaunch(exec, CUstream::NULL)));
}
