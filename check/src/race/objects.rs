//! Accesses that run from one shared variable into another.
//!
//! Hardware checks the bounds of a block's shared memory, not those of the variables in it, which lie side by side. Where the
//! code shows which variable an address was made from (`lower::objects`), the access must stay inside it.

use crate::defect::{self, Verb};
use crate::findings::Findings;
use crate::place::shared_address;
use crate::raw::{RawFinding, RawSite};
use crate::{Defect, Detail, Rule, Severity, SiteKind};
use warpsmith_simt::machine::block::Grid;
use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::note::{Access, Does};
use warpsmith_simt::machine::{Cx, Op};

/// Where a variable lies.
struct VariableExtent {
    number: u32,
    name: String,
    from: u64,
    to: u64,
}

/// The shared variables of a kernel.
#[derive(Default)]
pub(super) struct Objects {
    /// By their offset; empty if there are not two.
    variables: Vec<VariableExtent>,
    /// For each list of variables that an address may be made from, the ranges that it may reach.
    ranges: Vec<Vec<(u64, u64)>>,
}

impl Objects {
    pub(super) fn new(grid: &Grid<'_>) -> Objects {
        let program = grid.program;
        let entry = program.entries.iter().find(|e| e.function == grid.entry);
        let Some(entry) = entry else { return Objects::default() };
        let notes = &program.notes;
        if entry.shared.len() < 2 || notes.objects.is_empty() {
            return Objects::default();
        }
        let variable = |&(number, offset): &(u32, u32)| {
            let v = program.shared.get(number as usize)?;
            // What has no size is what the launch asks for, to the end.
            let to = if v.size == 0 { grid.shared_bytes.into() } else { u64::from(offset).saturating_add(v.size) };
            Some(VariableExtent { number, name: v.name.clone(), from: offset.into(), to })
        };
        let mut variables: Vec<VariableExtent> = entry.shared.iter().filter_map(variable).collect();
        variables.sort_by_key(|v| (v.from, v.to));
        let range = |number: &u32| variables.iter().find(|v| v.number == *number).map(|v| (v.from, v.to));
        let ranges = notes.objects.iter().map(|list| list.iter().filter_map(range).collect()).collect();
        Objects { variables, ranges }
    }

    /// Where an access may go; `None` if that is not known.
    fn within(&self, access: &Access) -> Option<&[(u64, u64)]> {
        let at = (access.objects as usize).checked_sub(1)?;
        self.ranges.get(at).map(Vec::as_slice).filter(|r| !r.is_empty())
    }
}

/// Before an access.
///
/// # Safety
/// The contract of handlers; `access` is the operation's.
pub(super) unsafe fn accessed(
    objects: &Objects,
    findings: &mut Findings,
    cx: &Cx,
    op: &Op,
    (block, warp, pc): (u64, u32, u32),
    access: &Access,
) {
    if objects.variables.is_empty() {
        return;
    }
    let Some(ranges) = objects.within(access) else { return };
    let bytes = access.bytes();
    // What lies outside shared memory altogether is a fault.
    let total = u64::from(cx.shared_bytes);
    let inside = |at: u64| {
        let Some(end) = at.checked_add(bytes).filter(|&end| end <= total) else { return true };
        ranges.iter().any(|&(from, to)| from <= at && end <= to)
    };
    let outside = lanes_of(cx.active).find_map(|lane| {
        // SAFETY: by the contract.
        let at = unsafe { shared_address(cx, op, access, lane) }?;
        (!inside(at)).then_some((lane, at))
    });
    let Some((lane, at)) = outside else { return };
    if findings.seen(Rule::OutOfBounds, pc, u32::MAX, Severity::Error) {
        return;
    }
    let named = |v: &VariableExtent| defect::Variable { name: v.name.clone(), offset: v.from, bytes: v.to - v.from };
    let of = |range: &(u64, u64)| objects.variables.iter().find(|v| (v.from, v.to) == *range).map(named);
    let hit = objects
        .variables
        .iter()
        .find(|v| v.from <= at.saturating_add(bytes - 1) && at < v.to && !ranges.contains(&(v.from, v.to)));
    let verb = match access.does {
        Does::Load => Verb::Read,
        Does::Store => Verb::Write,
        Does::Atomic => Verb::Atomic,
    };
    let (of, hit) = (ranges.iter().filter_map(of).collect(), hit.map(named));
    let finding = RawFinding {
        rule: Rule::OutOfBounds,
        severity: Severity::Error,
        defect: Defect::VariableOverrun { access: verb, bytes, at, of, hit },
        sites: vec![RawSite {
            kind: SiteKind::Instruction(verb),
            thread: Some((block, warp, lane as u32)),
            pc,
            detail: Detail::None,
        }],
        addresses: Vec::new(),
        interval: None,
    };
    findings.add(finding);
}
