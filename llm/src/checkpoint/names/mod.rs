//! What tensors of Hugging Face's checkpoints are called, beside the names that GGUF files have.

mod gpt;
mod layers;

use super::shards::Shards;
use super::views::Pick;
use crate::model::{Architecture, Presence};

/// How a tensor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A matrix, which may be quantised.
    Matrix,
    /// Queries or keys: heads whose halves are rotated in the checkpoint.
    Heads,
    /// The bias of such a matrix.
    HeadsBias,
    /// A vector.
    Vector,
    /// The weights of a norm.
    Norm,
    /// A matrix for each expert.
    Experts,
    /// These rows of the matrices of all experts, which one tensor holds, `[experts, inputs, outputs]`, or MXFP4 in one of blocks and one of
    /// scales, `[experts, outputs, ..]`.
    Joined(Pick),
    /// The same elements of the biases of all experts, `[experts, outputs]`.
    JoinedBias(Pick),
    /// A matrix that is stored with a row for each input.
    Transposed,
    /// Queries, keys and values, those of a head together.
    ByHead,
    /// The bias of such a matrix.
    ByHeadBias,
    /// Numbers of two dimensions.
    Table,
    /// A convolution over tokens, `[channels, 1, tokens]`.
    Convolution,
    /// The logarithms of numbers that are negated.
    Decay,
}

/// A tensor of a layer: what its name in a checkpoint has behind the layer's number, and in a GGUF file behind `blk.N.`.
pub(super) type Row = (&'static str, &'static str, Read);

/// The names of a checkpoint.
pub(super) struct Names {
    /// What stands before the number of a layer.
    pub layers: String,
    /// Tensors that are no part of a layer, all of which a checkpoint has. A tied head is left out by who asks.
    pub whole: Vec<(String, &'static str, Read)>,
    /// What a layer may have.
    pub of_layer: Vec<Row>,
    /// The output projection.
    pub head: &'static str,
}

impl Names {
    /// Those of a family, as this checkpoint has them.
    pub fn of(architecture: Architecture, shards: &Shards) -> Names {
        match architecture {
            Architecture::Gpt2 => gpt::second(shards),
            Architecture::GptNeoX => gpt::neox(),
            _ => Names {
                layers: "model.layers.".to_owned(),
                whole: whole(architecture),
                of_layer: of_layer(architecture),
                head: HEAD,
            },
        }
    }
}

/// The norm behind all layers, and its bias.
const LAST_NORM: [&str; 2] = ["model.norm.weight", "model.norm.bias"];
const LAST_NORM_OF_PHI: [&str; 2] = ["model.final_layernorm.weight", "model.final_layernorm.bias"];

/// Tensors that are no part of a layer.
fn whole(architecture: Architecture) -> Vec<(String, &'static str, Read)> {
    let [norm, bias] = if architecture == Architecture::Phi2 { LAST_NORM_OF_PHI } else { LAST_NORM };
    let there = |presence| presence == Presence::Always;
    [
        (true, ("model.embed_tokens.weight", "token_embd.weight", Read::Matrix)),
        (architecture.norm_weights(), (norm, "output_norm.weight", Read::Norm)),
        (there(architecture.norm_biases()), (bias, "output_norm.bias", Read::Vector)),
        (true, (HEAD, "output.weight", Read::Matrix)),
        (there(architecture.head_bias()), ("lm_head.bias", "output.bias", Read::Vector)),
    ]
    .into_iter()
    .filter(|(there, _)| *there)
    .map(|(_, (from, to, read))| (from.to_owned(), to, read))
    .collect()
}

/// The norm before the feed-forward part of a layer, which of some families says by being there how the layer works.
pub(super) const SECOND_NORM: &str = "post_attention_layernorm.weight";

/// The output projection of most families.
const HEAD: &str = "lm_head.weight";

/// What a layer may have.
fn of_layer(architecture: Architecture) -> Vec<Row> {
    let sandwich = architecture.post_norms() == Presence::Always;
    let norms = match architecture.ffn_norm_behind() {
        true => layers::BEHIND,
        false if sandwich => layers::SANDWICH_NORMS,
        false => layers::PLAIN_NORMS,
    };
    let some = |presence, rows: &'static [Row]| if presence == Presence::Never { &[] } else { rows };
    let own = match architecture {
        Architecture::GptOss => layers::GPT_OSS,
        Architecture::Qwen3Next => layers::DELTA_BY_KEY_HEAD,
        _ => &[],
    };
    let norm_biases = some(architecture.norm_biases(), layers::NORM_BIASES);
    let other_biases = some(architecture.other_biases(), layers::OTHER_BIASES);
    [layers::LAYER, norms, norm_biases, other_biases, own].concat()
}

/// Families whose norms multiply with one more than their weights.
pub(super) fn norms_with_one_more(architecture: Architecture) -> bool {
    use Architecture::{Gemma2, Gemma3, Nemotron, Qwen3Next};
    matches!(architecture, Gemma2 | Gemma3 | Nemotron | Qwen3Next)
}

/// Whether a tensor is of a layer behind the last of so many, which guesses further tokens.
pub(super) fn guesses(architecture: Architecture, layers: usize, name: &str) -> bool {
    let number = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
    let behind = architecture.guesses() && number.is_some_and(|n| n >= layers);
    behind || (architecture == Architecture::Qwen3Next && name.starts_with("mtp."))
}

/// What may be left out: it says what follows from the configuration, or is for caches and activations of another kind.
pub(super) fn says_nothing(architecture: Architecture, name: &str) -> bool {
    const OF_ALL: &[&str] = &[".rotary_emb.inv_freq", ".k_scale", ".v_scale", ".input_scale", ".input_global_scale"];
    // Triangles of ones, and what stands for minus infinity.
    let masks: &[&str] = match architecture {
        Architecture::Gpt2 => &[".attn.bias", ".attn.masked_bias"],
        Architecture::GptNeoX => &[".attention.bias", ".attention.masked_bias"],
        _ => &[],
    };
    OF_ALL.iter().chain(masks).any(|end| name.ends_with(end))
}
