//! Every kernel family over the shapes of real models, variants side by side.
//!
//! `cargo bench --bench kernels`, `cargo bench --bench kernels -- gemv/q4_0`. On a GPU the figure is device time between
//! events, buffers rotated so that the L2 cache is cold; on the software driver it is counted lane instructions and bytes.

mod harness;

use criterion::Criterion;
use gpu_kernels::cases::{Rng, Tensor};
use gpu_kernels::format::Format;
use gpu_kernels::gemv::Gemv;
use gpu_kernels::layer::{FUSED, Layer, NEOX, QK_NORM};
use gpu_kernels::sampling::sample::{Sample, Sampling};
use gpu_kernels::state::Column;
use gpu_kernels::{argmax, attention, elementwise, gemv, norm, rope};
use half::f16;
use harness::{Bench, Meter, Noise, Work};
use warpsmith_device::U32x4;
use warpsmith_host::Buffer;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Rows and columns of a layer's products: Qwen3 0.6B, and on a GPU also 8B and its LM head.
const SHAPES_SMALL: [(&str, usize, usize); 3] =
    [("qkv-0.6b", 4096, 1024), ("gate-0.6b", 3072, 1024), ("down-0.6b", 1024, 3072)];
const SHAPES_LARGE: [(&str, usize, usize); 4] =
    [("qkv-8b", 6144, 4096), ("gate-8b", 12288, 4096), ("down-8b", 4096, 12288), ("head-8b", 151_936, 4096)];

/// On a GPU, enough copies of the weights that a round of them does not fit the L2 cache (at most 60 MB on an H200).
const COLD_BYTES: usize = 240 << 20;

struct Weights {
    records: Vec<Buffer<U32x4>>,
    floor_bytes: u64,
}

impl Weights {
    /// Random rows, of which there are not more than 64 different ones: making them takes longer than running them.
    fn new(bench: &Bench, format: Format, rows: usize, cols: usize) -> Result<Weights, Box<dyn std::error::Error>> {
        let some = rows.min(64);
        let mut rng = Rng(rows as u64 * 31 + cols as u64);
        let records = format.repack(&Tensor::random(&mut rng, format, some, cols).bytes, some, cols)?;
        let all: Vec<U32x4> = records.iter().copied().cycle().take(format.tensor_vectors(rows, cols)?).collect();
        let copies = if bench.counts() { 1 } else { COLD_BYTES.div_ceil(16 * all.len()).clamp(1, 64) };
        Ok(Weights {
            records: (0..copies).map(|_| bench.stream.upload(&all)).collect::<Result<_, _>>()?,
            floor_bytes: (format.tensor_bytes(rows, cols)? + 4 * (rows + cols)) as u64,
        })
    }
}

fn gemv_family(bench: &Bench, c: &mut Criterion<Meter>) -> Outcome {
    let large: &[_] = if bench.counts() { &[] } else { &SHAPES_LARGE };
    for format in Format::ALL {
        for &(shape, rows, cols) in SHAPES_SMALL.iter().chain(large) {
            let group = format!("gemv/{}/{shape}", format.name().to_lowercase());
            let Weights { records, floor_bytes } = Weights::new(bench, format, rows, cols)?;
            let x = bench.stream.upload(&Noise(7).floats(8 * cols))?;
            let mut y = bench.stream.zeros::<f32>(8 * rows)?;
            let (n, m) = (rows as u32, cols as u32);
            let work = |columns: u64| Work {
                elements: columns * (rows * cols) as u64,
                floor_bytes: floor_bytes + (columns - 1) * 4 * (rows + cols) as u64,
            };
            let weights = |i: usize| &*records[i % records.len()];
            match format {
                Format::F32 => bench.run(c, &group, "v1", work(1), |stream, i| {
                    stream.launch(gemv::first::GemvF32V1 { weights: weights(i), x: &x, y: &mut y, rows: n, cols: m })
                }),
                Format::Q8_0 => bench.run(c, &group, "v1", work(1), |stream, i| {
                    stream.launch(gemv::first::GemvQ80V1 { weights: weights(i), x: &x, y: &mut y, rows: n, cols: m })
                }),
                _ => {}
            }
            bench.run(c, &group, "v2", work(1), |mut stream, i| {
                Gemv::new(format, weights(i), n, m, &x, &mut y).launch(&mut stream)
            });
            bench.run(c, &group, "8 columns", work(8), |mut stream, i| {
                Gemv::new(format, weights(i), n, m, &x, &mut y).columns(8, m, n).launch(&mut stream)
            });
        }
    }
    Ok(())
}

fn norm_family(bench: &Bench, c: &mut Criterion<Meter>) -> Outcome {
    for (rows, cols) in [(1u32, 1024u32), (1, 4096), (32, 128)] {
        let n = (rows * cols) as usize;
        let x = bench.stream.upload(&Noise(1).floats(n))?;
        let w = bench.stream.upload(&Noise(2).floats(cols as usize))?;
        let mut y = bench.stream.zeros::<f32>(n)?;
        let work = Work { elements: n as u64, floor_bytes: (8 * n + 4 * cols as usize) as u64 };
        let group = format!("norm/{rows}x{cols}");
        let eps = 1e-6;
        bench.run(c, &group, "v1", work, |s, _| s.launch(norm::RmsNormV1 { x: &x, w: &w, y: &mut y, cols, eps }));
        bench.run(c, &group, "v2", work, |s, _| s.launch(norm::RmsNorm { x: &x, w: &w, y: &mut y, cols, eps }));
    }
    Ok(())
}

/// Heads of Qwen3 8B; the cache holds `context` positions and the token is the last of them.
fn attention_family(bench: &Bench, c: &mut Criterion<Meter>) -> Outcome {
    let (q_heads, kv_heads, head_dim) = (32u32, 8u32, 128u32);
    let contexts: &[u32] = if bench.counts() { &[16, 128, 1024] } else { &[128, 1024, 4096, 16384] };
    for &capacity in contexts {
        let cache = (kv_heads * capacity * head_dim) as usize;
        let half = |seed| -> Vec<f16> { Noise(seed).floats(cache).into_iter().map(f16::from_f32).collect() };
        let k_cache = &bench.stream.upload(&half(1))?;
        let v_cache = &bench.stream.upload(&half(2))?;
        let q = &bench.stream.upload(&Noise(3).floats((q_heads * head_dim) as usize))?;
        let columns = &bench.stream.upload(&[Column::at(0, capacity - 1)])?;
        let mut scores = bench.stream.zeros::<f32>((q_heads * capacity) as usize)?;
        let mut y = bench.stream.zeros::<f32>((q_heads * head_dim) as usize)?;
        let work =
            Work { elements: 2 * cache as u64, floor_bytes: (4 * cache + 8 * (q_heads * head_dim) as usize) as u64 };
        let group = format!("attention/32q8kv-d128-ctx{capacity}");
        bench.run(c, &group, "v1", work, |s, _| {
            let scores = &mut scores;
            s.launch(attention::AttnScores { q, k_cache, scores, columns, q_heads, kv_heads, head_dim, capacity })?;
            s.launch(attention::AttnSoftmax { scores, columns, q_heads, capacity })?;
            let y = &mut y;
            s.launch(attention::AttnWeightedSum { scores, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })
        });
        // v3 also norms, turns and stores; keys and values are the same.
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
        let here = &bench.stream.upload(&[place])?;
        let tables = rope::rope_tables(capacity as usize, head_dim as usize, 1e6, None, 1.0);
        let (cos, sin) = (&bench.stream.upload(&tables.cos)?, &bench.stream.upload(&tables.sin)?);
        let weight = &bench.stream.upload(&Noise(4).floats(head_dim as usize))?;
        let qkv = &bench.stream.upload(&Noise(5).floats(((q_heads + 2 * kv_heads) * head_dim) as usize))?;
        let mut partials = bench.stream.zeros::<f32>(attention::partials_len(1, &layer) as usize)?;
        let mut counters = bench.stream.zeros::<u32>(kv_heads as usize)?;
        bench.run(c, &group, "v3", work, |s, _| {
            s.launch(attention::AttnStepF16 {
                qkv,
                q_weight: weight,
                k_weight: weight,
                cos,
                sin,
                columns: here,
                partials: &mut partials,
                counters: &mut counters,
                y: &mut y,
                stride: qkv.len() as u32,
                y_stride: q_heads * head_dim,
                layer,
            })
        });
        bench.run(c, &group, "v2", work, |s, _| {
            let y = &mut y;
            s.launch(attention::AttnDecode { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })
        });
    }
    Ok(())
}

/// A prompt of Qwen3 8B's heads, from the first token on.
fn prefill_family(bench: &Bench, c: &mut Criterion<Meter>) -> Outcome {
    let (q_heads, kv_heads, head_dim) = (32u32, 8u32, 128u32);
    let lengths: &[u32] = if bench.counts() { &[64, 128] } else { &[512, 4096, 16384] };
    for &count in lengths {
        let cache = (kv_heads * count * head_dim) as usize;
        let half = |seed| -> Vec<f16> { Noise(seed).floats(cache).into_iter().map(f16::from_f32).collect() };
        let (k, v) = (bench.stream.upload(&half(1))?, bench.stream.upload(&half(2))?);
        let place = |position| Column { capacity: count, k: k.address(), v: v.address(), ..Column::at(0, position) };
        let columns = &bench.stream.upload(&(0..count).map(place).collect::<Vec<_>>())?;
        let row = q_heads * head_dim;
        let qkv = &bench.stream.upload(&Noise(3).floats((count * row) as usize))?;
        let mut y = bench.stream.zeros::<f32>((count * row) as usize)?;
        let layer = Layer { q_heads, kv_heads, head_dim, context: count, ..Layer::default() };
        // Two products over the lower triangle.
        let pairs = u64::from(count) * u64::from(count + 1) / 2 * u64::from(row);
        let work = Work { elements: 2 * pairs, floor_bytes: (4 * cache) as u64 + 8 * u64::from(count * row) };
        let group = format!("prefill/32q8kv-d128-{count}");
        bench.run(c, &group, "flash", work, |s, _| {
            let (stride, y_stride) = (row, row);
            s.launch(attention::AttnPrefillF16 { qkv, columns, y: &mut y, count, stride, y_stride, layer })
        });
    }
    Ok(())
}

fn small_families(bench: &Bench, c: &mut Criterion<Meter>) -> Outcome {
    let stream = &bench.stream;
    let (q_heads, k_heads, head_dim, context) = (32u32, 8u32, 128u32, 4096u32);
    let n = ((q_heads + k_heads) * head_dim) as usize;
    let mut qk = stream.upload(&Noise(1).floats(n))?;
    let (q_weight, k_weight) = (&stream.upload(&Noise(2).floats(128))?, &stream.upload(&Noise(3).floats(128))?);
    let tables = rope::rope_tables(context as usize, head_dim as usize, 1e6, None, 1.0);
    let (cos, sin) = (&stream.upload(&tables.cos)?, &stream.upload(&tables.sin)?);
    let columns = &stream.upload(&[Column::at(0, 1000)])?;
    let work = Work { elements: n as u64, floor_bytes: 8 * n as u64 };
    bench.run(c, "rope/32q8k-d128", "qk_norm_rope", work, |s, _| {
        let (qk, eps) = (&mut qk, 1e-6);
        let sizes = (head_dim, 1);
        s.launch(rope::QkNormRope {
            qk,
            q_weight,
            k_weight,
            cos,
            sin,
            columns,
            stride: n as u32,
            q_heads,
            k_heads,
            head_dim,
            n_rot: sizes.0,
            neox: sizes.1,
            context,
            eps,
        })
    });

    for n in [3072usize, 12288] {
        let gate = &stream.upload(&Noise(4).floats(n))?;
        let up = &stream.upload(&Noise(5).floats(n))?;
        let mut y = stream.zeros::<f32>(n)?;
        let work = Work { elements: n as u64, floor_bytes: 12 * n as u64 };
        bench.run(c, &format!("elementwise/{n}"), "swiglu", work, |s, _| {
            s.launch(elementwise::Swiglu { gate, up, y: &mut y, n: n as u32 })
        });
        bench.run(c, &format!("elementwise/{n}"), "residual_add", work, |s, _| {
            s.launch(elementwise::ResidualAdd { x: gate, residual: up, y: &mut y, n: n as u32 })
        });
    }

    let n = 151_936usize;
    let x = &stream.upload(&Noise(6).floats(n))?;
    let mut y = stream.zeros::<u32>(1)?;
    let work = Work { elements: n as u64, floor_bytes: 4 * n as u64 };
    bench.run(c, &format!("argmax/{n}"), "v1", work, |s, _| {
        s.launch(argmax::Argmax { x, y: &mut y, n: n as u32, stride: n as u32 })
    });
    let setting = Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, seed_low: 1, ..Sampling::GREEDY };
    let (params, columns) = (&stream.upload(&[setting])?, &stream.upload(&[Column::at(0, 7)])?);
    bench.run(c, &format!("sample/{n}"), "top-k, top-p", work, |s, _| {
        s.launch(Sample { logits: x, params, columns, y: &mut y, n: n as u32, stride: n as u32 })
    });
    Ok(())
}

fn main() -> Outcome {
    let bench = Bench::open()?;
    let mut criterion = bench.criterion();
    gemv_family(&bench, &mut criterion)?;
    norm_family(&bench, &mut criterion)?;
    prefill_family(&bench, &mut criterion)?;
    attention_family(&bench, &mut criterion)?;
    small_families(&bench, &mut criterion)?;
    bench.table();
    criterion.final_summary();
    Ok(())
}
