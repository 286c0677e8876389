//! Random numbers without state: [`Philox`] gives 128 random bits for every counter, in any order, on host and device alike.
//!
//! ```
//! use warpsmith_device::random::Philox;
//! let dropout = Philox::new(42, 7);
//! // Element 1000 needs none of the elements before.
//! let [a, b, c, d] = dropout.uniform(1000);
//! assert!([a, b, c, d].iter().all(|v| (0.0..1.0).contains(v)));
//! assert_eq!(dropout.bits(3), Philox::new(42, 7).bits(3));
//! ```
//!
//! Where a CUDA program keeps a `curandStatePhilox4_32_10_t` per thread, this keeps a counter: an element's or a thread's index
//! is enough. Streams of one seed are independent; a counter has 2^64 values in each.
//!
//! Cost: 4 words in 40 multiplications (`mul.hi`, `mul.lo`) and 60 other integer instructions; `normal` adds two `sin_cos`,
//! two logarithms and square roots.
//!
//! Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox 4x32-10);
//! Box and Muller, "A note on the generation of random normal deviates", 1958.

use crate::math;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The block of a counter under a key: the generator itself.
#[must_use]
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let (x, y) = (a as u64 * MULTIPLIERS[0] as u64, c as u64 * MULTIPLIERS[1] as u64);
        (a, b, c, d) = ((y >> 32) as u32 ^ b ^ k0, y as u32, (x >> 32) as u32 ^ d ^ k1, x as u32);
        (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
    }
    [a, b, c, d]
}

/// A stream of random numbers: one of 2^64 of a seed.
#[derive(Clone, Copy)]
pub struct Philox {
    seed: u64,
    stream: u64,
}

impl Philox {
    /// The stream of this number under a seed.
    #[must_use]
    #[inline(always)]
    pub const fn new(seed: u64, stream: u64) -> Philox {
        Philox { seed, stream }
    }

    /// The 128 bits of counter `n`: the key is the seed, the counter's lower half `n` and its upper half the stream.
    #[must_use]
    #[inline(always)]
    pub fn bits(self, n: u64) -> [u32; 4] {
        let counter = [n as u32, (n >> 32) as u32, self.stream as u32, (self.stream >> 32) as u32];
        philox4x32(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// Four numbers of counter `n`, uniform in 0..1 (0 included), each a multiple of 2^-24.
    #[must_use]
    #[inline(always)]
    pub fn uniform(self, n: u64) -> [f32; 4] {
        let [a, b, c, d] = self.bits(n);
        [unit(a), unit(b), unit(c), unit(d)]
    }

    /// Four numbers of counter `n` of mean 0 and variance 1, at most 5.8 in magnitude. Host and device differ by some 2^-20.
    #[must_use]
    #[inline(always)]
    pub fn normal(self, n: u64) -> [f32; 4] {
        let [a, b, c, d] = self.bits(n);
        let ((p, q), (r, s)) = (box_muller(a, b), box_muller(c, d));
        [p, q, r, s]
    }
}

/// The upper 24 bits as a fraction.
#[inline(always)]
fn unit(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// Two independent normal numbers of two words.
#[inline(always)]
fn box_muller(a: u32, b: u32) -> (f32, f32) {
    // In (0, 1], for the logarithm.
    let u = unit(a) + 1.0 / (1 << 24) as f32;
    let radius = math::sqrt(-2.0 * math::ln_approx(u));
    let (sin, cos) = math::sin_cos(core::f32::consts::TAU * unit(b));
    (radius * cos, radius * sin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Random123's kat_vectors, philox4x32 with 10 rounds.
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want);
            let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
            let stream = Philox::new(join(key[0], key[1]), join(counter[2], counter[3]));
            assert_eq!(stream.bits(join(counter[0], counter[1])), want);
        }
    }

    #[test]
    fn moments_and_range() {
        let (random, n) = (Philox::new(1, 2), 250_000u64);
        let uniform: Vec<f64> = (0..n).flat_map(|i| random.uniform(i)).map(f64::from).collect();
        let normal: Vec<f64> = (0..n).flat_map(|i| random.normal(i)).map(f64::from).collect();
        let mean = |v: &[f64], f: fn(f64) -> f64| v.iter().map(|&x| f(x)).sum::<f64>() / v.len() as f64;
        // A million draws: standard errors are near 0.001.
        assert!(uniform.iter().all(|v| (0.0..1.0).contains(v)));
        assert!((mean(&uniform, |x| x) - 0.5).abs() < 0.002 && (mean(&uniform, |x| x * x) - 1.0 / 3.0).abs() < 0.002);
        assert!(normal.iter().all(|v| v.abs() < 5.8));
        for (power, moment, bound) in [(1, 0.0, 0.004), (2, 1.0, 0.006), (3, 0.0, 0.016), (4, 3.0, 0.04)] {
            let found = normal.iter().map(|v| v.powi(power)).sum::<f64>() / normal.len() as f64;
            assert!((found - moment).abs() < bound, "moment {power} is {found}");
        }
        let neighbours = normal.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / normal.len() as f64;
        assert!(neighbours.abs() < 0.004);
    }
}
