//! Memory that nobody freed: told when its context is destroyed, and at the end of the process.

use warpsmith_check::defect::LeftBy;
use warpsmith_check::{Defect, Finding, Groups, Report, Rule, Severity};

use super::site::host_site;
use crate::software::tables::records::AllocationRecord;
use crate::software::track;

/// One report for each kind of memory and place that allocated it; its count is that of the allocations.
pub(crate) fn leaked(records: Vec<AllocationRecord>, left_by: LeftBy) -> Vec<Report> {
    let mut groups = Groups::default();
    for AllocationRecord { address, bytes, kind, allocated_at, .. } in records {
        let defect = Defect::Leak { memory: kind, bytes, first: (address, bytes), left_by };
        let finding = Finding { addresses: vec![address], ..Finding::new(Rule::Leak, Severity::Warning, defect) };
        groups.add(Report { allocation: Some(host_site(allocated_at.trace())), ..Report::new(finding) });
    }
    groups.into_all()
}

/// What nobody freed so far: what the end of the process would report; empty if checks are off.
pub fn leaks() -> Vec<Report> {
    leaked(track::left(), LeftBy::Process)
}
