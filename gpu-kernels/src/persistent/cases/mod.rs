//! The cases of layers in one launch: what they write is what five launches a layer write, bit for bit, and those have cases of
//! their own.

mod launches;
mod state;
mod weights;

use super::{Instance, Sizes};
use crate::attention::cases::step_kernel;
use crate::cases::{Bench, Listed, Measured, NamedSizes, Operation, Outcome, Rng, Shape, UnknownSize};
use crate::format::Format;
use crate::gemv::{Activations, QuantFormat, QuantizedProduct, cases::gemv, choose, parts_with};
use crate::kv::KvType;
use crate::layer::{FUSED, Layer, NEOX, QK_NORM};
use launches::{apart, one};
use state::{Start, compare};
use weights::{Kinds, Weights};

/// Bytes of local memory that ptxas needs on sm_90.
const SPILLED: &[(&str, u32)] = &[("layers_f32", 40), ("layers_i16", 32), ("layers_f16", 24), ("layers_f16x2", 24)];
const SPILLED_WHY: &str = "what is kept between the loops of a layout and the next one's; none of it is read in a loop";

/// Layers in one launch, by entry point and the format of their matrices.
pub struct Layers;

impl Operation for Layers {
    type Variant = (Instance, Format);

    fn kernels() -> Vec<Listed> {
        let unused = Measured::Not("layers in one launch, which are off until a GPU has timed them");
        // Those that a decoder takes for the models that ship, unless it is told otherwise.
        let ships = [Format::F16, Format::Q1_0, Format::TQ2_0, Format::Q4_K, Format::Q8_0];
        let by_default = |i: &Instance| {
            let activations = i.quant_format().map_or(Activations::F32, QuantFormat::activations);
            ships.into_iter().any(|f| i.takes(f) && choose(f, Activations::default()) == activations)
        };
        let listed = |i: &Instance| {
            let benchmark = if by_default(i) {
                Measured::By("step")
            } else {
                Measured::Not(
                    "steps are measured of the models that ship, with the activations that decoders take by default",
                )
            };
            Listed { meta: i.meta(), benchmark, budget: unused, local_memory: None }.spilling(SPILLED, SPILLED_WHY)
        };
        Instance::ALL.iter().map(listed).collect()
    }

    fn variants() -> Vec<(Instance, Format)> {
        variants()
    }

    /// The kernel, and those of the launches that it is compared with.
    fn launches((instance, format): (Instance, Format)) -> Vec<&'static str> {
        let product = |f: Format| product(instance, f).map_or_else(|| gemv(f.layout()), QuantizedProduct::kernel).name;
        let mut products: Vec<_> = if is_mixed(instance, format) {
            taken(instance).into_iter().map(product).collect()
        } else {
            vec![product(format)]
        };
        products.sort_unstable();
        products.dedup();
        let quantize = instance.quant_format().map(QuantFormat::kernel);
        [instance.meta().name, step_kernel(KvType::F16).name].into_iter().chain(quantize).chain(products).collect()
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

/// The formats that an instance takes.
fn taken(instance: Instance) -> Vec<Format> {
    Format::ALL.into_iter().filter(|f| instance.takes(*f)).collect()
}

/// The variant of an instance in which matrices of several formats are tried together: that of its first format.
fn is_mixed(instance: Instance, format: Format) -> bool {
    taken(instance).first() == Some(&format)
}

/// Every instance with all layouts; where formats share one, with those of the shortest blocks and of the longest that it takes.
fn variants() -> Vec<(Instance, Format)> {
    let mut all = Vec::new();
    for i in Instance::ALL.iter().copied() {
        let taken = taken(i);
        for f in &taken {
            let alike = || taken.iter().filter(|other| other.layout() == f.layout());
            let shortest = alike().min_by_key(|f| f.block_units());
            if is_mixed(i, *f) || shortest == Some(f) || alike().max_by_key(|f| f.block_units()) == Some(f) {
                all.push((i, *f));
            }
        }
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
    ("mixed", 0),
];

/// One block, more than there is work for, and numbers between that no phase's work is a multiple of; one layer, and several;
/// lengths of one part and of several; every option of the heads, and a column that has no place left; and, if `mixed`, queries, keys and
/// values in two parts or in three, and matrices of formats that are so far apart.
fn shapes(instance: Instance, format: Format) -> Vec<Vec<usize>> {
    let mixed = is_mixed(instance, format);
    let layers = if mixed { 2 } else { 1 };
    let mut all = vec![vec![256, 512, 4, 2, 64, 64, 1, 1, 0, 0, 200, 170, layers, 5, 0]];
    if mixed {
        // Blocks without work wait at every barrier, which takes longest: of products in f32 and of one with codes.
        let blocks = if matches!(instance, Instance::LayersF32 | Instance::LayersI16) { 200 } else { 29 };
        all.extend([
            vec![512, 256, 4, 4, 64, 64, 1, 1, 1, 0, 60, 33, 3, 3, 1],
            vec![256, 512, 8, 2, 64, 64, 0, 0, 0, 0, 60, 3, 2, blocks, 2],
        ]);
    }
    match (instance, format) {
        // Nothing has to be a multiple of a block.
        (Instance::LayersF32 | Instance::LayersF16 | Instance::LayersF16x2, Format::F16) => all.extend([
            vec![100, 77, 3, 1, 128, 40, 0, 0, 1, 0, 20, 9, 3, 7, 0],
            vec![33, 5, 1, 1, 64, 32, 1, 0, 1, 3, 9, 5, 1, 1, 0],
        ]),
        (Instance::LayersF32 | Instance::LayersQ10I16, Format::Q1_0) => all.extend([
            vec![128, 384, 6, 2, 128, 64, 0, 1, 1, 0, 100, 66, 1, 3, 0],
            vec![256, 128, 8, 1, 64, 64, 1, 0, 1, 40, 300, 200, 3, 64, 0],
            vec![128, 256, 4, 4, 64, 64, 1, 1, 0, 0, 8, 8, 2, 2, 0],
        ]),
        // A row that is staged in two parts.
        (Instance::LayersF32, Format::Q8_0) => all.push(vec![4160, 32, 1, 1, 64, 64, 1, 1, 0, 0, 5, 0, 1, 11, 0]),
        // Groups of outputs that are not whole, and of several blocks.
        (_, Format::Q8_0) => all.push(vec![288, 160, 3, 1, 64, 32, 1, 1, 1, 0, 5, 0, 2, 1, 0]),
        _ => {}
    }
    all
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

/// Layers, and once more from what the first launch left in its buffers, the barrier's word among them.
fn run<B: Bench>(instance: Instance, format: Format, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let (layer, sizes) = sizes(shape)?;
    let quant_format = instance.quant_format();
    let [layers, bias, mixed] = shape.sizes(["layers", "bias", "mixed"])?;
    let of = |number| Kinds::new((instance, format), mixed, &layer, number);
    let weights: Result<Vec<_>, _> =
        (0..layers).map(|n| Weights::new(bench, rng, &of(n), (&layer, &sizes), bias != 0)).collect();
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
            apart(bench, instance, of, w, &mut a)?;
        }
        one(bench, instance, (layer, Sizes { parts, ..sizes }), &weights, (&mut b, &mut barrier))?;
        compare(bench, round, &a, &b, quant_format.is_some())?;
    }
    Ok(())
}
