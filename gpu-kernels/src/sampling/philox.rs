//! Where the randomness comes from: Philox 4x32-10, without state ([`warpsmith_device::random`]).

use warpsmith_device::random::philox4x32;

/// The 64 random bits of a position under a seed: the first two words of the block of counter `(position, 0, 0, 0)`.
#[must_use]
#[inline(always)]
pub fn draw(seed: [u32; 2], position: u32) -> u64 {
    let [low, high, ..] = philox4x32([position, 0, 0, 0], seed);
    (high as u64) << 32 | low as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_half_a_block() {
        // The first of Random123's kat_vectors.
        assert_eq!(draw([0, 0], 0), 0xe169_c58d_6627_e8d5);
    }
}
