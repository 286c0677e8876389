//: grid 1
//: block 64
//: buffer x 256 iota
//: buffer y 256 zeros
//: scalar n u32 60
//: expect fault trap
//: source library/core/src/panicking.rs:268
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
#[inline(always)]
unsafe fn copy(x: *const u32, y: *mut u32, n: u32, t: usize) {
    let x = unsafe { core::slice::from_raw_parts(x, n as usize) };
    unsafe { *y.add(t) = x[t] }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(x: *const u32, y: *mut u32, n: u32) {
    unsafe { copy(x, y, n, _thread_idx_x() as usize) }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(x: *const u32, y: *mut u32, n: u32) {
    let t = unsafe { _thread_idx_x() as usize };
    if t < n as usize {
        unsafe { copy(x, y, n, t) }
    }
}
