//! Who allocated and freed device memory, for reports: from the records that the engine keeps.

use warpsmith_check::{Finding, Rule};

use super::site::HostSite;
use crate::software::tables::records::Site;
use crate::software::track;

/// Who had to do with the memory that a finding names.
#[derive(Default)]
pub(super) struct Places {
    /// Who allocated and who freed what it names first.
    pub allocation: Option<HostSite>,
    pub freed: Option<HostSite>,
    /// Who allocated what undefined data was read from first, if that is other memory.
    pub source: Option<HostSite>,
}

/// Who had to do with the memory that a finding names.
pub(super) fn of_finding(finding: &Finding) -> Places {
    let addresses = addresses_in(&finding.memory).chain(addresses_in(&finding.message));
    let mut records = addresses.filter_map(track::allocation_at);
    let Some(first) = records.next() else { return Places::default() };
    let site = |s: &Site| HostSite::of(s.trace());
    let other = records.find(|r| finding.rule == Rule::UndefinedOutput && r.address != first.address);
    Places {
        allocation: Some(site(&first.allocated_at)),
        freed: first.freed.as_ref().map(|(_, s)| site(s)),
        source: other.map(|r| site(&r.allocated_at)),
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
