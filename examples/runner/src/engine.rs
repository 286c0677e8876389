//! Continuous batching: a thread that owns the decoder, and a queue of requests.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use warpsmith_host::collectives::{Control, World};
use warpsmith_host::decode::{
    Activations, DecodeError, Decoder, KvType, Model, Pool, Predict, Sampling, SequenceOptions,
};

use crate::draft::by_lookup;
use crate::metrics::Metrics;
use crate::queue::{Event, Failure, Prompt, Reason, Request, Requests, Waited};
use crate::ranks::{self, Others, Parts, Share, Shared};

/// Sizes of the engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests that are decoded together, from 1 on.
    pub batch: usize,
    /// Positions that a request may use; `None`: the model's context.
    pub context: Option<usize>,
    /// Tokens of prompts in a step, at least one.
    pub prefill: usize,
    /// Prompts attend in tiles: [`fast_prefill`](warpsmith_host::decode::DecoderOptions::fast_prefill).
    pub fast_prefill: bool,
    /// Guesses of a request's next tokens that a step verifies; 0: none are made.
    pub draft: usize,
    /// Positions of all requests together, and of texts that are kept; `None`: what memory allows, and twice what all can use.
    pub pool: Option<usize>,
    /// How keys and values are stored.
    pub kv: KvType,
    /// The cheapest activations: [`activations`](warpsmith_host::decode::DecoderOptions::activations).
    pub activations: Activations,
    /// Only where they are known to be faster: [`tuned`](warpsmith_host::decode::DecoderOptions::tuned).
    pub tuned: bool,
    /// The tokens that end a text.
    pub eog: Vec<u32>,
    /// This process among others that have the model together, if there are others.
    pub world: Option<World>,
}

impl Options {
    /// Positions that a request may use.
    pub fn positions(&self, model: &Model) -> usize {
        self.context.unwrap_or(usize::MAX).min(model.config().context)
    }
}

/// A request, from the queue to its end.
struct Job {
    reply: UnboundedSender<Event>,
    since: Instant,
    sampling: Sampling,
    logprobs: Option<usize>,
    /// The prompt, and then what was generated.
    tokens: Vec<u32>,
    /// Tokens of the prompt.
    prompt: usize,
    /// Tokens to be generated yet.
    left: usize,
    /// Positions that it needs in all.
    capacity: usize,
}

/// A job that takes part in steps: as many of its tokens as its sequence has are fed.
struct Active {
    job: Job,
    shared: Shared,
}

impl Active {
    /// The tokens that are to be fed: the last that was generated, or the rest of what it begins with.
    fn rest(&self) -> &[u32] {
        self.job.tokens.get(self.shared.sequence.len()..).unwrap_or_default()
    }

    /// Whether the next step generates a token, whatever else is in it.
    fn decodes(&self) -> bool {
        self.rest().len() == 1
    }
}

struct Engine<'a> {
    model: &'a Model,
    options: &'a Options,
    metrics: &'a Metrics,
    decoder: Decoder,
    /// What sequences keep their keys and values in.
    pool: Pool,
    waiting: VecDeque<(Job, Option<tokio::sync::OwnedSemaphorePermit>)>,
    /// Those that take part in steps, in the order of their admission.
    active: Vec<Active>,
    /// There was no memory for a sequence, and none has ended since.
    full: bool,
    /// The other processes.
    others: Others,
    /// Sequences that there were.
    begun: u64,
}

/// Decodes until the last sender of `requests` is gone and all of them are done. What fails for one request is told to that one.
/// An error is one that no request would survive; those that are not done are told.
pub fn serve(model: &Model, options: &Options, requests: &mut Requests, metrics: &Metrics) -> Result<(), DecodeError> {
    let mut engine = Engine::new(model, options, requests, metrics)?;
    loop {
        // Wait only if there is nothing to do.
        if engine.is_idle() {
            match requests.wait() {
                Waited::Request(request) => engine.queue(*request),
                Waited::Alarm => {}
                Waited::End => return engine.others.end(),
            }
        }
        while let Some(request) = requests.take() {
            engine.queue(request);
        }
        if let Err(error) = engine.turn() {
            engine.abandon(&error);
            return Err(error);
        }
    }
}

impl<'a> Engine<'a> {
    fn new(
        model: &'a Model,
        options: &'a Options,
        requests: &Requests,
        metrics: &'a Metrics,
    ) -> Result<Engine<'a>, DecodeError> {
        let Parts { decoder, pool, control } = Parts::new(model, options)?;
        let others = Others::of(match control {
            Some(Control::Lead(lead)) => {
                lead.on_loss(requests.alarm());
                Some(lead)
            }
            _ => None,
        });
        let (waiting, active) = (VecDeque::new(), Vec::new());
        Ok(Engine { model, options, metrics, decoder, pool, waiting, active, full: false, others, begun: 0 })
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    /// Takes note of a request, or refuses it.
    fn queue(&mut self, request: Request) {
        let Request { prompt, reply, since, place } = request;
        let most = self.options.positions(self.model);
        let length = prompt.tokens.len();
        // The last token that is generated is not fed.
        let capacity = length.saturating_add(prompt.max_tokens.saturating_sub(1)).min(most);
        let left = prompt.max_tokens.min((capacity + 1).saturating_sub(length));
        let Prompt { tokens, sampling, logprobs, .. } = prompt;
        let job = Job { reply, since, sampling, logprobs, tokens, prompt: length, left, capacity };
        let room = self.pool.stats().pages * self.pool.options().page;
        if length == 0 || left == 0 {
            let text = format!(
                "a prompt of {length} tokens: a request has 1 to {most} of them, and asks for at least one more"
            );
            self.fail(job, Failure::Request(text));
        } else if capacity > room {
            let text = format!(
                "the request needs {capacity} positions, and device memory has room for {room} beside the model: ask for fewer \
                 tokens, or serve with --kv int8"
            );
            self.fail(job, Failure::Memory(text));
        } else {
            self.waiting.push_back((job, Some(place)));
        }
    }

    /// A step. Requests join and leave between two of them.
    fn turn(&mut self) -> Result<(), DecodeError> {
        self.others.check()?;
        self.dismiss();
        self.admit()?;
        self.step()?;
        self.metrics.queued.set(self.waiting.len() as i64);
        self.metrics.sequences.set(self.active.len() as i64);
        let stats = self.pool.stats();
        self.metrics.pages_used.set(stats.used as i64);
        self.metrics.pages_kept.set(stats.kept as i64);
        Ok(())
    }

    /// Ends the requests that nobody listens to any more.
    fn dismiss(&mut self) {
        let metrics = self.metrics;
        let stays = |job: &Job| {
            let listened = !job.reply.is_closed();
            if !listened {
                metrics.ended("left", job.since);
            }
            listened
        };
        self.waiting.retain(|(job, _)| stays(job));
        let before = self.active.len();
        self.active.retain(|a| stays(&a.job));
        self.full &= self.active.len() == before;
    }

    /// Makes room for requests that wait. Where the device has none, they wait until another one has ended.
    fn admit(&mut self) -> Result<(), DecodeError> {
        while self.active.len() < self.options.batch && (!self.full || self.active.is_empty()) {
            let alone = self.active.is_empty();
            let Some((job, place)) = self.waiting.pop_front() else { return Ok(()) };
            // What it begins with, and a page for what it generates first. Where others need the last pages, it is set aside.
            let stats = self.pool.stats();
            if (job.tokens.len() / stats.page + 1 > stats.free + stats.kept) && !alone {
                self.full = true;
                self.waiting.push_front((job, place));
                return Ok(());
            }
            let options = SequenceOptions { capacity: Some(job.capacity), kv: self.options.kv, sampling: job.sampling };
            match self.sequence(&job.tokens, options) {
                Ok(shared) => self.active.push(Active { job, shared }),
                Err(error) if no_memory(&error) && !alone => {
                    self.full = true;
                    self.waiting.push_front((job, place));
                }
                Err(error) => self.failed(job, error)?,
            }
        }
        Ok(())
    }

    /// A sequence that has as many of the tokens as the pool keeps of texts that began likewise.
    fn sequence(&mut self, tokens: &[u32], options: SequenceOptions) -> Result<Shared, DecodeError> {
        // A single token that is left would be a step, and not part of a prompt.
        let most = tokens.len() - usize::from(self.options.fast_prefill);
        self.begun += 1;
        let of = (&self.decoder, &self.pool);
        let (shared, reused) = Shared::begin(of, &self.others, self.begun, options, &tokens[..most])?;
        self.metrics.reused_tokens.inc_by(reused as u64);
        Ok(shared)
    }

    /// The tokens that each of the active feeds: what it generated last, with guesses of what follows, or a part of its prompt. None
    /// where the step is full.
    fn shares(&self) -> Vec<Vec<u32>> {
        // Who is served goes on, however long the prompts of others are.
        let decoding = self.active.iter().filter(|a| a.decodes()).count();
        let mut free = self.decoder.most_tokens().saturating_sub(decoding);
        let mut prompts = self.options.prefill.min(free);
        let share = |a: &Active| {
            let rest = a.rest();
            if a.decodes() {
                // The token that follows the last guess is the last to be generated, at most.
                let most = self.options.draft.min(a.job.left - 1).min(free);
                let guesses = by_lookup(&a.job.tokens, most);
                free -= guesses.len();
                return [rest, guesses].concat();
            }
            let mut part = &rest[..rest.len().min(prompts).min(free)];
            if self.options.fast_prefill && part.len() > 1 && part.len() + 1 == rest.len() {
                // As above: two are left.
                part = &part[..part.len() - 1];
            }
            (prompts, free) = (prompts - part.len(), free - part.len());
            part.to_vec()
        };
        self.active.iter().map(share).collect()
    }

    /// A step of all that are active: a token or several of those that are decoded, and parts of prompts.
    fn step(&mut self) -> Result<(), DecodeError> {
        while !self.active.is_empty() {
            let shares = self.shares();
            let mut places = Vec::new();
            let mut fed = Vec::new();
            for (place, (a, tokens)) in self.active.iter_mut().zip(&shares).enumerate() {
                if tokens.is_empty() {
                    continue;
                }
                let predict = match tokens.len().cmp(&a.rest().len()) {
                    Ordering::Less => Predict::Nothing,
                    Ordering::Equal => Predict::Next,
                    Ordering::Greater => Predict::Each,
                };
                places.push((place, predict));
                fed.push(Share { of: &mut a.shared, tokens, predict });
            }
            let start = Instant::now();
            match ranks::step(&mut self.decoder, &self.others, fed) {
                Ok(predicted) => {
                    let seconds = start.elapsed().as_secs_f64();
                    return self.stepped(&shares, &places, &predicted, seconds);
                }
                // One sequence has no next token. The others have lost nothing: they repeat the step without it.
                Err(error @ DecodeError::NotANumber { place, .. }) if place < places.len() => {
                    let Active { job, .. } = self.active.remove(places[place].0);
                    self.fail(job, Failure::Engine(error.to_string()));
                }
                Err(error) if no_memory(&error) && self.is_common(&error) && self.make_room() => {}
                Err(error) => return self.all_failed(error),
            }
        }
        Ok(())
    }

    /// After a step of these shares: hands on what was `predicted`.
    fn stepped(
        &mut self,
        shares: &[Vec<u32>],
        places: &[(usize, Predict)],
        mut predicted: &[u32],
        seconds: f64,
    ) -> Result<(), DecodeError> {
        self.metrics.steps.inc();
        self.metrics.step_seconds.inc_by(seconds);
        let (mut ended, mut column) = (Vec::new(), 0);
        for &(place, predict) in places {
            let (a, fed) = (&mut self.active[place], &shares[place]);
            let before = a.shared.sequence.len() - fed.len();
            let from_prompt = a.job.prompt.saturating_sub(before).min(fed.len());
            self.metrics.prompt_tokens.inc_by(from_prompt as u64);
            let own = match predict {
                Predict::Nothing => continue,
                Predict::Next => 1,
                Predict::Each => fed.len(),
            };
            let first = column;
            column += own;
            let (mut own, rest) = predicted.split_at(own);
            predicted = rest;
            if predict == Predict::Each {
                own = &own[..a.shared.accept(fed, own)?];
                self.metrics.drafted_tokens.inc_by(fed.len() as u64 - 1);
                self.metrics.accepted_tokens.inc_by(own.len() as u64 - 1);
            }
            if let Some(end) = self.deliver(place, own, first).transpose() {
                ended.push((place, end));
            }
        }
        for (place, end) in ended.into_iter().rev() {
            let Active { job, .. } = self.active.remove(place);
            match end {
                Ok(reason) => self.done(job, reason),
                Err(error) if !self.is_common(&error) => {
                    self.fail(job, failure(&error));
                    return Err(error);
                }
                Err(error) => self.failed(job, error)?,
            }
        }
        Ok(())
    }

    /// Whether an error of a call that all processes make leaves them alike.
    fn is_common(&self, error: &DecodeError) -> bool {
        !self.others.are() || ranks::same_for_all(error)
    }

    /// Sets aside the request that came last, so that the others go on; `false`: there is but one.
    fn make_room(&mut self) -> bool {
        if self.active.len() < 2 {
            return false;
        }
        if let Some(Active { job, .. }) = self.active.pop() {
            self.set_aside(job);
        }
        true
    }

    /// Hands on tokens that were chosen for a request, the first in some column of the step; why it ends with them, if it does.
    fn deliver(&mut self, place: usize, tokens: &[u32], first: usize) -> Result<Option<Reason>, DecodeError> {
        let job = &mut self.active[place].job;
        for (column, &token) in (first..).zip(tokens) {
            if job.tokens.len() == job.prompt {
                self.metrics.first_token(job.since);
            }
            if self.options.eog.contains(&token) {
                return Ok(Some(Reason::Stop));
            }
            let logprobs = match job.logprobs {
                None => None,
                Some(count) => {
                    // The most likely one is what the others are relative to.
                    let mut found = ranks::logprobs(&mut self.decoder, &self.others, column, count.max(1), &[token])?;
                    found.top.truncate(count);
                    Some(found)
                }
            };
            // Who has left is dismissed before the next step.
            let _ = job.reply.send(Event::Token(token, logprobs));
            self.metrics.generated_tokens.inc();
            job.tokens.push(token);
            job.left -= 1;
            if job.left == 0 {
                return Ok(Some(Reason::Length));
            }
        }
        Ok(None)
    }

    fn done(&mut self, job: Job, reason: Reason) {
        self.full = false;
        let text = match reason {
            Reason::Stop => "stop",
            Reason::Length => "length",
        };
        self.metrics.ended(text, job.since);
        let _ = job.reply.send(Event::Done(reason));
    }

    /// Puts a request back to where it is the next to be admitted, once one that is decoded has ended. It then begins with all tokens
    /// that it has: fed at once they give the same bits.
    fn set_aside(&mut self, job: Job) {
        self.metrics.set_aside.inc();
        self.full = true;
        self.waiting.push_front((job, None));
    }

    fn fail(&mut self, job: Job, failure: Failure) {
        self.full = false;
        self.metrics.ended("failed", job.since);
        let _ = job.reply.send(Event::Failed(failure));
    }

    /// Tells a request what went wrong. An error of the device is one for everybody.
    fn failed(&mut self, job: Job, error: DecodeError) -> Result<(), DecodeError> {
        self.fail(job, failure(&error));
        if device_lost(&error) { Err(error) } else { Ok(()) }
    }

    /// The same for all that were in a step.
    fn all_failed(&mut self, error: DecodeError) -> Result<(), DecodeError> {
        for a in std::mem::take(&mut self.active) {
            self.fail(a.job, failure(&error));
        }
        if device_lost(&error) || !self.is_common(&error) { Err(error) } else { Ok(()) }
    }

    /// Tells everybody that there will be nothing more.
    fn abandon(&mut self, error: &DecodeError) {
        let active = std::mem::take(&mut self.active).into_iter().map(|a| a.job);
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(job, _)| job);
        let jobs: Vec<Job> = active.chain(waiting).collect();
        for job in jobs {
            self.fail(job, Failure::Engine(format!("the engine has stopped: {error}")));
        }
    }
}

/// The driver's code of memory that is exhausted (`CUDA_ERROR_OUT_OF_MEMORY`).
const OUT_OF_MEMORY: i32 = 2;

fn runtime(error: &DecodeError) -> Option<&warpsmith_host::Error> {
    match error {
        DecodeError::Runtime(error)
        | DecodeError::Capture { source: error }
        | DecodeError::Rank { source: error, .. } => Some(error),
        _ => None,
    }
}

fn no_memory(error: &DecodeError) -> bool {
    matches!(error, DecodeError::Memory { .. } | DecodeError::PoolFull { .. })
        || runtime(error).is_some_and(|e| e.code() == Some(OUT_OF_MEMORY))
}

/// What a client is told of an error.
fn failure(error: &DecodeError) -> Failure {
    let kind = match error {
        DecodeError::Sampling { .. } => Failure::Request,
        error if no_memory(error) => Failure::Memory,
        _ => Failure::Engine,
    };
    kind(error.to_string())
}

/// Whether the device is lost, or another process.
fn device_lost(error: &DecodeError) -> bool {
    matches!(error, DecodeError::Collective(_)) || runtime(error).is_some_and(warpsmith_host::Error::is_device_lost)
}
