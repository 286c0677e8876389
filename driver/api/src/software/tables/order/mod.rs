//! Which operations are ordered before which, as CUDA promises it and not as this engine happens to run them.
//!
//! Every operation (kernel, copy, fill, host function, node of a graph) has a number, a place on a *timeline* and a
//! vector clock over timelines. A timeline is a stream, or a branch of the graphs that a stream launches: its operations
//! follow each other. Edges between timelines come from
//!
//! - events, recorded in one stream and waited for in another;
//! - the legacy default stream, which waits for the blocking streams of its context and they for it;
//! - the dependencies of a graph's nodes; a launch is after all that its stream did, and before all that it does next;
//! - the host: a call that waits for a stream, an event or a context knows what it waited for, and what the host issues
//!   afterwards is after that.
//!
//! How threads of the host tell each other what they know is not seen here, so they share one clock: what one has waited
//! for, all know. This misses a missing edge between threads, and invents none.
//!
//! Memory is bounded: operations that the host has waited for are before everything to come and are forgotten, and so
//! are the oldest of those beyond [`MOST`].

mod clock;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use warpsmith_check::Talk;

use crate::software::tables::objects::StreamKey;
use clock::{CHUNK, Clock, Places};
pub use clock::{OpId, Ordering};

/// The most operations that are told apart; older ones count as ordered.
const MOST: usize = 1 << 20;

/// A stream as the order sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub key: StreamKey,
    pub context: u64,
    /// Whether it and the legacy default stream of its context wait for each other.
    pub blocking: bool,
}

/// How a launch follows what is in front of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// It is no kernel.
    Other,
    /// A kernel that begins when what is in front has ended.
    Ended,
    /// A kernel that begins when a kernel in front lets it, or has ended (programmatic serialisation). `lets_behind_wait`: it lets the next
    /// one begin only when it has waited for the one in front itself.
    Begun { lets_behind_wait: bool },
}

impl Follows {
    fn may_begin_early(self) -> bool {
        matches!(self, Follows::Begun { .. })
    }

    /// What a kernel that follows the one with this ordering, and may begin before that has ended, knows when it begins.
    fn known_behind(self, ordering: &Ordering) -> Option<Clock> {
        match self {
            Follows::Other => None,
            // The one in front of it is complete, and so is all that this one waited for.
            Follows::Begun { lets_behind_wait: true } => Some(ordering.clock.clone()),
            _ => Some(ordering.early.as_ref().unwrap_or(&ordering.clock).clone()),
        }
    }
}

struct StreamOrder {
    context: u64,
    blocking: bool,
    destroyed: bool,
    /// What the next operation comes after, but for what the host knows by then.
    clock: Clock,
    /// If the last operation is a kernel, what is complete when one behind it begins that need not wait for its end.
    kernel: Option<Clock>,
    /// Its timelines: its own, then those of graph branches.
    timelines: Vec<usize>,
}

/// The order of everything that was issued.
pub(crate) struct Order {
    next: OpId,
    settled: OpId,
    places: Arc<Places>,
    /// The last tick of each timeline.
    ticks: Vec<u32>,
    /// Timelines of streams that are gone, for new ones.
    free: Vec<usize>,
    streams: HashMap<StreamKey, StreamOrder>,
    /// What the events stand for.
    events: HashMap<u64, Clock>,
    host: Clock,
    /// What launches tell each other while they run.
    talk: Arc<Talk>,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            next: 1,
            settled: 1,
            places: Arc::new(Places { first: 1, chunks: Vec::new() }),
            ticks: Vec::new(),
            free: Vec::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            host: Clock::default(),
            talk: Arc::default(),
        }
    }
}

impl Order {
    /// An empty order whose operations all come after those of this one.
    pub fn settled(&self) -> Order {
        let places = Arc::new(Places { first: self.next, chunks: Vec::new() });
        Order { next: self.next, settled: self.next, places, ..Order::default() }
    }

    /// An operation is issued on a stream.
    pub fn begin(&mut self, lane: Lane, follows: Follows) -> Ordering {
        let clock = self.before(lane);
        let kernel = self.stream(lane).kernel.take().filter(|_| follows.may_begin_early());
        let early = kernel.map(|mut kernel| {
            kernel.join(&self.beside(lane, false));
            kernel
        });
        let timeline = self.timeline(lane, 0);
        let ordering = Ordering { early, ..self.issue(timeline, clock) };
        self.after(lane, &ordering, timeline);
        self.stream(lane).kernel = follows.known_behind(&ordering);
        ordering
    }

    /// A graph is launched on a stream: an operation for each node, in an order in which dependencies, places in the
    /// same list, come first.
    pub fn begin_graph(&mut self, lane: Lane, nodes: &[(Follows, Vec<usize>)]) -> Vec<Ordering> {
        let base = self.before(lane);
        self.stream(lane).kernel = None;
        let mut issued: Vec<(Ordering, usize)> = Vec::with_capacity(nodes.len());
        // Branches whose last node has a successor already, or whose end is open.
        let mut continued: HashSet<usize> = HashSet::new();
        let mut branches = 0;
        for (follows, deps) in nodes {
            // A programmatic edge leads from one kernel to another.
            let early = match deps.as_slice() {
                [dep] if follows.may_begin_early() => issued
                    .get(*dep)
                    .zip(nodes.get(*dep))
                    .and_then(|((ordering, _), (front, _))| front.known_behind(ordering)),
                _ => None,
            };
            let mut clock = base.clone();
            let mut branch = None;
            for dep in deps {
                let Some((ordering, timeline)) = issued.get(*dep) else { continue };
                clock.join(&ordering.clock);
                if let Some((own, tick)) = self.places.get(ordering.id) {
                    clock.set(own, tick);
                }
                if branch.is_none() && continued.insert(*dep) {
                    branch = Some(*timeline);
                }
            }
            let timeline = match branch {
                Some(timeline) => timeline,
                None => {
                    branches += 1;
                    self.timeline(lane, branches)
                }
            };
            issued.push((Ordering { early, ..self.issue(timeline, clock) }, timeline));
        }
        for (ordering, timeline) in &issued {
            self.after(lane, ordering, *timeline);
        }
        issued.into_iter().map(|(ordering, _)| ordering).collect()
    }

    /// What a stream's next operation comes after.
    fn before(&mut self, lane: Lane) -> Clock {
        self.stream(lane);
        self.beside(lane, true)
    }

    /// The same, with or without what is in front on its own stream.
    fn beside(&self, lane: Lane, with_own: bool) -> Clock {
        let mut clock = self.host.clone();
        for (key, stream) in &self.streams {
            let own = *key == lane.key;
            let legacy = lane.blocking
                && stream.context == lane.context
                && match lane.key {
                    StreamKey::Legacy(_) => stream.blocking,
                    _ => matches!(key, StreamKey::Legacy(_)),
                };
            if (own && with_own) || (!own && legacy) {
                clock.join(&stream.clock);
            }
        }
        clock
    }

    fn after(&mut self, lane: Lane, ordering: &Ordering, timeline: usize) {
        let tick = self.places.get(ordering.id).map_or(0, |(_, tick)| tick);
        let stream = self.stream(lane);
        stream.clock.join(&ordering.clock);
        stream.clock.set(timeline, tick);
    }

    fn stream(&mut self, lane: Lane) -> &mut StreamOrder {
        self.streams.entry(lane.key).or_insert_with(|| StreamOrder {
            context: lane.context,
            blocking: lane.blocking,
            destroyed: false,
            clock: Clock::default(),
            kernel: None,
            timelines: Vec::new(),
        })
    }

    fn timeline(&mut self, lane: Lane, branch: usize) -> usize {
        while self.stream(lane).timelines.len() <= branch {
            let fresh = self.free.pop().unwrap_or_else(|| {
                self.ticks.push(0);
                self.ticks.len() - 1
            });
            self.stream(lane).timelines.push(fresh);
        }
        self.stream(lane).timelines.get(branch).copied().unwrap_or(0)
    }

    fn issue(&mut self, timeline: usize, mut clock: Clock) -> Ordering {
        let id = self.next;
        self.next = self.next.saturating_add(1);
        let tick = match self.ticks.get_mut(timeline) {
            Some(tick) => {
                *tick = tick.saturating_add(1);
                *tick
            }
            None => 1,
        };
        // A timeline's operations follow each other.
        clock.set(timeline, tick - 1);
        let at = (id - self.places.first) as usize;
        if at / CHUNK >= self.places.chunks.len() {
            let places = Arc::make_mut(&mut self.places);
            places.chunks.push(Arc::new([const { AtomicU64::new(0) }; CHUNK]));
            if places.chunks.len() > MOST / CHUNK {
                places.chunks.remove(0);
                places.first += CHUNK as OpId;
                self.settled = self.settled.max(places.first);
            }
        }
        let at = (id - self.places.first) as usize;
        if let Some(place) = self.places.chunks.get(at / CHUNK).and_then(|c| c.get(at % CHUNK)) {
            place.store((timeline as u64) << 32 | u64::from(tick), Atomic::Relaxed);
        }
        Ordering {
            id,
            clock,
            early: None,
            settled: self.settled,
            places: Arc::clone(&self.places),
            talk: Arc::clone(&self.talk),
        }
    }

    /// An event is recorded: it stands for what its stream's next operation would come after.
    pub fn record(&mut self, event: u64, lane: Lane) {
        let clock = self.before(lane);
        self.stream(lane).kernel = None;
        self.events.insert(event, clock);
    }

    /// A stream waits for an event; one that was never recorded is no edge.
    pub fn wait(&mut self, lane: Lane, event: u64) {
        if let Some(clock) = self.events.get(&event).cloned() {
            let stream = self.stream(lane);
            stream.clock.join(&clock);
            stream.kernel = None;
        }
    }

    /// The host waits for a stream.
    pub fn stream_done(&mut self, lane: Lane) {
        let clock = self.before(lane);
        self.known(&clock);
    }

    /// The host waits for an event.
    pub fn event_done(&mut self, event: u64) {
        if let Some(clock) = self.events.get(&event).cloned() {
            self.known(&clock);
        }
    }

    /// The host waits for everything in a context.
    pub fn context_done(&mut self, context: u64) {
        let clocks: Vec<Clock> =
            self.streams.values().filter(|s| s.context == context).map(|s| s.clock.clone()).collect();
        for clock in clocks {
            self.known(&clock);
        }
    }

    pub fn event_destroyed(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// A stream is destroyed; what it was given still runs.
    pub fn stream_destroyed(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.destroyed = true;
        }
        self.reclaim();
    }

    fn known(&mut self, clock: &Clock) {
        self.host.join(clock);
        // Everything up to the first operation that the host has not waited for is before all that comes.
        while self.settled < self.next {
            match self.places.get(self.settled) {
                Some((timeline, tick)) if tick > self.host.get(timeline) => break,
                _ => self.settled += 1,
            }
        }
        let gone = (self.settled - self.places.first) as usize / CHUNK;
        if gone > 0 {
            let places = Arc::make_mut(&mut self.places);
            places.chunks.drain(..gone.min(places.chunks.len()));
            places.first += (gone * CHUNK) as OpId;
        }
        self.reclaim();
    }

    /// Takes the timelines of destroyed streams whose work the host knows to be done.
    fn reclaim(&mut self) {
        let (ticks, host, free) = (&self.ticks, &self.host, &mut self.free);
        self.streams.retain(|_, stream| {
            let done = |t: &usize| ticks.get(*t).copied().unwrap_or(0) <= host.get(*t);
            if stream.destroyed && stream.timelines.iter().all(done) {
                free.append(&mut stream.timelines);
                return false;
            }
            true
        });
    }
}
