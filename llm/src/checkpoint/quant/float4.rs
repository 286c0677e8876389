//! Matrices of four-bit floats, NVFP4: two to a byte, the first of them in its lower half; for each 16 columns of a row an eight-bit float,
//! and for the matrix an f32. A weight is the product of all three, of which the last two are rounded to an f32 (2^-24 of it).

use super::super::CheckpointError;
use super::super::rows::Rows;
use super::super::shards::{Shards, Stored};
use crate::gguf::TensorType;
use safetensors::Dtype;
use std::ops::Range;
use std::sync::Arc;

/// Columns that share a scale.
pub(super) const GROUP: usize = 16;
/// Columns of a block.
const BLOCK: usize = 64;

/// What the scale of the matrix is.
#[derive(Clone, Copy)]
pub(super) enum Whole {
    /// A factor: ModelOpt's `weight_scale_2`.
    Factor,
    /// What is divided by: compressed-tensors' `weight_global_scale`.
    Divisor,
}

/// A matrix of four-bit floats.
pub(in super::super) struct Float4 {
    shards: Arc<Shards>,
    codes: Stored,
    scales: Stored,
    factor: f32,
    size: [usize; 2],
}

impl Float4 {
    pub fn new(
        shards: &Arc<Shards>,
        [codes, scales, of_all]: [&Stored; 3],
        whole: Whole,
    ) -> Result<Float4, CheckpointError> {
        if codes.dtype != Dtype::U8 {
            return Err(codes.mistyped("U8"));
        }
        if scales.dtype != Dtype::F8_E4M3 {
            return Err(scales.mistyped("F8_E4M3"));
        }
        let [rows, bytes] = codes.matrix()?;
        if !bytes.is_multiple_of(BLOCK / 2) {
            return Err(codes.misshapen(format!("rows of a multiple of {} bytes", BLOCK / 2)));
        }
        let cols = 2 * bytes;
        scales.expect(&[rows, cols / GROUP], "one scale for each 16 columns")?;
        if !matches!(of_all.shape.as_slice(), [] | [1]) {
            return Err(of_all.misshapen("one scale for the matrix"));
        }
        let stated = shards.floats(of_all)?.first().copied().unwrap_or(f32::NAN);
        let factor = match whole {
            Whole::Factor => stated,
            Whole::Divisor => 1.0 / stated,
        };
        if !factor.is_finite() {
            let most = f32::MAX;
            return Err(CheckpointError::Scale { tensor: of_all.name.clone(), row: 0, value: stated, most });
        }
        let (codes, scales) = (codes.clone(), scales.clone());
        Ok(Float4 { shards: shards.clone(), codes, scales, factor, size: [rows, cols] })
    }
}

impl Rows for Float4 {
    fn kind(&self) -> TensorType {
        TensorType::NVFP4_SCALED
    }

    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let cols = self.size[1];
        let (mut codes, mut scales) = (vec![0; rows.len() * cols / 2], vec![0; rows.len() * cols / GROUP]);
        self.shards.read(&self.codes, rows.start * cols / 2, &mut codes)?;
        self.shards.read(&self.scales, rows.start * cols / GROUP, &mut scales)?;
        let blocks = codes.as_chunks::<{ BLOCK / 2 }>().0.iter().zip(scales.as_chunks::<{ BLOCK / GROUP }>().0);
        for (to, (codes, scales)) in to.chunks_exact_mut(BLOCK / 2 + 8).zip(blocks) {
            let (head, tail) = to.split_at_mut(4 + BLOCK / 2);
            head[..4].copy_from_slice(scales);
            for (to, from) in head[4..].as_chunks_mut::<8>().0.iter_mut().zip(codes.as_chunks::<8>().0) {
                let code = |i: usize| from[i / 2] >> (4 * (i % 2)) & 15;
                *to = std::array::from_fn(|i| code(i) | code(i + 8) << 4);
            }
            tail.copy_from_slice(&self.factor.to_le_bytes());
        }
        Ok(())
    }
}
