//! What fits into memory, before anything is allocated.

use super::{Decoder, DecoderOptions, KvType, Model, Pool, PoolOptions, Sequence};

/// How memory would be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes of the decoder, at most.
    pub decoder: u64,
    /// Bytes of the cache of a sequence of its own.
    pub sequence: u64,
    /// Of these, the states of its layers that are delta nets, which a sequence in a pool takes beside its pages.
    pub states: u64,
    /// Such sequences that fit beside the decoder.
    pub sequences: usize,
    /// Positions of a pool that fills the same memory, in whole pages, beside the states of as many sequences as the decoder takes at a time.
    /// Sequences need as many as they have tokens, and not as many as they may get.
    pub positions: usize,
}

impl Model {
    /// How many sequences of `capacity` positions fit into `memory` bytes beside a decoder, and how large a pool: for the memory that is
    /// [free](warpsmith_runtime::Device::memory_info) once the model is loaded, or for any other. `None` where not even the decoder fits.
    pub fn plan(&self, memory: u64, options: &DecoderOptions, capacity: usize, kv: KvType) -> Option<MemoryPlan> {
        let decoder = Decoder::device_bytes(self, options)?;
        let left = memory.checked_sub(decoder)?;
        let sequence = Sequence::device_bytes(self, capacity, kv)?;
        let sequences = left.checked_div(sequence).unwrap_or(0) as usize;
        let states = Sequence::state_bytes(self);
        let positions = Pool::positions_beside(self, left, options.batch, PoolOptions { kv, ..Default::default() });
        Some(MemoryPlan { decoder, sequence, states, sequences, positions })
    }
}
