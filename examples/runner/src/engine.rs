//! Continuous batching: a thread that owns the decoder, and a queue of requests.

use std::collections::VecDeque;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Feed, KvType, Model, Sampling, Sequence, SequenceOptions,
};

use crate::metrics::Metrics;
use crate::queue::{Event, Failure, Reason, Request, Requests};

/// Sizes of the engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests that are decoded together, from 1 on.
    pub batch: usize,
    /// Positions that a request may use; `None`: the model's context.
    pub context: Option<usize>,
    /// Tokens of a prompt that are fed between two steps, at least one.
    pub prefill: usize,
    /// How keys and values are stored.
    pub kv: KvType,
    /// The tokens that end a text.
    pub eog: Vec<u32>,
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
    /// What is fed before it takes part in steps.
    prompt: Vec<u32>,
    /// Tokens that were delivered.
    delivered: usize,
    /// Tokens that were generated since it was admitted. One that was set aside generates the first ones again, which are the same to
    /// the bit: by steps, not as a prompt, whose products are others.
    generated: usize,
    /// Tokens to be delivered yet.
    left: usize,
    /// Positions that it needs in all.
    capacity: usize,
}

/// A job whose prompt is being fed.
struct Filling {
    job: Job,
    sequence: Sequence,
}

/// A job that takes part in steps.
struct Active {
    job: Job,
    sequence: Sequence,
    next: u32,
}

struct Engine<'a> {
    model: &'a Model,
    options: &'a Options,
    metrics: &'a Metrics,
    decoder: Decoder,
    /// Device memory that there is for sequences.
    room: u64,
    waiting: VecDeque<(Job, Option<tokio::sync::OwnedSemaphorePermit>)>,
    filling: Option<Filling>,
    active: Vec<Active>,
    /// There was no memory for a sequence, and none has ended since.
    full: bool,
}

/// Decodes until the last sender of `requests` is gone and all of them are done. What fails for one request is told to that one.
/// An error is one that no request would survive; those that are not done are told.
pub fn serve(model: &Model, options: &Options, requests: &mut Requests, metrics: &Metrics) -> Result<(), DecodeError> {
    let mut engine = Engine::new(model, options, metrics)?;
    loop {
        // Wait only if there is nothing to do.
        if engine.is_idle() {
            match requests.wait() {
                Some(request) => engine.queue(request),
                None => return Ok(()),
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
    fn new(model: &'a Model, options: &'a Options, metrics: &'a Metrics) -> Result<Engine<'a>, DecodeError> {
        let decoder = Decoder::new(model, DecoderOptions { batch: options.batch, ..Default::default() })?;
        let room = model.device().memory_info()?.free;
        let (waiting, active) = (VecDeque::new(), Vec::new());
        Ok(Engine { model, options, metrics, decoder, room, waiting, filling: None, active, full: false })
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.filling.is_none() && self.active.is_empty()
    }

    /// Takes note of a request, or refuses it.
    fn queue(&mut self, request: Request) {
        let Request { prompt, reply, since, place } = request;
        let most = self.options.positions(self.model);
        let length = prompt.tokens.len();
        // The last token that is generated is not fed.
        let capacity = length.saturating_add(prompt.max_tokens.saturating_sub(1)).min(most);
        let left = prompt.max_tokens.min((capacity + 1).saturating_sub(length));
        let (prompt, sampling) = (prompt.tokens, prompt.sampling);
        let job = Job { reply, since, sampling, prompt, delivered: 0, generated: 0, left, capacity };
        let needed = Sequence::device_bytes(self.model, capacity, self.options.kv);
        if length == 0 || left == 0 {
            let text = format!(
                "a prompt of {length} tokens: a request has 1 to {most} of them, and asks for at least one more"
            );
            self.fail(job, Failure::Request(text));
        } else if needed.is_none_or(|n| n > self.room) {
            let text = format!(
                "the request needs {} bytes of device memory for {capacity} positions, and {} is all that there is beside the \
                 model: ask for fewer tokens, or serve with --kv int8",
                needed.unwrap_or(u64::MAX),
                self.room
            );
            self.fail(job, Failure::Memory(text));
        } else {
            self.waiting.push_back((job, Some(place)));
        }
    }

    /// A part of a prompt and a step. Requests join and leave between two of them.
    fn turn(&mut self) -> Result<(), DecodeError> {
        self.dismiss();
        self.admit()?;
        self.fill()?;
        self.step()?;
        self.metrics.queued.set(self.waiting.len() as i64);
        self.metrics.sequences.set((self.active.len() + usize::from(self.filling.is_some())) as i64);
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
        let before = self.active.len() + usize::from(self.filling.is_some());
        self.filling = self.filling.take().filter(|f| stays(&f.job));
        self.active.retain(|a| stays(&a.job));
        self.full &= self.active.len() + usize::from(self.filling.is_some()) == before;
    }

    /// Makes room for the next request. Where the device has none, it waits until another one has ended.
    fn admit(&mut self) -> Result<(), DecodeError> {
        let alone = self.active.is_empty();
        if self.filling.is_some() || self.active.len() >= self.options.batch || (self.full && !alone) {
            return Ok(());
        }
        let Some((job, place)) = self.waiting.pop_front() else { return Ok(()) };
        let options = SequenceOptions { capacity: Some(job.capacity), kv: self.options.kv, sampling: job.sampling };
        match Sequence::new(self.model, options) {
            Ok(sequence) => self.filling = Some(Filling { job, sequence }),
            Err(error) if no_memory(&error) && !alone => {
                self.full = true;
                self.waiting.push_front((job, place));
            }
            Err(error) => return self.failed(job, error),
        }
        Ok(())
    }

    /// Feeds a part of a prompt, so that those who wait for a prompt do not stop those who are served.
    fn fill(&mut self) -> Result<(), DecodeError> {
        let Some(Filling { job, mut sequence }) = self.filling.take() else { return Ok(()) };
        let rest = job.prompt.get(sequence.len()..).unwrap_or_default();
        let part = rest.get(..self.options.prefill).unwrap_or(rest);
        let start = Instant::now();
        match self.decoder.prefill(&mut sequence, part) {
            Ok(next) => {
                self.metrics.prompt_tokens.inc_by(part.len() as u64);
                self.metrics.prompt_seconds.inc_by(start.elapsed().as_secs_f64());
                if sequence.len() < job.prompt.len() {
                    self.filling = Some(Filling { job, sequence });
                } else {
                    if job.delivered == 0 {
                        self.metrics.first_token(job.since);
                    }
                    let active = self.deliver(Active { job, sequence, next });
                    self.active.extend(active);
                }
                Ok(())
            }
            Err(error) if no_memory(&error) && !self.active.is_empty() => {
                self.set_aside(job);
                Ok(())
            }
            Err(error) => self.failed(job, error),
        }
    }

    /// One token for everybody.
    fn step(&mut self) -> Result<(), DecodeError> {
        while !self.active.is_empty() {
            let mut feeds: Vec<Feed<'_>> =
                self.active.iter_mut().map(|a| Feed { token: a.next, sequence: &mut a.sequence }).collect();
            let start = Instant::now();
            let result = self.decoder.step(&mut feeds).map(<[u32]>::to_vec);
            match result {
                Ok(next) => {
                    self.metrics.steps.inc();
                    self.metrics.step_seconds.inc_by(start.elapsed().as_secs_f64());
                    for (mut a, next) in std::mem::take(&mut self.active).into_iter().zip(next) {
                        a.next = next;
                        let active = self.deliver(a);
                        self.active.extend(active);
                    }
                    return Ok(());
                }
                // One sequence has no next token. The others have lost nothing: they repeat the step without it.
                Err(error @ DecodeError::NotANumber { place, .. }) if place < self.active.len() => {
                    let Active { job, .. } = self.active.remove(place);
                    self.fail(job, Failure::Engine(error.to_string()));
                }
                Err(error) if no_memory(&error) && self.make_room() => {}
                Err(error) => return self.all_failed(error),
            }
        }
        Ok(())
    }

    /// Sets aside the request that came last, so that the others go on; `false`: there is but one.
    fn make_room(&mut self) -> bool {
        if let Some(Filling { job, .. }) = self.filling.take() {
            self.set_aside(job);
            return true;
        }
        if self.active.len() < 2 {
            return false;
        }
        if let Some(Active { job, .. }) = self.active.pop() {
            self.set_aside(job);
        }
        true
    }

    /// Hands on the token that was chosen, if it was not delivered before; `None` if it was the last.
    fn deliver(&mut self, mut a: Active) -> Option<Active> {
        a.job.generated += 1;
        if a.job.generated <= a.job.delivered {
            return Some(a);
        }
        if self.options.eog.contains(&a.next) {
            self.done(a.job, Reason::Stop);
            return None;
        }
        // Who has left is dismissed before the next step.
        let _ = a.job.reply.send(Event::Token(a.next));
        self.metrics.generated_tokens.inc();
        a.job.delivered += 1;
        a.job.left = a.job.left.saturating_sub(1);
        if a.job.left == 0 {
            self.done(a.job, Reason::Length);
            return None;
        }
        Some(a)
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

    /// Puts a request back to where it is the next to be admitted, once one that is decoded has ended.
    fn set_aside(&mut self, mut job: Job) {
        job.generated = 0;
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
        if device_lost(&error) { Err(error) } else { Ok(()) }
    }

    /// Tells everybody that there will be nothing more.
    fn abandon(&mut self, error: &DecodeError) {
        let active = std::mem::take(&mut self.active).into_iter().map(|a| a.job);
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(job, _)| job);
        let jobs: Vec<Job> = active.chain(self.filling.take().map(|f| f.job)).chain(waiting).collect();
        for job in jobs {
            self.fail(job, Failure::Engine(format!("the engine has stopped: {error}")));
        }
    }
}

/// The driver's code of memory that is exhausted (`CUDA_ERROR_OUT_OF_MEMORY`).
const OUT_OF_MEMORY: i32 = 2;

fn runtime(error: &DecodeError) -> Option<&warpsmith_host::Error> {
    match error {
        DecodeError::Runtime(error) | DecodeError::Capture { source: error } => Some(error),
        _ => None,
    }
}

fn no_memory(error: &DecodeError) -> bool {
    matches!(error, DecodeError::Memory { .. }) || runtime(error).is_some_and(|e| e.code() == Some(OUT_OF_MEMORY))
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

fn device_lost(error: &DecodeError) -> bool {
    runtime(error).is_some_and(warpsmith_host::Error::is_device_lost)
}
