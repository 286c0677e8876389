//! What the launches of a step read: a column's logits as keys.

use super::super::definition::{Sampling, bin, key, logit, rate, weight_at};
use super::super::penalty::penalised;
use super::{RECORD, THREADS};
use crate::load::global_u32;
use warpsmith_device::{prelude::*, static_for};

/// Tokens that a thread looks at at once: a vector.
pub const VECTOR: usize = 4;
/// Tokens that a block looks at at once.
pub const ROUND: usize = VECTOR * THREADS as usize;

/// A column's logits.
#[derive(Clone, Copy)]
pub struct Logits {
    x: In<f32>,
    n: usize,
    /// Vectors are aligned.
    aligned: bool,
    /// Null: all are.
    allowed: DeviceAddress,
    /// Null: none is penalised.
    seen: DeviceAddress,
    penalty: f32,
}

impl Logits {
    #[inline(always)]
    pub fn new(x: In<f32>, n: usize, s: &Sampling) -> Logits {
        let aligned = x.ptr().addr() % align_of::<F32x4>() == 0;
        let seen = if s.penalises() { s.seen } else { DeviceAddress::NULL };
        Logits { x, n, aligned, allowed: s.allowed, seen, penalty: s.penalty }
    }

    /// The key of token `i`; 0 if it is out.
    ///
    /// # Safety
    /// `i` is below `n`; bitsets have a bit for each token.
    #[inline(always)]
    pub unsafe fn key(&self, i: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let of = |set: DeviceAddress| global_u32(set.raw() + 4 * (i / 32) as u64) >> (i % 32) & 1 != 0;
            if !self.allowed.is_null() && !of(self.allowed) {
                return 0;
            }
            let (v, seen) = (self.x.at(i), !self.seen.is_null() && of(self.seen));
            key(if seen { penalised(v, self.penalty) } else { v })
        }
    }

    /// The keys of tokens `i` to `i + 3`; 0 for those that are out, or not there.
    ///
    /// # Safety
    /// `i` is a multiple of 4 and below `n`; bitsets have a bit for each token.
    #[inline(always)]
    pub unsafe fn keys(&self, i: usize) -> [u32; VECTOR] {
        let (word, bit) = (4 * (i / 32) as u64, i % 32);
        let mut v = [f32::NAN; VECTOR];
        // SAFETY: the caller's promise.
        unsafe {
            if self.aligned && i + VECTOR <= self.n {
                v = self.x.load4(i).0;
            } else {
                static_for!(j in 0..VECTOR => {
                    if i + j < self.n {
                        v[j] = self.x.at(i + j);
                    }
                });
            }
            let of = |set: DeviceAddress| global_u32(set.raw() + word) >> bit;
            let allowed = if self.allowed.is_null() { !0 } else { of(self.allowed) };
            let seen = if self.seen.is_null() { 0 } else { of(self.seen) };
            core::array::from_fn(|j| {
                if allowed >> j & 1 == 0 {
                    return 0;
                }
                key(if seen >> j & 1 != 0 { penalised(v[j], self.penalty) } else { v[j] })
            })
        }
    }
}

/// The tokens of one block.
#[derive(Clone, Copy)]
pub struct Slice {
    pub first: usize,
    pub end: usize,
}

impl Slice {
    /// Slice `number` of those of `len` tokens each.
    #[inline(always)]
    pub fn new(number: usize, len: u32, n: u32) -> Slice {
        let first = number * len as usize;
        let end = first + len as usize;
        Slice { first, end: if end < n as usize { end } else { n as usize } }
    }

    /// Where this thread's vector of the round from `from` on begins, if it has one.
    #[inline(always)]
    pub fn own(&self, from: usize) -> Option<usize> {
        let i = from + VECTOR * thread::idx_x() as usize;
        (i < self.end).then_some(i)
    }
}

/// What tokens weigh.
#[derive(Clone, Copy)]
pub struct Weigh {
    largest: f32,
    rate: f32,
}

impl Weigh {
    /// Where this is the largest key.
    #[inline(always)]
    pub fn new(largest: u32, temperature: f32) -> Weigh {
        Weigh { largest: logit(largest), rate: rate(temperature) }
    }

    #[inline(always)]
    pub fn weight(&self, key: u32) -> u64 {
        weight_at(logit(key), self.largest, self.rate)
    }

    #[inline(always)]
    pub fn bin(&self, key: u32) -> u32 {
        bin(logit(key), self.largest, self.rate)
    }
}

/// The larger.
#[inline(always)]
pub fn larger(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// The largest key of a column, or 0, out of the best tokens of its slices, of which each thread has one.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn largest(best: u64, scratch: Shared<u64>) -> u32 {
    (block_reduce::reduce(best, 0, scratch, larger) >> 32) as u32
}

/// Marks a token as seen, where that is asked for.
#[inline(always)]
pub unsafe fn record(s: &Sampling, token: u32) {
    if s.flags & RECORD != 0 && !s.seen.is_null() {
        let word = s.seen.byte_add(4 * (token / 32) as u64).ptr();
        // SAFETY: the bitset has a bit for the token.
        unsafe { atomic::fetch_or(word, 1 << (token % 32), Order::Relaxed, Scope::Gpu) };
    }
}
