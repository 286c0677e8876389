//: grid 1
//: block 32
//: buffer y 128 zeros
//: scalar n u32 6
//: expect init::branch error
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
use core::mem::MaybeUninit;
/// Stores those above 20 of eight numbers, of which only `n` were written.
#[inline(always)]
#[rustfmt::skip]
unsafe fn large(y: *mut u32, n: u32, all: u32) {
    let t = unsafe { _thread_idx_x() as u32 };
    let mut a: [MaybeUninit<u32>; 8] = [MaybeUninit::uninit(); 8];
    for i in 0..n {
        unsafe {
            (&raw mut a)
                .cast::<u32>()
                .add((i + t) as usize % 8)
                .write_volatile(i ^ t)
        }
    }
    for i in 0..all {
        let v = unsafe { (&raw const a).cast::<u32>().add((i + t) as usize % 8).read_volatile() };
        if v > 20 { // <- here
            unsafe { y.add(t as usize).write_volatile(v) }
        }
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(y: *mut u32, n: u32) {
    unsafe { large(y, n, n + 2) }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(y: *mut u32, n: u32) {
    unsafe { large(y, n, n) }
}
