//! Q4_0: `w = d * (c - 8)`; a block is f16 `d` at byte 0 and 16 bytes of codes from byte 2 on: the
//! low nibble of byte `j` is element `j`, the high nibble element `16 + j`.
//!
//! Codes plane: the bytes as stored, 4 words a block. Word `p` holds the elements `4p .. 4p + 4` in
//! its low nibbles and `16 + 4p ..` in its high ones.

use super::{
    Block,
    unpack::{byte_minus, offset},
};
use warpsmith_device::math::fma;

/// The format's block.
#[derive(Clone, Copy, Debug)]
pub struct Q4_0;

const CENTRE: f32 = offset(8);
const LOW: u32 = 0x0F0F_0F0F;

/// Four nibbles (a byte each) times four activations, on top of `s`.
#[inline(always)]
fn dot4(nibbles: u32, x: [f32; 4], s: f32) -> f32 {
    let s = fma(byte_minus::<0>(nibbles, CENTRE), x[0], s);
    let s = fma(byte_minus::<1>(nibbles, CENTRE), x[1], s);
    let s = fma(byte_minus::<2>(nibbles, CENTRE), x[2], s);
    fma(byte_minus::<3>(nibbles, CENTRE), x[3], s)
}

impl Block for Q4_0 {
    const ELEMS: usize = 32;
    const WORDS: usize = 4;
    const PARTS: usize = 2;

    #[inline(always)]
    fn dot(word: u32, place: usize, lane: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        // Four lanes share a block. Every other group of four takes the upper half first.
        let upper = (lane / 4) & 1;
        let shift = 4 * upper as u32;
        let s = dot4((word >> shift) & LOW, x4(4 * place + 16 * upper), 0.0);
        dot4((word >> (4 - shift)) & LOW, x4(4 * place + 16 - 16 * upper), s)
    }

    #[inline(always)]
    fn dot_part(word: u32, place: usize, part: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        dot4((word >> (4 * part as u32)) & LOW, x4(4 * place + 16 * part), 0.0)
    }

    #[inline(always)]
    fn place_of(i: usize) -> usize {
        i % 16 / 4
    }

    #[inline(always)]
    fn code(word: u32, i: usize) -> f32 {
        let i = i as u32;
        byte_minus::<0>((word >> (8 * (i % 4) + i / 16 * 4)) & 15, CENTRE)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::Q4_0;
    use crate::format::{
        Codec,
        codec::{f16_at, pack_words, scale_not_finite},
    };
    use half::f16;

    impl Codec for Q4_0 {
        fn name(&self) -> &'static str {
            "Q4_0"
        }
        fn type_id(&self) -> u32 {
            2
        }
        fn block_elems(&self) -> usize {
            32
        }
        fn block_bytes(&self) -> usize {
            18
        }
        fn split(&self) -> Option<(usize, usize)> {
            Some((4, 1))
        }
        fn decode(&self, block: &[u8], out: &mut [f32]) {
            let d = f16_at(block, 0).to_f32();
            for (j, byte) in block[2..].iter().enumerate() {
                out[j] = d * (f32::from(byte & 15) - 8.0);
                out[j + 16] = d * (f32::from(byte >> 4) - 8.0);
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
