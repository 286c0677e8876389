//! Mixtures of experts: decoding against the f64 reference, the bits of a column beside others, and what files are refused for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;

use agree::*;
use alone::*;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    Activations, DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Part, Precision, Predict, Routes,
    Sequence, SequenceOptions, Session, SessionOptions, compare,
};
use warpsmith_host::gguf::GgufWriter;
use warpsmith_host::model::{Gating, ModelError, ModelFile};
use warpsmith_host::reference::{Given, KvRounding, Reference};

fn moe() -> Synthetic {
    Synthetic { architecture: "qwen3moe", feed_forward: 96, experts: Some((8, 2)), ..Default::default() }
}

#[test]
fn decoding_agrees_with_the_reference_in_every_layout() {
    use Format::*;
    let formats = [F32, F16, BF16, Q1_0, TQ2_0_G128, Q2_0, Q4_0, Q5_1, Q8_0, Q2_K, Q4_K, Q6_K, IQ4_NL, MXFP4];
    for (i, format) in formats.into_iter().enumerate() {
        let (hidden, seed) = (format.block_elems().max(128), i as u64);
        let (architecture, experts) = if i % 2 == 0 { ("llama", (4, 2)) } else { ("qwen3moe", (9, 3)) };
        let model = Synthetic {
            formats: vec![format],
            hidden,
            feed_forward: hidden,
            seed,
            architecture,
            experts: Some(experts),
            ..moe()
        };
        agrees(&model, &model.file());
    }
    // Gates and ups apart, and down of a third format.
    let formats = vec![Q4_0, Q4_0, Q4_0, Q4_0, Q8_0, Q8_0, F16, Q1_0];
    agrees(&"apart", &Synthetic { formats, feed_forward: 128, layers: 3, ..moe() }.file());
}

#[test]
fn one_expert_all_experts_and_odd_widths_agree_with_the_reference() {
    for (experts, hidden, feed_forward) in [((1, 1), 64, 32), ((5, 5), 96, 32), ((33, 32), 64, 32), ((40, 1), 50, 7)] {
        let formats = vec![if hidden % 32 == 0 { Format::Q8_0 } else { Format::F16 }];
        let model = Synthetic { experts: Some(experts), hidden, feed_forward, formats, ..moe() };
        agrees(&model, &model.file());
    }
}

#[test]
fn every_routing_agrees_with_the_reference() {
    for (function, normalise, scale, gating) in [
        (1, false, 2.5, Gating::Softmax),
        (1, true, 1.0, Gating::Softmax),
        (2, false, 0.5, Gating::Sigmoid),
        (2, true, 2.5, Gating::Sigmoid),
        (3, false, 0.0, Gating::Softmax),
    ] {
        let mut w = moe().writer();
        w.key("qwen3moe.expert_gating_func", function as u32)
            .key("qwen3moe.expert_weights_norm", normalise)
            .key("qwen3moe.expert_weights_scale", scale as f32);
        let file = file(&w).unwrap();
        let experts = file.config().experts.unwrap();
        assert_eq!((experts.gating, experts.normalise), (gating, normalise || function == 3));
        assert_eq!(experts.scale, if scale == 0.0 { 1.0 } else { scale as f32 });
        agrees(&(function, normalise, scale), &file);
    }
}

/// What llama.cpp generates: `data/make_experts.py` prints it.
#[test]
fn greedy_text_is_that_of_llama_cpp() {
    let texts = [
        ("qwen3moe-small", [7, 32, 0, 32, 25, 27, 4, 7, 27, 4, 7, 32, 4, 32, 4, 32, 26, 17, 4, 32, 26, 17, 9, 38]),
        ("llama-experts-small", [12, 29, 7, 11, 28, 1, 3, 2, 3, 2, 3, 2, 30, 1, 21, 1, 45, 27, 27, 27, 44, 28, 18, 29]),
    ];
    for (name, want) in texts {
        greedy_text(name, want);
    }
}

/// Sets the rows of the first layer's router.
fn routed(m: &Synthetic, rows: impl Fn(usize, &mut [f32])) -> ModelFile {
    let mut w = m.writer();
    for layer in 0..m.layers {
        let bytes = w.tensor_data_mut(&format!("blk.{layer}.ffn_gate_inp.weight")).unwrap();
        let mut router: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        router.chunks_exact_mut(m.hidden).enumerate().for_each(|(expert, row)| rows(expert, row));
        bytes.copy_from_slice(&router.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    }
    file(&w).unwrap()
}

/// Experts of equal products: those with the lowest numbers, as in the reference, whatever the number of columns. With a router of zeros
/// that is the same expert for every column.
#[test]
fn ties_go_to_the_first_expert_and_one_expert_takes_all_columns() {
    let m = Synthetic { experts: Some((6, 3)), ..moe() };
    let zeros = routed(&m, |_, row| row.fill(0.0));
    agrees(&"zeros", &zeros);
    let alike = routed(&m, |expert, row| {
        row.iter_mut().enumerate().for_each(|(i, v)| *v = ((i + expert / 2) % 7) as f32 * 0.02)
    });
    agrees(&"pairs alike", &alike);
    for file in [zeros, alike] {
        same_bits(&load(&file));
    }
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_step() {
    use Format::*;
    for formats in [vec![Q8_0], vec![Q1_0], vec![Q4_K], vec![F16], vec![Q8_0, Q4_0, F16, Q1_0, F32, BF16, Q5_0]] {
        let m = Synthetic { hidden: 256, feed_forward: 256, formats, layers: 1, experts: Some((7, 3)), ..moe() };
        same_bits(&load(&m.file()));
    }
    same_bits(&load(&moe().file()));
    same_bits(&load(&Synthetic { architecture: "llama", heads: 6, kv_heads: 2, head_dim: 32, ..moe() }.file()));
}

/// A column that is not a number changes no bit of another, and names itself.
#[test]
fn a_nan_stays_in_its_column() {
    let m = Synthetic { formats: vec![Format::F32], ..moe() };
    let mut w = m.writer();
    let row = m.hidden * 4;
    w.tensor_data_mut("token_embd.weight").unwrap()[5 * row..6 * row]
        .chunks_exact_mut(4)
        .for_each(|v| v.copy_from_slice(&f32::MAX.to_le_bytes()));
    let model = load(&file(&w).unwrap());
    let options = DecoderOptions { batch: 3, mode: Mode::Eager, ..Default::default() };
    let mut decoder = Decoder::new(&model, options).unwrap();
    let step = |decoder: &mut Decoder, tokens: [u32; 3]| {
        let mut all = [(); 3].map(|()| Sequence::new(&model, SequenceOptions::default()).unwrap());
        let mut feeds: Vec<Feed<'_>> =
            all.iter_mut().zip(tokens).map(|(sequence, token)| Feed { sequence, token }).collect();
        decoder.step(&mut feeds).map(<[u32]>::to_vec)
    };
    let good = step(&mut decoder, [1, 2, 3]).unwrap();
    let want = [0, 2].map(|place| bits(&decoder.logits(place).unwrap()));
    let e = step(&mut decoder, [1, 5, 3]).unwrap_err();
    assert!(matches!(e, DecodeError::NotANumber { position: 0, place: 1 }), "{e}");
    // A prompt of all three, with a column of NaN in it: the first token's logits, by their probabilities.
    assert_eq!(step(&mut decoder, [1, 2, 3]).unwrap(), good);
    assert_eq!([0, 2].map(|place| bits(&decoder.logits(place).unwrap())), want);
}

/// Three launches more than a dense layer takes, and nodes as many as launches.
#[test]
fn a_layer_takes_three_launches_more_than_a_dense_one() {
    let launches = |m: &Synthetic, options| Session::new(&load(&m.file()), options).unwrap().launches_per_step();
    let dense = Synthetic { architecture: "qwen3", experts: None, ..moe() };
    for format in [Format::Q4_0, Format::Q8_0, Format::F16] {
        let formats = vec![format];
        let (m, dense) = (Synthetic { formats: formats.clone(), ..moe() }, Synthetic { formats, ..dense.clone() });
        for activations in [Activations::F32, Activations::Int16] {
            let options = options(Mode::Eager, KvType::F16);
            let options = SessionOptions { decoder: DecoderOptions { activations, ..options.decoder }, ..options };
            assert_eq!(launches(&m, options), launches(&dense, options) + 3 * m.layers, "{format} {activations}");
        }
    }
}

/// Only the chosen experts' weights are read: what is loaded does not grow with the experts that there are.
#[test]
fn a_step_reads_the_weights_of_the_chosen_experts_alone() {
    in_its_own_process("inner_reads", "256M");
}

#[test]
#[ignore = "run by `a_step_reads_the_weights_of_the_chosen_experts_alone` in a process of its own"]
fn inner_reads() {
    let formats = vec![Format::Q8_0];
    let loaded = |experts: (usize, usize)| {
        let m = Synthetic { layers: 1, experts: Some(experts), formats: formats.clone(), ..moe() };
        let model = load(&m.file());
        let mut decoder = Decoder::new(&model, DecoderOptions { mode: Mode::Eager, ..Default::default() }).unwrap();
        let mut sequence = empty(&model, 0, KvType::F16);
        software::reset_profile();
        decoder.step(&mut [Feed { sequence: &mut sequence, token: 3 }]).unwrap();
        let products = software::profile().into_iter().filter(|k| k.name == "gemv_q8_0_i16");
        products.map(|k| k.counters.global_load_bytes).sum::<u64>()
    };
    let [few, many, more] = [(2, 2), (32, 2), (32, 4)].map(loaded);
    assert_eq!(few, many);
    // A weight of Q8_0 is 34 bytes of 32.
    let expert = 3 * 128 * 96 * 34 / 32;
    assert!(more - many >= 2 * expert, "{many} {more}");
}

/// A prompt through experts of one bit, of two, of f32, and of formats that integers have no products with: its bits are those of decoding token
/// by token, and weights are read once for several columns of an expert.
#[test]
fn a_prompt_reads_the_weights_of_an_expert_for_many_columns() {
    in_its_own_process("inner_prompt_reads", "256M");
}

#[test]
#[ignore = "run by `a_prompt_reads_the_weights_of_an_expert_for_many_columns` in a process of its own"]
fn inner_prompt_reads() {
    const PROMPT: usize = 40;
    // Launches, and the bytes that they loaded: products of one column, of many, and what groups these.
    let counted = |name: &str| {
        let profile = software::profile();
        [format!("gemv_{name}"), format!("gemm_{name}"), "group_experts".to_owned()].map(|name| {
            let of = profile.iter().find(|k| k.name == name);
            of.map_or((0, 0), |k| (k.launches, k.counters.global_load_bytes))
        })
    };
    // Launches of a step; and of the prompt: logits of one column; attention's products beside those of the experts, and of f32 the router's.
    // Columns of f16 that are this few take large blocks in experts alone.
    let formats = [
        (Format::Q1_0, "q1_0_i16", 5, (1, 4)),
        (Format::TQ2_0, "q2_0_i16", 5, (1, 4)),
        (Format::F32, "f32", 6, (1, 5)),
        (Format::Q2_K, "q2_k_f16", 5, (3, 2)),
        (Format::F16, "f16_f16", 5, (3, 2)),
    ];
    for (format, name, of_step, of_prompt) in formats {
        let formats = vec![format];
        let m = Synthetic { hidden: 256, feed_forward: 256, layers: 1, formats, experts: Some((4, 2)), ..moe() };
        let model = load(&m.file());
        software::reset_profile();
        let alone = Alone::new(&model, 0, (PROMPT, PROMPT), KvType::F16);
        let [(one, apart), (many, _), (group, _)] = counted(name);
        assert_eq!((one, many, group), (of_step * PROMPT as u64, 0, 0), "{format}");
        let mut decoder = Decoder::new(&model, DecoderOptions { mode: Mode::Eager, ..Default::default() }).unwrap();
        let mut sequence = empty(&model, 0, KvType::F16);
        software::reset_profile();
        decoder.prefill(&mut sequence, &alone.tokens[..PROMPT]).unwrap();
        let [(one, of_few), (many, together), (group, _)] = counted(name);
        assert_eq!(((one, many), group), (of_prompt, 1), "{format}");
        assert_eq!(bits(&decoder.logits(0).unwrap()), alone.logits[PROMPT - 1], "{format}");
        assert!(2 * (of_few + together) < apart, "{format}: {of_few} and {together} bytes for {apart}");
    }
}

#[test]
fn layers_in_one_launch_are_dense() {
    let options = options(Mode::Eager, KvType::F16);
    let decoder = DecoderOptions { persistent: true, ..options.decoder };
    let model = load(&Synthetic { formats: vec![Format::Q8_0], ..moe() }.file());
    let s = Session::new(&model, SessionOptions { decoder, ..options }).unwrap();
    assert!(s.not_persistent().unwrap().starts_with("layer 0: a mixture of experts"), "{:?}", s.not_persistent());
    assert_eq!(s.persistent_layers(), 0);
}

#[test]
fn a_model_checks_itself() {
    let comparison = load(&moe().file()).self_check(&[3, 1, 4, 1, 5], KvType::F16, Activations::Int16).unwrap();
    assert!(comparison.passed() && comparison.positions == 10, "{comparison:?}");
    // With the weights of another expert the verdict is another.
    let mut w = moe().writer();
    let down = w.tensor_data_mut("blk.1.ffn_down_exps.weight").unwrap();
    let third = down.len() / 8;
    down.rotate_left(third);
    let [right, wrong] = [file(&moe().writer()).unwrap(), file(&w).unwrap()];
    let mut s = Session::new(&load(&wrong), exact(Mode::Eager, KvType::F32)).unwrap();
    assert!(distance(&right, &mut s, 3) > 0.05);
}

/// The experts of each position, as a step of one, a prompt and a batch tell them, are what the reference chooses.
#[test]
fn a_decoder_tells_the_experts_of_a_position() {
    let m = Synthetic { experts: Some((8, 3)), ..moe() };
    let file = m.file();
    let model = load(&file);
    let tokens: Vec<u32> = (0..7).map(|p| token(p, 96)).collect();
    let mut s = Session::new(&model, exact(Mode::Eager, KvType::F32)).unwrap();
    let (mut logits, mut want) = (Vec::new(), Vec::new());
    for &t in &tokens {
        s.feed(t).unwrap();
        logits.push(s.logits().unwrap());
        want.push(s.experts().unwrap());
    }
    assert!(want.iter().all(|r| r.len() == m.layers && r.iter().all(|l| l.len() == 3)));
    assert!(want.iter().flatten().any(|l| *l != want[0][0]), "one for all: {want:?}");
    let decoder = DecoderOptions { prompt_logits: true, ..exact(Mode::Graph, KvType::F32).decoder };
    let sequence = SequenceOptions { kv: KvType::F32, ..Default::default() };
    let mut prompt = Session::new(&model, SessionOptions { decoder, sequence }).unwrap();
    let mut got = Vec::new();
    prompt.prefill_each(&tokens, |p| got.push(p.experts)).unwrap();
    assert_eq!(got, want);
    let mut batch = Decoder::new(&model, DecoderOptions { batch: 7, ..decoder }).unwrap();
    let mut all = [(); 7].map(|()| Sequence::new(&model, sequence).unwrap());
    let mut feeds: Vec<Feed<'_>> =
        all.iter_mut().zip(&tokens).map(|(sequence, &token)| Feed { sequence, token }).collect();
    batch.step(&mut feeds).unwrap();
    assert_eq!(batch.experts(0).unwrap(), want[0]);
    assert!(matches!(batch.experts(7), Err(DecodeError::NoLogits)));
    // Of several tokens the last alone has logits, and its experts.
    let mut sequence = Sequence::new(&model, sequence).unwrap();
    let parts = &mut [Part { sequence: &mut sequence, tokens: &tokens, predict: Predict::Next }];
    batch.step_mixed(parts).unwrap();
    assert_eq!(batch.experts(0).unwrap(), want[6]);

    let precision = Precision { kv: KvType::F32, activations: Activations::F32, fast_prefill: false };
    let verdict = |experts: &[Routes]| compare(&file, precision, &tokens, &logits, experts, |_| {}).unwrap();
    assert!(verdict(&[]).passed() && verdict(&want).passed());
    // Others are found, and not taken.
    let mut others = want.clone();
    others[2][1][0] = (0..8).find(|e| !want[2][1].contains(e)).unwrap();
    let wrong = verdict(&others);
    assert!(
        !wrong.passed() && wrong.wrong_routes == 1 && wrong.max_difference_in_std <= wrong.bound_in_std,
        "{wrong:?}"
    );
    let dense = load(&Synthetic::default().file());
    let mut s = sequence_of(&dense);
    s.feed(1).unwrap();
    assert_eq!(s.experts().unwrap(), Routes::new());
}

fn sequence_of(model: &Model) -> Session {
    Session::new(model, options(Mode::Eager, KvType::F16)).unwrap()
}

/// Experts that fit as well as those that the reference chooses are as right; others are not.
#[test]
fn the_reference_takes_experts_that_fit_as_well() {
    let m = Synthetic { experts: Some((6, 2)), layers: 1, ..moe() };
    // The products of experts 2 i and 2 i + 1 are equal.
    let file = routed(&m, |expert, row| {
        row.iter_mut().enumerate().for_each(|(i, v)| *v = (((i * (1 + expert / 2)) % 7) as f32 - 3.0) * 0.1);
    });
    let step = |routes: &[u32], tolerance| {
        let routes = vec![routes.to_vec()];
        let given = Given { routes: &routes, tolerance };
        Reference::new(&file, KvRounding::None).feed_routed(3, Some(given)).unwrap()
    };
    let own = Reference::new(&file, KvRounding::None).feed(3).unwrap();
    let mut s = Session::new(&load(&file), exact(Mode::Eager, KvType::F32)).unwrap();
    s.feed(3).unwrap();
    let pair = s.experts().unwrap()[0].clone();
    assert_eq!(pair[0] + 1, pair[1], "{pair:?}");
    assert_eq!(step(&pair, 0.0), own);
    let swapped = step(&[pair[1], pair[0]], 0.0);
    assert!(swapped.wrong_routes == 0 && worst(swapped.logits, own.logits.clone()) < 1e-12);
    let other = (pair[0] + 2) % 6;
    for routes in [vec![pair[0], other], vec![pair[0], pair[0]], vec![pair[0]], vec![pair[0], 6], vec![]] {
        let step = step(&routes, 1e-3);
        assert_eq!((step.wrong_routes, step.logits), (1, own.logits.clone()), "{routes:?}");
    }
    // With room for it the other expert is taken, and gives something else.
    let taken = step(&[pair[0], other], 100.0);
    assert!(taken.wrong_routes == 0 && worst(taken.logits, own.logits.clone()) > 1e-3);
}

#[test]
fn what_a_file_lacks_or_has_otherwise_is_named() {
    let refused = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = moe().writer();
        change(&mut w);
        file(&w).unwrap_err()
    };
    for part in ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"] {
        let name = format!("blk.1.{part}.weight");
        let e = refused(&|w| _ = w.remove_tensor(&name));
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if *tensor == name), "{e}");
        let e = refused(&|w| {
            w.remove_tensor(&name).tensor_f32(name.clone(), &[128, 96, 7], &[0.0; 128 * 96 * 7]).unwrap();
        });
        assert!(matches!(&e, ModelError::TensorShape { tensor, .. } if *tensor == name), "{e}");
    }
    // The matrices of all experts below one another are not those of each.
    let e = refused(&|w| {
        let name = "blk.0.ffn_up_exps.weight";
        w.remove_tensor(name).tensor_f32(name, &[128, 96 * 8], &[0.0; 128 * 96 * 8]).unwrap();
    });
    assert!(matches!(&e, ModelError::TensorShape { expected, .. } if *expected == [128, 96, 8]), "{e}");
    for part in [
        "ffn_up_shexp.weight",
        "ffn_gate_inp_shexp.weight",
        "exp_probs_b.bias",
        "ffn_gate_exps.bias",
        "ffn_gate.weight",
    ] {
        let name = format!("blk.0.{part}");
        let e = refused(&|w| _ = w.tensor_f32(name.clone(), &[128], &[0.0; 128]).unwrap());
        assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if *tensor == name), "{e}");
    }
    for (key, number, says) in [
        ("expert_gating_func", 4, "1 (softmax), 2 (sigmoid)"),
        ("expert_used_count", 9, "at most 8 of the 8 experts"),
        ("expert_used_count", 0, "one or more"),
        ("expert_count", 0, "one or more"),
        ("expert_feed_forward_length", 0, "one or more"),
        ("expert_shared_count", 1, "shared experts"),
        ("leading_dense_block_count", 1, "layers without experts"),
        ("interleave_moe_layer_step", 2, "layers without experts"),
        ("expert_group_count", 3, "groups of equally many of the 8 experts"),
    ] {
        let key = format!("qwen3moe.{key}");
        let e = refused(&|w| _ = w.key(key.clone(), number as u32));
        assert!(matches!(&e, ModelError::Config { key: k, .. } if *k == key) && e.to_string().contains(says), "{e}");
    }
    for (key, number) in [("expert_weights_scale", f32::NAN), ("expert_weights_scale", -1.0)] {
        let key = format!("qwen3moe.{key}");
        let e = refused(&|w| _ = w.key(key.clone(), number));
        assert!(matches!(&e, ModelError::Config { key: k, .. } if *k == key), "{e}");
    }
    for key in ["expert_count", "expert_used_count"] {
        let e = refused(&|w| _ = w.remove_key(&format!("qwen3moe.{key}"))).to_string();
        assert!(e.contains(key), "{e}");
    }
    // More at a time than a warp has lanes.
    let e = file(&Synthetic { experts: Some((40, 33)), layers: 1, ..moe() }.writer()).unwrap_err();
    assert!(e.to_string().contains("at most 32 of the 40 experts"), "{e}");
    // Without a width of their own experts have that of a dense part; a dense model has no use for any.
    let mut w = moe().writer();
    w.remove_key("qwen3moe.expert_feed_forward_length");
    assert_eq!(file(&w).unwrap().config().feed_forward, 96);
    let mut w = Synthetic { architecture: "llama", experts: None, ..moe() }.writer();
    w.key("llama.expert_used_count", 0u32).key("llama.expert_count", 0u32);
    assert_eq!(file(&w).unwrap().config().experts, None);
}

/// A model without a file, as for what is projected, has the tensors of one with its numbers.
#[test]
fn a_described_mixture_has_the_tensors_of_a_file() {
    described_has_the_tensors_of(&moe().file(), Format::Q4_0);
}

/// What memory is asked for ahead is what is taken.
#[test]
fn memory_is_as_it_was_said() {
    in_its_own_process("inner_memory", "64M");
}

#[test]
#[ignore = "run by `memory_is_as_it_was_said` in a process of its own"]
fn inner_memory() {
    let model = memory_is_as_said(&moe().file());
    let before = device().memory_info().unwrap().free;
    let plan = model.plan(before, &DecoderOptions::default(), 64, KvType::F16).unwrap();
    assert!(plan.sequences > 0 && plan.decoder > 0);
}
