//! Philox 4x32-10, a counter-based random number generator: 128 bits from a counter and a key, without state.
//!
//! Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The block of a counter under a key.
#[must_use]
#[inline(always)]
pub fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let (x, y) = (a as u64 * MULTIPLIERS[0] as u64, c as u64 * MULTIPLIERS[1] as u64);
        (a, b, c, d) = ((y >> 32) as u32 ^ b ^ k0, y as u32, (x >> 32) as u32 ^ d ^ k1, x as u32);
        (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
    }
    [a, b, c, d]
}

/// The 64 random bits of a position under a seed: the first two words of the block of counter `(position, 0, 0, 0)`.
#[must_use]
#[inline(always)]
pub fn draw(seed: [u32; 2], position: u32) -> u64 {
    let [low, high, ..] = block([position, 0, 0, 0], seed);
    (high as u64) << 32 | low as u64
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
            assert_eq!(block(counter, key), want);
        }
        assert_eq!(draw([0, 0], 0), 0xe169_c58d_6627_e8d5);
    }
}
