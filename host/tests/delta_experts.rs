//! Gated delta nets with mixtures of experts behind them: against numpy, the f64 reference and llama.cpp, and the layouts of their files.
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
use warpsmith_host::decode::{DecoderOptions, KvType, Mode, Pool, PoolOptions, Sequence, SequenceOptions, Session};
use warpsmith_host::model::{ModelError, ModelFile};
use warpsmith_host::reference::{KvRounding, Reference};

const ALL: [&str; 2] = ["qwen35moe", "qwen3next"];

fn hybrid(architecture: &'static str) -> Synthetic {
    let (hidden, feed_forward, formats) = (64, 64, vec![Format::Q8_0]);
    let experts = Some((6, 2));
    Synthetic { architecture, layers: 3, hidden, feed_forward, head_dim: 32, experts, formats, ..Default::default() }
}

/// What llama.cpp generates: `data/make_delta.py` prints it.
#[test]
fn greedy_texts_are_those_of_llama_cpp() {
    greedy_text(
        "qwen35moe-small",
        [28, 43, 6, 23, 37, 16, 17, 21, 28, 6, 8, 43, 1, 3, 6, 45, 15, 41, 3, 11, 26, 45, 28, 6],
    );
    greedy_text(
        "qwen3next-small",
        [40, 11, 47, 4, 1, 42, 21, 10, 4, 21, 3, 16, 10, 19, 9, 3, 4, 1, 27, 34, 8, 3, 16, 10],
    );
}

/// The models of `make_delta.py`, whose logits are numpy's.
#[test]
fn the_reference_and_the_device_give_the_logits_of_another_program() {
    for name in ALL {
        has_the_logits_of_another_program(&format!("{name}-small"));
    }
}

#[test]
fn decoding_agrees_with_the_reference() {
    use Format::*;
    for (i, (delta, formats)) in
        [([2, 4, 32], vec![F32]), ([1, 3, 64], vec![Q4_0]), ([2, 6, 32], vec![F16, Q8_0, F32])].into_iter().enumerate()
    {
        for architecture in ALL {
            let m = Synthetic { delta, formats: formats.clone(), seed: i as u64, ..hybrid(architecture) };
            agrees(&m, &m.file());
        }
    }
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_step() {
    for architecture in ALL {
        same_bits(&load(&Synthetic { layers: 2, ..hybrid(architecture) }.file()));
    }
}

/// Files of Qwen3-Next have queries, keys, values and gates of a key head side by side, or each kind in rows of its own.
#[test]
fn both_layouts_of_a_file_give_the_same_bits() {
    let m = Synthetic { delta: [2, 6, 32], interval: 2, ..hybrid("qwen3next") };
    let (apart, together) = (m.file(), m.projected_by_key_heads());
    let logits = |file: &ModelFile| {
        let mut s = Session::new(&load(file), options(Mode::Graph, KvType::F16)).unwrap();
        let mut reference = Reference::new(file, KvRounding::None);
        (0..4)
            .map(|t| {
                s.feed(t).unwrap();
                (bits(&s.logits().unwrap()), reference.feed(t).unwrap())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(logits(&together), logits(&apart));
    agrees(&"side by side", &together);
}

#[test]
fn what_a_file_lacks_is_named() {
    for (architecture, name) in [
        ("qwen3next", "blk.0.ssm_ba.weight"),
        ("qwen3next", "blk.0.attn_qkv.weight"),
        ("qwen35moe", "blk.0.ssm_beta.weight"),
        ("qwen35moe", "blk.1.attn_q.weight"),
        ("qwen35moe", "blk.2.ffn_gate_inp_shexp.weight"),
    ] {
        let mut w = hybrid(architecture).writer();
        w.remove_tensor(name);
        let e = file(&w).unwrap_err();
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == name), "{name}: {e}");
    }
    // The layout of the other family.
    let mut w = hybrid("qwen35moe").writer();
    w.tensor_f32("blk.0.ssm_in.weight", &[64, 1], &[0.5; 64]).unwrap();
    assert!(matches!(file(&w).unwrap_err(), ModelError::UnsupportedTensor { .. }));
    // Weights of experts add up to one, whatever is said of those of other families with a shared expert.
    assert!(ALL.into_iter().all(|a| hybrid(a).file().config().experts.unwrap().normalise));
}

#[test]
fn a_described_model_has_the_tensors_of_a_file() {
    described_has_the_tensors_of(&hybrid("qwen35moe").file(), Format::Q8_0);
}

/// What memory is asked for ahead is what is taken, the states of the sequences of a pool among it.
#[test]
fn memory_is_as_it_was_said() {
    in_its_own_process("inner_memory", "64M");
}

#[test]
#[ignore = "run by `memory_is_as_it_was_said` in a process of its own"]
fn inner_memory() {
    let model =
        memory_is_as_said(&Synthetic { delta: [2, 16, 128], formats: vec![Format::F32], ..hybrid("qwen3next") }.file());
    let free = || device().memory_info().unwrap().free;
    let (before, batch) = (free(), 5);
    let options = DecoderOptions { batch, ..Default::default() };
    let plan = model.plan(before, &options, 64, KvType::F16).unwrap();
    assert!(plan.states == Sequence::state_bytes(&model) && plan.states > 1 << 20, "{plan:?}");
    // As large a pool leaves room for the states of as many sequences, and not for a page more beside them.
    let pool = Pool::new(&model, PoolOptions { positions: plan.positions, ..Default::default() }).unwrap();
    let left = free() - plan.decoder;
    let states = batch as u64 * plan.states;
    let page = Pool::device_bytes(&model, PoolOptions { positions: 16, ..Default::default() }).unwrap();
    assert!(left >= states && left < states + 2 * page + 4096, "{left} {plan:?}");
    let all: Vec<Sequence> =
        (0..batch).map(|_| Sequence::in_pool(&pool, SequenceOptions::default()).unwrap()).collect();
    assert_eq!(all.len(), batch);
    // Not even for the states.
    let none = model.plan(plan.decoder + 1, &options, 64, KvType::F16).unwrap();
    assert_eq!((none.sequences, none.positions), (0, 0));
}
