//! Mixtures of experts with one that all tokens are given to: against the f64 reference and llama.cpp, and what files are refused for.
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
use warpsmith_host::decode::{Activations, DecoderOptions, KvType, Mode, Session, SessionOptions};
use warpsmith_host::gguf::GgufWriter;
use warpsmith_host::model::ModelError;

fn shared() -> Synthetic {
    let formats = vec![Format::Q8_0];
    Synthetic { architecture: "qwen2moe", feed_forward: 96, experts: Some((8, 2)), formats, ..Default::default() }
}

/// What llama.cpp generates: `data/make_shared.py` prints it.
#[test]
fn greedy_text_is_that_of_llama_cpp() {
    let want = [43, 43, 43, 40, 0, 24, 35, 26, 40, 11, 26, 12, 5, 9, 47, 0, 19, 40, 36, 40, 6, 18, 18, 40];
    greedy_text("qwen2moe-small", want);
}

#[test]
fn decoding_agrees_with_the_reference() {
    use Format::*;
    for (i, format) in [Q8_0, F32, F16, Q4_K, Q1_0, MXFP4].into_iter().enumerate() {
        let hidden = format.block_elems().max(128);
        let experts = Some([(8, 2), (1, 1), (5, 5)][i % 3]);
        let model =
            Synthetic { formats: vec![format], hidden, feed_forward: hidden, experts, seed: i as u64, ..shared() };
        agrees(&model, &model.file());
    }
    // Gates and ups apart, of the shared expert, of the others, and of both; what is read is rounded in several ways.
    for formats in [
        vec![Q8_0, Q4_0, Q4_0, Q4_0, Q8_0, Q8_0, Q8_0, Q8_0, F16, Q8_0, Q8_0],
        vec![Q8_0, Q4_0, Q4_0, Q4_0, Q8_0, Q8_0, F16, Q1_0, Q1_0, Q1_0, Q8_0],
        vec![Q1_0, Q8_0, F16, Q4_0, Q1_0, Q8_0, F16],
    ] {
        let model = Synthetic { formats, feed_forward: 128, layers: 3, ..shared() };
        agrees(&model, &model.file());
    }
    // Columns of no whole vectors.
    agrees(&"odd", &Synthetic { hidden: 50, feed_forward: 7, formats: vec![F16], ..shared() }.file());
}

#[test]
fn weights_that_add_up_to_one_are_asked_for_by_the_file() {
    for normalise in [false, true] {
        let mut w = shared().writer();
        w.key("qwen2moe.expert_weights_norm", normalise);
        let file = file(&w).unwrap();
        assert_eq!(file.config().experts.unwrap().normalise, normalise);
        agrees(&normalise, &file);
    }
    assert!(!shared().file().config().experts.unwrap().normalise);
}

/// A router whose rows are not of the format of the shared expert's.
#[test]
fn a_router_of_another_format_agrees_with_the_reference() {
    let mut w = shared().writer();
    let name = "blk.0.ffn_gate_inp.weight";
    let halves: Vec<u8> =
        (0..8 * 128).flat_map(|i| half::f16::from_f32((i % 13) as f32 * 0.02 - 0.1).to_le_bytes()).collect();
    w.remove_tensor(name).tensor(name, &[128, 8], tensor_type(Format::F16), halves).unwrap();
    agrees(&"f16", &file(&w).unwrap());
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_step() {
    use Format::*;
    for formats in [vec![Q8_0], vec![Q1_0, F16, Q4_K], vec![F32]] {
        let m = Synthetic { hidden: 256, feed_forward: 256, formats, layers: 1, experts: Some((7, 3)), ..shared() };
        same_bits(&load(&m.file()));
    }
}

#[test]
fn the_shared_expert_takes_two_launches() {
    for format in [Format::Q8_0, Format::Q4_0, Format::F16] {
        let m = Synthetic { formats: vec![format], ..shared() };
        let other = Synthetic { architecture: "qwen3moe", ..m.clone() };
        for activations in [Activations::F32, Activations::Int16] {
            let of = options(Mode::Eager, KvType::F16);
            let of = SessionOptions { decoder: DecoderOptions { activations, ..of.decoder }, ..of };
            let launches = |m: &Synthetic| Session::new(&load(&m.file()), of).unwrap().launches_per_step();
            assert_eq!(launches(&m), launches(&other) + 2 * m.layers, "{format} {activations}");
        }
    }
}

#[test]
fn what_a_file_lacks_or_has_otherwise_is_named() {
    let refused = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = shared().writer();
        change(&mut w);
        file(&w).unwrap_err()
    };
    for (part, len) in [("gate_inp", 128), ("gate", 128 * 192), ("up", 128 * 192), ("down", 128 * 192)] {
        let name = format!("blk.1.ffn_{part}_shexp.weight");
        let e = refused(&|w| _ = w.remove_tensor(&name));
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if *tensor == name), "{e}");
        let e = refused(&|w| {
            w.remove_tensor(&name).tensor_f32(name.clone(), &[len as u64 + 1], &vec![0.5; len + 1]).unwrap();
        });
        assert!(matches!(&e, ModelError::TensorShape { tensor, .. } if *tensor == name), "{name}: {e}");
    }
    for (key, number, says) in [
        ("expert_shared_feed_forward_length", 0, "one or more"),
        ("expert_shared_feed_forward_length", 64, ""),
        ("expert_shared_count", 2, "shared experts"),
    ] {
        let e = refused(&|w| _ = w.key(format!("qwen2moe.{key}"), number as u32));
        assert!(matches!(e, ModelError::Config { .. } | ModelError::TensorShape { .. }), "{e}");
        assert!(e.to_string().contains(says), "{e}");
    }
    // Without a width of its own it has that of a dense part; one shared expert is what it is.
    let mut w = shared().writer();
    w.remove_key("qwen2moe.expert_shared_feed_forward_length").key("qwen2moe.feed_forward_length", 192u32);
    w.key("qwen2moe.expert_shared_count", 1u32);
    assert_eq!(file(&w).unwrap().config().experts.unwrap().shared, Some(192));
}

#[test]
fn a_described_model_has_the_tensors_of_a_file() {
    described_has_the_tensors_of(&shared().file(), Format::Q8_0);
}

/// What memory is asked for ahead is what is taken.
#[test]
fn memory_is_as_it_was_said() {
    in_its_own_process("inner_memory", "64M");
}

#[test]
#[ignore = "run by `memory_is_as_it_was_said` in a process of its own"]
fn inner_memory() {
    memory_is_as_said(&shared().file());
}
