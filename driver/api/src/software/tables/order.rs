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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use crate::software::tables::objects::StreamKey;

/// The number of an operation; 0 is none.
pub type OpId = u32;

const CHUNK: usize = 1024;

/// The most operations that are told apart; older ones count as ordered.
const MOST: usize = 1 << 20;

/// By timeline, the last tick that is known to come before; beyond the end nothing is.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Clock(Arc<Vec<u32>>);

impl Clock {
    fn get(&self, timeline: usize) -> u32 {
        self.0.get(timeline).copied().unwrap_or(0)
    }

    fn set(&mut self, timeline: usize, tick: u32) {
        let ticks = Arc::make_mut(&mut self.0);
        if ticks.len() <= timeline {
            ticks.resize(timeline + 1, 0);
        }
        if let Some(at) = ticks.get_mut(timeline) {
            *at = (*at).max(tick);
        }
    }

    fn join(&mut self, other: &Clock) {
        if Arc::ptr_eq(&self.0, &other.0) || other.0.iter().enumerate().all(|(t, tick)| *tick <= self.get(t)) {
            return;
        }
        for (timeline, tick) in other.0.iter().enumerate() {
            self.set(timeline, *tick);
        }
    }
}

type Chunk = [AtomicU64; CHUNK];

/// Where operations stand: timeline and tick by number, from `first` on.
#[derive(Clone)]
struct Places {
    first: OpId,
    chunks: Vec<Arc<Chunk>>,
}

impl Places {
    fn get(&self, op: OpId) -> Option<(usize, u32)> {
        let at = op.checked_sub(self.first)? as usize;
        let word = self.chunks.get(at / CHUNK)?.get(at % CHUNK)?.load(Atomic::Relaxed);
        (word != 0).then_some(((word >> 32) as usize, word as u32))
    }
}

/// An operation's place in the order. It keeps what it needs: asking takes no lock.
#[derive(Clone)]
pub struct Ordering {
    id: OpId,
    clock: Clock,
    /// For a launch that may begin before the one in front of it has ended: the clock until it waits for that.
    early: Option<Clock>,
    /// Every operation below comes before.
    settled: OpId,
    places: Arc<Places>,
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
    /// A kernel that begins when a kernel in front lets it, or has ended (programmatic serialisation).
    Begun,
}

struct Stream {
    context: u64,
    blocking: bool,
    destroyed: bool,
    /// What the next operation comes after, but for what the host knows by then.
    clock: Clock,
    /// If the last operation is a kernel, what that began after.
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
    streams: HashMap<StreamKey, Stream>,
    /// What the events stand for.
    events: HashMap<u64, Clock>,
    host: Clock,
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
        let kernel = self.stream(lane).kernel.take().filter(|_| follows == Follows::Begun);
        let early = kernel.map(|mut kernel| {
            kernel.join(&self.beside(lane, false));
            kernel
        });
        let timeline = self.timeline(lane, 0);
        let ordering = Ordering { early, ..self.issue(timeline, clock) };
        self.after(lane, &ordering, timeline);
        if follows != Follows::Other {
            self.stream(lane).kernel = Some(ordering.early.as_ref().unwrap_or(&ordering.clock).clone());
        }
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
                [dep] if *follows == Follows::Begun && nodes.get(*dep).is_some_and(|n| n.0 != Follows::Other) => {
                    issued.get(*dep).map(|(o, _): &(Ordering, usize)| o.early.as_ref().unwrap_or(&o.clock).clone())
                }
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

    fn stream(&mut self, lane: Lane) -> &mut Stream {
        self.streams.entry(lane.key).or_insert_with(|| Stream {
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
        Ordering { id, clock, early: None, settled: self.settled, places: Arc::clone(&self.places) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own(id: u64) -> Lane {
        Lane { key: StreamKey::Own(id), context: 1, blocking: false }
    }
    fn blocking(id: u64) -> Lane {
        Lane { blocking: true, ..own(id) }
    }
    fn legacy() -> Lane {
        Lane { key: StreamKey::Legacy(1), context: 1, blocking: true }
    }

    /// A graph's nodes by what they depend on, none of them kernels.
    fn plain(nodes: &[&[usize]]) -> Vec<(Follows, Vec<usize>)> {
        nodes.iter().map(|deps| (Follows::Other, deps.to_vec())).collect()
    }

    #[test]
    fn programmatic_launches_may_begin_before_the_kernel_in_front_has_ended() {
        use Follows::{Begun, Ended, Other};
        let mut order = Order::default();
        let copy = order.begin(own(1), Other);
        let a = order.begin(own(1), Ended);
        let b = order.begin(own(1), Begun);
        assert!(b.begins_early() && b.ordered_before(a.id()) && b.ordered_before_wait(copy.id()));
        assert!(!b.ordered_before_wait(a.id()));
        // `b` may have let it begin before `a` had ended.
        let c = order.begin(own(1), Begun);
        assert!(!c.ordered_before_wait(b.id()) && !c.ordered_before_wait(a.id()) && c.ordered_before_wait(copy.id()));
        // An ordinary launch, one behind a copy, and one whose predecessor the host has waited for.
        let d = order.begin(own(1), Ended);
        assert!(!d.begins_early() && [a.id(), b.id(), c.id()].iter().all(|&op| d.ordered_before_wait(op)));
        order.begin(own(1), Other);
        assert!(!order.begin(own(1), Begun).begins_early());
        let e = order.begin(own(1), Ended);
        order.stream_done(own(1));
        let f = order.begin(own(1), Begun);
        assert!(f.ordered_before_wait(e.id()));
        // Nodes: a copy, a kernel, two programmatic ones behind it, and one with two dependencies.
        let deps: [(Follows, &[usize]); 5] =
            [(Other, &[]), (Ended, &[0]), (Begun, &[1]), (Begun, &[0]), (Begun, &[2, 3])];
        let g = order.begin_graph(own(1), &deps.map(|(f, deps)| (f, deps.to_vec())));
        assert!(g[2].begins_early() && !g[2].ordered_before_wait(g[1].id()) && g[2].ordered_before_wait(g[0].id()));
        assert!(!g[3].begins_early() && !g[4].begins_early() && g[4].ordered_before_wait(g[2].id()));
        assert!(!order.begin(own(1), Begun).begins_early(), "a graph is not left before it has ended");
    }

    #[test]
    fn a_stream_is_in_order_and_two_are_not() {
        let mut order = Order::default();
        let (a, b, c) = (
            order.begin(own(1), Follows::Other),
            order.begin(own(1), Follows::Other),
            order.begin(own(2), Follows::Other),
        );
        assert!(b.ordered_before(a.id()));
        assert!(!a.ordered_before(b.id()), "issued later");
        assert!(!a.ordered_before(a.id()), "itself");
        assert!(!c.ordered_before(a.id()) && !c.ordered_before(b.id()), "no edge");
    }

    #[test]
    fn events_carry_what_came_before_them_and_no_more() {
        let mut order = Order::default();
        let first = order.begin(own(1), Follows::Other);
        order.record(9, own(1));
        let second = order.begin(own(1), Follows::Other);
        order.wait(own(2), 9);
        let waiter = order.begin(own(2), Follows::Other);
        assert!(waiter.ordered_before(first.id()));
        assert!(!waiter.ordered_before(second.id()));
        // Through a third stream, by a second event.
        order.record(10, own(2));
        order.wait(own(3), 10);
        let third = order.begin(own(3), Follows::Other);
        assert!(third.ordered_before(first.id()) && third.ordered_before(waiter.id()));
        assert!(!third.ordered_before(second.id()));
        // Recorded anew, the event stands for more.
        order.record(9, own(1));
        order.wait(own(3), 9);
        assert!(order.begin(own(3), Follows::Other).ordered_before(second.id()));
        order.wait(own(4), 777);
        assert!(!order.begin(own(4), Follows::Other).ordered_before(first.id()), "an event that nobody recorded");
    }

    #[test]
    fn the_legacy_stream_orders_blocking_streams_alone() {
        let mut order = Order::default();
        let (a, free) = (order.begin(blocking(1), Follows::Other), order.begin(own(2), Follows::Other));
        let null = order.begin(legacy(), Follows::Other);
        assert!(null.ordered_before(a.id()) && !null.ordered_before(free.id()));
        let (b, other) = (order.begin(blocking(3), Follows::Other), order.begin(own(2), Follows::Other));
        assert!(b.ordered_before(null.id()) && b.ordered_before(a.id()));
        assert!(!other.ordered_before(null.id()));
        let elsewhere = Lane { context: 2, ..blocking(4) };
        assert!(!order.begin(elsewhere, Follows::Other).ordered_before(null.id()), "another context's");
    }

    #[test]
    fn what_the_host_waited_for_is_before_what_it_issues() {
        let mut order = Order::default();
        let (a, b) = (order.begin(own(1), Follows::Other), order.begin(own(2), Follows::Other));
        order.stream_done(own(1));
        let c = order.begin(own(3), Follows::Other);
        assert!(c.ordered_before(a.id()) && !c.ordered_before(b.id()));
        order.record(5, own(2));
        let late = order.begin(own(2), Follows::Other);
        order.event_done(5);
        let d = order.begin(own(3), Follows::Other);
        assert!(d.ordered_before(b.id()) && !d.ordered_before(late.id()));
        order.context_done(1);
        assert!(order.begin(own(4), Follows::Other).ordered_before(late.id()));
        assert!(!c.ordered_before(b.id()), "what was issued before does not change");
    }

    #[test]
    fn branches_of_a_graph_are_not_ordered() {
        let mut order = Order::default();
        let before = order.begin(own(1), Follows::Other);
        // A diamond with a tail on one side: 0 -> {1 -> 4, 2} -> 3.
        let nodes = order.begin_graph(own(1), &plain(&[&[], &[0], &[0]]));
        assert!(nodes.iter().all(|n| n.ordered_before(before.id())));
        assert!(nodes[1].ordered_before(nodes[0].id()) && nodes[2].ordered_before(nodes[0].id()));
        assert!(!nodes[2].ordered_before(nodes[1].id()), "two branches");
        let after = order.begin(own(1), Follows::Other);
        assert!(nodes.iter().all(|n| after.ordered_before(n.id())), "a launch is done before what follows it");
        let other = order.begin(own(2), Follows::Other);
        assert!(nodes.iter().all(|n| !other.ordered_before(n.id())));

        let diamond = order.begin_graph(own(1), &plain(&[&[], &[0], &[0], &[1, 2], &[2]]));
        assert!((0..3).all(|n| diamond[3].ordered_before(diamond[n].id())));
        assert!(!diamond[4].ordered_before(diamond[3].id()) && !diamond[4].ordered_before(diamond[1].id()));
        assert!(diamond.iter().all(|n| n.ordered_before(nodes[2].id())), "one launch after the other");
        // Nodes without edges.
        let loose = order.begin_graph(own(1), &plain(&[&[], &[], &[]]));
        assert!(!loose[2].ordered_before(loose[0].id()) && !loose[1].ordered_before(loose[0].id()));
    }

    /// Against reachability in the graph of edges, worked out the slow way.
    #[test]
    fn agrees_with_reachability() {
        let mut order = Order::default();
        let mut seed = 1u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        // Sets of operations: done before the next one of each stream, at each event, known to the host.
        let mut streams: Vec<HashSet<OpId>> = vec![HashSet::new(); 5];
        let mut events: Vec<HashSet<OpId>> = vec![HashSet::new(); 4];
        let mut host: HashSet<OpId> = HashSet::new();
        let lanes = [own(1), own(2), blocking(3), blocking(4), legacy()];
        let feeds = |lane: usize| -> &[usize] { [&[0][..], &[1], &[2, 4], &[3, 4], &[2, 3, 4]][lane] };
        for _ in 0..1500 {
            let (lane, event) = (random(5) as usize, random(4) as usize);
            let before = |streams: &[HashSet<OpId>], host: &HashSet<OpId>| {
                let mut all = host.clone();
                feeds(lane).iter().for_each(|s| all.extend(&streams[*s]));
                all
            };
            match random(20) {
                0..12 => {
                    let op = order.begin(lanes[lane], Follows::Other);
                    let mut all = before(&streams, &host);
                    for earlier in 1..op.id() {
                        assert_eq!(op.ordered_before(earlier), all.contains(&earlier), "{earlier} before {}", op.id());
                    }
                    all.insert(op.id());
                    streams[lane] = all;
                }
                12..15 => {
                    order.record(event as u64, lanes[lane]);
                    events[event] = before(&streams, &host);
                }
                15..18 => {
                    order.wait(lanes[lane], event as u64);
                    let known = events[event].clone();
                    streams[lane].extend(known);
                }
                18 => {
                    order.event_done(event as u64);
                    host.extend(&events[event]);
                }
                _ if random(10) == 0 => {
                    order.stream_done(lanes[lane]);
                    host = before(&streams, &host);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn memory_stays_bounded() {
        let mut order = Order::default();
        for round in 0..200u64 {
            let lane = own(round + 1);
            for _ in 0..100 {
                order.begin_graph(lane, &plain(&[&[], &[0], &[0]]));
            }
            order.stream_destroyed(lane.key);
            order.context_done(1);
        }
        assert!(order.places.chunks.len() <= 1, "settled operations are forgotten");
        assert!(order.ticks.len() <= 3 && order.streams.is_empty(), "timelines are used again");
        // Without any wait the window is bounded, and what falls out of it counts as ordered.
        let first = order.begin(own(1), Follows::Other).id();
        for _ in 0..MOST + 2 * CHUNK {
            order.begin(own(2), Follows::Other);
        }
        assert!(order.places.chunks.len() <= MOST / CHUNK);
        assert!(order.begin(own(2), Follows::Other).ordered_before(first));
    }
}
