//! Probabilities of tokens, from the logits of the last step.

use super::Decoder;
use crate::decode::DecodeError;
use gpu_kernels::sampling::NONE;
use gpu_kernels::sampling::top::{MOST, Top, logprob};
use warpsmith_device::Launcher;
use warpsmith_runtime::{Buffer, Error, Stream};

/// A token and the natural logarithm of its probability, before temperature, penalty and whatever else chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// The logarithm.
    pub logprob: f32,
}

/// Probabilities at one place of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The most likely tokens, the most likely first.
    pub top: Vec<Logprob>,
    /// Those that were asked for, in order.
    pub asked: Vec<Logprob>,
}

/// What the kernel writes.
pub(super) struct TopLogits {
    tokens: Buffer<u32>,
    values: Buffer<f32>,
    sums: Buffer<u64>,
}

impl TopLogits {
    fn new(stream: &Stream) -> Result<TopLogits, Error> {
        let device = stream.device();
        Ok(TopLogits {
            tokens: device.alloc(MOST as usize)?,
            values: device.alloc(MOST as usize)?,
            sums: device.alloc(1)?,
        })
    }
}

impl Decoder {
    /// The `count` most likely tokens, 1 to [`MOST`], at a place of the last step, and the probabilities of the `asked` ones: by the logits
    /// that [`Decoder::logits`] gives, on the device. Where processes have layers each, all of them make the call.
    pub fn logprobs(&mut self, place: usize, count: usize, asked: &[u32]) -> Result<Logprobs, DecodeError> {
        let Some(place) = self.logits.clone().nth(place) else { return Err(DecodeError::NoLogits) };
        let vocab = self.model.config().vocab;
        if let Some((index, &token)) = asked.iter().enumerate().find(|(_, t)| **t as usize >= vocab) {
            return Err(DecodeError::Token { token, index, vocab });
        }
        if count == 0 || count > MOST as usize {
            return Err(DecodeError::Batch { what: "most likely tokens", given: count, most: MOST as usize });
        }
        let mut found = match self.found.take() {
            Some(found) => found,
            None => TopLogits::new(&self.lead.stream)?,
        };
        let result = self.top(place, count, &mut found, asked);
        self.found = Some(found);
        result
    }

    fn top(&self, place: usize, count: usize, to: &mut TopLogits, asked: &[u32]) -> Result<Logprobs, DecodeError> {
        let stream = &self.lead.stream;
        let told = self.told_logits(place)?;
        let logits = told.as_deref().unwrap_or_else(|| self.lead.buffers.logits_of(place));
        let n = logits.len() as u32;
        let TopLogits { tokens, values, sums } = to;
        (&mut &*stream).launch(Top { logits, tokens, values, sums, n, stride: n, count: count as u32 })?;
        let (tokens, values) = (stream.read(&tokens[..count])?, stream.read(&values[..count])?);
        let sum = stream.read(sums)?.first().copied().unwrap_or(0);
        let largest = values.first().copied().unwrap_or(f32::NAN);
        let of = |token, logit| Logprob { token, logprob: logprob(logit, largest, sum) };
        let there = tokens.into_iter().zip(values).filter(|(token, _)| *token != NONE);
        let top = there.map(|(token, logit)| of(token, logit)).collect();
        let mut others = Vec::with_capacity(asked.len());
        for &token in asked {
            let logit = stream.read(&logits[token as usize..token as usize + 1])?;
            others.push(of(token, logit.first().copied().unwrap_or(f32::NAN)));
        }
        Ok(Logprobs { top, asked: others })
    }
}
