//! What launches of a case read and write.

use crate::attention::partials_len;
use crate::cases::{Bench, Failure, Outcome, Rng, Shape, UnknownSize, same};
use crate::gemv::quant_format::groups;
use crate::gemv::{QuantFormat, Quantize, parts_with};
use crate::layer::Layer;
use crate::persistent::Sizes;
use crate::state::Column;
use half::f16;
use warpsmith_device::U32x4;

/// What the launches of a layer work in.
pub struct Workspace<B: Bench> {
    pub x: B::Buffer<f32>,
    pub y: B::Buffer<f32>,
    pub scaled: B::Buffer<f32>,
    pub sums: B::Buffer<f32>,
    pub qkv: B::Buffer<f32>,
    pub attended: B::Buffer<f32>,
    pub inner: B::Buffer<f32>,
    pub partials: B::Buffer<f32>,
    pub counters: B::Buffer<u32>,
    pub quantized: [B::Buffer<U32x4>; 2],
    pub group_counters: B::Buffer<u32>,
    pub columns: B::Buffer<Column>,
    pub keys: B::Buffer<f16>,
    pub values: B::Buffer<f16>,
}

/// What the first layer starts from.
pub struct Start {
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
    pub fn new(
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
    pub fn upload<B: Bench>(&self, bench: &mut B, (layer, sizes): (&Layer, &Sizes)) -> Result<Workspace<B>, Failure> {
        let (keys, values) = (bench.upload(&self.cache)?, bench.upload(&self.cache)?);
        let place = Column::at(1, self.position).with_caches(self.capacity, keys.address(), values.address());
        let (h, q, f) = (sizes.hidden, layer.q_heads * layer.head_dim, sizes.feed_forward);
        let vectors = |n: u32| self.quant_format.map_or(0, |format| format.len(n)) as usize;
        // Not undefined: of the last two units there may be one alone.
        let mut places = |n: usize| bench.upload(&vec![U32x4([u32::MAX; 4]); n]);
        let mut quantized = [places(vectors(h))?, places(vectors(q).max(vectors(f)))?];
        let scaled = bench.upload(&self.scaled)?;
        if let Some(format) = self.quant_format {
            Quantize::new(format, &scaled, &mut quantized[0], h).launch(bench)?;
        }
        Ok(Workspace {
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

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| v.to_bits()).collect()
}

/// Every bit that the launches wrote is the same.
pub fn compare<B: Bench>(
    bench: &mut B,
    round: usize,
    want: &Workspace<B>,
    got: &Workspace<B>,
    quantized: bool,
) -> Outcome {
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
