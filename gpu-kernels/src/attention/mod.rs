//! Attention of one token over the cache (decode), with grouped queries (GQA).
//!
//! `y[h] = sum_t p[h, t] * v[g, t]`, `p[h, ·] = softmax_t(q[h] · k[g, t] / sqrt(head_dim))`, with
//! `g = h / (q_heads / kv_heads)` and `t` from 0 to the token's own position.
//!
//! | | |
//! |---|---|
//! | `q`, `y` | f32 `[q_heads, head_dim]` |
//! | `k_cache`, `v_cache` | f16 (or f32) `[kv_heads, capacity, head_dim]`, of one layer |
//! | `columns` | one [`Column`]; the length is `position + 1`, at most `capacity` |
//! | `head_dim` | even, 2 to 256 |
//!
//! The launch does not depend on the length, so that a captured graph serves every token. Where the
//! weights sum to zero the result is zero. Source: Vaswani et al., arXiv 1706.03762; Ainslie et al.,
//! arXiv 2305.13245; the running maximum of v2: Milakov and Gimelshein, arXiv 1805.02867.
//!
//! - [`three`]: v1, three launches with the scores in memory
//! - [`one`]: v2, one launch with a running softmax
//! - [`prefill`]: many tokens of one sequence at once, on tensor cores where there are any
//! - [`prompt`]: the same with the bits of single steps, and such steps beside them, in one launch
//! - [`capped`]: any columns, with scores that are capped
//! - [`step`]: v3, norm, rotation, store and attention of any number of columns in one launch, in splits

pub mod capped;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
mod mma;
pub mod one;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod plain;
pub mod prefill;
pub mod prompt;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
mod staged;
pub mod step;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod sweep;
pub mod three;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod tiles;

use crate::state::Column;
use warpsmith_device::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
pub use capped::{AttnCappedF16, AttnCappedF32, AttnCappedQ8};
pub use one::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use prefill::{AttnPrefillF16, AttnPrefillF32, AttnPrefillQ8};
#[cfg(not(target_arch = "nvptx64"))]
pub use prompt::{AttnPromptF16, AttnPromptF32, AttnPromptQ8};
#[cfg(not(target_arch = "nvptx64"))]
pub use step::{AttnStepF16, AttnStepF32, AttnStepQ8, partials_len};
pub use three::*;

/// Largest `head_dim`.
pub const MAX_HEAD_DIM: u32 = 256;

/// Sizes that the reference and the contracts share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub q_heads: u32,
    /// Key and value heads; divides `q_heads`.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Positions that the cache has room for.
    pub capacity: u32,
}

/// The definition in f64, over caches that were widened to f32.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(q: &[f32], k_cache: &[f32], v_cache: &[f32], length: usize, heads: Heads) -> Vec<f64> {
    let Heads { q_heads, kv_heads, head_dim, capacity } = heads;
    let (head_dim, capacity) = (head_dim as usize, capacity as usize);
    let length = length.min(capacity);
    let mut y = Vec::with_capacity(q.len());
    for h in 0..q_heads as usize {
        let g = h / (q_heads / kv_heads) as usize;
        let row = |cache: &[f32], t: usize, d: usize| f64::from(cache[(g * capacity + t) * head_dim + d]);
        let score = |t: usize| {
            let dot: f64 = (0..head_dim).map(|d| f64::from(q[h * head_dim + d]) * row(k_cache, t, d)).sum();
            dot / (head_dim as f64).sqrt()
        };
        let scores: Vec<f64> = (0..length).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for d in 0..head_dim {
            let value: f64 = (0..length).map(|t| weights[t] * row(v_cache, t, d)).sum();
            y.push(if sum > 0.0 { value / sum } else { 0.0 });
        }
    }
    y
}

/// How many positions there are to attend to.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
unsafe fn length(columns: In<Column>, capacity: u32) -> usize {
    // SAFETY: the contract asks for a column.
    let position = unsafe { columns.at(0) }.position;
    // A position at or past the capacity is refused by the host; here it must not leave the cache.
    if position < capacity { position as usize + 1 } else { capacity as usize }
}

/// What all kernels here ask of the sizes, and the length of a cache.
#[cfg(not(target_arch = "nvptx64"))]
fn check_heads(m: &'static KernelMeta, h: Heads, columns: &DeviceSlice<Column>) -> Result<u64, ContractError> {
    contract::within(m, "q_heads", h.q_heads, 1u32, 65535u32)?;
    contract::require(m, h.kv_heads > 0, "kv_heads", "at least 1", 0)?;
    contract::multiple_of(m, "q_heads", h.q_heads, (h.kv_heads, "kv_heads"))?;
    contract::within(
        m,
        "head_dim",
        h.head_dim,
        2u32,
        (MAX_HEAD_DIM, "the largest head that a block holds in registers"),
    )?;
    contract::multiple_of(m, "head_dim", h.head_dim, (2u32, "elements are read in pairs"))?;
    contract::require(m, h.capacity > 0, "capacity", "at least 1", 0)?;
    contract::at_least(m, "columns", columns.len(), 1u32)?;
    contract::product(m, "k_cache", &[h.kv_heads.into(), h.capacity.into(), h.head_dim.into()])
}

/// A buffer of `q_heads * head_dim` elements.
#[cfg(not(target_arch = "nvptx64"))]
fn check_token(m: &'static KernelMeta, name: &'static str, len: usize, h: Heads) -> Result<(), ContractError> {
    contract::exactly(m, name, len, (u64::from(h.q_heads) * u64::from(h.head_dim), "q_heads * head_dim"))
}

/// A cache: its length, and an address for loads of pairs.
#[cfg(not(target_arch = "nvptx64"))]
fn check_cache<T: Element>(
    m: &'static KernelMeta,
    name: &'static str,
    cache: &DeviceSlice<T>,
    n: u64,
) -> Result<(), ContractError> {
    contract::exactly(m, name, cache.len(), (n, "kv_heads * capacity * head_dim"))?;
    contract::multiple_of(m, name, (cache.address(), "its address"), 2 * size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { q_heads: 2, kv_heads: 1, head_dim: 2, capacity: 3 };

    #[test]
    fn reference_is_the_definition() {
        let k = [0.0, 0.0, 2.0f32.sqrt(), 0.0, 9.0, 9.0];
        let v = [1.0, 10.0, 2.0, 20.0, 900.0, 900.0];
        // Scores of head 0: 0 and 1; of head 1: 0 and 0. The third position is past the length.
        let y = reference(&[1.0, 5.0, 0.0, 3.0], &k, &v, 2, HEADS);
        let p = 1.0 / (1.0 + 1.0f64.exp());
        for (got, want) in y.iter().zip([p + 2.0 * (1.0 - p), 10.0 * p + 20.0 * (1.0 - p), 1.5, 15.0]) {
            assert!((got - want).abs() < 1e-7, "{got} for {want}");
        }
        assert_eq!(reference(&[1.0; 4], &k, &v, 0, HEADS), [0.0; 4]);
    }

    #[test]
    fn contracts_name_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |q_heads, kv_heads, head_dim: u32, cache: usize| unsafe {
            AttnDecode {
                q: DeviceSlice::from_raw(0x1000, (q_heads * head_dim) as usize),
                k_cache: DeviceSlice::from_raw(0x1000, cache),
                v_cache: DeviceSlice::from_raw(0x1000, cache),
                y: DeviceSlice::from_raw_mut(0x8000, (q_heads * head_dim) as usize),
                columns: DeviceSlice::from_raw(0x4000, 1),
                q_heads,
                kv_heads,
                head_dim,
                capacity: 10,
            }
            .check()
        };
        assert!(launch(4, 2, 64, 1280).is_ok());
        assert_eq!(launch(5, 2, 64, 1280).unwrap_err().argument, "q_heads");
        assert_eq!(launch(4, 2, 64, 1281).unwrap_err().argument, "k_cache");
        // OX-15, FE-12: a head that no kernel here can hold is refused, with the reason.
        let e = launch(4, 2, 258, 5160).unwrap_err();
        assert_eq!(e.argument, "head_dim");
        assert!(e.to_string().contains("256"), "{e}");
        assert_eq!(launch(4, 2, 63, 1260).unwrap_err().argument, "head_dim");
        assert_eq!(launch(4, 2, 0, 0).unwrap_err().argument, "head_dim");
    }
}
