//! MXFP4 as OpenAI ships it: 32 columns share a power of two, and each byte has two of them, the first in its lower half; ggml's blocks have
//! the first sixteen columns in lower halves, and the others in upper ones. Nothing is rounded.

use super::super::CheckpointError;
use super::super::rows::Rows;
use super::super::shards::{Shards, Stored};
use crate::gguf::TensorType;
use safetensors::Dtype;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of codes of a block.
const CODES: usize = 16;

/// The matrix of an expert of a tensor of blocks, `[experts, rows, columns / 32, 16]`, and one of their scales.
pub(in super::super) struct Mxfp4 {
    shards: Arc<Shards>,
    codes: Stored,
    scales: Stored,
    expert: usize,
    /// Rows, and blocks of a row.
    size: [usize; 2],
}

impl Mxfp4 {
    /// Of so many experts the one of that number.
    pub fn new(
        shards: &Arc<Shards>,
        [codes, scales]: [&Stored; 2],
        (expert, count): (usize, usize),
    ) -> Result<Mxfp4, CheckpointError> {
        for stored in [codes, scales] {
            if stored.dtype != Dtype::U8 {
                return Err(stored.mistyped("U8"));
            }
        }
        let size = match codes.shape[..] {
            [all, rows, blocks, CODES] if all == count && rows > 0 && blocks > 0 => [rows, blocks],
            _ => {
                return Err(codes
                    .misshapen(format!("four dimensions, none of them zero, the first {count} and the last {CODES}")));
            }
        };
        scales.expect(&[count, size[0], size[1]], "one scale for each block")?;
        Ok(Mxfp4 { shards: shards.clone(), codes: codes.clone(), scales: scales.clone(), expert, size })
    }
}

impl Rows for Mxfp4 {
    fn kind(&self) -> TensorType {
        TensorType::MXFP4
    }

    fn size(&self) -> [usize; 2] {
        [self.size[0], 2 * CODES * self.size[1]]
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let [height, blocks] = self.size;
        let (first, count) = ((self.expert * height + rows.start) * blocks, rows.len() * blocks);
        let (mut codes, mut scales) = (vec![0; count * CODES], vec![0; count]);
        self.shards.read(&self.codes, first * CODES, &mut codes)?;
        self.shards.read(&self.scales, first, &mut scales)?;
        let code = |codes: &[u8], column: usize| codes[column / 2] >> (4 * (column % 2)) & 15;
        for ((to, codes), scale) in to.chunks_exact_mut(1 + CODES).zip(codes.chunks_exact(CODES)).zip(scales) {
            let (head, to) = to.split_at_mut(1);
            head[0] = scale;
            for (i, to) in to.iter_mut().enumerate() {
                *to = code(codes, i) | code(codes, i + CODES) << 4;
            }
        }
        Ok(())
    }
}
