//! What sequences give alone, for tests of what they give beside others.
#![allow(dead_code)]

use crate::device::*;
use warpsmith_host::decode::{Decoder, DecoderOptions, Feed, KvType, Mode, Model, Sampling, Sequence, SequenceOptions};

/// How a sequence's tokens are chosen: all kinds in turn.
pub fn sampling(s: usize) -> Sampling {
    let seed = 17 * s as u64;
    match s % 4 {
        0 => Sampling::default(),
        1 => Sampling { temperature: 1.0, seed, ..Default::default() },
        2 => Sampling { penalty: 1.3, ..Default::default() },
        _ => Sampling { temperature: 1.5, top_k: 20, top_p: 0.9, penalty: 1.2, seed },
    }
}

/// The sequences with their numbers, in a random order.
pub fn shuffled<'a>(all: &'a mut [Sequence], below: &mut impl FnMut(usize) -> usize) -> Vec<(usize, &'a mut Sequence)> {
    let mut members: Vec<(usize, &mut Sequence)> = all.iter_mut().enumerate().collect();
    for i in (1..members.len()).rev() {
        members.swap(i, below(i + 1));
    }
    members
}

pub fn empty(model: &Model, s: usize, kv: KvType) -> Sequence {
    Sequence::new(model, SequenceOptions { kv, capacity: None, sampling: sampling(s) }).unwrap()
}

/// What a sequence is fed and generates alone, a token a step: all tokens, and the bits of the logits at each position.
pub struct Alone {
    pub prompt: usize,
    pub tokens: Vec<u32>,
    pub logits: Vec<Vec<u32>>,
}

impl Alone {
    pub fn new(model: &Model, s: usize, (prompt, length): (usize, usize), kv: KvType) -> Alone {
        let tokens: Vec<u32> = (0..prompt).map(|p| token(1000 * s + p, model.config().vocab)).collect();
        Alone::of(model, s, &tokens, length, kv)
    }

    pub fn of(model: &Model, s: usize, prompt: &[u32], length: usize, kv: KvType) -> Alone {
        let options = DecoderOptions { mode: Mode::Eager, ..Default::default() };
        let (mut decoder, mut sequence) = (Decoder::new(model, options).unwrap(), empty(model, s, kv));
        let (prompt, mut tokens) = (prompt.len(), prompt.to_vec());
        let mut logits = Vec::new();
        for p in 0..length {
            let token = tokens[p];
            let next = decoder.step(&mut [Feed { sequence: &mut sequence, token }]).unwrap()[0];
            logits.push(bits(&decoder.logits(0).unwrap()));
            if p + 1 >= prompt {
                tokens.push(next);
            }
        }
        Alone { prompt, tokens, logits }
    }

    /// Positions that it was computed for.
    pub fn length(&self) -> usize {
        self.logits.len()
    }

    /// What is predicted from position `p`, where that is known: within a prompt another token may follow.
    pub fn predicted(&self, p: usize) -> Option<u32> {
        (p + 1 >= self.prompt).then(|| self.tokens[p + 1])
    }
}
