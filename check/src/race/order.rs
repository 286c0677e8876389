//! What happened before what, under the PTX memory model.
//!
//! Each warp has an epoch that advances whenever some of its lanes make their accesses known to others. An
//! access is stamped with the epoch in which it happens; it happened before another thread's access if that thread knows
//! the lane up to at least that epoch. What all lanes of a warp know of the block's other warps and of each other is
//! dense; what single lanes know beyond that (`extra`), and what is known of other blocks, are [`Clock`]s.
//!
//! Edges come from block barriers, warp barriers and `.sync` collectives, and release patterns that synchronise with
//! acquire patterns: a releasing write, or a fence and then a strong write; an acquiring read, or a strong read and then
//! a fence; with every read-modify-write continuing what it read. Both ends must have scopes that include the other thread.

use std::sync::Arc;

use super::clock::{BlockKnown, Clock, WARPS, join, learn};
use rustc_hash::FxHashMap;
use warpsmith_simt::machine::LANES;
use warpsmith_simt::machine::barrier::{BARRIERS, CLUSTER};
use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::note::{Order, Scope};

/// Whether a scope reaches beyond the block. A cluster is one block here.
pub(super) fn wide(scope: Scope) -> bool {
    scope >= Scope::Gpu
}

/// What a release fence covered.
#[derive(Clone)]
struct Mark {
    /// What the warp knew, shared by the lanes that executed the fence together.
    base: Arc<Clock>,
    extra: Option<Arc<Clock>>,
    own: Box<[u32; LANES]>,
}

/// What one lane knows and has seen beyond its warp.
#[derive(Clone, Default)]
struct Lane {
    extra: Option<Arc<Clock>>,
    /// The last release fence of any scope, and the last one of a wide scope.
    fence: Option<Mark>,
    wide_fence: Option<Mark>,
    /// What strong reads have seen that an acquire fence of any scope, or of a wide one, makes known.
    seen: Option<Arc<Clock>>,
    wide_seen: Option<Arc<Clock>>,
}

/// The clock of a warp.
pub(super) struct Warp {
    pub epoch: u32,
    /// Lanes with a thread, and those that have not exited.
    start: u32,
    pub live: u32,
    /// Barriers that had opened when a lane last exited.
    left: u32,
    know: [u32; WARPS],
    own: [u32; LANES],
    /// All live lanes know each other at least up to this epoch.
    own_all: u32,
    rest: Option<Arc<Clock>>,
    /// Lanes with an `extra`.
    extras: u32,
    lanes: Option<Box<[Lane; LANES]>>,
    /// What relaxed read-modify-writes have seen: an order that the source may have asked for.
    pub intent: Option<Arc<Clock>>,
}

/// A block barrier's clock.
#[derive(Clone)]
struct Barrier {
    know: [u32; WARPS],
    rest: Option<Arc<Clock>>,
    intent: Option<Arc<Clock>>,
    arrived: [u32; WARPS],
    waits: u32,
}

const BARRIER: Barrier = Barrier { know: [0; WARPS], rest: None, intent: None, arrived: [0; WARPS], waits: 0 };

/// An order that there would be if scopes were wider.
pub(super) struct Missed {
    pub clock: Arc<Clock>,
    pub release: u32,
    pub acquire: u32,
}

/// Most of them that a block remembers.
const MISSED: usize = 8;

/// A location that threads synchronise through.
#[derive(Default)]
pub(super) struct SyncVariable {
    /// What its value carries from releases of a wide scope.
    wide: Option<Arc<Clock>>,
    /// And to threads of the releasing block, whatever the scope.
    by_block: Vec<(u32, Arc<Clock>)>,
    /// From releases of block scope, with their block (`u32::MAX`: several) and the last one's position.
    narrow: Option<(u32, Arc<Clock>, u32)>,
    /// Block, warp and lane of the last plain write.
    owner: Option<(u32, u8, u8)>,
    /// Position of the last release.
    release: u32,
}

pub(super) type Variables = FxHashMap<u64, SyncVariable>;

/// A strong access of one lane.
#[derive(Clone, Copy)]
pub(super) struct Strong {
    pub warp: u8,
    pub lane: u8,
    pub pc: u32,
    pub reads: bool,
    pub writes: bool,
    pub order: Order,
    pub scope: Scope,
}

/// The clocks of a block.
pub(super) struct Clocks {
    pub block: u32,
    pub warps: Vec<Warp>,
    barriers: Vec<Barrier>,
    /// What the barrier of the cluster held when it opened last.
    cluster: Option<Barrier>,
    /// How often barriers have opened.
    pub openings: u32,
    pub missed: Vec<Missed>,
}

impl Clocks {
    pub(super) fn new(block: u32, threads: u32) -> Clocks {
        let warp = |w: u32| {
            let lanes = (threads - w * LANES as u32).min(LANES as u32);
            let live = u32::MAX >> (32 - lanes);
            Warp {
                epoch: 1,
                start: live,
                live,
                left: 0,
                know: [0; WARPS],
                own: [0; LANES],
                own_all: 0,
                rest: None,
                extras: 0,
                lanes: None,
                intent: None,
            }
        };
        let warps = (0..threads.div_ceil(LANES as u32)).map(warp).collect();
        Clocks { block, warps, barriers: Vec::new(), cluster: None, openings: 0, missed: Vec::new() }
    }

    /// Lanes of `warp` are gone.
    pub(super) fn exited(&mut self, warp: usize, lanes: u32) {
        if let Some(w) = self.warps.get_mut(warp) {
            w.live &= !lanes;
            w.left = self.openings;
        }
    }

    /// Lanes of a warp have met.
    pub(super) fn met(&mut self, warp: usize, lanes: u32) {
        let block = self.block;
        let Some(w) = self.warps.get_mut(warp) else { return };
        let epoch = w.epoch;
        w.epoch += 1;
        if lanes & w.live == w.live {
            w.settle(lanes, epoch);
            return;
        }
        let mut epochs = w.own;
        lanes_of(lanes).for_each(|l| epochs[l] = epoch);
        let mut known = BlockKnown::NOTHING;
        known.join_lanes(warp as u8, &epochs);
        let mut met = Some(Arc::new(Clock::of(block, known)));
        let all = w.lanes.get_or_insert_default();
        lanes_of(lanes).filter_map(|l| all[l].extra.as_ref()).for_each(|extra| learn(&mut met, extra));
        lanes_of(lanes).for_each(|l| all[l].extra.clone_from(&met));
        w.extras |= lanes;
    }

    /// A warp arrives at a barrier with all its lanes.
    pub(super) fn arrived(&mut self, warp: usize, id: usize, waits: bool) {
        let block = self.block;
        let Some(w) = self.warps.get_mut(warp) else { return };
        if self.barriers.is_empty() {
            self.barriers.resize(BARRIERS, BARRIER);
        }
        let Some(barrier) = self.barriers.get_mut(id) else { return };
        join(&mut barrier.know, &w.know);
        barrier.arrived[warp] = w.epoch;
        if w.live == w.start {
            barrier.know[warp] = w.epoch;
        } else {
            // Lanes that have exited do not take part.
            let mut epochs = w.own;
            lanes_of(w.live).for_each(|l| epochs[l] = w.epoch);
            let mut known = BlockKnown::NOTHING;
            known.join_lanes(warp as u8, &epochs);
            learn(&mut barrier.rest, &Arc::new(Clock::of(block, known)));
        }
        if let Some(rest) = &w.rest {
            learn(&mut barrier.rest, rest);
        }
        if let Some(lanes) = w.lanes.as_ref().filter(|_| w.extras & w.live != 0) {
            let extras = lanes_of(w.extras & w.live).filter_map(|l| lanes[l].extra.as_ref());
            extras.for_each(|extra| learn(&mut barrier.rest, extra));
        }
        if let Some(intent) = &w.intent {
            learn(&mut barrier.intent, intent);
        }
        barrier.waits |= u32::from(waits) << warp;
        w.epoch += 1;
    }

    /// Whether a barrier that opens for the warps in `set` orders everything before it that the warps in `active` did before
    /// everything that anybody in the block does after it.
    pub(super) fn joins(&self, id: usize, set: u32, active: u32) -> bool {
        let Some(barrier) = self.barriers.get(id) else { return false };
        let waits = set & barrier.waits;
        id != CLUSTER as usize
            && self.warps.iter().enumerate().all(|(i, w)| {
                let (here, before) = (waits >> i & 1 != 0, active >> i & 1 != 0);
                // Lanes that have exited are not ordered, but do nothing any more.
                if before { here && w.live == w.start } else { here || w.live == 0 }
            })
    }

    /// A barrier opens for the warps in `set`.
    pub(super) fn opened(&mut self, id: usize, set: u32) {
        let Some(slot) = self.barriers.get_mut(id) else { return };
        let barrier = std::mem::replace(slot, BARRIER);
        self.openings += 1;
        if id == CLUSTER as usize {
            self.cluster = Some(barrier);
            return;
        }
        for warp in lanes_of(set & barrier.waits) {
            let Some(w) = self.warps.get_mut(warp) else { continue };
            join(&mut w.know, &barrier.know);
            w.settle(w.live, barrier.arrived[warp]);
            if let Some(rest) = &barrier.rest {
                learn(&mut w.rest, rest);
            }
            if let Some(intent) = &barrier.intent {
                learn(&mut w.intent, intent);
            }
        }
    }

    /// Lanes of a warp have waited at the barrier of their cluster.
    pub(super) fn cluster_waited(&mut self, warp: usize, lanes: u32) {
        let Some(barrier) = &self.cluster else { return };
        let known = BlockKnown { all: barrier.know, lanes: Vec::new() };
        let mut clock = barrier.rest.as_deref().cloned().unwrap_or_default();
        clock.add(self.block, &Arc::new(known));
        let clock = Arc::new(clock);
        lanes_of(lanes).for_each(|lane| self.told(warp, lane, &clock));
    }

    /// Lanes of a warp execute a fence.
    pub(super) fn fence(&mut self, warp: usize, lanes: u32, pc: u32, acquires: bool, releases: bool, scope: Scope) {
        let block = self.block;
        let Some(w) = self.warps.get_mut(warp) else { return };
        if acquires {
            for l in lanes_of(lanes) {
                let Some(lane) = w.lanes.as_mut().map(|all| &mut all[l]) else { break };
                let (seen, missed) = match wide(scope) {
                    true => (lane.wide_seen.clone(), None),
                    false => (lane.seen.clone(), lane.wide_seen.clone()),
                };
                if let Some(seen) = seen {
                    learn(&mut lane.extra, &seen);
                    w.extras |= 1 << l;
                }
                if let Some(clock) = missed {
                    miss(&mut self.missed, &clock, u32::MAX, pc);
                }
            }
        }
        if !releases {
            return;
        }
        let base = Arc::new(w.base(block));
        let own = w.own;
        let epoch = w.epoch;
        w.epoch += 1;
        let all = w.lanes.get_or_insert_default();
        for l in lanes_of(lanes) {
            let mut own = Box::new(own);
            own[l] = epoch;
            let mark = Mark { base: base.clone(), extra: all[l].extra.clone(), own };
            if wide(scope) {
                all[l].wide_fence = Some(mark.clone());
            }
            all[l].fence = Some(mark);
        }
    }

    /// A lane reads or writes a location in a way that can synchronise.
    pub(super) fn strong(&mut self, s: &Strong, v: &mut SyncVariable) {
        let block = self.block;
        let Some(w) = self.warps.get_mut(usize::from(s.warp)) else { return };
        let l = usize::from(s.lane) % LANES;
        let Some(lane) = w.lanes.get_or_insert_default().get_mut(l) else { return };
        let mine = v.by_block.iter().find(|b| b.0 == block).map(|b| b.1.clone());
        if s.reads {
            let far = v.wide.clone();
            if s.order.acquires() {
                let gained = [mine.as_ref(), far.as_ref().filter(|_| wide(s.scope))];
                for clock in gained.into_iter().flatten() {
                    learn(&mut lane.extra, clock);
                    w.extras |= 1 << l;
                }
                if let Some(far) = far.as_ref().filter(|_| !wide(s.scope)) {
                    miss(&mut self.missed, far, v.release, s.pc);
                }
            } else {
                if let Some(mine) = &mine {
                    learn(&mut lane.seen, mine);
                    learn(&mut lane.wide_seen, mine);
                }
                if let Some(far) = &far {
                    learn(&mut lane.wide_seen, far);
                }
                if s.writes && s.order == Order::Relaxed {
                    [&mine, &far].into_iter().flatten().for_each(|clock| learn(&mut w.intent, clock));
                }
            }
            if let Some((_, clock, release)) = v.narrow.as_ref().filter(|n| n.0 != block) {
                miss(&mut self.missed, clock, *release, s.pc);
            }
        }
        if !s.writes {
            return;
        }
        let (near, far) = if s.order.releases() {
            let mut own = w.own;
            own[l] = w.epoch;
            let extra = w.lanes.as_ref().and_then(|all| all[l].extra.clone());
            let clock = Arc::new(whole(block, s.warp, w.base(block), &own, extra.as_ref()));
            w.epoch += 1;
            (Some(clock.clone()), Some(clock).filter(|_| wide(s.scope)))
        } else {
            let of = |mark: &Option<Mark>| {
                let mark = mark.as_ref()?;
                Some(Arc::new(whole(block, s.warp, Clock::clone(&mark.base), &mark.own, mark.extra.as_ref())))
            };
            let lane = w.lanes.as_ref().map(|all| &all[l]);
            let near = lane.and_then(|lane| of(&lane.fence));
            (near, lane.and_then(|lane| of(&lane.wide_fence)))
        };
        let me = Some((block, s.warp, s.lane));
        if !s.reads && v.owner != me {
            *v = SyncVariable { owner: me, ..SyncVariable::default() };
        }
        v.release = if near.is_some() { s.pc } else { v.release };
        if let Some(far) = &far {
            learn(&mut v.wide, far);
        }
        if let Some(near) = near {
            match v.by_block.iter_mut().find(|b| b.0 == block) {
                Some(known) => Arc::make_mut(&mut known.1).join(&near),
                None => v.by_block.push((block, near.clone())),
            }
            if far.is_none() {
                match &mut v.narrow {
                    Some((from, known, release)) => {
                        Arc::make_mut(known).join(&near);
                        *from = if *from == block { block } else { u32::MAX };
                        *release = s.pc;
                    }
                    None => v.narrow = Some((block, near, s.pc)),
                }
            }
        }
    }

    /// A lane has waited for something.
    pub(super) fn told(&mut self, warp: usize, lane: usize, clock: &Arc<Clock>) {
        let Some(w) = self.warps.get_mut(warp) else { return };
        if let Some(lane) = w.lanes.get_or_insert_default().get_mut(lane) {
            learn(&mut lane.extra, clock);
        }
        w.extras |= 1 << (lane & 31);
    }

    /// What all lanes of a warp know.
    pub(super) fn warp(&self, warp: usize) -> Option<&Warp> {
        self.warps.get(warp)
    }
}

impl SyncVariable {
    /// From now on, threads of the block that acquire learn this.
    pub(super) fn carry(&mut self, block: u32, clock: Clock) {
        match self.by_block.iter_mut().find(|b| b.0 == block) {
            Some(known) => Arc::make_mut(&mut known.1).join(&clock),
            None => self.by_block.push((block, Arc::new(clock))),
        }
    }
}

/// Remembers an order that a scope was too narrow for.
fn miss(list: &mut Vec<Missed>, clock: &Arc<Clock>, release: u32, acquire: u32) {
    let full = list.len() >= MISSED;
    match list.iter_mut().find(|m| m.release == release && m.acquire == acquire) {
        Some(known) if Arc::ptr_eq(&known.clock, clock) => {}
        Some(known) => Arc::make_mut(&mut known.clock).join(clock),
        None if !full => list.push(Missed { clock: clock.clone(), release, acquire }),
        None => {}
    }
}

/// A lane's clock from its parts.
fn whole(block: u32, warp: u8, mut base: Clock, own: &[u32; LANES], extra: Option<&Arc<Clock>>) -> Clock {
    let mut known = BlockKnown::NOTHING;
    known.join_lanes(warp, own);
    base.add(block, &Arc::new(known));
    if let Some(extra) = extra {
        base.join(extra);
    }
    base
}

impl Warp {
    /// What all lanes know, but for their own warp.
    fn base(&self, block: u32) -> Clock {
        let mut clock = self.rest.as_deref().cloned().unwrap_or_default();
        clock.add(block, &Arc::new(BlockKnown { all: self.know, lanes: Vec::new() }));
        clock
    }

    /// All live lanes know each other up to an epoch.
    fn settle(&mut self, lanes: u32, epoch: u32) {
        if lanes == !0 {
            self.own = [epoch; LANES];
        } else {
            lanes_of(lanes).for_each(|l| self.own[l] = epoch);
        }
        self.own_all = epoch;
        if self.extras != 0 {
            for l in lanes_of(std::mem::take(&mut self.extras)) {
                let extra = self.lanes.as_mut().and_then(|all| all[l].extra.take());
                if let Some(extra) = extra.filter(|_| lanes >> l & 1 != 0) {
                    learn(&mut self.rest, &extra);
                }
            }
        }
    }

    /// Up to which epoch the lanes know each other, and lanes that have exited.
    pub(super) fn settled(&self) -> (u32, u32) {
        (self.own_all, self.start & !self.live)
    }

    /// The warp in an earlier epoch, since when it has learned nothing of other warps; it may have known more of itself.
    pub(super) fn then(&self, epoch: u32, settled: u32, gone: u32) -> Warp {
        Warp {
            epoch,
            start: self.start,
            live: self.start & !gone,
            left: 0,
            know: self.know,
            own: [0; LANES],
            own_all: settled,
            rest: None,
            extras: 0,
            lanes: None,
            intent: None,
        }
    }

    /// Of `theirs` (lanes of a warp, in its epoch) and `mine` (lanes of this warp) a pair that nothing orders.
    pub(super) fn unordered(
        &self,
        here: (u32, u8),
        (block, warp, epoch): (u32, u8, u32),
        theirs: u32,
        mine: u32,
    ) -> Option<(u32, u32)> {
        let same_warp = here == (block, warp);
        if same_warp {
            let single = mine & mine.wrapping_sub(1) == 0;
            let exited = self.start & !self.live;
            if single && theirs == mine || self.own_all >= epoch && theirs & exited == 0 {
                return None;
            }
        } else if here.0 == block && self.know[usize::from(warp) % WARPS] >= epoch {
            return None;
        } else if self.rest.is_none() && self.extras & mine == 0 {
            return Some((theirs.trailing_zeros() & 31, mine.trailing_zeros() & 31));
        }
        let knows =
            |clock: &Option<Arc<Clock>>, lane: u32| clock.as_ref().is_some_and(|c| c.epoch(block, warp, lane) >= epoch);
        for theirs in lanes_of(theirs) {
            let lane = theirs as u32;
            if same_warp && self.own[theirs] >= epoch || knows(&self.rest, lane) {
                continue;
            }
            let extra = |l: usize| self.lanes.as_ref().is_some_and(|all| knows(&all[l].extra, lane));
            let open = |&l: &usize| !(same_warp && l == theirs || self.extras >> l & 1 != 0 && extra(l));
            if let Some(mine) = lanes_of(mine).find(open) {
                return Some((lane, mine as u32));
            }
        }
        None
    }

    /// Whether relaxed read-modify-writes would order an access before this warp if they acquired.
    pub(super) fn intended(&self, block: u32, warp: u8, lane: u32, epoch: u32) -> bool {
        self.intent.as_ref().is_some_and(|c| c.epoch(block, warp, lane) >= epoch)
    }

    /// Whether a lane has exited, before so many barriers of the block had opened.
    pub(super) fn gone(&self, lane: u32, opened: u32) -> bool {
        (self.start & !self.live) >> (lane & 31) & 1 != 0 && self.left < opened
    }
}
