//! The keys of mixtures of experts out of `config.json`.

use super::CheckpointError;
use super::json::Object;
use super::keys::KeyWriter;

/// Writes them, if the model has experts; how many a layer then has.
pub(super) fn keys(config: Object<'_>, keys: &mut KeyWriter<'_>) -> Result<Option<usize>, CheckpointError> {
    let model_type = config.text("model_type")?;
    let count = match model_type {
        Some("qwen2_moe" | "qwen3_moe" | "qwen3_next") => config.require_count("num_experts")?,
        Some("mixtral" | "gpt_oss") => config.require_count("num_local_experts")?,
        Some("glm4_moe" | "dots1") => config.require_count("n_routed_experts")?,
        _ => return Ok(None),
    };
    keys.set("expert_count", count);
    keys.set("expert_used_count", config.require_count("num_experts_per_tok")?);
    match model_type {
        Some("mixtral") => {}
        Some("gpt_oss") => keys.set("expert_feed_forward_length", config.require_count("intermediate_size")?),
        Some("glm4_moe" | "dots1") => fine_grained(config, keys)?,
        _ => {
            let usual = model_type == Some("qwen3_next");
            keys.set("expert_weights_norm", config.flag("norm_topk_prob")?.unwrap_or(usual));
            qwen(config, keys)?;
        }
    }
    Ok(Some(count as usize))
}

/// Those of Qwen's families, in all layers.
fn qwen(config: Object<'_>, keys: &mut KeyWriter<'_>) -> Result<(), CheckpointError> {
    keys.set("expert_feed_forward_length", config.require_count("moe_intermediate_size")?);
    if matches!(config.text("model_type")?, Some("qwen2_moe" | "qwen3_next")) {
        keys.set("expert_shared_feed_forward_length", config.require_count("shared_expert_intermediate_size")?);
    }
    let dense = "puts layers without experts beside layers with experts, which is not supported of this family";
    if config.count("decoder_sparse_step")?.is_some_and(|n| n != 1) {
        return Err(config.wrong("decoder_sparse_step", dense));
    }
    match config.list("mlp_only_layers")?.is_some_and(|layers| !layers.is_empty()) {
        true => Err(config.wrong("mlp_only_layers", dense)),
        false => Ok(()),
    }
}

/// Those that are chosen by sigmoids and corrections, of groups, behind layers without any (DeepSeek-AI, arXiv 2412.19437).
fn fine_grained(config: Object<'_>, keys: &mut KeyWriter<'_>) -> Result<(), CheckpointError> {
    for (key, expected) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
        if let Some(other) = config.text(key)?.filter(|other| *other != expected) {
            return Err(config.wrong(key, format!("is {other:?}; of this family {expected:?} is implemented")));
        }
    }
    if let Some(n) = config.count("moe_layer_freq")?.filter(|n| *n != 1) {
        return Err(
            config.wrong("moe_layer_freq", format!("is {n}; experts in all layers behind the first are implemented"))
        );
    }
    keys.set("expert_gating_func", 2u32);
    let normalise = config.flag("norm_topk_prob")?.ok_or_else(|| config.wrong("norm_topk_prob", "is missing"))?;
    keys.set("expert_weights_norm", normalise);
    keys.set("expert_weights_scale", config.number("routed_scaling_factor")?.unwrap_or(1.0) as f32);
    for (from, to) in [
        ("moe_intermediate_size", "expert_feed_forward_length"),
        ("n_shared_experts", "expert_shared_count"),
        ("first_k_dense_replace", "leading_dense_block_count"),
    ] {
        keys.set(to, config.require_count(from)?);
    }
    if let Some(groups) = config.count("n_group")?.filter(|n| *n > 1) {
        keys.set("expert_group_count", groups);
        keys.set("expert_group_used_count", config.require_count("topk_group")?);
    }
    Ok(())
}
