//! Numbers of a checkpoint, of any width and shape, as f32.

use super::CheckpointError;
use super::rows::Rows;
use super::shards::{Shards, Stored, floats};
use crate::gguf::TensorType;
use std::ops::Range;
use std::sync::Arc;

/// What becomes of a number.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// It stays.
    None,
    /// One more.
    OneMore,
    /// `-e^x`.
    NegatedPower,
}

impl Change {
    fn of(self, x: f32) -> f32 {
        match self {
            Change::None => x,
            Change::OneMore => x + 1.0,
            Change::NegatedPower => -f64::from(x).exp() as f32,
        }
    }
}

/// Elements of a tensor one behind the other, each a row of one column: so a vector can be put into another order as a matrix can.
pub(super) struct Floats {
    shards: Arc<Shards>,
    stored: Stored,
    change: Change,
    first: usize,
    step: usize,
    count: usize,
}

impl Floats {
    /// All of a vector.
    pub fn vector(shards: &Arc<Shards>, stored: &Stored, change: Change) -> Result<Floats, CheckpointError> {
        if stored.shape.len() != 1 || stored.shape[0] == 0 {
            return Err(stored.misshapen("one dimension, and not zero"));
        }
        Self::some(shards, stored, change, (0, 1, stored.shape[0]))
    }

    /// So many, from the first on, each a step behind the one before; the tensor has them.
    pub fn some(
        shards: &Arc<Shards>,
        stored: &Stored,
        change: Change,
        (first, step, count): (usize, usize, usize),
    ) -> Result<Floats, CheckpointError> {
        floats(stored, &[])?;
        Ok(Floats { shards: shards.clone(), stored: stored.clone(), change, first, step, count })
    }
}

impl Rows for Floats {
    fn kind(&self) -> TensorType {
        TensorType::F32
    }

    fn size(&self) -> [usize; 2] {
        [self.count, 1]
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let Some(last) = rows.len().checked_sub(1) else { return Ok(()) };
        let width = self.stored.dtype.bitsize() / 8;
        let mut bytes = vec![0; (last * self.step + 1) * width];
        self.shards.read(&self.stored, (self.first + rows.start * self.step) * width, &mut bytes)?;
        let values = floats(&self.stored, &bytes)?;
        for (to, value) in to.as_chunks_mut::<4>().0.iter_mut().zip(values.into_iter().step_by(self.step)) {
            *to = self.change.of(value).to_le_bytes();
        }
        Ok(())
    }
}
