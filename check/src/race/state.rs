//! What the checker of races and barriers knows of a launch and of the block that runs.

use super::access::{Run, bare};
use super::agents::{Bulk, owner};
use super::barriers::Barriers;
use super::left_out::LeftOut;
use super::masks::Masks;
use super::objects::Objects;
use super::order::{Clocks, Variables, wide};
use super::shadow::{Conflict, Shadow, flag};
use super::shared::Shared;
use crate::Checks;
use crate::findings::Findings;
use crate::talk::{Conversation, Voice};
use crate::uses::{Use, add};
use std::sync::Arc;
use warpsmith_simt::Module;
use warpsmith_simt::machine::Cx;
use warpsmith_simt::machine::block::Grid;
use warpsmith_simt::machine::lanes::simd;
use warpsmith_simt::machine::note::{Access, Notes, Role, Scope, Where};

/// What is known of a launch.
#[derive(Default)]
pub(crate) struct Races {
    pub(super) global: Shadow,
    pub(super) variables: Variables,
    /// What is launched is of it; none of a launch that is not checked.
    module: Option<Arc<Module>>,
    ops: usize,
    /// What warps have accessed before they waited for earlier launches, where the launch may begin before those have ended.
    pub early: Option<Vec<Use>>,
    /// What it tells other launches, if it may.
    pub talk: Option<Conversation>,
    /// It releases or acquires at `.sys` scope.
    pub speaks: bool,
    /// Module variables in global memory: address, size, name.
    pub statics: Vec<(u64, u64, String)>,
    pub(super) objects: Objects,
    /// Blocks may synchronise: something acquires at a scope beyond the block.
    pub(super) talks: bool,
    /// There are strong accesses, and such as order others.
    pub(super) strong: bool,
    pub(super) orders: bool,
    /// There are atomics without an ordering of their own.
    pub(super) bare: bool,
    pub(super) fast: bool,
    pub(super) found: Vec<(u64, Conflict)>,
    pub(super) runs: Vec<Run>,
}

impl Races {
    pub(crate) fn new(module: &Arc<Module>, grid: &Grid<'_>) -> Races {
        let program = grid.program;
        let notes = &program.notes;
        let mut races = Races {
            module: Some(Arc::clone(module)),
            ops: program.ops.len(),
            fast: simd(),
            objects: Objects::new(grid),
            ..Races::default()
        };
        for note in program.reached(grid.entry).into_iter().flat_map(|ops| notes.notes.get(ops).unwrap_or_default()) {
            let (orders, talks) = match note.role {
                Role::Fence { acquires, scope, .. } => {
                    races.speaks |= scope == Scope::System;
                    (true, acquires && wide(scope))
                }
                Role::Access(i) => {
                    let Some(a) = notes.accesses.get(i as usize) else { continue };
                    let apart = !matches!(a.at, Where::Local32 | Where::Local64 | Where::Frame | Where::Param);
                    races.strong |= a.order.strong() && apart;
                    races.bare |= bare(a);
                    let acquires = a.order.acquires();
                    races.speaks |= (acquires || a.order.releases()) && a.scope == Scope::System && apart;
                    (acquires || a.order.releases(), acquires && wide(a.scope))
                }
                Role::Object => {
                    races.strong = true;
                    (true, false)
                }
                // Copies are ordered as other blocks would be.
                Role::CopyBulk | Role::StoreAsync => (false, true),
                _ => (false, false),
            };
            races.orders |= orders;
            races.talks |= talks;
        }
        races
    }

    /// What the launch has accessed in global memory.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let mut list: Vec<Use> = Vec::new();
        self.global.each(|at, bytes, r| {
            let thread = (u64::from(owner(r.block, 0)), u32::from(r.warp), r.lanes.trailing_zeros() & 31);
            add(&mut list, (r.flags & flag::WRITE != 0, at, at + bytes, (r.pc, thread)));
        });
        list
    }

    /// The access at a position.
    pub(super) fn access_at(&self, cx: &Cx, pc: u32) -> Option<&Access> {
        match self.role(cx, pc) {
            Role::Access(i) => self.access(i),
            _ => None,
        }
    }

    /// The access that a role names.
    pub(super) fn access(&self, i: u32) -> Option<&Access> {
        self.module.as_ref()?.program.notes.accesses.get(i as usize)
    }

    /// What the operation at a position is.
    pub(super) fn role(&self, cx: &Cx, pc: u32) -> Role {
        // SAFETY: there is a note for every operation, and `ops` of them.
        if (pc as usize) < self.ops { unsafe { &*cx.notes.add(pc as usize) }.role } else { Role::Plain }
    }

    /// PTX line of a position.
    pub(super) fn line(&self, cx: &Cx, pc: u32) -> u32 {
        if pc as usize >= self.ops {
            return 0;
        }
        // SAFETY: `ops` operations lie there.
        let debug = unsafe { &*cx.code.add(pc as usize) }.debug;
        self.module.as_ref().and_then(|m| m.program.debug.get(debug as usize)).map_or(0, |d| d.line)
    }
}

/// What is known of a block.
pub(crate) struct BlockRaces {
    pub(super) clocks: Clocks,
    pub(super) shared: Shared,
    /// Bytes of shared memory.
    pub(super) size: u32,
    pub(super) variables: Variables,
    pub(super) barriers: Barriers,
    pub(super) masks: Masks,
    pub(super) left_out: LeftOut,
    pub(super) bulk: Bulk,
    /// Warps that have waited for earlier launches, or have met at a barrier behind one that had.
    pub(super) waited: u32,
    pub(super) voice: Voice,
}

impl Default for BlockRaces {
    fn default() -> BlockRaces {
        BlockRaces {
            clocks: Clocks::new(0, 0),
            shared: Shared::default(),
            size: 0,
            variables: Variables::default(),
            barriers: Barriers::default(),
            masks: Masks::default(),
            left_out: LeftOut::default(),
            bulk: Bulk::default(),
            waited: 0,
            voice: Voice::default(),
        }
    }
}

impl BlockRaces {
    pub(crate) fn new(grid: &Grid<'_>, index: u64) -> BlockRaces {
        let clocks = Clocks::new(index as u32, grid.threads);
        BlockRaces { clocks, size: grid.shared_bytes, ..BlockRaces::default() }
    }
}

/// The checker at work: what it was asked for, what it knows, and where findings go.
pub(crate) struct RaceCheck<'a> {
    pub checks: &'a Checks,
    /// The program's notes.
    pub notes: &'a Notes,
    pub launch: &'a mut Races,
    pub block: &'a mut BlockRaces,
    /// The block's linear index.
    pub index: u64,
    pub findings: &'a mut Findings,
}
