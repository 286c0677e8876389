//! The closing table, what is kept of it, and what it is compared with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpsmith_builder::{Arch, ptxas};
use warpsmith_driver_api::software::Occupancy;
use warpsmith_host::{Device, KernelImage};

use crate::baseline::{self, Figures};
use crate::columns::{COUNTED, TIMED, cell};
use crate::counts::{Counts, FEW_ROWS};
use crate::page::page;
use crate::run::{Failed, Work};

/// Unset or empty, or what is to happen with the baseline: `check`, `write`, `off`.
const BASELINE: &str = "WARPSMITH_BASELINE";

/// Median and spread of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Tenth percentile.
    pub p10: f64,
    /// Median.
    pub median: f64,
    /// Ninetieth percentile.
    pub p90: f64,
    /// How many.
    pub samples: usize,
}

impl Spread {
    /// Of samples, by nearest rank.
    pub fn of(samples: &[f64]) -> Spread {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
        };
        Spread { p10: at(0.1), median: at(0.5), p90: at(0.9), samples: samples.len() }
    }
}

/// What was measured of a benchmark.
pub enum Figure {
    /// By the software driver.
    Counted {
        /// Counts.
        counts: Box<Counts>,
        /// Rows that were run, if counts of more were extended from them.
        rows: Option<usize>,
    },
    /// On a GPU, nanoseconds.
    Timed(Spread),
}

/// One line of the table.
pub struct Row {
    /// The benchmarks that it is compared with.
    pub group: String,
    /// Its name.
    pub id: String,
    /// What it does at least.
    pub work: Work,
    /// What was measured.
    pub figure: Figure,
}

/// What ptxas says of a kernel.
#[derive(Clone, Copy, Debug)]
struct Resources {
    registers: u32,
    spills: u32,
    occupancy: Option<f64>,
}

/// Registers, spills and occupancy by kernel; empty without ptxas.
fn resources(rows: &[Row], sm: u32, kernels: &KernelImage) -> BTreeMap<String, Resources> {
    let mut all = BTreeMap::new();
    let (Some(assembler), Ok(arch)) = (ptxas::find(), format!("sm_{sm}").parse::<Arch>()) else { return all };
    for row in rows {
        let Figure::Counted { counts, .. } = &row.figure else { continue };
        let Some(kernel) = counts.main_kernel().filter(|k| !all.contains_key(&k.name)) else { continue };
        let Ok((_, text)) = kernels.code_of(&kernel.name, sm) else { continue };
        if let Ok(Some(r)) = assembler.assemble_entry(&text, &kernel.name, arch) {
            let o = Occupancy::of(sm, r.registers, r.static_shared, kernel.dynamic_shared, kernel.threads);
            let spills = r.spill_stores + r.spill_loads;
            let found = Resources { registers: r.registers, spills, occupancy: o.map(|o| o.percent()) };
            all.insert(kernel.name.clone(), found);
        }
    }
    all
}

/// The package's folder, which cargo names to what it runs, or the one that a program was started in.
pub(crate) fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Where reports go: below cargo's target folder, which has a file of this name.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("WARPSMITH_BENCH_DIR").filter(|f| !f.is_empty()) {
        return PathBuf::from(folder);
    }
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    target.map_or_else(|| package().join("target"), Path::to_path_buf).join("warpsmith/bench")
}

/// One line as JSON: the only place where figures are computed from counts.
fn of_row(row: &Row, resources: &BTreeMap<String, Resources>, rate: Option<f64>) -> Value {
    let bytes = row.work.floor_bytes;
    match &row.figure {
        Figure::Counted { counts: c, rows } => {
            let kernel = c.main_kernel().map(|k| k.name.as_str());
            let r = kernel.and_then(|k| resources.get(k));
            let ratio = |a: u64, b: u64| if b == 0 { Value::Null } else { json!(a as f64 / b as f64) };
            json!({
                "id": row.id,
                "group": row.group,
                "elements": row.work.elements,
                "floor_bytes": bytes,
                "rows_run": rows,
                "lane_instructions": c.lane_instructions,
                "lane_instructions_per_element": ratio(c.lane_instructions, row.work.elements),
                "issue_slots_per_element": ratio(32 * c.warp_instructions, row.work.elements),
                "dram_bytes": c.dram_bytes,
                "dram_bytes_per_useful_byte": ratio(c.dram_bytes, bytes),
                "percent_of_floor": if c.dram_bytes == 0 { Value::Null } else { json!(100.0 * bytes as f64 / c.dram_bytes as f64) },
                "sectors_per_request": ratio(c.sectors, c.requests),
                "bank_conflicts": c.bank_conflicts,
                "launches": c.launches,
                "kernel": kernel,
                "registers": r.map(|r| r.registers),
                "spill_bytes": r.map(|r| r.spills),
                "occupancy_percent": r.and_then(|r| r.occupancy),
            })
        }
        Figure::Timed(t) => json!({
            "id": row.id,
            "group": row.group,
            "elements": row.work.elements,
            "floor_bytes": bytes,
            "us_median": t.median / 1e3,
            "us_p10": t.p10 / 1e3,
            "us_p90": t.p90 / 1e3,
            "samples": t.samples,
            "gb_per_s": bytes as f64 / t.median,
            "percent_of_floor": rate.map(|r| 100.0 * bytes as f64 / t.median / r),
        }),
    }
}

fn table(rows: &[Value], columns: &[(&str, &str, usize)]) -> String {
    let width = rows.iter().filter_map(|r| r["id"].as_str()).map(str::len).max().unwrap_or(0);
    let mut text = format!("{:width$}", "variant");
    columns.iter().for_each(|(title, ..)| text += &format!("  {title:>11}"));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{:width$}", row["id"].as_str().unwrap_or_default());
        columns.iter().for_each(|(_, name, digits)| text += &format!("  {:>11}", cell(row, name, *digits)));
        // Figures that were extended from fewer rows say so.
        text += if row["rows_run"].is_null() { "\n" } else { " *\n" };
    }
    text
}

/// By how much a count differs from the one before, in words.
pub(crate) fn change(now: u64, before: Option<u64>) -> String {
    match before {
        None => String::new(),
        Some(before) if before == now => " (as before)".to_owned(),
        Some(0) => format!(" (+{now})"),
        Some(before) => format!(" ({:+.1} % to the run before)", 100.0 * (now as f64 / before as f64 - 1.0)),
    }
}

/// Where a run's figures go.
pub struct Report {
    /// Begins the names of its files.
    pub name: String,
    /// The counters that it is compared with.
    pub baseline: PathBuf,
}

impl Report {
    fn last_file(&self) -> PathBuf {
        folder().join(format!("{}.last.json", self.name))
    }

    /// Lane instructions of the runs before, by benchmark. They only say what has changed: without them nothing does.
    pub fn last(&self) -> Figures {
        baseline::read(&self.last_file()).unwrap_or_default()
    }

    /// Keeps them for the next run.
    pub fn keep(&self, rows: &[Row], before: &Figures) -> Result<(), Failed> {
        let mut all = before.clone();
        for row in rows {
            if let Figure::Counted { counts, .. } = &row.figure {
                all.insert(row.id.clone(), counts.lane_instructions);
            }
        }
        if !all.is_empty() {
            std::fs::create_dir_all(folder())?;
            std::fs::write(self.last_file(), baseline::text(&all))?;
        }
        Ok(())
    }

    /// Prints the table and writes it as text, JSON and HTML.
    pub fn write(
        &self,
        rows: &[Row],
        device: &Device,
        kernels: &KernelImage,
        rate: Option<f64>,
        testing: bool,
    ) -> Result<(), Failed> {
        let Some(first) = rows.first() else { return Ok(()) };
        let (engine, sm, device) = (device.engine().to_string(), device.sm(), device.name());
        let counted = matches!(first.figure, Figure::Counted { .. });
        // A test run asks whether all runs, not for registers.
        let resources = if testing { BTreeMap::new() } else { resources(rows, sm, kernels) };
        let values: Vec<Value> = rows.iter().map(|r| of_row(r, &resources, rate)).collect();
        let extended = values.iter().any(|v| !v["rows_run"].is_null());
        let note = if counted { counted_note(&engine, sm, extended) } else { timed_note(device, rate) };
        let columns: &[(&str, &str, usize)] = if counted { &COUNTED } else { &TIMED };
        let text = format!("{}\n{note}\n", table(&values, columns));
        println!("\n{text}");
        let folder = folder();
        let file = |end: &str| folder.join(format!("{}.{end}", self.name));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(file("txt"), text)?;
        let all =
            json!({ "engine": engine, "device": device, "read_gb_per_s": rate, "note": note, "benchmarks": values });
        std::fs::write(file("json"), format!("{all:#}\n"))?;
        std::fs::write(file("html"), page(&values, &format!("warpsmith {}", self.name), &note))?;
        println!("{}", file("html").display());
        Ok(())
    }

    /// Writes the baseline or compares with it, as `WARPSMITH_BASELINE` (`check`, `write`, `off`) says; whether nothing is
    /// worse. A package that has none yet has nothing to compare with.
    pub fn against_baseline(&self, run: &Figures, all: bool) -> Result<bool, Failed> {
        let path = &self.baseline;
        let wish = std::env::var_os(BASELINE).unwrap_or_default();
        let again = format!("{BASELINE}=write cargo bench --bench {}", self.name);
        match &*wish.to_string_lossy() {
            "off" => return Ok(true),
            "write" => {
                // A run of a part changes that part.
                let mut figures = if all || !path.exists() { Figures::new() } else { baseline::read(path)? };
                figures.extend(run.clone());
                std::fs::write(path, baseline::text(&figures))?;
                println!("wrote {} figures of {} to {}", run.len(), figures.len(), path.display());
                return Ok(true);
            }
            "" if !path.exists() => {
                println!(
                    "there is no {}: `{again}` keeps these figures, and later runs fail where they are worse",
                    path.display()
                );
                return Ok(true);
            }
            "check" | "" => {}
            other => return Err(format!("{BASELINE}={other}: check, write and off are known").into()),
        }
        let found = baseline::compare(&baseline::read(path)?, run);
        let gone: &[String] = if all { &found.gone } else { &[] };
        for (what, list) in [("worse", &found.worse), ("better", &found.better)] {
            list.iter().for_each(|c| println!("{what}: {c}"));
        }
        gone.iter().for_each(|name| println!("gone: {name}"));
        if let Some(first) = found.new.first() {
            println!("{} figures are not in the baseline, the first of them {first}", found.new.len());
        }
        let good = found.worse.is_empty() && gone.is_empty();
        let worse = if good { "nothing is worse than" } else { "there is worse than" };
        println!("{} figures: {worse} {} by {} %", run.len(), path.display(), 100.0 * baseline::TOLERANCE);
        if !good || !found.better.is_empty() || !found.new.is_empty() {
            println!("to write it anew: {again}");
        }
        Ok(good)
    }
}

fn counted_note(engine: &str, sm: u32, extended: bool) -> String {
    let rows = if extended {
        format!(
            " * counted over {FEW_ROWS} and {} rows and extended, since every block of rows counts the same.",
            2 * FEW_ROWS
        )
    } else {
        String::new()
    };
    format!(
        "Counted on the software driver ({engine}, sm_{sm}): instructions of PTX by lanes and by warps, bytes of sectors each \
         once, passes over shared memory; they repeat to the digit and are no time. Outputs were compared with their \
         references.{rows} Registers, spills and occupancy: ptxas, if found. What a launch costs is measured on a GPU alone."
    )
}

fn timed_note(device: &str, rate: Option<f64>) -> String {
    format!(
        "Device time on {device}: launches of a captured graph over rotated buffers, cold L2, variants in turns, median and p10 \
         to p90, after the outputs were compared with their references. Floor: bytes at the rate of a read-only sweep of this \
         process ({}).",
        rate.map_or_else(|| "not measured in this run".to_owned(), |r| format!("{r:.0} GB/s"))
    )
}
