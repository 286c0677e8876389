//! Places of a grid as f16. What is loaded of a unit are its words alone; places are looked up where they are multiplied, so that nothing
//! waits for memory twice.

use super::{
    super::{
        decode::{Decode, Scales},
        halves::{Eight, Halves, Pairs, flip_signs},
        record::{Memory, Record},
        unpack::{pairs_minus, permute, small},
    },
    IQ1, IQ2, IQ3, LEVELS_1, LEVELS_2, LEVELS_3, PLACES_1, PLACES_2, PLACES_3, place,
};
use warpsmith_device::convert::f16_bits_to_f32;

/// A unit as it is stored.
#[derive(Clone, Copy)]
pub struct Raw {
    words: [u32; 2],
    /// What signs are in.
    signs: u32,
    /// Upper bits of places.
    above: u32,
    open: u32,
}

/// Byte `i` of a word.
#[inline(always)]
fn byte(word: u32, i: usize) -> u32 {
    word >> (8 * i as u32) & 255
}

/// The signs of weights `8 * v` to `8 * v + 7`: eight bits, or seven with one that makes the number of minuses even.
#[inline(always)]
fn signs(word: u32, v: usize, eight: bool) -> u32 {
    let stored = word >> ((7 + eight as u32) * v as u32);
    let seven = stored & 127;
    seven | if eight { stored & 128 } else { (seven.count_ones() & 1) << 7 }
}

/// Eight levels, by the numbers of levels in nibbles, less an offset and scaled.
#[inline(always)]
fn levels([low, high]: [u32; 2], nibbles: u32, offset: u32, scale: &Pairs, v: usize) -> Eight {
    let four =
        |nibbles| pairs_minus(permute(low, high, nibbles), offset).map(|codes| (codes * scale.scale(v)).to_bits());
    let ([a, b], [c, d]) = (four(nibbles), four(nibbles >> 16));
    [a, b, c, d]
}

impl Halves for IQ3 {
    type Unit<M: Memory> = Raw;
    type Scale = Pairs;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> Raw {
        // SAFETY: the caller's promise; where units have no byte, the first behind them is taken, and no bit of it.
        unsafe {
            let ([a, b, ..], signs) = (Self::words(m, r, u), m.word(r.high + u));
            let ninth = u32::from(m.byte(r.scales + u * r.open as usize));
            Raw { words: [a, b], signs, above: if r.open == 0 { 0 } else { ninth }, open: r.open }
        }
    }
    #[inline(always)]
    unsafe fn scales_of<M: Memory, C: Memory>(m: M, r: &Record, u: usize, unit: &Raw) -> Scales {
        let (open, block, k) = (unit.open as usize, u >> 3, u & 7);
        // SAFETY: the caller's promise; where a block has no scales, its own bytes are taken for them, and no bit of them.
        unsafe {
            let d = f16_bits_to_f32(m.half(r.blocks / 2 + (1 + 2 * open) * block));
            let stored = u32::from(m.byte(r.blocks + (2 + 4 * open) * block + open * (2 + k / 2))) >> (4 * (k & 1));
            let (scale, one) = if open == 0 { (unit.signs >> 28, 0.25) } else { (stored & 15, 1.0) };
            Scales::one(d * one * small(1 + 2 * scale))
        }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> Pairs {
        Pairs::of::<Self>(scales)
    }
    #[inline(always)]
    fn eight<M: Memory>(unit: &Raw, v: usize, scale: &Pairs) -> Eight {
        let xxs = unit.open == 0;
        let (first, of_levels) = if xxs { (0, LEVELS_3[0]) } else { (256, LEVELS_3[1]) };
        let four = |k: usize| {
            let i = first + byte(unit.words[k / 4], k % 4) + ((unit.above >> k as u32 & 1) << 8);
            // SAFETY: it is below 256, or in the larger table below 512.
            unsafe { place(PLACES_3, i) }
        };
        let weights = levels(of_levels, four(2 * v) | four(2 * v + 1) << 16, 0, scale, v);
        flip_signs(weights, signs(unit.signs, v, !xxs))
    }
}

impl Halves for IQ2 {
    type Unit<M: Memory> = Raw;
    type Scale = Pairs;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> Raw {
        // SAFETY: the caller's promise; where units have no byte, the first behind them is taken, and no bit of it.
        unsafe {
            let [low, second, ..] = Self::words(m, r, u);
            let above = u32::from(m.byte(r.scales + u * r.open as usize));
            Raw { words: [low, 0], signs: second, above: if r.open == 2 { above } else { 0 }, open: r.open }
        }
    }
    #[inline(always)]
    unsafe fn scales_of<M: Memory, C: Memory>(m: M, r: &Record, u: usize, unit: &Raw) -> Scales {
        // SAFETY: the caller's promise; where units have no byte, the first behind them is taken, and no bit of it.
        unsafe {
            let d = f16_bits_to_f32(m.half(r.blocks / 2 + (u >> 3))) * 0.125;
            let last = u32::from(m.byte(r.scales + ((u + 1) * unit.open as usize).saturating_sub(1)));
            let scales = if unit.open == 0 { (unit.signs >> 28) * 17 } else { last };
            let of = |nibble: u32| d * small(1 + 2 * (nibble & 15));
            Scales { scale: [of(scales), of(scales >> 4)], shift: [0.0; 2] }
        }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> Pairs {
        Pairs::of::<Self>(scales)
    }
    #[inline(always)]
    fn eight<M: Memory>(unit: &Raw, v: usize, scale: &Pairs) -> Eight {
        let first = if unit.open == 2 { 768 } else { 256 * unit.open };
        let ninth = unit.signs >> (28 + v as u32) & 1;
        let above = if unit.open == 1 { ninth } else { unit.above >> (2 * v as u32) & 3 };
        // SAFETY: it is below 256, 512 or 1024 in its table.
        let nibbles = unsafe { place(PLACES_2, first + byte(unit.words[0], v) + (above << 8)) };
        flip_signs(levels(LEVELS_2, nibbles, 0, scale, v), signs(unit.signs, v, unit.open == 2))
    }
}

impl Halves for IQ1 {
    /// Places, and what is beside them.
    type Unit<M: Memory> = [u32; 2];
    type Scale = Pairs;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> [u32; 2] {
        // SAFETY: the caller's promise.
        unsafe { [Self::words(m, r, u)[0], u32::from(m.half(r.scales / 2 + u))] }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> Pairs {
        Pairs::of::<Self>(scales)
    }
    #[inline(always)]
    fn eight<M: Memory>([low, high]: &[u32; 2], v: usize, scale: &Pairs) -> Eight {
        let of_place = high >> (4 * v as u32);
        // SAFETY: it is below 2048.
        let nibbles = unsafe { place(PLACES_1, byte(*low, v) + ((of_place & 7) << 8)) };
        levels(LEVELS_1, nibbles | ((of_place >> 3 & 1) * 0x4444_4444), 16, scale, v)
    }
}
