//! Handlers made of a function on one lane.
//!
//! `map2(|a: u32, b: u32| a.wrapping_add(b))` is a handler that applies the closure to every
//! active lane. Lanes are processed in chunks held in arrays, so that a destination may be one of
//! the sources and the compiler still vectorises. On x86-64 that loop is compiled for AVX2, FMA
//! and F16C in chunks of eight and for AVX-512 in chunks of sixteen, with a plain loop over lanes for CPUs without them; which
//! one is used is decided when code is lowered.
//! `each2` and its like always use the plain loop: for functions that do not vectorise.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Cx, Flow, LANES, Op, OpFn, PRED_CARRY, PRED_SINK};

/// What the handlers of code may use of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Vectors {
    /// The target's own features.
    Portable,
    /// AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, beside the former.
    Avx512,
    /// AVX-512 VNNI, beside the former.
    Vnni,
}

impl Vectors {
    /// What there is beside [`Vectors::Portable`].
    pub const FASTER: [Vectors; 3] = [Vectors::Avx2, Vectors::Avx512, Vectors::Vnni];

    /// The last one of which the CPU has everything, and everything of those before.
    fn of_the_cpu() -> Vectors {
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! has {
                ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
            }
            if !has!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt") {
                Vectors::Portable
            } else if !has!("avx512f" "avx512bw" "avx512dq" "avx512vl") {
                Vectors::Avx2
            } else if !has!("avx512vnni") {
                Vectors::Avx512
            } else {
                Vectors::Vnni
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Vectors::Portable
    }
}

static MOST: AtomicU8 = AtomicU8::new(Vectors::Vnni as u8);

/// Makes code that is lowered from now on use no more than these, for tests.
pub fn limit_vectors(most: Vectors) {
    MOST.store(most as u8, Ordering::Relaxed);
}

/// The most that the CPU has and nobody ruled out. Asked for at each access of memory, it is found once.
#[inline]
fn level() -> u8 {
    static HAVE: OnceLock<Vectors> = OnceLock::new();
    let have = *HAVE.get_or_init(Vectors::of_the_cpu);
    MOST.load(Ordering::Relaxed).min(have as u8)
}

/// Whether lowered code may use the handlers compiled for AVX2, FMA and F16C.
#[inline]
pub fn simd() -> bool {
    level() >= Vectors::Avx2 as u8
}

/// Whether lowered code may use the handlers compiled for AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn wide() -> bool {
    level() >= Vectors::Avx512 as u8
}

/// Whether lowered code may use the handlers compiled for AVX-512 VNNI.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn dots() -> bool {
    level() >= Vectors::Vnni as u8
}

/// A type that a lane's register can hold.
pub trait Lane: Copy + 'static {
    /// `u32` or `u64`: what a row is made of.
    type Raw: Copy + Default;
    fn get(raw: Self::Raw) -> Self;
    fn put(self) -> Self::Raw;
}

macro_rules! lane {
    ($($t:ty, $raw:ty, $get:expr, $put:expr;)*) => {$(
        impl Lane for $t {
            type Raw = $raw;
            #[inline(always)]
            fn get(raw: $raw) -> $t {
                $get(raw)
            }
            #[inline(always)]
            fn put(self) -> $raw {
                $put(self)
            }
        }
    )*};
}

lane! {
    u8, u32, |r| r as u8, |v| v as u32;
    i8, u32, |r| r as i8, |v: i8| v as u8 as u32;
    u16, u32, |r| r as u16, |v| v as u32;
    i16, u32, |r| r as i16, |v: i16| v as u16 as u32;
    u32, u32, |r| r, |v| v;
    i32, u32, |r| r as i32, |v: i32| v as u32;
    f32, u32, f32::from_bits, f32::to_bits;
    u64, u64, |r| r, |v| v;
    i64, u64, |r| r as i64, |v: i64| v as u64;
    f64, u64, f64::from_bits, f64::to_bits;
}

/// Makes a function that picks a handler: a body compiled for the features of [`simd`], or for the target's own. A constant tells
/// it which.
macro_rules! compiled_twice {
    ($(#[$doc:meta])* $visible:vis $name:ident, $body:ident) => {
        $(#[$doc])*
        $visible fn $name() -> $crate::exec::OpFn {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn fast(cx: &mut $crate::exec::Cx, op: &$crate::exec::Op) -> $crate::exec::Flow {
                    // SAFETY: the contract of handlers.
                    unsafe { $body::<true>(cx, op) }
                }
                if $crate::exec::lanes::simd() {
                    return fast;
                }
            }
            unsafe fn portable(cx: &mut $crate::exec::Cx, op: &$crate::exec::Op) -> $crate::exec::Flow {
                // SAFETY: the contract of handlers.
                unsafe { $body::<false>(cx, op) }
            }
            portable
        }
    };
}
pub(super) use compiled_twice;

/// The value of a closure type that captures nothing.
#[inline(always)]
pub fn only<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "handlers are made of closures that capture nothing") };
    // SAFETY: `F` has no bytes, and the makers were given a value of it, so it is inhabited.
    unsafe { NonNull::<F>::dangling().read() }
}

/// A quarter of a row, or what else is processed at once.
pub(super) type Chunk<T, const N: usize = 8> = [<T as Lane>::Raw; N];

/// Makes `$name(closure) -> OpFn` out of a body in chunks, and `$each` out of one by lanes; both are generic over the
/// closure.
macro_rules! maker {
    ($(#[$doc:meta])* $name:ident, $each:ident, $chunks:ident, $lanes:ident, [$($t:ident),*], ($($arg:ty),*) -> $ret:ty) => {
        $(#[$doc])*
        #[allow(dead_code)]
        pub fn $name<$($t: Lane,)* F: Fn($($arg),*) -> $ret + Copy>(f: F) -> OpFn {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn fast<$($t: Lane,)* F: Fn($($arg),*) -> $ret + Copy>(cx: &mut Cx, op: &Op) -> Flow {
                    // SAFETY: the contract of handlers.
                    unsafe { $chunks::<8, $($t,)* F>(cx, op, only()) }
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn widest<$($t: Lane,)* F: Fn($($arg),*) -> $ret + Copy>(cx: &mut Cx, op: &Op) -> Flow {
                    // SAFETY: the contract of handlers.
                    unsafe { $chunks::<16, $($t,)* F>(cx, op, only()) }
                }
                if wide() {
                    widest::<$($t,)* F>
                } else if simd() {
                    fast::<$($t,)* F>
                } else {
                    $each(f)
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                unsafe fn portable<$($t: Lane,)* F: Fn($($arg),*) -> $ret + Copy>(cx: &mut Cx, op: &Op) -> Flow {
                    // SAFETY: the contract of handlers.
                    unsafe { $chunks::<8, $($t,)* F>(cx, op, only()) }
                }
                let _ = f;
                portable::<$($t,)* F>
            }
        }

        $(#[$doc])*
        #[allow(dead_code)]
        pub fn $each<$($t: Lane,)* F: Fn($($arg),*) -> $ret + Copy>(_: F) -> OpFn {
            unsafe fn handler<$($t: Lane,)* F: Fn($($arg),*) -> $ret + Copy>(cx: &mut Cx, op: &Op) -> Flow {
                // SAFETY: the contract of handlers.
                unsafe { $lanes::<$($t,)* F>(cx, op, only()) }
            }
            handler::<$($t,)* F>
        }
    };
}

/// A row for results of all lanes, of which some are not wanted.
pub(super) type Spare<T> = MaybeUninit<[<T as Lane>::Raw; LANES]>;

/// Where results of all lanes go: the destination, or a spare row of which [`keep`] then copies what is wanted. One loop serves
/// both, and its code is what handlers are made of.
///
/// Neither takes a closure with that loop: what a compiler does not inline is compiled without the features of the handler.
#[inline(always)]
pub(super) unsafe fn target<R: Lane, const N: usize>(cx: &Cx, op: &Op, spare: &mut Spare<R>) -> *mut Chunk<R, N> {
    // Where the spare row is, is kept from the compiler: knowing it, LLVM 22 stores lane by lane instead of eight at once.
    // SAFETY: the contract of handlers: the destination is a row of the frame.
    if cx.active == !0 { unsafe { cx.dst(op.d).cast() } } else { black_box(spare.as_mut_ptr()).cast() }
}

/// Keeps what the destination held in lanes that are not active; [`target`] was filled.
#[inline(always)]
pub(super) unsafe fn keep<R: Lane>(cx: &Cx, op: &Op, spare: &Spare<R>) {
    if cx.active != !0 {
        // SAFETY: the contract of handlers: the destination is a row of the frame, of the type of the spare one.
        unsafe { merge::<R::Raw>(cx.dst(op.d).cast(), spare.as_ptr().cast(), cx.active) }
    }
}

/// Copies lanes of a row.
///
/// # Safety
/// Both are rows of `T`, which has 32 or 64 bits, and they do not overlap.
#[inline(never)]
unsafe fn merge<T: Copy>(to: *mut T, from: *const T, lanes: u32) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: by the contract; the CPU has AVX2.
        return unsafe { blend(to, from, lanes) };
    }
    for lane in lanes_of(lanes) {
        // SAFETY: by the contract.
        unsafe { to.add(lane).write(from.add(lane).read()) };
    }
}

/// [`merge`] of 32 bytes at once. Stores under a mask would be slower: some CPUs take 20 steps for one.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn blend<T: Copy>(to: *mut T, from: *const T, lanes: u32) {
    use std::arch::x86_64::*;
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8) }
    let each = 32 / size_of::<T>();
    for k in 0..LANES / each {
        // A lane's bit, as the highest of its number.
        let all = _mm256_set1_epi32((lanes >> (each * k)) as i32);
        let mask = match size_of::<T>() {
            4 => _mm256_sllv_epi32(all, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24)),
            _ => _mm256_sllv_epi64(all, _mm256_setr_epi64x(63, 62, 61, 60)),
        };
        // SAFETY: by the contract: 32 bytes of two rows.
        unsafe {
            let (to, from) = (to.add(each * k).cast::<__m256i>(), from.add(each * k).cast::<__m256i>());
            let (old, new) = (_mm256_loadu_si256(to), _mm256_loadu_si256(from));
            let merged = match size_of::<T>() {
                4 => _mm256_castps_si256(_mm256_blendv_ps(
                    _mm256_castsi256_ps(old),
                    _mm256_castsi256_ps(new),
                    _mm256_castsi256_ps(mask),
                )),
                _ => _mm256_castpd_si256(_mm256_blendv_pd(
                    _mm256_castsi256_pd(old),
                    _mm256_castsi256_pd(new),
                    _mm256_castsi256_pd(mask),
                )),
            };
            _mm256_storeu_si256(to, merged);
        }
    }
}

/// Writes a chunk of a row, a lane of which is an expression of its index.
///
/// A macro, as it takes no closure: what a compiler does not inline is compiled without the features of the handler.
macro_rules! put {
    ($r:ty, $n:expr, $to:expr, $i:ident => $value:expr) => {{
        // A loop and not `array::from_fn`: with that, a sixth of the crate's code were the functions that it is made of.
        let mut chunk = [<$r as $crate::exec::lanes::Lane>::Raw::default(); $n];
        for ($i, lane) in chunk.iter_mut().enumerate() {
            *lane = $crate::exec::lanes::Lane::put($value);
        }
        $to.write(chunk)
    }};
}
pub(super) use put;

#[inline(always)]
unsafe fn map0_body<const N: usize, R: Lane, F: Fn(usize) -> R + Copy>(cx: &mut Cx, op: &Op, f: F) -> Flow {
    // SAFETY: the contract of handlers: operands are rows of the frame.
    unsafe {
        let mut spare = Spare::<R>::uninit();
        let d = target::<R, N>(cx, op, &mut spare);
        for k in 0..LANES / N {
            put!(R, N, d.add(k), i => f(N * k + i));
        }
        keep::<R>(cx, op, &spare);
    }
    Flow::Next
}

/// A body in chunks: operands in the fields of the operation.
macro_rules! by_chunks {
    ($name:ident, [$($t:ident = $field:ident),*]) => {
        #[inline(always)]
        #[allow(non_snake_case, reason = "a row and a chunk of it are named as the type of its lanes")]
        unsafe fn $name<const N: usize, $($t: Lane,)* R: Lane, F: Fn($($t),*) -> R + Copy>(
            cx: &mut Cx,
            op: &Op,
            f: F,
        ) -> Flow {
            // SAFETY: the contract of handlers: operands are rows of the frame.
            unsafe {
                $(let $t = cx.src(op.$field).cast::<Chunk<$t, N>>();)*
                let mut spare = Spare::<R>::uninit();
                let d = target::<R, N>(cx, op, &mut spare);
                for k in 0..LANES / N {
                    $(let $t = $t.add(k).read();)*
                    put!(R, N, d.add(k), i => f($($t::get($t[i])),*));
                }
                keep::<R>(cx, op, &spare);
            }
            Flow::Next
        }
    };
}

by_chunks!(map1_body, [A = a]);
by_chunks!(map2_body, [A = a, B = b]);
by_chunks!(map3_body, [A = a, B = b, C = c]);
by_chunks!(map4_body, [A = a, B = b, C = c, D = x]);

/// How `setp` combines its comparison with a predicate; in `Op::imm`.
pub mod combine {
    pub const NONE: u64 = 0;
    pub const AND: u64 = 1;
    pub const OR: u64 = 2;
    pub const XOR: u64 = 3;
}

/// The highest bit of each.
///
/// # Safety
/// The CPU has AVX2 for eight of them, and AVX-512 for sixteen, where it has these instructions at all.
#[inline(always)]
unsafe fn signs<const N: usize>(words: &[u32; N]) -> u32 {
    // SAFETY: `N` words are read; the CPU has the instructions, by the contract.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::*;
        match N {
            8 => return _mm256_movemask_ps(_mm256_loadu_ps(words.as_ptr().cast())) as u32,
            16 => return _mm512_movepi32_mask(_mm512_loadu_si512(words.as_ptr().cast())).into(),
            _ => {}
        }
    }
    words.iter().enumerate().fold(0, |bits, (i, word)| bits | word >> 31 << i)
}

#[inline(always)]
unsafe fn cmp_body<const N: usize, A: Lane, B: Lane, F: Fn(A, B) -> bool + Copy>(cx: &mut Cx, op: &Op, f: F) -> Flow {
    // SAFETY: the contract of handlers: operands are rows and predicates of the frame.
    unsafe {
        let a = cx.src(op.a).cast::<Chunk<A, N>>();
        let b = cx.src(op.b).cast::<Chunk<B, N>>();
        let mut bits = 0;
        for k in 0..LANES / N {
            let (a, b) = (a.add(k).read(), b.add(k).read());
            let mut holds = [0u32; N];
            for (i, holds) in holds.iter_mut().enumerate() {
                *holds = u32::from(f(A::get(a[i]), B::get(b[i]))).wrapping_neg();
            }
            bits |= signs(&holds) << (N * k);
        }
        set_compared(cx, op, bits);
    }
    Flow::Next
}

macro_rules! by_lanes {
    ($name:ident, [$($t:ident = $field:ident),*]) => {
        #[inline(always)]
        unsafe fn $name<$($t: Lane,)* R: Lane, F: Fn($($t),*) -> R + Copy>(cx: &mut Cx, op: &Op, f: F) -> Flow {
            // SAFETY: the contract of handlers: operands are rows of the frame.
            unsafe {
                for lane in lanes_of(cx.active) {
                    let value = f($(lane_of::<$t>(cx.src(op.$field), lane)),*);
                    set_lane(cx.dst(op.d), lane, value);
                }
            }
            Flow::Next
        }
    };
}

by_lanes!(map1_lanes, [A = a]);
by_lanes!(map2_lanes, [A = a, B = b]);
by_lanes!(map3_lanes, [A = a, B = b, C = c]);
by_lanes!(map4_lanes, [A = a, B = b, C = c, D = x]);

#[inline(always)]
unsafe fn map0_lanes<R: Lane, F: Fn(usize) -> R + Copy>(cx: &mut Cx, op: &Op, f: F) -> Flow {
    for lane in lanes_of(cx.active) {
        // SAFETY: the contract of handlers: `d` is a row of the frame.
        unsafe { set_lane(cx.dst(op.d), lane, f(lane)) };
    }
    Flow::Next
}

#[inline(always)]
unsafe fn cmp_lanes<A: Lane, B: Lane, F: Fn(A, B) -> bool + Copy>(cx: &mut Cx, op: &Op, f: F) -> Flow {
    // SAFETY: the contract of handlers: operands are rows and predicates of the frame.
    unsafe {
        let mut bits = 0;
        for lane in lanes_of(cx.active) {
            bits |= u32::from(f(lane_of(cx.src(op.a), lane), lane_of(cx.src(op.b), lane))) << lane;
        }
        set_compared(cx, op, bits);
    }
    Flow::Next
}

/// Combines the outcome of a comparison with a predicate, as `imm` says, and writes it.
#[inline(always)]
unsafe fn set_compared(cx: &mut Cx, op: &Op, bits: u32) {
    // SAFETY: the contract of handlers: operands are predicates of the frame.
    unsafe {
        let q = cx.pred(op.q);
        let (p, r) = match op.imm {
            combine::NONE => (bits, !bits),
            combine::AND => (bits & q, !bits & q),
            combine::OR => (bits | q, !bits | q),
            _ => (bits ^ q, !bits ^ q),
        };
        cx.set_pred(op.p, p);
        if op.r != PRED_SINK {
            cx.set_pred(op.r, r);
        }
    }
}

#[inline(always)]
unsafe fn select_lanes<T: Lane, F: Fn(T) -> T + Copy>(cx: &mut Cx, op: &Op, _: F) -> Flow {
    // SAFETY: the contract of handlers: operands are rows and predicates of the frame.
    unsafe {
        let q = cx.pred(op.q);
        for lane in lanes_of(cx.active) {
            let from = cx.src(if q >> lane & 1 != 0 { op.a } else { op.b });
            set_lane(cx.dst(op.d), lane, lane_of::<T>(from, lane));
        }
    }
    Flow::Next
}

maker!(
    /// `d = f(lane)`.
    map0, each0, map0_body, map0_lanes, [R], (usize) -> R
);
maker!(
    /// `d = f(a)`.
    map1, each1, map1_body, map1_lanes, [A, R], (A) -> R
);
maker!(
    /// `d = f(a, b)`.
    map2, each2, map2_body, map2_lanes, [A, B, R], (A, B) -> R
);
maker!(
    /// `d = f(a, b, c)`.
    map3, each3, map3_body, map3_lanes, [A, B, C, R], (A, B, C) -> R
);
maker!(
    /// `d = f(a, b, c, x)`.
    map4, each4, map4_body, map4_lanes, [A, B, C, D, R], (A, B, C, D) -> R
);
maker!(
    /// `p | r = f(a, b)` combined with `q` as `imm` says.
    cmp, each_cmp, cmp_body, cmp_lanes, [A, B], (A, B) -> bool
);

#[inline(always)]
unsafe fn select_body<const N: usize, T: Lane, F: Fn(T) -> T + Copy>(cx: &mut Cx, op: &Op, _: F) -> Flow {
    // SAFETY: the contract of handlers: operands are rows and predicates of the frame.
    unsafe {
        let a = cx.src(op.a).cast::<Chunk<T, N>>();
        let b = cx.src(op.b).cast::<Chunk<T, N>>();
        let q = cx.pred(op.q);
        let mut spare = Spare::<T>::uninit();
        let d = target::<T, N>(cx, op, &mut spare);
        for k in 0..LANES / N {
            let (a, b, q) = (a.add(k).read(), b.add(k).read(), q >> (N * k));
            put!(T, N, d.add(k), i => T::get(if q & (1 << i) != 0 { a[i] } else { b[i] }));
        }
        keep::<T>(cx, op, &spare);
    }
    Flow::Next
}

maker!(
    /// `d = q ? a : b`; the closure only names the type.
    select, each_select, select_body, select_lanes, [T], (T) -> T
);

/// Lanes of a mask in rising order.
#[inline(always)]
pub fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}

/// Lane `lane` of a row.
///
/// # Safety
/// `row` is a row of `T` and `lane < 32`.
#[inline(always)]
pub unsafe fn lane_of<T: Lane>(row: *const u8, lane: usize) -> T {
    // SAFETY: by the contract.
    T::get(unsafe { row.cast::<T::Raw>().add(lane).read() })
}

/// Sets lane `lane` of a row.
///
/// # Safety
/// `row` is a row of `T` and `lane < 32`.
#[inline(always)]
pub unsafe fn set_lane<T: Lane>(row: *mut u8, lane: usize, value: T) {
    // SAFETY: by the contract.
    unsafe { row.cast::<T::Raw>().add(lane).write(value.put()) }
}

/// A copy of a whole row.
///
/// # Safety
/// `row` is a row of `T`.
#[inline(always)]
pub unsafe fn row_of<T: Lane>(row: *const u8) -> [T::Raw; LANES] {
    // SAFETY: by the contract.
    unsafe { row.cast::<[T::Raw; LANES]>().read() }
}

/// Extended-precision arithmetic: `d = f(a, b, c, carry in)`, carry out to the carry flag. `imm` bit 0: the
/// operation reads the flag; bit 1: it writes it; bit 2: what takes its place if it is not read.
pub fn carry<T: Lane, F: Fn(T, T, T, bool) -> (T, bool) + Copy>(_: F) -> OpFn {
    unsafe fn handler<T: Lane, F: Fn(T, T, T, bool) -> (T, bool) + Copy>(cx: &mut Cx, op: &Op) -> Flow {
        let f: F = only();
        // SAFETY: the contract of handlers: operands are rows of the frame.
        unsafe {
            let (a, b, c, d) = (cx.src(op.a), cx.src(op.b), cx.src(op.c), cx.dst(op.d));
            let unread = u32::from(op.imm & 4 != 0).wrapping_neg();
            let carry_in = if op.imm & 1 != 0 { cx.pred(PRED_CARRY << 1) } else { unread };
            let mut out = 0u32;
            for lane in lanes_of(cx.active) {
                let cin = carry_in >> lane & 1 != 0;
                let (v, cout) = f(lane_of::<T>(a, lane), lane_of::<T>(b, lane), lane_of::<T>(c, lane), cin);
                set_lane(d, lane, v);
                out |= u32::from(cout) << lane;
            }
            if op.imm & 2 != 0 {
                cx.set_pred(PRED_CARRY, out);
            }
        }
        Flow::Next
    }
    handler::<T, F>
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_are_the_lanes_of_the_mask_and_no_others() {
        let single = (0..LANES as u32).map(|lane| 1 << lane);
        for lanes in single.chain([0, !0, 0x8000_0001, 0x0ff0_55aa, 0xdead_beef]) {
            let (mut words, mut doubles) = ([1u32; LANES], [1u64; LANES]);
            // SAFETY: four rows.
            unsafe {
                merge(words.as_mut_ptr(), [!0u32; LANES].as_ptr(), lanes);
                merge(doubles.as_mut_ptr(), [!0u64; LANES].as_ptr(), lanes);
            }
            for lane in 0..LANES {
                let wanted = lanes >> lane & 1 != 0;
                assert_eq!(words[lane], if wanted { !0 } else { 1 }, "lane {lane} of {lanes:08x}");
                assert_eq!(doubles[lane], if wanted { !0 } else { 1 }, "lane {lane} of {lanes:08x}");
            }
        }
    }
}
