//! How costs are printed.

use serde_json::{Value, json};
use warpsmith_builder::nvdisasm::Nvdisasm;
use warpsmith_builder::ptxas::Ptxas;

use super::families;
use super::pipes::Pipe;
use super::weighed::Weighed;
use super::{Cost, attention};
use crate::cli::BudgetArgs;
use crate::table::{Align, Table};

/// Prints everything, and answers what is missed: by family and path the misses of the kernel that comes closest.
pub fn print(
    costs: &[Cost],
    runs: &[attention::Cost],
    args: &BudgetArgs,
    ptxas: &Ptxas,
    nvdisasm: &Nvdisasm,
) -> Vec<String> {
    let mut missed = missed(costs, args);
    // Every run has to hold, as each is another format or head.
    for c in runs.iter().filter(|c| !c.misses().is_empty()) {
        missed.push(format!("{} ({}, {}): {}", c.run.family(), c.run.kernel(), c.shape(), c.misses().join(", ")));
    }
    if args.json {
        let kernels: Vec<Value> = costs.iter().map(of_kernel).collect();
        let attention: Vec<Value> = runs.iter().map(attention::Cost::json).collect();
        println!(
            "{:#}",
            json!({
                "arch": "sm_90",
                "rows": args.rows,
                "cols": args.cols,
                "ptxas": ptxas.release(),
                "nvdisasm": nvdisasm.release(),
                "kernels": kernels,
                "attention": attention,
                "missed": missed,
            })
        );
        return missed;
    }
    if args.sass {
        costs.iter().for_each(|c| {
            let each = c.weighed.slots.hot.as_ref().map_or(0.0, |h| c.weights as f64 / (32.0 * h.iterations));
            let title = format!("{each:.0} weights a lane and iteration, {:.2} issue slots a weight", c.loop_slots());
            hot_loop(&c.kernel, &title, &c.weighed, ("weight", &|slots| c.per_weight(slots)));
        });
        for c in runs {
            let (each, turns) =
                (c.weighed.slots.hot.as_ref(), c.weighed.slots.hot.as_ref().map_or(1.0, |h| h.iterations));
            let title = format!("{}, {:.0} issue slots an iteration", c.shape(), each.map_or(0.0, |h| h.slots / turns));
            hot_loop(&c.run.kernel(), &title, &c.weighed, ("iteration", &|slots| slots / turns));
        }
    }
    if !costs.is_empty() {
        weights(costs, args, ptxas, nvdisasm);
    }
    if !runs.is_empty() {
        attention::print(runs);
    }
    missed
}

/// The table of weights.
fn weights(costs: &[Cost], args: &BudgetArgs, ptxas: &Ptxas, nvdisasm: &Nvdisasm) {
    let mut table = Table::new([
        ("family", Align::Left),
        ("kernel", Align::Left),
        ("x", Align::Left),
        ("error", Align::Right),
        ("budget", Align::Right),
        ("loop", Align::Right),
        ("kernel", Align::Right),
        ("counted", Align::Right),
        ("binds", Align::Left),
        ("regs", Align::Right),
        ("spills", Align::Right),
        ("occupancy", Align::Right),
        ("in flight", Align::Right),
        ("DRAM/floor", Align::Right),
        ("conflicts", Align::Right),
        ("16-byte", Align::Right),
        ("", Align::Left),
    ]);
    for c in costs {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            c.family.name.to_owned(),
            c.kernel.clone(),
            c.activations.to_string(),
            or_dash(c.error.map(|e| format!("{e:.0e}"))),
            or_dash(c.limit.map(|l| format!("{l:.2}"))),
            format!("{:.2}", c.loop_slots()),
            format!("{:.2}", c.kernel_slots()),
            format!("{:.2}", c.counted_slots()),
            c.binding(),
            c.weighed.launch.registers.to_string(),
            c.weighed.spills.to_string(),
            or_dash(c.weighed.occupancy().map(|o| format!("{o:.0} %"))),
            or_dash(c.weighed.in_flight().map(|b| format!("{:.0} KiB", b / 1024.0))),
            format!("{:.3}", c.traffic()),
            c.weighed.conflicts().to_string(),
            or_dash(c.wide().map(|w| format!("{:.0} %", 100.0 * w))),
            if c.misses().is_empty() { "held" } else { "missed" }.to_owned(),
        ]);
    }
    print!("{table}");
    println!();
    println!(
        "issue slots a weight on sm_90 over {} rows of {} columns: hot loop and whole kernel in machine code (ptxas {}, \
         nvdisasm {}), PTX instructions counted by the software driver; not time",
        args.rows,
        args.cols,
        ptxas.release(),
        nvdisasm.release()
    );
    println!();
    for c in costs {
        for miss in c.misses() {
            println!("{}: {miss}", c.kernel);
        }
    }
}

fn missed(costs: &[Cost], args: &BudgetArgs) -> Vec<String> {
    let mut all = Vec::new();
    for family in &families::ALL {
        let of_family: Vec<&Cost> = costs.iter().filter(|c| std::ptr::eq(c.family, family)).collect();
        if of_family.is_empty() {
            continue;
        }
        for (path, limit) in family.limits {
            let title = path.map_or_else(|| family.name.to_owned(), |p| format!("{} {p}", family.name));
            let on_path: Vec<&&Cost> =
                of_family.iter().filter(|c| path.is_none_or(|p| p == families::path(c.activations))).collect();
            let key = |c: &Cost| (c.misses().len(), c.loop_slots());
            let best = on_path.iter().min_by(|a, b| {
                let (a, b) = (key(a), key(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            match best {
                // A filter by kernel leaves out the others.
                None if args.filter.as_ref().is_some_and(|f| !family.is_named(f)) => {}
                None => all.push(format!("{title} has no kernel (budget {limit})")),
                Some(best) if !best.misses().is_empty() => {
                    all.push(format!("{title} ({}): {}", best.kernel, best.misses().join(", ")));
                }
                Some(_) => {}
            }
        }
    }
    all
}

fn of_kernel(c: &Cost) -> Value {
    let more = json!({
        "family": c.family.name,
        "format": c.family.format.name(),
        "kernel": c.kernel,
        "activations": c.activations.to_string(),
        "error": c.error,
        "shape": c.shape,
        "budget": c.limit,
        "loop_slots_per_weight": c.loop_slots(),
        "kernel_slots_per_weight": c.kernel_slots(),
        "counted_instructions_per_weight": c.counted_slots(),
        "dram_bytes_per_floor": c.traffic(),
        "share_of_16_byte_loads": c.wide(),
        "misses": c.misses(),
    });
    let of_loop = c.weighed.slots.hot.as_ref().map(|h| {
        json!({
            "weights_per_lane_and_iteration": c.weights as f64 / (32.0 * h.iterations),
            "holds_all_codes": h.holds_codes,
        })
    });
    c.weighed.json(|slots| c.per_weight(slots), more, of_loop.unwrap_or_default())
}

/// The hot loop as text, each block with how often a warp runs it in one iteration; slots are given for each `unit`.
fn hot_loop(
    kernel: &str,
    title: &str,
    Weighed { code, slots, .. }: &Weighed,
    (unit, per): (&str, &dyn Fn(f64) -> f64),
) {
    let Some(hot) = &slots.hot else {
        println!("{kernel}: no loop\n");
        return;
    };
    println!("{kernel}: {title}");
    for &b in &code.loops[hot.index].blocks {
        println!("  block of {} times an iteration", round(slots.executions[b] / hot.iterations));
        for i in &code.instructions[code.blocks[b].range.clone()] {
            let (guard, pipe) = (&i.guard, Pipe::of(i).name());
            println!("    {:04x}  {pipe:<8} {guard:>5} {} {}", i.address, i.opcode, i.operands);
        }
    }
    let each = hot.pipes.iter().map(|(p, n)| format!("{} {:.3}", p.name(), per(*n)));
    println!("  slots a {unit}: {}", each.collect::<Vec<_>>().join(", "));
    let each = hot.pressure.iter().map(|(p, n)| format!("{} {:.3}", p.name(), per(*n)));
    println!("  slots while a pipe is busy: {}\n", each.collect::<Vec<_>>().join(", "));
}

fn round(x: f64) -> String {
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
