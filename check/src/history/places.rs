//! Which places of kernels have used which bytes.
//!
//! A launch uses ranges that are few; places that use their parts are many, and nobody asks for them unless something clashes. So the
//! books have the ranges, and what finds a clash there looks for its places.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use warpsmith_simt::Memory;

use super::ranges::{ClashingUse, History, Range};
use super::{Ordering, Touch};
use crate::raw::{RawSite, Scene};
use crate::talk::Tag;
use crate::uses::{Use, joined};
use crate::{Detail, Site, SiteKind};

/// Where an operation used some bytes.
pub(super) enum UseSite {
    At(Site),
    /// At some places of a launch.
    Among(Arc<Launch>),
}

impl Touch {
    /// Its place; nowhere as long as it is one of several.
    pub(super) fn site(&self) -> Site {
        match &self.place {
            UseSite::At(site) => site.clone(),
            UseSite::Among(launch) => Site::nowhere(launch.kind(self.write)),
        }
    }
}

/// What a launch has used, or a part of it.
pub(super) struct Launch {
    scene: Arc<Scene>,
    operation: String,
    uses: Vec<Use>,
    /// In order, once they are asked for.
    ordered: OnceLock<Vec<Use>>,
}

impl Launch {
    fn ordered(&self) -> &[Use] {
        self.ordered.get_or_init(|| joined(self.uses.clone()))
    }

    fn kind(&self, writes: bool) -> SiteKind {
        SiteKind::Use {
            writes,
            kernel: Some(self.scene.kernel.clone()),
            operation: self.operation.clone(),
            earlier: false,
        }
    }

    /// What it did at a place, as a part of `whole`.
    fn at(&self, (pc, thread): (u32, (u64, u32, u32)), whole: &Touch) -> Arc<Touch> {
        let raw = RawSite { kind: self.kind(whole.write), thread: Some(thread), pc, detail: Detail::None };
        let place = UseSite::At(raw.finish(&self.scene));
        Arc::new(Touch { op: whole.op, name: whole.name.clone(), write: whole.write, tag: whole.tag, place })
    }

    /// Bytes that it has read or written, without gaps.
    fn ranges(&self, write: bool) -> Vec<Range> {
        let mut ranges = Vec::new();
        self.uses.iter().filter(|used| used.0 == write).for_each(|used| extend(&mut ranges, (used.1, used.2)));
        ranges.sort_unstable();
        let mut all = Vec::new();
        ranges.into_iter().for_each(|range| extend(&mut all, range));
        all
    }
}

/// Adds a range to the last one, if it begins there, or behind it.
fn extend(ranges: &mut Vec<Range>, (from, to): Range) {
    match ranges.last_mut() {
        Some(last) if last.0 <= from && from <= last.1 => last.1 = last.1.max(to),
        _ => ranges.push((from, to)),
    }
}

/// What a launch that is recorded has used, by what it had told others.
pub(super) struct Part {
    launch: Arc<Launch>,
    /// Reads and writes.
    touches: [Arc<Touch>; 2],
}

impl Part {
    pub(super) fn new(scene: &Arc<Scene>, ordering: &Ordering<'_>, tag: Option<Tag>, mut uses: Vec<Use>) -> Part {
        // They are kept as long as anybody may clash with them.
        uses.shrink_to_fit();
        let (operation, ordered) = (ordering.name.to_owned(), OnceLock::new());
        let launch = Arc::new(Launch { scene: Arc::clone(scene), operation, uses, ordered });
        let touches = [false, true].map(|write| {
            let (name, place) = (ordering.name.to_owned(), UseSite::Among(Arc::clone(&launch)));
            Arc::new(Touch { op: ordering.op, name, write, tag, place })
        });
        Part { launch, touches }
    }

    pub(super) fn kernel(&self) -> &str {
        &self.launch.scene.kernel
    }

    /// Calls `f` with what it has used that no other process has, first with what it has read. Allocations
    /// of devices lie apart, so that a range is in one.
    pub(super) fn each(&self, memory: &Memory, mut f: impl FnMut(Range, &Arc<Touch>)) {
        for touch in &self.touches {
            let ranges = self.launch.ranges(touch.write);
            ranges.into_iter().filter(|range| !memory.is_interprocess_at(range.0)).for_each(|range| f(range, touch));
        }
    }

    /// What each of its places has used, in order.
    pub(super) fn of_places(&self) -> Vec<(Range, Arc<Touch>)> {
        let mut places = HashMap::new();
        let of = |&(write, from, to, place): &Use| {
            let at = places
                .entry((write, place.0))
                .or_insert_with(|| self.launch.at(place, &self.touches[usize::from(write)]));
            ((from, to), Arc::clone(at))
        };
        self.launch.ordered().iter().map(of).collect()
    }
}

/// Ranges of earlier uses by the places that have used them.
pub(super) fn by_place(found: &[ClashingUse]) -> History {
    let (mut history, mut ignored) = (History::default(), Vec::new());
    let mut places = HashMap::new();
    for ((start, end), whole) in found {
        let mut touch = |range, touch: &Arc<Touch>| history.touch(range, touch, &|_| false, &mut ignored);
        match &whole.place {
            UseSite::At(_) => touch((*start, *end), whole),
            UseSite::Among(launch) => {
                let inside = |used: &&Use| used.0 == whole.write && used.1 < *end && *start < used.2;
                for &(_, from, to, place) in launch.ordered().iter().filter(inside) {
                    let key = (Arc::as_ptr(whole), place.0);
                    let at = places.entry(key).or_insert_with(|| launch.at(place, whole));
                    touch((from.max(*start), to.min(*end)), at);
                }
            }
        }
        ignored.clear();
    }
    history
}

#[cfg(test)]
mod tests {
    use warpsmith_simt::{LoadOptions, Module};

    use super::super::{CheckedMemory, record};
    use super::*;

    const TEXT: &str = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\nbar.sync 0;\nbar.sync 0;\n\
                        bar.sync 0;\nret;\n}\n";

    fn scene() -> Arc<Scene> {
        let module = Arc::new(Module::load_entries(TEXT, &LoadOptions { sm: 90 }).unwrap());
        Arc::new(Scene { module, kernel: "k".to_owned(), grid: [1; 3], block: [32, 1, 1] })
    }

    /// What a place has used: whether it wrote, from, to, its number.
    fn used(write: bool, from: u64, to: u64, pc: u32) -> Use {
        (write, from, to, (pc, (0, 0, pc)))
    }

    /// Lines of the places that are found to clash, mine and the earlier one's, and how often.
    fn clashes(memory: &Memory, op: u32, uses: Vec<Use>, after: &[u32]) -> Vec<(u32, u32, u64)> {
        let name = format!("launch {op}");
        let before = |earlier| after.contains(&earlier);
        let ordering = Ordering { op, name: &name, before: &before, early: None, speaker: None };
        let findings = record(memory, &scene(), (None, uses), &ordering);
        findings.iter().map(|f| (f.sites[0].ptx_line, f.sites[1].ptx_line, f.count)).collect()
    }

    #[test]
    fn clashes_are_told_of_the_places_that_used_the_bytes() {
        let memory = Memory::new(1 << 20);
        let at = memory.alloc(4096, 256).unwrap();
        // Two places write side by side, and a third reads far behind them: two ranges, which come in any order.
        let first =
            vec![used(true, at + 64, at + 128, 1), used(false, at + 512, at + 640, 2), used(true, at, at + 64, 0)];
        assert_eq!(clashes(&memory, 1, first, &[]), []);
        // What reads a part of each clashes with both, what reads where the other did with nothing.
        let second = vec![
            used(false, at + 60, at + 70, 2),
            used(false, at + 100, at + 101, 2),
            used(false, at + 600, at + 700, 1),
        ];
        assert_eq!(clashes(&memory, 2, second.clone(), &[1]), []);
        memory.forget();
        let again = vec![used(true, at, at + 64, 0), used(true, at + 64, at + 128, 1)];
        assert_eq!(clashes(&memory, 3, again, &[]), []);
        assert_eq!(clashes(&memory, 4, second, &[]), [(8, 6, 1), (8, 7, 2)]);
        // Of two earlier launches that have read the same bytes both; who wrote them is ordered.
        let writes = vec![used(true, at + 66, at + 68, 0)];
        assert_eq!(clashes(&memory, 5, vec![used(false, at + 64, at + 128, 1)], &[3]), []);
        assert_eq!(clashes(&memory, 6, writes, &[3]), [(6, 8, 1), (6, 7, 1)]);
    }

    #[test]
    fn places_are_told_of_what_they_did_where_it_was_not_undone() {
        let memory = Memory::new(1 << 20);
        let at = memory.alloc(4096, 256).unwrap();
        // One place reads what another writes; a later launch, behind it, writes half of that.
        let first = vec![used(false, at, at + 128, 0), used(true, at, at + 128, 1)];
        assert_eq!(clashes(&memory, 1, first, &[]), []);
        assert_eq!(clashes(&memory, 2, vec![used(true, at + 64, at + 128, 2)], &[1]), []);
        // Who waits for the later one alone clashes with the writer, where that was the last, at two places.
        let third =
            vec![used(false, at, at + 32, 0), used(false, at + 32, at + 64, 1), used(false, at + 64, at + 128, 2)];
        assert_eq!(clashes(&memory, 3, third, &[2]), [(6, 7, 1), (7, 7, 1)]);
    }

    #[test]
    fn ranges_have_no_gaps_and_keep_what_is_written_apart() {
        let uses = vec![
            used(true, 500, 600, 0),
            used(false, 100, 116, 0),
            used(true, 256, 512, 1),
            used(true, 550, 700, 1),
            used(false, 116, 256, 3),
            used(false, 800, 804, 3),
        ];
        let ordering = Ordering { op: 1, name: "launch", before: &|_| false, early: None, speaker: None };
        let part = Part::new(&scene(), &ordering, None, uses);
        let mut ranges = Vec::new();
        part.each(&Memory::new(1 << 20), |range, touch| ranges.push((touch.write, range)));
        assert_eq!(ranges, [(false, (100, 256)), (false, (800, 804)), (true, (256, 700))]);
    }
}
