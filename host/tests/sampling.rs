//! How tokens are chosen: against the definition on the host, in batches, by graphs, and through everything that changes
//! what a sequence has seen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::sampling::sample;
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Feed, Mode, Model, Sampling, Sequence, SequenceOptions, Session,
    SessionOptions,
};

const VOCAB: usize = 96;

fn model() -> Model {
    load(&Synthetic::default().file())
}

fn session(model: &Model, mode: Mode, sampling: Sampling) -> Session {
    Session::new(
        model,
        SessionOptions {
            sequence: SequenceOptions { sampling, ..Default::default() },
            decoder: DecoderOptions { mode, ..Default::default() },
        },
    )
    .unwrap()
}

/// What the definition chooses from the session's logits, after `seen` tokens were fed.
fn wanted(logits: &[f32], s: &Sampling, seen: &[u32], allowed: Option<&[u32]>) -> u32 {
    let set = |tokens: &[u32]| sample::bitset(VOCAB as u32, tokens.iter().copied());
    let p = sample::Sampling {
        temperature: s.temperature,
        top_p: s.top_p,
        penalty: s.penalty,
        top_k: s.top_k,
        seed_low: s.seed as u32,
        seed_high: (s.seed >> 32) as u32,
        ..sample::Sampling::GREEDY
    };
    let (seen_set, allowed_set) = (set(seen), allowed.map(set));
    sample::reference(logits, &p, seen.len() as u32 - 1, Some(&seen_set), allowed_set.as_deref())
}

fn settings() -> Vec<Sampling> {
    let all = Sampling { temperature: 1.3, seed: 0x1234_5678_9abc_def0, ..Default::default() };
    vec![
        Sampling::default(),
        all,
        Sampling { top_k: 5, ..all },
        Sampling { top_p: 0.7, ..all },
        Sampling { top_k: 20, top_p: 0.9, penalty: 1.4, ..all },
        Sampling { penalty: 2.0, ..Default::default() },
        Sampling { temperature: 1e-3, ..all },
    ]
}

#[test]
fn every_setting_chooses_as_defined() {
    let model = model();
    for s in settings() {
        let mut session = session(&model, Mode::Graph, s);
        let mut token = session.prefill(&[3, 1, 4, 1, 5]).unwrap();
        for _ in 0..20 {
            let seen = session.sequence().tokens().to_vec();
            assert_eq!(token, wanted(&session.logits().unwrap(), &s, &seen, None), "{s:?} after {}", seen.len());
            token = session.feed(token).unwrap();
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_text_eager_by_graph_and_in_a_batch() {
    let model = model();
    let settings = settings();
    let text = |mode, s| {
        let mut session = session(&model, mode, s);
        session.generate(&[7, 8], 16, |_| std::ops::ControlFlow::Continue(())).unwrap()
    };
    let alone: Vec<Vec<u32>> = settings.iter().map(|s| text(Mode::Eager, *s)).collect();
    for (s, want) in settings.iter().zip(&alone) {
        assert_eq!(&text(Mode::Graph, *s), want, "{s:?}");
    }
    assert_ne!(alone[1], text(Mode::Graph, Sampling { seed: 1, ..settings[1] }), "another seed");
    let mut decoder = Decoder::new(&model, DecoderOptions { batch: settings.len(), ..Default::default() }).unwrap();
    let mut all: Vec<Sequence> = settings
        .iter()
        .map(|s| Sequence::new(&model, SequenceOptions { sampling: *s, ..Default::default() }).unwrap())
        .collect();
    let mut texts: Vec<Vec<u32>> = all.iter_mut().map(|s| vec![decoder.prefill(s, &[7, 8]).unwrap()]).collect();
    for _ in 1..16 {
        let feeds = all.iter_mut().zip(&texts).map(|(sequence, t)| Feed { sequence, token: *t.last().unwrap() });
        let next = decoder.step(&mut feeds.collect::<Vec<_>>()).unwrap().to_vec();
        texts.iter_mut().zip(next).for_each(|(t, n)| t.push(n));
    }
    assert_eq!(texts, alone);
}

/// What counts as seen is what the sequence holds, whatever way it came to hold it.
#[test]
fn the_penalty_follows_every_change_of_a_sequence() {
    let model = model();
    let s = Sampling { penalty: 3.0, ..Default::default() };
    let mut session = session(&model, Mode::Graph, s);
    let check = |session: &Session, token: u32, what: &str| {
        let seen = session.sequence().tokens();
        assert_eq!(token, wanted(&session.logits().unwrap(), &s, seen, None), "{what}");
    };
    let first = session.prefill(&[1, 2, 3]).unwrap();
    check(&session, first, "prompt");
    // Another token than the one that was chosen: that one is not seen.
    let other = (first + 1) % VOCAB as u32;
    let token = session.feed(other).unwrap();
    check(&session, token, "another token");
    let snapshot = session.snapshot().unwrap();
    let token = session.feed(token).unwrap();
    check(&session, token, "the chosen token");
    session.rollback(2).unwrap();
    let token = session.feed(9).unwrap();
    check(&session, token, "rollback");
    session.restore(&snapshot).unwrap();
    let token = session.feed(10).unwrap();
    check(&session, token, "restore");
    session.reset();
    let token = session.feed(11).unwrap();
    check(&session, token, "reset");
    // Off and on again.
    session.sequence_mut().set_sampling(Sampling::default()).unwrap();
    let token = session.feed(token).unwrap();
    session.sequence_mut().set_sampling(s).unwrap();
    let token = session.feed(token).unwrap();
    check(&session, token, "off and on");
}

#[test]
fn only_allowed_tokens_are_chosen() {
    let model = model();
    let s = Sampling { temperature: 2.0, seed: 3, ..Default::default() };
    let mut session = session(&model, Mode::Graph, s);
    let allowed = [5, 40, 41, 95];
    session.sequence_mut().set_allowed(Some(&allowed)).unwrap();
    let mut token = session.feed(1).unwrap();
    for _ in 0..12 {
        assert!(allowed.contains(&token));
        let seen = session.sequence().tokens();
        assert_eq!(token, wanted(&session.logits().unwrap(), &s, seen, Some(&allowed)));
        token = session.feed(token).unwrap();
    }
    let e = session.sequence_mut().set_allowed(Some(&[5, 96])).unwrap_err();
    assert!(matches!(e, DecodeError::Token { token: 96, index: 1, .. }), "{e}");
    session.sequence_mut().set_allowed(Some(&[])).unwrap();
    let e = session.feed(1).unwrap_err();
    assert!(matches!(e, DecodeError::NotANumber { .. }) && e.to_string().contains("allowed"), "{e}");
    session.sequence_mut().set_allowed(None).unwrap();
    session.feed(1).unwrap();
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let model = model();
    for (what, s) in [
        ("temperature", Sampling { temperature: -1.0, ..Default::default() }),
        ("temperature", Sampling { temperature: f32::NAN, ..Default::default() }),
        ("top_p", Sampling { top_p: 0.0, ..Default::default() }),
        ("top_p", Sampling { top_p: 1.5, ..Default::default() }),
        ("penalty", Sampling { penalty: 0.0, ..Default::default() }),
        ("penalty", Sampling { penalty: f32::INFINITY, ..Default::default() }),
    ] {
        let e = Session::new(&model, SequenceOptions { sampling: s, ..Default::default() }).unwrap_err();
        assert!(matches!(&e, DecodeError::Sampling { what: w, .. } if *w == what), "{e}");
        let mut session = session(&model, Mode::Graph, Sampling::default());
        assert!(session.sequence_mut().set_sampling(s).is_err());
        assert_eq!(session.sequence().sampling(), &Sampling::default());
    }
}

/// Two copies a token remain two, whatever the setting, as long as it does not change.
#[test]
fn sampling_costs_no_copies() {
    use warpsmith_driver_api::software;
    if !device().is_software() {
        return eprintln!("skipped: calls are counted by the software driver");
    }
    let model = model();
    let s = Sampling { temperature: 0.8, top_k: 10, top_p: 0.9, penalty: 1.2, seed: 5 };
    let mut session = session(&model, Mode::Graph, s);
    let mut token = session.prefill(&[1, 2]).unwrap();
    token = session.feed(token).unwrap();
    software::reset_call_counts();
    for _ in 0..10 {
        token = session.feed(token).unwrap();
    }
    let counts = software::call_counts();
    assert_eq!((counts.get("cuMemcpyHtoDAsync_v2"), counts.get("cuMemcpyDtoHAsync_v2")), (10, 10), "{counts:?}");
}
