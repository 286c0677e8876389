//! Tokens that are appended: to several sequences in a step, or the prompt of one.

use super::Decoder;
use crate::decode::sequence::Sequence;
use crate::decode::shape::Shape;
use crate::decode::step::Counted;
use crate::decode::{DecodeError, KvType};
use gpu_kernels::sampling::NONE;
use gpu_kernels::state::Column;

/// A sequence and the token to append to it.
#[derive(Debug)]
pub struct Feed<'a> {
    /// The sequence.
    pub sequence: &'a mut Sequence,
    /// The token.
    pub token: u32,
}

/// The residual stream of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// The embedding, the stream after every layer, and the normed input of the output projection:
    /// `layers + 2` vectors of `hidden`.
    pub states: Vec<Vec<f32>>,
    /// The token that was chosen.
    pub next: u32,
}

impl Decoder {
    /// Appends one token to each of the sequences, in one step, and gives the tokens that follow, in the same order.
    pub fn step(&mut self, feeds: &mut [Feed<'_>]) -> Result<&[u32], DecodeError> {
        self.check_batch(feeds.len())?;
        let Some(first) = feeds.first() else { return Ok(&[]) };
        let kv = first.sequence.kv_type();
        let mut longest = 0;
        for feed in feeds.iter() {
            self.check_sequence(feed.sequence, kv)?;
            feed.sequence.check(&[feed.token])?;
            longest = longest.max(feed.sequence.len() + 1);
        }
        self.prepare_positions(longest)?;
        let (batch, recipe) = (feeds.len(), self.recipe(false));
        let reserved = feeds.iter_mut().try_for_each(|feed| feed.sequence.reserve(1));
        let result = reserved.and_then(|()| self.try_step(feeds, kv));
        self.settle(&result);
        if result.is_err() {
            feeds.iter_mut().for_each(|feed| feed.sequence.unreserve());
        }
        result?;
        for (feed, &next) in feeds.iter_mut().zip(&self.tokens) {
            feed.sequence.advance(&[feed.token], recipe, Some(next));
        }
        self.logits = 0..batch;
        Ok(&self.tokens)
    }

    fn try_step(&mut self, feeds: &mut [Feed<'_>], kv: KvType) -> Result<(), DecodeError> {
        let columns: Vec<Column> = feeds.iter().map(|feed| feed.sequence.column(feed.token, 0)).collect();
        self.samplers.clear();
        for (i, feed) in feeds.iter_mut().enumerate() {
            let parameters = feed.sequence.parameters(&[feed.token], &self.stream)?;
            self.samplers.set(i, parameters);
        }
        self.samplers.write(&self.stream)?;
        let pages = self.options.persistent && feeds.iter().any(|feed| feed.sequence.pool().is_some());
        let planned = self.planned(Shape { pages, ..Shape::decode(feeds.len(), kv) });
        self.stage_columns(planned.0, &columns, columns.len())?;
        // SAFETY: each column and sampler leads to what its sequence owns. The feeds borrow the sequences, each once, until
        // the step has ended: `finish` waits for it, and on every error `settle` does.
        unsafe { self.launch(planned) }?;
        self.finish(0..feeds.len(), |i| feeds.get(i).map_or((0, i), |f| (f.sequence.len(), i)))
    }

    /// Appends the tokens of a prompt, up to [`Decoder::chunk`] at once, and gives the token that follows. A prompt of one token is a
    /// step like any other.
    pub fn prefill(&mut self, sequence: &mut Sequence, tokens: &[u32]) -> Result<u32, DecodeError> {
        self.prefill_chunks(sequence, tokens, None)
    }

    /// The same, and gives the logits of every token of the prompt, in order, as chunks are done. If it fails, those that were
    /// given are of positions that the sequence does not have.
    pub fn prefill_each(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        mut each: impl FnMut(Vec<f32>),
    ) -> Result<u32, DecodeError> {
        if !self.options.prompt_logits {
            return Err(DecodeError::NoLogits);
        }
        self.prefill_chunks(sequence, tokens, Some(&mut each))
    }

    fn prefill_chunks(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        each: Option<&mut dyn FnMut(Vec<f32>)>,
    ) -> Result<u32, DecodeError> {
        if let [token] = *tokens {
            let next = self.step(&mut [Feed { sequence, token }])?.first().copied().unwrap_or(NONE);
            if let Some(each) = each {
                each(self.logits(0)?);
            }
            return Ok(next);
        }
        self.check_sequence(sequence, sequence.kv_type())?;
        sequence.check(tokens)?;
        self.prepare_positions(sequence.len() + tokens.len())?;
        // Caches in pages have no kernel for prompts.
        let fast = self.options.fast_prefill && sequence.pool().is_none();
        let reserved = sequence.reserve(tokens.len());
        let result = reserved.and_then(|()| self.try_prefill(sequence, tokens, fast, each));
        self.settle(&result);
        if result.is_err() {
            sequence.unreserve();
        }
        let logits = result?;
        let next = self.tokens.first().copied().ok_or(DecodeError::NoLogits)?;
        sequence.advance(tokens, self.recipe(fast), Some(next));
        self.logits = logits;
        Ok(next)
    }

    /// Feeds a prompt; where the logits of its last token are.
    fn try_prefill(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        fast: bool,
        mut each: Option<&mut dyn FnMut(Vec<f32>)>,
    ) -> Result<std::ops::Range<usize>, DecodeError> {
        let parameters = sequence.parameters(tokens, &self.stream)?;
        let (chunk, kv) = (self.chunk(), sequence.kv_type());
        let mut place = 0;
        for (i, part) in tokens.chunks(chunk).enumerate() {
            let before = i * chunk;
            let columns: Vec<Column> =
                part.iter().enumerate().map(|(n, &token)| sequence.column(token, before + n)).collect();
            let shape = Shape::prompt(part.len(), kv, before + part.len() == tokens.len(), each.is_some(), fast);
            let planned = self.planned(shape);
            self.samplers.clear();
            self.samplers.set(0, parameters);
            self.samplers.write(&self.stream)?;
            self.stage_columns(planned.0, &columns, shape.logits)?;
            // SAFETY: as in `try_step`; `sequence` is borrowed until the prompt has been computed.
            unsafe { self.launch(planned) }?;
            place = planned.0.logits.saturating_sub(1);
            if let Some(each) = &mut each {
                for place in planned.0.logits - part.len()..planned.0.logits {
                    each(self.stream.read(self.buffers.logits_of(place))?);
                }
            }
        }
        let position = sequence.len() + tokens.len() - 1;
        self.finish(0..1, |_| (position, 0))?;
        Ok(place..place + 1)
    }

    /// Appends a token eagerly, whatever the mode, and reads the residual stream on the way. For debugging
    /// and tests: it waits after every layer.
    pub fn feed_with_hidden(&mut self, sequence: &mut Sequence, token: u32) -> Result<Hidden, DecodeError> {
        self.check_sequence(sequence, sequence.kv_type())?;
        sequence.check(&[token])?;
        self.prepare_positions(sequence.len() + 1)?;
        sequence.reserve(1)?;
        let result = self.try_hidden(sequence, token);
        self.settle(&result);
        let states = result?;
        let next = self.tokens.first().copied().ok_or(DecodeError::NoLogits)?;
        sequence.advance(&[token], self.recipe(false), Some(next));
        self.logits = 0..1;
        Ok(Hidden { states, next })
    }

    fn try_hidden(&mut self, sequence: &mut Sequence, token: u32) -> Result<Vec<Vec<f32>>, DecodeError> {
        let parameters = sequence.parameters(&[token], &self.stream)?;
        self.samplers.clear();
        self.samplers.set(0, parameters);
        self.samplers.write(&self.stream)?;
        let shape = Shape { pages: sequence.pool().is_some(), ..Shape::decode(1, sequence.kv_type()) };
        self.stage_columns(shape, &[sequence.column(token, 0)], 1)?;
        let layers = self.model.config().layers;
        let mut states = Vec::with_capacity(layers + 2);
        let (mut step, stream) = self.work(shape);
        let mut on = stream;
        let mut counted = Counted::new(&mut on);
        step.embed(&mut counted)?;
        states.push(stream.read(step.residual())?);
        for layer in 0..layers {
            // SAFETY: the column leads to the cache of `sequence`, which is borrowed until the step has ended: `finish`
            // or `settle` waits for it.
            unsafe { step.layer(&mut counted, layer) }?;
            states.push(stream.read(step.residual())?);
        }
        // SAFETY: as for the layers.
        unsafe { step.head(&mut counted) }?;
        let launches = counted.launches as u64;
        // An extra launch, of the norm that the step folds into the projection.
        states.push(stream.read(step.normed(&mut on)?)?);
        self.stats.eager_launches += launches;
        self.stats.eager_steps += 1;
        let position = sequence.len();
        self.finish(0..1, |_| (position, 0))?;
        Ok(states)
    }
}
