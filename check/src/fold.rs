//! Findings of a launch that have one cause, as one.
//!
//! A barrier that is missing lets every access before it race with every access behind it, a barrier in which threads
//! disagree orders nothing, and what is read too early may not have been written at all. What such findings have in common is a
//! place in the code, or that they fell between the same two barriers of the block. The gravest of a group is told, the
//! others stand in a line each behind it.

use super::defect::Verb;
use super::raw::RawFinding;
use super::{Rule, Severity, SiteKind};

/// A finding with its count, and those that follow from the same cause.
pub(super) struct Folded {
    pub finding: RawFinding,
    pub count: u64,
    pub also: Vec<(RawFinding, u64)>,
}

/// Whether the rule is about accesses that nothing orders.
pub(super) fn is_race(rule: Rule) -> bool {
    matches!(rule, Rule::RaceShared | Rule::RaceGlobal | Rule::RaceScope | Rule::StaticShared)
}

/// Whether a finding says that threads of a block disagree about a barrier, so that it orders nothing.
fn breaks_barriers(f: &RawFinding) -> bool {
    matches!(f.rule, Rule::BarrierDivergence | Rule::BarrierMissing) && f.severity == Severity::Error
}

/// Positions of the two accesses of a race, or of what is undefined and where that was read.
fn places(f: &RawFinding) -> impl Iterator<Item = u32> + '_ {
    f.sites.iter().take(2).map(|s| s.pc).filter(|&pc| pc != u32::MAX)
}

fn share_a_place(a: &RawFinding, b: &RawFinding) -> bool {
    places(a).any(|pc| places(b).any(|other| other == pc))
}

/// Whether two findings have one cause.
fn related(a: &RawFinding, b: &RawFinding) -> bool {
    let undefined = |f: &RawFinding| {
        matches!(f.rule, Rule::UndefinedBranch | Rule::UndefinedAddress | Rule::UndefinedOperand) && f.sites.len() > 1
    };
    let loaded = |f: &RawFinding| f.sites.get(1).map(|s| s.pc);
    match (is_race(a.rule), is_race(b.rule)) {
        (true, true) => {
            let together = a.interval.is_some() && a.interval == b.interval;
            a.rule == b.rule && (together || share_a_place(a, b))
        }
        (true, false) => related(b, a),
        // Only accesses of the same block need its barriers.
        (false, true) if breaks_barriers(a) => b.interval.is_some(),
        (false, true) if undefined(a) => b.severity == Severity::Error && places(b).any(|pc| loaded(a) == Some(pc)),
        _ => false,
    }
}

/// Groups findings; the gravest groups come first, otherwise they keep their order.
pub(super) fn fold(list: Vec<(RawFinding, u64)>) -> Vec<Folded> {
    let mut group: Vec<usize> = (0..list.len()).collect();
    for a in 0..list.len() {
        for b in 0..a {
            if group[a] != group[b] && related(&list[a].0, &list[b].0) {
                let (from, to) = (group[a].max(group[b]), group[a].min(group[b]));
                group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
            }
        }
    }
    let mut parts: Vec<Vec<(RawFinding, u64)>> = list.iter().map(|_| Vec::new()).collect();
    for (item, group) in list.into_iter().zip(group) {
        parts[group].push(item);
    }
    let mut folded: Vec<Folded> = parts.into_iter().filter_map(lead).collect();
    folded.sort_by_key(|f| std::cmp::Reverse(f.finding.severity));
    folded
}

/// The cause of a group, with the others behind it.
fn lead(mut part: Vec<(RawFinding, u64)>) -> Option<Folded> {
    // What a read has missed is more telling than what a write comes too early for.
    let late = |f: &RawFinding| {
        f.sites.get(1).is_some_and(|s| matches!(s.kind, SiteKind::Access { verb: Verb::Write, earlier: true, .. }))
    };
    let rank = |f: &RawFinding| (breaks_barriers(f), f.severity, is_race(f.rule), late(f));
    // Of equals, the first that was seen.
    let first = (0..part.len()).rev().max_by_key(|&i| rank(&part[i].0))?;
    let (finding, count) = part.remove(first);
    part.sort_by_key(|(f, _)| std::cmp::Reverse(f.severity));
    Some(Folded { finding, count, also: part })
}

#[cfg(test)]
mod tests {
    use super::super::raw::RawSite;
    use super::super::{Defect, Detail};
    use super::*;

    fn found(rule: Rule, severity: Severity, places: &[u32], interval: Option<u32>) -> (RawFinding, u64) {
        let site = |&pc| RawSite { kind: SiteKind::Here, thread: None, pc, detail: Detail::None };
        let sites = places.iter().map(site).collect();
        (RawFinding { rule, severity, defect: Defect::DivisionByZero, sites, addresses: Vec::new(), interval }, 1)
    }

    fn groups(list: Vec<(RawFinding, u64)>) -> Vec<(Rule, usize)> {
        fold(list).iter().map(|f| (f.finding.rule, f.also.len())).collect()
    }

    #[test]
    fn races_with_a_common_place_or_interval_are_one() {
        use Rule::{RaceGlobal, RaceShared};
        use Severity::{Error, Warning};
        let list = vec![
            found(RaceShared, Warning, &[1, 2], None),
            found(RaceShared, Error, &[2, 3], None),
            found(RaceShared, Error, &[7, 8], Some(4)),
            found(RaceShared, Error, &[9, 10], Some(4)),
            found(RaceShared, Error, &[11, 12], Some(5)),
            found(RaceGlobal, Error, &[2, 3], None),
        ];
        let folded = fold(list);
        let shown: Vec<_> = folded.iter().map(|f| (f.finding.sites[0].pc, f.finding.severity, f.also.len())).collect();
        assert_eq!(shown, [(2, Error, 1), (7, Error, 1), (11, Error, 0), (2, Error, 0)]);
    }

    #[test]
    fn what_follows_stands_behind_its_cause() {
        use Rule::{BarrierDivergence, RaceGlobal, RaceShared, UndefinedBranch};
        use Severity::{Error, Info};
        // A branch on what a race has read; what is undefined for another reason stays by itself.
        let list = vec![
            found(UndefinedBranch, Error, &[20, 3], None),
            found(RaceShared, Error, &[3, 2], Some(1)),
            found(UndefinedBranch, Error, &[21, 5], None),
        ];
        assert_eq!(groups(list), [(RaceShared, 1), (UndefinedBranch, 0)]);
        let list = vec![
            found(RaceShared, Info, &[1, 2], Some(1)),
            found(RaceGlobal, Error, &[4, 5], None),
            found(RaceShared, Error, &[3, 2], Some(1)),
            found(BarrierDivergence, Error, &[9, 10], None),
        ];
        assert_eq!(groups(list), [(BarrierDivergence, 2), (RaceGlobal, 0)]);
    }
}
