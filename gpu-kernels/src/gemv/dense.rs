//! GEMV over F32 and F16: rows as stored, padded to 16 bytes.

#[cfg(not(target_arch = "nvptx64"))]
use super::{Shapes, contract_of, geometry_of};
#[cfg(not(target_arch = "nvptx64"))]
use crate::format::Format;
use crate::format::{F16, F32};
use warpsmith_device::{convert::unpack_f16x2, math::fma, prelude::*};

/// A dense format as the kernels see it. Plain functions, the same on the host.
pub trait Dense: Copy + 'static {
    /// Weights in 16 bytes.
    const PER_VECTOR: usize;
    /// `sum w(i) * x(i)` over a vector; `x4(i)` gives the activations `i .. i + 4` that go with it.
    fn dot(v: [u32; 4], x4: impl Fn(usize) -> [f32; 4]) -> f32;
    /// The weight `i` of a row, from its word.
    fn weight(word: u32, i: usize) -> f32;
    /// The word of the row that holds weight `i`.
    fn word_of(i: usize) -> usize;
}

impl Dense for F32 {
    const PER_VECTOR: usize = 4;
    #[inline(always)]
    fn dot(v: [u32; 4], x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        let x = x4(0);
        let s = f32::from_bits(v[0]) * x[0];
        let s = fma(f32::from_bits(v[1]), x[1], s);
        let s = fma(f32::from_bits(v[2]), x[2], s);
        fma(f32::from_bits(v[3]), x[3], s)
    }
    #[inline(always)]
    fn weight(word: u32, _i: usize) -> f32 {
        f32::from_bits(word)
    }
    #[inline(always)]
    fn word_of(i: usize) -> usize {
        i
    }
}

impl Dense for F16 {
    const PER_VECTOR: usize = 8;
    #[inline(always)]
    fn dot(v: [u32; 4], x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        let (mut s, mut t) = (0.0, 0.0);
        for half in 0..2 {
            let x = x4(4 * half);
            let ((a, b), (c, d)) = (unpack_f16x2(v[2 * half]), unpack_f16x2(v[2 * half + 1]));
            s = fma(c, x[2], fma(a, x[0], s));
            t = fma(d, x[3], fma(b, x[1], t));
        }
        s + t
    }
    #[inline(always)]
    fn weight(word: u32, i: usize) -> f32 {
        let (low, high) = unpack_f16x2(word);
        if i.is_multiple_of(2) { low } else { high }
    }
    #[inline(always)]
    fn word_of(i: usize) -> usize {
        i / 2
    }
}

#[cfg(target_arch = "nvptx64")]
mod frame {
    pub use super::super::blocks::frame::row;
    use super::Dense;
    pub use crate::load::lane;
    use crate::load::{word, x4};
    use warpsmith_device::prelude::*;

    /// v1: a lane takes every 32nd element. Coalesced, but with a load for every weight.
    #[device]
    pub unsafe fn by_element<F: Dense>(weights: In<U32x4>, x: In<f32>, row: usize, cols: usize) -> f32 {
        let words_row = row * cols.div_ceil(F::PER_VECTOR) * 4;
        let mut sum = 0.0;
        let mut c = lane();
        while c < cols {
            // SAFETY: within the plane of `rows` x `cols` that the contract asks for.
            unsafe {
                sum = math::fma(F::weight(word(weights, words_row + F::word_of(c)), c), x.at(c), sum);
            }
            c += 32;
        }
        warp::sum_f32(sum)
    }

    /// v2: 16 bytes a lane, past L1, and four of them in flight with a partial sum each.
    #[device]
    pub unsafe fn by_vector<F: Dense>(weights: In<U32x4>, x: In<f32>, row: usize, cols: usize) -> f32 {
        let lane = lane();
        let full = cols / F::PER_VECTOR;
        let vectors_row = row * cols.div_ceil(F::PER_VECTOR);
        let mut acc = [0.0f32; 4];
        let mut v = lane;
        while v + 96 < full {
            // SAFETY: the last of the four is a full vector of this row.
            unsafe {
                let mut w = [[0u32; 4]; 4];
                for step in 0..4 {
                    w[step] = weights.ld_nc128(vectors_row + v + 32 * step).0;
                }
                for step in 0..4 {
                    acc[step] += F::dot(w[step], |i| x4(x, (v + 32 * step) * F::PER_VECTOR + i));
                }
            }
            v += 128;
        }
        while v < full {
            // SAFETY: a full vector of this row.
            unsafe {
                acc[0] += F::dot(weights.ld_nc128(vectors_row + v).0, |i| x4(x, v * F::PER_VECTOR + i));
            }
            v += 32;
        }
        // The last, incomplete vector, an element a lane: `x` ends with `cols`.
        let c = full * F::PER_VECTOR + lane;
        if c < cols {
            // SAFETY: below `cols`.
            unsafe {
                let w = F::weight(word(weights, vectors_row * 4 + F::word_of(c)), c);
                acc[1] = math::fma(w, x.at(c), acc[1]);
            }
        }
        warp::sum_f32((acc[0] + acc[1]) + (acc[2] + acc[3]))
    }
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $frame:ident::<$F:ident>, $variant:tt: $plain:ident $Plain:ident, $with_residual:ident $WithResidual:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = 256, min_blocks = 4, family = "gemv", variant = $variant)]
        pub unsafe fn $plain(weights: In<U32x4>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
            let row = frame::row();
            if row < rows as usize {
                let sum = frame::$frame::<$F>(weights, x, row, cols as usize);
                if frame::lane() == 0 {
                    y.set(row, sum);
                }
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Plain<'_> {
            fn geometry(&self) -> Geometry {
                geometry_of(self.rows)
            }
            fn check(&self) -> Result<(), ContractError> {
                let s = Shapes::new(self.weights, None, self.x, None, self.y, self.rows, self.cols);
                contract_of(Self::META, Format::$F, &s)
            }
        }

        $(#[$doc])*
        ///
        /// With `residual` added.
        #[kernel(block = 256, min_blocks = 4, family = "gemv", variant = $variant)]
        pub unsafe fn $with_residual(weights: In<U32x4>, x: In<f32>, residual: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
            let row = frame::row();
            if row < rows as usize {
                let sum = frame::$frame::<$F>(weights, x, row, cols as usize);
                if frame::lane() == 0 {
                    y.set(row, sum + residual.at(row));
                }
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $WithResidual<'_> {
            fn geometry(&self) -> Geometry {
                geometry_of(self.rows)
            }
            fn check(&self) -> Result<(), ContractError> {
                let s = Shapes::new(self.weights, None, self.x, Some(self.residual), self.y, self.rows, self.cols);
                contract_of(Self::META, Format::$F, &s)
            }
        }
    )* };
}

entries! {
    /// F32 times f32, an element a lane.
    by_element::<F32>, "v1": gemv_f32_v1 GemvF32V1, gemv_f32_residual_v1 GemvF32ResidualV1;
    /// F32 times f32, 16 bytes of weights a lane.
    by_vector::<F32>, "v2": gemv_f32 GemvF32, gemv_f32_residual GemvF32Residual;
    /// F16 times f32, an element a lane.
    by_element::<F16>, "v1": gemv_f16_v1 GemvF16V1, gemv_f16_residual_v1 GemvF16ResidualV1;
    /// F16 times f32, 16 bytes of weights a lane.
    by_vector::<F16>, "v2": gemv_f16 GemvF16, gemv_f16_residual GemvF16Residual;
}
