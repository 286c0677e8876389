//! Inputs of cases.

use crate::format::{Format, FormatError};
use half::{bf16, f16};
use warpsmith_device::{U32x4, fp8::E4m3};

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

    /// Roughly normal, of mean 0 and variance 1: the sum of twelve uniform numbers.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
    }

    /// `n` uniform numbers.
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// Uniform in `low ..= high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }
}

/// Makes a block of a format out of any bytes: codes that stand for no number become others.
pub fn make_sound(format: Format, block: &mut [u8]) {
    let replace = |codes: &mut [u8], from: u8| {
        codes.iter_mut().filter(|c| **c & 0x7F >= from).for_each(|c| *c &= 0x80 | (from - 1));
    };
    match format {
        Format::F8_E4M3 => replace(&mut block[..128], 0x7F),
        Format::F8_E5M2 => replace(&mut block[..128], 0x7C),
        Format::NVFP4 | Format::NVFP4_SCALED => {
            replace(&mut block[..4], 0x7F);
            block[..4].iter_mut().for_each(|scale| *scale &= 0x7F);
            // Where there is one for the row.
            block[36..].as_chunks_mut().0.iter_mut().for_each(|row| *row = 0.75f32.to_le_bytes());
        }
        _ => {}
    }
}

/// Sets the scale of a block, or all of them; as near to it as they come.
pub fn set_scale(format: Format, block: &mut [u8], scale: f64) {
    for &at in format.scale_offsets() {
        block[at..at + 2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
    }
    match format {
        Format::MXFP4 => block[0] = (128.0 + scale.abs().log2()).round() as u8,
        Format::F8_E4M3 | Format::F8_E5M2 => block[128..132].copy_from_slice(&(scale as f32).to_le_bytes()),
        Format::NVFP4 | Format::NVFP4_SCALED => block[..4].fill(E4m3::from_f32(scale.abs() as f32).to_bits()),
        // Four bits in the upper ends of words.
        Format::IQ1_M => {
            let d = f16::from_f64(scale).to_bits();
            (0..4).for_each(|j| block[49 + 2 * j] = block[49 + 2 * j] & 15 | (d >> (4 * j) << 4) as u8 & 0xF0);
        }
        _ => {}
    }
}

/// Makes a block of a format out of any bytes whose weights have this root mean square, with the sign of `rms` on its scales.
pub fn make_sized(format: Format, block: &mut [u8], rms: f64) {
    if format == Format::TQ2_0_G128 {
        // Code 3 is reserved, and a file with it is refused.
        block.iter_mut().for_each(|b| *b &= !((*b & (*b >> 1) & 0x55) << 1));
    }
    make_sound(format, block);
    // The weights' size under scales of 1 says what the scales have to be.
    set_scale(format, block, 1.0);
    let mut weights = vec![0.0; format.block_elems()];
    format.decode_block(block, &mut weights);
    let square: f64 = weights.iter().map(|w| f64::from(*w).powi(2)).sum();
    set_scale(format, block, rms / (square / weights.len() as f64).sqrt().max(0.1));
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
                    let block = &mut bytes[start..];
                    make_sound(format, block);
                    for at in format.scale_offsets() {
                        block[*at..at + 2].copy_from_slice(&scale(rng).to_le_bytes());
                    }
                    match format {
                        // Powers of two around 2^-4, and the smallest.
                        Format::MXFP4 if rng.within(0, 9) == 0 => block[0] = rng.within(0, 3) as u8,
                        Format::MXFP4 => block[0] = rng.within(120, 128) as u8,
                        Format::F8_E4M3 | Format::F8_E5M2 | Format::IQ1_M => {
                            set_scale(format, block, scale(rng).to_f64());
                        }
                        _ => {}
                    }
                }
            }
        }
        if format == Format::NVFP4_SCALED {
            let blocks = (cols / format.block_elems()).max(1);
            for row in bytes.chunks_exact_mut(blocks * format.block_bytes()) {
                let scale = (rng.unit() * 0.1).to_le_bytes();
                row.chunks_exact_mut(format.block_bytes()).for_each(|block| block[36..].copy_from_slice(&scale));
            }
        }
        Tensor { format, bytes, rows, cols }
    }

    /// Any codes, of weights with about this root mean square. Scales have either sign: the weights of a block have a mean in most formats,
    /// and where all rows had it too, a model of them would add up what overflows.
    pub fn of_size(rng: &mut Rng, format: Format, rows: usize, cols: usize, rms: f64) -> Tensor {
        let mut bytes: Vec<u8> = Vec::new();
        // What a uniform number in -1 .. 1 is multiplied with.
        let width = rms * 3f64.sqrt();
        for _ in 0..rows * cols / format.block_elems() {
            match format {
                Format::F32 => bytes.extend((rng.unit() * width as f32).to_le_bytes()),
                Format::F16 => bytes.extend(f16::from_f64(f64::from(rng.unit()) * width).to_le_bytes()),
                Format::BF16 => bytes.extend(bf16::from_f64(f64::from(rng.unit()) * width).to_le_bytes()),
                _ => {
                    let start = bytes.len();
                    bytes.extend((0..format.block_bytes()).map(|_| rng.next() as u8));
                    let sign = if rng.next().is_multiple_of(2) { 1.0 } else { -1.0 };
                    make_sized(format, &mut bytes[start..], sign * rms);
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
