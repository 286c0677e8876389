//! Who the accesses of bulk copies are recorded as: *agents*, which have numbers of blocks that there are not; and which of
//! them the copies of a block have.

use std::collections::HashMap;

use super::clock::{BlockKnown, Clock};
use warpsmith_simt::machine::LANES;
use warpsmith_simt::machine::lanes::lanes_of;

/// The first number of agents; blocks stay below it.
const AGENTS: u32 = 1 << 30;
/// Kinds of them: for the reads and for the writes of a block's threads, and for an mbarrier object of a block.
pub(super) const READS: u32 = 1;
pub(super) const WRITES: u32 = 2;
const OBJECT: u32 = 3;
/// Objects that blocks have numbers for before those of the next block begin.
const OBJECTS: u32 = 64;

/// The number of an agent.
pub(super) fn agent(kind: u32, number: u32) -> u32 {
    kind << 30 | number & (AGENTS - 1)
}

/// Whether it is the agent of an mbarrier object.
pub(super) fn is_object(block: u32) -> bool {
    block >> 30 == OBJECT
}

/// The block whose thread issued an access; mbarrier objects are those of block `here`.
pub(super) fn owner(block: u32, here: u32) -> u32 {
    match block >> 30 {
        0 => block,
        OBJECT => here,
        _ => block & (AGENTS - 1),
    }
}

/// The copies of a block.
#[derive(Default)]
pub(super) struct Bulk {
    /// By offset of an mbarrier that copies complete at: its number, and the phase that is not complete, from 1.
    objects: HashMap<u64, (u32, u32)>,
    /// By warp: how many groups each lane has committed.
    groups: Vec<[u32; LANES]>,
}

impl Bulk {
    /// How many groups each lane of a warp has committed.
    pub(super) fn groups(&mut self, warp: u32) -> &mut [u32; LANES] {
        let at = warp as usize;
        if self.groups.len() <= at {
            self.groups.resize(at + 1, [0; LANES]);
        }
        &mut self.groups[at]
    }

    /// The agent of the object at an offset, and its phase.
    pub(super) fn object(&mut self, block: u32, at: u64) -> (u32, u32) {
        let next = self.objects.len() as u32;
        let &mut (number, phase) = self.objects.entry(at).or_insert((next, 1));
        (agent(OBJECT, block.wrapping_mul(OBJECTS).wrapping_add(number)), phase)
    }

    /// Lanes close their groups.
    pub(super) fn commit(&mut self, warp: u32, lanes: u32) {
        let groups = self.groups(warp);
        lanes_of(lanes).for_each(|l| groups[l] = groups[l].saturating_add(1));
    }

    /// A phase of the object at an offset has ended: what its agent did until then; `None` if no copy completes there.
    pub(super) fn phase_ended(&mut self, block: u32, at: u64) -> Option<Clock> {
        let (number, phase) = self.objects.get_mut(&at)?;
        let known = BlockKnown { all: [*phase; LANES], lanes: Vec::new() };
        let clock = Clock::of(agent(OBJECT, block.wrapping_mul(OBJECTS).wrapping_add(*number)), known);
        *phase = phase.saturating_add(1);
        Some(clock)
    }
}
