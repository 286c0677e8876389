//! One decode step, written once: run eagerly, recorded into a graph, or checked without a device.

use super::kv::{Caches, KvCache, KvType, Shape, Stored};
use super::weights::{LayerWeights, Projection, Stack, Weights, padded};
use crate::model::{Config, RopeStyle};
use crate::{Buffer, Device, Error, Stream};
use gpu_kernels::elementwise::Swiglu;
use gpu_kernels::gemv::Gemv;
use gpu_kernels::norm::RmsNorm;
use gpu_kernels::state::Column;
use gpu_kernels::{argmax, attention, embed, kv, rope};
use warpsmith_device::{Contract, DeviceSlice, Launcher};

/// What is computed after the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Nothing: a token of the prompt whose prediction nobody reads.
    Skip,
    /// Logits and their argmax.
    Logits,
}

impl Head {
    pub const ALL: [Head; 2] = [Head::Skip, Head::Logits];

    pub fn index(self) -> usize {
        match self {
            Head::Skip => 0,
            Head::Logits => 1,
        }
    }
}

/// The buffers that a step works in; their addresses do not change while a sequence lives.
pub(super) struct Buffers {
    /// What is fed.
    pub columns: Buffer<Column>,
    /// The residual stream; a layer reads one and writes the other.
    pub x: Buffer<f32>,
    pub y: Buffer<f32>,
    /// The normed input of a projection.
    normed: Buffer<f32>,
    /// All query heads, all key heads, all value heads.
    qkv: Buffer<f32>,
    attended: Buffer<f32>,
    /// Gate, then up.
    gate_up: Buffer<f32>,
    inner: Buffer<f32>,
    pub logits: Buffer<f32>,
    pub next: Buffer<u32>,
}

impl Buffers {
    fn lengths(c: &Config) -> [usize; 8] {
        let (h, f) = (c.hidden, c.feed_forward);
        [h, h, h, c.q_dim() + 2 * c.kv_dim(), c.q_dim(), 2 * f, f, c.vocab]
    }

    pub fn bytes(c: &Config) -> u64 {
        Self::lengths(c).iter().map(|&n| padded(n as u64 * 4)).sum::<u64>() + 2 * padded(1)
    }

    pub fn new(device: &Device, c: &Config) -> Result<Buffers, Error> {
        let [x, y, normed, qkv, attended, gate_up, inner, logits] = Self::lengths(c);
        Ok(Buffers {
            columns: device.alloc(1)?,
            x: device.alloc(x)?,
            y: device.alloc(y)?,
            normed: device.alloc(normed)?,
            qkv: device.alloc(qkv)?,
            attended: device.alloc(attended)?,
            gate_up: device.alloc(gate_up)?,
            inner: device.alloc(inner)?,
            logits: device.alloc(logits)?,
            next: device.alloc(1)?,
        })
    }

    /// A number that no other set of buffers has or will have.
    pub fn id(&self) -> u64 {
        self.x.id()
    }
}

/// Cosines and sines of every position of the cache.
pub(super) struct RopeTables {
    cos: Buffer<f32>,
    sin: Buffer<f32>,
    context: u32,
}

impl RopeTables {
    pub fn bytes(c: &Config, capacity: usize) -> Option<u64> {
        let bytes = (capacity as u64).checked_mul(c.rope.dims as u64 / 2)?.checked_mul(4)?;
        padded(bytes.checked_add(512)?).checked_mul(2)
    }

    pub fn new(stream: &Stream, c: &Config, freqs: Option<&[f32]>, capacity: u32) -> Result<RopeTables, Error> {
        let (base, scale) = (f64::from(c.rope.base), f64::from(c.rope.scale));
        let tables = rope::rope_tables(capacity as usize, c.rope.dims, base, freqs, scale);
        let (cos, sin) = (stream.upload(&tables.cos)?, stream.upload(&tables.sin)?);
        Ok(RopeTables { cos, sin, context: capacity })
    }

    /// A number that no other tables have or will have.
    pub fn id(&self) -> u64 {
        self.cos.id()
    }
}

/// Everything that a step refers to.
pub(super) struct Step<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights,
    pub tables: &'a RopeTables,
    pub cache: &'a mut KvCache,
    pub buffers: &'a mut Buffers,
}

impl Step<'_> {
    /// All launches of a step, in order.
    pub fn run<L: Launcher<Error = Error>>(&mut self, on: &mut L, head: Head) -> Result<(), Error> {
        self.embed(on)?;
        for layer in 0..self.config.layers {
            self.layer(on, layer)?;
        }
        match head {
            Head::Skip => Ok(()),
            Head::Logits => self.head(on),
        }
    }

    /// The token's embedding into the residual stream.
    pub fn embed<L: Launcher<Error = Error>>(&mut self, on: &mut L) -> Result<(), Error> {
        let table = &self.weights.embedding;
        let Buffers { columns, x, .. } = self.buffers;
        let launch = embed::Embed {
            format: table.format,
            table: table.records(),
            y: x,
            columns,
            vocab: table.rows(),
            cols: table.cols,
            stride: table.cols,
            next: None,
        };
        launch.launch(on)
    }

    /// One layer: reads and writes the residual stream `x`.
    pub fn layer<L: Launcher<Error = Error>>(&mut self, on: &mut L, index: usize) -> Result<(), Error> {
        let Some(weights) = self.weights.layers.get(index) else { return Ok(()) };
        let eps = self.config.eps;
        let Buffers { x, normed, qkv, .. } = self.buffers;
        on.launch(RmsNorm { x, w: &weights.attn_norm, y: normed, cols: x.len() as u32, eps })?;
        project(on, &weights.qkv, normed, qkv)?;
        self.rotate(on, weights)?;
        self.attend(on, index)?;

        let Buffers { x, y, normed, attended, gate_up, inner, .. } = self.buffers;
        project_onto(on, &weights.attn_output, attended, x, y)?;
        on.launch(RmsNorm { x: y, w: &weights.ffn_norm, y: normed, cols: y.len() as u32, eps })?;
        project(on, &weights.gate_up, normed, gate_up)?;
        let (gate, up) = gate_up.split_at(inner.len()).unwrap_or((DeviceSlice::empty(), DeviceSlice::empty()));
        on.launch(Swiglu { gate, up, n: inner.len() as u32, y: inner })?;
        project_onto(on, &weights.down, inner, y, x)
    }

    fn rotate<L: Launcher<Error = Error>>(&mut self, on: &mut L, weights: &LayerWeights) -> Result<(), Error> {
        let c = self.config;
        let RopeTables { cos, sin, context } = self.tables;
        let Buffers { qkv, columns, .. } = self.buffers;
        let qk = &mut qkv[..c.q_dim() + c.kv_dim()];
        let stride = qk.len() as u32;
        let (head_dim, n_rot) = (c.head_dim as u32, c.rope.dims as u32);
        let neox = u32::from(c.rope.style == RopeStyle::Neox);
        let (q_heads, k_heads) = (c.heads as u32, c.kv_heads as u32);
        match &weights.head_norms {
            Some((q_weight, k_weight)) => on.launch(rope::QkNormRope {
                qk,
                q_weight,
                k_weight,
                cos,
                sin,
                columns,
                stride,
                q_heads,
                k_heads,
                head_dim,
                n_rot,
                neox,
                context: *context,
                eps: c.eps,
            }),
            None => on.launch(rope::Rope {
                qk,
                cos,
                sin,
                columns,
                stride,
                heads: q_heads + k_heads,
                head_dim,
                n_rot,
                neox,
                context: *context,
            }),
        }
    }

    /// Stores keys and values and attends to all that are stored.
    fn attend<L: Launcher<Error = Error>>(&mut self, on: &mut L, layer: usize) -> Result<(), Error> {
        let c = self.config;
        let Buffers { qkv, columns, attended, .. } = self.buffers;
        let (q, rest) = qkv.split_at(c.q_dim()).unwrap_or((DeviceSlice::empty(), DeviceSlice::empty()));
        let (k, v) = rest.split_at(c.kv_dim()).unwrap_or((DeviceSlice::empty(), DeviceSlice::empty()));
        let Shape { kv_heads, capacity, head_dim, .. } = self.cache.shape;
        let (kv_heads, capacity, head_dim) = (kv_heads as u32, capacity as u32, head_dim as u32);
        let q_heads = c.heads as u32;
        macro_rules! launches {
            ($cache:expr, $store:ident, $attend:ident) => {{
                let (k_cache, v_cache) = Caches::layer($cache, layer, self.cache.shape);
                on.launch(kv::$store { k, v, k_cache, v_cache, columns, kv_heads, head_dim, capacity })?;
                on.launch(attention::$attend {
                    q,
                    k_cache,
                    v_cache,
                    y: attended,
                    columns,
                    q_heads,
                    kv_heads,
                    head_dim,
                    capacity,
                })
            }};
        }
        match &mut self.cache.stored {
            Stored::F16(cache) => launches!(cache, KvStore, AttnDecode),
            Stored::F32(cache) => launches!(cache, KvStoreF32, AttnDecodeF32),
        }
    }

    /// The final norm, the logits and their argmax.
    pub fn head<L: Launcher<Error = Error>>(&mut self, on: &mut L) -> Result<(), Error> {
        let Buffers { x, normed, logits, next, .. } = self.buffers;
        let (w, eps) = (&self.weights.output_norm, self.config.eps);
        on.launch(RmsNorm { x, w, y: normed, cols: x.len() as u32, eps })?;
        gemv(on, self.weights.output(), normed, None, logits)?;
        on.launch(argmax::Argmax { n: logits.len() as u32, stride: logits.len() as u32, x: logits, y: next })
    }

    /// The normed input of the output projection, after [`Step::head`].
    pub fn output_input(&self) -> &DeviceSlice<f32> {
        &self.buffers.normed
    }
}

fn gemv<L: Launcher<Error = Error>>(
    on: &mut L,
    m: &Stack,
    x: &DeviceSlice<f32>,
    residual: Option<&DeviceSlice<f32>>,
    y: &mut DeviceSlice<f32>,
) -> Result<(), Error> {
    let (rows, cols) = (m.rows(), m.cols);
    let product = Gemv::new(m.format, m.records(), rows, cols, x, y);
    match residual {
        Some(residual) => product.add(residual, 0).launch(on),
        None => product.launch(on),
    }
}

/// `y = W x`, a launch for each stack.
fn project<L: Launcher<Error = Error>>(
    on: &mut L,
    p: &Projection,
    x: &DeviceSlice<f32>,
    y: &mut DeviceSlice<f32>,
) -> Result<(), Error> {
    p.stacks.iter().try_for_each(|m| gemv(on, m, x, None, &mut y[m.outputs.clone()]))
}

/// `y = W x + residual`.
fn project_onto<L: Launcher<Error = Error>>(
    on: &mut L,
    p: &Projection,
    x: &DeviceSlice<f32>,
    residual: &DeviceSlice<f32>,
    y: &mut DeviceSlice<f32>,
) -> Result<(), Error> {
    p.stacks.iter().try_for_each(|m| {
        let place = m.outputs.clone();
        gemv(on, m, x, Some(&residual[place.clone()]), &mut y[place])
    })
}

/// Passes launches on to a stream or a capture, and counts them.
pub(super) struct Counted<'a, L> {
    on: &'a mut L,
    pub launches: usize,
}

impl<'a, L: crate::Launcher> Counted<'a, L> {
    pub fn new(on: &'a mut L) -> Self {
        Counted { on, launches: 0 }
    }
}

impl<L: crate::Launcher> Launcher for Counted<'_, L> {
    type Error = Error;

    fn launch<K: Contract>(&mut self, kernel: K) -> Result<(), Error> {
        self.on.launch(kernel)?;
        self.launches += 1;
        Ok(())
    }
}

/// Checks every launch's contract and launches nothing.
#[derive(Default)]
pub(super) struct Dry {
    pub launches: usize,
}

impl Launcher for Dry {
    type Error = Error;

    fn launch<K: Contract>(&mut self, kernel: K) -> Result<(), Error> {
        kernel.check()?;
        kernel.geometry().check(K::META)?;
        self.launches += 1;
        Ok(())
    }
}

/// What a sequence takes on the device: cache, tables, buffers; `None` if that overflows.
pub(super) fn sequence_bytes(c: &Config, capacity: usize, kind: KvType) -> Option<[u64; 3]> {
    Some([Shape::new(c, capacity).bytes(kind)?, RopeTables::bytes(c, capacity)?, Buffers::bytes(c)])
}
