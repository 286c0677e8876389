//! What a step is told in device memory, on every device.

use super::Decoder;
use super::lane::Run;
use super::runs::{Fed, runs_of};
use crate::decode::DecodeError;
use crate::decode::sequence::Sequence;
use crate::decode::shape::Shape;
use gpu_kernels::state::Column;

impl Decoder {
    /// Queues the [runs](runs_of) of a step whose columns were staged, on each device. Nothing, where the model has no delta nets.
    pub(super) fn stage_runs<'s>(
        &mut self,
        shape: Shape,
        parts: impl Iterator<Item = (&'s mut Sequence, Fed)>,
    ) -> Result<(), DecodeError> {
        if self.lead.runs.is_none() {
            return Ok(());
        }
        let runs = runs_of(self.model.ranks(), shape, parts);
        let failed = self.lanes_mut().zip(&runs).enumerate().find_map(|(rank, (lane, runs))| {
            let (Some(stages), Some(buffers)) = (&mut lane.runs, &mut lane.buffers.delta) else { return None };
            stages.queue(&lane.stream, buffers, runs).err().map(|source| (rank, source))
        });
        failed.map_or(Ok(()), |(rank, source)| Err(self.of_rank(rank, source)))
    }

    /// What each device is told.
    pub(super) fn by_rank<T>(&self, of: impl Fn(usize) -> T) -> Vec<T> {
        (0..self.model.ranks()).map(of).collect()
    }

    /// Queues columns, which differ from device to device in where their caches are, for the cells on each.
    pub(super) fn stage_columns(
        &mut self,
        shape: Shape,
        columns: &[Vec<Column>],
        predicted: usize,
        runs: &[Run],
    ) -> Result<(), DecodeError> {
        self.before = shape.columns - shape.logits;
        let head_dim = self.model.config().head_dim as u32;
        let failed = self.lanes_mut().zip(columns).enumerate().find_map(|(rank, (lane, columns))| {
            lane.stage_columns(shape, columns, predicted, (runs, head_dim)).err().map(|source| (rank, source))
        });
        failed.map_or(Ok(()), |(rank, source)| Err(self.of_rank(rank, source)))
    }
}
