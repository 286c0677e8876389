//! Tensor cores: products of small matrices that a warp holds in registers.
//!
//! `f16` operands are vectors, which this compiler passes to no intrinsic, so these are `asm!`: never `pure`, and to be kept
//! in straight-line code and in branches and loops that a whole warp takes alike. Fragments are laid out as the PTX ISA
//! says; with `g = lane / 4` and `t = lane % 4` a lane holds:
//!
//! | matrix | register | elements |
//! |---|---|---|
//! | A, 16 x 16 | 0, 1, 2, 3 | `(g, 2t..)`, `(g + 8, 2t..)`, `(g, 2t + 8..)`, `(g + 8, 2t + 8..)`, two `f16` each |
//! | B, 16 x 8 | 0, 1 | `(2t.., g)`, `(2t + 8.., g)`, two `f16` each, one below the other |
//! | C, D, 16 x 8 | 0, 1, 2, 3 | `(g, 2t)`, `(g, 2t + 1)`, `(g + 8, 2t)`, `(g + 8, 2t + 1)`, `f32` |

use core::arch::asm;

/// `c += a * b` with `f16` factors and `f32` sums (`mma.sync.aligned.m16n8k16`).
///
/// # Safety
/// All 32 lanes make this call together.
#[cfg(any(target_feature = "sm_80", doc))]
#[inline(always)]
pub unsafe fn mma_f16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: the caller's promise; registers only.
    unsafe {
        asm!(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{0},{1},{2},{3}}}, {{{4},{5},{6},{7}}}, {{{8},{9}}}, {{{0},{1},{2},{3}}};",
            inout(reg32) c[0], inout(reg32) c[1], inout(reg32) c[2], inout(reg32) c[3],
            in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1],
            options(nomem, nostack, preserves_flags)
        );
    }
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

/// `c + popcount(a & b)` of rows of 128 bits (`mma.sync.aligned.m16n8k128` with `.and.popc`): element `(i, j)` counts the
/// bits that row `i` of `a` and column `j` of `b` have in common. With `g = lane / 4` and `t = lane % 4` a lane holds words
/// `t` of rows `g` and `g + 8` of `a`, word `t` of column `g` of `b`, and of `c` what [the table](self) says, as integers.
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
