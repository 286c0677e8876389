//! f32 and f64 arithmetic.
//!
//! NaN results are canonical (`0x7fffffff` for f32). Rounding to nearest uses the host's
//! arithmetic, which is exact for these operations; directed modes go through [`soft`].
//! Flushing of subnormals and saturation are operations of their own that lowering adds; only
//! the most frequent combinations are fused here. The `.approx` functions are computed in f64 and
//! rounded once: at least as accurate as PTX demands, but not the bits of any one GPU.

use super::int::Cmp;
use super::lanes::{cmp, each1, each2, each3, map1, map2, map3};
use super::soft::{self, Format, Round};
use super::{OpFn, power};

/// Arithmetic with a rounding mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arith {
    Add,
    Sub,
    Mul,
    Div,
    Fma,
    Sqrt,
    Rcp,
}

/// The bits of a result. Not an `f32`: a compiler may take any NaN of a float type for another.
#[inline(always)]
pub(crate) fn canon(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

#[inline(always)]
pub(crate) fn canon64(x: f64) -> u64 {
    if x.is_nan() { 0x7ff8_0000_0000_0000 } else { x.to_bits() }
}

/// Subnormals become zeros of their sign.
#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    f32::from_bits(flush_bits(x.to_bits()))
}

#[inline(always)]
pub(crate) fn flush_bits(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// The handler of an f32 operation; `ftz` only for `Add`, `Sub`, `Mul`, `Fma` rounded to nearest.
pub(crate) fn arith32(op: Arith, round: Round, ftz: bool) -> OpFn {
    macro_rules! directed {
        ($round:expr) => {
            match op {
                Arith::Add => each2(|a: f32, b: f32| at(soft::add(a.into(), b.into(), Format::F32, $round))),
                Arith::Sub => each2(|a: f32, b: f32| at(soft::add(a.into(), (-b).into(), Format::F32, $round))),
                Arith::Mul => each2(|a: f32, b: f32| at(soft::mul(a.into(), b.into(), Format::F32, $round))),
                Arith::Div => each2(|a: f32, b: f32| at(soft::div(a.into(), b.into(), Format::F32, $round))),
                Arith::Fma => {
                    each3(|a: f32, b: f32, c: f32| at(soft::fma(a.into(), b.into(), c.into(), Format::F32, $round)))
                }
                Arith::Sqrt => each1(|a: f32| at(soft::sqrt(a.into(), Format::F32, $round))),
                Arith::Rcp => each1(|a: f32| at(soft::div(1.0, a.into(), Format::F32, $round))),
            }
        };
    }
    fn at(bits: u64) -> u32 {
        bits as u32
    }
    match (round, ftz) {
        (Round::Nearest | Round::Away, false) => match op {
            Arith::Add => map2(|a: f32, b: f32| canon(a + b)),
            Arith::Sub => map2(|a: f32, b: f32| canon(a - b)),
            Arith::Mul => map2(|a: f32, b: f32| canon(a * b)),
            Arith::Div => map2(|a: f32, b: f32| canon(a / b)),
            Arith::Fma => map3(|a: f32, b: f32, c: f32| canon(a.mul_add(b, c))),
            Arith::Sqrt => map1(|a: f32| canon(a.sqrt())),
            Arith::Rcp => map1(|a: f32| canon(1.0 / a)),
        },
        (Round::Nearest | Round::Away, true) => match op {
            Arith::Add => map2(|a: f32, b: f32| flush_bits(canon(flush(a) + flush(b)))),
            Arith::Sub => map2(|a: f32, b: f32| flush_bits(canon(flush(a) - flush(b)))),
            Arith::Mul => map2(|a: f32, b: f32| flush_bits(canon(flush(a) * flush(b)))),
            Arith::Fma => map3(|a: f32, b: f32, c: f32| flush_bits(canon(flush(a).mul_add(flush(b), flush(c))))),
            Arith::Div => map2(|a: f32, b: f32| flush_bits(canon(flush(a) / flush(b)))),
            Arith::Sqrt => map1(|a: f32| flush_bits(canon(flush(a).sqrt()))),
            Arith::Rcp => map1(|a: f32| flush_bits(canon(1.0 / flush(a)))),
        },
        (Round::Zero, _) => directed!(Round::Zero),
        (Round::Down, _) => directed!(Round::Down),
        (Round::Up, _) => directed!(Round::Up),
    }
}

/// The handler of an f64 operation.
pub(crate) fn arith64(op: Arith, round: Round) -> OpFn {
    macro_rules! directed {
        ($round:expr) => {
            match op {
                Arith::Add => each2(|a: f64, b: f64| at(soft::add(a, b, Format::F64, $round))),
                Arith::Sub => each2(|a: f64, b: f64| at(soft::add(a, -b, Format::F64, $round))),
                Arith::Mul => each2(|a: f64, b: f64| at(soft::mul(a, b, Format::F64, $round))),
                Arith::Div => each2(|a: f64, b: f64| at(soft::div(a, b, Format::F64, $round))),
                Arith::Fma => each3(|a: f64, b: f64, c: f64| at(soft::fma(a, b, c, Format::F64, $round))),
                Arith::Sqrt => each1(|a: f64| at(soft::sqrt(a, Format::F64, $round))),
                Arith::Rcp => each1(|a: f64| at(soft::div(1.0, a, Format::F64, $round))),
            }
        };
    }
    fn at(bits: u64) -> u64 {
        bits
    }
    match round {
        Round::Nearest | Round::Away => match op {
            Arith::Add => map2(|a: f64, b: f64| canon64(a + b)),
            Arith::Sub => map2(|a: f64, b: f64| canon64(a - b)),
            Arith::Mul => map2(|a: f64, b: f64| canon64(a * b)),
            Arith::Div => map2(|a: f64, b: f64| canon64(a / b)),
            Arith::Fma => map3(|a: f64, b: f64, c: f64| canon64(a.mul_add(b, c))),
            Arith::Sqrt => map1(|a: f64| canon64(a.sqrt())),
            Arith::Rcp => map1(|a: f64| canon64(1.0 / a)),
        },
        Round::Zero => directed!(Round::Zero),
        Round::Down => directed!(Round::Down),
        Round::Up => directed!(Round::Up),
    }
}

/// The handler of an operation on two f32 in a 64-bit register, rounded to nearest.
pub(crate) fn arith32x2(op: Arith, ftz: bool) -> Option<OpFn> {
    #[inline(always)]
    fn both(f: impl Fn(u32) -> u32) -> u64 {
        u64::from(f(0)) | u64::from(f(32)) << 32
    }
    #[inline(always)]
    fn half(x: u64, shift: u32) -> f32 {
        f32::from_bits((x >> shift) as u32)
    }
    Some(match (op, ftz) {
        (Arith::Add, false) => map2(|a: u64, b: u64| both(|s| canon(half(a, s) + half(b, s)))),
        (Arith::Sub, false) => map2(|a: u64, b: u64| both(|s| canon(half(a, s) - half(b, s)))),
        (Arith::Mul, false) => map2(|a: u64, b: u64| both(|s| canon(half(a, s) * half(b, s)))),
        (Arith::Fma, false) => {
            map3(|a: u64, b: u64, c: u64| both(|s| canon(half(a, s).mul_add(half(b, s), half(c, s)))))
        }
        (Arith::Add, true) => map2(|a: u64, b: u64| both(|s| flush_bits(canon(flush(half(a, s)) + flush(half(b, s)))))),
        (Arith::Sub, true) => map2(|a: u64, b: u64| both(|s| flush_bits(canon(flush(half(a, s)) - flush(half(b, s)))))),
        (Arith::Mul, true) => map2(|a: u64, b: u64| both(|s| flush_bits(canon(flush(half(a, s)) * flush(half(b, s)))))),
        (Arith::Fma, true) => map3(|a: u64, b: u64, c: u64| {
            both(|s| flush_bits(canon(flush(half(a, s)).mul_add(flush(half(b, s)), flush(half(c, s))))))
        }),
        _ => return None,
    })
}

/// Approximate functions of one f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Approx {
    Rcp,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
}

#[inline(always)]
fn exp2(x: f32) -> u32 {
    canon(power::exp2(x) as f32)
}

/// The handler of an approximate function, rounded correctly.
pub(crate) fn approx32(op: Approx) -> OpFn {
    match op {
        Approx::Rcp => map1(|a: f32| canon(1.0 / a)),
        Approx::Sqrt => map1(|a: f32| canon(a.sqrt())),
        Approx::Rsqrt => map1(|a: f32| canon((1.0 / f64::from(a).sqrt()) as f32)),
        Approx::Sin => each1(|a: f32| canon(f64::from(a).sin() as f32)),
        Approx::Cos => each1(|a: f32| canon(f64::from(a).cos() as f32)),
        Approx::Lg2 => each1(|a: f32| canon(f64::from(a).log2() as f32)),
        Approx::Ex2 => map1(exp2),
        Approx::Tanh => each1(|a: f32| canon(f64::from(a).tanh() as f32)),
    }
}

/// `rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64` and `rsqrt.approx.f64`.
pub(crate) fn approx64(op: Approx, ftz: bool) -> Option<OpFn> {
    // The `.ftz` forms look at the upper word and return an upper word.
    fn upper(x: f64) -> f64 {
        f64::from_bits(x.to_bits() & !0xffff_ffff)
    }
    fn result(x: f64) -> u64 {
        // The ISA names this NaN, which is not that of other f64 instructions.
        if x.is_nan() { 0x7fff_ffff_0000_0000 } else { upper(flush64(x)).to_bits() }
    }
    Some(match (op, ftz) {
        (Approx::Rcp, true) => each1(|a: f64| result(1.0 / upper(flush64(a)))),
        (Approx::Rsqrt, true) => each1(|a: f64| result(1.0 / upper(flush64(a)).sqrt())),
        (Approx::Rsqrt, false) => each1(|a: f64| canon64(1.0 / a.sqrt())),
        _ => return None,
    })
}

#[inline(always)]
fn flush64(x: f64) -> f64 {
    let bits = x.to_bits();
    f64::from_bits(if bits & 0x7ff0_0000_0000_0000 == 0 { bits & 1 << 63 } else { bits })
}

/// `div.approx.f32`: zero for divisors above 2^126, as the ISA says; `div.full.f32` scales instead.
pub(crate) fn div_approx(full: bool) -> OpFn {
    if full {
        return map2(|a: f32, b: f32| canon(a / b));
    }
    map2(|a: f32, b: f32| {
        let huge = b.abs() > 8.507_059e37 && b.is_finite();
        let zero = f32::from_bits((a.to_bits() ^ b.to_bits()) & 0x8000_0000);
        let limited = if a.is_finite() { zero } else { f32::NAN };
        canon(if huge { limited } else { a / b })
    })
}

#[inline(always)]
fn min32(a: f32, b: f32) -> u32 {
    // Equal numbers differ in bits only if they are zeros: or-ing prefers the negative one.
    let equal = f32::from_bits(a.to_bits() | b.to_bits());
    let number = if a < b {
        a
    } else if b < a {
        b
    } else {
        equal
    };
    let one = if a.is_nan() { b } else { a };
    canon(if a.is_nan() || b.is_nan() { one } else { number })
}

#[inline(always)]
fn max32(a: f32, b: f32) -> u32 {
    let equal = f32::from_bits(a.to_bits() & b.to_bits());
    let number = if a > b {
        a
    } else if b > a {
        b
    } else {
        equal
    };
    let one = if a.is_nan() { b } else { a };
    canon(if a.is_nan() || b.is_nan() { one } else { number })
}

#[inline(always)]
fn propagate(a: f32, b: f32, value: u32) -> u32 {
    if a.is_nan() || b.is_nan() { 0x7fff_ffff } else { value }
}

/// The smaller magnitude with the product's sign, or the larger.
#[inline(always)]
fn xorsign(a: f32, b: f32, value: u32) -> u32 {
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    if value == 0x7fff_ffff { value } else { value | sign }
}

/// The smaller or the larger of two f32.
pub(super) fn extreme_of(max: bool, nan: bool, a: f32, b: f32) -> u32 {
    let value = if max { max32(a, b) } else { min32(a, b) };
    if nan { propagate(a, b, value) } else { value }
}

/// `min` and `max` of f32.
pub(crate) fn extreme32(max: bool, nan: bool, xorsign_abs: bool) -> OpFn {
    match (max, nan, xorsign_abs) {
        (false, false, false) => map2(min32),
        (true, false, false) => map2(max32),
        (false, true, false) => map2(|a: f32, b: f32| propagate(a, b, min32(a, b))),
        (true, true, false) => map2(|a: f32, b: f32| propagate(a, b, max32(a, b))),
        (false, false, true) => map2(|a: f32, b: f32| xorsign(a, b, min32(a.abs(), b.abs()))),
        (true, false, true) => map2(|a: f32, b: f32| xorsign(a, b, max32(a.abs(), b.abs()))),
        (false, true, true) => map2(|a: f32, b: f32| xorsign(a, b, propagate(a, b, min32(a.abs(), b.abs())))),
        (true, true, true) => map2(|a: f32, b: f32| xorsign(a, b, propagate(a, b, max32(a.abs(), b.abs())))),
    }
}

/// `min` and `max` of f64.
pub(crate) fn extreme64(max: bool) -> OpFn {
    #[inline(always)]
    fn pick(a: f64, b: f64, first: bool, equal: u64) -> u64 {
        if a.is_nan() || b.is_nan() {
            return canon64(if a.is_nan() { b } else { a });
        }
        if a == b {
            equal
        } else if first {
            a.to_bits()
        } else {
            b.to_bits()
        }
    }
    if max {
        map2(|a: f64, b: f64| pick(a, b, a > b, a.to_bits() & b.to_bits()))
    } else {
        map2(|a: f64, b: f64| pick(a, b, a < b, a.to_bits() | b.to_bits()))
    }
}

/// Sign operations and the fix-ups that lowering adds around others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Flush,
    Saturate,
}

/// The handler of a [`Unary`] operation.
pub(crate) fn unary(op: Unary, double: bool) -> OpFn {
    match (op, double) {
        (Unary::Neg, false) => map1(|a: f32| canon(f32::from_bits(a.to_bits() ^ 0x8000_0000))),
        (Unary::Neg, true) => map1(|a: f64| canon64(f64::from_bits(a.to_bits() ^ 1 << 63))),
        (Unary::Abs, false) => map1(|a: f32| canon(a.abs())),
        (Unary::Abs, true) => map1(|a: f64| canon64(a.abs())),
        (Unary::Flush, false) => map1(flush),
        (Unary::Flush, true) => map1(flush64),
        (Unary::Saturate, false) => map1(|a: f32| if a > 0.0 { if a > 1.0 { 1.0 } else { a } } else { 0.0 }),
        (Unary::Saturate, true) => map1(|a: f64| if a > 0.0 { if a > 1.0 { 1.0 } else { a } } else { 0.0 }),
    }
}

/// `copysign d, a, b`: the magnitude of `b` with the sign of `a`.
pub(crate) fn copysign(double: bool) -> OpFn {
    if double {
        map2(|a: u64, b: u64| (a & 1 << 63) | (b & !(1 << 63)))
    } else {
        map2(|a: u32, b: u32| (a & 1 << 31) | (b & !(1 << 31)))
    }
}

/// Comparisons beyond those of integers: `.equ` … are true if an operand is NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FloatCmp {
    Ordered(Cmp),
    Unordered(Cmp),
    Num,
    Nan,
}

/// A float that can be compared as f64.
trait Compared: super::lanes::Lane {
    fn value(self) -> f64;
}

impl Compared for f64 {
    #[inline(always)]
    fn value(self) -> f64 {
        self
    }
}

impl Compared for super::half::H {
    #[inline(always)]
    fn value(self) -> f64 {
        super::half::Half::to_f32(self).into()
    }
}

impl Compared for super::half::B {
    #[inline(always)]
    fn value(self) -> f64 {
        super::half::Half::to_f32(self).into()
    }
}

macro_rules! compare_of {
    ($op:expr, $t:ty, $v:expr) => {
        match $op {
            FloatCmp::Ordered(Cmp::Eq) => cmp(|a: $t, b: $t| $v(a) == $v(b)),
            FloatCmp::Ordered(Cmp::Ne) => cmp(|a: $t, b: $t| $v(a) < $v(b) || $v(a) > $v(b)),
            FloatCmp::Ordered(Cmp::Lt) => cmp(|a: $t, b: $t| $v(a) < $v(b)),
            FloatCmp::Ordered(Cmp::Le) => cmp(|a: $t, b: $t| $v(a) <= $v(b)),
            FloatCmp::Ordered(Cmp::Gt) => cmp(|a: $t, b: $t| $v(a) > $v(b)),
            FloatCmp::Ordered(Cmp::Ge) => cmp(|a: $t, b: $t| $v(a) >= $v(b)),
            FloatCmp::Unordered(Cmp::Eq) => cmp(|a: $t, b: $t| !($v(a) < $v(b) || $v(a) > $v(b))),
            FloatCmp::Unordered(Cmp::Ne) => cmp(|a: $t, b: $t| $v(a) != $v(b)),
            FloatCmp::Unordered(Cmp::Lt) => cmp(|a: $t, b: $t| !($v(a) >= $v(b))),
            FloatCmp::Unordered(Cmp::Le) => cmp(|a: $t, b: $t| !($v(a) > $v(b))),
            FloatCmp::Unordered(Cmp::Gt) => cmp(|a: $t, b: $t| !($v(a) <= $v(b))),
            FloatCmp::Unordered(Cmp::Ge) => cmp(|a: $t, b: $t| !($v(a) < $v(b))),
            FloatCmp::Num => cmp(|a: $t, b: $t| $v(a) == $v(a) && $v(b) == $v(b)),
            FloatCmp::Nan => cmp(|a: $t, b: $t| $v(a) != $v(a) || $v(b) != $v(b)),
        }
    };
}

/// The type of a comparison's operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FloatType {
    F16,
    BF16,
    F32,
    F64,
}

/// The handler of a floating-point comparison.
#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op)]
pub(crate) fn compare(op: FloatCmp, ty: FloatType) -> OpFn {
    match ty {
        FloatType::F32 => compare_of!(op, f32, |x: f32| x),
        FloatType::F64 => compare_of!(op, f64, Compared::value),
        FloatType::F16 => compare_of!(op, super::half::H, Compared::value),
        FloatType::BF16 => compare_of!(op, super::half::B, Compared::value),
    }
}

/// `testp`: a property of one number; compared with itself.
pub(crate) fn testp(property: &str, double: bool) -> Option<OpFn> {
    Some(match (property, double) {
        ("finite", false) => cmp(|a: f32, _: f32| a.is_finite()),
        ("infinite", false) => cmp(|a: f32, _: f32| a.is_infinite()),
        ("number", false) => cmp(|a: f32, _: f32| !a.is_nan()),
        ("notanumber", false) => cmp(|a: f32, _: f32| a.is_nan()),
        // Zeros count as normal.
        ("normal", false) => cmp(|a: f32, _: f32| a.is_normal() || a == 0.0),
        ("subnormal", false) => cmp(|a: f32, _: f32| a.is_subnormal()),
        ("finite", true) => cmp(|a: f64, _: f64| a.is_finite()),
        ("infinite", true) => cmp(|a: f64, _: f64| a.is_infinite()),
        ("number", true) => cmp(|a: f64, _: f64| !a.is_nan()),
        ("notanumber", true) => cmp(|a: f64, _: f64| a.is_nan()),
        ("normal", true) => cmp(|a: f64, _: f64| a.is_normal() || a == 0.0),
        ("subnormal", true) => cmp(|a: f64, _: f64| a.is_subnormal()),
        _ => return None,
    })
}
