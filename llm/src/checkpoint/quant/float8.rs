//! Matrices of eight-bit floats with scales, made into F16: a weight is `value * scale`, which an f16 holds to 2^-11 of itself, and below
//! 2^-14 to 2^-25. Values of E4M3 have four bits, so that scales of up to seven, such as powers of two, leave weights exact.

use super::super::CheckpointError;
use super::super::rows::Rows;
use super::super::shards::{Shards, Stored};
use crate::gguf::TensorType;
use half::f16;
use safetensors::Dtype;
use std::ops::Range;
use std::sync::Arc;

/// A matrix of eight-bit floats.
pub(in super::super) struct Float8 {
    shards: Arc<Shards>,
    stored: Stored,
    size: [usize; 2],
    values: [f32; 256],
    scales: Vec<f32>,
    /// Rows and columns that share a scale.
    block: [usize; 2],
}

/// The value of an E4M3 byte without infinities (Micikevicius et al., arXiv 2209.05433): four bits of exponent, bias 7.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if byte >> 7 == 1 { -size } else { size }
}

/// The value of an E5M2 byte: the upper half of an f16.
fn e5m2(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte) << 8).to_f32()
}

impl Float8 {
    /// `block` is the size of blocks that the configuration states.
    pub fn new(
        shards: &Arc<Shards>,
        [stored, scales]: [&Stored; 2],
        block: Option<[usize; 2]>,
    ) -> Result<Float8, CheckpointError> {
        let decode = match stored.dtype {
            Dtype::F8_E4M3 => e4m3,
            Dtype::F8_E5M2 => e5m2,
            _ => return Err(stored.mistyped("F8_E4M3, F8_E5M2")),
        };
        let size @ [rows, cols] = stored.matrix()?;
        let block = match (scales.shape.as_slice(), block) {
            ([] | [1] | [1, 1], None) => [rows, cols],
            ([n] | [n, 1], None) if *n == rows => [1, cols],
            (_, None) => {
                let expected = format!("one scale, or one for each of {rows} rows");
                return Err(scales.misshapen(expected));
            }
            (_, Some([high, wide])) => {
                scales.expect(&[rows.div_ceil(high), cols.div_ceil(wide)], "one scale for each block")?;
                [high, wide]
            }
        };
        let values = std::array::from_fn(|byte| decode(byte as u8));
        let (shards, scales) = (shards.clone(), shards.floats(scales)?);
        Ok(Float8 { shards, stored: stored.clone(), size, values, scales, block })
    }
}

impl Rows for Float8 {
    fn kind(&self) -> TensorType {
        TensorType::F16
    }

    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let cols = self.size[1];
        let [high, wide] = self.block;
        let mut bytes = vec![0; rows.len() * cols];
        self.shards.read(&self.stored, rows.start * cols, &mut bytes)?;
        let in_row = cols.div_ceil(wide);
        for (i, (to, byte)) in to.as_chunks_mut::<2>().0.iter_mut().zip(bytes).enumerate() {
            let (row, column) = (rows.start + i / cols, i % cols);
            let scale = self.scales[row / high * in_row + column / wide];
            // What is no number, or none that an f16 holds, nothing takes.
            *to = f16::from_f32(self.values[usize::from(byte)] * scale).to_le_bytes();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the table of the paper (table 1): largest, smallest normal, smallest subnormal.
    #[test]
    fn values_are_those_of_the_paper() {
        let e4m3s =
            [(0x7e, 448.0), (0x08, 2f32.powi(-6)), (0x07, 0.875 * 2f32.powi(-6)), (0x01, 2f32.powi(-9)), (0xb8, -1.0)];
        assert!(e4m3s.iter().all(|&(byte, value)| e4m3(byte) == value));
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan() && e4m3(0x80).to_bits() == (-0f32).to_bits());
        let e5m2s = [
            (0x7b, 57344.0),
            (0x04, 2f32.powi(-14)),
            (0x03, 0.75 * 2f32.powi(-14)),
            (0x01, 2f32.powi(-16)),
            (0xbc, -1.0),
        ];
        assert!(e5m2s.iter().all(|&(byte, value)| e5m2(byte) == value));
        assert!(e5m2(0x7c).is_infinite() && e5m2(0x7d).is_nan());
    }
}
