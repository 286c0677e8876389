//! Cases of a layer in one launch: what it writes is what five launches write, bit for bit, and those have cases of their own.

use super::attention::StepArgs;
use super::run::{Outcome, same};
use super::{Bench, Case, Failure, Rng, Tensor};
use crate::attention::partials_len;
use crate::format::{Format, Layout};
use crate::gemv::{Gemv, parts};
use crate::kv::KvType;
use crate::layer::{FUSED, Layer, NEOX, QK_NORM};
use crate::persistent::{Matrix, Sizes, WholeLayer, decoder};
use crate::rope::rope_tables;
use crate::state::Column;
use half::f16;
use warpsmith_device::{DeviceSlice, U32x4};

/// One for each decoder of the kernel; where formats share one, those of the shortest blocks and of the longest.
pub fn formats() -> Vec<Format> {
    let taken = |l: Layout| Format::ALL.into_iter().filter(move |f| f.layout() == l && decoder(*f).is_some());
    let mut all = Vec::new();
    for layout in Layout::ALL {
        all.extend(taken(layout).min_by_key(|f| f.block_units()));
        all.extend(taken(layout).max_by_key(|f| f.block_units()).filter(|f| all.last() != Some(f)));
    }
    all
}

/// The sizes of a layer; `blocks` are those of the launch.
pub const SIZES: &[(&str, usize)] = &[
    ("hidden", 256),
    ("feed_forward", 512),
    ("q_heads", 4),
    ("kv_heads", 2),
    ("head_dim", 64),
    ("n_rot", 64),
    ("neox", 1),
    ("norm", 1),
    ("bias", 0),
    ("window", 0),
    ("capacity", 80),
    ("position", 70),
    ("blocks", 5),
];

/// One block, more than there is work for, and numbers between that no phase's work is a multiple of; lengths of one part and of
/// several; every option of the heads, and a column that has no place left.
pub fn shapes(format: Format) -> Vec<Vec<usize>> {
    let mut all = vec![vec![256, 512, 4, 2, 64, 64, 1, 1, 0, 0, 200, 170, 5]];
    match format {
        // Nothing has to be a multiple of a block.
        Format::F16 => all.extend([
            vec![100, 77, 3, 1, 80, 40, 0, 0, 1, 0, 20, 9, 7],
            vec![33, 5, 1, 1, 32, 32, 1, 0, 1, 3, 9, 5, 1],
        ]),
        Format::Q1_0 => all.extend([
            vec![128, 384, 6, 2, 128, 64, 0, 1, 1, 0, 100, 66, 3],
            vec![256, 128, 8, 1, 64, 64, 1, 0, 1, 40, 300, 200, 64],
            vec![128, 128, 4, 4, 96, 96, 1, 1, 0, 0, 8, 8, 2],
        ]),
        // A row that is staged in two parts.
        Format::Q8_0 => all.push(vec![4160, 32, 1, 1, 64, 64, 1, 1, 0, 0, 5, 0, 11]),
        _ => {}
    }
    all
}

/// What the launches of a layer work in.
struct State<B: Bench> {
    x: B::Buffer<f32>,
    y: B::Buffer<f32>,
    scaled: B::Buffer<f32>,
    sums: B::Buffer<f32>,
    qkv: B::Buffer<f32>,
    attended: B::Buffer<f32>,
    inner: B::Buffer<f32>,
    partials: B::Buffer<f32>,
    counters: B::Buffer<u32>,
    columns: B::Buffer<Column>,
    keys: B::Buffer<f16>,
    values: B::Buffer<f16>,
}

/// What both ways are given.
struct Weights<B: Bench> {
    qkv: B::Buffer<U32x4>,
    output: B::Buffer<U32x4>,
    gate_up: B::Buffer<U32x4>,
    down: B::Buffer<U32x4>,
    bias: Option<B::Buffer<f32>>,
    norms: [B::Buffer<f32>; 2],
    heads: [B::Buffer<f32>; 2],
    cos: B::Buffer<f32>,
    sin: B::Buffer<f32>,
}

/// The five launches, as a decoding step makes them.
fn five<B: Bench>(
    bench: &mut B,
    format: Format,
    (layer, sizes): (Layer, Sizes),
    w: &Weights<B>,
    s: &mut State<B>,
) -> Result<(), Failure> {
    let (h, f, q) = (sizes.hidden, sizes.feed_forward, layer.q_heads * layer.head_dim);
    let eps = layer.eps;
    let mut product = Gemv::new(format, &w.qkv, layer.qkv(), h, &s.scaled, &mut s.qkv).norm(&s.sums, sizes.parts, eps);
    if let Some(bias) = &w.bias {
        product = product.add(bias, 0);
    }
    product.launch(bench)?;
    let (weights, tables) = ((&*w.heads[0], &*w.heads[1]), (&*w.cos, &*w.sin));
    let step = StepArgs { weights, tables, columns: &s.columns, stride: layer.qkv(), layer };
    let work = (&mut *s.partials, &mut *s.counters, &mut *s.attended, None);
    // SAFETY: keys and values are buffers of the state, which nothing else touches meanwhile.
    unsafe { step.attend(bench, KvType::F16, &s.qkv, work, q) }?;
    let product = Gemv::new(format, &w.output, h, q, &s.attended, &mut s.y).add(&s.x, 0);
    product.next(&w.norms[0], &mut s.scaled, &mut s.sums).launch(bench)?;
    let product = Gemv::new(format, &w.gate_up, f, h, &s.scaled, &mut s.inner).swiglu();
    product.norm(&s.sums, parts(h, q, false), eps).launch(bench)?;
    let product = Gemv::new(format, &w.down, h, f, &s.inner, &mut s.x).add(&s.y, 0);
    Ok(product.next(&w.norms[1], &mut s.scaled, &mut s.sums).launch(bench)?)
}

fn one<B: Bench>(
    bench: &mut B,
    format: Format,
    (layer, sizes): (Layer, Sizes),
    w: &Weights<B>,
    (s, barrier): (&mut State<B>, &mut DeviceSlice<u32>),
) -> Result<(), Failure> {
    let whole = WholeLayer {
        matrices: [
            Matrix { format, rows: layer.qkv(), records: &w.qkv },
            Matrix { format, rows: sizes.hidden, records: &w.output },
            Matrix { format, rows: 2 * sizes.feed_forward, records: &w.gate_up },
            Matrix { format, rows: sizes.hidden, records: &w.down },
        ],
        next: w.bias.is_none().then_some(Matrix { format, rows: layer.qkv(), records: &w.qkv }),
        bias: w.bias.as_deref(),
        ffn_norm: &w.norms[0],
        next_norm: &w.norms[1],
        q_weight: &w.heads[0],
        k_weight: &w.heads[1],
        cos: &w.cos,
        sin: &w.sin,
        columns: &s.columns,
        x: &mut s.x,
        y: &mut s.y,
        scaled: &mut s.scaled,
        sums: &mut s.sums,
        qkv: &mut s.qkv,
        attended: &mut s.attended,
        inner: &mut s.inner,
        partials: &mut s.partials,
        counters: &mut s.counters,
        barrier,
        layer,
        sizes,
    };
    // SAFETY: keys and values are buffers of the state, which nothing else touches meanwhile.
    Ok(unsafe { whole.launch(bench) }?)
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| v.to_bits()).collect()
}

/// Two layers one after the other: the second starts from what the first left in its buffers, the barrier's word among them.
pub fn run<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, format: Format) -> Outcome {
    let size = |name| case.size(name);
    let (hidden, inner, q_heads, kv_heads, dim) =
        (size("hidden"), size("feed_forward"), size("q_heads"), size("kv_heads"), size("head_dim"));
    let (q, qkv, capacity) = (q_heads * dim, (q_heads + 2 * kv_heads) * dim, size("capacity"));
    let flag = |name, flag: u32| if size(name) != 0 { flag } else { 0 };
    let layer = Layer {
        index: 0,
        q_heads: q_heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: dim as u32,
        n_rot: size("n_rot") as u32,
        context: capacity as u32 + 3,
        window: size("window") as u32,
        flags: flag("neox", NEOX) | flag("norm", QK_NORM) | FUSED,
        eps: 1e-6,
    };
    let sizes = Sizes {
        hidden: hidden as u32,
        feed_forward: inner as u32,
        parts: 3,
        blocks: size("blocks") as u32,
        ..Sizes::default()
    };
    let matrix = |bench: &mut B, rng: &mut Rng, rows: usize, cols: usize| {
        let t = Tensor::random(rng, format, rows, cols);
        bench.upload(&format.repack(&t.bytes, rows, cols).map_err(|e| e.to_string())?)
    };
    let tables = rope_tables(layer.context as usize, layer.n_rot as usize, 1e4, None, 1.0);
    let weights = Weights {
        qkv: matrix(bench, rng, qkv, hidden)?,
        output: matrix(bench, rng, hidden, q)?,
        gate_up: matrix(bench, rng, 2 * inner, hidden)?,
        down: matrix(bench, rng, hidden, inner)?,
        bias: if size("bias") != 0 { Some(bench.upload(&rng.floats(qkv))?) } else { None },
        norms: [bench.upload(&rng.floats(hidden))?, bench.upload(&rng.floats(hidden))?],
        heads: [bench.upload(&rng.floats(dim))?, bench.upload(&rng.floats(dim))?],
        cos: bench.upload(&tables.cos)?,
        sin: bench.upload(&tables.sin)?,
    };
    let (x, scaled, squares) = (rng.floats(hidden), rng.floats(hidden), rng.floats(3));
    let squares: Vec<f32> = squares.iter().map(|v| v.abs() * hidden as f32).collect();
    let before: Vec<f16> = rng.floats(2 * kv_heads * capacity * dim).iter().map(|v| f16::from_f32(*v)).collect();
    let parts_of = |cols: usize| parts(hidden as u32, cols as u32, false);
    let most = parts_of(q).max(parts_of(inner)).max(3) as usize;
    let state = |bench: &mut B| -> Result<State<B>, String> {
        let mut sums = squares.clone();
        sums.resize(most, 0.0);
        let (keys, values) = (bench.upload(&before)?, bench.upload(&before)?);
        let place = Column {
            token: 1,
            position: size("position") as u32,
            capacity: capacity as u32,
            k: keys.address(),
            v: values.address(),
            ..Column::default()
        };
        Ok(State {
            x: bench.upload(&x)?,
            y: bench.output(hidden)?,
            scaled: bench.upload(&scaled)?,
            sums: bench.upload(&sums)?,
            qkv: bench.output(qkv)?,
            attended: bench.output(q)?,
            inner: bench.output(inner)?,
            partials: bench.output(partials_len(1, &layer) as usize)?,
            counters: bench.upload(&vec![0u32; kv_heads])?,
            columns: bench.upload(&[place])?,
            keys,
            values,
        })
    };
    let (mut a, mut b, mut barrier) = (state(bench)?, state(bench)?, bench.upload(&[0u32])?);
    for (round, parts) in [3, parts_of(inner)].into_iter().enumerate() {
        let both = (layer, Sizes { parts, ..sizes });
        five(bench, format, both, &weights, &mut a)?;
        one(bench, format, both, &weights, (&mut b, &mut barrier))?;
        let buffers = [
            ("qkv", &a.qkv, &b.qkv),
            ("attended", &a.attended, &b.attended),
            ("y", &a.y, &b.y),
            ("inner", &a.inner, &b.inner),
            ("x", &a.x, &b.x),
            ("scaled", &a.scaled, &b.scaled),
            ("sums", &a.sums, &b.sums),
        ];
        for (name, want, got) in buffers {
            let (want, got) = (bench.read(want)?, bench.read(got)?);
            same(&bits(&got), &bits(&want)).map_err(|e| Failure::Wrong(format!("layer {round}, {name}: {e}")))?;
        }
        for (name, want, got) in [("keys", &a.keys, &b.keys), ("values", &a.values, &b.values)] {
            let bits = |v: Vec<f16>| v.into_iter().map(f16::to_bits).collect::<Vec<_>>();
            let (want, got) = (bits(bench.read(want)?), bits(bench.read(got)?));
            same(&got, &want).map_err(|e| Failure::Wrong(format!("layer {round}, {name}: {e}")))?;
        }
    }
    Ok(())
}
