//! Operations that may overlap: what launches, copies, fills and frees do to device memory is compared with what operations
//! did that nothing on the host orders before them.
//!
//! Needs the order of operations, which is kept where `WARPSMITH_CHECK` is set, and the check of races.

use warpsmith_check::{CheckedMemory, Finding, Ordering};
use warpsmith_simt::Memory;

use super::asked::checks;
use super::submit;
use crate::software::tables::{
    device::Device,
    ops::{self, Copy, Fill},
    order,
    software::engine,
};
use crate::software::track;

/// An operation's position in the order, and its name in reports.
pub(crate) struct Position<'a> {
    ordering: &'a order::Ordering,
    name: String,
}

impl<'a> Position<'a> {
    pub fn of(ordering: &'a order::Ordering) -> Position<'a> {
        let id = ordering.id();
        let what = track::operation(id).map_or_else(String::new, |r| format!(" ({})", r.what));
        Position { ordering, name: format!("operation {id}{what}") }
    }

    /// Calls `f` with the position as the machine wants it.
    pub fn with<R>(&self, f: impl FnOnce(&Ordering<'_>) -> R) -> R {
        let before = |earlier| self.ordering.ordered_before(earlier);
        let early = |earlier| self.ordering.ordered_before_wait(earlier);
        let early = self.ordering.begins_early().then_some(&early as &dyn Fn(u32) -> bool);
        let speaker = Some(self.ordering.speaker());
        f(&Ordering { op: self.ordering.id(), name: &self.name, before: &before, early, speaker })
    }
}

fn memory(ordinal: i32) -> Option<&'static Memory> {
    engine().and_then(|e| e.device(ordinal)).map(|d| d.machine.memory()).ok()
}

/// Rows of a copy or fill in device memory: device, first byte, length, and whether they are written.
fn touch(ordering: Option<&order::Ordering>, rows: impl Iterator<Item = (i32, u64, u64, bool)>) {
    let Some(position) = ordering.filter(|_| checks().races).map(Position::of) else { return };
    let mut found: Vec<Finding> = Vec::new();
    for (device, address, bytes, write) in rows {
        if let Some(memory) = memory(device) {
            found.extend(position.with(|o| memory.touch(address, bytes, write, o)));
        }
    }
    submit(found, None);
}

/// What a copy reads and writes.
pub(crate) fn copies(op: &Copy, ordering: Option<&order::Ordering>) {
    let sides = [(&op.src, false), (&op.dst, true)];
    let rows = sides.into_iter().flat_map(|(side, write)| {
        let ops::Place { address, pitch, slice, device, .. } = *side;
        let starts = (0..op.depth).flat_map(move |z| (0..op.height).map(move |y| z * slice + y * pitch));
        let row = move |at: usize| device.map(|d| (d, address.wrapping_add(at as u64), op.width as u64, write));
        starts.filter_map(row)
    });
    touch(ordering, rows);
}

/// What a fill writes.
pub(crate) fn fills(op: &Fill, ordering: Option<&order::Ordering>) {
    let bytes = op.width as u64 * u64::from(op.element);
    let rows = (0..op.height).map(|y| (op.device, op.dst.wrapping_add((y * op.pitch) as u64), bytes, true));
    touch(ordering, rows);
}

/// Operations that use an allocation and are not ordered before the one that frees it: findings for [`submit`], which wants
/// the tables unlocked.
pub(crate) fn retires(device: &Device, base: u64, ordering: &order::Ordering) -> Vec<Finding> {
    if !checks().races {
        return Vec::new();
    }
    let id = ordering.id();
    let position = Position { ordering, name: format!("operation {id} (free)") };
    position.with(|o| device.machine.memory().retire(base, o))
}
