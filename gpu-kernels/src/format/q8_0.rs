//! Q8_0: `w = d * q`; a block is f16 `d` at byte 0 and 32 signed bytes `q` from byte 2 on.
//!
//! Codes plane: the bytes as stored, 8 words a block. Word `p` holds the elements `4p .. 4p + 4`.

use super::{
    Block,
    unpack::{byte_minus, offset},
};
use warpsmith_device::math::fma;

/// The format's block.
#[derive(Clone, Copy, Debug)]
pub struct Q8_0;

const CENTRE: f32 = offset(128);

impl Block for Q8_0 {
    const ELEMS: usize = 32;
    const WORDS: usize = 8;
    const PARTS: usize = 1;

    #[inline(always)]
    fn dot(word: u32, place: usize, _lane: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        // Signed byte q becomes the unsigned q + 128.
        let w = word ^ 0x8080_8080;
        let x = x4(4 * place);
        let s = byte_minus::<0>(w, CENTRE) * x[0];
        let s = fma(byte_minus::<1>(w, CENTRE), x[1], s);
        let s = fma(byte_minus::<2>(w, CENTRE), x[2], s);
        fma(byte_minus::<3>(w, CENTRE), x[3], s)
    }

    #[inline(always)]
    fn dot_part(word: u32, place: usize, _part: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        Self::dot(word, place, 0, x4)
    }

    #[inline(always)]
    fn place_of(i: usize) -> usize {
        i / 4
    }

    #[inline(always)]
    fn code(word: u32, i: usize) -> f32 {
        let byte = (word ^ 0x8080_8080) >> (8 * (i as u32 % 4));
        byte_minus::<0>(byte, CENTRE)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::Q8_0;
    use crate::format::{
        Codec,
        codec::{f16_at, pack_words, scale_not_finite},
    };
    use half::f16;

    impl Codec for Q8_0 {
        fn name(&self) -> &'static str {
            "Q8_0"
        }
        fn type_id(&self) -> u32 {
            8
        }
        fn block_elems(&self) -> usize {
            32
        }
        fn block_bytes(&self) -> usize {
            34
        }
        fn split(&self) -> Option<(usize, usize)> {
            Some((8, 1))
        }
        fn decode(&self, block: &[u8], out: &mut [f32]) {
            let d = f16_at(block, 0).to_f32();
            for (out, q) in out.iter_mut().zip(&block[2..]) {
                *out = d * f32::from(*q as i8);
            }
        }
        fn not_finite(&self, block: &[u8]) -> Option<f32> {
            scale_not_finite(block, 0)
        }
        fn pack(&self, block: &[u8], words: &mut [u32], scales: &mut [f16]) {
            scales[0] = f16_at(block, 0);
            pack_words(&block[2..], words);
        }
    }
}
