//! Kernels that cannot run refuse themselves alone; cooperative launches have what cooperative groups look for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::CString;
use std::ptr::null_mut;

use common::*;
use warpsmith_driver_api::*;

#[test]
fn a_kernel_that_cannot_run_says_so_when_it_is_asked_for() {
    let _gpu = gpu();
    let text = ".version 8.2\n.target sm_90\n.address_size 64
        .visible .entry good(.param .u64 p) { .reg .b64 %d; ld.param.u64 %d, [p]; st.global.u32 [%d], 5; ret; }
        .visible .entry odd() { .reg .b64 %d; multimem.red.relaxed.gpu.global.add.u32 [%d], 1; ret; }";
    let module = load(text);
    let out = upload(&[0]);
    ok(launch(function(module, "good"), 1, 1, 0, CUstream::NULL, &[arg(&out)]));
    assert_eq!(download(out, 1), [5]);
    let ask = |name: &str| {
        let (name, mut f) = (CString::new(name).unwrap(), CUfunction::NULL);
        // SAFETY: a NUL-terminated name and a live place.
        unsafe { cuModuleGetFunction(&mut f, module, name.as_ptr()) }
    };
    is(ask("odd"), 801);
    let report = software::take_report().unwrap();
    assert!(report.contains("`odd`") && report.contains("line 5") && report.contains("not supported"), "{report}");
    is(ask("none"), 500);
    // Libraries say the same.
    let image = CString::new(text).unwrap();
    let mut library = CUlibrary::NULL;
    // SAFETY: a NUL-terminated image, a live place, and no options.
    ok(unsafe {
        cuLibraryLoadData(&mut library, image.as_ptr().cast(), null_mut(), null_mut(), 0, null_mut(), null_mut(), 0)
    });
    let (name, mut kernel) = (CString::new("odd").unwrap(), CUkernel::NULL);
    // SAFETY: a NUL-terminated name and a live place.
    is(unsafe { cuLibraryGetKernel(&mut kernel, library, name.as_ptr()) }, 801);
}

/// A barrier of the grid as cooperative groups make it: the workspace's second word counts arrivals, and its highest bit flips
/// when all blocks are there. Each block adds to its neighbour's number, twice.
const BARRIER: &str = ".version 7.8\n.target sm_80\n.address_size 64
    .visible .entry both(.param .u64 p) {
      .reg .b64 %d<6>; .reg .b32 %r<16>; .reg .pred %q; .reg .b32 %n;
      ld.param.u64 %d0, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %n, %nctaid.x;
      mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %d1, {%r2, %r1};
      setp.eq.u64 %q, %d1, 0; @%q trap;
      mov.u32 %r9, 2;
      AGAIN:
      add.u32 %r3, %r0, 1; rem.u32 %r3, %r3, %n; mul.wide.u32 %d2, %r3, 4; add.u64 %d2, %d0, %d2;
      ld.volatile.global.u32 %r4, [%d2];
      mov.u32 %r8, 2;
      BARRIER:
      mov.u32 %r5, 1; setp.ne.u32 %q, %r0, 0; @%q bra ARRIVE; sub.u32 %r5, %n, 1; sub.u32 %r5, 0x80000000, %r5;
      ARRIVE: atom.add.release.gpu.u32 %r6, [%d1+4], %r5;
      WAIT: ld.acquire.gpu.u32 %r7, [%d1+4]; xor.b32 %r7, %r7, %r6; setp.ge.s32 %q, %r7, 0; @%q bra WAIT;
      sub.u32 %r8, %r8, 1; setp.eq.u32 %q, %r8, 0; @%q bra NEXT;
      mul.wide.u32 %d3, %r0, 4; add.u64 %d3, %d0, %d3; ld.volatile.global.u32 %r10, [%d3]; add.u32 %r10, %r10, %r4;
      st.volatile.global.u32 [%d3], %r10; bra BARRIER;
      NEXT: sub.u32 %r9, %r9, 1; setp.ne.u32 %q, %r9, 0; @%q bra AGAIN;
      ret; }";

#[test]
fn cooperative_launches_have_a_workspace() {
    let _gpu = gpu();
    let f = function(load(BARRIER), "both");
    let start: Vec<u32> = (0..9).map(|i| i * i + 3).collect();
    let step = |v: &[u32]| (0..9).map(|i| v[i] + v[(i + 1) % 9]).collect::<Vec<u32>>();
    let wanted = step(&step(&start));
    let data = upload(&start);
    let cooperative = |stream| {
        // SAFETY: one live argument for the one parameter.
        unsafe { cuLaunchCooperativeKernel(f, 9, 1, 1, 1, 1, 1, 0, stream, [arg(&data)].as_ptr().cast_mut().cast()) }
    };
    ok(cooperative(CUstream::NULL));
    assert_eq!(download(data, 9), wanted);
    // Captured into a graph, it is one too.
    let s = stream();
    begin(s, 0);
    ok(cooperative(s));
    let exec = instantiate(end(s).unwrap());
    // SAFETY: handles of this test.
    unsafe {
        ok(cuGraphLaunch(exec, s));
        ok(cuStreamSynchronize(s));
    }
    assert_eq!(download(data, 9), step(&step(&wanted)));
    // An ordinary launch has none: the kernel traps.
    let code = launch(f, 9, 1, 0, CUstream::NULL, &[arg(&data)]);
    // SAFETY: no pointers.
    let code = if code == 0 { unsafe { cuCtxSynchronize() } } else { code };
    is(code, 719);
}
