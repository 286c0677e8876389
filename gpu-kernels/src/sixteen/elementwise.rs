//! Tensors of f16 and of bf16, element by element.
//!
//! - [`ScaledAddF16`]: `y[r, c] = scale * x[r, c] + addend[r * addend_stride + c]`. With one row of all elements that is a residual addition,
//!   with a stride of 0 a bias; without an addend (`added` of 0) it is `scale * x`, as embeddings are scaled
//! - [`AddShadowF16`]: `residual[i] += scale * x[i]`, where the residual stream is of f32
//! - [`GluF16`]: `y[r, c] = f(gate[r, c]) * up[r, c]`, rows of gates and ups `stride` elements apart and those of `y` `y_stride`. Where gates and ups
//!   are side by side, `[rows, gate ‖ up]`, `up` is the buffer from the first up on. `function` is a [`Glu`]: SiLU, GELU, or that of
//!   clamped numbers. Without ups (`gated` of 0) it is `f(gate[r, c])`
//! - [`CastF32F16`] and the others: `y[i] = x[i]` in another type
//!
//! Sums and functions are of f32 and rounded once; `scale * x + addend` is one operation, so that with a scale of 1 an addition is
//! rounded correctly. The functions are those of [`elementwise`](crate::elementwise). A thread takes eight elements, in one access where
//! all addresses are multiples of 16, and what comes of one depends on it alone.

#[cfg(not(target_arch = "nvptx64"))]
use super::SPAN;
use super::THREADS;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{WIDTH, spread::spread};
use crate::elementwise::Glu;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{elementwise::glu, real::Wide};
use warpsmith_device::prelude::*;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::static_for;

/// `y = f(x, a)`, an element each, of this thread's elements of a row of `n`; without `a` it is 0.
///
/// # Safety
/// The row is within the buffers.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[device]
unsafe fn pairs<X: Wide<8>, A: Wide<8>, Y: Wide<8>>(
    n: u32,
    (x, a, y): (*const X, Option<*const A>, *mut Y),
    f: impl Fn(f32, f32) -> f32,
) {
    let addresses = x.addr() | a.map_or(0, |a| a.addr()) | y.addr();
    let eight = |i: usize| {
        // SAFETY: eight elements of the row, of addresses that are multiples of 16.
        unsafe {
            let mut v = X::load(x.add(i));
            let mut w = [0.0; WIDTH as usize];
            if let Some(a) = a {
                w = A::load(a.add(i));
            }
            static_for!(k in 0..8 => {
                v[k] = f(v[k], w[k]);
            });
            Y::store(y.add(i), v);
        }
    };
    let one = |i: usize| {
        // SAFETY: an element of the row.
        unsafe {
            let w = a.map_or(0.0, |a| (*a.add(i)).widen());
            *y.add(i) = Y::narrow(f((*x.add(i)).widen(), w));
        }
    };
    spread(n, addresses, eight, one);
}

/// [`GluF16`] of this thread's elements.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[device]
unsafe fn gated<T: Wide<8>>((gate, up, y): (*const T, Option<*const T>, *mut T), cols: u32, function: u32) {
    let ungated = up.is_none();
    pairs(cols, (gate, up, y), |gate, up| {
        let up = if ungated { 1.0 } else { up };
        glu([gate, up], function == Glu::Gelu as u32, function == Glu::Clamped as u32)
    });
}

/// A buffer of `rows` parts of `cols` elements, `stride` apart.
#[cfg(not(target_arch = "nvptx64"))]
fn check_strided(
    m: &'static KernelMeta,
    (name, len): (&'static str, usize),
    (rows, cols): (u32, u32),
    (stride_name, stride): (&'static str, u32),
) -> Result<(), ContractError> {
    contract::within(m, "cols", cols, 1u32, i32::MAX)?;
    contract::within(m, "rows", rows, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
    contract::require(m, rows == 1 || stride >= cols, stride_name, format_args!("at least {cols} (cols)"), stride)?;
    let all = u64::from(rows - 1) * u64::from(stride) + u64::from(cols);
    contract::at_least(m, name, len, (all, "whole rows"))
}

#[cfg(not(target_arch = "nvptx64"))]
fn check_factor(m: &'static KernelMeta, scale: f32) -> Result<(), ContractError> {
    contract::require(m, scale.is_finite(), "scale", "a finite number", scale)
}

macro_rules! kernels {
    ($($T:ident: $scaled:ident $Scaled:ident, $shadow:ident $Shadow:ident, $glu:ident $Glu:ident;)*) => { $(
        /// `y = scale * x + addend`.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $scaled(
            x: In<$T>,
            addend: In<$T>,
            y: Out<$T>,
            rows: u32,
            cols: u32,
            addend_stride: u32,
            added: u32,
            scale: f32,
        ) {
            // The grid has them.
            let _ = rows;
            let row = block::idx_y() as usize;
            let at = row * cols as usize;
            let a = if added != 0 { Some(addend.ptr().add(row * addend_stride as usize)) } else { None };
            pairs(cols, (x.ptr().add(at), a, y.ptr().add(at)), |x, a| math::fma(x, scale, a));
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Scaled<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(SPAN), self.rows, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, shape) = (Self::META, (self.rows, self.cols));
                check_factor(m, self.scale)?;
                check_strided(m, ("x", self.x.len()), shape, ("cols", self.cols))?;
                check_strided(m, ("y", self.y.len()), shape, ("cols", self.cols))?;
                contract::within(m, "added", self.added, (0u32, "nothing is added"), (1u32, "`addend` is"))?;
                if self.added == 0 {
                    return Ok(());
                }
                let rows = if self.addend_stride == 0 { 1 } else { self.rows };
                let stride = ("addend_stride", self.addend_stride);
                check_strided(m, ("addend", self.addend.len()), (rows, self.cols), stride)
            }
        }

        /// `residual += scale * x`, where the residual stream is of f32.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $shadow(x: In<$T>, residual: InOut<f32>, n: u32, scale: f32) {
            let to = residual.ptr();
            pairs(n, (x.ptr(), Some(to.cast_const()), to), |x, r| math::fma(x, scale, r));
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Shadow<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.n.div_ceil(SPAN))
            }
            fn check(&self) -> Result<(), ContractError> {
                let m = Self::META;
                check_factor(m, self.scale)?;
                contract::within(m, "n", self.n, 1u32, i32::MAX)?;
                contract::at_least(m, "x", self.x.len(), (self.n, "n"))?;
                contract::at_least(m, "residual", self.residual.len(), (self.n, "n"))
            }
        }

        /// `y = f(gate) * up`: SwiGLU, GEGLU and that of clamped numbers.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $glu(
            gate: In<$T>,
            up: In<$T>,
            y: Out<$T>,
            rows: u32,
            cols: u32,
            stride: u32,
            y_stride: u32,
            function: u32,
            gated: u32,
        ) {
            // The grid has them.
            let _ = rows;
            let row = block::idx_y() as usize;
            let (at, y) = (row * stride as usize, y.ptr().add(row * y_stride as usize));
            let up = if gated != 0 { Some(up.ptr().add(at)) } else { None };
            self::gated::<$T>((gate.ptr().add(at), up, y), cols, function);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Glu<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(SPAN), self.rows, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, shape) = (Self::META, (self.rows, self.cols));
                check_strided(m, ("gate", self.gate.len()), shape, ("stride", self.stride))?;
                check_strided(m, ("y", self.y.len()), shape, ("y_stride", self.y_stride))?;
                let known = Glu::Clamped as u32;
                contract::within(m, "function", self.function, 0u32, (known, "a function of `Glu`"))?;
                contract::within(m, "gated", self.gated, (0u32, "no ups"), (1u32, "times `up`"))?;
                if self.gated != 0 {
                    return check_strided(m, ("up", self.up.len()), shape, ("stride", self.stride));
                }
                contract::require(m, self.function != known, "gated", "1, as clamped gates have ups", 0)
            }
        }
    )* };
}

kernels! {
    f16: scaled_add_f16 ScaledAddF16, add_shadow_f16 AddShadowF16, glu_f16 GluF16;
    bf16: scaled_add_bf16 ScaledAddBf16, add_shadow_bf16 AddShadowBf16, glu_bf16 GluBf16;
}

macro_rules! casts {
    ($($X:ident to $Y:ident: $name:ident $Name:ident;)*) => { $(
        /// The numbers of a tensor in another type.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $name(x: In<$X>, y: Out<$Y>, n: u32) {
            pairs(n, (x.ptr(), None::<*const $X>, y.ptr()), |x, _| x);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.n.div_ceil(SPAN))
            }
            fn check(&self) -> Result<(), ContractError> {
                contract::within(Self::META, "n", self.n, 1u32, i32::MAX)?;
                contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
                contract::at_least(Self::META, "y", self.y.len(), (self.n, "n"))
            }
        }
    )* };
}

casts! {
    f32 to f16: cast_f32_f16 CastF32F16;
    f32 to bf16: cast_f32_bf16 CastF32Bf16;
    f16 to f32: cast_f16_f32 CastF16F32;
    bf16 to f32: cast_bf16_f32 CastBf16F32;
    f16 to bf16: cast_f16_bf16 CastF16Bf16;
    bf16 to f16: cast_bf16_f16 CastBf16F16;
}
