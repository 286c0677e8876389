//! The families of models, and what tells their forward passes apart: a row each.

use super::RopeStyle;
use gpu_kernels::{activation::Activation, elementwise::Glu};

/// Whether an architecture has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// A file without it is refused.
    Always,
    /// It is used where the file has it.
    Optional,
    /// A file with it is refused.
    Never,
}

impl Presence {
    /// Whether it is asked for in a file, of which `has` says whether it has it.
    pub(super) fn asked(self, has: impl FnOnce() -> bool) -> bool {
        match self {
            Presence::Always => true,
            Presence::Optional => has(),
            Presence::Never => false,
        }
    }
}

/// What not all architectures have, or have alike.
struct Facts {
    /// Its name in `general.architecture`.
    name: &'static str,
    qkv_biases: Presence,
    /// Of attention's output, of routers and of the matrices of the feed-forward part.
    other_biases: Presence,
    /// Of the output projection.
    head_bias: Presence,
    /// Norms subtract the mean.
    layer_norm: bool,
    /// What norms multiply with is in the file.
    norm_weights: bool,
    /// Of norms of the residual stream.
    norm_biases: Presence,
    /// Attention and feed-forward part read one norm; optional: in layers that have no second one.
    one_norm: Presence,
    /// A file says whether the feed-forward part reads what attention reads.
    says_parallel: bool,
    head_norms: Presence,
    /// Each query head has a score that takes a share of its softmax.
    sinks: Presence,
    experts: Presence,
    /// Every token is given to one expert more, and the weights of those that are chosen do not add up to one.
    shared_expert: bool,
    rope: RopeStyle,
    /// One tensor holds queries, keys and values.
    fused_qkv: Presence,
    /// One tensor holds gates and ups.
    fused_gates: bool,
    /// Embeddings of positions are added to those of tokens.
    learned_positions: bool,
    /// RoPE's angles are divided by one of two lists of factors.
    longrope: bool,
    /// Layers of which the last does not rotate queries and keys; 0: all rotate.
    unrotated: usize,
    /// Layers of which the last attends to all positions, where the others have the window; 0: all have it.
    windowless: usize,
    /// RoPE base of the layers with the window, if not that of the others.
    local_base: Option<f32>,
    /// What attention and feed-forward part give is normed before it is added.
    post_norms: Presence,
    /// The norm before the feed-forward part has the name of one behind attention.
    ffn_norm_behind: bool,
    /// What comes of gates and ups.
    glu: Glu,
    /// What comes of ups, where there are no gates.
    ungated: Option<Activation>,
    /// Most layers are gated delta nets.
    delta_nets: bool,
    /// Queries come with gates of attention's results.
    gated_heads: bool,
    /// Embeddings are multiplied by the root of their width.
    scaled_embeddings: bool,
    /// The number of layers of the model whose scores are divided by the root of `hidden / heads`, not of the head width.
    scores_by_hidden: Option<usize>,
    /// What scores and logits are capped with, where the file does not say.
    caps: Option<[f32; 2]>,
    /// A file says what logits are multiplied with.
    scaled_logits: bool,
}

/// What no row says.
const PLAIN: Facts = Facts {
    name: "",
    qkv_biases: Presence::Never,
    other_biases: Presence::Never,
    head_bias: Presence::Never,
    layer_norm: false,
    norm_weights: true,
    norm_biases: Presence::Never,
    one_norm: Presence::Never,
    says_parallel: false,
    head_norms: Presence::Never,
    sinks: Presence::Never,
    experts: Presence::Never,
    shared_expert: false,
    rope: RopeStyle::Neox,
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
    delta_nets: false,
    gated_heads: false,
    scaled_embeddings: false,
    scores_by_hidden: None,
    caps: None,
    scaled_logits: false,
};

/// What families with layer norms that have biases share.
const WITH_LAYER_NORMS: Facts = Facts { layer_norm: true, norm_biases: Presence::Always, ..PLAIN };

/// What families with biases everywhere and no gates share.
const WITH_BIASES: Facts = Facts {
    qkv_biases: Presence::Always,
    other_biases: Presence::Always,
    ungated: Some(Activation::Gelu),
    ..WITH_LAYER_NORMS
};

/// What Cohere's families share.
const COHERE: Facts =
    Facts { layer_norm: true, one_norm: Presence::Always, rope: RopeStyle::Norm, scaled_logits: true, ..PLAIN };

macro_rules! architectures {
    ($($(#[$doc:meta])* $Name:ident $facts:tt)*) => {
        /// A family of models with one forward pass.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Architecture {
            $($(#[$doc])* $Name,)*
        }

        impl Architecture {
            /// Every architecture.
            pub const ALL: [Architecture; [$(stringify!($Name)),*].len()] = [$(Architecture::$Name),*];

            fn facts(self) -> &'static Facts {
                match self {
                    $(Architecture::$Name => &Facts $facts,)*
                }
            }
        }
    };
}

architectures! {
    /// Qwen3: RMS norm of every query and key head before RoPE, which rotates halves.
    Qwen3 { name: "qwen3", head_norms: Presence::Always, ..PLAIN }
    /// Qwen3 with a mixture of experts in every layer.
    Qwen3Moe { name: "qwen3moe", head_norms: Presence::Always, experts: Presence::Always, ..PLAIN }
    /// Qwen2: biases on queries, keys and values, no norm of heads, RoPE rotates halves.
    Qwen2 { name: "qwen2", qkv_biases: Presence::Always, ..PLAIN }
    /// Qwen2 with a mixture of experts in every layer, one of which all tokens share.
    Qwen2Moe {
        name: "qwen2moe",
        qkv_biases: Presence::Always,
        experts: Presence::Always,
        shared_expert: true,
        ..PLAIN
    }
    /// Llama and its relatives: no norm of heads, RoPE rotates neighbours. Biases on queries, keys and values are
    /// used where the file has them; so are mixtures of experts, as in Mixtral.
    Llama {
        name: "llama",
        qkv_biases: Presence::Optional,
        experts: Presence::Optional,
        rope: RopeStyle::Norm,
        ..PLAIN
    }
    /// Phi-3 and Phi-4: one tensor of queries, keys and values and one of gates and ups, RoPE rotates halves, and longrope where the
    /// file has its factors.
    Phi3 { name: "phi3", fused_qkv: Presence::Always, fused_gates: true, longrope: true, ..PLAIN }
    /// SmolLM3: as Llama, but every fourth layer does not rotate.
    SmolLm3 { name: "smollm3", rope: RopeStyle::Norm, unrotated: 4, ..PLAIN }
    /// Gemma 2: norms before and after attention and feed-forward part, GELU, scaled embeddings, capped scores and logits, a window in
    /// every other layer.
    Gemma2 {
        name: "gemma2",
        windowless: 2,
        post_norms: Presence::Always,
        glu: Glu::Gelu,
        scaled_embeddings: true,
        // Gemma 2 27B.
        scores_by_hidden: Some(46),
        caps: Some([50.0, 30.0]),
        ..PLAIN
    }
    /// Gemma 3: norms of heads, norms before and after attention and feed-forward part, GELU, scaled embeddings, a window and another
    /// RoPE base in five layers of six.
    Gemma3 {
        name: "gemma3",
        head_norms: Presence::Always,
        windowless: 6,
        local_base: Some(10000.0),
        post_norms: Presence::Always,
        glu: Glu::Gelu,
        scaled_embeddings: true,
        // Gemma 3 27B.
        scores_by_hidden: Some(62),
        ..PLAIN
    }
    /// gpt-oss: a mixture of experts with biases everywhere, SwiGLU of clamped numbers, sinks, a window in every other layer.
    GptOss {
        name: "gpt-oss",
        qkv_biases: Presence::Always,
        other_biases: Presence::Always,
        sinks: Presence::Always,
        experts: Presence::Always,
        windowless: 2,
        ffn_norm_behind: true,
        glu: Glu::Clamped,
        ..PLAIN
    }
    /// Qwen3.5, dense: gated delta nets in three layers of four; in the fourth norms of heads, RoPE of some of their elements, which rotates
    /// halves, and gates of attention's results.
    Qwen35 {
        name: "qwen35",
        head_norms: Presence::Always,
        ffn_norm_behind: true,
        delta_nets: true,
        gated_heads: true,
        ..PLAIN
    }
    /// StarCoder2: layer norms, biases everywhere where the file has them, GELU without gates, RoPE rotates halves.
    StarCoder2 { name: "starcoder2", qkv_biases: Presence::Optional, other_biases: Presence::Optional, ..WITH_BIASES }
    /// Command R and Aya: layer norms without biases, one for both parts of a layer; scaled logits, RoPE rotates neighbours.
    CommandR { name: "command-r", ..COHERE }
    /// Command R7B and A: as Command R, with a window in three layers of four; the fourth does not rotate.
    Cohere2 { name: "cohere2", unrotated: 4, windowless: 4, ..COHERE }
    /// Phi-1, Phi-1.5 and Phi-2: layer norms, one for both parts of a layer; biases everywhere, in the output projection too; GELU without
    /// gates, RoPE of some elements of a head, which rotates halves.
    Phi2 {
        name: "phi2",
        head_bias: Presence::Always,
        one_norm: Presence::Always,
        fused_qkv: Presence::Optional,
        ..WITH_BIASES
    }
    /// Nemotron and Minitron: layer norms, the squared ReLU without gates, RoPE of some elements of a head, which rotates halves.
    Nemotron {
        name: "nemotron",
        qkv_biases: Presence::Optional,
        other_biases: Presence::Optional,
        ungated: Some(Activation::SquaredRelu),
        ..WITH_LAYER_NORMS
    }
    /// GPT-2: learned positions, layer norms, biases everywhere, GELU without gates.
    Gpt2 { name: "gpt2", fused_qkv: Presence::Always, learned_positions: true, unrotated: 1, ..WITH_BIASES }
    /// StableLM: layer norms, one for both parts of layers that have no second; RoPE of some elements of a head, which rotates halves.
    StableLm { name: "stablelm", qkv_biases: Presence::Optional, one_norm: Presence::Optional, ..WITH_LAYER_NORMS }
    /// GPT-NeoX and Pythia: layer norms, of one residual stream for both parts of a layer if the file says so; biases everywhere, GELU by
    /// the error function without gates, RoPE of some elements of a head, which rotates halves.
    GptNeoX {
        name: "gptneox",
        says_parallel: true,
        fused_qkv: Presence::Always,
        ungated: Some(Activation::GeluErf),
        ..WITH_BIASES
    }
    /// OLMo: layer norms without weights, RoPE rotates neighbours.
    Olmo { name: "olmo", layer_norm: true, norm_weights: false, rope: RopeStyle::Norm, ..PLAIN }
}

impl Architecture {
    /// Its name in `general.architecture`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether queries, keys and values have biases.
    pub fn qkv_biases(self) -> Presence {
        self.facts().qkv_biases
    }

    /// Whether attention's output, routers and the matrices of the feed-forward part have biases.
    pub fn other_biases(self) -> Presence {
        self.facts().other_biases
    }

    /// Whether the output projection has a bias.
    pub fn head_bias(self) -> Presence {
        self.facts().head_bias
    }

    /// Whether norms of the residual stream subtract the mean (layer norm: Ba et al., arXiv 1607.06450); else they are RMS norms.
    pub fn layer_norm(self) -> bool {
        self.facts().layer_norm
    }

    /// Whether norms of the residual stream have weights; else they multiply with one.
    pub fn norm_weights(self) -> bool {
        self.facts().norm_weights
    }

    /// Whether norms of the residual stream have biases.
    pub fn norm_biases(self) -> Presence {
        self.facts().norm_biases
    }

    /// Whether attention and feed-forward part of a layer read one norm; optional: in layers that have no second one.
    pub fn one_norm(self) -> Presence {
        self.facts().one_norm
    }

    /// Whether a file says, by `use_parallel_residual`, if the feed-forward part reads what attention reads, or what attention adds to
    /// as well.
    pub fn says_parallel(self) -> bool {
        self.facts().says_parallel
    }

    /// Whether each query head has a sink: a score that takes a share of its softmax and has no value (Xiao et al., arXiv 2309.17453).
    pub fn sinks(self) -> Presence {
        self.facts().sinks
    }

    /// Whether every query and key head is normalised.
    pub fn head_norms(self) -> Presence {
        self.facts().head_norms
    }

    /// Whether layers have a mixture of experts.
    pub fn experts(self) -> Presence {
        self.facts().experts
    }

    /// Whether every token is given to one expert more than those that are chosen, with a sigmoid as its weight. Weights of the chosen
    /// are then not divided by their sum, unless a file says so.
    pub fn shared_expert(self) -> bool {
        self.facts().shared_expert
    }

    /// Which elements of a head RoPE rotates together.
    pub fn rope_style(self) -> RopeStyle {
        self.facts().rope
    }

    /// Whether one tensor holds queries, keys and values.
    pub fn fused_qkv(self) -> Presence {
        self.facts().fused_qkv
    }

    /// Whether one tensor holds gates and ups.
    pub fn fused_gates(self) -> bool {
        self.facts().fused_gates
    }

    /// Whether embeddings of positions, as many as the context has, are added to those of tokens.
    pub fn learned_positions(self) -> bool {
        self.facts().learned_positions
    }

    /// Whether a file may divide RoPE's angles by one of two lists of factors: `rope_factors_long` for sequences beyond the context
    /// that the model was first trained with, and `rope_factors_short` (longrope: Ding et al., arXiv 2402.13753).
    pub fn longrope(self) -> bool {
        self.facts().longrope
    }

    /// Layers of which the last does not rotate queries and keys; 0: all rotate.
    pub fn unrotated(self) -> usize {
        self.facts().unrotated
    }

    /// Layers of which the last attends to all positions, where the others have the window; 0: all have it. A file may say
    /// otherwise.
    pub fn windowless(self) -> usize {
        self.facts().windowless
    }

    /// RoPE base of the layers with the window, if not that of the others. A file may say otherwise.
    pub fn local_base(self) -> Option<f32> {
        self.facts().local_base
    }

    /// Whether what attention and feed-forward part give is normed before it is added.
    pub fn post_norms(self) -> Presence {
        self.facts().post_norms
    }

    /// Whether most layers are gated delta nets, which the keys `ssm.*` tell of.
    pub fn delta_nets(self) -> bool {
        self.facts().delta_nets
    }

    /// Whether `attn_q.weight` has, behind the rows of each query head, as many that give the gates of its results.
    pub fn gated_heads(self) -> bool {
        self.facts().gated_heads
    }

    /// Whether files call the norm before the feed-forward part `post_attention_norm`.
    pub fn ffn_norm_behind(self) -> bool {
        self.facts().ffn_norm_behind
    }

    /// What comes of ups, where the feed-forward part has no gates.
    pub fn ungated(self) -> Option<Activation> {
        self.facts().ungated
    }

    /// What comes of gates and ups in a feed-forward part that has both.
    pub fn glu(self) -> Glu {
        self.facts().glu
    }

    /// Whether embeddings are multiplied by the root of their width.
    pub fn scaled_embeddings(self) -> bool {
        self.facts().scaled_embeddings
    }

    /// What scores and logits are capped with, where the file does not say; `None`: neither is.
    pub fn caps(self) -> Option<[f32; 2]> {
        self.facts().caps
    }

    /// Whether a file says, by `logit_scale`, what logits are multiplied with.
    pub fn scaled_logits(self) -> bool {
        self.facts().scaled_logits
    }

    /// Whether the model of so many layers divides scores by the root of `hidden / heads`: files do not say it.
    pub fn scores_by_hidden(self, layers: usize) -> bool {
        self.facts().scores_by_hidden == Some(layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps know layer norms only where nothing else stands between residual stream and products.
    #[test]
    fn families_with_layer_norms_have_plain_layers() {
        let mut with = 0;
        for facts in Architecture::ALL.map(Architecture::facts) {
            let rms = facts.norm_weights && [facts.norm_biases, facts.one_norm] == [Presence::Never; 2];
            if !facts.layer_norm {
                assert!(rms && !facts.says_parallel && !facts.learned_positions, "{}", facts.name);
                continue;
            }
            with += 1;
            let never = [facts.experts, facts.post_norms, facts.head_norms, facts.sinks];
            assert_eq!(never, [Presence::Never; 4], "{}", facts.name);
            assert!(!facts.delta_nets && !facts.scaled_embeddings && !facts.gated_heads, "{}", facts.name);
            // Without weights in the file there is none whose lack could say anything.
            assert!(facts.norm_weights || facts.one_norm == Presence::Never, "{}", facts.name);
        }
        assert!(with > 0);
    }
}
