//! The closing table: text, JSON, and a page with plots that needs no network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpsmith_builder::{Arch, ptxas};
use warpsmith_driver_api::software::Occupancy;
use warpsmith_host::Device;

use super::baseline::{self, Figures};
use super::counts::Counts;
use super::{Failed, Work};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

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
fn resources(rows: &[Row], sm: u32) -> BTreeMap<String, Resources> {
    let mut all = BTreeMap::new();
    let (Some(assembler), Ok(arch)) = (ptxas::find(), format!("sm_{sm}").parse::<Arch>()) else { return all };
    let Ok((_, text)) = warpsmith_host::builtin_image().code_for(sm) else { return all };
    for row in rows {
        let Figure::Counted { counts, .. } = &row.figure else { continue };
        let Some(kernel) = counts.main_kernel().filter(|k| !all.contains_key(&k.name)) else { continue };
        if let Ok(Some(r)) = assembler.assemble_entry(text, &kernel.name, arch) {
            let o = Occupancy::of(sm, r.registers, r.static_shared, kernel.dynamic_shared, kernel.threads);
            let spills = r.spill_stores + r.spill_loads;
            let found = Resources { registers: r.registers, spills, occupancy: o.map(|o| o.percent()) };
            all.insert(kernel.name.clone(), found);
        }
    }
    all
}

/// Where reports go.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("WARPSMITH_BENCH_DIR").filter(|f| !f.is_empty()) {
        return PathBuf::from(folder);
    }
    // The build's folder for such things is `tmp` in the target folder.
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap_or(tmp).join("warpsmith/bench")
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

const COUNTED: [(&str, &str, usize); 9] = [
    ("inst/elem", "lane_instructions_per_element", 3),
    ("slots/elem", "issue_slots_per_element", 3),
    ("DRAM/useful", "dram_bytes_per_useful_byte", 3),
    ("% of floor", "percent_of_floor", 1),
    ("sect/req", "sectors_per_request", 2),
    ("conflicts", "bank_conflicts", 0),
    ("regs", "registers", 0),
    ("spills", "spill_bytes", 0),
    ("occ %", "occupancy_percent", 0),
];
const TIMED: [(&str, &str, usize); 5] = [
    ("us", "us_median", 2),
    ("p10", "us_p10", 2),
    ("p90", "us_p90", 2),
    ("GB/s", "gb_per_s", 1),
    ("% of read rate", "percent_of_floor", 1),
];

fn cell(row: &Value, name: &str, digits: usize) -> String {
    row[name].as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.digits$}"))
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A page of its own: a plot of bars for each family, and the table.
pub fn page(rows: &[Value], title: &str, note: &str) -> String {
    let timed = rows.iter().any(|r| r.get("us_median").is_some());
    let columns: &[(&str, &str, usize)] = if timed { &TIMED } else { &COUNTED };
    let (plotted, unit) = if timed {
        ("us_median", "us, median; line: p10 to p90")
    } else {
        ("issue_slots_per_element", "issue slots per element")
    };
    let mut families: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let group = row["group"].as_str().unwrap_or_default();
        // `gemv/q4_0` of `gemv/q4_0/8b-qkv`.
        let family = group.rsplit_once('/').map_or(group, |(family, _)| family);
        families.entry(family).or_default().push(row);
    }
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>\nbody{{font:14px/1.4 system-ui,\
         sans-serif;margin:2em;max-width:75em}}table{{border-collapse:collapse}}td,th{{padding:.1em .7em;text-align:right}}\
         td:first-child,th:first-child{{text-align:left}}tr:nth-child(even){{background:#f3f3f3}}svg text{{font:12px system-ui,\
         sans-serif}}</style></head><body>\n<h1>{0}</h1><p>{1}</p>\n",
        escaped(title),
        escaped(note)
    );
    for (family, rows) in families {
        let value = |r: &Value| r[plotted].as_f64().unwrap_or(0.0);
        let most = rows.iter().map(|r| value(r).max(r["us_p90"].as_f64().unwrap_or(0.0))).fold(1e-9, f64::max);
        let _ = writeln!(html, "<h2>{}</h2><p>{unit}</p>", escaped(family));
        let height = 18 * rows.len();
        let _ = writeln!(html, "<svg width=\"900\" height=\"{height}\" role=\"img\">");
        for (i, row) in rows.iter().enumerate() {
            let (y, v) = (18 * i, value(row));
            let id = escaped(row["id"].as_str().unwrap_or_default());
            let length = 480.0 * v / most;
            let _ = writeln!(
                html,
                "<text x=\"340\" y=\"{}\" text-anchor=\"end\">{id}</text><rect x=\"346\" y=\"{}\" width=\"{length:.1}\" \
                 height=\"12\" fill=\"#4a7ebb\"/><text x=\"{:.1}\" y=\"{}\">{v:.2}</text>",
                y + 13,
                y + 3,
                352.0 + length,
                y + 13
            );
            if let (Some(low), Some(high)) = (row["us_p10"].as_f64(), row["us_p90"].as_f64()) {
                let x = |v: f64| 346.0 + 480.0 * v / most;
                let _ = writeln!(
                    html,
                    "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#222\"/>",
                    x(low),
                    x(high),
                    y + 9
                );
            }
        }
        html += "</svg>\n";
    }
    html += "<h2>All figures</h2><table><tr><th>variant</th>";
    columns.iter().for_each(|(title, ..)| html += &format!("<th>{}</th>", escaped(title)));
    html += "</tr>\n";
    for row in rows {
        let _ = write!(html, "<tr><td>{}</td>", escaped(row["id"].as_str().unwrap_or_default()));
        columns.iter().for_each(|(_, name, digits)| html += &format!("<td>{}</td>", cell(row, name, *digits)));
        html += "</tr>\n";
    }
    html += "</table></body></html>\n";
    html
}

/// Prints the table and writes it as text, JSON and HTML.
pub fn write(rows: &[Row], device: &Device, rate: Option<f64>, testing: bool) -> Result<(), Failed> {
    if rows.is_empty() {
        return Ok(());
    }
    let (engine, sm, device) = (device.engine().to_string(), device.sm(), device.name());
    let counted = matches!(rows[0].figure, Figure::Counted { .. });
    // A test run asks whether all runs, not for registers.
    let resources = if testing { BTreeMap::new() } else { resources(rows, sm) };
    let values: Vec<Value> = rows.iter().map(|r| of_row(r, &resources, rate)).collect();
    let note = if counted {
        format!(
            "Counted on the software driver ({engine}, sm_{sm}): instructions of PTX by lanes and by warps, bytes of sectors \
             each once, passes over shared memory; they repeat to the digit and are no time. * counted over {} and {} rows \
             and extended, since every block of rows counts the same. Registers, spills and occupancy: ptxas, if found. What a \
             launch costs is measured on a GPU alone.",
            super::FEW_ROWS,
            2 * super::FEW_ROWS
        )
    } else {
        format!(
            "Device time on {device}: launches of a captured graph over rotated buffers, cold L2, variants in turns, median and \
             p10 to p90. Floor: bytes at the rate of a read-only sweep of this process ({}).",
            rate.map_or_else(|| "not measured in this run".to_owned(), |r| format!("{r:.0} GB/s"))
        )
    };
    let columns: &[(&str, &str, usize)] = if counted { &COUNTED } else { &TIMED };
    let text = format!("{}\n{note}\n", table(&values, columns));
    println!("\n{text}");
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("kernels.txt"), text)?;
    let all = json!({ "engine": engine, "device": device, "read_gb_per_s": rate, "note": note, "benchmarks": values });
    std::fs::write(folder.join("kernels.json"), format!("{all:#}\n"))?;
    let html = folder.join("kernels.html");
    std::fs::write(&html, page(&values, "warpsmith kernels", &note))?;
    println!("{}", html.display());
    Ok(())
}

/// Writes the baseline or compares with it, as `WARPSMITH_BASELINE` (`check`, `write`, `off`) says; whether nothing is worse.
pub fn against_baseline(run: &Figures, all: bool) -> Result<bool, Failed> {
    let path = Path::new(ROOT).join("benches/baseline.json");
    let wish = std::env::var_os("WARPSMITH_BASELINE").unwrap_or_default();
    match &*wish.to_string_lossy() {
        "off" => return Ok(true),
        "write" => {
            // A run of a part changes that part.
            let mut figures = if all || !path.exists() { Figures::new() } else { baseline::read(&path)? };
            figures.extend(run.clone());
            std::fs::write(&path, baseline::text(&figures))?;
            println!("wrote {} figures of {} to {}", run.len(), figures.len(), path.display());
            return Ok(true);
        }
        "check" | "" => {}
        other => return Err(format!("WARPSMITH_BASELINE={other}: check, write and off are known").into()),
    }
    let found = baseline::compare(&baseline::read(&path)?, run);
    let gone: &[String] = if all { &found.gone } else { &[] };
    for (what, list) in [("worse", &found.worse), ("better", &found.better)] {
        list.iter().for_each(|c| println!("{what}: {c}"));
    }
    gone.iter().for_each(|name| println!("gone: {name}"));
    if !found.new.is_empty() {
        println!("{} figures are not in the baseline, the first of them {}", found.new.len(), found.new[0]);
    }
    let good = found.worse.is_empty() && gone.is_empty();
    let worse = if good { "nothing is worse than" } else { "there is worse than" };
    println!("{} figures: {worse} {} by {} %", run.len(), path.display(), 100.0 * baseline::TOLERANCE);
    if !good || !found.better.is_empty() || !found.new.is_empty() {
        println!("to write it anew: WARPSMITH_BASELINE=write cargo bench --bench kernels -- --test");
    }
    Ok(good)
}
