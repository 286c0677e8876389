//! What a step of a model with delta nets works in besides.

use super::super::memory::Memory;
use super::net::net_of;
use crate::model::Config;
use gpu_kernels::delta::Run;
use warpsmith_runtime::Stream;

/// See the module.
pub struct DeltaBuffers<M: Memory = Stream> {
    /// Which columns are of which sequence.
    pub runs: M::Buffer<Run>,
    /// Convolved queries, keys and values.
    pub mixed: M::Buffer<f32>,
    /// Elements from a column of these to the next.
    pub stride: usize,
}

/// Runs of steps of so many columns, at most: one for each, and one for those of nobody; rounded up as shapes of steps are.
pub fn most_runs(columns: usize) -> usize {
    (columns + 1).next_power_of_two()
}

impl<M: Memory> DeltaBuffers<M> {
    /// Those of a model, if it has delta nets.
    pub fn new(memory: &M, c: &Config, columns: usize) -> Result<Option<Self>, M::Error> {
        let Some(net) = net_of(c, 0) else { return Ok(None) };
        let stride = net.channels().next_multiple_of(4);
        let (runs, mixed) = (memory.buffer(1, most_runs(columns))?, memory.buffer(stride, columns)?);
        Ok(Some(DeltaBuffers { runs, mixed, stride }))
    }
}
