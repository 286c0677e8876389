//! Small kernels with one planted defect each, and their clean twins.
//!
//! `tests/defects/*.ptx` each hold two entries, `defect` and `clean`, and say in `//:` lines how to launch them and what must
//! be found:
//!
//! | line | meaning |
//! |---|---|
//! | `grid X [Y [Z]]`, `block X [Y [Z]]`, `dynamic BYTES` | geometry |
//! | `buffer NAME BYTES FILL` | a parameter: `poison` (never written), `zeros`, `iota` (words 1, 2, 3…), `freed`, `null` |
//! | `scalar NAME u32 VALUE`, `scalar NAME bytesN A,B…` | a parameter: a word, or words passed by value |
//! | `expect RULE SEVERITY` | the finding of the defect; severity `any` where the memory model leaves it open |
//! | `expect fault KIND` | the fault that stops the defect |
//! | `expect none`, `differs` | nothing is found, but results differ by the schedule's seed, which those of the twin do not |
//! | `also RULE` | a further finding that follows from the same defect |
//! | `detail TEXT` | the fault's report contains this |
//! | `source FILE:LINE:COLUMN` | a site of the finding is there, perhaps by inlining |
//! | `output NAME` | the host copies this buffer back: undefined bytes in it are `init::output` |
//! | `order-dependent` | the twin's results may differ by the schedule, as do those of a correct ticket counter |
//!
//! Those that were compiled begin with `//: code FILE` and have all this in their source, in `tests/defects/src`: nvcc 13.5 with
//! `-ptx -arch=sm_90 -lineinfo`, rustc 1.95.0 with `-Copt-level=3 -Cdebuginfo=line-directives-only -Ctarget-cpu=sm_80
//! -Ctarget-feature=+ptx78` and the builder's `-Zmir-enable-passes=-JumpThreading`, which `stock_shuffle` goes without.
//!
//! Lines that end in `// <- …` are those where the sites of the finding must lie; each of them must be named under some
//! seed, except for `// <- also`. What is right comes from the PTX ISA's memory consistency model and its descriptions of
//! the instructions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpsmith_check::record::Record;
use warpsmith_check::{CheckedMemory, Inspect, Report, Site};
use warpsmith_check::{Checks, Finding, Inspection, Severity};
use warpsmith_simt::{Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

const SEEDS: [u64; 3] = [0, 1, 2];

enum Param {
    Buffer { name: String, bytes: u64, fill: String },
    Scalar(Vec<u8>),
}

#[derive(Default)]
enum Expect {
    #[default]
    Nothing,
    Fault(String),
    Finding(String, Option<Severity>),
}

#[derive(Default)]
struct Case {
    text: String,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic: u32,
    params: Vec<Param>,
    expect: Expect,
    also: Vec<String>,
    details: Vec<String>,
    sources: Vec<String>,
    outputs: Vec<String>,
    order_dependent: bool,
    differs: bool,
    /// Source of a compiled case; its lines are the marked ones then, not those of the PTX.
    code: Option<String>,
    /// Marked lines, and whether a site must name them.
    marks: Vec<(u32, bool)>,
}

fn dimensions(words: &[&str]) -> [u32; 3] {
    std::array::from_fn(|i| words.get(i).map_or(1, |w| w.parse().unwrap()))
}

fn word(text: &str) -> u32 {
    text.parse::<i64>().unwrap_or_else(|e| panic!("{text}: {e}")) as u32
}

impl Case {
    fn read(path: &Path) -> Case {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            text.replace("\r\n", "\n")
        };
        let text = read(path);
        let code = text.lines().next().and_then(|l| l.strip_prefix("//: code ")).map(str::to_string);
        let description = code.as_ref().map_or_else(|| text.clone(), |file| read(&path.with_file_name(file)));
        Case { text, code, ..Case::parse(&description) }
    }

    fn parse(description: &str) -> Case {
        let mut case = Case::default();
        for (i, line) in description.lines().enumerate() {
            if let Some((_, mark)) = line.rsplit_once("// <- ") {
                case.marks.push((i as u32 + 1, mark.trim() != "also"));
            }
            let Some(line) = line.strip_prefix("//: ") else { continue };
            let words: Vec<&str> = line.split_whitespace().collect();
            let rest = line.split_once(' ').map_or("", |r| r.1).trim().to_string();
            match words[..] {
                ["grid", ref sizes @ ..] => case.grid = dimensions(sizes),
                ["block", ref sizes @ ..] => case.block = dimensions(sizes),
                ["dynamic", bytes] => case.dynamic = bytes.parse().unwrap(),
                ["buffer", name, bytes, fill] => case.params.push(Param::Buffer {
                    name: name.to_string(),
                    bytes: bytes.parse().unwrap(),
                    fill: fill.to_string(),
                }),
                ["scalar", _, "u32", value] => case.params.push(Param::Scalar(word(value).to_le_bytes().to_vec())),
                ["scalar", _, bytes, values] => {
                    let size: usize = bytes.strip_prefix("bytes").unwrap().parse().unwrap();
                    let values: Vec<u8> = values.split(',').flat_map(|v| word(v).to_le_bytes()).collect();
                    assert_eq!(values.len(), size);
                    case.params.push(Param::Scalar(values));
                }
                ["expect", "none"] => case.expect = Expect::Nothing,
                ["expect", "fault", ..] => case.expect = Expect::Fault(words[2..].join(" ")),
                ["expect", rule, severity] => {
                    let severities = [Severity::Info, Severity::Warning, Severity::Error];
                    let severity = severities.into_iter().find(|s| s.name() == severity);
                    case.expect = Expect::Finding(rule.to_string(), severity);
                }
                ["also", rule] => case.also.push(rule.to_string()),
                ["detail", ..] => case.details.push(rest),
                ["source", place] => case.sources.push(place.to_string()),
                ["output", name] => case.outputs.push(name.to_string()),
                ["order-dependent"] => case.order_dependent = true,
                ["differs"] => case.differs = true,
                _ => panic!("what is `{line}`?"),
            }
        }
        case
    }

    fn marked(&self, line: u32) -> bool {
        self.marks.is_empty() || self.marks.iter().any(|m| m.0 == line)
    }

    /// Lines of a report, of the source if there is one and else of the PTX, that are to be compared with the marks.
    fn lines(&self, report: &str) -> Vec<u32> {
        let prefix = self.code.as_ref().map_or_else(|| "PTX line ".to_string(), |file| format!("{file}:"));
        let number = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("").parse().ok();
        report.split(&prefix).skip(1).filter_map(number).collect()
    }

    /// Those of a site: in code, one of its frames is enough.
    fn site(&self, site: &Site) -> Option<u32> {
        let Some(file) = &self.code else { return Some(site.ptx_line) };
        let mut lines = site.source.iter().filter(|f| f.file.ends_with(file.as_str())).map(|f| f.line);
        lines.clone().find(|&l| self.marked(l)).or(lines.next_back())
    }
}

/// A machine with the case's buffers.
struct Bench {
    machine: Machine,
    instance: Instance,
    launch: Launch,
    params: Vec<u8>,
    /// Name, address and size of the buffers that the host can read.
    buffers: Vec<(String, u64, u64)>,
}

impl Bench {
    fn new(case: &Case, module: Arc<Module>) -> Bench {
        let config =
            MachineConfig { threads: 1, spin_limit: 5000, instruction_limit: 1 << 20, ..MachineConfig::default() };
        let machine = Machine::new(config);
        machine.memory().track(true);
        let (mut params, mut buffers) = (Vec::new(), Vec::new());
        for param in &case.params {
            match param {
                Param::Scalar(bytes) => params.extend(bytes),
                Param::Buffer { name, bytes, fill } => {
                    let address = if fill == "null" { 0 } else { machine.memory().alloc(*bytes, 256).unwrap() };
                    match fill.as_str() {
                        "null" | "poison" => {}
                        "freed" => machine.memory().free(address).unwrap(),
                        "zeros" => machine.memory().fill(address, &[0], *bytes).unwrap(),
                        "iota" => {
                            let words: Vec<u8> = (1..=*bytes as u32 / 4).flat_map(u32::to_le_bytes).collect();
                            machine.memory().write(address, &words).unwrap();
                        }
                        other => panic!("what is a buffer of `{other}`?"),
                    }
                    params.resize(params.len().next_multiple_of(8), 0);
                    params.extend(address.to_le_bytes());
                    if !matches!(fill.as_str(), "null" | "freed") {
                        buffers.push((name.clone(), address, *bytes));
                    }
                }
            }
        }
        let launch = Launch { dynamic_shared: case.dynamic, ..Launch::new(case.grid, case.block) };
        let instance = machine.instantiate(module).unwrap();
        Bench { machine, instance, launch, params, buffers }
    }

    fn inspect(&self, entry: &str, seed: u64) -> Inspection {
        self.machine.inspect(&self.instance, entry, &self.launch, &self.params, &Checks { seed, ..Checks::ALL })
    }

    fn results(&self) -> Vec<Vec<u8>> {
        let read = |(_, address, bytes): &(String, u64, u64)| {
            let mut out = vec![0; *bytes as usize];
            self.machine.memory().read(*address, &mut out).unwrap();
            out
        };
        self.buffers.iter().map(read).collect()
    }

    /// Undefined bytes in what the host copies back.
    fn undefined(&self, case: &Case) -> Option<Finding> {
        let mut outputs = self.buffers.iter().filter(|b| case.outputs.contains(&b.0));
        outputs.find_map(|(_, address, bytes)| self.machine.memory().undefined_output(*address, *bytes))
    }
}

/// The rules that a fault may be reported under beside being a fault.
fn same_as_fault(kind: &str, rule: &str) -> bool {
    match kind {
        "out of bounds" => matches!(rule, "memory::out-of-bounds" | "memory::use-after-free"),
        "null pointer" => rule == "memory::null-pointer",
        "misaligned address" => rule == "memory::misaligned",
        "divergent barrier" => matches!(rule, "sync::barrier-divergence" | "sync::barrier-missing"),
        "membermask misuse" => rule == "sync::membermask",
        "deadlock" => matches!(rule, "sync::deadlock" | "sync::membermask" | "sync::barrier-missing"),
        "trap" | "assertion failed" => rule == "fault::stopped",
        _ => rule == "fault::other",
    }
}

/// What a reader of a report file takes for another finding than was written; the text shows white space trimmed.
fn changed_by_a_line(finding: Finding) -> Option<String> {
    let written = Report::new(finding);
    let line = Record::Finding(Box::new(written.clone())).to_line();
    let read = match Record::parse(&line) {
        Ok(Record::Finding(read)) => *read,
        other => return Some(format!("{other:?}")),
    };
    let key = read.key() == written.key();
    let fields = read.finding.defect == written.finding.defect && read.finding.addresses == written.finding.addresses;
    let same = key && fields && read.to_string() == written.to_string() && read.to_json() == written.to_json();
    (!same).then(|| format!("a line of the report file says\n{read}\ninstead of\n{written}"))
}

/// What is wrong with a run of the defect; marked lines that were named go to `named`.
fn judge(case: &Case, bench: &Bench, run: &Inspection, named: &mut BTreeSet<u32>, places: &mut String) -> Vec<String> {
    let mut wrong = Vec::new();
    match (&run.fault, &case.expect) {
        (None, Expect::Fault(kind)) => wrong.push(format!("no fault, expected {kind}")),
        (Some(fault), Expect::Fault(kind)) => {
            if fault.kind.name() != kind {
                wrong.push(format!("expected the fault {kind}, not\n{fault}"));
            }
            let report = fault.to_string();
            places.push_str(&report);
            // Of a deadlock, all waiters.
            let lines = case.lines(&report);
            // In code, one frame of several is enough.
            let mut marked = lines.iter().map(|&line| case.marked(line));
            let fits = if case.code.is_some() { lines.is_empty() || marked.any(|m| m) } else { marked.all(|m| m) };
            if (lines.is_empty() && !case.marks.is_empty()) || !fits {
                wrong.push(format!("the fault is not on marked lines only:\n{fault}"));
            }
            named.extend(lines);
            wrong.extend(
                case.details
                    .iter()
                    .filter(|d| !report.contains(*d))
                    .map(|d| format!("the fault's report does not say `{d}`:\n{report}")),
            );
        }
        (Some(fault), _) => wrong.push(format!("unexpected fault:\n{fault}")),
        (None, _) => {}
    }
    let expected = |f: &&Finding| matches!(&case.expect, Expect::Finding(rule, _) if f.rule.name() == rule);
    let undefined = bench.undefined(case);
    let found: Vec<&Finding> = run.findings.iter().chain(&undefined).filter(expected).collect();
    if let Some(f) = undefined.iter().find(|f| f.kernel != "defect") {
        wrong.push(format!("the kernel is not named:\n{f}"));
    }
    if let Expect::Finding(rule, severity) = &case.expect
        && !found.iter().any(|f| severity.is_none_or(|s| f.severity == s))
    {
        let all: String = run.findings.iter().map(|f| format!("\n{f}")).collect();
        let severity = severity.map_or("any", Severity::name);
        wrong.push(format!("no finding {rule} of severity {severity}, but {}:{all}", run.findings.len()));
    }
    for finding in found {
        for site in finding.sites.iter().chain(finding.also.iter().flat_map(|a| &a.sites)) {
            match case.site(site) {
                Some(line) if case.marked(line) => _ = named.insert(line),
                // A second site in a library, without the chain of calls.
                None if finding.sites.iter().any(|s| case.site(s).is_some()) => {}
                line => wrong.push(format!("line {line:?} is not marked:\n{finding}")),
            }
        }
        if finding.sites.is_empty() {
            wrong.push(format!("no sites:\n{finding}"));
        }
        let _ = write!(places, "{finding}");
    }
    let stopped = run.fault.iter().map(|fault| Finding::of_fault(fault));
    wrong.extend(run.findings.iter().cloned().chain(undefined.clone()).chain(stopped).filter_map(changed_by_a_line));
    for finding in &run.findings {
        let rule = finding.rule.name();
        let fault = matches!(&case.expect, Expect::Fault(kind) if same_as_fault(kind, rule));
        if !expected(&finding) && !fault && !case.also.iter().any(|a| a == rule) {
            wrong.push(format!("unexpected finding:\n{finding}"));
        }
    }
    wrong
}

fn check(case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    let module = match Module::load(&case.text, &LoadOptions { sm: 90 }) {
        Ok(module) => Arc::new(module),
        Err(e) => return vec![format!("does not load:\n{e}")],
    };
    let plain = Bench::new(case, module.clone());
    if let Err(fault) = plain.machine.launch(&plain.instance, "clean", &plain.launch, &plain.params) {
        wrong.push(format!("the twin, unchecked: {fault}"));
    }
    let (mut named, mut places, mut results) = (BTreeSet::new(), String::new(), Vec::new());
    for seed in SEEDS {
        let bench = Bench::new(case, module.clone());
        let run = bench.inspect("defect", seed);
        let found = judge(case, &bench, &run, &mut named, &mut places);
        wrong.extend(found.into_iter().map(|w| format!("defect, seed {seed}: {w}")));
        results.push(bench.results());

        let bench = Bench::new(case, module.clone());
        let run = bench.inspect("clean", seed);
        let faults = run.fault.iter().map(ToString::to_string);
        let findings = run.findings.iter().map(ToString::to_string);
        let undefined = bench.undefined(case).map(|f| f.to_string());
        let found = faults.chain(findings).chain(undefined);
        wrong.extend(found.map(|f| format!("twin, seed {seed}: {f}")));
        if bench.results() != plain.results() && (seed == 0 || !case.order_dependent) {
            wrong.push(format!("twin, seed {seed}: its results are not those of the unchecked launch"));
        }
    }
    if wrong.is_empty() {
        let lines = case.marks.iter().filter(|m| m.1 && !named.contains(&m.0));
        wrong.extend(lines.map(|m| format!("line {} was never named; what was: {named:?}", m.0)));
        let sources = case.sources.iter().filter(|s| !places.contains(s.as_str()));
        wrong.extend(sources.map(|s| format!("{s} is not in the report:\n{places}")));
    }
    if case.differs && results.iter().all(|r| *r == results[0]) {
        wrong.push("the defect's results are the same for all seeds".to_string());
    }
    wrong
}

/// All cases, or those of another directory.
fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/defects");
    let directory = std::env::var_os("WARPSMITH_DEFECTS").map_or(directory, PathBuf::from);
    let entries = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "ptx")).collect();
    paths.sort();
    paths
}

#[test]
fn every_defect_is_found_and_no_twin_is_blamed() {
    let paths = cases();
    let (mut report, mut failed) = (String::new(), Vec::new());
    for path in &paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let wrong = check(&Case::read(path));
        if !wrong.is_empty() {
            let _ = write!(report, "\n--- {name}\n{}\n", wrong.join("\n"));
            failed.push(name);
        }
    }
    let (all, failing) = (paths.len(), failed.len());
    assert!(failed.is_empty(), "{report}\n{failing} of {all} cases fail: {}", failed.join(" "));
    assert!(all >= 180, "{all} cases only");
}
