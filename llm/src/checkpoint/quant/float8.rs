//! Matrices of eight-bit floats with scales: a weight is `value * scale`.
//!
//! F8_E4M3 and F8_E5M2 have a scale for 128 columns of a row, which those of blocks, rows and whole matrices become. Where columns are no
//! multiple of 128, or those of a block, weights are made into F16, which holds them to 2^-11 of themselves, and below 2^-14 to 2^-25.

use super::super::CheckpointError;
use super::super::rows::Rows;
use super::super::shards::{Shards, Stored};
use crate::gguf::TensorType;
use half::f16;
use safetensors::Dtype;
use std::ops::Range;
use std::sync::Arc;
use warpsmith_device::fp8::{E4m3, E5m2};

/// Columns that share a scale in the formats.
const COLUMNS: usize = 128;

/// A matrix of eight-bit floats.
pub(in super::super) struct Float8 {
    shards: Arc<Shards>,
    stored: Stored,
    size: [usize; 2],
    kind: TensorType,
    value: fn(u8) -> f32,
    scales: Vec<f32>,
    /// Rows and columns that share a scale.
    block: [usize; 2],
}

impl Float8 {
    /// `block` is the size of blocks that the configuration states.
    pub fn new(
        shards: &Arc<Shards>,
        [stored, scales]: [&Stored; 2],
        block: Option<[usize; 2]>,
    ) -> Result<Float8, CheckpointError> {
        let (kind, value): (_, fn(u8) -> f32) = match stored.dtype {
            Dtype::F8_E4M3 => (TensorType::F8_E4M3, |byte| E4m3::from_bits(byte).to_f32()),
            Dtype::F8_E5M2 => (TensorType::F8_E5M2, |byte| E5m2::from_bits(byte).to_f32()),
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
        let whole = cols.is_multiple_of(COLUMNS) && (block[1] == cols || block[1].is_multiple_of(COLUMNS));
        let kind = if whole { kind } else { TensorType::F16 };
        let (shards, scales) = (shards.clone(), shards.floats(scales)?);
        Ok(Float8 { shards, stored: stored.clone(), size, kind, value, scales, block })
    }
}

impl Rows for Float8 {
    fn kind(&self) -> TensorType {
        self.kind
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
        let scale = |row: usize, column: usize| self.scales[row / high * in_row + column / wide];
        let first = rows.start;
        if self.kind != TensorType::F16 {
            for (i, (to, codes)) in to.chunks_exact_mut(COLUMNS + 4).zip(bytes.chunks_exact(COLUMNS)).enumerate() {
                let column = i * COLUMNS;
                let (of_codes, of_scale) = to.split_at_mut(COLUMNS);
                of_codes.copy_from_slice(codes);
                of_scale.copy_from_slice(&scale(first + column / cols, column % cols).to_le_bytes());
            }
            return Ok(());
        }
        for (i, (to, byte)) in to.as_chunks_mut::<2>().0.iter_mut().zip(bytes).enumerate() {
            // What is no number, or none that an f16 holds, nothing takes.
            let weight = (self.value)(byte) * scale(first + i / cols, i % cols);
            *to = f16::from_f32(weight).to_le_bytes();
        }
        Ok(())
    }
}
