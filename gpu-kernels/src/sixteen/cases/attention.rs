//! Cases of attention over caches of f16.

use super::{Number, listed, name, near, numbers, values};
use crate::attention::cases::cache::{Cache, column, sinks};
use crate::attention::cases::capped::reference;
use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Outcome, Rng, Shape};
use crate::layer::{Layer, SINKS};
use crate::sixteen::{AttnBf16, AttnF16, Sixteen};
use crate::state::Column;
use half::{bf16, f16};
use warpsmith_device::DeviceSlice;

/// Attention of single tokens and of prompts.
pub struct Attentions;

impl Operation for Attentions {
    type Variant = Sixteen;

    fn kernels() -> Vec<Listed> {
        listed::<AttnF16<'_>, AttnBf16<'_>>().to_vec()
    }

    fn variants() -> Vec<Sixteen> {
        Sixteen::ALL.to_vec()
    }

    fn launches(of: Sixteen) -> Vec<&'static str> {
        name::<AttnF16<'_>, AttnBf16<'_>>(of)
    }

    fn sizes(_: Sixteen) -> NamedSizes {
        &[
            ("columns", 1),
            ("q_heads", 8),
            ("kv_heads", 4),
            ("head_dim", 128),
            ("window", 0),
            ("capacity", 512),
            ("position", 500),
            ("cap", 0),
            ("sinks", 0),
        ]
    }

    /// Every head size; one position and many; prompts; windows, caps and sinks; columns without a place.
    fn shapes(_: Sixteen) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (i, dim) in [32, 64, 80, 96, 128, 192, 256].into_iter().enumerate() {
            all.push(vec![2, 4, 2, dim, 0, 40 + i, 30, i % 3, i % 2]);
        }
        for position in [0, 1, 7, 8, 31, 32, 33, 130] {
            all.push(vec![1, 2, 1, 64, 0, 140, position, 0, 0]);
        }
        all.extend([
            // A prompt from its beginning, and one that goes on.
            vec![17, 3, 1, 64, 0, 20, 0, 0, 1],
            vec![9, 2, 2, 128, 5, 40, 20, 0, 0],
            vec![2, 3, 1, 256, 33, 120, 100, 50, 0],
            // The last columns have no place in the cache; then none has.
            vec![6, 2, 1, 32, 0, 30, 27, 0, 0],
            vec![2, 1, 1, 64, 0, 8, 8, 2, 1],
        ]);
        all
    }

    fn run<B: Bench>(of: Sixteen, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        match of {
            Sixteen::F16 => run::<B, f16>(
                shape,
                bench,
                rng,
                |on, (q, columns, sinks, y), [stride, y_stride], [scale, cap], layer| {
                    let kernel = AttnF16 { q, columns, sinks, y, stride, y_stride, scale, cap, layer };
                    // SAFETY: the caches are buffers of the caller, which nothing else touches meanwhile.
                    unsafe { on.launch_unchecked(kernel) }
                },
            ),
            Sixteen::Bf16 => {
                run::<B, bf16>(
                    shape,
                    bench,
                    rng,
                    |on, (q, columns, sinks, y), [stride, y_stride], [scale, cap], layer| {
                        let kernel = AttnBf16 { q, columns, sinks, y, stride, y_stride, scale, cap, layer };
                        // SAFETY: as above.
                        unsafe { on.launch_unchecked(kernel) }
                    },
                )
            }
        }
    }
}

fn run<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(
        &mut B,
        (&DeviceSlice<T>, &DeviceSlice<Column>, &DeviceSlice<f32>, &mut DeviceSlice<T>),
        [u32; 2],
        [f32; 2],
        Layer,
    ) -> Result<(), String>,
) -> Outcome {
    let [n, q_heads, kv_heads, dim, window] = shape.sizes(["columns", "q_heads", "kv_heads", "head_dim", "window"])?;
    let [capacity, first, cap, with_sinks] = shape.sizes(["capacity", "position", "cap", "sinks"])?;
    let sinks = sinks(rng, q_heads, with_sinks != 0);
    let layer = Layer {
        index: 1,
        q_heads: q_heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: dim as u32,
        context: capacity as u32,
        window: window as u32,
        flags: if sinks.is_empty() { 0 } else { SINKS },
        ..Layer::default()
    };
    let rows = 2 * kv_heads * capacity;
    let (k, v) = (Cache::<B, f16>::new(bench, rng, rows, dim)?, Cache::<B, f16>::new(bench, rng, rows, dim)?);
    let columns: Vec<Column> = (first..first + n).map(|p| column((0, p, capacity), &k, &v)).collect();
    let (stride, y_stride) = (q_heads * dim + 3, q_heads * dim + 1);
    let (x, gap): (Vec<T>, T) = (numbers(rng, n * stride, 0.0, 4.0), T::nearest(-77.0));
    let (q, columns, d_sinks) = (bench.upload(&x)?, bench.upload(&columns)?, bench.upload(&sinks)?);
    let mut y = bench.upload(&vec![gap; n * y_stride])?;
    let scale = 1.1 / (dim as f32).sqrt();
    let strides = [stride as u32, y_stride as u32];
    launch(bench, (&q, &columns, &d_sinks, &mut y), strides, [scale, cap as f32], layer)?;
    let (keys, of_values) = (k.after(bench, dim, &[])?, v.after(bench, dim, &[])?);
    let got = bench.read(&y)?;
    for c in 0..n {
        let (y, behind) = got[c * y_stride..][..y_stride].split_at(q_heads * dim);
        near(behind, &[-77.0], |_| 0.0)?;
        let position = first + c;
        if position >= capacity {
            near(y, &vec![f64::NAN; y.len()], |_| 0.0)?;
            continue;
        }
        let range = layer.window_start(position as u32) as usize..position + 1;
        for h in 0..q_heads {
            let at = (kv_heads + h / (q_heads / kv_heads)) * capacity * dim;
            let (keys, of_values) = (&keys[at..][..capacity * dim], &of_values[at..][..capacity * dim]);
            let q = values(&x[c * stride + h * dim..][..dim]);
            let scores = (f64::from(scale), cap as f64, sinks.get(h).copied());
            let want = reference(&q, (keys, of_values), range.clone(), scores);
            let largest = of_values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            near(&y[h * dim..][..dim], &want, |_| 3e-5 * largest)
                .map_err(|e| Failure::Wrong(format!("column {c} head {h}: {e}")))?;
        }
    }
    Ok(())
}
