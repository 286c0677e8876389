//! A profile as text.

use std::path::Path;

use warpsmith_check::Metrics;
use warpsmith_simt::BOUNDS_FROM;

use super::counted::Counted;
use super::roofline::Roofline;
use crate::commands::approximate::sentence;
use crate::commands::shown;
use crate::table::{Align, Table, bytes, count};

/// Prints a launch, its projection and its dearest lines.
pub fn print(launch: &Counted, words: &str, projection: &Roofline, lines: usize) {
    let t = &launch.total;
    let [grid, block] = [launch.grid, launch.block].map(|d| d.map(|n| n.to_string()).join("x"));
    println!("{}{words}: grid {grid} of blocks {block} on sm_{}", launch.kernel, launch.sm);
    let say = |name: &str, text: String| println!("  {name:<22}{text}");
    let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    say("instructions", format!("{} of warps, {} of lanes", count(t.warp_instructions), count(t.lane_instructions)));
    say("lanes active", format!("{:.1} of 32 (without predicated-off ones)", t.lanes_active()));
    let classes: Vec<String> = launch.classes.iter().map(|(c, w, _)| format!("{c} {}", count(*w))).collect();
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
    let (low, high) = launch.dram;
    say("DRAM", format!("{} (each sector once) to {} (no cache)", bytes(low), bytes(high)));
    if t.flop() + t.tensor > 0 {
        let intensity = ratio(t.flop() + t.tensor, low);
        say(
            "FLOP",
            format!("{}, and {} in matrix instructions; {intensity:.2} a byte", count(t.flop()), count(t.tensor)),
        );
    }
    if let Some(o) = launch.occupancy() {
        let by = if launch.by_ptxas {
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
                launch.static_shared + launch.dynamic_shared,
            ),
        );
    }
    if !launch.approximate.is_empty() {
        say("approximate", sentence(&launch.approximate));
        say("", format!("a GPU's results may differ from these within the bounds of {BOUNDS_FROM}"));
    }
    print_projection(projection);
    println!();
    table_of_lines(launch, lines);
}

/// What a launch would take at least.
fn print_projection(projection: &Roofline) {
    let (limiter, least) = projection.longest();
    let gpu = projection.gpu;
    println!("  projection on {}: at least {least:.2} us, by {limiter}", gpu.title);
    println!("    DRAM {:.2} to {:.2} us at {} GB/s", projection.dram.0, projection.dram.1, gpu.bandwidth);
    let others: Vec<String> = projection.others.iter().map(|(name, us)| format!("{name} {us:.2} us")).collect();
    println!("    {} on {} of {} multiprocessors", others.join(", "), projection.busy, gpu.multiprocessors);
    println!(
        "    {:.2} us behind a launch that it depends on, by the model of `warpsmith project`",
        projection.launch.total()
    );
    println!("    (from counted PTX and data sheets, not a measurement; the latency of memory is not in it)");
}

/// The lines that cost the most warp instructions: of Rust, or of PTX where there is no line information.
fn table_of_lines(launch: &Counted, most: usize) {
    let mut rows: Vec<(String, Metrics)> = launch.lines.iter().map(|(name, m)| (shown(Path::new(name)), *m)).collect();
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
