//! Prompts that attend in tiles: what their tokens get does not depend on how a prompt is cut, on what is beside it in a step, nor on where its
//! cache lies, and without `fast_prefill` it is what single steps give; what decodes beside them gets what it gets alone.
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
use std::time::Duration;
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::collectives::{PeerOptions, Shots};
use warpsmith_host::decode::{
    Activations, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Part, Pool, PoolOptions, Predict, Sequence,
    SequenceOptions,
};

const OPTIONS: DecoderOptions = DecoderOptions {
    batch: 4,
    chunk: 64,
    drafts: 6,
    positions: None,
    mode: Mode::Graph,
    capture_after: 0,
    fast_prefill: true,
    prompt_logits: false,
    activations: Activations::Int8,
    tuned: false,
    programmatic: true,
    specialise: None,
    persistent: false,
    peers: PeerOptions { capacity: 1 << 20, shots: Shots::Two, timeout: Duration::from_secs(60) },
};

/// Prompts with the bits of single steps.
const EXACT: DecoderOptions = DecoderOptions { fast_prefill: false, ..OPTIONS };

/// What a sequence gets whose prompt is fed as a whole, or token by token where that is the same, and which then decodes: its tokens, and
/// the logits from the prompt's last on.
struct Fed {
    prompt: usize,
    tokens: Vec<u32>,
    logits: Vec<Vec<u32>>,
}

impl Fed {
    fn new(model: &Model, s: usize, prompt: usize, decoded: usize, kv: KvType) -> Fed {
        Fed::by(OPTIONS, model, s, (prompt, decoded), kv)
    }

    fn by(options: DecoderOptions, model: &Model, s: usize, (prompt, decoded): (usize, usize), kv: KvType) -> Fed {
        let chunk = if options.fast_prefill { 512 } else { 1 };
        let options = DecoderOptions { mode: Mode::Eager, chunk, ..options };
        let (mut decoder, mut sequence) = (Decoder::new(model, options).unwrap(), empty(model, s, kv));
        let mut tokens: Vec<u32> = (0..prompt).map(|p| token(1000 * s + p, model.config().vocab)).collect();
        tokens.push(decoder.prefill(&mut sequence, &tokens).unwrap());
        let mut logits = vec![bits(&decoder.logits(0).unwrap())];
        for _ in 0..decoded {
            let token = *tokens.last().unwrap();
            tokens.push(decoder.step(&mut [Feed { sequence: &mut sequence, token }]).unwrap()[0]);
            logits.push(bits(&decoder.logits(0).unwrap()));
        }
        Fed { prompt, tokens, logits }
    }

    fn length(&self) -> usize {
        self.prompt - 1 + self.logits.len()
    }

    /// The logits at position `p`, from the prompt's last one on.
    fn at(&self, p: usize) -> &[u32] {
        &self.logits[p + 1 - self.prompt]
    }

    /// Tokens that a part may have from position `first` on: of the prompt so many that what is left is not a single one, which would
    /// be a step.
    fn part(&self, first: usize, count: usize) -> (usize, Predict) {
        let left = self.prompt.saturating_sub(first);
        match left {
            0 => (count.min(3).min(self.length() - first), Predict::Each),
            _ if count >= left => (left, Predict::Next),
            _ if left - count == 1 => (count - 1, Predict::Nothing),
            _ => (count, Predict::Nothing),
        }
    }
}

fn random_mixes(options: DecoderOptions, model: &Model, kv: KvType, lengths: &[usize], steps: usize, seed: u64) {
    let mut rng = Rng(seed);
    let mut below = |n: usize| rng.below(n as u64) as usize;
    let want: Vec<Fed> = lengths.iter().enumerate().map(|(s, &n)| Fed::by(options, model, s, (n, 8), kv)).collect();
    let pool = Pool::new(model, PoolOptions { positions: 1600, page: 16, kv }).unwrap();
    let mut decoder = Decoder::new(model, options).unwrap();
    // Every other one in pages.
    let mut all: Vec<Sequence> = (0..want.len())
        .map(|s| match s % 2 {
            0 => empty(model, s, kv),
            _ => Sequence::in_pool(&pool, SequenceOptions { kv, capacity: None, sampling: sampling(s) }).unwrap(),
        })
        .collect();
    let (mut prompts_done, mut beside_steps) = (0, 0);
    for step in 0..steps {
        decoder.set_mode(if below(4) == 0 { Mode::Eager } else { Mode::Graph });
        let members = shuffled(&mut all, &mut below);
        let (mut tokens, mut logits) = (decoder.most_tokens(), decoder.most_logits());
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for (s, sequence) in members.into_iter().take(1 + below(4)) {
            let first = sequence.len();
            let (count, predict) = want[s].part(first, (1 + below(50)).min(tokens));
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
            parts.push(Part { sequence, tokens: &want[s].tokens[first..first + count], predict });
        }
        if parts.is_empty() {
            continue;
        }
        let of = |each| parts.iter().any(|p| (p.predict == Predict::Each) == each);
        beside_steps += usize::from(of(true) && of(false));
        let next = decoder.step_mixed(&mut parts).unwrap().to_vec();
        for (place, (&(s, p), next)) in places.iter().zip(next).enumerate() {
            let got = bits(&decoder.logits(place).unwrap());
            assert_eq!(got, want[s].at(p), "{kv} step {step}: sequence {s} at {p} of {}", want[s].prompt);
            assert_eq!(next, want[s].tokens[p + 1], "{kv} step {step}: sequence {s} at {p}");
            prompts_done += usize::from(p + 1 == want[s].prompt);
        }
        for (sequence, want) in all.iter_mut().zip(&want) {
            // To nowhere from which a prompt has one token left.
            let to = below(want.prompt + 1);
            if sequence.len() == want.length() || (below(12) == 0 && to + 1 != want.prompt && to <= sequence.len()) {
                match model.config().window {
                    0 => sequence.rollback(to.min(want.prompt - 2)).unwrap(),
                    // Pages that its window has left are gone.
                    _ => sequence.reset(),
                }
            }
        }
    }
    assert!(prompts_done > 5 && beside_steps > 3, "{kv}: {prompts_done} prompts, {beside_steps} beside steps");
    let graphs = decoder.graphs();
    assert!(graphs.iter().any(|g| g.mixed && g.replays > 0), "{graphs:?}");
    assert!(graphs.iter().all(|g| g.nodes == g.eager_launches), "{graphs:?}");
}

fn small(window: usize) -> Synthetic {
    let formats = vec![Format::Q8_0, Format::F16, Format::Q8_0];
    Synthetic { layers: 2, hidden: 64, feed_forward: 64, context: 256, window, formats, ..Default::default() }
}

#[test]
fn a_prompt_gets_the_same_bits_however_it_is_cut_and_wherever_it_lies() {
    for (kv, window, seed) in [(KvType::F16, 0, 1), (KvType::F32, 0, 2), (KvType::F16, 40, 3), (KvType::F32, 21, 4)] {
        random_mixes(OPTIONS, &load(&small(window).file()), kv, &[2, 20, 33, 100, 64, 140], 45, seed);
    }
    let wide = Synthetic { architecture: "llama", heads: 6, kv_heads: 2, head_dim: 192, context: 200, ..small(0) };
    random_mixes(OPTIONS, &load(&wide.file()), KvType::F16, &[90, 130, 20, 7], 40, 5);
}

#[test]
fn a_long_prompt_gets_the_bits_of_single_steps() {
    for (kv, window, seed) in [(KvType::F16, 0, 6), (KvType::Int8, 40, 7)] {
        random_mixes(EXACT, &load(&small(window).file()), kv, &[2, 40, 33, 100, 64, 140], 45, seed);
    }
}

/// Over int8 caches the cuts matter; pages do not.
#[test]
fn pages_change_no_bit_of_prompts_over_int8_caches() {
    for window in [0, 37] {
        let (model, kv) = (load(&small(window).file()), KvType::Int8);
        let pool = Pool::new(&model, PoolOptions { positions: 512, page: 32, kv }).unwrap();
        let mut decoder = Decoder::new(&model, OPTIONS).unwrap();
        let tokens: Vec<u32> = (0..170).map(|p| token(p, model.config().vocab)).collect();
        let mut own = empty(&model, 0, kv);
        let mut paged = Sequence::in_pool(&pool, SequenceOptions { kv, ..Default::default() }).unwrap();
        for range in [0..50, 50..51, 51..100, 100..170] {
            let [a, b] = [&mut own, &mut paged].map(|sequence| {
                decoder.prefill(sequence, &tokens[range.clone()]).unwrap();
                bits(&decoder.logits(0).unwrap())
            });
            assert_eq!(a, b, "{range:?}, window {window}");
        }
        // Nobody else's prompt is cut alike.
        let mut next = Sequence::in_pool(&pool, SequenceOptions { kv, ..Default::default() }).unwrap();
        assert_eq!(decoder.adopt_prefix(&mut next, &tokens).unwrap(), 0);
    }
}

/// A prompt goes on behind pages that another prompt has filled, and not behind those of single steps.
#[test]
fn prompts_that_begin_alike_are_computed_once() {
    let model = load(&small(0).file());
    for kv in [KvType::F16, KvType::F32] {
        let pool = Pool::new(&model, PoolOptions { positions: 512, page: 16, kv }).unwrap();
        let sequence = |s| {
            let sampling = sampling(s);
            Sequence::in_pool(&pool, SequenceOptions { kv, capacity: None, sampling }).unwrap()
        };
        let want = Fed::new(&model, 0, 60, 6, kv);
        let mut decoder = Decoder::new(&model, OPTIONS).unwrap();
        let mut first = sequence(0);
        let token = decoder.prefill(&mut first, &want.tokens[..60]).unwrap();
        for &token in &want.tokens[60..65] {
            decoder.step(&mut [Feed { sequence: &mut first, token }]).unwrap();
        }
        let mut second = sequence(0);
        // All full pages of the prompt; none that has a token of a step.
        assert_eq!(decoder.adopt_prefix(&mut second, &want.tokens[..65]).unwrap(), 48);
        assert_eq!(decoder.prefill(&mut second, &want.tokens[48..60]).unwrap(), token);
        assert_eq!(bits(&decoder.logits(0).unwrap()), want.at(59), "{kv}");
        // Steps have other bits, and so other pages.
        let mut steps = Decoder::new(&model, DecoderOptions { fast_prefill: false, ..OPTIONS }).unwrap();
        assert_eq!(steps.adopt_prefix(&mut sequence(0), &want.tokens[..60]).unwrap(), 0);
        let mut of_steps = sequence(0);
        steps.prefill(&mut of_steps, &want.tokens[1..40]).unwrap();
        assert_eq!(steps.adopt_prefix(&mut sequence(0), &want.tokens[1..40]).unwrap(), 32);
        assert_eq!(decoder.adopt_prefix(&mut sequence(0), &want.tokens[1..40]).unwrap(), 0);
    }
}

/// Whichever driver call fails, every sequence is as it was, and the same step succeeds afterwards.
#[test]
fn whatever_call_of_a_step_with_prompts_fails_nothing_is_lost() {
    const LAUNCH_FAILED: i32 = 719;
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let (model, kv) = (load(&Synthetic { layers: 1, ..small(0) }.file()), KvType::F16);
    let (a, b) = (Fed::new(&model, 1, 20, 4, kv), Fed::new(&model, 2, 18, 2, kv));
    let _checked = software::check(Checks::ALL);
    let begun = [(1, &a.tokens[..20]), (2, &b.tokens[..10])].map(|(s, tokens)| {
        let mut sequence = empty(&model, s, kv);
        Decoder::new(&model, OPTIONS).unwrap().prefill(&mut sequence, tokens).unwrap();
        sequence.snapshot().unwrap()
    });
    let mut failures = 0;
    loop {
        let pool = Pool::new(&model, PoolOptions { positions: 256, page: 16, kv }).unwrap();
        let mut decoder = Decoder::new(&model, OPTIONS).unwrap();
        let mut all = [empty(&model, 1, kv), empty(&model, 2, kv)];
        all[1] = Sequence::in_pool(&pool, SequenceOptions { kv, capacity: None, sampling: sampling(2) }).unwrap();
        all.iter_mut().zip(&begun).for_each(|(sequence, begun)| sequence.restore(begun).unwrap());
        let mut step = |all: &mut [Sequence; 2], failing: Option<u64>| {
            let [first, second] = all;
            let mut parts = [
                Part { sequence: second, tokens: &b.tokens[10..18], predict: Predict::Next },
                Part { sequence: first, tokens: &a.tokens[20..22], predict: Predict::Each },
            ];
            let guard = failing.map(|nth| software::inject_failure(None, nth, LAUNCH_FAILED));
            let result = decoder.step_mixed(&mut parts).map(<[u32]>::to_vec);
            let fired = guard.is_some_and(|guard| guard.fired());
            let logits: Vec<_> = (0..3).filter_map(|i| decoder.logits(i).ok().map(|l| bits(&l))).collect();
            (result, logits, fired)
        };
        let before = all.each_ref().map(|s| s.snapshot().unwrap());
        let (result, _, fired) = step(&mut all, Some(failures));
        if !fired {
            assert!(result.is_ok());
            break;
        }
        failures += 1;
        assert!(result.is_err(), "call {failures} failed, and the step did not");
        for (sequence, before) in all.iter().zip(&before) {
            assert_eq!(&sequence.snapshot().unwrap(), before, "after call {failures}");
        }
        // The second time is a capture, and the third a replay, which is looked at now and then.
        for _ in 0..if failures % 4 == 1 { 2 } else { 1 } {
            let (next, logits, _) = step(&mut all, None);
            assert_eq!(next.unwrap(), [b.tokens[18], a.tokens[21], a.tokens[22]], "after call {failures}");
            assert!(logits.iter().eq([b.at(17), a.at(20), a.at(21)]), "after call {failures}");
            all[0].rollback(20).unwrap();
            all[1].rollback(10).unwrap();
        }
    }
    assert!(failures > 8, "{failures} calls");
}

/// A graph's columns of no sequence are computed with like others, and so have to be there.
#[test]
fn what_pads_a_prompt_is_defined() {
    let _checked = software::check(Checks::ALL);
    let (model, kv) = (load(&small(0).file()), KvType::F16);
    for (options, lengths) in [(OPTIONS, [20, 19, 18]), (EXACT, [39, 38, 37])] {
        let mut decoder = Decoder::new(&model, options).unwrap();
        for length in lengths {
            let (mut sequence, want) = (empty(&model, 0, kv), Fed::by(options, &model, 0, (length, 0), kv));
            let next = decoder.prefill(&mut sequence, &want.tokens[..length]).unwrap();
            assert_eq!((next, bits(&decoder.logits(0).unwrap())), (want.tokens[length], want.at(length - 1).to_vec()));
        }
        assert_eq!(decoder.stats().replays, 2);
    }
}

/// Prompts and single tokens attend in one launch a layer, which also quantizes what the product behind it reads.
#[test]
fn a_mixed_step_attends_in_one_launch() {
    let alike = Synthetic { formats: vec![Format::Q8_0], ..small(0) };
    let (model, kv) = (load(&alike.file()), KvType::F16);
    let mut decoder = Decoder::new(&model, EXACT).unwrap();
    let mut sequences: Vec<Sequence> = (0..3).map(|s| empty(&model, s, kv)).collect();
    let mut parts: Vec<Part<'_>> = sequences
        .iter_mut()
        .zip([40, 1, 1])
        .map(|(sequence, count)| Part { sequence, tokens: &[1; 40][..count], predict: Predict::Next })
        .collect();
    let listed = decoder.list_mixed(&mut parts, 20).unwrap();
    let of = |name: &str| listed.iter().filter(|l| l.kernel.name.starts_with(name)).count();
    let layers = model.config().layers;
    assert_eq!((of("attn_prompt_f16"), of("attn_step"), of("qkv_store_f16")), (layers, 0, layers));
    // Of the columns that logits are made of alone, which begin elsewhere.
    let names: Vec<_> = listed.iter().map(|l| l.kernel.name).collect();
    assert_eq!(of("quantize"), 1, "{names:?}");
}

/// What is told of a prompt changes nothing of it, and it is told whole chunks and the end.
#[test]
fn a_prompt_says_how_far_it_is() {
    let model = load(&Synthetic { layers: 1, context: 192, ..Default::default() }.file());
    for (length, want) in [(150, vec![64, 128, 150]), (64, vec![64]), (1, vec![1])] {
        let tokens: Vec<u32> = (0..length).map(|p| token(p, model.config().vocab)).collect();
        let fed = |watched: bool| {
            let (mut decoder, mut sequence) = (Decoder::new(&model, OPTIONS).unwrap(), empty(&model, 0, KvType::F16));
            let mut told = Vec::new();
            let next = match watched {
                true => decoder.prefill_with_progress(&mut sequence, &tokens, |done| told.push(done)),
                false => decoder.prefill(&mut sequence, &tokens),
            };
            ((next.unwrap(), bits(&decoder.logits(0).unwrap())), told)
        };
        let ((got, told), (plain, _)) = (fed(true), fed(false));
        assert_eq!((got, told), (plain, want));
    }
}
