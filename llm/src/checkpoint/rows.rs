//! Matrices and vectors of a checkpoint, row by row in the blocks of a type of ggml.

use super::CheckpointError;
use super::order::Order;
use super::shards::{Shards, Stored};
use crate::gguf::{GgufError, MadeTensor, TensorType};
use safetensors::Dtype;
use std::ops::Range;
use std::sync::Arc;

/// A matrix whose rows are made when they are asked for.
pub(super) trait Rows: Send + Sync {
    /// The type that they are made in.
    fn kind(&self) -> TensorType;

    /// Rows and columns.
    fn size(&self) -> [usize; 2];

    /// Writes these rows, one behind the other.
    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError>;

    /// Which of the checkpoint's columns each column of the rows is, where they are in another order.
    fn columns(&self) -> Option<&Arc<[u32]>> {
        None
    }

    /// Has them made in the checkpoint's order of columns, in F16 where they are quantised otherwise than a format has it.
    fn widen(&mut self) {}
}

/// Weights as they are stored: f32, f16 or bf16, each of which is a type of ggml.
pub(super) struct Dense {
    shards: Arc<Shards>,
    stored: Stored,
    kind: TensorType,
    size: [usize; 2],
}

impl Dense {
    pub fn new(shards: &Arc<Shards>, stored: &Stored) -> Result<Dense, CheckpointError> {
        let kind = Self::kind_of(stored)?;
        Ok(Dense { shards: shards.clone(), size: stored.matrix()?, stored: stored.clone(), kind })
    }

    /// The type of ggml that a tensor's elements have.
    pub fn kind_of(stored: &Stored) -> Result<TensorType, CheckpointError> {
        match stored.dtype {
            Dtype::F32 => Ok(TensorType::F32),
            Dtype::F16 => Ok(TensorType::F16),
            Dtype::BF16 => Ok(TensorType::BF16),
            _ => Err(stored.mistyped("F32, F16, BF16")),
        }
    }
}

impl Rows for Dense {
    fn kind(&self) -> TensorType {
        self.kind
    }

    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let row = self.size[1] * self.kind.block_bytes() as usize;
        self.shards.read(&self.stored, rows.start * row, to)
    }
}

/// Numbers that the configuration states.
pub(super) struct Constant(pub Vec<f32>);

impl Rows for Constant {
    fn kind(&self) -> TensorType {
        TensorType::F32
    }

    fn size(&self) -> [usize; 2] {
        [self.0.len(), 1]
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        for (to, value) in to.as_chunks_mut::<4>().0.iter_mut().zip(&self.0[rows]) {
            *to = value.to_le_bytes();
        }
        Ok(())
    }
}

/// A tensor as a GGUF file would have it: matrices one behind the other.
pub(super) struct Made {
    parts: Vec<Box<dyn Rows>>,
    rows: usize,
    row_bytes: usize,
    order: Option<Order>,
    columns: Option<Arc<[u32]>>,
}

impl Made {
    /// Of matrices that all have one size and type.
    pub fn new(parts: Vec<Box<dyn Rows>>, order: Option<Order>) -> Option<Made> {
        let first = parts.first()?;
        let (kind, [rows, cols]) = (first.kind(), first.size());
        if parts.iter().any(|p| p.kind() != kind || p.size() != [rows, cols]) {
            return None;
        }
        if order.is_some_and(|order| !order.fits(rows)) {
            return None;
        }
        let row_bytes = usize::try_from(kind.bytes_for(cols as u64)?).ok()?;
        rows.checked_mul(parts.len())?.checked_mul(row_bytes)?;
        Some(Made { parts, rows, row_bytes, order, columns: None })
    }

    /// The same, with columns that products find [gathered](MadeTensor::columns) so.
    pub fn with_columns(self, columns: Option<Arc<[u32]>>) -> Made {
        Made { columns, ..self }
    }

    fn read_rows(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let mut to = to;
        let mut next = rows.start;
        while next < rows.end {
            let (part, row) = (next / self.rows, next % self.rows);
            let (from, run) = match self.order {
                Some(order) => (order.source(row), order.run(row)),
                None => (row, self.rows - row),
            };
            let count = run.min(rows.end - next);
            let (now, rest) = to.split_at_mut(count * self.row_bytes);
            self.parts[part].read(from..from + count, now)?;
            to = rest;
            next += count;
        }
        Ok(())
    }
}

impl MadeTensor for Made {
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), GgufError> {
        let refused = |source: CheckpointError| GgufError::Made { source: source.into() };
        if to.is_empty() {
            return Ok(());
        }
        let (first, end) = (at / self.row_bytes, (at + to.len()).div_ceil(self.row_bytes));
        if first * self.row_bytes == at && end * self.row_bytes == at + to.len() {
            return self.read_rows(first..end, to).map_err(refused);
        }
        // No whole rows.
        let mut all = vec![0; (end - first) * self.row_bytes];
        self.read_rows(first..end, &mut all).map_err(refused)?;
        to.copy_from_slice(&all[at - first * self.row_bytes..][..to.len()]);
        Ok(())
    }

    fn columns(&self) -> Option<&Arc<[u32]>> {
        self.columns.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Box<dyn Rows> {
        Box::new(Constant((0..n).map(|i| i as f32).collect()))
    }

    #[test]
    fn bytes_are_those_of_the_rows_wherever_they_begin() {
        let made = Made::new(vec![numbers(3), numbers(3)], None).unwrap();
        let all: Vec<u8> = [0f32, 1., 2., 0., 1., 2.].iter().flat_map(|x| x.to_le_bytes()).collect();
        for start in 0..24 {
            for end in start..=24 {
                let mut got = vec![0xaa; end - start];
                made.read(start, &mut got).unwrap();
                assert_eq!(got, all[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn neighbours_are_the_two_halves_of_a_head() {
        let made = Made::new(vec![numbers(12)], Some(Order::Interleaved { width: 6 })).unwrap();
        let mut bytes = [0; 48];
        made.read(0, &mut bytes).unwrap();
        let rows: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(rows, [0., 3., 1., 4., 2., 5., 6., 9., 7., 10., 8., 11.]);
        // Heads that do not fill the rows, or cannot be halved, are none.
        assert!(Made::new(vec![numbers(12)], Some(Order::Interleaved { width: 5 })).is_none());
        assert!(Made::new(vec![numbers(12)], Some(Order::Interleaved { width: 8 })).is_none());
        assert!(Made::new(vec![numbers(2), numbers(3)], None).is_none());
    }

    #[test]
    fn parts_of_heads_come_one_part_after_the_other() {
        let order = Order::Parts { width: 2, heads: 2 };
        let made = Made::new(vec![numbers(12)], Some(order)).unwrap();
        let want = [0., 1., 6., 7., 2., 3., 8., 9., 4., 5., 10., 11.];
        for start in 0..12 {
            let mut bytes = vec![0xaa; 48 - 4 * start];
            made.read(4 * start, &mut bytes).unwrap();
            let rows: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            assert_eq!(rows, want[start..], "from {start}");
        }
        assert!(Made::new(vec![numbers(10)], Some(order)).is_none());
    }
}
