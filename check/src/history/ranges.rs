//! Ranges of memory with equal last uses.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Touch;

/// The last uses of a range of bytes.
#[derive(Clone, Default)]
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

/// Bytes, from and to.
pub(super) type Range = (u64, u64);

/// Bytes with an earlier use of them that clashes with a new one.
pub(super) type ClashingUse = (Range, Arc<Touch>);

/// The first of the clashes with each earlier use.
pub(super) fn first_of_each(mut clashes: Vec<ClashingUse>) -> Vec<ClashingUse> {
    let mut seen = HashSet::new();
    clashes.retain(|(_, earlier)| seen.insert(Arc::as_ptr(earlier)));
    clashes
}

/// The uses of a device's memory, by ranges with equal ones.
#[derive(Default)]
pub(super) struct History {
    ranges: BTreeMap<u64, Uses>,
}

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

    /// Records a use of `start..end`; adds to `clashes` the earlier ones that are not ordered before it, range by range.
    pub(super) fn touch(
        &mut self,
        (start, end): Range,
        touch: &Arc<Touch>,
        before: &dyn Fn(&Touch) -> bool,
        clashes: &mut Vec<ClashingUse>,
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
                if earlier.op != touch.op && !before(earlier) {
                    clashes.push(((from, at), earlier.clone()));
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

    /// Adds to `clashes` the earlier uses that a use of `start..end` clashes with, range by range, and records nothing.
    pub(super) fn compare(
        &self,
        (start, end): Range,
        write: bool,
        before: &dyn Fn(&Touch) -> bool,
        clashes: &mut Vec<ClashingUse>,
    ) {
        let first = self.ranges.range(..=start).next_back().map_or(start, |r| *r.0);
        for (&from, uses) in self.ranges.range(first..end).filter(|(_, uses)| uses.end > start) {
            let range = (from.max(start), uses.end.min(end));
            let earlier = uses.writer.iter().chain(uses.readers.iter().filter(|_| write));
            clashes.extend(earlier.filter(|earlier| !before(earlier)).map(|earlier| (range, earlier.clone())));
        }
    }

    /// The uses of `start..end` that are not ordered before an operation, range by range; they are forgotten.
    pub(super) fn retire(&mut self, (start, end): Range, before: &dyn Fn(&Touch) -> bool) -> Vec<ClashingUse> {
        self.cut(start);
        self.cut(end);
        let keys: Vec<u64> = self.ranges.range(start..end).map(|r| *r.0).collect();
        let mut clashes: Vec<ClashingUse> = Vec::new();
        for key in keys {
            let Some(uses) = self.ranges.remove(&key) else { continue };
            let earlier = uses.writer.into_iter().chain(uses.readers).filter(|touch| !before(touch));
            clashes.extend(earlier.map(|touch| ((key, uses.end), touch)));
        }
        clashes
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::UseSite;
    use super::*;
    use crate::{Site, SiteKind};

    fn touch(op: u32, write: bool) -> Arc<Touch> {
        let place = UseSite::At(Site::nowhere(SiteKind::Here));
        Arc::new(Touch { op, name: format!("op {op}"), write, tag: None, place })
    }

    fn run(h: &mut History, range: (u64, u64), t: &Arc<Touch>, ordered: &[u32]) -> Vec<(u64, u32)> {
        let mut clashes = Vec::new();
        h.touch(range, t, &|t| ordered.contains(&t.op), &mut clashes);
        first_of_each(clashes).iter().map(|c| (c.0.0, c.1.op)).collect()
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
        let clashes = h.retire((0, 1 << 20), &|t| t.op == 1);
        assert_eq!(clashes.iter().map(|c| (c.0.0, c.1.op)).collect::<Vec<_>>(), [(64, 2)]);
        assert!(h.ranges.is_empty());
    }
}
