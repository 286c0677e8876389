//! Mixtures whose experts are chosen by sigmoids, biases and groups, with layers that have none and experts that all tokens share: against
//! numpy, the f64 reference and llama.cpp, and what files are refused for.
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
use warpsmith_host::decode::{DecoderOptions, KvType, Mode, Session};
use warpsmith_host::gguf::GgufWriter;
use warpsmith_host::model::{Gating, ModelError, ModelFile, RopeStyle};
use warpsmith_host::reference::{Given, KvRounding, Reference};

const ALL: [&str; 6] = ["deepseek", "glm4moe", "dots1", "ernie4_5-moe", "bailingmoe", "bailingmoe2"];

fn mixture(architecture: &'static str) -> Synthetic {
    let (hidden, feed_forward, formats) = (64, 64, vec![Format::Q8_0]);
    let experts = Some((12, 3));
    Synthetic { architecture, hidden, feed_forward, head_dim: 32, experts, formats, ..Default::default() }
}

fn golden_file(name: &str) -> ModelFile {
    ModelFile::open(root().join(format!("host/tests/data/{name}-small.gguf"))).unwrap()
}

/// What llama.cpp generates: `data/make_routing.py` prints it.
#[test]
fn greedy_texts_are_those_of_llama_cpp() {
    greedy_text(
        "deepseek-small",
        [29, 45, 17, 10, 44, 37, 27, 14, 4, 38, 1, 44, 43, 0, 43, 19, 21, 29, 45, 1, 17, 10, 16, 38],
    );
    greedy_text(
        "glm4moe-small",
        [5, 40, 37, 9, 47, 41, 15, 18, 41, 43, 0, 28, 15, 18, 41, 43, 0, 6, 12, 21, 13, 40, 28, 32],
    );
    greedy_text(
        "dots1-small",
        [5, 34, 5, 34, 5, 19, 43, 12, 45, 7, 13, 15, 12, 45, 19, 20, 5, 34, 41, 17, 19, 20, 5, 34],
    );
    greedy_text(
        "ernie4_5-moe-small",
        [7, 12, 1, 15, 3, 31, 7, 6, 15, 8, 8, 8, 8, 8, 1, 16, 17, 41, 27, 44, 0, 29, 7, 16],
    );
    greedy_text(
        "bailingmoe-small",
        [40, 26, 29, 35, 25, 29, 39, 1, 47, 3, 1, 47, 3, 3, 3, 1, 33, 15, 45, 16, 29, 6, 45, 5],
    );
    greedy_text(
        "bailingmoe2-small",
        [5, 37, 8, 31, 41, 42, 20, 31, 15, 0, 24, 14, 14, 14, 14, 14, 14, 14, 14, 14, 17, 47, 33, 37],
    );
}

/// The models of `make_routing.py`, whose logits are numpy's.
#[test]
fn the_reference_and_the_device_give_the_logits_of_another_program() {
    for name in ALL.into_iter().chain(["ernie4_5-moe-interleaved"]) {
        has_the_logits_of_another_program(&format!("{name}-small"));
    }
}

#[test]
fn decoding_agrees_with_the_reference() {
    use Format::*;
    for (i, architecture) in ALL.into_iter().enumerate() {
        let format = [Q4_0, F16, Q4_K, F32, Q1_0, MXFP4][i];
        let wide = format.block_elems().max(64);
        let model = Synthetic { layers: 3, hidden: wide, feed_forward: wide, seed: i as u64, ..mixture(architecture) };
        let model = Synthetic { formats: vec![format], heads: wide / 32, ..model };
        agrees(&model, &model.file());
    }
    // Gates and ups apart, in layers with and without experts, and of the shared one.
    let formats = vec![Q8_0, Q4_0, Q4_0, Q4_0, F16, Q8_0, Q1_0];
    let model = Synthetic { formats, hidden: 128, feed_forward: 128, layers: 3, ..mixture("glm4moe") };
    agrees(&model, &model.file());
    // Columns of no whole vectors, and every expert of every group.
    let odd = Synthetic { hidden: 50, feed_forward: 7, formats: vec![F16], ..mixture("dots1") };
    agrees(&"odd", &odd.file());
    let mut w = mixture("bailingmoe2").writer();
    w.key("bailingmoe2.expert_group_used_count", 4u32);
    agrees(&"all groups", &file(&w).unwrap());
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_step() {
    for (architecture, formats) in [("glm4moe", vec![Format::Q8_0]), ("bailingmoe2", vec![Format::Q4_0, Format::F16])] {
        let m = Synthetic { hidden: 128, feed_forward: 128, formats, ..mixture(architecture) };
        same_bits(&load(&m.file()));
    }
}

/// Layers without experts take five launches, one of them all where that is asked for.
#[test]
fn layers_without_experts_are_those_of_a_dense_model() {
    let m = Synthetic { hidden: 256, feed_forward: 128, head_dim: 64, ..mixture("dots1") };
    let model = load(&m.file());
    let of = options(Mode::Eager, KvType::F16);
    let s = Session::new(&model, of).unwrap();
    let dense = Synthetic { architecture: "qwen3", layers: 1, experts: None, ..m.clone() };
    let alone = Session::new(&load(&dense.file()), of).unwrap().launches_per_step();
    let mixed = Synthetic { layers: 1, ..m };
    let others = Session::new(&load(&mixed.file()), of).unwrap().launches_per_step();
    // Embedding, head and choice of a token are counted twice.
    assert_eq!(s.launches_per_step(), alone + others - 3);
    // The first layer alone has no experts to tell of.
    let mut s = s;
    s.feed(7).unwrap();
    let routes = s.experts().unwrap();
    assert!(routes[0].is_empty() && routes[1].len() == 3, "{routes:?}");
    let persistent = DecoderOptions { persistent: true, ..of.decoder };
    let mut p = Session::new(&model, persistent).unwrap();
    p.feed(7).unwrap();
    assert!(p.launches_per_step() < s.launches_per_step());
    assert_eq!(bits(&p.logits().unwrap()), bits(&s.logits().unwrap()));
}

/// Another tensor for gates and ups of all experts gives the same bits.
#[test]
fn gates_and_ups_of_experts_may_be_one_tensor() {
    let m = mixture("bailingmoe");
    let apart = m.file();
    let together = file(&m.gates_and_ups_together()).unwrap();
    let logits = |file: &ModelFile| {
        let mut s = Session::new(&load(file), options(Mode::Graph, KvType::F16)).unwrap();
        s.feed(5).unwrap();
        (bits(&s.logits().unwrap()), Reference::new(file, KvRounding::None).feed(5).unwrap())
    };
    assert_eq!(logits(&together), logits(&apart));
    agrees(&"one tensor", &together);
}

#[test]
fn what_a_file_does_not_say_is_as_its_family_has_it() {
    let of = |architecture: &'static str| mixture(architecture).file().config().clone();
    let gating = |a| of(a).experts.unwrap().gating;
    assert_eq!(
        ALL.map(gating),
        [Gating::Softmax, Gating::Sigmoid, Gating::Sigmoid, Gating::Softmax, Gating::Softmax, Gating::Sigmoid]
    );
    let normalise = |a| of(a).experts.unwrap().normalise;
    assert_eq!(ALL.map(normalise), [false, false, true, true, false, true]);
    assert_eq!(of("bailingmoe2").experts.unwrap().groups, (4, 2));
    let glm = of("glm4moe");
    assert_eq!((glm.feed_forward_of(0), glm.feed_forward_of(1), glm.experts_of(0)), (128, 64, None));
    assert_eq!((glm.rope.style, of("deepseek").rope.style), (RopeStyle::Neox, RopeStyle::Norm));
    // Heads of Ling plus are wider than their share of the residual stream, and no key but RoPE's says it.
    let mut w = mixture("bailingmoe").writer();
    w.remove_key("bailingmoe.attention.key_length").remove_key("bailingmoe.attention.value_length");
    w.key("bailingmoe.rope.dimension_count", 32u32);
    assert_eq!(file(&w).unwrap().config().head_dim, 32);
    // Layers that guess further tokens are left out, experts that all tokens share may be none.
    let mut w = mixture("glm4moe").writer();
    w.key("glm4moe.block_count", 3u32).key("glm4moe.nextn_predict_layers", 1u32);
    w.tensor_f32("blk.2.nextn.enorm.weight", &[64], &[1.0; 64]).unwrap();
    assert_eq!(file(&w).unwrap().config(), &glm);
    let mut w = mixture("glm4moe").writer();
    w.key("glm4moe.expert_shared_count", 0u32);
    for part in ["gate", "up", "down"] {
        w.remove_tensor(&format!("blk.1.ffn_{part}_shexp.weight"));
    }
    assert_eq!(file(&w).unwrap().config().experts.unwrap().shared, None);
    // Biases and norms of heads that some files of a family have.
    let mut w = mixture("glm4moe").writer();
    for layer in 0..2 {
        for c in ["q", "k", "v"] {
            w.remove_tensor(&format!("blk.{layer}.attn_{c}_norm.weight"));
            w.remove_tensor(&format!("blk.{layer}.attn_{c}.bias"));
        }
    }
    agrees(&"neither biases nor norms", &file(&w).unwrap());
}

/// Experts that fit as well as those that the reference chooses are as right, by their scores and not by their weights.
#[test]
fn experts_that_somebody_else_chose_are_taken_where_their_scores_fit() {
    for name in ["glm4moe", "bailingmoe2"] {
        let file = golden_file(name);
        let feed = |routes: &[Vec<u32>], tolerance| {
            let given = Some(Given { routes, tolerance });
            Reference::new(&file, KvRounding::None).feed_routed(3, given).unwrap()
        };
        let mut s = Session::new(&load(&file), exact(Mode::Eager, KvType::F32)).unwrap();
        s.feed(3).unwrap();
        let own = s.experts().unwrap();
        let want = Reference::new(&file, KvRounding::None).feed(3).unwrap();
        assert_eq!(feed(&own, 1e-4), want, "{name}");
        let count = file.config().experts.unwrap().count as u32;
        for other in (0..count).filter(|e| !own[1].contains(e)) {
            let mut routes = own.clone();
            routes[1][2] = other;
            let step = feed(&routes, 1e-3);
            assert_eq!((step.wrong_routes, &step.logits), (1, &want.logits), "{name}: {other}");
            // With room for it the other one is taken.
            let step = feed(&routes, 1e3);
            let groups: std::collections::HashSet<u32> = routes[1].iter().map(|e| e / 3).collect();
            let fits = name != "bailingmoe2" || groups.len() <= 2;
            assert_eq!((step.wrong_routes, step.logits == want.logits), (usize::from(!fits), !fits), "{name}: {other}");
        }
    }
}

fn refused(architecture: &'static str, change: impl Fn(&mut GgufWriter)) -> ModelError {
    let mut w = mixture(architecture).writer();
    change(&mut w);
    file(&w).unwrap_err()
}

#[test]
fn what_a_file_lacks_or_has_otherwise_is_named() {
    for (architecture, name) in [
        ("glm4moe", "blk.1.exp_probs_b.bias"),
        ("glm4moe", "blk.1.ffn_up_shexp.weight"),
        ("glm4moe", "blk.0.ffn_up.weight"),
        ("glm4moe", "blk.0.attn_k_norm.weight"),
        ("dots1", "blk.1.ffn_gate_inp.weight"),
        ("bailingmoe2", "blk.0.attn_qkv.weight"),
    ] {
        let e = refused(architecture, |w| _ = w.remove_tensor(name));
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == name), "{name}: {e}");
    }
    // Of a layer of the other kind.
    for (name, size) in [("blk.0.exp_probs_b.bias", 12), ("blk.1.ffn_up.bias", 64)] {
        let e = refused("glm4moe", |w| _ = w.tensor_f32(name, &[size], &vec![0.5; size as usize]).unwrap());
        assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if tensor == name), "{e}");
    }
    let e = refused("dots1", |w| {
        let name = "blk.1.exp_probs_b.bias";
        w.remove_tensor(name).tensor_f32(name, &[11], &[0.5; 11]).unwrap();
    });
    assert!(matches!(e, ModelError::TensorShape { .. }), "{e}");
    for (key, value, says) in [
        ("leading_dense_block_count", 2, "none of the 2 layers would have experts"),
        ("interleave_moe_layer_step", 3, "none of the 2 layers would have experts"),
        ("interleave_moe_layer_step", 0, "expected one or more"),
        ("expert_shared_count", 1 << 28, "more than 2^32"),
        ("expert_gating_func", 4, "expected 1 (softmax), 2 (sigmoid)"),
        ("expert_group_count", 5, "groups of equally many of the 12 experts"),
        ("expert_group_count", 12, "two or more"),
        ("expert_group_count", 64, "at most 32 groups"),
        ("expert_group_used_count", 5, "expected at most 4 groups"),
        ("expert_group_used_count", 0, "expected one or more"),
        ("moe_every_n_layers", 2, "every so manieth"),
    ] {
        let key = format!("bailingmoe2.{key}");
        let e = refused("bailingmoe2", |w| _ = w.key(key.clone(), value as u32));
        assert!(matches!(&e, ModelError::Config { key: k, .. } if *k == key) && e.to_string().contains(says), "{e}");
    }
    let e = refused("bailingmoe2", |w| {
        w.key("bailingmoe2.expert_used_count", 7u32);
    });
    assert!(e.to_string().contains("which have 7 experts or more"), "{e}");
    let e = refused("glm4moe", |w| _ = w.key("glm4moe.rope.dimension_sections", vec![8u32, 4, 0, 4]));
    assert!(e.to_string().contains("would not turn in texts"), "{e}");
    let mut w = mixture("glm4moe").writer();
    w.key("glm4moe.rope.dimension_sections", vec![8u32, 4, 4, 0]);
    assert_eq!(file(&w).unwrap().config(), mixture("glm4moe").file().config());
}

#[test]
fn a_described_model_has_the_tensors_of_a_file() {
    for architecture in ALL {
        let m = mixture(architecture);
        described_has_the_tensors_of(&m.file(), Format::Q8_0);
    }
}

/// What memory is asked for ahead is what is taken; the layer without experts is wider than all experts of a token.
#[test]
fn memory_is_as_it_was_said() {
    in_its_own_process("inner_memory", "64M");
}

#[test]
#[ignore = "run by `memory_is_as_it_was_said` in a process of its own"]
fn inner_memory() {
    let m = Synthetic { experts: Some((12, 1)), ..mixture("glm4moe") };
    memory_is_as_said(&m.file());
}
