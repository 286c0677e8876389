//! Folders of Hugging Face as models: against logits in f64 of `data/make_folders.py`, and what is refused of damaged ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::folder::*;
use common::*;
use gpu_kernels::format::Format;
use std::path::PathBuf;
use warpsmith_host::Device;
use warpsmith_host::checkpoint;
use warpsmith_host::decode::{LoadProgress, Model, Session, SessionOptions};
use warpsmith_host::model::{LayerTensors, Matrix, ModelFile};
use warpsmith_host::reference::{KvRounding, Reference};
use warpsmith_host::tokenizer::{Special, Tokenizer};

/// The largest difference from the golden logits, in their standard deviations.
fn difference(model: &ModelFile, golden: &str) -> f64 {
    let want = read_f64(&folders().join(format!("{golden}.logits.f64")));
    let mut r = Reference::new(model, KvRounding::None);
    let step = |(token, want): (u32, &[f64])| worst(r.feed(token).unwrap().logits, want.iter().copied());
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0];
    tokens.into_iter().zip(want.chunks(48)).map(step).fold(0.0, f64::max) / deviation(&want)
}

/// Folders of families with layer norms.
const LAYER_NORMED: [&str; 8] =
    ["starcoder2", "phi", "cohere", "cohere2", "nemotron", "stablelm", "stablelm-parallel", "olmo"];

/// Mixtures with shared experts, by softmax and by sigmoids with corrections: `make_mixture_folders.py` wrote these.
const SHARED: [&str; 3] = ["qwen2_moe", "glm4_moe", "dots1"];

/// Families that store more than names otherwise: experts of MXFP4 with gates and ups in turn, and as they are with a row for each input; gated
/// delta nets by key heads; matrices with a row for each input; queries, keys and values of a head together. `make_other_folders.py` wrote these.
const OTHERS: [&str; 6] = ["gpt_oss", "gpt_oss-bf16", "qwen3_next", "gpt2", "gpt_neox", "gpt_neox-sequential"];

/// Every family in the names and conventions of transformers, dense and exact in f64 but for RoPE's numbers, which are of f32: a llama in three files
/// with Llama 3's factors, a tied qwen2 with biases and YaRN whose factor of attention is stated, a qwen3 with `rope_parameters`, a mistral
/// with a window, a phi3 with longrope on three quarters of a head, a smollm3, a gemma2 with caps, a gemma3, and two mixtures of experts.
#[test]
fn every_family_matches_another_implementation() {
    let names = ["llama", "qwen2", "qwen3", "mistral", "phi3", "smollm3", "gemma2", "gemma3", "qwen3_moe", "mixtral"];
    for name in names {
        let model = ModelFile::open(folders().join(name)).unwrap();
        let d = difference(&model, name);
        assert!(d < 1e-6, "{name}: {d:e}");
    }
    // `make_layer_norm_folders.py` wrote these: their norms subtract the mean, and some have no gates, or one norm for both parts.
    for name in LAYER_NORMED.into_iter().chain(SHARED) {
        let model = ModelFile::open(folders().join(name)).unwrap();
        let d = difference(&model, name);
        assert!(d < 1e-6, "{name}: {d:e}");
    }
    for name in OTHERS {
        let model = ModelFile::open(folders().join(name)).unwrap();
        let d = difference(&model, name);
        assert!(d < 1e-6, "{name}: {d:e}");
    }
    let model = ModelFile::open_within(folders().join("phi3"), 16).unwrap();
    let d = difference(&model, "phi3-short");
    assert!(d < 1e-6, "{d:e}");
}

/// What the `tokenizers` library makes of texts: `data/make_tokenizers.py`.
#[test]
fn texts_become_the_tokens_that_the_tokenizers_library_makes_of_them() {
    let all = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizers");
    let mut seen = 0;
    for vocabulary in std::fs::read_dir(all).unwrap() {
        let vocabulary = vocabulary.unwrap().path();
        let folder = copy("qwen3");
        std::fs::copy(vocabulary.join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
        let tokenizer = Tokenizer::from_gguf(&checkpoint::open(folder.path()).unwrap()).unwrap();
        let expected = std::fs::read(vocabulary.join("expected.json")).unwrap();
        let expected: Vec<(String, Vec<u32>, String)> = serde_json::from_slice(&expected).unwrap();
        assert!(expected.len() > 20);
        for (text, want, shown_again) in expected {
            let got = tokenizer.encode(&text, Special::Parse).unwrap();
            let shown =
                |ids: &[u32]| ids.iter().map(|&id| tokenizer.token(id).unwrap_or("?").to_owned()).collect::<Vec<_>>();
            assert_eq!(got, want, "{}: {text:?}\n{:?}\n{:?}", vocabulary.display(), shown(&got), shown(&want));
            assert_eq!(tokenizer.decode(&got), shown_again, "{}: {text:?}", vocabulary.display());
            seen += 1;
        }
    }
    assert!(seen > 180, "{seen}");
}

fn formats(model: &ModelFile, part: fn(&LayerTensors) -> Option<&Matrix>) -> Vec<Option<Format>> {
    model.layers().iter().map(|l| part(l).map(|matrix| matrix.format)).collect()
}

/// Checkpoints that are quantised, against logits of the weights that their formats' descriptions make of them. Where weights become
/// F16, the scales have so few bits that all weights are f16s.
#[test]
fn every_quantisation_is_taken_apart_as_its_description_says() {
    use Format::*;
    type Part = fn(&LayerTensors) -> Option<&Matrix>;
    type Case = (&'static str, [(Part, [Format; 2]); 3]);
    let [q, k, v, o]: [Part; 4] = [|l| l.q.as_ref(), |l| l.k.as_ref(), |l| l.v.as_ref(), |l| Some(&l.attn_output)];
    let [up, down]: [Part; 2] = [|l| Some(&l.up), |l| Some(&l.down)];
    let cases: [Case; 12] = [
        // Zeros around 8 and others; act-order in the second layer's queries and all downs.
        ("gptq", [(v, [Q4_0; 2]), (q, [Q5_0; 2]), (down, [Q5_0; 2])]),
        // Act-order throughout; in the second layer's outputs, groups of no whole units.
        ("gptq-order", [(q, [Q5_0; 2]), (o, [Q5_0, F16]), (down, [Q5_0; 2])]),
        ("gptq-order", [(k, [Q5_0; 2]), (v, [Q4_0; 2]), (up, [Q4_0, Q5_0])]),
        // Eight bits in one group, version 2, around 128 but for ups.
        ("gptq8", [(q, [Q8_0; 2]), (up, [F16; 2]), (down, [Q8_0; 2])]),
        // Of few bits, around any zero; act-order in the first layer's downs.
        ("gptq3", [(v, [Q4_0; 2]), (q, [Q4_0; 2]), (down, [Q4_0; 2])]),
        ("gptq2", [(v, [Q4_0; 2]), (q, [Q4_0; 2]), (down, [Q4_0; 2])]),
        ("awq", [(q, [Q5_0; 2]), (o, [Q5_0; 2]), (down, [Q5_0; 2])]),
        // Blocks of 32 rows and 40 columns, the last narrower.
        ("fp8-block", [(q, [F16; 2]), (o, [F16; 2]), (down, [F16; 2])]),
        ("fp8-channel", [(q, [F16; 2]), (o, [F16; 2]), (down, [F16; 2])]),
        // E5M2.
        ("fp8-tensor", [(q, [F16; 2]), (o, [F16; 2]), (down, [F16; 2])]),
        ("packed4", [(q, [Q5_0; 2]), (o, [Q5_0; 2]), (down, [Q5_0; 2])]),
        ("packed8", [(q, [Q8_0; 2]), (o, [Q8_0; 2]), (down, [Q8_0; 2])]),
    ];
    for (name, made) in cases {
        let model = ModelFile::open(folders().join(name)).unwrap();
        for (part, want) in made {
            assert_eq!(formats(&model, part), want.map(Some), "{name}");
        }
        let d = difference(&model, name);
        assert!(d < 1e-6, "{name}: {d:e}");
    }
}

/// Downs of experts change places with rows of their gates and ups, which all read one column: those with an order of their own are F16.
#[test]
fn experts_have_an_order_of_their_own() {
    let model = ModelFile::open(folders().join("gptq-experts")).unwrap();
    let layer = &model.layers()[0];
    let made = [layer.gate.as_ref().unwrap(), &layer.up, &layer.down, &layer.attn_output]
        .map(|m| (m.format, m.columns.is_some()));
    use Format::{F16, Q4_0};
    assert_eq!(made, [(F16, false), (Q4_0, false), (Q4_0, false), (Q4_0, true)]);
    let d = difference(&model, "gptq-experts");
    assert!(d < 1e-6, "{d:e}");
}

/// Floats of eight bits and of four keep them: blocks of 32 rows and 128 columns, values of E5M2 among them; ModelOpt's NVFP4, whose scale
/// of a matrix is a factor, and that of compressed-tensors, where it is a divisor.
#[test]
fn floats_of_few_bits_stay_what_they_are() {
    use Format::*;
    // A scale of a matrix that is no power of two takes two roundings to f32.
    for (name, layers, of_values, of_others, bound) in [
        ("fp8-wide", 1, F8_E5M2, F8_E4M3, 1e-6),
        ("nvfp4", 2, NVFP4_SCALED, NVFP4_SCALED, 4e-6),
        ("nvfp4-packed", 2, NVFP4_SCALED, NVFP4_SCALED, 1e-6),
    ] {
        let model = ModelFile::open(folders().join(name)).unwrap();
        assert_eq!(formats(&model, |l| l.v.as_ref()), vec![Some(of_values); layers], "{name}");
        assert_eq!(formats(&model, |l| Some(&l.down)), vec![Some(of_others); layers], "{name}");
        let d = difference(&model, name);
        assert!(d < bound, "{name}: {d:e}");
    }
    // Where ModelOpt has a file of its own for it.
    let folder = copy("nvfp4");
    edit(&folder.path().join("config.json"), |c| _ = c.as_object_mut().unwrap().remove("quantization_config"));
    let stated = r#"{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}"#;
    std::fs::write(folder.path().join("hf_quant_config.json"), stated).unwrap();
    let d = difference(&ModelFile::open(folder.path()).unwrap(), "nvfp4");
    assert!(d < 4e-6, "{d:e}");
}

/// On the device, whose products round activations.
#[test]
fn folders_decode_on_the_device_as_they_do_on_the_cpu() {
    let device = Device::open(0).unwrap();
    let quantised = [
        "gptq",
        "gptq-order",
        "gptq-experts",
        "gptq2",
        "gptq3",
        "awq",
        "fp8-block",
        "fp8-wide",
        "nvfp4",
        "nvfp4-packed",
        "packed8",
    ];
    for name in quantised.into_iter().chain(OTHERS) {
        let file = ModelFile::open(folders().join(name)).unwrap();
        let (mut told, mut last) = (Vec::new(), 0);
        let last_of_all = &file.layers().last().unwrap().down.name;
        let model = Model::load_with(&device, &file, |p: LoadProgress<'_>| {
            assert!(p.done >= last && p.done <= p.total);
            last = p.done;
            told.push(p.tensor.to_owned());
        })
        .unwrap();
        // What is no multiple of 512 bytes takes that many.
        let all = if OTHERS.contains(&name) { last <= model.bytes() } else { last == model.bytes() };
        assert!(all && told.contains(last_of_all), "{name}: {last} of {}, {told:?}", model.bytes());
        let mut session = Session::new(&model, SessionOptions::default()).unwrap();
        let want = read_f64(&folders().join(format!("{name}.logits.f64")));
        for (token, want) in [3u32, 1, 4, 1, 5, 9, 2, 6, 47, 0].into_iter().zip(want.chunks(48)) {
            session.feed(token).unwrap();
            let logits = session.logits().unwrap();
            let d = worst(logits.iter().map(|x| f64::from(*x)), want.iter().copied());
            assert!(d < 5e-3 * deviation(want), "{name}: {d:e}");
        }
    }
}

#[test]
fn a_model_has_the_name_of_its_folder() {
    let model = ModelFile::open(folders().join("qwen3")).unwrap();
    assert_eq!(model.config().name.as_deref(), Some("qwen3"));
    assert_eq!(model.gguf().path().unwrap(), folders().join("qwen3"));
}

/// What families with layer norms ask of a folder.
#[test]
fn folders_of_layer_norms_are_refused_for_what_they_lack_or_do_otherwise() {
    use serde_json::json;
    let refused = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let folder = copy(name);
        edit(&folder.path().join("config.json"), change);
        ModelFile::open(folder.path()).unwrap_err().to_string()
    };
    for (name, key, value, says) in [
        ("starcoder2", "norm_epsilon", json!(null), "norm_epsilon"),
        ("starcoder2", "hidden_act", json!("gelu"), "\"gelu_pytorch_tanh\" or \"gelu_new\""),
        ("phi", "layer_norm_eps", json!(null), "layer_norm_eps"),
        ("cohere", "logit_scale", json!(null), "logit_scale"),
        ("starcoder2", "partial_rotary_factor", json!(0.5), "of this family 1 is implemented"),
        ("nemotron", "hidden_act", json!("relu"), "\"relu2\""),
        ("olmo", "clip_qkv", json!(8.0), "clamped queries, keys and values"),
        // A norm for both parts, where the file says that there are two.
        ("stablelm-parallel", "use_parallel_residual", json!(false), "model.layers.0.post_attention_layernorm.weight"),
    ] {
        let said = refused(name, &|config| config[key] = value.clone());
        assert!(said.contains(says), "{name} {key}: {said}");
    }
    // The share of a head that is rotated is the family's where a file does not say it.
    for (name, dims) in [("phi", 8), ("nemotron", 8), ("stablelm", 4)] {
        let folder = copy(name);
        edit(&folder.path().join("config.json"), |config| {
            config.as_object_mut().unwrap().remove("partial_rotary_factor").unwrap();
        });
        assert_eq!(ModelFile::open(folder.path()).unwrap().config().rope.dims, dims, "{name}");
    }
    let folder = copy("phi");
    rewrite(&folder.path().join("model.safetensors"), |header, _| {
        let header = header.as_object_mut().unwrap();
        let bias = header.remove("lm_head.bias").unwrap();
        header.insert("lm_head.other".into(), bias);
    });
    let said = ModelFile::open(folder.path()).unwrap_err().to_string();
    assert!(said.contains("lm_head.bias"), "{said}");
}

/// What families ask of a folder that store more than names otherwise.
#[test]
fn folders_of_other_layouts_are_refused_for_what_they_lack_or_do_otherwise() {
    use serde_json::json;
    let refused = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let folder = copy(name);
        edit(&folder.path().join("config.json"), change);
        ModelFile::open(folder.path()).unwrap_err().to_string()
    };
    for (name, key, value, says) in [
        ("gpt_oss", "swiglu_limit", json!(8.0), "of this family 7 is implemented"),
        ("gpt_oss", "num_local_experts", json!(5), "the first 5"),
        ("gpt_oss-bf16", "num_local_experts", json!(7), "the first 7"),
        ("gpt_oss", "num_experts_per_tok", json!(null), "num_experts_per_tok"),
        ("qwen3_next", "linear_value_head_dim", json!(16), "as wide as those of keys (32)"),
        ("qwen3_next", "linear_num_key_heads", json!(null), "linear_num_key_heads"),
        ("qwen3_next", "layer_types", json!(vec!["linear_attention"; 3]), "3 entries for 4 layers"),
        ("qwen3_next", "layer_types", json!(vec!["sliding_attention"; 4]), "`linear_attention` and `full_attention`"),
        ("gpt2", "scale_attn_by_inverse_layer_idx", json!(true), "which is not implemented"),
        ("gpt2", "activation_function", json!("relu"), "\"gelu_pytorch_tanh\" or \"gelu_new\""),
        ("gpt2", "n_layer", json!(null), "n_layer"),
        ("gpt2", "n_layer", json!(3), "h.2.ln_1.weight"),
        ("gpt2", "n_embd", json!(u32::MAX), "too many"),
        ("gpt_neox", "hidden_act", json!("gelu_new"), "\"gelu\""),
        ("gpt_neox", "hidden_size", json!(128), "whole heads"),
        ("gpt_neox", "layer_norm_eps", json!(null), "layer_norm_eps"),
    ] {
        let said = refused(name, &|config| config[key] = value.clone());
        assert!(said.contains(says), "{name} {key}: {said}");
    }
    for (key, value) in [("beta_fast", json!(0.5)), ("beta_slow", json!(0.0)), ("factor", json!(0.5))] {
        let said = refused("gpt_oss", &|config| config["rope_scaling"][key] = value.clone());
        assert!(said.contains("rope_scaling.beta_fast"), "{key}: {said}");
    }
    let without = |name: &str, change: &dyn Fn(&mut serde_json::Map<String, serde_json::Value>)| {
        let folder = copy(name);
        rewrite(&folder.path().join("model.safetensors"), |header, _| change(header.as_object_mut().unwrap()));
        ModelFile::open(folder.path()).unwrap_err().to_string()
    };
    for (name, tensor, says) in [
        ("gpt_oss", "model.layers.1.mlp.experts.down_proj_scales", "down_proj_scales` is missing"),
        ("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj_bias", "blk.1.ffn_gate_exps.bias"),
        ("gpt_oss", "model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight"),
        ("qwen3_next", "model.layers.0.linear_attn.A_log", "blk.0.ssm_a"),
        ("qwen3_next", "model.layers.0.linear_attn.conv1d.weight", "blk.0.ssm_conv1d.weight"),
        ("gpt2", "wpe.weight", "wpe.weight"),
        ("gpt2", "h.1.attn.c_attn.bias", "blk.1.attn_qkv.bias"),
        ("gpt_neox", "embed_out.weight", "embed_out.weight"),
    ] {
        // Its bytes stay where they are, under a name that says nothing.
        let said = without(name, &|header| {
            let stored = header.remove(tensor).unwrap();
            header.insert("model.rotary_emb.inv_freq".into(), stored);
        });
        assert!(said.contains(says), "{name} {tensor}: {said}");
    }
    // One shape for another of as many bytes.
    for (name, tensor, shape, says) in [
        ("gpt_oss", "model.layers.0.mlp.experts.gate_up_proj_scales", json!([6, 2, 64]), "one scale for each block"),
        ("gpt_oss", "model.layers.0.mlp.experts.down_proj_blocks", json!([6, 64, 2, 8]), "the last 16"),
        ("gpt_oss-bf16", "model.layers.0.mlp.experts.down_proj", json!([6, 2048]), "three dimensions"),
        ("qwen3_next", "model.layers.0.linear_attn.conv1d.weight", json!([256, 4, 1]), "of which the second is 1"),
        ("gpt2", "h.0.attn.c_attn.weight", json!([64, 3, 64]), "two dimensions"),
    ] {
        let said = without(name, &|header| header[tensor]["shape"] = shape.clone());
        assert!(said.contains(says), "{name} {tensor}: {said}");
    }
    // With the name of the whole in front it is the same model.
    let folder = copy("gpt2");
    rewrite(&folder.path().join("model.safetensors"), |header, _| {
        let header = header.as_object_mut().unwrap();
        let all: Vec<String> = header.keys().filter(|name| *name != "__metadata__").cloned().collect();
        for name in all {
            let stored = header.remove(&name).unwrap();
            header.insert(format!("transformer.{name}"), stored);
        }
    });
    let d = difference(&ModelFile::open(folder.path()).unwrap(), "gpt2");
    assert!(d < 1e-6, "{d:e}");
}
