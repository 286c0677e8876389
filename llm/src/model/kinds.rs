//! What layers of a model do otherwise than its other layers.

use super::{Config, Rope};

/// Which layers differ from the others, and in what: of so many layers always the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerKinds {
    /// Layers of the model before the first of these, where they are [not all](super::ModelFile::stage).
    pub first: usize,
    /// Layers of which the last attends to all positions, where the others have the window; 0: all have it.
    pub windowless: usize,
    /// Layers of which the last does not rotate queries and keys (NoPE: Kazemnejad et al., arXiv 2305.19466); 0: all rotate.
    pub unrotated: usize,
    /// How the layers with the window rotate, if not as [`Config::rope`] says.
    pub local_rope: Option<Rope>,
}

/// Whether a layer, counted from 0, is the last of `count`.
fn last_of(count: usize, layer: usize) -> bool {
    count > 0 && layer % count == count - 1
}

impl Config {
    /// Positions that a token attends to in a layer, its own among them; 0: all before it.
    pub fn window_of(&self, layer: usize) -> usize {
        if last_of(self.kinds.windowless, self.kinds.first + layer) { 0 } else { self.window }
    }

    /// How a layer rotates queries and keys; `None`: not at all.
    pub fn rope_of(&self, layer: usize) -> Option<&Rope> {
        let (kinds, layer) = (&self.kinds, self.kinds.first + layer);
        if last_of(kinds.unrotated, layer) {
            return None;
        }
        let local = kinds.local_rope.as_ref().filter(|_| !last_of(kinds.windowless, layer));
        Some(local.unwrap_or(&self.rope))
    }

    /// Positions that any layer attends to at most, the token's own among them; 0: all before it.
    pub fn reach(&self) -> usize {
        let windowless = (0..self.layers).any(|layer| self.window_of(layer) == 0);
        if windowless { 0 } else { self.window }
    }
}
