//! Conversions.
//!
//! The frequent ones have a handler each; the rest of the matrix goes through [`general`], which
//! decodes, converts exactly and rounds once, lane by lane.

use super::float::{canon, canon64};
use super::half::{B, H, Half, X2, f32_to_bf16, f32_to_f16};
use super::lanes::{each1, each2, lane_of, lanes_of, map1, map2, set_lane};
use super::soft::{self, Format, Round};
use super::{Cx, Flow, Op, OpFn};

/// A type that `cvt` converts from or to; integers carry their width and sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numeric {
    Int { bits: u8, signed: bool },
    F16,
    BF16,
    F32,
    F64,
}

impl Numeric {
    /// Whether a register of this type has 64 bits.
    pub(crate) fn wide(self) -> bool {
        matches!(self, Numeric::F64 | Numeric::Int { bits: 64, .. })
    }

    fn code(self) -> u64 {
        match self {
            Numeric::Int { bits, signed } => u64::from(bits) | u64::from(signed) << 7,
            Numeric::F16 => 1,
            Numeric::BF16 => 2,
            Numeric::F32 => 3,
            Numeric::F64 => 4,
        }
    }

    fn from_code(code: u64) -> Numeric {
        match code & 0xff {
            1 => Numeric::F16,
            2 => Numeric::BF16,
            3 => Numeric::F32,
            4 => Numeric::F64,
            c => Numeric::Int { bits: (c & 0x7f) as u8, signed: c & 0x80 != 0 },
        }
    }

    fn format(self) -> Option<Format> {
        match self {
            Numeric::Int { .. } => None,
            Numeric::F16 => Some(Format::F16),
            Numeric::BF16 => Some(Format::BF16),
            Numeric::F32 => Some(Format::F32),
            Numeric::F64 => Some(Format::F64),
        }
    }
}

/// Steps between integer registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extend {
    S8,
    U8,
    S16,
    U16,
    /// 32 to 64 bits.
    S32,
    U32,
    /// 64 to 32 bits.
    Truncate,
}

/// The handler of a step between integer registers.
pub(crate) fn extend(step: Extend) -> OpFn {
    match step {
        Extend::S8 => map1(|a: i8| i32::from(a)),
        Extend::U8 => map1(|a: u8| u32::from(a)),
        Extend::S16 => map1(|a: i16| i32::from(a)),
        Extend::U16 => map1(|a: u16| u32::from(a)),
        Extend::S32 => map1(|a: i32| i64::from(a)),
        Extend::U32 => map1(|a: u32| u64::from(a)),
        Extend::Truncate => map1(|a: u64| a as u32),
    }
}

const S32: Numeric = Numeric::Int { bits: 32, signed: true };
const U32: Numeric = Numeric::Int { bits: 32, signed: false };
const S64: Numeric = Numeric::Int { bits: 64, signed: true };
const U64: Numeric = Numeric::Int { bits: 64, signed: false };

/// A conversion with a handler of its own, without saturation; `integral` rounds to an integer.
pub(crate) fn direct(dst: Numeric, src: Numeric, round: Round, integral: bool) -> Option<OpFn> {
    use Round::{Down, Nearest, Up, Zero};
    Some(match (dst, src, round, integral) {
        (Numeric::F32, S32, Nearest, false) => map1(|a: i32| a as f32),
        (Numeric::F32, U32, Nearest, false) => map1(|a: u32| a as f32),
        (Numeric::F32, S64, Nearest, false) => map1(|a: i64| a as f32),
        (Numeric::F32, U64, Nearest, false) => map1(|a: u64| a as f32),
        (Numeric::F64, S32, _, false) => map1(|a: i32| f64::from(a)),
        (Numeric::F64, U32, _, false) => map1(|a: u32| f64::from(a)),
        (Numeric::F64, S64, Nearest, false) => map1(|a: i64| a as f64),
        (Numeric::F64, U64, Nearest, false) => map1(|a: u64| a as f64),
        (S32, Numeric::F32, Zero, true) => map1(|a: f32| a as i32),
        (S32, Numeric::F32, Nearest, true) => map1(|a: f32| a.round_ties_even() as i32),
        (S32, Numeric::F32, Down, true) => map1(|a: f32| a.floor() as i32),
        (S32, Numeric::F32, Up, true) => map1(|a: f32| a.ceil() as i32),
        (U32, Numeric::F32, Zero, true) => map1(|a: f32| a as u32),
        (U32, Numeric::F32, Nearest, true) => map1(|a: f32| a.round_ties_even() as u32),
        (Numeric::F64, Numeric::F32, _, false) => map1(|a: f32| canon64(f64::from(a))),
        (Numeric::F32, Numeric::F64, Nearest, false) => map1(|a: f64| canon(a as f32)),
        (Numeric::F32, Numeric::F16, _, false) => super::widen::f32_of_f16(),
        (Numeric::F32, Numeric::BF16, _, false) => map1(|a: B| canon(a.to_f32())),
        (Numeric::F16, Numeric::F32, Nearest, false) => map1(H::round),
        (Numeric::BF16, Numeric::F32, Nearest, false) => map1(B::round),
        (Numeric::F32, Numeric::F32, _, false) => map1(canon),
        (Numeric::F32, Numeric::F32, Nearest, true) => map1(|a: f32| canon(a.round_ties_even())),
        (Numeric::F32, Numeric::F32, Zero, true) => map1(|a: f32| canon(a.trunc())),
        (Numeric::F32, Numeric::F32, Down, true) => map1(|a: f32| canon(a.floor())),
        (Numeric::F32, Numeric::F32, Up, true) => map1(|a: f32| canon(a.ceil())),
        (Numeric::F64, Numeric::F64, _, false) => map1(canon64),
        (Numeric::F64, Numeric::F64, Nearest, true) => map1(|a: f64| canon64(a.round_ties_even())),
        (Numeric::F64, Numeric::F64, Zero, true) => map1(|a: f64| canon64(a.trunc())),
        (Numeric::F64, Numeric::F64, Down, true) => map1(|a: f64| canon64(a.floor())),
        (Numeric::F64, Numeric::F64, Up, true) => map1(|a: f64| canon64(a.ceil())),
        _ => return None,
    })
}

/// Rounds to an integer.
fn integral(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => x.round_ties_even(),
        Round::Away => x.round(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// How [`general`] converts; packed into `Op::imm`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct General {
    pub dst: Numeric,
    pub src: Numeric,
    pub round: Round,
    /// Round to an integer (`.rni` …), also when the result is a float.
    pub integral: bool,
    /// `.sat`.
    pub sat: bool,
    /// `.satfinite`.
    pub finite: bool,
}

impl General {
    pub(crate) fn pack(self) -> u64 {
        self.dst.code()
            | self.src.code() << 8
            | (self.round as u64) << 16
            | u64::from(self.integral) << 24
            | u64::from(self.sat) << 25
            | u64::from(self.finite) << 26
    }

    fn unpack(imm: u64) -> General {
        let round = match imm >> 16 & 0xff {
            0 => Round::Nearest,
            1 => Round::Away,
            2 => Round::Zero,
            3 => Round::Down,
            _ => Round::Up,
        };
        General {
            dst: Numeric::from_code(imm),
            src: Numeric::from_code(imm >> 8),
            round,
            integral: imm >> 24 & 1 != 0,
            sat: imm >> 25 & 1 != 0,
            finite: imm >> 26 & 1 != 0,
        }
    }

    fn convert(self, raw: u64) -> u64 {
        match self.src {
            Numeric::Int { bits, signed } => {
                let shift = 64 - u32::from(bits);
                let value =
                    if signed { i128::from((raw << shift) as i64 >> shift) } else { i128::from(raw << shift >> shift) };
                self.of_int(value)
            }
            Numeric::F16 => self.of_float(H(raw as u16).to_f32().into()),
            Numeric::BF16 => self.of_float(B(raw as u16).to_f32().into()),
            Numeric::F32 => self.of_float(f32::from_bits(raw as u32).into()),
            Numeric::F64 => self.of_float(f64::from_bits(raw)),
        }
    }

    fn of_int(self, value: i128) -> u64 {
        match self.dst {
            Numeric::Int { bits, signed } => {
                let (low, high) = limits(bits, signed);
                let value = if self.sat { value.clamp(low, high) } else { value };
                let shift = 64 - u32::from(bits);
                let top = (value as u64) << shift;
                if signed { (top as i64 >> shift) as u64 } else { top >> shift }
            }
            Numeric::F16 => self.limit(soft::from_int(value, Format::F16, self.round)),
            Numeric::BF16 => self.limit(soft::from_int(value, Format::BF16, self.round)),
            Numeric::F32 => self.limit(soft::from_int(value, Format::F32, self.round)),
            Numeric::F64 => self.limit(soft::from_int(value, Format::F64, self.round)),
        }
    }

    fn of_float(self, value: f64) -> u64 {
        let Numeric::Int { bits, signed } = self.dst else {
            let value = if self.integral && value.is_finite() { integral(value, self.round) } else { value };
            let Some(format) = self.dst.format() else { return 0 };
            return self.limit(soft::convert(value, format, self.round));
        };
        if value.is_nan() {
            // Zero, unless a 64-bit type takes part: then the highest bit alone.
            let odd = self.src == Numeric::F64 || bits == 64;
            let top = 1u64 << (bits - 1);
            return if odd { top | if signed { sign_fill(top, bits) } else { 0 } } else { 0 };
        }
        let value = integral(value, self.round);
        let (low, high) = limits(bits, signed);
        // Casting saturates far outside what any type needs.
        let value = (value as i128).clamp(low, high);
        value as u64
    }

    /// Applies `.sat` and `.satfinite` to a float result.
    fn limit(self, bits: u64) -> u64 {
        let Some(format) = self.dst.format() else { return bits };
        let (one, infinity, sign) = (
            soft::from_int(1, format, Round::Nearest),
            soft::convert(f64::INFINITY, format, Round::Nearest),
            soft::convert(-0.0, format, Round::Nearest),
        );
        let magnitude = bits & !sign;
        if self.sat {
            let zero = magnitude > infinity || bits & sign != 0;
            return if zero { 0 } else { bits.min(one) };
        }
        if self.finite && magnitude == infinity {
            return bits - 1;
        }
        bits
    }
}

/// Copies of the sign above a narrow signed integer, up to 64 bits.
fn sign_fill(value: u64, bits: u8) -> u64 {
    if bits < 64 && value >> (bits - 1) & 1 != 0 { !0 << bits } else { 0 }
}

fn limits(bits: u8, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// Any conversion; `imm` is a packed [`General`].
pub(crate) unsafe fn general(cx: &mut Cx, op: &Op) -> Flow {
    let how = General::unpack(op.imm);
    // SAFETY: the contract of handlers: operands are rows of the widths that the types name.
    unsafe {
        let (a, d) = (cx.src(op.a), cx.dst(op.d));
        for lane in lanes_of(cx.active) {
            let raw = if how.src.wide() { lane_of::<u64>(a, lane) } else { lane_of::<u32>(a, lane).into() };
            let value = how.convert(raw);
            if how.dst.wide() {
                set_lane::<u64>(d, lane, value);
            } else {
                set_lane::<u32>(d, lane, value as u32);
            }
        }
    }
    Flow::Next
}

/// `cvt.{rn,rz}.{f16x2,bf16x2}.f32 d, a, b`: `a` goes to the high half.
pub(crate) fn pack2(bf16: bool, round: Round, finite: bool) -> Option<OpFn> {
    #[inline(always)]
    fn soft2<T: Half, const ZERO: bool, const FINITE: bool>(a: f32, b: f32) -> X2<T> {
        let one = |x: f32| {
            let round = if ZERO { Round::Zero } else { Round::Nearest };
            let bits = soft::convert(x.into(), T::FORMAT, round) as u16;
            let infinity = soft::convert(f64::INFINITY, T::FORMAT, round) as u16;
            T::from_bits(if FINITE && bits & 0x7fff == infinity { bits - 1 } else { bits })
        };
        X2(one(b), one(a))
    }
    Some(match (bf16, round, finite) {
        (false, Round::Nearest, false) => map2(|a: f32, b: f32| X2(H(f32_to_f16(b)), H(f32_to_f16(a)))),
        (true, Round::Nearest, false) => map2(|a: f32, b: f32| X2(B(f32_to_bf16(b)), B(f32_to_bf16(a)))),
        (false, Round::Zero, false) => each2(soft2::<H, true, false>),
        (true, Round::Zero, false) => each2(soft2::<B, true, false>),
        (false, Round::Nearest, true) => each2(soft2::<H, false, true>),
        (true, Round::Nearest, true) => each2(soft2::<B, false, true>),
        (false, Round::Zero, true) => each2(soft2::<H, true, true>),
        (true, Round::Zero, true) => each2(soft2::<B, true, true>),
        _ => return None,
    })
}

/// `cvt.{rna,rn,rz}.tf32.f32`.
pub(crate) fn tf32(round: Round) -> Option<OpFn> {
    #[inline(always)]
    fn round_by(x: f32, add: u32) -> u32 {
        let bits = x.to_bits();
        if x.is_nan() { 0x7fff_ffff } else { bits.wrapping_add(add) & !0x1fff }
    }
    Some(match round {
        Round::Away => map1(|a: f32| round_by(a, if a.is_finite() { 0x1000 } else { 0 })),
        Round::Nearest => map1(|a: f32| {
            let add = 0xfff + (a.to_bits() >> 13 & 1);
            round_by(a, if a.is_finite() { add } else { 0 })
        }),
        Round::Zero => map1(|a: f32| round_by(a, 0)),
        _ => return None,
    })
}

/// Rounds to e4m3 or e5m2, saturating to the largest finite number.
fn to_fp8(x: f32, e5m2: bool) -> u8 {
    let (mantissa, bias, max) = if e5m2 { (2, 15, 57344.0) } else { (3, 7, 448.0) };
    if x.is_nan() {
        return 0x7f;
    }
    let sign = (x.to_bits() >> 24 & 0x80) as u8;
    let m = f64::from(x.abs()).min(max);
    let exponent = ((m.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let units = (m * 2f64.powi(mantissa - exponent)).round_ties_even() as i32;
    sign | (((exponent + bias - 1) << mantissa) + units) as u8
}

fn from_fp8(x: u8, e5m2: bool) -> f32 {
    let (mantissa, bias) = if e5m2 { (2, 15) } else { (3, 7) };
    let magnitude = i32::from(x & 0x7f);
    let special = if e5m2 { magnitude > 0x7c } else { magnitude == 0x7f };
    let (exponent, fraction) = (magnitude >> mantissa, magnitude & ((1 << mantissa) - 1));
    let value = if special {
        f32::NAN
    } else if e5m2 && magnitude == 0x7c {
        f32::INFINITY
    } else if exponent == 0 {
        fraction as f32 * 2f32.powi(1 - bias - mantissa)
    } else {
        (fraction + (1 << mantissa)) as f32 * 2f32.powi(exponent - bias - mantissa)
    };
    if x & 0x80 != 0 { -value } else { value }
}

/// As [`to_fp8`]; with `RELU`, numbers below zero become zero, and NaN stays what it is.
#[inline(always)]
fn fp8<const E5M2: bool, const RELU: bool>(x: f32) -> u16 {
    to_fp8(if RELU && x.is_sign_negative() && !x.is_nan() { 0.0 } else { x }, E5M2).into()
}

/// `cvt.rn.satfinite{.relu}.{e4m3x2,e5m2x2}.f32 d, a, b`.
pub(crate) fn fp8_from_f32(e5m2: bool, relu: bool) -> OpFn {
    match (e5m2, relu) {
        (true, true) => each2(|a: f32, b: f32| fp8::<true, true>(a) << 8 | fp8::<true, true>(b)),
        (true, false) => each2(|a: f32, b: f32| fp8::<true, false>(a) << 8 | fp8::<true, false>(b)),
        (false, true) => each2(|a: f32, b: f32| fp8::<false, true>(a) << 8 | fp8::<false, true>(b)),
        (false, false) => each2(|a: f32, b: f32| fp8::<false, false>(a) << 8 | fp8::<false, false>(b)),
    }
}

/// `cvt.rn.satfinite{.relu}.{e4m3x2,e5m2x2}.f16x2 d, a`.
pub(crate) fn fp8_from_f16(e5m2: bool, relu: bool) -> OpFn {
    #[inline(always)]
    fn both<const E5M2: bool, const RELU: bool>(a: X2<H>) -> u16 {
        fp8::<E5M2, RELU>(a.1.to_f32()) << 8 | fp8::<E5M2, RELU>(a.0.to_f32())
    }
    match (e5m2, relu) {
        (true, true) => each1(both::<true, true>),
        (true, false) => each1(both::<true, false>),
        (false, true) => each1(both::<false, true>),
        (false, false) => each1(both::<false, false>),
    }
}

/// `cvt.rn.f16x2.{e4m3x2,e5m2x2} d, a`.
pub(crate) fn f16_from_fp8(e5m2: bool) -> OpFn {
    #[inline(always)]
    fn both<const E5M2: bool>(a: u16) -> X2<H> {
        X2(H::round(from_fp8(a as u8, E5M2)), H::round(from_fp8((a >> 8) as u8, E5M2)))
    }
    if e5m2 { each1(both::<true>) } else { each1(both::<false>) }
}

/// `cvt.pack.sat.{s16,u16,…}.s32 d, a, b, c`: `a` and `b` saturated to 16 or 8 bits; with 8 bits the low half of
/// `c` goes to the high half. `imm`: bits | signed << 8.
pub(crate) unsafe fn pack_sat(cx: &mut Cx, op: &Op) -> Flow {
    let bits = (op.imm & 0xff) as u32;
    let (low, high) =
        if op.imm >> 8 & 1 != 0 { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let mask = (1u32 << bits) - 1;
    // SAFETY: the contract of handlers: operands are rows of 32 bits.
    unsafe {
        let (a, b, c, d) = (cx.src(op.a), cx.src(op.b), cx.src(op.c), cx.dst(op.d));
        for lane in lanes_of(cx.active) {
            let sat = |row| lane_of::<i32>(row, lane).clamp(low, high) as u32 & mask;
            let above = if bits == 16 { 0 } else { lane_of::<u32>(c, lane) << (2 * bits) };
            set_lane::<u32>(d, lane, sat(b) | sat(a) << bits | above);
        }
    }
    Flow::Next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(dst: Numeric, src: Numeric, round: Round, sat: bool, raw: u64) -> u64 {
        General { dst, src, round, integral: true, sat, finite: false }.convert(raw)
    }

    #[test]
    fn floats_to_integers_saturate() {
        let f = |x: f32| u64::from(x.to_bits());
        let s8 = Numeric::Int { bits: 8, signed: true };
        assert_eq!(go(S32, Numeric::F32, Round::Zero, false, f(-1e10)) as u32, 0x8000_0000);
        assert_eq!(go(U32, Numeric::F32, Round::Zero, false, f(-1.5)) as u32, 0);
        assert_eq!(go(s8, Numeric::F32, Round::Nearest, false, f(2.5)) as u32, 2);
        assert_eq!(go(s8, Numeric::F32, Round::Up, false, f(-200.5)) as i32, -128);
        assert_eq!(go(S32, Numeric::F32, Round::Zero, false, f(f32::NAN)) as u32, 0);
        assert_eq!(go(S64, Numeric::F32, Round::Zero, false, f(f32::NAN)), 1 << 63);
        assert_eq!(go(U64, Numeric::F32, Round::Zero, false, f(f32::INFINITY)), u64::MAX);
        assert_eq!(go(S32, Numeric::F64, Round::Zero, false, f64::NAN.to_bits()) as u32, 0x8000_0000);
    }

    #[test]
    fn integers_round_once() {
        let odd = (1u64 << 40) + (1 << 16) + 1;
        assert_eq!(go(Numeric::F32, U64, Round::Nearest, false, odd) as u32, (odd as f32).to_bits());
        let s16 = Numeric::Int { bits: 16, signed: true };
        assert_eq!(go(s16, S32, Round::Nearest, true, 40000), 32767);
        assert_eq!(go(s16, S32, Round::Nearest, false, 40000) as u32, 40000u16 as i16 as i32 as u32);
    }

    #[test]
    fn fp8_round_trips() {
        for e5m2 in [false, true] {
            for code in 0..=255u8 {
                let x = from_fp8(code, e5m2);
                if x.is_finite() {
                    assert_eq!(to_fp8(x, e5m2), code, "{x}");
                }
            }
        }
        assert_eq!((to_fp8(1e9, false), to_fp8(-1e9, true), to_fp8(0.0625, false)), (0x7e, 0xfb, 0x18));
        assert_eq!(from_fp8(0x38, false), 1.0);
    }
}
