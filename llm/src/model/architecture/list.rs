//! The list of families, and what they have that not all have.

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
const WITH_LAYER_NORMS: Facts = Facts { layer_norm: true, norm_biases: Presence::Always, ..PLAIN };

/// What families with biases everywhere and no gates share.
const WITH_BIASES: Facts = Facts {
    qkv_biases: Presence::Always,
    other_biases: Presence::Always,
    ungated: Some(Activation::Gelu),
    ..WITH_LAYER_NORMS
};

/// What Qwen3-Next and Qwen3.5 share.
const WITH_DELTA_NETS: Facts =
    Facts { head_norms: Presence::Always, ffn_norm_behind: true, gated_heads: true, ..PLAIN };

/// What mixtures share whose experts are many and small (Dai et al., arXiv 2401.06066).
const FINE_GRAINED: Facts = Facts {
    experts: Presence::Always,
    normalised: false,
    shared_expert: SharedExpert::Several,
    dense_layers: true,
    ..PLAIN
};

/// What Cohere's families share.
const COHERE: Facts =
    Facts { layer_norm: true, one_norm: Presence::Always, rope: RopeStyle::Norm, scaled_logits: true, ..PLAIN };

/// What GLM-4 and its forerunners share.
const GLM: Facts = Facts {
    qkv_biases: Presence::Optional,
    fused_qkv: Presence::Optional,
    fused_gates: true,
    rope: RopeStyle::Norm,
    ..PLAIN
};

/// What families share whose residual stream is scaled.
const SCALED: Facts = Facts { rope: RopeStyle::Norm, scaled_stream: true, ..PLAIN };

/// What Hunyuan's families share.
const HUNYUAN: Facts = Facts { head_norms: Presence::Always, norms_behind_rope: true, ..PLAIN };

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

            pub(super) fn facts(self) -> &'static Facts {
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
        normalised: false,
        shared_expert: SharedExpert::Gated,
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
    Qwen35 { name: "qwen35", delta_nets: Some(DeltaLayout::InTurn), guesses: true, ..WITH_DELTA_NETS }
    /// Qwen3.5 with a mixture of experts in every layer, and one that all tokens share.
    Qwen35Moe {
        name: "qwen35moe",
        delta_nets: Some(DeltaLayout::InTurn),
        guesses: true,
        experts: Presence::Always,
        shared_expert: SharedExpert::Gated,
        ..WITH_DELTA_NETS
    }
    /// Qwen3-Next: as Qwen3.5 with experts, heads of values that share a key head side by side.
    Qwen3Next {
        name: "qwen3next",
        delta_nets: Some(DeltaLayout::ByKeyHead),
        experts: Presence::Always,
        shared_expert: SharedExpert::Gated,
        ..WITH_DELTA_NETS
    }
    /// DeepSeekMoE 16B, and what has its parts: RoPE rotates neighbours. Not V2 and V3, whose attention is another.
    DeepSeek { name: "deepseek", qkv_biases: Presence::Optional, rope: RopeStyle::Norm, ..FINE_GRAINED }
    /// GLM-4.5 and 4.6: norms of heads and biases of queries, keys and values where the file has them, sigmoids and biases that choose
    /// experts, RoPE of some elements of a head, which rotates halves.
    Glm4Moe {
        name: "glm4moe",
        qkv_biases: Presence::Optional,
        head_norms: Presence::Optional,
        ffn_norm_behind: true,
        gating: Gating::Sigmoid,
        choice_biases: Presence::Always,
        guesses: true,
        ..FINE_GRAINED
    }
    /// dots.llm1: norms of heads, biases that choose experts where the file has them, RoPE rotates halves.
    Dots1 { name: "dots1", head_norms: Presence::Always, choice_biases: Presence::Optional, ..FINE_GRAINED }
    /// ERNIE 4.5 with experts in all layers but the first, or in every so manieth: RoPE rotates neighbours.
    Ernie45Moe {
        name: "ernie4_5-moe",
        qkv_biases: Presence::Optional,
        normalised: true,
        choice_biases: Presence::Optional,
        shared_expert: SharedExpert::Plain,
        rope: RopeStyle::Norm,
        ..FINE_GRAINED
    }
    /// Ling lite and plus: RoPE rotates neighbours, heads are as wide as it says.
    BailingMoe {
        name: "bailingmoe",
        qkv_biases: Presence::Optional,
        rope: RopeStyle::Norm,
        rotated_heads: true,
        dense_layers: false,
        ..FINE_GRAINED
    }
    /// Ling 2 and Ring 2: norms of heads, one tensor of queries, keys and values, experts chosen of groups, RoPE of some elements of a head,
    /// which rotates halves.
    BailingMoe2 {
        name: "bailingmoe2",
        head_norms: Presence::Always,
        fused_qkv: Presence::Always,
        choice_biases: Presence::Optional,
        guesses: true,
        ..FINE_GRAINED
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
    /// EXAONE 3 and 3.5: as Llama, RoPE rotates halves.
    Exaone { name: "exaone", ..PLAIN }
    /// InternLM 2 and 2.5: as Llama.
    InternLm2 { name: "internlm2", qkv_biases: Presence::Optional, rope: RopeStyle::Norm, ..PLAIN }
    /// XVERSE: as Llama.
    Xverse { name: "xverse", rope: RopeStyle::Norm, ..PLAIN }
    /// ERNIE 4.5 of 0.3 billion weights, which is dense: RoPE rotates neighbours.
    Ernie45 { name: "ernie4_5", qkv_biases: Presence::Optional, rope: RopeStyle::Norm, ..PLAIN }
    /// Seed-OSS: biases on queries, keys and values where the file has them, RoPE rotates halves.
    SeedOss { name: "seed_oss", qkv_biases: Presence::Optional, ffn_norm_behind: true, ..PLAIN }
    /// Qwen2-VL and 2.5-VL, of which texts see what Qwen2 does.
    Qwen2Vl { name: "qwen2vl", qkv_biases: Presence::Always, ..PLAIN }
    /// Gemma: GELU, scaled embeddings, RoPE rotates halves.
    Gemma { name: "gemma", glu: Glu::Gelu, scaled_embeddings: true, ..PLAIN }
    /// GLM-4 of April 2025: norms before and after attention and feed-forward part, one tensor of gates and ups, RoPE of some elements of a
    /// head, which rotates neighbours.
    Glm4 { name: "glm4", post_norms: Presence::Always, ..GLM }
    /// ChatGLM3 and GLM-4 of 2024: one tensor of queries, keys and values, one of gates and ups, RoPE of some elements of a head, which rotates
    /// neighbours.
    ChatGlm { name: "chatglm", ..GLM }
    /// Granite 3 and 4 dense: as Llama, with embeddings, parts of layers, scores and logits that are scaled.
    Granite { name: "granite", ..SCALED }
    /// Granite 3 and 4 with a mixture of experts in every layer, and one of all tokens where the file has it.
    GraniteMoe { name: "granitemoe", experts: Presence::Always, shared_expert: SharedExpert::Plain, ..SCALED }
    /// MiniCPM: as Granite, with the usual scores.
    MiniCpm { name: "minicpm", ..SCALED }
    /// Arcee's AFM: the squared ReLU without gates, RoPE rotates neighbours.
    Arcee { name: "arcee", ungated: Some(Activation::SquaredRelu), rope: RopeStyle::Norm, ..PLAIN }
    /// Orion: as Llama with layer norms, RoPE rotates halves.
    Orion { name: "orion", ..WITH_LAYER_NORMS }
    /// StarCoder and SantaCoder: as GPT-2, with one key head.
    StarCoder { name: "starcoder", fused_qkv: Presence::Always, learned_positions: true, unrotated: 1, ..WITH_BIASES }
    /// CodeShell: layer norms, biases everywhere, GELU without gates, RoPE rotates halves.
    CodeShell { name: "codeshell", fused_qkv: Presence::Optional, ..WITH_BIASES }
    /// Falcon of 11 to 180 billion weights: layer norms of one residual stream, one for both parts of a layer or one each; GELU by the error
    /// function without gates, RoPE rotates halves.
    Falcon {
        name: "falcon",
        fused_qkv: Presence::Always,
        one_norm: Presence::Optional,
        parallel: true,
        second_attention_norm: true,
        ungated: Some(Activation::GeluErf),
        ..WITH_LAYER_NORMS
    }
    /// Llama 4 (text), within its first chunk of attention: every fourth layer does not rotate, heads of the others are normed without weights;
    /// sigmoids choose experts, which read weighted inputs, beside one of all tokens; layers without experts between.
    Llama4 {
        name: "llama4",
        unit_heads: Some(128),
        chunk: Some(8192),
        unrotated: 4,
        experts: Presence::Always,
        normalised: false,
        gating: Gating::Sigmoid,
        weighted_inputs: true,
        shared_expert: SharedExpert::One,
        dense_layers: true,
        rope: RopeStyle::Norm,
        ..PLAIN
    }
    /// Hunyuan of 0.5 to 7 billion weights: norms of heads behind RoPE, which rotates halves.
    HunyuanDense { name: "hunyuan-dense", ..HUNYUAN }
    /// Hunyuan A13B: the same with a mixture of experts in every layer, and one of all tokens.
    HunyuanMoe {
        name: "hunyuan-moe",
        experts: Presence::Always,
        shared_expert: SharedExpert::One,
        ..HUNYUAN
    }
}
