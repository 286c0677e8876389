//! Connections of a rank with those in other processes, and what is known of each of them.

use super::words::{Word, read};
use crate::Error;
use crate::lock::lock;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how long a rank whose group has ended waits until the others know, before it lets its kernels go: theirs may take what those leave.
const KNOWN: Duration = Duration::from_secs(2);
/// For how long somebody who takes nothing is written to.
const WRITING: Duration = Duration::from_secs(10);

/// The connections.
pub struct PeerLinks {
    rank: u32,
    /// By rank; none with this one.
    streams: Vec<Option<Mutex<TcpStream>>>,
    state: Mutex<Membership>,
    changed: Condvar,
}

/// What has become of the group.
#[derive(Default)]
struct Membership {
    /// By rank; of this one nothing.
    others: Vec<Other>,
    /// Since when it cannot be used any more.
    ended: Option<Instant>,
    /// Why, until somebody has been told.
    failure: Option<Error>,
    /// Who has gone.
    missing: Vec<u32>,
    /// This rank leaves: by when what it has issued is to end.
    closing: Option<Instant>,
    /// The watch is over.
    over: bool,
}

/// What another rank has said, and whether it is there.
#[derive(Clone, Default)]
pub struct Other {
    /// Its memory, in words that [`Introduction`](super::Introduction) reads.
    pub frame: Option<String>,
    /// It has opened everybody's memory, or failed to: whose, and why.
    pub opened: Option<Option<(u32, String)>>,
    /// The group has ended for it.
    ended: bool,
    /// It uses nobody's memory any more.
    pub left: bool,
    /// Its connection has closed.
    gone: bool,
}

impl Other {
    /// It will do nothing more.
    pub fn is_away(&self) -> bool {
        self.left || self.gone
    }
}

/// What the watch has to do.
pub enum Duty {
    /// See whether kernels of this rank wait for somebody who is away.
    Look {
        /// Whose connection has closed without a word.
        gone: Vec<u32>,
        /// Who has left.
        left: Vec<u32>,
        /// What was issued should have ended.
        overdue: bool,
    },
    /// Let kernels of this rank go.
    Release,
}

impl PeerLinks {
    /// Over connections with the other ranks, by their numbers; and the threads that listen to them, until [`close`](PeerLinks::close).
    pub fn new(rank: u32, streams: Vec<Option<TcpStream>>) -> std::io::Result<(Arc<PeerLinks>, Vec<JoinHandle<()>>)> {
        let mut reading = Vec::new();
        for (other, stream) in (0..).zip(&streams) {
            if let Some(stream) = stream {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(Some(WRITING))?;
                reading.push((other, stream.try_clone()?));
            }
        }
        let state = Membership { others: vec![Other::default(); streams.len()], ..Membership::default() };
        let streams = streams.into_iter().map(|stream| stream.map(Mutex::new)).collect();
        let links = Arc::new(PeerLinks { rank, streams, state: Mutex::new(state), changed: Condvar::new() });
        let listen = |(other, mut stream): (u32, TcpStream)| {
            let links = links.clone();
            std::thread::Builder::new().name(format!("rank {other}")).spawn(move || {
                while let Ok(word) = read(&mut stream) {
                    links.hear(other, word);
                }
                links.of(other, |other| other.gone = true);
            })
        };
        let readers = reading.into_iter().map(listen).collect::<std::io::Result<_>>()?;
        Ok((links, readers))
    }

    fn of(&self, rank: u32, f: impl FnOnce(&mut Other)) {
        if let Some(other) = lock(&self.state).others.get_mut(rank as usize) {
            f(other);
        }
        self.changed.notify_all();
    }

    fn hear(&self, from: u32, word: Word) {
        match word {
            Word::Frame(text) => self.of(from, |other| other.frame = Some(text)),
            Word::Opened(refused) => self.of(from, |other| other.opened = Some(refused)),
            Word::Bye => self.of(from, |other| other.left = true),
            Word::Farewell(lost, said) => {
                self.of(from, |other| other.ended = true);
                let (lost, reason) = match lost.filter(|lost| *lost != self.rank) {
                    Some(lost) => (lost, format!("rank {from} says: {said}")),
                    None => (from, format!("it has left the group: {said}")),
                };
                self.fail(Error::Lost { rank: self.rank, lost, reason });
            }
        }
    }

    /// Tells all others.
    pub fn tell(&self, word: &Word) {
        let bytes = word.bytes();
        for stream in self.streams.iter().flatten() {
            // Who has gone is noticed by the thread that listens.
            let _ = lock(stream).write_all(&bytes);
        }
    }

    /// All others, with their numbers.
    fn others<'a>(&self, state: &'a Membership) -> impl Iterator<Item = (u32, &'a Other)> {
        let own = self.rank;
        (0..).zip(&state.others).filter(move |(rank, _)| *rank != own)
    }

    /// Waits until all others are as asked, or one that is not never will be, as it is away. Who is not.
    pub fn wait_until(&self, until: Instant, is: impl Fn(&Other) -> bool) -> Vec<(u32, Other)> {
        let mut state = lock(&self.state);
        loop {
            let not: Vec<(u32, Other)> = self
                .others(&state)
                .filter(|(_, other)| !is(other))
                .map(|(rank, other)| (rank, other.clone()))
                .collect();
            let left = until.saturating_duration_since(Instant::now());
            if not.is_empty() || not.iter().any(|(_, other)| other.is_away()) || left.is_zero() {
                return not;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What they have said, by rank; of this one nothing.
    pub fn all(&self) -> Vec<Other> {
        lock(&self.state).others.clone()
    }

    /// Whether the group has ended.
    pub fn check(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        match (state.failure.take(), state.ended) {
            (Some(failure), _) => Err(failure),
            (None, Some(_)) => Err(Error::Broken { missing: state.missing.clone() }),
            (None, None) => Ok(()),
        }
    }

    /// A rank is away that is needed.
    pub fn lose(&self, lost: u32, left: bool) {
        let reason = if left { "it has left the group" } else { "its process has closed the connection" };
        self.fail(Error::Lost { rank: self.rank, lost, reason: reason.to_owned() });
    }

    /// Ends the group for a reason that whoever asks is told, and the others as well.
    pub fn fail(&self, error: Error) {
        let missing = match &error {
            Error::Missing { missing, .. } => missing.clone(),
            Error::Lost { lost, .. } => vec![*lost],
            _ => Vec::new(),
        };
        let farewell = Word::Farewell(missing.first().copied(), error.to_string());
        self.end(Some(error), missing, &farewell);
    }

    /// Ends the group for a reason of this rank's.
    pub fn leave(&self, reason: &str) {
        self.end(None, Vec::new(), &Word::Farewell(None, reason.to_owned()));
    }

    fn end(&self, failure: Option<Error>, missing: Vec<u32>, farewell: &Word) {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return;
        }
        (state.ended, state.failure, state.missing) = (Some(Instant::now()), failure, missing);
        drop(state);
        self.changed.notify_all();
        self.tell(farewell);
    }

    /// This rank leaves, when what it has issued has ended: by then it should have.
    pub fn closing(&self, by: Instant) {
        lock(&self.state).closing = Some(by);
        self.changed.notify_all();
    }

    /// The watch is over.
    pub fn stop_watch(&self) {
        lock(&self.state).over = true;
        self.changed.notify_all();
    }

    /// What the watch has to do, after a pause and when there is something; `None`: nothing any more.
    pub fn duty(&self, pause: Duration) -> Option<Duty> {
        let state = lock(&self.state);
        let paused = self.changed.wait_timeout_while(state, pause, |state| !state.over);
        let mut state: MutexGuard<'_, Membership> = paused.unwrap_or_else(PoisonError::into_inner).0;
        loop {
            if state.over {
                return None;
            }
            let left = match state.ended {
                Some(since) => {
                    let left = KNOWN.saturating_sub(since.elapsed());
                    let known = self.others(&state).all(|(_, other)| other.ended || other.is_away());
                    if known || left.is_zero() {
                        return Some(Duty::Release);
                    }
                    Some(left)
                }
                None => {
                    let of = |is: fn(&Other) -> bool| -> Vec<u32> {
                        self.others(&state).filter(|(_, other)| is(other)).map(|(rank, _)| rank).collect()
                    };
                    let (gone, left) = (of(|other| other.gone && !other.left), of(|other| other.left));
                    let overdue = state.closing.is_some_and(|by| by <= Instant::now());
                    if overdue || !gone.is_empty() || !left.is_empty() {
                        return Some(Duty::Look { gone, left, overdue });
                    }
                    state.closing.map(|by| by.saturating_duration_since(Instant::now()))
                }
            };
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Closes all connections: who listens to them ends.
    pub fn close(&self) {
        for stream in self.streams.iter().flatten() {
            // One that is closed already stays so.
            let _ = lock(stream).shutdown(Shutdown::Both);
        }
    }
}
