//! Who allocated and freed device memory, for reports: from the records that the engine keeps under `WARPSMITH_CHECK`.

use std::collections::BTreeMap;

use warpsmith_simt::{Finding, Rule, Severity};

use super::super::track::{self, AllocationKind, AllocationRecord};
use super::HostSite;

/// Who allocated and who freed the memory that a finding names first.
pub(super) fn of_finding(finding: &Finding) -> (Option<HostSite>, Option<HostSite>) {
    let addresses = addresses_in(&finding.memory).chain(addresses_in(&finding.message));
    match addresses.filter_map(track::allocation_at).next() {
        Some(record) => {
            let site = |s: &track::Site| HostSite::of(s.trace());
            (Some(site(&record.allocated_at)), record.freed.as_ref().map(|(_, s)| site(s)))
        }
        None => (None, None),
    }
}

/// Device addresses lie above those of host memory.
const DEVICE_BASE: u64 = 1 << 48;

/// The device addresses in a text.
fn addresses_in(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.split("0x").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        u64::from_str_radix(&rest[..end], 16).ok().filter(|a| *a >= DEVICE_BASE)
    })
}

/// Memory that is still allocated, grouped by who allocated it.
pub(super) fn leaks() -> Vec<(Finding, HostSite)> {
    let mut groups: BTreeMap<String, (AllocationRecord, HostSite, u64, u64)> = BTreeMap::new();
    for record in track::left_over().into_iter().filter(|r| r.kind != AllocationKind::Variable) {
        let site = HostSite::of(record.allocated_at.trace());
        let bytes = record.bytes;
        let group = groups.entry(format!("{site:?}")).or_insert((record, site, 0, 0));
        group.2 += bytes;
        group.3 += 1;
    }
    let finding = |(record, site, bytes, count): (AllocationRecord, HostSite, u64, u64)| {
        let what = if count == 1 { "an allocation".to_owned() } else { format!("{count} allocations") };
        let finding = Finding {
            rule: Rule::Leak,
            severity: Severity::Warning,
            kernel: String::new(),
            message: format!("{what} of {bytes} bytes in all, still there at the end of the process"),
            sites: Vec::new(),
            memory: format!("{} at {:#x}", record.kind, record.address),
            help: String::new(),
            count: 1,
        };
        (finding, site)
    };
    groups.into_values().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_addresses_are_found_in_text() {
        let text = "write at 0x40 of shared memory; 16 bytes behind 0x1000000000100 (64 bytes), 0x1000000000200";
        assert_eq!(addresses_in(text).collect::<Vec<_>>(), [0x1_0000_0000_0100, 0x1_0000_0000_0200]);
        assert_eq!(addresses_in("nothing 0x here").next(), None);
    }
}
