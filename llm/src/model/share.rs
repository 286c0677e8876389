//! What each of several devices holds of a model that they run together.
//!
//! | tensors | share of a device |
//! |---|---|
//! | queries, keys, values, their biases, sinks | rows of its heads; a key head has as many devices as there are too few of them |
//! | gate, up, their biases | its rows; of every expert |
//! | attention's output, down | the columns that belong to these; biases on the first device alone, as the devices' results are added up |
//! | head, its bias | its rows of the vocabulary |
//! | embeddings of tokens and of positions, norms, routers | all of it |
//!
//! A column of a matrix is in a block with others, so that shares begin at blocks.

use super::Cut;
use super::{Config, ExpertLayers, Experts, LayerTensors, Matrix, ModelError, ModelFile};
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
            let all = all.as_ref()?;
            Some(ranges.iter().flat_map(|range| all.get(range.clone()).unwrap_or_default()).copied().collect())
        };
        let rows = |m: &Option<Matrix>, rows: &Range<usize>| m.as_ref().map(|m| m.rows_of(1, rows.clone()));
        let (q_dim, kv_dim) = (c.q_dim(), c.kv_dim());
        let behind = |at: usize| kv.start + at..kv.end + at;
        let of_experts: Vec<Range<usize>> =
            (0..count).map(|i| inner.start + i * width..inner.end + i * width).collect();
        LayerTensors {
            qkv_bias: parts(&l.qkv_bias, &[q.clone(), behind(q_dim), behind(q_dim + kv_dim)]),
            q: rows(&l.q, &q),
            k: rows(&l.k, &kv),
            v: rows(&l.v, &kv),
            sinks: parts(&l.sinks, &[self.part(c.heads)]),
            attn_output: l.attn_output.cols_of(q),
            attn_output_bias: self.once(&l.attn_output_bias),
            shared_gate: rows(&l.shared_gate, &shared),
            shared_up: rows(&l.shared_up, &shared),
            shared_down: l.shared_down.as_ref().map(|m| m.cols_of(shared)),
            gate: l.gate.as_ref().map(|m| m.rows_of(count, inner.clone())),
            up: l.up.rows_of(count, inner.clone()),
            gate_bias: parts(&l.gate_bias, &of_experts),
            up_bias: parts(&l.up_bias, &of_experts),
            down: l.down.cols_of(inner),
            down_bias: self.once(&l.down_bias),
            ..l.clone()
        }
    }
}

/// Rows of the vocabulary that a device multiplies with: whole vectors of four.
pub(crate) fn head_rows(c: &Config, ranks: usize) -> usize {
    c.vocab.div_ceil(ranks).next_multiple_of(4)
}

impl Matrix {
    /// These rows of each of `count` matrices that lie one behind the other; they may be rows of each of so many themselves.
    pub(super) fn rows_of(&self, count: usize, rows: Range<usize>) -> Matrix {
        let each = self.rows / count;
        let (group, before) = match &self.cut {
            Some(cut) if cut.rows.len() == each => (cut.group, cut.rows.start),
            _ => (each, 0),
        };
        let of_group = before + rows.start..before + rows.end;
        let cut = Cut { group, rows: of_group, cols: self.cols, first_col: 0 };
        Matrix { rows: count * rows.len(), cut: Some(cut), ..self.clone() }
    }

    /// These columns of all rows.
    fn cols_of(&self, cols: Range<usize>) -> Matrix {
        let cut = Cut { group: self.rows, rows: 0..self.rows, cols: self.cols, first_col: cols.start };
        Matrix { cols: cols.len(), cut: Some(cut), ..self.clone() }
    }
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
        if c.delta.is_some() {
            return Err("layers that are gated delta nets run on one device".into());
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
        for l in self.layers() {
            for m in [Some(&l.attn_output), Some(&l.down), l.shared_down.as_ref()].into_iter().flatten() {
                let (cols, block) = (m.cols / ranks, m.format.block_elems());
                if !cols.is_multiple_of(block) {
                    let (name, format, all) = (&m.name, m.format.name(), m.cols);
                    let each = "columns a device, no multiple of the";
                    return Err(format!("`{name}` has {all} columns, so {cols} {each} {block} of a block of {format}"));
                }
            }
        }
        Ok(())
    }
}
