//! Cases of rotations, and of keys and values on their way into caches.

use super::{Number, by_type, listed, name, near, numbers, values};
use crate::attention::cases::cache::{Cache, Stored, column};
use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Outcome, Rng, Shape};
use crate::kv::KvType;
use crate::layer::{NEOX, QK_NORM};
use crate::rope::{Rotation, reference, rope_tables};
use crate::sixteen::{KvAppendBf16, KvAppendF16, QkNormRopeBf16, QkNormRopeF16, Sixteen};
use crate::state::Column;
use half::f16;
use warpsmith_device::DeviceSlice;

/// Rotations, with and without norms.
pub struct Rotations16;

const EPS: f32 = 1e-6;

impl Operation for Rotations16 {
    type Variant = Sixteen;

    fn kernels() -> Vec<Listed> {
        listed::<QkNormRopeF16<'_>, QkNormRopeBf16<'_>>().to_vec()
    }

    fn variants() -> Vec<Sixteen> {
        Sixteen::ALL.to_vec()
    }

    fn launches(of: Sixteen) -> Vec<&'static str> {
        name::<QkNormRopeF16<'_>, QkNormRopeBf16<'_>>(of)
    }

    fn sizes(_: Sixteen) -> NamedSizes {
        &[
            ("q_heads", 16),
            ("k_heads", 8),
            ("head_dim", 128),
            ("n_rot", 128),
            ("neox", 1),
            ("norm", 1),
            ("position", 100),
        ]
    }

    fn shapes(_: Sixteen) -> Vec<Vec<usize>> {
        let heads = [
            [4, 2, 64, 64],
            [1, 1, 2, 2],
            [5, 1, 128, 64],
            [3, 3, 80, 80],
            [2, 1, 96, 20],
            [3, 1, 256, 256],
            [1, 0, 7, 0],
        ];
        let each = heads.into_iter().enumerate();
        each.flat_map(|(i, heads)| [0, 1].map(|neox| [&heads[..], &[neox, (i + neox) % 2, 7 * i + 5]].concat()))
            .collect()
    }

    fn run<B: Bench>(of: Sixteen, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        by_type! { of => rotate(shape, bench, rng), |on, (qk, q_weight, k_weight), (cos, sin, columns), [stride, q_heads, k_heads, head_dim, n_rot, context, flags], eps| QkNormRopeF16 | QkNormRopeBf16 { qk, q_weight, k_weight, cos, sin, columns, stride, q_heads, k_heads, head_dim, n_rot, context, flags, eps } }
    }
}

/// Three columns: at a position, at the one past the tables, which changes nothing, and at the first.
fn rotate<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(
        &mut B,
        (&mut DeviceSlice<T>, &DeviceSlice<T>, &DeviceSlice<T>),
        (&DeviceSlice<f32>, &DeviceSlice<f32>, &DeviceSlice<Column>),
        [u32; 7],
        f32,
    ) -> Result<(), String>,
) -> Outcome {
    let [q_heads, k_heads, head_dim, n_rot] = shape.sizes(["q_heads", "k_heads", "head_dim", "n_rot"])?;
    let [neox, norm, position] = shape.sizes(["neox", "norm", "position"])?;
    let (context, stride) = (position + 1, (q_heads + k_heads) * head_dim + 3);
    let r = Rotation { head_dim, n_rot, neox: neox != 0, base: 1e6, factors: None, linear: 1.0, yarn: None };
    let tables = rope_tables(context, n_rot, 1e6, None, 1.0);
    let x: Vec<T> = numbers(rng, 3 * stride, 0.0, 3.0);
    let (wq, wk): (Vec<T>, Vec<T>) = (numbers(rng, head_dim, 0.0, 1.0), numbers(rng, head_dim, 0.0, 1.0));
    let positions = [position, context, 0];
    let (cos, sin) = (bench.upload(&tables.cos)?, bench.upload(&tables.sin)?);
    let columns = bench.upload(&positions.map(|p| Column::at(0, p as u32)))?;
    let (mut qk, q_weight, k_weight) = (bench.upload(&x)?, bench.upload(&wq)?, bench.upload(&wk)?);
    let weights: (&DeviceSlice<T>, &DeviceSlice<T>) =
        if norm != 0 { (&q_weight, &k_weight) } else { (DeviceSlice::empty(), DeviceSlice::empty()) };
    let flags = if neox != 0 { NEOX } else { 0 } | if norm != 0 { QK_NORM } else { 0 };
    let sizes = [stride, q_heads, k_heads, head_dim, n_rot, context].map(|n| n as u32);
    let [stride32, q, k, dim, rot, context32] = sizes;
    let sizes = [stride32, q, k, dim, rot, context32, flags];
    launch(bench, (&mut qk, weights.0, weights.1), (&cos, &sin, &columns), sizes, EPS)?;
    let got = bench.read(&qk)?;
    let floats = |of: &[T]| of.iter().map(|v| v.value() as f32).collect::<Vec<f32>>();
    let (wq, wk) = (floats(&wq), floats(&wk));
    for (c, (got, x)) in got.chunks_exact(stride).zip(x.chunks_exact(stride)).enumerate() {
        let mut want = values(x);
        let mut slack = 0.0;
        if positions[c] < context {
            let heads = floats(x);
            let (q, k) = (&heads[..q_heads * head_dim], &heads[q_heads * head_dim..(q_heads + k_heads) * head_dim]);
            let of = |x, w: &[f32]| reference(x, positions[c], (norm != 0).then_some((w, EPS)), &r);
            let turned = [of(q, &wq), of(k, &wk)].concat();
            want[..turned.len()].copy_from_slice(&turned);
            slack = 4e-6;
        }
        near(got, &want, |i| if i < (q_heads + k_heads) * head_dim { slack } else { 0.0 })
            .map_err(|e| Failure::Wrong(format!("column {c}: {e}")))?;
    }
    Ok(())
}

/// Keys and values into caches of each type.
pub struct Appends;

impl Operation for Appends {
    type Variant = (KvType, Sixteen);

    fn kernels() -> Vec<Listed> {
        listed::<KvAppendF16<'_>, KvAppendBf16<'_>>().to_vec()
    }

    fn variants() -> Vec<(KvType, Sixteen)> {
        KvType::ALL.into_iter().flat_map(|kv| Sixteen::ALL.map(|of| (kv, of))).collect()
    }

    fn launches((_, of): (KvType, Sixteen)) -> Vec<&'static str> {
        name::<KvAppendF16<'_>, KvAppendBf16<'_>>(of)
    }

    fn sizes(_: (KvType, Sixteen)) -> NamedSizes {
        &[("columns", 1), ("kv_heads", 8), ("head_dim", 128), ("capacity", 256), ("position", 100)]
    }

    fn shapes(_: (KvType, Sixteen)) -> Vec<Vec<usize>> {
        // The last column past the capacity, or none of them within it.
        [[1, 2, 64, 16, 0], [3, 1, 2, 5, 3], [4, 3, 80, 9, 6], [2, 1, 126, 4, 2], [3, 2, 256, 8, 5], [2, 1, 64, 4, 4]]
            .map(|s| s.to_vec())
            .to_vec()
    }

    fn run<B: Bench>((kv, of): (KvType, Sixteen), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        match kv {
            KvType::F16 => append_to::<B, f16>((kv, of), shape, bench, rng),
            KvType::F32 => append_to::<B, f32>((kv, of), shape, bench, rng),
            KvType::Int8 => append_to::<B, i8>((kv, of), shape, bench, rng),
        }
    }
}

fn append_to<B: Bench, C: Stored>(
    (kv, of): (KvType, Sixteen),
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
) -> Outcome {
    match of {
        Sixteen::F16 => {
            append::<B, f16, C>(shape, bench, rng, |on, k, v, columns, [stride, layer, kv_heads, head_dim]| {
                let kernel = KvAppendF16 { k, v, columns, stride, layer, kv_heads, head_dim, cache: kv as u32 };
                // SAFETY: the caches are buffers of the caller, which nothing else touches meanwhile.
                unsafe { on.launch_unchecked(kernel) }
            })
        }
        Sixteen::Bf16 => {
            append::<B, half::bf16, C>(shape, bench, rng, |on, k, v, columns, [stride, layer, kv_heads, head_dim]| {
                let kernel = KvAppendBf16 { k, v, columns, stride, layer, kv_heads, head_dim, cache: kv as u32 };
                // SAFETY: as above.
                unsafe { on.launch_unchecked(kernel) }
            })
        }
    }
}

fn append<B: Bench, T: Number, C: Stored>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, &DeviceSlice<T>, &DeviceSlice<T>, &DeviceSlice<Column>, [u32; 4]) -> Result<(), String>,
) -> Outcome {
    let [n, kv_heads, dim] = shape.sizes(["columns", "kv_heads", "head_dim"])?;
    let [capacity, first] = shape.sizes(["capacity", "position"])?;
    let (rows, layer, stride) = (2 * kv_heads * capacity, 1, kv_heads * dim + 2);
    let (k, v) = (Cache::<B, C>::new(bench, rng, rows, dim)?, Cache::<B, C>::new(bench, rng, rows, dim)?);
    let (keys, of_values): (Vec<T>, Vec<T>) = (numbers(rng, n * stride, 0.0, 2.0), numbers(rng, n * stride, 0.0, 2.0));
    let columns: Vec<Column> = (first..first + n).map(|p| column((0, p, capacity), &k, &v)).collect();
    let (dk, dv, columns) = (bench.upload(&keys)?, bench.upload(&of_values)?, bench.upload(&columns)?);
    launch(bench, &dk, &dv, &columns, [stride, layer, kv_heads, dim].map(|n| n as u32))?;
    for (cache, from) in [(k, keys), (v, of_values)] {
        let mut written = Vec::new();
        for c in (0..n).filter(|c| first + c < capacity) {
            for head in 0..kv_heads {
                let row = (layer * kv_heads + head) * capacity + first + c;
                written.push((row, values(&from[c * stride + head * dim..][..dim])));
            }
        }
        cache.after(bench, dim, &written)?;
    }
    Ok(())
}
