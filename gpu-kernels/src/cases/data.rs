//! Inputs of cases.

use crate::format::{Format, FormatError};
use half::{bf16, f16};
use warpsmith_device::U32x4;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless source, not a sequence")]
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

    /// `n` of them.
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// Uniform in `low ..= high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }
}

/// A matrix of weights.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The format of its bytes.
    pub format: Format,
    /// Its blocks, as a model's file holds them.
    pub bytes: Vec<u8>,
    /// How many rows it has.
    pub rows: usize,
    /// How many columns it has.
    pub cols: usize,
}

impl Tensor {
    /// Any codes, scales of either sign and of many sizes, subnormal ones and zeros among them.
    pub fn random(rng: &mut Rng, format: Format, rows: usize, cols: usize) -> Tensor {
        let mut bytes: Vec<u8> = Vec::new();
        let scale = |rng: &mut Rng| match rng.within(0, 9) {
            0 => f16::from_bits((rng.next() & 0x83FF) as u16),
            1 => f16::ZERO,
            _ => f16::from_f32(rng.unit() * 0.1),
        };
        for _ in 0..rows * cols / format.block_elems() {
            match format {
                Format::F32 => bytes.extend(rng.unit().to_le_bytes()),
                Format::F16 => bytes.extend(scale(rng).to_le_bytes()),
                Format::BF16 => bytes.extend(bf16::from_f32(scale(rng).to_f32()).to_le_bytes()),
                _ => {
                    let start = bytes.len();
                    bytes.extend((0..format.block_bytes()).map(|_| rng.next() as u8));
                    for at in format.scale_offsets() {
                        bytes[start + at..start + at + 2].copy_from_slice(&scale(rng).to_le_bytes());
                    }
                    if format == Format::MXFP4 {
                        // Powers of two around 2^-4, and the smallest.
                        bytes[start] =
                            if rng.within(0, 9) == 0 { rng.within(0, 3) } else { rng.within(120, 128) } as u8;
                    }
                }
            }
        }
        Tensor { format, bytes, rows, cols }
    }

    /// Records of random rows as kernels read them, of which no more than 64 differ: making them takes longer than
    /// multiplying them.
    pub fn many_records(format: Format, rows: usize, cols: usize) -> Result<Vec<U32x4>, FormatError> {
        let some = rows.min(64);
        let mut rng = Rng(rows as u64 * 31 + cols as u64);
        let records = format.repack(&Tensor::random(&mut rng, format, some, cols).bytes, some, cols)?;
        Ok(records.iter().copied().cycle().take(format.tensor_vectors(rows, cols)?).collect())
    }
}
