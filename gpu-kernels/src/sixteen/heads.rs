//! Heads of f16 and of bf16: rotary embedding of queries and keys, and the store of keys and values.
//!
//! [`QkNormRopeF16`] is [`rope`](mod@crate::rope) in place on `qk`, column `c` from `c * stride` on, `q_heads` and then `k_heads`: with
//! [`QK_NORM`] in `flags` each head is first normed by its weight, `[head_dim]` of the type; with
//! [`NEOX`] pairs are halves of the first `n_rot` elements, else neighbours. Cosines and sines are f32
//! `[context, n_rot / 2]` of [`rope_tables`](crate::rope::rope_tables). Norm and rotation are rounded once. A position at or past
//! `context` changes nothing.
//!
//! [`KvAppendF16`] stores keys and values of any number of columns, each at its position of the caches that its
//! [`Column`] leads to: a tensor `[kv_heads, capacity, head_dim]` is that of a column [`with_caches`](Column::with_caches) and
//! `layer` 0. `cache` is a [`KvType`]: f16, rounded to nearest even, so that numbers of bf16 past 65504 become infinite; f32,
//! exactly; or int8 with a scale for each row, as [`store`](crate::kv::store) has it. A position at or past the capacity
//! writes nothing. A warp takes a head.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    head::held,
    kv::cached::{Q8, Rows, store_row},
    load::warp_index,
    real::Real,
    rope::{Rotate, rotate},
};
#[cfg(not(target_arch = "nvptx64"))]
use crate::{kv::KvType, rope, state};
use crate::{
    layer::{NEOX, QK_NORM},
    rope::HEADS_PER_BLOCK,
    state::Column,
};
use warpsmith_device::prelude::*;

/// Most elements of a head that is stored.
pub const MAX_HEAD_DIM: u32 = 256;

/// Which cache, of [`KvAppendF16`].
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct To {
    stride: u32,
    layer: u32,
    kv_heads: u32,
    head_dim: u32,
    cache: u32,
}

/// Stores this warp's head: keys, and behind them values.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[device]
unsafe fn append<T: Real>((k, v): (In<T>, In<T>), columns: In<Column>, to: To) {
    let number = block::idx_x() * HEADS_PER_BLOCK + warp_index() as u32;
    let column = block::idx_y() as usize;
    let c = columns.at(column);
    if number >= 2 * to.kv_heads || c.position >= c.capacity {
        return;
    }
    let (key, of, dim) = (number < to.kv_heads, number % to.kv_heads, to.head_dim as usize);
    let from = if key { k } else { v }.ptr().add(column * to.stride as usize + of as usize * dim);
    // SAFETY: a pair of the head.
    let head = held::<4>(dim, |d| F32x2(unsafe { T::load2(from.add(d)) }));
    macro_rules! store {
        ($Cache:ty) => {{
            let (keys, values) = Rows::of::<$Cache>(&c, to.layer, to.kv_heads, of, to.head_dim);
            store_row::<$Cache, 4>(if key { &keys } else { &values }, c.position, dim, &head);
        }};
    }
    // The same choice in every thread.
    match to.cache {
        0 => store!(f16),
        1 => store!(f32),
        _ => store!(Q8),
    }
}

#[cfg(not(target_arch = "nvptx64"))]
const _: () = assert!(KvType::F16 as u32 == 0 && KvType::F32 as u32 == 1 && KvType::Int8 as u32 == 2);

macro_rules! kernels {
    ($($T:ident: $rope:ident $Rope:ident, $append:ident $Append:ident;)*) => { $(
        /// Rotary embedding of heads, with or without a norm of each before it; a warp a head.
        #[kernel(block = 32 * HEADS_PER_BLOCK, min_blocks = 4, family = "sixteen", addresses = "ignored")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $rope(
            qk: InOut<$T>,
            q_weight: In<$T>,
            k_weight: In<$T>,
            cos: In<f32>,
            sin: In<f32>,
            columns: In<Column>,
            stride: u32,
            q_heads: u32,
            k_heads: u32,
            head_dim: u32,
            n_rot: u32,
            context: u32,
            flags: u32,
            eps: f32,
        ) {
            let weight = |head| if head < q_heads { q_weight } else { k_weight };
            let turn = Rotate { cos, sin, head_dim, n_rot, neox: flags & NEOX, context };
            let norm = if flags & QK_NORM != 0 { Some((weight, eps)) } else { None };
            rotate(qk, (columns, stride, q_heads + k_heads), turn, norm);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Rope<'_> {
            fn geometry(&self) -> Geometry {
                rope::geometry_of(u64::from(self.q_heads) + u64::from(self.k_heads), self.columns)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, flags, eps) = (Self::META, self.flags, self.eps);
                contract::require(m, flags & !(NEOX | QK_NORM) == 0, "flags", "NEOX and QK_NORM", flags)?;
                let shapes = rope::Shapes {
                    qk: self.qk,
                    cos: self.cos,
                    sin: self.sin,
                    columns: self.columns,
                    stride: self.stride,
                    heads: u64::from(self.q_heads) + u64::from(self.k_heads),
                    head_dim: self.head_dim,
                    n_rot: self.n_rot,
                    neox: flags & NEOX,
                    context: self.context,
                };
                rope::contract_of(m, "q_heads", &shapes)?;
                if flags & QK_NORM == 0 {
                    return Ok(());
                }
                contract::exactly(m, "q_weight", self.q_weight.len(), (self.head_dim, "head_dim"))?;
                contract::exactly(m, "k_weight", self.k_weight.len(), (self.head_dim, "head_dim"))?;
                contract::require(m, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)
            }
        }

        /// Keys and values of columns into the caches of their sequences, a warp a head.
        #[kernel(block = 32 * HEADS_PER_BLOCK, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $append(
            k: In<$T>,
            v: In<$T>,
            columns: In<Column>,
            stride: u32,
            layer: u32,
            kv_heads: u32,
            head_dim: u32,
            cache: u32,
        ) {
            append((k, v), columns, To { stride, layer, kv_heads, head_dim, cache });
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Append<'_> {
            fn geometry(&self) -> Geometry {
                let heads = 2 * u64::from(self.kv_heads);
                Geometry::grid(heads.div_ceil(u64::from(HEADS_PER_BLOCK)), self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let m = Self::META;
                contract::within(m, "kv_heads", self.kv_heads, 1u32, 65535u32)?;
                let most = (MAX_HEAD_DIM, "the largest head that a warp holds in registers");
                contract::within(m, "head_dim", self.head_dim, 2u32, most)?;
                contract::multiple_of(m, "head_dim", self.head_dim, (2u32, "elements are loaded in pairs"))?;
                contract::within(m, "cache", self.cache, 0u32, (KvType::Int8 as u32, "a type of `KvType`"))?;
                state::check_columns(m, self.columns)?;
                contract::multiple_of(m, "stride", self.stride, (2u32, "elements are loaded in pairs"))?;
                let part = (u64::from(self.kv_heads) * u64::from(self.head_dim), "kv_heads * head_dim");
                for (name, buffer) in [("k", self.k), ("v", self.v)] {
                    state::check_strided(m, name, buffer.len(), (self.columns.len(), self.stride), part)?;
                    contract::multiple_of(m, name, (buffer.address(), "its address"), 4u32)?;
                }
                Ok(())
            }
        }
    )* };
}

kernels! {
    f16: qk_norm_rope_f16 QkNormRopeF16, kv_append_f16 KvAppendF16;
    bf16: qk_norm_rope_bf16 QkNormRopeBf16, kv_append_bf16 KvAppendBf16;
}
