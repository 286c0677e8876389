//! The buffers that a step works in. What they take and where they lie is one walk over them, with a memory that only
//! counts or with a device.

use super::delta::{DeltaBuffers, net_of};
use super::input::QuantizedActivations;
use super::memory::{Measured, Memory};
use super::routes::{ExpertBuffers, Routes};
use super::shape::{Shape, layer_of};
use crate::model::{Config, head_rows};
use gpu_kernels::attention::{prefill::QueryTile, step as attn};
use gpu_kernels::embed;
use gpu_kernels::experts::combine;
use gpu_kernels::gemv::{self, Activations, QuantFormat};
use gpu_kernels::sampling::sample;
use gpu_kernels::state::Column;
use warpsmith_collectives::Peers;
use warpsmith_device::DeviceSlice;
use warpsmith_runtime::{Error, Stream};

/// How many columns a workspace is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Columns that get a token.
    pub predicted: usize,
    /// Columns of any step, those of a prompt among them.
    pub columns: usize,
    /// Columns that have logits at once.
    pub logits: usize,
    /// Devices that run the model together.
    pub ranks: usize,
    /// They are those of processes, which gather whole slices of logits, also the places of no token.
    pub processes: bool,
    /// Elements of the longest column that is gathered in another order; 0, where none is.
    pub gathered: usize,
}

/// Elements from a column of an activation to the next: 16-byte loads start at each.
pub(super) fn stride(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Elements of a column.
pub(super) struct Sizes {
    pub hidden: usize,
    pub qkv: usize,
    pub attended: usize,
    /// Of those of all of a column's experts, of the one that all columns share, or of a layer without experts: the widest.
    all_inner: usize,
    pub logits: usize,
    /// Logits that a device computes, but for the last of several, which may have fewer.
    pub head: usize,
    /// Parts of the sum of squares.
    parts: usize,
    partials: usize,
    counters: usize,
    /// Vectors and counters of quantized activations.
    quantized: (usize, usize),
}

impl Sizes {
    fn new(c: &Config, activations: Activations, ranks: usize) -> Sizes {
        let formats = QuantFormat::ALL.map(Some).into_iter().filter(|_| activations != Activations::F32);
        // What delta nets project, and what they give.
        let (projected, values) = net_of(c, 0).map_or((0, 0), |net| (net.projected(), net.values()));
        let dense = c.dense_width();
        let parts = [c.q_dim(), values.max(1), c.feed_forward, dense.max(1)].into_iter().flat_map(|cols| {
            let parts = move |format| gemv::parts_with(format, c.hidden as u32, cols as u32, false);
            formats.clone().chain([None]).map(parts)
        });
        let parts = parts.chain([embed::parts(c.hidden as u32)]);
        let parts = parts.chain(c.experts.map(|_| combine::parts(c.hidden as u32)));
        let parts = parts.chain((ranks > 1).then_some(Peers::PARTS as u32));
        let quantized = QuantizedActivations::sizes(c.hidden.max(c.q_dim()).max(values).max(c.feed_forward).max(dense));
        // A column of each of its experts.
        let used = c.experts.map_or(1, |e| e.used);
        let of_inner = QuantizedActivations::sizes(c.feed_forward);
        let quantized = (quantized.0.max(used * of_inner.0), quantized.1.max(used * of_inner.1));
        let shared = c.experts.and_then(|e| e.shared).unwrap_or(0);
        let of_shared = QuantizedActivations::sizes(shared);
        let quantized = (quantized.0.max(of_shared.0), quantized.1.max(of_shared.1));
        Sizes {
            hidden: stride(c.hidden),
            qkv: stride((c.gate_dim() + c.qkv_dim()).max(projected)),
            attended: stride(c.q_dim().max(values)),
            all_inner: (used * stride(c.feed_forward)).max(stride(shared.max(dense))),
            // Processes gather whole slices.
            logits: stride(c.vocab).max(if ranks > 1 { ranks * head_rows(c, ranks) } else { 0 }),
            head: head_rows(c, ranks),
            parts: parts.max().unwrap_or(1) as usize,
            partials: attn::partials_len(1, &layer_of(c)) as usize,
            counters: c.kv_heads,
            quantized: if activations == Activations::F32 { (0, 0) } else { quantized },
        }
    }
}

/// The buffers that a step works in; their addresses do not change while a decoder lives. A column of each lies a stride
/// behind the one before.
pub(super) struct Workspace<M: Memory = Stream> {
    pub sizes: Sizes,
    pub vocab: usize,
    /// What is fed.
    pub columns: M::Buffer<Column>,
    /// Where columns attend in tiles: the tiles, and the columns that attend as single steps.
    pub tiles: M::Buffer<QueryTile>,
    pub steps: M::Buffer<Column>,
    /// The residual stream; a layer reads one and writes the other, and then back.
    pub x: M::Buffer<f32>,
    pub y: M::Buffer<f32>,
    /// The residual stream times the weight of the norm that follows, and the parts of its sum of squares.
    pub scaled: M::Buffer<f32>,
    pub sums: M::Buffer<f32>,
    /// The gates of query heads, if there are any; all query heads, all key heads, all value heads. Or what delta nets project.
    pub qkv: M::Buffer<f32>,
    pub attended: M::Buffer<f32>,
    pub partials: M::Buffer<f32>,
    pub counters: M::Buffer<u32>,
    /// What the blocks of a layer in one launch wait for one another by.
    pub barrier: M::Buffer<u32>,
    /// Quantized activations that projections read.
    pub quantized: QuantizedActivations<M>,
    /// The gates of all columns, then their ups.
    pub gate_up: M::Buffer<f32>,
    pub inner: M::Buffer<f32>,
    /// What delta nets take beside.
    pub delta: Option<DeltaBuffers<M>>,
    /// What mixtures of experts take beside.
    pub experts: Option<ExpertBuffers<M>>,
    pub zeros: Option<M::Buffer<f32>>,
    pub logits: M::Buffer<f32>,
    pub next: M::Buffer<u32>,
    /// What the launches that choose tokens leave one another, and their counters.
    pub work: M::Buffer<u64>,
    pub tickets: M::Buffer<u32>,
}

/// Which of its two buffers holds the residual stream.
#[derive(Clone, Copy)]
pub(super) enum Holder {
    /// `x`: that before a layer and behind it.
    X,
    /// `y`: that behind attention.
    Y,
}

impl<M: Memory> Workspace<M> {
    /// The buffers for a model's steps of this extent: measured or allocated, by the memory.
    pub fn new(memory: &M, c: &Config, of: Extent, activations: Activations) -> Result<Self, M::Error> {
        let Extent { predicted, columns, logits, ranks, processes, gathered } = of;
        let s = Sizes::new(c, activations, ranks);
        // What experts of one device give is added to nothing: the residual stream is added once.
        let zeros = (ranks > 1 && c.experts.is_some()).then(|| memory.zeros(s.hidden, columns)).transpose()?;
        Ok(Workspace {
            columns: memory.buffer(1, columns)?,
            tiles: memory.buffer(1, Shape::most_tiles(columns))?,
            steps: memory.buffer(1, predicted)?,
            x: memory.buffer(s.hidden, columns)?,
            y: memory.buffer(s.hidden, columns)?,
            scaled: memory.buffer(s.hidden, columns)?,
            sums: memory.buffer(s.parts, columns)?,
            qkv: memory.buffer(s.qkv, columns)?,
            attended: memory.buffer(s.attended, columns)?,
            partials: memory.buffer(s.partials, columns)?,
            // Every launch leaves them at zero.
            counters: memory.zeros(s.counters, columns)?,
            barrier: memory.zeros(1, 1)?,
            quantized: QuantizedActivations::new(memory, s.quantized, stride(gathered), columns)?,
            gate_up: memory.buffer(2 * s.all_inner, columns)?,
            inner: memory.buffer(s.all_inner, columns)?,
            delta: DeltaBuffers::new(memory, c, columns)?,
            experts: ExpertBuffers::new(memory, c, s.hidden, columns)?,
            logits: if processes { memory.zeros(s.logits, logits)? } else { memory.buffer(s.logits, logits)? },
            // Read as a whole, also where a prompt gives one token.
            next: memory.zeros(1, predicted)?,
            work: memory.buffer(sample::work_len(1) as usize, predicted)?,
            // Every launch leaves them at zero.
            tickets: memory.zeros(1, predicted)?,
            zeros,
            vocab: c.vocab,
            sizes: s,
        })
    }
}

impl Workspace {
    /// Bytes of device memory that it takes; `None`: more than a number holds.
    pub fn bytes(c: &Config, of: Extent, activations: Activations) -> Option<u64> {
        let measured = Measured::default();
        Workspace::new(&measured, c, of, activations).ok()?;
        Some(measured.bytes())
    }

    /// A number that no other workspace has or will have.
    pub fn id(&self) -> u64 {
        self.x.id()
    }

    /// Makes what launches rely on as it was at first: a launch that failed midway may have left it otherwise.
    pub fn restore(&mut self, stream: &Stream) -> Result<(), Error> {
        stream.fill(&mut self.counters, 0)?;
        stream.fill(&mut self.barrier, 0)?;
        stream.fill(&mut self.tickets, 0)?;
        self.quantized.restore(stream)
    }

    /// The experts of a column of the last step.
    pub fn routes_of(&self, stream: &Stream, column: usize, layers: usize) -> Result<Routes, Error> {
        self.experts.as_ref().map_or(Ok(Routes::new()), |experts| experts.routes(stream, column, layers))
    }

    /// The logits of one of the columns that got any.
    pub fn logits_of(&self, place: usize) -> &DeviceSlice<f32> {
        &self.logits[place * self.sizes.logits..][..self.vocab]
    }
}
