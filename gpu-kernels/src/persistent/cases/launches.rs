//! The launches of a layer, and the one launch of all layers.

use super::{
    product,
    state::Workspace,
    weights::{MatrixBuffers, Weights},
};
use crate::attention::cases::StepArgs;
use crate::cases::{Bench, Failure, refused};
use crate::gemv::{Gemv, OutputQuantization, parts_with};
use crate::kv::KvType;
use crate::layer::Layer;
use crate::persistent::{Instance, LayerParts, PersistentLayers, Quantized, Sizes};
use warpsmith_device::{DeviceSlice, U32x4};

/// A product, of activations as the instance has them.
fn multiply<'a, B: Bench>(
    instance: Instance,
    of: &'a MatrixBuffers<B>,
    (rows, cols): (u32, u32),
    (x, quantized): (&'a B::Buffer<f32>, &'a B::Buffer<U32x4>),
    y: &'a mut DeviceSlice<f32>,
) -> Gemv<'a> {
    match product(instance, of.format) {
        Some(product) => Gemv::quantized(product, &of.records, rows, cols, quantized, y),
        None => Gemv::new(of.format, &of.records, rows, cols, x, y),
    }
}

/// The launches of a layer, as a decoding step makes them.
pub fn apart<B: Bench>(
    bench: &mut B,
    instance: Instance,
    (layer, sizes): (Layer, Sizes),
    w: &Weights<B>,
    s: &mut Workspace<B>,
) -> Result<(), Failure> {
    let (h, f, q) = (sizes.hidden, sizes.feed_forward, layer.q_heads * layer.head_dim);
    let (eps, quant_format) = (layer.eps, instance.quant_format());
    let Workspace { x, y, scaled, sums, qkv, attended, inner, partials, counters, group_counters, columns, .. } = s;
    let [of_scaled, of_inner] = &mut s.quantized;
    macro_rules! written {
        ($to:ident) => {
            quant_format.map(|format| OutputQuantization { format, quantized: $to, group_counters })
        };
    }
    let mut first = 0;
    for part in &w.qkv {
        let to = &mut qkv[first..first + part.rows as usize];
        let product = multiply(instance, part, (part.rows, h), (scaled, of_scaled), to).norm(sums, sizes.parts, eps);
        match &part.bias {
            Some(bias) => product.add(bias, 0).launch(bench)?,
            None => product.launch(bench)?,
        }
        first += part.rows as usize;
    }
    let (weights, tables) = ((&*w.heads[0], &*w.heads[1]), (&*w.cos, &*w.sin));
    let sinks = DeviceSlice::empty();
    let step = StepArgs { weights, tables, sinks, columns, stride: layer.qkv(), layer };
    // SAFETY: keys and values are buffers of the state, which nothing else touches meanwhile.
    unsafe { step.attend(bench, KvType::F16, qkv, (partials, counters, attended, written!(of_inner)), q) }?;
    let [output, gate_up, down] = &w.others;
    let output = multiply(instance, output, (h, q), (attended, of_inner), y).add(x, 0);
    output.next(&w.norms[0], scaled, sums).quantize_output(written!(of_scaled)).launch(bench)?;
    let gate_up = multiply(instance, gate_up, (f, h), (scaled, of_scaled), inner).swiglu();
    let before = parts_with(quant_format, h, q, false);
    gate_up.norm(sums, before, eps).quantize_output(written!(of_inner)).launch(bench)?;
    let down = multiply(instance, down, (h, f), (inner, of_inner), x).add(y, 0);
    Ok(down.next(&w.norms[1], scaled, sums).quantize_output(written!(of_scaled)).launch(bench)?)
}

/// All layers in one launch.
pub fn one<B: Bench>(
    bench: &mut B,
    instance: Instance,
    (layer, sizes): (Layer, Sizes),
    weights: &[Weights<B>],
    (s, barrier): (&mut Workspace<B>, &mut DeviceSlice<u32>),
) -> Result<(), Failure> {
    let first = &weights[0];
    let elements: Result<Vec<_>, _> = weights
        .iter()
        .map(|w| {
            let parts = LayerParts {
                qkv: &w.qkv.iter().map(MatrixBuffers::matrix).collect::<Vec<_>>(),
                matrices: [0, 1, 2].map(|i| w.others[i].matrix()),
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
        next: first.qkv.first().filter(|part| part.bias.is_none()).map(MatrixBuffers::matrix),
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
