//! One model over several devices: the tokens of one, the f64 reference, memory, and what goes wrong. Under all checks of the software
//! driver, races between devices among them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/over.rs"]
mod over;
#[path = "../../collectives/tests/common/several.rs"]
mod several;

use agree::*;
use alone::*;
use common::{layer_normed::KINDS, *};
use device::*;
use gpu_kernels::format::Format;
use over::*;
use several::{clean, devices};
use warpsmith_driver_api::software;
use warpsmith_host::Device;
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Part, Pool, PoolOptions, Predict, Sequence,
    SequenceOptions, Session,
};
use warpsmith_host::gguf::{Gguf, TensorType};
use warpsmith_host::model::ModelFile;

/// Small, because all checks look at what several devices do with it.
fn dense() -> Synthetic {
    Synthetic { hidden: 128, feed_forward: 256, ..Synthetic::divisible() }
}

fn experts(architecture: &'static str) -> Synthetic {
    Synthetic { architecture, hidden: 128, feed_forward: 128, experts: Some((8, 2)), ..Synthetic::divisible() }
}

#[test]
fn dense_models_have_the_text_of_one_device_and_agree_with_the_reference() {
    let (all, _turn) = devices(4);
    same_over("qwen3", &dense().file(), &all, &[2, 4]);
    // A tied head; a key head that two devices have.
    same_over("tied", &Synthetic { tied: true, kv_heads: 2, ..dense() }.file(), &all, &[4]);
    // Biases; two tensors in one; norms behind, caps and windows; gates and ups of different formats.
    same_over("qwen2", &Synthetic { architecture: "qwen2", ..dense() }.file(), &all, &[2]);
    same_over("phi3", &Synthetic { architecture: "phi3", formats: vec![Format::F16], ..dense() }.file(), &all, &[4]);
    same_over("gemma2", &Synthetic { architecture: "gemma2", window: 3, ..dense() }.file(), &all, &[2]);
    let formats = vec![Format::Q4_0, Format::F16, Format::Q8_0, Format::Q5_1, Format::BF16];
    same_over("apart", &Synthetic { architecture: "llama", formats, ..dense() }.file(), &all, &[4]);
}

#[test]
fn mixtures_of_experts_have_the_text_of_one_device_and_agree_with_the_reference() {
    let (all, _turn) = devices(4);
    same_over("qwen3moe", &experts("qwen3moe").file(), &all, &[2, 4]);
    // A shared expert; biases, of which each is added once.
    same_over("qwen2moe", &experts("qwen2moe").file(), &all, &[4]);
    same_over("gpt-oss", &Synthetic { window: 4, ..experts("gpt-oss") }.file(), &all, &[2]);
    // A layer without experts; gates and ups of all experts in one tensor.
    same_over("glm4moe", &experts("glm4moe").file(), &all, &[4]);
    let together = experts("bailingmoe").gates_and_ups_together().to_bytes();
    let together = ModelFile::from_gguf(Gguf::from_bytes(together).unwrap()).unwrap();
    same_over("one tensor", &together, &all, &[2]);
}

/// As many as a machine has: key heads that two of them have, parts of a head that differ, and experts.
#[test]
fn eight_devices_have_the_text_of_one() {
    let (all, _turn) = devices(8);
    let small = |m: Synthetic| Synthetic { layers: 1, hidden: 64, head_dim: 32, feed_forward: 256, vocab: 300, ..m };
    for m in [small(Synthetic::divisible()), small(experts("qwen3moe"))] {
        let file = m.file();
        let want = text(&Model::load(&all[0], &file).unwrap(), Mode::Eager, &[3, 1], 2);
        let got = clean(|| text(&Model::load_over(&all, &file).unwrap(), Mode::Graph, &[3, 1], 2));
        assert_eq!(got, want, "{}", m.architecture);
    }
}

/// Residual streams of two parts, one norm for both, learned positions, and biases that are added once; the bias of a head is that of a
/// device's part.
#[test]
fn models_with_layer_norms_have_the_text_of_one_device_and_agree_with_the_reference() {
    let (all, _turn) = devices(4);
    for (i, (architecture, kind)) in KINDS.into_iter().enumerate() {
        let windows = architecture == "cohere2";
        let model = Synthetic {
            architecture,
            hidden: 64,
            feed_forward: 128,
            head_dim: 32,
            layers: if windows { 4 } else { 1 },
            window: if windows { 3 } else { 0 },
            tied: kind.scaled,
            ..Synthetic::divisible()
        };
        let (file, ranks) = (model.file(), [2, 4][i % 2]);
        same_over(architecture, &file, &all, &[ranks]);
        let launches = |devices: &[Device]| {
            let model = Model::load_over(devices, &file).unwrap();
            Decoder::new(&model, DecoderOptions::default()).unwrap().launches_per_step(1, KvType::F16).unwrap()
        };
        // Two sums a layer, the gathered logits and the chosen token.
        assert_eq!(launches(&all[..ranks]), launches(&all[..1]) + 2 * model.layers + 2, "{architecture}");
        if kind.head_bias {
            same_over("a tied head with a bias", &Synthetic { tied: true, ..model }.file(), &all, &[4]);
        }
    }
}

/// Blocks of 64, 128 and 256 columns; a scale of each of the experts' matrices beside them.
#[test]
fn formats_of_wide_blocks_are_cut_between_them() {
    let (all, _turn) = devices(4);
    for format in [Format::NVFP4, Format::F8_E4M3, Format::Q6_K, Format::IQ3_S, Format::IQ1_M] {
        let m = Synthetic { layers: 1, formats: vec![format], ..Synthetic::divisible() };
        same_over(format.name(), &m.file(), &all, &[2]);
    }
    let mut w =
        Synthetic { layers: 1, hidden: 64, feed_forward: 256, formats: vec![Format::NVFP4], ..experts("qwen3moe") }
            .writer();
    let plain = Gguf::from_bytes(w.to_bytes()).unwrap();
    let mut rng = Rng(5);
    for t in plain.tensors().iter().filter(|t| t.kind == TensorType::NVFP4) {
        let count = t.dims.get(2).copied().unwrap_or(1);
        let scales: Vec<f32> = (0..count).map(|_| (0.6 + rng.unit()) as f32).collect();
        w.tensor_f32(t.name.replace(".weight", ".scale"), &[count], &scales).unwrap();
    }
    let beside = file(&w).unwrap();
    assert_eq!(beside.layers()[0].down.format, Format::NVFP4_SCALED);
    same_over("scales beside", &beside, &all, &[2, 4]);
}

/// The shipped model in two formats, whose text one device has from elsewhere.
#[test]
fn the_shipped_model_has_the_same_text_over_1_2_and_4_devices() {
    let (all, _turn) = devices(4);
    for name in ["q8_0", "f16"] {
        let file = ModelFile::open(root().join(format!("models/warpsmith-2m-{name}.gguf"))).unwrap();
        let of = |ranks: usize| text(&Model::load_over(&all[..ranks], &file).unwrap(), Mode::Graph, &[5, 17, 300], 8);
        let want = of(1);
        assert_eq!([of(2), of(4)], [want.clone(), want], "{name}");
    }
}

/// Alone, in batches, as prompts of any cut, in mixed steps, in pages: the bits of a sequence are the same over two devices as well.
#[test]
fn a_sequence_has_the_same_bits_in_every_step() {
    let (all, _turn) = devices(2);
    let model = Model::load_over(
        &all,
        &Synthetic { layers: 1, hidden: 128, feed_forward: 128, ..Synthetic::divisible() }.file(),
    )
    .unwrap();
    same_bits(&model);
}

/// Prompts and decoding sequences side by side, chosen by all kinds of sampling: the tokens of one device.
#[test]
fn mixed_steps_and_pipelines_choose_the_tokens_of_one_device() {
    let (all, _turn) = devices(2);
    let file = Synthetic { layers: 1, ..Synthetic::divisible() }.file();
    let run = |model: &Model| {
        let options = DecoderOptions { batch: 3, ..Default::default() };
        let mut decoder = Decoder::new(model, options).unwrap();
        let pool = Pool::new(model, PoolOptions { positions: 256, ..Default::default() }).unwrap();
        let mut sequences: Vec<Sequence> = (0..3)
            .map(|s| {
                let options = SequenceOptions { sampling: sampling(s), ..Default::default() };
                if s == 1 { Sequence::in_pool(&pool, options).unwrap() } else { Sequence::new(model, options).unwrap() }
            })
            .collect();
        let mut tokens = Vec::new();
        let [a, b, c] = &mut sequences[..] else { panic!() };
        let first = decoder.prefill(a, &[1, 2, 3]).unwrap();
        tokens.push(first);
        let mut parts = [
            Part { sequence: a, tokens: &[first], predict: Predict::Next },
            Part { sequence: b, tokens: &[4, 5, 6, 7, 8, 9], predict: Predict::Next },
            Part { sequence: c, tokens: &[10, 11], predict: Predict::Nothing },
        ];
        tokens.extend(decoder.step_mixed(&mut parts).unwrap());
        let feeds = vec![Feed { sequence: a, token: tokens[1] }, Feed { sequence: b, token: tokens[2] }];
        let mut pipeline = decoder.pipeline(feeds).unwrap();
        for _ in 0..5 {
            tokens.extend(pipeline.next_tokens().unwrap().unwrap());
        }
        tokens
    };
    let want = run(&Model::load(&all[0], &file).unwrap());
    clean(|| assert_eq!(run(&Model::load_over(&all, &file).unwrap()), want));
}

/// Keys and values of the first layer depend on no sum over devices: those of all heads lie as those of one device, to the bit.
#[test]
fn snapshots_have_all_heads_and_can_be_continued() {
    let (all, _turn) = devices(4);
    // As many key heads as devices, and half as many.
    for kv_heads in [4, 2] {
        let file = Synthetic { kv_heads, layers: 1, ..Synthetic::divisible() }.file();
        let one = Model::load(&all[0], &file).unwrap();
        let four = Model::load_over(&all, &file).unwrap();
        let [mut a, mut b] = [&one, &four].map(|model| Session::new(model, exact(Mode::Eager, KvType::Int8)).unwrap());
        for session in [&mut a, &mut b] {
            session.prefill(&[3, 1, 4, 1, 5]).unwrap();
        }
        let [x, y] = [&a, &b].map(|session| session.snapshot().unwrap());
        assert_eq!((x.keys(), x.values()), (y.keys(), y.values()), "{kv_heads}");
        assert_eq!((x.key_scales(), x.value_scales()), (y.key_scales(), y.value_scales()), "{kv_heads}");
        let want = feed(&mut b, 7);
        b.reset();
        b.restore(&y).unwrap();
        assert_eq!(feed(&mut b, 7), want);
        // In pages, and with another capacity.
        let pool = Pool::new(&four, PoolOptions { positions: 64, kv: KvType::Int8, ..Default::default() }).unwrap();
        let kv = SequenceOptions { kv: KvType::Int8, ..Default::default() };
        let mut paged = Sequence::in_pool(&pool, kv).unwrap();
        paged.restore(&y).unwrap();
        assert_eq!(paged.snapshot().unwrap(), y);
        let mut copy = paged.fork().unwrap();
        let options = exact(Mode::Eager, KvType::Int8).decoder;
        let mut decoder = Decoder::new(&four, options).unwrap();
        decoder.step(&mut [Feed { sequence: &mut copy, token: 7 }]).unwrap();
        assert_eq!(bits(&decoder.logits(0).unwrap()), want);
        b.rollback(5).unwrap();
        b.set_capacity(16).unwrap();
        assert_eq!(feed(&mut b, 7), want);
    }
}

/// Each device takes what was said, and together they take no weight twice but embeddings, norms and routers.
#[test]
fn memory_is_that_of_shares() {
    let (all, _turn) = devices(4);
    for m in [Synthetic { tied: true, ..Synthetic::divisible() }, Synthetic::divisible(), experts("qwen2moe")] {
        let file = m.file();
        let whole = Model::device_bytes(&file).unwrap();
        let table = 98 * (m.hidden as u64) * 34 / 32;
        for ranks in [2, 4] {
            let free = || all[..ranks].iter().map(|d| d.memory_info().unwrap().free).collect::<Vec<_>>();
            let start = free();
            let model = Model::load_over(&all[..ranks], &file).unwrap();
            let loaded = free();
            let taken: Vec<u64> = start.iter().zip(&loaded).map(|(a, b)| a - b).collect();
            let said: Vec<u64> =
                (0..ranks).map(|rank| Model::device_bytes(&file.share(rank, ranks).unwrap()).unwrap()).collect();
            assert_eq!((&taken, model.bytes()), (&said, *said.iter().max().unwrap()));
            // Of small allocations each is 512 bytes.
            let twice = taken.iter().sum::<u64>() - whole;
            let small = (ranks as u64 - 1) * (table + 60 * 512 * m.layers as u64);
            assert!(twice <= small, "{twice} {small}");
            let options = DecoderOptions { batch: 4, ..Default::default() };
            let decoder = Decoder::new(&model, options).unwrap();
            let bytes = Decoder::device_bytes(&model, decoder.options()).unwrap();
            let decoded = free();
            let taken: Vec<u64> = loaded.iter().zip(&decoded).map(|(a, b)| a - b).collect();
            assert_eq!(taken[0], bytes);
            assert!(taken[1..].iter().all(|taken| (bytes - 4096..=bytes).contains(taken)), "{taken:?} {bytes}");
            let _sequence = Sequence::new(&model, SequenceOptions::default()).unwrap();
            let kept = Sequence::device_bytes(&model, m.context, KvType::F16).unwrap();
            assert!(decoded.iter().zip(free()).all(|(before, after)| before - after == kept));
        }
    }
}

#[test]
fn what_cannot_be_divided_says_among_how_many_devices_it_can() {
    let (all, _turn) = devices(4);
    let refused = |m: &Synthetic, ranks: usize| refused(&all[..ranks], &m.file());
    let (text, fits) = refused(&Synthetic { heads: 6, kv_heads: 3, ..Synthetic::divisible() }, 4);
    assert!(text.contains("6 query heads are no multiple of 4"), "{text}");
    assert_eq!(fits, [1]);
    let (text, fits) =
        refused(&Synthetic { heads: 6, kv_heads: 3, feed_forward: 576, vocab: 120, ..Synthetic::divisible() }, 2);
    assert!(text.contains("3 key heads and 2 devices"), "{text}");
    assert_eq!(fits, [1, 3, 6]);
    // Two blocks of 256.
    let (text, fits) = refused(&Synthetic { formats: vec![Format::Q4_K], ..Synthetic::divisible() }, 4);
    assert!(text.contains("128 columns a device, no multiple of the 256 of a block of Q4_K"), "{text}");
    assert!(text.ends_with("hint: it can among 1 or 2"), "{text}");
    assert_eq!(fits, [1, 2]);
    let (text, fits) = refused(&Synthetic { formats: vec![Format::F8_E4M3], heads: 4, ..Synthetic::divisible() }, 4);
    assert!(text.contains("64 columns a device, no multiple of the 128 of a block of F8_E4M3"), "{text}");
    assert_eq!(fits, [1, 2]);
    let file = Synthetic::divisible().file();
    let twice = Model::load_over(&[all[1].clone(), all[0].clone(), all[1].clone()], &file);
    assert!(matches!(twice, Err(DecodeError::Devices { ordinals }) if ordinals == [1, 0, 1]));
    assert!(matches!(Model::load_over(&[], &file), Err(DecodeError::Devices { .. })));
    let model = Model::load_over(&all[..2], &file).unwrap();
    let persistent = Decoder::new(&model, DecoderOptions { persistent: true, ..Default::default() });
    assert!(matches!(persistent, Err(DecodeError::OneDevice { devices: 2, .. })));
}

/// Whichever rank fails is named; the others, which wait for it by then, are let go, and the next call gives what it would have given.
#[test]
fn a_rank_that_fails_is_named_and_nothing_hangs() {
    let (all, _turn) = devices(4);
    let file = Synthetic { layers: 1, ..Synthetic::divisible() }.file();
    let model = Model::load_over(&all, &file).unwrap();
    let clean_text = |n: usize| {
        let mut session = sequence(&model, Mode::Eager);
        (0..n).map(|p| feed(&mut session, token(p, 98))).collect::<Vec<_>>()
    };
    let want = clean_text(9);
    let (mut eager, mut graph) = (sequence(&model, Mode::Eager), sequence(&model, Mode::Graph));
    let mut named = Vec::new();
    for (p, want) in want.iter().enumerate() {
        let t = token(p, 98);
        for (session, function, nth) in
            [(&mut eager, "cuLaunchKernel", 2 * p as u64), (&mut graph, "cuGraphLaunch", p as u64 % 4)]
        {
            let guard = software::inject_failure(Some(function), nth, 719);
            let start = std::time::Instant::now();
            match session.feed(t).unwrap_err() {
                DecodeError::Rank { rank, device, .. } => {
                    assert_eq!(rank as u32, device);
                    named.push(rank);
                }
                other => panic!("{other}"),
            }
            assert!(guard.fired() && start.elapsed().as_secs() < 30, "{function} {p}");
            drop(guard);
            assert_eq!(session.len(), p);
            assert_eq!(&feed(session, t), want, "{function} {p}");
        }
    }
    named.sort_unstable();
    named.dedup();
    assert_eq!(named, [0, 1, 2, 3]);
}
