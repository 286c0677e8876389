//! How the next token of a sequence is chosen, on the device.

use super::{DecodeError, Model};
use gpu_kernels::sampling::sample::{self, RECORD, bitset};
use gpu_kernels::sampling::words;
use warpsmith_device::{DeviceAddress, DeviceSlice};
use warpsmith_runtime::{Buffer, Device, Error, Pinned, Stream};

pub(super) use sample::Sampling as Parameters;

/// How a token is chosen from its logits: penalty, then temperature, then top-k, then top-p, then the draw, exactly as
/// [`gpu_kernels::sampling::sample`] defines them. The result depends on the logits, these numbers and the position alone:
/// the same on every device, in every batch, eager or by graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0: the most likely token is taken, the lowest among equals.
    pub temperature: f32,
    /// So many of the most likely tokens are kept; 0: all.
    pub top_k: u32,
    /// The most likely tokens that have this share of the probability are kept; 1: all.
    pub top_p: f32,
    /// Logits of tokens that the sequence has already are divided by it where positive, else multiplied; 1: nothing.
    pub penalty: f32,
    /// The seed of the random numbers, of which every position has its own.
    pub seed: u64,
}

impl Default for Sampling {
    /// The most likely token.
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Whether the numbers make sense; [`DecodeError::Sampling`] names the first that does not. Sequences refuse it too.
    pub fn check(&self) -> Result<(), DecodeError> {
        let bad = |what, value: f32, expected| Err(DecodeError::Sampling { what, value, expected });
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return bad("temperature", self.temperature, "a finite number, 0 or more");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return bad("top_p", self.top_p, "more than 0, at most 1");
        }
        if !(self.penalty.is_finite() && self.penalty > 0.0) {
            return bad("penalty", self.penalty, "a finite number above 0");
        }
        Ok(())
    }

    fn penalises(&self) -> bool {
        self.penalty != 1.0
    }
}

/// What a sequence keeps on the device for the choice of its tokens.
#[derive(Default)]
pub(super) struct Sampler {
    pub sampling: Sampling,
    /// The bitset of tokens that the sequence has.
    seen: Option<Buffer<u32>>,
    /// `seen` is right for this many tokens and this one, which the device chose and marked.
    marked: Option<(usize, u32)>,
    allowed: Option<Buffer<u32>>,
}

impl Sampler {
    pub fn new(model: &Model, sampling: Sampling) -> Result<Sampler, DecodeError> {
        sampling.check()?;
        let mut choice = Sampler { sampling, ..Sampler::default() };
        choice.prepare(model)?;
        Ok(choice)
    }

    fn prepare(&mut self, model: &Model) -> Result<(), DecodeError> {
        if self.sampling.penalises() && self.seen.is_none() {
            let vocab = model.config().vocab as u32;
            self.seen = Some(model.device().alloc(words(vocab) as usize)?);
            self.marked = None;
        }
        Ok(())
    }

    pub fn set(&mut self, model: &Model, sampling: Sampling) -> Result<(), DecodeError> {
        sampling.check()?;
        let before = std::mem::replace(&mut self.sampling, sampling);
        // What was chosen without a penalty was not marked.
        if !before.penalises() {
            self.marked = None;
        }
        let prepared = self.prepare(model);
        if prepared.is_err() {
            self.sampling = before;
        }
        prepared
    }

    /// Lets only these tokens be chosen; `None`: all.
    pub fn allow(&mut self, model: &Model, tokens: Option<&[u32]>) -> Result<(), DecodeError> {
        self.allowed = match tokens {
            None => None,
            Some(tokens) => {
                let vocab = model.config().vocab;
                if let Some((index, &token)) = tokens.iter().enumerate().find(|(_, t)| **t as usize >= vocab) {
                    return Err(DecodeError::Token { token, index, vocab });
                }
                let set = bitset(vocab as u32, tokens.iter().copied());
                Some(model.stream().upload(&set)?)
            }
        };
        Ok(())
    }

    /// What the device is told when `fed` are appended to `tokens`. Marks them as seen, if that matters.
    pub fn parameters(
        &mut self,
        tokens: &[u32],
        fed: &[u32],
        vocab: usize,
        stream: &Stream,
    ) -> Result<Parameters, Error> {
        let mut p = self.numbers();
        if self.sampling.penalises()
            && let Some(seen) = &mut self.seen
        {
            if !matches!((self.marked, fed), (Some((length, token)), &[one]) if length == tokens.len() && token == one)
            {
                let set = bitset(vocab as u32, tokens.iter().chain(fed).copied());
                stream.write(&mut *seen, &set)?;
            }
            // Until the step has succeeded, nobody knows what is marked.
            self.marked = None;
            p.seen = seen.address();
            p.flags = RECORD;
        }
        Ok(p)
    }

    /// The same where more tokens are predicted from in one step: what was seen is told in `seen`, and not marked by the device.
    pub fn parameters_apart(
        &mut self,
        tokens: &[u32],
        fed: &[u32],
        vocab: usize,
        stream: &Stream,
        seen: &mut Seen<'_>,
    ) -> Result<Parameters, Error> {
        let mut p = self.numbers();
        if self.sampling.penalises() {
            let set = bitset(vocab as u32, tokens.iter().chain(fed).copied());
            p.seen = seen.set(stream, &set)?;
        }
        self.marked = None;
        Ok(p)
    }

    /// The parameters without what was seen.
    fn numbers(&self) -> Parameters {
        let s = &self.sampling;
        Parameters {
            temperature: s.temperature,
            top_p: s.top_p,
            penalty: s.penalty,
            top_k: s.top_k,
            seed_low: s.seed as u32,
            seed_high: (s.seed >> 32) as u32,
            allowed: self.allowed.as_ref().map_or(DeviceAddress::NULL, |a| a.address()),
            ..Parameters::GREEDY
        }
    }

    /// After a step: the device has chosen and marked `token` for a sequence of `length` tokens.
    pub fn chosen(&mut self, length: usize, token: u32) {
        if self.sampling.penalises() {
            self.marked = Some((length, token));
        }
    }

    /// The sequence is not what it was.
    pub fn forget(&mut self) {
        self.marked = None;
    }
}

/// The parameters of a step's columns, on the device. They are copied when they change.
pub(super) struct Samplers {
    device: Buffer<Parameters>,
    stage: Pinned<Parameters>,
    host: Vec<Parameters>,
    /// What the device has, if that is known.
    written: Option<Vec<Parameters>>,
    /// Bitsets of what columns have seen whose sequence is predicted from more than once in a step: made when there is a first.
    seen: Option<Buffer<u32>>,
}

/// Where the bitset of one column goes.
pub(super) struct Seen<'a> {
    all: &'a mut Option<Buffer<u32>>,
    place: usize,
    places: usize,
}

impl Seen<'_> {
    fn set(&mut self, stream: &Stream, set: &[u32]) -> Result<DeviceAddress, Error> {
        let all = match self.all.take() {
            Some(all) => all,
            None => stream.device().alloc(set.len() * self.places)?,
        };
        let all = self.all.insert(all);
        let own = &mut all[self.place * set.len()..][..set.len()];
        stream.write(own, set)?;
        Ok(own.address())
    }
}

impl Samplers {
    pub fn new(device: &Device, columns: usize) -> Result<Samplers, Error> {
        Ok(Samplers {
            device: device.alloc(columns)?,
            stage: device.pinned(columns)?,
            host: vec![Parameters::GREEDY; columns],
            written: None,
            seen: None,
        })
    }

    /// Forgets what was set for the last step: parameters of columns that are not there must not refer to memory that may be gone.
    pub fn clear(&mut self) {
        self.host.fill(Parameters::GREEDY);
    }

    pub fn set(&mut self, place: usize, parameters: Parameters) {
        if let Some(p) = self.host.get_mut(place) {
            *p = parameters;
        }
    }

    /// Where what a column has seen goes, for [`Sampler::parameters_apart`].
    pub fn seen(&mut self, place: usize) -> Seen<'_> {
        Seen { all: &mut self.seen, place, places: self.host.len() }
    }

    /// Whether any column draws its token.
    pub fn draw(&self) -> bool {
        self.host.iter().any(|p| !p.is_greedy())
    }

    pub fn write(&mut self, stream: &Stream) -> Result<(), Error> {
        if self.written.as_ref() != Some(&self.host) {
            let mut written = self.written.take().unwrap_or_default();
            self.stage.set(&self.host)?;
            stream.write_pinned(&self.stage, &mut self.device)?;
            written.clone_from(&self.host);
            self.written = Some(written);
        }
        Ok(())
    }

    /// A step failed: what the device has is not known.
    pub fn forget(&mut self) {
        self.written = None;
    }

    pub fn device(&self) -> &DeviceSlice<Parameters> {
        &self.device
    }

    /// Bytes on the device.
    pub fn bytes(columns: usize) -> u64 {
        super::weights::padded((columns * size_of::<Parameters>()) as u64)
    }
}
