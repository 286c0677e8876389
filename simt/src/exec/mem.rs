//! Loads and stores.
//!
//! An operation's list holds the index of its cache site, then one row per element of the vector.
//! Elements of up to 32 bits use 32-bit rows (zero-extended), elements of 64 bits use 64-bit rows;
//! lowering adds what a wider register or a signed type needs. Destination rows never overlap
//! the address row: lowering keeps them apart.

use std::array::from_fn;

use super::bounds::refuse;
use super::element::Elem;
use super::lanes::{lane_of, lanes_of, set_lane};
use super::layout::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::local::{LocalAddress, load_local, store_local};
#[cfg(target_arch = "x86_64")]
use super::scattered::{load_each, store_each};
use super::space::{Global, Pattern, Shared, Space, classify, count, count_mixed, place_of};
#[cfg(target_arch = "x86_64")]
use super::vector;
use super::words::{CopyAsync, Plain, Words};
use super::{Cx, Flow, LANES, Op, OpFn};
use crate::fault::{AccessKind, Place};
use crate::ptx::ast;

/// Kernels that read long rows come to the next page soon, which the CPU does not fetch by itself.
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;

/// A load of `N` elements a lane.
#[inline(always)]
unsafe fn load<S: Space, E: Elem, const N: usize, const FAST: bool>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
    // SAFETY: the contract of handlers; `resolve` vouches for the ranges that it returns.
    unsafe {
        let bytes = (N * size_of::<E>()) as u64;
        let row = cx.src(op.a);
        let active = cx.active;
        let site = Plain::of(cx, op).site as usize;
        let pattern = classify::<S::Address, FAST>(row, active, offset, bytes);
        let direct = match pattern {
            Pattern::Linear(first) if first & (bytes - 1) == 0 => S::resolve::<false>(cx, site, first, 32 * bytes),
            Pattern::Same(first) if first & (bytes - 1) == 0 => S::resolve::<false>(cx, site, first, bytes),
            _ => None,
        };
        let Some((from, key)) = direct else {
            #[cfg(target_arch = "x86_64")]
            if FAST && active == !0 && load_each::<S, E, N>(cx, op, offset) {
                return Flow::Next;
            }
            return load_mixed::<S, E, N>(cx, op, offset);
        };
        count::<S>(cx, false, active.count_ones(), bytes, pattern);
        if let Pattern::Linear(_) = pattern {
            #[cfg(target_arch = "x86_64")]
            if FAST && size_of::<E>() == 4 && (N == 2 || N == 4) {
                if S::PLACE == Place::Global && N == 4 {
                    vector::prefetch(from.wrapping_add(PAGE), 32 * bytes);
                }
                let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
                vector::split(from, key as u32, &to);
                return Flow::Next;
            }
            let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
            for k in 0..4 {
                let chunk = from.cast::<[[E; N]; 8]>().add(k).read_unaligned();
                for (j, to) in to.iter().enumerate() {
                    to.cast::<[E::Raw; 8]>().add(k).write(from_fn(|i| chunk[i][j].xor(key).put()));
                }
            }
            return Flow::Next;
        }
        let values = from.cast::<[E; N]>().read_unaligned();
        for (j, value) in values.into_iter().enumerate() {
            let value = value.xor(key).put();
            let to = cx.dst(Plain::row(cx, op, j)).cast::<[E::Raw; 8]>();
            for k in 0..4 {
                if active == !0 {
                    to.add(k).write([value; 8]);
                } else {
                    let (old, m) = (to.add(k).read(), active >> (8 * k));
                    to.add(k).write(from_fn(|i| if m & (1 << i) != 0 { value } else { old[i] }));
                }
            }
        }
    }
    Flow::Next
}

/// A load lane by lane.
#[inline(never)]
unsafe fn load_mixed<S: Space, E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    let mut addresses = [0; LANES];
    let mut n = 0;
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let row = cx.src(op.a);
        let site = Plain::of(cx, op).site as usize;
        let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
        for lane in lanes_of(cx.active) {
            let address = super::space::Addr::wide(lane_of::<S::Address>(row, lane)).wrapping_add(offset);
            let found = if address & (bytes - 1) == 0 { S::resolve::<false>(cx, site, address, bytes) } else { None };
            let Some((from, key)) = found else {
                return refuse(cx, op, S::PLACE, lane, address, bytes, AccessKind::Load);
            };
            let values = from.cast::<[E; N]>().read_unaligned();
            for (value, to) in values.into_iter().zip(to) {
                set_lane(to, lane, value.xor(key));
            }
            addresses[n] = address;
            n += 1;
        }
    }
    count::<S>(cx, false, n as u32, bytes, Pattern::Mixed);
    count_mixed::<S>(cx, false, &addresses[..n], bytes);
    Flow::Next
}

/// A store of `N` elements a lane. Of lanes that store to one address, the highest wins.
#[inline(always)]
unsafe fn store<S: Space, E: Elem, const N: usize, const FAST: bool>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let bytes = (N * size_of::<E>()) as u64;
        let row = cx.src(op.a);
        let site = Plain::of(cx, op).site as usize;
        let pattern =
            if cx.active == !0 { classify::<S::Address, FAST>(row, !0, offset, bytes) } else { Pattern::Mixed };
        let direct = match pattern {
            Pattern::Linear(first) if first & (bytes - 1) == 0 => S::resolve::<true>(cx, site, first, 32 * bytes),
            _ => None,
        };
        let Some((to, key)) = direct else {
            #[cfg(target_arch = "x86_64")]
            if FAST && cx.active == !0 && store_each::<S, E, N>(cx, op, offset) {
                return Flow::Next;
            }
            return store_mixed::<S, E, N>(cx, op, offset);
        };
        count::<S>(cx, true, 32, bytes, pattern);
        cx.progress += 1;
        #[cfg(target_arch = "x86_64")]
        if FAST && size_of::<E>() == 4 && (N == 2 || N == 4) {
            let from: [*const u8; N] = from_fn(|j| cx.src(Plain::row(cx, op, j)));
            vector::join(to, key as u32, &from);
            return Flow::Next;
        }
        for k in 0..4 {
            let from: [[E::Raw; 8]; N] = from_fn(|j| cx.src(Plain::row(cx, op, j)).cast::<[E::Raw; 8]>().add(k).read());
            let chunk: [[E; N]; 8] = from_fn(|i| from_fn(|j| E::get(from[j][i]).xor(key)));
            to.cast::<[[E; N]; 8]>().add(k).write_unaligned(chunk);
        }
    }
    Flow::Next
}

/// A store lane by lane.
#[inline(never)]
unsafe fn store_mixed<S: Space, E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    let mut addresses = [0; LANES];
    let mut n = 0;
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let row = cx.src(op.a);
        let site = Plain::of(cx, op).site as usize;
        let from: [*const u8; N] = from_fn(|j| cx.src(Plain::row(cx, op, j)));
        for lane in lanes_of(cx.active) {
            let address = super::space::Addr::wide(lane_of::<S::Address>(row, lane)).wrapping_add(offset);
            let found = if address & (bytes - 1) == 0 { S::resolve::<true>(cx, site, address, bytes) } else { None };
            let Some((to, key)) = found else {
                return refuse(cx, op, S::PLACE, lane, address, bytes, AccessKind::Store);
            };
            let values: [E; N] = from_fn(|j| lane_of::<E>(from[j], lane).xor(key));
            to.cast::<[E; N]>().write_unaligned(values);
            addresses[n] = address;
            n += 1;
        }
    }
    cx.progress += 1;
    count::<S>(cx, true, n as u32, bytes, Pattern::Mixed);
    count_mixed::<S>(cx, true, &addresses[..n], bytes);
    Flow::Next
}

/// A load from the kernel's parameters; `a` is an address row unless `fixed`.
#[inline(never)]
pub(super) unsafe fn load_param<E: Elem, const N: usize>(cx: &mut Cx, op: &Op, fixed: bool, offset: u64) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    // SAFETY: the contract of handlers; every address is checked before it is used.
    unsafe {
        let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
        let size = u64::from(cx.param_bytes);
        if fixed && cx.active == !0 && offset & (bytes - 1) == 0 && offset < size && bytes <= size - offset {
            let values = cx.params.add(offset as usize).cast::<[E; N]>().read_unaligned();
            for (value, to) in values.into_iter().zip(to) {
                to.cast::<[E::Raw; LANES]>().write([value.put(); LANES]);
            }
            return Flow::Next;
        }
        for lane in lanes_of(cx.active) {
            let at = if fixed { offset } else { lane_of::<u64>(cx.src(op.a), lane).wrapping_add(offset) };
            if at & (bytes - 1) != 0 || at >= size || bytes > size - at {
                return refuse(cx, op, Place::Param, lane, at, bytes, AccessKind::Load);
            }
            let values = cx.params.add(at as usize).cast::<[E; N]>().read_unaligned();
            for (value, to) in values.into_iter().zip(to) {
                set_lane(to, lane, value);
            }
        }
    }
    Flow::Next
}

/// The active lanes by the place that their generic address points to.
#[inline(always)]
pub(crate) unsafe fn places(cx: &Cx, op: &Op) -> (Place, u32) {
    // SAFETY: the contract of handlers: `a` is a row of 64 bits; some lane is active.
    unsafe {
        let row = cx.src(op.a);
        let first = lane_of::<u64>(row, cx.active.trailing_zeros() as usize).wrapping_add(op.imm);
        let place = place_of(first);
        let mut same = 0u32;
        for lane in 0..LANES {
            let address = lane_of::<u64>(row, lane).wrapping_add(op.imm);
            same |= u32::from(place_of(address) == place) << lane;
        }
        (place, same & cx.active)
    }
}

macro_rules! generic {
    ($cx:ident, $op:ident, $place:ident => $global:expr, $shared:expr, $local:expr, $param:expr) => {{
        let all = $cx.active;
        let mut flow = Flow::Next;
        while $cx.active != 0 && flow == Flow::Next {
            let ($place, lanes) = places($cx, $op);
            let rest = $cx.active & !lanes;
            $cx.active = lanes;
            flow = match $place {
                Place::Global => $global,
                Place::Shared => $shared,
                Place::Local => $local,
                Place::Param => $param,
            };
            $cx.active = rest;
        }
        $cx.active = all;
        flow
    }};
}

/// A store to the kernel's parameters: they cannot be written.
#[cold]
pub(super) unsafe fn store_param<E: Elem, const N: usize>(cx: &mut Cx, op: &Op) -> Flow {
    let bytes = (N * size_of::<E>()) as u64;
    let lane = cx.active.trailing_zeros() as usize & 31;
    // SAFETY: the contract of handlers: `a` is a row of 64 bits.
    let address = unsafe { lane_of::<u64>(cx.src(op.a), lane) }.wrapping_add(op.imm).wrapping_sub(PARAM_WINDOW);
    refuse(cx, op, Place::Param, lane, address & !(bytes - 1), bytes, AccessKind::Store)
}

/// Where a load or store finds its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Via {
    Register32,
    Register64,
    /// `imm` alone: an offset in the frame's local variables, or in the kernel's parameters.
    Offset,
}

/// Whether accesses look for patterns that can be served at once. On x86-64 the portable ones do not: they are only
/// a fallback.
const PATTERNS: bool = cfg!(not(target_arch = "x86_64"));

/// Compiles a load or store for AVX2 as well, behind one name.
macro_rules! compiled {
    ($portable:ident, $fast:ident, $direct:ident, $mixed:ident) => {
        #[inline(never)]
        pub(super) unsafe fn $portable<S: Space, E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
            // SAFETY: the contract of handlers.
            unsafe {
                if PATTERNS { $direct::<S, E, N, false>(cx, op, offset) } else { $mixed::<S, E, N>(cx, op, offset) }
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[inline(never)]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        pub(super) unsafe fn $fast<S: Space, E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> Flow {
            // SAFETY: the contract of handlers.
            unsafe { $direct::<S, E, N, true>(cx, op, offset) }
        }
    };
}

compiled!(load_portable, load_fast, load, load_mixed);
compiled!(store_portable, store_fast, store, store_mixed);

/// Makes a pair of handlers and picks one. In the body, `$access` is the function above that fits the handler.
macro_rules! access {
    ($E:ident, $N:ident, $portable:ident, $fast:ident, |$cx:ident, $op:ident, $access:ident| $body:expr) => {{
        unsafe fn plain<$E: Elem, const $N: usize>($cx: &mut Cx, $op: &Op) -> Flow {
            use $portable as $access;
            // SAFETY: the contract of handlers.
            unsafe { $body }
        }
        #[cfg(target_arch = "x86_64")]
        unsafe fn fast<$E: Elem, const $N: usize>($cx: &mut Cx, $op: &Op) -> Flow {
            use $fast as $access;
            // SAFETY: the contract of handlers; it was chosen for a CPU with these features.
            unsafe { $body }
        }
        #[cfg(target_arch = "x86_64")]
        let chosen: OpFn = if crate::exec::lanes::simd() { fast::<$E, $N> } else { plain::<$E, $N> };
        #[cfg(not(target_arch = "x86_64"))]
        let chosen: OpFn = plain::<$E, $N>;
        chosen
    }};
}

/// A handler that needs no vector code.
macro_rules! simple {
    ($E:ident, $N:ident, |$cx:ident, $op:ident| $body:expr) => {{
        unsafe fn handler<$E: Elem, const $N: usize>($cx: &mut Cx, $op: &Op) -> Flow {
            // SAFETY: the contract of handlers.
            unsafe { $body }
        }
        let chosen: OpFn = handler::<$E, $N>;
        chosen
    }};
}

pub(super) fn load_of<E: Elem, const N: usize>(space: ast::Space, via: Via) -> Option<OpFn> {
    use LocalAddress::{Frame, Register32, Register64};
    Some(match (space, via) {
        (ast::Space::Global | ast::Space::Const, Via::Register64) => {
            access!(E, N, load_portable, load_fast, |cx, op, go| go::<Global, E, N>(cx, op, op.imm))
        }
        (ast::Space::Shared, Via::Register32) => {
            access!(E, N, load_portable, load_fast, |cx, op, go| go::<Shared<u32>, E, N>(cx, op, op.imm))
        }
        (ast::Space::Shared, Via::Register64) => {
            access!(E, N, load_portable, load_fast, |cx, op, go| go::<Shared<u64>, E, N>(cx, op, op.imm))
        }
        (ast::Space::Generic, Via::Register64) => {
            access!(E, N, load_portable, load_fast, |cx, op, go| generic!(cx, op, place =>
                go::<Global, E, N>(cx, op, op.imm),
                go::<Shared<u64>, E, N>(cx, op, op.imm.wrapping_sub(SHARED_WINDOW)),
                load_local::<E, N>(cx, op, Register64, op.imm.wrapping_sub(LOCAL_WINDOW)),
                load_param::<E, N>(cx, op, false, op.imm.wrapping_sub(PARAM_WINDOW))))
        }
        (ast::Space::Local, Via::Offset) => simple!(E, N, |cx, op| load_local::<E, N>(cx, op, Frame, op.imm)),
        (ast::Space::Local, Via::Register32) => simple!(E, N, |cx, op| load_local::<E, N>(cx, op, Register32, op.imm)),
        (ast::Space::Local, Via::Register64) => simple!(E, N, |cx, op| load_local::<E, N>(cx, op, Register64, op.imm)),
        (ast::Space::Param, Via::Offset) => simple!(E, N, |cx, op| load_param::<E, N>(cx, op, true, op.imm)),
        (ast::Space::Param, Via::Register64) => simple!(E, N, |cx, op| load_param::<E, N>(cx, op, false, op.imm)),
        _ => return None,
    })
}

pub(super) fn store_of<E: Elem, const N: usize>(space: ast::Space, via: Via) -> Option<OpFn> {
    use LocalAddress::{Frame, Register32, Register64};
    Some(match (space, via) {
        (ast::Space::Global, Via::Register64) => {
            access!(E, N, store_portable, store_fast, |cx, op, go| go::<Global, E, N>(cx, op, op.imm))
        }
        (ast::Space::Shared, Via::Register32) => {
            access!(E, N, store_portable, store_fast, |cx, op, go| go::<Shared<u32>, E, N>(cx, op, op.imm))
        }
        (ast::Space::Shared, Via::Register64) => {
            access!(E, N, store_portable, store_fast, |cx, op, go| go::<Shared<u64>, E, N>(cx, op, op.imm))
        }
        (ast::Space::Generic, Via::Register64) => {
            access!(E, N, store_portable, store_fast, |cx, op, go| generic!(cx, op, place =>
                go::<Global, E, N>(cx, op, op.imm),
                go::<Shared<u64>, E, N>(cx, op, op.imm.wrapping_sub(SHARED_WINDOW)),
                store_local::<E, N>(cx, op, Register64, op.imm.wrapping_sub(LOCAL_WINDOW)),
                store_param::<E, N>(cx, op)))
        }
        (ast::Space::Local, Via::Offset) => simple!(E, N, |cx, op| store_local::<E, N>(cx, op, Frame, op.imm)),
        (ast::Space::Local, Via::Register32) => simple!(E, N, |cx, op| store_local::<E, N>(cx, op, Register32, op.imm)),
        (ast::Space::Local, Via::Register64) => simple!(E, N, |cx, op| store_local::<E, N>(cx, op, Register64, op.imm)),
        _ => return None,
    })
}

macro_rules! shapes {
    ($of:ident, $size:expr, $count:expr, $space:expr, $via:expr) => {
        match ($size, $count) {
            (1, 1) => $of::<u8, 1>($space, $via),
            (1, 2) => $of::<u8, 2>($space, $via),
            (1, 4) => $of::<u8, 4>($space, $via),
            (2, 1) => $of::<u16, 1>($space, $via),
            (2, 2) => $of::<u16, 2>($space, $via),
            (2, 4) => $of::<u16, 4>($space, $via),
            (4, 1) => $of::<u32, 1>($space, $via),
            (4, 2) => $of::<u32, 2>($space, $via),
            (4, 4) => $of::<u32, 4>($space, $via),
            (4, 8) => $of::<u32, 8>($space, $via),
            (8, 1) => $of::<u64, 1>($space, $via),
            (8, 2) => $of::<u64, 2>($space, $via),
            (8, 4) => $of::<u64, 4>($space, $via),
            _ => None,
        }
    };
}

pub(super) use {access, generic, shapes};

/// The handler of a load of `count` elements of `size` bytes.
pub(crate) fn load_handler(space: ast::Space, via: Via, size: u32, count: u32) -> Option<OpFn> {
    shapes!(load_of, size, count, space, via)
}

/// The handler of a store.
pub(crate) fn store_handler(space: ast::Space, via: Via, size: u32, count: u32) -> Option<OpFn> {
    shapes!(store_of, size, count, space, via)
}

/// `isspacep`: whether generic addresses point into a space; `imm` is its window, or 0 for global.
pub(crate) unsafe fn isspacep(cx: &mut Cx, op: &Op) -> Flow {
    let mut bits = 0;
    // SAFETY: the contract of handlers: `a` is a row of 64 bits.
    unsafe {
        for lane in lanes_of(cx.active) {
            let address = lane_of::<u64>(cx.src(op.a), lane);
            let inside = if op.imm == 0 { place_of(address) == Place::Global } else { address >> 32 == op.imm >> 32 };
            bits |= u32::from(inside) << lane;
        }
        cx.set_pred(op.p, bits);
    }
    Flow::Next
}

/// `cp.async` of `imm >> 32` bytes from global `[b + x]` to shared `[a + imm as u32]`, at once; only the first `c` bytes
/// are read, the rest is zero.
pub(crate) unsafe fn copy_async(cx: &mut Cx, op: &Op) -> Flow {
    let bytes = op.imm >> 32;
    // SAFETY: the contract of handlers: the list is a `CopyAsync`.
    unsafe {
        let CopyAsync { site, from_offset, wide } = CopyAsync::of(cx, op);
        let (site, offset) = (site as usize, from_offset.bits());
        for lane in lanes_of(cx.active) {
            let base =
                if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
            let base = if wide && place_of(base) == Place::Shared { base & 0xffff_ffff } else { base };
            let to_address = base.wrapping_add(op.imm as u32 as i32 as i64 as u64);
            let from_address = lane_of::<u64>(cx.src(op.b), lane).wrapping_add(offset);
            let wanted = u64::from(lane_of::<u32>(cx.src(op.c), lane)).min(bytes);
            let aligned = to_address & (bytes - 1) == 0;
            let to = if aligned { Shared::<u64>::resolve::<true>(cx, site, to_address, bytes) } else { None };
            let Some((to, _)) = to else {
                return refuse(cx, op, Place::Shared, lane, to_address, bytes, AccessKind::AsyncCopy);
            };
            to.write_bytes(0, bytes as usize);
            if wanted == 0 {
                continue;
            }
            let aligned = from_address & (bytes - 1) == 0;
            let from = if aligned { Global::resolve::<false>(cx, site, from_address, wanted) } else { None };
            let Some((from, key)) = from else {
                return refuse(cx, op, Place::Global, lane, from_address, bytes, AccessKind::AsyncCopy);
            };
            for i in 0..wanted as usize {
                to.add(i).write(from.add(i).read() ^ key as u8);
            }
        }
    }
    let total = u64::from(cx.active.count_ones()) * bytes;
    cx.counters.global_load_bytes += total;
    cx.counters.shared_store_bytes += total;
    cx.counters.global_requests += 1;
    cx.counters.global_load_sectors += total.div_ceil(32);
    cx.counters.shared_requests += 1;
    cx.progress += 1;
    Flow::Next
}
