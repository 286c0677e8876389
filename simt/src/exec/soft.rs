//! Exact floating-point arithmetic in any rounding mode, for what the host cannot do directly.
//!
//! Values are decoded to integers, combined exactly (with a sticky bit for what lies below), and
//! rounded once. All formats that PTX computes in are subsets of `f64`, so operands are `f64`s.

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero.
    Away,
    Zero,
    Down,
    Up,
}

/// A binary interchange format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the significand, the hidden one included.
    pub precision: u32,
    /// Exponent bias; the largest exponent.
    pub bias: i32,
}

impl Format {
    pub(crate) const F16: Format = Format { precision: 11, bias: 15 };
    pub(crate) const BF16: Format = Format { precision: 8, bias: 127 };
    pub(crate) const F32: Format = Format { precision: 24, bias: 127 };
    pub(crate) const F64: Format = Format { precision: 53, bias: 1023 };

    fn infinity(self) -> u64 {
        (2 * self.bias as u64 + 1) << (self.precision - 1)
    }

    fn sign(self) -> u64 {
        (2 * self.bias as u64 + 2) << (self.precision - 1)
    }

    /// The NaN that PTX arithmetic returns.
    pub(crate) fn nan(self) -> u64 {
        if self == Format::F64 { 0x7ff8_0000_0000_0000 } else { self.sign() - 1 }
    }
}

/// Rounds ±(m + sticky)·2^e, where sticky stands for some fraction in (0, 1).
fn pack(negative: bool, m: u128, e: i32, sticky: bool, format: Format, round: Round) -> u64 {
    let sign = if negative { format.sign() } else { 0 };
    if m == 0 {
        return sign;
    }
    let (mut m, mut e) = (m, e);
    // Room below, so that a sticky bit never stands for half a unit or more.
    let room = m.leading_zeros().min(64);
    m <<= room;
    e -= room as i32;
    let p = format.precision as i32;
    let top = e + 127 - m.leading_zeros() as i32;
    let unit = (top - (p - 1)).max(1 - format.bias - (p - 1));
    let shift = unit - e;
    let (kept, rest, half) = match shift {
        ..=0 => (m << shift.unsigned_abs().min(127), 0u128, 1u128),
        1..=127 => (m >> shift, m & ((1 << shift) - 1), 1 << (shift - 1)),
        128 => (0, m, 1 << 127),
        // All of it lies below half a unit.
        _ => (0, 1, 2),
    };
    let inexact = rest != 0 || sticky;
    let above = rest > half || (rest == half && sticky);
    let tie = rest == half && !sticky && shift > 0;
    let up = match round {
        Round::Nearest => above || (tie && kept & 1 == 1),
        Round::Away => above || tie,
        Round::Zero => false,
        Round::Down => negative && inexact,
        Round::Up => !negative && inexact,
    };
    let kept = kept as u64 + u64::from(up);
    let bits = (((unit + p - 1 + format.bias - 1) as u64) << (p - 1)).saturating_add(kept);
    let infinity = format.infinity();
    if unit + p - 1 > format.bias || bits >= infinity {
        let to_infinity = match round {
            Round::Nearest | Round::Away => true,
            Round::Zero => false,
            Round::Down => negative,
            Round::Up => !negative,
        };
        return sign | if to_infinity { infinity } else { infinity - 1 };
    }
    sign | bits
}

/// A finite number as (negative, m, e): ±m·2^e.
fn parts(x: f64) -> (bool, u128, i32) {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = u128::from(bits & 0xf_ffff_ffff_ffff);
    let (m, e) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    (bits >> 63 != 0, m, e)
}

/// Rounds `x` to a format.
pub(crate) fn convert(x: f64, format: Format, round: Round) -> u64 {
    if x.is_nan() {
        return format.nan();
    }
    if x.is_infinite() {
        return format.infinity() | if x < 0.0 { format.sign() } else { 0 };
    }
    let (negative, m, e) = parts(x);
    pack(negative, m, e, false, format, round)
}

/// Rounds an integer to a format.
pub(crate) fn from_int(x: i128, format: Format, round: Round) -> u64 {
    pack(x < 0, x.unsigned_abs(), 0, false, format, round)
}

/// Rounds x·2^e to a format.
pub(crate) fn scaled(x: i128, e: i32, format: Format, round: Round) -> u64 {
    pack(x < 0, x.unsigned_abs(), e, false, format, round)
}

/// a·b + c, rounded once.
pub(crate) fn fma(a: f64, b: f64, c: f64, format: Format, round: Round) -> u64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        // No rounding takes place; the product of finite numbers must not overflow here.
        let product = if a.is_finite() && b.is_finite() { 0.0 } else { a * b };
        return convert(product + c, format, round);
    }
    let (na, ma, ea) = parts(a);
    let (nb, mb, eb) = parts(b);
    let (nc, mc, ec) = parts(c);
    let np = na != nb;
    let (mp, ep) = (ma * mb, ea + eb);
    if mp == 0 && mc == 0 {
        let negative = if np == nc { np } else { round == Round::Down };
        return pack(negative, 0, 0, false, format, round);
    }
    if mp == 0 {
        return pack(nc, mc, ec, false, format, round);
    }
    if mc == 0 {
        return pack(np, mp, ep, false, format, round);
    }
    let high = |m: u128, e: i32| {
        let by = m.leading_zeros() - 7;
        (m << by, e - by as i32)
    };
    let (mp, ep) = high(mp, ep);
    let (mc, ec) = high(mc, ec);
    let ((n1, m1, e1), (n2, m2, e2)) =
        if (ep, mp) >= (ec, mc) { ((np, mp, ep), (nc, mc, ec)) } else { ((nc, mc, ec), (np, mp, ep)) };
    let by = (e1 - e2) as u32;
    let (m2, sticky) = if by > 127 { (0, true) } else { (m2 >> by, m2 & ((1 << by) - 1) != 0) };
    if n1 == n2 {
        return pack(n1, m1 + m2, e1, sticky, format, round);
    }
    let m = m1 - m2 - u128::from(sticky);
    let negative = if m == 0 && !sticky { round == Round::Down } else { n1 };
    pack(negative, m, e1, sticky, format, round)
}

/// a + b, rounded once.
pub(crate) fn add(a: f64, b: f64, format: Format, round: Round) -> u64 {
    fma(a, 1.0, b, format, round)
}

/// a·b, rounded once.
pub(crate) fn mul(a: f64, b: f64, format: Format, round: Round) -> u64 {
    if a == 0.0 || b == 0.0 || !a.is_finite() || !b.is_finite() {
        return convert(a * b, format, round);
    }
    fma(a, b, 0.0, format, round)
}

/// a / b, rounded once.
pub(crate) fn div(a: f64, b: f64, format: Format, round: Round) -> u64 {
    if a == 0.0 || b == 0.0 || !a.is_finite() || !b.is_finite() {
        return convert(a / b, format, round);
    }
    let (na, ma, ea) = parts(a);
    let (nb, mb, eb) = parts(b);
    let (ua, ub) = (ma.leading_zeros() - 1, mb.leading_zeros() - 64);
    let (ma, mb) = (ma << ua, mb << ub);
    let e = (ea - ua as i32) - (eb - ub as i32);
    pack(na != nb, ma / mb, e, ma % mb != 0, format, round)
}

/// The square root, rounded once.
pub(crate) fn sqrt(x: f64, format: Format, round: Round) -> u64 {
    if x <= 0.0 || !x.is_finite() {
        return convert(x.sqrt(), format, round);
    }
    let (_, m, e) = parts(x);
    let mut by = m.leading_zeros() - 1;
    if (e - by as i32) % 2 != 0 {
        by -= 1;
    }
    let m = m << by;
    let root = m.isqrt();
    pack(false, root, (e - by as i32) / 2, root * root != m, format, round)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rng(u64);

    impl Rng {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        /// Numbers whose exponents lie close together often enough for cancellation and ties.
        fn f64(&mut self) -> f64 {
            let r = self.next();
            match r % 8 {
                0 => f64::from_bits(self.next()),
                1 => f64::from_bits(self.next() & 0x800f_ffff_ffff_ffff),
                2 => (self.next() % 17) as f64 - 8.0,
                _ => f64::from_bits((self.next() & 0x800f_ffff_ffff_ffff) | ((1023 + r / 8 % 120 - 60) << 52)),
            }
        }

        fn f32(&mut self) -> f32 {
            match self.next() % 4 {
                0 => f32::from_bits(self.next() as u32),
                1 => f32::from_bits(self.next() as u32 & 0x807f_ffff),
                _ => self.f64() as f32,
            }
        }
    }

    fn same64(got: u64, want: f64) {
        if want.is_nan() {
            assert_eq!(got, 0x7ff8_0000_0000_0000);
        } else {
            assert_eq!(got, want.to_bits(), "got {:e}, want {want:e}", f64::from_bits(got));
        }
    }

    #[test]
    fn nearest_agrees_with_the_host_in_f64() {
        let mut r = Rng(1);
        for _ in 0..200_000 {
            let (a, b, c) = (r.f64(), r.f64(), r.f64());
            same64(add(a, b, Format::F64, Round::Nearest), a + b);
            same64(mul(a, b, Format::F64, Round::Nearest), a * b);
            same64(div(a, b, Format::F64, Round::Nearest), a / b);
            same64(sqrt(a, Format::F64, Round::Nearest), a.sqrt());
            same64(fma(a, b, c, Format::F64, Round::Nearest), a.mul_add(b, c));
            same64(fma(a, b, -(a * b), Format::F64, Round::Nearest), a.mul_add(b, -(a * b)));
        }
    }

    #[test]
    fn nearest_agrees_with_the_host_in_f32() {
        let mut r = Rng(2);
        for _ in 0..200_000 {
            let (a, b, c) = (r.f32(), r.f32(), r.f32());
            let want = a.mul_add(b, c);
            let got = fma(a.into(), b.into(), c.into(), Format::F32, Round::Nearest) as u32;
            assert_eq!(got, if want.is_nan() { 0x7fff_ffff } else { want.to_bits() });
            let want = r.f64();
            let got = convert(want, Format::F32, Round::Nearest) as u32;
            assert_eq!(got, if want.is_nan() { 0x7fff_ffff } else { (want as f32).to_bits() });
        }
    }

    #[test]
    fn small_formats_agree_with_half() {
        let mut r = Rng(3);
        for _ in 0..200_000 {
            let x = r.f32();
            let (h, b) = (half::f16::from_f32(x), half::bf16::from_f32(x));
            if !x.is_nan() {
                assert_eq!(convert(x.into(), Format::F16, Round::Nearest) as u16, h.to_bits(), "{x:e}");
                assert_eq!(convert(x.into(), Format::BF16, Round::Nearest) as u16, b.to_bits(), "{x:e}");
            }
        }
        assert_eq!(convert(f64::NAN, Format::F16, Round::Nearest), 0x7fff);
        assert_eq!(convert(f64::NAN, Format::BF16, Round::Nearest), 0x7fff);
    }

    #[test]
    fn directed_modes_bracket_the_exact_result() {
        let mut r = Rng(4);
        let at = |bits: u64| f32::from_bits(bits as u32);
        for _ in 0..100_000 {
            let (a, b) = (r.f32(), r.f32());
            if !(a.is_finite() && b.is_finite()) {
                continue;
            }
            // The product of two f32 is exact in f64.
            let exact = f64::from(a) * f64::from(b);
            let [down, up, zero] =
                [Round::Down, Round::Up, Round::Zero].map(|m| at(mul(a.into(), b.into(), Format::F32, m)));
            assert!(f64::from(down) <= exact && exact <= f64::from(up));
            if f64::from(down) == exact {
                assert_eq!(down, up);
            } else {
                assert_eq!(down.next_up(), up);
            }
            assert_eq!(zero.to_bits(), if exact.is_sign_negative() { up.to_bits() } else { down.to_bits() });
        }
    }

    #[test]
    fn zeros_and_overflow_follow_the_mode() {
        let f = |b: u64| f64::from_bits(b);
        assert_eq!(f(add(1.0, -1.0, Format::F64, Round::Down)).to_bits(), (-0.0f64).to_bits());
        assert_eq!(f(add(1.0, -1.0, Format::F64, Round::Nearest)).to_bits(), 0);
        assert_eq!(f(mul(0.0, 5.0, Format::F64, Round::Down)).to_bits(), 0);
        assert_eq!(f(mul(f64::MAX, 2.0, Format::F64, Round::Zero)), f64::MAX);
        assert_eq!(f(mul(-f64::MAX, 2.0, Format::F64, Round::Up)), -f64::MAX);
        assert_eq!(f(mul(-f64::MAX, 2.0, Format::F64, Round::Down)), f64::NEG_INFINITY);
        assert_eq!(f(mul(f64::MIN_POSITIVE, 1e-300, Format::F64, Round::Up)), 5e-324);
        assert_eq!(from_int((1 << 24) + 1, Format::F32, Round::Up) as u32, 16_777_218f32.to_bits());
        let tf32 = Format { precision: 11, bias: 127 };
        assert_eq!(convert(1.0 + 2f64.powi(-11), tf32, Round::Away), 0x3f80_0000 >> 13 | 1);
    }
}
