//: grid 4
//: block 32
//: buffer bytes 64 zeros
//: expect race::global error
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::*};
// Atomics of less than a word are compare-and-swap loops that LLVM seeds with a plain load: no race.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(bytes: *const u8) {
    let t = unsafe { _thread_idx_x() as usize };
    unsafe { &*bytes.add(t % 8).cast::<AtomicU8>() }.fetch_add(3, Relaxed);
    unsafe { &*bytes.add(8 + t % 8 / 2 * 2).cast::<AtomicU16>() }.fetch_max(t as u16, AcqRel);
    unsafe { &*bytes.add(16 + t % 8).cast::<AtomicU8>() }.fetch_nand(0x55, Relaxed);
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(bytes: *mut u8) {
    let t = unsafe { _thread_idx_x() as usize };
    let byte = unsafe { &mut *bytes.add(t % 8) };
    *byte += 3; // <- write
}
