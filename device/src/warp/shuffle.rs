//! Shuffles: a lane reads a register of another lane.
//!
//! Cost: one `shfl.sync` per 32 bits. Source: PTX ISA, `shfl.sync`.

use crate::{F32x2, U32x2, bf16, f16};

#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    pub(crate) fn shfl_bfly(mask: u32, v: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    pub(crate) fn shfl_down(mask: u32, v: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    pub(crate) fn shfl_up(mask: u32, v: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    pub(crate) fn shfl_idx(mask: u32, v: u32, lane: u32, clamp: u32) -> u32;
}

/// A value that can be shuffled: 8 to 64 bits.
///
/// # Safety
/// `low` and `high` hold all bits of the value, and `join` puts them together again.
pub unsafe trait Shuffle: Copy {
    /// Whether `high` matters.
    const WIDE: bool;
    /// The lower 32 bits.
    fn low(self) -> u32;
    /// The upper 32 bits, or 0.
    fn high(self) -> u32;
    /// The value of both.
    fn join(low: u32, high: u32) -> Self;
}

macro_rules! shuffled {
    ($($t:ty, $wide:literal, |$v:ident| $low:expr, $high:expr, |$l:ident, $h:ident| $join:expr;)*) => { $(
        // SAFETY: `low`, `high` and `join` are inverse: they only move bits.
        unsafe impl Shuffle for $t {
            const WIDE: bool = $wide;
            #[inline(always)]
            fn low(self) -> u32 { let $v = self; $low }
            #[inline(always)]
            fn high(self) -> u32 { let $v = self; let _ = $v; $high }
            #[inline(always)]
            fn join($l: u32, $h: u32) -> $t { let _ = $h; $join }
        }
    )* };
}
shuffled! {
    u8, false, |v| v as u32, 0, |l, h| l as u8;
    i8, false, |v| v as u8 as u32, 0, |l, h| l as i8;
    u16, false, |v| v as u32, 0, |l, h| l as u16;
    i16, false, |v| v as u16 as u32, 0, |l, h| l as i16;
    f16, false, |v| v.to_bits() as u32, 0, |l, h| f16::from_bits(l as u16);
    bf16, false, |v| v.to_bits() as u32, 0, |l, h| bf16::from_bits(l as u16);
    u32, false, |v| v, 0, |l, h| l;
    i32, false, |v| v as u32, 0, |l, h| l as i32;
    f32, false, |v| v.to_bits(), 0, |l, h| f32::from_bits(l);
    u64, true, |v| v as u32, (v >> 32) as u32, |l, h| (h as u64) << 32 | l as u64;
    i64, true, |v| v as u32, (v >> 32) as u32, |l, h| ((h as u64) << 32 | l as u64) as i64;
    f64, true, |v| v.to_bits() as u32, (v.to_bits() >> 32) as u32, |l, h| f64::from_bits((h as u64) << 32 | l as u64);
    U32x2, true, |v| v.0[0], v.0[1], |l, h| U32x2([l, h]);
    F32x2, true, |v| v.0[0].to_bits(), v.0[1].to_bits(), |l, h| F32x2([f32::from_bits(l), f32::from_bits(h)]);
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident = $f:ident($arg:ident), $clamp:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The module's rule: every lane of `mask` makes this call.
        #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
        pub unsafe fn $name<T: Shuffle>(mask: u32, v: T, $arg: u32) -> T {
            // SAFETY: the caller's promise.
            unsafe {
                let low = $f(mask, v.low(), $arg, $clamp);
                let high = if T::WIDE { $f(mask, v.high(), $arg, $clamp) } else { 0 };
                T::join(low, high)
            }
        }
    )* };
}
shuffles! {
    /// The value of lane `lane() ^ lanes`.
    shuffle_xor = shfl_bfly(lanes), 0x1f;
    /// The value of the lane `delta` above; the top `delta` lanes keep their own.
    shuffle_down = shfl_down(delta), 0x1f;
    /// The value of the lane `delta` below; the bottom `delta` lanes keep their own.
    shuffle_up = shfl_up(delta), 0;
    /// The value of lane `lane % 32`.
    shuffle_idx = shfl_idx(lane), 0x1f;
}
