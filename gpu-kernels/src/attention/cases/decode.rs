//! The cases of attention of one token, in three launches and in one.

use crate::attention::{AttnDecode, AttnDecodeF32, AttnScores, AttnSoftmax, AttnWeightedSum, Heads, reference};
use crate::cases::{Bench, Listed, Measured, NamedSizes, Operation, Outcome, Plain, Rng, Shape, close, why};
use crate::state::Column;
use half::f16;
use warpsmith_device::Kernel;

const SIZES: NamedSizes = &[("q_heads", 16), ("kv_heads", 8), ("head_dim", 128), ("capacity", 256), ("position", 255)];

fn measured<K: Kernel>() -> Listed {
    Listed::new::<K>(Measured::By("attention"), Measured::Not(why::VARIANT))
}

/// Lengths at the edges of groups and warps, every kind of head, the last position, the one past it, one that would wrap, and
/// a long cache.
fn shapes() -> Vec<Vec<usize>> {
    let short = (0..18).chain([31, 32, 33, 63, 64, 65, 69]).map(|p| vec![4, 2, 64, 70, p]);
    let mut all: Vec<Vec<usize>> = short.collect();
    for dim in [2, 4, 6, 32, 62, 66, 80, 96, 126, 128, 130, 192, 254, 256] {
        for (q, kv) in [(1, 1), (6, 2), (3, 3)] {
            all.extend([0, 17, 40].map(|p| vec![q, kv, dim, 41, p]));
        }
    }
    all.extend([8, 9, u32::MAX as usize].map(|p| vec![2, 2, 32, 9, p]));
    all.push(vec![2, 1, 64, 2048, 2047]);
    all
}

/// Attention in three launches.
pub struct InThree;

impl Plain for InThree {
    const SIZES: NamedSizes = SIZES;

    fn kernels() -> Vec<Listed> {
        vec![measured::<AttnScores<'_>>(), measured::<AttnSoftmax<'_>>(), measured::<AttnWeightedSum<'_>>()]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        run(None, shape, bench, rng)
    }
}

/// Attention in one launch, `true` for a cache of f32.
pub struct InOne;

impl Operation for InOne {
    type Variant = bool;

    fn kernels() -> Vec<Listed> {
        vec![measured::<AttnDecode<'_>>(), Listed::unmeasured::<AttnDecodeF32<'_>>(why::VARIANT)]
    }

    fn variants() -> Vec<bool> {
        vec![false, true]
    }

    fn launches(f32: bool) -> Vec<&'static str> {
        vec![if f32 { AttnDecodeF32::META.name } else { AttnDecode::META.name }]
    }

    fn sizes(_: bool) -> NamedSizes {
        SIZES
    }

    fn shapes(_: bool) -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(f32: bool, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        run(Some(f32), shape, bench, rng)
    }
}

/// Runs either: `f32` says of which type the cache is, none that attention is in three launches.
fn run<B: Bench>(f32: Option<bool>, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let [q_heads, kv_heads, head_dim, capacity, position] =
        shape.sizes(["q_heads", "kv_heads", "head_dim", "capacity", "position"])?.map(|n| n as u32);
    let heads = Heads { q_heads, kv_heads, head_dim, capacity };
    let cache = (kv_heads * capacity * head_dim) as usize;
    let query = rng.floats((q_heads * head_dim) as usize);
    let mut halves = || -> Vec<f16> { (0..cache).map(|_| f16::from_f32(rng.unit() * 2.0)).collect() };
    let (keys, values) = (halves(), halves());
    let widen = |v: &[f16]| -> Vec<f32> { v.iter().map(|v| v.to_f32()).collect() };
    let (wide_keys, wide_values) = (widen(&keys), widen(&values));
    let want = reference(&query, &wide_keys, &wide_values, (position as usize).saturating_add(1), heads);
    let scale = wide_values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
    let (q, columns) = (bench.upload(&query)?, bench.upload(&[Column::at(0, position)])?);
    let (q, columns) = (&*q, &*columns);
    let mut out = bench.output::<f32>(query.len())?;
    let y = &mut *out;
    if f32 == Some(true) {
        let (k, v) = (bench.upload(&wide_keys)?, bench.upload(&wide_values)?);
        let (k_cache, v_cache) = (&*k, &*v);
        bench.launch(AttnDecodeF32 { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })?;
        return close(&bench.read(&out)?, &want, |_| 2e-5 * scale);
    }
    let (k, v) = (bench.upload(&keys)?, bench.upload(&values)?);
    let (k_cache, v_cache) = (&*k, &*v);
    if f32 == Some(false) {
        bench.launch(AttnDecode { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })?;
    } else {
        let mut scores = bench.output::<f32>((q_heads * capacity) as usize)?;
        let scores = &mut *scores;
        bench.launch(AttnScores { q, k_cache, scores, columns, q_heads, kv_heads, head_dim, capacity })?;
        bench.launch(AttnSoftmax { scores, columns, q_heads, capacity })?;
        bench.launch(AttnWeightedSum { scores, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })?;
    }
    close(&bench.read(&out)?, &want, |_| 2e-5 * scale)
}
