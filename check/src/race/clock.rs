//! Vector clocks over the warps of a grid, shared where they are equal.
//!
//! A [`Clock`] says for every lane of every block up to which of its warp's epochs its accesses are known to have
//! happened. Most blocks know nothing of each other, so clocks are sparse; and a clock that grows from block to block, as in a
//! chained scan, shares all but its newest part with the one before.

use std::sync::Arc;

use warpsmith_simt::machine::LANES;

/// Most warps of a block.
pub(super) const WARPS: usize = 32;

/// What is known of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockKnown {
    /// By warp: epoch up to which all its lanes are known.
    pub all: [u32; WARPS],
    /// By warp, where lanes differ.
    pub lanes: Vec<(u8, [u32; LANES])>,
}

impl BlockKnown {
    pub(super) const NOTHING: BlockKnown = BlockKnown { all: [0; WARPS], lanes: Vec::new() };

    pub(super) fn epoch(&self, warp: u8, lane: u32) -> u32 {
        let all = self.all[usize::from(warp) % WARPS];
        let own = self.lanes.iter().find(|l| l.0 == warp).map_or(0, |l| l.1[lane as usize % LANES]);
        all.max(own)
    }

    pub(super) fn join_lanes(&mut self, warp: u8, epochs: &[u32; LANES]) {
        match self.lanes.iter_mut().find(|l| l.0 == warp) {
            Some(known) => join(&mut known.1, epochs),
            None => self.lanes.push((warp, *epochs)),
        }
    }

    fn join(&mut self, other: &BlockKnown) {
        join(&mut self.all, &other.all);
        other.lanes.iter().for_each(|(warp, epochs)| self.join_lanes(*warp, epochs));
    }

    fn covers(&self, other: &BlockKnown) -> bool {
        let covers = |warp: usize, epochs: &[u32; LANES]| {
            epochs.iter().enumerate().all(|(lane, &e)| self.epoch(warp as u8, lane as u32) >= e)
        };
        let plain = self.all.iter().zip(&other.all).enumerate();
        plain.into_iter().all(|(warp, (&a, &b))| a >= b || covers(warp, &[b; LANES]))
            && other.lanes.iter().all(|(warp, epochs)| covers(usize::from(*warp), epochs))
    }
}

/// The larger of each pair.
pub(super) fn join(to: &mut [u32; 32], from: &[u32; 32]) {
    to.iter_mut().zip(from).for_each(|(t, &f)| *t = (*t).max(f));
}

const LEAF: u32 = 64;

/// What is known of 64 consecutive blocks.
type Leaf = [Option<Arc<BlockKnown>>; LEAF as usize];

/// What is known of the blocks of a grid.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// By index of the leaf, sorted.
    leaves: Vec<(u32, Arc<Leaf>)>,
}

impl Clock {
    /// A clock that knows one block.
    pub(super) fn of(block: u32, known: BlockKnown) -> Clock {
        let mut clock = Clock::default();
        clock.add(block, &Arc::new(known));
        clock
    }

    /// Epoch up to which a lane is known.
    pub(super) fn epoch(&self, block: u32, warp: u8, lane: u32) -> u32 {
        let at = self.leaves.binary_search_by_key(&(block / LEAF), |l| l.0);
        let known = at.ok().and_then(|at| self.leaves[at].1[(block % LEAF) as usize].as_ref());
        known.map_or(0, |b| b.epoch(warp, lane))
    }

    pub(super) fn add(&mut self, block: u32, known: &Arc<BlockKnown>) {
        let slot = (block % LEAF) as usize;
        let at = match self.leaves.binary_search_by_key(&(block / LEAF), |l| l.0) {
            Ok(at) => at,
            Err(at) => {
                self.leaves.insert(at, (block / LEAF, Arc::new([const { None }; LEAF as usize])));
                at
            }
        };
        let leaf = &mut self.leaves[at].1;
        match &leaf[slot] {
            Some(old) if Arc::ptr_eq(old, known) || old.covers(known) => {}
            Some(old) if !known.covers(old) => {
                let mut both = BlockKnown::clone(old);
                both.join(known);
                Arc::make_mut(leaf)[slot] = Some(Arc::new(both));
            }
            _ => Arc::make_mut(leaf)[slot] = Some(known.clone()),
        }
    }

    /// Learns all that `other` knows.
    pub(super) fn join(&mut self, other: &Clock) {
        for (index, theirs) in &other.leaves {
            let at = match self.leaves.binary_search_by_key(index, |l| l.0) {
                Ok(at) => at,
                Err(at) => {
                    self.leaves.insert(at, (*index, theirs.clone()));
                    continue;
                }
            };
            if Arc::ptr_eq(&self.leaves[at].1, theirs) {
                continue;
            }
            for (slot, known) in theirs.iter().enumerate() {
                if let Some(known) = known {
                    self.add(index * LEAF + slot as u32, known);
                }
            }
            // Equal leaves become one, so that the next comparison is short.
            if same(&self.leaves[at].1, theirs) {
                self.leaves[at].1 = theirs.clone();
            }
        }
    }
}

fn same(a: &Leaf, b: &Leaf) -> bool {
    a.iter().zip(b).all(|(a, b)| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    })
}

/// Learns all that `other` knows, into a clock that may not exist yet.
pub(super) fn learn(to: &mut Option<Arc<Clock>>, other: &Arc<Clock>) {
    match to {
        None => *to = Some(other.clone()),
        Some(clock) if Arc::ptr_eq(clock, other) => {}
        Some(clock) => Arc::make_mut(clock).join(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(warp: usize, epoch: u32) -> BlockKnown {
        let mut known = BlockKnown::NOTHING;
        known.all[warp] = epoch;
        known
    }

    #[test]
    fn joins_take_the_later_epoch_of_each_lane() {
        let mut a = Clock::of(3, known(1, 5));
        let mut lanes = [0; LANES];
        lanes[7] = 9;
        let mut other = known(0, 2);
        other.join_lanes(1, &lanes);
        a.join(&Clock::of(3, other));
        a.join(&Clock::of(200, known(31, 4)));
        assert_eq!(a.epoch(3, 1, 7), 9);
        assert_eq!(a.epoch(3, 1, 6), 5);
        assert_eq!(a.epoch(3, 0, 0), 2);
        assert_eq!(a.epoch(200, 31, 31), 4);
        assert_eq!(a.epoch(201, 0, 0), 0);
        assert_eq!(a.epoch(9000, 0, 0), 0);
    }

    #[test]
    fn chained_clocks_share_what_they_have_in_common() {
        let mut chain: Option<Arc<Clock>> = None;
        let mut all = Vec::new();
        for block in 0..130 {
            let own = Arc::new(Clock::of(block, known(0, 1)));
            let mut next = chain.clone();
            learn(&mut next, &own);
            chain = next.clone();
            all.extend(next);
        }
        // The first leaf has been complete since block 63: later clocks hold the same one.
        assert!(Arc::ptr_eq(&all[64].leaves[0].1, &all[129].leaves[0].1));
        assert_eq!(all[129].epoch(0, 0, 5), 1);
    }
}
