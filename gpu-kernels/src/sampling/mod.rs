//! From logits to a token: argmax, masks, the repetition penalty, and sampling.
//!
//! - [`argmax`]: the largest logit of each column, of all or of those that a mask allows
//! - [`penalty`]: the repetition penalty alone
//! - [`sample`]: penalty, mask, temperature, top-k, top-p and the draw, with every parameter in device memory
//! - [`top`]: the most likely tokens and their probabilities
//! - [`philox`]: where the randomness comes from
//!
//! Masks are bitsets of u32 words, token `i` at bit `i % 32` of word `i / 32`. All results are the same in every run, on
//! every engine, eager or in a graph: sums are of integers, and random numbers are a function of seed and position.

pub mod argmax;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
mod definition;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod digits;
pub mod penalty;
pub mod philox;
pub mod sample;
pub mod top;

/// What stands for no token: every logit is NaN, or none is allowed.
pub const NONE: u32 = u32::MAX;

/// Words of a bitset of `n` tokens.
#[must_use]
#[inline(always)]
pub const fn words(n: u32) -> u32 {
    n.div_ceil(32)
}
