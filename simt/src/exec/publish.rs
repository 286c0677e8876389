//! What the run loop publishes of each operation to the observer of a watched launch.

use super::{Cx, Flow, Op};
use crate::note::{Note, Role};

/// # Safety
/// `cx.notes` has a note for the operation at `pc`.
#[inline(always)]
unsafe fn note_of<'a>(cx: &Cx, pc: u32) -> &'a Note {
    // SAFETY: by the contract; notes live as long as the program.
    unsafe { &*cx.notes.add(pc as usize) }
}

/// Called before an operation is executed by `cx.active` lanes.
///
/// # Safety
/// The contract of handlers, and `cx.notes` has a note for every operation.
#[inline(always)]
pub(crate) unsafe fn before(cx: &mut Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract.
    let note = unsafe { note_of(cx, pc) };
    // One test for most operations of most launches.
    if !(note.busy | cx.following | cx.counting) {
        return;
    }
    let watched = cx.following || note.busy && (cx.watching || matches!(note.role, Role::Divide(_)));
    if watched || cx.counting {
        // SAFETY: by the contract.
        cx.observe(|o, cx| unsafe { o.before(cx, op, pc, note, watched) });
    }
}

/// Called after it, unless it faulted.
///
/// # Safety
/// As for [`before`].
#[inline(always)]
pub(crate) unsafe fn after(cx: &mut Cx, op: &Op, pc: u32, flow: Flow) {
    // SAFETY: by the contract.
    let note = unsafe { note_of(cx, pc) };
    if note.busy && (cx.counting || note.role.leaves_something()) {
        // SAFETY: by the contract.
        cx.observe(|o, cx| unsafe { o.after(cx, op, pc, note, flow) });
    }
}

/// Called first of all if the observer follows the warp, before it is known whether any lane executes the operation.
///
/// # Safety
/// As for [`before`].
#[inline(never)]
pub(crate) unsafe fn guarded(cx: &mut Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract.
    let note = unsafe { note_of(cx, pc) };
    // SAFETY: by the contract.
    cx.observe(|o, cx| unsafe { o.guarded(cx, op, pc, note) });
}

/// Called instead of both if no lane executes the operation.
#[inline(always)]
pub(crate) fn skipped(cx: &mut Cx, pc: u32) {
    if cx.counting {
        cx.observe(|o, cx| o.skipped(cx, pc));
    }
}
