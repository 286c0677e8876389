//! The shape of a step: what its launches depend on.

use super::KvType;
use crate::model::Config;
use gpu_kernels::attention::prefill;
use gpu_kernels::layer::Layer;
use std::ops::Range;

/// What the launches of a step depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub columns: usize,
    pub kv: KvType,
    /// So many columns get logits: the last.
    pub logits: usize,
    /// So many of these get a token: the last.
    pub tokens: usize,
    /// Several columns may be of one sequence: all keys and values are stored before any column attends.
    pub shared: bool,
    /// Tiles of columns that attend by a kernel for prompts; 0: all attend by that of single steps.
    pub tiles: usize,
    /// Where there are tiles: so many columns attend as single steps, the last, but for those that are in tiles.
    pub steps: usize,
    /// Where sequences have states: so many runs of columns that may be of one; 0: as many as columns that are of one each, or two.
    pub runs: usize,
    /// Some of these runs are prompts that delta nets take in chunks, by two launches more.
    pub chunks: bool,
    /// Caches may be in pages, for which there are no launches of several layers.
    pub pages: bool,
    /// A column may draw its token, which takes two launches more than the best token.
    pub draws: bool,
}

impl Shape {
    const NONE: Shape = Shape {
        columns: 0,
        kv: KvType::F16,
        logits: 0,
        tokens: 0,
        shared: false,
        tiles: 0,
        steps: 0,
        runs: 0,
        chunks: false,
        pages: false,
        draws: false,
    };

    /// A token each of several sequences.
    pub fn decode(columns: usize, kv: KvType) -> Shape {
        Shape { columns, kv, logits: columns, tokens: columns, shared: false, ..Shape::NONE }
    }

    /// Several tokens of one sequence, the last of a prompt or those before; with logits of all of them, or of the last.
    pub fn prompt(columns: usize, kv: KvType, last: bool, logits: bool) -> Shape {
        let tokens = usize::from(last);
        Shape { columns, kv, logits: if logits { columns } else { tokens }, tokens, shared: true, ..Shape::NONE }
    }

    /// Any tokens of any sequences, of which the last are predicted from.
    pub fn mixed(columns: usize, kv: KvType, predicted: usize) -> Shape {
        Shape { columns, kv, logits: predicted, tokens: predicted, shared: true, ..Shape::NONE }
    }

    /// The shape with columns in tiles, and with single steps among those that are predicted from.
    #[must_use]
    pub fn tiled(self, tiles: usize, steps: bool) -> Shape {
        Shape { tiles, steps: if steps { self.logits } else { 0 }, ..self }
    }

    /// The shape of a step of so many sequences that have states, and with a run for columns of none.
    #[must_use]
    pub fn of_sequences(self, sequences: usize) -> Shape {
        Shape { runs: (sequences + 1).next_power_of_two(), ..self }
    }

    /// The shape with or without prompts in chunks.
    #[must_use]
    pub fn in_chunks(self, chunks: bool) -> Shape {
        Shape { chunks, ..self }
    }

    /// Runs of columns of one sequence.
    pub fn runs(&self) -> usize {
        // A prompt, and columns of no sequence.
        if self.shared { self.runs.max(2) } else { self.columns }
    }

    /// Most tiles of steps of so many columns.
    pub fn most_tiles(columns: usize) -> usize {
        tiles_class(columns + (2 * TILE).div_ceil(LEAST_ROWS))
    }

    /// The shape of the same launches with more columns, so that few graphs do for steps of every size; of not more than `most`
    /// columns, of which `most_logits` get logits. Its further columns lie before those that get logits, and before the first of them.
    #[must_use]
    pub fn padded(self, most: usize, most_logits: usize) -> Shape {
        let all = self.logits == self.columns;
        let logits = if all { self.logits } else { class(self.logits).min(most_logits) };
        let most = if all { most.min(most_logits) } else { most };
        let columns = class(self.columns - self.logits + logits).min(most);
        if columns < self.columns - self.logits + logits {
            return self;
        }
        let logits = if all { columns } else { logits };
        let tokens = if self.tokens == self.logits { logits } else { self.tokens };
        let padded = Shape { columns, logits, tokens, ..self };
        if self.tiles == 0 {
            return padded;
        }
        padded.tiled(tiles_class(self.tiles + (columns - self.columns).div_ceil(LEAST_ROWS)), self.steps > 0)
    }

    /// The columns that get logits.
    pub fn taken(&self) -> Range<usize> {
        self.columns - self.logits..self.columns
    }

    /// The columns that get a token: the last of those that get logits.
    pub fn sampled(&self) -> Range<usize> {
        self.columns - self.tokens..self.columns
    }
}

/// Up to so many columns every number is a class of its own; up to [`TILE`], their multiples.
const SMALL: usize = 8;
/// Columns of a tile of the products of many columns, which cost the same for fewer.
const TILE: usize = gpu_kernels::gemv::tensor::COLUMNS as usize;

/// Columns of a tile of the kernel for prompts, of the heads for which it has the fewest.
const LEAST_ROWS: usize = prefill::rows(gpu_kernels::attention::MAX_HEAD_DIM) as usize;

/// The number of tiles that so many are padded to.
fn tiles_class(tiles: usize) -> usize {
    if tiles <= SMALL { tiles.next_power_of_two() } else { tiles.next_multiple_of(SMALL) }
}

/// The number of columns that a step of so many is padded to.
fn class(columns: usize) -> usize {
    match columns {
        0..=SMALL => columns,
        _ if columns <= TILE => columns.next_multiple_of(SMALL),
        _ => columns.next_multiple_of(TILE),
    }
}

/// What kernels are told of any layer's heads; the index, the window, flags and tables are the step's.
pub(super) fn layer_of(c: &Config) -> Layer {
    Layer {
        index: 0,
        q_heads: c.heads as u32,
        kv_heads: c.kv_heads as u32,
        head_dim: c.head_dim as u32,
        n_rot: c.rope.dims as u32,
        context: 0,
        window: 0,
        flags: 0,
        eps: c.eps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_classes_hold_every_step() {
        let kv = KvType::F16;
        for most in [1, 7, 100, 512, 1024] {
            let mut classes = std::collections::HashSet::new();
            for columns in 1..=most {
                for logits in [0, 1, 2, 9, 63, columns].into_iter().filter(|&n| n <= columns) {
                    let most_logits = logits.max(70).min(most);
                    let step = Shape::mixed(columns, kv, logits);
                    let padded = step.padded(most, most_logits);
                    assert!(padded.columns >= columns && padded.columns <= most, "{step:?} {padded:?}");
                    assert!(padded.logits >= logits && padded.logits <= most_logits.max(logits), "{step:?} {padded:?}");
                    assert!(padded.columns - padded.logits >= columns - logits, "{step:?} {padded:?}");
                    assert_eq!(padded.tokens, padded.logits);
                    assert!(padded.columns <= columns + 2 * TILE);
                    if logits == 1 {
                        classes.insert(padded);
                    }
                }
                let last = Shape::prompt(columns, kv, true, true);
                let padded = last.padded(most, most);
                assert_eq!(
                    (padded.logits, padded.tokens),
                    (padded.columns, if last.logits == 1 { padded.logits } else { 1 })
                );
            }
            assert!(classes.len() <= 8 + 7 + 16, "{most}: {}", classes.len());
            for (columns, tiles) in (1..=most).flat_map(|n| [(n, 1), (n, n)]) {
                let padded = Shape::mixed(columns, kv, 1).tiled(tiles, true).padded(most, most);
                let none = (padded.columns - columns).div_ceil(LEAST_ROWS);
                assert!(padded.tiles >= tiles + none && padded.tiles <= Shape::most_tiles(most), "{padded:?}");
                assert_eq!(padded.steps, padded.logits);
            }
        }
    }
}
