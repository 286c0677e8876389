//! What comes before the sweep: queries in shared memory, and the new key and value in the cache.

use super::frame::{AttentionArgs, Spot};
use super::memory::{StepMemory, WARPS};
use crate::{
    attention::{plain, tiles},
    head::{Turn, held, turn},
    kv::cached::{Cached, store_row},
    layer::FUSED,
    load::warp_index,
};
use warpsmith_device::prelude::*;

/// Queries go to shared memory; where the part ends with the token of the column (`newest`), so do its key and value to the
/// cache.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn stage<T: Cached>(
    a: &AttentionArgs,
    spot: &Spot,
    position: u32,
    memory: &StepMemory,
    (tensor, newest): (bool, bool),
) {
    // The same choice in every thread.
    if a.layer.head_dim <= 64 {
        heads::<T, 1>(a, spot, position, memory, (tensor, newest));
    } else if a.layer.head_dim <= 128 {
        heads::<T, 2>(a, spot, position, memory, (tensor, newest));
    } else {
        heads::<T, 4>(a, spot, position, memory, (tensor, newest));
    }
}

/// A head a warp, of which a lane holds `N` pairs. The warps behind begin: those before are the ones that have positions if there
/// are few.
#[device]
unsafe fn heads<T: Cached, const N: usize>(
    a: &AttentionArgs,
    spot: &Spot,
    position: u32,
    memory: &StepMemory,
    (tensor, newest): (bool, bool),
) {
    let (layer, group) = (a.layer, spot.group);
    let (dim, fused) = (layer.head_dim as usize, layer.has(FUSED));
    let qkv = spot.column * a.stride as usize;
    let items = if fused && newest { group + 2 } else { group };
    let mut item = WARPS as u32 - 1 - warp_index() as u32;
    while item < items {
        let query = item < group;
        let number =
            if query { spot.head * group + item } else { layer.q_heads + (item - group) * layer.kv_heads + spot.head };
        let at = qkv + number as usize * dim;
        // SAFETY: within the column's heads.
        let mut head = held::<N>(dim, |d| unsafe { a.qkv.load2(at + d) });
        if fused && item <= group {
            let weight = if query { a.weights.0 } else { a.weights.1 };
            // Behind the queries that are there as numbers: a head has at most 256 elements, and there are at most 16 of them.
            let scratch = memory.values.from((16 + warp_index()) * 256);
            turn::<N>(&Turn::of(&layer, weight, a.tables, position), &mut head, scratch);
        }
        if !query {
            let (keys, values) = spot.rows::<T>(a);
            store_row::<T, N>(if item == group { &keys } else { &values }, position, dim, &head);
        } else if tensor {
            tiles::keep::<N>(&tiles::QueryFactors::of(memory), item as usize, &head);
        } else {
            plain::keep::<N>(memory, item as usize, dim, &head);
        }
        item += WARPS as u32;
    }
}
