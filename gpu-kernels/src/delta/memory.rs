//! States are reached by addresses that runs carry, so loads and stores name their state space here: a pointer made of a number would
//! be a generic one.

use core::arch::asm;
use warpsmith_device::prelude::*;

/// The f32 at element `i` from an address on.
#[inline(always)]
pub unsafe fn load(from: DeviceAddress, i: usize) -> f32 {
    let v: f32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.b32 {0}, [{1}];", lateout(reg32) v, in(reg64) from.raw() + 4 * i as u64,
            options(readonly, nostack, preserves_flags));
    }
    v
}

/// Writes element `i`.
#[inline(always)]
pub unsafe fn store(to: DeviceAddress, i: usize, v: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("st.global.b32 [{0}], {1};", in(reg64) to.raw() + 4 * i as u64, in(reg32) v, options(nostack, preserves_flags));
    }
}

/// Elements `i` and `i + 1`, 8 bytes.
#[inline(always)]
pub unsafe fn load2(from: DeviceAddress, i: usize) -> [f32; 2] {
    let (a, b): (f32, f32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.v2.b32 {{{0},{1}}}, [{2}];", lateout(reg32) a, lateout(reg32) b,
            in(reg64) from.raw() + 4 * i as u64, options(readonly, nostack, preserves_flags));
    }
    [a, b]
}

/// Writes elements `i` and `i + 1`.
#[inline(always)]
pub unsafe fn store2(to: DeviceAddress, i: usize, [a, b]: [f32; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("st.global.v2.b32 [{0}], {{{1},{2}}};", in(reg64) to.raw() + 4 * i as u64, in(reg32) a, in(reg32) b,
            options(nostack, preserves_flags));
    }
}

/// Elements `i` to `i + 3`, 16 bytes.
#[inline(always)]
pub unsafe fn load4(from: DeviceAddress, i: usize) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.v4.b32 {{{0},{1},{2},{3}}}, [{4}];", lateout(reg32) a, lateout(reg32) b, lateout(reg32) c,
            lateout(reg32) d, in(reg64) from.raw() + 4 * i as u64, options(readonly, nostack, preserves_flags));
    }
    [a, b, c, d]
}

/// Writes elements `i` to `i + 3`.
#[inline(always)]
pub unsafe fn store4(to: DeviceAddress, i: usize, [a, b, c, d]: [f32; 4]) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("st.global.v4.b32 [{0}], {{{1},{2},{3},{4}}};", in(reg64) to.raw() + 4 * i as u64, in(reg32) a, in(reg32) b,
            in(reg32) c, in(reg32) d, options(nostack, preserves_flags));
    }
}
