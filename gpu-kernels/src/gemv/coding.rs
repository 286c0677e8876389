//! Codes of what a kernel computes, written by the kernel itself: the warp that brings the last elements of a group, of
//! whatever block, codes them all. A product with codes ([`coded`](super::coded)) or attention then takes the place of a launch
//! that only rounds ([`Quantize`](super::Quantize)), and gives the codes that such a launch would give, to the bit.
//!
//! | argument | |
//! |---|---|
//! | `codes` | [`NONE`], or a [`Codes`](super::Codes) as a number |
//! | `coded` | vectors of 16 bytes, as many for each column as [`Codes::len`](super::Codes::len) of its elements |
//! | `counted` | u32 `[columns, groups]`, [`groups`] for each column: zero before the first launch, and again after every launch |

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{int8, planes};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{Source, lane};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::{prelude::*, warp::FULL};

/// No codes are asked for.
pub const NONE: u32 = 0;
/// Codes of eight bits in blocks of 32; smaller numbers are those of bit planes.
pub const I8: u32 = 5;

/// Bytes of a code in bit planes, and bits of the weights that it is multiplied with.
#[must_use]
#[inline(always)]
pub const fn planes_of(codes: u32) -> (u32, u32) {
    (2 - codes % 2, 1 + (codes - 1) / 2)
}

/// Elements of a group: what a warp codes at a time, and a multiple of all blocks that share a scale.
pub const GROUP: u32 = 128;

/// Counters that a column of `n` elements takes.
#[must_use]
pub const fn groups(n: u32) -> u32 {
    n.div_ceil(GROUP)
}

/// How a block of activations, the largest of which has magnitude `largest`, is rounded to codes of up to `most`.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub struct Rounding {
    up: f32,
    factor: f32,
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl Rounding {
    /// Without a division, the rare case of which is a call, for which registers would be kept all over the kernel: 1 / `largest`
    /// by a step of Newton's method from the approximation, so that it does not depend on how that is made.
    #[inline(always)]
    pub fn new(largest: f32, most: f32) -> Rounding {
        // 1 / largest would be infinite for the smallest numbers.
        let up = if largest < 1e-30 { 18446744073709551616.0 } else { 1.0 };
        let scaled = largest * up;
        let inverse = math::rcp_approx(scaled);
        let inverse = math::fma(math::fma(-scaled, inverse, 1.0), inverse, inverse);
        Rounding { up, factor: if largest > 0.0 { inverse * most } else { 0.0 } }
    }

    /// The code of a value.
    #[inline(always)]
    pub fn code(self, v: f32) -> i32 {
        math::round_to_i32(v * self.up * self.factor)
    }
}

/// Quantizes what a kernel computes, as its arguments ask for.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub struct OutputQuantizer {
    /// The number of a [`Codes`](super::Codes).
    pub codes: u32,
    /// The codes of all columns.
    pub to: Out<U32x4>,
    /// For each group, how many of its elements are computed.
    pub counted: InOut<u32>,
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl OutputQuantizer {
    /// What a kernel's arguments ask for.
    #[inline(always)]
    pub fn asked(codes: u32, to: Out<U32x4>, counted: InOut<u32>) -> Option<OutputQuantizer> {
        if codes == NONE { None } else { Some(OutputQuantizer { codes, to, counted }) }
    }

    /// Elements `first` to `first + n - 1` of column `column`, all of one group, are there: the warp wrote them to `values`, or its
    /// block before a barrier. `cols` elements are a column's, which begins where `values` does.
    ///
    /// All lanes of the warp make this call, and nobody brings an element twice.
    #[device]
    pub unsafe fn bring(self, values: Source, column: usize, cols: u32, first: u32, n: u32) {
        let group = first / GROUP;
        // What the lanes wrote is before the counter for lane 0, by the barrier, and so for who counts after it; and what those
        // before wrote is before what the lanes read, by the second.
        sync::warp(FULL);
        let mut all = 0;
        if lane() == 0 {
            let counter = self.counted.ptr_at(column * groups(cols) as usize + group as usize);
            let before = atomic::fetch_add(counter, n, Order::AcqRel, Scope::Gpu);
            if before + n == (cols - group * GROUP).min(GROUP) {
                atomic::store(counter, 0, Order::Relaxed, Scope::Gpu);
                all = 1;
            }
        }
        sync::warp(FULL);
        if warp::shuffle_idx(FULL, all, 0) == 0 {
            return;
        }
        // Not by vectors: columns may begin anywhere.
        let four = |c: usize| [0, 1, 2, 3].map(|i| unsafe { values.at(c + i) });
        if self.codes == I8 {
            let to = self.to.from(column * int8::len(cols) as usize);
            int8::frame::quantize(four, to.cast(), GROUP as usize * group as usize + 4 * lane(), cols as usize);
        } else {
            let (bytes, bits) = planes_of(self.codes);
            let to = self.to.from(column * planes::len(cols, bytes) as usize);
            planes::frame::quantize(bytes as usize, bits as usize, |c| unsafe { values.at(c) }, to, group as usize);
        }
    }
}
