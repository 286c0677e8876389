//! The entry points: two a decoder, all of one signature.

#[cfg(not(target_arch = "nvptx64"))]
use super::parts;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{COLUMNS, frame};
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::Launched;
use warpsmith_device::prelude::*;

macro_rules! entry {
    ($(#[$doc:meta])* $F:ident, $N:expr, $UNITS:literal, $min_blocks:literal, $shared:ident, $name:ident $Name:ident) => {
        $(#[$doc])*
        #[kernel(block = 256, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            weights: In<U32x4>,
            x: Awaited<f32>,
            add: Awaited<f32>,
            sums: Awaited<f32>,
            next_weight: In<f32>,
            y: Out<f32>,
            scaled: Out<f32>,
            next_sums: Out<f32>,
            rows: u32,
            cols: u32,
            columns: u32,
            x_stride: u32,
            y_stride: u32,
            add_stride: u32,
            parts: u32,
            block_units: u32,
            flags: u32,
            eps: f32,
        ) {
            const N: usize = $N;
            let xs = shared_array!($shared: [F32x4; $N * $UNITS * 8]);
            let args = frame::Args {
                weights,
                x: x.buffer().into(),
                sums: sums.buffer().into(),
                rows: rows as usize,
                cols: cols as usize,
                columns: columns as usize,
                x_stride: x_stride as usize,
                parts: parts as usize,
                block_units,
                eps,
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
            frame::begin::<format::$F>(&args);
            frame::run::<format::$F, N, $UNITS>(&args, Launched, xs);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let columns = if $N == 1 { 1 } else { self.columns.div_ceil(super::COLUMNS as u32) };
                let blocks = parts(self.rows, self.cols, self.flags & super::SWIGLU != 0);
                super::contract::grid(blocks, columns)
            }
            fn check(&self) -> Result<(), ContractError> {
                use super::contract::{Columns, Norm, Outputs, Shapes, check};
                check::<format::$F>(Self::META, $N, &Shapes {
                    weights: self.weights,
                    x: Columns { x: self.x, cols: self.cols, columns: self.columns, x_stride: self.x_stride },
                    norm: Norm { sums: self.sums, parts: self.parts, eps: self.eps },
                    block_units: self.block_units,
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

macro_rules! entries {
    (() $(
        $F:ident { $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident } $formats:tt
    )*) => { $(
        entry! {
            /// A matrix times a vector.
            $F, 1, 128, $blocks, $s1, $gemv $Gemv
        }
        entry! {
            /// A matrix times up to 64 vectors, eight a block.
            $F, super::COLUMNS, 32, 1, $s2, $gemm $Gemm
        }
    )* };
}

crate::formats! { product entries () }
