//! Tensor cores: products of small matrices that a warp holds in registers.
//!
//! [`A`], [`B`] and [`C`] are the fragments of C += A · B, with their shapes in their types, so that only what fits can be
//! multiplied:
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// c[16, 8] = a[16, k] · b[8, k]ᵀ, by one warp.
//! #[kernel(block = 32)]
//! pub unsafe fn product(a: In<f16>, b: In<f16>, c: Out<f32>, k: u32) {
//!     let (k, mut sum, mut at) = (k as usize, mma::C::<f16>::zero(), 0);
//!     while at < k {
//!         let left = mma::A::from_fn(|row, i| a.at(row * k + at + i));
//!         let right = mma::B::from_fn(|i, column| b.at(column * k + at + i));
//!         sum.add_product(left, right);
//!         at += 16;
//!     }
//!     sum.for_each(|row, column, v| c.set(8 * row + column, v));
//! }
//! # fn main() {}
//! ```
//!
//! | elements | A, B, C | from sm_80 on | sm_75 | before, and under rust-cuda |
//! |---|---|---|---|---|
//! | `f16`, sums `f32` | 16 x 16, 16 x 8, 16 x 8 | 1 `mma` | 2 | 32 shuffles, 64 `fma` |
//! | `bf16`, sums `f32` | 16 x 16, 16 x 8, 16 x 8 | 1 `mma` | as before | 32 shuffles, 64 `fma` |
//! | `i8` or `u8`, sums `i32`, wrapping | 16 x 32, 32 x 8, 16 x 8 | 1 `mma` | 4 | 32 shuffles, 32 `dp4a` |
//! | [`E4m3`](crate::fp8::E4m3) or [`E5m2`](crate::fp8::E5m2), sums `f32` | 16 x 32, 32 x 8, 16 x 8 | 1 `mma` from sm_100 on, or from sm_89 on with PTX ISA 8.4; else 2 and 12 conversions | 4, and conversions | 32 shuffles, 128 `fma`, conversions |
//! | `i8` from registers, also of half the depth | 16 x 32, 32 x 8, 16 x 8 | [`mma_i8`], [`mma_i8_k16`]: 1 `mma` | 4, 2 | 32 shuffles, 32 `dp4a` |
//! | `u8`, or one factor `u8` and the other `i8`, from registers | 16 x 32, 32 x 8, 16 x 8 | [`mma_u8`], [`mma_u8_i8`], [`mma_i8_u8`]: 1 `mma` | 4 | 32 shuffles, 32 `dp4a` |
//! | bits, sums `u32` | 16 x 128, 128 x 8, 16 x 8 | [`mma_and_popc`]: 1 `mma` | 16 shuffles | 16 shuffles |
//!
//! Integer sums are exact. `f32` sums are rounded as the architecture's tensor cores do, which differs between generations and
//! from a chain of `fma`.
//!
//! These are `asm!`, since `f16` operands are vectors, which this compiler passes to no intrinsic: never `pure`, and to be kept
//! in straight-line code and in branches and loops that a whole warp takes alike. Fragments are laid out as the PTX ISA
//! says. With `g = lane / 4`, `t = lane % 4`, `w` elements in a word (two or four) and `h` half the depth (8 or 16), a lane
//! holds:
//!
//! | matrix | register | elements |
//! |---|---|---|
//! | A | 0, 1, 2, 3 | `(g, wt..)`, `(g + 8, wt..)`, `(g, wt + h..)`, `(g + 8, wt + h..)`, `w` each |
//! | B | 0, 1 | `(wt.., g)`, `(wt + h.., g)`, `w` each, one below the other |
//! | C | 0, 1, 2, 3 | `(g, 2t)`, `(g, 2t + 1)`, `(g + 8, 2t)`, `(g + 8, 2t + 1)` |

mod bytes;
mod factor;
mod fragment;

pub use bytes::{mma_i8, mma_i8_k16, mma_i8_u8, mma_u8, mma_u8_i8};
pub use factor::Factor;
pub use fragment::{A, B, C};

use core::arch::asm;

/// `c += a * b` with `f16` factors and `f32` sums (`mma.sync.aligned.m16n8k16`), from registers.
///
/// # Safety
/// All 32 lanes make this call together.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn mma_f16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    let mut bits = c.map(f32::to_bits);
    // SAFETY: the caller's promise.
    unsafe { factor::multiply(factor::Multiplicands::F16, &mut bits, a, b) };
    *c = bits.map(f32::from_bits);
}

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident = $trans:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// All 32 lanes make this call together; every lane's address is that of 16 bytes of the block's shared memory, a
        /// multiple of 16, which were written before a barrier.
        #[inline(always)]
        pub unsafe fn $name(address: u32) -> [u32; 4] {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!("ldmatrix.sync.aligned.m8n8.x4", $trans, ".shared.b16 {{{0},{1},{2},{3}}}, [{4}];"),
                    lateout(reg32) a, lateout(reg32) b, lateout(reg32) c, lateout(reg32) d, in(reg32) address,
                    options(readonly, nostack, preserves_flags));
            }
            [a, b, c, d]
        }
    )* };
}
loads! {
    /// Four 8 x 8 matrices of 16-bit elements: lane `8 m + r` gives the address of row `r` of matrix `m`; register `m` gets
    /// elements `(g, 2t)` and `(g, 2t + 1)` of matrix `m`.
    load_matrices = "";
    /// As [`load_matrices`], transposed: register `m` gets elements `(2t, g)` and `(2t + 1, g)`.
    load_matrices_transposed = ".trans";
}

macro_rules! two_loads {
    ($($(#[$doc:meta])* $name:ident = $trans:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`load_matrices`], for the addresses of lanes 0 to 15.
        #[inline(always)]
        pub unsafe fn $name(address: u32) -> [u32; 2] {
            let (a, b): (u32, u32);
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!("ldmatrix.sync.aligned.m8n8.x2", $trans, ".shared.b16 {{{0},{1}}}, [{2}];"),
                    lateout(reg32) a, lateout(reg32) b, in(reg32) address, options(readonly, nostack, preserves_flags));
            }
            [a, b]
        }
    )* };
}
two_loads! {
    /// As [`load_matrices`], two of them.
    load_two_matrices = "";
    /// As [`load_matrices_transposed`], two of them.
    load_two_matrices_transposed = ".trans";
}

/// `c + popcount(a & b)` of rows of 128 bits (`mma.sync.aligned.m16n8k128` with `.and.popc`): element `(i, j)` counts the
/// bits that row `i` of `a` and column `j` of `b` have in common. With `g = lane / 4` and `t = lane % 4` a lane holds words
/// `t` of rows `g` and `g + 8` of `a`, word `t` of column `g` of `b`, and of `c` what [the last table](self) says, as integers.
///
/// One instruction from sm_80 on (native on sm_80 to sm_90, made of `s8` products by ptxas on later ones); before, the
/// words go round among the lanes: 16 shuffles and 16 counts.
///
/// # Safety
/// All 32 lanes make this call together.
#[inline(always)]
pub unsafe fn mma_and_popc(a: [u32; 2], b: u32, c: [u32; 4]) -> [u32; 4] {
    #[cfg(target_feature = "sm_80")]
    {
        let (d0, d1, d2, d3): (u32, u32, u32, u32);
        // SAFETY: the caller's promise; registers only.
        unsafe {
            asm!(
                "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {{{0},{1},{2},{3}}}, {{{4},{5}}}, {{{6}}}, {{{7},{8},{9},{10}}};",
                lateout(reg32) d0, lateout(reg32) d1, lateout(reg32) d2, lateout(reg32) d3,
                in(reg32) a[0], in(reg32) a[1], in(reg32) b,
                in(reg32) c[0], in(reg32) c[1], in(reg32) c[2], in(reg32) c[3],
                options(nomem, nostack, preserves_flags)
            );
        }
        [d0, d1, d2, d3]
    }
    #[cfg(not(target_feature = "sm_80"))]
    {
        use crate::warp::{FULL, shuffle_idx};
        let lane = crate::thread::lane();
        let (row, column) = (lane & !3, (lane & 3) * 8);
        let mut d = c;
        for word in 0..4 {
            // SAFETY: the caller's promise: all lanes are here.
            let (a, b) = unsafe {
                (
                    [shuffle_idx(FULL, a[0], row + word), shuffle_idx(FULL, a[1], row + word)],
                    [shuffle_idx(FULL, b, column + word), shuffle_idx(FULL, b, column + 4 + word)],
                )
            };
            for i in 0..4 {
                d[i] = d[i].wrapping_add((a[i / 2] & b[i % 2]).count_ones());
            }
        }
        d
    }
}
