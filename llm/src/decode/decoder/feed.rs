//! Tokens that are appended: to several sequences in a step, or the prompt of one.

use super::lane::Run;
use super::runs::Fed;
use super::{Decoder, Part, Predict};
use crate::decode::DecodeError;
use crate::decode::routes::Routes;
use crate::decode::sequence::Sequence;
use crate::decode::shape::Shape;
use crate::decode::step::{Counted, DecodeStep};
use gpu_kernels::sampling::NONE;
use warpsmith_runtime::{Error, Stream};

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

/// What was computed of one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The logits of the token that follows.
    pub logits: Vec<f32>,
    /// The experts that the position was given to.
    pub experts: Routes,
}

/// Who is told of a prompt while it is fed.
#[derive(Default)]
struct Watched<'a> {
    /// What was computed of each token.
    each: Option<&'a mut dyn FnMut(Predicted)>,
    /// How many tokens were computed.
    progress: Option<&'a mut dyn FnMut(usize)>,
}

impl Decoder {
    /// Appends one token to each of the sequences, in one step, and gives the tokens that follow, in the same order: a
    /// [mixed step](Self::step_mixed) of as many sequences as a batch has.
    pub fn step(&mut self, feeds: &mut [Feed<'_>]) -> Result<&[u32], DecodeError> {
        self.check_batch(feeds.len())?;
        let mut parts: Vec<Part<'_>> = feeds
            .iter_mut()
            .map(|Feed { sequence, token }| Part {
                sequence,
                tokens: std::slice::from_ref(token),
                predict: Predict::Next,
            })
            .collect();
        self.step_mixed(&mut parts)
    }

    /// Appends the tokens of a prompt, up to [`Decoder::chunk`] at once, and gives the token that follows. A prompt of one token is a
    /// step like any other.
    pub fn prefill(&mut self, sequence: &mut Sequence, tokens: &[u32]) -> Result<u32, DecodeError> {
        self.prefill_chunks(sequence, tokens, Watched::default())
    }

    /// The same, and says how many of the tokens have been computed: chunk by chunk, while the next one is on its way, and in the end
    /// all of them.
    pub fn prefill_with_progress(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        mut progress: impl FnMut(usize),
    ) -> Result<u32, DecodeError> {
        self.prefill_chunks(sequence, tokens, Watched { progress: Some(&mut progress), ..Watched::default() })
    }

    /// [`Decoder::prefill`] that also gives logits and experts of every token of the prompt, in order, as chunks are done. If it fails,
    /// those that were given are of positions that the sequence does not have. All processes get them, where several run the model.
    pub fn prefill_each(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        mut each: impl FnMut(Predicted),
    ) -> Result<u32, DecodeError> {
        if !self.options.prompt_logits {
            return Err(DecodeError::NoLogits);
        }
        self.prefill_chunks(sequence, tokens, Watched { each: Some(&mut each), ..Watched::default() })
    }

    fn prefill_chunks(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        watched: Watched<'_>,
    ) -> Result<u32, DecodeError> {
        if let [token] = *tokens {
            let next = self.step(&mut [Feed { sequence, token }])?.first().copied().unwrap_or(NONE);
            if let Some(each) = watched.each {
                each(Predicted { logits: self.logits(0)?, experts: self.experts(0)? });
            }
            if let Some(progress) = watched.progress {
                progress(1);
            }
            return Ok(next);
        }
        self.check_sequence(sequence, sequence.kv_type())?;
        sequence.check(tokens)?;
        self.catch_up(sequence)?;
        self.prepare_positions(sequence.len() + tokens.len())?;
        let reserved = sequence.reserve(tokens.len());
        let result = reserved.and_then(|()| self.try_prefill(sequence, tokens, watched));
        self.settle(&result);
        if result.is_err() {
            sequence.unreserve();
        }
        let logits = result?;
        let next = self.tokens.first().copied().ok_or(DecodeError::NoLogits)?;
        let steps = tokens.len().div_ceil(self.chunk());
        sequence.advance(tokens, steps, self.prompt_recipe(sequence.kv_type()), Some(next));
        self.logits = logits;
        Ok(next)
    }

    /// Feeds a prompt; where the logits of its last token are.
    fn try_prefill(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        Watched { mut each, mut progress }: Watched<'_>,
    ) -> Result<std::ops::Range<usize>, DecodeError> {
        let parameters = sequence.parameters(tokens, &self.lead.stream)?;
        let (chunk, kv) = (self.chunk(), sequence.kv_type());
        let (mut place, mut issued) = (0, None);
        for (i, part) in tokens.chunks(chunk).enumerate() {
            let before = i * chunk;
            let columns = self.by_rank(|rank| {
                part.iter().enumerate().map(|(n, &token)| sequence.column(rank, token, before + n)).collect()
            });
            let shape = self.prompt_shape(part.len(), kv, before + part.len() == tokens.len(), each.is_some());
            let planned = self.planned(shape);
            self.samplers.clear();
            self.samplers.set(0, parameters);
            self.samplers.write(&self.lead.stream)?;
            let run = Run::of(planned.0, part.len(), shape.logits, (sequence.len() + before) as u32);
            self.stage_columns(planned.0, &columns, shape.logits, &[run])?;
            let chunks = shape.chunks.then_some(sequence.len() + before);
            let fed = Fed { count: part.len(), predicted: shape.logits, chunks };
            self.stage_runs(planned.0, std::iter::once((&mut *sequence, fed)))?;
            // SAFETY: as in `try_mixed`; `sequence` is borrowed until the prompt has been computed.
            unsafe { self.launch(planned) }?;
            // No device gets so far ahead that the host waits for its queue while it waits for another.
            self.wait_for_ranks()?;
            place = planned.0.logits.saturating_sub(1);
            if let Some(progress) = &mut progress {
                let now = (before + part.len(), self.lead.stream.record()?);
                if let Some((done, event)) = issued.replace(now) {
                    event.synchronize()?;
                    progress(done);
                }
            }
            if let Some(each) = &mut each {
                for place in planned.0.logits - part.len()..planned.0.logits {
                    each(Predicted { logits: self.logits_at(place)?, experts: self.routes_of(place)? });
                }
            }
        }
        let position = sequence.len() + tokens.len() - 1;
        self.finish(0..1, |_| (position, 0))?;
        if let Some(progress) = progress {
            progress(tokens.len());
        }
        Ok(place..place + 1)
    }

    /// Appends a token eagerly, whatever the mode, and reads the residual stream on the way. For debugging
    /// and tests: it waits after every layer.
    pub fn feed_with_hidden(&mut self, sequence: &mut Sequence, token: u32) -> Result<Hidden, DecodeError> {
        if let (Some(_), Some((_, rank, ranks))) = (self.group.stage(), self.model.processes()) {
            let (what, hint) = ("residual streams of all layers", "each process has those of its own");
            return Err(DecodeError::Elsewhere { what, rank, ranks, hint });
        }
        self.check_sequence(sequence, sequence.kv_type())?;
        sequence.check(&[token])?;
        self.catch_up(sequence)?;
        self.prepare_positions(sequence.len() + 1)?;
        let reserved = sequence.reserve(1);
        let result = reserved.and_then(|()| self.try_hidden(sequence, token));
        self.settle(&result);
        if result.is_err() {
            sequence.unreserve();
        }
        let states = result?;
        let next = self.tokens.first().copied().ok_or(DecodeError::NoLogits)?;
        sequence.advance(&[token], 1, Some(self.step_recipe()), Some(next));
        self.logits = 0..1;
        Ok(Hidden { states, next })
    }

    fn try_hidden(&mut self, sequence: &mut Sequence, token: u32) -> Result<Vec<Vec<f32>>, DecodeError> {
        let parameters = sequence.parameters(&[token], &self.lead.stream)?;
        self.samplers.clear();
        self.samplers.set(0, parameters);
        self.samplers.write(&self.lead.stream)?;
        let shape = Shape { pages: self.pages([&*sequence]), ..Shape::decode(1, sequence.kv_type()) };
        let shape = self.drawing(shape);
        let columns = self.by_rank(|rank| vec![sequence.column(rank, token, 0)]);
        self.stage_columns(shape, &columns, 1, &[])?;
        self.stage_runs(shape, std::iter::once((&mut *sequence, Fed::TOKEN)))?;
        let layers = self.model.config().layers;
        self.under_way = true;
        let mut steps: Vec<_> = self.steps(shape).map(|(step, stream)| (step, stream, Counted::new(stream))).collect();
        // SAFETY: the column leads to the cache of `sequence`, which is borrowed until the step has ended: `finish` or `settle` waits
        // for it.
        let result = unsafe { hidden(&mut steps, layers) };
        let launches = steps.first().map_or(0, |(.., counted)| counted.launches as u64);
        drop(steps);
        let states = result.map_err(|(rank, source)| self.of_rank(rank, source))?;
        self.stats.eager_launches += launches;
        self.stats.eager_steps += 1;
        let position = sequence.len();
        self.finish(0..1, |_| (position, 0))?;
        Ok(states)
    }
}

/// The residual stream of a step of one column: behind the embedding and behind every layer, and normed, by an extra launch, where the step
/// folds the norm into the projection. Errors are of the device of that rank.
///
/// # Safety
/// That of [`DecodeStep`].
unsafe fn hidden(
    steps: &mut [(DecodeStep<'_>, &Stream, Counted<&Stream>)],
    layers: usize,
) -> Result<Vec<Vec<f32>>, (usize, Error)> {
    let mut states = Vec::with_capacity(layers + 2);
    for part in 0..layers + 2 {
        for (rank, (step, _, on)) in steps.iter_mut().enumerate() {
            let launched = match part {
                0 => step.embed(on),
                // SAFETY: the caller's promise.
                layer if layer <= layers => unsafe { step.layer(on, layer - 1) },
                // SAFETY: the caller's promise.
                _ => unsafe { step.head(on) },
            };
            launched.map_err(|source| (rank, source))?;
        }
        if let Some((step, stream, _)) = steps.first_mut() {
            let state = if part <= layers { Ok(step.residual()) } else { step.normed(&mut &**stream) };
            states.push(state.and_then(|state| stream.read(state)).map_err(|source| (0, source))?);
        }
    }
    Ok(states)
}
