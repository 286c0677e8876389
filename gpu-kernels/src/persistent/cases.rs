//! The cases of a layer in one launch: what it writes is what five launches write, bit for bit, and those have cases of their
//! own.

use super::{Matrix, PersistentLayer, Sizes, decoder};
use crate::attention::cases::{StepArgs, step_kernel};
use crate::attention::partials_len;
use crate::cases::{
    Bench, Failure, Listed, Measured, NamedSizes, Operation, Outcome, Rng, Shape, Tensor, UnknownSize, refused, same,
};
use crate::format::{Format, Layout};
use crate::gemv::{Gemv, cases::gemv, parts};
use crate::kv::KvType;
use crate::layer::{FUSED, Layer, NEOX, QK_NORM};
use crate::rope::rope_tables;
use crate::state::Column;
use half::f16;
use warpsmith_device::{DeviceSlice, Kernel, U32x4};

/// A layer in one launch, by the format of its matrices.
pub struct Layers;

impl Operation for Layers {
    type Variant = Format;

    fn kernels() -> Vec<Listed> {
        let unused = Measured::Not("a layer in one launch, which is off until a GPU has timed it");
        let why = "a layer in one launch holds the registers of its largest part; off until a GPU has timed it";
        let listed = Listed::new::<super::LayerF16<'_>>(Measured::By("step"), unused);
        vec![Listed { local_memory: Some((976, why)), ..listed }]
    }

    fn variants() -> Vec<Format> {
        formats()
    }

    /// The kernel, and those of the launches that it is compared with.
    fn launches(format: Format) -> Vec<&'static str> {
        vec![super::LayerF16::META.name, gemv(format.layout()).name, step_kernel(KvType::F16).name]
    }

    fn sizes(_: Format) -> NamedSizes {
        SIZES
    }

    fn shapes(format: Format) -> Vec<Vec<usize>> {
        shapes(format)
    }

    fn run<B: Bench>(format: Format, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        run(format, shape, bench, rng)
    }
}

/// One for each decoder of the kernel; where formats share one, those of the shortest blocks and of the longest.
fn formats() -> Vec<Format> {
    let taken = |l: Layout| Format::ALL.into_iter().filter(move |f| f.layout() == l && decoder(*f).is_some());
    let mut all = Vec::new();
    for layout in Layout::ALL {
        all.extend(taken(layout).min_by_key(|f| f.block_units()));
        all.extend(taken(layout).max_by_key(|f| f.block_units()).filter(|f| all.last() != Some(f)));
    }
    all
}

/// The sizes of a layer; `blocks` are those of the launch.
const SIZES: NamedSizes = &[
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
fn shapes(format: Format) -> Vec<Vec<usize>> {
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
    let layer = PersistentLayer {
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
    Ok(unsafe { layer.launch(bench) }?)
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| v.to_bits()).collect()
}

/// The sizes of a case.
fn sizes(shape: &Shape<'_>) -> Result<(Layer, Sizes), UnknownSize> {
    let size = |name| shape.size(name).map(|n| n as u32);
    let flag = |name, flag: u32| size(name).map(|n| if n != 0 { flag } else { 0 });
    let layer = Layer {
        index: 0,
        q_heads: size("q_heads")?,
        kv_heads: size("kv_heads")?,
        head_dim: size("head_dim")?,
        n_rot: size("n_rot")?,
        context: size("capacity")? + 3,
        window: size("window")?,
        flags: flag("neox", NEOX)? | flag("norm", QK_NORM)? | FUSED,
        eps: 1e-6,
    };
    let (hidden, feed_forward) = (size("hidden")?, size("feed_forward")?);
    Ok((layer, Sizes { hidden, feed_forward, parts: 3, blocks: size("blocks")?, ..Sizes::default() }))
}

impl<B: Bench> Weights<B> {
    fn new(
        bench: &mut B,
        rng: &mut Rng,
        format: Format,
        (layer, sizes): (&Layer, &Sizes),
        bias: bool,
    ) -> Result<Weights<B>, Failure> {
        let matrix = |bench: &mut B, rng: &mut Rng, rows: u32, cols: u32| {
            let (rows, cols) = (rows as usize, cols as usize);
            let t = Tensor::random(rng, format, rows, cols);
            Ok::<_, Failure>(bench.upload(&format.repack(&t.bytes, rows, cols).map_err(refused)?)?)
        };
        let (hidden, inner) = (sizes.hidden, sizes.feed_forward);
        let (q, dim) = (layer.q_heads * layer.head_dim, layer.head_dim as usize);
        let tables = rope_tables(layer.context as usize, layer.n_rot as usize, 1e4, None, 1.0);
        Ok(Weights {
            qkv: matrix(bench, rng, layer.qkv(), hidden)?,
            output: matrix(bench, rng, hidden, q)?,
            gate_up: matrix(bench, rng, 2 * inner, hidden)?,
            down: matrix(bench, rng, hidden, inner)?,
            bias: if bias { Some(bench.upload(&rng.floats(layer.qkv() as usize))?) } else { None },
            norms: [bench.upload(&rng.floats(hidden as usize))?, bench.upload(&rng.floats(hidden as usize))?],
            heads: [bench.upload(&rng.floats(dim))?, bench.upload(&rng.floats(dim))?],
            cos: bench.upload(&tables.cos)?,
            sin: bench.upload(&tables.sin)?,
        })
    }
}

/// What the first layer starts from.
struct Start {
    x: Vec<f32>,
    scaled: Vec<f32>,
    /// Parts of the sum of squares of `x`, and room for those that are written.
    sums: Vec<f32>,
    /// Keys, and values, of all positions.
    cache: Vec<f16>,
    position: u32,
    capacity: u32,
}

impl Start {
    fn new(rng: &mut Rng, shape: &Shape<'_>, (layer, sizes): (&Layer, &Sizes)) -> Result<Start, UnknownSize> {
        let hidden = sizes.hidden as usize;
        let (x, scaled, squares) = (rng.floats(hidden), rng.floats(hidden), rng.floats(3));
        let mut sums: Vec<f32> = squares.iter().map(|v| v.abs() * hidden as f32).collect();
        let parts_of = |cols: u32| parts(sizes.hidden, cols, false);
        let most = parts_of(layer.q_heads * layer.head_dim).max(parts_of(sizes.feed_forward)).max(3);
        sums.resize(most as usize, 0.0);
        let [capacity, position] = shape.sizes(["capacity", "position"])?;
        let rows = 2 * layer.kv_heads as usize * capacity;
        let cache = rng.floats(rows * layer.head_dim as usize).iter().map(|v| f16::from_f32(*v)).collect();
        Ok(Start { x, scaled, sums, cache, position: position as u32, capacity: capacity as u32 })
    }

    /// Buffers of their own with it.
    fn upload<B: Bench>(&self, bench: &mut B, (layer, sizes): (&Layer, &Sizes)) -> Result<State<B>, Failure> {
        let (keys, values) = (bench.upload(&self.cache)?, bench.upload(&self.cache)?);
        let place = Column {
            token: 1,
            position: self.position,
            capacity: self.capacity,
            k: keys.address(),
            v: values.address(),
            ..Column::default()
        };
        Ok(State {
            x: bench.upload(&self.x)?,
            y: bench.output(sizes.hidden as usize)?,
            scaled: bench.upload(&self.scaled)?,
            sums: bench.upload(&self.sums)?,
            qkv: bench.output(layer.qkv() as usize)?,
            attended: bench.output((layer.q_heads * layer.head_dim) as usize)?,
            inner: bench.output(sizes.feed_forward as usize)?,
            partials: bench.output(partials_len(1, layer) as usize)?,
            counters: bench.upload(&vec![0u32; layer.kv_heads as usize])?,
            columns: bench.upload(&[place])?,
            keys,
            values,
        })
    }
}

/// Every bit that the launches wrote is the same.
fn compare<B: Bench>(bench: &mut B, round: usize, want: &State<B>, got: &State<B>) -> Outcome {
    let buffers = [
        ("qkv", &want.qkv, &got.qkv),
        ("attended", &want.attended, &got.attended),
        ("y", &want.y, &got.y),
        ("inner", &want.inner, &got.inner),
        ("x", &want.x, &got.x),
        ("scaled", &want.scaled, &got.scaled),
        ("sums", &want.sums, &got.sums),
    ];
    for (name, want, got) in buffers {
        let (want, got) = (bench.read(want)?, bench.read(got)?);
        same(&bits(&got), &bits(&want)).map_err(|e| Failure::Wrong(format!("layer {round}, {name}: {e}")))?;
    }
    for (name, want, got) in [("keys", &want.keys, &got.keys), ("values", &want.values, &got.values)] {
        let bits = |v: Vec<f16>| v.into_iter().map(f16::to_bits).collect::<Vec<_>>();
        let (want, got) = (bits(bench.read(want)?), bits(bench.read(got)?));
        same(&got, &want).map_err(|e| Failure::Wrong(format!("layer {round}, {name}: {e}")))?;
    }
    Ok(())
}

/// Two layers one after the other: the second starts from what the first left in its buffers, the barrier's word among them.
fn run<B: Bench>(format: Format, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let (layer, sizes) = sizes(shape)?;
    let weights = Weights::new(bench, rng, format, (&layer, &sizes), shape.size("bias")? != 0)?;
    let start = Start::new(rng, shape, (&layer, &sizes))?;
    let mut a = start.upload(bench, (&layer, &sizes))?;
    let mut b = start.upload(bench, (&layer, &sizes))?;
    let mut barrier = bench.upload(&[0u32])?;
    let after = parts(sizes.hidden, sizes.feed_forward, false);
    for (round, parts) in [3, after].into_iter().enumerate() {
        let both = (layer, Sizes { parts, ..sizes });
        five(bench, format, both, &weights, &mut a)?;
        one(bench, format, both, &weights, (&mut b, &mut barrier))?;
        compare(bench, round, &a, &b)?;
    }
    Ok(())
}
