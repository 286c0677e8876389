//! What a cache holds, and how a warp writes a row of it. Caches are reached by addresses that columns carry, so loads
//! and stores name their state space here: a pointer made of a number would be a generic one.

use crate::{
    head::{Held, first, magnitude},
    load::{global_u32, lane},
    state::{Column, GROUP},
};
use core::arch::asm;
use warpsmith_device::{
    convert::{pack_f16x2, unpack_f16x2},
    math::permute_bytes,
    packed::F16x2,
    prelude::*,
    static_for,
};

/// An element of a cache.
pub trait Cached: Copy {
    /// Whether rows have a scale of their own.
    const SCALED: bool;
    /// Bytes of an element.
    const BYTES: u64;
    /// Whether f16 holds every element.
    const HALF: bool;
    /// Whether heads have 64 or 128 elements alone and caches are in one page, so that there is no code for others.
    const NARROW: bool = false;
    /// Eight elements as they are loaded.
    type Eight: Copy;
    /// Eight zeros.
    const NONE: Self::Eight;
    /// Eight elements from an address on, which is a multiple of their size or of 16.
    unsafe fn load8(address: u64) -> Self::Eight;
    /// Their values, without the scale.
    fn widen(raw: Self::Eight) -> [f32; 8];
    /// The same as pairs of f16, rounded if f16 does not hold them.
    fn halves(raw: Self::Eight) -> [u32; 4];
    /// Writes `v` as elements `d` and `d + 1` of a row; `d` is even.
    unsafe fn put2(row: u64, d: usize, v: [f32; 2], scale: f32);
}

/// An element of an int8 cache.
#[derive(Clone, Copy)]
pub struct Q8;

#[inline(always)]
unsafe fn load4(address: u64) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's promise. Not `pure`: another thread of the block may have written it before a barrier.
    unsafe {
        asm!("ld.global.v4.b32 {{{0},{1},{2},{3}}}, [{4}];", lateout(reg32) a, lateout(reg32) b, lateout(reg32) c,
            lateout(reg32) d, in(reg64) address, options(readonly, nostack, preserves_flags));
    }
    [a, b, c, d]
}

/// The f32 at an address.
#[inline(always)]
pub unsafe fn load_f32(address: u64) -> f32 {
    let v: f32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.b32 {0}, [{1}];", lateout(reg32) v, in(reg64) address, options(readonly, nostack, preserves_flags));
    }
    v
}

#[inline(always)]
unsafe fn store_f32(address: u64, v: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("st.global.b32 [{0}], {1};", in(reg64) address, in(reg32) v, options(nostack, preserves_flags));
    }
}

impl Cached for f32 {
    const SCALED: bool = false;
    const BYTES: u64 = 4;
    const HALF: bool = false;
    type Eight = [[u32; 4]; 2];
    const NONE: [[u32; 4]; 2] = [[0; 4]; 2];
    #[inline(always)]
    unsafe fn load8(address: u64) -> [[u32; 4]; 2] {
        // SAFETY: the caller's promise.
        unsafe { [load4(address), load4(address + 16)] }
    }
    #[inline(always)]
    fn widen([a, b]: [[u32; 4]; 2]) -> [f32; 8] {
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]].map(f32::from_bits)
    }
    #[inline(always)]
    fn halves([a, b]: [[u32; 4]; 2]) -> [u32; 4] {
        let pair = |a: u32, b: u32| pack_f16x2(f32::from_bits(a), f32::from_bits(b));
        [pair(a[0], a[1]), pair(a[2], a[3]), pair(b[0], b[1]), pair(b[2], b[3])]
    }
    #[inline(always)]
    unsafe fn put2(row: u64, d: usize, [a, b]: [f32; 2], _: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("st.global.v2.b32 [{0}], {{{1},{2}}};", in(reg64) row + 4 * d as u64, in(reg32) a, in(reg32) b,
                options(nostack, preserves_flags));
        }
    }
}

impl Cached for f16 {
    const SCALED: bool = false;
    const BYTES: u64 = 2;
    const HALF: bool = true;
    type Eight = [u32; 4];
    const NONE: [u32; 4] = [0; 4];
    #[inline(always)]
    unsafe fn load8(address: u64) -> [u32; 4] {
        // SAFETY: the caller's promise.
        unsafe { load4(address) }
    }
    #[inline(always)]
    fn widen(raw: [u32; 4]) -> [f32; 8] {
        let [(a, b), (c, d), (e, f), (g, h)] = raw.map(unpack_f16x2);
        [a, b, c, d, e, f, g, h]
    }
    #[inline(always)]
    fn halves(raw: [u32; 4]) -> [u32; 4] {
        raw
    }
    #[inline(always)]
    unsafe fn put2(row: u64, d: usize, [a, b]: [f32; 2], _: f32) {
        let bits = pack_f16x2(a, b);
        // SAFETY: the caller's promise.
        unsafe {
            asm!("st.global.b32 [{0}], {1};", in(reg64) row + 2 * d as u64, in(reg32) bits, options(nostack, preserves_flags));
        }
    }
}

impl Cached for Q8 {
    const SCALED: bool = true;
    const BYTES: u64 = 1;
    const HALF: bool = true;
    type Eight = [u32; 2];
    const NONE: [u32; 2] = [0; 2];
    #[inline(always)]
    unsafe fn load8(address: u64) -> [u32; 2] {
        let (a, b): (u32, u32);
        // SAFETY: the caller's promise.
        unsafe {
            asm!("ld.global.v2.b32 {{{0},{1}}}, [{2}];", lateout(reg32) a, lateout(reg32) b, in(reg64) address,
                options(readonly, nostack, preserves_flags));
        }
        [a, b]
    }
    #[inline(always)]
    fn widen([a, b]: [u32; 2]) -> [f32; 8] {
        let byte = |w: u32, i: u32| (w >> (8 * i)) as i8 as f32;
        [byte(a, 0), byte(a, 1), byte(a, 2), byte(a, 3), byte(b, 0), byte(b, 1), byte(b, 2), byte(b, 3)]
    }
    #[inline(always)]
    fn halves([a, b]: [u32; 2]) -> [u32; 4] {
        // The f16 of 1024 + 128 + code has the code's lowest seven bits and its sign turned around below its exponent.
        let (a, b) = (a ^ 0x8080_8080, b ^ 0x8080_8080);
        let pair = |word: u32, selector: u32| {
            let lifted = F16x2::from_bits(permute_bytes(word, 0x6464_6464, selector));
            (lifted - F16x2::from_bits(0x6480_6480)).to_bits()
        };
        [pair(a, 0x4140), pair(a, 0x4342), pair(b, 0x4140), pair(b, 0x4342)]
    }
    #[inline(always)]
    unsafe fn put2(row: u64, d: usize, v: [f32; 2], scale: f32) {
        let [a, b] = v.map(|v| super::int8_code(v, scale) as u8);
        let codes = u16::from_le_bytes([a, b]);
        // SAFETY: the caller's promise.
        unsafe {
            asm!("st.global.b16 [{0}], {1};", in(reg64) row + d as u64, in(reg16) codes, options(nostack, preserves_flags));
        }
    }
}

/// Elements of another type, in heads of 64 or 128.
#[derive(Clone, Copy)]
pub struct Narrow<T>(core::marker::PhantomData<T>);

impl<T: Cached> Cached for Narrow<T> {
    const SCALED: bool = T::SCALED;
    const BYTES: u64 = T::BYTES;
    const HALF: bool = T::HALF;
    const NARROW: bool = true;
    type Eight = T::Eight;
    const NONE: T::Eight = T::NONE;
    #[inline(always)]
    unsafe fn load8(address: u64) -> T::Eight {
        // SAFETY: the caller's promise.
        unsafe { T::load8(address) }
    }
    #[inline(always)]
    fn widen(raw: T::Eight) -> [f32; 8] {
        T::widen(raw)
    }
    #[inline(always)]
    fn halves(raw: T::Eight) -> [u32; 4] {
        T::halves(raw)
    }
    #[inline(always)]
    unsafe fn put2(row: u64, d: usize, v: [f32; 2], scale: f32) {
        // SAFETY: the caller's promise.
        unsafe { T::put2(row, d, v, scale) }
    }
}

/// Where the rows of a head lie in one of a sequence's caches.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Address of its first row.
    pub data: u64,
    /// Address of its first scale.
    pub scales: u64,
    /// Bytes of a row.
    pub bytes: u64,
    /// Address of the places of its positions, in groups; 0 where they lie one behind the other.
    pub pages: u64,
}

impl Rows {
    /// Keys and values of a head.
    #[inline(always)]
    pub fn of<T: Cached>(c: &Column, layer: u32, kv_heads: u32, head: u32, head_dim: u32) -> (Rows, Rows) {
        let first = (layer as u64 * kv_heads as u64 + head as u64) * c.page as u64;
        let (bytes, pages) = (head_dim as u64 * T::BYTES, c.pages.raw());
        let rows =
            |data: u64, scales: u64| Rows { data: data + first * bytes, scales: scales + first * 4, bytes, pages };
        (rows(c.k.raw(), c.k_scales.raw()), rows(c.v.raw(), c.v_scales.raw()))
    }

    /// Whether positions are in pages.
    #[inline(always)]
    pub fn paged(&self) -> bool {
        self.pages != 0
    }

    /// The number of the row of a position, for keys and values alike. Those of the [`GROUP`] that it is in follow one another.
    ///
    /// # Safety
    /// The position is within the cache.
    #[inline(always)]
    pub unsafe fn index<T: Cached>(&self, position: u32) -> u32 {
        if T::NARROW || !self.paged() {
            return position;
        }
        // SAFETY: the caller's promise.
        unsafe { row_in_pages(self.pages, position) }
    }

    /// Address of the row of an [index](Self::index).
    #[inline(always)]
    pub fn at(&self, index: u32) -> u64 {
        self.data + index as u64 * self.bytes
    }

    /// Address of a row.
    ///
    /// # Safety
    /// The position is within the cache.
    #[inline(always)]
    pub unsafe fn row<T: Cached>(&self, position: u32) -> u64 {
        // SAFETY: the caller's promise.
        self.at(unsafe { self.index::<T>(position) })
    }

    /// The scale of the row of an [index](Self::index); 1 where rows have none.
    ///
    /// # Safety
    /// The row is within the cache.
    #[inline(always)]
    pub unsafe fn scale<T: Cached>(&self, index: u32) -> f32 {
        // SAFETY: the caller's promise.
        if T::SCALED { unsafe { load_f32(self.scales + index as u64 * 4) } } else { 1.0 }
    }
}

/// The number of the row of a position, by the places of groups at `pages`.
///
/// # Safety
/// The position is within the cache.
#[inline(always)]
pub unsafe fn row_in_pages(pages: u64, position: u32) -> u32 {
    // SAFETY: the caller's promise.
    let first = unsafe { global_u32(pages + 4 * (position / GROUP) as u64) };
    first + position % GROUP
}

/// A warp writes row `position`.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn store_row<T: Cached, const N: usize>(rows: &Rows, position: u32, head_dim: usize, head: &Held<N>) {
    let (mut scale, index) = (1.0, rows.index::<T>(position));
    if T::SCALED {
        let mut largest = 0;
        static_for!(j in 0..N => {
            largest = largest.max(magnitude(head[j][0])).max(magnitude(head[j][1]));
        });
        // Of NaN, which must not vanish in a code, it is NaN.
        scale = f32::from_bits(warp::max_u32(largest)) / 127.0;
        if lane() == 0 {
            store_f32(rows.scales + index as u64 * 4, scale);
        }
    }
    let row = rows.at(index);
    static_for!(j in 0..N => {
        let d = 64 * j + first();
        if d < head_dim {
            T::put2(row, d, head[j], scale);
        }
    });
}
