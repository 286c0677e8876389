//! The names of GPT-2's and GPT-NeoX's checkpoints.

use super::super::shards::Shards;
use super::{Names, Read};

/// GPT-2, whose matrices have a row for each input. OpenAI's own checkpoints lack the name of the whole.
pub(super) fn second(shards: &Shards) -> Names {
    let root = if shards.get("transformer.wte.weight").is_some() { "transformer." } else { "" };
    let whole = [
        ("wte.weight", "token_embd.weight", Read::Matrix),
        ("wpe.weight", "position_embd.weight", Read::Table),
        ("ln_f.weight", "output_norm.weight", Read::Norm),
        ("ln_f.bias", "output_norm.bias", Read::Vector),
    ];
    let head = "lm_head.weight";
    let mut whole: Vec<_> = whole.map(|(from, to, read)| (format!("{root}{from}"), to, read)).into();
    whole.push((head.to_owned(), "output.weight", Read::Matrix));
    let of_layer = vec![
        ("ln_1.weight", "attn_norm.weight", Read::Norm),
        ("ln_1.bias", "attn_norm.bias", Read::Vector),
        ("attn.c_attn.weight", "attn_qkv.weight", Read::Transposed),
        ("attn.c_attn.bias", "attn_qkv.bias", Read::Vector),
        ("attn.c_proj.weight", "attn_output.weight", Read::Transposed),
        ("attn.c_proj.bias", "attn_output.bias", Read::Vector),
        ("ln_2.weight", "ffn_norm.weight", Read::Norm),
        ("ln_2.bias", "ffn_norm.bias", Read::Vector),
        ("mlp.c_fc.weight", "ffn_up.weight", Read::Transposed),
        ("mlp.c_fc.bias", "ffn_up.bias", Read::Vector),
        ("mlp.c_proj.weight", "ffn_down.weight", Read::Transposed),
        ("mlp.c_proj.bias", "ffn_down.bias", Read::Vector),
    ];
    Names { layers: format!("{root}h."), whole, of_layer, head }
}

/// GPT-NeoX, which stores queries, keys and values of a head together.
pub(super) fn neox() -> Names {
    let head = "embed_out.weight";
    let whole = [
        ("gpt_neox.embed_in.weight", "token_embd.weight", Read::Matrix),
        ("gpt_neox.final_layer_norm.weight", "output_norm.weight", Read::Norm),
        ("gpt_neox.final_layer_norm.bias", "output_norm.bias", Read::Vector),
        (head, "output.weight", Read::Matrix),
    ];
    let of_layer = vec![
        ("input_layernorm.weight", "attn_norm.weight", Read::Norm),
        ("input_layernorm.bias", "attn_norm.bias", Read::Vector),
        ("attention.query_key_value.weight", "attn_qkv.weight", Read::ByHead),
        ("attention.query_key_value.bias", "attn_qkv.bias", Read::ByHeadBias),
        ("attention.dense.weight", "attn_output.weight", Read::Matrix),
        ("attention.dense.bias", "attn_output.bias", Read::Vector),
        ("post_attention_layernorm.weight", "ffn_norm.weight", Read::Norm),
        ("post_attention_layernorm.bias", "ffn_norm.bias", Read::Vector),
        ("mlp.dense_h_to_4h.weight", "ffn_up.weight", Read::Matrix),
        ("mlp.dense_h_to_4h.bias", "ffn_up.bias", Read::Vector),
        ("mlp.dense_4h_to_h.weight", "ffn_down.weight", Read::Matrix),
        ("mlp.dense_4h_to_h.bias", "ffn_down.bias", Read::Vector),
    ];
    let whole = whole.map(|(from, to, read)| (from.to_owned(), to, read)).into();
    Names { layers: "gpt_neox.layers.".to_owned(), whole, of_layer, head }
}
