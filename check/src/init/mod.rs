//! Undefined data.
//!
//! Memory has one bit a byte: global memory in its allocation (`shadow`), shared memory per block, local memory per
//! warp. Registers have one bit a bit, per warp, in the layout of the register file, made when the first undefined value turns
//! up. While a warp's registers are all defined (`Cx::tainted` is false) only its accesses are looked at; otherwise every
//! operation is followed by the rule in its note ([`Taint`]). Moving undefined data is no finding: it is one when a branch, a
//! guard, an address, or an operand that decides what an operation does depends on it, and when it leaves the device
//! ([`Memory::undefined`](warpsmith_simt::Memory::undefined)).
//!
//! **Room.** 12.5 % of tracked allocations and of shared memory, a quarter of local memory (a byte a word), and for
//! warps that meet undefined values once more their register file.
//!
//! What has been reported counts as defined from then on, so that one mistake gives one finding.
//!
//! | module | what it does |
//! |---|---|
//! | `state` | what is known of a launch, of a block and of its warps |
//! | `registers` | undefined bits of registers |
//! | `allocation`, `bytes` | undefined bytes of memory |
//! | `origins` | where undefined values came from |
//! | `rules` | operations that stay in registers |
//! | `access`, `copies`, `matrix` | loads and stores, of lanes, by copies, of matrices |
//! | `collective`, `exchange` | warp collectives |
//! | `report` | findings |

mod access;
mod allocation;
mod bytes;
mod collective;
mod copies;
mod exchange;
mod matrix;
mod origins;
mod registers;
mod report;
mod rules;
mod state;

use allocation::Known;
use origins::UNSET;
pub(crate) use state::warp;

use super::defect::{Decides, Defect};
use super::raw::{RawFinding, RawSite};
use super::{Detail, Rule, Severity, SiteKind};
pub(crate) use collective::{bring, give};
pub(crate) use state::{BlockInit, Init, InitCheck};
use warpsmith_simt::machine::atom::via;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::{Note, Role, Taint};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::words::{Via, Words};
use warpsmith_simt::machine::{Cx, Flow, Op};
use warpsmith_simt::observer::{Entered, LocalCopy};

/// Branches after which a warp looks whether all its registers are defined again.
const LOOK: u32 = 16;

/// A warp is about to run.
pub(crate) fn resume(c: &mut InitCheck<'_>, cx: &mut Cx) {
    cx.following = c.block.warps.get(warp(cx)).is_some_and(|w| w.tainted);
}

/// Lanes have entered a function's frame, with these arguments.
pub(crate) fn entered(
    c: &mut InitCheck<'_>,
    cx: &mut Cx,
    &Entered { row, pred, local, function, lanes }: &Entered<'_>,
    arguments: &mut dyn Iterator<Item = LocalCopy>,
) {
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
    w.enter(row, pred, local, function, lanes);
    arguments.for_each(|copy| w.copy_local(&copy, lanes));
    cx.following = w.tainted;
}

/// Lanes have left one, with these values.
pub(crate) fn left(c: &mut InitCheck<'_>, cx: &Cx, lanes: u32, results: &mut dyn Iterator<Item = LocalCopy>) {
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
    results.for_each(|copy| w.copy_local(&copy, lanes));
}

/// The machine itself has written bytes of a lane's local memory.
pub(crate) fn given(c: &mut InitCheck<'_>, cx: &Cx, at: u32, bytes: u32, lane: usize) {
    if let Some(w) = c.block.warps.get_mut(warp(cx)) {
        w.set_local(at.into(), bytes.into(), lane, !0, UNSET);
    }
}

/// The allocation table has changed: places that are known may be gone.
pub(crate) fn forget(c: &mut InitCheck<'_>) {
    c.launch.sites.fill(Known::default());
}

/// An operation whose guard may be undefined, before it is known whether any lane executes it.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn guarded(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    let w = warp(cx);
    let Some(state) = c.block.warps.get_mut(w) else { return };
    let r = &mut state.registers;
    let slot = cx.frame_pred + u32::from(op.guard >> 1);
    let lanes = r.pred(slot) & cx.mask;
    if lanes == 0 {
        return;
    }
    if note.role == Role::Plain && note.class != super::Class::Control {
        let writes = c.notes.writes(note);
        let origin = r.pred_origin(slot);
        // Active lanes are dealt with when the operation is executed.
        for &reg in writes {
            r.mark(cx, reg, lanes & !cx.active, note.short, origin);
        }
        return;
    }
    let origin = r.pred_origin(slot);
    r.define_pred(slot, lanes);
    let what = if note.class == super::Class::Control { Decides::Guard } else { Decides::Execution };
    report::deciding(c, cx, Rule::UndefinedBranch, pc, lanes, origin, what);
}

/// Before an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn before(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    if let Role::Divide(bits) = note.role {
        // SAFETY: by the contract.
        unsafe { division(c, cx, op, pc, bits) };
    }
    if !cx.following {
        return;
    }
    // SAFETY: by the contract.
    unsafe {
        match note.role {
            Role::Access(i) => {
                if let Some(&access) = c.notes.accesses.get(i as usize) {
                    access::decides(c, cx, op, pc, &access);
                }
            }
            Role::CopyAsync => copies::copy_decides(c, cx, op, pc),
            // Of the registers of a matrix, only the address decides.
            Role::MatrixAccess | Role::Object => {
                let wide = Via::of(cx, op).via != via::SHARED32;
                access::row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
                if note.role == Role::Object {
                    rules::plain(c, cx, op, note);
                }
            }
            Role::CopyBulk => copies::bulk_decides(c, cx, op, pc),
            Role::StoreAsync => {
                let wide = Via::of(cx, op).via != via::SHARED32;
                access::row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
            }
            Role::StoreBulk => {
                let wide = Via::of(cx, op).via != via::SHARED32;
                access::row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
                access::row_decides(c, cx, pc, op.b, true, Rule::UndefinedOperand);
            }
            Role::Collective => collective::before(c, cx, op, pc),
            Role::Barrier => {
                for &reg in c.notes.reads(note) {
                    access::reg_decides(c, cx, pc, reg, Rule::UndefinedOperand);
                }
            }
            Role::Branch | Role::Plain if note.class == super::Class::Control => {
                for &reg in c.notes.reads(note) {
                    access::reg_decides(c, cx, pc, reg, Rule::UndefinedBranch);
                }
                look(c, cx);
            }
            _ if note.taint == Taint::Matrix => matrix::multiply(c, cx, op, note),
            _ => rules::plain(c, cx, op, note),
        }
    }
}

/// After an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn after(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, note: &Note, flow: Flow) {
    // SAFETY: by the contract.
    unsafe {
        match note.role {
            Role::Access(i) => {
                if let Some(&access) = c.notes.accesses.get(i as usize) {
                    access::done(c, cx, op, pc, note, &access);
                }
            }
            Role::CopyAsync => copies::copy_done(c, cx, op, pc),
            Role::CopyBulk => copies::bulk_done(c, cx, op, pc),
            Role::StoreAsync => copies::stored(c, cx, op, pc),
            Role::StoreBulk => copies::filled(c, cx, op, pc),
            Role::Object => copies::object_done(c, cx, op),
            Role::MatrixAccess if flow == Flow::Next => matrix::access(c, cx, op, pc, note),
            Role::Collective if cx.following && flow == Flow::Next => collective::after(c, cx, op),
            Role::Barrier if cx.following => {
                let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
                for &reg in c.notes.writes(note) {
                    w.registers.define(cx, reg, cx.active);
                }
            }
            _ => {}
        }
    }
}

/// Now and then, whether all registers are defined again.
fn look(c: &mut InitCheck<'_>, cx: &mut Cx) {
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
    w.branches += 1;
    if w.branches.is_multiple_of(LOOK) && w.registers.all_defined() {
        w.tainted = false;
        cx.following = false;
    }
}

/// Reports divisors that are zero.
unsafe fn division(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, pc: u32, bits: u8) {
    // SAFETY: the contract of handlers: `b` is a row of the type's width.
    let divisor = |lane| unsafe {
        match bits {
            64 => lane_of::<u64>(cx.src(op.b), lane),
            bits => u64::from(lane_of::<u32>(cx.src(op.b), lane)) & low(bits.into()),
        }
    };
    let Some(lane) = lanes_of(cx.active).find(|&l| divisor(l) == 0) else { return };
    if c.findings.again(Rule::DivisionByZero, pc, u32::MAX) {
        return;
    }
    let lanes = lanes_of(cx.active).filter(|&l| divisor(l) == 0).count();
    c.findings.add(RawFinding {
        rule: Rule::DivisionByZero,
        severity: Severity::Warning,
        defect: Defect::DivisionByZero,
        sites: vec![RawSite {
            kind: SiteKind::Division,
            thread: Some((c.index, warp(cx) as u32, lane as u32)),
            pc,
            detail: if lanes == 1 { Detail::None } else { Detail::OtherLanes(lanes as u32 - 1) },
        }],
        addresses: Vec::new(),
        interval: None,
    });
}
