//! What the checkers report.

use warpsmith_simt::{Fault, FaultKind};

use crate::defect::Defect;
use crate::site::{Detail, Site, SiteKind};
use crate::{Rule, Severity};

/// Something wrong, or doubtful. Its sentences are made from its fields when somebody wants to read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// The kernel; empty if it is about none.
    pub kernel: String,
    /// What is wrong. [`message`](Finding::message), [`memory`](Finding::memory) and [`help`](Finding::help) have it in words.
    pub defect: Defect,
    /// Where, most telling side first.
    pub sites: Vec<Site>,
    /// Addresses of global memory that it is about: of the memory in question, and then, of undefined data, where it was
    /// undefined before. May be empty.
    pub addresses: Vec<u64>,
    /// How often it was seen; the sites are those of the first time.
    pub count: u64,
    /// What was found beside it and has the same cause.
    pub also: Vec<Also>,
}

/// A finding that follows from another, or from what that follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Also {
    /// What it is about.
    pub rule: Rule,
    /// How bad it would be alone.
    pub severity: Severity,
    /// What is wrong.
    pub defect: Defect,
    /// Where.
    pub sites: Vec<Site>,
    /// How often it was seen.
    pub count: u64,
}

impl Finding {
    /// One that is about no kernel, no place and no memory, seen once.
    pub fn new(rule: Rule, severity: Severity, defect: Defect) -> Finding {
        let (sites, addresses, also) = Default::default();
        Finding { rule, severity, kernel: String::new(), defect, sites, addresses, count: 1, also }
    }

    /// What stopped a kernel, as a finding.
    pub fn of_fault(fault: &Fault) -> Finding {
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
        let ran = fault.ptx_line != 0;
        let site = || Site {
            block: Some(fault.block),
            thread: Some(fault.thread),
            lane: fault.lane,
            ptx_line: fault.ptx_line,
            ptx_text: fault.ptx_text.clone(),
            ptx_statement: 0,
            source: fault.frames.clone(),
            kind: SiteKind::Executed,
            detail: Detail::None,
        };
        let defect = Defect::Fault {
            fault: fault.kind.clone(),
            address: fault.address,
            access: fault.access,
            reason: fault.reason.clone(),
            waiters: fault.waiters.clone(),
            nearest: fault.nearest,
        };
        let nearest = fault.nearest.and_then(|n| n.allocation);
        Finding {
            kernel: fault.kernel.clone(),
            sites: ran.then(site).into_iter().collect(),
            addresses: nearest.map(|a| a.base).into_iter().chain(fault.address).collect(),
            ..Finding::new(rule, Severity::Error, defect)
        }
    }
}
