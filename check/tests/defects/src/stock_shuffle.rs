//: grid 1
//: block 32
//: buffer x 128 iota
//: buffer y 128 poison
//: scalar n u32 20
//: expect sync::split-collective any
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn intrinsic(mask: u32, v: u32, lanes: u32, clamp: u32) -> u32;
}
/// In `asm!`, which rustc does not mark as convergent: jump threading copies it into both
/// arms of the branches around it.
#[inline(always)]
unsafe fn assembly(v: u32) -> u32 {
    let r;
    unsafe {
        asm!("shfl.sync.bfly.b32 {0}, {1}, 16, 0x1f, 0xffffffff;", lateout(reg32) r, in(reg32) v) // <- here
    }
    r
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(x: *mut u32, y: *mut u32, n: u32) {
    unsafe {
        let t = _thread_idx_x() as u32;
        if t < n {
            *x.add(t as usize) = 7
        }
        let s = assembly(t);
        if t < n {
            *y.add(t as usize) = s
        }
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(x: *mut u32, y: *mut u32, n: u32) {
    unsafe {
        let t = _thread_idx_x() as u32;
        let s = intrinsic(!0, t, 16, 0x1f);
        if t < n {
            *x.add(t as usize) = 7;
            *y.add(t as usize) = s;
        }
    }
}
