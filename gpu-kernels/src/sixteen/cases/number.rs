//! Numbers of 16 bits on the host: rounded by the definition of their formats, in f64.

use crate::cases::{Failure, Outcome, Rng};
use half::{bf16, f16};
use warpsmith_device::Element;

/// An element of a tensor, on the host.
pub trait Number: Element + std::fmt::Debug {
    /// The element that is nearest to a number, of two the even one; infinite past the largest.
    fn nearest(v: f64) -> Self;
    /// The number that it is.
    fn value(self) -> f64;
}

/// The nearest number of `digits` binary digits whose smallest step is `2^least`, infinite from halfway past `largest` on. In steps of a power
/// of two f64 divides, multiplies and rounds exactly.
fn rounded(v: f64, digits: i32, least: i32, largest: f64) -> f64 {
    if !v.is_finite() || v == 0.0 {
        return v;
    }
    let exponent = (v.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let step = f64::powi(2.0, (exponent - (digits - 1)).max(least));
    let nearest = (v / step).round_ties_even() * step;
    if nearest.abs() > largest { f64::INFINITY.copysign(v) } else { nearest }
}

impl Number for f16 {
    fn nearest(v: f64) -> f16 {
        f16::from_f64(rounded(v, 11, -24, 65504.0))
    }
    fn value(self) -> f64 {
        self.to_f64()
    }
}

impl Number for bf16 {
    fn nearest(v: f64) -> bf16 {
        bf16::from_f64(rounded(v, 8, -133, bf16::MAX.to_f64()))
    }
    fn value(self) -> f64 {
        self.to_f64()
    }
}

impl Number for f32 {
    fn nearest(v: f64) -> f32 {
        v as f32
    }
    fn value(self) -> f64 {
        self.into()
    }
}

/// `n` numbers of a type within `size` of `middle`.
pub fn numbers<T: Number>(rng: &mut Rng, n: usize, middle: f64, size: f64) -> Vec<T> {
    (0..n).map(|_| T::nearest(middle + f64::from(rng.unit()) * size)).collect()
}

/// What elements are.
pub fn values<T: Number>(elements: &[T]) -> Vec<f64> {
    elements.iter().map(|v| v.value()).collect()
}

/// Every element is what a number within `slack` of the reference is rounded to: with a slack of 0 one number alone. NaN where, and only where,
/// the reference is.
pub fn near<T: Number>(got: &[T], want: &[f64], slack: impl Fn(usize) -> f64) -> Outcome {
    if got.len() != want.len() {
        return Err(Failure::Wrong(format!("{} elements for {}", got.len(), want.len())));
    }
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let (value, slack) = (got.value(), slack(i));
        // Of an infinite reference or slack the difference is no number.
        let [low, high] = [want - slack, want + slack].map(|v| if v.is_nan() { *want } else { v });
        let right = if want.is_nan() {
            value.is_nan()
        } else {
            T::nearest(low).value() <= value && value <= T::nearest(high).value()
        };
        if !right {
            return Err(Failure::Wrong(format!(
                "element {i}: {got:?} where the f64 reference gives {want}, which is rounded to {:?}; allowed {slack:e} before rounding",
                T::nearest(*want)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_with_infinity_behind_the_largest() {
        let f16 = |v: f64| f16::nearest(v).value();
        assert_eq!([f16(1.0 + 2f64.powi(-11)), f16(1.0 + 3.0 * 2f64.powi(-11))], [1.0, 1.0 + 2f64.powi(-9)]);
        // Just above a tie, by less than f32 sees.
        assert_eq!(f16(1.0 + 2f64.powi(-11) + 2f64.powi(-50)), 1.0 + 2f64.powi(-10));
        assert_eq!([f16(65519.99), f16(65520.0), f16(-65520.0)], [65504.0, f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!(
            [f16(2f64.powi(-25)), f16(1.01 * 2f64.powi(-25)), f16(3e-5)],
            [0.0, 2f64.powi(-24), 503.0 * 2f64.powi(-24)]
        );
        let bf16 = |v: f64| bf16::nearest(v).value();
        assert_eq!([bf16(1.0 + 2f64.powi(-8)), bf16(65504.0), bf16(3.4e38)], [1.0, 65536.0, f64::INFINITY]);
        assert!(f16(f64::NAN).is_nan() && bf16(f64::NAN).is_nan());
    }

    /// The same as the crate `half` makes of every f32 that lies at or beside a tie.
    #[test]
    fn rounding_is_that_of_half_where_f32_holds_the_number() {
        for bits in (0..=u16::MAX).step_by(7) {
            for lower in [0x7fffu32, 0x8000, 0x8001, 0x0fff, 0x1000, 0x1001] {
                let v = f32::from_bits(u32::from(bits) << 16 | lower);
                if !v.is_nan() {
                    assert_eq!(bf16::nearest(v.into()), bf16::from_f32(v), "{v:e}");
                    assert_eq!(f16::nearest(v.into()), f16::from_f32(v), "{v:e}");
                }
            }
        }
    }

    #[test]
    fn what_is_rounded_otherwise_or_lost_is_found() {
        let want = [1.0 + 2f64.powi(-11) * 1.5, 70000.0, f64::NAN];
        let right = want.map(f16::nearest);
        assert!(near(&right, &want, |_| 0.0).is_ok());
        let wrong = [f16::ONE, f16::MAX, f16::ZERO];
        for (i, wrong) in wrong.into_iter().enumerate() {
            let mut got = right;
            got[i] = wrong;
            assert!(near(&got, &want, |_| 1e-7).unwrap_err().to_string().contains(&format!("element {i}")));
        }
        assert!(near(&[f16::NAN], &[1.0], |_| 1e9).is_err());
    }
}
