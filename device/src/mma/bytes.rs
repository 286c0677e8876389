//! Products of bytes whose sums begin with anything, and of half their depth.

#[cfg(not(target_feature = "sm_80"))]
use super::factor::{Multiplicands, multiply};
#[cfg(target_feature = "sm_75")]
use core::arch::asm;

macro_rules! products {
    ($($(#[$doc:meta])* $name:ident: $types:literal, $kind:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// All 32 lanes make this call together.
        #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
        pub unsafe fn $name(c: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4] {
            #[cfg(target_feature = "sm_80")]
            {
                let (d0, d1, d2, d3): (i32, i32, i32, i32);
                // SAFETY: the caller's promise; registers only.
                unsafe {
                    asm!(
                        concat!("mma.sync.aligned.m16n8k32.row.col.s32.", $types, ".s32 {{{0},{1},{2},{3}}}, {{{4},{5},{6},{7}}}, {{{8},{9}}}, {{{10},{11},{12},{13}}};"),
                        lateout(reg32) d0, lateout(reg32) d1, lateout(reg32) d2, lateout(reg32) d3,
                        in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1],
                        in(reg32) c[0], in(reg32) c[1], in(reg32) c[2], in(reg32) c[3],
                        options(nomem, nostack, preserves_flags)
                    );
                }
                [d0, d1, d2, d3]
            }
            #[cfg(not(target_feature = "sm_80"))]
            {
                let mut sums = c.map(|sum| sum as u32);
                // SAFETY: the caller's promise.
                unsafe { multiply(Multiplicands::$kind, &mut sums, a, b) };
                sums.map(|sum| sum as i32)
            }
        }
    )* };
}
products! {
    /// `c + a * b` of signed bytes, 32 deep (`mma.sync.aligned.m16n8k32`); sums are exact, and wrap. They are a value of their own, so
    /// that none are copied that are used again. Registers are laid out as [the last table](super) says. One instruction from sm_80 on,
    /// four on sm_75, and before that 32 shuffles and 32 `dp4a`.
    mma_i8: "s8.s8", I8;
    /// As [`mma_i8`], of unsigned bytes.
    mma_u8: "u8.u8", U8;
    /// As [`mma_i8`], of unsigned bytes of `a` and signed ones of `b`.
    mma_u8_i8: "u8.s8", U8I8;
    /// As [`mma_i8`], of signed bytes of `a` and unsigned ones of `b`.
    mma_i8_u8: "s8.u8", I8U8;
}

/// As [`mma_i8`], 16 deep (`mma.sync.aligned.m16n8k16`): half of its registers of A and of B.
///
/// # Safety
/// All 32 lanes make this call together.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn mma_i8_k16(c: [i32; 4], a: [u32; 2], b: u32) -> [i32; 4] {
    #[cfg(target_feature = "sm_80")]
    {
        let (d0, d1, d2, d3): (i32, i32, i32, i32);
        // SAFETY: the caller's promise; registers only.
        unsafe {
            asm!(
                "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {{{0},{1},{2},{3}}}, {{{4},{5}}}, {{{6}}}, {{{7},{8},{9},{10}}};",
                lateout(reg32) d0, lateout(reg32) d1, lateout(reg32) d2, lateout(reg32) d3,
                in(reg32) a[0], in(reg32) a[1], in(reg32) b,
                in(reg32) c[0], in(reg32) c[1], in(reg32) c[2], in(reg32) c[3],
                options(nomem, nostack, preserves_flags)
            );
        }
        [d0, d1, d2, d3]
    }
    #[cfg(all(target_feature = "sm_75", not(target_feature = "sm_80")))]
    {
        let mut d = c;
        for half in 0..2 {
            // SAFETY: the caller's promise; registers only.
            unsafe {
                asm!("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {{{0},{1}}}, {{{2}}}, {{{3}}}, {{{0},{1}}};",
                    inout(reg32) d[2 * half], inout(reg32) d[2 * half + 1], in(reg32) a[half], in(reg32) b,
                    options(nomem, nostack, preserves_flags));
            }
        }
        d
    }
    #[cfg(not(target_feature = "sm_75"))]
    // SAFETY: the caller's promise.
    unsafe {
        mma_i8(c, [a[0], a[1], 0, 0], [b, 0])
    }
}
