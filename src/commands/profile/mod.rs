//! `warpsmith profile`: what launches do, counted, by Nsight Compute's names and rules; and what that would mean on a GPU.

pub mod gpus;
mod roofline;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use warpsmith_builder::{Arch, ptxas};
use warpsmith_driver_api::software::{LaunchProfile, approximate_json};
use warpsmith_host::gpu_kernels::cases::Failure as CaseFailure;
use warpsmith_simt::check::Metrics;
use warpsmith_simt::{BOUNDS_FROM, Checks, Module};

use super::approximate::{Approximate, sentence};
use super::check::bench::Gpu;
use super::check::{module, program, subjects};
use crate::cli::ProfileArgs;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table, bytes, count};
use roofline::Projection;

const PROFILE: Checks = Checks { init: false, races: false, sync: false, profile: true, seed: 0 };

/// Runs the command.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let gpu = gpus::find(&args.gpu).map_err(Failure::usage)?;
    let sm = args.sm.unwrap_or(gpu.sm);
    if !args.program.is_empty() {
        return of_program(args, sm);
    }
    let Some(kernel) = &args.kernel else {
        return Err(Failure::usage("name a kernel, or a program after `--`; `warpsmith kernels` lists the kernels"));
    };
    let launches = launches(&module(sm)?, kernel, args.shape.as_deref().unwrap_or_default(), sm)?;
    let found = registers(kernel, sm)?;
    let mut printed = Vec::new();
    for (shape, mut launch) in launches {
        if let Some(registers) = found {
            (launch.registers, launch.registers_from) = (registers, "ptxas");
        }
        let projection = Projection::new(&launch, gpu);
        if args.json {
            let mut value = launch.to_json();
            value["shape"] = json!(shape);
            value["projection"] = projection.to_json();
            printed.push(value);
        } else {
            print(&launch, &shape, &projection, args.lines);
        }
    }
    if args.json {
        println!("{:#}", json!({ "launches": printed }));
    }
    Ok(())
}

/// Launches of a kernel that ships, in those sizes or in those of a layer of a small model, each with its case.
pub fn launches(
    module: &Arc<Module>,
    kernel: &str,
    shape: &str,
    sm: u32,
) -> Result<Vec<(String, LaunchProfile)>, Failure> {
    let mut launches = Vec::new();
    for subject in subjects(&[kernel.to_owned()])? {
        let case = subject.parse(shape).map_err(|e| Failure::usage(format!("--shape {shape}: {e}")))?;
        let mut device = Gpu::new(sm, module, PROFILE).map_err(|e| Failure::new(Kind::Operation, e))?;
        case.run(&mut device).map_err(|e| match e {
            CaseFailure::Launch(text) => Failure::new(Kind::Operation, text),
            CaseFailure::Wrong(text) => Failure::new(Kind::Verification, format!("{kernel} {case}: {text}")),
        })?;
        launches.extend(device.profiles.into_iter().filter(|p| p.kernel == *kernel).map(|p| (case.to_string(), p)));
    }
    Ok(launches)
}

/// Registers by ptxas, if it is found.
fn registers(kernel: &str, sm: u32) -> Result<Option<u32>, Failure> {
    let Some(assembler) = ptxas::find() else {
        return match std::env::var_os("WARPSMITH_PTXAS").filter(|p| !p.is_empty()) {
            Some(path) => Err(Failure::usage(format!("WARPSMITH_PTXAS={} is no ptxas", path.display()))),
            None => Ok(None),
        };
    };
    let name = format!("sm_{sm}");
    let arch: Arch = name.parse().map_err(|e| Failure::new(Kind::Operation, format!("{e}")))?;
    let (_, text) = warpsmith_host::builtin_image().code_for(sm)?;
    let refused = |e| Failure::new(Kind::Toolchain, format!("ptxas refuses `{kernel}` on {name}: {e}"));
    let found = assembler.assemble_entry(text, kernel, arch).map_err(refused)?;
    Ok(found.map(|r| r.registers))
}

/// A program's launches, as its driver wrote them down.
fn of_program(args: &ProfileArgs, sm: u32) -> Result<(), Failure> {
    if args.kernel.is_some() || args.shape.is_some() {
        return Err(Failure::usage("either a kernel or a program after `--`, not both"));
    }
    let ran = program::start(&args.program, sm, &[("WARPSMITH_PROFILE", "1".to_owned())])?;
    let launches: Vec<Value> = ran.lines.into_iter().filter(|l| l["type"] == "profile").collect();
    if args.json {
        println!("{:#}", json!({ "launches": launches }));
    } else {
        let mut table = Table::new([
            ("kernel", Align::Left),
            ("grid", Align::Right),
            ("block", Align::Right),
            ("launches", Align::Right),
            ("lane instructions", Align::Right),
            ("lanes", Align::Right),
            ("sectors/load", Align::Right),
            ("conflicts", Align::Right),
            ("DRAM at least", Align::Right),
            ("at most", Align::Right),
        ]);
        for l in &launches {
            let number = |name: &str| l["metrics"][name].as_u64().unwrap_or(0);
            let ratio = |name: &str| l["metrics"][name].as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.1}"));
            let conflicts = ["ld", "st", "atom"]
                .map(|op| number(&format!("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum")));
            table.row(vec![
                l["kernel"].as_str().unwrap_or_default().to_owned(),
                dimensions(&l["grid"]),
                dimensions(&l["block"]),
                l["launches"].to_string(),
                count(number("smsp__thread_inst_executed_pred_on.sum")),
                ratio("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"),
                ratio("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"),
                count(conflicts.iter().sum()),
                bytes(l["dram_bytes"]["at_least"].as_u64().unwrap_or(0)),
                bytes(l["dram_bytes"]["at_most"].as_u64().unwrap_or(0)),
            ]);
        }
        print!("{table}");
        let mut approximate = Approximate::default();
        for l in &launches {
            let list = l["approximate"].as_array().cloned().unwrap_or_default();
            approximate.add(l["kernel"].as_str().unwrap_or_default(), list);
        }
        approximate.print();
    }
    if ran.code != 0 {
        return Err(Failure::program(ran.code, &args.program[0].to_string_lossy()));
    }
    Ok(())
}

fn dimensions(value: &Value) -> String {
    let all: Vec<String> = value.as_array().map(|a| a.iter().map(Value::to_string).collect()).unwrap_or_default();
    all.join("x")
}

fn print(launch: &LaunchProfile, shape: &str, projection: &Projection, lines: usize) {
    let t = &launch.profile.total;
    let [grid, block] = [launch.launch.grid, launch.launch.block].map(|d| d.map(|n| n.to_string()).join("x"));
    println!("{} with {shape}: grid {grid} of blocks {block} on sm_{}", launch.kernel, launch.sm);
    let say = |name: &str, text: String| println!("  {name:<22}{text}");
    let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    say("instructions", format!("{} of warps, {} of lanes", count(t.warp_instructions), count(t.lane_instructions)));
    say("lanes active", format!("{:.1} of 32 (without predicated-off ones)", t.lanes_active()));
    let classes: Vec<String> =
        launch.profile.classes().iter().map(|(c, w, _)| format!("{} {}", c.name(), count(*w))).collect();
    say("by class, of warps", classes.join(", "));
    let access = |name: &str, requests: u64, sectors: u64, used: u64| {
        if requests > 0 {
            let (per, each) = (ratio(sectors, requests), ratio(used, sectors));
            say(name, format!("{} requests, {per:.2} sectors each, {each:.1} of 32 bytes used", count(requests)));
        }
    };
    access("global loads", t.global_load_requests, t.global_load_sectors, t.global_load_bytes);
    access("global stores", t.global_store_requests, t.global_store_sectors, t.global_store_bytes);
    access("global to shared", t.global_copy_requests, t.global_copy_sectors, t.global_copy_bytes);
    if t.atomic_lanes > 0 {
        let requests = t.global_atom_requests + t.global_red_requests + t.shared_atom_requests;
        say("atomics", format!("{} requests of {} lanes", count(requests), count(t.atomic_lanes)));
    }
    let local = t.local_load_sectors + t.local_store_sectors;
    if local > 0 {
        say("local memory", format!("{} sectors", count(local)));
    }
    if t.shared_wavefronts() > 0 {
        let (all, conflicts) = (t.shared_wavefronts(), t.shared_conflicts());
        say("shared memory", format!("{} wavefronts, {} of them conflicts", count(all), count(conflicts)));
    }
    if t.branches > 0 {
        let uniform = 100.0 * ratio(t.branches - t.divergent_branches, t.branches);
        say("branches", format!("{}, {uniform:.1} % uniform", count(t.branches)));
    }
    if t.barriers > 0 {
        say("barriers", format!("{} arrivals of warps", count(t.barriers)));
    }
    let (low, high) = launch.profile.dram_bytes();
    say("DRAM", format!("{} (each sector once) to {} (no cache)", bytes(low), bytes(high)));
    if t.flop() + t.tensor > 0 {
        let intensity = ratio(t.flop() + t.tensor, low);
        say(
            "FLOP",
            format!("{}, and {} in matrix instructions; {intensity:.2} a byte", count(t.flop()), count(t.tensor)),
        );
    }
    if let Some(o) = launch.occupancy() {
        let by = if launch.registers_from == "ptxas" {
            "ptxas".to_owned()
        } else {
            "an estimate: ptxas was not found, or does not know the code".to_owned()
        };
        say(
            "occupancy",
            format!(
                "{:.0} %: {} blocks of {} warps, limited by {}; {} registers by {by}, {} bytes of shared memory",
                o.percent(),
                o.blocks(),
                o.warps,
                o.limiter(),
                launch.registers,
                launch.static_shared + launch.launch.dynamic_shared,
            ),
        );
    }
    if !launch.approximate.is_empty() {
        say("approximate", sentence(&approximate_json(&launch.approximate)));
        say("", format!("a GPU's results may differ from these within the bounds of {BOUNDS_FROM}"));
    }
    let (limiter, least) = projection.longest();
    let gpu = projection.gpu;
    println!("  projection on {}: at least {least:.2} us, by {limiter}", gpu.title);
    println!("    DRAM {:.2} to {:.2} us at {} GB/s", projection.dram.0, projection.dram.1, gpu.bandwidth);
    let others: Vec<String> = projection.others.iter().map(|(name, us)| format!("{name} {us:.2} us")).collect();
    println!("    {} on {} of {} multiprocessors", others.join(", "), projection.busy, gpu.multiprocessors);
    println!("    (a bound from counted PTX and data sheets, not a measurement; launch and latency are not in it)");
    println!();
    table_of_lines(launch, lines);
}

/// The lines that cost the most warp instructions: of Rust, or of PTX where there is no line information.
fn table_of_lines(launch: &LaunchProfile, most: usize) {
    let root = std::env::current_dir().unwrap_or_default();
    let mut rows: Vec<(String, Metrics)> = launch
        .source_lines()
        .into_iter()
        .map(|(file, line, m)| {
            let path = Path::new(&file);
            (format!("{}:{line}", path.strip_prefix(&root).unwrap_or(path).display()), m)
        })
        .collect();
    if rows.is_empty() {
        let line = |l: &warpsmith_simt::check::LineProfile| (format!("PTX {}: {}", l.ptx_line, l.ptx_text), l.metrics);
        rows = launch.profile.lines.iter().map(line).collect();
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r.1.warp_instructions));
    let all: u64 = rows.iter().map(|r| r.1.warp_instructions).sum();
    let left_out = rows.len().saturating_sub(most);
    let mut table = Table::new([
        ("line", Align::Left),
        ("warp inst", Align::Right),
        ("share", Align::Right),
        ("lanes", Align::Right),
        ("sectors", Align::Right),
        ("wavefronts", Align::Right),
        ("conflicts", Align::Right),
        ("divergent", Align::Right),
    ]);
    for (name, m) in rows.into_iter().take(most) {
        let or_dash = |n: u64| if n == 0 { "-".to_owned() } else { count(n) };
        table.row(vec![
            name,
            count(m.warp_instructions),
            format!("{:.1} %", 100.0 * m.warp_instructions as f64 / all.max(1) as f64),
            format!("{:.1}", m.lanes_active()),
            or_dash(m.global_sectors()),
            or_dash(m.shared_wavefronts()),
            or_dash(m.shared_conflicts()),
            or_dash(m.divergent_branches),
        ]);
    }
    print!("{table}");
    if left_out > 0 {
        println!("… and {left_out} more lines (--lines)");
    }
    println!();
}
