//! The way of a request to the engine, and of its tokens back.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warpsmith_host::decode::{Logprobs, Sampling};

/// What is to be generated.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// What is to be continued: at least one token, and no more than the context has positions.
    pub tokens: Vec<u32>,
    /// Tokens to generate at most, at least one.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Tell the probability of each token, and so many of the most likely ones.
    pub logprobs: Option<usize>,
}

/// A prompt in the engine's queue.
#[derive(Debug)]
pub struct Request {
    /// What is to be generated.
    pub prompt: Prompt,
    /// Where the tokens go. The request ends when nobody listens any more.
    pub reply: UnboundedSender<Event>,
    /// When it was queued.
    pub since: Instant,
    /// Its place in the queue, until the engine takes it up.
    pub place: OwnedSemaphorePermit,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The next token, and probabilities, if the prompt asks for them: its own is the one that was asked for.
    Token(u32, Option<Logprobs>),
    /// The last event of a request that went well.
    Done(Reason),
    /// The last event of a request that did not.
    Failed(Failure),
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model said so.
    Stop,
    /// As many tokens as were asked for, or as the context has room for.
    Length,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It asks for what the engine does not do.
    Request(String),
    /// The device does not have the memory that it needs, and will not have it when other requests have ended.
    Memory(String),
    /// The engine.
    Engine(String),
}

/// The engine has ended and takes no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has stopped")]
pub struct Stopped;

/// The sending end. The engine ends when all of its copies are gone and all requests are done.
#[derive(Clone, Debug)]
pub struct Queue {
    sender: UnboundedSender<Waited>,
    places: Arc<Semaphore>,
}

/// The engine's end.
#[derive(Debug)]
pub struct Requests {
    receiver: UnboundedReceiver<Waited>,
    /// For alarms, which keep nobody waiting.
    sender: WeakUnboundedSender<Waited>,
}

/// What the engine waits for.
#[derive(Debug)]
pub enum Waited {
    /// A request.
    Request(Box<Request>),
    /// Something else has happened that concerns it.
    Alarm,
    /// There will be no more requests.
    End,
}

/// A place in the queue, which no other request takes.
#[derive(Debug)]
pub struct Place {
    sender: UnboundedSender<Waited>,
    permit: OwnedSemaphorePermit,
}

impl Queue {
    /// A queue for so many requests that wait.
    pub fn new(places: usize) -> (Queue, Requests) {
        let (sender, receiver) = unbounded_channel();
        let requests = Requests { receiver, sender: sender.downgrade() };
        (Queue { sender, places: Arc::new(Semaphore::new(places)) }, requests)
    }

    /// A place, if one is free. It is kept from before the prompt is made, which costs time too.
    pub fn enter(&self) -> Option<Place> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        Some(Place { sender: self.sender.clone(), permit })
    }
}

impl Place {
    /// Queues a prompt; the events are its answer. Dropping them ends the request.
    pub fn send(self, prompt: Prompt) -> Result<UnboundedReceiver<Event>, Stopped> {
        let (reply, events) = unbounded_channel();
        let request = Request { prompt, reply, since: Instant::now(), place: self.permit };
        self.sender.send(Waited::Request(Box::new(request))).map_err(|_| Stopped)?;
        Ok(events)
    }
}

impl Requests {
    /// Waits for a request or an alarm. Not to be called where futures run.
    pub fn wait(&mut self) -> Waited {
        self.receiver.blocking_recv().unwrap_or(Waited::End)
    }

    /// A request that is there already.
    pub fn take(&mut self) -> Option<Request> {
        loop {
            match self.receiver.try_recv().ok()? {
                Waited::Request(request) => return Some(*request),
                // Who asks looks around anyway.
                Waited::Alarm => {}
                Waited::End => return None,
            }
        }
    }

    /// Wakes whoever waits, from whatever thread.
    pub fn alarm(&self) -> impl FnOnce() + Send + 'static {
        let sender = self.sender.clone();
        move || {
            if let Some(sender) = sender.upgrade() {
                let _ = sender.send(Waited::Alarm);
            }
        }
    }
}
