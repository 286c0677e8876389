//! Cases of norm, rotation and store, and of attention, over caches of every type.

use super::codes::{Asked, in_turn};
use super::run::{Outcome, close};
use super::{Bench, Case, Failure, Rng};
use crate::attention::{
    AttnPrefillF16, AttnPrefillF32, AttnPrefillQ8, AttnStepF16, AttnStepF32, AttnStepQ8, partials_len,
    prefill::tensor_bound,
};
use crate::gemv::Written;
use crate::kv::KvType;
use crate::kv::{QkvStoreF16, QkvStoreF32, QkvStoreQ8, int8_code, int8_scale};
use crate::layer::{FUSED, Layer, NEOX, QK_NORM};
use crate::rope::{self, Rotation, rope_tables};
use crate::state::Column;
use half::f16;
use warpsmith_device::{DeviceAddress, DeviceSlice, Element, Launcher};

/// The sizes of a step: `columns` tokens, of sequences of their own (`fused`), or of one.
pub const STEP: &[(&str, usize)] = &[
    ("columns", 1),
    ("q_heads", 16),
    ("kv_heads", 8),
    ("head_dim", 128),
    ("n_rot", 128),
    ("neox", 1),
    ("norm", 1),
    ("window", 0),
    ("capacity", 256),
    ("position", 255),
    ("fused", 1),
    // Number of the codes that results are written as too.
    ("codes", 0),
];

/// Every head size, group, edge of a part and of the window that the step has to get right.
pub fn step_shapes(kv: KvType) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut add = |v: [usize; 11]| {
        let codes = in_turn(all.len(), v[1] * v[3]);
        all.push(v.into_iter().chain([codes]).collect());
    };
    // Head sizes, and rotations of both kinds, whole and partial.
    for (i, dim) in [32, 64, 80, 96, 128, 192, 256].into_iter().enumerate() {
        add([1, 4, 2, dim, dim, i % 2, 1, 0, 40, 35, 1]);
        add([1, 3, 1, dim, dim / 2, 1 - i % 2, i % 2, 0, 9, 8, 1]);
    }
    // Groups of one to sixteen.
    for group in [1, 2, 3, 4, 5, 7, 8, 9, 12, 16] {
        add([1, group, 1, 64, 64, 1, group % 2, 0, 80, 70, 1]);
    }
    // Lengths at the edges of rows, warps and parts; the last position, the one past it, one that would wrap.
    for position in [0, 1, 7, 8, 15, 63, 64, 65, 127, 128, 200, 299, 300, u32::MAX as usize] {
        add([1, 2, 1, 64, 64, 1, 1, 0, 300, position, 1]);
    }
    // Windows: of one, at the edge of a part, longer than the sequence.
    for (window, position) in [(1, 0), (1, 50), (16, 100), (64, 200), (100, 40), (130, 299)] {
        add([1, 2, 1, 32, 32, 0, 1, window, 300, position, 1]);
    }
    // Several sequences, and several tokens of one.
    add([3, 4, 2, 64, 64, 1, 1, 0, 90, 66, 1]);
    add([5, 2, 2, 96, 96, 0, 0, 0, 20, 12, 1]);
    add([1, 4, 2, 64, 64, 1, 1, 0, 90, 66, 0]);
    add([6, 4, 1, 80, 40, 1, 1, 0, 140, 64, 0]);
    add([9, 2, 1, 64, 64, 0, 0, 5, 16, 10, 0]);
    if kv == KvType::F16 {
        // More parts than there is room for without longer ones.
        add([1, 2, 1, 64, 64, 1, 1, 0, 2600, 2599, 1]);
    }
    if kv == KvType::Int8 {
        // A context as long as those that int8 is taken for: scales, parts and sums far beyond the first of each.
        add([1, 2, 1, 64, 64, 1, 1, 0, 8192, 8191, 1]);
    }
    all
}

/// A cache's element on the host.
trait Stored: Element {
    const SCALED: bool;
    fn encode(v: f32, scale: f32) -> Self;
    fn decode(self, scale: f32) -> f32;
}

impl Stored for f16 {
    const SCALED: bool = false;
    fn encode(v: f32, _: f32) -> f16 {
        f16::from_f32(v)
    }
    fn decode(self, _: f32) -> f32 {
        self.to_f32()
    }
}

impl Stored for f32 {
    const SCALED: bool = false;
    fn encode(v: f32, _: f32) -> f32 {
        v
    }
    fn decode(self, _: f32) -> f32 {
        self
    }
}

impl Stored for i8 {
    const SCALED: bool = true;
    fn encode(v: f32, scale: f32) -> i8 {
        int8_code(v, scale) as i8
    }
    fn decode(self, scale: f32) -> f32 {
        f32::from(self) * scale
    }
}

/// A cache on the device, and what it held before the launch.
struct Cache<B: Bench, T: Stored> {
    data: B::Buffer<T>,
    scales: B::Buffer<f32>,
    before: Vec<T>,
    scales_before: Vec<f32>,
}

impl<B: Bench, T: Stored> Cache<B, T> {
    fn new(bench: &mut B, rng: &mut Rng, rows: usize, dim: usize) -> Result<Self, Failure> {
        let (mut before, mut scales_before) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            let row: Vec<f32> = rng.floats(dim).iter().map(|v| v * 2.0).collect();
            let scale = int8_scale(&row);
            before.extend(row.iter().map(|v| T::encode(*v, scale)));
            if T::SCALED {
                scales_before.push(scale);
            }
        }
        if !T::SCALED {
            scales_before.push(0.0);
        }
        let (data, scales) = (bench.upload(&before)?, bench.upload(&scales_before)?);
        Ok(Cache { data, scales, before, scales_before })
    }

    /// Values after the launch. Rows that are not in `written` must be as before; those are within rounding of theirs.
    fn after(&self, bench: &mut B, dim: usize, written: &[(usize, Vec<f64>)]) -> Result<Vec<f32>, Failure> {
        let (data, scales) = (bench.read(&self.data)?, bench.read(&self.scales)?);
        let scale = |row: usize| if T::SCALED { scales[row] } else { 1.0 };
        for (row, codes) in data.chunks_exact(dim).enumerate() {
            let values: Vec<f32> = codes.iter().map(|c| c.decode(scale(row))).collect();
            if let Some((_, want)) = written.iter().find(|w| w.0 == row) {
                let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                // Half a step of the type; and what norm and rotation in f32 may be off, which can move a tie.
                let step = |v: f64| match (T::SCALED, size_of::<T>()) {
                    (true, _) => largest / 127.0 * 0.5001,
                    (false, 2) => v.abs() / 2048.0 + 3e-8,
                    _ => 0.0,
                };
                close(&values, want, |i| step(want[i]) + 4e-6 * (1.0 + largest))?;
            } else if bytemuck::cast_slice::<T, u8>(codes)
                != bytemuck::cast_slice::<T, u8>(&self.before[row * dim..][..dim])
                || (T::SCALED && scales[row].to_bits() != self.scales_before[row].to_bits())
            {
                return Err(Failure::Wrong(format!(
                    "row {row} of the cache was written, which is none of this step's"
                )));
            }
        }
        Ok(data.chunks_exact(dim).enumerate().flat_map(|(r, c)| c.iter().map(move |c| c.decode(scale(r)))).collect())
    }
}

/// Softmax over the positions of one head in f64, and the weighted sum of values.
#[must_use]
pub fn attend(q: &[f64], keys: &[f32], values: &[f32], range: std::ops::Range<usize>) -> Vec<f64> {
    let dim = q.len();
    let row = |cache: &[f32], t: usize, d: usize| f64::from(cache[t * dim + d]);
    let score = |t: usize| (0..dim).map(|d| q[d] * row(keys, t, d)).sum::<f64>() / (dim as f64).sqrt();
    let scores: Vec<f64> = range.clone().map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..dim).map(|d| range.clone().zip(&weights).map(|(t, w)| w * row(values, t, d)).sum::<f64>() / sum).collect()
}

/// The arguments that the launches of a step share.
#[derive(Clone, Copy)]
pub struct StepArgs<'a> {
    /// Weights of the norms of queries and of keys.
    pub weights: (&'a DeviceSlice<f32>, &'a DeviceSlice<f32>),
    /// Cosines and sines.
    pub tables: (&'a DeviceSlice<f32>, &'a DeviceSlice<f32>),
    /// Places and caches.
    pub columns: &'a DeviceSlice<Column>,
    /// From a column's queries to the next one's.
    pub stride: u32,
    /// Shapes and flags.
    pub layer: Layer,
}

/// What attention writes: partial results, counters, the output, and codes of that.
pub type Work<'a> = (&'a mut DeviceSlice<f32>, &'a mut DeviceSlice<u32>, &'a mut DeviceSlice<f32>, Option<Written<'a>>);

impl StepArgs<'_> {
    /// Launches norm, rotation and store for caches of a type.
    ///
    /// # Errors
    /// Those of the launch.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the caches that the columns lead to.
    pub unsafe fn store<L: Launcher>(
        &self,
        on: &mut L,
        kv: KvType,
        qkv: &mut DeviceSlice<f32>,
    ) -> Result<(), L::Error> {
        let StepArgs { weights: (q_weight, k_weight), tables: (cos, sin), columns, stride, layer } = *self;
        macro_rules! launch {
            ($store:ident) => {
                // SAFETY: the caller's promise.
                unsafe { on.launch_unchecked($store { qkv, q_weight, k_weight, cos, sin, columns, stride, layer }) }
            };
        }
        match kv {
            KvType::F16 => launch!(QkvStoreF16),
            KvType::F32 => launch!(QkvStoreF32),
            KvType::Int8 => launch!(QkvStoreQ8),
        }
    }

    /// Launches attention over caches of a type; `y_stride` is from a column's output to the next one's.
    ///
    /// # Errors
    /// Those of the launch.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the caches that the columns lead to.
    pub unsafe fn attend<L: Launcher>(
        &self,
        on: &mut L,
        kv: KvType,
        qkv: &DeviceSlice<f32>,
        (partials, counters, y, written): Work<'_>,
        y_stride: u32,
    ) -> Result<(), L::Error> {
        let (codes, coded, counted) = Written::arguments(written);
        let StepArgs { weights: (q_weight, k_weight), tables: (cos, sin), columns, stride, layer } = *self;
        macro_rules! launch {
            ($attend:ident) => {
                // SAFETY: the caller's promise.
                unsafe {
                    on.launch_unchecked($attend {
                        qkv,
                        q_weight,
                        k_weight,
                        cos,
                        sin,
                        columns,
                        partials,
                        counters,
                        y,
                        coded,
                        counted,
                        stride,
                        y_stride,
                        codes,
                        layer,
                    })
                }
            };
        }
        match kv {
            KvType::F16 => launch!(AttnStepF16),
            KvType::F32 => launch!(AttnStepF32),
            KvType::Int8 => launch!(AttnStepQ8),
        }
    }
}

/// Runs a step over caches of a type.
pub fn step<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, kv: KvType, only_store: bool) -> Outcome {
    match kv {
        KvType::F16 => step_of::<B, f16>(case, bench, rng, kv, only_store),
        KvType::F32 => step_of::<B, f32>(case, bench, rng, kv, only_store),
        KvType::Int8 => step_of::<B, i8>(case, bench, rng, kv, only_store),
    }
}

fn step_of<B: Bench, T: Stored>(case: &Case, bench: &mut B, rng: &mut Rng, kv: KvType, only_store: bool) -> Outcome {
    let size = |name| case.size(name);
    let (n, q_heads, kv_heads, dim, n_rot) =
        (size("columns"), size("q_heads"), size("kv_heads"), size("head_dim"), size("n_rot"));
    let (capacity, fused, normed, neox) = (size("capacity"), size("fused") != 0, size("norm") != 0, size("neox") != 0);
    let (layers, index, eps, base) = (2usize, 1usize, 1e-6f32, 1e4);
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let layer = Layer {
        index: index as u32,
        q_heads: q_heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: dim as u32,
        n_rot: n_rot as u32,
        context: (capacity + 3) as u32,
        window: size("window") as u32,
        flags: flag(neox, NEOX) | flag(normed, QK_NORM) | flag(fused && !only_store, FUSED),
        eps,
    };
    // A sequence for each column, at different places; or one for all, at places in a row.
    let position = |c: usize| match (fused, size("position")) {
        (true, p) if c > 0 => (p + 29 * c) % capacity,
        (_, p) => p.saturating_add(c).min(u32::MAX as usize),
    };
    let sequences = if fused { n } else { 1 };
    let mut caches = Vec::new();
    for _ in 0..sequences {
        let rows = layers * kv_heads * capacity;
        caches.push((Cache::<B, T>::new(bench, rng, rows, dim)?, Cache::<B, T>::new(bench, rng, rows, dim)?));
    }
    let columns: Vec<Column> = (0..n)
        .map(|c| {
            let (k, v) = &caches[if fused { c } else { 0 }];
            let scales = |cache: &Cache<B, T>| if T::SCALED { cache.scales.address() } else { DeviceAddress::NULL };
            Column {
                token: 1,
                position: position(c) as u32,
                capacity: capacity as u32,
                flags: 0,
                k: k.data.address(),
                v: v.data.address(),
                k_scales: scales(k),
                v_scales: scales(v),
            }
        })
        .collect();
    let heads = q_heads + 2 * kv_heads;
    let (stride, y_stride) = (heads * dim + 4, q_heads * dim + 8);
    let x: Vec<f32> = rng.floats(n * stride).iter().map(|v| v * 2.5).collect();
    let (wq, wk) = (rng.floats(dim), rng.floats(dim));
    let tables = rope_tables(layer.context as usize, n_rot, base, None, 1.0);
    let r = Rotation { head_dim: dim, n_rot, neox, base, factors: None, linear: 1.0, yarn: None };

    let (d_wq, d_wk) = (bench.upload(&wq)?, bench.upload(&wk)?);
    let (cos, sin) = (bench.upload(&tables.cos)?, bench.upload(&tables.sin)?);
    let (d_columns, mut qkv) = (bench.upload(&columns)?, bench.upload(&x)?);
    let (weights, tables) = ((&*d_wq, &*d_wk), (&*cos, &*sin));
    let args = StepArgs { weights, tables, columns: &d_columns, stride: stride as u32, layer };
    if only_store || !fused {
        // SAFETY: the caches are buffers of this function, which nothing else touches meanwhile.
        unsafe { args.store(bench, kv, &mut qkv) }?;
    }

    // What queries and keys become.
    let turned = |c: usize, first: usize, count: usize, weight: &[f32]| -> Vec<f64> {
        let head = &x[c * stride + first * dim..][..count * dim];
        rope::reference(head, position(c), normed.then_some((weight, eps)), &r)
    };
    let valid = |c: usize| position(c) < capacity;
    let row = |g: usize, t: usize| (index * kv_heads + g) * capacity + t;
    let mut kept = Vec::new();
    if !only_store {
        let mut partials = bench.output::<f32>(partials_len(n, &layer) as usize)?;
        let mut counters = bench.upload(&vec![0u32; n * kv_heads])?;
        let mut y = bench.upload(&vec![-77.0f32; n * y_stride])?;
        let mut asked = Asked::new(bench, size("codes"), n, q_heads * dim)?;
        let written = asked.as_mut().map(Asked::written);
        let work = (&mut *partials, &mut *counters, &mut *y, written);
        // SAFETY: as for the store.
        unsafe { args.attend(bench, kv, &qkv, work, y_stride as u32) }?;
        if bench.read(&counters)?.iter().any(|c| *c != 0) {
            return Err(Failure::Wrong("a counter is not back at zero".into()));
        }
        kept = bench.read(&y)?;
        if let Some(asked) = asked {
            asked.check(bench, &kept, y_stride)?;
        }
    }
    let mut stored = Vec::new();
    for (s, (k, v)) in caches.iter().enumerate() {
        let own = || (0..n).filter(|c| valid(*c) && (!fused || *c == s));
        let mut rows = (Vec::new(), Vec::new());
        for c in own() {
            for g in 0..kv_heads {
                let value = &x[c * stride + (q_heads + kv_heads + g) * dim..][..dim];
                rows.0.push((row(g, position(c)), turned(c, q_heads + g, 1, &wk)));
                rows.1.push((row(g, position(c)), value.iter().map(|v| f64::from(*v)).collect()));
            }
        }
        stored.push((k.after(bench, dim, &rows.0)?, v.after(bench, dim, &rows.1)?));
    }
    let after = bench.read(&qkv)?;
    for c in 0..n {
        let (column, before) = (&after[c * stride..][..stride], &x[c * stride..][..stride]);
        let queries = if valid(c) && (only_store || !fused) { q_heads * dim } else { 0 };
        close(&column[..queries], &turned(c, 0, q_heads, &wq)[..queries], |_| 1e-5)?;
        if column[queries..] != before[queries..] {
            return Err(Failure::Wrong(format!("column {c}: keys or values of the input were written")));
        }
        if only_store {
            continue;
        }
        let y = &kept[c * y_stride..][..y_stride];
        if y[q_heads * dim..].iter().any(|v| *v != -77.0) {
            return Err(Failure::Wrong(format!("column {c}: written past its heads")));
        }
        if !valid(c) {
            if y[..q_heads * dim].iter().any(|v| !v.is_nan()) {
                return Err(Failure::Wrong(format!("column {c}: not NaN where the cache has no room")));
            }
            continue;
        }
        let (keys, values) = &stored[if fused { c } else { 0 }];
        let q = turned(c, 0, q_heads, &wq);
        let range = layer.first(position(c) as u32) as usize..position(c) + 1;
        for h in 0..q_heads {
            let first = row(h / (q_heads / kv_heads), 0) * dim;
            let (keys, values) = (&keys[first..][..capacity * dim], &values[first..][..capacity * dim]);
            let want = attend(&q[h * dim..][..dim], keys, values, range.clone());
            let largest = values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            close(&y[h * dim..][..dim], &want, |_| 3e-5 * largest)
                .map_err(|e| Failure::Wrong(format!("column {c} head {h}: {e}")))?;
        }
    }
    Ok(())
}

/// The sizes of a prompt.
pub const PREFILL: &[(&str, usize)] = &[
    ("columns", 64),
    ("q_heads", 2),
    ("kv_heads", 1),
    ("head_dim", 128),
    ("window", 0),
    ("capacity", 256),
    ("position", 0),
];

/// Every head size, the edges of tiles and blocks, prompts that are appended, windows, and columns without a place.
pub fn prefill_shapes() -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for dim in [32, 64, 80, 96, 128, 192, 256] {
        all.push(vec![19, 2, 1, dim, 0, 40, 3]);
    }
    for n in [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130] {
        all.push(vec![n, 1, 1, 32, 0, 140, 0]);
    }
    all.extend([
        vec![70, 4, 2, 64, 0, 200, 100],
        vec![70, 2, 2, 32, 16, 200, 100],
        vec![40, 1, 1, 32, 1, 60, 0],
        vec![80, 3, 1, 32, 50, 90, 0],
        // More than a block of columns, and tiles that a window's edge crosses for some of a block's warps.
        vec![150, 1, 1, 128, 40, 200, 20],
        vec![140, 1, 1, 80, 0, 160, 7],
        vec![70, 2, 1, 256, 33, 90, 3],
        // The last columns have no place in the cache; then none has.
        vec![20, 2, 1, 32, 0, 30, 20],
        vec![66, 1, 1, 64, 0, 65, 1],
        vec![5, 1, 1, 64, 0, 8, 8],
    ]);
    all
}

/// Runs a prompt over caches of a type.
pub fn prefill<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, kv: KvType) -> Outcome {
    macro_rules! with {
        ($t:ty, $attend:ident) => {
            prefill_of::<B, $t>(case, bench, rng, kv, |bench, qkv, columns, y, stride, y_stride, layer| {
                // SAFETY: the caches are buffers of `prefill_of`, which nothing else touches meanwhile.
                unsafe {
                    bench.launch_unchecked($attend {
                        qkv,
                        columns,
                        y,
                        count: columns.len() as u32,
                        stride,
                        y_stride,
                        layer,
                    })
                }
            })
        };
    }
    match kv {
        KvType::F16 => with!(f16, AttnPrefillF16),
        KvType::F32 => with!(f32, AttnPrefillF32),
        KvType::Int8 => with!(i8, AttnPrefillQ8),
    }
}

fn prefill_of<B: Bench, T: Stored>(
    case: &Case,
    bench: &mut B,
    rng: &mut Rng,
    kv: KvType,
    launch: impl Fn(
        &mut B,
        &DeviceSlice<f32>,
        &DeviceSlice<Column>,
        &mut DeviceSlice<f32>,
        u32,
        u32,
        Layer,
    ) -> Result<(), String>,
) -> Outcome {
    let [n, q_heads, kv_heads, dim, window, capacity, first] =
        ["columns", "q_heads", "kv_heads", "head_dim", "window", "capacity", "position"].map(|s| case.size(s));
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
    let scales = |cache: &Cache<B, T>| if T::SCALED { cache.scales.address() } else { DeviceAddress::NULL };
    let columns: Vec<Column> = (first..first + n)
        .map(|position| Column {
            token: 0,
            position: position as u32,
            capacity: capacity as u32,
            flags: 0,
            k: k.data.address(),
            v: v.data.address(),
            k_scales: scales(&k),
            v_scales: scales(&v),
        })
        .collect();
    let (stride, y_stride) = ((q_heads + 2 * kv_heads) * dim, q_heads * dim + 2);
    // Of half of the prompts f16 holds the queries, so that only weights are rounded.
    let exact = n % 2 == 0 || dim % 3 == 0;
    let query = |v: &f32| if exact { f16::from_f32(v * 2.0).to_f32() } else { v * 2.0 };
    let x: Vec<f32> = rng.floats(n * stride).iter().map(query).collect();
    let (qkv, d_columns, mut y) =
        (bench.upload(&x)?, bench.upload(&columns)?, bench.upload(&vec![-77.0f32; n * y_stride])?);
    launch(bench, &qkv, &d_columns, &mut y, stride as u32, y_stride as u32, layer)?;
    let (keys, values) = (k.after(bench, dim, &[])?, v.after(bench, dim, &[])?);
    let got = bench.read(&y)?;
    for c in 0..n {
        let y = &got[c * y_stride..][..y_stride];
        if y[q_heads * dim..].iter().any(|v| *v != -77.0) {
            return Err(Failure::Wrong(format!("column {c}: written past its heads")));
        }
        if first + c >= capacity {
            if y[..q_heads * dim].iter().any(|v| !v.is_nan()) {
                return Err(Failure::Wrong(format!("column {c}: not NaN where the cache has no room")));
            }
            continue;
        }
        let range = layer.first((first + c) as u32) as usize..first + c + 1;
        for h in 0..q_heads {
            let at = (kv_heads + h / (q_heads / kv_heads)) * capacity * dim;
            let (keys, values) = (&keys[at..][..capacity * dim], &values[at..][..capacity * dim]);
            let q: Vec<f64> = x[c * stride + h * dim..][..dim].iter().map(|v| f64::from(*v)).collect();
            let want = attend(&q, keys, values, range.clone());
            let largest = values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            let size = |t: usize| (0..dim).map(|d| (q[d] * f64::from(keys[t * dim + d])).abs()).sum::<f64>();
            let reach = range.clone().map(size).fold(0.0f64, f64::max) / (dim as f64).sqrt();
            let reach = if exact { 0.0 } else { reach };
            // Where there are tensor cores, all but f32 is multiplied on them; the plain form is far within that bound.
            let bound = if kv == KvType::F32 { 3e-5 } else { tensor_bound(reach, range.len()) };
            close(&y[h * dim..][..dim], &want, |_| bound * largest)
                .map_err(|e| Failure::Wrong(format!("column {c} head {h}: {e}")))?;
        }
    }
    Ok(())
}
