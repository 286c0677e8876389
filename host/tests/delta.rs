//! Gated delta nets: decoding against the f64 reference, the bits of a sequence however it is fed, undone and copied, and what files are
//! refused for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/undone.rs"]
mod undone;

use agree::{distance, file, has_the_logits_of_another_program};
use alone::*;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use undone::*;
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Draft, Feed, KvType, Mode, Model, Pool, PoolOptions, Precision, Sequence,
    SequenceOptions, Session, compare,
};
use warpsmith_host::gguf::GgufWriter;
use warpsmith_host::model::ModelError;
use warpsmith_host::reference::{KvRounding, Reference};

/// Three delta nets to a layer that attends.
fn hybrid() -> Synthetic {
    let (hidden, feed_forward) = (64, 64);
    let formats = vec![Format::Q8_0];
    Synthetic { architecture: "qwen35", layers: 4, interval: 4, hidden, feed_forward, formats, ..Default::default() }
}

#[test]
fn decoding_agrees_with_the_reference() {
    use Format::*;
    let _checked = software::check(Checks::ALL);
    // Heads of every size, groups of one to three, widths that are no power of two, and formats that are a launch each.
    for (i, (delta, formats)) in [
        ([2, 4, 32], vec![F32]),
        ([1, 3, 64], vec![Q4_0]),
        ([2, 2, 96], vec![F16, Q8_0, F32]),
        ([1, 2, 128], vec![Q8_0, F16]),
        ([4, 8, 32], vec![Q4_K]),
        ([2, 6, 32], vec![Q1_0]),
    ]
    .into_iter()
    .enumerate()
    {
        let wide = formats.iter().map(|f| f.block_elems()).max().unwrap().max(64);
        let model = Synthetic {
            delta,
            interval: 2 + i % 2,
            layers: 3,
            hidden: wide,
            feed_forward: wide,
            // What is projected back has a width of its own, of which blocks have to be whole.
            heads: 8,
            head_dim: 32,
            formats,
            seed: i as u64,
            ..hybrid()
        };
        let delta = if wide > 64 { [2, 2 * wide / 64, 32] } else { delta };
        let file = Synthetic { delta, ..model.clone() }.file();
        let loaded = load(&file);
        for mode in [Mode::Eager, Mode::Graph] {
            let mut s = Session::new(&loaded, exact(mode, KvType::F32)).unwrap();
            let d = distance(&file, &mut s, 9);
            assert!(d <= 1e-4, "{mode:?} {d:e} {model:?}");
        }
        let mut s = Session::new(&loaded, options(Mode::Graph, KvType::F32)).unwrap();
        let d = distance(&file, &mut s, 9);
        assert!(d <= 2.1e-3 * 3f64.sqrt(), "int16: {d:e} {model:?}");
    }
}

/// The model of `make_delta.py`, whose logits numpy and llama.cpp agree on.
#[test]
fn the_golden_model_is_decoded_as_another_implementation_decodes_it() {
    has_the_logits_of_another_program("qwen35-small");
}

#[test]
fn a_run_is_right_by_its_verdict() {
    let file = hybrid().file();
    let model = load(&file);
    for fast_prefill in [false, true] {
        let options = DecoderOptions { fast_prefill, prompt_logits: true, chunk: 7, ..Default::default() };
        let (mut decoder, mut sequence) = (Decoder::new(&model, options).unwrap(), empty(&model, 0, KvType::F16));
        let fed: Vec<u32> = (0..30).map(|p| token(p, 96)).collect();
        let mut logits = Vec::new();
        decoder.prefill_each(&mut sequence, &fed, |predicted| logits.push(predicted.logits)).unwrap();
        let precision = Precision { fast_prefill, ..Default::default() };
        assert!(compare(&file, precision, &fed, &logits, &[], |_| {}).unwrap().passed(), "{fast_prefill}");
        // One layer that forgets nothing.
        let mut w = hybrid().writer();
        w.tensor_data_mut("blk.1.ssm_a").unwrap().fill(0);
        let other = agree::file(&w).unwrap();
        assert!(!compare(&other, precision, &fed, &logits, &[], |_| {}).unwrap().passed(), "{fast_prefill}");
    }
}

#[test]
fn the_reference_goes_back_as_if_it_had_not_gone_on() {
    let file = hybrid().file();
    let (mut a, mut b) = (Reference::new(&file, KvRounding::F16), Reference::new(&file, KvRounding::F16));
    for t in 0..9 {
        a.feed(t).unwrap();
    }
    a.rollback(4).unwrap();
    (0..4).for_each(|t| _ = b.feed(t).unwrap());
    assert_eq!((a.len(), a.feed(50).unwrap()), (4, b.feed(50).unwrap()));
    a.reset();
    assert_eq!(a.feed(3).unwrap(), Reference::new(&file, KvRounding::F16).feed(3).unwrap());
}

/// Prompts in chunks of every size, eager and by graph, with all checks: what steps of a token each give.
#[test]
fn a_prompt_has_the_same_bits_however_it_is_cut() {
    let _checked = software::check(Checks::ALL);
    let model = load(&hybrid().file());
    let want = Alone::new(&model, 0, (50, 53), KvType::F16);
    for (chunk, mode) in [(1, Mode::Graph), (2, Mode::Eager), (3, Mode::Graph), (33, Mode::Graph), (512, Mode::Eager)] {
        let options = DecoderOptions { chunk, mode, prompt_logits: true, ..Default::default() };
        let (mut decoder, mut sequence) = (Decoder::new(&model, options).unwrap(), empty(&model, 0, KvType::F16));
        let mut got = Vec::new();
        let next = decoder.prefill_each(&mut sequence, &want.tokens[..50], |p| got.push(bits(&p.logits))).unwrap();
        assert!(got == want.logits[..50] && next == want.tokens[50], "{chunk} {mode:?}");
        for p in 50..53 {
            let next = decoder.step(&mut [Feed { sequence: &mut sequence, token: want.tokens[p] }]).unwrap()[0];
            assert_eq!((next, bits(&decoder.logits(0).unwrap())), (want.tokens[p + 1], want.logits[p].clone()));
        }
    }
}

/// The second time a prompt of 17 tokens is the replay of a graph of 24 columns, of which seven are of no sequence: what they read is
/// written first.
#[test]
fn columns_of_no_sequence_read_nothing_undefined() {
    let _checked = software::check(Checks::ALL);
    let model = load(&Synthetic { layers: 2, interval: 2, ..hybrid() }.file());
    let want = Alone::new(&model, 0, (17, 18), KvType::F16);
    let (mut decoder, mut sequence) =
        (Decoder::new(&model, DecoderOptions::default()).unwrap(), empty(&model, 0, KvType::F16));
    for round in 0..3 {
        sequence.reset();
        assert_eq!(decoder.prefill(&mut sequence, &want.tokens[..17]).unwrap(), want.tokens[17]);
        assert!(bits(&decoder.logits(0).unwrap()) == want.logits[16], "{round}");
    }
    assert!(decoder.graphs().iter().any(|g| g.batch == 24 && g.replays == 2));
}

/// With attention in tiles prompts have bits of their own, which do not depend on how they are cut either, as long as they are too short for
/// chunks (`delta_chunks.rs`).
#[test]
fn fast_prompts_have_the_same_bits_however_they_are_cut() {
    let model = load(&hybrid().file());
    let run = |chunk| {
        let options = DecoderOptions { chunk, fast_prefill: true, ..Default::default() };
        let (mut decoder, mut sequence) = (Decoder::new(&model, options).unwrap(), empty(&model, 0, KvType::F16));
        let prompt: Vec<u32> = (0..31).map(|p| token(p, 96)).collect();
        let next = decoder.prefill(&mut sequence, &prompt).unwrap();
        (next, bits(&decoder.logits(0).unwrap()))
    };
    let want = run(31);
    assert!([3, 16, 30].into_iter().all(|chunk| run(chunk) == want));
}

#[test]
fn whatever_is_undone_and_copied_sequences_get_the_bits_that_they_get_alone() {
    undone_and_copied(&load(&Synthetic { layers: 3, interval: 2, ..hybrid() }.file()), 60);
}

/// Pages hold no states: a beginning that another sequence had is computed again.
#[test]
fn nobody_begins_with_pages_of_another_sequence() {
    let model = load(&hybrid().file());
    let pool = Pool::new(&model, PoolOptions { positions: 256, ..Default::default() }).unwrap();
    let mut decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
    let want = Alone::new(&model, 0, (40, 41), KvType::F16);
    let mut first = in_pool(&pool, 0);
    decoder.prefill(&mut first, &want.tokens[..40]).unwrap();
    let mut second = in_pool(&pool, 0);
    assert_eq!(decoder.adopt_prefix(&mut second, &want.tokens[..40]).unwrap(), 0);
    assert_eq!((second.len(), pool.stats().shared), (0, 0));
    assert_eq!(decoder.prefill(&mut second, &want.tokens[..40]).unwrap(), want.tokens[40]);
    assert_eq!(bits(&decoder.logits(0).unwrap()), want.logits[39]);
}

/// A draft that is wrong is undone by going back to the states before it.
#[test]
fn drafts_change_how_many_steps_there_are_and_nothing_else() {
    let model = load(&hybrid().file());
    let want = Alone::new(&model, 1, (5, 40), KvType::F16);
    let options = DecoderOptions { drafts: 4, ..Default::default() };
    let (mut decoder, mut sequence) = (Decoder::new(&model, options).unwrap(), empty(&model, 1, KvType::F16));
    let mut got = want.tokens[..5].to_vec();
    got.push(decoder.prefill(&mut sequence, &got).unwrap());
    let mut round = 0;
    while got.len() < want.tokens.len() {
        let (first, right) = (got.len(), round % 5);
        let guess = |i: usize| want.tokens.get(first + i).copied().unwrap_or(0);
        let draft: Vec<u32> = (0..4).map(|i| if i < right { guess(i) } else { (guess(i) + 1) % 96 }).collect();
        let token = *got.last().unwrap();
        let accepted = decoder.step_drafts(&mut [Draft { sequence: &mut sequence, token, draft: &draft }]).unwrap();
        got.extend(&accepted[0]);
        assert_eq!(sequence.tokens(), &got[..got.len() - 1]);
        round += 1;
    }
    assert_eq!(got[..want.tokens.len()], want.tokens);
}

/// A pipeline that is dropped while a step runs that nobody asked for leaves the states where they were.
#[test]
fn a_step_that_ran_ahead_and_is_forgotten_has_done_nothing() {
    let model = load(&hybrid().file());
    let want = Alone::new(&model, 2, (4, 30), KvType::F16);
    let mut decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
    let mut sequence = empty(&model, 2, KvType::F16);
    let mut token = decoder.prefill(&mut sequence, &want.tokens[..4]).unwrap();
    for rounds in [1, 3, 2, 4] {
        let mut pipeline = decoder.pipeline(vec![Feed { sequence: &mut sequence, token }]).unwrap();
        for _ in 0..rounds {
            token = pipeline.next_tokens().unwrap().unwrap()[0];
        }
        drop(pipeline);
        software::reset_profile();
        let length = sequence.len();
        assert_eq!((sequence.tokens(), token), (&want.tokens[..length], want.tokens[length]));
        token = decoder.step(&mut [Feed { sequence: &mut sequence, token }]).unwrap()[0];
        assert_eq!(bits(&decoder.logits(0).unwrap()), want.logits[length]);
    }
}

/// Whichever driver call of a step fails, every sequence is as it was, and the same step succeeds afterwards.
#[test]
fn a_step_that_fails_changes_nothing() {
    const LAUNCH_FAILED: i32 = 719;
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let model = load(&Synthetic { layers: 2, interval: 2, ..hybrid() }.file());
    let want: Vec<Alone> = (0..2).map(|s| Alone::new(&model, s, (6, 14), KvType::F16)).collect();
    let options = DecoderOptions { batch: 2, chunk: 4, mode: Mode::Eager, ..Default::default() };
    let mut decoder = Decoder::new(&model, options).unwrap();
    let pool = Pool::new(&model, PoolOptions::default()).unwrap();
    let mut all = [empty(&model, 0, KvType::F16), in_pool(&pool, 1)];
    for (function, after) in [
        ("cuLaunchKernel", 0),
        ("cuLaunchKernel", 4),
        ("cuLaunchKernel", 9),
        ("cuMemcpyHtoDAsync_v2", 1),
        ("cuMemcpyDtoHAsync_v2", 0),
    ] {
        for (s, sequence) in all.iter_mut().enumerate() {
            sequence.reset();
            decoder.prefill(sequence, &want[s].tokens[..3]).unwrap();
            // A prompt of two steps, of which the second has written where the first one began before its token is read.
            let guard = software::inject_failure(Some("cuMemcpyDtoHAsync_v2"), 0, LAUNCH_FAILED);
            decoder.prefill(sequence, &want[s].tokens[3..9]).unwrap_err();
            assert!(guard.fired() && sequence.len() == 3);
            drop(guard);
            decoder.prefill(sequence, &want[s].tokens[3..9]).unwrap();
        }
        let mut step = |all: &mut [Sequence; 2], p: usize| {
            let feeds = all.iter_mut().zip(&want);
            let mut feeds: Vec<_> = feeds.map(|(sequence, w)| Feed { sequence, token: w.tokens[p] }).collect();
            decoder.step(&mut feeds).map(|_| ()).map(|()| [0, 1].map(|i| bits(&decoder.logits(i).unwrap())))
        };
        let function = if function == "cuLaunchKernel" && after > 0 { "cuLaunchKernelEx" } else { function };
        let guard = software::inject_failure(Some(function), after, LAUNCH_FAILED);
        step(&mut all, 9).unwrap_err();
        assert!(guard.fired(), "{function} {after}");
        drop(guard);
        assert_eq!([all[0].len(), all[1].len()], [9, 9]);
        for p in 9..12 {
            let got = step(&mut all, p).unwrap();
            assert!([0, 1].into_iter().all(|s| got[s] == want[s].logits[p]), "{function} {after}: position {p}");
        }
    }
}

/// The states are in device memory twice, and layers that have them have no cache.
#[test]
fn what_a_sequence_takes_is_what_its_layers_need() {
    let model = load(&hybrid().file());
    // Three layers of three inputs of 256 channels and four states of 32 by 32, twice.
    let states = 2 * (4 * 3 * (3 * 256 + 4 * 32 * 32) as u64).next_multiple_of(512);
    assert_eq!(Sequence::state_bytes(&model), states);
    let cache = 2 * 2 * 64 * 64 * 2;
    assert_eq!(Sequence::device_bytes(&model, 64, KvType::F16), Some(states + cache));
    let dense = load(&Synthetic::default().file());
    assert_eq!(Sequence::state_bytes(&dense), 0);
}

/// Convolution and rule in place of attention; attention, gates, and a launch that rounds what these give.
#[test]
fn a_delta_net_is_two_launches_between_its_projections() {
    let model = load(&hybrid().file());
    let mut session = Session::new(&model, options(Mode::Eager, KvType::F16)).unwrap();
    session.feed(1).unwrap();
    let (_, profile) = session.profile(|s| s.feed(2)).unwrap();
    let of = |name: &str| profile.kernels.iter().find(|k| k.name == name).map_or(0, |k| k.launches);
    assert_eq!((of("delta_conv"), of("delta_rule"), of("gate_heads"), of("attn_step_f16")), (3, 3, 1, 1));
    // Embedding, six of each delta net, seven of the layer that attends, head and sample.
    assert_eq!(session.launches_per_step(), 1 + 3 * 6 + 7 + 2);
}

#[test]
fn layers_that_are_not_done_in_one_launch_say_why() {
    let persistent = |interval| {
        let model = load(&Synthetic { interval, layers: 2, ..hybrid() }.file());
        let options = DecoderOptions { persistent: true, ..Default::default() };
        let decoder = Decoder::new(&model, options).unwrap();
        (decoder.persistent_layers(), decoder.not_persistent().unwrap().1.to_string())
    };
    assert_eq!(persistent(2), (0, "a gated delta net: layers in one launch attend".into()));
    assert_eq!(persistent(1), (0, "gates of what attention gives, in a launch of their own".into()));
}

fn refused(change: impl FnOnce(&mut GgufWriter)) -> String {
    let mut w = hybrid().writer();
    change(&mut w);
    file(&w).and_then(|file| file.check_kernels()).unwrap_err().to_string()
}

#[test]
fn files_that_lack_something_or_say_something_else_are_refused() {
    file(&hybrid().writer()).unwrap().check_kernels().unwrap();
    for part in [
        "attn_qkv.weight",
        "attn_gate.weight",
        "ssm_beta.weight",
        "ssm_alpha.weight",
        "ssm_conv1d.weight",
        "ssm_dt.bias",
        "ssm_a",
        "ssm_norm.weight",
        "ssm_out.weight",
        "post_attention_norm.weight",
    ] {
        let name = format!("blk.2.{part}");
        let e = refused(|w| _ = w.remove_tensor(&name));
        assert!(e.contains(&format!("tensor `{name}` is missing")), "{e}");
        let e = refused(|w| {
            w.remove_tensor(&name);
            w.tensor_f32(&name, &[5], &[1.0; 5]).unwrap();
        });
        assert!(e.contains(&format!("tensor `{name}` has the shape [5]")), "{e}");
    }
    let e = refused(|w| _ = w.remove_tensor("blk.3.attn_q_norm.weight"));
    assert!(e.contains("`blk.3.attn_q_norm.weight` is missing"), "{e}");
    // Tensors of the other kind of layer.
    let e = refused(|w| _ = w.tensor_f32("blk.3.ssm_a", &[4], &[1.0; 4]).unwrap());
    assert!(e.contains("blk.3.ssm_a") && e.contains("not part of this architecture"), "{e}");
    let e = refused(|w| _ = w.tensor_f32("blk.0.attn_q_norm.weight", &[64], &[1.0; 64]).unwrap());
    assert!(e.contains("blk.0.attn_q_norm.weight"), "{e}");
    for (key, value, says) in [
        ("ssm.conv_kernel", 3u32, "only convolutions over 4 tokens"),
        ("ssm.time_step_rank", 3, "expected a multiple of the 2 key heads"),
        ("ssm.time_step_rank", 1 << 30, "more than 2^32"),
        ("ssm.inner_size", 100, "expected 128"),
        ("ssm.state_size", 0, "expected one or more"),
        ("full_attention_interval", 0, "expected one or more"),
        ("nextn_predict_layers", 4, "expected fewer than the 4 layers"),
    ] {
        let e = refused(|w| _ = w.key(format!("qwen35.{key}"), value));
        assert!(e.contains(&format!("qwen35.{key}")) && e.contains(says), "{e}");
    }
    let e = refused(|w| _ = w.remove_key("qwen35.ssm.group_count"));
    assert!(e.contains("qwen35.ssm.group_count"), "{e}");
    // Heads for which there are no kernels: the reference takes them.
    let odd = Synthetic { delta: [1, 2, 16], formats: vec![Format::F16], ..hybrid() }.file();
    Reference::new(&odd, KvRounding::None).feed(1).unwrap();
    let e = odd.check_kernels().unwrap_err().to_string();
    assert!(e.contains("heads of delta nets have 16 elements; there are kernels for heads of 32, 64, 96, 128"), "{e}");
}

#[test]
fn which_layers_are_delta_nets_a_list_may_say() {
    let model = Synthetic { layers: 4, interval: 2, ..hybrid() };
    let of = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = model.writer();
        w.remove_key("qwen35.full_attention_interval");
        change(&mut w);
        file(&w).map(|file| (0..4).map(|l| file.config().is_recurrent(l)).collect::<Vec<_>>())
    };
    let list = [true, false, true, false];
    assert_eq!(of(&|w| _ = w.key("qwen35.attention.recurrent_layers", list.to_vec())).unwrap(), list);
    let numbers = vec![1u32, 0, 1, 0];
    assert_eq!(of(&|w| _ = w.key("qwen35.attention.recurrent_layers", numbers.clone())).unwrap(), list);
    for wrong in [vec![1u32, 0, 1], vec![1, 0, 2, 0]] {
        let e = of(&|w| _ = w.key("qwen35.attention.recurrent_layers", wrong.clone())).unwrap_err().to_string();
        assert!(e.contains("expected a bool for each of the 4 layers"), "{e}");
    }
    // Three to one, where nothing is said: the second layer's tensors are others then.
    assert!(matches!(of(&|_| ()).unwrap_err(), ModelError::MissingTensor { .. }));
}

#[test]
fn layers_that_guess_further_tokens_are_left_out() {
    let mut w = Synthetic { layers: 2, interval: 2, ..hybrid() }.writer();
    let want = file(&w).unwrap();
    w.key("qwen35.block_count", 3u32).key("qwen35.nextn_predict_layers", 1u32);
    w.tensor_f32("blk.2.attn_norm.weight", &[64], &[1.0; 64]).unwrap();
    w.tensor_f32("blk.2.nextn.enorm.weight", &[64], &[1.0; 64]).unwrap();
    let file = file(&w).unwrap();
    assert_eq!((file.config(), file.layers().len()), (want.config(), 2));
}

#[test]
fn positions_of_several_kinds_are_those_of_text() {
    let with = |sections: Vec<u32>| {
        let mut w = hybrid().writer();
        w.key("qwen35.rope.dimension_count", 32u32).key("qwen35.rope.dimension_sections", sections);
        file(&w).map(|file| file.config().rope.dims)
    };
    assert_eq!(with(vec![6, 5, 5, 0]).unwrap(), 32);
    assert!(with(vec![8, 4, 4]).unwrap_err().to_string().contains("would not turn in texts"));
    for wrong in [vec![0, 0, 0, 16], vec![6, 5, 4, 1], vec![], vec![1; 5], vec![u32::MAX; 4]] {
        match with(wrong.clone()) {
            Err(ModelError::Config { key, .. }) => assert_eq!(key, "qwen35.rope.dimension_sections"),
            other => assert!(wrong == [u32::MAX; 4] && other.is_ok(), "{wrong:?}: {other:?}"),
        }
    }
}

/// A sequence whose states do not fit is refused before anything is allocated.
#[test]
fn states_that_do_not_fit_are_an_error() {
    in_its_own_process("a_small_device_has_no_room_for_states", "6M");
}

#[test]
#[ignore = "run by `states_that_do_not_fit_are_an_error`, on a small device"]
fn a_small_device_has_no_room_for_states() {
    let model: Model = load(&Synthetic { delta: [1, 16, 128], layers: 2, ..hybrid() }.file());
    let pool = Pool::new(&model, PoolOptions { positions: 16, ..Default::default() }).unwrap();
    let mut all = Vec::new();
    let refused = loop {
        match Sequence::in_pool(&pool, SequenceOptions::default()) {
            Ok(sequence) => all.push(sequence),
            Err(e) => break e,
        }
        assert!(all.len() < 9);
    };
    assert!(matches!(&refused, DecodeError::Memory { what: "the sequence", .. }), "{refused}");
    assert!(refused.to_string().contains("states of layers that are delta nets"), "{refused}");
    let fork = all.pop().unwrap().fork();
    assert!(all.is_empty() || fork.is_ok());
}
