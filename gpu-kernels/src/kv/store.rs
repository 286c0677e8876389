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
    head::{Turn, first, held, turn},
    kv::cached::{Cached, Q8, Rows, store_row},
    load::warp_index,
};
#[cfg(not(target_arch = "nvptx64"))]
use crate::{kv::KvType, layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::static_for;

/// Heads that a block takes: one a warp.
pub const HEADS_PER_BLOCK: u32 = 4;

/// What a block is given.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct StoreArgs {
    qkv: InOut<f32>,
    weights: (In<f32>, In<f32>),
    tables: (In<f32>, In<f32>),
    columns: In<Column>,
    stride: u32,
    layer: Layer,
}

/// A warp's head, by how much of a head a lane holds.
#[device]
unsafe fn store<T: Cached>(a: StoreArgs) {
    let scratch = shared_array!(QKV_STORE: [f32; 256 * HEADS_PER_BLOCK as usize]);
    let row = scratch.from(256 * warp_index());
    // The same choice in every thread.
    if a.layer.head_dim <= 64 {
        store_head::<T, 1>(&a, row);
    } else if a.layer.head_dim <= 128 {
        store_head::<T, 2>(&a, row);
    } else {
        store_head::<T, 4>(&a, row);
    }
}

/// A warp's head: of the queries in place, of keys and values into the cache.
#[device]
unsafe fn store_head<T: Cached, const N: usize>(a: &StoreArgs, scratch: Shared<f32>) {
    let layer = a.layer;
    let number = block::idx_x() * HEADS_PER_BLOCK + warp_index() as u32;
    let column = block::idx_y() as usize;
    let c = a.columns.at(column);
    let dim = layer.head_dim as usize;
    let at = column * a.stride as usize + number as usize * dim;
    if number < layer.q_heads + 2 * layer.kv_heads && c.position < c.capacity && c.position < layer.context {
        // SAFETY: within the column's heads.
        let mut head = held::<N>(dim, |d| unsafe { a.qkv.load2(at + d) });
        let query = number < layer.q_heads;
        let key = number < layer.q_heads + layer.kv_heads;
        if key {
            let weight = if query { a.weights.0 } else { a.weights.1 };
            turn::<N>(&Turn::of(&layer, weight, a.tables, c.position), &mut head, scratch);
        }
        if query {
            static_for!(j in 0..N => {
                if 64 * j + first() < dim {
                    a.qkv.store2(at + 64 * j + first(), F32x2(head[j]));
                }
            });
        } else {
            let of = (number - layer.q_heads) % layer.kv_heads;
            let (keys, values) = Rows::of::<T>(&c, layer.index, layer.kv_heads, of, layer.head_dim);
            store_row::<T, N>(if key { &keys } else { &values }, c.position, dim, &head);
        }
    }
}

/// `arguments! { callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of every entry point.
macro_rules! arguments {
    ($callback:ident $args:tt) => {
        $callback! { $args
            qkv: (InOut<f32>),
            q_weight: (In<f32>),
            k_weight: (In<f32>),
            cos: (In<f32>),
            sin: (In<f32>),
            columns: (Awaited<Column>),
            stride: (u32),
            layer: (Layer),
        }
    };
}
arguments! { define (Arguments StoreArguments Seen) }

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl StoreArgs {
    /// The arguments of an entry point.
    ///
    /// # Safety
    /// The launches before were waited for.
    #[inline(always)]
    unsafe fn of(given: Arguments) -> StoreArgs {
        let Arguments { qkv, q_weight, k_weight, cos, sin, columns, stride, layer } = given;
        // SAFETY: the caller's promise.
        let columns = unsafe { columns.buffer() };
        StoreArgs { qkv, weights: (q_weight, k_weight), tables: (cos, sin), columns, stride, layer }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl StoreArguments<'_> {
    /// Launches the entry point for caches of a type, `programmatic` as a programmatic launch.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the caches that the columns lead to; and with `programmatic` as for
    /// [`Programmatic::new`](warpsmith_device::Programmatic::new).
    pub unsafe fn launch<L: Launcher>(self, on: &mut L, kv: KvType, programmatic: bool) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe {
            match kv {
                KvType::F16 => on.launch_programmatic(QkvStoreF16::from(self), programmatic),
                KvType::F32 => on.launch_programmatic(QkvStoreF32::from(self), programmatic),
                KvType::Int8 => on.launch_programmatic(QkvStoreQ8::from(self), programmatic),
            }
        }
    }
}

macro_rules! entry {
    (($(#[$doc:meta])* $T:ty, $name:ident $Name:ident) $($argument:ident: ($($ty:tt)*),)*) => {
        $(#[$doc])*
        #[kernel(block = 32 * HEADS_PER_BLOCK, min_blocks = 4, family = "kv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            grid::wait_dependencies();
            grid::launch_dependents();
            store::<$T>(StoreArgs::of(Arguments { $($argument),* }));
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: kv::store, StoreArguments Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let heads = u64::from(self.layer.q_heads) + 2 * u64::from(self.layer.kv_heads);
                Geometry::grid(heads.div_ceil(u64::from(HEADS_PER_BLOCK)), self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, &self.seen())
            }
        }
    };
}

/// The contract of every entry point.
#[cfg(not(target_arch = "nvptx64"))]
fn check(m: &'static KernelMeta, given: &Seen<'_>) -> Result<(), ContractError> {
    let &Seen { qkv, q_weight, k_weight, cos, sin, columns, stride, layer: ref l } = given;
    layer::check(m, l, Some(&layer::Tables { q_weight, k_weight, cos, sin }))?;
    state::check_columns(m, columns)?;
    let heads = u64::from(l.q_heads) + 2 * u64::from(l.kv_heads);
    let part = (heads * u64::from(l.head_dim), "(q_heads + 2 * kv_heads) * head_dim");
    state::check_strided(m, "qkv", qkv.len(), (columns.len(), stride), part)?;
    layer::check_pairs(m, "qkv", qkv.address(), Some(stride))
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $T:ty: $name:ident $Name:ident; )*) => {
        $(arguments! { entry ($(#[$doc])* $T, $name $Name) })*
    };
}

entries! {
    /// Norm, rotation and store into f16 caches.
    f16: qkv_store_f16 QkvStoreF16;
    /// Norm, rotation and store into f32 caches.
    f32: qkv_store_f32 QkvStoreF32;
    /// Norm, rotation and store into int8 caches with a scale a row.
    Q8: qkv_store_q8 QkvStoreQ8;
}
