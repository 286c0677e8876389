//! Several sequences in one step: every one of them gets the bits that it gets alone, whatever else is in the step, and
//! nothing is lost where a step fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use gpu_kernels::gemv::MAX_COLUMNS;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    Activations, DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Sequence, SequenceOptions,
};
use warpsmith_host::gguf::Gguf;
use warpsmith_host::model::ModelFile;
use warpsmith_host::reference::Reference;

fn decoder(model: &Model, batch: usize, mode: Mode) -> Decoder {
    Decoder::new(model, DecoderOptions { batch, mode, ..Default::default() }).unwrap()
}

fn empty(model: &Model, kv: KvType) -> Sequence {
    Sequence::new(model, SequenceOptions { kv, ..Default::default() }).unwrap()
}

/// The token that sequence `s` is fed at `position`.
fn text(s: usize, position: usize, vocab: usize) -> u32 {
    token(1000 * s + position, vocab)
}

/// What sequence `s` gives alone, eagerly: logits of every position, and the cache in the end.
fn alone(model: &Model, s: usize, length: usize, kv: KvType) -> (Vec<Vec<u32>>, Vec<u8>, Vec<u8>) {
    let vocab = model.config().vocab;
    let (mut decoder, mut sequence) = (decoder(model, 1, Mode::Eager), empty(model, kv));
    let mut logits = Vec::new();
    for p in 0..length {
        decoder.step(&mut [Feed { sequence: &mut sequence, token: text(s, p, vocab) }]).unwrap();
        logits.push(bits(&decoder.logits(0).unwrap()));
    }
    let snapshot = sequence.snapshot().unwrap();
    (logits, snapshot.keys().to_vec(), snapshot.values().to_vec())
}

/// Steps of random members, in random order, eager and by graph.
fn random_steps(file: &ModelFile, kv: KvType, sequences: usize, steps: usize, seed: u64) {
    let model = load(file);
    let vocab = model.config().vocab;
    let want: Vec<_> = (0..sequences).map(|s| alone(&model, s, steps, kv)).collect();
    let mut decoder = decoder(&model, sequences, Mode::Graph);
    let mut all: Vec<Sequence> = (0..sequences).map(|_| empty(&model, kv)).collect();
    let mut rng = Rng(seed);
    let mut sizes = std::collections::BTreeSet::new();
    for step in 0..steps {
        decoder.set_mode(if rng.below(3) == 0 { Mode::Eager } else { Mode::Graph });
        let mut members: Vec<(usize, &mut Sequence)> = all.iter_mut().enumerate().collect();
        // Shuffled, and of random number.
        for i in (1..members.len()).rev() {
            members.swap(i, rng.below(i as u64 + 1) as usize);
        }
        members.truncate(1 + rng.below(sequences as u64) as usize);
        let places: Vec<(usize, usize)> = members.iter().map(|(s, q)| (*s, q.len())).collect();
        let mut feeds = Vec::new();
        for (s, sequence) in members {
            let token = text(s, sequence.len(), vocab);
            feeds.push(Feed { sequence, token });
        }
        if decoder.mode() == Mode::Graph {
            sizes.insert(feeds.len());
        }
        let next = decoder.step(&mut feeds).unwrap().to_vec();
        for (place, (s, position)) in places.into_iter().enumerate() {
            let got = bits(&decoder.logits(place).unwrap());
            assert_eq!(got, want[s].0[position], "{kv} step {step}: sequence {s} at {position}, place {place}");
            let best = got.iter().map(|b| f32::from_bits(*b)).enumerate().rev().max_by(|a, b| a.1.total_cmp(&b.1));
            assert_eq!(next[place] as usize, best.unwrap().0);
        }
        if step % 5 == 4 {
            let s = rng.below(sequences as u64) as usize;
            let length = all[s].len();
            all[s].rollback(rng.below(length as u64 + 1) as usize).unwrap();
        }
    }
    // A graph for every size, and no more.
    assert_eq!(decoder.graphs().iter().map(|g| g.batch).collect::<Vec<_>>(), Vec::from_iter(sizes));
    for g in decoder.graphs() {
        assert_eq!(g.nodes, g.eager_launches);
    }
}

#[test]
fn a_sequence_gets_the_same_bits_in_every_batch() {
    let mixed = vec![Format::Q8_0, Format::Q4_0, Format::F16, Format::Q1_0, Format::F32];
    for (kv, seed) in [(KvType::F16, 1), (KvType::F32, 2), (KvType::Int8, 3)] {
        random_steps(&Synthetic::default().file(), kv, 5, 24, seed);
        random_steps(&Synthetic { formats: mixed.clone(), seed, ..Default::default() }.file(), kv, 3, 12, seed);
    }
    let llama = Synthetic { architecture: "llama", heads: 6, kv_heads: 2, head_dim: 32, ..Default::default() };
    random_steps(&llama.file(), KvType::F16, 9, 20, 4);
    let window = Synthetic { window: 5, ..llama };
    random_steps(&window.file(), KvType::Int8, 3, 20, 5);
}

#[test]
fn sixty_four_sequences_in_a_step() {
    let file = Synthetic { layers: 1, hidden: 64, feed_forward: 64, ..Default::default() }.file();
    let model = load(&file);
    let mut decoder = decoder(&model, 64, Mode::Graph);
    let mut all: Vec<Sequence> = (0..64)
        .map(|_| Sequence::new(&model, SequenceOptions { capacity: Some(3), ..Default::default() }).unwrap())
        .collect();
    for p in 0..3 {
        let mut feeds: Vec<_> =
            all.iter_mut().enumerate().map(|(s, sequence)| Feed { sequence, token: text(s, p, 96) }).collect();
        decoder.step(&mut feeds).unwrap();
    }
    for s in [0, 7, 8, 33, 63] {
        let want = alone(&model, s, 3, KvType::F16);
        assert_eq!(bits(&decoder.logits(s).unwrap()), want.0[2], "sequence {s}");
    }
}

#[test]
fn a_prompt_gives_the_same_bits_however_it_is_cut() {
    let file = Synthetic { context: 200, ..Default::default() }.file();
    let model = load(&file);
    let tokens: Vec<u32> = (0..150).map(|p| text(0, p, 96)).collect();
    for kv in KvType::ALL {
        let want = alone(&model, 0, 150, kv);
        for chunk in [1, 2, 7, 64, 150] {
            let options = DecoderOptions { chunk, ..Default::default() };
            let mut decoder = Decoder::new(&model, options).unwrap();
            let mut s = empty(&model, kv);
            decoder.prefill(&mut s, &tokens[..40]).unwrap();
            assert_eq!(bits(&decoder.logits(0).unwrap()), want.0[39], "{kv} chunks of {chunk}");
            decoder.prefill(&mut s, &tokens[40..]).unwrap();
            assert_eq!(bits(&decoder.logits(0).unwrap()), want.0[149], "{kv} chunks of {chunk}");
            let snapshot = s.snapshot().unwrap();
            assert!(snapshot.keys() == want.1 && snapshot.values() == want.2, "{kv} chunks of {chunk}");
        }
    }
}

/// With weights of every format and all activations that it has, whichever entry points many columns take.
#[test]
fn a_prompt_gives_the_bits_of_its_steps_with_weights_of_every_format() {
    for format in Format::ALL {
        let formats = vec![format];
        let file = Synthetic { layers: 1, hidden: 256, feed_forward: 512, formats, ..Default::default() }.file();
        let model = load(&file);
        let tokens: Vec<u32> = (0..14).map(|p| text(0, p, 96)).collect();
        for activations in Activations::ALL.into_iter().filter(|a| a.take(format)) {
            let new =
                |chunk| Decoder::new(&model, DecoderOptions { chunk, activations, ..Default::default() }).unwrap();
            let (mut by_steps, mut at_once) = (new(1), new(14));
            let (mut a, mut b) = (empty(&model, KvType::F16), empty(&model, KvType::F16));
            by_steps.prefill(&mut a, &tokens).unwrap();
            at_once.prefill(&mut b, &tokens).unwrap();
            let [want, got] = [&by_steps, &at_once].map(|d| bits(&d.logits(0).unwrap()));
            assert_eq!(got, want, "{format} with {activations}");
            let (a, b) = (a.snapshot().unwrap(), b.snapshot().unwrap());
            assert!(a.keys() == b.keys() && a.values() == b.values(), "{format} with {activations}");
        }
    }
}

/// The kernel made for prompts, against the f64 reference, for every cache, with and without a window: prompts in chunks
/// that do not fill its blocks, a second prompt on top, and decoding on what it left.
#[test]
fn fast_prompts_lie_within_the_bounds_and_leave_the_same_cache() {
    for (m, kv) in [(0, KvType::F16), (0, KvType::F32), (0, KvType::Int8), (9, KvType::F16)]
        .into_iter()
        .flat_map(|(window, kv)| [(Synthetic { window, context: 128, ..Default::default() }, kv)])
        .chain([(
            Synthetic { architecture: "llama", heads: 6, head_dim: 80, seed: 7, context: 128, ..Default::default() },
            KvType::F16,
        )])
    {
        let file = m.file();
        let model = load(&file);
        // Of f32, for what attention rounds to be seen.
        let of_f32 = DecoderOptions { activations: Activations::F32, mode: Mode::Eager, ..Default::default() };
        let options = DecoderOptions { fast_prefill: true, chunk: 48, mode: Mode::Graph, ..of_f32 };
        let (mut fast, mut s) = (Decoder::new(&model, options).unwrap(), empty(&model, kv));
        let (mut exact, mut same) = (Decoder::new(&model, of_f32).unwrap(), empty(&model, kv));
        let tokens: Vec<u32> = (0..90).map(|p| text(0, p, m.vocab)).collect();
        let (mut fed, mut logits) = (0, vec![Vec::new(); 90]);
        for end in [1, 70, 83] {
            fast.prefill(&mut s, &tokens[fed..end]).unwrap();
            exact.prefill(&mut same, &tokens[fed..end]).unwrap();
            logits[end - 1] = fast.logits(0).unwrap();
            let differs = bits(&logits[end - 1]) != bits(&exact.logits(0).unwrap());
            assert!(end == 1 || differs, "{kv} {m:?}: prompts attend by the kernel of single steps");
            fed = end;
        }
        for p in fed..90 {
            fast.step(&mut [Feed { sequence: &mut s, token: tokens[p] }]).unwrap();
            exact.step(&mut [Feed { sequence: &mut same, token: tokens[p] }]).unwrap();
            logits[p] = fast.logits(0).unwrap();
        }
        // What a prompt did not give logits for is not compared.
        let mut reference = Reference::new(&file, kv.into());
        let mut worst_of_all = 0f64;
        for (&token, got) in tokens.iter().zip(&logits) {
            let want = reference.feed(token).unwrap().logits;
            let d = worst(got.iter().map(|&x| x.into()), want.iter().copied()) / deviation(&want);
            worst_of_all = worst_of_all.max(d);
        }
        // Queries and weights of attention rounded to f16 weigh as much as keys and values do: five roundoffs.
        let bound = match kv {
            KvType::F32 => 1e-4,
            KvType::F16 => 5.0 / 2048.0,
            KvType::Int8 => 1e-2,
        };
        eprintln!("{kv} window {} {}: {worst_of_all:.2e} of the standard deviation", m.window, m.architecture);
        assert!(worst_of_all > 0.0 && worst_of_all <= bound, "{kv} {m:?}: {worst_of_all:e}");
        // The first layer's keys and values do not depend on how a prompt attends.
        let (a, b) = (s.snapshot().unwrap(), same.snapshot().unwrap());
        let first = |bytes: &[u8]| bytes[..bytes.len() / m.layers].to_vec();
        assert!(first(a.keys()) == first(b.keys()) && !first(a.keys()).is_empty(), "{kv} {m:?}");
    }
}

/// A window drops what lies before it: a token that is out of reach of every layer changes nothing.
#[test]
fn a_window_forgets() {
    let m = Synthetic { window: 4, context: 64, ..Default::default() };
    let model = load(&m.file());
    let logits = |first: u32, length: usize| {
        let (mut d, mut s) = (decoder(&model, 1, Mode::Graph), empty(&model, KvType::F32));
        let tokens: Vec<u32> = (0..length).map(|p| if p == 0 { first } else { text(0, p, m.vocab) }).collect();
        d.prefill(&mut s, &tokens).unwrap();
        bits(&d.logits(0).unwrap())
    };
    // Two layers reach 2 * 3 positions back.
    assert_ne!(logits(1, 7), logits(2, 7));
    assert_eq!(logits(1, 8), logits(2, 8));
}

/// Models of equal shape in turn, and one sequence on two decoders.
#[test]
fn decoders_and_models_alternate() {
    let [a, b, _] = trio();
    let (a, b) = (load(&a), load(&b));
    let want = [alone(&a, 0, 6, KvType::F16), alone(&b, 0, 6, KvType::F16)];
    let mut decoders = [decoder(&a, 1, Mode::Graph), decoder(&b, 1, Mode::Graph), decoder(&a, 4, Mode::Graph)];
    let mut sequences = [empty(&a, KvType::F16), empty(&b, KvType::F16)];
    for p in 0..6 {
        for m in [0, 1] {
            let d = if m == 0 && p % 2 == 1 { 2 } else { m };
            let feed = Feed { sequence: &mut sequences[m], token: text(0, p, 96) };
            decoders[d].step(&mut [feed]).unwrap();
            assert_eq!(bits(&decoders[d].logits(0).unwrap()), want[m].0[p], "model {m} position {p}");
        }
    }
    let [first, _] = &mut sequences;
    let e = decoders[1].step(&mut [Feed { sequence: first, token: 1 }]).unwrap_err();
    assert!(matches!(e, DecodeError::OtherModel), "{e}");
}

#[test]
fn what_cannot_be_in_one_step_is_refused_and_nothing_moves() {
    let model = load(&Synthetic::default().file());
    let mut d = decoder(&model, 2, Mode::Graph);
    let (mut x, mut y, mut z) = (empty(&model, KvType::F16), empty(&model, KvType::Int8), empty(&model, KvType::F16));
    macro_rules! step {
        ($($s:ident $t:expr),*) => { d.step(&mut [$(Feed { sequence: &mut $s, token: $t }),*]).map(<[u32]>::to_vec) };
    }
    assert!(matches!(step!(x 1, y 1), Err(DecodeError::MixedCaches { first: KvType::F16, other: KvType::Int8 })));
    let e = step!(x 1, y 1, z 1).unwrap_err();
    assert!(matches!(e, DecodeError::Batch { given: 3, most: 2, .. }), "{e}");
    assert!(matches!(d.step(&mut []), Err(DecodeError::Batch { given: 0, .. })));
    assert!(matches!(step!(x 1, z 96), Err(DecodeError::Token { token: 96, .. })));
    assert!(x.is_empty() && y.is_empty() && z.is_empty() && d.stats() == Default::default());
    step!(x 1, z 2).unwrap();
    step!(y 3).unwrap();
    assert_eq!([x.tokens(), y.tokens(), z.tokens()], [&[1][..], &[3], &[2]]);
    let most = MAX_COLUMNS as usize;
    for (batch, chunk) in [(0, 1), (most + 1, 1), (1, 0), (1, most + 1)] {
        let e = Decoder::new(&model, DecoderOptions { batch, chunk, ..Default::default() }).unwrap_err();
        assert!(matches!(e, DecodeError::Batch { most: m, .. } if m == most), "{e}");
    }
}

/// One sequence's NaN is its own: the others lose nothing.
#[test]
fn a_nan_names_its_place() {
    let m = Synthetic { formats: vec![Format::F32], ..Default::default() };
    let mut w = m.writer();
    let row = m.hidden * 4;
    w.tensor_data_mut("token_embd.weight").unwrap()[5 * row..6 * row]
        .chunks_exact_mut(4)
        .for_each(|v| v.copy_from_slice(&f32::MAX.to_le_bytes()));
    let model = load(&ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap());
    let mut d = decoder(&model, 2, Mode::Graph);
    let (mut good, mut bad) = (empty(&model, KvType::F32), empty(&model, KvType::F32));
    let mut step = |good: &mut Sequence, bad: &mut Sequence, token| {
        d.step(&mut [Feed { sequence: good, token: 1 }, Feed { sequence: bad, token }]).map(<[u32]>::to_vec)
    };
    let e = step(&mut good, &mut bad, 5).unwrap_err();
    assert!(matches!(e, DecodeError::NotANumber { position: 0, place: 1 }), "{e}");
    assert!(good.is_empty() && bad.is_empty());
    let after = step(&mut good, &mut bad, 2).unwrap();
    let mut fresh = decoder(&model, 2, Mode::Eager);
    let (mut x, mut y) = (empty(&model, KvType::F32), empty(&model, KvType::F32));
    let feeds = &mut [Feed { sequence: &mut x, token: 1 }, Feed { sequence: &mut y, token: 2 }];
    assert_eq!(fresh.step(feeds).unwrap(), after);
}

/// The n-th call of the driver fails, for every n that a step has, captures included: the sequences are as before, and
/// the repeated step gives what it would have given.
#[test]
fn every_driver_call_of_a_step_may_fail() {
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let model = load(&Synthetic { layers: 1, hidden: 64, feed_forward: 64, ..Default::default() }.file());
    let want: Vec<_> = (0..2).map(|s| alone(&model, s, 4, KvType::F16)).collect();
    for (mode, position, prompt) in
        [(Mode::Eager, 2, false), (Mode::Graph, 0, false), (Mode::Graph, 2, false), (Mode::Graph, 0, true)]
    {
        let mut failed = 0;
        for n in 0.. {
            let mut d = decoder(&model, 2, mode);
            let mut all = [empty(&model, KvType::F16), empty(&model, KvType::F16)];
            let step = |d: &mut Decoder, all: &mut [Sequence; 2]| {
                let [x, y] = all;
                let p = x.len();
                if prompt {
                    let tokens: Vec<u32> = (p..p + 3).map(|p| text(0, p, 96)).collect();
                    return d.prefill(x, &tokens).map(|_| ());
                }
                let feeds =
                    &mut [Feed { sequence: x, token: text(0, p, 96) }, Feed { sequence: y, token: text(1, p, 96) }];
                d.step(feeds).map(|_| ())
            };
            for _ in 0..position {
                step(&mut d, &mut all).unwrap();
            }
            let before = all.each_ref().map(|s| s.snapshot().unwrap());
            let guard = software::inject_failure(None, n, 700);
            let result = step(&mut d, &mut all);
            let fired = guard.fired();
            drop(guard);
            if !fired {
                result.unwrap();
                assert!(n > 3, "{mode:?}: a step of {n} calls");
                break;
            }
            // A call whose failure changes nothing for anybody may be passed over, such as a mark for a profiler.
            if let Err(e) = result {
                failed += 1;
                assert!(!e.to_string().is_empty());
                assert_eq!(all.each_ref().map(|s| s.snapshot().unwrap()), before, "{mode:?} call {n}: {e}");
                step(&mut d, &mut all).unwrap_or_else(|e| panic!("{mode:?} call {n}, repeated: {e}"));
            }
            let length = all[0].len();
            assert_eq!(bits(&d.logits(0).unwrap()), want[0].0[length - 1], "{mode:?} call {n}");
            if !prompt {
                assert_eq!(bits(&d.logits(1).unwrap()), want[1].0[length - 1], "{mode:?} call {n}");
            }
        }
        assert!(failed > 3, "{mode:?}: {failed} failures");
    }
}

/// Sequences, decoders and models go in any order, and give back what they took.
#[test]
fn a_sequence_outlives_its_decoder() {
    let file = Synthetic::default().file();
    let model = load(&file);
    let want = alone(&model, 0, 2, KvType::Int8);
    let mut s = empty(&model, KvType::Int8);
    let mut first = decoder(&model, 3, Mode::Graph);
    first.step(&mut [Feed { sequence: &mut s, token: text(0, 0, 96) }]).unwrap();
    drop(first);
    let mut second = decoder(&model, 1, Mode::Eager);
    drop(model);
    second.step(&mut [Feed { sequence: &mut s, token: text(0, 1, 96) }]).unwrap();
    assert_eq!(bits(&second.logits(0).unwrap()), want.0[1]);
}

/// A graph that is captured anew only where positions past the prepared ones begin, and stays right.
#[test]
fn more_than_eight_thousand_tokens_in_a_row() {
    let m = Synthetic {
        layers: 1,
        hidden: 32,
        feed_forward: 32,
        heads: 1,
        kv_heads: 1,
        head_dim: 32,
        vocab: 16,
        context: 8_500,
        formats: vec![Format::F16],
        ..Default::default()
    };
    let model = load(&m.file());
    let tokens: Vec<u32> = (0..8_500).map(|p| text(0, p, 16)).collect();
    // Caches of f32: the software driver takes longer over tensor cores.
    let (mut steps, mut single) = (decoder(&model, 1, Mode::Graph), empty(&model, KvType::F32));
    let (mut prompts, mut whole) = (decoder(&model, 1, Mode::Eager), empty(&model, KvType::F32));
    let (mut start, mut replays) = (0, 0);
    // Single tokens at the beginning, at the ends of what is prepared and at the end; what lies between is taken over.
    for (end, taken) in
        [(600, false), (4_000, true), (4_150, false), (8_100, true), (8_250, false), (8_400, true), (8_500, false)]
    {
        prompts.prefill(&mut whole, &tokens[start..end]).unwrap();
        if taken {
            single.restore(&whole.snapshot().unwrap()).unwrap();
        } else {
            for &token in &tokens[start..end] {
                steps.step(&mut [Feed { sequence: &mut single, token }]).unwrap();
            }
            replays += (end - start) as u64;
            assert_eq!(bits(&steps.logits(0).unwrap()), bits(&prompts.logits(0).unwrap()), "after {end}");
        }
        start = end;
    }
    assert_eq!(single.snapshot().unwrap(), whole.snapshot().unwrap());
    // 4096 positions are prepared at first, then 8192, then all.
    assert_eq!((steps.stats().captures, steps.stats().replays), (3, replays));
}
