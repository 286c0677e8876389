//! Atomic read-modify-write operations.
//!
//! One block at a time reaches atomics that other blocks could see (see `launch`), so each lane's
//! operation is an ordinary read and write, in lane order; but reductions that commute run on all cores at once, and where other
//! processes may have memory mapped, all are atomic operations of the CPU. A vector of operations is one operation an element.
//!
//! **Where addresses are.** Row `op.a` plus `op.imm`, read as the list ([`Atomic`]) says. Operands: rows `op.b` and, for `cas`,
//! `op.c`; the old value goes to row `op.d`.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::bounds::{Place, refuse};
use super::element::Elem;
use super::float::{canon, canon64, flush, flush_bits};
use super::half::{B, H, Half};
use super::lanes::{lane_of, lanes_of, only, set_lane};
use super::layout::SHARED_WINDOW;
use super::space::{Global, Shared, Space, place_of};
use super::words::{Atomic, Via, Words};
use super::{Cx, Flow, Op, OpFn};
use crate::fault::{AccessKind, FaultKind, Reason};
use crate::ptx::ast::Type;

/// How the address operand is to be read.
pub mod via {
    pub const GLOBAL: u32 = 0;
    pub const SHARED32: u32 = 1;
    pub const SHARED64: u32 = 2;
    pub const GENERIC: u32 = 3;
}

/// The address of a lane's operand, and where it points.
pub unsafe fn address(cx: &Cx, op: &Op, lane: usize) -> (Place, u64) {
    // SAFETY: the contract of handlers: the list says what kind of row `a` is.
    unsafe {
        match Via::of(cx, op).via {
            via::GLOBAL => (Place::Global, lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm)),
            via::SHARED32 => (Place::Shared, u64::from(lane_of::<u32>(cx.src(op.a), lane)).wrapping_add(op.imm)),
            via::SHARED64 => (Place::Shared, lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm)),
            _ => {
                let address = lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm);
                match place_of(address) {
                    Place::Shared => (Place::Shared, address.wrapping_sub(SHARED_WINDOW)),
                    place => (place, address),
                }
            }
        }
    }
}

/// Replaces the element at `p` by `f` of it, while others do the same: other cores of this process, which does so only for
/// reductions that commute and give no result (lowering sees to that), and other processes. Gives the old one and the new one.
///
/// # Safety
/// The element is inside an allocation and aligned; who else reaches it does so atomically, or races as on a GPU.
pub(super) unsafe fn together<E: Elem>(p: *mut u8, key: u64, order: Ordering, f: impl Fn(E) -> E) -> (E, E) {
    let read = if order == Ordering::Relaxed { order } else { Ordering::Acquire };
    macro_rules! replace {
        ($t:ty, $cell:ty) => {{
            let key = key as $t;
            let next = |old: $t| f(E::of((old ^ key).into())).raw() as $t;
            // SAFETY: by the contract.
            let cell = unsafe { <$cell>::from_ptr(p.cast()) };
            // It always goes through: `next` always gives something.
            let (Ok(old) | Err(old)) = cell.try_update(order, read, |old| Some(next(old) ^ key));
            (E::of((old ^ key).into()), E::of(next(old).into()))
        }};
    }
    match size_of::<E>() {
        1 => replace!(u8, AtomicU8),
        2 => replace!(u16, AtomicU16),
        4 => replace!(u32, AtomicU32),
        _ => replace!(u64, AtomicU64),
    }
}

/// A handler that replaces `old` by `f(old, b, c, in global memory)` and gives `old` to row `d`, unless the third word of the
/// list is 0. The fourth word is the alignment.
fn atomic<E: Elem, F: Fn(E, E, E, bool) -> E + Copy>(_: F) -> OpFn {
    unsafe fn handler<E: Elem, F: Fn(E, E, E, bool) -> E + Copy>(cx: &mut Cx, op: &Op) -> Flow {
        let f: F = only();
        let bytes = size_of::<E>() as u64;
        cx.sync_seen = true;
        // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
        unsafe {
            let Atomic { at: Via { site, .. }, result, align, .. } = Atomic::of(cx, op);
            let (site, align) = (site as usize, u64::from(align));
            for lane in lanes_of(cx.active) {
                let (place, at) = address(cx, op, lane);
                if at & (align - 1) != 0 {
                    return refuse(cx, op, place, lane, at, align, AccessKind::Atomic);
                }
                let found = match place {
                    Place::Global => Global::resolve::<true>(cx, site, at, bytes),
                    Place::Shared => Shared::<u64>::resolve::<true>(cx, site, at, bytes),
                    _ => None,
                };
                let Some((p, key)) = found else { return refuse(cx, op, place, lane, at, bytes, AccessKind::Atomic) };
                if (cx.parallel || cx.interprocess) && place == Place::Global {
                    let (b, c) = (lane_of::<E>(cx.src(op.b), lane), lane_of::<E>(cx.src(op.c), lane));
                    let order = if cx.interprocess { Ordering::AcqRel } else { Ordering::Relaxed };
                    let (old, new) = together(p, key, order, |old: E| f(old, b, c, true));
                    cx.progress += u64::from(new.raw() != old.raw());
                    if result {
                        set_lane(cx.dst(op.d), lane, old);
                    }
                    continue;
                }
                let p = p.cast::<E>();
                let old = p.read_unaligned().xor(key);
                let b = lane_of::<E>(cx.src(op.b), lane);
                let c = lane_of::<E>(cx.src(op.c), lane);
                let new = f(old, b, c, place == Place::Global);
                if new.raw() != old.raw() {
                    p.write_unaligned(new.xor(key));
                    cx.progress += 1;
                }
                if result {
                    set_lane(cx.dst(op.d), lane, old);
                }
            }
        }
        cx.counters.atomics += u64::from(cx.active.count_ones());
        Flow::Next
    }
    handler::<E, F>
}

fn add32(a: u32, b: u32, global: bool) -> u32 {
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    // The ISA: atom.add.f32 flushes subnormals in global memory, and not in shared memory.
    if global { flush_bits(canon(flush(a) + flush(b))) } else { canon(a + b) }
}

fn add_half<T: Half>(a: u16, b: u16) -> u16 {
    T::round(T::from_bits(a).to_f32() + T::from_bits(b).to_f32()).bits()
}

fn add_pair<T: Half>(a: u32, b: u32) -> u32 {
    u32::from(add_half::<T>(a as u16, b as u16)) | u32::from(add_half::<T>((a >> 16) as u16, (b >> 16) as u16)) << 16
}

fn half_extreme<T: Half>(a: u16, b: u16, max: bool) -> u16 {
    let (a, b) = (T::from_bits(a), T::from_bits(b));
    let pick = if max { super::half::extreme::<T, true, false> } else { super::half::extreme::<T, false, false> };
    pick(a, b).bits()
}

fn pair_extreme<T: Half>(a: u32, b: u32, max: bool) -> u32 {
    let high = half_extreme::<T>((a >> 16) as u16, (b >> 16) as u16, max);
    u32::from(half_extreme::<T>(a as u16, b as u16, max)) | u32::from(high) << 16
}

/// Stores `new` at `p` if `old` is there; gives what was there, low word first.
///
/// # Safety
/// As for [`together`], of 16 bytes; the CPU has `cmpxchg16b`.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange128(p: *mut [u64; 2], old: [u64; 2], new: [u64; 2]) -> [u64; 2] {
    let [mut low, mut high] = old;
    // SAFETY: by the contract. RBX, which the compiler keeps for itself, is as it was.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {new}",
            "lock cmpxchg16b xmmword ptr [{p}]",
            "mov rbx, {new}",
            p = in(reg) p,
            new = inout(reg) new[0] => _,
            in("rcx") new[1],
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    [low, high]
}

/// [`together`] with 128 bits; `None` if the CPU cannot.
///
/// # Safety
/// As for [`together`].
unsafe fn together128(p: *mut [u64; 2], key: u64, f: impl Fn([u64; 2]) -> [u64; 2]) -> Option<([u64; 2], [u64; 2])> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("cmpxchg16b") {
        let flip = |words: [u64; 2]| words.map(|w| w ^ key);
        // A first guess; the exchange says what is there.
        let mut stored = [0; 2];
        loop {
            let (old, new) = (flip(stored), f(flip(stored)));
            // SAFETY: the CPU has the instruction; the rest by the contract.
            let found = unsafe { exchange128(p, stored, flip(new)) };
            if found == stored {
                return Some((old, new));
            }
            stored = found;
        }
    }
    let _ = (p, key, f);
    None
}

/// `atom.cas.b128` and `atom.exch.b128`: `imm` is the offset, the rows of the list are those of D, B and C, two of 64 bits each.
pub unsafe fn atomic128(cx: &mut Cx, op: &Op) -> Flow {
    cx.sync_seen = true;
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let Atomic { at: Via { site, .. }, result, cas, .. } = Atomic::of(cx, op);
        let site = site as usize;
        for lane in lanes_of(cx.active) {
            let (place, at) = address(cx, op, lane);
            let found = match place {
                _ if at & 15 != 0 => None,
                Place::Global => Global::resolve::<true>(cx, site, at, 16),
                Place::Shared => Shared::<u64>::resolve::<true>(cx, site, at, 16),
                _ => None,
            };
            let Some((p, key)) = found else { return refuse(cx, op, place, lane, at, 16, AccessKind::Atomic) };
            let p = p.cast::<[u64; 2]>();
            // Behind the result's halves.
            let get = |i: usize| [0, 1].map(|j| lane_of::<u64>(cx.src(Atomic::row(cx, op, i + j)), lane));
            let replace = |old: [u64; 2]| match cas {
                false => get(2),
                true if old == get(2) => get(4),
                true => old,
            };
            let (old, new) = if cx.interprocess && place == Place::Global {
                let Some(both) = together128(p, key, replace) else {
                    return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, Some(Reason::Wide));
                };
                both
            } else {
                let old = p.read_unaligned().map(|w| w ^ key);
                let new = replace(old);
                if new != old {
                    p.write_unaligned(new.map(|w| w ^ key));
                }
                (old, new)
            };
            cx.progress += u64::from(new != old);
            if result {
                set_lane::<u64>(cx.dst(Atomic::row(cx, op, 0)), lane, old[0]);
                set_lane::<u64>(cx.dst(Atomic::row(cx, op, 1)), lane, old[1]);
            }
        }
    }
    cx.counters.atomics += u64::from(cx.active.count_ones());
    Flow::Next
}

/// An operation of `cp.reduce.async.bulk`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduce(u32);

impl Reduce {
    const NAMES: [&'static str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
    const TYPES: [Type; 10] =
        [Type::U32, Type::S32, Type::U64, Type::S64, Type::F32, Type::F64, Type::F16, Type::BF16, Type::B32, Type::B64];

    /// The operation, if there is one of that name and type.
    pub fn new(name: &str, ty: Type) -> Option<Reduce> {
        let (n, t) = (Reduce::NAMES.iter().position(|x| *x == name)?, Reduce::TYPES.iter().position(|x| *x == ty)?);
        let exists = match (name, ty) {
            ("inc" | "dec", _) => ty == Type::U32,
            ("and" | "or" | "xor", _) => matches!(ty, Type::B32 | Type::B64),
            ("add", _) => !matches!(ty, Type::B32 | Type::B64),
            _ => !matches!(ty, Type::B32 | Type::B64 | Type::F32 | Type::F64),
        };
        exists.then_some(Reduce(n as u32 | (t as u32) << 8))
    }

    pub fn of(code: u32) -> Reduce {
        Reduce(code)
    }

    pub fn code(self) -> u32 {
        self.0
    }
}

/// Reduces `values`, elements of `size` bytes, into those at `to`, while other processes do the same.
///
/// # Safety
/// As for [`together`], of all elements.
pub(super) unsafe fn reduce_together(how: Reduce, size: usize, to: *mut u8, key: u64, values: &[u8]) {
    for (i, value) in values.chunks_exact(size).enumerate() {
        let value = value.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
        // SAFETY: by the contract.
        unsafe {
            let p = to.add(i * size);
            match size {
                2 => drop(together(p, key, Ordering::AcqRel, |old: u16| reduce(how, old.into(), value) as u16)),
                4 => drop(together(p, key, Ordering::AcqRel, |old: u32| reduce(how, old.into(), value) as u32)),
                _ => drop(together(p, key, Ordering::AcqRel, |old: u64| reduce(how, old, value))),
            }
        }
    }
}

/// `old` combined with `b`, as bits.
pub(super) fn reduce(how: Reduce, old: u64, b: u64) -> u64 {
    let name = Reduce::NAMES.get(how.0 as usize & 0xff).copied().unwrap_or("");
    let ty = Reduce::TYPES.get(how.0 as usize >> 8).copied().unwrap_or(Type::B64);
    let (x, y) = (old as u32, b as u32);
    match (name, ty) {
        ("add", Type::U32 | Type::S32) => x.wrapping_add(y).into(),
        ("add", Type::U64 | Type::S64) => old.wrapping_add(b),
        ("add", Type::F32) => add32(x, y, true).into(),
        ("add", Type::F64) => canon64(f64::from_bits(old) + f64::from_bits(b)),
        ("add", Type::F16) => add_half::<H>(old as u16, b as u16).into(),
        ("add", Type::BF16) => add_half::<B>(old as u16, b as u16).into(),
        ("min" | "max", Type::F16) => half_extreme::<H>(old as u16, b as u16, name == "max").into(),
        ("min" | "max", Type::BF16) => half_extreme::<B>(old as u16, b as u16, name == "max").into(),
        ("min", Type::U32 | Type::U64) => old.min(b),
        ("max", Type::U32 | Type::U64) => old.max(b),
        ("min", Type::S32) => u64::from((x as i32).min(y as i32) as u32),
        ("max", Type::S32) => u64::from((x as i32).max(y as i32) as u32),
        ("min", _) => (old as i64).min(b as i64) as u64,
        ("max", _) => (old as i64).max(b as i64) as u64,
        ("inc", _) => u64::from(if x >= y { 0 } else { x + 1 }),
        ("dec", _) => u64::from(if x == 0 || x > y { y } else { x - 1 }),
        ("and", _) => old & b,
        ("or", _) => old | b,
        _ => old ^ b,
    }
}

/// The handler of an atomic operation on a type; `add` on `.f16` … is `add.noftz`.
pub fn handler(name: &str, ty: Type) -> Option<OpFn> {
    use Type::{B16, B32, B64, BF16, BF16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};
    Some(match (name, ty) {
        ("add", U32 | S32) => atomic(|a: u32, b: u32, _, _| a.wrapping_add(b)),
        ("add", U64 | S64) => atomic(|a: u64, b: u64, _, _| a.wrapping_add(b)),
        ("add", F32) => atomic(|a: u32, b: u32, _, global| add32(a, b, global)),
        ("add", F64) => atomic(|a: u64, b: u64, _, _| canon64(f64::from_bits(a) + f64::from_bits(b))),
        ("add", F16) => atomic(|a: u16, b: u16, _, _| add_half::<H>(a, b)),
        ("add", BF16) => atomic(|a: u16, b: u16, _, _| add_half::<B>(a, b)),
        ("add", F16x2) => atomic(|a: u32, b: u32, _, _| add_pair::<H>(a, b)),
        ("add", BF16x2) => atomic(|a: u32, b: u32, _, _| add_pair::<B>(a, b)),
        ("min", F16) => atomic(|a: u16, b: u16, _, _| half_extreme::<H>(a, b, false)),
        ("max", F16) => atomic(|a: u16, b: u16, _, _| half_extreme::<H>(a, b, true)),
        ("min", BF16) => atomic(|a: u16, b: u16, _, _| half_extreme::<B>(a, b, false)),
        ("max", BF16) => atomic(|a: u16, b: u16, _, _| half_extreme::<B>(a, b, true)),
        ("min", F16x2) => atomic(|a: u32, b: u32, _, _| pair_extreme::<H>(a, b, false)),
        ("max", F16x2) => atomic(|a: u32, b: u32, _, _| pair_extreme::<H>(a, b, true)),
        ("min", BF16x2) => atomic(|a: u32, b: u32, _, _| pair_extreme::<B>(a, b, false)),
        ("max", BF16x2) => atomic(|a: u32, b: u32, _, _| pair_extreme::<B>(a, b, true)),
        ("min", U32) => atomic(|a: u32, b: u32, _, _| a.min(b)),
        ("min", S32) => atomic(|a: u32, b: u32, _, _| (a as i32).min(b as i32) as u32),
        ("min", U64) => atomic(|a: u64, b: u64, _, _| a.min(b)),
        ("min", S64) => atomic(|a: u64, b: u64, _, _| (a as i64).min(b as i64) as u64),
        ("max", U32) => atomic(|a: u32, b: u32, _, _| a.max(b)),
        ("max", S32) => atomic(|a: u32, b: u32, _, _| (a as i32).max(b as i32) as u32),
        ("max", U64) => atomic(|a: u64, b: u64, _, _| a.max(b)),
        ("max", S64) => atomic(|a: u64, b: u64, _, _| (a as i64).max(b as i64) as u64),
        ("inc", U32) => atomic(|a: u32, b: u32, _, _| if a >= b { 0 } else { a + 1 }),
        ("dec", U32) => atomic(|a: u32, b: u32, _, _| if a == 0 || a > b { b } else { a - 1 }),
        ("and", B32) => atomic(|a: u32, b: u32, _, _| a & b),
        ("and", B64) => atomic(|a: u64, b: u64, _, _| a & b),
        ("or", B32) => atomic(|a: u32, b: u32, _, _| a | b),
        ("or", B64) => atomic(|a: u64, b: u64, _, _| a | b),
        ("xor", B32) => atomic(|a: u32, b: u32, _, _| a ^ b),
        ("xor", B64) => atomic(|a: u64, b: u64, _, _| a ^ b),
        ("exch", B32) => atomic(|_: u32, b: u32, _, _| b),
        ("exch", B64) => atomic(|_: u64, b: u64, _, _| b),
        ("cas", B16) => atomic(|a: u16, b: u16, c: u16, _| if a == b { c } else { a }),
        ("cas", B32 | U32 | S32) => atomic(|a: u32, b: u32, c: u32, _| if a == b { c } else { a }),
        ("cas", B64 | U64 | S64) => atomic(|a: u64, b: u64, c: u64, _| if a == b { c } else { a }),
        _ => return None,
    })
}
