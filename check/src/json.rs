//! Reports as JSON: what the driver writes into a report file, a line each, and the command reads back.
//!
//! A line has the fields of the finding, and the sentences that are made from them, for readers who do not want to make them
//! anew. Whoever reads a line back as a [`Report`] goes by the fields. Nothing is guessed: a line that has other fields than
//! these is of another version, and is refused.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use warpsmith_simt::{Frame, Launch};

use crate::defect::Defect;
use crate::report::{HostSite, Report};
use crate::site::{Detail, SiteKind};
use crate::{Also, Finding, Rule, Severity, Site};

/// The type that a finding's line names.
pub(crate) const FINDING: &str = "finding";

/// A report as its line has it. Fields that are only written are made from others.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportLine {
    #[serde(rename = "type")]
    kind: String,
    rule: Rule,
    severity: Severity,
    kernel: String,
    message: String,
    count: u64,
    place: Option<Frame>,
    defect: Defect,
    sites: Vec<SiteLine>,
    also: Vec<AlsoLine>,
    memory: String,
    addresses: Vec<u64>,
    help: String,
    launch: Option<LaunchLine>,
    call: HostSite,
    allocated: Option<HostSite>,
    freed: Option<HostSite>,
    source_allocated: Option<HostSite>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seeds: Option<(u64, u64)>,
    shape: Option<String>,
    replay: String,
    process: Option<u32>,
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteLine {
    label: String,
    kind: SiteKind,
    block: Option<[u32; 3]>,
    thread: Option<[u32; 3]>,
    lane: Option<u32>,
    note: String,
    detail: Detail,
    source: Vec<Frame>,
    ptx: PtxLine,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PtxLine {
    line: u32,
    text: String,
    statement: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlsoLine {
    rule: Rule,
    severity: Severity,
    message: String,
    defect: Defect,
    count: u64,
    sites: Vec<SiteLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchLine {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
}

impl From<&Site> for SiteLine {
    fn from(site: &Site) -> SiteLine {
        SiteLine {
            label: site.label(),
            kind: site.kind.clone(),
            block: site.block,
            thread: site.thread,
            lane: site.thread.map(|_| site.lane),
            note: site.note(),
            detail: site.detail.clone(),
            source: site.source.clone(),
            ptx: PtxLine { line: site.ptx_line, text: site.ptx_text.trim().to_owned(), statement: site.ptx_statement },
        }
    }
}

impl From<SiteLine> for Site {
    fn from(line: SiteLine) -> Site {
        Site {
            kind: line.kind,
            block: line.block,
            thread: line.thread,
            lane: line.lane.unwrap_or(0),
            ptx_line: line.ptx.line,
            ptx_text: line.ptx.text,
            ptx_statement: line.ptx.statement,
            source: line.source,
            detail: line.detail,
        }
    }
}

impl From<&Report> for ReportLine {
    fn from(report: &Report) -> ReportLine {
        let Report { finding: f, launch, site, allocation, freed, source, replay, shape, process } = report;
        let sites = |sites: &[Site]| sites.iter().map(SiteLine::from).collect::<Vec<_>>();
        let also = |also: &Also| AlsoLine {
            rule: also.rule,
            severity: also.severity,
            message: also.message(),
            defect: also.defect.clone(),
            count: also.count,
            sites: sites(&also.sites),
        };
        let seeds = match f.defect {
            Defect::Schedule { seeds, .. } => Some(seeds),
            _ => None,
        };
        ReportLine {
            kind: FINDING.to_owned(),
            rule: f.rule,
            severity: f.severity,
            kernel: f.kernel.clone(),
            message: f.message(),
            count: f.count,
            place: report.place().cloned(),
            defect: f.defect.clone(),
            sites: sites(&f.sites),
            also: f.also.iter().map(also).collect(),
            memory: f.memory(),
            addresses: f.addresses.clone(),
            help: f.help(),
            launch: launch.map(|Launch { grid, block, dynamic_shared, .. }| LaunchLine { grid, block, dynamic_shared }),
            call: site.clone(),
            allocated: allocation.clone(),
            freed: freed.clone(),
            source_allocated: source.clone(),
            seeds,
            shape: shape.clone(),
            replay: replay.clone(),
            process: *process,
            text: report.to_string(),
        }
    }
}

impl From<ReportLine> for Report {
    fn from(line: ReportLine) -> Report {
        let sites = |sites: Vec<SiteLine>| sites.into_iter().map(Site::from).collect::<Vec<_>>();
        let also = |also: AlsoLine| Also {
            rule: also.rule,
            severity: also.severity,
            defect: also.defect,
            sites: sites(also.sites),
            count: also.count,
        };
        let finding = Finding {
            rule: line.rule,
            severity: line.severity,
            kernel: line.kernel,
            defect: line.defect,
            sites: sites(line.sites),
            addresses: line.addresses,
            count: line.count,
            also: line.also.into_iter().map(also).collect(),
        };
        let launch = |l: LaunchLine| Launch { dynamic_shared: l.dynamic_shared, ..Launch::new(l.grid, l.block) };
        Report {
            finding,
            launch: line.launch.map(launch),
            site: line.call,
            allocation: line.allocated,
            freed: line.freed,
            source: line.source_allocated,
            replay: line.replay,
            shape: line.shape,
            process: line.process,
        }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ReportLine::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Report, D::Error> {
        let line = ReportLine::deserialize(deserializer)?;
        if line.kind != FINDING {
            return Err(D::Error::custom(format!("a line of type `{}` is no finding", line.kind)));
        }
        Ok(line.into())
    }
}

impl Report {
    /// As one line of a report file has it.
    pub fn to_json(&self) -> Value {
        // Names of fields are strings, and no map has other keys: there is nothing that could fail.
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
