//! Code in lines: what each did, and which line of Rust it is from.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Value, json};

use super::subject::{SourceLine, Subject};
use crate::commands::budget::sass::{Code, Instruction};
use crate::commands::shown;
use crate::table::{Align, Table, count};

/// Counters of a line, as they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of warps.
    pub warps: u64,
    /// Instructions of lanes.
    pub lanes: u64,
    /// Sectors of global and local memory.
    pub sectors: u64,
    /// Passes over shared memory beyond the ideal number.
    pub conflicts: u64,
}

impl Counts {
    fn of(metrics: &Value) -> Counts {
        let sum = |start: &str| -> u64 {
            let all = metrics.as_object().into_iter().flatten();
            all.filter(|(name, _)| name.starts_with(start)).filter_map(|(_, n)| n.as_u64()).sum()
        };
        Counts {
            warps: sum("smsp__inst_executed.sum"),
            lanes: sum("smsp__thread_inst_executed_pred_on.sum"),
            sectors: sum("l1tex__t_sectors_pipe_lsu_mem_global_op_") + sum("l1tex__t_sectors_pipe_lsu_mem_local_op_"),
            conflicts: sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"),
        }
    }

    fn cells(self) -> [String; 4] {
        let or_dash = |n: u64| if n == 0 { "-".to_owned() } else { count(n) };
        let lanes =
            if self.warps == 0 { "-".to_owned() } else { format!("{:.1}", self.lanes as f64 / self.warps as f64) };
        [or_dash(self.warps), lanes, or_dash(self.sectors), or_dash(self.conflicts)]
    }

    fn to_json(self) -> Value {
        json!({
            "warp_instructions": self.warps,
            "lane_instructions": self.lanes,
            "sectors": self.sectors,
            "bank_conflicts": self.conflicts,
        })
    }
}

/// One line of code.
pub struct CodeLine {
    /// What is before the code: an address, or nothing.
    mark: String,
    code: String,
    /// Line of the PTX text.
    ptx_line: u32,
    place: Option<SourceLine>,
    counts: Option<Counts>,
}

/// Rust sources, read when they are first needed.
#[derive(Default)]
pub struct Sources(HashMap<String, Vec<String>>);

impl Sources {
    /// A line's text; nothing if the file is not here, or not the one that was compiled.
    fn line(&mut self, (file, line): &SourceLine) -> String {
        let lines = self.0.entry(file.clone()).or_insert_with(|| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        });
        (*line as usize)
            .checked_sub(1)
            .and_then(|at| lines.get(at))
            .map(|l| l.trim_end().to_owned())
            .unwrap_or_default()
    }
}

/// Counters by line of PTX.
fn by_ptx(subject: &Subject) -> Option<BTreeMap<u64, Counts>> {
    let lines = subject.profile.as_ref()?["ptx"].as_array()?;
    Some(lines.iter().filter_map(|l| Some((l["line"].as_u64()?, Counts::of(&l["metrics"])))).collect())
}

/// The kernel's PTX without what only says where it is from.
pub fn ptx(subject: &Subject) -> Vec<CodeLine> {
    let counts = by_ptx(subject);
    let mut rows = Vec::new();
    for (number, line) in (1u32..).zip(subject.ptx.lines()).filter(|(n, _)| subject.lines.contains(n)) {
        let text = line.trim();
        let left_out = [".loc", "$L__tmp", "$L__func_", "//"].iter().any(|start| text.starts_with(start));
        let code = text.split("//").next().unwrap_or_default().trim_end();
        if code.is_empty() || left_out {
            continue;
        }
        let is_label = text.starts_with("$L") || line.starts_with(|c: char| !c.is_whitespace());
        rows.push(CodeLine {
            mark: String::new(),
            code: if is_label { code.to_owned() } else { format!("  {code}").replace('\t', " ") },
            ptx_line: number,
            place: subject.places.get(&number).cloned(),
            counts: counts.as_ref().and_then(|c| c.get(&number.into())).copied(),
        });
    }
    rows
}

/// Operations that have to do with memory, by their beginnings.
const MEMORY: [&str; 6] = ["LD", "ST", "ATOM", "RED", "UBLKCP", "UTMA"];

/// Machine code. An instruction's counters are those of the PTX line that it is from, of which it may be a part; what a line
/// does to memory stands beside those of its instructions that do.
pub fn sass(subject: &Subject, code: &Code) -> Vec<CodeLine> {
    let counts = by_ptx(subject);
    let row = |i: &Instruction| {
        let words = [i.guard.as_str(), i.opcode.as_str(), i.operands.as_str()];
        let text: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
        CodeLine {
            mark: format!("{:04x}", i.address),
            code: text.join(" "),
            ptx_line: i.ptx_line,
            place: subject.places.get(&i.ptx_line).cloned(),
            counts: counts.as_ref().and_then(|c| c.get(&i.ptx_line.into())).copied().map(|c| of_instruction(c, i)),
        }
    };
    // Behind the last branch to itself stands filling.
    let used = code.instructions.iter().rposition(|i| i.opcode != "NOP").map_or(0, |at| at + 1);
    code.instructions.iter().take(used).map(row).collect()
}

fn of_instruction(line: Counts, instruction: &Instruction) -> Counts {
    if MEMORY.iter().any(|start| instruction.opcode.starts_with(start)) {
        line
    } else {
        Counts { sectors: 0, conflicts: 0, ..line }
    }
}

/// Beside each line of code the line of Rust that it is from, once for each run of such lines.
pub fn beside(rows: &[CodeLine], sources: &mut Sources, title: &str) -> Table {
    let counted = rows.iter().any(|r| r.counts.is_some());
    let mut table = Table::new([
        ("warp inst", Align::Right),
        ("lanes", Align::Right),
        ("sectors", Align::Right),
        ("conflicts", Align::Right),
        (title, Align::Left),
        ("Rust", Align::Left),
    ]);
    let mut before: Option<&SourceLine> = None;
    for row in rows {
        let counts = row.counts.map_or_else(|| ["", "", "", ""].map(str::to_owned), Counts::cells);
        let mut rust = String::new();
        if let Some(place) = row.place.as_ref().filter(|p| before != Some(*p)) {
            rust = format!("{} {}", short(place), sources.line(place).trim());
        }
        before = row.place.as_ref().or(before);
        let space = if row.mark.is_empty() { "" } else { "  " };
        let code = format!("{}{space}{}", row.mark, row.code);
        let cells = if counted { counts } else { ["", "", "", ""].map(str::to_owned) };
        table.row(cells.into_iter().chain([code, rust]).collect());
    }
    table
}

/// `saxpy.rs:15`
fn short((file, line): &SourceLine) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("{name}:{line}")
}

/// By line of Rust: sums of its PTX.
fn by_rust(subject: &Subject) -> BTreeMap<SourceLine, (Counts, u32)> {
    let mut all: BTreeMap<SourceLine, (Counts, u32)> = BTreeMap::new();
    for row in ptx(subject) {
        let Some(place) = row.place else { continue };
        let (sum, instructions) = all.entry(place).or_default();
        *instructions += 1;
        let now = row.counts.unwrap_or_default();
        sum.warps += now.warps;
        sum.lanes += now.lanes;
        sum.sectors += now.sectors;
        sum.conflicts += now.conflicts;
    }
    all
}

/// The lines of Rust from the kernel's first to its last in each file, with their counters; other files' lines alone.
pub fn rust(subject: &Subject, sources: &mut Sources) -> Table {
    let mut table = Table::new([
        ("warp inst", Align::Right),
        ("share", Align::Right),
        ("lanes", Align::Right),
        ("sectors", Align::Right),
        ("conflicts", Align::Right),
        ("PTX", Align::Right),
        ("line", Align::Right),
        ("Rust", Align::Left),
    ]);
    let lines = by_rust(subject);
    let total: u64 = lines.values().map(|(c, _)| c.warps).sum();
    let mut files: Vec<&String> = lines.keys().map(|(file, _)| file).collect();
    files.dedup();
    for file in files {
        let numbers: Vec<u32> = lines.keys().filter(|(f, _)| f == file).map(|(_, n)| *n).collect();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { continue };
        table.row(vec![
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            shown(Path::new(file)),
        ]);
        let mut left_out = false;
        for number in *first..=*last {
            let place = (file.clone(), number);
            let near = numbers.iter().any(|n| n.abs_diff(number) <= 3);
            if !near {
                left_out = true;
                continue;
            }
            if std::mem::take(&mut left_out) {
                table.row(["", "", "", "", "", "", "", "…"].map(str::to_owned).to_vec());
            }
            let text = sources.line(&place);
            let mut row = match lines.get(&place) {
                Some((counts, instructions)) => {
                    let [warps, lanes, sectors, conflicts] = counts.cells();
                    let share = 100.0 * counts.warps as f64 / total.max(1) as f64;
                    let share = if counts.warps == 0 { "-".to_owned() } else { format!("{share:.1} %") };
                    vec![warps, share, lanes, sectors, conflicts, instructions.to_string()]
                }
                None => ["", "", "", "", "", ""].map(str::to_owned).to_vec(),
            };
            row.extend([number.to_string(), text]);
            table.row(row);
        }
    }
    table
}

/// Rows as JSON.
pub fn to_json(rows: &[CodeLine], is_sass: bool) -> Value {
    let one = |r: &CodeLine| {
        let mut value = json!({
            "ptx_line": r.ptx_line,
            "text": r.code.trim(),
            "source": r.place.as_ref().map(|(file, line)| json!({ "file": file, "line": line })),
            "counters": r.counts.map(Counts::to_json),
        });
        if is_sass {
            value["address"] = json!(u32::from_str_radix(&r.mark, 16).unwrap_or(0));
        }
        value
    };
    rows.iter().map(one).collect()
}

/// Lines of Rust as JSON.
pub fn rust_to_json(subject: &Subject, sources: &mut Sources) -> Value {
    let one = |(place, (counts, instructions)): (SourceLine, (Counts, u32))| {
        let text = sources.line(&place);
        let counters = subject.profile.as_ref().map(|_| counts.to_json());
        json!({ "file": place.0, "line": place.1, "text": text, "ptx_instructions": instructions, "counters": counters })
    };
    by_rust(subject).into_iter().map(one).collect()
}
