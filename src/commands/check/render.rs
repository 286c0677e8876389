//! Findings grouped, printed, and as annotations.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use warpsmith_check::Severity;
use warpsmith_driver_api::software::{Allow, Report};

use super::plural;

/// Findings by rule, kernel and place.
pub struct Groups<'a> {
    allow: &'a [Allow],
    known: HashMap<warpsmith_driver_api::software::Group, usize>,
    all: Vec<Report>,
    /// The shape in which each was first seen.
    shapes: Vec<Option<String>>,
}

impl<'a> Groups<'a> {
    pub fn new(allow: &'a [Allow]) -> Groups<'a> {
        Groups { allow, known: HashMap::new(), all: Vec::new(), shapes: Vec::new() }
    }

    /// Adds a finding, unless it is an accepted one.
    pub fn add(&mut self, report: Report, shape: Option<String>) {
        if self.allow.iter().any(|a| a.covers(&report.finding)) {
            return;
        }
        let group = report.group();
        match self.known.get(&group) {
            Some(&at) => self.all[at].finding.count += report.finding.count,
            None => {
                self.known.insert(group, self.all.len());
                self.all.push(report);
                self.shapes.push(shape);
            }
        }
    }

    pub fn all(&self) -> &[Report] {
        &self.all
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    fn of(&self, severity: Severity) -> usize {
        self.all.iter().filter(|r| r.finding.severity == severity).count()
    }

    pub fn errors(&self) -> usize {
        self.of(Severity::Error)
    }

    /// The groups from this one on, with their shapes, the gravest first.
    fn ranked(&self, from: usize) -> Vec<(&Report, &Option<String>)> {
        let mut groups: Vec<_> = self.all.iter().zip(&self.shapes).skip(from).collect();
        groups.sort_by_key(|(report, _)| std::cmp::Reverse(report.finding.severity));
        groups
    }

    /// Prints the groups from this one on.
    pub fn print_from(&self, from: usize) {
        for (report, shape) in self.ranked(from) {
            println!("{report}");
            if let Some(shape) = shape {
                println!("  first seen with {shape}");
            }
            println!();
        }
    }

    pub fn to_json(&self) -> Vec<Value> {
        let one = |(report, shape): (&Report, &Option<String>)| {
            let mut value = report.to_json();
            value["shape"] = json!(shape);
            value
        };
        self.ranked(0).into_iter().map(one).collect()
    }

    /// Prints annotations for GitHub, with paths relative to the folder.
    pub fn annotate(&self, root: &Path) {
        self.to_json().iter().for_each(|finding| println!("{}", annotation(finding, root)));
    }

    pub fn verdict(&self) -> String {
        verdict(self.errors(), self.of(Severity::Warning), self.of(Severity::Info))
    }
}

pub fn verdict(errors: usize, warnings: usize, infos: usize) -> String {
    let mut parts = vec![plural(errors, "error", "errors"), plural(warnings, "warning", "warnings")];
    if infos > 0 {
        parts.push(plural(infos, "note", "notes"));
    }
    parts.join(", ")
}

/// Where a finding is shown: file, line, column. What has no place in a kernel has one in the host program: the call, or who
/// allocated the memory.
pub fn place(finding: &Value) -> Option<(&str, u64, u64)> {
    let read = |v: &'_ Value| (v["line"].as_u64().unwrap_or(0), v["column"].as_u64().unwrap_or(0));
    if let Some(file) = finding["place"]["file"].as_str() {
        let (line, column) = read(&finding["place"]);
        return Some((file, line, column));
    }
    let frames = ["call", "allocated"].into_iter().filter_map(|side| finding[side]["frames"].as_array()).flatten();
    frames.filter_map(|f| f["file"].as_str().map(|file| (file, read(f).0, 0))).next()
}

/// A finding's line of JSON as a workflow command: `::error file=…,line=…::…`. The format is that of GitHub's
/// documentation, "Workflow commands for GitHub Actions".
pub fn annotation(finding: &Value, root: &Path) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let command = match finding["severity"].as_str() {
        Some("error") => "error",
        Some("warning") => "warning",
        _ => "notice",
    };
    let mut properties = Vec::new();
    if let Some((file, line, column)) = place(finding) {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        let path = Path::new(file);
        let path = path.strip_prefix(&root).unwrap_or(path);
        properties.push(format!("file={}", property(&path.to_string_lossy())));
        properties.push(format!("line={line}"));
        if column > 0 {
            properties.push(format!("col={column}"));
        }
    }
    properties.push(format!("title={}", property(&text(&finding["rule"]))));
    format!("::{command} {}::{}", properties.join(","), data(&text(&finding["text"])))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_one_line_with_its_place() {
        let finding = json!({
            "severity": "error",
            "rule": "race::shared",
            "place": { "file": "src/a,b.rs", "line": 7, "column": 3 },
            "text": "100% wrong\nreally",
        });
        assert_eq!(
            annotation(&finding, Path::new(".")),
            "::error file=src/a%2Cb.rs,line=7,col=3,title=race%3A%3Ashared::100%25 wrong%0Areally"
        );
    }

    #[test]
    fn what_has_no_place_in_a_kernel_has_one_in_the_host() {
        let frames =
            json!([{ "function": "a", "file": null, "line": 0 }, { "function": "b", "file": "b.rs", "line": 4 }]);
        let finding = json!({
            "severity": "warning",
            "rule": "memory::leak",
            "place": null,
            "call": { "api": "", "frames": [] },
            "allocated": { "api": "cuMemAlloc_v2", "frames": frames },
            "text": "x",
        });
        assert_eq!(annotation(&finding, Path::new(".")), "::warning file=b.rs,line=4,title=memory%3A%3Aleak::x");
    }

    #[test]
    fn what_has_no_place_names_none() {
        let finding = json!({ "severity": "info", "rule": "memory::leak", "place": null, "text": "x" });
        assert_eq!(annotation(&finding, Path::new(".")), "::notice title=memory%3A%3Aleak::x");
    }
}
