//! Attention with the heads of Qwen3 8B, by context.

use std::rc::Rc;

use gpu_kernels::gemv::quant_format::NONE;
use gpu_kernels::layer::{FUSED, Layer, NEOX, QK_NORM};
use gpu_kernels::state::Column;
use gpu_kernels::{attention, cases, rope};
use half::f16;
use warpsmith_bench::{Bench, Failed, Group, Noise, Output, Run, Work, numbered};
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_host::Stream;

pub const Q_HEADS: u32 = 32;
pub const KV_HEADS: u32 = 8;
pub const HEAD_DIM: u32 = 128;

pub fn halves(seed: u64, n: usize) -> Vec<f16> {
    Noise(seed).floats(n).into_iter().map(f16::from_f32).collect()
}

/// Of attention over values of at most 1, as the kernels' own tests have it.
fn compared(got: &[f32], want: &[f64]) -> Vec<Output> {
    vec![Output::near("y", got, want, |_| 3e-5)]
}

/// The token is the last of `capacity` positions.
fn runs(bench: &Bench, capacity: u32) -> Result<Vec<Run>, Failed> {
    let (q_heads, kv_heads, head_dim) = (Q_HEADS, KV_HEADS, HEAD_DIM);
    let cache = (kv_heads * capacity * head_dim) as usize;
    let row = (q_heads * head_dim) as usize;
    let stream = &bench.stream;
    let (keys, values) = (halves(1, cache), halves(2, cache));
    let (k_cache, v_cache) = (Rc::new(stream.upload(&keys)?), Rc::new(stream.upload(&values)?));
    let query = Noise(3).floats(row);
    let q = Rc::new(stream.upload(&query)?);
    let columns = Rc::new(stream.upload(&[Column::at(0, capacity - 1)])?);
    let widen = |v: &[f16]| -> Vec<f32> { v.iter().map(|v| v.to_f32()).collect() };
    let heads = attention::Heads { q_heads, kv_heads, head_dim, capacity };
    let wide = Rc::new((query, widen(&keys), widen(&values)));
    let reference = move || attention::reference(&wide.0, &wide.1, &wide.2, capacity as usize, heads);

    let buffers = (q.clone(), k_cache.clone(), v_cache.clone(), columns.clone());
    let scores = stream.zeros::<f32>((q_heads * capacity) as usize)?;
    let want = reference.clone();
    let three = Run::launches(
        (buffers, scores, stream.zeros::<f32>(row)?),
        move |((q, k_cache, v_cache, columns), scores, y), on, _| {
            let (q, k_cache, v_cache, columns) = (&***q, &***k_cache, &***v_cache, &***columns);
            on.launch(attention::AttnScores { q, k_cache, scores, columns, q_heads, kv_heads, head_dim, capacity })?;
            on.launch(attention::AttnSoftmax { scores, columns, q_heads, capacity })?;
            on.launch(attention::AttnWeightedSum { scores, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })
        },
        move |(_, _, y), stream| Ok(compared(&stream.read(y)?, &want())),
    );

    let buffers = (q, k_cache.clone(), v_cache.clone(), columns);
    let one = Run::launches(
        (buffers, stream.zeros::<f32>(row)?),
        move |((q, k_cache, v_cache, columns), y), on, _| {
            let (q, k_cache, v_cache, columns) = (&***q, &***k_cache, &***v_cache, &***columns);
            on.launch(attention::AttnDecode { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })
        },
        move |(_, y), stream| Ok(compared(&stream.read(y)?, &reference())),
    );
    Ok(vec![three, one, step(stream, capacity, (keys, values))?])
}

/// What a step's attention reads: it also norms, turns and stores.
struct Inputs {
    qkv: Vec<f32>,
    weight: Vec<f32>,
    keys: Vec<f16>,
    values: Vec<f16>,
}

impl Inputs {
    /// By the definition: the column's own key and value take the last place of the caches.
    fn reference(&self, capacity: u32, layer: &Layer) -> Vec<f64> {
        let (dim, kv_heads, last) = (HEAD_DIM as usize, KV_HEADS as usize, capacity as usize - 1);
        let r = rope::Rotation {
            head_dim: dim,
            n_rot: dim,
            neox: true,
            base: BASE,
            factors: None,
            linear: 1.0,
            yarn: None,
        };
        let (q, rest) = self.qkv.split_at((Q_HEADS * HEAD_DIM) as usize);
        let (k, v) = rest.split_at(kv_heads * dim);
        let turned = |x: &[f32]| rope::reference(x, last, Some((&self.weight, layer.eps)), &r);
        let (q, k) = (turned(q), turned(k));
        let mut keys: Vec<f32> = self.keys.iter().map(|v| v.to_f32()).collect();
        let mut values: Vec<f32> = self.values.iter().map(|v| v.to_f32()).collect();
        for g in 0..kv_heads {
            for d in 0..dim {
                let at = (g * capacity as usize + last) * dim + d;
                keys[at] = f16::from_f64(k[g * dim + d]).to_f32();
                values[at] = f16::from_f32(v[g * dim + d]).to_f32();
            }
        }
        let one = |h: usize| {
            let first = h / (Q_HEADS / KV_HEADS) as usize * capacity as usize * dim;
            let of = |cache: &[f32]| cache[first..][..capacity as usize * dim].to_vec();
            cases::attend(&q[h * dim..][..dim], &of(&keys), &of(&values), 0..capacity as usize, None)
        };
        (0..Q_HEADS as usize).flat_map(one).collect()
    }
}

/// Base of the rotation's frequencies.
const BASE: f64 = 1e6;

/// The attention of a decoding step.
fn step(stream: &Stream, capacity: u32, (keys, values): (Vec<f16>, Vec<f16>)) -> Result<Run, Failed> {
    let (q_heads, kv_heads, head_dim) = (Q_HEADS, KV_HEADS, HEAD_DIM);
    let layer = Layer {
        q_heads,
        kv_heads,
        head_dim,
        n_rot: head_dim,
        context: capacity,
        flags: FUSED | NEOX | QK_NORM,
        eps: 1e-6,
        ..Layer::default()
    };
    // It stores its own key and value, so the caches are its own.
    let caches = (stream.upload(&keys)?, stream.upload(&values)?);
    let place = Column::at(0, capacity - 1).with_caches(capacity, caches.0.address(), caches.1.address());
    let here = stream.upload(&[place])?;
    let tables = rope::rope_tables(capacity as usize, head_dim as usize, BASE, None, 1.0);
    let (cos, sin) = (stream.upload(&tables.cos)?, stream.upload(&tables.sin)?);
    let weight = Noise(4).floats(head_dim as usize);
    let qkv = Noise(5).floats(((q_heads + 2 * kv_heads) * head_dim) as usize);
    let partials = stream.zeros::<f32>(attention::partials_len(1, &layer) as usize)?;
    let work = (partials, stream.zeros::<u32>(kv_heads as usize)?, stream.zeros::<f32>((q_heads * head_dim) as usize)?);
    let given = (stream.upload(&qkv)?, stream.upload(&weight)?, cos, sin, here);
    let inputs = Inputs { qkv, weight, keys, values };
    Ok(Run::launches(
        // The caches are known by address alone, and have to live.
        (given, work, caches),
        move |((qkv, weight, cos, sin, here), (partials, counters, y), _), on, _| {
            let attend = attention::AttnStepF16 {
                stride: qkv.len() as u32,
                qkv,
                q_weight: weight,
                k_weight: weight,
                cos,
                sin,
                sinks: DeviceSlice::empty(),
                columns: here,
                partials,
                counters,
                y,
                quantized: DeviceSlice::empty_mut(),
                group_counters: DeviceSlice::empty_mut(),
                y_stride: q_heads * head_dim,
                quant_format: NONE,
                layer,
            };
            // SAFETY: the caches live as long as this closure, which whoever captures it keeps as long as the graph; they are its alone.
            unsafe { on.launch_unchecked(attend) }
        },
        move |(_, (_, _, y), _), stream| Ok(compared(&stream.read(y)?, &inputs.reference(capacity, &layer))),
    ))
}

/// Decode attention by context.
pub fn decode(bench: &Bench) {
    let contexts: &[u32] = if bench.counts() { &[128, 1024, 4096] } else { &[128, 1024, 4096, 16384, 32768] };
    for &capacity in contexts {
        let cache = u64::from(KV_HEADS * capacity * HEAD_DIM);
        let id = format!("attention/32q8kv-d128-ctx{capacity}");
        let group = Group {
            key: id.clone(),
            id,
            variants: ["v1", "v2", "v3"]
                .map(|v| {
                    (
                        v.to_owned(),
                        Work { elements: 2 * cache, floor_bytes: 4 * cache + 8 * u64::from(Q_HEADS * HEAD_DIM) },
                    )
                })
                .to_vec(),
            rows: None,
            setup: Box::new(move |bench, _, wanted| Ok(numbered(runs(bench, capacity)?, wanted))),
        };
        bench.measure(&group);
    }
}
