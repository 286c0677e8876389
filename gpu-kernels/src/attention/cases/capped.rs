//! The cases of attention with capped scores, over caches of every type.

use super::cache::{Cache, Stored, column};
use crate::attention::capped::{AttnCappedF16, AttnCappedF32, AttnCappedQ8, CappedArguments};
use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Outcome, Rng, Shape, close, why};
use crate::kv::KvType;
use crate::layer::Layer;
use crate::state::Column;
use half::f16;
use warpsmith_device::Kernel;

/// Attention with capped scores, by the type of the cache.
pub struct Capped;

const SIZES: NamedSizes = &[
    ("columns", 1),
    ("q_heads", 8),
    ("kv_heads", 4),
    ("head_dim", 256),
    ("window", 0),
    ("capacity", 512),
    ("position", 500),
    ("cap", 50),
];

impl Operation for Capped {
    type Variant = KvType;

    fn kernels() -> Vec<Listed> {
        vec![
            Listed::unmeasured::<AttnCappedF16<'_>>(why::RARE),
            Listed::unmeasured::<AttnCappedF32<'_>>(why::RARE),
            Listed::unmeasured::<AttnCappedQ8<'_>>(why::RARE),
        ]
    }

    fn variants() -> Vec<KvType> {
        KvType::ALL.to_vec()
    }

    fn launches(kv: KvType) -> Vec<&'static str> {
        vec![match kv {
            KvType::F16 => AttnCappedF16::META.name,
            KvType::F32 => AttnCappedF32::META.name,
            KvType::Int8 => AttnCappedQ8::META.name,
        }]
    }

    fn sizes(_: KvType) -> NamedSizes {
        SIZES
    }

    /// Every head size; fewer positions than warps take, and more; windows; columns without a place; caps that change much and little.
    fn shapes(_: KvType) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (i, dim) in [32, 64, 80, 96, 128, 192, 256].into_iter().enumerate() {
            all.push(vec![3, 4, 2, dim, 0, 40 + i, 30, 1 + i]);
        }
        for position in [0, 1, 3, 7, 8, 15, 16, 31, 32, 33, 130] {
            all.push(vec![1, 2, 1, 64, 0, 140, position, 2]);
        }
        all.extend([
            vec![4, 1, 1, 32, 16, 200, 100, 1],
            vec![2, 3, 1, 256, 33, 300, 280, 50],
            vec![2, 2, 2, 128, 1, 40, 20, 3],
            // The last columns have no place in the cache; then none has.
            vec![6, 2, 1, 32, 0, 30, 25, 2],
            vec![2, 1, 1, 64, 0, 8, 8, 2],
        ]);
        all
    }

    fn run<B: Bench>(kv: KvType, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        match kv {
            KvType::F16 => run::<B, f16>(shape, bench, rng, kv),
            KvType::F32 => run::<B, f32>(shape, bench, rng, kv),
            KvType::Int8 => run::<B, i8>(shape, bench, rng, kv),
        }
    }
}

fn run<B: Bench, T: Stored>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng, kv: KvType) -> Outcome {
    let [n, q_heads, kv_heads, dim] = shape.sizes(["columns", "q_heads", "kv_heads", "head_dim"])?;
    let [window, capacity, first, cap] = shape.sizes(["window", "capacity", "position", "cap"])?;
    let layer = Layer {
        index: 1,
        q_heads: q_heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: dim as u32,
        context: capacity as u32 + 5,
        window: window as u32,
        ..Layer::default()
    };
    let rows = 2 * kv_heads * capacity;
    let (k, v) = (Cache::<B, T>::new(bench, rng, rows, dim)?, Cache::<B, T>::new(bench, rng, rows, dim)?);
    let position = |c: usize| first + c - 2 * c.min(1).min(first);
    let columns: Vec<Column> = (0..n).map(|c| column((0, position(c), capacity), &k, &v)).collect();
    let (stride, y_stride) = ((q_heads + 2 * kv_heads) * dim + 4, q_heads * dim + 2);
    let x: Vec<f32> = rng.floats(n * stride).iter().map(|v| v * 4.0).collect();
    let (qkv, d_columns, mut y) =
        (bench.upload(&x)?, bench.upload(&columns)?, bench.upload(&vec![-77.0f32; n * y_stride])?);
    let (scale, strides) = (1.1 / (dim as f32).sqrt(), (stride as u32, y_stride as u32));
    let scores = (scale, cap as f32);
    let attend = CappedArguments { qkv: &qkv, columns: &d_columns, y: &mut y, strides, scores, layer };
    // SAFETY: the caches are buffers of this function, which nothing else touches meanwhile.
    unsafe { attend.launch(bench, kv, false) }?;
    let (keys, values) = (k.after(bench, dim, &[])?, v.after(bench, dim, &[])?);
    let got = bench.read(&y)?;
    for c in 0..n {
        let y = &got[c * y_stride..][..y_stride];
        if y[q_heads * dim..].iter().any(|v| *v != -77.0) {
            return Err(Failure::Wrong(format!("column {c}: written past its heads")));
        }
        if position(c) >= capacity {
            if y[..q_heads * dim].iter().any(|v| !v.is_nan()) {
                return Err(Failure::Wrong(format!("column {c}: not NaN where the cache has no room")));
            }
            continue;
        }
        let range = layer.window_start(position(c) as u32) as usize..position(c) + 1;
        for h in 0..q_heads {
            let at = (kv_heads + h / (q_heads / kv_heads)) * capacity * dim;
            let (keys, values) = (&keys[at..][..capacity * dim], &values[at..][..capacity * dim]);
            let q: Vec<f64> = x[c * stride + h * dim..][..dim].iter().map(|v| f64::from(*v)).collect();
            let want = reference(&q, (keys, values), range.clone(), (scale.into(), cap as f64, None));
            let largest = values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            close(&y[h * dim..][..dim], &want, |_| 3e-5 * largest)
                .map_err(|e| Failure::Wrong(format!("column {c} head {h}: {e}")))?;
        }
    }
    Ok(())
}

/// Softmax of scores over the positions of one head in f64, capped if there is a cap, with a sink if there is one, and the weighted sum of values.
pub(crate) fn reference(
    q: &[f64],
    (keys, values): (&[f32], &[f32]),
    range: std::ops::Range<usize>,
    (scale, cap, sink): (f64, f64, Option<f32>),
) -> Vec<f64> {
    let dim = q.len();
    let row = |cache: &[f32], t: usize, d: usize| f64::from(cache[t * dim + d]);
    let score = |t: usize| (0..dim).map(|d| q[d] * row(keys, t, d)).sum::<f64>() * scale;
    let capped = |score: f64| if cap > 0.0 { cap * (score / cap).tanh() } else { score };
    let scores: Vec<f64> = range.clone().map(|t| capped(score(t))).collect();
    let sink = sink.map_or(f64::NEG_INFINITY, f64::from);
    let largest = scores.iter().copied().fold(sink, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sum = weights.iter().sum::<f64>() + (sink - largest).exp();
    (0..dim).map(|d| range.clone().zip(&weights).map(|(t, w)| w * row(values, t, d)).sum::<f64>() / sum).collect()
}
