//! Findings grouped, printed, and as annotations.

use std::path::Path;

use warpsmith_check::{Groups, Report, Severity};
use warpsmith_driver_api::software::Allow;

use super::plural;

/// Findings, each once, without those that the user accepts.
pub struct Accepting<'a> {
    allow: &'a [Allow],
    groups: Groups,
}

impl<'a> Accepting<'a> {
    pub fn new(allow: &'a [Allow]) -> Accepting<'a> {
        Accepting { allow, groups: Groups::default() }
    }

    /// Adds a finding, unless it is an accepted one.
    pub fn add(&mut self, report: Report) {
        if !self.allow.iter().any(|a| a.covers(&report.finding)) {
            self.groups.add(report);
        }
    }

    pub fn all(&self) -> &[Report] {
        self.groups.all()
    }

    pub fn len(&self) -> usize {
        self.all().len()
    }

    pub fn errors(&self) -> usize {
        of(self.all(), Severity::Error)
    }

    /// Those from this one on, the gravest first.
    pub fn ranked(&self, from: usize) -> Vec<&Report> {
        let mut reports: Vec<&Report> = self.all().iter().skip(from).collect();
        reports.sort_by_key(|report| std::cmp::Reverse(report.finding.severity));
        reports
    }

    /// Prints those from this one on.
    pub fn print_from(&self, from: usize) {
        for report in self.ranked(from) {
            println!("{report}");
            if let Some(shape) = &report.shape {
                println!("  first seen with {shape}");
            }
            println!();
        }
    }

    /// Prints annotations for GitHub, with paths relative to the folder.
    pub fn annotate(&self, root: &Path) {
        self.ranked(0).iter().for_each(|report| println!("{}", annotation(report, root)));
    }
    pub fn verdict(&self) -> String {
        verdict(self.all())
    }
}

/// How many are so grave.
pub fn of(reports: &[Report], severity: Severity) -> usize {
    reports.iter().filter(|r| r.finding.severity == severity).count()
}

/// How many there are of each severity.
pub fn verdict(reports: &[Report]) -> String {
    let of = |severity| of(reports, severity);
    let mut parts =
        vec![plural(of(Severity::Error), "error", "errors"), plural(of(Severity::Warning), "warning", "warnings")];
    if of(Severity::Info) > 0 {
        parts.push(plural(of(Severity::Info), "note", "notes"));
    }
    parts.join(", ")
}

/// A finding as a workflow command: `::error file=…,line=…::…`. The format is that of GitHub's
/// documentation, "Workflow commands for GitHub Actions".
pub fn annotation(report: &Report, root: &Path) -> String {
    let command = match report.finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "notice",
    };
    let mut properties = Vec::new();
    if let Some((file, line, column)) = report.shown_at() {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        let path = Path::new(file);
        let path = path.strip_prefix(&root).unwrap_or(path);
        properties.push(format!("file={}", property(&path.to_string_lossy())));
        properties.push(format!("line={line}"));
        if column > 0 {
            properties.push(format!("col={column}"));
        }
    }
    properties.push(format!("title={}", property(report.finding.rule.name())));
    format!("::{command} {}::{}", properties.join(","), data(&report.to_string()))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use warpsmith_check::defect::LeftBy;
    use warpsmith_check::{AllocationKind, Defect, Detail, Finding, Frame, HostFrame, HostSite, Rule, Site, SiteKind};

    use super::*;

    #[test]
    fn an_annotation_is_one_line_with_its_place() {
        let source = vec![Frame { file: "src/a,b.rs".into(), line: 7, column: 3 }];
        let site = Site {
            kind: SiteKind::Division,
            block: None,
            thread: None,
            lane: 0,
            ptx_line: 4,
            ptx_text: "div.u32 %r1, %r2, %r3; // 100%".into(),
            ptx_statement: 0,
            source,
            detail: Detail::None,
        };
        let finding = Finding::new(Rule::DivisionByZero, Severity::Error, Defect::DivisionByZero);
        let report = Report::new(Finding { sites: vec![site], ..finding });
        assert_eq!(
            annotation(&report, Path::new(".")),
            "::error file=src/a%2Cb.rs,line=7,col=3,title=arithmetic%3A%3Adivision-by-zero::\
             error[arithmetic::division-by-zero]: integer division by zero%0A  division%0A    at src/a,b.rs:7:3%0A    \
             PTX line 4: div.u32 %r1, %r2, %r3; // 100%%0A  help: the result is unspecified: test the divisor first"
                .replace("%r", "%25r")
                .replace("100%%0A", "100%25%0A")
        );
    }

    fn leak(frames: Vec<HostFrame>) -> Report {
        let memory = AllocationKind::Device;
        let defect = Defect::Leak { memory, bytes: 4, first: (64, 4), left_by: LeftBy::Process };
        let allocation = Some(HostSite { api: "cuMemAlloc_v2".into(), frames });
        Report { allocation, ..Report::new(Finding::new(Rule::Leak, Severity::Warning, defect)) }
    }

    #[test]
    fn what_has_no_place_in_a_kernel_has_one_in_the_host() {
        let a = HostFrame { function: "a".into(), file: None, line: 0 };
        let b = HostFrame { function: "b".into(), file: Some("b.rs".into()), line: 4 };
        let text = annotation(&leak(vec![a, b]), Path::new("."));
        assert!(text.starts_with("::warning file=b.rs,line=4,title=memory%3A%3Aleak::warning[memory::leak]"), "{text}");
    }

    #[test]
    fn what_has_no_place_names_none() {
        let text = annotation(&leak(Vec::new()), Path::new("."));
        assert!(text.starts_with("::warning title=memory%3A%3Aleak::warning"), "{text}");
    }
}
