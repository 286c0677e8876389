//! What the end of a launch waited for: the way back from the last instruction, over barriers to the warp that was last there.
//!
//! Shares of the clocks of all warps say little about time: warps that wait at a barrier for the one that works cost nothing. On the path
//! each clock of the launch is once.

use std::collections::HashMap;

use super::multiprocessor::Wait;

/// An instruction that a warp has issued: number `event` of warp `warp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub warp: usize,
    pub event: usize,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Of the instruction.
    pub index: u32,
    /// From when on it was next, when it could issue, and when it did.
    pub since: u64,
    pub ready: u64,
    pub at: u64,
    /// What it waited for until it could, and then.
    pub wait: Wait,
    pub late: Wait,
    /// What it comes behind, if that is not the warp's own instruction before.
    pub behind: Option<Step>,
}

/// Clocks on the path, by instruction and what it waited for; `None` is what passes while it issues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub clocks: HashMap<(u32, Option<Wait>), u64>,
}

impl Path {
    /// The one to the instruction that issued last, of what each warp has issued.
    pub fn to_the_end(events: &[Vec<Event>]) -> Path {
        let mut path = Path::default();
        let last = events.iter().enumerate().filter(|(_, all)| !all.is_empty());
        let last = last.max_by_key(|(warp, all)| (all.last().map(|e| e.at), std::cmp::Reverse(*warp)));
        let mut next = last.map(|(warp, all)| Step { warp, event: all.len() - 1 });
        while let Some(Step { warp, event }) = next {
            let Event { index, since, ready, at, wait, late, behind } = events[warp][event];
            let mut add = |of: Option<Wait>, clocks: u64| {
                if clocks > 0 {
                    *path.clocks.entry((index, of)).or_default() += clocks;
                }
            };
            add(None, 1);
            add(Some(late), at - ready);
            add(Some(wait), ready - since);
            if let Some(of) = behind {
                // From the last warp's arrival at a barrier to the first instruction behind it, and from a block's end to the next.
                add(Some(Wait::Barrier), since - (events[of.warp][of.event].at + 1));
            }
            next = behind.or_else(|| event.checked_sub(1).map(|event| Step { warp, event }));
        }
        path
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.clocks.values().sum()
    }
}
