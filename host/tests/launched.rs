//! Which kernels decoding launches, and what the others are there for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::{Format, Layout};
use gpu_kernels::list::catalogue;
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_host::decode::{
    Activations, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Sampling, Sequence, SequenceOptions,
};
use warpsmith_host::model::ModelFile;

const COMPARED: &str =
    "a simpler variant, which docs/attention.md and the benchmarks compare with the one that is launched";
const BY_EYE: &str =
    "reads records an element at a time, short enough to be checked by eye, as the fast products are not";
const UNFUSED: &str = "an operation by itself, for programs whose steps are not those of `Decoder`";
const SIXTEEN: &str = "an operation on tensors of 16 bits, for programs whose tensors are that";
const CHOICE: &str = "a way to choose tokens, for programs that do not choose with `Sample`";

const SEVERAL: &str = "what several devices do together; `tensor_parallel.rs` decodes on several";

/// The kernels that no decoder launches. A kernel that is neither here nor launched belongs to the ladder.
const OTHERS: &[(&str, &str)] = &[
    ("gemv_f32_v1", BY_EYE),
    ("gemv_q8_0_v1", BY_EYE),
    ("gemv_f16_v3", "a variant for weights of F16 that a GPU has yet to be asked about"),
    ("attn_scores", COMPARED),
    ("attn_softmax", COMPARED),
    ("attn_weighted_sum", COMPARED),
    ("attn_decode", COMPARED),
    ("attn_decode_f32", COMPARED),
    ("attn_prompt_f32", "in one block what a step has many for: prompts over caches of f32 attend as steps do"),
    ("add_rms_norm", UNFUSED),
    ("residual_add", UNFUSED),
    ("rope", UNFUSED),
    ("qk_norm_rope", UNFUSED),
    ("kv_store", UNFUSED),
    ("kv_store_f32", UNFUSED),
    ("argmax", CHOICE),
    ("argmax_masked", CHOICE),
    ("repetition_penalty", CHOICE),
    ("rms_norm_f16", SIXTEEN),
    ("rms_norm_bf16", SIXTEEN),
    ("add_rms_norm_f16", SIXTEEN),
    ("add_rms_norm_bf16", SIXTEEN),
    ("add_rms_norm_shadow_f16", SIXTEEN),
    ("add_rms_norm_shadow_bf16", SIXTEEN),
    ("rms_norm_add_shadow_f16", SIXTEEN),
    ("rms_norm_add_shadow_bf16", SIXTEEN),
    ("layer_norm_f16", SIXTEEN),
    ("layer_norm_bf16", SIXTEEN),
    ("scaled_add_f16", SIXTEEN),
    ("scaled_add_bf16", SIXTEEN),
    ("add_shadow_f16", SIXTEEN),
    ("add_shadow_bf16", SIXTEEN),
    ("glu_f16", SIXTEEN),
    ("glu_bf16", SIXTEEN),
    ("qk_norm_rope_f16", SIXTEEN),
    ("qk_norm_rope_bf16", SIXTEEN),
    ("kv_append_f16", SIXTEEN),
    ("kv_append_bf16", SIXTEEN),
    ("attn_f16", SIXTEEN),
    ("attn_bf16", SIXTEEN),
    ("embedding_f16", SIXTEEN),
    ("embedding_bf16", SIXTEEN),
    ("argmax_f16", SIXTEEN),
    ("argmax_bf16", SIXTEEN),
    ("cast_f32_f16", SIXTEEN),
    ("cast_f32_bf16", SIXTEEN),
    ("cast_f16_f32", SIXTEEN),
    ("cast_bf16_f32", SIXTEEN),
    ("cast_f16_bf16", SIXTEEN),
    ("cast_bf16_f16", SIXTEEN),
    ("collective", SEVERAL),
    ("exchange", SEVERAL),
];

/// The kernels of a prompt, of a step and its probabilities, and of a step that is looked into.
fn launched(model: &Model, kv: KvType, options: DecoderOptions) -> BTreeSet<&'static str> {
    let mut decoder = Decoder::new(model, DecoderOptions { mode: Mode::Eager, ..options }).unwrap();
    // Drawn, so that all of the launches that choose are made.
    let sampling = Sampling { temperature: 1.0, ..Default::default() };
    let mut sequence = Sequence::new(model, SequenceOptions { kv, sampling, ..Default::default() }).unwrap();
    let ((), profile) = decoder
        .profile(|decoder| {
            // Of f16 large blocks begin behind 128 columns, and the kernel for long prompts at 32.
            let prompt = match (options.activations, kv) {
                (Activations::F16, _) => 132,
                (_, KvType::F16) => 13,
                _ => 33,
            };
            let token = decoder.prefill(&mut sequence, &[7; 132][..prompt])?;
            decoder.step(&mut [Feed { sequence: &mut sequence, token }])?;
            decoder.logprobs(0, 3, &[token])?;
            decoder.feed_with_hidden(&mut sequence, token)?;
            Ok(())
        })
        .unwrap();
    profile.kernels.iter().map(|k| k.name).collect()
}

/// A model whose matrices take these formats in turn.
fn model(formats: &[Format]) -> Model {
    let formats = formats.to_vec();
    let kind = Synthetic { layers: 1, hidden: 256, feed_forward: 256, context: 192, formats, ..Default::default() };
    load(&kind.file())
}

#[test]
fn every_kernel_is_launched_by_a_decoder_or_says_what_it_is_there_for() {
    let mut all = BTreeSet::new();
    for layout in Layout::ALL {
        // Of those that share a layout, the one with the most kernels: scales of at least 128 weights.
        let format = Format::ALL.into_iter().filter(|f| f.layout() == layout).max_by_key(|f| f.block_elems()).unwrap();
        let model = model(&[format]);
        for activations in Activations::ALL.into_iter().filter(|a| a.take(format)) {
            for persistent in [false, true] {
                let options = DecoderOptions { activations, persistent, ..Default::default() };
                all.extend(launched(&model, KvType::F16, options));
            }
        }
    }
    // Gates and ups of two formats.
    let mixed = model(&[Format::F16, Format::F16, Format::F16, Format::F16, Format::F16, Format::F16, Format::F32]);
    let experts = Synthetic { architecture: "qwen3moe", layers: 1, experts: Some((2, 2)), ..Default::default() };
    all.extend(launched(&load(&experts.file()), KvType::F16, DecoderOptions::default()));
    // Clamped gates and ups of two formats.
    let formats = vec![Format::F16, Format::F32];
    let clamped = Synthetic { architecture: "gpt-oss", formats, ..experts };
    all.extend(launched(&load(&clamped.file()), KvType::F16, DecoderOptions::default()));
    // Experts that read weighted inputs.
    let weighted = Synthetic { architecture: "llama4", ..clamped };
    all.extend(launched(&load(&weighted.file()), KvType::F16, DecoderOptions::default()));
    for kv in KvType::ALL {
        all.extend(launched(&mixed, kv, DecoderOptions::default()));
        all.extend(launched(&mixed, kv, DecoderOptions { fast_prefill: true, ..Default::default() }));
    }
    // Norms on both sides, GELU, scaled embeddings, capped scores and logits.
    let formats = vec![Format::F16, Format::F32];
    let gemma = load(&Synthetic { architecture: "gemma2", layers: 1, formats, ..Default::default() }.file());
    for kv in KvType::ALL {
        all.extend(launched(&gemma, kv, DecoderOptions::default()));
    }

    // A delta net, and a layer whose attention has gates.
    let hybrid = Synthetic { architecture: "qwen35", formats: vec![Format::F16], ..Default::default() };
    let hybrid = load(&hybrid.file());
    all.extend(launched(&hybrid, KvType::F16, DecoderOptions::default()));
    all.extend(launched(&hybrid, KvType::F32, DecoderOptions { fast_prefill: true, ..Default::default() }));

    // Layer norms.
    let layer_normed = Synthetic { architecture: "starcoder2", formats: vec![Format::F16], ..Default::default() };
    all.extend(launched(&load(&layer_normed.file()), KvType::F16, DecoderOptions::default()));

    // Columns in another order.
    let ordered = ModelFile::open(folder::folders().join("gptq-order")).unwrap();
    all.extend(launched(&load(&ordered), KvType::F16, DecoderOptions::default()));

    let others: BTreeMap<&str, &str> = OTHERS.iter().copied().collect();
    let unexplained: Vec<_> =
        catalogue().iter().map(|k| k.name).filter(|k| !all.contains(k) && !others.contains_key(k)).collect();
    assert_eq!(unexplained, [""; 0], "no decoder launches them, and nothing says what they are there for");
    let known: BTreeSet<_> = catalogue().iter().map(|k| k.name).collect();
    let stale: Vec<_> = others.keys().filter(|k| all.contains(*k) || !known.contains(*k)).collect();
    assert_eq!(stale, [&""; 0], "launched, or gone, and still said to be there for another reason");
}
