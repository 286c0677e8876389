//! How costs are printed.

use serde_json::{Value, json};

use super::cost::Cost;
use super::known::{BudgetVerdict, Miss};
use super::pipes::Pipe;
use super::weighed::Weighed;
use super::{Measured, Tools, attention, bytes, flight, gemm};
use crate::cli::BudgetArgs;
use crate::table::{Align, Table};

/// Misses in words.
pub fn texts(misses: &[Miss]) -> Vec<&str> {
    misses.iter().map(|m| m.text.as_str()).collect()
}

/// Prints everything; `unbudgeted` are kernels without a budget, by why they have none.
pub fn print(
    measured: &Measured,
    verdict: &BudgetVerdict,
    unbudgeted: &[(&'static str, Vec<&str>)],
    args: &BudgetArgs,
    tools: &Tools,
) {
    let Measured { costs, flights, attention: runs, many, bytes: moved, resources } = measured;
    if args.json {
        let named =
            unbudgeted.iter().flat_map(|(why, all)| all.iter().map(move |k| json!({ "kernel": k, "why": why })));
        println!(
            "{:#}",
            json!({
                "arch": "sm_90",
                "ptxas": tools.ptxas.release(),
                "nvdisasm": tools.nvdisasm.release(),
                "kernels": costs.iter().map(of_kernel).collect::<Vec<_>>(),
                "in_flight": flights.iter().map(flight::Flight::json).collect::<Vec<_>>(),
                "attention": runs.iter().map(attention::AttentionCost::json).collect::<Vec<_>>(),
                "many_columns": many.iter().map(gemm::GemmCost::json).collect::<Vec<_>>(),
                "bytes": moved.iter().map(bytes::Traffic::json).collect::<Vec<_>>(),
                "unbudgeted": named.collect::<Vec<_>>(),
                "missed": verdict.failures,
                "known": verdict.known,
            })
        );
        return;
    }
    if args.sass {
        for c in costs {
            let each = c.weighed.slots.hot.as_ref().map_or(0.0, |h| c.weights as f64 / (32.0 * h.iterations));
            let title = format!(
                "{} columns, {each:.0} weights a lane and iteration, {:.2} issue slots a weight in all loops",
                c.cols,
                c.loop_slots()
            );
            hot_loop(&c.kernel, &title, &c.weighed, ("weight", &|slots| c.per_weight(slots)));
        }
        for c in runs {
            let (each, turns) =
                (c.weighed.slots.hot.as_ref(), c.weighed.slots.hot.as_ref().map_or(1.0, |h| h.iterations));
            let slots = each.map_or(0.0, |h| h.work.slots);
            let title = format!("{}, {:.0} issue slots an iteration", c.shape(), slots / turns);
            hot_loop(&c.run.kernel(), &title, &c.weighed, ("iteration", &|slots| slots / turns));
        }
    }
    if !costs.is_empty() {
        weights(costs, tools);
    }
    if !flights.is_empty() {
        flight::print(flights);
    }
    if !runs.is_empty() {
        attention::print(runs);
    }
    if !many.is_empty() {
        gemm::print(many);
    }
    if !moved.is_empty() {
        bytes::print(moved);
    }
    if args.filter.is_none() {
        println!("\nwithout a budget of slots and bytes:");
        unbudgeted.iter().for_each(|(why, all)| println!("  {}: {why}", all.join(", ")));
        println!("\nlocal memory: {} kernels assembled for sm_90", resources.len());
        for (kernel, bytes, why) in super::every::with_local_memory() {
            println!("  {kernel} may have {bytes} bytes: {why}");
        }
    }
    if !verdict.known.is_empty() {
        println!("\nmissed, as it is listed:");
        verdict.known.iter().for_each(|k| println!("  {k}"));
    }
}

/// The table of weights.
fn weights(costs: &[Cost], tools: &Tools) {
    let mut table = Table::new([
        ("family", Align::Left),
        ("kernel", Align::Left),
        ("columns", Align::Right),
        ("x", Align::Left),
        ("error", Align::Right),
        ("budget", Align::Right),
        ("loop", Align::Right),
        ("kernel", Align::Right),
        ("counted", Align::Right),
        ("binds", Align::Left),
        ("regs", Align::Right),
        ("local", Align::Right),
        ("occupancy", Align::Right),
        ("DRAM/floor", Align::Right),
        ("conflicts", Align::Right),
        ("16-byte", Align::Right),
        ("", Align::Left),
    ]);
    for c in costs {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let [registers, local, occupancy] = c.weighed.resources();
        table.row(vec![
            c.family.name.to_owned(),
            c.kernel.clone(),
            c.cols.to_string(),
            c.activations.to_string(),
            format!("{:.0e}", c.error),
            or_dash(c.limit.map(|l| format!("{l:.2}"))),
            format!("{:.2}", c.loop_slots()),
            format!("{:.2}", c.kernel_slots()),
            format!("{:.2}", c.counted_slots()),
            c.binding(),
            registers,
            local,
            occupancy,
            format!("{:.3}", c.traffic()),
            c.weighed.conflicts().to_string(),
            or_dash(c.wide().map(|w| format!("{:.0} %", 100.0 * w))),
            if c.misses().is_empty() { "held" } else { "missed" }.to_owned(),
        ]);
    }
    print!("{table}");
    println!();
    println!(
        "issue slots a weight on sm_90: all loops and the whole kernel in machine code (ptxas {}, nvdisasm {}), PTX instructions \
         counted by the software driver; not time",
        tools.ptxas.release(),
        tools.nvdisasm.release()
    );
}

fn of_kernel(c: &Cost) -> Value {
    let more = json!({
        "family": c.family.name,
        "format": c.family.format.name(),
        "kernel": c.kernel,
        "activations": c.activations.to_string(),
        "error": c.error,
        "shape": c.shape,
        "columns": c.cols,
        "budget": c.limit,
        "loop_slots_per_weight": c.loop_slots(),
        "loop_time_per_weight": c.loop_time(),
        "kernel_slots_per_weight": c.kernel_slots(),
        "counted_instructions_per_weight": c.counted_slots(),
        "dram_bytes_per_floor": c.traffic(),
        "share_of_16_byte_loads": c.wide(),
        "misses": texts(&c.misses()),
    });
    let of_loop = c.weighed.slots.hot.as_ref().map(|h| {
        json!({
            "weights_per_lane_and_iteration": c.weights as f64 / (32.0 * h.iterations),
            "holds_all_codes": h.work.holds_codes,
        })
    });
    c.weighed.json(|slots| c.per_weight(slots), more, of_loop.unwrap_or_default())
}

/// The hot loop as text, each block with how often a warp runs it in one iteration; slots are given for each `unit`.
fn hot_loop(
    kernel: &str,
    title: &str,
    Weighed { assembled, slots, .. }: &Weighed,
    (unit, per): (&str, &dyn Fn(f64) -> f64),
) {
    let Some(hot) = &slots.hot else {
        println!("{kernel}: no loop\n");
        return;
    };
    let code = &assembled.code;
    println!("{kernel}: {title}");
    for &b in &code.loops[hot.index].blocks {
        println!("  block of {} times an iteration", round(slots.executions[b] / hot.iterations));
        for i in &code.instructions[code.blocks[b].range.clone()] {
            let (guard, pipe) = (&i.guard, Pipe::of(i).name());
            println!("    {:04x}  {pipe:<8} {guard:>5} {} {}", i.address, i.opcode, i.operands);
        }
    }
    let each = hot.work.pipes.iter().map(|(p, n)| format!("{} {:.3}", p.name(), per(*n)));
    println!("  slots a {unit}: {}", each.collect::<Vec<_>>().join(", "));
    let each = hot.work.pressure.iter().map(|(p, n)| format!("{} {:.3}", p.name(), per(*n)));
    println!("  slots while a pipe is busy: {}\n", each.collect::<Vec<_>>().join(", "));
}

fn round(x: f64) -> String {
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
