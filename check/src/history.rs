//! Which operations of the host program have used which bytes of device memory: launches, copies, fills, frees.
//!
//! Threads of one launch race under the memory model of the device. Two operations race if they use the same
//! bytes, one of them writes, and nothing on the host orders them: no stream, event, graph edge or synchronisation. Memory that
//! other processes have mapped is left out: what orders operations on it may lead through them.

mod places;
mod ranges;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpsmith_simt::observer::MemoryObserver;
use warpsmith_simt::{Memory, Nearest};

use super::defect::Defect;
use super::key::Index;
use super::raw::Scene;
use super::talk::{Speaker, Tag};
use super::uses::Use;
use super::{Finding, Rule, Severity, Site, SiteKind, story};
use places::{Part, UseSite, by_place};
use ranges::{ClashingUse, History, Range, first_of_each};

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
pub(crate) struct Touch {
    pub op: u32,
    pub name: String,
    pub write: bool,
    /// In a launch that talks to others.
    pub tag: Option<Tag>,
    place: UseSite,
}

/// The finding about two operations that use the same bytes; or about a launch that uses bytes of one before it without having
/// waited for it, which is `programmatic`.
fn overlap(kernel: &str, mine: &Touch, theirs: &Touch, nearest: &Nearest, programmatic: bool) -> Finding {
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
        sites: vec![mine.site(), theirs.earlier()],
        addresses: vec![nearest.address],
        ..Finding::new(Rule::RaceStream, Severity::Error, defect)
    }
}

impl Touch {
    /// Its place, as the earlier one of two.
    fn earlier(&self) -> Site {
        let mut site = self.site();
        if let SiteKind::Use { earlier, .. } = &mut site.kind {
            *earlier = true;
        }
        site
    }
}

/// The finding about memory that is freed while an operation may still use it.
fn freed(name: &str, theirs: &Touch, nearest: &Nearest) -> Finding {
    let free = Site::nowhere(SiteKind::Free { operation: name.to_string() });
    let (operation, user) = (name.to_string(), theirs.name.clone());
    Finding {
        sites: vec![free, theirs.site()],
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
        self.history().retire((base, end), &|_| true);
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
        let place = UseSite::At(Site::nowhere(kind));
        let touch = Arc::new(Touch { op: ordering.op, name, write, tag: None, place });
        let range = (address, address.saturating_add(bytes));
        let before = |earlier: &Touch| ordering.apart(earlier, &touch);
        let mut found = Vec::new();
        ledger.history().touch(range, &touch, &before, &mut found);
        let mut clashes = Vec::new();
        if !found.is_empty() {
            by_place(&found).touch(range, &touch, &before, &mut clashes);
        }
        let report = |(at, theirs): &ClashingUse| overlap(ordering.name, &touch, theirs, &self.nearest(at.0), false);
        first_of_each(clashes).iter().map(report).collect()
    }

    fn retire(&self, base: u64, ordering: &Ordering<'_>) -> Vec<Finding> {
        let Some((info, ledger)) = self.find(base).zip(Ledger::of(self)) else { return Vec::new() };
        let range = (info.base, info.base.saturating_add(info.size));
        let found = ledger.history().retire(range, &|t| t.op == ordering.op || ordering.comes_after(t));
        let clashes = first_of_each(by_place(&found).retire(range, &|_| false));
        clashes.iter().map(|(at, theirs)| freed(ordering.name, theirs, &self.nearest(at.0))).collect()
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

/// Records what a launch has used, by what it had told others by then, and reports earlier operations that clash with it.
pub(crate) fn record(
    memory: &Memory,
    scene: &Arc<Scene>,
    (tag, uses): (Option<Tag>, Vec<Use>),
    ordering: &Ordering<'_>,
) -> Vec<Finding> {
    let part = Part::new(scene, ordering, tag, uses);
    let mut found = Vec::new();
    part.each(memory, |range, touch| {
        let before = |earlier: &Touch| ordering.apart(earlier, touch);
        Ledger::at(memory, range.0, |ledger| ledger.history().touch(range, touch, &before, &mut found));
    });
    clashing(memory, &part, &found, false, |history, range, touch, clashes| {
        history.touch(range, touch, &|earlier| ordering.apart(earlier, touch), clashes);
    })
}

/// Reports what a launch has used before it waited for launches that may not have ended.
pub(crate) fn overtaken(memory: &Memory, scene: &Arc<Scene>, uses: Vec<Use>, ordering: &Ordering<'_>) -> Vec<Finding> {
    let Some(before) = ordering.early else { return Vec::new() };
    let part = Part::new(scene, ordering, None, uses);
    let mut found = Vec::new();
    part.each(memory, |range, touch| {
        let before = |earlier: &Touch| before(earlier.op);
        Ledger::at(memory, range.0, |ledger| {
            ledger.history().compare(range, touch.write, &before, &mut found);
        });
    });
    clashing(memory, &part, &found, true, |history, range, touch, clashes| {
        history.compare(range, touch.write, &|earlier| before(earlier.op), clashes);
    })
}

/// The findings about places of a launch and of what it was found to clash with: what each place clashes with `find` tells.
fn clashing(
    memory: &Memory,
    part: &Part,
    found: &[ClashingUse],
    programmatic: bool,
    find: impl Fn(&mut History, Range, &Arc<Touch>, &mut Vec<ClashingUse>),
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    if found.is_empty() {
        return findings;
    }
    let mut history = by_place(found);
    let mut known: Index<(*const Touch, *const Touch)> = Index::default();
    for (range, touch) in &part.of_places() {
        if memory.is_interprocess_at(range.0) {
            continue;
        }
        let mut clashes = Vec::new();
        find(&mut history, *range, touch, &mut clashes);
        for (at, earlier) in first_of_each(clashes) {
            let mark = (Arc::as_ptr(touch), Arc::as_ptr(&earlier));
            if let Some(at) = known.marked(&mark) {
                findings[at].count += 1;
                continue;
            }
            let finding = overlap(part.kernel(), touch, &earlier, &memory.nearest(at.0), programmatic);
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
