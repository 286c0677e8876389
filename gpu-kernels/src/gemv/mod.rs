//! Matrix times vector, the bulk of a decode step, and times several vectors for batches and prompts:
//! `y[n, r] = sum_c w[r, c] * x[n, c]`.
//!
//! | | |
//! |---|---|
//! | `weights` | records of [`format`](crate::format), `[rows]` (with [`SWIGLU`] `[2 * rows]`: gates, then ups) |
//! | `x` | f32 `[columns, cols]`, column `n` from `n * x_stride` on; stride and address are multiples of 4 elements |
//! | `y` | f32 `[columns, rows]`, column `n` from `n * y_stride` on |
//! | `cols` | a multiple of the format's block; any for F32, F16 and BF16 |
//!
//! For each decoder there are `gemv_F` (one column) and `gemm_F` (up to 1024 columns); [`Gemv`] picks the entry point. Both
//! can, at run time (`flags`):
//!
//! - [`SWIGLU`]: `y = silu(gate) * up`, where row `r` of the gates is row `r` of `weights`, and that of the ups is row
//!   `rows + r`; with [`GELU`] too, `y = gelu(gate) * up`, and with [`CLAMPED`] that of clamped numbers
//!   ([`elementwise`](crate::elementwise) has these functions).
//! - [`ACTIVATED`], without [`SWIGLU`]: `y = max(y, 0)^2` of each output, or with [`GELU`] too its GELU, and with [`ERF`] that by the error
//!   function ([`activation`](crate::activation)).
//! - [`BIAS`]: add `bias[row]` to the product with row `row` of `weights`, gates and ups among them; with [`EXPERTS`] those of each
//!   matrix lie behind one another, as its rows do.
//! - [`ADD`]: add `add[n * add_stride + row]` to what comes of that, a residual, or with stride 0 the same for all columns.
//! - [`NORM`]: take `x` for `v * w`, where `v` is a vector whose RMS norm with weights `w` is meant: the product is
//!   divided by the root mean square of `v`, whose squares sum up to the `parts` numbers of column `n` in `sums`.
//! - [`NEXT`]: prepare that for the next product: `scaled = y * next_weight` (laid out as `y`), and in `next_sums` a
//!   part of the sum of squares of `y` for each block, `[columns, blocks]` with [`parts`] blocks.
//! - [`EXPERTS`]: `weights` are `matrices` matrices, one behind the other, and column `n` is multiplied with number `chosen[n]` of
//!   them (a u32; the last, if it is too large). `sharing` columns in turn have one column of `x`, and of `sums`. Only matrices that are
//!   chosen are read. Entry points that have several columns a block take the table of a [group](crate::experts::group) for `chosen`. A
//!   column has the bits that the product of its matrix alone has.
//! - [`PREFETCH`]: for a launch that is [`Programmatic`](warpsmith_device::Programmatic), which [`Gemv::programmatic`] makes. From sm_90 on its blocks begin when those of the launch
//!   before have begun, as far as there is room for both, ask for the first of their weights in L2, and only then wait for the
//!   launch before. Weights and `next_weight` are then not what it writes. With quantized activations, and where rows are long or blocks
//!   follow on others, a block then asks for the rest of its weights, and for those of the block that takes its place.
//!
//! Beside these are variants: [`naive`], to be read first; [`four_rows`], with fewer instructions for a weight of F16; and with
//! [`quantized`] activations [`int8`], for formats of four to eight bits, and [`planes`], for one bit and two, with many columns
//! [`tensor`] and [`tensor_planes`]; and [`half`] with any number of columns in f16, for every format but F32; a kernel may quantize what it computes ([`quant_format`]).
//! [`choose`] says which activations a product takes.
//!
//! Products and sums are f32 with fused multiply-adds; the error stays within `1e-5 * sum |w * x|` of the exact sum.
//! Which partial sums are formed depends on the row's length alone, so results are the same to the bit in every run, on
//! every device, beside any other rows, and beside any other columns, in `gemm` as in `gemv`.

#[macro_use]
mod arguments;
#[macro_use]
pub mod quantized;
#[cfg(not(target_arch = "nvptx64"))]
mod activations;
#[cfg(not(target_arch = "nvptx64"))]
pub mod budget;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
#[cfg(not(target_arch = "nvptx64"))]
mod choice;
#[cfg(not(target_arch = "nvptx64"))]
mod contract;
mod entries;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod epilogue;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod experts;
pub mod four_rows;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod frame;
pub mod int8;
#[cfg(not(target_arch = "nvptx64"))]
mod launch;
pub mod naive;
pub mod planes;
pub mod quant_format;
#[cfg(not(target_arch = "nvptx64"))]
mod quantize;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod quantizer;
#[macro_use]
pub mod tensor;
pub mod half;
pub mod tensor_planes;
#[cfg(not(target_arch = "nvptx64"))]
mod tuned;
mod wide;

#[cfg(not(target_arch = "nvptx64"))]
pub use activations::Activations;
#[cfg(not(target_arch = "nvptx64"))]
pub use choice::{Provenance, Tuned, choose, fastest};
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use contract::{QuantizedOutputs, check_weights};
pub use entries::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use launch::Gemv;
#[cfg(not(target_arch = "nvptx64"))]
pub use quant_format::QuantFormat;
#[cfg(not(target_arch = "nvptx64"))]
pub use quantize::{OutputQuantization, Quantize, QuantizedProduct};
#[cfg(not(target_arch = "nvptx64"))]
pub use tuned::{PROVENANCE, TUNED};

/// Threads of a block.
pub const THREADS: usize = 256;
/// Rows of weights that a group of lanes takes.
pub const ROWS: usize = 2;
/// Columns that a block of `gemm` takes.
pub const COLUMNS: usize = 8;
/// Columns that a launch of several takes.
pub const MAX_COLUMNS: u32 = 1024;

/// Flag: add a residual or a bias.
pub const ADD: u32 = 1;
/// Flag: the input still has to be divided by its root mean square.
pub const NORM: u32 = 2;
/// Flag: prepare the norm of the output.
pub const NEXT: u32 = 4;
/// Flag: gates and ups.
pub const SWIGLU: u32 = 8;
/// Flag: ask for weights before the launches before it are waited for.
pub const PREFETCH: u32 = 16;
/// Flag: GELU, by its approximation with a hyperbolic tangent; with [`SWIGLU`] in place of SiLU.
pub const GELU: u32 = 64;
/// Flag, with [`SWIGLU`]: the SwiGLU of clamped numbers that gpt-oss has.
pub const CLAMPED: u32 = 128;
/// Flag: add a bias of each row of weights to its products, before anything else becomes of them.
pub const BIAS: u32 = 256;
/// Flag: what comes of outputs without gates.
pub const ACTIVATED: u32 = 512;
/// Flag, with [`ACTIVATED`]: GELU by the error function.
pub const ERF: u32 = 1024;
/// Flag: a table says which of several matrices each column is multiplied with.
pub const EXPERTS: u32 = 32;
/// Flag, with f16 activations: each column of them is two, whose products are added up ([`half`]).
pub const PAIRS: u32 = 2048;
/// Columns that a launch of these takes: the most blocks in y.
pub const MAX_CHOSEN: u32 = 65535;

/// Groups of lanes in a block, each of which takes [`ROWS`] rows of `cols` columns.
#[must_use]
#[inline(always)]
pub(crate) fn groups(cols: u32) -> u32 {
    // Not by a `Record` of the format: the lanes are the same for all.
    let units = cols.div_ceil(crate::format::record::UNIT as u32);
    THREADS as u32 / units.clamp(1, 32).next_power_of_two()
}

/// Blocks of a launch along its rows, and so the parts of a sum of squares that [`NEXT`] gives a column.
#[must_use]
#[inline(always)]
pub fn parts(rows: u32, cols: u32, swiglu: bool) -> u32 {
    rows.div_ceil(groups(cols) * if swiglu { 1 } else { ROWS as u32 })
}

/// [`parts`] of a product with any activations: quantized ones of a format, or f32.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn parts_with(format: Option<QuantFormat>, rows: u32, cols: u32, swiglu: bool) -> u32 {
    if format.is_some() { quant_format::parts(rows, swiglu) } else { parts(rows, cols, swiglu) }
}

/// The product in f64: what every entry point is held to. `weights` are the decoded weights.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(weights: &[f32], x: &[f32], residual: Option<&[f32]>) -> Vec<f64> {
    let mut y = Vec::new();
    for (r, row) in weights.chunks_exact(x.len()).enumerate() {
        let mut sum = residual.map_or(0.0, |v| f64::from(v[r]));
        for (w, x) in row.iter().zip(x) {
            sum += f64::from(*w) * f64::from(*x);
        }
        y.push(sum);
    }
    y
}

/// `sum |w * x|` of every row: the scale of the error that is allowed.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn magnitudes(weights: &[f32], x: &[f32]) -> Vec<f64> {
    let magnitude = |row: &[f32]| row.iter().zip(x).map(|(w, x)| (f64::from(*w) * f64::from(*x)).abs()).sum();
    weights.chunks_exact(x.len()).map(magnitude).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        let w = [1.0, 2.0, 3.0, -4.0, 0.5, 0.25];
        let x = [2.0, -1.0, 4.0];
        assert_eq!(reference(&w, &x, None), [12.0, -7.5]);
        assert_eq!(reference(&w, &x, Some(&[1.0, 2.0])), [13.0, -5.5]);
        assert_eq!(magnitudes(&w, &x), [16.0, 9.5]);
    }

    #[test]
    fn a_block_takes_the_more_rows_the_shorter_they_are() {
        assert_eq!([parts(64, 1024, false), parts(65, 1024, false), parts(64, 1024, true)], [4, 5, 8]);
        assert_eq!([parts(64, 256, false), parts(512, 32, false), parts(513, 1, false)], [1, 1, 2]);
    }
}
