//: grid 4
//: block 1
//: buffer lock 4 zeros
//: buffer count 4 zeros
//: expect race::global warning
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
use core::sync::atomic::{AtomicU32, Ordering::*, fence};
struct Lock<'a>(&'a AtomicU32);
impl Lock<'_> {
    /// LLVM 22 drops the ordering of `swap`: it becomes a relaxed exchange.
    #[inline(always)]
    fn swap(&self) {
        while self.0.swap(1, Acquire) != 0 {}
    }
    #[inline(always)]
    fn swap_and_fence(&self) {
        while self.0.swap(1, Relaxed) != 0 {}
        fence(Acquire);
    }
    #[inline(always)]
    fn release(&self) {
        self.0.store(0, Release)
    }
}
#[inline(always)]
unsafe fn count(n: *mut u32) {
    unsafe { *n += _block_idx_x() as u32 + 1 } // <- write
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(lock: *const AtomicU32, n: *mut u32) {
    let lock = Lock(unsafe { &*lock });
    lock.swap();
    unsafe { count(n) }
    lock.release();
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(lock: *const AtomicU32, n: *mut u32) {
    let lock = Lock(unsafe { &*lock });
    lock.swap_and_fence();
    unsafe { count(n) }
    lock.release();
}
