//! The cases of layers in one launch: what they write is what five launches a layer write, bit for bit, and those have cases of
//! their own.

use super::{Instance, LayerParts, Matrix, PersistentLayers, Quantized, Sizes};
use crate::attention::cases::{StepArgs, step_kernel};
use crate::attention::partials_len;
use crate::cases::{
    Bench, Failure, Listed, Measured, NamedSizes, Operation, Outcome, Rng, Shape, Tensor, UnknownSize, refused, same,
};
use crate::format::{Format, Layout};
use crate::gemv::quant_format::groups;
use crate::gemv::{
    Activations, Gemv, OutputQuantization, QuantFormat, Quantize, QuantizedProduct, cases::gemv, choose, parts_with,
};
use crate::kv::KvType;
use crate::layer::{FUSED, Layer, NEOX, QK_NORM};
use crate::rope::rope_tables;
use crate::state::Column;
use half::f16;
use warpsmith_device::{DeviceSlice, U32x4};

/// Layers in one launch, by entry point and the format of their matrices.
pub struct Layers;

impl Operation for Layers {
    type Variant = (Instance, Format);

    fn kernels() -> Vec<Listed> {
        let unused = Measured::Not("layers in one launch, which are off until a GPU has timed them");
        // Those that a decoder takes for the models that ship, unless it is told otherwise.
        let by_default = |i: &Instance| {
            let ships = [Layout::F16, Layout::Q1_0, Layout::Q2_0, Layout::Q4_K, Layout::Q8_0].contains(&i.layout());
            let format = Format::ALL.into_iter().find(|f| f.layout() == i.layout());
            let activations = i.quant_format().map_or(Activations::F32, QuantFormat::activations);
            ships && format.is_some_and(|f| choose(f, Activations::default()) == activations)
        };
        let listed = |i: &Instance| Listed {
            meta: i.meta(),
            benchmark: if by_default(i) {
                Measured::By("step")
            } else {
                Measured::Not(
                    "steps are measured of the models that ship, with the activations that decoders take by default",
                )
            },
            budget: unused,
            local_memory: None,
        };
        Instance::ALL.iter().map(listed).collect()
    }

    fn variants() -> Vec<(Instance, Format)> {
        variants()
    }

    /// The kernel, and those of the launches that it is compared with.
    fn launches((instance, format): (Instance, Format)) -> Vec<&'static str> {
        let product = product(instance, format).map_or_else(|| gemv(format.layout()), QuantizedProduct::kernel);
        let quantize = instance.quant_format().map(QuantFormat::kernel);
        [instance.meta().name, product.name, step_kernel(KvType::F16).name].into_iter().chain(quantize).collect()
    }

    fn sizes(_: (Instance, Format)) -> NamedSizes {
        SIZES
    }

    fn shapes((instance, format): (Instance, Format)) -> Vec<Vec<usize>> {
        shapes(instance, format)
    }

    fn run<B: Bench>(
        (instance, format): (Instance, Format),
        shape: &Shape<'_>,
        bench: &mut B,
        rng: &mut Rng,
    ) -> Outcome {
        run(instance, format, shape, bench, rng)
    }
}

/// The product of the launches, if its activations are quantized.
fn product(instance: Instance, format: Format) -> Option<QuantizedProduct> {
    QuantizedProduct::of(format, instance.quant_format()?.activations())
}

/// Every instance; where formats share its layout, with those of the shortest blocks and of the longest that it takes.
fn variants() -> Vec<(Instance, Format)> {
    let mut all = Vec::new();
    for i in Instance::ALL.iter().copied() {
        let taken = || Format::ALL.into_iter().filter(|f| Instance::of(*f, i.quant_format()) == Some(i));
        all.extend(taken().min_by_key(|f| f.block_units()).map(|f| (i, f)));
        all.extend(taken().max_by_key(|f| f.block_units()).map(|f| (i, f)).filter(|of| all.last() != Some(of)));
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
    ("layers", 2),
    ("blocks", 5),
];

/// One block, more than there is work for, and numbers between that no phase's work is a multiple of; one layer, and several;
/// lengths of one part and of several; every option of the heads, and a column that has no place left.
fn shapes(instance: Instance, format: Format) -> Vec<Vec<usize>> {
    let mut all = vec![vec![256, 512, 4, 2, 64, 64, 1, 1, 0, 0, 200, 170, 2, 5]];
    match (instance.layout(), format, instance.quant_format()) {
        // Nothing has to be a multiple of a block.
        (Layout::F16, ..) => all.extend([
            vec![100, 77, 3, 1, 128, 40, 0, 0, 1, 0, 20, 9, 3, 7],
            vec![33, 5, 1, 1, 64, 32, 1, 0, 1, 3, 9, 5, 1, 1],
        ]),
        (Layout::Q1_0, ..) => all.extend([
            vec![128, 384, 6, 2, 128, 64, 0, 1, 1, 0, 100, 66, 1, 3],
            vec![256, 128, 8, 1, 64, 64, 1, 0, 1, 40, 300, 200, 3, 64],
            vec![128, 256, 4, 4, 64, 64, 1, 1, 0, 0, 8, 8, 2, 2],
        ]),
        // A row that is staged in two parts.
        (_, Format::Q8_0, None) => all.push(vec![4160, 32, 1, 1, 64, 64, 1, 1, 0, 0, 5, 0, 1, 11]),
        // Groups of outputs that are not whole, and of several blocks.
        (_, Format::Q8_0, Some(_)) => all.push(vec![288, 160, 3, 1, 64, 32, 1, 1, 1, 0, 5, 0, 2, 1]),
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
    quantized: [B::Buffer<U32x4>; 2],
    group_counters: B::Buffer<u32>,
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

/// A product, of activations as the instance has them.
fn multiply<'a, B: Bench>(
    product: Option<QuantizedProduct>,
    (format, weights): (Format, &'a B::Buffer<U32x4>),
    (rows, cols): (u32, u32),
    (x, quantized): (&'a B::Buffer<f32>, &'a B::Buffer<U32x4>),
    y: &'a mut B::Buffer<f32>,
) -> Gemv<'a> {
    match product {
        Some(product) => Gemv::quantized(product, weights, rows, cols, quantized, y),
        None => Gemv::new(format, weights, rows, cols, x, y),
    }
}

/// The five launches, as a decoding step makes them.
fn five<B: Bench>(
    bench: &mut B,
    (format, product): (Format, Option<QuantizedProduct>),
    (layer, sizes): (Layer, Sizes),
    w: &Weights<B>,
    s: &mut State<B>,
) -> Result<(), Failure> {
    let (h, f, q) = (sizes.hidden, sizes.feed_forward, layer.q_heads * layer.head_dim);
    let (eps, quant_format) = (layer.eps, product.map(QuantizedProduct::quant_format));
    let State { x, y, scaled, sums, qkv, attended, inner, partials, counters, group_counters, columns, .. } = s;
    let [of_scaled, of_inner] = &mut s.quantized;
    macro_rules! written {
        ($to:ident) => {
            quant_format.map(|format| OutputQuantization { format, quantized: $to, group_counters })
        };
    }
    let first = multiply::<B>(product, (format, &w.qkv), (layer.qkv(), h), (scaled, of_scaled), qkv);
    let first = first.norm(sums, sizes.parts, eps);
    match &w.bias {
        Some(bias) => first.add(bias, 0).launch(bench)?,
        None => first.launch(bench)?,
    }
    let (weights, tables) = ((&*w.heads[0], &*w.heads[1]), (&*w.cos, &*w.sin));
    let sinks = DeviceSlice::empty();
    let step = StepArgs { weights, tables, sinks, columns, stride: layer.qkv(), layer };
    // SAFETY: keys and values are buffers of the state, which nothing else touches meanwhile.
    unsafe { step.attend(bench, KvType::F16, qkv, (partials, counters, attended, written!(of_inner)), q) }?;
    let output = multiply::<B>(product, (format, &w.output), (h, q), (attended, of_inner), y).add(x, 0);
    output.next(&w.norms[0], scaled, sums).quantize_output(written!(of_scaled)).launch(bench)?;
    let gate_up = multiply::<B>(product, (format, &w.gate_up), (f, h), (scaled, of_scaled), inner).swiglu();
    let before = parts_with(quant_format, h, q, false);
    gate_up.norm(sums, before, eps).quantize_output(written!(of_inner)).launch(bench)?;
    let down = multiply::<B>(product, (format, &w.down), (h, f), (inner, of_inner), x).add(y, 0);
    Ok(down.next(&w.norms[1], scaled, sums).quantize_output(written!(of_scaled)).launch(bench)?)
}

/// All layers in one launch.
fn one<B: Bench>(
    bench: &mut B,
    (instance, format): (Instance, Format),
    (layer, sizes): (Layer, Sizes),
    weights: &[Weights<B>],
    (s, barrier): (&mut State<B>, &mut DeviceSlice<u32>),
) -> Result<(), Failure> {
    let (first, matrix) = (&weights[0], |records, rows| Matrix { format, rows, records });
    let elements: Result<Vec<_>, _> = weights
        .iter()
        .map(|w| {
            let parts = LayerParts {
                matrices: [
                    matrix(&*w.qkv, layer.qkv()),
                    matrix(&w.output, sizes.hidden),
                    matrix(&w.gate_up, 2 * sizes.feed_forward),
                    matrix(&w.down, sizes.hidden),
                ],
                bias: w.bias.as_deref(),
                ffn_norm: &w.norms[0],
                next_norm: &w.norms[1],
                q_weight: &w.heads[0],
                k_weight: &w.heads[1],
            };
            instance.weights(&parts, &layer, &sizes)
        })
        .collect();
    let layers = bench.upload(&elements.map_err(refused)?)?;
    let [scaled, inner] = &mut s.quantized;
    let launch = PersistentLayers {
        instance,
        layers: &layers,
        next: first.bias.is_none().then_some(matrix(&*first.qkv, layer.qkv())),
        cos: &first.cos,
        sin: &first.sin,
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
        quantized: instance.quant_format().map(|_| Quantized { scaled, inner, group_counters: &mut s.group_counters }),
        barrier,
        layer,
        sizes,
    };
    // SAFETY: keys and values are buffers of the state, and weights are the caller's, which nothing else touches meanwhile.
    Ok(unsafe { launch.launch(bench) }?)
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
    Ok((layer, Sizes { hidden, feed_forward, parts: 3, blocks: size("blocks")?, quantize_last: 1, ..Sizes::default() }))
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
    quant_format: Option<QuantFormat>,
}

impl Start {
    fn new(
        rng: &mut Rng,
        shape: &Shape<'_>,
        (layer, sizes): (&Layer, &Sizes),
        quant_format: Option<QuantFormat>,
    ) -> Result<Start, UnknownSize> {
        let hidden = sizes.hidden as usize;
        let (x, scaled, squares) = (rng.floats(hidden), rng.floats(hidden), rng.floats(3));
        let mut sums: Vec<f32> = squares.iter().map(|v| v.abs() * hidden as f32).collect();
        let parts_of = |cols: u32| parts_with(quant_format, sizes.hidden, cols, false);
        let most = parts_of(layer.q_heads * layer.head_dim).max(parts_of(sizes.feed_forward)).max(3);
        sums.resize(most as usize, 0.0);
        let [capacity, position, layers] = shape.sizes(["capacity", "position", "layers"])?;
        let rows = layers * layer.kv_heads as usize * capacity;
        let cache = rng.floats(rows * layer.head_dim as usize).iter().map(|v| f16::from_f32(*v)).collect();
        Ok(Start { x, scaled, sums, cache, position: position as u32, capacity: capacity as u32, quant_format })
    }

    /// Buffers of their own with it.
    fn upload<B: Bench>(&self, bench: &mut B, (layer, sizes): (&Layer, &Sizes)) -> Result<State<B>, Failure> {
        let (keys, values) = (bench.upload(&self.cache)?, bench.upload(&self.cache)?);
        let place = Column::at(1, self.position).with_caches(self.capacity, keys.address(), values.address());
        let (h, q, f) = (sizes.hidden, layer.q_heads * layer.head_dim, sizes.feed_forward);
        let vectors = |n: u32| self.quant_format.map_or(0, |format| format.len(n)) as usize;
        let mut quantized = [bench.output(vectors(h))?, bench.output(vectors(q).max(vectors(f)))?];
        let scaled = bench.upload(&self.scaled)?;
        if let Some(format) = self.quant_format {
            Quantize::new(format, &scaled, &mut quantized[0], h).launch(bench)?;
        }
        Ok(State {
            quantized,
            group_counters: bench.upload(&vec![0u32; groups(h.max(q).max(f)) as usize])?,
            x: bench.upload(&self.x)?,
            y: bench.output(sizes.hidden as usize)?,
            scaled,
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
fn compare<B: Bench>(bench: &mut B, round: usize, want: &State<B>, got: &State<B>, quantized: bool) -> Outcome {
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
        same(&bits(&got), &bits(&want)).map_err(|e| Failure::Wrong(format!("launch {round}, {name}: {e}")))?;
    }
    for (name, want, got) in [("keys", &want.keys, &got.keys), ("values", &want.values, &got.values)] {
        let bits = |v: Vec<f16>| v.into_iter().map(f16::to_bits).collect::<Vec<_>>();
        let (want, got) = (bits(bench.read(want)?), bits(bench.read(got)?));
        same(&got, &want).map_err(|e| Failure::Wrong(format!("launch {round}, {name}: {e}")))?;
    }
    if quantized {
        let vectors = |v: Vec<U32x4>| v.into_iter().flat_map(|v| v.0).collect::<Vec<_>>();
        for (want, got) in want.quantized.iter().zip(&got.quantized) {
            let (want, got) = (vectors(bench.read(want)?), vectors(bench.read(got)?));
            same(&got, &want).map_err(|e| Failure::Wrong(format!("launch {round}, quantized: {e}")))?;
        }
    }
    Ok(())
}

/// Layers, and once more from what the first launch left in its buffers, the barrier's word among them.
fn run<B: Bench>(instance: Instance, format: Format, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let (layer, sizes) = sizes(shape)?;
    let (quant_format, product) = (instance.quant_format(), product(instance, format));
    let [layers, bias] = shape.sizes(["layers", "bias"])?;
    let weights: Result<Vec<_>, _> =
        (0..layers).map(|_| Weights::new(bench, rng, format, (&layer, &sizes), bias != 0)).collect();
    let weights = weights?;
    let start = Start::new(rng, shape, (&layer, &sizes), quant_format)?;
    let mut a = start.upload(bench, (&layer, &sizes))?;
    let mut b = start.upload(bench, (&layer, &sizes))?;
    let mut barrier = bench.upload(&[0u32])?;
    let after = parts_with(quant_format, sizes.hidden, sizes.feed_forward, false);
    for (round, parts) in [3, after].into_iter().enumerate() {
        for (index, w) in weights.iter().enumerate() {
            let parts = if index == 0 { parts } else { after };
            let of = (Layer { index: index as u32, ..layer }, Sizes { parts, ..sizes });
            five(bench, (format, product), of, w, &mut a)?;
        }
        one(bench, (instance, format), (layer, Sizes { parts, ..sizes }), &weights, (&mut b, &mut barrier))?;
        compare(bench, round, &a, &b, quant_format.is_some())?;
    }
    Ok(())
}
