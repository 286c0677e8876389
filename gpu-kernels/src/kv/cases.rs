//! The cases of the store alone. Those of norm, rotation and store stand beside those of
//! [attention](crate::attention::cases), which they share caches with.

use super::{KvStore, KvStoreF32, reference};
use crate::cases::{Bench, Listed, NamedSizes, Operation, Outcome, Rng, Shape, same, why};
use crate::state::Column;
use half::f16;
use warpsmith_device::Kernel;

/// The store, `true` for a cache of f32.
pub struct Stores;

impl Operation for Stores {
    type Variant = bool;

    fn kernels() -> Vec<Listed> {
        vec![Listed::unmeasured::<KvStore<'_>>(why::SMALL), Listed::unmeasured::<KvStoreF32<'_>>(why::SMALL)]
    }

    fn variants() -> Vec<bool> {
        vec![false, true]
    }

    fn launches(wide: bool) -> Vec<&'static str> {
        vec![if wide { KvStoreF32::META.name } else { KvStore::META.name }]
    }

    fn sizes(_: bool) -> NamedSizes {
        &[("kv_heads", 8), ("head_dim", 128), ("capacity", 256), ("position", 100)]
    }

    fn shapes(_: bool) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (heads, dim, capacity) in [(2, 64, 16), (1, 2, 3), (3, 80, 5), (8, 128, 4), (2, 256, 3)] {
            // The last position, the one past it, and one that would wrap.
            let positions = [0, 1, capacity - 1, capacity, capacity + 1, u32::MAX as usize];
            all.extend(positions.map(|p| vec![heads, dim, capacity, p]));
        }
        all
    }

    fn run<B: Bench>(wide: bool, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [heads, dim, capacity, position] = shape.sizes(["kv_heads", "head_dim", "capacity", "position"])?;
        let n = heads * dim;
        let (k, v) = (rng.floats(n), rng.floats(n));
        let mut want_k: Vec<f32> = rng.floats(n * capacity).iter().map(|v| f16::from_f32(*v).to_f32()).collect();
        let mut want_v = want_k.clone();
        let before = want_k.clone();
        reference(&k, &mut want_k, position, heads, capacity, !wide);
        reference(&v, &mut want_v, position, heads, capacity, !wide);
        let (k, v, columns) = (bench.upload(&k)?, bench.upload(&v)?, bench.upload(&[Column::at(9, position as u32)])?);
        let (k, v, columns) = (&*k, &*v, &*columns);
        let (kv_heads, head_dim, capacity) = (heads as u32, dim as u32, capacity as u32);
        if wide {
            let (mut k_cache, mut v_cache) = (bench.upload(&before)?, bench.upload(&before)?);
            let (to_k, to_v) = (&mut *k_cache, &mut *v_cache);
            bench.launch(KvStoreF32 { k, v, k_cache: to_k, v_cache: to_v, columns, kv_heads, head_dim, capacity })?;
            same(&bench.read(&k_cache)?, &want_k)?;
            return same(&bench.read(&v_cache)?, &want_v);
        }
        let before: Vec<f16> = before.iter().map(|v| f16::from_f32(*v)).collect();
        let (mut k_cache, mut v_cache) = (bench.upload(&before)?, bench.upload(&before)?);
        let (to_k, to_v) = (&mut *k_cache, &mut *v_cache);
        bench.launch(KvStore { k, v, k_cache: to_k, v_cache: to_v, columns, kv_heads, head_dim, capacity })?;
        let widen = |b: Vec<f16>| b.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
        same(&widen(bench.read(&k_cache)?), &want_k)?;
        same(&widen(bench.read(&v_cache)?), &want_v)
    }
}
