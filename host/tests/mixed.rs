//! Steps of any mix: parts of prompts, decoding sequences and drafts in one step. Each sequence gets what it gets alone, whatever the
//! schedule, and a step that fails loses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;

use alone::*;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Draft, Feed, KvType, ListedLaunch, Mode, Model, Part, Pool, PoolOptions,
    Predict, Sequence, SequenceOptions,
};

/// Random mixes over sequences, some of which are rolled back or begin anew now and then.
fn random_mixes(model: &Model, kv: KvType, sequences: usize, steps: usize, seed: u64) {
    let mut rng = Rng(seed);
    let mut below = |n: usize| rng.below(n as u64) as usize;
    let want: Vec<Alone> = (0..sequences).map(|s| Alone::new(model, s, (1 + below(12), 20), kv)).collect();
    let options = DecoderOptions { batch: 4, drafts: 9, chunk: 24, ..Default::default() };
    let mut decoder = Decoder::new(model, options).unwrap();
    let mut all: Vec<Sequence> = (0..sequences).map(|s| empty(model, s, kv)).collect();
    for step in 0..steps {
        decoder.set_mode(if below(4) == 0 { Mode::Eager } else { Mode::Graph });
        let members = shuffled(&mut all, &mut below);
        let (mut tokens, mut logits) = (decoder.most_tokens(), decoder.most_logits());
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for (s, sequence) in members.into_iter().take(1 + below(5)) {
            let (first, alone) = (sequence.len(), &want[s]);
            let count = (1 + below(9)).min(alone.length() - first).min(tokens);
            let predict = [Predict::Nothing, Predict::Next, Predict::Each][below(3)];
            let predicted = match predict {
                Predict::Nothing => 0,
                Predict::Next => 1,
                Predict::Each => count,
            };
            if count == 0 || predicted > logits {
                continue;
            }
            (tokens, logits) = (tokens - count, logits - predicted);
            places.extend((first + count - predicted..first + count).map(|p| (s, p)));
            parts.push(Part { sequence, tokens: &alone.tokens[first..first + count], predict });
        }
        if parts.is_empty() {
            continue;
        }
        let next = decoder.step_mixed(&mut parts).unwrap().to_vec();
        assert_eq!(next.len(), places.len());
        for (place, (&(s, p), next)) in places.iter().zip(next).enumerate() {
            let got = bits(&decoder.logits(place).unwrap());
            assert_eq!(got, want[s].logits[p], "{kv} step {step}: sequence {s} at {p}, place {place}");
            assert!(want[s].predicted(p).is_none_or(|t| t == next), "{kv} step {step}: sequence {s} at {p}: {next}");
        }
        assert!(decoder.logits(places.len()).is_err());
        for s in 0..sequences {
            let length = all[s].len();
            if length == want[s].length() || below(12) == 0 {
                all[s].rollback(below(length + 1)).unwrap();
            } else if below(30) == 0 {
                all[s].reset();
            }
        }
    }
    let graphs = decoder.graphs();
    // In few steps no class comes for a second time.
    assert!(steps < 20 || graphs.iter().any(|g| g.mixed && g.replays > 0), "{graphs:?}");
    assert!(graphs.iter().all(|g| g.nodes == g.eager_launches), "{graphs:?}");
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_mix() {
    let mixed = vec![Format::Q8_0, Format::Q4_K, Format::F16, Format::Q1_0, Format::Q6_K];
    let wide = Synthetic { hidden: 256, feed_forward: 256, formats: mixed, layers: 1, ..Default::default() };
    for (kv, seed) in [(KvType::F16, 1), (KvType::F32, 2), (KvType::Int8, 3)] {
        let (hidden, feed_forward) = (64, 64);
        random_mixes(&load(&Synthetic { hidden, feed_forward, ..Default::default() }.file()), kv, 6, 30, seed);
        random_mixes(&load(&Synthetic { seed, ..wide.clone() }.file()), kv, 4, 10, seed);
    }
    let window =
        Synthetic { window: 5, architecture: "llama", heads: 6, kv_heads: 2, head_dim: 32, ..Default::default() };
    random_mixes(&load(&window.file()), KvType::Int8, 5, 20, 5);
    let (hidden, feed_forward) = (64, 64);
    let gemma = Synthetic { architecture: "gemma3", layers: 7, hidden, feed_forward, window: 5, ..Default::default() };
    random_mixes(&load(&gemma.file()), KvType::F16, 4, 10, 9);
    let gemma = Synthetic { architecture: "gemma2", layers: 3, ..gemma };
    random_mixes(&load(&gemma.file()), KvType::Int8, 4, 10, 10);
    let unrotated =
        Synthetic { architecture: "smollm3", layers: 5, hidden: 64, feed_forward: 64, ..Default::default() };
    random_mixes(&load(&unrotated.file()), KvType::F16, 4, 10, 8);
}

#[test]
fn a_thousand_mixes_of_twenty_sequences() {
    let heads = Synthetic { heads: 2, kv_heads: 1, head_dim: 32, ..Default::default() };
    let file = Synthetic { layers: 1, hidden: 64, feed_forward: 64, ..heads }.file();
    random_mixes(&load(&file), KvType::F16, 20, 1000, 6);
}

/// Drafts of every quality: all right, none right, right up to somewhere, empty, and longer than the cache has room for.
#[test]
fn drafts_change_how_many_steps_there_are_and_nothing_else() {
    let model = load(&Synthetic::default().file());
    for kv in KvType::ALL {
        let want: Vec<Alone> = (0..4).map(|s| Alone::new(&model, s, (3 + s, 40), kv)).collect();
        let options = DecoderOptions { batch: 4, drafts: 16, ..Default::default() };
        let mut decoder = Decoder::new(&model, options).unwrap();
        let mut all: Vec<Sequence> = (0..4)
            .map(|s| {
                let capacity = Some(want[s].length());
                Sequence::new(&model, SequenceOptions { kv, capacity, sampling: sampling(s) }).unwrap()
            })
            .collect();
        let mut got: Vec<Vec<u32>> = Vec::new();
        for (s, sequence) in all.iter_mut().enumerate() {
            let prompt = &want[s].tokens[..want[s].prompt];
            got.push([prompt, &[decoder.prefill(sequence, prompt).unwrap()]].concat());
        }
        let (mut rng, mut steps, mut most) = (Rng(9), 0, 0);
        while all.iter().zip(&want).any(|(s, w)| s.len() < w.length()) {
            let mut members = Vec::new();
            let mut guesses = Vec::new();
            for (s, sequence) in all.iter_mut().enumerate().filter(|(s, q)| q.len() < want[*s].length()) {
                let first = sequence.len() + 1;
                let count = rng.below(5) as usize;
                let right = rng.below(count as u64 + 2) as usize;
                // Past the end any guess does; the sequence has no room for it.
                let guess = |i: usize| want[s].tokens.get(first + i).copied().unwrap_or(0);
                let draft = (0..count).map(|i| if i < right { guess(i) } else { (guess(i) + 1) % 96 });
                guesses.push(draft.collect::<Vec<u32>>());
                members.push((s, sequence));
            }
            let mut drafts: Vec<Draft<'_>> = members
                .iter_mut()
                .zip(&guesses)
                .map(|((s, sequence), draft)| Draft { token: *got[*s].last().unwrap(), sequence, draft })
                .collect();
            let tokens = decoder.step_drafts(&mut drafts).unwrap();
            steps += 1;
            for ((s, _), tokens) in members.iter().zip(tokens) {
                most = most.max(tokens.len());
                got[*s].extend(tokens);
            }
            for (s, sequence) in all.iter().enumerate() {
                assert_eq!(sequence.tokens(), &got[s][..got[s].len() - 1], "{kv} {s}: all but the last are fed");
            }
        }
        for (s, want) in want.iter().enumerate() {
            assert_eq!(got[s], want.tokens, "{kv}: sequence {s}");
        }
        assert!(most == 5 && steps < 34, "{kv}: drafts are accepted: {most} tokens at most, {steps} steps");
        // A plain step goes on from what drafts left.
        let mut sequence = all.swap_remove(2);
        sequence.rollback(20).unwrap();
        let next = decoder.step(&mut [Feed { sequence: &mut sequence, token: want[2].tokens[20] }]).unwrap();
        assert_eq!(next, [want[2].tokens[21]], "{kv}");
    }
}

/// Whichever driver call fails, every sequence is as it was, and the same step succeeds afterwards.
#[test]
fn whatever_call_of_a_mixed_step_fails_nothing_is_lost() {
    const LAUNCH_FAILED: i32 = 719;
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let model = load(&Synthetic { layers: 1, ..Default::default() }.file());
    let want: Vec<Alone> = (0..3).map(|s| Alone::new(&model, s + 1, (6, 12), KvType::F16)).collect();
    for mode in [Mode::Eager, Mode::Graph] {
        let mut failures = 0;
        loop {
            let options = DecoderOptions { mode, batch: 3, drafts: 4, chunk: 16, ..Default::default() };
            let mut decoder = Decoder::new(&model, options).unwrap();
            let mut all: Vec<Sequence> = (0..3).map(|s| empty(&model, s + 1, KvType::F16)).collect();
            decoder.prefill(&mut all[0], &want[0].tokens[..6]).unwrap();
            decoder.prefill(&mut all[1], &want[1].tokens[..5]).unwrap();
            let mut step = |all: &mut [Sequence], failing: Option<u64>| {
                let [a, b, c] = all else { panic!() };
                let mut parts = [
                    Part { sequence: a, tokens: &want[0].tokens[6..10], predict: Predict::Each },
                    Part { sequence: b, tokens: &want[1].tokens[5..6], predict: Predict::Next },
                    Part { sequence: c, tokens: &want[2].tokens[..4], predict: Predict::Nothing },
                ];
                let guard = failing.map(|nth| software::inject_failure(None, nth, LAUNCH_FAILED));
                let result = decoder.step_mixed(&mut parts).map(<[u32]>::to_vec);
                let fired = guard.is_some_and(|guard| guard.fired());
                let logits: Vec<_> = (0..5).filter_map(|i| decoder.logits(i).ok().map(|l| bits(&l))).collect();
                (result, logits, fired)
            };
            let before: Vec<_> = all.iter().map(|s| s.snapshot().unwrap()).collect();
            let (result, _, fired) = step(&mut all, Some(failures));
            if fired {
                failures += 1;
                assert!(result.is_err(), "{mode:?}: call {failures} failed, and the step did not");
                for (sequence, before) in all.iter().zip(&before) {
                    assert_eq!(&sequence.snapshot().unwrap(), before, "{mode:?}: after call {failures}");
                }
                // In graph mode the second time is a capture, and the third a replay, which is looked at now and then.
                for _ in 0..if failures % 4 == 1 { 2 } else { 1 } {
                    let (next, logits, _) = step(&mut all, None);
                    assert_eq!(next.unwrap(), [&want[0].tokens[7..11], &want[1].tokens[6..7]].concat(), "{mode:?}");
                    let known = want[0].logits[6..10].iter().chain([&want[1].logits[5]]);
                    assert!(logits.iter().eq(known), "{mode:?}: after call {failures}");
                    let lengths = [6, 5, 0];
                    all.iter_mut().zip(lengths).for_each(|(s, length)| s.rollback(length).unwrap());
                }
            } else {
                assert!(result.is_ok());
                break;
            }
        }
        assert!(failures > 8, "{mode:?}: {failures} calls");
    }
}

#[test]
fn what_a_mixed_step_cannot_do_is_told_before_anything_is_done() {
    let model = load(&Synthetic::default().file());
    let options = DecoderOptions { batch: 2, drafts: 1, chunk: 6, ..Default::default() };
    let mut decoder = Decoder::new(&model, options).unwrap();
    assert_eq!((decoder.most_tokens(), decoder.most_logits(), decoder.chunk()), (6, 3, 6));
    let mut a = empty(&model, 0, KvType::F16);
    let mut b = empty(&model, 0, KvType::F32);
    let mut run = |tokens: &[u32], predict, other: Option<&mut Sequence>| {
        let mut parts = vec![Part { sequence: &mut a, tokens, predict }];
        parts.extend(other.map(|sequence| Part { sequence, tokens: &[1], predict: Predict::Next }));
        let result = decoder.step_mixed(&mut parts).map(|_| ()).map_err(|e| e.to_string());
        assert!(result.is_ok() || decoder.logits(0).is_err());
        result.unwrap_err()
    };
    assert_eq!(run(&[1; 7], Predict::Next, None), "tokens in a step: 7; 1 to 6 are possible");
    assert_eq!(run(&[1; 4], Predict::Each, None), "predictions in a step: 4; 1 to 3 are possible");
    assert!(run(&[], Predict::Next, None).contains("the prompt is empty"));
    assert!(run(&[1, 96], Predict::Next, None).contains("token 96 (number 1 of the input)"));
    assert!(run(&[1], Predict::Next, Some(&mut b)).contains("one cache type"));
    assert!(decoder.step_mixed(&mut []).is_err());
    assert!(a.is_empty() && b.is_empty());
    let too_many = DecoderOptions { batch: 1000, drafts: 100, ..Default::default() };
    assert!(matches!(
        Decoder::new(&model, too_many),
        Err(DecodeError::Batch { what: "batch and drafts", given: 1100, .. })
    ));
}

/// What a step would launch is what it launches, and a sequence that was listed for is as it was: of one cache, of pages, and with states.
#[test]
fn a_listed_step_is_the_one_that_runs_and_changes_nothing() {
    let (hidden, feed_forward, layers) = (64, 64, 4);
    let nets = Synthetic { architecture: "qwen35", layers, interval: 4, hidden, feed_forward, ..Default::default() };
    for file in [Synthetic { hidden, feed_forward, ..Default::default() }.file(), nets.file()] {
        let model = load(&file);
        let options = DecoderOptions { batch: 3, chunk: 40, mode: Mode::Eager, ..Default::default() };
        let mut decoder = Decoder::new(&model, options).unwrap();
        let want: Vec<Alone> = (0..2).map(|s| Alone::new(&model, s, (36, 38), KvType::F16)).collect();
        let pool = Pool::new(&model, PoolOptions { positions: 256, ..Default::default() }).unwrap();
        let options = SequenceOptions { sampling: sampling(1), ..Default::default() };
        let (mut own, mut paged) = (empty(&model, 0, KvType::F16), Sequence::in_pool(&pool, options).unwrap());
        let free = pool.stats();
        let list = |decoder: &mut Decoder, own: &mut Sequence, paged: &mut Sequence, n: usize, behind| {
            let mut parts =
                [own, paged].map(|sequence| Part { sequence, tokens: &[1; 36][..n], predict: Predict::Next });
            decoder.list_mixed(&mut parts[..if n == 36 { 1 } else { 2 }], behind)
        };
        let names = |listed: &[ListedLaunch]| listed.iter().map(|l| l.kernel.name).collect::<Vec<_>>();
        let prompt = names(&list(&mut decoder, &mut own, &mut paged, 36, 20).unwrap());
        let steps = names(&list(&mut decoder, &mut own, &mut paged, 1, 37).unwrap());
        assert!(prompt.len() >= steps.len() && steps.len() > 4, "{prompt:?} {steps:?}");
        let most = own.capacity().max(paged.capacity());
        assert!(matches!(list(&mut decoder, &mut own, &mut paged, 1, most), Err(DecodeError::ContextFull { .. })));
        assert!(matches!(list(&mut decoder, &mut own, &mut paged, 2, most - 1), Err(DecodeError::ContextFull { .. })));
        assert_eq!((own.len(), paged.len(), pool.stats()), (0, 0, free));

        let feed = |decoder: &mut Decoder, own: &mut Sequence, paged: &mut Sequence, range: std::ops::Range<usize>| {
            for (s, sequence) in [own, paged].into_iter().enumerate() {
                let part = Part { sequence, tokens: &want[s].tokens[range.clone()], predict: Predict::Next };
                decoder.step_mixed(&mut [part]).unwrap();
                assert_eq!(bits(&decoder.logits(0).unwrap()), want[s].logits[range.end - 1], "{range:?} of {s}");
            }
        };
        feed(&mut decoder, &mut own, &mut paged, 0..36);
        assert_eq!(names(&list(&mut decoder, &mut own, &mut paged, 1, 37).unwrap()), steps);
        assert!(matches!(
            list(&mut decoder, &mut own, &mut paged, 1, 35),
            Err(DecodeError::Rollback { to: 35, length: 36 })
        ));
        feed(&mut decoder, &mut own, &mut paged, 36..37);
        feed(&mut decoder, &mut own, &mut paged, 37..38);
    }
}

/// A prompt's size that comes again is a graph, and one of another size in its class replays it.
#[test]
fn prompts_replay_graphs_of_their_class() {
    let model = load(&Synthetic::default().file());
    let mut decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
    let want = Alone::new(&model, 0, (30, 30), KvType::F16);
    let mut sequence = empty(&model, 0, KvType::F16);
    for (length, stats) in [(20, (1, 0)), (19, (1, 1)), (24, (1, 2)), (23, (1, 3)), (30, (2, 3)), (25, (2, 4))] {
        sequence.reset();
        decoder.prefill(&mut sequence, &want.tokens[..length]).unwrap();
        assert_eq!(bits(&decoder.logits(0).unwrap()), want.logits[length - 1], "{length}");
        assert_eq!((decoder.stats().eager_steps, decoder.stats().replays), stats, "{length}");
    }
    assert_eq!(decoder.stats().captures, 2);
}

/// Where memory is short a chunk has fewer tokens, and caches what is left.
#[test]
fn a_chunk_takes_an_eighth_of_the_free_memory_at_most() {
    in_its_own_process("inner_chunks_fit", "4M");
}

#[test]
#[ignore = "run by `a_chunk_takes_an_eighth_of_the_free_memory_at_most` in a process of its own"]
fn inner_chunks_fit() {
    let model = load(&Synthetic::default().file());
    let free = || model.device().memory_info().unwrap().free;
    let before = free();
    let least = Decoder::device_bytes(&model, &DecoderOptions { chunk: 1, ..Default::default() }).unwrap();
    let decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
    assert!((1..512).contains(&decoder.chunk()), "{}", decoder.chunk());
    assert!(before - free() <= least + before / 8, "{} of {before}", before - free());
    let wider = DecoderOptions { chunk: 2 * decoder.chunk(), ..*decoder.options() };
    assert!(Decoder::device_bytes(&model, &wider).unwrap() > least + before / 8, "not fewer than fit");
    assert_eq!(Decoder::device_bytes(&model, decoder.options()), Some(before - free()));
}

/// Probabilities by the logits of the same step, in f64.
#[test]
fn probabilities_are_those_of_the_logits() {
    let model = load(&Synthetic::default().file());
    let options = DecoderOptions { batch: 2, drafts: 4, ..Default::default() };
    let mut decoder = Decoder::new(&model, options).unwrap();
    let (mut a, mut b) = (empty(&model, 0, KvType::F16), empty(&model, 1, KvType::F16));
    let mut parts = [
        Part { sequence: &mut a, tokens: &[1, 2, 3], predict: Predict::Each },
        Part { sequence: &mut b, tokens: &[4, 5], predict: Predict::Next },
    ];
    assert!(matches!(decoder.logprobs(0, 5, &[]), Err(DecodeError::NoLogits)));
    decoder.step_mixed(&mut parts).unwrap();
    for place in 0..4 {
        let logits = decoder.logits(place).unwrap();
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let total: f64 = logits.iter().map(|l| f64::from(l - largest).exp()).sum();
        let want = |token: u32| f64::from(logits[token as usize] - largest) - total.ln();
        let got = decoder.logprobs(place, 32, &[7, 95]).unwrap();
        assert_eq!(got.top.len(), 32);
        assert!(got.top.is_sorted_by(|a, b| a.logprob >= b.logprob), "{got:?}");
        assert!(got.top.iter().all(|t| logits.iter().filter(|l| **l > logits[t.token as usize]).count() < 32));
        assert_eq!(got.asked.iter().map(|l| l.token).collect::<Vec<_>>(), [7, 95]);
        for l in got.top.iter().chain(&got.asked) {
            assert!((f64::from(l.logprob) - want(l.token)).abs() < 1e-5, "{place}: {l:?} for {}", want(l.token));
        }
    }
    assert!(matches!(decoder.logprobs(4, 5, &[]), Err(DecodeError::NoLogits)));
    assert!(matches!(decoder.logprobs(0, 33, &[]), Err(DecodeError::Batch { given: 33, most: 32, .. })));
    assert!(matches!(decoder.logprobs(0, 0, &[]), Err(DecodeError::Batch { .. })));
    assert!(matches!(decoder.logprobs(0, 1, &[96]), Err(DecodeError::Token { token: 96, .. })));
}
