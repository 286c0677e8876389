//! The list of families: a row each, with what tells it from others.

use super::super::{Gating, RopeStyle};
use super::facts::{
    COHERE, FINE_GRAINED, Facts, GLM, HUNYUAN, PLAIN, SCALED, WITH_BIASES, WITH_DELTA_NETS, WITH_LAYER_NORMS,
};
use super::{DeltaLayout, Presence, SharedExpert};
use gpu_kernels::{activation::Activation, elementwise::Glu};

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
