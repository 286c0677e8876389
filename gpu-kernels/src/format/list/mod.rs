//! The list of weight formats: the one place that names them all.
//!
//! Formats that have the same records on the device share a *layout*, a type that implements [`Decode`](super::decode::Decode).
//! Each layout has a row:
//!
//! | section | |
//! |---|---|
//! | `embed` | the entry point of [`embed`](crate::embed): function, launch struct, shared memory |
//! | `product` | the least blocks of `gemv` on a multiprocessor; the entry points `gemv` and `gemm` of [`gemv`](crate::gemv) |
//! | `quantized` | the entry points of products with quantized activations: kind of activations, least blocks, entry point; also which weights [layers in one launch](crate::persistent) take with them |
//! | `tensor` | the entry points of [products with many columns](crate::gemv::tensor), also [in planes](crate::gemv::tensor_planes): kind of activations, entry point |
//! | `budget` | what [`budget`](crate::gemv::budget) holds its products to: a family by its name, the format that is run, bits of a code, limits by activations; or why nothing |
//! | `stored` | for each format, under the name that its [variant](super::Format) and its codec in `format/list/codecs` have (and with another one behind it, where files spell it otherwise): type id in files, weights and bytes of a block, and what the layout [leaves open](super::decode::Decode::MOST_OPEN) |
//!
//! Enums, dispatch, entry points, catalogue and tables of files are made from it: `formats! { section callback (args) }` calls
//! `callback! { (args) LAYOUT { section } [FORMATS] … }`, for `stored` without the formats and with the name of each spelled out.

mod sections;

/// The codecs of the host: how blocks of a file become numbers, and records. A codec has its format's name.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod codecs {
    mod dense;
    mod float8;
    mod iq1;
    mod iq2;
    mod iq3;
    mod iq4_nl;
    mod iq4_xs;
    mod mxfp4;
    mod nvfp4;
    mod pq2_0;
    mod ptq1_0;
    mod q1_0;
    mod q2_0;
    mod q2_k;
    mod q3_k;
    mod q4_0;
    mod q4_1;
    mod q4_k;
    mod q5_0;
    mod q5_1;
    mod q5_k;
    mod q6_k;
    mod q8_0;
    mod tq1_0;
    mod tq2_0;
    mod tq2_0_g128;

    pub use self::{
        dense::*, float8::*, iq1::*, iq2::*, iq3::*, iq4_nl::*, iq4_xs::*, mxfp4::*, nvfp4::*, pq2_0::*, ptq1_0::*,
        q1_0::*, q2_0::*, q2_k::*, q3_k::*, q4_0::*, q4_1::*, q4_k::*, q5_0::*, q5_1::*, q5_k::*, q6_k::*, q8_0::*,
        tq1_0::*, tq2_0::*, tq2_0_g128::*,
    };
}

/// Calls a macro with one section of the list of weight formats; see the source of `gpu_kernels::format::list`.
#[macro_export]
macro_rules! formats {
    ($section:ident $callback:ident $args:tt) => {
        $crate::formats_section! { $section $callback $args
            F32 {
                embed { embed_f32 EmbedF32 EMBED_F32 }
                product { 2: gemv_f32 GemvF32 GEMV_F32, gemm_f32 GemmF32 GEMM_F32 }
                quantized { }
                tensor { }
                budget { none "formats without a family; 16 bits as F16, 32 are twice that" }
                stored {
                    /// IEEE binary32.
                    F32: 0, 1, 4, 0;
                }
            }
            F16 {
                embed { embed_f16 EmbedF16 EMBED_F16 }
                product { 2: gemv_f16 GemvF16 GEMV_F16, gemm_f16 GemmF16 GEMM_F16 }
                quantized { F16: 1, gemv_f16_f16 GemvF16F16 GEMV_F16_F16; }
                tensor { F16: gemm_f16_f16 GemmF16F16 GEMM_F16_F16; }
                budget { family "F16" F16, 16: None = 4.0; }
                stored {
                    /// IEEE binary16.
                    F16: 1, 1, 2, 0;
                }
            }
            BF16 {
                embed { embed_bf16 EmbedBf16 EMBED_BF16 }
                product { 2: gemv_bf16 GemvBf16 GEMV_BF16, gemm_bf16 GemmBf16 GEMM_BF16 }
                quantized { F16: 1, gemv_bf16_f16 GemvBf16F16 GEMV_BF16_F16; }
                tensor { F16: gemm_bf16_f16 GemmBf16F16 GEMM_BF16_F16; }
                budget { none "formats without a family; 16 bits as F16, 32 are twice that" }
                stored {
                    /// The upper half of a binary32.
                    BF16: 30, 1, 2, 0;
                }
            }
            Q1_0 {
                embed { embed_q1_0 EmbedQ10 EMBED_Q1_0 }
                product { 4: gemv_q1_0 GemvQ10 GEMV_Q1_0, gemm_q1_0 GemmQ10 GEMM_Q1_0 }
                quantized { PlanesI8: 4, gemv_q1_0_i8 GemvQ10I8 GEMV_Q1_0_I8; PlanesI16: 4, gemv_q1_0_i16 GemvQ10I16 GEMV_Q1_0_I16; F16: 1, gemv_q1_0_f16 GemvQ10F16 GEMV_Q1_0_F16; }
                tensor { PlanesI8: gemm_q1_0_i8 GemmQ10I8 GEMM_Q1_0_I8; PlanesI16: gemm_q1_0_i16 GemmQ10I16 GEMM_Q1_0_I16; F16: gemm_q1_0_f16 GemmQ10F16 GEMM_Q1_0_F16; }
                budget { family "Q1_0" Q1_0, 1: Some(Int8) = 0.55, Some(Int16) = 1.05; }
                stored {
                    /// 128 signs and an f16 scale (also called `Q1_0_g128`).
                    Q1_0: 41, 128, 18, 0;
                }
            }
            Q2_0 {
                embed { embed_q2_0 EmbedQ20 EMBED_Q2_0 }
                product { 4: gemv_q2_0 GemvQ20 GEMV_Q2_0, gemm_q2_0 GemmQ20 GEMM_Q2_0 }
                quantized { PlanesQ2I8: 4, gemv_q2_0_i8 GemvQ20I8 GEMV_Q2_0_I8; PlanesQ2I16: 4, gemv_q2_0_i16 GemvQ20I16 GEMV_Q2_0_I16; F16: 1, gemv_q2_0_f16 GemvQ20F16 GEMV_Q2_0_F16; }
                tensor { PlanesQ2I8: gemm_q2_0_i8 GemmQ20I8 GEMM_Q2_0_I8; PlanesQ2I16: gemm_q2_0_i16 GemmQ20I16 GEMM_Q2_0_I16; F16: gemm_q2_0_f16 GemmQ20F16 GEMM_Q2_0_F16; }
                budget { family "TQ2/Q2" TQ2_0_G128, 2: Some(Int16) = 1.0; }
                stored {
                    /// OxiBonsai's ternary: 128 codes of two bits, then an f16 scale; code 3 is 0.
                    TQ2_0_G128 "TQ2_0_g128": 42, 128, 34, 2;
                    /// ggml's two bits: an f16 scale, then 64 codes.
                    Q2_0: 42, 64, 18, 1;
                    /// PrismML's two bits: an f16 scale, then 128 codes.
                    PQ2_0: 142, 128, 34, 2;
                    /// PrismML's ternary: 128 digits in base 3 and an f16 scale.
                    PTQ1_0: 143, 128, 28, 2;
                    /// ggml's ternary: 256 digits in base 3 and an f16 scale.
                    TQ1_0: 34, 256, 54, 3;
                    /// ggml's ternary: 256 codes of two bits and an f16 scale.
                    TQ2_0: 35, 256, 66, 3;
                }
            }
            Q4_0 {
                embed { embed_q4_0 EmbedQ40 EMBED_Q4_0 }
                product { 3: gemv_q4_0 GemvQ40 GEMV_Q4_0, gemm_q4_0 GemmQ40 GEMM_Q4_0 }
                quantized { I8: 2, gemv_q4_0_i8 GemvQ40I8 GEMV_Q4_0_I8; I16: 2, gemv_q4_0_i16 GemvQ40I16 GEMV_Q4_0_I16; F16: 1, gemv_q4_0_f16 GemvQ40F16 GEMV_Q4_0_F16; }
                tensor { I8: gemm_q4_0_i8 GemmQ40I8 GEMM_Q4_0_I8; I16: gemm_q4_0_i16 GemmQ40I16 GEMM_Q4_0_I16; F16: gemm_q4_0_f16 GemmQ40F16 GEMM_Q4_0_F16; }
                budget { family "Q4_0" Q4_0, 4: Some(Int16) = 2.1; }
                stored {
                    /// 32 four-bit codes around 8 and an f16 scale.
                    Q4_0: 2, 32, 18, 0;
                }
            }
            Q4_1 {
                embed { embed_q4_1 EmbedQ41 EMBED_Q4_1 }
                product { 3: gemv_q4_1 GemvQ41 GEMV_Q4_1, gemm_q4_1 GemmQ41 GEMM_Q4_1 }
                quantized { I16: 2, gemv_q4_1_i16 GemvQ41I16 GEMV_Q4_1_I16; F16: 1, gemv_q4_1_f16 GemvQ41F16 GEMV_Q4_1_F16; }
                tensor { I16: gemm_q4_1_i16 GemmQ41I16 GEMM_Q4_1_I16; F16: gemm_q4_1_f16 GemmQ41F16 GEMM_Q4_1_F16; }
                budget { none "a format without a family; as Q4_0, with an offset" }
                stored {
                    /// 32 four-bit codes, an f16 scale and an f16 addend.
                    Q4_1: 3, 32, 20, 0;
                }
            }
            Q5_0 {
                embed { embed_q5_0 EmbedQ50 EMBED_Q5_0 }
                product { 3: gemv_q5_0 GemvQ50 GEMV_Q5_0, gemm_q5_0 GemmQ50 GEMM_Q5_0 }
                quantized { I16: 2, gemv_q5_0_i16 GemvQ50I16 GEMV_Q5_0_I16; F16: 1, gemv_q5_0_f16 GemvQ50F16 GEMV_Q5_0_F16; }
                tensor { I16: gemm_q5_0_i16 GemmQ50I16 GEMM_Q5_0_I16; F16: gemm_q5_0_f16 GemmQ50F16 GEMM_Q5_0_F16; }
                budget { none "formats without a family; nearest is Q5_K" }
                stored {
                    /// 32 five-bit codes around 16 and an f16 scale.
                    Q5_0: 6, 32, 22, 0;
                }
            }
            Q5_1 {
                embed { embed_q5_1 EmbedQ51 EMBED_Q5_1 }
                product { 3: gemv_q5_1 GemvQ51 GEMV_Q5_1, gemm_q5_1 GemmQ51 GEMM_Q5_1 }
                quantized { I16: 2, gemv_q5_1_i16 GemvQ51I16 GEMV_Q5_1_I16; F16: 1, gemv_q5_1_f16 GemvQ51F16 GEMV_Q5_1_F16; }
                tensor { I16: gemm_q5_1_i16 GemmQ51I16 GEMM_Q5_1_I16; F16: gemm_q5_1_f16 GemmQ51F16 GEMM_Q5_1_F16; }
                budget { none "formats without a family; nearest is Q5_K" }
                stored {
                    /// 32 five-bit codes, an f16 scale and an f16 addend.
                    Q5_1: 7, 32, 24, 0;
                }
            }
            Q8_0 {
                embed { embed_q8_0 EmbedQ80 EMBED_Q8_0 }
                product { 3: gemv_q8_0 GemvQ80 GEMV_Q8_0, gemm_q8_0 GemmQ80 GEMM_Q8_0 }
                quantized { I8: 2, gemv_q8_0_i8 GemvQ80I8 GEMV_Q8_0_I8; I16: 2, gemv_q8_0_i16 GemvQ80I16 GEMV_Q8_0_I16; F16: 1, gemv_q8_0_f16 GemvQ80F16 GEMV_Q8_0_F16; }
                tensor { I8: gemm_q8_0_i8 GemmQ80I8 GEMM_Q8_0_I8; I16: gemm_q8_0_i16 GemmQ80I16 GEMM_Q8_0_I16; F16: gemm_q8_0_f16 GemmQ80F16 GEMM_Q8_0_F16; }
                budget { family "Q8_0" Q8_0, 8: Some(Int16) = 3.0; }
                stored {
                    /// 32 signed bytes and an f16 scale.
                    Q8_0: 8, 32, 34, 0;
                }
            }
            F8 {
                embed { embed_f8 EmbedF8 EMBED_F8 }
                product { 3: gemv_f8 GemvF8 GEMV_F8, gemm_f8 GemmF8 GEMM_F8 }
                quantized { F16: 1, gemv_f8_f16 GemvF8F16 GEMV_F8_F16; }
                tensor { F16: gemm_f8_f16 GemmF8F16 GEMM_F8_F16; }
                budget { none "formats without a family; nearest is Q8_0" }
                stored {
                    /// 128 eight-bit floats with four bits of exponent and three of fraction, and an f32 scale.
                    F8_E4M3: 0x5753_0000, 128, 132, 0;
                    /// 128 eight-bit floats with five bits of exponent and two of fraction, and an f32 scale.
                    F8_E5M2: 0x5753_0001, 128, 132, 1;
                }
            }
            Q2_K {
                embed { embed_q2_k EmbedQ2K EMBED_Q2_K }
                product { 3: gemv_q2_k GemvQ2K GEMV_Q2_K, gemm_q2_k GemmQ2K GEMM_Q2_K }
                quantized { F16: 1, gemv_q2_k_f16 GemvQ2KF16 GEMV_Q2_K_F16; }
                tensor { F16: gemm_q2_k_f16 GemmQ2KF16 GEMM_Q2_K_F16; }
                budget { none "formats without a family; nearest is Q4_K" }
                stored {
                    /// 256 two-bit codes, a scale and a minimum of four bits for each 16.
                    Q2_K: 10, 256, 84, 0;
                }
            }
            Q3_K {
                embed { embed_q3_k EmbedQ3K EMBED_Q3_K }
                product { 3: gemv_q3_k GemvQ3K GEMV_Q3_K, gemm_q3_k GemmQ3K GEMM_Q3_K }
                quantized { F16: 1, gemv_q3_k_f16 GemvQ3KF16 GEMV_Q3_K_F16; }
                tensor { F16: gemm_q3_k_f16 GemmQ3KF16 GEMM_Q3_K_F16; }
                budget { none "formats without a family; nearest is Q4_K" }
                stored {
                    /// 256 three-bit codes and a six-bit scale for each 16.
                    Q3_K: 11, 256, 110, 0;
                }
            }
            Q4_K {
                embed { embed_q4_k EmbedQ4K EMBED_Q4_K }
                product { 3: gemv_q4_k GemvQ4K GEMV_Q4_K, gemm_q4_k GemmQ4K GEMM_Q4_K }
                quantized { I8: 2, gemv_q4_k_i8 GemvQ4KI8 GEMV_Q4_K_I8; I16: 2, gemv_q4_k_i16 GemvQ4KI16 GEMV_Q4_K_I16; F16: 1, gemv_q4_k_f16 GemvQ4KF16 GEMV_Q4_K_F16; }
                tensor { I8: gemm_q4_k_i8 GemmQ4KI8 GEMM_Q4_K_I8; I16: gemm_q4_k_i16 GemmQ4KI16 GEMM_Q4_K_I16; F16: gemm_q4_k_f16 GemmQ4KF16 GEMM_Q4_K_F16; }
                budget { family "Q4_K" Q4_K, 4: Some(Int16) = 2.1; }
                stored {
                    /// 256 four-bit codes, a scale and a minimum of six bits for each 32.
                    Q4_K: 12, 256, 144, 0;
                }
            }
            Q5_K {
                embed { embed_q5_k EmbedQ5K EMBED_Q5_K }
                product { 3: gemv_q5_k GemvQ5K GEMV_Q5_K, gemm_q5_k GemmQ5K GEMM_Q5_K }
                quantized { I8: 1, gemv_q5_k_i8 GemvQ5KI8 GEMV_Q5_K_I8; I16: 1, gemv_q5_k_i16 GemvQ5KI16 GEMV_Q5_K_I16; F16: 1, gemv_q5_k_f16 GemvQ5KF16 GEMV_Q5_K_F16; }
                tensor { I8: gemm_q5_k_i8 GemmQ5KI8 GEMM_Q5_K_I8; I16: gemm_q5_k_i16 GemmQ5KI16 GEMM_Q5_K_I16; F16: gemm_q5_k_f16 GemmQ5KF16 GEMM_Q5_K_F16; }
                budget { family "Q5_K" Q5_K, 5: Some(Int16) = 2.6; }
                stored {
                    /// 256 five-bit codes, a scale and a minimum of six bits for each 32.
                    Q5_K: 13, 256, 176, 0;
                }
            }
            Q6_K {
                embed { embed_q6_k EmbedQ6K EMBED_Q6_K }
                product { 3: gemv_q6_k GemvQ6K GEMV_Q6_K, gemm_q6_k GemmQ6K GEMM_Q6_K }
                quantized { I8: 2, gemv_q6_k_i8 GemvQ6KI8 GEMV_Q6_K_I8; I16: 2, gemv_q6_k_i16 GemvQ6KI16 GEMV_Q6_K_I16; F16: 1, gemv_q6_k_f16 GemvQ6KF16 GEMV_Q6_K_F16; }
                tensor { I8: gemm_q6_k_i8 GemmQ6KI8 GEMM_Q6_K_I8; I16: gemm_q6_k_i16 GemmQ6KI16 GEMM_Q6_K_I16; F16: gemm_q6_k_f16 GemmQ6KF16 GEMM_Q6_K_F16; }
                budget { family "Q6_K" Q6_K, 6: Some(Int16) = 3.1; }
                stored {
                    /// 256 six-bit codes and an eight-bit scale for each 16.
                    Q6_K: 14, 256, 210, 0;
                }
            }
            IQ4_NL {
                embed { embed_iq4_nl EmbedIq4Nl EMBED_IQ4_NL }
                product { 3: gemv_iq4_nl GemvIq4Nl GEMV_IQ4_NL, gemm_iq4_nl GemmIq4Nl GEMM_IQ4_NL }
                quantized { I16: 2, gemv_iq4_nl_i16 GemvIq4NlI16 GEMV_IQ4_NL_I16; F16: 1, gemv_iq4_nl_f16 GemvIq4NlF16 GEMV_IQ4_NL_F16; }
                tensor { I16: gemm_iq4_nl_i16 GemmIq4NlI16 GEMM_IQ4_NL_I16; F16: gemm_iq4_nl_f16 GemmIq4NlF16 GEMM_IQ4_NL_F16; }
                budget { none "formats without a family; four bits by a table" }
                stored {
                    /// 32 indices into a table of 16 and an f16 scale.
                    IQ4_NL: 20, 32, 18, 0;
                }
            }
            IQ4_XS {
                embed { embed_iq4_xs EmbedIq4Xs EMBED_IQ4_XS }
                product { 3: gemv_iq4_xs GemvIq4Xs GEMV_IQ4_XS, gemm_iq4_xs GemmIq4Xs GEMM_IQ4_XS }
                quantized { I16: 2, gemv_iq4_xs_i16 GemvIq4XsI16 GEMV_IQ4_XS_I16; F16: 1, gemv_iq4_xs_f16 GemvIq4XsF16 GEMV_IQ4_XS_F16; }
                tensor { I16: gemm_iq4_xs_i16 GemmIq4XsI16 GEMM_IQ4_XS_I16; F16: gemm_iq4_xs_f16 GemmIq4XsF16 GEMM_IQ4_XS_F16; }
                budget { none "formats without a family; four bits by a table" }
                stored {
                    /// 256 indices into a table of 16 and a six-bit scale for each 32.
                    IQ4_XS: 23, 256, 136, 0;
                }
            }
            MXFP4 {
                embed { embed_mxfp4 EmbedMxfp4 EMBED_MXFP4 }
                product { 3: gemv_mxfp4 GemvMxfp4 GEMV_MXFP4, gemm_mxfp4 GemmMxfp4 GEMM_MXFP4 }
                quantized { I16: 2, gemv_mxfp4_i16 GemvMxfp4I16 GEMV_MXFP4_I16; F16: 1, gemv_mxfp4_f16 GemvMxfp4F16 GEMV_MXFP4_F16; }
                tensor { I16: gemm_mxfp4_i16 GemmMxfp4I16 GEMM_MXFP4_I16; F16: gemm_mxfp4_f16 GemmMxfp4F16 GEMM_MXFP4_F16; }
                budget { none "formats without a family; four bits by a table" }
                stored {
                    /// 32 four-bit floats and a power of two.
                    MXFP4: 39, 32, 17, 0;
                }
            }
            NVFP4 {
                embed { embed_nvfp4 EmbedNvfp4 EMBED_NVFP4 }
                product { 3: gemv_nvfp4 GemvNvfp4 GEMV_NVFP4, gemm_nvfp4 GemmNvfp4 GEMM_NVFP4 }
                quantized { F16: 1, gemv_nvfp4_f16 GemvNvfp4F16 GEMV_NVFP4_F16; }
                tensor { F16: gemm_nvfp4_f16 GemmNvfp4F16 GEMM_NVFP4_F16; }
                budget { none "formats without a family; four bits by a table" }
                stored {
                    /// 64 four-bit floats, and an eight-bit one for each 16.
                    NVFP4: 40, 64, 36, 0;
                    /// The same with an f32 for the row behind each block.
                    NVFP4_SCALED: 0x5753_0002, 64, 40, 0;
                }
            }
            IQ3 {
                embed { embed_iq3 EmbedIq3 EMBED_IQ3 }
                product { 3: gemv_iq3 GemvIq3 GEMV_IQ3, gemm_iq3 GemmIq3 GEMM_IQ3 }
                quantized { F16: 1, gemv_iq3_f16 GemvIq3F16 GEMV_IQ3_F16; }
                tensor { F16: gemm_iq3_f16 GemmIq3F16 GEMM_IQ3_F16; }
                budget { none "formats without a family; places of a grid" }
                stored {
                    /// 256 weights, four at a place of a grid of 256; signs, and a scale of four bits for each 32.
                    IQ3_XXS: 18, 256, 98, 0;
                    /// 256 weights, four at a place of a grid of 512; signs, and a scale of four bits for each 32.
                    IQ3_S: 21, 256, 110, 1;
                }
            }
            IQ2 {
                embed { embed_iq2 EmbedIq2 EMBED_IQ2 }
                product { 3: gemv_iq2 GemvIq2 GEMV_IQ2, gemm_iq2 GemmIq2 GEMM_IQ2 }
                quantized { F16: 1, gemv_iq2_f16 GemvIq2F16 GEMV_IQ2_F16; }
                tensor { F16: gemm_iq2_f16 GemmIq2F16 GEMM_IQ2_F16; }
                budget { none "formats without a family; places of a grid" }
                stored {
                    /// 256 weights, eight at a place of a grid of 256; signs, and a scale of four bits for each 32.
                    IQ2_XXS: 16, 256, 66, 0;
                    /// 256 weights, eight at a place of a grid of 512; signs, and a scale of four bits for each 16.
                    IQ2_XS: 17, 256, 74, 1;
                    /// 256 weights, eight at a place of a grid of 1024; signs, and a scale of four bits for each 16.
                    IQ2_S: 22, 256, 82, 2;
                }
            }
            IQ1 {
                embed { embed_iq1 EmbedIq1 EMBED_IQ1 }
                product { 3: gemv_iq1 GemvIq1 GEMV_IQ1, gemm_iq1 GemmIq1 GEMM_IQ1 }
                quantized { F16: 1, gemv_iq1_f16 GemvIq1F16 GEMV_IQ1_F16; }
                tensor { F16: gemm_iq1_f16 GemmIq1F16 GEMM_IQ1_F16; }
                budget { none "formats without a family; places of a grid" }
                stored {
                    /// 256 weights, eight at a place of a grid of 2048, less or more an eighth; a scale of three bits for each 32.
                    IQ1_S: 19, 256, 50, 0;
                    /// 256 weights, eight at a place of a grid of 2048, less or more an eighth each; a scale of three bits for each 16.
                    IQ1_M: 29, 256, 56, 0;
                }
            }
        }
    };
}
