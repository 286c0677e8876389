//! Data that is the same in every run.

/// A seeded generator of plain noise; the figures must not depend on a random source.
pub struct Noise(pub u64);

impl Noise {
    /// The next 64 bits (SplitMix64).
    #[expect(clippy::should_implement_trait, reason = "an endless source, not a sequence")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Numbers in [-1, 1).
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / 8_388_608.0 - 1.0).collect()
    }
}
