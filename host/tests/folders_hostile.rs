//! Damaged and unknown folders: each is refused by an error that names what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::folder::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use warpsmith_host::checkpoint::{self, CheckpointError};
use warpsmith_host::model::{ModelError, ModelFile};
use warpsmith_host::tokenizer::{Special, Tokenizer};

const WHOLE: &str = "model.safetensors";

fn refused(folder: &Path) -> ModelError {
    match ModelFile::open(folder) {
        Ok(_) => panic!("it opened"),
        Err(e) => e,
    }
}

/// What is said of the model of this name with another configuration.
fn configured(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let folder = copy(name);
    edit(&folder.path().join("config.json"), change);
    refused(folder.path()).to_string()
}

/// The error of the model of this name with other tensors.
fn stored(name: &str, change: impl FnOnce(&mut Value, &mut Vec<u8>)) -> CheckpointError {
    let folder = copy(name);
    rewrite(&folder.path().join(WHOLE), change);
    match refused(folder.path()) {
        ModelError::Checkpoint(e) => e,
        other => panic!("{other}"),
    }
}

#[test]
fn what_a_configuration_asks_for_and_is_not_implemented_is_refused_by_its_key() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, &str); 39] = [
        ("llama", |c| c["head_dim"] = json!(4_000_000_000u32), "`head_dim` is 4000000000"),
        ("qwen3", |c| c["model_type"] = json!("mamba2"), "model_type `mamba2` is not supported"),
        ("qwen3", |c| _ = c.as_object_mut().unwrap().remove("model_type"), "`model_type` is missing"),
        ("qwen3", |c| *c = json!([]), "expected an object"),
        ("qwen3", |c| c["hidden_size"] = json!("32"), "`hidden_size` is \"32\", expected a whole number"),
        ("qwen3", |c| c["hidden_size"] = json!(-1), "`hidden_size` is -1"),
        ("qwen3", |c| c["hidden_size"] = json!(33), "shape"),
        ("qwen3", |c| _ = c.as_object_mut().unwrap().remove("num_hidden_layers"), "`num_hidden_layers` is missing"),
        (
            "qwen3",
            |c| c["num_hidden_layers"] = json!(4_294_967_295u32),
            "`model.layers.2.input_layernorm.weight` is missing",
        ),
        (
            "qwen3",
            |c| c["num_hidden_layers"] = json!(1),
            "tensor `model.layers.1.input_layernorm.weight` is not supported",
        ),
        ("qwen3", |c| c["num_attention_heads"] = json!(0), "head_count"),
        ("qwen3", |c| c["vocab_size"] = json!(47), "vocab_size"),
        ("qwen3", |c| c["hidden_act"] = json!("gelu"), "`hidden_act` is \"gelu\""),
        (
            "qwen3",
            |c| c["rope_parameters"]["rope_type"] = json!("dynamic"),
            "`rope_parameters.rope_type` is \"dynamic\"",
        ),
        (
            "qwen3",
            |c| _ = c["rope_parameters"].as_object_mut().unwrap().remove("factor"),
            "`rope_parameters.factor` is missing",
        ),
        ("qwen3", |c| c["partial_rotary_factor"] = json!(0.5), "`partial_rotary_factor` is 0.5"),
        ("qwen3", |c| c["layer_types"][0] = json!("sliding_attention"), "`layer_types` has layers with a window"),
        ("qwen3", |c| c["layer_types"][0] = json!("linear_attention"), "`layer_types` has \"linear_attention\""),
        ("qwen2", |c| c["rope_scaling"]["mscale"] = json!(0.7), "`rope_scaling.mscale`"),
        (
            "qwen2",
            |c| (c["rope_scaling"]["truncate"], c["rope_scaling"]["beta_fast"]) = (json!(false), json!(1.0)),
            "`rope_scaling.beta_fast`",
        ),
        ("qwen2", |c| c["max_window_layers"] = json!(1), "fine"),
        ("llama", |c| c["rope_scaling"]["high_freq_factor"] = json!(1.0), "`rope_scaling.high_freq_factor` is 1"),
        ("llama", |c| c["rope_scaling"]["rope_type"] = json!("longrope"), "is \"longrope\""),
        ("phi3", |c| c["rope_scaling"]["long_factor"] = json!([1.0, 2.0]), "rope_factors_long.weight"),
        ("phi3", |c| c["rope_scaling"]["long_factor"] = json!([1.0, "2"]), "expected a list of numbers"),
        ("smollm3", |c| c["no_rope_layer_interval"] = json!(3), "`no_rope_layer_interval` is 3"),
        ("smollm3", |c| c["no_rope_layers"] = json!([1, 0, 1, 0, 1]), "`no_rope_layers` is not 0 for every 4th"),
        ("gemma2", |c| c["query_pre_attn_scalar"] = json!(144), "`query_pre_attn_scalar` is 144"),
        ("gemma3", |c| c["final_logit_softcapping"] = json!(30.0), "capped logits"),
        ("qwen3_moe", |c| c["mlp_only_layers"] = json!([0]), "`mlp_only_layers`"),
        ("qwen2_moe", |c| c["decoder_sparse_step"] = json!(2), "`decoder_sparse_step`"),
        ("glm4_moe", |c| c["first_k_dense_replace"] = json!(0), "blk.0.ffn_gate_inp.weight"),
        ("glm4_moe", |c| c["moe_layer_freq"] = json!(2), "`moe_layer_freq` is 2"),
        ("glm4_moe", |c| c["num_hidden_layers"] = json!(3), "`model.layers.2.input_layernorm.weight` is missing"),
        ("dots1", |c| c["scoring_func"] = json!("softmax"), "`scoring_func` is \"softmax\""),
        ("dots1", |c| c["norm_topk_prob"] = json!(null), "`norm_topk_prob` is missing"),
        ("dots1", |c| c["topk_group"] = json!(5), "expected at most 4 groups"),
        ("dots1", |c| c["max_window_layers"] = json!(1), "`max_window_layers` leaves layers with a window"),
        ("qwen3_moe", |c| c["num_experts"] = json!(5), "`model.layers.0.mlp.experts.4.gate_proj.weight` is missing"),
    ];
    for (name, change, says) in cases {
        if says == "fine" {
            // A window is refused only where it is used.
            let e = configured(name, |c| (change(c), c["use_sliding_window"] = json!(true)).1);
            assert!(e.contains("`max_window_layers` does not say that all layers have the window"), "{e}");
            let folder = copy(name);
            edit(&folder.path().join("config.json"), change);
            ModelFile::open(folder.path()).unwrap();
            continue;
        }
        let e = configured(name, change);
        assert!(e.contains(says), "{name}: {e}\nexpected {says}");
    }
}

#[test]
fn files_that_are_missing_are_named() {
    let folder = copy("llama");
    let shard = folder.path().join("model-00002-of-00003.safetensors");
    let moved = std::fs::read(&shard).unwrap();
    std::fs::remove_file(&shard).unwrap();
    let e = refused(folder.path());
    assert!(matches!(&e, ModelError::Checkpoint(CheckpointError::MissingShard { path, .. }) if *path == shard), "{e}");
    // Another file in its place has none of what the index says.
    std::fs::copy(folders().join("qwen3").join(WHOLE), &shard).unwrap();
    let e = refused(folder.path());
    assert!(matches!(&e, ModelError::Checkpoint(CheckpointError::DuplicateTensor { .. })), "{e}");
    std::fs::write(&shard, moved).unwrap();
    ModelFile::open(folder.path()).unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    edit(&index, |i| i["weight_map"]["model.norm.bias"] = json!("model-00002-of-00003.safetensors"));
    let e = refused(folder.path());
    assert!(
        matches!(&e, ModelError::Checkpoint(CheckpointError::MissingTensor { tensor }) if tensor == "model.norm.bias"),
        "{e}"
    );
    edit(&index, |i| i["weight_map"]["model.norm.weight"] = json!("../llama/model-00002-of-00003.safetensors"));
    assert!(refused(folder.path()).to_string().contains("no name of a file"));
    std::fs::write(&index, "{").unwrap();
    assert!(matches!(refused(folder.path()), ModelError::Checkpoint(CheckpointError::Json { .. })));
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(refused(folder.path()).to_string().contains("config.json"));
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
    assert!(refused(empty.path()).to_string().contains(WHOLE));
}

#[test]
fn headers_that_lie_are_refused() {
    let norm = "model.norm.weight";
    let says = |change: fn(&mut Value, &mut Vec<u8>), expected: &str| {
        let e = stored("qwen3", change);
        assert!(matches!(e, CheckpointError::Header { .. }) && e.to_string().contains(expected), "{e}");
    };
    says(|_, data| _ = data.pop(), "truncated or corrupt");
    says(|_, data| data.push(0), "truncated or corrupt");
    says(|h, _| h["model.norm.weight"]["shape"] = json!([33]), "damaged");
    says(|h, _| h["model.norm.weight"]["shape"] = json!([u64::MAX, 2]), "damaged");
    says(|h, _| h["model.norm.weight"]["data_offsets"][0] = json!(0), "damaged");
    says(|h, _| h["model.norm.weight"]["dtype"] = json!("F33"), "damaged");
    says(|h, _| *h = json!([]), "damaged");
    let e = stored("qwen3", |h, _| h["model.norm.weight"]["dtype"] = json!("I32"));
    assert!(matches!(&e, CheckpointError::Dtype { tensor, .. } if tensor == norm), "{e}");
    let e = stored("qwen3", |h, _| h["model.norm.weight"]["shape"] = json!([4, 8]));
    assert!(matches!(&e, CheckpointError::Shape { tensor, .. } if tensor == norm), "{e}");
    let renamed = |from: &'static str, to: &'static str| {
        stored("qwen3", move |h, _| {
            let own = h.as_object_mut().unwrap();
            let tensor = own.remove(from).unwrap();
            own.insert(to.into(), tensor);
        })
    };
    let e = renamed("model.norm.weight", "model.norm.beta");
    assert!(matches!(&e, CheckpointError::MissingTensor { tensor } if tensor == norm), "{e}");
    let e = renamed("lm_head.weight", "score.weight");
    assert!(matches!(&e, CheckpointError::MissingTensor { tensor } if tensor == "lm_head.weight"), "{e}");
    // A bias that is not implemented is no tensor to leave out.
    let folder = copy("qwen3");
    rewrite(&folder.path().join(WHOLE), |h, data| {
        let at = data.len();
        h["model.layers.0.mlp.up_proj.bias"] = json!({"dtype": "F32", "shape": [48], "data_offsets": [at, at + 192]});
        data.extend([0x3c; 192]);
    });
    let e = refused(folder.path());
    assert!(
        matches!(&e, ModelError::Checkpoint(CheckpointError::UnknownTensor { tensor }) if tensor.ends_with("up_proj.bias")),
        "{e}"
    );
}

#[test]
fn every_truncation_is_an_error() {
    let folder = copy("qwen3");
    let path = folder.path().join(WHOLE);
    let whole = std::fs::read(&path).unwrap();
    for len in (0..whole.len()).step_by(997).chain(0..64) {
        std::fs::write(&path, &whole[..len]).unwrap();
        let e = refused(folder.path());
        assert!(matches!(&e, ModelError::Checkpoint(CheckpointError::Header { .. })), "{len}: {e}");
    }
}

#[test]
fn a_file_that_shrinks_behind_an_open_model_is_an_error() {
    let folder = copy("qwen3");
    let model = ModelFile::open(folder.path()).unwrap();
    let path = folder.path().join(WHOLE);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..100]).unwrap();
    let e = model.data(model.embedding()).to_vec().unwrap_err().to_string();
    assert!(e.contains(WHOLE), "{e}");
}

#[test]
fn weights_that_are_not_finite_are_named_by_their_place() {
    let folder = copy("qwen3");
    poke(&folder.path().join(WHOLE), "lm_head.weight", 4 * 33, &f32::NAN.to_le_bytes());
    let e = refused(folder.path()).to_string();
    assert!(e.contains("output.weight") && e.contains("row 1"), "{e}");
}

/// A vocabulary that cannot be used costs text, and not the model.
#[test]
fn vocabularies_that_are_not_implemented_leave_a_model_that_runs_on_ids() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, &str); 14] = [
        ("qwen", |t| t["model"]["type"] = json!("Unigram"), "`model.type`"),
        ("qwen", |t| t["model"]["end_of_word_suffix"] = json!("</w>"), "`model.end_of_word_suffix`"),
        ("qwen", |t| t["model"]["vocab"]["x y"] = json!(4_000_000_000u32), "no id below"),
        ("qwen", |t| t["model"]["vocab"]["x y"] = json!("7"), "no id below"),
        ("qwen", |t| t["model"]["merges"][3] = json!(["a"]), "`model.merges` has 3 merges"),
        ("qwen", |t| t["normalizer"] = json!({"type": "Lowercase"}), "Lowercase"),
        ("qwen", |t| t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = json!("Removed"), "`pre_tokenizer.behavior`"),
        (
            "qwen",
            |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": "("}),
            "rule `tokenizer.json` failed",
        ),
        ("qwen", |t| t["added_tokens"][0]["lstrip"] = json!(true), "`added_tokens.lstrip`"),
        ("qwen", |t| t["added_tokens"][0]["id"] = json!(4_000_000_000u32), "expected less than"),
        ("qwen", |t| t["pre_tokenizer"] = Value::Null, "neither byte-level BPE"),
        (
            "llama3",
            |t| t["post_processor"]["processors"][1]["single"][0]["SpecialToken"]["id"] = json!("<x>"),
            "no token",
        ),
        ("llama2", |t| t["model"]["byte_fallback"] = json!(false), "`model.byte_fallback`"),
        ("metaspace-first", |t| t["pre_tokenizer"]["split"] = json!(true), "`pre_tokenizer.split`"),
    ];
    for (vocabulary, change, says) in cases {
        let folder = copy("qwen3");
        let path = folder.path().join("tokenizer.json");
        std::fs::copy(folders().join("../tokenizers").join(vocabulary).join("tokenizer.json"), &path).unwrap();
        edit(&path, change);
        let model = ModelFile::open(folder.path()).unwrap();
        let e = Tokenizer::from_gguf(model.gguf()).unwrap_err().to_string();
        assert!(e.contains(says), "{vocabulary}: {e}\nexpected {says}");
    }
    let folder = copy("qwen3");
    let e = Tokenizer::from_gguf(&checkpoint::open(folder.path()).unwrap()).unwrap_err().to_string();
    assert!(e.contains("tokenizer.json") && e.contains("--tokens"), "{e}");
    std::fs::write(folder.path().join("tokenizer.json"), "{\"model\": ").unwrap();
    let e = Tokenizer::from_gguf(&checkpoint::open(folder.path()).unwrap()).unwrap_err().to_string();
    assert!(e.contains("tokenizer.json") && e.contains("EOF"), "{e}");
}

/// Which tokens begin and end, and the templates, come from the files beside the vocabulary.
#[test]
fn special_tokens_and_templates_come_from_the_files_beside_the_vocabulary() {
    let folder = copy("qwen3");
    let at = |name: &str| folder.path().join(name);
    std::fs::copy(folders().join("../tokenizers/qwen/tokenizer.json"), at("tokenizer.json")).unwrap();
    let stated = json!({
        "bos_token": null, "eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"},
        "chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    });
    std::fs::write(at("tokenizer_config.json"), stated.to_string()).unwrap();
    std::fs::write(at("generation_config.json"), json!({"eos_token_id": [424, 420]}).to_string()).unwrap();
    edit(&at("config.json"), |c| c["bos_token_id"] = json!(420));
    let gguf = checkpoint::open(folder.path()).unwrap();
    let t = Tokenizer::from_gguf(&gguf).unwrap();
    let id = |text: &str| t.id(text).unwrap();
    assert_eq!((t.bos(), t.eos(), t.padding()), (Some(420), Some(id("<|im_end|>")), Some(id("<|endoftext|>"))));
    // Those of the generation beside the end of text, and a name that is known.
    assert!([420, 424, id("<|im_end|>"), id("<|endoftext|>")].iter().all(|&id| t.is_eog(id)), "{:?}", t.eog());
    assert!(!t.adds_bos());
    assert_eq!(t.decode(&t.encode("naïve 日本", Special::Parse).unwrap()), "naïve 日本");
    assert_eq!(gguf.str("tokenizer.chat_template").unwrap(), Some("A"));
    assert_eq!(gguf.str("tokenizer.chat_template.tool_use").unwrap(), Some("B"));
    std::fs::write(at("chat_template.jinja"), "C").unwrap();
    let gguf = checkpoint::open(folder.path()).unwrap();
    assert_eq!(gguf.str("tokenizer.chat_template").unwrap(), Some("C"));
    std::fs::write(at("generation_config.json"), json!({"eos_token_id": 9999}).to_string()).unwrap();
    let e = Tokenizer::from_gguf(&checkpoint::open(folder.path()).unwrap()).unwrap_err().to_string();
    assert!(e.contains("token 9999"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Bytes that change anywhere in the header, in its length or in the configuration: an error or a model, and no panic.
    #[test]
    fn damaged_headers_and_configurations_never_panic(
        damage in proptest::collection::vec((0usize..6000, any::<u8>()), 1..6), config in any::<bool>()
    ) {
        let folder = copy("qwen3");
        let path = folder.path().join(if config { "config.json" } else { WHOLE });
        let mut bytes = std::fs::read(&path).unwrap();
        let len = bytes.len();
        for (at, value) in damage {
            bytes[at % len] = value;
        }
        std::fs::write(&path, bytes).unwrap();
        match ModelFile::open(folder.path()) {
            Ok(model) => prop_assert!(model.config().layers == 2),
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }
}
