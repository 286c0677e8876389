//! What a sampled token is: parameters, ranks and weights, and the definition by sorting, on the host.
//!
//! [`sample`](super::sample) says in which order things happen; here is each of them. Host and device share the ranks and the
//! weights, so that both see the same bits.

#[cfg(not(target_arch = "nvptx64"))]
use super::{NONE, penalty::penalised, philox, words};
use warpsmith_device::prelude::*;

/// Set: the chosen token's bit is set in `seen`.
pub const RECORD: u32 = 1;

/// How a column is sampled. Plain data in device memory, so that a captured graph serves every setting, or every one without a
/// draw.
#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
pub struct Sampling {
    /// Logits are divided by it; 0 (or less, or NaN): the largest logit wins.
    pub temperature: f32,
    /// Share of the weight that is kept; 1 or more, or NaN: all.
    pub top_p: f32,
    /// The repetition penalty of tokens in `seen`; 1 (or 0 or less, or NaN): none.
    pub penalty: f32,
    /// Tokens that are kept; 0: all.
    pub top_k: u32,
    /// The seed's lower half.
    pub seed_low: u32,
    /// The seed's upper half.
    pub seed_high: u32,
    /// [`RECORD`].
    pub flags: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// The bitset of seen tokens, of this column alone; null: none.
    pub seen: DeviceAddress,
    /// The bitset of allowed tokens; null: all are.
    pub allowed: DeviceAddress,
}

const _: () = assert!(size_of::<Sampling>() == 48 && align_of::<Sampling>() == 8);

impl Sampling {
    /// The largest logit.
    pub const GREEDY: Sampling = Sampling {
        temperature: 0.0,
        top_p: 1.0,
        penalty: 1.0,
        top_k: 0,
        seed_low: 0,
        seed_high: 0,
        flags: 0,
        reserved: 0,
        seen: DeviceAddress::NULL,
        allowed: DeviceAddress::NULL,
    };

    /// Whether there is no draw.
    #[inline(always)]
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0 || self.temperature.is_nan() || self.top_k == 1
    }

    #[cfg(any(target_arch = "nvptx64", rust_analyzer))]
    #[inline(always)]
    pub(super) fn penalises(&self) -> bool {
        self.penalty > 0.0 && self.penalty != 1.0 && !self.seen.is_null()
    }
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling::GREEDY
    }
}

/// A logit's rank as a number: larger for larger logits, the same for −0 and 0; 0 for NaN, which nothing else has.
#[inline(always)]
pub fn key(logit: f32) -> u32 {
    if logit.is_nan() {
        return 0;
    }
    let bits = (logit + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits }
}

/// The logit of a key other than 0.
#[inline(always)]
pub fn logit(key: u32) -> f32 {
    f32::from_bits(if key >> 31 != 0 { key & 0x7FFF_FFFF } else { !key })
}

/// What a difference of logits is multiplied by, to be an exponent of 2.
#[inline(always)]
pub(super) fn rate(temperature: f32) -> f32 {
    core::f32::consts::LOG2_E / temperature
}

/// Bins of tokens that weigh anything: of the larger logits first.
pub(super) const BINS: u32 = 2048;

/// The bin of a token that weighs anything, at a [`rate`]. A larger logit is in the same bin or an earlier one, as differences, products and
/// roundings keep their order; the bins are the same range of exponents each.
#[cfg(any(target_arch = "nvptx64", test, rust_analyzer))]
#[inline(always)]
pub(super) fn bin(logit: f32, largest: f32, rate: f32) -> u32 {
    if logit == largest {
        return 0;
    }
    // Exponents are above -41.5 where there is a weight.
    let place = (logit - largest) * rate * -(BINS as f32 / 41.5);
    (place as u32).min(BINS - 1)
}

/// `2^40 · exp((logit - largest) / temperature)` with a relative error of 2^-20 (times the exponent's magnitude over 8), cut
/// to an integer. The same bits on host and device: additions, products and `fma` only.
#[inline(always)]
pub fn weight(logit: f32, largest: f32, temperature: f32) -> u64 {
    weight_at(logit, largest, rate(temperature))
}

/// [`weight`] at a [`rate`].
#[inline(always)]
pub(super) fn weight_at(logit: f32, largest: f32, rate: f32) -> u64 {
    // Two infinities have no difference.
    if logit == largest {
        return 1 << 40;
    }
    let x = (logit - largest) * rate;
    if x <= -41.5 || x.is_nan() {
        return 0;
    }
    let n = math::round_even(x);
    let r = x - n;
    // 2^r for |r| <= 1/2: Taylor series of e^(r ln 2), whose next term is below 6e-9.
    const LN2: f32 = core::f32::consts::LN_2;
    let t = r * LN2;
    let mut y = 1.0 / 5040.0;
    y = math::fma(y, t, 1.0 / 720.0);
    y = math::fma(y, t, 1.0 / 120.0);
    y = math::fma(y, t, 1.0 / 24.0);
    y = math::fma(y, t, 1.0 / 6.0);
    y = math::fma(y, t, 0.5);
    y = math::fma(y, t, 1.0);
    y = math::fma(y, t, 1.0);
    let power = f32::from_bits(((math::round_to_i32(n) + 40 + 127) as u32) << 23);
    (y * power) as u64
}

/// The weight that top-p wants, of `total`.
#[inline(always)]
pub fn wanted(total: u64, top_p: f32) -> u64 {
    let share = total as f64 * top_p as f64;
    let floor = share as u64;
    let up = if (floor as f64) < share { floor + 1 } else { floor };
    up.clamp(1, total)
}

/// The upper half of a product: `floor(a * b / 2^64)`. In halves, for code generators without 128-bit integers.
#[cfg(any(target_arch = "nvptx64", test))]
#[inline(always)]
pub(super) fn mul_high(a: u64, b: u64) -> u64 {
    let (a0, a1, b0, b1) = (a & 0xFFFF_FFFF, a >> 32, b & 0xFFFF_FFFF, b >> 32);
    let middle = a1 * b0 + ((a0 * b0) >> 32);
    let other = a0 * b1 + (middle & 0xFFFF_FFFF);
    a1 * b1 + (middle >> 32) + (other >> 32)
}

/// The definition, by sorting.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(logits: &[f32], s: &Sampling, position: u32, seen: Option<&[u32]>, allowed: Option<&[u32]>) -> u32 {
    let bit = |set: Option<&[u32]>, i: usize| set.map(|s| s[i / 32] >> (i % 32) & 1 != 0);
    let penalises = s.penalty > 0.0 && s.penalty != 1.0;
    let value = |i: usize| match bit(seen, i) {
        Some(true) if penalises => penalised(logits[i], s.penalty),
        _ => logits[i],
    };
    let mut order: Vec<(f32, usize)> = (0..logits.len())
        .filter(|i| bit(allowed, *i) != Some(false) && !value(*i).is_nan())
        .map(|i| (value(i), i))
        .collect();
    order.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal).then(a.1.cmp(&b.1)));
    let Some(&(largest, first)) = order.first() else { return NONE };
    if s.is_greedy() {
        return first as u32;
    }
    if s.top_k != 0 {
        order.truncate(s.top_k as usize);
    }
    let mut kept: Vec<(usize, u64)> = order.iter().map(|(v, i)| (*i, weight(*v, largest, s.temperature))).collect();
    if s.top_p < 1.0 {
        let want = wanted(kept.iter().map(|k| k.1).sum(), s.top_p);
        let mut before = 0;
        kept.retain(|k| {
            let keep = before < want;
            before += k.1;
            keep
        });
    }
    kept.sort_by_key(|k| k.0);
    let all: u64 = kept.iter().map(|k| k.1).sum();
    let random = philox::draw([s.seed_low, s.seed_high], position);
    let mut r = ((u128::from(random) * u128::from(all)) >> 64) as u64;
    for (i, w) in kept {
        if r < w {
            return i as u32;
        }
        r -= w;
    }
    NONE
}

/// Words of the bitsets of a vocabulary of `n`, for those who make them.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn bitset(n: u32, tokens: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut set = vec![0u32; words(n) as usize];
    for token in tokens.into_iter().filter(|t| *t < n) {
        set[token as usize / 32] |= 1 << (token % 32);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Rng;

    #[test]
    fn upper_halves_of_products() {
        let mut rng = Rng(8);
        for _ in 0..1000 {
            let (a, b) = (rng.next() >> rng.within(0, 63), rng.next() >> rng.within(0, 63));
            assert_eq!(mul_high(a, b), ((u128::from(a) * u128::from(b)) >> 64) as u64, "{a} {b}");
        }
        assert_eq!(mul_high(u64::MAX, u64::MAX), u64::MAX - 1);
    }

    #[test]
    fn keys_are_ordered_as_logits_are() {
        let values = [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-45, 0.0, 1e-45, 1.0, f32::MAX, f32::INFINITY];
        for pair in values.windows(2) {
            assert!(key(pair[0]) < key(pair[1]) && key(pair[0]) > 0, "{pair:?}");
        }
        assert!(values.iter().all(|v| logit(key(*v)) == *v));
        assert_eq!((key(-0.0), key(f32::NAN), key(-f32::NAN)), (key(0.0), 0, 0));
    }

    #[test]
    fn weights_are_within_their_bound_of_f64() {
        for temperature in [0.1f32, 0.7, 1.0, 2.5] {
            for i in 0..40_000 {
                let z = -(i as f32) * 1e-3;
                let exponent = f64::from(z) / f64::from(temperature);
                let truth = exponent.exp() * 2f64.powi(40);
                let bound = truth * 2f64.powi(-20) * (1.0 + exponent.abs() / 8.0) + 1.0;
                let got = weight(z, 0.0, temperature) as f64;
                assert!((got - truth).abs() <= bound, "{z} at {temperature}: {got} for {truth}");
            }
        }
        assert_eq!(weight(f32::INFINITY, f32::INFINITY, 1.0), 1 << 40);
        assert_eq!((weight(1.0, f32::INFINITY, 1.0), weight(f32::NEG_INFINITY, 3.0, 1.0)), (0, 0));
        assert_eq!((weight(2.0, 2.0, 1e-45), weight(1.9, 2.0, 1e-45)), (1 << 40, 0));
    }

    #[test]
    fn bins_are_ordered_as_logits_are() {
        let mut rng = Rng(11);
        for temperature in [1e-42f32, 1e-3, 0.7, 1.0, 13.0, f32::MAX, f32::INFINITY] {
            for (largest, spread) in
                [(3.0f32, 40.0f32), (-1e9, 1e9), (1e-40, 1e-40), (f32::MAX, f32::MAX), (25.0, 1e-4)]
            {
                let mut logits: Vec<f32> = rng.floats(500).iter().map(|v| largest - spread * v.abs()).collect();
                logits.extend([largest, f32::NEG_INFINITY]);
                logits.sort_by(|a, b| b.total_cmp(a));
                let weighty = logits.iter().filter(|v| weight(**v, largest, temperature) != 0);
                let bins: Vec<u32> = weighty.map(|v| bin(*v, largest, rate(temperature))).collect();
                assert!(bins.is_sorted() && bins[0] == 0 && bins.iter().all(|b| *b < BINS), "{temperature} {bins:?}");
            }
        }
        assert_eq!(bin(0.0, 0.0, rate(1.0)), 0);
        assert_eq!(bin(-41.4 * core::f32::consts::LN_2, 0.0, rate(1.0)), (41.4 / 41.5 * BINS as f32) as u32);
    }

    /// The kept tokens and their probabilities in f64: softmax, the largest `k`, the shortest run of mass `p`. `None` where a
    /// limit is too close to tell.
    fn distribution(x: &[f32], s: &Sampling) -> Option<Vec<f64>> {
        let largest = x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(f64::from(*v)));
        let mut all: Vec<(usize, f64)> = x
            .iter()
            .enumerate()
            .map(|(i, v)| (i, ((f64::from(*v) - largest) / f64::from(s.temperature)).exp()))
            .collect();
        all.sort_by(|a, b| x[b.0].total_cmp(&x[a.0]).then(a.0.cmp(&b.0)));
        if s.top_k > 0 {
            all.truncate(s.top_k as usize);
        }
        let total: f64 = all.iter().map(|a| a.1).sum();
        if s.top_p < 1.0 {
            let (mut sum, mut run) = (0.0, 0);
            while sum < total * f64::from(s.top_p) {
                sum += all[run].1;
                run += 1;
            }
            let limit = total * f64::from(s.top_p);
            if (sum - limit).abs() < 1e-5 * total || (limit - (sum - all[run - 1].1)).abs() < 1e-5 * total {
                return None;
            }
            all.truncate(run);
        }
        let total: f64 = all.iter().map(|a| a.1).sum();
        let mut p = vec![0.0; x.len()];
        for (i, w) in all {
            p[i] = w / total;
        }
        Some(p)
    }

    #[test]
    fn the_draw_is_that_of_the_f64_definition() {
        let (mut rng, mut compared) = (Rng(5), 0);
        for round in 0..4000u32 {
            let n = rng.within(1, 60);
            let x: Vec<f32> = rng.floats(n).iter().map(|v| v * 5.0).collect();
            let s = Sampling {
                temperature: 0.3 + rng.unit().abs() * 2.0,
                top_p: if round % 2 == 0 { rng.unit().abs() } else { 1.0 },
                top_k: if round % 3 == 0 { rng.within(2, 20) as u32 } else { 0 },
                seed_low: round,
                ..Sampling::GREEDY
            };
            let Some(p) = distribution(&x, &s) else { continue };
            let u = philox::draw([round, 0], 7) as f64 / 2f64.powi(64);
            let mut sum = 0.0;
            let mut want = None;
            for (i, p) in p.iter().enumerate() {
                // Not within rounding distance of a boundary.
                if (sum - u).abs() < 1e-5 || (sum + p - u).abs() < 1e-5 {
                    want = None;
                    break;
                }
                if want.is_none() && u < sum + p {
                    want = Some(i as u32);
                }
                sum += p;
            }
            if let Some(want) = want {
                assert_eq!(reference(&x, &s, 7, None, None), want, "round {round}");
                compared += 1;
            }
        }
        assert!(compared > 3500, "{compared}");
    }

    #[test]
    fn frequencies_are_the_probabilities() {
        // Chi-square at fixed seeds; limits are the 99.9th percentiles of k - 1 degrees of freedom.
        let x = [0.0f32, 1.0, -1.0, 2.0, 0.5, 0.5, -3.0, 1.5];
        let plain = Sampling { temperature: 1.0, seed_low: 12, seed_high: 34, ..Sampling::GREEDY };
        let cases = [
            (plain, 8, 24.32),
            (Sampling { top_k: 3, temperature: 0.7, ..plain }, 3, 13.82),
            (Sampling { top_p: 0.8, temperature: 1.3, ..plain }, 5, 18.47),
        ];
        for (s, kinds, limit) in cases {
            let p = distribution(&x, &s).unwrap();
            assert_eq!(p.iter().filter(|p| **p > 0.0).count(), kinds);
            let draws = 100_000u32;
            let mut count = [0u32; 8];
            for position in 0..draws {
                count[reference(&x, &s, position, None, None) as usize] += 1;
            }
            let mut chi = 0.0;
            for (p, n) in p.iter().zip(count) {
                if *p == 0.0 {
                    assert_eq!(n, 0);
                } else {
                    let want = p * f64::from(draws);
                    chi += (f64::from(n) - want).powi(2) / want;
                }
            }
            assert!(chi < limit, "{chi} for {s:?}: {count:?}");
        }
    }

    #[test]
    fn ties_masks_and_nothing() {
        let x = [1.0f32, 3.0, 3.0, f32::NAN, 3.0, -0.0, 0.0];
        let s = Sampling { temperature: 1.0, top_k: 2, ..Sampling::GREEDY };
        for position in 0..50 {
            // Of equal logits those of the lowest indices are kept.
            assert!([1, 2].contains(&reference(&x, &s, position, None, None)));
            assert!([4, 0].contains(&reference(&x, &s, position, None, Some(&[0b111_1001]))));
        }
        assert_eq!(reference(&x, &Sampling::GREEDY, 0, None, None), 1);
        assert_eq!(reference(&x, &s, 0, None, Some(&[0b1000])), NONE);
        assert_eq!(reference(&x, &Sampling { penalty: 4.0, ..Sampling::GREEDY }, 0, Some(&[0b10110]), None), 0);
    }
}
