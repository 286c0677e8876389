//! What tensor cores multiply, by element type.

use crate::{Element, bf16, f16};
#[cfg(target_feature = "sm_75")]
use core::arch::asm;

/// The instruction of a type of elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `f16`.
    F16,
    /// `bf16`.
    Bf16,
    /// `i8`.
    I8,
    /// `u8`.
    U8,
}

/// An element of the factors of a tensor-core product: `f16` and `bf16` with `f32` sums, `i8` and `u8` with `i32` sums.
///
/// # Safety
/// `KIND` is that of the type, and `Sum` has 4 bytes.
pub unsafe trait Factor: Element {
    /// What products are added up in.
    type Sum: Element + Default;
    /// Which it is.
    const KIND: Kind;
    /// Columns of A and rows of B: 32 bytes.
    const DEPTH: usize = 32 / size_of::<Self>();
}

macro_rules! factors {
    ($($t:ty: $kind:ident, $sum:ty;)*) => { $(
        // SAFETY: as the names say.
        unsafe impl Factor for $t {
            type Sum = $sum;
            const KIND: Kind = Kind::$kind;
        }
    )* };
}
factors! {
    f16: F16, f32;
    bf16: Bf16, f32;
    i8: I8, i32;
    u8: U8, i32;
}

/// `c += a * b` of the warp; sums are bits.
///
/// # Safety
/// All 32 lanes make this call together.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub(super) unsafe fn multiply(kind: Kind, c: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
    /// One instruction from sm_80 on.
    #[cfg(target_feature = "sm_80")]
    macro_rules! full {
        ($types:literal) => {
            asm!(concat!("mma.sync.aligned.", $types, " {{{0},{1},{2},{3}}}, {{{4},{5},{6},{7}}}, {{{8},{9}}}, {{{0},{1},{2},{3}}};"),
                inout(reg32) c[0], inout(reg32) c[1], inout(reg32) c[2], inout(reg32) c[3],
                in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1],
                options(nomem, nostack, preserves_flags))
        };
    }
    /// Half the depth.
    #[cfg(all(target_feature = "sm_75", not(target_feature = "sm_80")))]
    macro_rules! half {
        ($half:literal) => {
            asm!("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{{0},{1},{2},{3}}}, {{{4},{5}}}, {{{6}}}, {{{0},{1},{2},{3}}};",
                inout(reg32) c[0], inout(reg32) c[1], inout(reg32) c[2], inout(reg32) c[3],
                in(reg32) a[2 * $half], in(reg32) a[2 * $half + 1], in(reg32) b[$half],
                options(nomem, nostack, preserves_flags))
        };
    }
    /// Half the depth and half the rows: register `$part` of A.
    #[cfg(all(target_feature = "sm_75", not(target_feature = "sm_80")))]
    macro_rules! quarter {
        ($types:literal, $($part:literal)*) => {{ $(
            asm!(concat!("mma.sync.aligned.", $types, " {{{0},{1}}}, {{{2}}}, {{{3}}}, {{{0},{1}}};"),
                inout(reg32) c[$part % 2 * 2], inout(reg32) c[$part % 2 * 2 + 1], in(reg32) a[$part], in(reg32) b[$part / 2],
                options(nomem, nostack, preserves_flags));
        )* }};
    }
    // SAFETY: the caller's promise; registers only.
    unsafe {
        #[cfg(target_feature = "sm_80")]
        match kind {
            Kind::F16 => full!("m16n8k16.row.col.f32.f16.f16.f32"),
            Kind::Bf16 => full!("m16n8k16.row.col.f32.bf16.bf16.f32"),
            Kind::I8 => full!("m16n8k32.row.col.s32.s8.s8.s32"),
            Kind::U8 => full!("m16n8k32.row.col.s32.u8.u8.s32"),
        }
        #[cfg(all(target_feature = "sm_75", not(target_feature = "sm_80")))]
        match kind {
            Kind::F16 => {
                half!(0);
                half!(1);
            }
            Kind::Bf16 => by_shuffles(kind, c, a, b),
            Kind::I8 => quarter!("m8n8k16.row.col.s32.s8.s8.s32", 0 1 2 3),
            Kind::U8 => quarter!("m8n8k16.row.col.s32.u8.u8.s32", 0 1 2 3),
        }
        #[cfg(not(target_feature = "sm_75"))]
        by_shuffles(kind, c, a, b);
    }
}

/// The product without tensor cores: words go round among the lanes. 32 shuffles, and 32 [`dot`]s.
#[cfg(not(target_feature = "sm_80"))]
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
unsafe fn by_shuffles(kind: Kind, c: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
    use crate::warp::{FULL, shuffle_idx};
    let lane = crate::thread::lane();
    let (row, column) = (lane & !3, (lane & 3) * 8);
    let mut word = 0;
    while word < 4 {
        // SAFETY: the caller's promise: all lanes are here.
        let (a, b) = unsafe {
            (
                [
                    shuffle_idx(FULL, a[0], row + word),
                    shuffle_idx(FULL, a[1], row + word),
                    shuffle_idx(FULL, a[2], row + word),
                    shuffle_idx(FULL, a[3], row + word),
                ],
                [
                    shuffle_idx(FULL, b[0], column + word),
                    shuffle_idx(FULL, b[0], column + 4 + word),
                    shuffle_idx(FULL, b[1], column + word),
                    shuffle_idx(FULL, b[1], column + 4 + word),
                ],
            )
        };
        let mut i = 0;
        while i < 4 {
            let low = dot(kind, a[i / 2], b[i % 2], c[i]);
            c[i] = dot(kind, a[i / 2 + 2], b[i % 2 + 2], low);
            i += 1;
        }
        word += 1;
    }
}

/// The sum `c` plus the products of the elements of two words.
#[cfg(not(target_feature = "sm_80"))]
#[inline(always)]
fn dot(kind: Kind, a: u32, b: u32, c: u32) -> u32 {
    use crate::{
        convert::{unpack_bf16x2, unpack_f16x2},
        math::{dp4a, dp4a_u, fma},
    };
    let pairs = |a: (f32, f32), b: (f32, f32)| fma(a.1, b.1, fma(a.0, b.0, f32::from_bits(c))).to_bits();
    match kind {
        Kind::F16 => pairs(unpack_f16x2(a), unpack_f16x2(b)),
        Kind::Bf16 => pairs(unpack_bf16x2(a), unpack_bf16x2(b)),
        Kind::I8 => dp4a(a as i32, b as i32, c as i32) as u32,
        Kind::U8 => dp4a_u(a, b, c),
    }
}
