//! Atomics with an order and a scope, on global and shared memory.
//!
//! `core::sync::atomic` drops the order of read-modify-write operations on this target; these do
//! not. They are one `atom`, `ld` or `st` each; [`Order::SeqCst`] adds a `fence.sc`. Orders and
//! scopes are constants in practice and cost nothing at run time.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[v] += how many of x are v.
//! #[kernel(block = 256)]
//! pub unsafe fn count(x: In<u32>, y: InOut<u32>, n: u32) {
//!     let i = thread::global_x();
//!     if i < n as usize {
//!         atomic::fetch_add(y.ptr_at(x.at(i) as usize), 1, Order::Relaxed, Scope::Gpu);
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! Shared memory has the same operations as methods of [`Shared`], at the scope of the block.
//!
//! | operation | types | cost |
//! |---|---|---|
//! | [`fetch_add`] | `u32`, `i32`, `u64`, `i64`, `f32`, `f64`, [`F16x2`](crate::packed::F16x2), `f16` | 1 `atom` (the assembler makes a `red` of it where the result is not used) |
//! | | [`Bf16x2`](crate::packed::Bf16x2), `bf16` | 1 `atom` from sm_90 on; before, a loop of `compare_exchange`, about 15 a turn |
//! | [`swap`], [`compare_exchange`], [`load`], [`store`] | all of these but `f16` and `bf16` | 1 |
//! | [`fetch_min`], [`fetch_max`], [`fetch_and`], [`fetch_or`], [`fetch_xor`] | the integers | 1 |
//! | [`add_each`] | [`F32x2`](crate::F32x2), [`F32x4`](crate::F32x4) | 1 `red` for sm_100 and later, and for sm_90 with PTX ISA 8.1; else one for each element |
//!
//! Sums of floats depend on the order in which threads arrive: such a result differs from run to run in its last bits.
//!
//! Source: PTX ISA, memory consistency model, which sm_70 and later follow.

pub use narrow::{AtomicVector, add_each};

use crate::shared::Shared;
use core::arch::asm;

/// Who has to see the order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The threads of the block.
    Block,
    /// The threads of the GPU.
    Gpu,
    /// All GPUs and the host.
    System,
}

/// What an atomic orders. A load takes `Acquire` from `AcqRel`, a store `Release`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nothing but its own location.
    Relaxed,
    /// What follows stays after.
    Acquire,
    /// What precedes stays before.
    Release,
    /// Both.
    AcqRel,
    /// Both, in one order that all threads agree on.
    SeqCst,
}

/// Orders memory accesses of this thread before and after it. `Relaxed` does nothing; `Acquire`,
/// `Release` and `AcqRel` are `fence.acq_rel`; `SeqCst` is `fence.sc`.
#[inline(always)]
pub fn fence(order: Order, scope: Scope) {
    macro_rules! fence {
        ($sem:literal) => {
            // SAFETY: a fence accesses nothing; it may not be removed or moved (no `nomem`).
            unsafe {
                match scope {
                    Scope::Block => asm!(concat!("fence.", $sem, ".cta;"), options(nostack)),
                    Scope::Gpu => asm!(concat!("fence.", $sem, ".gpu;"), options(nostack)),
                    Scope::System => asm!(concat!("fence.", $sem, ".sys;"), options(nostack)),
                }
            }
        };
    }
    match order {
        Order::Relaxed => {}
        Order::Acquire | Order::Release | Order::AcqRel => fence!("acq_rel"),
        Order::SeqCst => fence!("sc"),
    }
}

/// Picks one instruction by order and scope; `$one!` gets their PTX names and `$args`.
macro_rules! by_order {
    ($order:expr, $scope:expr, $one:ident, $args:tt) => {
        match ($order, $scope) {
            (Order::Relaxed, Scope::Block) => $one!("relaxed", "cta", $args),
            (Order::Relaxed, Scope::Gpu) => $one!("relaxed", "gpu", $args),
            (Order::Relaxed, Scope::System) => $one!("relaxed", "sys", $args),
            (Order::Acquire, Scope::Block) => $one!("acquire", "cta", $args),
            (Order::Acquire, Scope::Gpu) => $one!("acquire", "gpu", $args),
            (Order::Acquire, Scope::System) => $one!("acquire", "sys", $args),
            (Order::Release, Scope::Block) => $one!("release", "cta", $args),
            (Order::Release, Scope::Gpu) => $one!("release", "gpu", $args),
            (Order::Release, Scope::System) => $one!("release", "sys", $args),
            (Order::AcqRel | Order::SeqCst, Scope::Block) => $one!("acq_rel", "cta", $args),
            (Order::AcqRel | Order::SeqCst, Scope::Gpu) => $one!("acq_rel", "gpu", $args),
            (Order::AcqRel | Order::SeqCst, Scope::System) => $one!("acq_rel", "sys", $args),
        }
    };
}

/// Picks a load or a store by scope.
macro_rules! by_scope {
    ($scope:expr, $sem:literal, $one:ident, $args:tt) => {
        match $scope {
            Scope::Block => $one!($sem, "cta", $args),
            Scope::Gpu => $one!($sem, "gpu", $args),
            Scope::System => $one!($sem, "sys", $args),
        }
    };
}

macro_rules! rmw {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr, $code:literal, $class:ident, $t:ty, $v:expr)) => {{
        let old: $t;
        asm!(concat!("atom.", $sem, ".", $at, ".", $space, ".", $code, " {0}, [{1}], {2};"),
            lateout($class) old, in($ra) $address, in($class) $v, options(nostack));
        old
    }};
}

macro_rules! cas {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr, $bits:literal, $class:ident, $t:ty, $old:expr, $new:expr)) => {{
        let found: $t;
        asm!(concat!("atom.", $sem, ".", $at, ".", $space, ".cas.", $bits, " {0}, [{1}], {2}, {3};"),
            lateout($class) found, in($ra) $address, in($class) $old, in($class) $new, options(nostack));
        found
    }};
}

macro_rules! ld {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr, $bits:literal, $class:ident, $t:ty)) => {{
        let v: $t;
        asm!(concat!("ld.", $sem, ".", $at, ".", $space, ".", $bits, " {0}, [{1}];"),
            lateout($class) v, in($ra) $address, options(nostack));
        v
    }};
}

macro_rules! st {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr, $bits:literal, $class:ident, $v:expr)) => {
        asm!(concat!("st.", $sem, ".", $at, ".", $space, ".", $bits, " [{0}], {1};"),
            in($ra) $address, in($class) $v, options(nostack))
    };
}

mod narrow;

#[inline(always)]
fn before_seq_cst(order: Order, scope: Scope) {
    if let Order::SeqCst = order {
        fence(order, scope);
    }
}

/// A number that the GPU adds to atomically: those of [`Atomic`], and `f16` and `bf16`.
///
/// # Safety
/// As [`Atomic`].
pub unsafe trait AtomicAdd: Copy {
    #[doc(hidden)]
    unsafe fn add<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
}

/// A number that the GPU updates atomically: `u32`, `i32`, `u64`, `i64`, `f32`, `f64`, and the pairs
/// [`F16x2`](crate::packed::F16x2) and [`Bf16x2`](crate::packed::Bf16x2), whose halves are added one by one (the pair is
/// not one atomic sum) and whose other operations are those of a word.
///
/// The methods take the address of an aligned value in global memory, or in shared memory where
/// `SHARED` says so; call the functions of this module, or the methods of [`Shared`], instead.
///
/// # Safety
/// The methods are the PTX instructions of their names.
pub unsafe trait Atomic: AtomicAdd {
    #[doc(hidden)]
    unsafe fn swap<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn cas<const SHARED: bool>(address: u64, old: Self, new: Self, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn ld<const SHARED: bool>(address: u64, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn st<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope);
}

/// An integer, which has more operations than [`Atomic`] in general.
///
/// # Safety
/// As [`Atomic`].
pub unsafe trait AtomicInt: Atomic {
    #[doc(hidden)]
    unsafe fn min<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn max<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn and<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn or<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
    #[doc(hidden)]
    unsafe fn xor<const SHARED: bool>(address: u64, v: Self, order: Order, scope: Scope) -> Self;
}

macro_rules! rmw_methods {
    ($t:ty, $class:ident, $($name:ident = $code:literal),*) => { $(
        #[inline(always)]
        unsafe fn $name<const SHARED: bool>(address: u64, v: $t, order: Order, scope: Scope) -> $t {
            before_seq_cst(order, scope);
            // SAFETY: the caller's promise.
            unsafe {
                if SHARED {
                    by_order!(order, scope, rmw, ("shared", reg32, address as u32, $code, $class, $t, v))
                } else {
                    by_order!(order, scope, rmw, ("global", reg64, address, $code, $class, $t, v))
                }
            }
        }
    )* };
}

macro_rules! atomics {
    ($($t:ty: $class:ident, $bits:literal, $add:literal, $swap:literal;)*) => { $(
        // SAFETY: each method is the PTX instruction of its name, for this width.
        unsafe impl AtomicAdd for $t {
            rmw_methods!($t, $class, add = $add);
        }
        // SAFETY: as above.
        unsafe impl Atomic for $t {
            rmw_methods!($t, $class, swap = $swap);
            #[inline(always)]
            unsafe fn cas<const SHARED: bool>(address: u64, old: $t, new: $t, order: Order, scope: Scope) -> $t {
                before_seq_cst(order, scope);
                // SAFETY: the caller's promise.
                unsafe {
                    if SHARED {
                        by_order!(order, scope, cas, ("shared", reg32, address as u32, $bits, $class, $t, old, new))
                    } else {
                        by_order!(order, scope, cas, ("global", reg64, address, $bits, $class, $t, old, new))
                    }
                }
            }
            #[inline(always)]
            unsafe fn ld<const SHARED: bool>(address: u64, order: Order, scope: Scope) -> $t {
                before_seq_cst(order, scope);
                // SAFETY: the caller's promise.
                unsafe {
                    match (SHARED, order) {
                        (false, Order::Relaxed) => by_scope!(scope, "relaxed", ld, ("global", reg64, address, $bits, $class, $t)),
                        (false, _) => by_scope!(scope, "acquire", ld, ("global", reg64, address, $bits, $class, $t)),
                        (true, Order::Relaxed) => by_scope!(scope, "relaxed", ld, ("shared", reg32, address as u32, $bits, $class, $t)),
                        (true, _) => by_scope!(scope, "acquire", ld, ("shared", reg32, address as u32, $bits, $class, $t)),
                    }
                }
            }
            #[inline(always)]
            unsafe fn st<const SHARED: bool>(address: u64, v: $t, order: Order, scope: Scope) {
                before_seq_cst(order, scope);
                // SAFETY: the caller's promise.
                unsafe {
                    match (SHARED, order) {
                        (false, Order::Relaxed) => by_scope!(scope, "relaxed", st, ("global", reg64, address, $bits, $class, v)),
                        (false, _) => by_scope!(scope, "release", st, ("global", reg64, address, $bits, $class, v)),
                        (true, Order::Relaxed) => by_scope!(scope, "relaxed", st, ("shared", reg32, address as u32, $bits, $class, v)),
                        (true, _) => by_scope!(scope, "release", st, ("shared", reg32, address as u32, $bits, $class, v)),
                    }
                }
            }
        }
    )* };
}
atomics! {
    u32: reg32, "b32", "add.u32", "exch.b32";
    i32: reg32, "b32", "add.s32", "exch.b32";
    f32: reg32, "b32", "add.f32", "exch.b32";
    u64: reg64, "b64", "add.u64", "exch.b64";
    i64: reg64, "b64", "add.u64", "exch.b64";
    f64: reg64, "b64", "add.f64", "exch.b64";
}

macro_rules! atomic_ints {
    ($($t:ty: $class:ident, $min:literal, $max:literal, $and:literal, $or:literal, $xor:literal;)*) => { $(
        // SAFETY: each method is the PTX instruction of its name, for this width and sign.
        unsafe impl AtomicInt for $t {
            rmw_methods!($t, $class, min = $min, max = $max, and = $and, or = $or, xor = $xor);
        }
    )* };
}
atomic_ints! {
    u32: reg32, "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32";
    i32: reg32, "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32";
    u64: reg64, "min.u64", "max.u64", "and.b64", "or.b64", "xor.b64";
    i64: reg64, "min.s64", "max.s64", "and.b64", "or.b64", "xor.b64";
}

macro_rules! functions {
    ($bound:ident: $($doc:literal $name:ident = $method:ident;)*) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// `p` is aligned and in global memory; other threads touch the value by atomics only.
            #[inline(always)]
            pub unsafe fn $name<T: $bound>(p: *mut T, v: T, order: Order, scope: Scope) -> T {
                // SAFETY: the caller's promise.
                unsafe { T::$method::<false>(p as u64, v, order, scope) }
            }
        )*
        impl<T: $bound> Shared<T> {
            $(
                #[doc = $doc]
                ///
                /// # Safety
                /// `i` is below the length; other threads touch the element by atomics only.
                #[inline(always)]
                pub unsafe fn $name(self, i: usize, v: T, order: Order) -> T {
                    // SAFETY: the caller's promise.
                    unsafe { T::$method::<true>(self.address_of(i) as u64, v, order, Scope::Block) }
                }
            )*
        }
    };
}
functions! { AtomicAdd:
    "Adds `v`, wrapping or rounding to nearest even; gives the value before." fetch_add = add;
}
functions! { Atomic:
    "Replaces the value by `v`; gives the value before." swap = swap;
}
functions! { AtomicInt:
    "Keeps the smaller of the value and `v`; gives the value before." fetch_min = min;
    "Keeps the larger of the value and `v`; gives the value before." fetch_max = max;
    "Ands `v` in; gives the value before." fetch_and = and;
    "Ors `v` in; gives the value before." fetch_or = or;
    "Xors `v` in; gives the value before." fetch_xor = xor;
}

/// Replaces `old` by `new`; gives the value before, which is `old` (bit for bit) if it succeeded.
///
/// # Safety
/// `p` is aligned and in global memory; other threads touch the value by atomics only.
#[inline(always)]
pub unsafe fn compare_exchange<T: Atomic>(p: *mut T, old: T, new: T, order: Order, scope: Scope) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::cas::<false>(p as u64, old, new, order, scope) }
}

/// Loads; orders other than `Relaxed` acquire.
///
/// # Safety
/// `p` is aligned and in global memory; other threads touch the value by atomics only.
#[inline(always)]
pub unsafe fn load<T: Atomic>(p: *const T, order: Order, scope: Scope) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::ld::<false>(p as u64, order, scope) }
}

/// Stores; orders other than `Relaxed` release.
///
/// # Safety
/// `p` is aligned and in global memory; other threads touch the value by atomics only.
#[inline(always)]
pub unsafe fn store<T: Atomic>(p: *mut T, v: T, order: Order, scope: Scope) {
    // SAFETY: the caller's promise.
    unsafe { T::st::<false>(p as u64, v, order, scope) }
}

impl<T: Atomic> Shared<T> {
    /// Replaces `old` by `new`; gives the value before, which is `old` if it succeeded.
    ///
    /// # Safety
    /// `i` is below the length; other threads touch the element by atomics only.
    #[inline(always)]
    pub unsafe fn compare_exchange(self, i: usize, old: T, new: T, order: Order) -> T {
        // SAFETY: the caller's promise.
        unsafe { T::cas::<true>(self.address_of(i) as u64, old, new, order, Scope::Block) }
    }

    /// Loads; orders other than `Relaxed` acquire.
    ///
    /// # Safety
    /// `i` is below the length; other threads touch the element by atomics only.
    #[inline(always)]
    pub unsafe fn load(self, i: usize, order: Order) -> T {
        // SAFETY: the caller's promise.
        unsafe { T::ld::<true>(self.address_of(i) as u64, order, Scope::Block) }
    }

    /// Stores; orders other than `Relaxed` release.
    ///
    /// # Safety
    /// `i` is below the length; other threads touch the element by atomics only.
    #[inline(always)]
    pub unsafe fn store(self, i: usize, v: T, order: Order) {
        // SAFETY: the caller's promise.
        unsafe { T::st::<true>(self.address_of(i) as u64, v, order, Scope::Block) }
    }
}
