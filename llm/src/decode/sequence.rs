//! A sequence: the tokens that were fed, and their keys and values on the device.

use super::delta::{States, StatesShape};
use super::kv::{CacheShape, Snapshot};
use super::own::OwnCache;
use super::pool::{Paged, Pool, Recipe};
use super::sampling::{Parameters, Sampler, Sampling, Seen};
use super::{DecodeError, KvType, Model};
use gpu_kernels::delta::Run;
use gpu_kernels::state::Column;
use std::ops::Range;
use warpsmith_runtime::{Error, Stream};

/// What a sequence is made with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SequenceOptions {
    /// Positions that the cache has room for; `None`: the model's context.
    pub capacity: Option<usize>,
    /// How keys and values are stored.
    pub kv: KvType,
    /// How the next token is chosen.
    pub sampling: Sampling,
}

/// Tokens and their cached keys and values; nothing else. A [`Decoder`](super::Decoder) of the same model appends to it,
/// alone or together with others, and any decoder of the model may do the next step.
///
/// A call that fails leaves the length and the cached positions as they were.
pub struct Sequence {
    model: Model,
    cache: Cache,
    /// Where the model has layers whose past is a state.
    states: Option<States>,
    kind: KvType,
    tokens: Vec<u32>,
    choice: Sampler,
}

/// Where keys and values are.
enum Cache {
    /// In memory for the whole capacity: on the first device of the model, and on the others.
    Own(OwnCache),
    /// In pages of a pool.
    Paged(Paged),
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence")
            .field("length", &self.len())
            .field("capacity", &self.capacity())
            .field("kv", &self.kv_type())
            .field("sampling", self.sampling())
            .finish_non_exhaustive()
    }
}

impl Sequence {
    /// An empty sequence. If it does not fit into free memory, nothing is allocated.
    pub fn new(model: &Model, options: SequenceOptions) -> Result<Sequence, DecodeError> {
        let c = model.config();
        let capacity = options.capacity.unwrap_or(c.context);
        check_capacity(capacity, c.context)?;
        check_memory(model, capacity, options.kv)?;
        Ok(Sequence {
            choice: Sampler::new(model, options.sampling)?,
            cache: Cache::Own(OwnCache::new(model, capacity, options.kv)?),
            states: States::new(model)?,
            kind: options.kv,
            model: model.clone(),
            tokens: Vec::new(),
        })
    }

    /// An empty sequence that keeps its keys and values in pages of a pool: as many as it needs, and none before it needs them. The
    /// capacity is the most that it may need. Results are the same to the bit.
    ///
    /// A step for which the pool has no page left fails with [`DecodeError::PoolFull`], and nothing is lost.
    pub fn in_pool(pool: &Pool, options: SequenceOptions) -> Result<Sequence, DecodeError> {
        let (model, kv) = (pool.model(), pool.options().kv);
        if options.kv != kv {
            return Err(DecodeError::OtherPool { reason: format!("it stores {}, the pool {kv}", options.kv) });
        }
        let most = model.config().context;
        let capacity = options.capacity.unwrap_or(most);
        check_capacity(capacity, most)?;
        Ok(Sequence {
            choice: Sampler::new(model, options.sampling)?,
            states: states_beside_pages(model)?,
            cache: Cache::Paged(Paged::new(pool, capacity)?),
            kind: kv,
            model: model.clone(),
            tokens: Vec::new(),
        })
    }

    /// Another sequence with the same tokens, cache and sampling, and no bitset of allowed tokens. In a pool both have the same pages until one of them
    /// writes: a page that is copied then is all that a fork costs. Else the whole cache is copied. States are copied in any case.
    pub fn fork(&self) -> Result<Sequence, DecodeError> {
        let cache = match &self.cache {
            Cache::Paged(paged) => {
                check_states(&self.model)?;
                Cache::Paged(paged.fork()?)
            }
            Cache::Own(own) => {
                check_memory(&self.model, own.capacity(), self.kind)?;
                Cache::Own(own.copy(&self.model, own.capacity(), self.kind, self.len())?)
            }
        };
        let states = self.states.as_ref().map(|states| states.copy(&self.model)).transpose()?.flatten();
        let choice = Sampler::new(&self.model, self.choice.sampling)?;
        Ok(Sequence { model: self.model.clone(), cache, states, kind: self.kind, tokens: self.tokens.clone(), choice })
    }

    /// The pool of its pages, if it has any.
    pub fn pool(&self) -> Option<&Pool> {
        match &self.cache {
            Cache::Own(_) => None,
            Cache::Paged(paged) => Some(paged.pool()),
        }
    }

    /// Device memory that a cache of `capacity` positions takes, of several devices on each; `None` if no address can hold it.
    pub fn device_bytes(model: &Model, capacity: usize, kv: KvType) -> Option<u64> {
        CacheShape::new(model.share(), capacity).bytes(kv)?.checked_add(Self::state_bytes(model))
    }

    /// Of these, what the states of its layers take that are [delta nets](crate::model::DeltaNets), whatever the capacity, of several
    /// devices on each; a sequence in a pool takes them beside its pages.
    pub fn state_bytes(model: &Model) -> u64 {
        StatesShape::of(model).map_or(0, StatesShape::bytes)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens fed so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// What was fed, position by position.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions that the cache has room for.
    pub fn capacity(&self) -> usize {
        match &self.cache {
            Cache::Own(own) => own.capacity(),
            Cache::Paged(paged) => paged.capacity(),
        }
    }

    /// How keys and values are stored.
    pub fn kv_type(&self) -> KvType {
        self.kind
    }

    /// How the next token is chosen.
    pub fn sampling(&self) -> &Sampling {
        &self.choice.sampling
    }

    /// Changes how the next token is chosen, from the next step on.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<(), DecodeError> {
        self.choice.set(&self.model, sampling)
    }

    /// Lets only these tokens be chosen, from the next step on; `None`: all. If none of them has a logit that is a number,
    /// the step fails.
    pub fn set_allowed(&mut self, tokens: Option<&[u32]>) -> Result<(), DecodeError> {
        self.choice.allow(&self.model, tokens)
    }

    /// Forgets all tokens; the memory stays, and pages go back to their pool.
    pub fn reset(&mut self) {
        self.tokens.clear();
        self.choice.forget();
        if let Some(states) = &mut self.states {
            states.roll_back(0);
        }
        if let Cache::Paged(paged) = &mut self.cache {
            paged.cut(0);
        }
    }

    /// Forgets all but the first `length` tokens. What is fed next overwrites what was cached after them.
    ///
    /// Of layers whose past is a state, only the states behind the last token and before the last step are there. Where others are
    /// needed, the next step feeds the tokens again, from the latest of these or from the first on.
    pub fn rollback(&mut self, length: usize) -> Result<(), DecodeError> {
        if length > self.len() {
            return Err(DecodeError::Rollback { to: length, length: self.len() });
        }
        let window = self.model.config().reach();
        if let Cache::Paged(paged) = &mut self.cache {
            let first = paged.first_position();
            if length > 0 && length < self.tokens.len() && length.saturating_sub(window.saturating_sub(1)) < first {
                return Err(DecodeError::GivenBack { to: length, first });
            }
            paged.cut(length);
        }
        if length < self.len() {
            self.tokens.truncate(length);
            self.choice.forget();
            if let Some(states) = &mut self.states {
                states.roll_back(length);
            }
            self.cut_pages();
        }
        Ok(())
    }

    /// After a step that fed a token and a draft of what follows it, and predicted from each of them ([`Predict::Each`]): forgets
    /// what was guessed wrong. How many of the predictions hold, at least one: the guesses that were right, and one more.
    ///
    /// [`Predict::Each`]: super::Predict::Each
    pub fn accept(&mut self, fed: &[u32], predicted: &[u32]) -> Result<usize, DecodeError> {
        let guesses = fed.get(1..).unwrap_or_default();
        let right = guesses.iter().zip(predicted).take_while(|(guess, token)| guess == token).count();
        let wrong = guesses.len() - right;
        let length = self.len().checked_sub(wrong).ok_or(DecodeError::Rollback { to: 0, length: self.len() })?;
        self.rollback(length)?;
        Ok((right + 1).min(predicted.len()))
    }

    /// Changes how many positions the cache has room for and keeps what is cached.
    pub fn set_capacity(&mut self, capacity: usize) -> Result<(), DecodeError> {
        let c = self.model.config();
        check_capacity(capacity, c.context)?;
        if capacity < self.len() {
            return Err(DecodeError::CapacityInUse { capacity, length: self.len() });
        }
        if capacity == self.capacity() {
            return Ok(());
        }
        let own = match &mut self.cache {
            Cache::Paged(paged) => return paged.set_capacity(capacity),
            Cache::Own(own) => own,
        };
        check_memory(&self.model, capacity, self.kind)?;
        *own = own.copy(&self.model, capacity, self.kind, self.tokens.len())?;
        Ok(())
    }

    /// Copies the cached positions to the host. Those that a pool was given back, as they lie behind every window, are zeros.
    pub fn snapshot(&self) -> Result<Snapshot, DecodeError> {
        let planes = match &self.cache {
            Cache::Own(own) => own.read(&self.model, self.len())?,
            Cache::Paged(paged) => paged.read(self.len())?,
        };
        let states = match &self.states {
            Some(states) => (states.length(), states.read(&self.model)?),
            None => (0, Vec::new()),
        };
        Ok(Snapshot { model: self.model.id(), kind: self.kv_type(), tokens: self.tokens.clone(), planes, states })
    }

    /// Continues from a snapshot that was taken of a sequence of the same loaded model.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), DecodeError> {
        snapshot.check(self.model.id(), self.capacity(), self.kv_type())?;
        // Until all of it is written, nothing of the old cache can be relied on.
        self.reset();
        match &mut self.cache {
            Cache::Own(own) => own.write(&self.model, snapshot.len(), &snapshot.planes)?,
            Cache::Paged(paged) => {
                let written = paged.reserve(0, snapshot.len(), 0);
                let written = written.and_then(|()| paged.write(snapshot.len(), &snapshot.planes));
                if written.is_err() {
                    paged.cut(0);
                }
                written?;
            }
        }
        if let Some(states) = &mut self.states {
            let written = states.write(snapshot.states.0, &snapshot.states.1, &self.model);
            if written.is_err() {
                self.reset();
            }
            written?;
        }
        self.tokens.extend_from_slice(&snapshot.tokens);
        self.cut_pages();
        Ok(())
    }

    /// The whole cache as it is in memory, with what was never written, as bytes: keys, values, then scales; of pages what was
    /// written. For tests of what a step writes.
    pub fn raw_cache(&self) -> Result<Vec<u8>, DecodeError> {
        match &self.cache {
            Cache::Own(own) => Ok(own.read(&self.model, self.capacity())?.concat()),
            Cache::Paged(paged) => Ok(paged.read(self.len())?.concat()),
        }
    }

    /// Makes sure that the next `more` positions have memory. If there is none, the sequence is as it was.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), DecodeError> {
        match &mut self.cache {
            Cache::Own(_) => Ok(()),
            Cache::Paged(paged) => paged.reserve(self.tokens.len(), more, self.model.config().reach()),
        }
    }

    /// Has so many tokens for a while, of which those that it has not are zeros; or has again what it had.
    pub(super) fn pretend(&mut self, length: usize) {
        self.tokens.resize(length, 0);
        self.choice.forget();
    }

    /// Gives back what was reserved for tokens that were not fed, and forgets what steps did to the states that were launched for them.
    pub(super) fn unreserve(&mut self) {
        self.forget_steps();
        if let Cache::Paged(paged) = &mut self.cache {
            paged.cut(self.tokens.len());
        }
        self.cut_pages();
    }

    /// Forgets what steps did to the states that were launched and whose tokens were not fed.
    pub(super) fn forget_steps(&mut self) {
        if let Some(states) = &mut self.states {
            states.forget();
        }
    }

    /// Gives back the pages behind the states: others may have them too, and they will be written again.
    fn cut_pages(&mut self) {
        if let (Some(states), Cache::Paged(paged)) = (&self.states, &mut self.cache)
            && states.length() < self.tokens.len()
        {
            paged.cut(states.length());
        }
    }

    /// Positions behind the states, whose tokens have to be fed again before others.
    pub(super) fn pending(&self) -> Range<usize> {
        self.states.as_ref().map_or(self.tokens.len(), States::length)..self.tokens.len()
    }

    /// Makes sure that these have memory.
    pub(super) fn reserve_pending(&mut self) -> Result<(), DecodeError> {
        let pending = self.pending();
        match &mut self.cache {
            Cache::Own(_) => Ok(()),
            Cache::Paged(paged) => paged.reserve(pending.start, pending.len(), self.model.config().reach()),
        }
    }

    /// What a kernel of one of the devices is told of the token at a position.
    pub(super) fn column_of(&self, rank: usize, position: usize) -> Column {
        self.column_at(rank, self.tokens.get(position).copied().unwrap_or_default(), position)
    }

    fn column_at(&self, rank: usize, token: u32, position: usize) -> Column {
        match &self.cache {
            Cache::Own(own) => own.column(rank, token, position),
            Cache::Paged(paged) => paged.column(rank, token, position),
        }
    }

    /// The states of the columns of a step that is about to be launched, on each device; none, where the model has no states.
    pub(super) fn runs(&mut self, columns: Run) -> impl Iterator<Item = Run> + '_ {
        self.states.as_mut().into_iter().flat_map(move |states| states.next(columns))
    }

    /// Takes note that so many steps have fed again what was [pending](Self::pending).
    pub(super) fn caught_up(&mut self, steps: usize) {
        let length = self.tokens.len();
        if let Some(states) = &mut self.states {
            states.commit(steps, length);
        }
    }

    /// Begins with what the pool knows of `tokens`, as computed by that recipe; how many tokens that are. The sequence is empty.
    pub(super) fn adopt(&mut self, tokens: &[u32], recipe: Recipe) -> Result<usize, DecodeError> {
        let Cache::Paged(paged) = &mut self.cache else { return Ok(0) };
        let most = tokens.len().min(paged.capacity());
        let adopted = paged.adopt(&tokens[..most], recipe)?;
        self.tokens.extend_from_slice(&tokens[..adopted]);
        self.choice.forget();
        Ok(adopted)
    }

    /// Whether `tokens` may be appended.
    pub(super) fn check(&self, tokens: &[u32]) -> Result<(), DecodeError> {
        let c = self.model.config();
        if tokens.is_empty() {
            return Err(DecodeError::EmptyPrompt);
        }
        if let Some((index, &token)) = tokens.iter().enumerate().find(|(_, t)| **t as usize >= c.vocab) {
            return Err(DecodeError::Token { token, index, vocab: c.vocab });
        }
        if tokens.len() > self.capacity() - self.len() {
            return Err(DecodeError::ContextFull {
                tokens: tokens.len(),
                length: self.len(),
                capacity: self.capacity(),
                most: c.context,
            });
        }
        Ok(())
    }

    /// What a kernel of one of the devices is told of `token`, `after` positions behind the last.
    pub(super) fn column(&self, rank: usize, token: u32, after: usize) -> Column {
        self.column_at(rank, token, self.len() + after)
    }

    /// How the device chooses what follows `fed`.
    pub(super) fn parameters(&mut self, fed: &[u32], stream: &Stream) -> Result<Parameters, Error> {
        self.choice.parameters(&self.tokens, fed, self.model.config().vocab, stream)
    }

    /// The same where more than what follows `fed` is predicted in one step.
    pub(super) fn parameters_apart(
        &mut self,
        fed: &[u32],
        stream: &Stream,
        mut seen: Seen<'_>,
    ) -> Result<Parameters, Error> {
        self.choice.parameters_apart(&self.tokens, fed, self.model.config().vocab, stream, &mut seen)
    }

    /// Takes note that the keys and values of `fed` are cached, in how many steps and by which recipe they were computed, and of what was
    /// chosen to follow, if that was marked.
    pub(super) fn advance(&mut self, fed: &[u32], steps: usize, recipe: Option<Recipe>, next: Option<u32>) {
        let before = self.tokens.len();
        self.tokens.extend_from_slice(fed);
        self.caught_up(steps);
        // Pages say nothing of states, so nobody can begin with them: they are not known by their tokens.
        let recipe = recipe.filter(|_| self.states.is_none());
        if let Cache::Paged(paged) = &mut self.cache {
            paged.filled(before, &self.tokens, recipe);
        }
        match next {
            Some(next) => self.choice.chosen(self.tokens.len(), next),
            None => self.choice.forget(),
        }
    }
}

fn check_capacity(capacity: usize, most: usize) -> Result<(), DecodeError> {
    if capacity == 0 || capacity > most {
        return Err(DecodeError::Capacity { capacity, most });
    }
    Ok(())
}

/// States of no position, if the model has any and they fit into free memory.
fn states_beside_pages(model: &Model) -> Result<Option<States>, DecodeError> {
    check_states(model)?;
    Ok(States::new(model)?)
}

fn check_states(model: &Model) -> Result<(), DecodeError> {
    let (needed, memory) = (Sequence::state_bytes(model), model.memory_info()?);
    if needed <= memory.free {
        return Ok(());
    }
    Err(DecodeError::Memory {
        what: "the sequence",
        needed,
        parts: "states of layers that are delta nets, twice".into(),
        free: memory.free,
        total: memory.total,
        hint: "drop a sequence, or make a smaller pool",
    })
}

fn check_memory(model: &Model, capacity: usize, kv: KvType) -> Result<(), DecodeError> {
    let memory = model.memory_info()?;
    let needed = Sequence::device_bytes(model, capacity, kv).unwrap_or(u64::MAX);
    if needed <= memory.free {
        return Ok(());
    }
    Err(DecodeError::Memory {
        what: "the sequence",
        needed,
        parts: format!("keys and values of {capacity} positions in {kv}"),
        free: memory.free,
        total: memory.total,
        hint: "ask for a smaller context or a smaller cache type",
    })
}
