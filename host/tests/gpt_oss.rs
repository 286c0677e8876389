//! gpt-oss: sinks, biases and clamped numbers against the f64 reference and llama.cpp, and what its files are refused for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;

use agree::*;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_host::decode::{Activations, DecoderOptions, KvType, Mode, Precision, Session, SessionOptions, bound};
use warpsmith_host::gguf::GgufWriter;
use warpsmith_host::model::{ModelError, ModelFile};
use warpsmith_host::reference::Reference;

fn gpt_oss() -> Synthetic {
    Synthetic {
        architecture: "gpt-oss",
        feed_forward: 96,
        experts: Some((8, 2)),
        window: 4,
        formats: vec![Format::Q8_0],
        ..Default::default()
    }
}

/// What llama.cpp generates: `data/make_gpt_oss.py` prints it.
#[test]
fn greedy_text_is_that_of_llama_cpp() {
    let texts = [
        (
            "gpt-oss-small",
            [21, 2, 47, 44, 45, 11, 18, 46, 31, 11, 7, 19, 17, 16, 0, 17, 11, 47, 21, 29, 32, 21, 46, 11],
        ),
        (
            "gpt-oss-mxfp4-small",
            [34, 11, 36, 6, 46, 34, 47, 29, 31, 4, 11, 7, 19, 20, 19, 47, 35, 21, 16, 19, 45, 46, 47, 28],
        ),
    ];
    for (name, want) in texts {
        greedy_text(name, want);
    }
}

#[test]
fn decoding_agrees_with_the_reference() {
    use Format::*;
    for (i, format) in [MXFP4, F32, F16, Q4_K, Q1_0, Q6_K].into_iter().enumerate() {
        let hidden = format.block_elems().max(128);
        let (heads, kv_heads) = [(4, 2), (8, 1), (3, 3)][i % 3];
        let head_dim = [64, 32, 128, 64, 256, 256][i];
        let model = Synthetic {
            formats: vec![format],
            hidden,
            feed_forward: hidden,
            seed: i as u64,
            heads,
            kv_heads,
            head_dim,
            ..gpt_oss()
        };
        agrees(&model, &model.file());
    }
    // Gates and ups apart, in three formats.
    let formats = vec![Q8_0, Q4_0, Q4_0, F16, Q8_0, Q8_0, F16, Q1_0];
    agrees(&"apart", &Synthetic { formats, feed_forward: 128, layers: 3, ..gpt_oss() }.file());
    // Columns of no whole vectors, one expert, and all experts.
    for experts in [(1, 1), (5, 5)] {
        let model = Synthetic { hidden: 50, feed_forward: 7, experts: Some(experts), formats: vec![F16], ..gpt_oss() };
        agrees(&model, &model.file());
    }
}

/// Positions that a head's sink outweighs, and YaRN as gpt-oss has it.
#[test]
fn large_sinks_and_scaled_positions_agree_with_the_reference() {
    let mut w = gpt_oss().writer();
    let sinks: Vec<u8> = [9f32, -80.0, 90.0, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    w.tensor_data_mut("blk.1.attn_sinks.weight").unwrap().copy_from_slice(&sinks);
    w.key("gpt-oss.rope.scaling.type", "yarn")
        .key("gpt-oss.rope.scaling.factor", 32f32)
        .key("gpt-oss.rope.scaling.original_context_length", 8u32);
    let file = file(&w).unwrap();
    assert_eq!(file.config().rope.yarn.unwrap().original_context, 8);
    agrees(&"sinks", &file);
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_step() {
    use Format::*;
    for formats in [vec![MXFP4], vec![F16, Q8_0, F32, Q4_K], vec![Q1_0]] {
        let m = Synthetic { hidden: 256, feed_forward: 256, formats, experts: Some((7, 3)), ..gpt_oss() };
        same_bits(&load(&m.file()));
    }
}

/// Prompts in tiles and in single steps, over every type of cache; longer than the window, and than a part of a step.
#[test]
fn prompts_agree_with_the_reference() {
    for (head_dim, kv) in [(64, KvType::F16), (64, KvType::F32), (64, KvType::Int8), (192, KvType::F16)] {
        let m = Synthetic { head_dim, context: 128, ..gpt_oss() };
        let file = m.file();
        let tokens: Vec<u32> = (0..90).map(|p| token(p, 96)).collect();
        let mut reference = Reference::new(&file, kv.into());
        let want: Vec<Vec<f64>> = tokens.iter().map(|&t| reference.feed(t).unwrap().logits).collect();
        let std = deviation(&want.concat());
        for fast_prefill in [false, true] {
            let of = exact(Mode::Eager, kv);
            let decoder = DecoderOptions { fast_prefill, prompt_logits: true, ..of.decoder };
            let mut s = Session::new(&load(&file), SessionOptions { decoder, ..of }).unwrap();
            let (mut off, mut position) = (0f64, 0);
            s.prefill_each(&tokens, |p| {
                let got = p.logits.iter().map(|v| f64::from(*v));
                off = off.max(worst(got, want[position].iter().copied()) / std);
                position += 1;
            })
            .unwrap();
            assert_eq!(position, tokens.len());
            let most = bound(m.layers, Precision { kv, fast_prefill, activations: Activations::F32 });
            assert!(off <= most, "{head_dim} {kv} {fast_prefill}: {off:e} of {most:e}");
        }
    }
}

/// Biases, sinks and clamped numbers take no launch.
#[test]
fn a_layer_takes_as_many_launches_as_one_of_qwen3moe() {
    for format in [Format::MXFP4, Format::F16] {
        let m = Synthetic { formats: vec![format], ..gpt_oss() };
        let other = Synthetic { architecture: "qwen3moe", window: 0, ..m.clone() };
        let launches = |m: &Synthetic| {
            Session::new(&load(&m.file()), options(Mode::Eager, KvType::F16)).unwrap().launches_per_step()
        };
        assert_eq!(launches(&m), launches(&other), "{format}");
    }
}

#[test]
fn layers_in_one_launch_are_refused_with_the_reason() {
    let options = options(Mode::Eager, KvType::F16);
    let decoder = DecoderOptions { persistent: true, ..options.decoder };
    let s = Session::new(&load(&gpt_oss().file()), SessionOptions { decoder, ..options }).unwrap();
    assert!(s.not_persistent().unwrap().starts_with("layer 0: a mixture of experts"), "{:?}", s.not_persistent());
}

#[test]
fn a_model_checks_itself() {
    let model = load(&gpt_oss().file());
    let comparison = model.self_check(&[3, 1, 4, 1, 5], KvType::Int8, Activations::Int16).unwrap();
    assert!(comparison.passed() && comparison.positions == 10, "{comparison:?}");
}

#[test]
fn layers_have_windows_in_turn() {
    let c = gpt_oss().file().config().clone();
    assert_eq!([0, 1].map(|layer| c.window_of(layer)), [4, 0]);
    assert_eq!(c.reach(), 0);
}

const BIASES: [(&str, usize); 8] = [
    ("attn_q", 256),
    ("attn_k", 128),
    ("attn_v", 128),
    ("attn_output", 128),
    ("ffn_gate_inp", 8),
    ("ffn_gate_exps", 96 * 8),
    ("ffn_up_exps", 96 * 8),
    ("ffn_down_exps", 128 * 8),
];

#[test]
fn what_a_file_lacks_or_has_otherwise_is_named() {
    let refused = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = gpt_oss().writer();
        change(&mut w);
        file(&w).unwrap_err()
    };
    let named = |part: &str| format!("blk.1.{part}");
    let biases = BIASES.map(|(part, len)| (named(part) + ".bias", len));
    let others = [("attn_sinks.weight", 4), ("post_attention_norm.weight", 128)].map(|(part, len)| (named(part), len));
    for (name, len) in biases.into_iter().chain(others) {
        let e = refused(&|w| _ = w.remove_tensor(&name));
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if *tensor == name), "{e}");
        // One more; of experts also all of them in one dimension.
        for n in [len + 1, len] {
            if n == len && !name.contains("_exps") {
                continue;
            }
            let e = refused(&|w| {
                w.remove_tensor(&name).tensor_f32(name.clone(), &[n as u64], &vec![0.5; n]).unwrap();
            });
            assert!(matches!(&e, ModelError::TensorShape { tensor, .. } if *tensor == name), "{name}: {e}");
        }
        let e = refused(&|w| w.tensor_data_mut(&name).unwrap()[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
        assert!(matches!(&e, ModelError::TensorData { tensor, .. } if *tensor == name), "{name}: {e}");
    }
    // By the name that other architectures have for it.
    let e = refused(&|w| _ = w.tensor_f32("blk.0.ffn_norm.weight", &[128], &[1.0; 128]).unwrap());
    assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if tensor == "blk.0.ffn_norm.weight"), "{e}");
    let e = refused(&|w| _ = w.key("gpt-oss.expert_gating_func", 4u32)).to_string();
    assert!(e.contains("expert_gating_func") && e.contains("1 (softmax)"), "{e}");
    let e = refused(&|w| _ = w.remove_key("gpt-oss.expert_count")).to_string();
    assert!(e.contains("expert_count"), "{e}");
}

#[test]
fn other_architectures_have_neither_sinks_nor_such_biases() {
    let of = Synthetic { architecture: "qwen3moe", window: 0, ..gpt_oss() };
    let sinks = [("attn_sinks.weight".to_owned(), 4)];
    for (part, len) in BIASES.map(|(part, len)| (format!("{part}.bias"), len)).into_iter().chain(sinks) {
        let (name, mut w) = (format!("blk.0.{part}"), of.writer());
        w.tensor_f32(name.clone(), &[len as u64], &vec![0.5; len]).unwrap();
        let e = file(&w).unwrap_err();
        assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if *tensor == name), "{e}");
    }
}

/// A model without a file, as for what is projected, has the tensors of one with its numbers.
#[test]
fn a_described_model_has_the_tensors_of_a_file() {
    let file = gpt_oss().file();
    let described = ModelFile::described(file.config().clone(), Format::Q8_0, false).unwrap();
    let lengths = |f: &ModelFile| f.vectors().map(<[f32]>::len).collect::<Vec<_>>();
    assert_eq!(lengths(&described), lengths(&file));
}
