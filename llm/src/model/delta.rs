//! Gated delta nets in place of attention in some layers: what the keys `ssm.*` say, and which layers they are.

use super::keys::Keys;
use super::{Architecture, Config, DeltaLayout, ModelError};
use crate::gguf::Value;
use gpu_kernels::delta::KERNEL;

/// The layers whose past is a state and not a cache. See [`gpu_kernels::delta`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaNets {
    /// Heads of queries, and of keys (`ssm.group_count`).
    pub key_heads: usize,
    /// Heads of values, and of states (`ssm.time_step_rank`); a multiple of `key_heads`.
    pub value_heads: usize,
    /// So many heads of values side by side have one key head.
    pub together: usize,
    /// Elements of a head, of all kinds (`ssm.state_size`).
    pub dim: usize,
    /// Which layers they are.
    pub layers: Recurrent,
}

/// Which layers are delta nets; the others attend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recurrent {
    /// All but the last of so many (`full_attention_interval`).
    AllBut(usize),
    /// Those for which this says so (`attention.recurrent_layers`).
    Listed(Vec<bool>),
}

impl Recurrent {
    /// Whether a layer, counted from 0, is one.
    #[must_use]
    pub fn has(&self, layer: usize) -> bool {
        match self {
            Recurrent::AllBut(count) => !(layer + 1).is_multiple_of(*count),
            Recurrent::Listed(all) => all.get(layer).copied().unwrap_or(false),
        }
    }
}

impl DeltaNets {
    /// Elements of all values.
    #[must_use]
    pub fn values(&self) -> usize {
        self.value_heads * self.dim
    }

    /// Elements of all queries, and of all keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.key_heads * self.dim
    }

    /// Heads of values that have one key head.
    #[must_use]
    pub fn group(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// Elements of all queries, keys and values, which are convolved.
    #[must_use]
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Those of a file of so many layers, if the architecture has any.
    pub(super) fn read(
        keys: &Keys<'_>,
        architecture: Architecture,
        layers: usize,
    ) -> Result<Option<DeltaNets>, ModelError> {
        let Some(layout) = architecture.delta_nets() else { return Ok(None) };
        let kernel = keys.count("ssm.conv_kernel")?;
        if kernel != KERNEL as usize {
            return Err(keys.wrong(
                "ssm.conv_kernel",
                kernel,
                format!("only convolutions over {KERNEL} tokens are implemented"),
            ));
        }
        let [key_heads, value_heads, dim] =
            ["ssm.group_count", "ssm.time_step_rank", "ssm.state_size"].map(|key| keys.count(key));
        let (key_heads, value_heads, dim) = (key_heads?, value_heads?, dim?);
        if !value_heads.is_multiple_of(key_heads) {
            let reason = format!("expected a multiple of the {key_heads} key heads (ssm.group_count)");
            return Err(keys.wrong("ssm.time_step_rank", value_heads, reason));
        }
        // As there are no more key heads than value heads, twice four times as many is more than any sum of widths.
        let widest = value_heads.checked_mul(dim).and_then(|n| n.checked_mul(8)).filter(|n| u32::try_from(*n).is_ok());
        if widest.is_none() {
            return Err(keys.wrong(
                "ssm.time_step_rank",
                value_heads,
                format!("heads of {dim} elements are more than 2^32"),
            ));
        }
        let inner = keys.count("ssm.inner_size")?;
        if inner != value_heads * dim {
            let reason = format!("expected {}: values of another width than keys are not supported", value_heads * dim);
            return Err(keys.wrong("ssm.inner_size", inner, reason));
        }
        let together = match layout {
            DeltaLayout::InTurn => 1,
            DeltaLayout::ByKeyHead => value_heads / key_heads,
        };
        Ok(Some(DeltaNets { key_heads, value_heads, together, dim, layers: kinds(keys, layers)? }))
    }
}

/// Whether each layer is a delta net: by a list, or all but the last of so many.
fn kinds(keys: &Keys<'_>, layers: usize) -> Result<Recurrent, ModelError> {
    let (list, interval) = ("attention.recurrent_layers", "full_attention_interval");
    let Some(value) = keys.file.get(&keys.name(list)) else {
        return Ok(Recurrent::AllBut(keys.count_or(interval, 4)?));
    };
    let kinds: Option<Vec<bool>> = match value {
        Value::Array(all) => all
            .iter()
            .take(layers)
            .map(|one| match one {
                Value::Bool(kind) => Some(kind),
                other => other.as_u64().filter(|n| *n < 2).map(|n| n == 1),
            })
            .collect(),
        _ => None,
    };
    let kinds = kinds.filter(|kinds| kinds.len() == layers);
    kinds
        .map(Recurrent::Listed)
        .ok_or_else(|| keys.wrong(list, value.describe(), format!("expected a bool for each of the {layers} layers")))
}

/// Layers of the model, without those behind them that guess further tokens.
pub(super) fn own_layers(keys: &Keys<'_>, architecture: Architecture, all: usize) -> Result<usize, ModelError> {
    let key = "nextn_predict_layers";
    let guessing = if architecture.guesses() { keys.file.u32(&keys.name(key))?.unwrap_or(0) as usize } else { 0 };
    match all.checked_sub(guessing) {
        Some(own) if own > 0 => Ok(own),
        _ => Err(keys.wrong(key, guessing, format!("expected fewer than the {all} layers (block_count)"))),
    }
}

impl Config {
    /// Whether a layer's past is a state, and not a cache.
    #[must_use]
    pub fn is_recurrent(&self, layer: usize) -> bool {
        self.delta.as_ref().is_some_and(|delta| delta.layers.has(self.kinds.first + layer))
    }

    /// Layers whose past is a state.
    #[must_use]
    pub fn recurrent_layers(&self) -> usize {
        (0..self.layers).filter(|layer| self.is_recurrent(*layer)).count()
    }

    /// The number of a layer among those of its kind: where its state is, or its cache.
    #[must_use]
    pub fn place_of(&self, layer: usize) -> usize {
        match self.delta {
            None => layer,
            Some(_) => (0..layer).filter(|other| self.is_recurrent(*other) == self.is_recurrent(layer)).count(),
        }
    }

    /// Width of the gates that are projected with the queries; 0: there are none.
    #[must_use]
    pub fn gate_dim(&self) -> usize {
        if self.architecture.gated_heads() { self.q_dim() } else { 0 }
    }
}
