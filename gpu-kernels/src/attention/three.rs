//! v1: three launches, with scores f32 `[q_heads, capacity]` in memory between them.
//!
//! Simple to follow, and each step can be looked at; but the grid of the scores spans the whole
//! capacity, and every score makes two trips through memory.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::length;
#[cfg(not(target_arch = "nvptx64"))]
use super::{Heads, check_cache, check_heads, check_token};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{lane, warp_index};
use crate::state::Column;
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Positions that a block of [`AttnScores`] takes: one a warp.
pub const POSITIONS_PER_BLOCK: u32 = THREADS / 32;

/// Scores of every position up to the token's own, a warp a position.
#[kernel(block = THREADS, min_blocks = 4, family = "attention", variant = "v1", addresses = "ignored")]
pub unsafe fn attn_scores(
    q: In<f32>,
    k_cache: In<f16>,
    scores: Out<f32>,
    columns: In<Column>,
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    capacity: u32,
) {
    let t = block::idx_x() as usize * POSITIONS_PER_BLOCK as usize + warp_index();
    if t < length(columns, capacity) {
        let h = block::idx_y();
        let g = (h / (q_heads / kv_heads)) as usize;
        let (head_dim, capacity) = (head_dim as usize, capacity as usize);
        let k = (g * capacity + t) * head_dim;
        let mut dot = 0.0;
        let mut d = lane();
        while d < head_dim {
            dot = math::fma(q.at(h as usize * head_dim + d), convert::f16_to_f32(k_cache.at(k + d)), dot);
            d += 32;
        }
        let dot = warp::sum_f32(dot);
        if lane() == 0 {
            scores.set(h as usize * capacity + t, dot / math::sqrt(head_dim as f32));
        }
    }
}

/// Softmax of every head's scores in place, a block a head.
#[kernel(block = THREADS, min_blocks = 4, family = "attention", variant = "v1", addresses = "ignored")]
pub unsafe fn attn_softmax(scores: InOut<f32>, columns: In<Column>, q_heads: u32, capacity: u32) {
    let scratch = shared_array!(ATTN_SOFTMAX: [f32; 32]);
    let length = length(columns, capacity);
    let row = block::idx_x() as usize * capacity as usize;
    let first = thread::idx_x() as usize;
    let mut largest = f32::MIN;
    let mut t = first;
    while t < length {
        largest = math::max(largest, scores.get(row + t));
        t += THREADS as usize;
    }
    let largest = block_reduce::max_f32(largest, scratch);
    let mut sum = 0.0;
    let mut t = first;
    while t < length {
        let p = math::exp_approx(scores.get(row + t) - largest);
        scores.set(row + t, p);
        sum += p;
        t += THREADS as usize;
    }
    let sum = block_reduce::sum_f32(sum, scratch);
    let scale = if sum > 0.0 { 1.0 / sum } else { 0.0 };
    let mut t = first;
    while t < length {
        scores.set(row + t, scores.get(row + t) * scale);
        t += THREADS as usize;
    }
}

/// The values' weighted sum, a block a head and a thread an element.
#[kernel(block = THREADS, min_blocks = 4, family = "attention", variant = "v1", addresses = "ignored")]
pub unsafe fn attn_weighted_sum(
    scores: In<f32>,
    v_cache: In<f16>,
    y: Out<f32>,
    columns: In<Column>,
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    capacity: u32,
) {
    let h = block::idx_x();
    let g = (h / (q_heads / kv_heads)) as usize;
    let length = length(columns, capacity);
    let (h, head_dim, capacity) = (h as usize, head_dim as usize, capacity as usize);
    let d = thread::idx_x() as usize;
    if d < head_dim {
        let mut sum = 0.0;
        let mut t = 0;
        while t < length {
            let v = convert::f16_to_f32(v_cache.at((g * capacity + t) * head_dim + d));
            sum = math::fma(scores.at(h * capacity + t), v, sum);
            t += 1;
        }
        y.set(h * head_dim + d, sum);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for AttnScores<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.capacity.div_ceil(POSITIONS_PER_BLOCK), self.q_heads, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let AttnScores { q_heads, kv_heads, head_dim, capacity, .. } = *self;
        let (m, h) = (Self::META, Heads { q_heads, kv_heads, head_dim, capacity });
        let cache = check_heads(m, h, self.columns)?;
        check_token(m, "q", self.q.len(), h)?;
        check_cache(m, "k_cache", self.k_cache, cache)?;
        let scores = u64::from(q_heads) * u64::from(capacity);
        contract::exactly(m, "scores", self.scores.len(), (scores, "q_heads * capacity"))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for AttnSoftmax<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.q_heads)
    }
    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        contract::within(m, "q_heads", self.q_heads, 1u32, 65535u32)?;
        contract::require(m, self.capacity > 0, "capacity", "at least 1", 0)?;
        contract::at_least(m, "columns", self.columns.len(), 1u32)?;
        let scores = u64::from(self.q_heads) * u64::from(self.capacity);
        contract::exactly(m, "scores", self.scores.len(), (scores, "q_heads * capacity"))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for AttnWeightedSum<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.q_heads)
    }
    fn check(&self) -> Result<(), ContractError> {
        let AttnWeightedSum { q_heads, kv_heads, head_dim, capacity, .. } = *self;
        let (m, h) = (Self::META, Heads { q_heads, kv_heads, head_dim, capacity });
        let cache = check_heads(m, h, self.columns)?;
        check_token(m, "y", self.y.len(), h)?;
        check_cache(m, "v_cache", self.v_cache, cache)?;
        let scores = u64::from(q_heads) * u64::from(capacity);
        contract::exactly(m, "scores", self.scores.len(), (scores, "q_heads * capacity"))
    }
}
