//! Norms of rows of f16 and of bf16.
//!
//! | | |
//! |---|---|
//! | `x`, `y` | `[rows, cols]` of the type; a multiple of 16 bytes, where `cols` is one of 8 |
//! | `w`, `bias` | `[cols]` of the type, taken as stored; the same |
//! | `residual` | as `x`, of the type or of f32 |
//! | `eps` | inside the root; not negative |
//!
//! - [`RmsNormF16`]: `y = x / sqrt(mean x^2 + eps) * w`
//! - [`AddRmsNormF16`]: `residual += x`, rounded, and `y` is the norm of what is stored
//! - [`AddRmsNormShadowF16`]: the same with a residual stream of f32, the *shadow* of one of 16 bits that would overflow, as those of
//!   Gemma do in f16. `x` may be empty: then nothing is added, and the stream is only normed
//! - [`RmsNormAddShadowF16`]: `residual += norm(x)`, of f32: the norms behind attention and feed-forward part that Gemma has too
//! - [`LayerNormF16`]: `y = (x - mean) / sqrt(mean (x - mean)^2 + eps) * w + bias`; `bias` may be empty
//!
//! Mean and deviations are those of [`layer_norm`](crate::layer_norm): squares are of distances to the mean, so that a mean far from zero
//! costs no digits. Where a sum does not fit the residual stream, an infinity is stored, and its row is lost: NaN there and 0 beside it. A
//! row whose squares f32 cannot hold is 0 throughout, which bf16 has from `2^63` on.
//!
//! A block takes a row, by the body of [`norm`](crate::norm); the order of a sum depends on the row's length alone.

use crate::norm::THREADS;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    norm::{add_rms_norm_row, norm, rms_norm_row},
    real::Wide,
};
use warpsmith_device::prelude::*;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::static_for;

/// What the warps of a block found.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn scratch() -> Shared<f32> {
    shared_array!(NORMS_OF_SIXTEEN: [f32; 32])
}

/// Adds the norm of a row to one of f32.
///
/// # Safety
/// As for [`norm`].
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[device]
unsafe fn norm_onto<T: Wide<8>>(
    (x, w, residual): (In<T>, In<T>, InOut<f32>),
    sizes: (usize, f32),
    scratch: Shared<f32>,
) {
    let elements = (|i| T::load(x.ptr().add(i)), |i| x.at(i).widen());
    let add_all = |i, v: [f32; 8]| {
        let mut sum: [f32; 8] = Wide::<8>::load(residual.ptr().add(i).cast_const());
        static_for!(k in 0..8 => {
            sum[k] += v[k];
        });
        Wide::<8>::store(residual.ptr().add(i), sum);
    };
    let put = (add_all, |i, v| residual.set(i, residual.get(i) + v));
    norm::<T, 8, false>(elements, elements, (w, None), put, sizes, scratch);
}

/// Layer norm of a row.
///
/// # Safety
/// As for [`norm`].
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[device]
unsafe fn layer_norm_row<T: Wide<8>>(
    (x, w, bias, y): (In<T>, In<T>, Option<In<T>>, Out<T>),
    sizes: (usize, f32),
    scratch: Shared<f32>,
) {
    let elements = (|i| T::load(x.ptr().add(i)), |i| x.at(i).widen());
    let put = (|i, v| T::store(y.ptr().add(i), v), |i, v| y.set(i, T::narrow(v)));
    norm::<T, 8, true>(elements, elements, (w, bias), put, sizes, scratch);
}

/// What all norms ask: rows, the first of which has this length, and buffers with their addresses.
#[cfg(not(target_arch = "nvptx64"))]
fn check(
    m: &'static KernelMeta,
    (name, len, cols, eps): (&'static str, usize, u32, f32),
    rows: &[(&'static str, usize, DeviceAddress)],
    weights: &[(&'static str, usize, DeviceAddress)],
) -> Result<(), ContractError> {
    contract::require(m, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)?;
    super::check_rows(m, name, len, cols)?;
    for &(other, n, _) in rows {
        contract::exactly(m, other, n, (len, "whole rows, as many as there are"))?;
    }
    for &(weight, n, _) in weights {
        contract::exactly(m, weight, n, (cols, "cols"))?;
    }
    for &(buffer, _, address) in rows.iter().chain(weights) {
        if cols.is_multiple_of(super::WIDTH) {
            contract::multiple_of(m, buffer, (address, "its address, as `cols` is a multiple of 8"), 16u32)?;
        }
    }
    Ok(())
}

/// Name, length and address of buffers.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! seen {
    ($($name:ident: $slice:expr),*) => { &[$((stringify!($name), $slice.len(), $slice.address())),*] };
}

#[cfg(not(target_arch = "nvptx64"))]
fn rows(len: usize, cols: u32) -> Geometry {
    Geometry::blocks(len.checked_div(cols as usize).unwrap_or(0))
}

macro_rules! kernels {
    ($(
        $T:ident: $rms_norm:ident $RmsNorm:ident, $add:ident $Add:ident, $shadow:ident $Shadow:ident,
        $onto:ident $Onto:ident, $layer_norm:ident $LayerNorm:ident;
    )*) => { $(
        /// RMS norm of rows, a block each.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $rms_norm(x: In<$T>, w: In<$T>, y: Out<$T>, cols: u32, eps: f32) {
            let scratch = scratch();
            let row = block::idx_x() as usize * cols as usize;
            rms_norm_row::<$T, 8>((x.from(row), w, y.from(row)), (cols as usize, eps), scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $RmsNorm<'_> {
            fn geometry(&self) -> Geometry {
                rows(self.x.len(), self.cols)
            }
            fn check(&self) -> Result<(), ContractError> {
                let sizes = ("x", self.x.len(), self.cols, self.eps);
                check(Self::META, sizes, seen!(x: self.x, y: self.y), seen!(w: self.w))
            }
        }

        /// Residual addition and RMS norm of rows, a block each.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $add(x: In<$T>, residual: InOut<$T>, w: In<$T>, y: Out<$T>, cols: u32, eps: f32) {
            let scratch = scratch();
            let row = block::idx_x() as usize * cols as usize;
            let buffers = (Some(x.from(row)), residual.from(row), w, y.from(row));
            add_rms_norm_row::<$T, $T, 8>(buffers, (cols as usize, eps), scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Add<'_> {
            fn geometry(&self) -> Geometry {
                rows(self.residual.len(), self.cols)
            }
            fn check(&self) -> Result<(), ContractError> {
                let sizes = ("residual", self.residual.len(), self.cols, self.eps);
                check(Self::META, sizes, seen!(x: self.x, residual: self.residual, y: self.y), seen!(w: self.w))
            }
        }

        /// Residual addition to a stream of f32 and RMS norm of its rows, a block each.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $shadow(
            x: In<$T>,
            residual: InOut<f32>,
            w: In<$T>,
            y: Out<$T>,
            cols: u32,
            eps: f32,
            added: u32,
        ) {
            let scratch = scratch();
            let row = block::idx_x() as usize * cols as usize;
            let x = if added != 0 { Some(x.from(row)) } else { None };
            let buffers = (x, residual.from(row), w, y.from(row));
            add_rms_norm_row::<$T, f32, 8>(buffers, (cols as usize, eps), scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Shadow<'_> {
            fn geometry(&self) -> Geometry {
                rows(self.residual.len(), self.cols)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, w) = (Self::META, seen!(w: self.w));
                let sizes = ("residual", self.residual.len(), self.cols, self.eps);
                contract::within(m, "added", self.added, (0u32, "nothing is added"), (1u32, "`x` is"))?;
                if self.added == 0 {
                    return check(m, sizes, seen!(residual: self.residual, y: self.y), w);
                }
                check(m, sizes, seen!(x: self.x, residual: self.residual, y: self.y), w)
            }
        }

        /// The RMS norm of rows added to a residual stream of f32, a block each.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $onto(x: In<$T>, w: In<$T>, residual: InOut<f32>, cols: u32, eps: f32) {
            let scratch = scratch();
            let row = block::idx_x() as usize * cols as usize;
            norm_onto::<$T>((x.from(row), w, residual.from(row)), (cols as usize, eps), scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Onto<'_> {
            fn geometry(&self) -> Geometry {
                rows(self.x.len(), self.cols)
            }
            fn check(&self) -> Result<(), ContractError> {
                let sizes = ("x", self.x.len(), self.cols, self.eps);
                check(Self::META, sizes, seen!(x: self.x, residual: self.residual), seen!(w: self.w))
            }
        }

        /// Layer norm of rows, a block each.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $layer_norm(
            x: In<$T>,
            w: In<$T>,
            bias: In<$T>,
            y: Out<$T>,
            cols: u32,
            eps: f32,
            biased: u32,
        ) {
            let scratch = scratch();
            let row = block::idx_x() as usize * cols as usize;
            let bias = if biased != 0 { Some(bias) } else { None };
            layer_norm_row::<$T>((x.from(row), w, bias, y.from(row)), (cols as usize, eps), scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $LayerNorm<'_> {
            fn geometry(&self) -> Geometry {
                rows(self.x.len(), self.cols)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, rows) = (Self::META, seen!(x: self.x, y: self.y));
                let sizes = ("x", self.x.len(), self.cols, self.eps);
                contract::within(m, "biased", self.biased, (0u32, "no bias is added"), (1u32, "`bias` is"))?;
                if self.biased == 0 {
                    return check(m, sizes, rows, seen!(w: self.w));
                }
                check(m, sizes, rows, seen!(w: self.w, bias: self.bias))
            }
        }
    )* };
}

kernels! {
    f16: rms_norm_f16 RmsNormF16, add_rms_norm_f16 AddRmsNormF16, add_rms_norm_shadow_f16 AddRmsNormShadowF16,
        rms_norm_add_shadow_f16 RmsNormAddShadowF16, layer_norm_f16 LayerNormF16;
    bf16: rms_norm_bf16 RmsNormBf16, add_rms_norm_bf16 AddRmsNormBf16, add_rms_norm_shadow_bf16 AddRmsNormShadowBf16,
        rms_norm_add_shadow_bf16 RmsNormAddShadowBf16, layer_norm_bf16 LayerNormBf16;
}
