//! Codes of one to three bits: Q1_0, the 2-bit and ternary formats, Q2_K, Q3_K.

use super::{
    decode::{Bytes, Decode, Scales, block_f16},
    halves::{Eight, Halves, flip_signs},
    record::{Memory, Record, Spec},
    unpack::{byte_minus, bytes_minus, flip_sign, offset},
};
use warpsmith_device::{convert::unpack_f16x2, packed::F16x2};

/// Q1_0 (`Q1_0_g128`): the word of a unit has bit `i` set where weight `i` is `-d`.
#[derive(Clone, Copy, Debug)]
pub struct Q1_0;

impl Decode for Q1_0 {
    const SPEC: Spec = Spec { code_words: 1, high_words: 0, scale_bytes: 0, block_bytes: 2, block_units: 2 };
    type Codes<M: Memory> = u32;

    #[inline(always)]
    unsafe fn codes_of<M: Memory>(_: M, _: &Record, _: usize, words: [u32; 4]) -> u32 {
        words[0]
    }
    #[inline(always)]
    fn quad<M: Memory>(minus: &u32, q: usize) -> [f32; 4] {
        let sign = |i: u32| flip_sign(1.0, minus << (31 - 4 * q as u32 - i));
        [sign(0), sign(1), sign(2), sign(3)]
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        Scales::one(unsafe { block_f16(m, r, u) })
    }
}

impl Halves for Q1_0 {
    type Unit<M: Memory> = u32;
    /// The scale twice.
    type Scale = F16x2;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Self::codes(m, r, u) }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> F16x2 {
        F16x2::splat_f32(scales.scale[0] * Self::LARGER)
    }
    #[inline(always)]
    fn eight<M: Memory>(minus: &u32, v: usize, scale: &F16x2) -> Eight {
        flip_signs([scale.to_bits(); 4], minus >> (8 * v as u32) & 255)
    }
}

/// Codes of two bits in two words: element `16 t + 4 k + j` is in word `t`, byte `j`, bits `2 k` and `2 k + 1`.
#[inline(always)]
fn two_bits(words: &[u32; 2], q: usize) -> u32 {
    (words[q / 4] >> (2 * (q as u32 % 4))) & 0x0303_0303
}

macro_rules! bytes {
    ($F:ident: |$c:ident, $q:ident| $bytes:expr, less $offset:literal) => {
        impl Bytes for $F {
            const OFFSET: i32 = $offset;
            #[inline(always)]
            fn bytes<M: Memory>($c: &Self::Codes<M>, $q: usize) -> u32 {
                $bytes
            }
        }
    };
}
bytes!(Q2_0: |codes, q| two_bits(codes, q), less 1);
bytes!(Q2_K: |codes, q| two_bits(codes, q), less 0);
bytes!(Q3_K: |codes, q| {
    let high = (if q < 6 { codes[2] >> q as u32 } else { codes[2] << (8 - q as u32) }) & 0x0404_0404;
    two_bits(&[codes[0], codes[1]], q) | high
}, less 4);

macro_rules! pairs_of_words {
    () => {
        #[inline(always)]
        fn quad<M: Memory>(codes: &[u32; 2], q: usize) -> [f32; 4] {
            bytes_minus(Self::bytes::<M>(codes, q), const { offset(Self::OFFSET as u32) })
        }
        #[inline(always)]
        unsafe fn codes_of<M: Memory>(_: M, _: &Record, _: usize, words: [u32; 4]) -> [u32; 2] {
            [words[0], words[1]]
        }
    };
}

/// `(c - 1) * d`: TQ2_0_g128, PQ2_0, Q2_0, TQ2_0, and TQ1_0 and PTQ1_0 once their digits are codes of two bits. How
/// many weights share `d` is an argument.
#[derive(Clone, Copy, Debug)]
pub struct Q2_0;

impl Decode for Q2_0 {
    const SPEC: Spec = Spec { code_words: 2, high_words: 0, scale_bytes: 0, block_bytes: 2, block_units: Spec::ANY };
    type Codes<M: Memory> = [u32; 2];

    pairs_of_words!();
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        Scales::one(unsafe { block_f16(m, r, u) })
    }
}

/// `c * d * s - dmin * n`; a unit's two bytes of scales are `s | n << 4` of its halves, a block's are `d` and `dmin`.
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct Q2_K;

impl Decode for Q2_K {
    const SPEC: Spec = Spec { code_words: 2, high_words: 0, scale_bytes: 2, block_bytes: 4, block_units: 3 };
    const SCALES: usize = 2;
    const SHIFTED: bool = true;
    type Codes<M: Memory> = [u32; 2];

    pairs_of_words!();
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        let (sub, block) = unsafe { (u32::from(m.half(r.scales / 2 + u)), m.word(r.blocks / 4 + (u >> 3))) };
        let (d, dmin) = unpack_f16x2(block);
        let (low, high) = (sub & 0x0F0F, (sub >> 4) & 0x0F0F);
        let zero = const { offset(0) };
        Scales {
            scale: [d * byte_minus::<0>(low, zero), d * byte_minus::<1>(low, zero)],
            shift: [-dmin * byte_minus::<0>(high, zero), -dmin * byte_minus::<1>(high, zero)],
        }
    }
}

/// `d * (s - 32) * (c - 4)`; the third bit of element `4 q + j` is bit `(q + 2) % 8` of byte `j` of the high word; a
/// unit's two bytes of scales are the `s` of its halves.
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct Q3_K;

impl Decode for Q3_K {
    const SPEC: Spec = Spec { code_words: 2, high_words: 1, scale_bytes: 2, block_bytes: 2, block_units: 3 };
    const SCALES: usize = 2;
    type Codes<M: Memory> = [u32; 3];

    #[inline(always)]
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, words: [u32; 4]) -> [u32; 3] {
        // SAFETY: the caller's promise.
        [words[0], words[1], unsafe { m.word(r.high + u) }]
    }
    #[inline(always)]
    fn quad<M: Memory>(codes: &[u32; 3], q: usize) -> [f32; 4] {
        bytes_minus(Self::bytes::<M>(codes, q), const { offset(Self::OFFSET as u32) })
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        let (sub, d) = unsafe { (u32::from(m.half(r.scales / 2 + u)), block_f16(m, r, u)) };
        let centre = const { offset(32) };
        Scales { scale: [d * byte_minus::<0>(sub, centre), d * byte_minus::<1>(sub, centre)], shift: [0.0; 2] }
    }
}
