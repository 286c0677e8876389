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
//! | `order-dependent` | the twin's results may differ by the schedule, as do those of a correct ticket counter |
//!
//! Lines that end in `// <- …` are those where the sites of the finding must lie; each of them must be named under some
//! seed, except for `// <- also`. What is right comes from the PTX ISA's memory consistency model and its descriptions of
//! the instructions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpsmith_simt::{
    Checks, Finding, Inspection, Instance, Launch, LoadOptions, Machine, MachineConfig, Module, Severity,
};

const SEEDS: [u64; 3] = [0, 1, 2];

enum Param {
    Buffer { bytes: u64, fill: String },
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
    order_dependent: bool,
    differs: bool,
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
    fn parse(text: String) -> Case {
        let mut case = Case::default();
        for (i, line) in text.lines().enumerate() {
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
                ["buffer", _, bytes, fill] => {
                    case.params.push(Param::Buffer { bytes: bytes.parse().unwrap(), fill: fill.to_string() })
                }
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
                ["order-dependent"] => case.order_dependent = true,
                ["differs"] => case.differs = true,
                _ => panic!("what is `{line}`?"),
            }
        }
        case.text = text;
        case
    }
}

/// A machine with the case's buffers.
struct Bench {
    machine: Machine,
    instance: Instance,
    launch: Launch,
    params: Vec<u8>,
    /// Address and size of the buffers that the host can read.
    buffers: Vec<(u64, u64)>,
}

impl Bench {
    fn new(case: &Case, module: Arc<Module>) -> Bench {
        let config =
            MachineConfig { threads: 1, spin_limit: 1 << 13, instruction_limit: 1 << 22, ..MachineConfig::default() };
        let machine = Machine::new(config);
        let (mut params, mut buffers) = (Vec::new(), Vec::new());
        for param in &case.params {
            match param {
                Param::Scalar(bytes) => params.extend(bytes),
                Param::Buffer { bytes, fill } => {
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
                        buffers.push((address, *bytes));
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
        let read = |&(address, bytes): &(u64, u64)| {
            let mut out = vec![0; bytes as usize];
            self.machine.memory().read(address, &mut out).unwrap();
            out
        };
        self.buffers.iter().map(read).collect()
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

/// What is wrong with a run of the defect; marked lines that were named go to `named`.
fn judge(case: &Case, run: &Inspection, named: &mut BTreeSet<u32>, places: &mut String) -> Vec<String> {
    let mut wrong = Vec::new();
    let marked = |line: u32| case.marks.is_empty() || case.marks.iter().any(|m| m.0 == line);
    match (&run.fault, &case.expect) {
        (None, Expect::Fault(kind)) => wrong.push(format!("no fault, expected {kind}")),
        (Some(fault), Expect::Fault(kind)) => {
            if fault.kind.name() != kind {
                wrong.push(format!("expected the fault {kind}, not\n{fault}"));
            }
            let report = fault.to_string();
            places.push_str(&report);
            // Of a deadlock, all waiters.
            let lines = report.split("PTX line ").skip(1).map(|r| r.split(':').next().unwrap_or(r));
            let lines: Vec<u32> = lines.map(|n| n.parse().unwrap()).collect();
            if lines.is_empty() || !lines.iter().all(|&line| marked(line)) {
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
    let found: Vec<&Finding> = run.findings.iter().filter(expected).collect();
    if let Expect::Finding(rule, severity) = &case.expect {
        if !found.iter().any(|f| severity.is_none_or(|s| f.severity == s)) {
            let all: String = run.findings.iter().map(|f| format!("\n{f}")).collect();
            let severity = severity.map_or("any", Severity::name);
            wrong.push(format!("no finding {rule} of severity {severity}, but {}:{all}", run.findings.len()));
        }
    }
    for finding in found {
        for site in &finding.sites {
            named.insert(site.ptx_line);
            if !marked(site.ptx_line) {
                wrong.push(format!("PTX line {} is not marked:\n{finding}", site.ptx_line));
            }
        }
        if finding.sites.is_empty() {
            wrong.push(format!("no sites:\n{finding}"));
        }
        let _ = write!(places, "{finding}");
    }
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
        let found = judge(case, &run, &mut named, &mut places);
        wrong.extend(found.into_iter().map(|w| format!("defect, seed {seed}: {w}")));
        results.push(bench.results());

        let bench = Bench::new(case, module.clone());
        let run = bench.inspect("clean", seed);
        let faults = run.fault.iter().map(ToString::to_string);
        let found = faults.chain(run.findings.iter().map(ToString::to_string));
        wrong.extend(found.map(|f| format!("twin, seed {seed}: {f}")));
        if bench.results() != plain.results() && (seed == 0 || !case.order_dependent) {
            wrong.push(format!("twin, seed {seed}: its results are not those of the unchecked launch"));
        }
    }
    if wrong.is_empty() {
        let lines = case.marks.iter().filter(|m| m.1 && !named.contains(&m.0));
        wrong.extend(lines.map(|m| format!("PTX line {} was never named; what was: {named:?}", m.0)));
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
        let text = std::fs::read_to_string(path).unwrap().replace("\r\n", "\n");
        let wrong = check(&Case::parse(text));
        if !wrong.is_empty() {
            let _ = write!(report, "\n--- {name}\n{}\n", wrong.join("\n"));
            failed.push(name);
        }
    }
    let (all, failing) = (paths.len(), failed.len());
    assert!(failed.is_empty(), "{report}\n{failing} of {all} cases fail: {}", failed.join(" "));
    assert!(all >= 30, "{all} cases only");
}
