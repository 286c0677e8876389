//! Memory that nobody freed: told when its context is destroyed, and at the end of the process.

use std::collections::BTreeMap;

use warpsmith_check::{Finding, Rule, Severity};

use super::report::Report;
use super::site::HostSite;
use crate::software::tables::records::AllocationRecord;
use crate::software::track;

/// What ended before the memory was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftBy {
    Context,
    Process,
}

impl LeftBy {
    fn name(self) -> &'static str {
        match self {
            LeftBy::Context => "its context was destroyed",
            LeftBy::Process => "the process ended",
        }
    }
}

/// One report for each kind of memory and place that allocated it; its count is that of the allocations.
pub(crate) fn leaked(records: Vec<AllocationRecord>, left_by: LeftBy) -> Vec<Report> {
    let mut groups: BTreeMap<String, (AllocationRecord, HostSite, u64, u64)> = BTreeMap::new();
    for record in records {
        let site = HostSite::of(record.allocated_at.trace());
        let bytes = record.bytes;
        let group = groups.entry(format!("{} {site:?}", record.kind)).or_insert((record, site, 0, 0));
        group.2 += bytes;
        group.3 += 1;
    }
    let report = |(first, site, bytes, count): (AllocationRecord, HostSite, u64, u64)| {
        let (plural, verb) = if bytes == 1 { ("", "was") } else { ("s", "were") };
        let memory = match count {
            1 => format!("at {:#x}", first.address),
            _ => format!("the first is {} bytes at {:#x}", first.bytes, first.address),
        };
        let finding = Finding {
            rule: Rule::Leak,
            severity: Severity::Warning,
            kernel: String::new(),
            message: format!("{bytes} byte{plural} of {} {verb} not freed before {}", first.kind, left_by.name()),
            sites: Vec::new(),
            memory,
            addresses: vec![first.address],
            help: String::new(),
            count,
            also: Vec::new(),
        };
        Report { allocation: Some(site), ..Report::new(finding) }
    };
    groups.into_values().map(report).collect()
}

/// What nobody freed so far: what the end of the process would report; empty if checks are off.
pub fn leaks() -> Vec<Report> {
    leaked(track::left(), LeftBy::Process)
}
