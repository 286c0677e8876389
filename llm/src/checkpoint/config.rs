//! The keys of a GGUF file out of `config.json`.

use super::CheckpointError;
use super::json::Object;
use super::keys::KeyWriter;
use super::{delta, experts, rope};
use crate::gguf::GgufWriter;
use crate::model::{Architecture, Presence};
use gpu_kernels::activation::Activation;
use gpu_kernels::elementwise::Glu;

/// Elements of a head at most.
const WIDEST: u32 = 1 << 16;

/// `model_type`, the architecture that it is, and the width of heads where the file does not say it and it is not
/// `hidden_size / num_attention_heads`.
const MODEL_TYPES: &[(&str, Architecture, Option<u32>)] = &[
    ("llama", Architecture::Llama, None),
    ("mistral", Architecture::Llama, None),
    ("mixtral", Architecture::Llama, None),
    ("qwen2", Architecture::Qwen2, None),
    ("qwen3", Architecture::Qwen3, Some(128)),
    ("qwen2_moe", Architecture::Qwen2Moe, None),
    ("qwen3_moe", Architecture::Qwen3Moe, None),
    ("glm4_moe", Architecture::Glm4Moe, Some(128)),
    ("dots1", Architecture::Dots1, None),
    ("phi3", Architecture::Phi3, None),
    ("smollm3", Architecture::SmolLm3, None),
    ("gemma2", Architecture::Gemma2, Some(256)),
    ("gemma3_text", Architecture::Gemma3, Some(256)),
    ("starcoder2", Architecture::StarCoder2, None),
    ("phi", Architecture::Phi2, None),
    ("cohere", Architecture::CommandR, None),
    ("cohere2", Architecture::Cohere2, None),
    ("nemotron", Architecture::Nemotron, None),
    ("stablelm", Architecture::StableLm, None),
    ("olmo", Architecture::Olmo, None),
    ("gpt_oss", Architecture::GptOss, Some(64)),
    ("qwen3_next", Architecture::Qwen3Next, Some(256)),
    ("gpt2", Architecture::Gpt2, None),
    ("gpt_neox", Architecture::GptNeoX, None),
];

/// What tensors are read by.
pub(super) struct Numbers {
    pub architecture: Architecture,
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    /// Each layer has a second norm, in a family whose layers may lack it.
    pub second_norms: bool,
    /// Experts of a layer; none: the feed-forward parts are dense.
    pub experts: Option<usize>,
    /// Whether the head is the table of embeddings; `None`: the file does not say.
    pub tied: Option<bool>,
    /// Tensors that the file states as lists of numbers.
    pub lists: Vec<(&'static str, Vec<f32>)>,
}

/// Writes the model's keys.
pub(super) fn keys(config: Object<'_>, writer: &mut GgufWriter) -> Result<Numbers, CheckpointError> {
    let model_type = config.text("model_type")?.ok_or_else(|| config.wrong("model_type", "is missing"))?;
    let Some(&(_, architecture, usual_dim)) = MODEL_TYPES.iter().find(|row| row.0 == model_type) else {
        let names: Vec<String> = MODEL_TYPES.iter().map(|row| format!("`{}`", row.0)).collect();
        return Err(CheckpointError::ModelType { model_type: model_type.to_owned(), supported: names.join(", ") });
    };
    writer.key("general.architecture", architecture.name());
    let mut keys = KeyWriter { architecture, writer };
    let (layers, hidden, heads) = sizes(config, &mut keys)?;
    keys.set("attention.head_count_kv", config.count("num_key_value_heads")?.unwrap_or(heads));
    let head_dim = match (config.count("head_dim")?.or(usual_dim), heads) {
        (Some(n), _) => n,
        (None, 0) => return Err(config.wrong("num_attention_heads", "is 0, expected one or more")),
        (None, _) if hidden.is_multiple_of(heads) => hidden / heads,
        (None, _) => return Err(config.wrong("head_dim", "is missing, and hidden_size is no multiple of the heads")),
    };
    // Lists of RoPE's divisors are as long: a width that lies costs an error, not memory.
    if head_dim > WIDEST {
        return Err(config.wrong("head_dim", format!("is {head_dim}, expected at most {WIDEST}")));
    }
    keys.set("attention.key_length", head_dim);
    keys.set("attention.value_length", head_dim);
    norms(config, &mut keys)?;
    activation(config, architecture)?;
    window(config, &mut keys, layers)?;
    unrotated(config, architecture, layers)?;
    scores(config, &mut keys, (layers, hidden, heads, head_dim))?;
    let experts = experts::keys(config, &mut keys)?;
    delta::keys(config, &mut keys, layers)?;
    let lists = rope::keys(config, &mut keys, head_dim)?;
    Ok(Numbers {
        architecture,
        layers: layers as usize,
        heads: heads as usize,
        head_dim: head_dim as usize,
        second_norms: architecture.one_norm() == Presence::Optional
            && config.flag("use_parallel_residual")? != Some(true),
        experts,
        tied: config.flag("tie_word_embeddings")?,
        lists,
    })
}

/// Writes the sizes that all families have; the numbers of layers and heads, and the width between them.
fn sizes(config: Object<'_>, keys: &mut KeyWriter<'_>) -> Result<(u32, u32, u32), CheckpointError> {
    let gpt2 = keys.architecture == Architecture::Gpt2;
    let size = |usual: &'static str, of_gpt2: &'static str| config.require_count(if gpt2 { of_gpt2 } else { usual });
    let layers = size("num_hidden_layers", "n_layer")?;
    let hidden = size("hidden_size", "n_embd")?;
    let heads = size("num_attention_heads", "n_head")?;
    let feed_forward = match config.count("n_inner")?.filter(|_| gpt2) {
        Some(inner) => inner,
        None if gpt2 => {
            hidden.checked_mul(4).ok_or_else(|| config.wrong("n_embd", format!("is {hidden}, which is too many")))?
        }
        None => config.require_count("intermediate_size")?,
    };
    for (to, size) in [
        ("block_count", layers),
        ("embedding_length", hidden),
        ("feed_forward_length", feed_forward),
        ("context_length", size("max_position_embeddings", "n_positions")?),
        ("attention.head_count", heads),
        ("vocab_size", config.require_count("vocab_size")?),
    ] {
        keys.set(to, size);
    }
    if keys.architecture.says_parallel() {
        keys.set("use_parallel_residual", config.flag("use_parallel_residual")?.unwrap_or(true));
    }
    Ok((layers, hidden, heads))
}

/// What norms add, and what logits and queries are scaled and clamped with in families of layer norms.
fn norms(config: Object<'_>, keys: &mut KeyWriter<'_>) -> Result<(), CheckpointError> {
    let architecture = keys.architecture;
    let key = match architecture {
        Architecture::StarCoder2 => "norm_epsilon",
        Architecture::Nemotron => "norm_eps",
        Architecture::Gpt2 => "layer_norm_epsilon",
        _ if architecture.layer_norm() => "layer_norm_eps",
        _ => "rms_norm_eps",
    };
    let eps = match config.number(key)? {
        Some(eps) => eps,
        // OLMo's files do not say it.
        None if architecture == Architecture::Olmo => 1e-5,
        None => return Err(config.wrong(key, "is missing")),
    };
    let to =
        if architecture.layer_norm() { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
    keys.set(to, eps as f32);
    if architecture.scaled_logits() {
        let scale = config.number("logit_scale")?.ok_or_else(|| config.wrong("logit_scale", "is missing"))?;
        keys.set("logit_scale", scale as f32);
    }
    if let Some(clamp) = config.number("clip_qkv")? {
        keys.set("attention.clamp_kqv", clamp as f32);
    }
    Ok(())
}

/// The function of the gates, or of ups without gates.
fn activation(config: Object<'_>, architecture: Architecture) -> Result<(), CheckpointError> {
    // Gemma's files also have `hidden_act`, which the models do not read.
    let key = if architecture == Architecture::Gpt2 { "activation_function" } else { "hidden_act" };
    let (key, expected): (_, &[&str]) = match (architecture.ungated(), architecture.glu()) {
        (Some(Activation::Gelu), _) => (key, &["gelu_pytorch_tanh", "gelu_new"]),
        (Some(Activation::GeluErf), _) => (key, &["gelu"]),
        (Some(Activation::SquaredRelu), _) => (key, &["relu2"]),
        (None, Glu::Gelu) => ("hidden_activation", &["gelu_pytorch_tanh"]),
        (None, _) => (key, &["silu"]),
    };
    // What gates are clamped to is no number of a file in GGUF.
    if let Some(limit) =
        config.number("swiglu_limit")?.filter(|&limit| architecture.glu() == Glu::Clamped && limit != 7.0)
    {
        return Err(config.wrong("swiglu_limit", format!("is {limit}; of this family 7 is implemented")));
    }
    match config.text(key)? {
        None => Ok(()),
        Some(name) if expected.contains(&name) => Ok(()),
        Some(other) => {
            let known = expected.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
            Err(config.wrong(key, format!("is {other:?}; of this family {known} is implemented")))
        }
    }
}

/// Windows: how wide, and in which layers.
fn window(config: Object<'_>, keys: &mut KeyWriter<'_>, layers: u32) -> Result<(), CheckpointError> {
    let architecture = keys.architecture;
    let mut window = config.count("sliding_window")?.filter(|&n| n > 0);
    match config.flag("use_sliding_window")? {
        Some(false) => window = None,
        Some(true) if config.count("max_window_layers")?.is_some_and(|first| first >= layers) => window = None,
        Some(true) if config.count("max_window_layers")? != Some(0) => {
            let reason = "does not say that all layers have the window or none, which alone is supported";
            return Err(config.wrong("max_window_layers", reason));
        }
        // Qwen's families have a window only where this says so.
        None if matches!(
            architecture,
            Architecture::Qwen2 | Architecture::Qwen2Moe | Architecture::Qwen3 | Architecture::Qwen3Moe
        ) =>
        {
            window = None
        }
        None if architecture == Architecture::Dots1 => match config.count("max_window_layers")? {
            Some(first) if first < layers => {
                return Err(config.wrong("max_window_layers", "leaves layers with a window, which is not supported"));
            }
            _ => window = None,
        },
        // Llama's forward pass knows no window.
        _ if config.text("model_type")? == Some("llama") => window = None,
        _ => {}
    }
    let mut every = architecture.windowless() as u32;
    if let Some(n) = config.count("sliding_window_pattern")?.filter(|_| every > 0) {
        every = n;
    }
    if let Some(kinds) = config.list("layer_types")?.filter(|_| architecture.delta_nets().is_none()) {
        every = pattern(config, kinds, (window, every))?;
    }
    if let Some(n) = window {
        keys.set("attention.sliding_window", n);
        if architecture.windowless() > 0 {
            keys.set("attention.sliding_window_pattern", every);
        }
    }
    Ok(())
}

/// After how many layers one without a window comes, by a list of all layers; 0: never.
fn pattern(
    config: Object<'_>,
    kinds: &[serde_json::Value],
    (window, every): (Option<u32>, u32),
) -> Result<u32, CheckpointError> {
    let key = "layer_types";
    let full: Vec<bool> = kinds
        .iter()
        .map(|kind| match kind.as_str() {
            Some("full_attention") => Ok(true),
            Some("sliding_attention") => Ok(false),
            _ => {
                Err(config.wrong(key, format!("has {kind}; `full_attention` and `sliding_attention` are implemented")))
            }
        })
        .collect::<Result<_, _>>()?;
    if window.is_none() {
        return match full.iter().all(|&full| full) {
            true => Ok(every),
            false => Err(config.wrong(key, "has layers with a window, and there is no window")),
        };
    }
    // Without a layer of the other kind any longer period is as good.
    let period = full.iter().position(|&full| full).map_or(0, |at| at + 1);
    let period = if period == 0 && every as usize > full.len() { every as usize } else { period };
    let as_said = full.iter().enumerate().all(|(i, &full)| full == (period > 0 && i % period == period - 1));
    // A family whose layers are all alike has no key for this.
    match u32::try_from(period) {
        Ok(period) if as_said && (every > 0 || period == 0) => Ok(period),
        _ => Err(config.wrong(key, "does not repeat itself with a full layer at the end, which alone is supported")),
    }
}

/// Layers that do not rotate: as the architecture has them, or refused.
fn unrotated(config: Object<'_>, architecture: Architecture, layers: u32) -> Result<(), CheckpointError> {
    let every = architecture.unrotated();
    if let Some(n) = config.count("no_rope_layer_interval")?.filter(|&n| n as usize != every) {
        return Err(config.wrong("no_rope_layer_interval", format!("is {n}; of this family {every} is implemented")));
    }
    let key = "no_rope_layers";
    let Some(rotates) = config.list(key)? else { return Ok(()) };
    let expected = |i: usize| u64::from(every == 0 || i % every != every - 1);
    // A list of none, as some families write it, says nothing.
    let as_said = rotates.iter().enumerate().all(|(i, v)| v.as_u64() == Some(expected(i)));
    if rotates.is_empty() || (as_said && rotates.len() == layers as usize) {
        return Ok(());
    }
    Err(config
        .wrong(key, format!("is not 0 for every {every}th layer and 1 for the others, which alone is implemented")))
}

/// How scores and logits are scaled and capped.
fn scores(
    config: Object<'_>,
    keys: &mut KeyWriter<'_>,
    (layers, hidden, heads, head_dim): (u32, u32, u32, u32),
) -> Result<(), CheckpointError> {
    let architecture = keys.architecture;
    for (key, usual) in [("scale_attn_weights", true), ("scale_attn_by_inverse_layer_idx", false)] {
        if config.flag(key)?.is_some_and(|stated| stated != usual) {
            return Err(config.wrong(key, format!("is {}, which is not implemented", !usual)));
        }
    }
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        match config.number(key)? {
            Some(cap) => keys.set(key, cap as f32),
            // No cap is 0, where otherwise there would be the family's.
            None if architecture.caps().is_some() => keys.set(key, 0f32),
            None => {}
        }
    }
    let key = "query_pre_attn_scalar";
    let Some(scale) = config.number(key)? else { return Ok(()) };
    let by_hidden = architecture.scores_by_hidden(layers as usize) && heads > 0;
    let implemented = if by_hidden { f64::from(hidden) / f64::from(heads) } else { f64::from(head_dim) };
    match architecture.glu() == Glu::Gelu && scale == implemented {
        true => Ok(()),
        false => Err(config.wrong(key, format!("is {scale}; of a model of this shape {implemented} is implemented"))),
    }
}
