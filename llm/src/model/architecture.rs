//! The families of models, and what tells their forward passes apart: a row each.

use super::RopeStyle;
use gpu_kernels::elementwise::Glu;

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

/// What not all architectures have, or have alike.
struct Facts {
    /// Its name in `general.architecture`.
    name: &'static str,
    qkv_biases: Presence,
    /// Of attention's output, of routers and of the matrices of the feed-forward part.
    other_biases: Presence,
    head_norms: Presence,
    /// Each query head has a score that takes a share of its softmax.
    sinks: Presence,
    experts: Presence,
    /// Every token is given to one expert more, and the weights of those that are chosen do not add up to one.
    shared_expert: bool,
    rope: RopeStyle,
    /// One tensor holds queries, keys and values, and one gates and ups.
    fused: bool,
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
}

/// What no row says.
const PLAIN: Facts = Facts {
    name: "",
    qkv_biases: Presence::Never,
    other_biases: Presence::Never,
    head_norms: Presence::Never,
    sinks: Presence::Never,
    experts: Presence::Never,
    shared_expert: false,
    rope: RopeStyle::Neox,
    fused: false,
    longrope: false,
    unrotated: 0,
    windowless: 0,
    local_base: None,
    post_norms: Presence::Never,
    ffn_norm_behind: false,
    glu: Glu::Silu,
    delta_nets: false,
    gated_heads: false,
    scaled_embeddings: false,
    scores_by_hidden: None,
    caps: None,
};

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
    Phi3 { name: "phi3", fused: true, longrope: true, ..PLAIN }
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

    /// Whether one tensor holds queries, keys and values, and one gates and ups.
    pub fn fused(self) -> bool {
        self.facts().fused
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

    /// What comes of gates and ups in the feed-forward part.
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

    /// Whether the model of so many layers divides scores by the root of `hidden / heads`: files do not say it.
    pub fn scores_by_hidden(self, layers: usize) -> bool {
        self.facts().scores_by_hidden == Some(layers)
    }
}
