//! Races, and misuse of barriers and collectives.
//!
//! | module | what it does |
//! |---|---|
//! | `state` | what is known of a launch and of a block |
//! | `order` | what happened before what: epochs, barriers, fences, releases and acquires |
//! | `clock` | sparse vector clocks |
//! | `access` | from an operation to the runs of bytes that its lanes access |
//! | `copy` | asynchronous copies |
//! | `bulk` | bulk copies, which are under way until somebody has waited for them |
//! | `agents` | who such copies are recorded as |
//! | `matrix` | accesses by whole warps: `ldmatrix`, `stmatrix`, `wmma` |
//! | `shared` | accesses of shared memory since the block's threads last met |
//! | `shadow`, `cell` | the accesses of each byte that later ones must be ordered after |
//! | `report` | findings in words |
//! | `sync`, `barriers` | barriers and collectives |
//! | `masks` | lanes whose masks of a collective disagree |
//! | `left_out` | barriers in a branch that threads go around |
//! | `objects` | accesses that run from one shared variable into another |

mod access;
mod agents;
mod barriers;
mod bulk;
mod cell;
mod clock;
mod copy;
mod left_out;
mod masks;
mod matrix;
mod objects;
mod order;
mod report;
mod shadow;
mod shared;
mod state;
mod sync;

use access::Run;
use order::{Clocks, Strong};
use report::CurrentAccess;
use shadow::{Now, Span, flag};

use super::talk::{Conversation, Voice, Word};
use super::uses::{Use, joined};
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::mbarrier::{self, Edge};
use warpsmith_simt::machine::note::{Access, Does, Note, Order, Role, Scope, Where};
use warpsmith_simt::machine::{Cx, Op, uniform};

pub(crate) use bulk::phase_ended;
pub(crate) use state::{BlockRaces, RaceCheck, Races};
pub(crate) use sync::{arrived, cluster_waited, fault as sync_fault, met, sources};

/// A warp that has not waited accesses global memory.
fn note_early(early: &mut Vec<Use>, write: bool, run: &Run, pc: u32, (block, warp): (u64, u32)) {
    let thread = (block, warp, run.lanes.trailing_zeros() & 31);
    early.push((write, run.first, run.first.saturating_add(run.bytes), (pc, thread)));
    // Loops access side by side: what is joined now and then stays short.
    if early.len() >= 4096 && early.len().is_power_of_two() {
        *early = joined(std::mem::take(early));
    }
}

/// Before an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn before(c: &mut RaceCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    let warp = cx.uniform[uniform::WARPID] as u32;
    let races = c.checks.races;
    if let Some(talk) = &mut c.launch.talk {
        talk.listen();
    }
    if note.marked && c.checks.sync {
        left_out::came_by(&mut c.block.left_out, c.notes, cx, pc, warp);
    }
    match note.role {
        Role::Access(i) => {
            let Some(&access) = c.launch.access(i) else { return };
            // SAFETY: by the contract; the note is the operation's.
            unsafe { objects::accessed(&c.launch.objects, c.findings, cx, op, (c.index, warp, pc), &access) }
            if !races {
                return;
            }
            // SAFETY: by the contract; the note is the operation's.
            unsafe { accessed(c, cx, op, pc, warp, &access) }
        }
        Role::Fence { acquires, releases, scope } if races && c.launch.strong => {
            c.block.clocks.fence(warp as usize, cx.active, pc, acquires, releases, scope);
            if let Some(talk) = c.launch.talk.as_mut().filter(|_| scope == Scope::System) {
                talk.fence(&mut c.block.voice, warp, acquires, releases);
            }
        }
        // SAFETY: by the contract.
        Role::CopyAsync if races => unsafe { copy::copied(c, cx, op, pc, warp) },
        // SAFETY: by the contract.
        Role::CopyBulk if races => unsafe { bulk::copied(c, cx, op, pc, warp) },
        // SAFETY: by the contract.
        Role::StoreAsync if races => unsafe { bulk::stored(c, cx, op, pc, warp) },
        // SAFETY: by the contract.
        Role::StoreBulk if races => unsafe { bulk::filled(c, cx, op, pc, warp) },
        Role::WaitDependencies if races => c.block.waited |= 1 << (warp & 31),
        Role::CommitBulk if races => c.block.bulk.commit(warp, cx.active),
        Role::WaitBulk { left, read } if races => bulk::waited(c, warp, cx.active, left, read),
        // SAFETY: by the contract.
        Role::MatrixAccess if races => unsafe { matrix::accessed(c, cx, op, pc, warp, note) },
        // SAFETY: by the contract.
        Role::Object if races => unsafe { object(c, cx, op, pc, warp) },
        // SAFETY: by the contract.
        Role::Collective => unsafe { sync::collective(c, cx, op, pc, warp) },
        // SAFETY: by the contract.
        Role::Barrier if c.checks.sync => unsafe { sync::barrier(c, cx, op, pc, warp) },
        _ => {}
    }
}

/// # Safety
/// The contract of handlers; `access` is the operation's.
unsafe fn accessed(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32, access: &Access) {
    if matches!(access.at, Where::Shared32 | Where::Shared64) {
        let block = &mut *c.block;
        let Some(clock) = block.clocks.warp(warp as usize) else { return };
        let like = like(&block.clocks, clock, cx, pc, warp, access);
        // SAFETY: by the contract; `fast` says what the CPU has.
        if unsafe { block.shared.listed(cx, op, access, clock, like, c.launch.fast) } {
            return;
        }
    }
    let mut runs = std::mem::take(&mut c.launch.runs);
    // SAFETY: by the contract; `fast` says what the CPU has.
    unsafe {
        access::runs(cx, op, access, c.launch.fast, &mut runs);
        followed(c, cx, op, pc, warp, access, &runs);
    }
    runs.clear();
    c.launch.runs = runs;
}

/// Who accesses something now, and how.
fn like(clocks: &Clocks, clock: &order::Warp, cx: &Cx, pc: u32, warp: u32, access: &Access) -> Span {
    let flags = access::flags(access) | if cx.mask == cx.live { flag::WHOLE } else { 0 };
    Span { block: clocks.block, epoch: clock.epoch, pc, warp: warp as u8, flags, ..Span::default() }
}

/// # Safety
/// The contract of handlers; `access` is the operation's, and `runs` are where it goes.
#[inline(always)]
unsafe fn followed(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32, access: &Access, runs: &[Run]) {
    let block = &mut *c.block;
    let block_index = c.index;
    let Some(clock) = block.clocks.warp(warp as usize) else { return };
    let now = Now { warp: clock, here: (block.clocks.block, warp as u8), talks: c.launch.talks };
    let mut like = like(&block.clocks, clock, cx, pc, warp, access);
    // SAFETY: by the contract.
    let success = if access.cas { unsafe { access::succeed(cx, op, access, runs) } } else { !0 };
    for run in runs {
        if access.does == Does::Store {
            let same = |lane| {
                let at = access::lane_address(run, lane);
                // SAFETY: by the contract.
                unsafe { access::silent(cx, op, access, lane, run.place, at) }
            };
            let silent = lanes_of(run.lanes).all(same);
            like.flags = like.flags & !flag::SILENT | if silent { flag::SILENT } else { 0 };
        }
        let found = &mut c.launch.found;
        if run.place == Place::Shared {
            block.shared.bring(&block.clocks, block.size);
            block.shared.apply(run, like, &now, block.size, found);
        } else {
            if let Some(early) = &mut c.launch.early
                && block.waited >> (warp & 31) & 1 == 0
            {
                note_early(early, access.writes(), run, pc, (block_index, warp));
            }
            if let Some(talk) = &mut c.launch.talk {
                tell(talk, &mut block.voice, run, access, success, (block_index, warp, pc));
            }
            let global = &mut c.launch.global;
            access::spans(run, like, |address, span| global.apply(address, span, &now, found));
        }
        let together = access.does == Does::Store
            && access.order == Order::Weak
            && run.shift == shadow::TOGETHER
            && run.lanes & run.lanes.wrapping_sub(1) != 0;
        if c.launch.found.is_empty() && !together {
            continue;
        }
        let found = std::mem::take(&mut c.launch.found);
        let current = CurrentAccess {
            races: c.launch,
            clocks: &block.clocks,
            block: block_index,
            warp,
            op,
            pc,
            access,
            run,
            opaque: false,
        };
        // SAFETY: by the contract.
        unsafe {
            if together {
                report::collide(&current, cx, c.findings);
            }
            for (base, conflict) in &found {
                report::clash(&current, cx, c.findings, *base, conflict);
            }
        }
    }
    if !access.order.strong() || !c.launch.orders {
        return;
    }
    for run in runs {
        for lane in lanes_of(run.lanes) {
            let at = access::lane_address(run, lane) & !3;
            let shared = run.place == Place::Shared;
            let variables = if shared { &mut block.variables } else { &mut c.launch.variables };
            let strong = Strong {
                warp: warp as u8,
                lane: lane as u8,
                pc,
                reads: access.reads(),
                writes: access.writes() && success >> lane & 1 != 0,
                order: access.order,
                scope: access.scope,
            };
            block.clocks.strong(&strong, variables.entry(at).or_default());
        }
    }
}

/// An access of global memory by a launch that talks to others.
fn tell(
    talk: &mut Conversation,
    voice: &mut Voice,
    run: &Run,
    access: &Access,
    success: u32,
    (block, warp, pc): (u64, u32, u32),
) {
    // Volatile accesses are relaxed ones of this scope (PTX ISA, "Memory Consistency Model").
    let strong = access.order == Order::Volatile || access.order.strong() && access.scope == Scope::System;
    if strong {
        for lane in lanes_of(run.lanes) {
            let word = Word {
                at: access::lane_address(run, lane) & !3,
                reads: access.reads(),
                writes: access.writes() && success >> lane & 1 != 0,
                acquires: access.order.acquires(),
                releases: access.order.releases(),
            };
            talk.word(voice, (block, warp), &word);
        }
    }
    let thread = (block, warp, run.lanes.trailing_zeros() & 31);
    talk.used(voice, strong, (access.writes(), run.first, run.first.saturating_add(run.bytes), (pc, thread)));
}

/// Arrivals at an mbarrier release, and waits that succeed acquire. What earlier phases released stays known at the object.
///
/// # Safety
/// The contract of handlers; the operation is one on an mbarrier object.
unsafe fn object(c: &mut RaceCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, warp: u32) {
    let block = &mut *c.block;
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract.
        let Some((at, edge, ordered)) = (unsafe { mbarrier::edge(cx, op, lane) }) else { continue };
        let releases = edge == Edge::Release;
        if edge == Edge::New {
            block.variables.remove(&at);
            continue;
        }
        let strong = Strong {
            warp: warp as u8,
            lane: lane as u8,
            pc,
            reads: true,
            writes: releases,
            order: match (ordered, releases) {
                (false, _) => Order::Relaxed,
                (true, true) => Order::Release,
                (true, false) => Order::Acquire,
            },
            scope: Scope::Cta,
        };
        block.clocks.strong(&strong, block.variables.entry(at).or_default());
    }
}

/// Lanes of a warp exit.
pub(crate) fn exited(c: &mut RaceCheck<'_>, warp: u32, lanes: u32) {
    c.block.clocks.exited(warp as usize, lanes);
    let live = c.block.clocks.warp(warp as usize).map_or(0, |w| w.live);
    if c.checks.sync {
        masks::exited(&mut c.block.masks, c.findings, (c.index, warp), live);
    }
}

/// A barrier has opened: `set` are the warps that had arrived.
pub(crate) fn opened(c: &mut RaceCheck<'_>, id: u32, set: u32) {
    let block = &mut *c.block;
    if let Some(first) = block.barriers.first(id).filter(|_| c.checks.sync) {
        left_out::opened(&block.left_out, c.notes, &block.clocks, c.findings, c.index, first);
    }
    block.barriers.opened(id);
    block.masks.met(set);
    let joins = block.clocks.joins(id as usize, set, block.shared.warps);
    block.shared.barrier(&block.clocks, joins, block.size);
    block.clocks.opened(id as usize, set);
}
