//! Findings about undefined data.

use super::origins::{Origin, Provenance, described};
use super::state::{InitCheck, warp};
use crate::defect::{Decides, Defect, Undefined};
use crate::raw::{RawFinding, RawSite};
use crate::{Detail, Rule, Severity, SiteKind};
use warpsmith_simt::machine::Cx;

/// Reports that what an operation does depends on undefined data.
pub(super) fn deciding(c: &mut InitCheck<'_>, cx: &Cx, rule: Rule, pc: u32, lanes: u32, origin: u32, decides: Decides) {
    let from = c.launch.origins.get(origin);
    if lanes == 0 || c.findings.again(rule, pc, from.map_or(u32::MAX, |o| o.pc)) {
        return;
    }
    let lane = lanes.trailing_zeros() & 31;
    let kind = match rule {
        Rule::UndefinedBranch => SiteKind::Decision,
        Rule::UndefinedAddress => SiteKind::Addressed,
        _ => SiteKind::Operation,
    };
    let others = lanes.count_ones() - 1;
    let mut sites = vec![RawSite {
        kind,
        thread: Some((c.index, warp(cx) as u32, lane)),
        pc,
        detail: if others == 0 { Detail::None } else { Detail::OtherLanes(others) },
    }];
    let addresses = from.and_then(|o| o.global()).into_iter().collect();
    let data = match from {
        None => Undefined::Register,
        Some(o) => {
            let loaded = |o: &Origin| RawSite {
                kind: SiteKind::UndefinedLoad { kernel: None },
                thread: Some(o.thread),
                pc: o.pc,
                detail: Detail::None,
            };
            sites.push(loaded(&o));
            if let Provenance::Stored(before) = o.past {
                sites.extend(c.launch.origins.get(before).as_ref().map(loaded));
            }
            described(&cx.memory, &o)
        }
    };
    let (severity, defect) = (Severity::Error, Defect::Undefined { decides, data });
    c.findings.add(RawFinding { rule, severity, defect, sites, addresses, interval: None });
}
