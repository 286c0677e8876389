//! Prompts over the caches of one head, on tensor cores: what may not change, and scores and scales that rise and fall.

use crate::machine::{Buffer, Gpu, Rng, assert_close};
use gpu_kernels::attention::prefill::{PrefillArguments, QueryTile, tensor_bound};
use gpu_kernels::cases::{Subject, attend};
use gpu_kernels::kv::KvType;
use gpu_kernels::kv::{int8_code, int8_scale};
use gpu_kernels::layer::Layer;
use gpu_kernels::state::Column;
use half::f16;
use warpsmith_device::{DeviceSlice, Element};

/// A head's keys or values on the device, and the numbers that they stand for.
struct Cache<T> {
    data: Buffer<T>,
    scales: Buffer<f32>,
    wide: Vec<f32>,
}

fn halves(gpu: &Gpu, rows: &[f32]) -> Cache<f16> {
    let all: Vec<f16> = rows.iter().map(|v| f16::from_f32(*v)).collect();
    Cache { data: gpu.upload(&all), scales: gpu.upload(&[0.0]), wide: all.iter().map(|v| v.to_f32()).collect() }
}

fn codes(gpu: &Gpu, rows: &[f32], dim: usize) -> Cache<i8> {
    let scales: Vec<f32> = rows.chunks_exact(dim).map(int8_scale).collect();
    let all: Vec<i8> = rows.iter().enumerate().map(|(i, v)| int8_code(*v, scales[i / dim]) as i8).collect();
    let wide = all.iter().enumerate().map(|(i, c)| f32::from(*c) * scales[i / dim]).collect();
    Cache { data: gpu.upload(&all), scales: gpu.upload(&scales), wide }
}

/// What the kernel gives for tokens from the first position on, of one head.
fn run<T: Element>(gpu: &mut Gpu, (k, v): (&Cache<T>, &Cache<T>), q: &[f32], dim: usize, window: u32) -> Vec<f32> {
    let count = q.len() / dim;
    let place = |position: usize| {
        let column = Column::at(0, position as u32).with_caches(count as u32, k.data.address(), v.data.address());
        column.with_scales(k.scales.address(), v.scales.address())
    };
    let (columns, qkv) = (gpu.upload(&(0..count).map(place).collect::<Vec<_>>()), gpu.upload(q));
    let mut y = gpu.poisoned::<f32>(q.len());
    let (count, stride) = (count as u32, dim as u32);
    let layer = Layer { q_heads: 1, kv_heads: 1, head_dim: stride, context: count, window, ..Layer::default() };
    let tiles = &gpu.upload(&QueryTile::cut(0, count, count - 1, stride).collect::<Vec<_>>());
    let attend = PrefillArguments {
        qkv: &qkv,
        columns: &columns,
        tiles,
        sinks: DeviceSlice::empty(),
        y: &mut y,
        strides: (stride, stride),
        layer,
    };
    let kv = if size_of::<T>() == 1 { KvType::Int8 } else { KvType::F16 };
    // SAFETY: the caches are the test's, which nothing else touches meanwhile.
    unsafe { attend.launch(gpu, kv, false) }.unwrap();
    gpu.read(&y)
}

#[test]
fn prompts_without_tensor_cores() {
    let mut gpu = Gpu::of(75);
    for kv in [KvType::F16, KvType::Int8] {
        for case in Subject::AttentionPrefill(kv).cases() {
            case.run(&mut gpu).unwrap_or_else(|e| panic!("{case}: {e}"));
        }
    }
}

/// Weights are relative to a score that lags behind the largest: scores that rise fast, slowly, not at all, and that fall.
#[test]
fn scores_that_rise_while_they_are_passed_over() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(94));
    let (count, dim) = (200usize, 64usize);
    let q = vec![0.5f32; count * dim];
    for slope in [1.0f32, 0.05, 0.0, -1.0] {
        // `q · k / sqrt(dim)` of position t is `slope * t`.
        let keys: Vec<f32> = (0..count * dim).map(|i| slope * (i / dim) as f32 / 4.0).collect();
        let values = rng.floats(count * dim);
        let check = |name: &str, got: Vec<f32>, keys: &[f32], values: &[f32]| {
            for (t, got) in got.chunks_exact(dim).enumerate() {
                let want = attend(&[0.5; 64], keys, values, 0..t + 1, None);
                let what = format!("{name}, slope {slope}, position {t}");
                assert_close(&what, got, &want, |_| tensor_bound(0.0, t + 1));
            }
        };
        let (k, v) = (halves(&gpu, &keys), halves(&gpu, &values));
        check("f16", run(&mut gpu, (&k, &v), &q, dim, 0), &k.wide, &v.wide);
        let (k, v) = (codes(&gpu, &keys, dim), codes(&gpu, &values, dim));
        check("int8", run(&mut gpu, (&k, &v), &q, dim, 0), &k.wide, &v.wide);
    }
}

/// Results are in units of the largest scale so far: scales of values that rise, fall and jump, up to the ends of what f32 holds.
#[test]
fn scales_that_rise_while_they_are_passed_over() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(96));
    for (dim, count, window) in [(128usize, 150usize, 0u32), (64, 200, 0), (80, 140, 40), (32, 140, 0), (256, 80, 20)] {
        let jumps: Vec<f32> = rng.floats(count).iter().map(|v| (40.0 * v).round()).collect();
        let powers: [(&str, &dyn Fn(usize) -> f32); 6] = [
            ("rise", &|t| t as f32 / 4.0),
            ("rise fast", &|t| (1.5 * t as f32 - 120.0).min(110.0)),
            ("fall", &|t| 100.0 - t as f32),
            ("jump", &|t| jumps[t]),
            ("are small", &|t| -130.0 - (t % 3) as f32),
            ("are one large one", &|t| if t == 70 { 110.0 } else { -40.0 }),
        ];
        for (name, power) in powers {
            let q: Vec<f32> = rng.floats(count * dim).iter().map(|v| f16::from_f32(*v).to_f32()).collect();
            let mut values = rng.floats(count * dim);
            values.iter_mut().enumerate().for_each(|(i, v)| *v *= power(i / dim).exp2());
            // Rows of zeros, the first one among them.
            for t in (0..count).step_by(29) {
                values[t * dim..][..dim].fill(0.0);
            }
            let (k, v) = (codes(&gpu, &rng.floats(count * dim), dim), codes(&gpu, &values, dim));
            let got = run(&mut gpu, (&k, &v), &q, dim, window);
            let most = |rows: std::ops::Range<usize>| {
                let rows = &v.wide[rows.start * dim..rows.end * dim];
                rows.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())))
            };
            for (t, got) in got.chunks_exact(dim).enumerate() {
                let first = if window == 0 { 0 } else { (t + 1).saturating_sub(window as usize) };
                let row: Vec<f64> = q[t * dim..][..dim].iter().map(|v| f64::from(*v)).collect();
                let want = attend(&row, &k.wide, &v.wide, first..t + 1, None);
                // Of the largest value that the block has met when it is at the row's last tile.
                let met = most(0..count.min(t + 64)) * (t + 1) as f64 * 2f64.powi(-31);
                let bound = tensor_bound(0.0, t + 1 - first) * most(first..t + 1) + met + f64::from(f32::MIN_POSITIVE);
                assert_close(&format!("{dim}, scales that {name}, position {t}"), got, &want, |_| bound);
            }
        }
    }
}

/// A key or a value that is not a number is one for the rows that attend to it, and changes no other.
#[test]
fn what_is_not_a_number_stays_with_the_rows_that_attend_to_it() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(97));
    for (dim, count, window) in [(64usize, 150usize, 30u32), (128, 130, 0), (192, 70, 9)] {
        let q = rng.floats(count * dim);
        let (keys, values) = (rng.floats(count * dim), rng.floats(count * dim));
        let run = |gpu: &mut Gpu, keys: &[f32], values: &[f32]| {
            let (k, v) = (codes(gpu, keys, dim), codes(gpu, values, dim));
            run(gpu, (&k, &v), &q, dim, window)
        };
        let clean = run(&mut gpu, &keys, &values);
        assert!(clean.iter().all(|v| v.is_finite()));
        let (bad, end) = (40, if window == 0 { count } else { 40 + window as usize });
        for (of_keys, number) in [(true, f32::NAN), (false, f32::NAN), (false, f32::INFINITY)] {
            let (mut keys, mut values) = (keys.clone(), values.clone());
            (if of_keys { &mut keys } else { &mut values })[bad * dim + 3] = number;
            let got = run(&mut gpu, &keys, &values);
            for (t, (got, clean)) in got.chunks_exact(dim).zip(clean.chunks_exact(dim)).enumerate() {
                let spoiled = (bad..end).contains(&t);
                let as_wanted = if spoiled { got.iter().all(|v| v.is_nan()) } else { got == clean };
                assert!(
                    as_wanted,
                    "{dim}, {number} among keys: {of_keys}; position {t}: {got:?}, without it {clean:?}"
                );
            }
        }
    }
}
