//! The shape of a step: what its launches depend on.

use super::KvType;
use crate::model::Config;
use gpu_kernels::layer::Layer;
use std::ops::Range;

/// Which columns get logits and a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Take {
    /// None: a part of a prompt whose prediction nobody reads.
    None,
    /// The last.
    Last,
    /// All.
    All,
    /// Logits of all, and no token: a part of a prompt.
    Logits,
    /// Logits of all, and the token after the last: the end of a prompt.
    LogitsAndLast,
}

/// What the launches of a step depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub columns: usize,
    pub kv: KvType,
    pub take: Take,
    /// The columns are consecutive tokens of one sequence.
    pub prompt: bool,
    /// A prompt attends by the kernel that is made for prompts.
    pub fast: bool,
}

impl Shape {
    /// A token each of several sequences.
    pub fn decode(columns: usize, kv: KvType) -> Shape {
        Shape { columns, kv, take: Take::All, prompt: false, fast: false }
    }

    /// Several tokens of one sequence, the last of a prompt or those before; with logits of all of them, or of the last.
    pub fn prompt(columns: usize, kv: KvType, last: bool, logits: bool, fast: bool) -> Shape {
        let take = match (last, logits) {
            (false, false) => Take::None,
            (true, false) => Take::Last,
            (false, true) => Take::Logits,
            (true, true) => Take::LogitsAndLast,
        };
        Shape { columns, kv, take, prompt: true, fast }
    }

    /// The columns that get logits.
    pub fn taken(&self) -> Range<usize> {
        match self.take {
            Take::None => 0..0,
            Take::Last => self.columns - 1..self.columns,
            Take::All | Take::Logits | Take::LogitsAndLast => 0..self.columns,
        }
    }

    /// The columns that get a token: the last of those that get logits.
    pub fn sampled(&self) -> Range<usize> {
        match self.take {
            Take::None | Take::Logits => 0..0,
            Take::Last | Take::LogitsAndLast => self.columns - 1..self.columns,
            Take::All => 0..self.columns,
        }
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
