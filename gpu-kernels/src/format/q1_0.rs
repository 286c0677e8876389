//! Q1_0 (Q1_0_g128): `w = bit ? d : -d`; a block is f16 `d` at byte 0 and 128 bits from byte 2 on,
//! the lowest bit first. There is no zero but by `d = 0`.
//!
//! Codes plane: the bytes as stored, 4 words a block. Word `p` holds the elements `32p .. 32p + 32`.

use super::{Block, unpack::flip_sign};

/// The format's block.
#[derive(Clone, Copy, Debug)]
pub struct Q1_0;

/// `s` and the four activations, each with the sign that bits `AT .. AT + 4` of `minus` (1: negative) give it.
#[inline(always)]
fn add4<const AT: u32>(minus: u32, x: [f32; 4], s: f32) -> f32 {
    let signed = |x: f32, bit: u32| flip_sign(x, minus << (31 - bit));
    s + signed(x[0], AT) + signed(x[1], AT + 1) + signed(x[2], AT + 2) + signed(x[3], AT + 3)
}

impl Block for Q1_0 {
    const ELEMS: usize = 128;
    const WORDS: usize = 4;
    const PARTS: usize = 4;

    #[inline(always)]
    fn dot(word: u32, place: usize, lane: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        // A lane reads 128 bytes, as its neighbours do: each starts at another 16 of them, and a
        // rotation puts the bits that belong there to the front.
        let turn = lane % 8;
        let minus = (!word).rotate_right(4 * turn as u32);
        let x = |k: usize| x4(32 * place + 4 * ((k + turn) % 8));
        let even = add4::<8>(minus, x(2), add4::<0>(minus, x(0), 0.0));
        let odd = add4::<12>(minus, x(3), add4::<4>(minus, x(1), 0.0));
        let even = add4::<24>(minus, x(6), add4::<16>(minus, x(4), even));
        let odd = add4::<28>(minus, x(7), add4::<20>(minus, x(5), odd));
        even + odd
    }

    #[inline(always)]
    fn dot_part(word: u32, place: usize, part: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32 {
        let minus = !word >> (8 * part as u32);
        let s = add4::<0>(minus, x4(32 * place + 8 * part), 0.0);
        add4::<4>(minus, x4(32 * place + 8 * part + 4), s)
    }

    #[inline(always)]
    fn place_of(i: usize) -> usize {
        i / 32
    }

    #[inline(always)]
    fn code(word: u32, i: usize) -> f32 {
        if (word >> (i as u32 % 32)) & 1 == 1 { 1.0 } else { -1.0 }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::Q1_0;
    use crate::format::{
        Codec,
        codec::{f16_at, pack_words, scale_not_finite},
    };
    use half::f16;

    impl Codec for Q1_0 {
        fn name(&self) -> &'static str {
            "Q1_0"
        }
        fn type_id(&self) -> u32 {
            41
        }
        fn block_elems(&self) -> usize {
            128
        }
        fn block_bytes(&self) -> usize {
            18
        }
        fn split(&self) -> Option<(usize, usize)> {
            Some((4, 1))
        }
        fn decode(&self, block: &[u8], out: &mut [f32]) {
            let d = f16_at(block, 0).to_f32();
            for (i, out) in out.iter_mut().enumerate() {
                *out = if (block[2 + i / 8] >> (i % 8)) & 1 == 1 { d } else { -d };
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
