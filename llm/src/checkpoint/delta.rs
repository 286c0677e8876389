//! The keys of gated delta nets out of `config.json`.

use super::CheckpointError;
use super::json::Object;
use super::keys::KeyWriter;

/// Writes them, if the family has any.
pub(super) fn keys(config: Object<'_>, keys: &mut KeyWriter<'_>, layers: u32) -> Result<(), CheckpointError> {
    if keys.architecture.delta_nets().is_none() {
        return Ok(());
    }
    let [key_width, width] = ["linear_key_head_dim", "linear_value_head_dim"].map(|key| config.require_count(key));
    let (key_width, width, heads) = (key_width?, width?, config.require_count("linear_num_value_heads")?);
    if key_width != width {
        let reason =
            format!("is {width}; heads of values that are as wide as those of keys ({key_width}) are implemented");
        return Err(config.wrong("linear_value_head_dim", reason));
    }
    let inner = heads.checked_mul(width);
    let inner =
        inner.ok_or_else(|| config.wrong("linear_num_value_heads", format!("is {heads}, which is too many")))?;
    keys.set("ssm.conv_kernel", config.require_count("linear_conv_kernel_dim")?);
    keys.set("ssm.state_size", width);
    keys.set("ssm.group_count", config.require_count("linear_num_key_heads")?);
    keys.set("ssm.time_step_rank", heads);
    keys.set("ssm.inner_size", inner);
    let Some(kinds) = config.list("layer_types")? else {
        keys.set("full_attention_interval", config.count("full_attention_interval")?.unwrap_or(4));
        return Ok(());
    };
    if kinds.len() != layers as usize {
        return Err(config.wrong("layer_types", format!("has {} entries for {layers} layers", kinds.len())));
    }
    let recurrent =
        kinds.iter().map(|kind| match kind.as_str() {
            Some("linear_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => Err(config
                .wrong("layer_types", format!("has {kind}; `linear_attention` and `full_attention` are implemented"))),
        });
    keys.set("attention.recurrent_layers", recurrent.collect::<Result<Vec<bool>, _>>()?);
    Ok(())
}
