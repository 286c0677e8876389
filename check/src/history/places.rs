//! Which places of kernels have used which bytes.
//!
//! A launch uses ranges that are few; places that use their parts are many, and nobody asks for them unless something clashes. So the
//! books have the ranges, and what finds a clash there looks for its places.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use warpsmith_simt::Memory;

use super::ranges::{Clash, History, Range};
use super::{Ordering, Touch};
use crate::raw::{RawSite, Scene};
use crate::talk::Tag;
use crate::uses::{Use, joined};
use crate::{Detail, Site, SiteKind};

/// Where an operation used some bytes.
pub(super) enum Place {
    At(Site),
    /// At some places of a launch.
    Among(Arc<Launch>),
}

impl Touch {
    /// Its place; nowhere as long as it is one of several.
    pub(super) fn site(&self) -> Site {
        match &self.place {
            Place::At(site) => site.clone(),
            Place::Among(launch) => Site::nowhere(launch.kind(self.write)),
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
        let place = Place::At(raw.finish(&self.scene));
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
            let (name, place) = (ordering.name.to_owned(), Place::Among(Arc::clone(&launch)));
            Arc::new(Touch { op: ordering.op, name, write, tag, place })
        });
        Part { launch, touches }
    }

    pub(super) fn kernel(&self) -> &str {
        &self.launch.scene.kernel
    }

    /// Calls `f` with what it has used, first with what it has read, each in one allocation that no other process has.
    pub(super) fn each(&self, memory: &Memory, mut f: impl FnMut(Range, &Arc<Touch>)) {
        for touch in &self.touches {
            for (mut from, to) in self.launch.ranges(touch.write) {
                while from < to {
                    let end =
                        memory.holder(from).and_then(|a| a.base.checked_add(a.size)).map_or(to, |end| end.min(to));
                    if !memory.is_interprocess_at(from) {
                        f((from, end), touch);
                    }
                    from = end;
                }
            }
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
pub(super) fn by_place(found: &[Clash]) -> History {
    let (mut history, mut ignored) = (History::default(), Vec::new());
    let mut places = HashMap::new();
    for ((start, end), whole) in found {
        let mut touch = |range, touch: &Arc<Touch>| history.touch(range, touch, &|_| false, &mut ignored);
        match &whole.place {
            Place::At(_) => touch((*start, *end), whole),
            Place::Among(launch) => {
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
