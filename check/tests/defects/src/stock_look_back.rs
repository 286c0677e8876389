//: grid 8
//: block 1
//: buffer input 32 iota
//: buffer sums 32 poison
//: buffer states 32 zeros
//: buffer out 32 poison
//: expect race::global error
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
use core::sync::atomic::{
    AtomicU32,
    Ordering::{self, *},
};
#[inline(always)]
unsafe fn scan(input: *const u32, sums: *mut u32, states: *const AtomicU32, out: *mut u32, order: [Ordering; 2]) {
    unsafe {
        let b = _block_idx_x() as usize;
        let mut before = 0;
        if b > 0 {
            while (*states.add(b - 1)).load(order[0]) == 0 {}
            before = *sums.add(b - 1); // <- read
        }
        *sums.add(b) = before + *input.add(b); // <- write
        (*states.add(b)).store(1, order[1]);
        *out.add(b) = before;
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(i: *const u32, sums: *mut u32, states: *const AtomicU32, o: *mut u32) {
    unsafe { scan(i, sums, states, o, [Relaxed, Relaxed]) }
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(i: *const u32, sums: *mut u32, states: *const AtomicU32, o: *mut u32) {
    unsafe { scan(i, sums, states, o, [Acquire, Release]) }
}
