//! Local memory: of each thread its own.
//!
//! Word `w` of lane `l` is word `32 w + l` of the warp's local memory, so that lanes that use one address use a
//! contiguous row.

use std::array::from_fn;

use super::bounds::{Place, refuse};
use super::lanes::{lane_of, lanes_of, set_lane};
use super::mem::{Elem, SLOTS};
use super::{Cx, Flow, Op};

/// Host address of local byte `at` of a lane.
#[inline(always)]
unsafe fn local_at(cx: &Cx, at: u64, lane: usize) -> *mut u8 {
    // SAFETY: the caller checked `at` against `local_top`, and the lane is below 32.
    unsafe { cx.local.add((at >> 2) as usize * 128 + lane * 4 + (at & 3) as usize) }
}

/// Whether a local access is inside the thread's memory and aligned.
#[inline(always)]
fn local_ok(cx: &Cx, at: u64, bytes: u64) -> bool {
    let top = u64::from(cx.local_top);
    at & (bytes - 1) == 0 && at < top && bytes <= top - at
}

/// One element of local memory, in its raw bits. Elements are at most two words, and aligned.
#[inline(always)]
unsafe fn local_get<E: Elem>(cx: &Cx, at: u64, lane: usize) -> E {
    // SAFETY: the caller checked the access; a word of a lane is 4 contiguous bytes.
    unsafe {
        let p = local_at(cx, at, lane);
        if size_of::<E>() == 8 {
            let low = u64::from(p.cast::<u32>().read());
            let high = u64::from(p.add(128).cast::<u32>().read());
            return (low | high << 32).with::<E>();
        }
        p.cast::<E>().read_unaligned()
    }
}

#[inline(always)]
unsafe fn local_put<E: Elem>(cx: &Cx, at: u64, lane: usize, value: E) {
    // SAFETY: the caller checked the access; a word of a lane is 4 contiguous bytes.
    unsafe {
        let p = local_at(cx, at, lane);
        if size_of::<E>() == 8 {
            let raw = value.raw();
            p.cast::<u32>().write(raw as u32);
            p.add(128).cast::<u32>().write((raw >> 32) as u32);
        } else {
            p.cast::<E>().write_unaligned(value);
        }
    }
}

trait With {
    fn with<E: Elem>(self) -> E;
}

impl With for u64 {
    /// The element of 64 bits with these bits.
    #[inline(always)]
    fn with<E: Elem>(self) -> E {
        debug_assert_eq!(size_of::<E>(), 8);
        // SAFETY: called only where `E` is `u64`.
        unsafe { std::mem::transmute_copy::<u64, E>(&self) }
    }
}

/// Where a local access gets its addresses.
#[derive(Clone, Copy)]
pub(super) enum LocalAddress {
    /// `imm` beyond the frame's start, for all lanes.
    Frame,
    Register32,
    Register64,
}

#[inline(always)]
unsafe fn local_address(cx: &Cx, op: &Op, how: LocalAddress, lane: usize, offset: u64) -> u64 {
    // SAFETY: the contract of handlers: `a` is a row of the width that `how` says.
    unsafe {
        match how {
            LocalAddress::Frame => u64::from(cx.local_base).wrapping_add(offset),
            LocalAddress::Register32 => u64::from(lane_of::<u32>(cx.src(op.a), lane)).wrapping_add(offset),
            LocalAddress::Register64 => lane_of::<u64>(cx.src(op.a), lane).wrapping_add(offset),
        }
    }
}

#[inline(never)]
pub(super) unsafe fn load_local<E: Elem, const N: usize>(cx: &mut Cx, op: &Op, how: LocalAddress, offset: u64) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    // SAFETY: the contract of handlers; every address is checked before it is used.
    unsafe {
        let to: [*mut u8; N] = from_fn(|j| cx.dst(cx.list(op, SLOTS + j)));
        for lane in lanes_of(cx.active) {
            let at = local_address(cx, op, how, lane, offset);
            if !local_ok(cx, at, bytes) {
                return refuse(cx, op, Place::Local, lane, at, bytes, "load");
            }
            for (j, to) in to.into_iter().enumerate() {
                set_lane(to, lane, local_get::<E>(cx, at + (j * size_of::<E>()) as u64, lane));
            }
        }
    }
    if !matches!(how, LocalAddress::Frame) {
        cx.counters.local_bytes += u64::from(cx.active.count_ones()) * bytes;
    }
    Flow::Next
}

#[inline(never)]
pub(super) unsafe fn store_local<E: Elem, const N: usize>(
    cx: &mut Cx,
    op: &Op,
    how: LocalAddress,
    offset: u64,
) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    // SAFETY: the contract of handlers; every address is checked before it is used.
    unsafe {
        let from: [*const u8; N] = from_fn(|j| cx.src(cx.list(op, SLOTS + j)));
        for lane in lanes_of(cx.active) {
            let at = local_address(cx, op, how, lane, offset);
            if !local_ok(cx, at, bytes) {
                return refuse(cx, op, Place::Local, lane, at, bytes, "store");
            }
            for (j, from) in from.into_iter().enumerate() {
                local_put(cx, at + (j * size_of::<E>()) as u64, lane, lane_of::<E>(from, lane));
            }
        }
    }
    if !matches!(how, LocalAddress::Frame) {
        cx.counters.local_bytes += u64::from(cx.active.count_ones()) * bytes;
    }
    Flow::Next
}

/// `d = imm + start of the frame's local variables`: the address of one.
pub(crate) unsafe fn local_symbol(cx: &mut Cx, op: &Op) -> Flow {
    let value = u64::from(cx.local_base).wrapping_add(op.imm);
    // SAFETY: the contract of handlers: `d` is a row of 64 bits, or of 32 if `x` is 0.
    unsafe {
        let d = cx.dst(op.d);
        for lane in lanes_of(cx.active) {
            if op.x == 0 {
                set_lane::<u32>(d, lane, value as u32);
            } else {
                set_lane::<u64>(d, lane, value);
            }
        }
    }
    Flow::Next
}
