//! What tensor cores multiply, by element type.

use crate::{
    Element, bf16, f16,
    fp8::{E4m3, E5m2},
};
#[cfg(target_feature = "sm_75")]
use core::arch::asm;

/// The instruction of a type of elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Multiplicands {
    /// `f16`.
    F16,
    /// `bf16`.
    Bf16,
    /// `i8`.
    I8,
    /// `u8`.
    U8,
    /// `u8` times `i8`.
    U8I8,
    /// `i8` times `u8`.
    I8U8,
    /// `fp8::E4m3`.
    E4m3,
    /// `fp8::E5m2`.
    E5m2,
}

/// An element of the factors of a tensor-core product: `f16`, `bf16`, `fp8::E4m3` and `fp8::E5m2` with `f32` sums,
/// `i8` and `u8` with `i32` sums.
///
/// # Safety
/// `KIND` is that of the type, and `Sum` has 4 bytes.
pub unsafe trait Factor: Element {
    /// What products are added up in.
    type Sum: Element + Default;
    /// Which it is.
    const KIND: Multiplicands;
    /// Columns of A and rows of B: 32 bytes.
    const DEPTH: usize = 32 / size_of::<Self>();
}

macro_rules! factors {
    ($($t:ty: $kind:ident, $sum:ty;)*) => { $(
        // SAFETY: as the names say.
        unsafe impl Factor for $t {
            type Sum = $sum;
            const KIND: Multiplicands = Multiplicands::$kind;
        }
    )* };
}
factors! {
    f16: F16, f32;
    bf16: Bf16, f32;
    i8: I8, i32;
    u8: U8, i32;
    E4m3: E4m3, f32;
    E5m2: E5m2, f32;
}

/// `c += a * b` of the warp; sums are bits.
///
/// # Safety
/// All 32 lanes make this call together.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub(super) unsafe fn multiply(kind: Multiplicands, c: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
    // Eight bits as two products of 16, in which every value of theirs is exact: the lower two bytes of each word, then the
    // upper two. Which columns of A meet in a product is all one, as long as B's rows are the same.
    #[cfg(all(target_feature = "sm_75", not(all(target_feature = "sm_89", target_feature = "ptx84"))))]
    if let Some(halves) = halves_of(kind) {
        let mut shift = 0;
        while shift < 32 {
            let half = |word: u32| halves((word >> shift) as u16).to_bits();
            let (a, b) = ([half(a[0]), half(a[1]), half(a[2]), half(a[3])], [half(b[0]), half(b[1])]);
            // SAFETY: the caller's promise.
            unsafe { multiply_words(Multiplicands::F16, c, a, b) };
            shift += 16;
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { multiply_words(kind, c, a, b) }
}

/// How a pair of eight-bit floats becomes one of `f16`.
#[cfg(all(target_feature = "sm_75", not(all(target_feature = "sm_89", target_feature = "ptx84"))))]
#[inline(always)]
fn halves_of(kind: Multiplicands) -> Option<fn(u16) -> crate::packed::F16x2> {
    match kind {
        Multiplicands::E4m3 => Some(E4m3::unpack_f16x2),
        Multiplicands::E5m2 => Some(E5m2::unpack_f16x2),
        _ => None,
    }
}

/// The same, of elements for which there is an instruction.
///
/// # Safety
/// As [`multiply`].
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
unsafe fn multiply_words(kind: Multiplicands, c: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
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
            Multiplicands::F16 => full!("m16n8k16.row.col.f32.f16.f16.f32"),
            Multiplicands::Bf16 => full!("m16n8k16.row.col.f32.bf16.bf16.f32"),
            Multiplicands::I8 => full!("m16n8k32.row.col.s32.s8.s8.s32"),
            Multiplicands::U8 => full!("m16n8k32.row.col.s32.u8.u8.s32"),
            Multiplicands::U8I8 => full!("m16n8k32.row.col.s32.u8.s8.s32"),
            Multiplicands::I8U8 => full!("m16n8k32.row.col.s32.s8.u8.s32"),
            #[cfg(all(target_feature = "sm_89", target_feature = "ptx84"))]
            Multiplicands::E4m3 => full!("m16n8k32.row.col.f32.e4m3.e4m3.f32"),
            #[cfg(all(target_feature = "sm_89", target_feature = "ptx84"))]
            Multiplicands::E5m2 => full!("m16n8k32.row.col.f32.e5m2.e5m2.f32"),
            // They came as `f16`.
            #[cfg(not(all(target_feature = "sm_89", target_feature = "ptx84")))]
            Multiplicands::E4m3 | Multiplicands::E5m2 => {}
        }
        #[cfg(all(target_feature = "sm_75", not(target_feature = "sm_80")))]
        match kind {
            Multiplicands::F16 => {
                half!(0);
                half!(1);
            }
            Multiplicands::Bf16 => by_shuffles(kind, c, a, b),
            Multiplicands::I8 => quarter!("m8n8k16.row.col.s32.s8.s8.s32", 0 1 2 3),
            Multiplicands::U8 => quarter!("m8n8k16.row.col.s32.u8.u8.s32", 0 1 2 3),
            Multiplicands::U8I8 => quarter!("m8n8k16.row.col.s32.u8.s8.s32", 0 1 2 3),
            Multiplicands::I8U8 => quarter!("m8n8k16.row.col.s32.s8.u8.s32", 0 1 2 3),
            Multiplicands::E4m3 | Multiplicands::E5m2 => {}
        }
        #[cfg(not(target_feature = "sm_75"))]
        by_shuffles(kind, c, a, b);
    }
}

/// The product without tensor cores: words go round among the lanes. 32 shuffles, and 32 [`dot`]s.
#[cfg(not(target_feature = "sm_80"))]
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
unsafe fn by_shuffles(kind: Multiplicands, c: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
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
fn dot(kind: Multiplicands, a: u32, b: u32, c: u32) -> u32 {
    use crate::{
        convert::{unpack_bf16x2, unpack_f16x2},
        math::{dp4a, dp4a_u, dp4a_us, fma},
    };
    let pairs = |a: (f32, f32), b: (f32, f32)| fma(a.1, b.1, fma(a.0, b.0, f32::from_bits(c))).to_bits();
    match kind {
        Multiplicands::F16 => pairs(unpack_f16x2(a), unpack_f16x2(b)),
        Multiplicands::Bf16 => pairs(unpack_bf16x2(a), unpack_bf16x2(b)),
        Multiplicands::I8 => dp4a(a as i32, b as i32, c as i32) as u32,
        Multiplicands::U8 => dp4a_u(a, b, c),
        Multiplicands::U8I8 => dp4a_us(a, b as i32, c as i32) as u32,
        Multiplicands::I8U8 => dp4a_us(b, a as i32, c as i32) as u32,
        Multiplicands::E4m3 => quads(E4m3::unpack, a, b, c),
        Multiplicands::E5m2 => quads(E5m2::unpack, a, b, c),
    }
}

/// [`dot`] of four eight-bit floats a word.
#[cfg(not(target_feature = "sm_80"))]
#[inline(always)]
fn quads(unpack: impl Fn(u16) -> (f32, f32), a: u32, b: u32, c: u32) -> u32 {
    let pair = |shift: u32, sum: f32| {
        let ((a0, a1), (b0, b1)) = (unpack((a >> shift) as u16), unpack((b >> shift) as u16));
        crate::math::fma(a1, b1, crate::math::fma(a0, b0, sum))
    };
    pair(16, pair(0, f32::from_bits(c))).to_bits()
}
