//! The epilogue of a product, in one definition for all entry points: residual or bias, and what the next norm needs.

use super::{ACTIVATED, ADD, BIAS, CLAMPED, ERF, GELU, NEXT, PREFETCH, SWIGLU};
use crate::activation::activated;
use crate::elementwise::glu;
use crate::load::{Source, lane};
use warpsmith_device::{prelude::*, unroll};

/// 1 / root mean square of column `column` of `cols` elements, from the `parts` parts of its sum of squares.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn inverse_root(sums: Source, parts: usize, column: usize, cols: usize, eps: f32) -> f32 {
    inverse_roots(sums, parts, [column], cols, eps)[0]
}

/// The same of several columns, none of which waits for what another loads.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn inverse_roots<const N: usize>(
    sums: Source,
    parts: usize,
    columns: [usize; N],
    cols: usize,
    eps: f32,
) -> [f32; N] {
    let (mut of_columns, mut i) = ([0.0f32; N], lane());
    while i < parts {
        let loaded: [f32; N] = core::array::from_fn(|n| sums.at(columns[n] * parts + i));
        for n in 0..N {
            of_columns[n] += loaded[n];
        }
        i += 32;
    }
    of_columns.map(|sum| 1.0 / math::sqrt(warp::sum_f32(sum) / cols as f32 + eps))
}

/// Whether a flag is among those.
#[inline(always)]
pub fn has(flags: u32, flag: u32) -> bool {
    flags & flag != 0
}

/// Where outputs go, and what becomes of them on the way.
#[derive(Clone, Copy)]
pub struct Epilogue {
    pub add: Source,
    /// A bias of each row of weights, where kernels take one; whether there is one, the flags say.
    pub bias: Option<In<f32>>,
    pub next_weight: In<f32>,
    pub y: Out<f32>,
    pub scaled: Out<f32>,
    pub next_sums: Out<f32>,
    pub y_stride: usize,
    pub add_stride: usize,
    pub flags: u32,
}

impl Epilogue {
    #[inline(always)]
    pub fn has(&self, flag: u32) -> bool {
        has(self.flags, flag)
    }

    /// What comes of a gate and its up.
    #[inline(always)]
    pub fn gated(&self, gate: f32, up: f32) -> f32 {
        glu([gate, up], self.has(GELU), self.has(CLAMPED))
    }

    /// A product with a row of the weights of all matrices, and the row's bias.
    #[inline(always)]
    pub unsafe fn biased(&self, product: f32, row: impl FnOnce() -> usize) -> f32 {
        // Asked anew: what the flags say would otherwise be kept from the beginning on.
        let asked = || has(unroll::opaque(self.flags as usize) as u32, BIAS);
        match self.bias {
            // SAFETY: the caller's promise: there is such a row.
            Some(bias) if asked() => product + unsafe { bias.at(row()) },
            _ => product,
        }
    }

    /// Asks for line `line`, of 128 bytes, of a row of weights of `vectors` vectors in L2, if the launch prefetches. Of blocks
    /// that share weights only the first ask.
    ///
    /// A thread asks for one line. The blocks that wait are at most those that a GPU holds, of these kernels 768 to 1024 threads a
    /// multiprocessor, and so they ask for 96 to 128 KiB of weights on each, 13 to 17 MB on an H100: up to a third of its L2, so
    /// that what the launch before works on stays there, and what its memory delivers in 4 to 5 µs, longer than a block waits.
    #[inline(always)]
    pub unsafe fn ask(&self, row: In<U32x4>, vectors: usize, line: usize) {
        if cfg!(target_feature = "sm_90") && self.has(PREFETCH) && block::idx_y() == 0 && 8 * line < vectors {
            // SAFETY: the vector is the row's.
            mem::prefetch_l2(unsafe { row.from(8 * line) }.ptr());
        }
    }

    /// Asks for the line of the next norm's weights that output `row` of `rows` is in.
    #[inline(always)]
    pub unsafe fn ask_next(&self, row: u32, rows: u32) {
        if cfg!(target_feature = "sm_90") && self.has(NEXT) && row < rows {
            // SAFETY: there is one for each output.
            mem::prefetch_l2(unsafe { self.next_weight.from(row as usize) }.ptr());
        }
    }

    /// What comes of an output without gates.
    #[inline(always)]
    fn activated(&self, y: f32) -> f32 {
        // Asked anew, as for biases.
        let flags = unroll::opaque(self.flags as usize) as u32;
        if has(flags, ACTIVATED) { activated(y, has(flags, GELU), has(flags, ERF)) } else { y }
    }

    /// Writes output `row` of a column: what the next product reads of it, and its square if a norm follows, else 0.
    #[inline(always)]
    pub unsafe fn write(&self, column: usize, row: usize, product: f32) -> [f32; 2] {
        // SAFETY: the caller's promise: the output is one of `y`.
        unsafe { self.write_sum_of(column, row, self.sum(product, self.addend(column, row)), self.next(row)) }
    }

    /// What is added to output `row` of a column, if anything is.
    #[inline(always)]
    pub unsafe fn addend(&self, column: usize, row: usize) -> f32 {
        // SAFETY: the caller's promise: the output is one of `y`, and so of what is added.
        if self.has(ADD) { unsafe { self.add.at(column * self.add_stride + row) } } else { 0.0 }
    }

    /// The next norm's weight of output `row`, if one follows.
    #[inline(always)]
    pub unsafe fn next(&self, row: usize) -> f32 {
        // SAFETY: the caller's promise: there is one for each output.
        if self.has(NEXT) { unsafe { self.next_weight.at(row) } } else { 0.0 }
    }

    /// What becomes of a product, to which an [`addend`](Self::addend) belongs.
    #[inline(always)]
    pub fn sum(&self, product: f32, addend: f32) -> f32 {
        let y = self.activated(product);
        if self.has(ADD) { y + addend } else { y }
    }

    /// Writes that output, as [`write`](Self::write) does; `next` is the [norm's weight](Self::next).
    #[inline(always)]
    pub unsafe fn write_sum_of(&self, column: usize, row: usize, y: f32, next: f32) -> [f32; 2] {
        // SAFETY: the caller's promise: the output is one of `y`.
        unsafe {
            self.y.set(column * self.y_stride + row, y);
            if !self.has(NEXT) {
                return [y, 0.0];
            }
            let scaled = y * next;
            self.scaled.set(column * self.y_stride + row, scaled);
            [scaled, y * y]
        }
    }

    /// Writes part `part` of `parts` of a column's sum of squares, in one lane.
    #[inline(always)]
    pub unsafe fn write_sum(&self, column: usize, (part, parts): (u32, u32), sum: f32) {
        // SAFETY: the caller's promise: `next_sums` has so many parts for each column.
        unsafe { self.next_sums.set(column * parts as usize + part as usize, sum) }
    }

    /// 1 if two rows of weights, a gate and its up, give an output, else 0.
    #[inline(always)]
    pub fn shift(&self) -> u32 {
        u32::from(self.has(SWIGLU))
    }

    /// The row of weights that is number `i + even` of all blocks'; `even` is. A gate and its up are neighbours. After the
    /// last row it is taken again, and what comes of it is dropped.
    #[inline(always)]
    pub fn row(&self, rows: u32, i: u32, even: u32) -> u32 {
        let up = if i & self.shift() == 0 { 0 } else { rows };
        up + ((i >> self.shift()) + (even >> self.shift())).min(rows - 1)
    }
}
