//! Objects and libraries in a link: what members are taken, and what stands for machine code.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;

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

const LIBRARY: &[u8] = include_bytes!("data/library/library.a");
const PTX_OBJECT: &[u8] = include_bytes!("data/library/ptx.o");
const MACHINE_OBJECT: &[u8] = include_bytes!("data/library/machine.o");
const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// `CUjitInputType`.
const PTX: c_int = 1;
const OBJECT: c_int = 3;
const ARCHIVE: c_int = 4;

/// A link of inputs, each with kind and name; the image, or the code and the log of what failed.
fn linked(inputs: &[(c_int, &CStr, &[u8])]) -> Result<CUmodule, (i32, String)> {
    let mut log = [0u8; 2048];
    let mut names = [5, 6];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(2048)];
    let (mut link, mut image) = (CUlinkState::NULL, null_mut());
    ok(cu!(cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &mut link)));
    let mut code = 0;
    for (kind, name, data) in inputs {
        let bytes = data.as_ptr().cast_mut().cast();
        code = cu!(cuLinkAddData_v2(link, *kind, bytes, data.len(), name.as_ptr(), 0, null_mut(), null_mut()));
        if code != 0 {
            break;
        }
    }
    if code == 0 {
        code = cu!(cuLinkComplete(link, &mut image, null_mut()));
    }
    let mut module = CUmodule::NULL;
    if code == 0 {
        ok(cu!(cuModuleLoadData(&mut module, image)));
    }
    ok(cu!(cuLinkDestroy(link)));
    if code == 0 {
        Ok(module)
    } else {
        Err((code, CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap().to_owned()))
    }
}

/// A kernel that calls a function with its argument and stores what it returns.
fn calls(entry: &str, f: &str) -> String {
    format!(
        ".extern .func (.param .b32 r) {f}(.param .b32 x);
         .visible .entry {entry}(.param .u64 p) {{
           .reg .b64 %d; .reg .b32 %r; .param .b32 a, b; ld.param.u64 %d, [p]; ld.global.u32 %r, [%d];
           st.param.b32 [a], %r; call.uni (b), {f}, (a); ld.param.b32 %r, [b]; st.global.u32 [%d], %r; ret; }}\n"
    )
}

fn run(module: CUmodule, entry: &str, value: u32) -> u32 {
    let p = upload(&[value]);
    ok(launch(function(module, entry), 1, 1, 0, CUstream::NULL, &[arg(&p)]));
    download(p, 1)[0]
}

/// The code of asking for a kernel.
fn ask(module: CUmodule, entry: &str) -> i32 {
    let (name, mut f) = (CString::new(entry).unwrap(), CUfunction::NULL);
    cu!(cuModuleGetFunction(&mut f, module, name.as_ptr()))
}

#[test]
fn ptx_in_objects_and_libraries_is_linked() {
    let _gpu = gpu();
    let text = HEAD.to_owned() + &calls("k", "three_times");
    let caller = (PTX, c"caller.ptx", text.as_bytes());
    // Of the library, `unused.o` calls what nobody has: nobody asks for it, so it is not taken.
    for library in [(ARCHIVE, c"library.a", LIBRARY), (OBJECT, c"ptx.o", PTX_OBJECT)] {
        assert_eq!(run(linked(&[caller, library]).unwrap(), "k", 5), 19);
        assert_eq!(run(linked(&[library, caller]).unwrap(), "k", 6), 22);
    }
    // From a file.
    let path = std::env::temp_dir().join(format!("warpsmith-{}.a", std::process::id()));
    std::fs::write(&path, LIBRARY).unwrap();
    let (mut link, mut image, mut module) = (CUlinkState::NULL, null_mut(), CUmodule::NULL);
    ok(cu!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut link)));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    ok(cu!(cuLinkAddFile_v2(link, ARCHIVE, name.as_ptr(), 0, null_mut(), null_mut())));
    let data = text.as_ptr().cast_mut().cast();
    ok(cu!(cuLinkAddData_v2(link, PTX, data, text.len(), c"caller".as_ptr(), 0, null_mut(), null_mut())));
    ok(cu!(cuLinkComplete(link, &mut image, null_mut())));
    ok(cu!(cuModuleLoadData(&mut module, image)));
    ok(cu!(cuLinkDestroy(link)));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(run(module, "k", 7), 25);

    // What nobody has is an error of the link, with and without the library.
    let text = HEAD.to_owned() + &calls("k", "nobody_knows");
    let caller = (PTX, c"caller.ptx", text.as_bytes());
    for inputs in [vec![caller], vec![caller, (ARCHIVE, c"library.a", LIBRARY)]] {
        let (code, log) = linked(&inputs).unwrap_err();
        assert!(code == 218 && log.contains("Unresolved extern function 'nobody_knows'"), "{code}: {log}");
    }
}

#[test]
fn machine_code_is_refused_by_name_when_it_is_asked_for() {
    let _gpu = gpu();
    let text = HEAD.to_owned() + &calls("odd", "only_machine_code") + &calls("good", "three_times");
    let caller = (PTX, c"caller.ptx", text.as_bytes());
    let module = linked(&[caller, (ARCHIVE, c"library.a", LIBRARY)]).unwrap();
    assert_eq!(run(module, "good", 1), 7);
    is(ask(module, "odd"), 801);
    let report = software::take_report().unwrap();
    assert!(report.contains("`only_machine_code`, which library.a(machine.o) has as machine code"), "{report}");
    // An object is linked whole, so one of machine code has no place in a link.
    let (code, _) = linked(&[(OBJECT, c"machine.o", MACHINE_OBJECT)]).unwrap_err();
    assert_eq!(code, 209);
    let report = software::take_report().unwrap();
    assert!(report.contains("machine.o, which has no PTX"), "{report}");
}

/// As compilers do that link with libcudadevrt: all threads add their neighbour's number to theirs, twice, with the grid's
/// barrier between reading and writing. What the barriers return is added up behind the numbers.
fn phases(sync: &str) -> String {
    format!(
        "{HEAD}.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 x);
         .extern .func (.param .b32 r) {sync}(.param .b64 h, .param .b32 f);
         .visible .entry phases(.param .u64 p) {{
           .reg .b64 %d<5>; .reg .b32 %r<12>; .reg .pred %q;
           ld.param.u64 %d0, [p];
           mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
           mov.u32 %r2, %nctaid.x; mul.lo.u32 %r1, %r1, %r2;
           add.u32 %r3, %r0, 1; rem.u32 %r3, %r3, %r1;
           mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; mul.wide.u32 %d2, %r3, 4; add.u64 %d2, %d0, %d2;
           {{ .param .b32 a; .param .b64 b; st.param.b32 [a], 1; call.uni (b), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %d3, [b]; }}
           mov.u32 %r4, 2; mov.u32 %r5, 0;
         AGAIN:
           ld.global.u32 %r6, [%d2]; ld.global.u32 %r7, [%d1]; add.u32 %r7, %r7, %r6;
           {{ .param .b64 a; .param .b32 b, c; st.param.b64 [a], %d3; st.param.b32 [b], 0; call.uni (c), {sync}, (a, b); ld.param.b32 %r8, [c]; }}
           add.u32 %r5, %r5, %r8;
           st.global.u32 [%d1], %r7;
           {{ .param .b64 a; .param .b32 b, c; st.param.b64 [a], %d3; st.param.b32 [b], 0; call.uni (c), {sync}, (a, b); ld.param.b32 %r8, [c]; }}
           add.u32 %r5, %r5, %r8;
           sub.u32 %r4, %r4, 1; setp.ne.u32 %q, %r4, 0; @%q bra AGAIN;
           mul.wide.u32 %d4, %r1, 4; add.u64 %d4, %d1, %d4; st.global.u32 [%d4], %r5; ret; }}"
    )
}

#[test]
fn the_barrier_of_a_grid_is_the_drivers() {
    let _gpu = gpu();
    let (blocks, threads) = (7u32, 40u32);
    let n = (blocks * threads) as usize;
    let start: Vec<u32> = (0..n as u32).map(|i| i * i + 3).collect();
    let step = |v: &[u32]| (0..n).map(|i| v[i].wrapping_add(v[(i + 1) % n])).collect::<Vec<u32>>();
    for sync in ["cudaCGSynchronize", "cudaCGSynchronizeGrid"] {
        let text = phases(sync);
        let module = linked(&[(PTX, c"caller.ptx", text.as_bytes()), (ARCHIVE, c"library.a", LIBRARY)]).unwrap();
        let f = function(module, "phases");
        // Plain, and watched for races and barriers, in several orders.
        for guard in [None, Some(software::check(software::Checks::ALL))] {
            let data = upload(&start.iter().copied().chain(std::iter::repeat_n(1, n)).collect::<Vec<_>>());
            let args = [arg(&data)];
            let s = CUstream::NULL;
            ok(cu!(cuLaunchCooperativeKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, args.as_ptr().cast_mut().cast())));
            let result = download(data, 2 * n);
            assert_eq!(result[..n], step(&step(&start)), "{sync}");
            assert_eq!(result[n..], vec![0; n], "{sync}");
            let found = software::take_findings();
            assert!(found.is_empty(), "{sync}: {}", found.iter().map(|f| f.to_string()).collect::<String>());
            drop(guard);
        }
        // A launch that is not cooperative has no grid to wait for: cudaErrorUnknown, four times.
        let data = upload(&vec![0; 2 * threads as usize]);
        ok(launch(f, 1, threads, 0, CUstream::NULL, &[arg(&data)]));
        assert_eq!(download(data, 2 * threads as usize)[threads as usize..], vec![4 * 999; threads as usize]);
        // Without the library the names are nobody's.
        let (code, log) = linked(&[(PTX, c"caller.ptx", text.as_bytes())]).unwrap_err();
        assert!(code == 218 && log.contains(&format!("Unresolved extern function '{sync}'")), "{code}: {log}");
    }
}

/// No library makes the linker panic, or allocate without bound.
#[test]
fn damaged_libraries_are_errors() {
    let _gpu = gpu();
    let text = HEAD.to_owned() + &calls("k", "three_times");
    let caller = (PTX, c"caller.ptx", text.as_bytes());
    let mut refused = 0;
    for cut in (0..LIBRARY.len()).step_by(97) {
        refused += usize::from(linked(&[caller, (ARCHIVE, c"cut.a", &LIBRARY[..cut])]).is_err());
    }
    assert!(refused > 150, "{refused}");
    for at in (0..LIBRARY.len()).step_by(31) {
        for value in [0, 0xff] {
            let mut changed = LIBRARY.to_vec();
            changed[at] = value;
            let _ = linked(&[caller, (ARCHIVE, c"changed.a", &changed)]);
        }
    }
}

/// The names of the linker's warnings, in its log.
#[test]
fn prototypes_that_differ_are_in_the_log() {
    let _gpu = gpu();
    let text = HEAD.to_owned() + &calls("k", "nothing");
    let callee = HEAD.to_owned() + ".visible .func nothing(.param .b32 x) { ret; }\n";
    let mut log = [0u8; 2048];
    let (mut names, mut values) = ([3, 4], [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(2048)]);
    let (mut link, mut image) = (CUlinkState::NULL, null_mut());
    ok(cu!(cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &mut link)));
    for (name, text) in [(c"one.ptx", &text), (c"two.ptx", &callee)] {
        let data = text.as_ptr().cast_mut().cast();
        ok(cu!(cuLinkAddData_v2(link, PTX, data, text.len(), name.as_ptr(), 0, null_mut(), null_mut())));
    }
    ok(cu!(cuLinkComplete(link, &mut image, null_mut())));
    let log = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    let told = "warning : Prototype doesn't match for 'nothing' in 'input 1 (one.ptx)', first defined in 'input 2 (two.ptx)'\n";
    assert!(log.starts_with(told) && log.contains("info: 'k'"), "{log}");
    ok(cu!(cuLinkDestroy(link)));
}
