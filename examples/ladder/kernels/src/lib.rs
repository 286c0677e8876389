//! The kernels of the teaching ladder, a problem a file: formula, f64 reference, steps, contracts.
//!
//! | file | steps | what is learnt |
//! |---|---|---|
//! | [`add`] | 1 to 3 | threads and elements; coalescing; 16-byte accesses in a grid-stride loop |
//! | [`sum`] | 4 and 5 | shared memory and barriers; shuffles |
//! | [`transpose`] | 6 to 8 | a tile in shared memory; bank conflicts; a swizzle |
//! | [`rms_norm`] | 9 and 10 | fusion |
//! | [`gemv`] | 11 to 14 | a matrix of f32: from a thread a row to shared activations |
//! | [`q8_0`] | 15 to 18 | weights of 8 bits: the file's layout, one of our own, the swizzle again, two rows a warp |
//! | [`race`] | 20 | a barrier that is missing |
//!
//! [`defects`] are no steps: mistakes and their mended twins, for the checks.
//!
//! Step 19 is a graph of kernels that stand above.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, f16))]

pub mod add;
pub mod defects;
pub mod gemv;
pub mod q8_0;
pub mod race;
pub mod rms_norm;
pub mod sum;
pub mod transpose;
