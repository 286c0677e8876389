//! The shape of a step: what its launches depend on.

use super::KvType;
use crate::model::Config;
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
    /// The columns are consecutive tokens of one sequence, and attend by the kernel that is made for that.
    pub fast: bool,
    /// Caches may be in pages, for which there are no launches of several layers.
    pub pages: bool,
}

impl Shape {
    /// A token each of several sequences.
    pub fn decode(columns: usize, kv: KvType) -> Shape {
        Shape { columns, kv, logits: columns, tokens: columns, shared: false, fast: false, pages: false }
    }

    /// Several tokens of one sequence, the last of a prompt or those before; with logits of all of them, or of the last.
    pub fn prompt(columns: usize, kv: KvType, last: bool, logits: bool, fast: bool) -> Shape {
        let tokens = usize::from(last);
        Shape { columns, kv, logits: if logits { columns } else { tokens }, tokens, shared: true, fast, pages: false }
    }

    /// Any tokens of any sequences, of which the last are predicted from.
    pub fn mixed(columns: usize, kv: KvType, predicted: usize) -> Shape {
        Shape { columns, kv, logits: predicted, tokens: predicted, shared: true, fast: false, pages: false }
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
        Shape { columns, logits, tokens, ..self }
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

/// The number of columns that a step of so many is padded to.
fn class(columns: usize) -> usize {
    match columns {
        0..=SMALL => columns,
        _ if columns <= TILE => columns.next_multiple_of(SMALL),
        _ => columns.next_multiple_of(TILE),
    }
}

/// What kernels are told of a layer's heads; the index, flags and tables are the step's.
pub(super) fn layer_of(c: &Config) -> Layer {
    Layer {
        index: 0,
        q_heads: c.heads as u32,
        kv_heads: c.kv_heads as u32,
        head_dim: c.head_dim as u32,
        n_rot: c.rope.dims as u32,
        context: 0,
        window: c.window as u32,
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
                let last = Shape::prompt(columns, kv, true, true, false);
                let padded = last.padded(most, most);
                assert_eq!(
                    (padded.logits, padded.tokens),
                    (padded.columns, if last.logits == 1 { padded.logits } else { 1 })
                );
            }
            assert!(classes.len() <= 8 + 7 + 16, "{most}: {}", classes.len());
        }
    }
}
