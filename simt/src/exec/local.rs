//! Local memory: of each thread its own.
//!
//! Word `w` of lane `l` is word `32 w + l` of the warp's local memory, so that lanes that use one address use a
//! contiguous row.

use crate::fault::AccessKind;
use std::array::from_fn;

use super::bounds::{Place, refuse};
use super::element::Elem;
use super::lanes::{lane_of, lanes_of, set_lane};
use super::words::{Plain, Words};
use super::{Cx, Flow, Op};

/// Host address of `bytes` bytes of local memory of a lane (the next word is a row further), if they are the thread's and
/// aligned.
#[inline(always)]
unsafe fn local_at(cx: &Cx, at: u64, bytes: u64, lane: usize) -> Option<*mut u8> {
    let top = u64::from(cx.local_top);
    if at & (bytes - 1) != 0 {
        return None;
    }
    if at < top && bytes <= top - at {
        // SAFETY: the bytes lie below `local_top`, and the lane is below 32.
        return Some(unsafe { cx.local.add((at >> 2) as usize * 128 + lane * 4 + (at & 3) as usize) });
    }
    // SAFETY: the stack is that of the running warp.
    unsafe { (*cx.stack).at(lane, at, bytes) }
}

/// One element of local memory, in its raw bits. Elements are at most two words, and aligned.
#[inline(always)]
unsafe fn local_get<E: Elem>(p: *const u8) -> E {
    // SAFETY: the caller checked the access; a word of a lane is 4 contiguous bytes.
    unsafe {
        if size_of::<E>() == 8 {
            let low = u64::from(p.cast::<u32>().read());
            let high = u64::from(p.add(128).cast::<u32>().read());
            return (low | high << 32).with::<E>();
        }
        p.cast::<E>().read_unaligned()
    }
}

#[inline(always)]
unsafe fn local_put<E: Elem>(p: *mut u8, value: E) {
    // SAFETY: the caller checked the access; a word of a lane is 4 contiguous bytes.
    unsafe {
        if size_of::<E>() == 8 {
            let raw = value.raw();
            p.cast::<u32>().write(raw as u32);
            p.add(128).cast::<u32>().write((raw >> 32) as u32);
        } else {
            p.cast::<E>().write_unaligned(value);
        }
    }
}

/// Host bytes from an aligned vector's start to its element `j`: elements of a word stand in it, further words rows apart.
#[inline(always)]
fn step<E>(j: usize) -> usize {
    let at = j * size_of::<E>();
    at / 4 * 128 + at % 4
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
        let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
        for lane in lanes_of(cx.active) {
            let at = local_address(cx, op, how, lane, offset);
            let Some(from) = local_at(cx, at, bytes, lane) else {
                return refuse(cx, op, Place::Local, lane, at, bytes, AccessKind::Load);
            };
            for (j, to) in to.into_iter().enumerate() {
                set_lane(to, lane, local_get::<E>(from.add(step::<E>(j))));
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
        let from: [*const u8; N] = from_fn(|j| cx.src(Plain::row(cx, op, j)));
        for lane in lanes_of(cx.active) {
            let at = local_address(cx, op, how, lane, offset);
            let Some(to) = local_at(cx, at, bytes, lane) else {
                return refuse(cx, op, Place::Local, lane, at, bytes, AccessKind::Store);
            };
            for (j, from) in from.into_iter().enumerate() {
                local_put(to.add(step::<E>(j)), lane_of::<E>(from, lane));
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
