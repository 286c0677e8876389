//: grid 1
//: block 64
//: buffer x 256 poison
//: buffer y 256 zeros
//: scalar n u32 40
//: expect fault divergent barrier
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
/// In `asm!`, which rustc does not mark as convergent: LLVM copies it into both arms of the branches around it.
#[inline(always)]
unsafe fn assembly() {
    unsafe { asm!("bar.sync 0;") } // <- here
}
macro_rules! kernel {
    ($name:ident, $barrier:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(x: *mut u32, y: *mut u32, n: u32) {
            unsafe {
                let t = _thread_idx_x() as usize;
                let c = (t as u32) < n;
                if c {
                    *x.add(t) = 1
                }
                $barrier;
                if c {
                    *y.add(t) = *x.add(t ^ 1)
                }
            }
        }
    };
}
kernel!(defect, assembly());
kernel!(clean, _syncthreads());
