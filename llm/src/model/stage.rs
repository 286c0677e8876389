//! What each of several processes holds of a model whose layers they have divided among them: one after the other computes every token.
//!
//! | tensors | process that has them |
//! |---|---|
//! | embeddings of tokens and of positions | the first; a few rows, which nobody reads, are on those between |
//! | layers | as many for each, in order; one more for the first where they are no multiple |
//! | the last norm | all, as it takes the place of a norm behind a process's layers |
//! | head, its bias | the last |

use super::kinds::LayerKinds;
use super::{Config, ExpertLayers, Experts, ModelError, ModelFile};
use std::ops::Range;

/// The layers of one of the processes.
pub(crate) fn layers_of(layers: usize, rank: usize, ranks: usize) -> Range<usize> {
    let before = |rank: usize| rank * (layers / ranks) + rank.min(layers % ranks);
    before(rank)..before(rank + 1)
}

impl ModelFile {
    /// What process `rank` of `ranks` has: a file with these layers, and with the numbers of a model that has no others.
    ///
    /// # Errors
    /// [`ModelError::Stages`] for fewer layers than processes.
    pub fn stage(&self, rank: usize, ranks: usize) -> Result<ModelFile, ModelError> {
        let c = self.config();
        let refused = |reason: String| Err(ModelError::Stages { processes: ranks, reason });
        if ranks == 0 || ranks > c.layers {
            return refused(format!("each has a layer at least, and there are {}", c.layers));
        }
        if ranks == 1 {
            return Ok(self.clone());
        }
        let rank = rank.min(ranks - 1);
        let own = layers_of(c.layers, rank, ranks);
        let config = Config {
            layers: own.len(),
            kinds: LayerKinds { first: c.kinds.first + own.start, ..c.kinds },
            experts: c.experts.map(|e| {
                let layers = ExpertLayers { first: e.layers.first + own.start, ..e.layers };
                Experts { layers, ..e }
            }),
            ..c.clone()
        };
        // The only table of a process: embeddings of the first, the head of the last.
        let table = match rank {
            0 => self.embedding().clone(),
            last if last + 1 == ranks => self.output().clone(),
            _ => self.embedding().rows_of(1, 0..c.vocab.min(4)),
        };
        let head = 0..table.rows;
        Ok(self.with(config, self.layers()[own].to_vec(), (table, None), head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_one_process() {
        for (layers, ranks) in [(4, 2), (7, 3), (5, 5), (9, 4)] {
            let all: Vec<usize> = (0..ranks).flat_map(|rank| layers_of(layers, rank, ranks)).collect();
            assert_eq!(all, (0..layers).collect::<Vec<_>>());
            let counts: Vec<usize> = (0..ranks).map(|rank| layers_of(layers, rank, ranks).len()).collect();
            assert!(counts.iter().all(|n| (layers / ranks..=layers.div_ceil(ranks)).contains(n)), "{counts:?}");
        }
    }
}
