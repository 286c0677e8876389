//! Who allocated and freed device memory, for reports: from the records that the engine keeps.

use warpsmith_check::{Finding, HostSite, Rule};

use super::site::host_site;
use crate::software::tables::records::Site;
use crate::software::track;

/// Who had to do with the memory that a finding names.
#[derive(Default)]
pub(super) struct AllocationSites {
    /// Who allocated and who freed what it names first.
    pub allocation: Option<HostSite>,
    pub freed: Option<HostSite>,
    /// Who allocated what undefined data was read from first, if that is other memory.
    pub source: Option<HostSite>,
}

/// Who had to do with the memory that a finding names.
pub(super) fn of_finding(finding: &Finding) -> AllocationSites {
    let addresses = finding.addresses.iter().copied().filter(|a| *a >= DEVICE_BASE);
    let mut records = addresses.filter_map(track::allocation_at);
    let Some(first) = records.next() else { return AllocationSites::default() };
    let site = |s: &Site| host_site(s.trace());
    let other = records.find(|r| finding.rule == Rule::UndefinedOutput && r.address != first.address);
    AllocationSites {
        allocation: Some(site(&first.allocated_at)),
        freed: first.freed.as_ref().map(|(_, s)| site(s)),
        source: other.map(|r| site(&r.allocated_at)),
    }
}

/// Device addresses lie above those of host memory.
const DEVICE_BASE: u64 = 1 << 48;
