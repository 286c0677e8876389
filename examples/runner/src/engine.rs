//! Continuous batching: a thread that owns the decoder, and a queue of requests.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};

use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Feed, KvType, Model, Sampling, Sequence, SequenceOptions,
};

/// A prompt to continue.
#[derive(Debug)]
pub struct Request {
    /// The prompt, at least one token.
    pub tokens: Vec<u32>,
    /// Tokens to generate at most.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Where they go. The request ends when nobody listens any more.
    pub reply: Sender<Event>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next token.
    Token(u32),
    /// The last event of a request that went well.
    Done(Reason),
    /// The last event of a request that did not.
    Failed(String),
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model said so.
    Stop,
    /// As many tokens as were asked for, or as the context has room for.
    Length,
}

/// Sizes of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests that are decoded together.
    pub batch: usize,
    /// Positions that a request may use; `None`: the model's context.
    pub context: Option<usize>,
    /// How keys and values are stored.
    pub kv: KvType,
    /// The token that ends a text.
    pub end: Option<u32>,
}

struct Active {
    sequence: Sequence,
    reply: Sender<Event>,
    next: u32,
    left: usize,
}

/// Decodes until the last sender of `requests` is gone and all of them are done.
pub fn serve(model: &Model, options: &Options, requests: &Receiver<Request>) -> Result<(), DecodeError> {
    let decoder = DecoderOptions { batch: options.batch, ..Default::default() };
    let mut decoder = Decoder::new(model, decoder)?;
    let mut active: Vec<Active> = Vec::new();
    let mut waiting: VecDeque<Request> = VecDeque::new();
    loop {
        // Wait only if there is nothing to do.
        if active.is_empty() && waiting.is_empty() {
            match requests.recv() {
                Ok(request) => waiting.push_back(request),
                Err(_) => return Ok(()),
            }
        }
        waiting.extend(requests.try_iter());
        // One prompt a step at most, so that those who wait for a prompt do not stop those who are served.
        if active.len() < options.batch
            && let Some(request) = waiting.pop_front()
        {
            let reply = request.reply.clone();
            match admit(model, options, &mut decoder, request) {
                Ok(request) => active.extend(request),
                // The text is all that a client can use. Nobody may be listening.
                Err(error) => drop(reply.send(Event::Failed(error.to_string()))),
            }
        }
        step(&mut decoder, &mut active, options.end)?;
    }
}

/// Feeds the prompt. `None`: the request is done already.
fn admit(
    model: &Model,
    options: &Options,
    decoder: &mut Decoder,
    request: Request,
) -> Result<Option<Active>, DecodeError> {
    let most = options.context.unwrap_or(model.config().context).min(model.config().context);
    // The last token that is generated is not fed.
    let wanted = request.tokens.len().saturating_add(request.max_tokens.saturating_sub(1));
    let capacity = wanted.min(most).max(1);
    let sequence = SequenceOptions { capacity: Some(capacity), kv: options.kv, sampling: request.sampling };
    let mut sequence = Sequence::new(model, sequence)?;
    let next = decoder.prefill(&mut sequence, &request.tokens)?;
    let left = request.max_tokens.min(capacity + 1 - request.tokens.len());
    let active = Active { sequence, reply: request.reply, next, left };
    Ok(deliver(active, options.end))
}

/// Hands on the token that was chosen; `None` if it was the last.
fn deliver(mut a: Active, end: Option<u32>) -> Option<Active> {
    let done = |a: &Active, reason| {
        // Whoever has left does not miss it.
        let _ = a.reply.send(Event::Done(reason));
    };
    if a.left == 0 {
        done(&a, Reason::Length);
        return None;
    }
    if end == Some(a.next) {
        done(&a, Reason::Stop);
        return None;
    }
    if a.reply.send(Event::Token(a.next)).is_err() {
        return None;
    }
    a.left -= 1;
    if a.left == 0 {
        done(&a, Reason::Length);
        return None;
    }
    Some(a)
}

/// One token for everybody.
fn step(decoder: &mut Decoder, active: &mut Vec<Active>, end: Option<u32>) -> Result<(), DecodeError> {
    if active.is_empty() {
        return Ok(());
    }
    let mut feeds: Vec<Feed<'_>> =
        active.iter_mut().map(|a| Feed { token: a.next, sequence: &mut a.sequence }).collect();
    match decoder.step(&mut feeds) {
        Ok(next) => {
            let next = next.to_vec();
            for (a, next) in active.iter_mut().zip(next) {
                a.next = next;
            }
            *active = active.drain(..).filter_map(|a| deliver(a, end)).collect();
            Ok(())
        }
        // One sequence has no next token. The others have lost nothing: they repeat the step without it.
        Err(error @ DecodeError::NotANumber { place, .. }) if place < active.len() => {
            let failed = active.remove(place);
            let _ = failed.reply.send(Event::Failed(error.to_string()));
            Ok(())
        }
        Err(error) => {
            let text = error.to_string();
            active.drain(..).for_each(|a| drop(a.reply.send(Event::Failed(text.clone()))));
            Err(error)
        }
    }
}
