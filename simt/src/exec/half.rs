//! f16 and bf16: conversions that vectorise, and arithmetic rounded once.

use super::lanes::{Lane, each1, map1, map2, map3};
use super::{OpFn, soft};
use soft::{Format, Round};

/// An f16 in its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct H(pub u16);

/// A bf16 in its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct B(pub u16);

/// Two of them in one register, the first in the low half.
#[derive(Clone, Copy)]
pub(crate) struct X2<T>(pub T, pub T);

/// What the two half-precision types have in common.
pub(crate) trait Half: Copy + 'static {
    const NAN: u16 = 0x7fff;
    const FORMAT: Format;
    fn from_bits(bits: u16) -> Self;
    fn bits(self) -> u16;
    fn to_f32(self) -> f32;
    /// Rounds to nearest even; NaN becomes canonical.
    fn round(x: f32) -> Self;
}

/// Widens an f16 exactly.
#[inline(always)]
pub(crate) fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7fff);
    // Exponents are off by 112: multiplying by 2^112 also normalises subnormals.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let special = if magnitude == 0x7c00 { 0x7f80_0000 } else { 0x7fff_ffff };
    let wide = if magnitude >= 0x7c00 { special } else { finite };
    f32::from_bits(if magnitude > 0x7c00 { wide } else { wide | sign })
}

/// Rounds to f16, ties to even.
#[inline(always)]
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Below 2^-14: adding one half lets the host round at the right place.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_add(0xc800_0fff).wrapping_add(odd) >> 13;
    let finite = if magnitude < 0x3880_0000 { small } else { normal };
    let limited = if magnitude >= 0x4780_0000 { 0x7c00 } else { finite };
    (if magnitude > 0x7f80_0000 { 0x7fff } else { limited | sign }) as u16
}

/// Rounds to bf16, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff).wrapping_add(bits >> 16 & 1) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }) as u16
}

impl Half for H {
    const FORMAT: Format = Format::F16;
    #[inline(always)]
    fn from_bits(bits: u16) -> H {
        H(bits)
    }
    #[inline(always)]
    fn bits(self) -> u16 {
        self.0
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16_to_f32(self.0)
    }
    #[inline(always)]
    fn round(x: f32) -> H {
        H(f32_to_f16(x))
    }
}

impl Half for B {
    const FORMAT: Format = Format::BF16;
    #[inline(always)]
    fn from_bits(bits: u16) -> B {
        B(bits)
    }
    #[inline(always)]
    fn bits(self) -> u16 {
        self.0
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
    #[inline(always)]
    fn round(x: f32) -> B {
        B(f32_to_bf16(x))
    }
}

macro_rules! half_lane {
    ($($t:ident)*) => {$(
        impl Lane for $t {
            type Raw = u32;
            #[inline(always)]
            fn get(raw: u32) -> $t {
                $t(raw as u16)
            }
            #[inline(always)]
            fn put(self) -> u32 {
                u32::from(self.0)
            }
        }
    )*};
}

half_lane!(H B);

impl<T: Half> Lane for X2<T> {
    type Raw = u32;
    #[inline(always)]
    fn get(raw: u32) -> X2<T> {
        X2(T::from_bits(raw as u16), T::from_bits((raw >> 16) as u16))
    }
    #[inline(always)]
    fn put(self) -> u32 {
        u32::from(self.0.bits()) | u32::from(self.1.bits()) << 16
    }
}

/// One number or two, of a half-precision type.
pub(crate) trait Pack: Lane {
    type Item: Half;
    fn map(self, f: impl Fn(Self::Item) -> Self::Item) -> Self;
    fn map2(self, b: Self, f: impl Fn(Self::Item, Self::Item) -> Self::Item) -> Self;
    fn map3(self, b: Self, c: Self, f: impl Fn(Self::Item, Self::Item, Self::Item) -> Self::Item) -> Self;
}

macro_rules! pack_one {
    ($($t:ident)*) => {$(
        impl Pack for $t {
            type Item = $t;
            #[inline(always)]
            fn map(self, f: impl Fn($t) -> $t) -> $t {
                f(self)
            }
            #[inline(always)]
            fn map2(self, b: $t, f: impl Fn($t, $t) -> $t) -> $t {
                f(self, b)
            }
            #[inline(always)]
            fn map3(self, b: $t, c: $t, f: impl Fn($t, $t, $t) -> $t) -> $t {
                f(self, b, c)
            }
        }
    )*};
}

pack_one!(H B);

impl<T: Half> Pack for X2<T> {
    type Item = T;
    #[inline(always)]
    fn map(self, f: impl Fn(T) -> T) -> X2<T> {
        X2(f(self.0), f(self.1))
    }
    #[inline(always)]
    fn map2(self, b: X2<T>, f: impl Fn(T, T) -> T) -> X2<T> {
        X2(f(self.0, b.0), f(self.1, b.1))
    }
    #[inline(always)]
    fn map3(self, b: X2<T>, c: X2<T>, f: impl Fn(T, T, T) -> T) -> X2<T> {
        X2(f(self.0, b.0, c.0), f(self.1, b.1, c.1))
    }
}

/// a·b + c, rounded once to nearest even.
#[inline(always)]
fn fma<T: Half>(a: T, b: T, c: T) -> T {
    let (x, y, z) = (f64::from(a.to_f32()), f64::from(b.to_f32()), f64::from(c.to_f32()));
    let p = x * y;
    let s = p + z;
    // What the addition lost, exactly (Knuth); rounding to odd keeps it visible for the next rounding.
    let t = s - p;
    let lost = (p - (s - t)) + (z - t);
    let bits = s.to_bits();
    let towards = if (lost > 0.0) == (s > 0.0) { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let inexact = lost != 0.0 && s.is_finite() && bits & 1 == 0;
    let odd = f64::from_bits(if inexact { towards } else { bits });
    // f64 → f32 must round to odd as well.
    let near = odd as f32;
    let nb = near.to_bits();
    let back = if f64::from(near.abs()) > odd.abs() { nb.wrapping_sub(1) } else { nb.wrapping_add(1) };
    let adjust = f64::from(near) != odd && near.is_finite() && nb & 1 == 0;
    T::round(f32::from_bits(if adjust { back } else { nb }))
}

#[inline(always)]
fn is_nan<T: Half>(x: T) -> bool {
    x.to_f32().is_nan()
}

#[inline(always)]
fn canonical<T: Half>(x: T) -> T {
    // By the bits: all NaNs of `to_f32` are alike to a compiler.
    if is_nan(x) { T::from_bits(T::NAN) } else { x }
}

#[inline(always)]
pub(super) fn extreme<T: Half, const MAX: bool, const PROPAGATE: bool>(a: T, b: T) -> T {
    let (x, y) = (a.to_f32(), b.to_f32());
    let first = if x == y {
        // Only zeros differ in bits here.
        (if MAX { a.bits() & b.bits() } else { a.bits() | b.bits() }) == a.bits()
    } else if MAX {
        x > y
    } else {
        x < y
    };
    let ordered = if first { a } else { b };
    if x.is_nan() || y.is_nan() {
        if PROPAGATE || (x.is_nan() && y.is_nan()) {
            return T::from_bits(T::NAN);
        }
        return if x.is_nan() { b } else { a };
    }
    ordered
}

#[inline(always)]
fn xor_sign<T: Half, const MAX: bool, const PROPAGATE: bool>(a: T, b: T) -> T {
    let magnitude = |x: T| T::from_bits(x.bits() & 0x7fff);
    let value = extreme::<T, MAX, PROPAGATE>(magnitude(a), magnitude(b));
    if is_nan(value) { value } else { T::from_bits(value.bits() | (a.bits() ^ b.bits()) & 0x8000) }
}

#[inline(always)]
fn saturate<T: Half>(x: T) -> T {
    let v = x.to_f32();
    T::round(if v > 0.0 { v.min(1.0) } else { 0.0 })
}

#[inline(always)]
fn relu<T: Half>(x: T) -> T {
    let v = x.to_f32();
    if v.is_nan() {
        T::from_bits(T::NAN)
    } else if v > 0.0 {
        x
    } else {
        T::from_bits(0)
    }
}

#[inline(always)]
fn flush<T: Half>(x: T) -> T {
    let smallest = if T::FORMAT == Format::F16 { 0x0400 } else { 0x0080 };
    if x.bits() & 0x7fff < smallest { T::from_bits(x.bits() & 0x8000) } else { x }
}

/// Operations on half-precision operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HalfOp {
    Add,
    Sub,
    Mul,
    Fma,
    Min {
        nan: bool,
    },
    Max {
        nan: bool,
    },
    /// Of the magnitudes, with the sign of the product.
    XorSign {
        max: bool,
        nan: bool,
    },
    Neg,
    Abs,
    Ex2,
    Tanh,
    Saturate,
    Relu,
    Flush,
}

#[inline(always)]
fn add<T: Half>(a: T, b: T) -> T {
    T::round(a.to_f32() + b.to_f32())
}

#[inline(always)]
fn sub<T: Half>(a: T, b: T) -> T {
    T::round(a.to_f32() - b.to_f32())
}

#[inline(always)]
fn mul<T: Half>(a: T, b: T) -> T {
    T::round(a.to_f32() * b.to_f32())
}

#[inline(always)]
fn neg<T: Half>(x: T) -> T {
    canonical(T::from_bits(x.bits() ^ 0x8000))
}

#[inline(always)]
fn abs<T: Half>(x: T) -> T {
    canonical(T::from_bits(x.bits() & 0x7fff))
}

/// The handler made of a function on one number.
///
/// Of named functions alone, which say that they are inlined: a closure that is not is compiled without the features of the handler.
macro_rules! packed {
    (map1, $f:expr) => {{
        #[inline(always)]
        fn packed<P: Pack>(a: P) -> P {
            a.map($f)
        }
        map1(packed::<P>)
    }};
    (map2, $f:expr) => {{
        #[inline(always)]
        fn packed<P: Pack>(a: P, b: P) -> P {
            a.map2(b, $f)
        }
        map2(packed::<P>)
    }};
    (map3, $f:expr) => {{
        #[inline(always)]
        fn packed<P: Pack>(a: P, b: P, c: P) -> P {
            a.map3(b, c, $f)
        }
        map3(packed::<P>)
    }};
}

/// The handler for an operation on `P`.
pub(crate) fn op<P: Pack>(op: HalfOp) -> OpFn {
    match op {
        HalfOp::Add => packed!(map2, add),
        HalfOp::Sub => packed!(map2, sub),
        HalfOp::Mul => packed!(map2, mul),
        HalfOp::Fma => packed!(map3, fma),
        HalfOp::Min { nan: false } => packed!(map2, extreme::<_, false, false>),
        HalfOp::Min { nan: true } => packed!(map2, extreme::<_, false, true>),
        HalfOp::Max { nan: false } => packed!(map2, extreme::<_, true, false>),
        HalfOp::Max { nan: true } => packed!(map2, extreme::<_, true, true>),
        HalfOp::XorSign { max: false, nan: false } => packed!(map2, xor_sign::<_, false, false>),
        HalfOp::XorSign { max: false, nan: true } => packed!(map2, xor_sign::<_, false, true>),
        HalfOp::XorSign { max: true, nan: false } => packed!(map2, xor_sign::<_, true, false>),
        HalfOp::XorSign { max: true, nan: true } => packed!(map2, xor_sign::<_, true, true>),
        HalfOp::Neg => packed!(map1, neg),
        HalfOp::Abs => packed!(map1, abs),
        HalfOp::Ex2 => each1(|a: P| a.map(|x| round_f64(f64::from(x.to_f32()).exp2()))),
        HalfOp::Tanh => each1(|a: P| a.map(|x| round_f64(f64::from(x.to_f32()).tanh()))),
        HalfOp::Saturate => packed!(map1, saturate),
        HalfOp::Relu => packed!(map1, relu),
        HalfOp::Flush => packed!(map1, flush),
    }
}

fn round_f64<T: Half>(x: f64) -> T {
    T::from_bits(soft::convert(x, T::FORMAT, Round::Nearest) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn conversions_agree_with_the_half_crate() {
        for h in 0..=u16::MAX {
            let want = f16::from_bits(h).to_f32();
            let got = f16_to_f32(h);
            if want.is_nan() {
                assert_eq!(got.to_bits(), 0x7fff_ffff);
            } else {
                assert_eq!(got.to_bits(), want.to_bits(), "{h:#x}");
                // Around every representable value and the midpoints between them.
                for bits in [want.to_bits(), want.to_bits().wrapping_add(1), want.to_bits().wrapping_sub(1)] {
                    for x in [f32::from_bits(bits), f32::from_bits(bits ^ 0x1000), f32::from_bits(bits ^ 0x1001)] {
                        if !x.is_nan() {
                            assert_eq!(f32_to_f16(x), f16::from_f32(x).to_bits(), "{x:e}");
                            assert_eq!(f32_to_bf16(x), bf16::from_f32(x).to_bits(), "{x:e}");
                        }
                    }
                }
            }
        }
        assert_eq!((f32_to_f16(f32::NAN), f32_to_bf16(-f32::NAN)), (0x7fff, 0x7fff));
    }

    #[test]
    fn fma_rounds_once() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as u16
        };
        for i in 0..400_000 {
            let (a, b, mut c) = (next(), next(), next());
            if i % 3 == 0 {
                // Addends far below the product, where double rounding shows.
                c &= 0x83ff;
            }
            let exact = |x: f32, y: f32, z: f32, f| soft::fma(x.into(), y.into(), z.into(), f, Round::Nearest) as u16;
            let (x, y, z) = (H(a), H(b), H(c));
            let want = exact(x.to_f32(), y.to_f32(), z.to_f32(), Format::F16);
            assert_eq!(canonical(fma(x, y, z)).0, want, "f16 {a:#x} {b:#x} {c:#x}");
            let (x, y, z) = (B(a), B(b), B(c));
            let want = exact(x.to_f32(), y.to_f32(), z.to_f32(), Format::BF16);
            assert_eq!(canonical(fma(x, y, z)).0, want, "bf16 {a:#x} {b:#x} {c:#x}");
        }
        // 1.0625² is a tie of bf16; the smallest subnormal decides it.
        assert_eq!(fma(B(0x3f88), B(0x3f88), B(0x0000)).0, 0x3f90);
        assert_eq!(fma(B(0x3f88), B(0x3f88), B(0x0001)).0, 0x3f91);
    }

    #[test]
    fn extremes_order_zeros_and_drop_nan() {
        let max = |a, b| extreme::<H, true, false>(H(a), H(b)).0;
        let min = |a, b| extreme::<H, false, false>(H(a), H(b)).0;
        assert_eq!((max(0x8000, 0), max(0, 0x8000)), (0, 0));
        assert_eq!((min(0x8000, 0), min(0, 0x8000)), (0x8000, 0x8000));
        assert_eq!((max(0x7e00, 0x3c00), max(0x7e00, 0x7e01)), (0x3c00, 0x7fff));
        assert_eq!(extreme::<H, true, true>(H(0x7e00), H(0x3c00)).0, 0x7fff);
    }
}
