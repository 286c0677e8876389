//! Steps of any mix: parts of prompts, tokens of sequences that decode, and drafts to verify, side by side.

use super::lane::Run;
use super::runs::Fed;
use super::{Decoder, DecoderOptions};
use crate::decode::listing::ListedLaunch;
use crate::decode::pool::Recipe;
use crate::decode::sequence::Sequence;
use crate::decode::shape::Shape;
use crate::decode::{DecodeError, KvType};
use gpu_kernels::attention::{prefill, prompt};
use gpu_kernels::delta::chunk;

/// Tokens of a step's prompts, on average, from which on they attend in tiles by the kernel with the bits of single steps: fewer keep
/// too few multiprocessors busy with what is then done one position after the other.
const TILED: usize = 32;

/// Tokens of a prompt in a step from which on delta nets take it in chunks, where they may: two chunks.
const CHUNKED: usize = 2 * chunk::CHUNK as usize;

/// Which of its tokens a part is predicted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Predict {
    /// None: more of a prompt is to come.
    Nothing,
    /// The last.
    #[default]
    Next,
    /// Every one.
    Each,
}

/// Tokens that a step appends to a sequence, and what is predicted.
#[derive(Debug)]
pub struct Part<'a> {
    /// The sequence.
    pub sequence: &'a mut Sequence,
    /// The tokens, at least one.
    pub tokens: &'a [u32],
    /// From which of them a token is predicted.
    pub predict: Predict,
}

impl Part<'_> {
    /// How many of its tokens are predicted from: the last so many.
    fn predicted(&self) -> usize {
        match self.predict {
            Predict::Nothing => 0,
            Predict::Next => 1,
            Predict::Each => self.tokens.len(),
        }
    }

    /// Whether its tokens may attend as those of prompts do: none is a step of its own.
    fn is_prompt(&self) -> bool {
        self.predicted() < self.tokens.len()
    }

    /// Whether delta nets take them in chunks, of at least so many tokens.
    fn in_chunks(&self, least: usize) -> bool {
        self.is_prompt() && self.tokens.len() >= least
    }
}

/// The prompts among the parts, as columns of the shape: those that are predicted from are its last `predicted`, the others its first.
fn runs(parts: &[Part<'_>], shape: Shape, predicted: usize) -> Vec<Run> {
    let (mut first, mut next) = (0, shape.columns - predicted);
    let mut runs = Vec::new();
    for part in parts {
        let (count, others) = (part.tokens.len(), part.tokens.len() - part.predicted());
        if part.is_prompt() {
            let last = if others < count { next } else { first + count - 1 };
            runs.push(Run { first, count, last, position: part.sequence.len() as u32 });
        }
        first += others;
        next += count - others;
    }
    runs
}

/// A token to append to a sequence, and what may follow it.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The sequence.
    pub sequence: &'a mut Sequence,
    /// The token, as for a [`Feed`](super::Feed).
    pub token: u32,
    /// Guesses of the tokens that follow, from whatever source. Those for which the cache has no room are left out.
    pub draft: &'a [u32],
}

impl Decoder {
    /// Begins an empty sequence with what its [pool](crate::decode::Pool) keeps of `tokens`: full pages of sequences that began likewise and were
    /// computed by a decoder with these options. How many tokens it has then; the others are still to be fed, one at least. 0 where the pool
    /// knows none, where the sequence is in no pool, and where it is not empty.
    pub fn adopt_prefix(&self, sequence: &mut Sequence, tokens: &[u32]) -> Result<usize, DecodeError> {
        self.check_sequence(sequence, sequence.kv_type())?;
        match self.prompt_recipe(sequence.kv_type()) {
            Some(recipe) if sequence.is_empty() => sequence.adopt(tokens, recipe),
            _ => Ok(0),
        }
    }

    /// How single steps compute keys and values.
    pub(super) fn step_recipe(&self) -> Recipe {
        let DecoderOptions { activations, tuned, .. } = self.options;
        Recipe { activations, tuned, tiled: false }
    }

    /// How prompts do, if they have the same bits wherever a prompt is cut: of attention over int8 caches in tiles they have not.
    pub(super) fn prompt_recipe(&self, kv: KvType) -> Option<Recipe> {
        let recipe = Recipe { tiled: self.options.fast_prefill, ..self.step_recipe() };
        (!recipe.tiled || kv != KvType::Int8).then_some(recipe)
    }

    /// Tiles of prompts of so many tokens each in a step; 0: they attend by the kernel for single steps.
    pub(super) fn tiles_of(&self, kv: KvType, prompts: impl Iterator<Item = usize> + Clone) -> usize {
        let c = self.model.config();
        let (rows, tokens) = (prefill::rows(c.head_dim as u32) as usize, prompts.clone().sum::<usize>());
        let many = tokens >= TILED * prompts.clone().count();
        let exact = || many && prompt::on_tensor_cores(kv, c.head_dim as u32, self.model.device().sm());
        if self.options.fast_prefill || exact() { prompts.map(|n| n.div_ceil(rows)).sum() } else { 0 }
    }

    /// Tokens of a prompt in a step from which on delta nets take it in chunks. What a prompt gets depends on its own tokens alone.
    pub(super) fn least_in_chunks(&self) -> usize {
        let possible = self.options.fast_prefill && chunk::on_tensor_cores(self.model.device().sm());
        if possible && self.lead.runs.is_some() { CHUNKED } else { usize::MAX }
    }

    /// The shape of a step that is one prompt of `count` tokens, as [`Shape::prompt`] has it, with the tiles and chunks that it is taken in.
    pub(super) fn prompt_shape(&self, count: usize, kv: KvType, predicted: bool, each: bool) -> Shape {
        let shape = Shape::prompt(count, kv, predicted, each).tiled(self.tiles_of(kv, std::iter::once(count)), false);
        shape.in_chunks(count >= self.least_in_chunks())
    }

    /// Appends tokens of any number to each of the sequences, in one step, and gives what is predicted: the tokens of the parts in
    /// order, and of a part's tokens in order. [`Decoder::logits`] counts its places likewise.
    ///
    /// The tokens of all parts are at most [`Decoder::most_tokens`], and those that are predicted from at most [`Decoder::most_logits`].
    /// Each sequence gets the results that it gets alone, token by token, bit for bit. If the step fails, nothing was appended to any.
    ///
    /// With [`fast_prefill`](super::DecoderOptions::fast_prefill) the tokens of a prompt get the results that they get in
    /// [`prefill`](Decoder::prefill): those of a part of several tokens that is predicted from its last or not at all, or of one
    /// that is not predicted from. Drafts and single tokens get those of single steps.
    pub fn step_mixed(&mut self, parts: &mut [Part<'_>]) -> Result<&[u32], DecodeError> {
        let (shape, longest) = self.check_mixed(parts)?;
        let (kv, predicted) = (shape.kv, shape.logits);
        for part in parts.iter_mut() {
            self.catch_up(part.sequence)?;
        }
        self.prepare_positions(longest)?;
        let reserved = parts.iter_mut().try_for_each(|part| part.sequence.reserve(part.tokens.len()));
        let result = reserved.and_then(|()| self.try_mixed(parts, shape));
        self.settle(&result);
        if result.is_err() {
            parts.iter_mut().for_each(|part| part.sequence.unreserve());
        }
        let start = result?;
        let mut place = 0;
        for part in parts.iter_mut() {
            let count = part.predicted();
            let recipe = if part.is_prompt() { self.prompt_recipe(kv) } else { Some(self.step_recipe()) };
            place += count;
            // What was chosen last was marked for a penalty where it follows all tokens of the part.
            let next = if count == 1 { self.tokens.get(place - 1).copied() } else { None };
            part.sequence.advance(part.tokens, 1, recipe, next);
        }
        self.logits = start..start + predicted;
        Ok(&self.tokens)
    }

    /// The launches of the step that [`step_mixed`](Self::step_mixed) would run of these parts, in order, without launching any; each sequence as if it
    /// had `behind` tokens, of which those that it has not are zeros, and nothing is cached. What launches are told in device memory (tokens,
    /// positions, and where the caches are) is written there, until the next step.
    ///
    /// # Errors
    /// Those of such a step, and [`DecodeError::Rollback`] for a sequence that has more tokens.
    pub fn list_mixed(&mut self, parts: &mut [Part<'_>], behind: usize) -> Result<Vec<ListedLaunch>, DecodeError> {
        for Part { sequence, tokens, .. } in parts.iter_mut() {
            self.check_sequence(sequence, sequence.kv_type())?;
            let (length, capacity) = (sequence.len(), sequence.capacity());
            if behind < length {
                return Err(DecodeError::Rollback { to: behind, length });
            }
            if behind >= capacity {
                let most = self.model.config().context;
                return Err(DecodeError::ContextFull { tokens: tokens.len(), length: behind, capacity, most });
            }
            self.catch_up(sequence)?;
        }
        let lengths: Vec<usize> = parts.iter().map(|part| part.sequence.len()).collect();
        let more = |part: &Part<'_>| behind - part.sequence.len() + part.tokens.len();
        let reserved = parts.iter_mut().try_for_each(|part| part.sequence.reserve(more(part)));
        parts.iter_mut().for_each(|part| part.sequence.pretend(behind));
        let listed = reserved.and_then(|()| {
            let (shape, longest) = self.check_mixed(parts)?;
            self.prepare_positions(longest)?;
            self.stage_mixed(parts, shape, shape)?;
            self.lead.stream.synchronize()?;
            self.list(0, self.drawing(shape))
        });
        for (part, length) in parts.iter_mut().zip(lengths) {
            part.sequence.pretend(length);
            part.sequence.unreserve();
        }
        listed
    }

    /// Checks a step; its shape, and the positions of its longest sequence.
    fn check_mixed(&self, parts: &[Part<'_>]) -> Result<(Shape, usize), DecodeError> {
        let Some(first) = parts.first() else {
            return Err(DecodeError::Batch { what: "parts of a step", given: 0, most: self.most_tokens() });
        };
        let kv = first.sequence.kv_type();
        let (mut longest, mut tokens, mut predicted) = (0, 0usize, 0usize);
        for part in parts.iter() {
            self.check_sequence(part.sequence, kv)?;
            part.sequence.check(part.tokens)?;
            longest = longest.max(part.sequence.len() + part.tokens.len());
            tokens = tokens.saturating_add(part.tokens.len());
            predicted = predicted.saturating_add(part.predicted());
        }
        for (what, given, most) in
            [("tokens in a step", tokens, self.most_tokens()), ("predictions in a step", predicted, self.most_logits())]
        {
            if given > most {
                return Err(DecodeError::Batch { what, given, most });
            }
        }
        // Each a token: the launches of a decoding step, which are fewer.
        let decodes = tokens == parts.len() && predicted == tokens && tokens <= self.options.batch;
        let shape = if decodes { Shape::decode(tokens, kv) } else { self.mixed_shape(parts, tokens, kv, predicted) };
        Ok((Shape { pages: self.pages(parts.iter().map(|part| &*part.sequence)), ..shape }, longest))
    }

    fn mixed_shape(&self, parts: &[Part<'_>], tokens: usize, kv: KvType, predicted: usize) -> Shape {
        let shape = Shape::mixed(tokens, kv, predicted);
        let shape = if self.lead.runs.is_some() { shape.of_sequences(parts.len()) } else { shape };
        let least = self.least_in_chunks();
        let shape = shape.in_chunks(parts.iter().any(|part| part.in_chunks(least)));
        let prompts = parts.iter().filter(|part| part.is_prompt()).map(|part| part.tokens.len());
        let steps = prompts.clone().count() < parts.len();
        match self.tiles_of(kv, prompts) {
            0 => shape,
            tiles => shape.tiled(tiles, steps),
        }
    }

    /// Runs the step; the place of its first logits.
    fn try_mixed(&mut self, parts: &mut [Part<'_>], shape: Shape) -> Result<usize, DecodeError> {
        let planned = self.planned(shape);
        let (start, places) = self.stage_mixed(parts, shape, planned.0)?;
        // SAFETY: each column and sampler leads to what its sequence owns, or to memory of the samplers. The parts borrow the
        // sequences, each once, until the step has ended: `finish` waits for it, and on every error `settle` does.
        unsafe { self.launch(planned) }?;
        self.finish(start..start + shape.logits, |i| places.get(i).copied().unwrap_or_default())?;
        Ok(start)
    }

    /// Writes what the launches of the step are told, which has the shape that is `planned`; the place of its first logits, and of each that is
    /// predicted the position and the part.
    fn stage_mixed(
        &mut self,
        parts: &mut [Part<'_>],
        shape: Shape,
        planned: Shape,
    ) -> Result<(usize, Vec<(usize, usize)>), DecodeError> {
        let columns = |rank: usize, predicted: bool| {
            parts.iter().flat_map(move |part| {
                let split = part.tokens.len() - part.predicted();
                let range = if predicted { split..part.tokens.len() } else { 0..split };
                range.map(move |i| part.sequence.column(rank, part.tokens[i], i))
            })
        };
        let columns = self.by_rank(|rank| columns(rank, false).chain(columns(rank, true)).collect());
        let start = planned.logits - shape.logits;
        self.samplers.clear();
        let mut place = start;
        let mut places = Vec::with_capacity(shape.logits);
        for (number, part) in parts.iter_mut().enumerate() {
            let (length, count) = (part.sequence.len(), part.predicted());
            for end in part.tokens.len() - count + 1..=part.tokens.len() {
                let fed = &part.tokens[..end];
                let parameters = if count == 1 {
                    part.sequence.parameters(fed, &self.lead.stream)?
                } else {
                    part.sequence.parameters_apart(fed, &self.lead.stream, self.samplers.seen(place))?
                };
                self.samplers.set(place, parameters);
                places.push((length + end - 1, number));
                place += 1;
            }
        }
        self.samplers.write(&self.lead.stream)?;
        let runs = runs(parts, planned, shape.logits);
        self.stage_columns(planned, &columns, shape.logits, &runs)?;
        let least = self.least_in_chunks();
        let counted = parts.iter_mut().map(|part| {
            let chunks = part.in_chunks(least).then_some(part.sequence.len());
            let fed = Fed { count: part.tokens.len(), predicted: part.predicted(), chunks };
            (&mut *part.sequence, fed)
        });
        self.stage_runs(planned, counted)?;
        Ok((start, places))
    }

    /// Appends a token to each of the sequences, and as many of the tokens of its draft as are those that follow. For each sequence
    /// it gives the tokens that follow the one that was fed, at least one: the accepted tokens of the draft, and one more, which is
    /// not fed and is the next to be.
    ///
    /// A token is accepted if it is the one that the sequence's [`Sampling`](crate::decode::Sampling) chooses at its position. As that
    /// depends on logits and position alone, the tokens are those of steps without drafts, greedy or drawn: a draft changes how
    /// many steps they take, and nothing else.
    ///
    /// A step has at most [`Decoder::most_logits`] tokens, those of drafts included: see [`DecoderOptions::drafts`](super::DecoderOptions::drafts).
    pub fn step_drafts(&mut self, drafts: &mut [Draft<'_>]) -> Result<Vec<Vec<u32>>, DecodeError> {
        let fed: Vec<Vec<u32>> = drafts
            .iter()
            .map(|d| {
                let room = d.sequence.capacity().saturating_sub(d.sequence.len() + 1);
                let draft = &d.draft[..room.min(d.draft.len())];
                std::iter::once(d.token).chain(draft.iter().copied()).collect()
            })
            .collect();
        let mut parts: Vec<Part<'_>> = drafts
            .iter_mut()
            .zip(&fed)
            .map(|(d, tokens)| Part { sequence: &mut *d.sequence, tokens, predict: Predict::Each })
            .collect();
        let mut predicted = self.step_mixed(&mut parts)?;
        let mut all = Vec::with_capacity(fed.len());
        for (draft, fed) in drafts.iter_mut().zip(&fed) {
            let (own, rest) = predicted.split_at(fed.len());
            predicted = rest;
            let accepted = draft.sequence.accept(fed, own)?;
            all.push(own[..accepted].to_vec());
        }
        Ok(all)
    }
}
