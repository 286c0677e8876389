//! `warpsmith budget` in a project: what its kernels take, and what its manifests allow them to.
//!
//! ```toml
//! [package.metadata.warpsmith.budget.saxpy]
//! registers = 32
//! instructions_per_thread = 20
//! ```

use std::collections::BTreeMap;

use serde_json::{Value, json};
use warpsmith_builder::{Arch, ptxas};

use super::{Project, Ready};
use crate::cli::BudgetArgs;
use crate::commands::budget::ptxas_for;
use crate::commands::profile::counted::Counted;
use crate::commands::profile::gpus;
use crate::commands::profile::roofline::Roofline;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};

/// Architecture of machine code and counts.
const SM: u32 = 90;
/// GPU of that architecture, for what binds.
const GPU: &str = "h200";

/// What may be limited: key, heading, digits, and whether more is better.
const FIGURES: [(&str, &str, usize, bool); 8] = [
    ("registers", "registers", 0, false),
    ("spill_bytes", "spills", 0, false),
    ("shared_bytes", "shared", 0, false),
    ("occupancy_percent", "occ %", 0, true),
    ("instructions_per_thread", "inst/thread", 2, false),
    ("sectors_per_request", "sect/req", 2, false),
    ("dram_bytes_per_thread", "DRAM/thread", 2, false),
    ("bank_conflicts", "conflicts", 0, false),
];

/// What a kernel costs.
struct KernelCost {
    kernel: String,
    figures: BTreeMap<&'static str, f64>,
    limits: BTreeMap<&'static str, f64>,
    /// The launch that was counted, and the resource that it would use longest.
    launch: Option<(String, &'static str)>,
}

impl KernelCost {
    fn misses(&self) -> Vec<String> {
        let miss = |(key, _, digits, more): &(&'static str, &str, usize, bool)| {
            let limit = *self.limits.get(key)?;
            let Some(now) = self.figures.get(key).copied() else {
                return Some(format!("{key} is not known, since no test launches it"));
            };
            let over = if *more { now < limit } else { now > limit };
            let than = if *more { "at least" } else { "at most" };
            over.then(|| format!("{key} is {now:.digits$}, {than} {limit} are allowed"))
        };
        FIGURES.iter().filter_map(miss).collect()
    }

    fn to_json(&self) -> Value {
        json!({
            "kernel": self.kernel,
            "figures": self.figures,
            "budget": self.limits,
            "launch": self.launch.as_ref().map(|l| &l.0),
            "binds": self.launch.as_ref().map(|l| l.1),
            "missed": self.misses(),
        })
    }
}

/// Holds the project's kernels to the budgets of its manifests.
pub fn budget(args: &BudgetArgs, project: &Project) -> Result<(), Failure> {
    if args.sass {
        return Err(Failure::usage(
            "--sass is for kernels that ship: `warpsmith inspect KERNEL --sass` lists a project's",
        ));
    }
    let limits = limits(project)?;
    let assembler = ptxas_for("budget")?;
    let ready = project.build(!args.json)?;
    let unknown = limits.keys().find(|k| !ready.has(k));
    if let Some(kernel) = unknown {
        return Err(Failure::usage(format!(
            "metadata.warpsmith.budget.{kernel}: the project has no kernel of that name"
        )));
    }
    let variables = [("WARPSMITH_PROFILE", "1".to_owned()), ("WARPSMITH_SM", SM.to_string())];
    let ran = ready.tests(&[], &variables)?;
    ran.passed()?;
    let names = ready.libraries.iter().flat_map(|l| &l.manifest.kernels).map(|k| k.name.clone());
    let wanted = |name: &String| args.filter.as_ref().is_none_or(|f| name.contains(f.as_str()));
    let mut costs = Vec::new();
    for kernel in names.filter(wanted) {
        costs.push(cost(&kernel, &ready, &ran.profiles, &assembler, limits.get(&kernel))?);
    }
    if costs.is_empty() {
        let filter = args.filter.as_deref().unwrap_or_default();
        return Err(Failure::usage(format!("no kernel of the project has `{filter}` in its name")));
    }
    print(args, &costs, &assembler);
    let missed: Vec<&str> = costs.iter().filter(|c| !c.misses().is_empty()).map(|c| c.kernel.as_str()).collect();
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Kind::Budget, format!("over budget: {}", missed.join(", "))))
}

type Limits = BTreeMap<String, BTreeMap<&'static str, f64>>;

/// The budgets that the project's manifests name.
fn limits(project: &Project) -> Result<Limits, Failure> {
    let mut all = Limits::new();
    for (kernel, budget) in project.settings.iter().filter_map(|s| s["budget"].as_object()).flatten() {
        let of = all.entry(kernel.clone()).or_default();
        for (key, limit) in budget.as_object().into_iter().flatten() {
            let known = FIGURES.iter().find(|f| f.0 == key);
            let (Some(figure), Some(limit)) = (known, limit.as_f64()) else {
                let keys: Vec<&str> = FIGURES.iter().map(|f| f.0).collect();
                return Err(Failure::usage(format!(
                    "metadata.warpsmith.budget.{kernel}.{key} = {limit}: numbers may stand for {}",
                    keys.join(", ")
                )));
            };
            of.insert(figure.0, limit);
        }
    }
    Ok(all)
}

/// What ptxas and the largest launch of the tests say of a kernel.
fn cost(
    kernel: &str,
    ready: &Ready,
    profiles: &[Value],
    assembler: &ptxas::Ptxas,
    limits: Option<&BTreeMap<&'static str, f64>>,
) -> Result<KernelCost, Failure> {
    let arch: Arch = format!("sm_{SM}").parse().map_err(|e| Failure::new(Kind::Operation, format!("{e}")))?;
    let refused = |e| Failure::new(Kind::Toolchain, format!("ptxas refuses `{kernel}` on sm_{SM}: {e}"));
    let mut figures = BTreeMap::new();
    let text = ready.text(kernel, SM)?.unwrap_or_default();
    let found = assembler.assemble_entry(&text, kernel, arch).map_err(refused)?;
    if let Some(r) = &found {
        figures.insert("registers", f64::from(r.registers));
        figures.insert("spill_bytes", f64::from(r.spill_stores + r.spill_loads));
        figures.insert("shared_bytes", f64::from(r.static_shared));
    }
    let of_kernel = profiles.iter().filter(|p| p["kernel"] == kernel).map(|p| Counted::read(p.clone()));
    let largest = of_kernel.max_by_key(|c| c.total.warp_instructions / c.launches);
    let mut launch = None;
    if let Some(mut counted) = largest {
        if let Some(r) = &found {
            counted.assembled(r.registers);
            figures.insert("shared_bytes", f64::from(r.static_shared + counted.dynamic_shared));
        }
        let (t, n) = (&counted.total, counted.launches as f64);
        let threads = n * counted.grid.iter().chain(&counted.block).product::<u64>() as f64;
        let requests = t.global_load_requests + t.global_store_requests + t.global_copy_requests;
        let sectors = t.global_load_sectors + t.global_store_sectors + t.global_copy_sectors;
        figures.insert("instructions_per_thread", t.lane_instructions as f64 / threads);
        figures.insert("dram_bytes_per_thread", counted.dram.0 as f64 / threads);
        figures.insert("bank_conflicts", t.shared_conflicts() as f64 / n);
        if requests > 0 {
            figures.insert("sectors_per_request", sectors as f64 / requests as f64);
        }
        if let Some(o) = counted.occupancy() {
            figures.insert("occupancy_percent", o.percent());
        }
        let dims = |d: [u64; 3]| d.map(|n| n.to_string()).join("x");
        let gpu = gpus::find(GPU).map_err(Failure::usage)?;
        let words = format!("grid {} of blocks {}", dims(counted.grid), dims(counted.block));
        launch = Some((words, Roofline::new(&counted, gpu).longest().0));
    }
    Ok(KernelCost { kernel: kernel.to_owned(), figures, limits: limits.cloned().unwrap_or_default(), launch })
}

fn print(args: &BudgetArgs, costs: &[KernelCost], assembler: &ptxas::Ptxas) {
    if args.json {
        let kernels: Vec<Value> = costs.iter().map(KernelCost::to_json).collect();
        println!("{:#}", json!({ "arch": format!("sm_{SM}"), "ptxas": assembler.release(), "kernels": kernels }));
        return;
    }
    let columns = FIGURES.iter().map(|f| (f.1, Align::Right));
    let mut table = Table::new(
        [("kernel", Align::Left)].into_iter().chain(columns).chain([("binds", Align::Left), ("launch", Align::Left)]),
    );
    for cost in costs {
        let cell = |(key, _, digits, _): &(&'static str, &str, usize, bool)| {
            let now = cost.figures.get(key).map_or_else(|| "-".to_owned(), |x| format!("{x:.digits$}"));
            cost.limits.get(key).map_or_else(|| now.clone(), |limit| format!("{now} of {limit}"))
        };
        let (launch, binds) = cost.launch.clone().unwrap_or_else(|| ("no test launches it".to_owned(), "-"));
        let figures = FIGURES.iter().map(cell);
        table.row([cost.kernel.clone()].into_iter().chain(figures).chain([binds.to_owned(), launch]).collect());
    }
    println!("{table}");
    println!(
        "registers, spills and shared memory by ptxas {} for sm_{SM}; counts of PTX on the software driver, of the largest launch \
         that a test does; what binds is that of a projection onto an H200. None of it is time.",
        assembler.release()
    );
    for cost in costs {
        if cost.limits.is_empty() {
            println!("{}: no budget; [package.metadata.warpsmith.budget.{0}] in a Cargo.toml sets one", cost.kernel);
        }
        cost.misses().iter().for_each(|miss| println!("{}: {miss}", cost.kernel));
    }
}
