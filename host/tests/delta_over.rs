//! Gated delta nets over several devices: the tokens of one, the f64 reference, states that fork, roll back and are taken from snapshots,
//! memory, and what cannot be divided. Under all checks of the software driver, races between devices among them.
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
#[path = "common/undone.rs"]
mod undone;

use agree::*;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use over::*;
use several::{clean, devices};
use undone::*;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Pool, PoolOptions, Sequence, SequenceOptions,
    Session,
};
use warpsmith_host::model::ModelFile;

/// A delta net, and a layer that attends behind it; its heads of values have key heads in turn.
fn hybrid() -> Synthetic {
    let (hidden, feed_forward, head_dim) = (128, 128, 32);
    let delta = [4, 12, 32];
    Synthetic { architecture: "qwen35", hidden, feed_forward, head_dim, delta, ..Synthetic::divisible() }
}

/// A mixture of experts behind each, with a shared expert; heads of values that have a key head lie side by side.
fn experts(architecture: &'static str) -> Synthetic {
    Synthetic { architecture, experts: Some((8, 2)), layers: 3, delta: [4, 8, 32], ..hybrid() }
}

#[test]
fn models_have_the_text_of_one_device_and_agree_with_the_reference() {
    let (all, _turn) = devices(4);
    same_over("qwen35", &hybrid().file(), &all, &[2, 4]);
    // A key head that two devices have, each with half of the turns; and with half of what lies side by side.
    same_over("in turn", &Synthetic { delta: [2, 8, 32], ..hybrid() }.file(), &all, &[4]);
    let side_by_side = Synthetic { architecture: "qwen3next", delta: [2, 8, 32], ..experts("qwen3next") };
    same_over("side by side", &side_by_side.file(), &all, &[4]);
    // Key heads that are not halved and heads of another width; parts of what is projected in formats of their own.
    let formats = vec![Format::F16, Format::Q8_0, Format::F32];
    same_over("formats", &Synthetic { delta: [2, 4, 96], formats, ..hybrid() }.file(), &all, &[2]);
    // Blocks of 256 columns, of two turns.
    let wide = Synthetic { hidden: 256, feed_forward: 512, heads: 8, head_dim: 64, ..hybrid() };
    same_over("Q4_K", &Synthetic { delta: [4, 8, 128], formats: vec![Format::Q4_K], ..wide }.file(), &all, &[2]);
}

#[test]
fn mixtures_of_experts_have_the_text_of_one_device_and_agree_with_the_reference() {
    let (all, _turn) = devices(4);
    same_over("qwen35moe", &experts("qwen35moe").file(), &all, &[2]);
    same_over("qwen3next", &experts("qwen3next").file(), &all, &[2, 4]);
}

/// The models of `make_delta.py`, whose logits are numpy's; and a folder, whose tensors are put in another order as they are read.
#[test]
fn the_golden_models_have_the_logits_of_another_program_and_a_folder_those_of_the_reference() {
    let (all, _turn) = devices(4);
    for ranks in [2, 4] {
        for name in ["qwen35-small", "qwen35moe-small", "qwen3next-small"] {
            let file = ModelFile::open(root().join(format!("host/tests/data/{name}.gguf"))).unwrap();
            decodes_as_another_program(name, &Model::load_over(&all[..ranks], &file).unwrap());
        }
    }
    let folder = ModelFile::open(root().join("host/tests/data/folders/qwen3_next")).unwrap();
    same_over("a folder", &folder, &all, &[2, 4]);
}

/// Files of Qwen3-Next that have queries, keys, values and gates of a key head side by side.
#[test]
fn what_is_projected_by_key_heads_is_divided_as_what_lies_apart() {
    let (all, _turn) = devices(4);
    for (delta, ranks) in [([4, 8, 32], 2), ([2, 8, 32], 4)] {
        let m = Synthetic { delta, ..experts("qwen3next") };
        let (apart, together) = (m.file(), m.projected_by_key_heads());
        let logits = |file: &_| {
            let model = Model::load_over(&all[..ranks], file).unwrap();
            let mut session = Session::new(&model, exact(Mode::Eager, KvType::F32)).unwrap();
            (0..4).map(|t| feed(&mut session, t)).collect::<Vec<_>>()
        };
        assert_eq!(logits(&together), logits(&apart), "{delta:?}");
    }
}

/// Alone, in batches, as prompts of any cut, in mixed steps, in pages.
#[test]
fn a_sequence_has_the_same_bits_in_every_step() {
    let (all, _turn) = devices(2);
    same_bits(&Model::load_over(&all, &hybrid().file()).unwrap());
}

#[test]
fn whatever_is_undone_and_copied_sequences_get_the_bits_that_they_get_alone() {
    let (all, _turn) = devices(2);
    let load = || Model::load_over(&all, &hybrid().file()).unwrap();
    // One token a step is what the other tests check.
    let want = undone::alone(&load());
    clean(|| undone_beside(&load(), &want, 12));
}

/// Prompts in chunks, token by token and as attention in tiles has them: as on one device they do not depend on the cut.
#[test]
fn a_prompt_has_the_same_bits_however_it_is_cut() {
    let (all, _turn) = devices(4);
    let model = Model::load_over(&all, &hybrid().file()).unwrap();
    let prompt: Vec<u32> = (0..20).map(|p| token(p, 98)).collect();
    for fast_prefill in [false, true] {
        let run = |chunk| {
            let options = DecoderOptions { chunk, fast_prefill, ..Default::default() };
            let mut decoder = Decoder::new(&model, options).unwrap();
            let mut sequence = Sequence::new(&model, SequenceOptions::default()).unwrap();
            let next = decoder.prefill(&mut sequence, &prompt).unwrap();
            (next, bits(&decoder.logits(0).unwrap()))
        };
        let want = run(20);
        assert!([3, 16].into_iter().all(|chunk| run(chunk) == want), "{fast_prefill}");
    }
}

/// States of the first layer depend on no sum over devices: those of all heads lie as those of one device, to the bit.
#[test]
fn snapshots_have_all_heads_and_can_be_continued() {
    let (all, _turn) = devices(4);
    for (m, ranks) in [
        (hybrid(), 2),
        (hybrid(), 4),
        (Synthetic { delta: [2, 8, 32], ..hybrid() }, 4),
        (Synthetic { delta: [2, 8, 32], ..experts("qwen3next") }, 4),
    ] {
        let file = Synthetic { layers: 2, ..m.clone() }.file();
        let one = Model::load(&all[0], &file).unwrap();
        let several = Model::load_over(&all[..ranks], &file).unwrap();
        let [mut a, mut b] =
            [&one, &several].map(|model| Session::new(model, exact(Mode::Eager, KvType::F16)).unwrap());
        for session in [&mut a, &mut b] {
            session.prefill(&[3, 1, 4, 1, 5]).unwrap();
        }
        let [x, y] = [&a, &b].map(|session| session.snapshot().unwrap());
        let [key_heads, value_heads, dim] = m.delta;
        assert_eq!(x.states().len(), 3 * (2 * key_heads + value_heads) * dim + value_heads * dim * dim);
        assert_eq!(x.states(), y.states(), "{:?} over {ranks}", m.delta);
        let want = feed(&mut b, 7);
        b.reset();
        b.restore(&y).unwrap();
        assert_eq!(feed(&mut b, 7), want);
        // In pages; and a copy of that.
        let pool = Pool::new(&several, PoolOptions { positions: 64, ..Default::default() }).unwrap();
        let mut paged = Sequence::in_pool(&pool, SequenceOptions::default()).unwrap();
        paged.restore(&y).unwrap();
        assert_eq!(paged.snapshot().unwrap(), y);
        let mut copy = paged.fork().unwrap();
        assert_eq!(copy.snapshot().unwrap(), y);
        let mut decoder = Decoder::new(&several, exact(Mode::Eager, KvType::F16).decoder).unwrap();
        decoder.step(&mut [Feed { sequence: &mut copy, token: 7 }]).unwrap();
        assert_eq!(bits(&decoder.logits(0).unwrap()), want);
        // The states of that position are gone, and those of the one before it are there.
        b.rollback(5).unwrap();
        assert_eq!(feed(&mut b, 7), want);
        b.rollback(2).unwrap();
        for t in [4, 1, 5] {
            feed(&mut b, t);
        }
        assert_eq!(feed(&mut b, 7), want);
    }
}

/// Each device takes what was said: states of its heads, and its parts of the matrices.
#[test]
fn memory_is_that_of_shares() {
    let (all, _turn) = devices(4);
    for m in [hybrid(), Synthetic { delta: [2, 8, 128], ..experts("qwen3next") }] {
        let file = m.file();
        let one = Model::load(&all[0], &file).unwrap();
        let (whole, states) = (Model::device_bytes(&file).unwrap(), Sequence::state_bytes(&one));
        drop(one);
        for ranks in [2, 4] {
            let free = || all[..ranks].iter().map(|d| d.memory_info().unwrap().free).collect::<Vec<_>>();
            let start = free();
            let model = Model::load_over(&all[..ranks], &file).unwrap();
            let loaded = free();
            let taken: Vec<u64> = start.iter().zip(&loaded).map(|(a, b)| a - b).collect();
            let said: Vec<u64> =
                (0..ranks).map(|rank| Model::device_bytes(&file.share(rank, ranks).unwrap()).unwrap()).collect();
            // What is projected together lies together, and is said to take a place of its own each.
            let one_place = 512 * 5 * m.layers as u64;
            assert!(
                taken.iter().zip(&said).all(|(taken, said)| (said - one_place..=*said).contains(taken)),
                "{taken:?} {said:?}"
            );
            // Embeddings, norms and routers are everywhere, and so is what devices have of a key head together; small allocations are 512
            // bytes each.
            let keys = if m.delta[0] < ranks { 2 * m.delta[0] * m.delta[2] * m.hidden * 34 / 32 * m.layers } else { 0 };
            let routers = m.experts.map_or(0, |(count, _)| count * m.hidden * 4 * m.layers);
            let once = 98 * m.hidden * 34 / 32 + keys + routers + 60 * 512 * m.layers;
            let twice = taken.iter().sum::<u64>() - whole;
            assert!(twice <= (ranks as u64 - 1) * once as u64, "{twice} {once}");
            let _sequence = Sequence::new(&model, SequenceOptions::default()).unwrap();
            let kept = Sequence::device_bytes(&model, m.context, KvType::F16).unwrap();
            assert!(loaded.iter().zip(free()).all(|(before, after)| before - after == kept));
            let own = Sequence::state_bytes(&model);
            // Nothing twice but inputs of keys that several devices have.
            let inputs = 2 * 4 * 3 * 2 * (m.delta[0] * m.delta[2] * m.layers) as u64;
            assert!(own * ranks as u64 >= states && own * (ranks as u64) <= states + ranks as u64 * (inputs + 1024));
        }
    }
}

#[test]
fn what_cannot_be_divided_says_among_how_many_devices_it_can() {
    let (all, _turn) = devices(4);
    let (text, fits) = refused(&all[..2], &Synthetic { delta: [3, 6, 32], ..hybrid() }.file());
    assert!(text.contains("3 key heads of delta nets and 2 devices: neither is a multiple of the other"), "{text}");
    assert!(text.ends_with("hint: it can among 1"), "{text}");
    assert_eq!(fits, [1]);
    let (text, fits) = refused(&all, &Synthetic { delta: [2, 6, 32], ..hybrid() }.file());
    assert!(text.contains("3 heads of values that have a key head of delta nets are no multiple of the 2"), "{text}");
    assert_eq!(fits, [1, 2]);
    // Of 512 columns two devices have half of each of two turns: 128, and 128.
    let m = Synthetic { hidden: 256, feed_forward: 512, heads: 8, head_dim: 64, delta: [4, 8, 64], ..hybrid() };
    let (text, fits) = refused(&all[..2], &Synthetic { formats: vec![Format::Q4_K], ..m }.file());
    let cut = "`blk.0.ssm_out.weight` has 128 columns side by side a device, no multiple of the 256 of a block of Q4_K";
    assert!(text.contains(cut), "{text}");
    assert_eq!(fits, [1]);
    let model = Model::load_over(&all[..2], &hybrid().file()).unwrap();
    let persistent = Decoder::new(&model, DecoderOptions { persistent: true, ..Default::default() });
    assert!(matches!(persistent, Err(DecodeError::OneDevice { devices: 2, .. })));
}

/// A rank that fails in the middle of a step leaves the states of all where they were.
#[test]
fn a_step_that_fails_on_one_device_changes_the_states_of_none() {
    let (all, _turn) = devices(2);
    let model = Model::load_over(&all, &hybrid().file()).unwrap();
    let mut clean = sequence(&model, Mode::Eager);
    let want: Vec<_> = (0..8).map(|p| feed(&mut clean, token(p, 98))).collect();
    let mut session = sequence(&model, Mode::Eager);
    for (p, want) in want.iter().enumerate() {
        for function in ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2"] {
            let guard = software::inject_failure(Some(function), 1 + p as u64, 719);
            let failed = session.feed(token(p, 98));
            // Not so many copies are made.
            assert_eq!(failed.is_err(), guard.fired(), "{function} {p}");
            drop(guard);
            if failed.is_ok() {
                session.rollback(p).unwrap();
            }
            assert_eq!(session.len(), p);
        }
        assert_eq!(&feed(&mut session, token(p, 98)), want, "{p}");
    }
}
