//! What tensors of Hugging Face's checkpoints are called, beside the names that GGUF files have.

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
}

/// A tensor of a layer: what its name in a checkpoint has behind `model.layers.N.`, and in a GGUF file behind `blk.N.`.
pub(super) type Row = (&'static str, &'static str, Read);

/// `{}` stands for the number of an expert.
const LAYER: &[Row] = &[
    ("input_layernorm.weight", "attn_norm.weight", Read::Norm),
    ("self_attn.q_proj.weight", "attn_q.weight", Read::Heads),
    ("self_attn.k_proj.weight", "attn_k.weight", Read::Heads),
    ("self_attn.v_proj.weight", "attn_v.weight", Read::Matrix),
    ("self_attn.qkv_proj.weight", "attn_qkv.weight", Read::Matrix),
    ("self_attn.q_proj.bias", "attn_q.bias", Read::HeadsBias),
    ("self_attn.k_proj.bias", "attn_k.bias", Read::HeadsBias),
    ("self_attn.v_proj.bias", "attn_v.bias", Read::Vector),
    ("self_attn.q_norm.weight", "attn_q_norm.weight", Read::Norm),
    ("self_attn.k_norm.weight", "attn_k_norm.weight", Read::Norm),
    ("self_attn.o_proj.weight", "attn_output.weight", Read::Matrix),
    ("mlp.gate_proj.weight", "ffn_gate.weight", Read::Matrix),
    ("mlp.up_proj.weight", "ffn_up.weight", Read::Matrix),
    ("mlp.gate_up_proj.weight", "ffn_up.weight", Read::Matrix),
    ("mlp.down_proj.weight", "ffn_down.weight", Read::Matrix),
    ("self_attn.dense.weight", "attn_output.weight", Read::Matrix),
    ("mlp.c_fc.weight", "ffn_up.weight", Read::Matrix),
    ("mlp.c_proj.weight", "ffn_down.weight", Read::Matrix),
    ("mlp.fc1.weight", "ffn_up.weight", Read::Matrix),
    ("mlp.fc2.weight", "ffn_down.weight", Read::Matrix),
    ("mlp.gate.weight", "ffn_gate_inp.weight", Read::Matrix),
    ("mlp.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", Read::Experts),
    ("mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight", Read::Experts),
    ("mlp.experts.{}.down_proj.weight", "ffn_down_exps.weight", Read::Experts),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias", Read::Vector),
    ("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", Read::Matrix),
    ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", Read::Matrix),
    ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", Read::Matrix),
    ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", Read::Matrix),
    ("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", Read::Matrix),
    ("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", Read::Matrix),
    ("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", Read::Matrix),
    ("block_sparse_moe.gate.weight", "ffn_gate_inp.weight", Read::Matrix),
    ("block_sparse_moe.experts.{}.w1.weight", "ffn_gate_exps.weight", Read::Experts),
    ("block_sparse_moe.experts.{}.w3.weight", "ffn_up_exps.weight", Read::Experts),
    ("block_sparse_moe.experts.{}.w2.weight", "ffn_down_exps.weight", Read::Experts),
];

/// The norm behind attention: of most architectures it stands before the feed-forward part.
const PLAIN_NORMS: &[Row] = &[(SECOND_NORM, "ffn_norm.weight", Read::Norm)];

/// The same of architectures whose files [call it so](Architecture::ffn_norm_behind).
const BEHIND: &[Row] = &[(SECOND_NORM, "post_attention_norm.weight", Read::Norm)];

/// The norms of architectures with [two norms](Architecture::post_norms) around each part.
const SANDWICH_NORMS: &[Row] = &[
    ("post_attention_layernorm.weight", "post_attention_norm.weight", Read::Norm),
    ("pre_feedforward_layernorm.weight", "ffn_norm.weight", Read::Norm),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight", Read::Norm),
];

/// The biases of norms, in families that have [such](Architecture::norm_biases).
const NORM_BIASES: &[Row] = &[
    ("input_layernorm.bias", "attn_norm.bias", Read::Vector),
    ("post_attention_layernorm.bias", "ffn_norm.bias", Read::Vector),
];

/// [Biases](Architecture::other_biases) that few families have; elsewhere some quantisers write zeros.
const OTHER_BIASES: &[Row] = &[
    ("self_attn.o_proj.bias", "attn_output.bias", Read::Vector),
    ("self_attn.dense.bias", "attn_output.bias", Read::Vector),
    ("mlp.c_fc.bias", "ffn_up.bias", Read::Vector),
    ("mlp.c_proj.bias", "ffn_down.bias", Read::Vector),
    ("mlp.fc1.bias", "ffn_up.bias", Read::Vector),
    ("mlp.fc2.bias", "ffn_down.bias", Read::Vector),
    ("mlp.up_proj.bias", "ffn_up.bias", Read::Vector),
    ("mlp.down_proj.bias", "ffn_down.bias", Read::Vector),
];

/// The norm behind all layers, and its bias.
const LAST_NORM: [&str; 2] = ["model.norm.weight", "model.norm.bias"];
const LAST_NORM_OF_PHI: [&str; 2] = ["model.final_layernorm.weight", "model.final_layernorm.bias"];

/// Tensors that are no part of a layer, all of which a checkpoint has. A tied head is left out by who asks.
pub(super) fn whole(architecture: Architecture) -> impl Iterator<Item = Row> {
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
    .filter_map(|(there, row)| there.then_some(row))
}

/// The norm before the feed-forward part of a layer, which of some families says by being there how the layer works.
pub(super) const SECOND_NORM: &str = "post_attention_layernorm.weight";

/// The output projection.
pub(super) const HEAD: &str = "lm_head.weight";

/// What a layer may have.
pub(super) fn of_layer(architecture: Architecture) -> impl Iterator<Item = Row> {
    let sandwich = architecture.post_norms() == Presence::Always;
    let norms = match architecture.ffn_norm_behind() {
        true => BEHIND,
        false if sandwich => SANDWICH_NORMS,
        false => PLAIN_NORMS,
    };
    let some = |presence, rows: &'static [Row]| if presence == Presence::Never { &[] } else { rows };
    let norm_biases = some(architecture.norm_biases(), NORM_BIASES);
    LAYER.iter().chain(norms).chain(norm_biases).chain(some(architecture.other_biases(), OTHER_BIASES)).copied()
}

/// Whether a tensor is of a layer behind the last of so many, which guesses further tokens.
pub(super) fn guesses(architecture: Architecture, layers: usize, name: &str) -> bool {
    let number = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
    architecture.guesses() && number.is_some_and(|n| n >= layers)
}

/// What may be left out: it says what follows from the configuration, or is for caches and activations of another kind.
pub(super) fn says_nothing(name: &str) -> bool {
    [".rotary_emb.inv_freq", ".k_scale", ".v_scale", ".input_scale", ".input_global_scale"]
        .iter()
        .any(|end| name.ends_with(end))
}
