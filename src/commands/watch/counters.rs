//! Counters of each kernel in one round, and how they differ from those of the last round with the same launches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use warpsmith_builder::{Arch, Manifest, ptxas::Ptxas};

use crate::table::{Align, Table, bytes, count};

/// The columns: key in JSON, heading, and the beginnings of the metrics that are added up.
const FIGURES: [(&str, &str, &[&str]); 5] = [
    ("warp_instructions", "warp inst", &["smsp__inst_executed.sum"]),
    ("lane_instructions", "lane inst", &["smsp__thread_inst_executed_pred_on.sum"]),
    ("sectors", "sectors", &["l1tex__t_sectors_pipe_lsu_mem_global_op_", "l1tex__t_sectors_pipe_lsu_mem_local_op_"]),
    ("bank_conflicts", "conflicts", &["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"]),
    ("dram_bytes", "DRAM", &[]),
];

/// Kernels whose registers are asked of ptxas; of more, it would take longer than all the rest.
const MOST_ASSEMBLED: usize = 16;

/// A kernel's part of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    launches: u64,
    /// Grid, block and number of its launches: counters of others cannot be compared.
    shapes: Shapes,
    figures: [u64; FIGURES.len()],
    /// Registers and bytes of spills, if ptxas was found.
    registers: Option<(u32, u32)>,
}

type Shapes = BTreeSet<String>;

/// By kernel.
pub type Round = BTreeMap<String, Counters>;

/// Of all rounds so far, the last with each set of launches: a test that fails early launches less than the one before.
pub type History = BTreeMap<String, BTreeMap<Shapes, Counters>>;

/// Adds a round.
pub fn remember(history: &mut History, round: Round) {
    for (name, counters) in round {
        history.entry(name).or_default().insert(counters.shapes.clone(), counters);
    }
}

/// Adds up the profiles of a round.
pub fn of(profiles: &[Value]) -> Round {
    let mut all = Round::new();
    for profile in profiles {
        let Some(kernel) = profile["kernel"].as_str() else { continue };
        let counters = all.entry(kernel.to_owned()).or_default();
        let launches = profile["launches"].as_u64().unwrap_or(0);
        counters.launches += launches;
        counters.shapes.insert(format!("{} {} {launches}", profile["grid"], profile["block"]));
        let metrics = profile["metrics"].as_object();
        for ((_, _, names), sum) in FIGURES.iter().zip(&mut counters.figures) {
            let matching = metrics.into_iter().flatten().filter(|(n, _)| names.iter().any(|name| n.starts_with(name)));
            *sum += matching.filter(|(n, _)| n.ends_with(".sum")).filter_map(|(_, v)| v.as_u64()).sum::<u64>();
        }
        if let Some(last) = counters.figures.last_mut() {
            *last += profile["dram_bytes"]["at_least"].as_u64().unwrap_or(0);
        }
    }
    all
}

/// Asks ptxas for registers and spills of the kernels that ran, from the newest text that the driver may have taken.
pub fn assemble(round: &mut Round, manifests: &[PathBuf], ptxas: &Ptxas, sm: u32) -> Result<(), String> {
    if round.len() > MOST_ASSEMBLED {
        return Ok(());
    }
    let arch: Arch = format!("sm_{sm}").parse().map_err(|e| format!("{e}"))?;
    for path in manifests {
        let manifest = Manifest::read(path).map_err(|e| e.to_string())?;
        let Some(image) = manifest.images.iter().rfind(|i| i.sm <= sm) else { continue };
        let file = path.with_file_name(&image.file);
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        for (name, counters) in round.iter_mut().filter(|(name, _)| manifest.kernel(name).is_some()) {
            let found = ptxas.assemble_entry(&text, name, arch).map_err(|e| format!("ptxas refuses `{name}`: {e}"))?;
            counters.registers = found.map(|r| (r.registers, r.spill_stores + r.spill_loads));
        }
    }
    Ok(())
}

/// By how much a figure has changed, in words; nothing if it cannot be compared.
fn change(now: u64, before: Option<u64>) -> String {
    match before {
        None => String::new(),
        Some(before) if before == now => " (=)".to_owned(),
        Some(0) => format!(" (+{now})"),
        Some(before) => format!(" ({:+.1} %)", 100.0 * (now as f64 / before as f64 - 1.0)),
    }
}

impl Counters {
    /// The last round in which the kernel did the same launches.
    fn comparable<'a>(&self, name: &str, history: &'a History) -> Option<&'a Counters> {
        history.get(name)?.get(&self.shapes)
    }
}

/// As text.
pub fn table(round: &Round, history: &History) -> String {
    let mut table = Table::new([
        ("kernel", Align::Left),
        ("launches", Align::Right),
        (FIGURES[0].1, Align::Right),
        (FIGURES[1].1, Align::Right),
        (FIGURES[2].1, Align::Right),
        (FIGURES[3].1, Align::Right),
        (FIGURES[4].1, Align::Right),
        ("registers", Align::Right),
        ("spills", Align::Right),
    ]);
    let mut others = Vec::new();
    for (name, now) in round {
        let then = now.comparable(name, history);
        if then.is_none() && history.contains_key(name) {
            others.push(name.as_str());
        }
        let mut row = vec![name.clone(), now.launches.to_string()];
        for (i, (key, _, _)) in FIGURES.iter().enumerate() {
            let shown = if *key == "dram_bytes" { bytes(now.figures[i]) } else { count(now.figures[i]) };
            row.push(format!("{shown}{}", change(now.figures[i], then.map(|t| t.figures[i]))));
        }
        match now.registers {
            Some((registers, spills)) => {
                let then = then.and_then(|t| t.registers);
                row.push(format!("{registers}{}", change(registers.into(), then.map(|t| t.0.into()))));
                row.push(format!("{spills}{}", change(spills.into(), then.map(|t| t.1.into()))));
            }
            None => row.extend(["-".to_owned(), "-".to_owned()]),
        }
        table.row(row);
    }
    let mut text = table.to_string();
    if !others.is_empty() {
        text.push_str(&format!("not compared, since no round before had the same launches: {}\n", others.join(", ")));
    }
    text
}

/// As JSON: every figure, and `change` with the differences where they can be compared.
pub fn to_json(round: &Round, history: &History) -> Value {
    let one = |(name, now): (&String, &Counters)| {
        let all = |c: &Counters| {
            let mut all: Map<String, Value> =
                FIGURES.iter().zip(c.figures).map(|((key, _, _), n)| ((*key).to_owned(), json!(n))).collect();
            if let Some((registers, spills)) = c.registers {
                all.insert("registers".into(), json!(registers));
                all.insert("spill_bytes".into(), json!(spills));
            }
            all
        };
        let figures = all(now);
        let change: Option<Map<String, Value>> = now.comparable(name, history).map(|then| {
            let then = all(then);
            let difference =
                |(key, n): (&String, &Value)| Some((key.clone(), json!(n.as_i64()? - then.get(key)?.as_i64()?)));
            figures.iter().filter_map(difference).collect()
        });
        let mut value = json!({ "kernel": name, "launches": now.launches, "change": change });
        if let Some(object) = value.as_object_mut() {
            object.extend(figures);
        }
        value
    };
    round.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(instructions: u64, grid: u32) -> Value {
        json!({
            "type": "profile", "kernel": "k", "grid": [grid, 1, 1], "block": [32, 1, 1], "launches": 2,
            "dram_bytes": { "at_least": 64, "at_most": 128 },
            "metrics": {
                "smsp__inst_executed.sum": instructions,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 3,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 4,
                "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": 1.5,
            },
        })
    }

    #[test]
    fn figures_are_sums_and_the_change_is_that_of_the_same_launches() {
        let mut history = History::new();
        remember(&mut history, of(&[profile(100, 1), profile(100, 2)]));
        // A test that failed early is no round to compare with.
        remember(&mut history, of(&[profile(100, 1)]));
        let after = of(&[profile(80, 1), profile(100, 2)]);
        let value = &to_json(&after, &history)[0];
        assert_eq!(
            (&value["warp_instructions"], &value["sectors"], &value["dram_bytes"]),
            (&180.into(), &14.into(), &128.into())
        );
        assert_eq!((&value["change"]["warp_instructions"], &value["change"]["sectors"]), (&(-20).into(), &0.into()));
        let text = table(&after, &history);
        assert!(text.contains("180 (-10.0 %)") && text.contains("14 (=)"), "{text}");

        let other = of(&[profile(80, 3)]);
        assert!(to_json(&other, &history)[0]["change"].is_null());
        assert!(table(&other, &history).contains("not compared"));
        assert!(!table(&after, &History::new()).contains("(="));
    }
}
