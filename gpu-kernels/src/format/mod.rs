//! Weight formats: what a GGUF tensor's bytes mean, and the layout that the kernels read.
//!
//! - [`record`]: the layout of a row on the device, one for all formats;
//! - [`decode`]: what a format is to the kernels, with the decoders in [`dense`], [`narrow`], [`wide`], [`float8`] and [`grid`];
//! - [`halves`]: weights as f16, for products on tensor cores;
//! - [`list`]: the one list of formats, from which [`Format`], entry points and tables come;
//! - [`Format`], with the codecs of the host (bytes → f32, bytes → records).
//!
//! # As stored
//! A tensor is `rows` rows of `cols` elements, a row is `cols / block_elems` blocks without padding, little-endian.
//! [`Format::decode`] is bit-exact against ggml (the sign of zero aside). Formats are declared by the tensor's type id.
//!
//! # On the device
//! One buffer of records, a row each ([`record`]); [`Format::repack`] makes them once, at upload. Formats that mean the
//! same have one [`Layout`]: all two-bit and ternary ones have that of [`Q2_0`], whose groups' length is an argument, and places of a
//! grid have one for four weights ([`IQ3`]) and two for eight ([`IQ2`], [`IQ1`]), where the argument says which grid it is. Codes
//! that a format reserves are made sound on the way (code 3 of TQ2_0_g128 is 0).

pub mod decode;
pub mod dense;
pub mod float8;
pub mod grid;
pub mod halves;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
pub mod list;
pub mod narrow;
pub mod record;
pub(crate) mod unpack;
pub mod wide;

pub use dense::{BF16, F16, F32};
pub use float8::F8;
pub use grid::{IQ1, IQ2, IQ3};
pub use narrow::{Q1_0, Q2_0, Q2_K, Q3_K};
pub use wide::{IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{Format, FormatError, Layout};
