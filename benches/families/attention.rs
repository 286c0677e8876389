//! Attention with the heads of Qwen3 8B, by context.

use std::rc::Rc;

use criterion::Criterion;
use gpu_kernels::gemv::coding::NONE;
use gpu_kernels::layer::{FUSED, Layer, NEOX, QK_NORM};
use gpu_kernels::state::Column;
use gpu_kernels::{attention, rope};
use half::f16;
use warpsmith_device::{DeviceSlice, Launcher};

use crate::harness::meter::Meter;
use crate::harness::{Bench, Failed, Group, Noise, Run, Work};

const Q_HEADS: u32 = 32;
const KV_HEADS: u32 = 8;
const HEAD_DIM: u32 = 128;

fn halves(seed: u64, n: usize) -> Vec<f16> {
    Noise(seed).floats(n).into_iter().map(f16::from_f32).collect()
}

/// The token is the last of `capacity` positions.
fn runs(bench: &Bench, capacity: u32) -> Result<Vec<Run>, Failed> {
    let (q_heads, kv_heads, head_dim) = (Q_HEADS, KV_HEADS, HEAD_DIM);
    let cache = (kv_heads * capacity * head_dim) as usize;
    let row = (q_heads * head_dim) as usize;
    let stream = &bench.stream;
    let k_cache = Rc::new(stream.upload(&halves(1, cache))?);
    let v_cache = Rc::new(stream.upload(&halves(2, cache))?);
    let q = Rc::new(stream.upload(&Noise(3).floats(row))?);
    let columns = Rc::new(stream.upload(&[Column::at(0, capacity - 1)])?);

    let mut scores = stream.zeros::<f32>((q_heads * capacity) as usize)?;
    let mut y = stream.zeros::<f32>(row)?;
    let (q1, k1, v1, c1) = (q.clone(), k_cache.clone(), v_cache.clone(), columns.clone());
    let three = Run::Launches(Box::new(move |on, _| {
        let (q, k_cache, v_cache, columns, scores) = (&*q1, &*k1, &*v1, &*c1, &mut scores);
        on.launch(attention::AttnScores { q, k_cache, scores, columns, q_heads, kv_heads, head_dim, capacity })?;
        on.launch(attention::AttnSoftmax { scores, columns, q_heads, capacity })?;
        let y = &mut y;
        on.launch(attention::AttnWeightedSum { scores, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })
    }));

    let mut y = stream.zeros::<f32>(row)?;
    let (k2, v2) = (k_cache.clone(), v_cache.clone());
    let one = Run::Launches(Box::new(move |on, _| {
        let (q, k_cache, v_cache, columns, y) = (&*q, &*k2, &*v2, &*columns, &mut y);
        on.launch(attention::AttnDecode { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })
    }));

    // A step's attention also norms, turns and stores; keys and values are the same.
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
    let place = Column { capacity, k: k_cache.address(), v: v_cache.address(), ..Column::at(0, capacity - 1) };
    let here = stream.upload(&[place])?;
    let tables = rope::rope_tables(capacity as usize, head_dim as usize, 1e6, None, 1.0);
    let (cos, sin) = (stream.upload(&tables.cos)?, stream.upload(&tables.sin)?);
    let weight = stream.upload(&Noise(4).floats(head_dim as usize))?;
    let qkv = stream.upload(&Noise(5).floats(((q_heads + 2 * kv_heads) * head_dim) as usize))?;
    let mut partials = stream.zeros::<f32>(attention::partials_len(1, &layer) as usize)?;
    let mut counters = stream.zeros::<u32>(kv_heads as usize)?;
    let mut y = stream.zeros::<f32>(row)?;
    let step = Run::Launches(Box::new(move |on, _| {
        // The caches are known by address alone, and have to live.
        let _alive = (&k_cache, &v_cache);
        on.launch(attention::AttnStepF16 {
            qkv: &qkv,
            q_weight: &weight,
            k_weight: &weight,
            cos: &cos,
            sin: &sin,
            columns: &here,
            partials: &mut partials,
            counters: &mut counters,
            y: &mut y,
            coded: DeviceSlice::empty_mut(),
            counted: DeviceSlice::empty_mut(),
            stride: qkv.len() as u32,
            y_stride: q_heads * head_dim,
            codes: NONE,
            layer,
        })
    }));
    Ok(vec![three, one, step])
}

/// Decode attention by context.
pub fn decode(bench: &Bench, c: &mut Criterion<Meter>) {
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
            setup: Box::new(move |bench, _| runs(bench, capacity)),
        };
        bench.group(c, &group);
    }
}

fn codes(seed: u64, n: usize) -> Vec<i8> {
    Noise(seed).floats(n).into_iter().map(|v| (127.0 * v) as i8).collect()
}

/// A prompt of `count` tokens over caches of f16, int8 and f32.
fn prompts(bench: &Bench, count: u32) -> Result<Vec<Run>, Failed> {
    let row = Q_HEADS * HEAD_DIM;
    let cache = (KV_HEADS * count * HEAD_DIM) as usize;
    let layer = Layer { q_heads: Q_HEADS, kv_heads: KV_HEADS, head_dim: HEAD_DIM, context: count, ..Layer::default() };
    let (stride, y_stride) = (row, row);
    let stream = &bench.stream;
    let qkv = Rc::new(stream.upload(&Noise(3).floats((count * row) as usize))?);
    macro_rules! run {
        ($Attend:ident, $values:expr) => {{
            let (k, v) = (stream.upload(&$values(1, cache))?, stream.upload(&$values(2, cache))?);
            let scales = stream.upload(&vec![1.0f32 / 127.0; (KV_HEADS * count) as usize])?;
            let place = |position| Column {
                capacity: count,
                k: k.address(),
                v: v.address(),
                k_scales: scales.address(),
                v_scales: scales.address(),
                ..Column::at(0, position)
            };
            let columns = stream.upload(&(0..count).map(place).collect::<Vec<_>>())?;
            let mut y = stream.zeros::<f32>((count * row) as usize)?;
            let qkv = qkv.clone();
            Run::Launches(Box::new(move |on, _| {
                // The caches are known by address alone, and have to live.
                let _alive = (&k, &v, &scales);
                let (qkv, columns, y) = (&**qkv, &*columns, &mut *y);
                on.launch(attention::$Attend { qkv, columns, y, count, stride, y_stride, layer })
            }))
        }};
    }
    Ok(vec![
        run!(AttnPrefillF16, halves),
        run!(AttnPrefillQ8, codes),
        run!(AttnPrefillF32, |seed, n| Noise(seed).floats(n)),
    ])
}

/// A prompt from its first token on.
pub fn prefill(bench: &Bench, c: &mut Criterion<Meter>) {
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
            variants: [("flash", 2 * dim), ("flash-int8", dim + 4), ("f32", 4 * dim)].map(variant).to_vec(),
            rows: None,
            setup: Box::new(move |bench, _| prompts(bench, count)),
        };
        bench.group(c, &group);
    }
}
