//! Where an operation stands, and what it knows to be before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use warpsmith_check::{Speaker, Talk};

/// The number of an operation; 0 is none.
pub type OpId = u32;

pub(super) const CHUNK: usize = 1024;

/// By timeline, the last tick that is known to come before; beyond the end nothing is.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Clock(pub(super) Arc<Vec<u32>>);

impl Clock {
    pub(super) fn get(&self, timeline: usize) -> u32 {
        self.0.get(timeline).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, timeline: usize, tick: u32) {
        let ticks = Arc::make_mut(&mut self.0);
        if ticks.len() <= timeline {
            ticks.resize(timeline + 1, 0);
        }
        if let Some(at) = ticks.get_mut(timeline) {
            *at = (*at).max(tick);
        }
    }

    pub(super) fn join(&mut self, other: &Clock) {
        if Arc::ptr_eq(&self.0, &other.0) || other.0.iter().enumerate().all(|(t, tick)| *tick <= self.get(t)) {
            return;
        }
        for (timeline, tick) in other.0.iter().enumerate() {
            self.set(timeline, *tick);
        }
    }
}

pub(super) type Chunk = [AtomicU64; CHUNK];

/// Where operations stand: timeline and tick by number, from `first` on.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) first: OpId,
    pub(super) chunks: Vec<Arc<Chunk>>,
}

impl Places {
    pub(super) fn get(&self, op: OpId) -> Option<(usize, u32)> {
        let at = op.checked_sub(self.first)? as usize;
        let word = self.chunks.get(at / CHUNK)?.get(at % CHUNK)?.load(Atomic::Relaxed);
        (word != 0).then_some(((word >> 32) as usize, word as u32))
    }
}

/// An operation's place in the order. It keeps what it needs: asking takes no lock.
#[derive(Clone)]
pub struct Ordering {
    pub(super) id: OpId,
    pub(super) clock: Clock,
    /// For a launch that may begin before the one in front of it has ended: the clock until it waits for that.
    pub(super) early: Option<Clock>,
    /// Every operation below comes before.
    pub(super) settled: OpId,
    pub(super) places: Arc<Places>,
    pub(super) talk: Arc<Talk>,
}

impl std::fmt::Debug for Ordering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ordering").field("id", &self.id).field("clock", &self.clock.0).finish_non_exhaustive()
    }
}

impl Ordering {
    /// The operation's own number.
    pub fn id(&self) -> OpId {
        self.id
    }

    /// The operation as one that may talk to others while it runs.
    pub fn speaker(&self) -> Speaker {
        let this = self.clone();
        Speaker { talk: Arc::clone(&self.talk), before: Arc::new(move |earlier| this.ordered_before(earlier)) }
    }

    /// Whether CUDA promises that operation `earlier` is complete when this one begins. Not so for the operation
    /// itself, nor for any that was issued after it.
    pub fn ordered_before(&self, earlier: OpId) -> bool {
        self.after(&self.clock, earlier)
    }

    /// The same for what a kernel does before `griddepcontrol.wait`, where its launch may begin before others have ended.
    pub fn ordered_before_wait(&self, earlier: OpId) -> bool {
        self.after(self.early.as_ref().unwrap_or(&self.clock), earlier)
    }

    /// Whether the operation may begin before the one in front of it has ended.
    pub fn begins_early(&self) -> bool {
        self.early.is_some()
    }

    fn after(&self, clock: &Clock, earlier: OpId) -> bool {
        if earlier >= self.id {
            return false;
        }
        if earlier < self.settled {
            return true;
        }
        self.places.get(earlier).is_none_or(|(timeline, tick)| tick <= clock.get(timeline))
    }
}
