//! A decoder with one sequence of its own: what a program with a single conversation needs.

use super::{
    Activations, DecodeError, Decoder, DecoderOptions, Feed, GraphInfo, Hidden, KvType, Mode, Model, Predicted, Routes,
    Sequence, SequenceOptions, Snapshot, Stats,
};
use std::ops::ControlFlow;
use warpsmith_runtime::Profile;

/// What a session is made with. [`Session::new`] also takes one of the two alone, with the other's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionOptions {
    /// What its sequence is given: the cache, and how tokens are chosen.
    pub sequence: SequenceOptions,
    /// What its decoder is given: how steps are run. A session has one sequence, whatever [`batch`](DecoderOptions::batch) says, and
    /// [`positions`](DecoderOptions::positions) are those of the sequence unless they are given.
    pub decoder: DecoderOptions,
}

impl From<SequenceOptions> for SessionOptions {
    fn from(sequence: SequenceOptions) -> SessionOptions {
        SessionOptions { sequence, ..SessionOptions::default() }
    }
}

impl From<DecoderOptions> for SessionOptions {
    fn from(decoder: DecoderOptions) -> SessionOptions {
        SessionOptions { decoder, ..SessionOptions::default() }
    }
}

/// A [`Decoder`] and a [`Sequence`].
#[derive(Debug)]
pub struct Session {
    decoder: Decoder,
    sequence: Sequence,
    launches: usize,
}

impl Session {
    /// An empty session. If it does not fit into free memory, nothing is allocated.
    pub fn new(model: &Model, options: impl Into<SessionOptions>) -> Result<Session, DecodeError> {
        let SessionOptions { sequence, decoder } = options.into();
        let sequence = Sequence::new(model, sequence)?;
        let positions = decoder.positions.or(Some(sequence.capacity()));
        let options = DecoderOptions { batch: 1, positions, ..decoder };
        let mut decoder = Decoder::new(model, options)?;
        let launches = decoder.launches_per_step(1, sequence.kv_type())?;
        Ok(Session { decoder, sequence, launches })
    }

    /// Device memory that a session of `capacity` positions takes beside the weights.
    pub fn device_bytes(model: &Model, capacity: usize, kv: KvType, activations: Activations) -> Option<u64> {
        let decoder = DecoderOptions { positions: Some(capacity), activations, ..Default::default() };
        Sequence::device_bytes(model, capacity, kv)?.checked_add(Decoder::device_bytes(model, &decoder)?)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.decoder.model()
    }

    /// The sequence.
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// The sequence, to change it. What it holds afterwards is what the next step continues.
    pub fn sequence_mut(&mut self) -> &mut Sequence {
        self.decoder.forget_logits();
        &mut self.sequence
    }

    /// The decoder.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Tokens fed so far.
    pub fn len(&self) -> usize {
        self.sequence.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.sequence.is_empty()
    }

    /// Positions that the cache has room for.
    pub fn capacity(&self) -> usize {
        self.sequence.capacity()
    }

    /// How keys and values are stored.
    pub fn kv_type(&self) -> KvType {
        self.sequence.kv_type()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.decoder.stats()
    }

    /// Launches of a step.
    pub fn launches_per_step(&self) -> usize {
        self.launches
    }

    /// Layers that a step does in [few launches](Decoder::persistent_launches).
    pub fn persistent_layers(&self) -> usize {
        if self.kv_type() == KvType::F16 { self.decoder.persistent_layers() } else { 0 }
    }

    /// The launches that do them.
    pub fn persistent_launches(&self) -> usize {
        if self.kv_type() == KvType::F16 { self.decoder.persistent_launches() } else { 0 }
    }

    /// Why layers take several launches although [`DecoderOptions::persistent`](super::DecoderOptions::persistent) asks for fewer.
    pub fn not_persistent(&self) -> Option<String> {
        if self.kv_type() != KvType::F16 {
            return Some(format!("a cache of {}: layers in one launch attend over one of f16", self.kv_type()));
        }
        self.decoder.not_persistent().map(|(layer, why)| format!("layer {layer}: {why}"))
    }

    /// The captured step of one token, if there is one.
    pub fn graph(&self) -> Option<GraphInfo> {
        self.decoder.graphs().into_iter().find(|g| g.kv == self.kv_type() && !g.mixed)
    }

    /// How steps are run.
    pub fn mode(&self) -> Mode {
        self.decoder.mode()
    }

    /// Changes how steps are run, at any time: eager steps and graph steps may alternate.
    pub fn set_mode(&mut self, mode: Mode) {
        self.decoder.set_mode(mode);
    }

    /// Appends a token and returns the next one.
    pub fn feed(&mut self, token: u32) -> Result<u32, DecodeError> {
        let next = self.decoder.step(&mut [Feed { sequence: &mut self.sequence, token }])?;
        next.first().copied().ok_or(DecodeError::NoLogits)
    }

    /// Appends tokens and returns the one that follows.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<u32, DecodeError> {
        self.decoder.prefill(&mut self.sequence, tokens)
    }

    /// See [`Decoder::prefill_with_progress`].
    pub fn prefill_with_progress(&mut self, tokens: &[u32], progress: impl FnMut(usize)) -> Result<u32, DecodeError> {
        self.decoder.prefill_with_progress(&mut self.sequence, tokens, progress)
    }

    /// See [`Decoder::prefill_each`].
    pub fn prefill_each(&mut self, tokens: &[u32], each: impl FnMut(Predicted)) -> Result<u32, DecodeError> {
        self.decoder.prefill_each(&mut self.sequence, tokens, each)
    }

    /// Feeds the prompt, then up to `count` times the token that follows. `each` sees every generated token before it is
    /// fed and may stop. Returns the generated tokens.
    ///
    /// The last token is not fed: it needs no position. So `prompt.len() + count - 1` positions suffice. Steps are
    /// [pipelined](Decoder::pipeline): while `each` sees a token, the next one is on its way.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        mut each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>, DecodeError> {
        let mut tokens = Vec::new();
        if count == 0 {
            return Ok(tokens);
        }
        let token = self.prefill(prompt)?;
        tokens.push(token);
        if each(token).is_break() || count == 1 {
            return Ok(tokens);
        }
        let mut pipeline = self.decoder.pipeline(vec![Feed { sequence: &mut self.sequence, token }])?;
        pipeline.limit(count - 1);
        while tokens.len() < count {
            // The cache is full: the last token is fed for the error that says so.
            let Some(&[token]) = pipeline.next_tokens()? else {
                drop(pipeline);
                self.feed(tokens.last().copied().unwrap_or_default())?;
                return Ok(tokens);
            };
            tokens.push(token);
            if each(token).is_break() {
                break;
            }
        }
        Ok(tokens)
    }

    /// The logits of the last step.
    pub fn logits(&self) -> Result<Vec<f32>, DecodeError> {
        self.decoder.logits(0)
    }

    /// The experts that the position of the last step was given to.
    pub fn experts(&self) -> Result<Routes, DecodeError> {
        self.decoder.experts(0)
    }

    /// See [`Decoder::feed_with_hidden`].
    pub fn feed_with_hidden(&mut self, token: u32) -> Result<Hidden, DecodeError> {
        self.decoder.feed_with_hidden(&mut self.sequence, token)
    }

    /// Runs `f` with each launch measured by events.
    pub fn profile<R>(
        &mut self,
        f: impl FnOnce(&mut Session) -> Result<R, DecodeError>,
    ) -> Result<(R, Profile), DecodeError> {
        let stream = self.decoder.stream().clone();
        super::decoder::profiled(&stream, || f(self))
    }

    /// Forgets all tokens; memory and graphs stay.
    pub fn reset(&mut self) {
        self.sequence_mut().reset();
    }

    /// Forgets all but the first `length` tokens.
    pub fn rollback(&mut self, length: usize) -> Result<(), DecodeError> {
        if length < self.len() {
            self.decoder.forget_logits();
        }
        self.sequence.rollback(length)
    }

    /// Changes how many positions the cache has room for and keeps what is cached.
    pub fn set_capacity(&mut self, capacity: usize) -> Result<(), DecodeError> {
        self.sequence.set_capacity(capacity)
    }

    /// Copies the cached positions to the host.
    pub fn snapshot(&self) -> Result<Snapshot, DecodeError> {
        self.sequence.snapshot()
    }

    /// Continues from a snapshot that was taken of a sequence of the same loaded model.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), DecodeError> {
        self.sequence_mut().restore(snapshot)
    }

    /// See [`Sequence::raw_cache`].
    pub fn raw_cache(&self) -> Result<Vec<u8>, DecodeError> {
        self.sequence.raw_cache()
    }
}
