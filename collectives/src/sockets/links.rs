//! The connections of a rank with all others, and what has become of the group.

use super::frame::{Frame, Head, farewell, read};
use crate::Error;
use crate::lock::lock;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A connection with another rank.
struct Link {
    /// One exchange at a time sends.
    stream: Mutex<TcpStream>,
    /// What has come, taken in by a thread of its own.
    frames: Mutex<Receiver<Frame>>,
    reader: Option<JoinHandle<()>>,
}

/// All connections.
pub struct Links {
    rank: u32,
    /// By rank; none with this one.
    links: Vec<Option<Link>>,
    state: Mutex<Outcome>,
}

/// What has become of the group.
#[derive(Default)]
struct Outcome {
    /// It cannot be used any more.
    ended: bool,
    /// Why, until somebody has been told.
    failure: Option<Error>,
    /// Who has gone.
    missing: Vec<u32>,
}

fn take_in(mut stream: TcpStream, to: &Sender<Frame>) {
    // It ends with the connection; who waits for more is told by the channel.
    while let Ok(frame) = read(&mut stream) {
        if to.send(frame).is_err() {
            return;
        }
    }
}

impl Links {
    /// Over connections with the other ranks, by their numbers.
    pub fn new(rank: u32, streams: Vec<Option<TcpStream>>, timeout: Duration) -> std::io::Result<Links> {
        let link = |stream: TcpStream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(Some(timeout))?;
            let (sender, frames) = channel();
            let reading = stream.try_clone()?;
            let reader = std::thread::Builder::new().name(format!("rank {rank}"));
            let reader = reader.spawn(move || take_in(reading, &sender))?;
            Ok(Link { stream: Mutex::new(stream), frames: Mutex::new(frames), reader: Some(reader) })
        };
        let links = streams.into_iter().map(|stream| stream.map(link).transpose()).collect::<std::io::Result<_>>()?;
        Ok(Links { rank, links, state: Mutex::default() })
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn ranks(&self) -> u32 {
        self.links.len() as u32
    }

    /// Whether the group can be used.
    pub fn usable(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        match state.failure.take() {
            Some(failure) => Err(failure),
            None if state.ended => Err(Error::Broken { missing: state.missing.clone() }),
            None => Ok(()),
        }
    }

    /// Whether it is to be used no more, without telling why.
    pub fn ended(&self) -> bool {
        lock(&self.state).ended
    }

    fn link(&self, rank: u32) -> Result<&Link, Error> {
        let link = self.links.get(rank as usize).and_then(Option::as_ref);
        link.ok_or(Error::NoRank { what: "exchange with", rank, ranks: self.ranks() })
    }

    fn lost(&self, lost: u32, reason: impl std::fmt::Display) -> Error {
        Error::Lost { rank: self.rank, lost, reason: reason.to_string() }
    }

    /// Sends bytes of an operation to another rank.
    pub fn send(&self, to: u32, head: Head, bytes: &[u8]) -> Result<(), Error> {
        let mut stream = lock(&self.link(to)?.stream);
        let sent = stream.write_all(&head.bytes(bytes.len())).and_then(|()| stream.write_all(bytes));
        drop(stream);
        // It may have said why it left.
        sent.map_err(|error| self.farewell_of(to).unwrap_or_else(|| self.lost(to, error)))
    }

    /// What a rank has said before it left, if it did.
    fn farewell_of(&self, from: u32) -> Option<Error> {
        let frames = lock(&self.link(from).ok()?.frames);
        let said = |frame| match frame {
            Frame::Farewell(lost, reason) => Some(self.left(from, &lost, &reason)),
            Frame::Bytes(..) => None,
        };
        std::iter::from_fn(|| frames.recv_timeout(Duration::from_millis(100)).ok()).find_map(said)
    }

    fn left(&self, from: u32, lost: &[u32], reason: &str) -> Error {
        match lost.first() {
            Some(&first) => self.lost(first, format!("rank {from} says: {reason}")),
            None => self.lost(from, format!("it has left the group: {reason}")),
        }
    }

    /// The bytes of another rank that belong to this operation.
    pub fn receive(&self, from: u32, head: Head, start: Instant, timeout: Duration) -> Result<Vec<u8>, Error> {
        let left = timeout.saturating_sub(start.elapsed());
        match lock(&self.link(from)?.frames).recv_timeout(left) {
            Ok(Frame::Bytes(theirs, bytes)) if theirs == head => Ok(bytes),
            Ok(Frame::Bytes(theirs, _)) => {
                Err(Error::Differs { rank: self.rank, other: from, own: head.to_string(), theirs: theirs.to_string() })
            }
            Ok(Frame::Farewell(lost, reason)) => Err(self.left(from, &lost, &reason)),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost(from, "its process has closed the connection")),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Missing { rank: self.rank, missing: vec![from], waited: start.elapsed() })
            }
        }
    }

    /// Takes note of a failure, unless there is one, and tells the others.
    pub fn fail(&self, error: Error) {
        let missing = match &error {
            Error::Missing { missing, .. } => missing.clone(),
            Error::Lost { lost, .. } => vec![*lost],
            _ => Vec::new(),
        };
        let reason = error.to_string();
        let mut state = lock(&self.state);
        if state.ended {
            return;
        }
        (state.ended, state.failure, state.missing) = (true, Some(error), missing.clone());
        drop(state);
        self.close(&missing, &reason);
    }

    /// Ends the group for a reason of this rank's.
    pub fn leave(&self, reason: &str) {
        let before = std::mem::replace(&mut lock(&self.state).ended, true);
        if !before {
            self.close(&[], reason);
        }
    }

    /// Says farewell, and closes all connections.
    fn close(&self, lost: &[u32], reason: &str) {
        let bytes = farewell(lost, reason);
        for link in self.links.iter().flatten() {
            // Somebody who sends fails when the connection closes; a half-sent frame is no place for a farewell.
            if let Ok(mut stream) = link.stream.try_lock() {
                // Who has gone does not hear it.
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for link in self.links.iter_mut().flatten() {
            let stream = lock(&link.stream);
            // A connection that is closed already stays so.
            let _ = stream.shutdown(Shutdown::Both);
            drop(stream);
            if let Some(reader) = link.reader.take() {
                // It has ended or panicked; neither matters any more.
                let _ = reader.join();
            }
        }
    }
}
