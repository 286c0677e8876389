//! The findings of a launch while it runs: each once, described where it was gravest, and named at the end.

use std::sync::Arc;

use super::fold::{Folded, fold, is_race};
use super::key::Index;
use super::raw::{RawFinding, RawSite, Scene};
use super::{Also, Finding, Rule, Severity};

/// Findings of one launch beyond which further groups are only counted.
const MOST: usize = 256;

/// The findings of a launch, each once. What is known of them before they are described is the rule and two positions.
pub(crate) struct Findings {
    scene: Arc<Scene>,
    known: Index<(Rule, u32, u32)>,
    list: Vec<(RawFinding, u64)>,
}

impl Findings {
    pub(crate) fn new(scene: Arc<Scene>) -> Findings {
        Findings { scene, known: Index::default(), list: Vec::new() }
    }

    /// Counts a finding of a group that is known already; `false` if it is not known and must be described.
    pub(crate) fn again(&mut self, rule: Rule, pc: u32, other: u32) -> bool {
        if let Some(i) = self.known.marked(&(rule, pc, other)) {
            self.list[i].1 += 1;
            return true;
        }
        self.list.len() >= MOST
    }

    /// As [`again`](Findings::again) for rules that grade: a graver finding of a known group replaces its description.
    pub(crate) fn seen(&mut self, rule: Rule, pc: u32, other: u32, severity: Severity) -> bool {
        let known = self.known.marked(&(rule, pc, other));
        if known.is_some_and(|i| self.list[i].0.severity < severity) {
            return false;
        }
        self.again(rule, pc, other)
    }

    /// Adds a finding; of those that are the same the gravest is described.
    pub(crate) fn add(&mut self, finding: RawFinding) {
        let at = |i: usize| finding.sites.get(i).map_or(u32::MAX, |s| s.pc);
        let mark = (finding.rule, at(0), at(1));
        let key = finding.key(&self.scene);
        match self.known.find(mark, &key) {
            Some(at) => {
                let (known, count) = &mut self.list[at];
                *count += 1;
                if known.severity < finding.severity {
                    *known = finding;
                }
            }
            None if self.list.len() < MOST => {
                self.known.insert(mark, key, self.list.len());
                self.list.push((finding, 1));
            }
            None => {}
        }
    }

    /// The rule of an error that explains why what the operation at `pc` reads is undefined.
    pub(crate) fn explains(&self, pc: u32) -> Option<Rule> {
        let reads = |f: &RawFinding| {
            let unordered = is_race(f.rule) || f.rule == Rule::MissingWait;
            unordered && f.severity == Severity::Error && f.sites.iter().any(|s| s.pc == pc)
        };
        self.list.iter().map(|f| &f.0).find(|f| reads(f)).map(|f| f.rule)
    }

    /// The findings, each with what follows from it, with their places named; errors first.
    pub(crate) fn finish(self) -> Vec<Finding> {
        let scene = &self.scene;
        let sites = |raw: Vec<RawSite>| raw.into_iter().map(|site| site.finish(scene)).collect();
        let also = |(raw, count): (RawFinding, u64)| Also {
            rule: raw.rule,
            severity: raw.severity,
            defect: raw.defect,
            sites: sites(raw.sites),
            count,
        };
        fold(self.list)
            .into_iter()
            .map(|Folded { finding: raw, count, also: rest }| Finding {
                rule: raw.rule,
                severity: raw.severity,
                kernel: scene.kernel.clone(),
                defect: raw.defect,
                sites: sites(raw.sites),
                addresses: raw.addresses,
                count,
                also: rest.into_iter().map(also).collect(),
            })
            .collect()
    }
}
