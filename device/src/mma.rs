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
