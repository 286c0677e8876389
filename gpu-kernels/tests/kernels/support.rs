//! What the tests of kernels share, whatever runs the kernels.

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `-1 .. 1`.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// Uniform in `low ..= high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }
}

/// A golden vector.
pub fn vector<const N: usize, T>(name: &str, read: fn([u8; N]) -> T) -> Vec<T> {
    let path = std::path::Path::new(crate::VECTORS).join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(N).map(|b| read(b.try_into().unwrap())).collect()
}

/// `|got - want| <= relative * scale + absolute` for every element; NaN fails.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let difference = (f64::from(*g) - w).abs();
        assert!(difference <= bound(i), "{what} [{i}]: {g} for {w}, off by {difference:e}, allowed {:e}", bound(i));
    }
}
