//! The cases of attention of many tokens of one sequence, over caches of every type.

use super::cache::{Cache, Stored, attend, column, sinks};
use crate::attention::prefill::{PrefillArguments, QueryTile, tensor_bound};
use crate::attention::{
    AttnPrefillF16, AttnPrefillF32, AttnPrefillQ8, AttnPromptF16, AttnPromptF32, AttnPromptQ8, partials_len,
    prompt::PromptArguments, step::step_bound,
};
use crate::cases::{Bench, Failure, Listed, Measured, NamedSizes, Operation, Outcome, Rng, Shape, close};
use crate::gemv::{
    QuantFormat,
    cases::{QuantizedOutput, in_turn},
    quant_format::NONE,
};
use crate::kv::KvType;
use crate::layer::{Layer, SINKS};
use crate::state::Column;
use half::f16;
use warpsmith_device::{Kernel, KernelMeta};

/// Bytes that it keeps in local memory on sm_90.
const SPILLED: &[(&str, u32)] = &[("attn_prefill_q8", 8)];
const SPILLED_WHY: &str = "a register over 255, for heads of one size";

/// Attention of a prompt, by the type of the cache: rounded to f16, or with the bits of single steps.
pub struct PromptsOf<const EXACT: bool>;

/// By the kernels that round queries and weights to f16.
pub type Prompts = PromptsOf<false>;
/// By those with the bits of single steps.
pub type ExactPrompts = PromptsOf<true>;

impl<const EXACT: bool> Operation for PromptsOf<EXACT> {
    type Variant = KvType;

    fn kernels() -> Vec<Listed> {
        let measured = Measured::By("prefill");
        let plain = Measured::Not("takes caches of f32 without rounding, and so without tensor cores");
        if EXACT {
            return vec![
                Listed::new::<AttnPromptF16<'_>>(measured, measured),
                Listed::new::<AttnPromptF32<'_>>(plain, plain),
                Listed::new::<AttnPromptQ8<'_>>(measured, measured),
            ];
        }
        vec![
            Listed::new::<AttnPrefillF16<'_>>(measured, measured),
            Listed::new::<AttnPrefillF32<'_>>(measured, plain),
            Listed::new::<AttnPrefillQ8<'_>>(measured, measured).spilling(SPILLED, SPILLED_WHY),
        ]
    }

    fn variants() -> Vec<KvType> {
        KvType::ALL.to_vec()
    }

    fn launches(kv: KvType) -> Vec<&'static str> {
        vec![if EXACT { exact_kernel(kv) } else { kernel(kv) }.name]
    }

    fn sizes(_: KvType) -> NamedSizes {
        if EXACT { SIZES } else { &SIZES[..OF_ANY] }
    }

    fn shapes(_: KvType) -> Vec<Vec<usize>> {
        let mut all = prompt_shapes();
        if EXACT {
            // Single steps beside them, and every kind of quantized results.
            for (i, shape) in all.iter_mut().enumerate() {
                shape.extend([[0, 1, 5][i % 3], in_turn(i, shape[1] * shape[3])]);
            }
            // Query heads that share a key head, of which a warp has several columns, or half of one; and several parts.
            for group in [3, 4, 5, 8, 9, 16] {
                all.push(vec![21, 2 * group, 2, 64, 0, 200, 70, group % 2, group % 4, in_turn(group, 128 * group)]);
            }
            all.push(vec![40, 4, 1, 128, 100, 400, 300, 1, 3, 1]);
            // Groups of elements that several key heads have parts of.
            all.push(vec![3, 8, 4, 32, 0, 300, 250, 0, 4, QuantFormat::ALL[0] as usize]);
        }
        all
    }

    fn run<B: Bench>(kv: KvType, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        match kv {
            KvType::F16 => run_over::<B, f16>(shape, bench, rng, (kv, EXACT)),
            KvType::F32 => run_over::<B, f32>(shape, bench, rng, (kv, EXACT)),
            KvType::Int8 => run_over::<B, i8>(shape, bench, rng, (kv, EXACT)),
        }
    }
}

/// The kernel that rounds, for a type of cache.
#[must_use]
pub fn kernel(kv: KvType) -> &'static KernelMeta {
    match kv {
        KvType::F16 => AttnPrefillF16::META,
        KvType::F32 => AttnPrefillF32::META,
        KvType::Int8 => AttnPrefillQ8::META,
    }
}

/// The kernel with the bits of single steps for a type of cache.
#[must_use]
pub fn exact_kernel(kv: KvType) -> &'static KernelMeta {
    match kv {
        KvType::F16 => AttnPromptF16::META,
        KvType::F32 => AttnPromptF32::META,
        KvType::Int8 => AttnPromptQ8::META,
    }
}

/// The sizes of a prompt, and behind them those that only kernels with the bits of single steps have.
const SIZES: NamedSizes = &[
    ("columns", 64),
    ("q_heads", 2),
    ("kv_heads", 1),
    ("head_dim", 128),
    ("window", 0),
    ("capacity", 256),
    ("position", 0),
    // Heads have sinks: 1.
    ("sinks", 0),
    // Single steps beside it.
    ("steps", 0),
    // The number of the format that results are quantized to as well.
    ("quant_format", 0),
];
/// How many any prompt has.
const OF_ANY: usize = 8;

/// Every head size, the edges of tiles and blocks, prompts that are appended, windows, and columns without a place.
fn prompt_shapes() -> Vec<Vec<usize>> {
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
    for (i, shape) in all.iter_mut().enumerate() {
        shape.push(i % 2);
    }
    all
}

/// A prompt: its sizes, and what it is made of.
struct Prompt {
    /// Of each column.
    positions: Vec<usize>,
    capacity: usize,
    layer: Layer,
    stride: usize,
    /// Whether f16 holds the queries, so that only weights are rounded.
    exact: bool,
    x: Vec<f32>,
    sinks: Vec<f32>,
}

/// Runs a prompt over caches of a type, by one of its two kernels.
fn run_over<B: Bench, T: Stored>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    (kv, exact_kernel): (KvType, bool),
) -> Outcome {
    let [n, q_heads, kv_heads, dim, window, capacity, first] =
        shape.sizes(["columns", "q_heads", "kv_heads", "head_dim", "window", "capacity", "position"])?;
    let sinks = sinks(rng, q_heads, shape.size("sinks")? != 0);
    let layer = Layer {
        index: 1,
        q_heads: q_heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: dim as u32,
        context: capacity as u32 + 5,
        window: window as u32,
        flags: if sinks.is_empty() { 0 } else { SINKS },
        ..Layer::default()
    };
    let rows = 2 * kv_heads * capacity;
    let (k, v) = (Cache::<B, T>::new(bench, rng, rows, dim)?, Cache::<B, T>::new(bench, rng, rows, dim)?);
    let (beside, quant_format) =
        if exact_kernel { (shape.size("steps")?, shape.size("quant_format")?) } else { (0, NONE as usize) };
    // The prompt's last column is behind those of steps, as what is predicted from is last.
    let mut positions: Vec<usize> = (first..first + n).collect();
    let last = positions.split_off(n.saturating_sub(1));
    positions.extend((0..beside).map(|i| capacity * (i + 1) / (beside + 1)));
    positions.extend(last);
    let columns: Vec<Column> = positions.iter().map(|&position| column((0, position, capacity), &k, &v)).collect();
    let count = columns.len();
    let (stride, y_stride) = ((q_heads + 2 * kv_heads) * dim, q_heads * dim + 2);
    // Half of the prompts.
    let exact = n % 2 == 0 || dim % 3 == 0;
    let query = |v: &f32| if exact { f16::from_f32(v * 2.0).to_f32() } else { v * 2.0 };
    let x: Vec<f32> = rng.floats(count * stride).iter().map(query).collect();
    let (qkv, d_columns, mut y) =
        (bench.upload(&x)?, bench.upload(&columns)?, bench.upload(&vec![-77.0f32; count * y_stride])?);
    let tiles: Vec<QueryTile> = QueryTile::cut(0, n as u32, (count as u32).saturating_sub(1), dim as u32).collect();
    let (tiles, strides) = (bench.upload(&tiles)?, (stride as u32, y_stride as u32));
    let d_sinks = bench.upload(&sinks)?;
    let attend =
        PrefillArguments { qkv: &qkv, columns: &d_columns, tiles: &tiles, sinks: &d_sinks, y: &mut y, strides, layer };
    let mut output = None;
    // SAFETY: the caches are buffers of this function, which nothing else touches meanwhile.
    unsafe {
        if exact_kernel {
            let steps = if beside == 0 { &[] } else { &columns[n.saturating_sub(1)..] };
            let mut steps = steps.to_vec();
            steps.last_mut().into_iter().for_each(|in_tile| *in_tile = Column::default());
            let mut partials = bench.output::<f32>(partials_len(steps.len(), &layer) as usize)?;
            let (mut counters, steps) = (bench.upload(&vec![0u32; steps.len() * kv_heads])?, bench.upload(&steps)?);
            output = QuantizedOutput::new(bench, quant_format, count, q_heads * dim)?;
            let written = output.as_mut().map(QuantizedOutput::written);
            let attend = PromptArguments::from(attend).with_steps(&steps, (&mut partials, &mut counters));
            attend.quantized(written).launch(bench, kv, false)?;
            if bench.read(&counters)?.iter().any(|c| *c != 0) {
                return Err(Failure::Wrong("a counter is not back at zero".into()));
            }
        } else {
            attend.launch(bench, kv, false)?;
        }
    };
    let (keys, values) = (k.after(bench, dim, &[])?, v.after(bench, dim, &[])?);
    let got = bench.read(&y)?;
    if let Some(output) = output {
        output.check(bench, &got, y_stride)?;
    }
    let prompt = Prompt { positions, capacity, layer, stride, exact, x, sinks };
    let of = |c: usize| &got[c * y_stride..][..y_stride];
    (0..count).try_for_each(|c| prompt.compare((kv, exact_kernel), c, of(c), (&keys, &values)))
}

impl Prompt {
    /// Compares a column's output with the definition.
    fn compare(
        &self,
        (kv, exact_kernel): (KvType, bool),
        c: usize,
        y: &[f32],
        (keys, values): (&[f32], &[f32]),
    ) -> Outcome {
        let [q_heads, kv_heads, dim] =
            [self.layer.q_heads, self.layer.kv_heads, self.layer.head_dim].map(|n| n as usize);
        let (position, capacity) = (self.positions[c], self.capacity);
        if y[q_heads * dim..].iter().any(|v| *v != -77.0) {
            return Err(Failure::Wrong(format!("column {c}: written past its heads")));
        }
        if position >= capacity {
            if y[..q_heads * dim].iter().any(|v| !v.is_nan()) {
                return Err(Failure::Wrong(format!("column {c}: not NaN where the cache has no room")));
            }
            return Ok(());
        }
        let range = self.layer.window_start(position as u32) as usize..position + 1;
        for h in 0..q_heads {
            let at = (kv_heads + h / (q_heads / kv_heads)) * capacity * dim;
            let (keys, values) = (&keys[at..][..capacity * dim], &values[at..][..capacity * dim]);
            let q: Vec<f64> = self.x[c * self.stride + h * dim..][..dim].iter().map(|v| f64::from(*v)).collect();
            let want = attend(&q, keys, values, range.clone(), self.sinks.get(h).copied());
            let largest = values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            let size = |t: usize| (0..dim).map(|d| (q[d] * f64::from(keys[t * dim + d])).abs()).sum::<f64>();
            let reach = range.clone().map(size).fold(0.0f64, f64::max) / (dim as f64).sqrt();
            // Where there are tensor cores, all but f32 is multiplied on them; the plain form is far within that bound.
            let bound = match (exact_kernel, kv) {
                (true, _) => step_bound(reach),
                (false, KvType::F32) => 3e-5,
                (false, _) => tensor_bound(if self.exact { 0.0 } else { reach }, range.len()),
            };
            close(&y[h * dim..][..dim], &want, |_| bound * largest)
                .map_err(|e| Failure::Wrong(format!("column {c} head {h}: {e}")))?;
        }
        Ok(())
    }
}
