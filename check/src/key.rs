//! Which findings are the same one: the one definition, for a launch, for a process and for a command that runs several.

use std::collections::HashMap;
use std::hash::Hash;

use warpsmith_simt::Frame;

use crate::defect::{AllocationKind, Defect};
use crate::report::{HostSite, Report};
use crate::{Finding, Rule, Site};

/// What makes two findings the same one: the rule, the kernel, and the places of their first two sides. What has no place in a
/// kernel has one in the host program instead. Values, threads and addresses do not tell findings apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    rule: Rule,
    kernel: String,
    sides: Vec<Spot>,
    host: Option<Box<Host>>,
}

/// A place in a kernel: its line in the PTX, which of its statements, and the innermost of its source places.
pub(crate) type Spot = (u32, u32, Option<Frame>);

/// A place in the host program: the call, who allocated the memory, and what kind of memory it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    call: HostSite,
    allocation: Option<HostSite>,
    kind: Option<AllocationKind>,
}

/// How many sides of a finding tell it apart.
pub(crate) const SIDES: usize = 2;

impl Key {
    /// Of a rule, a kernel and the places of the first sides.
    pub(crate) fn new(rule: Rule, kernel: &str, sides: impl Iterator<Item = Spot>) -> Key {
        Key { rule, kernel: kernel.to_owned(), sides: sides.take(SIDES).collect(), host: None }
    }
}

impl Site {
    fn place(&self) -> Spot {
        (self.ptx_line, self.ptx_statement, self.source.first().cloned())
    }
}

impl Finding {
    /// What it shares with others that are the same.
    pub fn key(&self) -> Key {
        Key::new(self.rule, &self.kernel, self.sites.iter().map(Site::place))
    }
}

impl Report {
    /// What it shares with others that are the same: of the finding, or else of the host program.
    pub fn key(&self) -> Key {
        let key = self.finding.key();
        if !key.sides.is_empty() {
            return key;
        }
        let kind = match self.finding.defect {
            Defect::Leak { memory, .. } => Some(memory),
            _ => None,
        };
        let host = Host { call: self.site.clone(), allocation: self.allocation.clone(), kind };
        Key { host: Some(Box::new(host)), ..key }
    }

    /// Counts another report of the same key.
    fn again(&mut self, other: &Report) {
        self.finding.count += other.finding.count;
        if let (Defect::Leak { bytes, .. }, Defect::Leak { bytes: more, .. }) =
            (&mut self.finding.defect, &other.finding.defect)
        {
            *bytes += more;
        }
    }
}

/// Reports, each once with its count, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    known: HashMap<Key, usize>,
    all: Vec<Report>,
}

impl Groups {
    /// Adds a report: counts it if it is known, and answers it if it is new.
    pub fn add(&mut self, report: Report) -> Option<&Report> {
        let next = self.all.len();
        match *self.known.entry(report.key()).or_insert(next) {
            at if at == next => {
                self.all.push(report);
                self.all.last()
            }
            at => {
                self.all[at].again(&report);
                None
            }
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Report] {
        &self.all
    }

    /// All of them.
    pub fn into_all(self) -> Vec<Report> {
        self.all
    }
}

/// Positions of findings in a list, by their keys. A key takes names to make; what a checker knows of a finding before it
/// describes it, the mark, is therefore remembered. One mark has one key.
pub(crate) struct Index<M> {
    marks: HashMap<M, usize>,
    keys: HashMap<Key, usize>,
}

impl<M> Default for Index<M> {
    fn default() -> Index<M> {
        Index { marks: HashMap::new(), keys: HashMap::new() }
    }
}

impl<M: Eq + Hash> Index<M> {
    /// The position of the finding with this mark, if it has been added.
    pub fn marked(&self, mark: &M) -> Option<usize> {
        self.marks.get(mark).copied()
    }

    /// The position of the finding with this key, if one has been added; it goes by the mark from now on.
    pub fn find(&mut self, mark: M, key: &Key) -> Option<usize> {
        let at = self.keys.get(key).copied()?;
        self.marks.insert(mark, at);
        Some(at)
    }

    /// Adds the finding at a position.
    pub fn insert(&mut self, mark: M, key: Key, at: usize) {
        self.marks.insert(mark, at);
        self.keys.insert(key, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::defect::LeftBy;
    use crate::report::HostFrame;
    use crate::site::SiteKind;

    fn report(rule: Rule, lines: &[u32]) -> Report {
        let site = |&ptx_line: &u32| Site { ptx_line, ..Site::nowhere(SiteKind::Here) };
        let sites = lines.iter().map(site).collect();
        Report::new(Finding {
            kernel: "k".into(),
            sites,
            ..Finding::new(rule, Severity::Error, Defect::DivisionByZero)
        })
    }

    #[test]
    fn rule_kernel_and_two_places_make_a_finding_the_same() {
        let mut groups = Groups::default();
        let first = report(Rule::RaceShared, &[3, 5, 9]);
        assert!(groups.add(first.clone()).is_some());
        let mut seen_later = report(Rule::RaceShared, &[3, 5, 11]);
        seen_later.finding.sites[0].thread = Some([7, 0, 0]);
        seen_later.finding.addresses = vec![64];
        assert!(groups.add(seen_later).is_none(), "threads, addresses and further places do not matter");
        for other in
            [report(Rule::RaceGlobal, &[3, 5]), report(Rule::RaceShared, &[5, 3]), report(Rule::RaceShared, &[3])]
        {
            assert!(groups.add(other).is_some());
        }
        let mut elsewhere = first;
        elsewhere.finding.kernel = "other".into();
        assert!(groups.add(elsewhere).is_some());
        assert_eq!(groups.all().iter().map(|r| r.finding.count).collect::<Vec<_>>(), [2, 1, 1, 1, 1]);
    }

    #[test]
    fn a_place_is_its_line_its_statement_and_its_innermost_source() {
        let frame = |line| Frame { file: "k.rs".into(), line, column: 5 };
        let first = {
            let mut report = report(Rule::RaceShared, &[3]);
            report.finding.sites[0].source = vec![frame(1), frame(9)];
            report
        };
        let changed = |change: fn(&mut Site)| {
            let mut other = first.clone();
            change(&mut other.finding.sites[0]);
            other.key() == first.key()
        };
        assert!(!changed(|site| site.ptx_line = 4));
        assert!(!changed(|site| site.ptx_statement = 1));
        assert!(!changed(|site| site.source[0].line = 2));
        assert!(!changed(|site| site.source[0].column = 6));
        assert!(!changed(|site| site.source[0].file = "l.rs".into()));
        assert!(!changed(|site| site.source.clear()));
        // Who called the place, and what else is known of the side.
        assert!(changed(|site| site.source[1].line = 8));
        assert!(changed(|site| site.lane = 3));
        assert!(changed(|site| site.block = Some([1, 0, 0])));
        assert!(changed(|site| site.ptx_text = "other".into()));
    }

    #[test]
    fn the_host_tells_apart_what_has_no_place_in_a_kernel_alone() {
        let called = |api: &str, lines: &[u32]| {
            let site = HostSite { api: api.into(), frames: Vec::new() };
            Report { site, ..report(Rule::RaceStream, lines) }
        };
        assert_ne!(called("cuMemcpy", &[]).key(), called("cuMemset", &[]).key());
        assert_eq!(called("cuMemcpy", &[]).key(), called("cuMemcpy", &[]).key());
        assert_eq!(called("cuLaunchKernel", &[3]).key(), called("cuLaunchKernelEx", &[3]).key());
    }

    #[test]
    fn a_mark_leads_to_the_finding_of_its_key() {
        let key = |line| report(Rule::RaceShared, &[line]).finding.key();
        let mut index = Index::default();
        index.insert('a', key(1), 0);
        index.insert('b', key(2), 1);
        assert_eq!((index.marked(&'a'), index.marked(&'b'), index.marked(&'c')), (Some(0), Some(1), None));
        // Another mark of a known key goes by it from then on; of an unknown one it stays unknown.
        assert_eq!((index.find('c', &key(2)), index.marked(&'c')), (Some(1), Some(1)));
        assert_eq!((index.find('d', &key(3)), index.marked(&'d')), (None, None));
    }

    #[test]
    fn leaks_are_told_apart_by_who_allocated_what() {
        let leak = |memory, line| {
            let defect = Defect::Leak { memory, bytes: 8, first: (64, 8), left_by: LeftBy::Process };
            let frames = vec![HostFrame { function: "main".into(), file: Some("main.rs".into()), line }];
            let allocation = Some(HostSite { api: "cuMemAlloc_v2".into(), frames });
            Report { allocation, ..Report::new(Finding::new(Rule::Leak, Severity::Warning, defect)) }
        };
        let mut groups = Groups::default();
        for (kind, line) in [(AllocationKind::Device, 3), (AllocationKind::Device, 3), (AllocationKind::Device, 4)] {
            groups.add(leak(kind, line));
        }
        groups.add(leak(AllocationKind::Pinned, 3));
        let bytes: Vec<String> = groups.all().iter().map(|r| r.finding.message()).collect();
        assert_eq!(bytes.len(), 3, "{bytes:?}");
        assert!(bytes[0].starts_with("16 bytes of device memory were not freed"), "{bytes:?}");
    }
}
