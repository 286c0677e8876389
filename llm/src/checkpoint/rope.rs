//! How positions turn into angles, out of `config.json`.
//!
//! Older files have `rope_theta` and `rope_scaling`; since version 5 of transformers both are in `rope_parameters`, of families with
//! two kinds of layers under `full_attention` and `sliding_attention`.

use super::CheckpointError;
use super::json::Object;
use super::keys::{FILE, KeyWriter};
use crate::model::Architecture;

/// What a family has where its file does not say it.
fn usual_base(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Gemma3 => 1e6,
        Architecture::SmolLm3 => 2e6,
        Architecture::GptOss => 1.5e5,
        _ => 1e4,
    }
}

/// Families in which some elements of a head may be left as they are.
const PARTIAL: [Architecture; 7] = [
    Architecture::Phi3,
    Architecture::Phi2,
    Architecture::Nemotron,
    Architecture::StableLm,
    Architecture::Glm4Moe,
    Architecture::Qwen3Next,
    Architecture::GptNeoX,
];

/// The share of a head that is rotated where a file does not say it, if that is not all of it.
fn usual_share(architecture: Architecture) -> Option<f64> {
    match architecture {
        Architecture::Phi2 | Architecture::Nemotron | Architecture::Glm4Moe => Some(0.5),
        Architecture::StableLm | Architecture::Qwen3Next | Architecture::GptNeoX => Some(0.25),
        _ => None,
    }
}

/// Writes the keys; returns what is a tensor in GGUF files.
pub(super) fn keys(
    config: Object<'_>,
    keys: &mut KeyWriter<'_>,
    head_dim: u32,
) -> Result<Vec<(&'static str, Vec<f32>)>, CheckpointError> {
    let architecture = keys.architecture;
    if architecture.learned_positions() {
        return Ok(Vec::new());
    }
    let parameters = config.map("rope_parameters")?;
    let object = |value, within| Object::within(FILE, within, value);
    let nested = |kind: &str| parameters.and_then(|p| p.get(kind)).filter(|v| v.is_object());
    let new = match (nested("full_attention"), config.get("rope_parameters")) {
        (Some(full), _) => Some(object(full, "rope_parameters.full_attention.")?),
        (None, Some(all)) => Some(object(all, "rope_parameters.")?),
        (None, None) => None,
    };
    let old = config.get("rope_scaling").map(|v| object(v, "rope_scaling.")).transpose()?;
    let scaling = new.or(old);
    // GPT-NeoX had names of its own.
    let (old_base, old_share) = match architecture {
        Architecture::GptNeoX => ("rotary_emb_base", "rotary_pct"),
        _ => ("rope_theta", "partial_rotary_factor"),
    };
    let base = match (new.map(|n| n.number("rope_theta")).transpose()?.flatten(), config.number(old_base)?) {
        (Some(base), _) | (None, Some(base)) => base,
        (None, None) => usual_base(architecture),
    };
    keys.set("rope.freq_base", base as f32);
    if architecture.local_base().is_some() {
        let sliding =
            nested("sliding_attention").map(|v| object(v, "rope_parameters.sliding_attention.")).transpose()?;
        let base = match sliding {
            Some(sliding) => {
                if sliding.text("rope_type")?.is_some_and(|kind| kind != "default") {
                    return Err(sliding.wrong("rope_type", "is no `default`, which alone is implemented here"));
                }
                sliding.number("rope_theta")?
            }
            None => config.number("rope_local_base_freq")?,
        };
        if let Some(base) = base {
            keys.set("rope.freq_base_swa", base as f32);
        }
    }
    let share = match new.map(|n| n.number("partial_rotary_factor")).transpose()?.flatten() {
        Some(share) => Some(share),
        None => config.number(old_share)?,
    };
    let dims = rotated(config, architecture, head_dim, share)?;
    keys.set("rope.dimension_count", dims);
    match scaling {
        Some(scaling) => scaled(config, scaling, keys, (dims, base)),
        None => Ok(Vec::new()),
    }
}

/// Elements of a head that are rotated.
fn rotated(
    config: Object<'_>,
    architecture: Architecture,
    head_dim: u32,
    share: Option<f64>,
) -> Result<u32, CheckpointError> {
    match share.or(usual_share(architecture)) {
        None | Some(1.0) => Ok(head_dim),
        Some(share) if share > 0.0 && share < 1.0 && PARTIAL.contains(&architecture) => {
            Ok((f64::from(head_dim) * share) as u32)
        }
        Some(share) => {
            Err(config.wrong("partial_rotary_factor", format!("is {share}; of this family 1 is implemented")))
        }
    }
}

/// Writes the keys of a scaling.
fn scaled(
    config: Object<'_>,
    scaling: Object<'_>,
    keys: &mut KeyWriter<'_>,
    (dims, base): (u32, f64),
) -> Result<Vec<(&'static str, Vec<f32>)>, CheckpointError> {
    let kind = match scaling.text("rope_type")? {
        None => scaling.text("type")?.unwrap_or("default"),
        Some(kind) => kind,
    };
    let factor = || scaling.number("factor")?.ok_or_else(|| scaling.wrong("factor", "is missing"));
    let original = || -> Result<u32, CheckpointError> {
        let key = "original_max_position_embeddings";
        match (scaling.count(key)?, config.count(key)?) {
            (Some(n), _) | (None, Some(n)) => Ok(n),
            (None, None) => config.require_count("max_position_embeddings"),
        }
    };
    match kind {
        "default" => Ok(Vec::new()),
        "linear" => {
            keys.set("rope.scaling.type", "linear");
            keys.set("rope.scaling.factor", factor()? as f32);
            Ok(Vec::new())
        }
        "yarn" => {
            let factor = factor()?;
            yarn(scaling, keys, (dims, base), (factor, original()?))
        }
        "llama3" => {
            let number = |key: &str| scaling.number(key)?.ok_or_else(|| scaling.wrong(key, "is missing"));
            let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
            if high.partial_cmp(&low) != Some(std::cmp::Ordering::Greater) {
                return Err(scaling.wrong("high_freq_factor", format!("is {high}, expected more than {low}")));
            }
            let divisors = llama3(dims, base, [factor()?, low, high, f64::from(original()?)]);
            Ok(vec![("rope_freqs.weight", divisors)])
        }
        "longrope" | "su" if keys.architecture.longrope() => longrope(config, scaling, keys, original()?),
        other => Err(scaling.wrong(
            "rope_type",
            format!("is {other:?}; `default`, `linear`, `yarn`, `llama3` and, of phi3, `longrope` are implemented"),
        )),
    }
}

/// YaRN (Peng et al., arXiv 2309.00071). A stated factor of attention stands for the whole, where GGUF's stands beside the paper's. ggml mixes
/// angles of whole pairs alone; where a file has them as they come, angles have divisors.
fn yarn(
    scaling: Object<'_>,
    keys: &mut KeyWriter<'_>,
    (dims, base): (u32, f64),
    (factor, original): (f64, u32),
) -> Result<Vec<(&'static str, Vec<f32>)>, CheckpointError> {
    for key in ["mscale", "mscale_all_dim"] {
        if scaling.number(key)?.is_some_and(|n| n != 0.0) {
            return Err(scaling.wrong(key, "is no 0, and a multiplier of YaRN's attention scale is not implemented"));
        }
    }
    let own = if factor > 1.0 { 1.0 + 0.1 * factor.ln() } else { 1.0 };
    let whole = scaling.number("attention_factor")?;
    let turns =
        [("beta_fast", 32.0), ("beta_slow", 1.0)].map(|(key, usual)| scaling.number(key).map(|n| n.unwrap_or(usual)));
    let [fast, slow] = turns;
    let (fast, slow) = (fast?, slow?);
    keys.set("rope.scaling.type", "yarn");
    if scaling.flag("truncate")? == Some(false) {
        if !(slow > 0.0 && fast > slow && factor >= 1.0 && original > 0) {
            return Err(
                scaling.wrong("beta_fast", "is not above `beta_slow`, which is above zero, with a factor of 1 or more")
            );
        }
        // No pair takes a share of another angle but by its divisor.
        keys.set("rope.scaling.factor", 1f32);
        keys.set("rope.scaling.yarn_ext_factor", 0f32);
        keys.set("rope.scaling.attn_factor", whole.unwrap_or(own) as f32);
        return Ok(vec![("rope_freqs.weight", between_pairs(dims, base, [factor, fast, slow, f64::from(original)]))]);
    }
    keys.set("rope.scaling.factor", factor as f32);
    keys.set("rope.scaling.original_context_length", original);
    keys.set("rope.scaling.yarn_beta_fast", fast as f32);
    keys.set("rope.scaling.yarn_beta_slow", slow as f32);
    if let Some(whole) = whole {
        keys.set("rope.scaling.attn_factor", (whole / own) as f32);
    }
    Ok(Vec::new())
}

/// What YaRN divides angles by: pairs behind the one that turns `slow` times within the original context by the factor, those before the
/// one that turns `fast` times by 1, and those between by a mixture.
fn between_pairs(dims: u32, base: f64, [factor, fast, slow, original]: [f64; 4]) -> Vec<f32> {
    let pair = |turns: f64| f64::from(dims) * (original / (turns * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
    let (low, high) = (pair(fast).max(0.0), pair(slow).min(f64::from(dims) - 1.0));
    (0..dims / 2)
        .map(|i| {
            let scaled = ((f64::from(i) - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            (1.0 / (scaled / factor + 1.0 - scaled)) as f32
        })
        .collect()
}

/// What angles are divided by: pairs that turn slowly by `factor`, fast ones by 1, and those between by a mixture. Source: Llama 3.1's
/// model card and reference code (`apply_scaling`).
fn llama3(dims: u32, base: f64, [factor, low, high, original]: [f64; 4]) -> Vec<f32> {
    (0..dims / 2)
        .map(|i| {
            let wave = std::f64::consts::TAU * base.powf(f64::from(2 * i) / f64::from(dims));
            let share = ((original / wave - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - share) / factor + share)) as f32
        })
        .collect()
}

/// Two lists of divisors, and by how much cosines and sines are stretched (Ding et al., arXiv 2402.13753).
fn longrope(
    config: Object<'_>,
    scaling: Object<'_>,
    keys: &mut KeyWriter<'_>,
    original: u32,
) -> Result<Vec<(&'static str, Vec<f32>)>, CheckpointError> {
    for key in ["short_mscale", "long_mscale"] {
        if scaling.get(key).is_some() {
            return Err(scaling.wrong(key, "is not implemented"));
        }
    }
    let whole = f64::from(config.require_count("max_position_embeddings")?);
    let scale = match scaling.number("factor")? {
        Some(factor) => factor,
        None => whole / f64::from(original.max(1)),
    };
    let stretch = match scaling.number("attention_factor")? {
        Some(stretch) => stretch,
        None if scale <= 1.0 || original <= 1 => 1.0,
        None => (1.0 + scale.ln() / f64::from(original).ln()).sqrt(),
    };
    keys.set("rope.scaling.type", "longrope");
    keys.set("rope.scaling.original_context_length", original);
    keys.set("rope.scaling.attn_factor", stretch as f32);
    let list = |key: &str| scaling.numbers(key)?.ok_or_else(|| scaling.wrong(key, "is missing"));
    Ok(vec![("rope_factors_short.weight", list("short_factor")?), ("rope_factors_long.weight", list("long_factor")?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first, middle and last divisors of Llama 3.1 8B, as its reference code gives them: `apply_scaling` with factor 8, low 1,
    /// high 4, 8192 positions and base 500000, in f64.
    #[test]
    fn llama_3_divides_slow_pairs_only() {
        let divisors = llama3(128, 5e5, [8.0, 1.0, 4.0, 8192.0]);
        assert_eq!((divisors.len(), divisors[0], divisors[28], divisors[63]), (64, 1.0, 1.0, 8.0));
        // Pair 32 has a wave of 4442.88 positions: (8192 / 4442.88 - 1) / 3 of it stays.
        let share = (8192.0 / 4442.882938 - 1.0) / 3.0;
        assert!((f64::from(divisors[32]) - 1.0 / ((1.0 - share) / 8.0 + share)).abs() < 1e-6, "{}", divisors[32]);
    }
}
