//! The cases of a decode step's attention, and of the norm, rotation and store that come before a prompt's: of any number of
//! columns, over caches of every type.

use super::cache::{Cache, Stored, attend, column, sinks};
use crate::attention::step::StepArguments;
use crate::attention::{AttnStepF16, AttnStepF32, AttnStepQ8, partials_len};
use crate::cases::{Bench, Failure, Listed, Measured, NamedSizes, Operation, Outcome, Rng, Shape, close, why};
use crate::gemv::OutputQuantization;
use crate::gemv::cases::{QuantizedOutput, in_turn};
use crate::kv::{KvType, QkvStoreF16, QkvStoreF32, QkvStoreQ8, store::StoreArguments};
use crate::layer::{FUSED, Layer, NEOX, NORM_BEHIND, QK_NORM, SINKS};
use crate::rope::{self, Rotation, rope_tables};
use crate::state::Column;
use half::f16;
use warpsmith_device::{DeviceSlice, Kernel, KernelMeta, Launcher};

/// Norm, rotation and store, by the type of the cache.
pub struct ColumnStores;

impl Operation for ColumnStores {
    type Variant = KvType;

    fn kernels() -> Vec<Listed> {
        vec![
            Listed::unmeasured::<QkvStoreF16<'_>>(why::SMALL),
            Listed::unmeasured::<QkvStoreF32<'_>>(why::SMALL),
            Listed::unmeasured::<QkvStoreQ8<'_>>(why::SMALL),
        ]
    }

    fn variants() -> Vec<KvType> {
        KvType::ALL.to_vec()
    }

    fn launches(kv: KvType) -> Vec<&'static str> {
        let meta = match kv {
            KvType::F16 => QkvStoreF16::META,
            KvType::F32 => QkvStoreF32::META,
            KvType::Int8 => QkvStoreQ8::META,
        };
        vec![meta.name]
    }

    fn sizes(_: KvType) -> NamedSizes {
        SIZES
    }

    fn shapes(kv: KvType) -> Vec<Vec<usize>> {
        step_shapes(kv)
    }

    fn run<B: Bench>(kv: KvType, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        step(shape, bench, rng, kv, true)
    }
}

/// A decode step's attention, by the type of the cache.
pub struct Steps;

impl Operation for Steps {
    type Variant = KvType;

    fn kernels() -> Vec<Listed> {
        let (measured, other) = (Measured::By("attention"), Measured::Not("by the benchmark of caches of f16"));
        vec![
            Listed::new::<AttnStepF16<'_>>(measured, measured),
            Listed::new::<AttnStepF32<'_>>(other, measured),
            Listed::new::<AttnStepQ8<'_>>(other, measured),
        ]
    }

    fn variants() -> Vec<KvType> {
        KvType::ALL.to_vec()
    }

    fn launches(kv: KvType) -> Vec<&'static str> {
        vec![kernel(kv).name]
    }

    fn sizes(_: KvType) -> NamedSizes {
        SIZES
    }

    fn shapes(kv: KvType) -> Vec<Vec<usize>> {
        step_shapes(kv)
    }

    fn run<B: Bench>(kv: KvType, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        step(shape, bench, rng, kv, false)
    }
}

/// The kernel of a step's attention for a type of cache.
#[must_use]
pub fn kernel(kv: KvType) -> &'static KernelMeta {
    match kv {
        KvType::F16 => AttnStepF16::META,
        KvType::F32 => AttnStepF32::META,
        KvType::Int8 => AttnStepQ8::META,
    }
}

/// The sizes of a step: `columns` tokens, of sequences of their own (`fused`), or of one.
const SIZES: NamedSizes = &[
    ("columns", 1),
    ("q_heads", 16),
    ("kv_heads", 8),
    ("head_dim", 128),
    ("n_rot", 128),
    ("neox", 1),
    // Heads are normed before they turn: 1, or behind: 2.
    ("norm", 1),
    ("window", 0),
    ("capacity", 256),
    ("position", 255),
    ("fused", 1),
    // The number of the format that results are quantized to as well.
    ("quant_format", 0),
    // Heads have sinks: 1.
    ("sinks", 0),
];

/// Every head size, group, edge of a part and of the window that the step has to get right.
fn step_shapes(kv: KvType) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut add = |v: [usize; 11]| {
        let format = in_turn(all.len(), v[1] * v[3]);
        let sinks = usize::from(all.len() % 3 == 1);
        all.push(v.into_iter().chain([format, sinks]).collect());
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
    // Norms behind rotations of every kind.
    add([1, 4, 2, 128, 128, 1, 2, 0, 40, 35, 1]);
    add([2, 3, 1, 80, 40, 1, 2, 0, 40, 31, 1]);
    add([1, 2, 1, 64, 64, 0, 2, 0, 30, 20, 1]);
    add([4, 4, 2, 192, 192, 1, 2, 0, 20, 9, 0]);
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

/// The arguments that the launches of a step share.
#[derive(Clone, Copy)]
pub struct StepArgs<'a> {
    /// Weights of the norms of queries and of keys.
    pub weights: (&'a DeviceSlice<f32>, &'a DeviceSlice<f32>),
    /// Cosines and sines.
    pub tables: (&'a DeviceSlice<f32>, &'a DeviceSlice<f32>),
    /// A score of each query head, where the layer has [`SINKS`].
    pub sinks: &'a DeviceSlice<f32>,
    /// Places and caches.
    pub columns: &'a DeviceSlice<Column>,
    /// From a column's queries to the next one's.
    pub stride: u32,
    /// Shapes and flags.
    pub layer: Layer,
}

/// What attention writes: partial results, counters, the output, and that quantized.
pub type StepOutputs<'a> =
    (&'a mut DeviceSlice<f32>, &'a mut DeviceSlice<u32>, &'a mut DeviceSlice<f32>, Option<OutputQuantization<'a>>);

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
        let StepArgs { weights: (q_weight, k_weight), tables: (cos, sin), columns, stride, layer, .. } = *self;
        let store = StoreArguments { qkv, q_weight, k_weight, cos, sin, columns, stride, layer };
        // SAFETY: the caller's promise.
        unsafe { store.launch(on, kv, false) }
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
        (partials, counters, y, written): StepOutputs<'_>,
        y_stride: u32,
    ) -> Result<(), L::Error> {
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(written);
        let StepArgs { weights: (q_weight, k_weight), tables: (cos, sin), sinks, columns, stride, layer } = *self;
        let arguments = StepArguments {
            qkv,
            q_weight,
            k_weight,
            cos,
            sin,
            sinks,
            columns,
            partials,
            counters,
            y,
            quantized,
            group_counters,
            stride,
            y_stride,
            quant_format,
            layer,
        };
        // SAFETY: the caller's promise.
        unsafe { arguments.launch(on, kv, false) }
    }
}

/// Runs a step over caches of a type.
fn step<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng, kv: KvType, only_store: bool) -> Outcome {
    match kv {
        KvType::F16 => step_of::<B, f16>(shape, bench, rng, kv, only_store),
        KvType::F32 => step_of::<B, f32>(shape, bench, rng, kv, only_store),
        KvType::Int8 => step_of::<B, i8>(shape, bench, rng, kv, only_store),
    }
}

fn step_of<B: Bench, T: Stored>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    kv: KvType,
    only_store: bool,
) -> Outcome {
    let step = Step::<B, T>::new(shape, bench, rng, only_store)?;
    let (qkv, y) = step.launch(bench, kv, shape.size("quant_format")?)?;
    let stored = step.stored(bench)?;
    for c in 0..step.columns {
        step.compare_inputs(c, &qkv[c * step.stride..][..step.stride])?;
        if !only_store {
            let (keys, values) = &stored[step.sequence(c)];
            step.compare_output(c, &y[c * step.y_stride..][..step.y_stride], keys, values)?;
        }
    }
    Ok(())
}

/// Base of the rotation's frequencies.
const BASE: f64 = 1e4;

/// The layer whose caches are used, of [`LAYERS`].
const INDEX: usize = 1;
/// Layers that a cache has.
const LAYERS: usize = 2;

/// The numbers that a sequence's cache means.
type KeysAndValues = (Vec<f32>, Vec<f32>);

/// What a step is given.
struct Step<B: Bench, T: Stored> {
    columns: usize,
    /// The first column's position.
    first: usize,
    capacity: usize,
    /// Each column is of a sequence of its own, and attention norms, turns and stores; else they are of one.
    fused: bool,
    only_store: bool,
    layer: Layer,
    /// Keys and values of each sequence.
    caches: Vec<(Cache<B, T>, Cache<B, T>)>,
    x: Vec<f32>,
    stride: usize,
    y_stride: usize,
    /// Weights of the norms of queries and of keys.
    weights: (Vec<f32>, Vec<f32>),
    sinks: Vec<f32>,
}

impl<B: Bench, T: Stored> Step<B, T> {
    fn new(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng, only_store: bool) -> Result<Self, Failure> {
        let [columns, q_heads, kv_heads, dim, capacity] =
            shape.sizes(["columns", "q_heads", "kv_heads", "head_dim", "capacity"])?;
        let [n_rot, window, first] = shape.sizes(["n_rot", "window", "position"])?;
        let [fused, neox, normed] = shape.sizes(["fused", "neox", "norm"])?.map(|n| n != 0);
        let behind = shape.size("norm")? == 2;
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let sinks = sinks(rng, q_heads, shape.size("sinks")? != 0);
        let layer = Layer {
            index: INDEX as u32,
            q_heads: q_heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: dim as u32,
            n_rot: n_rot as u32,
            context: (capacity + 3) as u32,
            window: window as u32,
            flags: flag(neox, NEOX)
                | flag(normed, QK_NORM)
                | flag(behind, NORM_BEHIND)
                | flag(fused && !only_store, FUSED)
                | flag(!sinks.is_empty(), SINKS),
            eps: 1e-6,
        };
        let mut caches = Vec::new();
        for _ in 0..if fused { columns } else { 1 } {
            let rows = LAYERS * kv_heads * capacity;
            caches.push((Cache::new(bench, rng, rows, dim)?, Cache::new(bench, rng, rows, dim)?));
        }
        let (stride, y_stride) = ((q_heads + 2 * kv_heads) * dim + 2, q_heads * dim + 5);
        let x = rng.floats(columns * stride).iter().map(|v| v * 2.5).collect();
        let weights = (rng.floats(dim), rng.floats(dim));
        Ok(Step { columns, first, capacity, fused, only_store, layer, caches, x, stride, y_stride, weights, sinks })
    }

    fn heads(&self) -> (usize, usize, usize) {
        (self.layer.q_heads as usize, self.layer.kv_heads as usize, self.layer.head_dim as usize)
    }

    /// The sequence that a column is of.
    fn sequence(&self, c: usize) -> usize {
        if self.fused { c } else { 0 }
    }

    /// A column's position: each sequence at another place, or one sequence at places in a row.
    fn position(&self, c: usize) -> usize {
        match (self.fused, self.first) {
            (true, p) if c > 0 => (p + 29 * c) % self.capacity,
            (_, p) => p.saturating_add(c).min(u32::MAX as usize),
        }
    }

    /// Whether the cache has room for a column.
    fn valid(&self, c: usize) -> bool {
        self.position(c) < self.capacity
    }

    /// The cache's row of a key head at a position.
    fn row(&self, head: usize, position: usize) -> usize {
        (INDEX * self.layer.kv_heads as usize + head) * self.capacity + position
    }

    /// What queries or keys of a column become, `count` heads from number `first` on.
    fn turned(&self, c: usize, first: usize, count: usize, weight: &[f32]) -> Vec<f64> {
        let dim = self.layer.head_dim as usize;
        let rotation = Rotation {
            head_dim: dim,
            n_rot: self.layer.n_rot as usize,
            neox: self.layer.has(NEOX),
            base: BASE,
            factors: None,
            linear: 1.0,
            yarn: None,
        };
        let heads = &self.x[c * self.stride + first * dim..][..count * dim];
        let norm = self.layer.has(QK_NORM).then_some((weight, self.layer.eps));
        if !self.layer.has(NORM_BEHIND) {
            return rope::reference(heads, self.position(c), norm, &rotation);
        }
        let mut turned = rope::reference(heads, self.position(c), None, &rotation);
        for head in turned.chunks_exact_mut(dim) {
            let mean = head.iter().map(|v| v * v).sum::<f64>() / dim as f64;
            let root = (mean + f64::from(self.layer.eps)).sqrt();
            head.iter_mut().zip(weight).for_each(|(v, w)| *v *= f64::from(*w) / root);
        }
        turned
    }

    /// Launches what is output for; the inputs and the outputs after that.
    fn launch(&self, bench: &mut B, kv: KvType, quant_format: usize) -> Result<(Vec<f32>, Vec<f32>), Failure> {
        let (q_heads, kv_heads, dim) = self.heads();
        let place = |c: usize| {
            let (k, v) = &self.caches[self.sequence(c)];
            column((1, self.position(c), self.capacity), k, v)
        };
        let columns: Vec<Column> = (0..self.columns).map(place).collect();
        let tables = rope_tables(self.layer.context as usize, self.layer.n_rot as usize, BASE, None, 1.0);
        let (q_weight, k_weight) = (bench.upload(&self.weights.0)?, bench.upload(&self.weights.1)?);
        let (cos, sin) = (bench.upload(&tables.cos)?, bench.upload(&tables.sin)?);
        let (columns, mut qkv) = (bench.upload(&columns)?, bench.upload(&self.x)?);
        let sinks = bench.upload(&self.sinks)?;
        let args = StepArgs {
            weights: (&q_weight, &k_weight),
            tables: (&cos, &sin),
            sinks: &sinks,
            columns: &columns,
            stride: self.stride as u32,
            layer: self.layer,
        };
        if self.only_store || !self.fused {
            // SAFETY: the caches are buffers of this step, which nothing else touches meanwhile.
            unsafe { args.store(bench, kv, &mut qkv) }?;
        }
        let mut outputs = Vec::new();
        if !self.only_store {
            let mut partials = bench.output::<f32>(partials_len(self.columns, &self.layer) as usize)?;
            let mut counters = bench.upload(&vec![0u32; self.columns * kv_heads])?;
            let mut y = bench.upload(&vec![-77.0f32; self.columns * self.y_stride])?;
            let mut output = QuantizedOutput::new(bench, quant_format, self.columns, q_heads * dim)?;
            let written = output.as_mut().map(QuantizedOutput::written);
            let work = (&mut *partials, &mut *counters, &mut *y, written);
            // SAFETY: as for the store.
            unsafe { args.attend(bench, kv, &qkv, work, self.y_stride as u32) }?;
            if bench.read(&counters)?.iter().any(|c| *c != 0) {
                return Err(Failure::Wrong("a counter is not back at zero".into()));
            }
            outputs = bench.read(&y)?;
            if let Some(output) = output {
                output.check(bench, &outputs, self.y_stride)?;
            }
        }
        Ok((bench.read(&qkv)?, outputs))
    }

    /// Keys and values of each sequence after the launch, of which those of the step's columns are compared.
    fn stored(&self, bench: &mut B) -> Result<Vec<KeysAndValues>, Failure> {
        let (q_heads, kv_heads, dim) = self.heads();
        let mut stored = Vec::new();
        for (s, (k, v)) in self.caches.iter().enumerate() {
            let mut rows = (Vec::new(), Vec::new());
            for c in (0..self.columns).filter(|c| self.valid(*c) && self.sequence(*c) == s) {
                for g in 0..kv_heads {
                    let value = &self.x[c * self.stride + (q_heads + kv_heads + g) * dim..][..dim];
                    let row = self.row(g, self.position(c));
                    rows.0.push((row, self.turned(c, q_heads + g, 1, &self.weights.1)));
                    rows.1.push((row, value.iter().map(|v| f64::from(*v)).collect()));
                }
            }
            stored.push((k.after(bench, dim, &rows.0)?, v.after(bench, dim, &rows.1)?));
        }
        Ok(stored)
    }

    /// Queries are turned in place where attention does not do it; keys and values stay.
    fn compare_inputs(&self, c: usize, after: &[f32]) -> Outcome {
        let (q_heads, _, dim) = self.heads();
        let before = &self.x[c * self.stride..][..self.stride];
        let queries = if self.valid(c) && (self.only_store || !self.fused) { q_heads * dim } else { 0 };
        let want = self.turned(c, 0, q_heads, &self.weights.0);
        close(&after[..queries], &want[..queries], |_| 1e-5)?;
        if after[queries..] != before[queries..] {
            return Err(Failure::Wrong(format!("column {c}: keys or values of the input were written")));
        }
        Ok(())
    }

    /// The definition, over the keys and values that are in the cache after the launch.
    fn compare_output(&self, c: usize, y: &[f32], keys: &[f32], values: &[f32]) -> Outcome {
        let (q_heads, kv_heads, dim) = self.heads();
        if y[q_heads * dim..].iter().any(|v| *v != -77.0) {
            return Err(Failure::Wrong(format!("column {c}: written past its heads")));
        }
        if !self.valid(c) {
            if y[..q_heads * dim].iter().any(|v| !v.is_nan()) {
                return Err(Failure::Wrong(format!("column {c}: not NaN where the cache has no room")));
            }
            return Ok(());
        }
        let q = self.turned(c, 0, q_heads, &self.weights.0);
        let range = self.layer.window_start(self.position(c) as u32) as usize..self.position(c) + 1;
        for h in 0..q_heads {
            let (first, len) = (self.row(h / (q_heads / kv_heads), 0) * dim, self.capacity * dim);
            let (keys, values) = (&keys[first..][..len], &values[first..][..len]);
            let want = attend(&q[h * dim..][..dim], keys, values, range.clone(), self.sinks.get(h).copied());
            let largest = values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            close(&y[h * dim..][..dim], &want, |_| 3e-5 * largest)
                .map_err(|e| Failure::Wrong(format!("column {c} head {h}: {e}")))?;
        }
        Ok(())
    }
}
