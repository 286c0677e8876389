//! How activations are quantized on the device: by launches that do nothing else ([`Quantize`](super::Quantize)), and by kernels
//! that quantize what they compute, to the codes that a launch would give, to the bit. Of those, the warp that has all elements that
//! share a scale quantizes them; where no warp has, the one that brings the last elements of a group, of whatever block, does.

use super::quant_format::{F16, I8, I16, NONE, group, groups, half, int8, planes, planes_of};
use crate::load::{Source, again, lane};
use warpsmith_device::{
    prelude::*,
    unroll::no_unroll,
    warp::{FULL, reduce_group, shuffle_xor},
};

/// How a block of activations, the largest of which has magnitude `largest`, is rounded to codes of up to `most`.
#[derive(Clone, Copy)]
pub struct Rounding {
    up: f32,
    factor: f32,
}

impl Rounding {
    /// Without a division, the rare case of which is a call, for which registers would be kept all over the kernel: 1 / `largest`
    /// by a step of Newton's method from the approximation, so that it does not depend on how that is made.
    #[inline(always)]
    pub fn new(largest: f32, most: f32) -> Rounding {
        // 1 / largest would be infinite for the smallest numbers.
        let up = if largest < 1e-30 { 18446744073709551616.0 } else { 1.0 };
        let scaled = largest * up;
        let inverse = math::rcp_approx(scaled);
        let inverse = math::fma(math::fma(-scaled, inverse, 1.0), inverse, inverse);
        Rounding { up, factor: if largest > 0.0 { inverse * most } else { 0.0 } }
    }

    /// The code of a value.
    #[inline(always)]
    pub fn code(self, v: f32) -> i32 {
        math::round_to_i32(v * self.up * self.factor)
    }
}

/// The largest of magnitudes over the warp: a NaN loses against any number. The bits of numbers that are not negative are in their order.
///
/// All lanes of the warp make this call.
#[inline(always)]
unsafe fn largest(magnitude: f32) -> f32 {
    let bits = if magnitude <= f32::INFINITY { magnitude.to_bits() } else { 0 };
    // SAFETY: the caller's promise.
    f32::from_bits(unsafe { warp::max_u32(bits) })
}

/// The sums of the lower and of the upper 16 lanes.
///
/// All lanes of the warp make this call.
#[inline(always)]
unsafe fn sums_of_halves(v: i32) -> [i32; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        if cfg!(target_feature = "sm_80") {
            // One instruction each, neither of which waits for the other.
            let lower = lane() < 16;
            [warp::sum_i32(if lower { v } else { 0 }), warp::sum_i32(if lower { 0 } else { v })]
        } else {
            let sum = reduce_group::<16, i32>(v, |a, b| a + b);
            let other = shuffle_xor(FULL, sum, 16);
            if lane() < 16 { [sum, other] } else { [other, sum] }
        }
    }
}

/// A warp writes unit `u` of codes of `bytes` bytes, of which lane `l` has activation `l`.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn write_unit(bytes: u32, v: f32, to: Out<U32x4>, u: usize) {
    let largest = largest(v.abs());
    let finite = warp::all(FULL, v.abs() < int8::INFINITE);
    let (most, step) = if bytes == 1 { range(int8::most(1)) } else { range(int8::most(2)) };
    let code = Rounding::new(largest, most).code(v);
    // Both bytes are signed: the lower one takes from the higher one what it lacks.
    let [high, low] = [(code + 128) >> 8, code as i8 as i32];
    // Both sums in one word, of which the lower half is signed as well.
    let sums = sums_of_halves((high << 16) + low);
    let (q, i) = (lane() / 4, lane() % 4);
    let at = |byte: usize| 4 * int8::word(bytes as usize, byte, q) + i;
    let bytes_of = to.from(int8::codes(bytes as usize, u)).cast::<u8>();
    if bytes == 2 {
        bytes_of.set(at(0), high as u8);
    }
    bytes_of.set(at(bytes as usize - 1), low as u8);
    let pair = |[a, b]: [i32; 2]| (a as u32 & 0xFFFF) | (b as u32) << 16;
    if lane() == 0 {
        let [high, low] = [sums.map(|s| (s + 0x8000) >> 16), sums.map(|s| s as i16 as i32)];
        let d = if finite { int8::short(largest * step) } else { f32::NAN };
        let place = int8::scale(bytes as usize, u);
        if bytes == 1 {
            to.cast::<U32x2>().set(place / 2, U32x2([d.to_bits(), pair(low)]));
        } else {
            let sum = 256 * (high[0] + high[1]) + low[0] + low[1];
            to.set(place / 4, U32x4([d.to_bits(), pair(high), pair(low), (d * sum as f32).to_bits()]));
        }
    }
}

/// A warp writes unit `u` of a column of `cols` activations in f16, of which lane `l` has activation `l`; behind the last one zeros, up to a
/// whole group. `parts`: one for each activation, or two, the second of which is what the first leaves, behind those of all units.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn round_unit(parts: u32, v: f32, to: Out<U32x4>, u: usize, cols: u32) {
    let units = cols.div_ceil(half::UNIT) as usize;
    let mut to = to.cast::<u16>();
    let (mut left, mut v) = (parts, v * if parts == 1 { half::SHARE } else { half::SHARE_OF_TWO });
    loop {
        let bits = convert::f32_to_f16_bits(v);
        to.set(half::place(u, lane()), bits);
        if u + 1 == units {
            let mut behind = units;
            while behind % half::TOGETHER as usize != 0 {
                to.set(half::place(behind, lane()), 0);
                behind += 1;
            }
        }
        // A loop rather than the same code twice.
        left = again(left) - 1;
        if left == 0 {
            return;
        }
        let rounded = convert::f16_bits_to_f32(bits);
        // Nothing is left of what is not finite, so that it stays what it is.
        v = if rounded.abs() < f32::INFINITY { (v - rounded) * half::REST } else { 0.0 };
        to = to.from(8 * half::len(cols) as usize);
    }
}

/// The largest code as a number, and the share of the largest activation that a code is.
const fn range(most: u32) -> (f32, f32) {
    (most as f32, 1.0 / most as f32)
}

/// The words of a warp as a matrix of bits, a row a lane, transposed: of what lane `l` gets, bit `i` is bit `l` of lane `i`'s word.
///
/// All lanes of the warp make this call.
#[inline(always)]
unsafe fn transpose(mut word: u32) -> u32 {
    // Blocks beside the diagonal change places: of half of the matrix, then within each of the four halves of that, and so on. `first`:
    // bits of columns in the first of two blocks.
    let (mut size, mut first) = (16, 0xFFFF);
    while size > 0 {
        no_unroll();
        // SAFETY: the caller's promise.
        let other = unsafe { shuffle_xor(FULL, word, size) };
        let upper = lane() as u32 & size == 0;
        let (kept, taken) = if upper { (first, other.rotate_left(size)) } else { (!first, other.rotate_right(size)) };
        word = word & kept | taken & !kept;
        size /= 2;
        first ^= first << size;
    }
    word
}

/// A warp writes block `block` of the codes of `x`, of `bytes` bytes, for weights of `bits` bits: bytes `from .. end` of the codes, and with
/// the first one what else there is.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn quantize_planes(
    (bytes, bits): (usize, usize),
    x: impl Fn(usize) -> f32,
    to: Out<U32x4>,
    block: usize,
    (from, end): (usize, usize),
) {
    // Bit `b` of a word of two-bit codes: byte `b / 8`, code `b / 2 % 4` in it, and its plane's half of the unit.
    let column = match (bits, lane()) {
        (1, l) => l,
        (_, l) => 16 * (l & 1) + 4 * (l / 2 % 4) + l / 8,
    };
    let v: [f32; 4] = core::array::from_fn(|t| x(block * planes::BLOCK as usize + 32 * t + column));
    let (mut most_of_lane, mut finite) = (0.0f32, true);
    for t in 0..4 {
        most_of_lane = math::max(most_of_lane, v[t].abs());
        finite &= v[t].abs() < planes::INFINITE;
    }
    let largest = largest(most_of_lane);
    let (most, step) = if bytes == 1 { range(planes::most(1)) } else { range(planes::most(2)) };
    let d = if warp::all(FULL, finite) { planes::short(largest * step) } else { f32::NAN };
    let rounding = Rounding::new(largest, most);
    let codes = v.map(|v| rounding.code(v) as u32);
    let words = to.from(block * planes::block_vectors(bytes)).cast::<u32>();
    let place = place_of_byte(bits, lane());
    // Word `t` of plane `p` is word `4 p + t`, and lane `8 t + p` has it.
    let word = 4 * (lane() & 7) + lane() / 8;
    let mut byte = from;
    while byte < end {
        no_unroll();
        let [a, b, c, d] = codes.map(|code| (code >> (8 * byte)) & 0xFF);
        words.set(32 * byte + word, transpose(a | b << 8 | c << 16 | d << 24));
        let bytes_of = to.from(block * planes::block_vectors(bytes) + planes::codes(bytes, byte)).cast::<u8>();
        for t in 0..4 {
            bytes_of.set(16 * t + place, (codes[t] >> (8 * byte)) as u8);
        }
        byte += 1;
    }
    let [a, b, c, e] = codes.map(|code| code as i32);
    let sum = warp::sum_i32((a + b) + (c + e));
    if from == 0 && lane() < 2 {
        let sum = if bits == 1 { sum } else { -sum };
        let sum = (sum as u32).wrapping_add(planes::zero(bytes, bits));
        let scale = if lane() == 0 { [d.to_bits(), sum, 0, 0] } else { [0; 4] };
        words.cast::<U32x4>().set(planes::scale(bytes) + lane(), U32x4(scale));
    }
}

/// Where among the bytes of a block the code of bit `l` of the first word of a plane lies, for weights of `bits` bits; those of the
/// other words lie 16 bytes apart. [`tensor_planes`](super::tensor_planes) multiplies with the bytes in the order in which it
/// takes weights apart.
#[inline(always)]
fn place_of_byte(bits: usize, l: usize) -> usize {
    let (step, half, byte) = match bits {
        // Bit 4 i + s of a half of the word.
        1 => (l & 3, l / 16, l / 4 & 3),
        // Byte `l / 8` and code `l / 2 % 4` of word `l % 2`.
        _ => (2 * (l / 2 & 1) + l / 16, l & 1, 2 * (l / 8 & 1) + (l / 4 & 1)),
    };
    64 * (step / 2) + 8 * (step % 2) + 4 * half + byte
}

/// Quantizes what a kernel computes, as its arguments ask for.
#[derive(Clone, Copy)]
pub struct OutputQuantizer {
    /// The number of a [`QuantFormat`](super::QuantFormat).
    pub quant_format: u32,
    /// Where those of all columns go.
    pub to: Out<U32x4>,
    /// For each group, how many of its elements are computed.
    pub group_counters: InOut<u32>,
}

impl OutputQuantizer {
    /// What a kernel's arguments ask for.
    #[inline(always)]
    pub fn asked(quant_format: u32, to: Out<U32x4>, group_counters: InOut<u32>) -> Option<OutputQuantizer> {
        if quant_format == NONE { None } else { Some(OutputQuantizer { quant_format, to, group_counters }) }
    }

    /// Whether the codes are not bit planes, but bytes or f16, in units of as many activations as a warp has lanes.
    #[inline(always)]
    pub fn in_bytes(&self) -> bool {
        self.quant_format >= I8
    }

    /// Elements of a group.
    #[inline(always)]
    pub fn group(&self) -> u32 {
        group(self.quant_format)
    }

    /// Elements `first` to `first + n - 1` of column `column`, all of one group, are there: the warp wrote them to `values`, or its
    /// block before a barrier. `cols` elements are a column's, which begins where `values` does.
    ///
    /// All lanes of the warp make this call, and nobody brings an element twice.
    #[device]
    pub unsafe fn bring(self, values: Source, column: usize, cols: u32, first: u32, n: u32) {
        let (size, number) = (self.group(), first / self.group());
        let whole = (cols - number * size).min(size);
        // What the lanes wrote is before the counter for lane 0, by the barrier, and so for who counts after it; and what those
        // before wrote is before what the lanes read, by the second.
        sync::warp(FULL);
        // If nobody else has a part of it, nobody counts.
        let mut all = u32::from(n == whole);
        if all == 0 && lane() == 0 {
            let counter = self.group_counters.ptr_at(column * groups(cols) as usize + number as usize);
            let before = atomic::fetch_add(counter, n, Order::AcqRel, Scope::Gpu);
            if before + n == whole {
                atomic::store(counter, 0, Order::Relaxed, Scope::Gpu);
                all = 1;
            }
        }
        sync::warp(FULL);
        if warp::shuffle_idx(FULL, all, 0) == 0 {
            return;
        }
        if self.in_bytes() {
            let v = if lane() < whole as usize { values.at((number * size) as usize + lane()) } else { 0.0 };
            self.unit(column, cols, number as usize, v);
        } else {
            let (bytes, bits) = planes_of(self.quant_format);
            let to = self.to.from(column * planes::len(cols, bytes) as usize);
            let of_format = (bytes as usize, bits as usize);
            let values = |c| unsafe { values.at(c) };
            quantize_planes(of_format, values, to, number as usize, (0, bytes as usize));
        }
    }

    /// Whether elements `from .. to` are whole groups.
    #[inline(always)]
    pub fn divides(&self, from: u32, to: u32) -> bool {
        (from | to) & (self.group() - 1) == 0
    }

    /// Quantizes elements `from .. to` of column `column`, whole groups, of which `values` gives number `i` of them: they are there, by a
    /// barrier of the block. Warp `warp` of `warps` takes its turns, each of a unit, or of a byte of the codes of a block of planes.
    ///
    /// All lanes of the warp make this call.
    #[device]
    pub unsafe fn divide(
        self,
        values: impl Fn(usize) -> f32,
        column: usize,
        cols: u32,
        (from, to): (u32, u32),
        (warp, warps): (u32, u32),
    ) {
        if !self.in_bytes() {
            let (bytes, bits) = planes_of(self.quant_format);
            let places = self.to.from(column * planes::len(cols, bytes) as usize);
            let mut turn = from / planes::BLOCK * bytes + warp;
            while turn < to / planes::BLOCK * bytes {
                no_unroll();
                // One byte or two.
                let (block, byte) = (turn >> (bytes - 1), (turn & (bytes - 1)) as usize);
                let of_format = (bytes as usize, bits as usize);
                quantize_planes(of_format, |c| values(c - from as usize), places, block as usize, (byte, byte + 1));
                turn += warps;
            }
            return;
        }
        let (mut u, end) = (from / int8::BLOCK + warp, to / int8::BLOCK);
        // Of the next unit as well, while this one is quantized; behind the last it is that once more.
        let value = |u: u32| values((u.min(end - 1) * int8::BLOCK - from) as usize + lane());
        let mut v = value(u);
        while u < end {
            no_unroll();
            let next = value(u + warps);
            self.unit(column, cols, u as usize, v);
            v = next;
            u += warps;
        }
    }

    /// As [`unit`], to where they go.
    ///
    /// All lanes of the warp make this call.
    #[device]
    pub unsafe fn unit(self, column: usize, cols: u32, u: usize, v: f32) {
        unit(self.quant_format, self.to, column, cols, u, v);
    }
}

/// Unit `u` of a column of `cols` elements, in bytes or f16 by the number of their format; lane `l` has element `l` of it, or 0 behind
/// the last. Those of all columns begin at `to`.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn unit(quant_format: u32, to: Out<U32x4>, column: usize, cols: u32, u: usize, v: f32) {
    if quant_format >= F16 {
        let parts = quant_format - F16 + 1;
        return round_unit(parts, v, to.from(column * (parts as usize * half::len(cols) as usize)), u, cols);
    }
    let bytes = if quant_format == I16 { 2 } else { 1 };
    let to = to.from(column * int8::len(cols, bytes) as usize);
    write_unit(bytes, v, to, u);
}
