//! The arithmetic of tensor cores.
//!
//! Floating-point products are summed as tensor cores were found to sum them (the published model of
//! MMA-Sim, arXiv 2511.10909): all products and the addend are aligned to the largest exponent, cut off
//! below a number of fraction bits that depends on the architecture, and added exactly; the sum is cut
//! off to f32, or rounded to nearest to f16. Architectures below Hopper sum a long row of products in parts. f64 is a
//! chain of fused multiply-adds, integers are exact.

use super::half::f16_to_f32;
use super::soft::{self, Format, Round};

/// The type of a factor or an accumulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    F16,
    BF16,
    TF32,
    E4M3,
    E5M2,
    F32,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::F16,
        Kind::BF16,
        Kind::TF32,
        Kind::E4M3,
        Kind::E5M2,
        Kind::F32,
        Kind::F64,
        Kind::S8,
        Kind::U8,
        Kind::S4,
        Kind::U4,
        Kind::B1,
        Kind::S32,
    ];

    pub fn of(code: u64) -> Kind {
        Kind::ALL[(code as usize & 15).min(Kind::ALL.len() - 1)]
    }

    pub fn named(word: &str) -> Option<Kind> {
        Some(match word {
            "f16" => Kind::F16,
            "bf16" => Kind::BF16,
            "tf32" => Kind::TF32,
            "e4m3" => Kind::E4M3,
            "e5m2" => Kind::E5M2,
            "f32" => Kind::F32,
            "f64" => Kind::F64,
            "s8" => Kind::S8,
            "u8" => Kind::U8,
            "s4" => Kind::S4,
            "u4" => Kind::U4,
            "b1" => Kind::B1,
            "s32" => Kind::S32,
            _ => return None,
        })
    }

    pub fn bits(self) -> u32 {
        match self {
            Kind::F16 | Kind::BF16 => 16,
            Kind::TF32 | Kind::F32 | Kind::S32 => 32,
            Kind::F64 => 64,
            Kind::E4M3 | Kind::E5M2 | Kind::S8 | Kind::U8 => 8,
            Kind::S4 | Kind::U4 => 4,
            Kind::B1 => 1,
        }
    }

    /// Elements in one register of a fragment.
    pub fn per_register(self) -> usize {
        (32 / self.bits()).max(1) as usize
    }

    pub fn is_int(self) -> bool {
        matches!(self, Kind::S8 | Kind::U8 | Kind::S4 | Kind::U4 | Kind::S32)
    }
}

/// A floating-point element: ± m · 2^(e - fraction bits of its type).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    m: i32,
    e: i32,
    /// Infinite or NaN: what it is, else 0.
    special: f32,
}

/// Fraction and exponent bits of a type.
fn layout(kind: Kind) -> (u32, u32) {
    match kind {
        Kind::F16 => (10, 5),
        Kind::BF16 => (7, 8),
        Kind::E4M3 => (3, 4),
        Kind::E5M2 => (2, 5),
        // tf32 takes the upper 19 bits of an f32.
        Kind::TF32 => (10, 8),
        _ => (23, 8),
    }
}

/// Takes an element apart. Zero has the exponent -126 whatever its type.
pub fn part(kind: Kind, bits: u32) -> Part {
    let (fraction, exponent) = layout(kind);
    let bits = if kind == Kind::TF32 { bits >> 13 } else { bits };
    let bias = (1 << (exponent - 1)) - 1;
    let m = (bits & ((1 << fraction) - 1)) as i32;
    let field = (bits >> fraction & ((1 << exponent) - 1)) as i32;
    let negative = bits >> (fraction + exponent) & 1 != 0;
    let signed = |m: i32| if negative { -m } else { m };
    let top = (1 << exponent) - 1;
    let special = match (kind, field == top, m) {
        // e4m3 has no infinity, and one NaN.
        (Kind::E4M3, true, 7) => f32::NAN,
        (Kind::E4M3, _, _) | (_, false, _) => 0.0,
        (_, _, 0) if negative => f32::NEG_INFINITY,
        (_, _, 0) => f32::INFINITY,
        _ => f32::NAN,
    };
    match (field, m) {
        (0, 0) => Part { m: 0, e: -126, special },
        (0, _) => Part { m: signed(m), e: 1 - bias, special },
        _ => Part { m: signed(m | 1 << fraction), e: field - bias, special },
    }
}

/// How an architecture sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Fraction bits that the aligned terms keep.
    pub(super) fraction: i32,
    /// Products that are summed at once.
    pub group: usize,
    /// Fraction bits of an f32 result.
    pub(super) result: u32,
}

impl Sum {
    pub fn of(sm: u32, kind: Kind) -> Sum {
        let (fraction, group, result) = match (sm, kind) {
            (90.., _) => (25, 32, 23),
            (75..=89, Kind::E4M3 | Kind::E5M2) => (13, 16, 13),
            (75..=89, Kind::TF32) => (24, 4, 23),
            (75..=89, _) => (24, 8, 23),
            _ => (23, 4, 23),
        };
        Sum { fraction, group, result }
    }
}

fn value(kind: Kind, p: Part) -> f64 {
    if p.special != 0.0 {
        return p.special.into();
    }
    f64::from(p.m) * 2f64.powi(p.e - layout(kind).0 as i32)
}

/// `c + Σ a·b` of one group; `c` and the result are of type `acc` (f16 or f32), as bits.
pub fn dot(kind: [Kind; 2], a: &[Part], b: &[Part], c: u32, acc: Kind, sum: Sum) -> u32 {
    let own = part(acc, c);
    let mut special = own.special != 0.0;
    let mut top = own.e;
    for (x, y) in a.iter().zip(b) {
        top = top.max(x.e + y.e);
        special |= x.special != 0.0 || y.special != 0.0;
    }
    if special {
        let products: f64 = a.iter().zip(b).map(|(&x, &y)| value(kind[0], x) * value(kind[1], y)).sum();
        let all = products + value(acc, own);
        if !all.is_finite() {
            let format = if acc == Kind::F16 { Format::F16 } else { Format::F32 };
            return soft::convert(all, format, Round::Nearest) as u32;
        }
    }
    let own_fraction = layout(acc).0 as i32;
    let product_fraction = (layout(kind[0]).0 + layout(kind[1]).0) as i32;
    // In units of 2^(top - fraction), cut off towards zero.
    let aligned = |m: i64, e: i32, fraction: i32| {
        let shift = sum.fraction + e - top - fraction;
        let magnitude = m.unsigned_abs();
        let cut = if shift >= 0 { magnitude << shift.min(40) } else { magnitude >> (-shift).min(63) };
        if m < 0 { -(cut as i64) } else { cut as i64 }
    };
    let mut total = aligned(own.m.into(), own.e, own_fraction);
    for (x, y) in a.iter().zip(b) {
        total += aligned(i64::from(x.m) * i64::from(y.m), x.e + y.e, product_fraction);
    }
    finish(total, top - sum.fraction, acc, sum.result)
}

/// total·2^e as f16 rounded to nearest, or as f32 cut off; a zero has no sign, and what is too large is infinite.
fn finish(total: i64, e: i32, acc: Kind, result: u32) -> u32 {
    if total == 0 {
        return 0;
    }
    if acc == Kind::F16 {
        let bits = soft::scaled(total.into(), e, Format::F16, Round::Nearest) as u32;
        return if bits & 0x7fff == 0 { 0 } else { bits };
    }
    let sign = if total < 0 { 0x8000_0000 } else { 0 };
    let highest = 63 - total.unsigned_abs().leading_zeros() as i32 + e;
    if highest > 127 {
        return sign | 0x7f80_0000;
    }
    let bits = soft::scaled(total.into(), e, Format::F32, Round::Zero) as u32;
    // Subnormal results keep fewer bits of a short fraction, too.
    let cut = 23 - result;
    let kept = (bits & 0x7fff_ffff) >> cut << cut;
    if kept == 0 { 0 } else { sign | kept }
}

/// The element of a product of f64 matrices.
pub fn dot64(a: &[f64], b: &[f64], c: f64, round: Round) -> f64 {
    a.iter().zip(b).fold(c, |sum, (&x, &y)| match round {
        Round::Nearest => f64::from_bits(super::float::canon64(x.mul_add(y, sum))),
        _ => f64::from_bits(soft::fma(x, y, sum, Format::F64, round)),
    })
}

/// An accumulator of another type.
pub fn accumulator(bits: u32, from: Kind, to: Kind) -> u32 {
    match (from, to) {
        (Kind::F16, Kind::F32) => f16_to_f32(bits as u16).to_bits(),
        (Kind::F32, Kind::F16) => super::half::f32_to_f16(f32::from_bits(bits)).into(),
        _ => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f16(x: f64) -> u32 {
        half::f16::from_f64(x).to_bits().into()
    }

    fn sum(c: f32, products: &[(f64, f64)], sm: u32) -> f32 {
        let a: Vec<Part> = products.iter().map(|p| part(Kind::F16, f16(p.0))).collect();
        let b: Vec<Part> = products.iter().map(|p| part(Kind::F16, f16(p.1))).collect();
        let bits = dot([Kind::F16; 2], &a, &b, c.to_bits(), Kind::F32, Sum::of(sm, Kind::F16));
        f32::from_bits(bits)
    }

    #[test]
    fn sums_are_exact_where_nothing_is_cut_off() {
        let products: Vec<(f64, f64)> = (1..=16).map(|i| (f64::from(i), f64::from(17 - i))).collect();
        let want: f64 = products.iter().map(|(a, b)| a * b).sum::<f64>() + 0.5;
        assert_eq!(f64::from(sum(0.5, &products, 90)), want);
        assert_eq!(sum(0.0, &[(0.0, 1.0)], 90).to_bits(), 0);
        assert!(sum(0.0, &[(f64::INFINITY, 0.0)], 90).is_nan());
        assert_eq!(sum(1.0, &[(f64::INFINITY, 2.0)], 90), f32::INFINITY);
        assert_eq!(sum(f32::MAX, &[(65504.0, 65504.0)], 90), f32::MAX, "far below the last place");
    }

    #[test]
    fn small_terms_are_cut_off_not_rounded() {
        // With 25 fraction bits below 2^0, 2^-26 vanishes and 2^-25 stays; f32 then cuts off again.
        let p = |n: i32| (2f64.powi(n), 2f64.powi(n));
        assert_eq!(sum(1.0, &[p(-13)], 90), 1.0);
        assert_eq!(sum(1.0, &[p(-12), p(-12)], 90), 1.0 + 2f32.powi(-23));
        assert_eq!(sum(-1.0, &[(2f64.powi(-12), -(2f64.powi(-12)))], 90), -1.0);
        // Four terms of 2^-25 are lost with 24 bits, and with 23; four of 2^-24 only with 23.
        let quarter = (2f64.powi(-12), 2f64.powi(-13));
        assert_eq!(sum(1.0, &[quarter; 4], 90), 1.0 + 2f32.powi(-23));
        assert_eq!(sum(1.0, &[quarter; 4], 80), 1.0);
        assert_eq!(sum(1.0, &[p(-12); 4], 80), 1.0 + 2f32.powi(-22));
        assert_eq!(sum(1.0, &[p(-12); 4], 70), 1.0);
    }

    #[test]
    fn every_code_of_the_small_formats() {
        // The values by the definition of the formats (OCP 8-bit floating point, version 1.0).
        let fp8 = |bits: u32, fraction: i32, bias: i32| {
            let (e, m) = ((bits & 0x7f) >> fraction, bits & ((1 << fraction) - 1));
            let m = f64::from(m) / f64::from(1 << fraction);
            let magnitude = if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e as i32 - bias) };
            if bits & 0x80 != 0 { -magnitude } else { magnitude }
        };
        for bits in 0..256u32 {
            let four = value(Kind::E4M3, part(Kind::E4M3, bits));
            if bits & 0x7f == 0x7f {
                assert!(four.is_nan());
            } else {
                assert_eq!(four, fp8(bits, 3, 7), "{bits:#x}");
            }
            let five = value(Kind::E5M2, part(Kind::E5M2, bits));
            match bits & 0x7f {
                0..0x7c => assert_eq!(five, fp8(bits, 2, 15), "{bits:#x}"),
                0x7c => assert!(five.is_infinite() && (five < 0.0) == (bits > 0x7f)),
                _ => assert!(five.is_nan()),
            }
        }
        for bits in (0..=0xffffu32).step_by(7) {
            let (got, want) = (value(Kind::F16, part(Kind::F16, bits)), half::f16::from_bits(bits as u16).to_f64());
            assert!(got == want || (got.is_nan() && want.is_nan()), "{bits:#x}");
            let (got, want) = (value(Kind::BF16, part(Kind::BF16, bits)), half::bf16::from_bits(bits as u16).to_f64());
            assert!(got == want || (got.is_nan() && want.is_nan()), "{bits:#x}");
        }
    }
}
