//! Steps that are launched before the tokens of the one before are read: the tokens are the same, and what was launched too many is
//! forgotten.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;

use alone::*;
use common::*;
use device::*;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    Decoder, DecoderOptions, Feed, KvType, Mode, Model, Pool, PoolOptions, Sequence, SequenceOptions,
};

fn decoder(model: &Model, mode: Mode) -> Decoder {
    Decoder::new(model, DecoderOptions { batch: 4, mode, ..Default::default() }).unwrap()
}

/// Sequences with their prompts, and the tokens to feed next.
fn begun(decoder: &mut Decoder, want: &[Alone], sequences: &mut [Sequence]) -> Vec<u32> {
    let mut tokens = Vec::new();
    for (sequence, want) in sequences.iter_mut().zip(want) {
        tokens.push(decoder.prefill(sequence, &want.tokens[..want.prompt]).unwrap());
    }
    tokens
}

fn feeds<'a>(sequences: &'a mut [Sequence], tokens: &[u32]) -> Vec<Feed<'a>> {
    sequences.iter_mut().zip(tokens).map(|(sequence, &token)| Feed { sequence, token }).collect()
}

/// All kinds of sampling, caches of their own and in pages, given up after any number of steps and gone on with by plain ones.
#[test]
fn tokens_are_those_of_single_steps() {
    let model = load(&Synthetic { window: 0, context: 64, ..Default::default() }.file());
    for (kv, mode) in [(KvType::F16, Mode::Graph), (KvType::Int8, Mode::Eager), (KvType::F32, Mode::Graph)] {
        let want: Vec<Alone> = (0..4).map(|s| Alone::new(&model, s, (6, 40), kv)).collect();
        let pool = Pool::new(&model, PoolOptions { positions: 256, kv, ..Default::default() }).unwrap();
        let mut decoder = decoder(&model, mode);
        for steps in [0, 1, 2, 17] {
            let paged = |s| {
                let options = SequenceOptions { kv, capacity: None, sampling: sampling(s) };
                Sequence::in_pool(&pool, options).unwrap()
            };
            let mut all = [paged(0), empty(&model, 1, kv), paged(2), empty(&model, 3, kv)];
            let mut tokens = begun(&mut decoder, &want, &mut all);
            let mut pipeline = decoder.pipeline(feeds(&mut all, &tokens)).unwrap();
            for step in 0..steps {
                tokens = pipeline.next_tokens().unwrap().unwrap().to_vec();
                for (token, want) in tokens.iter().zip(&want) {
                    assert_eq!(*token, want.tokens[6 + step + 1], "{kv} {mode:?} step {step}");
                }
            }
            drop(pipeline);
            for (sequence, want) in all.iter().zip(&want) {
                assert_eq!(sequence.tokens(), &want.tokens[..6 + steps], "{kv} {mode:?} after {steps}");
            }
            for step in steps..steps + 5 {
                tokens = decoder.step(&mut feeds(&mut all, &tokens)).unwrap().to_vec();
                for (s, (token, want)) in tokens.iter().zip(&want).enumerate() {
                    assert_eq!(*token, want.tokens[6 + step + 1], "{kv} {mode:?} step {step}");
                    assert_eq!(bits(&decoder.logits(s).unwrap()), want.logits[6 + step], "{kv} {mode:?} step {step}");
                }
            }
        }
        assert_eq!(pool.stats().used, 0);
    }
}

#[test]
fn it_ends_where_the_cache_does() {
    let model = load(&Synthetic::default().file());
    let want = Alone::new(&model, 0, (3, 20), KvType::F16);
    let mut decoder = decoder(&model, Mode::Graph);
    let options = SequenceOptions { capacity: Some(9), sampling: sampling(0), ..Default::default() };
    let mut all = [Sequence::new(&model, options).unwrap()];
    let tokens = begun(&mut decoder, std::slice::from_ref(&want), &mut all);
    let mut pipeline = decoder.pipeline(feeds(&mut all, &tokens)).unwrap();
    let mut got = Vec::new();
    while let Some(tokens) = pipeline.next_tokens().unwrap() {
        got.extend_from_slice(tokens);
    }
    assert_eq!(got, want.tokens[4..10]);
    assert!(pipeline.next_tokens().unwrap().is_none());
    drop(pipeline);
    assert_eq!(all[0].tokens(), &want.tokens[..9]);
    assert!(decoder.pipeline(feeds(&mut all, &[1])).is_err(), "there is no room");
    assert!(decoder.pipeline(Vec::new()).is_err());
}

/// One graph launch is always ahead of what the host has read.
#[test]
fn a_step_is_launched_before_the_one_before_it_is_read() {
    if !device().is_software() {
        return eprintln!("skipped: calls are counted by the software driver");
    }
    let model = load(&Synthetic::default().file());
    let mut decoder = decoder(&model, Mode::Graph);
    let mut all = [empty(&model, 0, KvType::F16)];
    let token = decoder.prefill(&mut all[0], &[1, 2, 3]).unwrap();
    decoder.step(&mut feeds(&mut all, &[token])).unwrap();
    software::reset_call_counts();
    let launches = || software::call_counts().get("cuGraphLaunch");
    let mut pipeline = decoder.pipeline(feeds(&mut all, &[token])).unwrap();
    assert_eq!(launches(), 1);
    for step in 0..5 {
        pipeline.next_tokens().unwrap();
        assert_eq!(launches(), step + 2);
    }
    drop(pipeline);
    assert_eq!((launches(), all[0].len()), (6, 9));
}

/// Whichever driver call fails, the sequences are as they were before the step that failed.
#[test]
fn whatever_call_fails_nothing_is_lost() {
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let model = load(&Synthetic { layers: 1, ..Default::default() }.file());
    // Over the end of a page, which has 16.
    let (prompt, steps) = (12, 6);
    let want: Vec<Alone> = (1..3).map(|s| Alone::new(&model, s, (prompt, 20), KvType::F16)).collect();
    let pool = Pool::new(&model, PoolOptions { positions: 64, ..Default::default() }).unwrap();
    let (mut failures, mut done) = (0, false);
    while !done {
        let mut decoder = decoder(&model, Mode::Eager);
        let in_pool = Sequence::in_pool(&pool, SequenceOptions { sampling: sampling(1), ..Default::default() });
        let mut all = [in_pool.unwrap(), empty(&model, 2, KvType::F16)];
        let mut tokens = begun(&mut decoder, &want, &mut all);
        let guard = software::inject_failure(None, failures, 719);
        let mut given = 0;
        let mut run = || {
            let mut pipeline = decoder.pipeline(feeds(&mut all, &tokens))?;
            for _ in 0..steps {
                tokens = pipeline.next_tokens()?.unwrap().to_vec();
                given += 1;
            }
            Ok::<(), warpsmith_host::decode::DecodeError>(())
        };
        let result = run();
        (done, failures) = (!guard.fired(), failures + 1);
        drop(guard);
        // The end of a pipeline waits, which may fail when all tokens were given.
        assert!(result.is_err() || done || given == steps, "call {failures}");
        for (sequence, want) in all.iter().zip(&want) {
            assert_eq!(sequence.tokens(), &want.tokens[..prompt + given], "call {failures}");
        }
        let next = decoder.step(&mut feeds(&mut all, &tokens)).unwrap().to_vec();
        for (s, want) in want.iter().enumerate() {
            assert_eq!(next[s], want.tokens[prompt + given + 1], "call {failures}");
            assert_eq!(bits(&decoder.logits(s).unwrap()), want.logits[prompt + given], "call {failures}");
        }
    }
    assert!(failures > 40, "{failures} calls");
}
