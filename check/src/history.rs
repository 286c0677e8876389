//! Which operations of the host program have used which bytes of device memory: launches, copies, fills, frees.
//!
//! Threads of one launch race under the memory model of the device. Two operations race if they use the same
//! bytes, one of them writes, and nothing on the host orders them: no stream, event, graph edge or synchronisation. Memory that
//! other processes have mapped is left out: what orders operations on it may lead through them.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpsmith_simt::observer::MemoryObserver;
use warpsmith_simt::{Memory, Nearest};

use super::defect::Defect;
use super::key::Index;
use super::talk::{Speaker, Tag};
use super::uses::Use;
use super::{Finding, Rule, Severity, Site, SiteKind, story};

/// Where an operation stands among those of the host program.
pub struct Ordering<'a> {
    /// Its number; each operation has one of its own.
    pub op: u32,
    /// What it is in reports, e.g. `cuMemcpyHtoDAsync on stream 2`; for a launch, the stream or graph node.
    pub name: &'a str,
    /// Whether an operation that was recorded earlier must have ended before this one begins.
    pub before: &'a dyn Fn(u32) -> bool,
    /// For a launch that may begin before those in front of it have ended, the same for what it does before
    /// `griddepcontrol.wait`.
    pub early: Option<&'a dyn Fn(u32) -> bool>,
    /// Through which launches order each other by flags while they run; `None` if they cannot.
    pub speaker: Option<Speaker>,
}

impl Ordering<'_> {
    /// Whether what an earlier one did is over when this operation begins: by the host, or by what launches told each other.
    fn comes_after(&self, earlier: &Touch) -> bool {
        (self.before)(earlier.op) || self.speaker.as_ref().is_some_and(|s| s.talk.covers(earlier.op, earlier.tag))
    }

    /// Whether something orders an earlier use and one of this operation, which may have been heard of by then.
    fn apart(&self, earlier: &Touch, mine: &Touch) -> bool {
        let strong = |touch: &Touch| touch.tag.is_some_and(|tag| tag.strong);
        self.comes_after(earlier)
            || strong(earlier) && strong(mine)
            || self.speaker.as_ref().is_some_and(|s| s.talk.covers(mine.op, mine.tag))
    }
}

/// What an operation did to some bytes.
#[derive(Debug)]
pub(crate) struct Touch {
    pub op: u32,
    pub name: String,
    pub write: bool,
    /// In a launch that talks to others.
    pub tag: Option<Tag>,
    /// The first place in a kernel that did it.
    pub site: Site,
}

/// The last uses of a range of bytes.
#[derive(Clone, Debug, Default)]
struct Uses {
    end: u64,
    writer: Option<Arc<Touch>>,
    readers: Vec<Arc<Touch>>,
}

impl Uses {
    fn same(&self, other: &Uses) -> bool {
        let eq = |a: &Arc<Touch>, b: &Arc<Touch>| Arc::ptr_eq(a, b);
        let writers = match (&self.writer, &other.writer) {
            (Some(a), Some(b)) => eq(a, b),
            (None, None) => true,
            _ => false,
        };
        writers
            && self.readers.len() == other.readers.len()
            && self.readers.iter().zip(&other.readers).all(|(a, b)| eq(a, b))
    }
}

/// Unordered readers of a range that are remembered.
const READERS: usize = 64;

/// The uses of a device's memory, by ranges with equal ones.
#[derive(Debug, Default)]
pub(crate) struct History {
    ranges: BTreeMap<u64, Uses>,
}

/// An earlier use that clashes with a new one, at an address.
pub(crate) type Clash = (u64, Arc<Touch>);

impl History {
    /// Cuts the range that contains `at` in two.
    fn cut(&mut self, at: u64) {
        let Some((_, uses)) = self.ranges.range_mut(..at).next_back() else { return };
        if uses.end > at {
            let rest = uses.clone();
            uses.end = at;
            self.ranges.insert(at, rest);
        }
    }

    /// Records a use of `start..end`; adds to `clashes` one earlier use for each that is not ordered before it.
    pub(crate) fn touch(
        &mut self,
        (start, end): (u64, u64),
        touch: &Arc<Touch>,
        before: &dyn Fn(&Touch) -> bool,
        clashes: &mut Vec<Clash>,
    ) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let mut gaps = Vec::new();
        let mut at = start;
        for (&from, uses) in self.ranges.range_mut(start..end) {
            if from > at {
                gaps.push((at, from));
            }
            at = uses.end;
            let mut check = |earlier: &Arc<Touch>| {
                let known = clashes.iter().any(|c: &Clash| Arc::ptr_eq(&c.1, earlier));
                if !known && earlier.op != touch.op && !before(earlier) {
                    clashes.push((from, earlier.clone()));
                }
            };
            uses.writer.iter().for_each(&mut check);
            if touch.write {
                uses.readers.drain(..).for_each(|r| check(&r));
                uses.writer = Some(touch.clone());
            } else {
                uses.readers.retain(|r| r.op != touch.op && !before(r));
                if uses.readers.len() < READERS {
                    uses.readers.push(touch.clone());
                }
            }
        }
        if at < end {
            gaps.push((at, end));
        }
        for (from, end) in gaps {
            let (writer, readers) = match touch.write {
                true => (Some(touch.clone()), Vec::new()),
                false => (None, vec![touch.clone()]),
            };
            self.ranges.insert(from, Uses { end, writer, readers });
        }
        self.join(start, end);
    }

    /// Makes neighbours with equal uses one range.
    fn join(&mut self, start: u64, end: u64) {
        let first = self.ranges.range(..start).next_back().map_or(start, |r| *r.0);
        let mut keys: Vec<u64> = self.ranges.range(first..=end).map(|r| *r.0).collect();
        while let Some(key) = keys.pop() {
            let Some(&before) = keys.last() else { break };
            let (Some(a), Some(b)) = (self.ranges.get(&before), self.ranges.get(&key)) else { continue };
            if a.end == key && a.same(b) {
                let end = b.end;
                self.ranges.remove(&key);
                if let Some(a) = self.ranges.get_mut(&before) {
                    a.end = end;
                }
            }
        }
    }

    /// Adds to `clashes` each earlier use that a use of `start..end` clashes with, and records nothing.
    pub(crate) fn compare(
        &self,
        (start, end): (u64, u64),
        write: bool,
        before: &dyn Fn(&Touch) -> bool,
        clashes: &mut Vec<Clash>,
    ) {
        let first = self.ranges.range(..=start).next_back().map_or(start, |r| *r.0);
        for (&from, uses) in self.ranges.range(first..end).filter(|(_, uses)| uses.end > start) {
            for earlier in uses.writer.iter().chain(uses.readers.iter().filter(|_| write)) {
                if !before(earlier) && !clashes.iter().any(|c: &Clash| Arc::ptr_eq(&c.1, earlier)) {
                    clashes.push((from.max(start), earlier.clone()));
                }
            }
        }
    }

    /// The uses of `start..end` that are not ordered before an operation; they are forgotten.
    pub(crate) fn retire(&mut self, start: u64, end: u64, before: &dyn Fn(&Touch) -> bool) -> Vec<Clash> {
        self.cut(start);
        self.cut(end);
        let keys: Vec<u64> = self.ranges.range(start..end).map(|r| *r.0).collect();
        let mut clashes: Vec<Clash> = Vec::new();
        for key in keys {
            let Some(uses) = self.ranges.remove(&key) else { continue };
            for touch in uses.writer.into_iter().chain(uses.readers) {
                if !before(&touch) && !clashes.iter().any(|c| Arc::ptr_eq(&c.1, &touch)) {
                    clashes.push((key, touch));
                }
            }
        }
        clashes
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

/// Names places of a kernel, each with whether it writes.
pub(crate) type Places<'a> = &'a dyn Fn((u32, (u64, u32, u32)), bool) -> Site;

/// The finding about two operations that use the same bytes; or about a launch that uses bytes of one before it without having
/// waited for it, which is `programmatic`.
fn overlap(kernel: &str, mine: &Touch, (_, theirs): &Clash, nearest: &Nearest, programmatic: bool) -> Finding {
    let defect = Defect::Overlap {
        operation: mine.name.clone(),
        writes: mine.write,
        earlier: theirs.name.clone(),
        earlier_writes: theirs.write,
        nearest: *nearest,
        programmatic,
    };
    Finding {
        kernel: kernel.to_string(),
        sites: vec![mine.site.clone(), theirs.earlier()],
        addresses: vec![nearest.address],
        ..Finding::new(Rule::RaceStream, Severity::Error, defect)
    }
}

impl Touch {
    /// Its place, as the earlier one of two.
    fn earlier(&self) -> Site {
        let mut site = self.site.clone();
        if let SiteKind::Use { earlier, .. } = &mut site.kind {
            *earlier = true;
        }
        site
    }
}

/// The finding about memory that is freed while an operation may still use it.
fn freed(name: &str, (_, theirs): &Clash, nearest: &Nearest) -> Finding {
    let free = Site::nowhere(SiteKind::Free { operation: name.to_string() });
    let (operation, user) = (name.to_string(), theirs.name.clone());
    Finding {
        sites: vec![free, theirs.site.clone()],
        addresses: vec![nearest.address],
        ..Finding::new(Rule::FreeStream, Severity::Error, Defect::FreedInUse { operation, user, nearest: *nearest })
    }
}

/// The checks' books about the memory of a device.
#[derive(Default)]
pub(crate) struct Ledger {
    history: Mutex<History>,
}

impl Ledger {
    /// The books about `memory`; `None` if another observer keeps its own.
    pub(crate) fn of(memory: &Memory) -> Option<&Ledger> {
        let observer: &dyn Any = memory.observed_by(|| Box::new(Ledger::default()));
        observer.downcast_ref()
    }

    /// Calls `f` with the books about the memory that `address` is in, which may be a peer's.
    fn at(memory: &Memory, address: u64, f: impl FnOnce(&Ledger)) {
        memory.observed_at(
            address,
            || Box::new(Ledger::default()),
            |observer| {
                let observer: &dyn Any = observer;
                if let Some(ledger) = observer.downcast_ref() {
                    f(ledger);
                }
            },
        );
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryObserver for Ledger {
    fn copied(&self, from: u64, to: u64, at: &Nearest) -> u32 {
        story::copied(from, to, at)
    }

    fn freed(&self, base: u64, end: u64) {
        self.history().retire(base, end, &|_| true);
    }
}

/// What the checks know of the memory of a device beyond a launch.
pub trait CheckedMemory {
    /// Whether allocations from now on carry bits that say which of their bytes are defined, and undefined data tells where it
    /// came from. Existing allocations stay as they are.
    fn track(&self, on: bool);

    /// Records that an operation of the host program, a copy or a fill, reads or writes `bytes` bytes, and
    /// reports earlier operations that use them and are not ordered before it. What launches access is recorded by
    /// [`Inspect::inspect_ordered`](crate::Inspect::inspect_ordered).
    fn touch(&self, address: u64, bytes: u64, write: bool, ordering: &Ordering<'_>) -> Vec<Finding>;

    /// Reports operations that use the allocation at `base` and are not ordered before an operation that frees it.
    /// Call it before [`free`](Memory::free).
    fn retire(&self, base: u64, ordering: &Ordering<'_>) -> Vec<Finding>;

    /// Forgets what operations have used: all of them have ended, as after a synchronisation of the whole device.
    fn forget(&self);

    /// The finding `init::output` that a copy of this range to the host takes [undefined bytes](Memory::undefined) along: who
    /// stored them, and where they were undefined first.
    fn undefined_output(&self, address: u64, bytes: u64) -> Option<Finding>;
}

impl CheckedMemory for Memory {
    fn track(&self, on: bool) {
        if on {
            Ledger::of(self);
        }
        self.keep_definedness(on);
    }

    fn touch(&self, address: u64, bytes: u64, write: bool, ordering: &Ordering<'_>) -> Vec<Finding> {
        let Some(ledger) = Ledger::of(self).filter(|_| !self.is_interprocess_at(address)) else { return Vec::new() };
        let name = ordering.name.to_string();
        let kind = SiteKind::Use { writes: write, kernel: None, operation: name.clone(), earlier: false };
        let touch = Arc::new(Touch { op: ordering.op, name, write, tag: None, site: Site::nowhere(kind) });
        let mut clashes = Vec::new();
        let end = address.saturating_add(bytes);
        ledger.history().touch((address, end), &touch, &|earlier| ordering.apart(earlier, &touch), &mut clashes);
        let report = |c: &Clash| overlap(ordering.name, &touch, c, &self.nearest(c.0), false);
        clashes.iter().map(report).collect()
    }

    fn retire(&self, base: u64, ordering: &Ordering<'_>) -> Vec<Finding> {
        let Some((info, ledger)) = self.find(base).zip(Ledger::of(self)) else { return Vec::new() };
        let end = info.base.saturating_add(info.size);
        let clashes = ledger.history().retire(info.base, end, &|t| t.op == ordering.op || ordering.comes_after(t));
        clashes.iter().map(|c| freed(ordering.name, c, &self.nearest(c.0))).collect()
    }

    fn forget(&self) {
        if let Some(ledger) = Ledger::of(self) {
            ledger.history().clear();
        }
    }

    fn undefined_output(&self, address: u64, bytes: u64) -> Option<Finding> {
        let (offset, count) = self.undefined(address, bytes)?;
        let first = address.checked_add(offset)?;
        let origin = self.origin(first)?;
        Some(story::output(bytes, count, &self.nearest(first), origin))
    }
}

/// Records what a launch has used; `site` names places of its kernel.
pub(crate) fn record(
    memory: &Memory,
    kernel: &str,
    uses: (Option<Tag>, &[Use]),
    ordering: &Ordering<'_>,
    site: Places<'_>,
) -> Vec<Finding> {
    let report = |mine: &Touch, clash: &Clash, at: &Nearest| overlap(kernel, mine, clash, at, false);
    clashing(memory, uses, ordering, site, report, |history, range, touch, clashes| {
        history.touch(range, touch, &|earlier| ordering.apart(earlier, touch), clashes);
    })
}

/// Reports what a launch has used before it waited for launches that may not have ended.
pub(crate) fn overtaken(
    memory: &Memory,
    kernel: &str,
    uses: &[Use],
    ordering: &Ordering<'_>,
    site: Places<'_>,
) -> Vec<Finding> {
    let Some(before) = ordering.early else { return Vec::new() };
    let report = |mine: &Touch, clash: &Clash, at: &Nearest| overlap(kernel, mine, clash, at, true);
    clashing(memory, (None, uses), ordering, site, report, |history, range, touch, clashes| {
        history.compare(range, touch.write, &|earlier| before(earlier.op), clashes);
    })
}

/// The findings, by `report`, about places of the kernel and earlier operations that clash by `find`.
fn clashing(
    memory: &Memory,
    (tag, uses): (Option<Tag>, &[Use]),
    ordering: &Ordering<'_>,
    site: Places<'_>,
    report: impl Fn(&Touch, &Clash, &Nearest) -> Finding,
    find: impl Fn(&mut History, (u64, u64), &Arc<Touch>, &mut Vec<Clash>),
) -> Vec<Finding> {
    let mut touches: HashMap<(u32, bool), Arc<Touch>> = HashMap::new();
    let mut findings: Vec<Finding> = Vec::new();
    let mut known: Index<(u32, bool, *const Touch)> = Index::default();
    for &(write, from, to, place) in uses {
        if memory.is_interprocess_at(from) {
            continue;
        }
        let touch = touches.entry((place.0, write)).or_insert_with(|| {
            Arc::new(Touch { op: ordering.op, name: ordering.name.to_string(), write, tag, site: site(place, write) })
        });
        let mut clashes = Vec::new();
        Ledger::at(memory, from, |ledger| find(&mut ledger.history(), (from, to), touch, &mut clashes));
        for clash in &clashes {
            let mark = (place.0, write, Arc::as_ptr(&clash.1));
            if let Some(at) = known.marked(&mark) {
                findings[at].count += 1;
                continue;
            }
            let finding = report(touch, clash, &memory.nearest(clash.0));
            let key = finding.key();
            match known.find(mark, &key) {
                Some(at) => findings[at].count += 1,
                None => {
                    known.insert(mark, key, findings.len());
                    findings.push(finding);
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(op: u32, write: bool) -> Arc<Touch> {
        Arc::new(Touch { op, name: format!("op {op}"), write, tag: None, site: Site::nowhere(SiteKind::Here) })
    }

    fn run(h: &mut History, range: (u64, u64), t: &Arc<Touch>, ordered: &[u32]) -> Vec<(u64, u32)> {
        let mut clashes = Vec::new();
        h.touch(range, t, &|t| ordered.contains(&t.op), &mut clashes);
        clashes.iter().map(|c| (c.0, c.1.op)).collect()
    }

    #[test]
    fn unordered_uses_of_common_bytes_clash() {
        let mut h = History::default();
        assert_eq!(run(&mut h, (100, 200), &touch(1, true), &[]), []);
        assert_eq!(run(&mut h, (300, 400), &touch(2, true), &[]), []);
        assert_eq!(run(&mut h, (150, 350), &touch(3, false), &[]), [(150, 1), (300, 2)]);
        assert_eq!(run(&mut h, (0, 500), &touch(4, false), &[1, 2]), []);
        // Readers do not clash with each other; a writer does with both.
        assert_eq!(run(&mut h, (349, 360), &touch(5, true), &[1, 2]), [(349, 3), (349, 4)]);
        assert_eq!(run(&mut h, (345, 349), &touch(6, true), &[1, 2, 3, 4]), []);
        assert_eq!(run(&mut h, (360, 361), &touch(7, true), &[2, 4]), []);
    }

    #[test]
    fn neighbours_with_equal_uses_are_one_range() {
        let mut h = History::default();
        let t = touch(1, true);
        for i in (0..1000).step_by(2).chain((1..1000).step_by(2)) {
            run(&mut h, (i * 128, i * 128 + 128), &t, &[]);
        }
        assert_eq!(h.ranges.len(), 1);
        assert_eq!(run(&mut h, (64, 65), &touch(2, false), &[1]), []);
        assert_eq!(h.ranges.len(), 3);
        let clashes = h.retire(0, 1 << 20, &|t| t.op == 1);
        assert_eq!(clashes.iter().map(|c| (c.0, c.1.op)).collect::<Vec<_>>(), [(64, 2)]);
        assert!(h.ranges.is_empty());
    }
}
