//: grid 2
//: block 64
//: buffer out 512 poison
//: expect race::static any
//: also race::global
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features, improper_ctypes, static_mut_refs)]
include!("common.rs");
/// Meant as the block's scratch memory, but a static lies in global memory: all blocks share it.
static mut SCRATCH: [u32; 64] = [0; 64];
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn defect(out: *mut u32) {
    unsafe {
        let (t, b) = (_thread_idx_x() as usize, _block_idx_x() as usize);
        *(&raw mut SCRATCH).cast::<u32>().add(t) = (64 * b + t) as u32; // <- write
        _syncthreads();
        *out.add(64 * b + t) = *(&raw const SCRATCH).cast::<u32>().add(63 - t); // <- read
    }
}
core::arch::global_asm!(".shared .align 4 .b8 TILE[256];");
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn clean(out: *mut u32) {
    unsafe {
        let (t, b) = (_thread_idx_x() as usize, _block_idx_x() as usize);
        let tile: *mut u32;
        asm!("{{ .reg .b64 t; mov.u64 t, TILE; cvta.shared.u64 {0}, t; }}", out(reg64) tile);
        tile.add(t).write_volatile((64 * b + t) as u32);
        _syncthreads();
        *out.add(64 * b + t) = tile.add(63 - t).read_volatile();
    }
}
