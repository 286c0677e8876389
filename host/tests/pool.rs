//! Caches in pages: the bits are those of caches of their own, whatever is shared, copied, given back or refused, and the pool's books
//! balance.
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
    Activations, DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Part, Pool, PoolOptions, PoolStats,
    Predict, Sequence, SequenceOptions,
};

fn pool(model: &Model, positions: usize, page: usize, kv: KvType) -> Pool {
    Pool::new(model, PoolOptions { positions, page, kv }).unwrap()
}

fn paged(pool: &Pool, s: usize) -> Sequence {
    let options = SequenceOptions { kv: pool.options().kv, capacity: None, sampling: sampling(s) };
    Sequence::in_pool(pool, options).unwrap()
}

/// That no page is lost, or held twice.
fn balanced(stats: PoolStats) -> PoolStats {
    assert_eq!(stats.free + stats.used + stats.kept, stats.pages, "{stats:?}");
    assert!(stats.shared <= stats.used, "{stats:?}");
    stats
}

/// What texts give alone, of which every third begins as the first one does.
fn some_alike(model: &Model, texts: usize, kv: KvType, below: &mut impl FnMut(usize) -> usize) -> Vec<Alone> {
    let mut all: Vec<Alone> = (0..texts).map(|s| Alone::new(model, s, (20 + below(30), 70), kv)).collect();
    for s in (3..texts).step_by(3) {
        all[s] = Alone::of(model, s, &[&all[0].tokens[..32], &all[s].tokens[..5]].concat(), 70, kv);
    }
    all
}

/// One of the sequences ends, begins anew, or is rolled back; or none.
fn disturb(model: &Model, all: &mut Vec<(usize, Sequence)>, want: &[Alone], below: &mut impl FnMut(usize) -> usize) {
    let i = below(all.len());
    let (s, sequence) = &mut all[i];
    let length = sequence.len();
    match below(8) {
        _ if length == want[*s].length() => drop(all.swap_remove(i)),
        0 => match sequence.rollback(below(length + 1)) {
            Err(DecodeError::GivenBack { .. }) if model.config().window > 0 => {}
            result => result.unwrap(),
        },
        1 => sequence.reset(),
        2 => drop(all.swap_remove(i)),
        _ => {}
    }
}

/// Random steps of sequences that begin with what the pool knows, fork, are rolled back, and end; where the pool is full one of them is
/// cancelled.
fn random_schedule(model: &Model, options: PoolOptions, texts: usize, steps: usize, seed: u64) {
    let (kv, mut rng) = (options.kv, Rng(seed));
    let mut below = |n: usize| rng.below(n as u64) as usize;
    let want = some_alike(model, texts, kv, &mut below);
    let pool = Pool::new(model, options).unwrap();
    let decoder_options = DecoderOptions { batch: 6, drafts: 6, chunk: 40, ..Default::default() };
    let mut decoder = Decoder::new(model, decoder_options).unwrap();
    let mut all: Vec<(usize, Sequence)> = Vec::new();
    let (mut adopted, mut refused, mut forks) = (0, 0, 0);
    for step in 0..steps {
        while all.len() < texts.min(6) {
            let s = below(texts);
            let mut sequence = paged(&pool, s);
            let found = decoder.adopt_prefix(&mut sequence, &want[s].tokens[..want[s].prompt]).unwrap();
            assert!(found == sequence.len() && found.is_multiple_of(options.page) && found < want[s].prompt);
            adopted += found;
            all.push((s, sequence));
        }
        if below(6) == 0 && all.len() < 12 {
            let (s, sequence) = &all[below(all.len())];
            let fork = (*s, sequence.fork().unwrap());
            assert_eq!(fork.1.tokens(), sequence.tokens());
            forks += 1;
            all.push(fork);
        }
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        let (mut tokens, mut logits) = (decoder.most_tokens(), decoder.most_logits());
        for (s, sequence) in all.iter_mut() {
            if below(2) == 0 {
                continue;
            }
            let (first, alone) = (sequence.len(), &want[*s]);
            let count = (1 + below(18)).min(alone.length() - first).min(tokens);
            if count == 0 || logits == 0 {
                continue;
            }
            (tokens, logits) = (tokens - count, logits - 1);
            places.push((*s, first + count - 1));
            parts.push(Part { sequence, tokens: &alone.tokens[first..first + count], predict: Predict::Next });
        }
        if parts.is_empty() {
            continue;
        }
        let lengths: Vec<usize> = parts.iter().map(|p| p.sequence.len()).collect();
        match decoder.step_mixed(&mut parts) {
            Ok(next) => {
                let next = next.to_vec();
                for (place, (&(s, p), next)) in places.iter().zip(next).enumerate() {
                    let got = bits(&decoder.logits(place).unwrap());
                    assert_eq!(got, want[s].logits[p], "{kv} step {step}: sequence {s} at {p}, place {place}");
                    assert!(want[s].predicted(p).is_none_or(|t| t == next), "{kv} step {step}: {s} at {p}");
                }
            }
            Err(DecodeError::PoolFull { needed, available, .. }) => {
                assert!(needed > available);
                assert!(parts.iter().zip(lengths).all(|(p, length)| p.sequence.len() == length));
                refused += 1;
                all.swap_remove(below(all.len()));
            }
            Err(error) => panic!("{error}"),
        }
        balanced(pool.stats());
        disturb(model, &mut all, &want, &mut below);
    }
    eprintln!("{kv}: {adopted} tokens adopted, {forks} forks, {refused} steps refused: {:?}", pool.stats());
    assert!(adopted > 0 && forks > 0);
    assert_eq!(refused > 0, options.positions < 400, "a small pool is full now and then");
    all.clear();
    let stats = balanced(pool.stats());
    assert_eq!((stats.used, stats.shared), (0, 0), "{stats:?}");
    pool.clear();
    assert_eq!(pool.stats().free, stats.pages);
}

#[test]
fn random_schedules_over_pages_give_what_sequences_give_alone() {
    // Of little arithmetic: what is random are the schedules.
    let small = Synthetic { hidden: 64, feed_forward: 64, context: 96, ..Default::default() };
    let file = small.file();
    for (kv, positions, page, seed) in
        [(KvType::F16, 200, 16, 1), (KvType::F32, 2000, 16, 2), (KvType::Int8, 300, 32, 3)]
    {
        random_schedule(&load(&file), PoolOptions { positions, page, kv }, 5, 60, seed);
    }
    let window = Synthetic { window: 20, ..small };
    random_schedule(&load(&window.file()), PoolOptions { positions: 250, ..Default::default() }, 5, 60, 4);
    // Layers without a window look at pages that lie behind those of the others.
    for (architecture, kv, seed) in [("gemma2", KvType::F16, 4), ("gemma3", KvType::Int8, 3)] {
        let some = Synthetic { architecture, layers: 6, ..window.clone() };
        random_schedule(&load(&some.file()), PoolOptions { positions: 250, page: 16, kv }, 5, 60, seed);
    }
}

#[test]
fn a_thousand_steps_of_twenty_texts_in_a_pool_that_is_too_small() {
    let heads = Synthetic { heads: 2, kv_heads: 1, head_dim: 32, ..Default::default() };
    let file = Synthetic { layers: 1, hidden: 64, feed_forward: 64, context: 96, ..heads }.file();
    random_schedule(&load(&file), PoolOptions { positions: 300, ..Default::default() }, 20, 1000, 5);
}

/// What every operation does to the books, page by page.
#[test]
fn pages_are_counted_exactly() {
    let model = load(&Synthetic { context: 128, ..Default::default() }.file());
    let pool = pool(&model, 8 * 16, 16, KvType::F16);
    let bytes = Sequence::device_bytes(&model, 128, KvType::F16).unwrap();
    let books = |free, used, shared, kept| PoolStats { pages: 8, page: 16, free, used, shared, kept, bytes };
    let mut decoder = Decoder::new(&model, DecoderOptions { batch: 2, ..Default::default() }).unwrap();
    let text: Vec<u32> = (0..128).map(|p| token(p, 96)).collect();
    let mut a = paged(&pool, 0);
    assert_eq!(pool.stats(), books(8, 0, 0, 0));
    decoder.prefill(&mut a, &text[..40]).unwrap();
    assert_eq!(pool.stats(), books(5, 3, 0, 0));
    // A fork takes a page where it writes into the middle of one.
    let mut b = a.fork().unwrap();
    assert_eq!(pool.stats(), books(5, 3, 3, 0));
    decoder.step(&mut [Feed { sequence: &mut b, token: 7 }]).unwrap();
    assert_eq!(pool.stats(), books(4, 4, 2, 0));
    // Its other writes into its own.
    decoder.step(&mut [Feed { sequence: &mut a, token: 8 }, Feed { sequence: &mut b, token: 9 }]).unwrap();
    assert_eq!(pool.stats(), books(4, 4, 2, 0));
    // Full pages are kept, others are free.
    drop(a);
    drop(b);
    assert_eq!(pool.stats(), books(6, 0, 0, 2));
    // All but the last token may be adopted.
    let mut c = paged(&pool, 0);
    assert_eq!(decoder.adopt_prefix(&mut c, &text[..32]).unwrap(), 16);
    c.reset();
    assert_eq!(decoder.adopt_prefix(&mut c, &text[..33]).unwrap(), 32);
    assert_eq!((c.tokens(), pool.stats()), (&text[..32], books(6, 2, 0, 0)));
    assert_eq!(decoder.adopt_prefix(&mut c, &text).unwrap(), 0, "it is not empty");
    // What is fed after a rollback is another page; the one that was full stays as it is for others.
    c.rollback(20).unwrap();
    assert_eq!(pool.stats(), books(6, 2, 0, 0));
    decoder.step(&mut [Feed { sequence: &mut c, token: 50 }]).unwrap();
    let mut d = paged(&pool, 0);
    assert_eq!(decoder.adopt_prefix(&mut d, &text[..33]).unwrap(), 16, "nobody follows the page that was written");
    // A pool without a page says so, and nothing is lost; then the pages that nobody has are given away.
    let before = (c.snapshot().unwrap(), d.snapshot().unwrap());
    let error = decoder.prefill(&mut d, &text[..112]).unwrap_err();
    assert!(matches!(error, DecodeError::PoolFull { needed: 7, available: 6, pages: 8, page: 16 }), "{error}");
    assert_eq!((c.snapshot().unwrap(), d.snapshot().unwrap()), before);
    assert_eq!(balanced(pool.stats()).used, 2);
    drop(c);
    decoder.prefill(&mut d, &text[..112]).unwrap();
    assert_eq!(pool.stats(), books(0, 8, 0, 0));
    drop(d);
    assert_eq!(pool.stats(), books(0, 0, 0, 8));
    pool.clear();
    assert_eq!(pool.stats(), books(8, 0, 0, 0));
}

/// What was computed otherwise has other bits, and is not adopted.
#[test]
fn only_what_was_computed_alike_is_adopted() {
    let model = load(&Synthetic { context: 128, ..Default::default() }.file());
    let pool = pool(&model, 512, 16, KvType::F16);
    let text: Vec<u32> = (0..64).map(|p| token(p, 96)).collect();
    let new = |activations| Decoder::new(&model, DecoderOptions { activations, ..Default::default() }).unwrap();
    let (mut exact, mut coarse) = (new(Activations::F32), new(Activations::Int8));
    let mut a = paged(&pool, 0);
    exact.prefill(&mut a, &text[..20]).unwrap();
    // From its second page on it is of both.
    coarse.prefill(&mut a, &text[20..]).unwrap();
    let found = |decoder: &Decoder| decoder.adopt_prefix(&mut paged(&pool, 0), &text).unwrap();
    assert_eq!((found(&exact), found(&coarse)), (16, 0));
    drop(a);
    coarse.prefill(&mut paged(&pool, 0), &text).unwrap();
    assert_eq!((found(&exact), found(&coarse)), (16, 48));
}

/// A window leaves pages behind, and says where nothing can be rolled back to.
#[test]
fn windows_give_their_old_pages_back() {
    let model = load(&Synthetic { window: 20, context: 256, ..Default::default() }.file());
    let pool = pool(&model, 4 * 16, 16, KvType::F16);
    let want = Alone::new(&model, 0, (1, 200), KvType::F16);
    let mut decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
    let mut sequence = paged(&pool, 0);
    for p in 0..200 {
        let next = decoder.step(&mut [Feed { sequence: &mut sequence, token: want.tokens[p] }]).unwrap().to_vec();
        assert_eq!((bits(&decoder.logits(0).unwrap()), next[0]), (want.logits[p].clone(), want.tokens[p + 1]), "{p}");
        assert!(balanced(pool.stats()).used <= 3, "{p}: {:?}", pool.stats());
    }
    let first = match sequence.rollback(100).unwrap_err() {
        DecodeError::GivenBack { to: 100, first } => first,
        error => panic!("{error}"),
    };
    assert!(first > 150 && first.is_multiple_of(16), "{first}");
    // As far as the window of the first token that is fed again.
    assert!(sequence.rollback(first + 18).is_err());
    sequence.rollback(first + 19).unwrap();
    let next = decoder.prefill(&mut sequence, &want.tokens[first + 19..200]).unwrap();
    assert_eq!((bits(&decoder.logits(0).unwrap()), next), (want.logits[199].clone(), want.tokens[200]));
    sequence.rollback(0).unwrap();
    assert_eq!(pool.stats().used, 0);
}

/// A page that was given away stands for other tokens than before, also for those who still remember it.
#[test]
fn a_page_that_was_given_away_leads_nowhere() {
    let model = load(&Synthetic { window: 20, context: 256, ..Default::default() }.file());
    let pool = pool(&model, 4 * 16, 16, KvType::F16);
    let mut decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
    let text = |s: usize| (0..128).map(|p| token(1000 * s + p, 96)).collect::<Vec<u32>>();
    let (x, y, z) = (text(1), text(2), text(3));
    let (mut a, mut b) = (paged(&pool, 0), paged(&pool, 0));
    decoder.prefill(&mut a, &x[..49]).unwrap();
    // Its first page lies behind the window, and becomes another's.
    decoder.step(&mut [Feed { sequence: &mut a, token: x[49] }]).unwrap();
    decoder.prefill(&mut b, &y[..16]).unwrap();
    drop(b);
    // Its fourth page is full; what it would follow is no page of its own any more, and in the end one of other tokens.
    decoder.prefill(&mut a, &x[50..68]).unwrap();
    decoder.step(&mut [Feed { sequence: &mut a, token: x[68] }]).unwrap();
    let mut c = paged(&pool, 0);
    decoder.prefill(&mut c, &z[..17]).unwrap();
    let after_z = [&z[..16], &x[48..64], &[1]].concat();
    assert_eq!(decoder.adopt_prefix(&mut paged(&pool, 0), &after_z).unwrap(), 16);
    balanced(pool.stats());
}

/// Whichever driver call fails while pages are copied and tables written, nothing is lost.
#[test]
fn whatever_call_fails_the_books_balance() {
    if !device().is_software() {
        return eprintln!("skipped: failures are injected into the software driver");
    }
    let model = load(&Synthetic { layers: 1, context: 128, ..Default::default() }.file());
    let want = Alone::new(&model, 1, (40, 60), KvType::F16);
    let (mut failures, mut done) = (0, false);
    while !done {
        let pool = pool(&model, 160, 16, KvType::F16);
        let options = DecoderOptions { mode: Mode::Eager, batch: 2, ..Default::default() };
        let mut decoder = Decoder::new(&model, options).unwrap();
        let mut a = paged(&pool, 1);
        decoder.prefill(&mut a, &want.tokens[..40]).unwrap();
        let mut b = a.fork().unwrap();
        let used = pool.stats().used;
        let before = a.snapshot().unwrap();
        let guard = software::inject_failure(None, failures, 2);
        let result = decoder.prefill(&mut b, &want.tokens[40..58]);
        (done, failures) = (!guard.fired(), failures + 1);
        drop(guard);
        assert_eq!(result.is_err(), !done, "call {failures}");
        if !done {
            assert_eq!(b.len(), 40);
            assert!((used..=used + 1).contains(&balanced(pool.stats()).used), "call {failures}: {:?}", pool.stats());
            assert_eq!(b.snapshot().unwrap(), before, "call {failures}");
            decoder.prefill(&mut b, &want.tokens[40..58]).unwrap();
        }
        assert_eq!(bits(&decoder.logits(0).unwrap()), want.logits[57], "call {failures}");
        assert_eq!(a.snapshot().unwrap(), before, "call {failures}");
        drop((a, b));
        assert_eq!(balanced(pool.stats()).used, 0);
    }
    assert!(failures > 20, "{failures} calls");
}

#[test]
fn snapshots_capacities_and_forks_are_those_of_other_caches() {
    let model = load(&Synthetic { context: 128, ..Default::default() }.file());
    for kv in KvType::ALL {
        let pool = pool(&model, 512, 16, kv);
        let want = Alone::new(&model, 1, (50, 60), kv);
        let mut decoder = Decoder::new(&model, DecoderOptions::default()).unwrap();
        let (mut own, mut pages) = (empty(&model, 1, kv), paged(&pool, 1));
        for sequence in [&mut own, &mut pages] {
            decoder.prefill(sequence, &want.tokens[..50]).unwrap();
        }
        let snapshot = own.snapshot().unwrap();
        assert_eq!(pages.snapshot().unwrap(), snapshot, "{kv}");
        let mut others = [own.fork().unwrap(), pages.fork().unwrap(), paged(&pool, 1), empty(&model, 1, kv)];
        others[2].restore(&snapshot).unwrap();
        others[3].restore(&pages.snapshot().unwrap()).unwrap();
        pages.set_capacity(100).unwrap();
        assert!(pages.set_capacity(40).is_err());
        // What a fork is fed stays its own, from the middle of a page on.
        for sequence in [&mut own, &mut pages] {
            let mut fork = sequence.fork().unwrap();
            decoder.prefill(sequence, &[1, 2, 3]).unwrap();
            let before = sequence.snapshot().unwrap();
            decoder.prefill(&mut fork, &[5, 6, 7]).unwrap();
            assert_eq!(sequence.snapshot().unwrap(), before, "{kv}");
            sequence.rollback(50).unwrap();
        }
        for sequence in others.iter_mut().chain([&mut own, &mut pages]) {
            let next = decoder.prefill(sequence, &want.tokens[50..60]).unwrap();
            assert_eq!(bits(&decoder.logits(0).unwrap()), want.logits[59], "{kv}");
            assert_eq!(next, want.tokens[60], "{kv}");
        }
    }
}

#[test]
fn what_is_no_pool_or_not_of_it_is_refused() {
    let model = load(&Synthetic::default().file());
    for (positions, page) in [(0, 16), (100, 0), (100, 8), (100, 1 << 17)] {
        let options = PoolOptions { positions, page, kv: KvType::F16 };
        assert!(matches!(Pool::new(&model, options), Err(DecodeError::Pages { .. })), "{options:?}");
    }
    let huge = PoolOptions { positions: usize::MAX / 2, ..Default::default() };
    assert!(matches!(Pool::new(&model, huge), Err(DecodeError::Memory { what: "the pool", .. })));
    let pool = pool(&model, 100, 16, KvType::F16);
    assert_eq!(pool.stats().pages, 7);
    let other = SequenceOptions { kv: KvType::Int8, ..Default::default() };
    let error = Sequence::in_pool(&pool, other).unwrap_err();
    assert_eq!(error.to_string(), "the sequence does not belong in this pool: it stores int8, the pool f16");
    // A model that was loaded again is another one.
    let again = load(&Synthetic::default().file());
    let mut decoder = Decoder::new(&again, DecoderOptions::default()).unwrap();
    assert!(matches!(decoder.prefill(&mut paged(&pool, 0), &[1, 2]), Err(DecodeError::OtherModel)));
}

/// What is planned is what fits.
#[test]
fn plans_hold() {
    in_its_own_process("inner_plans_hold", "3M");
}

#[test]
#[ignore = "run by `plans_hold` in a process of its own"]
fn inner_plans_hold() {
    let model = load(&Synthetic { context: 256, ..Default::default() }.file());
    let options = DecoderOptions { chunk: 8, ..Default::default() };
    let free = || model.device().memory_info().unwrap().free;
    let plan = model.plan(free(), &options, 200, KvType::F16).unwrap();
    assert!(plan.sequences > 1 && plan.positions >= 200 * plan.sequences, "{plan:?}");
    let _decoder = Decoder::new(&model, options).unwrap();
    let new = || Sequence::new(&model, SequenceOptions { capacity: Some(200), ..Default::default() });
    let all: Vec<Sequence> = (0..plan.sequences).map(|_| new().unwrap()).collect();
    assert!(matches!(new(), Err(DecodeError::Memory { .. })), "{plan:?}");
    drop(all);
    let pool = PoolOptions { positions: plan.positions + 16, ..Default::default() };
    assert!(Pool::new(&model, pool).is_err(), "{plan:?}");
    Pool::new(&model, PoolOptions { positions: plan.positions, ..pool }).unwrap();
    assert_eq!(model.plan(plan.decoder - 1, &options, 200, KvType::F16), None);
}
