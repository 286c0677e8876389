//! Norm and rotation of queries and keys, and the store of keys and values, for any number of columns: prefill, and
//! whatever does not use the fused attention.
//!
//! | | |
//! |---|---|
//! | `qkv` | f32, column `c` from `c * stride` on: `[q_heads + 2 * kv_heads, head_dim]`, queries, keys, values; queries in place |
//! | `q_weight`, `k_weight` | f32 `[head_dim]`; not read without [`QK_NORM`](crate::layer::QK_NORM) |
//! | `cos`, `sin` | f32 `[context, n_rot / 2]`, see [`rope`](crate::rope) |
//! | `columns` | a [`Column`] each: position, and the caches that keys and values go to |
//! | `layer` | [`Layer`] |
//!
//! Keys are stored after norm and rotation. f16: to nearest even. int8: codes `-127 ..= 127` with a scale f32 a row
//! (layer, head, position), `max |x| / 127`, codes to nearest even ([`int8_code`](super::int8_code)). A warp takes a head. A
//! column whose position is not below its capacity and the tables' context changes nothing.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    head::{Turn, turned},
    kv::cached::{Cached, Q8, Rows, store_row},
    load::warp_index,
};
#[cfg(not(target_arch = "nvptx64"))]
use crate::{layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// Heads that a block takes: one a warp.
pub const HEADS_PER_BLOCK: u32 = 4;

/// A warp's head: of the queries in place, of keys and values into the cache.
#[device]
unsafe fn store<T: Cached>(
    qkv: InOut<f32>,
    (q_weight, k_weight): (In<f32>, In<f32>),
    tables: (In<f32>, In<f32>),
    columns: In<Column>,
    stride: u32,
    layer: Layer,
) {
    let scratch = shared_array!(QKV_STORE: [f32; 256 * HEADS_PER_BLOCK as usize]);
    let head = block::idx_x() * HEADS_PER_BLOCK + warp_index() as u32;
    let column = block::idx_y() as usize;
    let c = columns.at(column);
    let dim = layer.head_dim as usize;
    let at = column * stride as usize + head as usize * dim;
    // SAFETY: within the column's heads.
    let get = |d: usize| unsafe { qkv.get(at + d) };
    if head < layer.q_heads + 2 * layer.kv_heads && c.position < c.capacity && c.position < layer.context {
        if head < layer.q_heads {
            // SAFETY: as above.
            let put = |d: usize, v: f32| unsafe { qkv.set(at + d, v) };
            turned(&Turn::of(&layer, q_weight, tables, c.position), get, put);
        } else {
            let of = (head - layer.q_heads) % layer.kv_heads;
            let (keys, values) = Rows::of::<T>(&c, layer.index, layer.kv_heads, of, layer.head_dim);
            if head < layer.q_heads + layer.kv_heads {
                let row = scratch.from(256 * warp_index());
                // SAFETY: a head has at most 256 elements, and the warp 256 of its own.
                let put = |d: usize, v: f32| unsafe { row.set(d, v) };
                turned(&Turn::of(&layer, k_weight, tables, c.position), get, put);
                sync::warp(warp::FULL);
                // SAFETY: written before the barrier.
                store_row::<T>(&keys, c.position, dim, |d| unsafe { row.get(d) });
            } else {
                store_row::<T>(&values, c.position, dim, get);
            }
        }
    }
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $T:ty: $name:ident $Name:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = 32 * HEADS_PER_BLOCK, min_blocks = 4, family = "kv")]
        pub unsafe fn $name(
            qkv: InOut<f32>,
            q_weight: In<f32>,
            k_weight: In<f32>,
            cos: In<f32>,
            sin: In<f32>,
            columns: Awaited<Column>,
            stride: u32,
            layer: Layer,
        ) {
            grid::launch_dependents();
            grid::wait_dependencies();
            store::<$T>(qkv, (q_weight, k_weight), (cos, sin), columns.buffer(), stride, layer);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let heads = u64::from(self.layer.q_heads) + 2 * u64::from(self.layer.kv_heads);
                Geometry::grid(heads.div_ceil(u64::from(HEADS_PER_BLOCK)), self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, l) = (Self::META, &self.layer);
                let Self { q_weight, k_weight, cos, sin, .. } = self;
                layer::check(m, l, Some(&layer::Tables { q_weight, k_weight, cos, sin }))?;
                state::check_columns(m, self.columns)?;
                let heads = u64::from(l.q_heads) + 2 * u64::from(l.kv_heads);
                let part = (heads * u64::from(l.head_dim), "(q_heads + 2 * kv_heads) * head_dim");
                state::check_strided(m, "qkv", self.qkv.len(), (self.columns.len(), self.stride), part)
            }
        }
    )* };
}

entries! {
    /// Norm, rotation and store into f16 caches.
    f16: qkv_store_f16 QkvStoreF16;
    /// Norm, rotation and store into f32 caches.
    f32: qkv_store_f32 QkvStoreF32;
    /// Norm, rotation and store into int8 caches with a scale a row.
    Q8: qkv_store_q8 QkvStoreQ8;
}
