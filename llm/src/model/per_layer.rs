//! What a model's numbers are of one layer.

use super::{Config, Experts};

impl Config {
    /// The experts of a layer; `None` where it is dense.
    #[must_use]
    pub fn experts_of(&self, layer: usize) -> Option<&Experts> {
        self.experts.as_ref().filter(|experts| experts.layers.has(layer))
    }

    /// Whether a layer's experts read a token times its weight.
    pub(crate) fn weighs_inputs(&self, layer: usize) -> bool {
        self.architecture.weighted_inputs() && self.experts_of(layer).is_some()
    }

    /// Width of the feed-forward part of layers without experts; 0, where all have them.
    #[must_use]
    pub fn dense_width(&self) -> usize {
        self.experts.map_or(self.feed_forward, |experts| experts.layers.dense)
    }

    /// Width of a layer's feed-forward part, or of an expert of it.
    #[must_use]
    pub fn feed_forward_of(&self, layer: usize) -> usize {
        if self.experts_of(layer).is_some() { self.feed_forward } else { self.dense_width() }
    }

    /// The numbers of a model whose layers are all as this one.
    pub(super) fn alike(&self, layer: usize) -> Config {
        let (experts, feed_forward) = (self.experts_of(layer).copied(), self.feed_forward_of(layer));
        Config { experts, feed_forward, ..self.clone() }
    }
}
