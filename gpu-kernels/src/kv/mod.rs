//! KV store: the new token's keys and values go to its place in the cache.
//!
//! [`store`] norms and turns on the way, takes any number of columns, and reaches the caches through them. What follows
//! is the store alone, into caches that are arguments:
//!
//! | | |
//! |---|---|
//! | `k`, `v` | f32 `[kv_heads, head_dim]`, of one token |
//! | `k_cache`, `v_cache` | f16 (f32 for [`KvStoreF32`]) `[kv_heads, capacity, head_dim]`, of one layer |
//! | `columns` | one [`Column`]; its position is read when the kernel runs |
//!
//! Rounding is to nearest even; what f16 cannot hold becomes an infinity. A position at or past
//! `capacity` writes nothing: the host refuses it before, and the cache stays intact in any case.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod cached;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
pub mod store;

use crate::state::Column;
use warpsmith_device::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
mod kind;
#[cfg(not(target_arch = "nvptx64"))]
pub use kind::KvType;
#[cfg(not(target_arch = "nvptx64"))]
pub use store::{QkvStoreF16, QkvStoreF32, QkvStoreQ8};

/// Threads of a block.
pub const THREADS: u32 = 256;

/// The code of `v` in a row of int8: nearest, ties to even, within 127 on either side.
#[inline(always)]
pub fn int8_code(v: f32, scale: f32) -> i32 {
    math::round_to_i32(v / scale).clamp(-127, 127)
}

/// The scale of a row of int8: its largest magnitude over 127; NaN if one of its elements is.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn int8_scale(row: &[f32]) -> f32 {
    if row.iter().any(|v| v.is_nan()) { f32::NAN } else { row.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0 }
}

/// The caches after the store, from those before it.
#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(
    values: &[f32],
    cache: &mut [f32],
    position: usize,
    kv_heads: usize,
    capacity: usize,
    f16_cache: bool,
) {
    let head_dim = values.len() / kv_heads;
    if position >= capacity {
        return;
    }
    for head in 0..kv_heads {
        for d in 0..head_dim {
            let v = values[head * head_dim + d];
            let stored = if f16_cache { f16::from_f32(v).to_f32() } else { v };
            cache[(head * capacity + position) * head_dim + d] = stored;
        }
    }
}

/// Where thread `i` writes, if it does.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
unsafe fn place(columns: In<Column>, i: usize, kv_heads: u32, head_dim: u32, capacity: u32) -> Option<usize> {
    let (head_dim, capacity) = (head_dim as usize, capacity as usize);
    // SAFETY: the contract asks for a column.
    let position = unsafe { columns.at(0) }.position as usize;
    if i >= kv_heads as usize * head_dim || position >= capacity {
        return None;
    }
    let (head, d) = (i / head_dim, i % head_dim);
    Some((head * capacity + position) * head_dim + d)
}

/// Keys and values of one token into f16 caches, an element of each a thread.
#[kernel(block = THREADS, min_blocks = 4, addresses = "ignored")]
pub unsafe fn kv_store(
    k: In<f32>,
    v: In<f32>,
    k_cache: Out<f16>,
    v_cache: Out<f16>,
    columns: In<Column>,
    kv_heads: u32,
    head_dim: u32,
    capacity: u32,
) {
    let i = block::idx_x() as usize * THREADS as usize + thread::idx_x() as usize;
    if let Some(at) = place(columns, i, kv_heads, head_dim, capacity) {
        k_cache.set(at, convert::f32_to_f16(k.at(i)));
        v_cache.set(at, convert::f32_to_f16(v.at(i)));
    }
}

/// Keys and values of one token into f32 caches, an element of each a thread.
#[kernel(block = THREADS, min_blocks = 4, addresses = "ignored")]
pub unsafe fn kv_store_f32(
    k: In<f32>,
    v: In<f32>,
    k_cache: Out<f32>,
    v_cache: Out<f32>,
    columns: In<Column>,
    kv_heads: u32,
    head_dim: u32,
    capacity: u32,
) {
    let i = block::idx_x() as usize * THREADS as usize + thread::idx_x() as usize;
    if let Some(at) = place(columns, i, kv_heads, head_dim, capacity) {
        k_cache.set(at, k.at(i));
        v_cache.set(at, v.at(i));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! contracts {
    ($($Kernel:ident),*) => { $(
        impl Contract for $Kernel<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks((u64::from(self.kv_heads) * u64::from(self.head_dim)).div_ceil(u64::from(THREADS)))
            }
            fn check(&self) -> Result<(), ContractError> {
                let m = Self::META;
                contract::require(m, self.kv_heads > 0, "kv_heads", "at least 1", 0)?;
                contract::require(m, self.head_dim > 0, "head_dim", "at least 1", 0)?;
                contract::require(m, self.capacity > 0, "capacity", "at least 1", 0)?;
                let token = contract::product(m, "k", &[self.kv_heads.into(), self.head_dim.into()])?;
                let shape = [self.kv_heads.into(), self.capacity.into(), self.head_dim.into()];
                let cache = contract::product(m, "k_cache", &shape)?;
                contract::exactly(m, "k", self.k.len(), (token, "kv_heads * head_dim"))?;
                contract::exactly(m, "v", self.v.len(), (token, "kv_heads * head_dim"))?;
                contract::exactly(m, "k_cache", self.k_cache.len(), (cache, "kv_heads * capacity * head_dim"))?;
                contract::exactly(m, "v_cache", self.v_cache.len(), (cache, "kv_heads * capacity * head_dim"))?;
                contract::at_least(m, "columns", self.columns.len(), 1u32)
            }
        }
    )* };
}
#[cfg(not(target_arch = "nvptx64"))]
contracts!(KvStore, KvStoreF32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_rounds_to_even_and_keeps_out_of_the_neighbours() {
        let mut cache = vec![7.0; 2 * 3 * 2];
        // 1 + 2^-11 lies between 1 and 1 + 2^-10: to even is 1. 70000 is past f16.
        reference(&[1.000_488_3, 1.001_464_8, 70000.0, -2.0], &mut cache, 1, 2, 3, true);
        assert_eq!(cache, [7.0, 7.0, 1.0, 1.001_953_1, 7.0, 7.0, 7.0, 7.0, f32::INFINITY, -2.0, 7.0, 7.0]);
        let before = cache.clone();
        reference(&[1.0; 4], &mut cache, 3, 2, 3, true);
        assert_eq!(cache, before);
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |k: usize, cache: usize, columns: usize, head_dim: u32| unsafe {
            KvStore {
                k: DeviceSlice::from_raw(0x1000, k),
                v: DeviceSlice::from_raw(0x2000, k),
                k_cache: DeviceSlice::from_raw_mut(0x10000, cache),
                v_cache: DeviceSlice::from_raw_mut(0x20000, cache),
                columns: DeviceSlice::from_raw(0x3000, columns),
                kv_heads: 2,
                head_dim,
                capacity: 10,
            }
            .check()
        };
        assert!(launch(128, 1280, 1, 64).is_ok());
        assert_eq!(launch(127, 1280, 1, 64).unwrap_err().argument, "k");
        assert_eq!(launch(128, 1279, 1, 64).unwrap_err().argument, "k_cache");
        assert_eq!(launch(128, 1280, 0, 64).unwrap_err().argument, "columns");
        assert_eq!(launch(128, 1280, 1, 0).unwrap_err().argument, "head_dim");
    }
}
