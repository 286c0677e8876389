//! Sequences whose past is rolled back, forked, reset and taken from snapshots, for models with delta nets.
#![allow(dead_code)]

use crate::{alone::*, common::*, device::*};
use warpsmith_host::decode::{
    Decoder, DecoderOptions, KvType, Model, Part, Pool, PoolOptions, Predict, Sequence, SequenceOptions,
};

pub fn in_pool(pool: &Pool, s: usize) -> Sequence {
    Sequence::in_pool(pool, SequenceOptions { sampling: sampling(s), ..Default::default() }).unwrap()
}

/// What five sequences give alone.
pub fn alone(model: &Model) -> Vec<Alone> {
    (0..5).map(|s| Alone::new(model, s, (8 + 3 * s, 40), KvType::F16)).collect()
}

/// Steps of any mix of sequences with caches of their own and in pages, which are rolled back, forked, reset, and taken from snapshots.
pub fn undone_and_copied(model: &Model, steps: usize) {
    undone_beside(model, &alone(model), steps);
}

/// The same, where what they give alone is known.
pub fn undone_beside(model: &Model, want: &[Alone], steps: usize) {
    let pool = Pool::new(model, PoolOptions { positions: 2048, ..Default::default() }).unwrap();
    let make = |s: usize| if s.is_multiple_of(2) { empty(model, s, KvType::F16) } else { in_pool(&pool, s) };
    let mut all: Vec<Sequence> = (0..5).map(make).collect();
    let options = DecoderOptions { batch: 5, chunk: 24, drafts: 12, ..Default::default() };
    let mut decoder = Decoder::new(model, options).unwrap();
    let mut rng = Rng(7);
    let mut below = move |n: usize| rng.below(n as u64) as usize;
    let mut done = [0; 4];
    for step in 0..steps {
        let (mut left, mut parts, mut places) = (24, Vec::new(), Vec::new());
        for (s, sequence) in shuffled(&mut all, &mut below).into_iter().take(1 + step % 4) {
            let (first, alone) = (sequence.len(), &want[s]);
            let count = (1 + below(7)).min(alone.length() - first).min(left);
            let predict = [Predict::Nothing, Predict::Next, Predict::Each][below(3)];
            if count == 0 {
                continue;
            }
            left -= count;
            let predicted = [0, 1, count][predict as usize];
            places.extend((first + count - predicted..first + count).map(|p| (s, p)));
            parts.push(Part { sequence, tokens: &alone.tokens[first..first + count], predict });
        }
        if parts.is_empty() || places.len() > decoder.most_logits() {
            continue;
        }
        decoder.step_mixed(&mut parts).unwrap();
        for (place, &(s, p)) in places.iter().enumerate() {
            let got = bits(&decoder.logits(place).unwrap());
            assert!(got == want[s].logits[p], "step {step}: sequence {s} at {p}, place {place}");
        }
        for s in 0..5 {
            let length = all[s].len();
            match below(9) {
                _ if length == want[s].length() => all[s].rollback(below(length)).unwrap(),
                0 => all[s].rollback(below(length + 1)).unwrap(),
                // To where the last step began, or nearly.
                1 => all[s].rollback(length.saturating_sub(1 + below(4))).unwrap(),
                2 => all[s] = all[s].fork().unwrap(),
                3 => {
                    let snapshot = all[s].snapshot().unwrap();
                    all[s] = make(s);
                    all[s].restore(&snapshot).unwrap();
                    assert_eq!(all[s].snapshot().unwrap(), snapshot);
                }
                4 if step % 5 == 0 => all[s].reset(),
                _ => continue,
            }
            done[s % 4] += 1;
        }
    }
    assert!(done.iter().all(|n| *n > steps / 12), "{done:?}");
    let graphs = decoder.graphs();
    assert!(graphs.iter().any(|g| g.mixed && g.replays > 0) && graphs.iter().all(|g| g.nodes == g.eager_launches));
    drop(all);
    assert_eq!(pool.stats().kept, 0, "pages that nobody can begin with are kept");
}
