//! Bulk copies: accesses that are under way until somebody has waited for them.
//!
//! Such a copy runs by itself from where it is issued on. What it reads and writes is therefore recorded as the access of
//! an *agent* (`agents`), which has the number of a block that there is not; it must be ordered after what the issuing thread knows at the
//! issue, as if that thread did it. Afterwards nobody knows it who has not waited for it, be it by a barrier behind somebody who has:
//!
//! - A copy that completes at an mbarrier is the access of that object's agent, in the epoch that is the object's phase. When a
//!   phase ends, the object carries its number to whoever acquires it.
//! - A copy in a bulk group is the access of an agent of its thread, in the epoch that is the number of the group.
//!   `wait_group` tells the thread; `.read` tells it of the reads only, which have an agent of their own.
//!
//! What a copy to an mbarrier reads from global memory counts as read by its thread when it is issued.

use std::sync::Arc;

use super::access::Run;
use super::agents::{READS, WRITES, agent};
use super::clock::{BlockKnown, Clock};
use super::copy::{record, weak};
use super::shadow::TOGETHER;
use super::state::RaceCheck;
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::bulk::{NO_REDUCTION, barrier, ends, mask, parts, reaches};
use warpsmith_simt::machine::fill;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::{Access, Does, Order, Scope};
use warpsmith_simt::machine::remote::Target;
use warpsmith_simt::machine::words::{self, Words};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// Before a bulk copy.
///
/// # Safety
/// The contract of handlers; the operation is one.
pub(super) unsafe fn copied(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract; the list is a `Bulk`.
        let (bytes, to, from, barrier, reduces, mask) = unsafe {
            let list = words::Bulk::of(cx, op);
            let (to, from) = ends(cx, op, &list, lane);
            let bytes = u64::from(lane_of::<u32>(cx.src(op.c), lane));
            let barrier = barrier(cx, op, &list, lane).map(|at| at.1);
            (bytes, to, from, barrier, list.reduction != NO_REDUCTION, mask(cx, op, &list, lane))
        };
        let races = &mut *c.block;
        let block = races.clocks.block;
        let (reader, writer) = match barrier {
            Some(at) => {
                let object = races.bulk.object(block, at);
                (Some(object).filter(|_| from.0 == Place::Shared), object)
            }
            None => {
                let group = races.bulk.groups(warp)[lane].saturating_add(1);
                (Some((agent(READS, block), group)), (agent(WRITES, block), group))
            }
        };
        let write = |bytes: u64| match reduces {
            true => Access { order: Order::Relaxed, scope: Scope::Gpu, ..weak(Does::Atomic, bytes as u32) },
            false => weak(Does::Store, bytes as u32),
        };
        let run = |(place, first), bytes| Run { place, first, bytes, lanes: 1 << lane, shift: TOGETHER };
        let is_whole =
            |at: (Place, u64)| bytes.is_multiple_of(16) && at.1.is_multiple_of(16) && inside(cx, &run(at, bytes));
        if bytes != 0 && is_whole(from) {
            // SAFETY: by the contract.
            unsafe { record(c, cx, op, (pc, warp), &weak(Does::Load, bytes as u32), &[run(from, bytes)], reader) }
        }
        if bytes != 0 && is_whole(to) {
            for (part, count) in parts(bytes, mask) {
                // SAFETY: by the contract.
                unsafe {
                    record(c, cx, op, (pc, warp), &write(count), &[run((to.0, to.1 + part), count)], Some(writer))
                }
            }
        }
    }
}

/// Before `st.async` or `red.async`.
///
/// # Safety
/// The contract of handlers; the operation is one.
pub(super) unsafe fn stored(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract.
        let target = unsafe { Target::of(cx, op, lane) };
        let ((place, first), bytes) = (target.to, target.bytes());
        let races = &mut *c.block;
        let agent = races.bulk.object(races.clocks.block, target.barrier.1);
        let access = match target.reduces() {
            true => Access { order: Order::Relaxed, scope: Scope::Gpu, ..weak(Does::Atomic, bytes as u32) },
            false => weak(Does::Store, bytes as u32),
        };
        let run = Run { place, first, bytes, lanes: 1 << lane, shift: TOGETHER };
        if place == Place::Shared && first % bytes == 0 && inside(cx, &run) {
            // SAFETY: by the contract.
            unsafe { record(c, cx, op, (pc, warp), &access, &[run], Some(agent)) }
        }
    }
}

/// Before `st.bulk`, which its thread does itself.
///
/// # Safety
/// The contract of handlers; the operation is one.
pub(super) unsafe fn filled(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract.
        let ((place, first), bytes) = unsafe { fill::range(cx, op, lane) };
        let run = Run { place, first, bytes, lanes: 1 << lane, shift: TOGETHER };
        if place == Place::Shared && bytes != 0 && inside(cx, &run) {
            // SAFETY: by the contract.
            unsafe { record(c, cx, op, (pc, warp), &weak(Does::Store, bytes as u32), &[run], None) }
        }
    }
}

/// Whether the copy will be let there.
fn inside(cx: &Cx, run: &Run) -> bool {
    match run.place {
        Place::Shared => run.first.checked_add(run.bytes).is_some_and(|end| end <= cx.shared_bytes.into()),
        Place::Global => reaches(cx, run.first, run.bytes),
        _ => false,
    }
}

/// Lanes of a warp wait for their groups but the last `left`.
pub(super) fn waited(c: &mut RaceCheck<'_>, warp: u32, lanes: u32, left: u32, read: bool) {
    let block = &mut *c.block;
    let groups = *block.bulk.groups(warp);
    for lane in lanes_of(lanes) {
        let mut epochs = [0; LANES];
        epochs[lane] = groups[lane].saturating_sub(left);
        if epochs[lane] == 0 {
            continue;
        }
        let mut known = BlockKnown::NOTHING;
        known.join_lanes(warp as u8, &epochs);
        let known = Arc::new(known);
        let mut clock = Clock::default();
        clock.add(agent(READS, block.clocks.block), &known);
        if !read {
            clock.add(agent(WRITES, block.clocks.block), &known);
        }
        block.clocks.told(warp as usize, lane, &Arc::new(clock));
    }
}

/// A phase of the mbarrier object at an offset of shared memory has ended.
pub(crate) fn phase_ended(c: &mut RaceCheck<'_>, at: u64) {
    let races = &mut *c.block;
    let block = races.clocks.block;
    let Some(clock) = races.bulk.phase_ended(block, at) else { return };
    races.variables.entry(at).or_default().carry(block, clock);
}
