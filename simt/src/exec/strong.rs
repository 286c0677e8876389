//! Loads and stores that are volatile, relaxed, acquiring or releasing.
//!
//! In one process they are those of `mem`: a lane's access is over before anybody else looks. Where other processes may
//! have memory mapped, each element is loaded or stored by one atomic access of the CPU, which acquires or releases.

use std::array::from_fn;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::bounds::refuse;
use super::element::Elem;
use super::lanes::{lane_of, lanes_of, set_lane};
use super::layout::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::local::{LocalAddress::Register64, load_local, store_local};
use super::mem::{
    Via, access, generic, load_of, load_param, load_portable, places, shapes, store_of, store_param, store_portable,
};
#[cfg(target_arch = "x86_64")]
use super::mem::{load_fast, store_fast};
use super::space::{Global, Pattern, Shared, Space, count, count_mixed};
use super::words::{Plain, Words};
use super::{Cx, Flow, LANES, Op, OpFn};
use crate::fault::{AccessKind, Place};
use crate::ptx::ast;

/// Loads an element in one access.
///
/// # Safety
/// The element is inside an allocation and aligned.
unsafe fn get<E: Elem>(p: *mut u8) -> E {
    let order = Ordering::Acquire;
    // SAFETY: by the contract; who else reaches it does so atomically, or races as on a GPU.
    unsafe {
        E::of(match size_of::<E>() {
            1 => AtomicU8::from_ptr(p).load(order).into(),
            2 => AtomicU16::from_ptr(p.cast()).load(order).into(),
            4 => AtomicU32::from_ptr(p.cast()).load(order).into(),
            _ => AtomicU64::from_ptr(p.cast()).load(order),
        })
    }
}

/// Stores an element in one access.
///
/// # Safety
/// As for [`get`].
unsafe fn put<E: Elem>(p: *mut u8, value: E) {
    let (order, bits) = (Ordering::Release, value.raw());
    // SAFETY: as above.
    unsafe {
        match size_of::<E>() {
            1 => AtomicU8::from_ptr(p).store(bits as u8, order),
            2 => AtomicU16::from_ptr(p.cast()).store(bits as u16, order),
            4 => AtomicU32::from_ptr(p.cast()).store(bits as u32, order),
            _ => AtomicU64::from_ptr(p.cast()).store(bits, order),
        }
    }
}

/// A load of `N` elements a lane from global memory.
#[inline(never)]
unsafe fn load<E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    let (mut addresses, mut n) = ([0; LANES], 0);
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let row = cx.src(op.a);
        let site = Plain::of(cx, op).site as usize;
        let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
        for lane in lanes_of(cx.active) {
            let address = lane_of::<u64>(row, lane).wrapping_add(offset);
            let found =
                if address & (bytes - 1) == 0 { Global::resolve::<false>(cx, site, address, bytes) } else { None };
            let Some((from, key)) = found else {
                return refuse(cx, op, Place::Global, lane, address, bytes, AccessKind::Load);
            };
            for (j, to) in to.into_iter().enumerate() {
                set_lane(to, lane, get::<E>(from.add(j * size_of::<E>())).xor(key));
            }
            addresses[n] = address;
            n += 1;
        }
    }
    count::<Global>(cx, false, n as u32, bytes, Pattern::Mixed);
    count_mixed::<Global>(cx, false, &addresses[..n], bytes);
    Flow::Next
}

/// A store of `N` elements a lane to global memory. Of lanes that store to one address, the highest wins.
#[inline(never)]
unsafe fn store<E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    let (mut addresses, mut n) = ([0; LANES], 0);
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let row = cx.src(op.a);
        let site = Plain::of(cx, op).site as usize;
        let from: [*const u8; N] = from_fn(|j| cx.src(Plain::row(cx, op, j)));
        for lane in lanes_of(cx.active) {
            let address = lane_of::<u64>(row, lane).wrapping_add(offset);
            let found =
                if address & (bytes - 1) == 0 { Global::resolve::<true>(cx, site, address, bytes) } else { None };
            let Some((to, key)) = found else {
                return refuse(cx, op, Place::Global, lane, address, bytes, AccessKind::Store);
            };
            for (j, from) in from.into_iter().enumerate() {
                put(to.add(j * size_of::<E>()), lane_of::<E>(from, lane).xor(key));
            }
            addresses[n] = address;
            n += 1;
        }
    }
    cx.progress += 1;
    count::<Global>(cx, true, n as u32, bytes, Pattern::Mixed);
    count_mixed::<Global>(cx, true, &addresses[..n], bytes);
    Flow::Next
}

fn strong_load_of<E: Elem, const N: usize>(space: ast::Space, via: Via) -> Option<OpFn> {
    Some(match (space, via) {
        (ast::Space::Global, Via::Register64) => access!(E, N, load_portable, load_fast, |cx, op, go| {
            if cx.interprocess { load::<E, N>(cx, op, op.imm) } else { go::<Global, E, N>(cx, op, op.imm) }
        }),
        (ast::Space::Generic, Via::Register64) => {
            access!(E, N, load_portable, load_fast, |cx, op, go| generic!(cx, op, place =>
                if cx.interprocess { load::<E, N>(cx, op, op.imm) } else { go::<Global, E, N>(cx, op, op.imm) },
                go::<Shared<u64>, E, N>(cx, op, op.imm.wrapping_sub(SHARED_WINDOW)),
                load_local::<E, N>(cx, op, Register64, op.imm.wrapping_sub(LOCAL_WINDOW)),
                load_param::<E, N>(cx, op, false, op.imm.wrapping_sub(PARAM_WINDOW))))
        }
        _ => return load_of::<E, N>(space, via),
    })
}

fn strong_store_of<E: Elem, const N: usize>(space: ast::Space, via: Via) -> Option<OpFn> {
    Some(match (space, via) {
        (ast::Space::Global, Via::Register64) => access!(E, N, store_portable, store_fast, |cx, op, go| {
            if cx.interprocess { store::<E, N>(cx, op, op.imm) } else { go::<Global, E, N>(cx, op, op.imm) }
        }),
        (ast::Space::Generic, Via::Register64) => {
            access!(E, N, store_portable, store_fast, |cx, op, go| generic!(cx, op, place =>
                if cx.interprocess { store::<E, N>(cx, op, op.imm) } else { go::<Global, E, N>(cx, op, op.imm) },
                go::<Shared<u64>, E, N>(cx, op, op.imm.wrapping_sub(SHARED_WINDOW)),
                store_local::<E, N>(cx, op, Register64, op.imm.wrapping_sub(LOCAL_WINDOW)),
                store_param::<E, N>(cx, op)))
        }
        _ => return store_of::<E, N>(space, via),
    })
}

/// The handler of a strong load of `count` elements of `size` bytes.
pub(crate) fn load_handler(space: ast::Space, via: Via, size: u32, count: u32) -> Option<OpFn> {
    shapes!(strong_load_of, size, count, space, via)
}

/// The handler of a strong store.
pub(crate) fn store_handler(space: ast::Space, via: Via, size: u32, count: u32) -> Option<OpFn> {
    shapes!(strong_store_of, size, count, space, via)
}
