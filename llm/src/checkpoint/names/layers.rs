//! The tensors of layers in the names that most families of Hugging Face have.

use super::super::views::Pick;
use super::{Read, Row, SECOND_NORM};

/// `{}` stands for the number of an expert.
pub(super) const LAYER: &[Row] = &[
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
pub(super) const PLAIN_NORMS: &[Row] = &[(SECOND_NORM, "ffn_norm.weight", Read::Norm)];

/// The same of architectures whose files [call it so](Architecture::ffn_norm_behind).
pub(super) const BEHIND: &[Row] = &[(SECOND_NORM, "post_attention_norm.weight", Read::Norm)];

/// The norms of architectures with [two norms](Architecture::post_norms) around each part.
pub(super) const SANDWICH_NORMS: &[Row] = &[
    ("post_attention_layernorm.weight", "post_attention_norm.weight", Read::Norm),
    ("pre_feedforward_layernorm.weight", "ffn_norm.weight", Read::Norm),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight", Read::Norm),
];

/// The biases of norms, in families that have [such](Architecture::norm_biases).
pub(super) const NORM_BIASES: &[Row] = &[
    ("input_layernorm.bias", "attn_norm.bias", Read::Vector),
    ("post_attention_layernorm.bias", "ffn_norm.bias", Read::Vector),
];

/// [Biases](Architecture::other_biases) that few families have; elsewhere some quantisers write zeros.
pub(super) const OTHER_BIASES: &[Row] = &[
    ("self_attn.o_proj.bias", "attn_output.bias", Read::Vector),
    ("self_attn.dense.bias", "attn_output.bias", Read::Vector),
    ("mlp.c_fc.bias", "ffn_up.bias", Read::Vector),
    ("mlp.c_proj.bias", "ffn_down.bias", Read::Vector),
    ("mlp.fc1.bias", "ffn_up.bias", Read::Vector),
    ("mlp.fc2.bias", "ffn_down.bias", Read::Vector),
    ("mlp.up_proj.bias", "ffn_up.bias", Read::Vector),
    ("mlp.down_proj.bias", "ffn_down.bias", Read::Vector),
];

/// What layers of gpt-oss have that are stored otherwise than those of others: gates and ups of all experts in turn.
pub(super) const GPT_OSS: &[Row] = &[
    ("self_attn.sinks", "attn_sinks.weight", Read::Vector),
    ("mlp.router.weight", "ffn_gate_inp.weight", Read::Matrix),
    ("mlp.router.bias", "ffn_gate_inp.bias", Read::Vector),
    ("mlp.experts.gate_up_proj", "ffn_gate_exps.weight", Read::Joined(Pick::Even)),
    ("mlp.experts.gate_up_proj", "ffn_up_exps.weight", Read::Joined(Pick::Odd)),
    ("mlp.experts.down_proj", "ffn_down_exps.weight", Read::Joined(Pick::All)),
    ("mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", Read::JoinedBias(Pick::Even)),
    ("mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", Read::JoinedBias(Pick::Odd)),
    ("mlp.experts.down_proj_bias", "ffn_down_exps.bias", Read::JoinedBias(Pick::All)),
];

/// Gated delta nets of Qwen3-Next, whose queries, keys, values and gates of a key head lie together, as in GGUF files of 2025.
pub(super) const DELTA_BY_KEY_HEAD: &[Row] = &[
    ("linear_attn.in_proj_qkvz.weight", "ssm_in.weight", Read::Matrix),
    ("linear_attn.in_proj_ba.weight", "ssm_ba.weight", Read::Matrix),
    ("linear_attn.conv1d.weight", "ssm_conv1d.weight", Read::Convolution),
    ("linear_attn.A_log", "ssm_a", Read::Decay),
    ("linear_attn.dt_bias", "ssm_dt.bias", Read::Vector),
    // Not among those that multiply with one more.
    ("linear_attn.norm.weight", "ssm_norm.weight", Read::Vector),
    ("linear_attn.out_proj.weight", "ssm_out.weight", Read::Matrix),
];
