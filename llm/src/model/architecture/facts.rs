//! What families have that not all have, and what several of them share.

use super::super::{Gating, RopeStyle};
use super::{DeltaLayout, Presence, SharedExpert};
use gpu_kernels::{activation::Activation, elementwise::Glu};

/// What not all architectures have, or have alike.
pub(super) struct Facts {
    /// Its name in `general.architecture`.
    pub(super) name: &'static str,
    pub(super) qkv_biases: Presence,
    /// Of attention's output, of routers and of the matrices of the feed-forward part.
    pub(super) other_biases: Presence,
    /// Of the output projection.
    pub(super) head_bias: Presence,
    /// Norms subtract the mean.
    pub(super) layer_norm: bool,
    /// What norms multiply with is in the file.
    pub(super) norm_weights: bool,
    /// Of norms of the residual stream.
    pub(super) norm_biases: Presence,
    /// Attention and feed-forward part read one norm; optional: in layers that have no second one.
    pub(super) one_norm: Presence,
    /// A file says whether the feed-forward part reads what attention reads.
    pub(super) says_parallel: bool,
    /// It does.
    pub(super) parallel: bool,
    /// Attention may have a norm of its own.
    pub(super) second_attention_norm: bool,
    pub(super) head_norms: Presence,
    /// They come behind RoPE.
    pub(super) norms_behind_rope: bool,
    /// Heads that rotate are normed without weights, but not in models of so many experts.
    pub(super) unit_heads: Option<usize>,
    /// Most layers attend to chunks of so many positions.
    pub(super) chunk: Option<usize>,
    /// Experts read a token times its weight.
    pub(super) weighted_inputs: bool,
    /// Each query head has a score that takes a share of its softmax.
    pub(super) sinks: Presence,
    pub(super) experts: Presence,
    /// The weights of experts that are chosen add up to one, where a file does not say.
    pub(super) normalised: bool,
    /// What their weights are made of, where a file does not say.
    pub(super) gating: Gating,
    /// Of experts, added where they are chosen.
    pub(super) choice_biases: Presence,
    pub(super) shared_expert: SharedExpert,
    /// A file may have layers without experts: the first ones, or all but every so manieth.
    pub(super) dense_layers: bool,
    /// A file may have layers behind the model's own, which guess further tokens.
    pub(super) guesses: bool,
    pub(super) rope: RopeStyle,
    /// Heads are as wide as what rotates of them, where a file does not say how wide they are.
    pub(super) rotated_heads: bool,
    /// One tensor holds queries, keys and values.
    pub(super) fused_qkv: Presence,
    /// One tensor holds gates and ups.
    pub(super) fused_gates: bool,
    /// Embeddings of positions are added to those of tokens.
    pub(super) learned_positions: bool,
    /// RoPE's angles are divided by one of two lists of factors.
    pub(super) longrope: bool,
    /// Layers of which the last does not rotate queries and keys; 0: all rotate.
    pub(super) unrotated: usize,
    /// Layers of which the last attends to all positions, where the others have the window; 0: all have it.
    pub(super) windowless: usize,
    /// RoPE base of the layers with the window, if not that of the others.
    pub(super) local_base: Option<f32>,
    /// What attention and feed-forward part give is normed before it is added.
    pub(super) post_norms: Presence,
    /// The norm before the feed-forward part has the name of one behind attention.
    pub(super) ffn_norm_behind: bool,
    /// What comes of gates and ups.
    pub(super) glu: Glu,
    /// What comes of ups, where there are no gates.
    pub(super) ungated: Option<Activation>,
    /// Most layers are gated delta nets.
    pub(super) delta_nets: Option<DeltaLayout>,
    /// Queries come with gates of attention's results.
    pub(super) gated_heads: bool,
    /// Embeddings are multiplied by the root of their width.
    pub(super) scaled_embeddings: bool,
    /// The number of layers of the model whose scores are divided by the root of `hidden / heads`, not of the head width.
    pub(super) scores_by_hidden: Option<usize>,
    /// What scores and logits are capped with, where the file does not say.
    pub(super) caps: Option<[f32; 2]>,
    /// A file says what logits are multiplied with.
    pub(super) scaled_logits: bool,
    /// A file says what embeddings, parts of layers and scores are multiplied with, and logits divided by.
    pub(super) scaled_stream: bool,
}

/// What no row says.
pub(super) const PLAIN: Facts = Facts {
    name: "",
    qkv_biases: Presence::Never,
    other_biases: Presence::Never,
    head_bias: Presence::Never,
    layer_norm: false,
    norm_weights: true,
    norm_biases: Presence::Never,
    one_norm: Presence::Never,
    says_parallel: false,
    parallel: false,
    second_attention_norm: false,
    head_norms: Presence::Never,
    norms_behind_rope: false,
    unit_heads: None,
    chunk: None,
    weighted_inputs: false,
    sinks: Presence::Never,
    experts: Presence::Never,
    normalised: true,
    gating: Gating::Softmax,
    choice_biases: Presence::Never,
    shared_expert: SharedExpert::None,
    dense_layers: false,
    guesses: false,
    rope: RopeStyle::Neox,
    rotated_heads: false,
    fused_qkv: Presence::Never,
    fused_gates: false,
    learned_positions: false,
    longrope: false,
    unrotated: 0,
    windowless: 0,
    local_base: None,
    post_norms: Presence::Never,
    ffn_norm_behind: false,
    glu: Glu::Silu,
    ungated: None,
    delta_nets: None,
    gated_heads: false,
    scaled_embeddings: false,
    scores_by_hidden: None,
    caps: None,
    scaled_logits: false,
    scaled_stream: false,
};

/// What families with layer norms that have biases share.
pub(super) const WITH_LAYER_NORMS: Facts = Facts { layer_norm: true, norm_biases: Presence::Always, ..PLAIN };

/// What families with biases everywhere and no gates share.
pub(super) const WITH_BIASES: Facts = Facts {
    qkv_biases: Presence::Always,
    other_biases: Presence::Always,
    ungated: Some(Activation::Gelu),
    ..WITH_LAYER_NORMS
};

/// What Qwen3-Next and Qwen3.5 share.
pub(super) const WITH_DELTA_NETS: Facts =
    Facts { head_norms: Presence::Always, ffn_norm_behind: true, gated_heads: true, ..PLAIN };

/// What mixtures share whose experts are many and small (Dai et al., arXiv 2401.06066).
pub(super) const FINE_GRAINED: Facts = Facts {
    experts: Presence::Always,
    normalised: false,
    shared_expert: SharedExpert::Several,
    dense_layers: true,
    ..PLAIN
};

/// What Cohere's families share.
pub(super) const COHERE: Facts =
    Facts { layer_norm: true, one_norm: Presence::Always, rope: RopeStyle::Norm, scaled_logits: true, ..PLAIN };

/// What GLM-4 and its forerunners share.
pub(super) const GLM: Facts = Facts {
    qkv_biases: Presence::Optional,
    fused_qkv: Presence::Optional,
    fused_gates: true,
    rope: RopeStyle::Norm,
    ..PLAIN
};

/// What families share whose residual stream is scaled.
pub(super) const SCALED: Facts = Facts { rope: RopeStyle::Norm, scaled_stream: true, ..PLAIN };

/// What Hunyuan's families share.
pub(super) const HUNYUAN: Facts = Facts { head_norms: Presence::Always, norms_behind_rope: true, ..PLAIN };
