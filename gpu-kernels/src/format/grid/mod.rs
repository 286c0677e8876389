//! Codes that are places of a grid: IQ3_XXS, IQ3_S, IQ2_XXS, IQ2_XS, IQ2_S, IQ1_S and IQ1_M. A place gives four weights or eight at once,
//! each as one of a few levels.

mod halves;
mod tables;

use super::{
    decode::{Decode, Scales},
    record::{Memory, Record, Spec},
    unpack::{bytes_minus, offset, permute, small},
};
use warpsmith_device::convert::f16_bits_to_f32;

/// A table of places as the kernels read it: the number of a level in each nibble, the first lowest.
const fn of_nibbles<const N: usize>(places: &[u16; N], weights: u32, bits: u32) -> [u32; N] {
    let (mut all, mut i) = ([0; N], 0);
    while i < N {
        let mut j = 0;
        while j < weights {
            all[i] |= (places[i] as u32 >> (bits * j) & ((1 << bits) - 1)) << (4 * j);
            j += 1;
        }
        i += 1;
    }
    all
}

// Constants, not statics: kernels do not have to stay in one module for what a constant refers to.

/// Of IQ3_XXS from 0 on, of IQ3_S from 256 on.
const PLACES_3: &[u32; 768] = &of_nibbles(&tables::IQ3, 4, 3);
/// Of IQ2_XXS from 0 on, of IQ2_XS from 256 on, of IQ2_S from 768 on.
const PLACES_2: &[u32; 1792] = &of_nibbles(&tables::IQ2, 8, 2);
/// Of IQ1_S and IQ1_M.
const PLACES_1: &[u32; 2048] = &of_nibbles(&tables::IQ1, 8, 2);

/// Levels of four weights each, by their numbers.
const LEVELS_3: [[u32; 2]; 2] = [[0x1C14_0C04, 0x3E34_2C24], [0x0705_0301, 0x0F0D_0B09]];
const LEVELS_2: [u32; 2] = [0x002B_1908, 0];
/// Eight times those of IQ1 and 16, with either delta.
const LEVELS_1: [u32; 2] = [0x0019_1109, 0x0017_0F07];

/// # Safety
/// The table has that place.
#[inline(always)]
unsafe fn place<const N: usize>(table: &'static [u32; N], i: u32) -> u32 {
    debug_assert!((i as usize) < N);
    // SAFETY: the caller's promise.
    unsafe { *table.get_unchecked(i as usize) }
}

/// Signs of eight weights each: seven bits, and an eighth that makes the number of minuses even.
#[inline(always)]
pub(super) fn even_signs(word: u32) -> u32 {
    let signs = |j: u32| {
        let seven = word >> (7 * j) & 127;
        (seven | (seven.count_ones() & 1) << 7) << (8 * j)
    };
    signs(0) | signs(1) | signs(2) | signs(3)
}

/// Bytes from 1 to 127, those with a sign below 0, 128 added.
#[inline(always)]
fn with_signs(bytes: u32, signs: u32) -> u32 {
    // A bit of the lower four to each byte.
    let minus = (signs & 15).wrapping_mul(0x0020_4081) & 0x0101_0101;
    ((bytes ^ (minus * 255)) + minus) ^ 0x8080_8080
}

/// Places of a unit, four weights in each half word, and the sign of each weight.
#[derive(Clone, Copy)]
pub struct Places {
    levels: [u32; 2],
    nibbles: [u32; 4],
    signs: u32,
}

impl Places {
    #[inline(always)]
    fn quad(&self, q: usize) -> [f32; 4] {
        let [low, high] = self.levels;
        let bytes = permute(low, high, self.nibbles[q / 2] >> (16 * (q as u32 % 2)));
        bytes_minus(with_signs(bytes, self.signs >> (4 * q as u32)), const { offset(128) })
    }
}

/// `d * (1 + 2 s) * level`, where a place has four weights; of IQ3_XXS, which is 0 of what is open, a quarter of it. The words of codes
/// are the lower eight bits of places. Of IQ3_XXS the high word is 28 signs and the scale; of IQ3_S it is 32 signs, the byte of scales
/// is the ninth bits of places, and a block has behind `d` its scales of four bits.
#[derive(Clone, Copy, Debug)]
pub struct IQ3;

impl Decode for IQ3 {
    const SPEC: Spec = Spec { code_words: 2, high_words: 1, scale_bytes: 0, block_bytes: 2, block_units: 3 };
    const MOST_OPEN: u32 = 1;
    type Codes<M: Memory> = Places;

    #[inline(always)]
    fn spec(open: u32) -> Spec {
        let open = open as usize;
        Spec { scale_bytes: open, block_bytes: 2 + 4 * open, ..Self::SPEC }
    }
    #[inline(always)]
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, words: [u32; 4]) -> Places {
        // SAFETY: the caller's promise; a place is below 256, or of the larger table below 512.
        unsafe {
            let high = m.word(r.high + u);
            let (first, ninth, levels, signs) = match r.open {
                0 => (0, 0, LEVELS_3[0], even_signs(high)),
                _ => (256, u32::from(m.byte(r.scales + u)), LEVELS_3[1], high),
            };
            let four = |k: u32| {
                let low = words[k as usize / 4] >> (8 * (k % 4)) & 255;
                place(PLACES_3, first + low + ((ninth >> k & 1) << 8))
            };
            let eight = |j: u32| four(2 * j) | four(2 * j + 1) << 16;
            Places { levels, nibbles: [eight(0), eight(1), eight(2), eight(3)], signs }
        }
    }
    #[inline(always)]
    fn quad<M: Memory>(codes: &Places, q: usize) -> [f32; 4] {
        codes.quad(q)
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        unsafe {
            let (block, k) = (u >> 3, u & 7);
            let (halves, scale, unit) = match r.open {
                0 => (1, m.word(r.high + u) >> 28, 0.25),
                _ => (3, u32::from(m.byte(r.blocks + 6 * block + 2 + k / 2)) >> (4 * (k & 1)) & 15, 1.0),
            };
            let d = f16_bits_to_f32(m.half(r.blocks / 2 + halves * block));
            Scales::one(d * unit * small(1 + 2 * scale))
        }
    }
}

/// `d * (1 + 2 s) / 8 * level`, where a place has eight weights. The first word of codes is the lower eight bits of places, and the
/// second signs; what is open is how many bytes of scales there are:
///
/// | | second word | scales |
/// |---|---|---|
/// | 0, IQ2_XXS | 28 signs and the scale | |
/// | 1, IQ2_XS | 28 signs and the ninth bits of places | those of the halves, four bits each |
/// | 2, IQ2_S | 32 signs | the ninth and tenth bits of places; the scales of the halves |
#[derive(Clone, Copy, Debug)]
pub struct IQ2;

impl Decode for IQ2 {
    const SPEC: Spec = Spec { code_words: 2, high_words: 0, scale_bytes: 0, block_bytes: 2, block_units: 3 };
    const SCALES: usize = 2;
    const MOST_OPEN: u32 = 2;
    type Codes<M: Memory> = Places;

    #[inline(always)]
    fn spec(open: u32) -> Spec {
        Spec { scale_bytes: open as usize, ..Self::SPEC }
    }
    #[inline(always)]
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, words: [u32; 4]) -> Places {
        let [low, second, ..] = words;
        // The bits of a place above the eighth, for each four bits.
        // SAFETY: the caller's promise; a place is below 256, 512 or 1024.
        unsafe {
            let (first, above, signs) = match r.open {
                0 => (0, 0, even_signs(second)),
                1 => {
                    let bits = second >> 28;
                    (256, (bits & 1) | (bits & 2) << 3 | (bits & 4) << 6 | (bits & 8) << 9, even_signs(second))
                }
                _ => {
                    let bits = u32::from(m.byte(r.scales + 2 * u));
                    (768, (bits & 3) | (bits & 12) << 2 | (bits & 48) << 4 | (bits & 192) << 6, second)
                }
            };
            let eight = |j: u32| place(PLACES_2, first + (low >> (8 * j) & 255) + ((above >> (4 * j) & 3) << 8));
            Places { levels: LEVELS_2, nibbles: [eight(0), eight(1), eight(2), eight(3)], signs }
        }
    }
    #[inline(always)]
    fn quad<M: Memory>(codes: &Places, q: usize) -> [f32; 4] {
        codes.quad(q)
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        unsafe {
            let scales = match r.open {
                0 => (Self::words(m, r, u)[1] >> 28) * 17,
                open => u32::from(m.byte(r.scales + (u + 1) * open as usize - 1)),
            };
            let d = f16_bits_to_f32(m.half(r.blocks / 2 + (u >> 3))) * 0.125;
            let of = |nibble: u32| d * small(1 + 2 * (nibble & 15));
            Scales { scale: [of(scales), of(scales >> 4)], shift: [0.0; 2] }
        }
    }
}

/// `d * (1 + 2 s) * (level + delta)`, where a place has eight weights: levels are -1, 0 and 1, and delta is an eighth of either sign. The
/// word of codes is the lower eight bits of places. The scales are four bits for each place, its upper three and the sign of delta. A
/// block has `d` and behind it the scales `s` of halves of units, three bits each. IQ1_S, whose scales are of units and whose
/// deltas too, is stored as IQ1_M.
#[derive(Clone, Copy, Debug)]
pub struct IQ1;

impl Decode for IQ1 {
    const SPEC: Spec = Spec { code_words: 1, high_words: 0, scale_bytes: 2, block_bytes: 8, block_units: 3 };
    const SCALES: usize = 2;
    /// Of each weight eight times what it is without the scale, and 16: with a delta above 0, or from 4 on with one below.
    type Codes<M: Memory> = [u32; 4];

    #[inline(always)]
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, words: [u32; 4]) -> [u32; 4] {
        // SAFETY: the caller's promise; a place is below 2048.
        unsafe {
            let high = u32::from(m.half(r.scales / 2 + u));
            [0, 1, 2, 3].map(|j| {
                let of_place = high >> (4 * j);
                let levels = place(PLACES_1, (words[0] >> (8 * j) & 255) + ((of_place & 7) << 8));
                levels | ((of_place >> 3 & 1) * 0x4444_4444)
            })
        }
    }
    #[inline(always)]
    fn quad<M: Memory>(codes: &[u32; 4], q: usize) -> [f32; 4] {
        let bytes = permute(LEVELS_1[0], LEVELS_1[1], codes[q / 2] >> (16 * (q as u32 % 2)));
        bytes_minus(bytes, const { offset(16) })
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        let [low, high] = unsafe { m.pair(r.blocks / 4 + 2 * (u >> 3)) };
        let scales = ((u64::from(high) << 32 | u64::from(low)) >> (16 + 6 * (u & 7))) as u32;
        let d = f16_bits_to_f32(low as u16) * 0.125;
        let of = |s: u32| d * small(1 + 2 * (s & 7));
        Scales { scale: [of(scales), of(scales >> 3)], shift: [0.0; 2] }
    }
}

/// A grid on the host: its places, and what its levels are.
#[cfg(not(target_arch = "nvptx64"))]
pub struct Grid {
    places: &'static [u32],
    levels: &'static [i8],
}

#[cfg(not(target_arch = "nvptx64"))]
mod grids {
    use super::{Grid, PLACES_1, PLACES_2, PLACES_3};

    pub static IQ3_XXS: Grid = Grid { places: PLACES_3.split_at(256).0, levels: &[4, 12, 20, 28, 36, 44, 52, 62] };
    pub static IQ3_S: Grid = Grid { places: PLACES_3.split_at(256).1, levels: &[1, 3, 5, 7, 9, 11, 13, 15] };
    pub static IQ2_XXS: Grid = Grid { places: PLACES_2.split_at(256).0, levels: &[8, 25, 43] };
    pub static IQ2_XS: Grid = Grid { places: PLACES_2.split_at(256).1, levels: &[8, 25, 43] };
    pub static IQ2_S: Grid = Grid { places: PLACES_2.split_at(768).1, levels: &[8, 25, 43] };
    pub static IQ1: Grid = Grid { places: PLACES_1, levels: &[-1, 0, 1] };
}
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use grids::{IQ1 as IQ1_GRID, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// Weight `i` of a place.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn level(grid: &Grid, place: u32, i: usize) -> f32 {
    f32::from(grid.levels[(grid.places[place as usize] >> (4 * i) & 15) as usize])
}

/// `x`, or less than 0 where sign `i` is set.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn signed(x: f32, signs: u32, i: usize) -> f32 {
    if signs >> i & 1 == 1 { -x } else { x }
}
