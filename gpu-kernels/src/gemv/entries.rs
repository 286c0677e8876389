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
    ($($F:ident, $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident;)*) => { $(
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

entries! {
    F32, 2: gemv_f32 GemvF32 GEMV_F32, gemm_f32 GemmF32 GEMM_F32;
    F16, 2: gemv_f16 GemvF16 GEMV_F16, gemm_f16 GemmF16 GEMM_F16;
    BF16, 2: gemv_bf16 GemvBf16 GEMV_BF16, gemm_bf16 GemmBf16 GEMM_BF16;
    Q1_0, 3: gemv_q1_0 GemvQ10 GEMV_Q1_0, gemm_q1_0 GemmQ10 GEMM_Q1_0;
    Q2_0, 3: gemv_q2_0 GemvQ20 GEMV_Q2_0, gemm_q2_0 GemmQ20 GEMM_Q2_0;
    Q4_0, 3: gemv_q4_0 GemvQ40 GEMV_Q4_0, gemm_q4_0 GemmQ40 GEMM_Q4_0;
    Q4_1, 3: gemv_q4_1 GemvQ41 GEMV_Q4_1, gemm_q4_1 GemmQ41 GEMM_Q4_1;
    Q5_0, 3: gemv_q5_0 GemvQ50 GEMV_Q5_0, gemm_q5_0 GemmQ50 GEMM_Q5_0;
    Q5_1, 3: gemv_q5_1 GemvQ51 GEMV_Q5_1, gemm_q5_1 GemmQ51 GEMM_Q5_1;
    Q8_0, 3: gemv_q8_0 GemvQ80 GEMV_Q8_0, gemm_q8_0 GemmQ80 GEMM_Q8_0;
    Q2_K, 3: gemv_q2_k GemvQ2K GEMV_Q2_K, gemm_q2_k GemmQ2K GEMM_Q2_K;
    Q3_K, 3: gemv_q3_k GemvQ3K GEMV_Q3_K, gemm_q3_k GemmQ3K GEMM_Q3_K;
    Q4_K, 3: gemv_q4_k GemvQ4K GEMV_Q4_K, gemm_q4_k GemmQ4K GEMM_Q4_K;
    Q5_K, 3: gemv_q5_k GemvQ5K GEMV_Q5_K, gemm_q5_k GemmQ5K GEMM_Q5_K;
    Q6_K, 3: gemv_q6_k GemvQ6K GEMV_Q6_K, gemm_q6_k GemmQ6K GEMM_Q6_K;
    IQ4_NL, 3: gemv_iq4_nl GemvIq4Nl GEMV_IQ4_NL, gemm_iq4_nl GemmIq4Nl GEMM_IQ4_NL;
    IQ4_XS, 3: gemv_iq4_xs GemvIq4Xs GEMV_IQ4_XS, gemm_iq4_xs GemmIq4Xs GEMM_IQ4_XS;
    MXFP4, 3: gemv_mxfp4 GemvMxfp4 GEMV_MXFP4, gemm_mxfp4 GemmMxfp4 GEMM_MXFP4;
}
