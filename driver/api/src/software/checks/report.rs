//! A finding with what the driver knows about it, as text and as JSON.

use std::fmt;

use serde_json::{Value, json};
use warpsmith_check::{Also, Finding, Frame, Rule, Severity, Site, own_frame};
use warpsmith_simt::{Fault, FaultKind, Launch};

use super::site::{HostFrame, HostSite};

/// A finding and where it came from.
#[derive(Clone, Debug)]
pub struct Report {
    /// What is wrong. Its count is over all launches of the group.
    pub finding: Finding,
    /// Shape of the launch, if it is one's doing.
    pub launch: Option<Launch>,
    /// The call of the driver that did it.
    pub site: HostSite,
    /// Who allocated the memory in question.
    pub allocation: Option<HostSite>,
    /// Who freed it.
    pub freed: Option<HostSite>,
    /// Of undefined data, who allocated the memory that it was read from first, if that is other memory.
    pub source: Option<HostSite>,
    /// A command that shows it again; empty if unknown.
    pub replay: String,
}

impl Report {
    /// A finding of which nothing more is known.
    pub fn new(finding: Finding) -> Report {
        let site = HostSite::default();
        Report { finding, launch: None, site, allocation: None, freed: None, source: None, replay: String::new() }
    }

    /// The place that the finding is best shown at: the innermost in the code of the kernel's own crate.
    pub fn place(&self) -> Option<&Frame> {
        self.finding.sites.iter().find_map(|site| own_frame(&site.source))
    }

    /// What findings of one group share: rule, kernel, and the places of the first two sides.
    pub fn group(&self) -> Group {
        let places = self.finding.sites.iter().take(2).map(|s| (s.ptx_line, s.source.first().cloned()));
        // What has no place in a kernel has one in the host program.
        let host = match (&self.finding.sites[..], &self.allocation) {
            ([], allocation) => format!("{:?} {allocation:?}", self.site),
            _ => String::new(),
        };
        (self.finding.rule, self.finding.kernel.clone(), places.collect(), host)
    }

    /// As one line of a report file.
    pub fn to_json(&self) -> Value {
        let f = &self.finding;
        let frame = |f: &Frame| json!({ "file": f.file, "line": f.line, "column": f.column });
        let site = |s: &Site| {
            json!({
                "label": s.label,
                "block": s.block,
                "thread": s.thread,
                "lane": s.thread.map(|_| s.lane),
                "note": s.note,
                "source": s.source.iter().map(frame).collect::<Vec<_>>(),
                "ptx": { "line": s.ptx_line, "text": s.ptx_text.trim() },
            })
        };
        let also = |a: &Also| {
            json!({
                "rule": a.rule.name(),
                "severity": a.severity.name(),
                "message": a.message,
                "count": a.count,
                "sites": a.sites.iter().map(site).collect::<Vec<_>>(),
            })
        };
        let launch = |l: &Launch| json!({ "grid": l.grid, "block": l.block, "dynamic_shared": l.dynamic_shared });
        json!({
            "type": "finding",
            "rule": f.rule.name(),
            "severity": f.severity.name(),
            "kernel": f.kernel,
            "message": f.message,
            "count": f.count,
            "place": self.place().map(frame),
            "sites": f.sites.iter().map(site).collect::<Vec<_>>(),
            "also": f.also.iter().map(also).collect::<Vec<_>>(),
            "memory": f.memory,
            "help": f.help,
            "launch": self.launch.as_ref().map(launch),
            "call": host(&self.site),
            "allocated": self.allocation.as_ref().map(host),
            "freed": self.freed.as_ref().map(host),
            "source_allocated": self.source.as_ref().map(host),
            "replay": self.replay,
            "text": self.to_string(),
        })
    }
}

/// See [`Report::group`].
pub type Group = (Rule, String, Vec<(u32, Option<Frame>)>, String);

pub(super) fn host(site: &HostSite) -> Value {
    let frame = |f: &HostFrame| json!({ "function": f.function, "file": f.file, "line": f.line });
    json!({ "api": site.api, "frames": site.frames.iter().map(frame).collect::<Vec<_>>() })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.finding)?;
        if let Some(Launch { grid: [gx, gy, gz], block: [bx, by, bz], dynamic_shared, .. }) = self.launch {
            write!(f, "\n  launched as grid ({gx},{gy},{gz}) of blocks ({bx},{by},{bz})")?;
            if dynamic_shared != 0 {
                write!(f, " with {dynamic_shared} bytes of dynamic shared memory")?;
            }
        }
        let mut place = |what: &str, site: &HostSite| -> fmt::Result {
            if site.frames.is_empty() && site.api.is_empty() {
                return Ok(());
            }
            write!(f, "\n  {what}")?;
            if !site.api.is_empty() {
                write!(f, " by {}", site.api)?;
            }
            site.frames.iter().try_for_each(|frame| write!(f, "\n    from {frame}"))
        };
        place(if self.launch.is_some() { "launched" } else { "called" }, &self.site)?;
        if let Some(site) = &self.allocation {
            place("memory allocated", site)?;
        }
        if let Some(site) = &self.freed {
            place("memory freed", site)?;
        }
        if let Some(site) = &self.source {
            place("memory of the undefined data allocated", site)?;
        }
        if !self.replay.is_empty() {
            write!(f, "\n  replay: {}", self.replay)?;
        }
        Ok(())
    }
}

/// What stopped a kernel, as a finding.
pub fn finding_of(fault: &Fault) -> Finding {
    let rule = match fault.kind {
        FaultKind::OutOfBounds if fault.nearest.is_some_and(|n| n.freed) => Rule::UseAfterFree,
        FaultKind::OutOfBounds => Rule::OutOfBounds,
        FaultKind::Misaligned => Rule::Misaligned,
        FaultKind::NullPointer => Rule::NullPointer,
        FaultKind::Trap | FaultKind::AssertFailed => Rule::Stopped,
        FaultKind::DivergentBarrier => Rule::BarrierDivergence,
        FaultKind::MaskMisuse => Rule::Membermask,
        FaultKind::Deadlock => Rule::Deadlock,
        FaultKind::BarrierMisuse => Rule::BarrierObject,
        _ => Rule::Fault,
    };
    let what = fault.message();
    let (first, more) = what.split_once('\n').unwrap_or((&what, ""));
    let rest: Vec<String> = more.lines().map(str::to_owned).chain(fault.circumstances()).collect();
    let message = match (&fault.kind, fault.address) {
        (FaultKind::BadLaunch(why), _) => why.clone(),
        (kind, None) if first.is_empty() => kind.name().to_owned(),
        (kind, None) => format!("{}: {first}", kind.name()),
        (kind, Some(address)) if first.is_empty() => format!("{} at {address:#x}", kind.name()),
        (kind, Some(address)) => format!("{} at {address:#x}: {first}", kind.name()),
    };
    let ran = fault.ptx_line != 0;
    let nearest = fault.nearest.and_then(|n| n.allocation);
    let site = Site {
        label: "executed".to_owned(),
        block: ran.then_some(fault.block),
        thread: ran.then_some(fault.thread),
        lane: fault.lane,
        ptx_line: fault.ptx_line,
        ptx_text: fault.ptx_text.clone(),
        source: fault.frames.clone(),
        note: String::new(),
    };
    Finding {
        rule,
        severity: Severity::Error,
        kernel: fault.kernel.clone(),
        message,
        sites: if ran { vec![site] } else { Vec::new() },
        memory: rest.join("\n"),
        addresses: nearest.map(|a| a.base).into_iter().chain(fault.address).collect(),
        help: String::new(),
        count: 1,
        also: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use warpsmith_simt::{AllocationInfo, BadAccess, Nearest, Place, Problem};

    use super::*;

    #[test]
    fn a_fault_is_a_finding_with_its_place() {
        let (address, place, problem) = (1 << 48, Place::Global, Problem::Outside(0));
        let allocation = Some(AllocationInfo { base: address - 8, size: 4 });
        let nearest = Nearest { address, allocation, freed: false };
        let fault = Fault {
            block: [1, 0, 0],
            thread: [37, 0, 0],
            lane: 5,
            ptx_line: 12,
            ptx_text: "\tst.global.b32 [%rd1], %r1;".into(),
            frames: vec![Frame { file: "src/k.rs".into(), line: 7, column: 3 }],
            address: Some(address),
            access: Some(BadAccess { what: "store", bytes: 4, place, address, problem }),
            nearest: Some(nearest),
            ..Fault::new(FaultKind::OutOfBounds, "k")
        };
        let freed = Fault { nearest: Some(Nearest { freed: true, ..nearest }), ..fault.clone() };
        assert_eq!(finding_of(&freed).rule, Rule::UseAfterFree);
        let report = Report::new(finding_of(&fault));
        let json = report.to_json();
        assert_eq!(json["rule"], "memory::out-of-bounds");
        assert_eq!(json["place"], json!({ "file": "src/k.rs", "line": 7, "column": 3 }));
        assert_eq!(json["sites"][0]["lane"], 5);
        assert_eq!(json["memory"], "4 bytes past the end of the nearest allocation, 4 bytes at 0xfffffffffff8");
        let text = report.to_string();
        assert!(text.contains("src/k.rs:7:3") && text.contains("thread (37,0,0), lane 5"), "{text}");
    }
}
