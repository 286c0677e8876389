//! Entry points with activations as codes: what [`planes`](super::planes) and [`int8`](super::int8) have in common.
//!
//! A launch rounds columns of f32 to codes, and divides them by their root mean square first where a norm is due, which is a
//! matter of scales alone; any number of products then read the codes. Columns of codes lie one behind the other; a launch
//! has as many blocks of threads for each, in the second dimension of its grid.
//!
//! | argument | of a quantizing entry point |
//! |---|---|
//! | `x` | f32 `[columns, cols]`, column `n` from `n * x_stride` on |
//! | `sums`, `parts`, `eps` | as for [`NORM`](super::NORM); with 0 `parts` there is no norm |
//! | `codes` | a number of vectors of 16 bytes for each column |
//!
//! Products can, at run time (`flags`), [`ADD`](super::ADD), prepare the [`NEXT`](super::NEXT) norm, in [`parts`] parts for
//! each column, and take gates and ups ([`SWIGLU`](super::SWIGLU)), with outputs and strides as the default entry points have
//! them.

#[cfg(target_arch = "nvptx64")]
use super::ends::Ends;
#[cfg(target_arch = "nvptx64")]
use warpsmith_device::prelude::*;

/// Threads of a block.
#[cfg(target_arch = "nvptx64")]
const THREADS: u32 = 128;
/// Columns that a block of threads of a quantizing entry point takes.
pub const COLUMNS: u32 = 512;

/// Blocks of a launch along its rows, and so the parts of a sum of squares that [`NEXT`](super::NEXT) gives a column;
/// `block_rows` rows of weights are a block's.
#[must_use]
pub const fn parts(rows: u32, block_rows: u32, swiglu: bool) -> u32 {
    rows.div_ceil(if swiglu { block_rows / 2 } else { block_rows })
}

/// What a product got; the activations are those of all columns.
#[cfg(target_arch = "nvptx64")]
pub(super) struct Args {
    pub weights: In<U32x4>,
    pub x: In<U32x4>,
    pub rows: u32,
    pub cols: u32,
    pub block_units: u32,
    pub ends: Ends,
}

#[cfg(target_arch = "nvptx64")]
impl Args {
    /// The weights of row `i + even` of all blocks', as [`Ends::row`] says, of `vectors` vectors each.
    #[inline(always)]
    pub(super) unsafe fn row(&self, rows: u32, i: u32, even: u32, vectors: u32) -> In<U32x4> {
        let row = self.ends.row(rows, i, even);
        // SAFETY: the row is one of the weights.
        unsafe { self.weights.from((u64::from(row) * u64::from(vectors)) as usize) }
    }

    /// The start of every product, of `block_rows` rows of `vectors` vectors each a block: the launch behind may begin, and this
    /// one waits for those before it.
    #[inline(always)]
    pub(super) unsafe fn begin(&self, block_rows: u32, vectors: u32) {
        grid::launch_dependents();
        let (thread, lines) = (thread::idx_x(), THREADS / block_rows);
        // SAFETY: as in `row`.
        unsafe {
            let row = self.row(self.rows, block::idx_x() * block_rows + thread / lines, 0, vectors);
            self.ends.ask(row, vectors as usize, (thread % lines) as usize);
        }
        grid::wait_dependencies();
    }
}

/// A quantizing entry point and its contract.
macro_rules! quantizer {
    (
        $(#[$doc:meta])* $name:ident $Name:ident: $Codes:ty, $min_blocks:literal, blocks of $block:expr, $len:expr,
        |$x:ident, $factor:ident, $codes:ident, $cols:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[kernel(block = 128, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            x: Awaited<f32>,
            sums: Awaited<f32>,
            codes: Out<$Codes>,
            cols: u32,
            columns: u32,
            x_stride: u32,
            parts: u32,
            eps: f32,
        ) {
            // The grid has them.
            let _ = columns;
            grid::launch_dependents();
            grid::wait_dependencies();
            let (x, sums) = (x.buffer(), sums.buffer());
            let (column, $cols) = (block::idx_y() as usize, cols);
            let $factor = match parts {
                0 => 1.0,
                _ => super::ends::inverse_root(sums.into(), parts as usize, column, cols as usize, eps),
            };
            let $x = x.from(column * x_stride as usize);
            let $codes = codes.from(column * $len(cols) as usize);
            $body
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(super::coded::COLUMNS), self.columns, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let x = super::contract::Inputs {
                    x: self.x,
                    sums: self.sums,
                    cols: self.cols,
                    columns: self.columns,
                    x_stride: self.x_stride,
                    parts: self.parts,
                    eps: self.eps,
                };
                super::contract::check_quantizer(Self::META, &x, $block, (self.codes.len(), $len(self.cols)))
            }
        }
    };
}

/// A product and its contract; `units`: the largest `block_units`, 0 where the format has its own.
macro_rules! product {
    (
        $(#[$doc:meta])* $name:ident $Name:ident: $Codes:ty, $min_blocks:literal, $F:ty, units $units:literal,
        rows of $rows:expr, $len:expr, $shared:ident of $sums:expr, |$args:ident, $memory:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[kernel(block = 128, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            weights: In<U32x4>,
            x: Awaited<$Codes>,
            add: Awaited<f32>,
            next_weight: In<f32>,
            y: Out<f32>,
            scaled: Out<f32>,
            next_sums: Out<f32>,
            rows: u32,
            cols: u32,
            columns: u32,
            y_stride: u32,
            add_stride: u32,
            block_units: u32,
            flags: u32,
        ) {
            // The grid has them.
            let _ = columns;
            let $memory = shared_array!($shared: [f32; $sums]);
            let $args = super::coded::Args {
                weights,
                x: x.buffer().cast::<U32x4>(),
                rows,
                cols,
                block_units,
                ends: super::ends::Ends {
                    add: add.buffer().into(),
                    next_weight,
                    y,
                    scaled,
                    next_sums,
                    y_stride: y_stride as usize,
                    add_stride: add_stride as usize,
                    flags,
                },
            };
            $body
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let swiglu = self.flags & super::SWIGLU != 0;
                super::contract::grid(super::coded::parts(self.rows, $rows, swiglu), self.columns, self.flags)
            }
            fn check(&self) -> Result<(), ContractError> {
                use super::contract::{Coded, Outputs, check_coded};
                check_coded::<$F>(Self::META, &Coded {
                    weights: self.weights,
                    x: (self.x.len(), $len(self.cols)),
                    cols: self.cols,
                    block_units: (self.block_units, $units),
                    block_rows: $rows,
                    outputs: Outputs {
                        add: self.add,
                        next_weight: self.next_weight,
                        y: self.y,
                        scaled: self.scaled,
                        next_sums: self.next_sums,
                        rows: self.rows,
                        columns: self.columns,
                        y_stride: self.y_stride,
                        add_stride: self.add_stride,
                        flags: self.flags,
                    },
                })
            }
        }
    };
}

pub(super) use {product, quantizer};
