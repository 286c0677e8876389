//! Attention over prompts, with the heads of Qwen3 8B.

use std::rc::Rc;

use gpu_kernels::attention::prefill::{PrefillArguments, QueryTile};
use gpu_kernels::attention::prompt::PromptArguments;
use gpu_kernels::cases;
use gpu_kernels::kv::KvType;
use gpu_kernels::layer::Layer;
use gpu_kernels::state::Column;
use half::f16;
use warpsmith_bench::{Bench, Failed, Group, Noise, Output, Run, Work, numbered};
use warpsmith_device::DeviceSlice;

use super::attention::{HEAD_DIM, KV_HEADS, Q_HEADS, halves};

fn codes(seed: u64, n: usize) -> Vec<i8> {
    Noise(seed).floats(n).into_iter().map(|v| (127.0 * v) as i8).collect()
}

/// A number as a cache has it.
trait Cached: Copy {
    fn wide(self) -> f32;
}

impl Cached for f16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }
}

impl Cached for f32 {
    fn wide(self) -> f32 {
        self
    }
}

impl Cached for i8 {
    fn wide(self) -> f32 {
        f32::from(self) * SCALE
    }
}

/// Of every head of every position of a cache of codes.
const SCALE: f32 = 1.0 / 127.0;
/// On tensor cores queries and weights are rounded to f16: of values up to 1, and scores of queries and keys up to 1 that a
/// root of 128 divides, by at most 2^-11 * 128 / 11.3 and as much again.
const BOUND: f64 = 1.2e-2;
/// Without that rounding.
const EXACT: f64 = 3e-5;

/// Which columns are compared: to compute all of a long prompt would take longer than everything else.
fn compared(count: u32) -> impl Iterator<Item = u32> + Clone {
    let step = (count / 16).max(1);
    (0..count).step_by(step as usize).chain([count - 1])
}

/// Columns by the definition, over caches of that type.
fn reference<T: Cached>(x: &[f32], keys: &[T], values: &[T], count: u32) -> Vec<f64> {
    let (dim, count) = (HEAD_DIM as usize, count as usize);
    let wide = |cache: &[T]| -> Vec<f32> { cache.iter().map(|v| v.wide()).collect() };
    let (keys, values) = (wide(keys), wide(values));
    let of = |(c, h): (usize, usize)| {
        let first = h / (Q_HEADS / KV_HEADS) as usize * count * dim;
        let q: Vec<f64> = x[(c * Q_HEADS as usize + h) * dim..][..dim].iter().map(|v| f64::from(*v)).collect();
        cases::attend(&q, &keys[first..][..count * dim], &values[first..][..count * dim], 0..c + 1, None)
    };
    let all = compared(count as u32).flat_map(|c| (0..Q_HEADS as usize).map(move |h| (c as usize, h)));
    all.flat_map(of).collect()
}

/// A prompt of `count` tokens over caches of f16, int8 and f32.
fn runs(bench: &Bench, count: u32) -> Result<Vec<Run>, Failed> {
    let row = Q_HEADS * HEAD_DIM;
    let cache = (KV_HEADS * count * HEAD_DIM) as usize;
    let layer = Layer { q_heads: Q_HEADS, kv_heads: KV_HEADS, head_dim: HEAD_DIM, context: count, ..Layer::default() };
    let (stride, y_stride) = (row, row);
    let stream = &bench.stream;
    let x = Rc::new(Noise(3).floats((count * row) as usize));
    let qkv = Rc::new(stream.upload(&x)?);
    macro_rules! run {
        ($kv:ident, $values:expr, $bound:expr, $attend:ident) => {{
            let (keys, values) = ($values(1, cache), $values(2, cache));
            let (k, v) = (stream.upload(&keys)?, stream.upload(&values)?);
            let scales = stream.upload(&vec![SCALE; (KV_HEADS * count) as usize])?;
            let place = |position| {
                let column = Column::at(0, position).with_caches(count, k.address(), v.address());
                column.with_scales(scales.address(), scales.address())
            };
            let columns = stream.upload(&(0..count).map(place).collect::<Vec<_>>())?;
            let tiles = QueryTile::cut(0, count, count - 1, HEAD_DIM).collect::<Vec<_>>();
            let tiles = stream.upload(&tiles)?;
            let (y, x) = (stream.zeros::<f32>((count * row) as usize)?, x.clone());
            Run::launches(
                // The caches are known by address alone, and have to live.
                (qkv.clone(), columns, tiles, y, (k, v, scales)),
                move |(qkv, columns, tiles, y, _), on, _| {
                    let strides = (stride, y_stride);
                    let attend = PrefillArguments {
                        qkv: &***qkv,
                        columns,
                        tiles,
                        sinks: DeviceSlice::empty(),
                        y,
                        strides,
                        layer,
                    };
                    // SAFETY: the caches live as long as this closure, and with it the graph; nobody writes them.
                    unsafe { $attend::from(attend).launch(on, KvType::$kv, false) }
                },
                move |(_, _, _, y, _), stream| {
                    let all = stream.read(y)?;
                    let some = compared(count).flat_map(|c| &all[(c * row) as usize..][..row as usize]).copied();
                    let want = reference(&x, &keys, &values, count);
                    Ok(vec![Output::near("y", &some.collect::<Vec<f32>>(), &want, |_| $bound)])
                },
            )
        }};
    }
    Ok(vec![
        run!(F16, halves, BOUND, PrefillArguments),
        run!(Int8, codes, BOUND, PrefillArguments),
        run!(F32, |seed, n| Noise(seed).floats(n), EXACT, PrefillArguments),
        run!(F16, halves, EXACT, PromptArguments),
        run!(Int8, codes, EXACT, PromptArguments),
    ])
}

/// A prompt from its first token on.
pub fn prompts(bench: &Bench) {
    let lengths: &[u32] = if bench.counts() { &[64, 128] } else { &[512, 4096, 16384] };
    for &count in lengths {
        let (heads, row) = (u64::from(KV_HEADS * count), u64::from(Q_HEADS * HEAD_DIM));
        // Two products over the lower triangle.
        let pairs = u64::from(count) * u64::from(count + 1) / 2 * row;
        let dim = u64::from(HEAD_DIM);
        let id = format!("prefill/32q8kv-d128-{count}");
        let variant = |(name, bytes): (&str, u64)| {
            (name.to_owned(), Work { elements: 2 * pairs, floor_bytes: 2 * heads * bytes + 8 * u64::from(count) * row })
        };
        let group = Group {
            key: id.clone(),
            id,
            variants: [
                ("flash", 2 * dim),
                ("flash-int8", dim + 4),
                ("f32", 4 * dim),
                ("exact", 2 * dim),
                ("exact-int8", dim + 4),
            ]
            .map(variant)
            .to_vec(),
            rows: None,
            setup: Box::new(move |bench, _, wanted| Ok(numbered(runs(bench, count)?, wanted))),
        };
        bench.measure(&group);
    }
}
