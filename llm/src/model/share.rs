//! What each of several devices holds of a model that they run together.
//!
//! | tensors | share of a device |
//! |---|---|
//! | queries, keys, values, their biases, sinks | rows of its heads; a key head has as many devices as there are too few of them |
//! | what delta nets project, their convolution and vectors of heads | rows of its [heads](super::delta_heads) |
//! | gate, up, their biases | its rows; of every expert |
//! | the output of attention and of delta nets, down | the columns that belong to these; biases on the first device alone, as the devices' results are added up |
//! | head, its bias | its rows of the vocabulary |
//! | embeddings of tokens and of positions, norms, routers | all of it |
//!
//! A column of a matrix is in a block with others, so that shares begin at blocks. Where the [columns](Matrix::columns) of a matrix are in another
//! order than what they are multiplied with, a share of them is of parts of groups, and F16.

use super::{Config, DeltaHeads, ExpertLayers, Experts, LayerTensors, Matrix, ModelError, ModelFile, Pieces};
use gpu_kernels::delta::KERNEL;
use std::ops::Range;

/// Devices at most.
pub const MOST_DEVICES: usize = 16;

/// One of the devices.
#[derive(Clone, Copy)]
struct Share<'a> {
    config: &'a Config,
    rank: usize,
    ranks: usize,
}

impl Share<'_> {
    /// Its part of so many elements, which fall into as many equal parts as there are devices.
    fn part(&self, of: usize) -> Range<usize> {
        let each = of / self.ranks;
        self.rank * each..(self.rank + 1) * each
    }

    /// Its key heads.
    fn kv_heads(&self) -> Range<usize> {
        let all = self.config.kv_heads;
        let (first, each) = (self.rank * all / self.ranks, all.div_ceil(self.ranks));
        first..first + each
    }

    /// Rows of its query heads, and of its key heads.
    fn rows(&self) -> [Range<usize>; 2] {
        let dim = self.config.head_dim;
        [self.part(self.config.heads), self.kv_heads()].map(|heads| heads.start * dim..heads.end * dim)
    }

    /// Its heads of delta nets.
    fn delta(&self) -> Option<DeltaHeads> {
        self.config.delta_heads(self.rank, self.ranks)
    }

    /// Its rows of the vocabulary: as many for each, but fewer for the last.
    fn head(&self) -> Range<usize> {
        let (vocab, each) = (self.config.vocab, head_rows(self.config, self.ranks));
        (self.rank * each).min(vocab)..((self.rank + 1) * each).min(vocab)
    }

    /// The model's numbers as those of one of its devices.
    fn config(&self) -> Config {
        let (c, ranks) = (self.config, self.ranks);
        Config {
            heads: c.heads / ranks,
            kv_heads: self.kv_heads().len(),
            feed_forward: c.feed_forward / ranks,
            delta: self.delta().zip(c.delta.as_ref()).map(|(heads, net)| heads.net(net)),
            experts: c.experts.map(|e| Experts {
                shared: e.shared.map(|width| width / ranks),
                layers: ExpertLayers { dense: e.layers.dense / ranks, ..e.layers },
                ..e
            }),
            ..c.clone()
        }
    }

    /// Biases of what the devices add up: the first has them.
    fn once(&self, bias: &Option<Vec<f32>>) -> Option<Vec<f32>> {
        bias.clone().filter(|_| self.rank == 0)
    }

    fn layer(&self, l: &LayerTensors) -> LayerTensors {
        let c = self.config;
        let [q, kv] = self.rows();
        let count = c.experts.filter(|_| l.router.is_some()).map_or(1, |e| e.count);
        let width = l.up.rows / count;
        let inner = self.part(width);
        let shared = self.part(c.experts.and_then(|e| e.shared).unwrap_or(0));
        let parts = |all: &Option<Vec<f32>>, ranges: &[Range<usize>]| {
            all.as_ref().map(|all| Pieces::of(ranges.iter().cloned()).gather(all))
        };
        let rows = |m: &Option<Matrix>, rows: &Range<usize>| m.as_ref().map(|m| m.rows_of(1, rows.clone()));
        let (q_dim, kv_dim) = (c.q_dim(), c.kv_dim());
        let behind = |at: usize| kv.start + at..kv.end + at;
        let of_experts: Vec<Range<usize>> =
            (0..count).map(|i| inner.start + i * width..inner.end + i * width).collect();
        // With gates, a head has as many rows of these behind those of its queries.
        let of_head = l.q.as_ref().map_or(0, |m| m.rows / c.heads);
        let q_rows = self.part(c.heads);
        let q_rows = q_rows.start * of_head..q_rows.end * of_head;
        self.delta_layer(LayerTensors {
            qkv_bias: parts(&l.qkv_bias, &[q.clone(), behind(q_dim), behind(q_dim + kv_dim)]),
            q: rows(&l.q, &q_rows),
            k: rows(&l.k, &kv),
            v: rows(&l.v, &kv),
            sinks: parts(&l.sinks, &[self.part(c.heads)]),
            attn_output: if l.delta_conv.is_some() {
                l.attn_output.clone()
            } else {
                l.attn_output.cols_in(&Pieces::one(q))
            },
            attn_output_bias: self.once(&l.attn_output_bias),
            shared_gate: rows(&l.shared_gate, &shared),
            shared_up: rows(&l.shared_up, &shared),
            shared_down: l.shared_down.as_ref().map(|m| m.cols_in(&Pieces::one(shared))),
            gate: l.gate.as_ref().map(|m| m.rows_of(count, inner.clone())),
            up: l.up.rows_of(count, inner.clone()),
            gate_bias: parts(&l.gate_bias, &of_experts),
            up_bias: parts(&l.up_bias, &of_experts),
            down: l.down.cols_in(&Pieces::one(inner)),
            down_bias: self.once(&l.down_bias),
            ..l.clone()
        })
    }

    /// The same with what a delta net has for its heads, where the layer is one.
    fn delta_layer(&self, l: LayerTensors) -> LayerTensors {
        let Some(heads) = self.delta().filter(|_| l.delta_conv.is_some()) else { return l };
        let (keys, values, each) = (heads.keys(), heads.values(), heads.value_heads());
        let rows = |m: &Option<Matrix>, rows: &Pieces| m.as_ref().map(|m| m.rows_in(rows));
        let of = |all: &Option<Vec<f32>>, pieces: &Pieces| all.as_ref().map(|all| pieces.gather(all));
        LayerTensors {
            delta_q: rows(&l.delta_q, &keys),
            delta_k: rows(&l.delta_k, &keys),
            delta_v: rows(&l.delta_v, &values),
            delta_gate: rows(&l.delta_gate, &values),
            delta_beta: rows(&l.delta_beta, each),
            delta_alpha: rows(&l.delta_alpha, each),
            delta_conv: of(&l.delta_conv, &heads.channels().times(KERNEL as usize)),
            delta_dt: of(&l.delta_dt, each),
            delta_a: of(&l.delta_a, each),
            attn_output: l.attn_output.cols_in(&values),
            ..l
        }
    }
}

/// Rows of the vocabulary that a device multiplies with: whole vectors of four.
pub(crate) fn head_rows(c: &Config, ranks: usize) -> usize {
    c.vocab.div_ceil(ranks).next_multiple_of(4)
}

impl ModelFile {
    /// The share of device `rank` of `ranks`: a file with these parts of the matrices and vectors, and with the numbers of a model that
    /// has no others. What is read are the bytes of the share alone.
    ///
    /// # Errors
    /// [`ModelError::Share`], which says among how many devices the model can be divided.
    pub fn share(&self, rank: usize, ranks: usize) -> Result<ModelFile, ModelError> {
        self.check_share(ranks)?;
        if ranks == 1 {
            return Ok(self.clone());
        }
        let share = Share { config: self.config(), rank: rank.min(ranks - 1), ranks };
        let layers = self.layers().iter().map(|l| share.layer(l)).collect();
        let output = (!self.tied()).then(|| self.output().rows_of(1, share.head()));
        Ok(self.with(share.config(), layers, (self.embedding().clone(), output), share.head()))
    }

    /// Whether the model can be divided among so many devices.
    ///
    /// # Errors
    /// [`ModelError::Share`].
    pub fn check_share(&self, ranks: usize) -> Result<(), ModelError> {
        let Err(reason) = self.divides(ranks) else { return Ok(()) };
        let fits = (1..=MOST_DEVICES).filter(|&ranks| self.divides(ranks).is_ok()).collect();
        Err(ModelError::Share { devices: ranks, reason, fits })
    }

    /// Why it cannot be divided.
    fn divides(&self, ranks: usize) -> Result<(), String> {
        let c = self.config();
        if ranks == 1 {
            return Ok(());
        }
        if ranks == 0 || ranks > MOST_DEVICES {
            return Err(format!("there can be 1 to {MOST_DEVICES}"));
        }
        let shared = c.experts.and_then(|e| e.shared).unwrap_or(0);
        let counted = [
            (c.heads, "query heads"),
            (c.feed_forward, "rows of the feed-forward part"),
            (c.dense_width(), "rows of the feed-forward part of layers without experts"),
            (shared, "rows of the shared expert"),
        ];
        if let Some((count, what)) = counted.into_iter().find(|(count, _)| !count.is_multiple_of(ranks)) {
            return Err(format!("{count} {what} are no multiple of {ranks}"));
        }
        if !c.kv_heads.is_multiple_of(ranks) && !ranks.is_multiple_of(c.kv_heads) {
            return Err(format!("{} key heads and {ranks} devices: neither is a multiple of the other", c.kv_heads));
        }
        if !c.hidden.is_multiple_of(4) {
            return Err(format!("a residual stream of {} elements is no multiple of 4", c.hidden));
        }
        if c.vocab <= (ranks - 1) * head_rows(c, ranks) {
            return Err(format!("{} tokens are too few for a part of the head on each", c.vocab));
        }
        let delta = c.delta.as_ref().map(|net| DeltaHeads::of(net, 0, ranks)).transpose()?;
        self.layers().iter().try_for_each(|l| blocks_are_whole(l, delta.as_ref(), ranks))
    }
}

/// Why columns of a layer cannot be divided, if some devices had parts of blocks.
fn blocks_are_whole(l: &LayerTensors, delta: Option<&DeltaHeads>, ranks: usize) -> Result<(), String> {
    for m in [Some(&l.attn_output), Some(&l.down), l.shared_down.as_ref()].into_iter().flatten() {
        let (cols, block) = (m.cols / ranks, m.format_in_columns().block_elems());
        if !cols.is_multiple_of(block) {
            let (name, format, all) = (&m.name, m.format.name(), m.cols);
            let each = "columns a device, no multiple of the";
            return Err(format!("`{name}` has {all} columns, so {cols} {each} {block} of a block of {format}"));
        }
    }
    let (m, values) = (&l.attn_output, delta.filter(|_| l.delta_conv.is_some()).map(DeltaHeads::values));
    let block = m.format_in_columns().block_elems();
    // Those of a device may lie between those of others.
    match values.into_iter().flat_map(|v| v.ranges().collect::<Vec<_>>()).find(|r| !r.len().is_multiple_of(block)) {
        None => Ok(()),
        Some(range) => {
            let (name, format, cols) = (&m.name, m.format.name(), range.len());
            let each = "columns side by side a device, no multiple of the";
            Err(format!("`{name}` has {cols} {each} {block} of a block of {format}"))
        }
    }
}
