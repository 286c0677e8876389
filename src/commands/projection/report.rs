//! A projection as text and as JSON.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Projection;
use super::count::{LaunchKind, WaitPlace, Waits};
use super::subject::Goal;
use crate::cli::ProjectionArgs;
use crate::commands::estimate::timeline::{self, Timeline, Wait};
use crate::commands::estimate::{CACHED, EDGE, LATENCY, PROGRAMMATIC, READS, Time, read_rate};
use crate::commands::shown;
use crate::table::{Align, Table, bytes};

/// Places of a launch at which warps wait that a JSON object has.
const PLACES: usize = 16;

/// Prints it.
pub fn print(p: &Projection, args: &ProjectionArgs) {
    if args.json {
        println!("{:#}", json(p, args));
        return;
    }
    let step = match (args.prompt, args.sequences, args.context - 1) {
        (Some(tokens), _, last) => format!("a prompt's {tokens} tokens up to position {last}"),
        (None, 1, at) => format!("a step of one token at position {at}"),
        (None, all, at) => format!("a step of {all} sequences, a token of each at position {at}"),
    };
    println!("{}, projected onto one {}: {step}\n", p.subject.title, p.figures.gpu.title);
    println!("{}", table(p, &p.launches));
    if !p.phases.is_empty() {
        println!("phases of layers in one launch, each with its barrier:\n\n{}", table(p, &p.phases));
    }
    let (sum, floor, dram) = (p.sum(), p.floor(), p.dram());
    println!("sum     {:.3} ms in {} launches, {:.0} tokens/s", sum / 1e3, p.count(), p.rate());
    println!(
        "floor   {:.3} ms: {} at {:.2} TB/s, {:.0} % of the sum",
        floor / 1e3,
        bytes(p.needed),
        read_rate(p.figures.gpu) / 1e6,
        100.0 * floor / sum
    );
    println!("counted {} of memory, {:.3} of what a step has to move", bytes(dram as u64), dram / p.needed as f64);
    if let Some(goal) = p.subject.goal {
        let verdict = if goal.is_met(p.tokens, sum) { "met" } else { "missed" };
        match goal {
            Goal::Milliseconds(most) => println!("goal    {most:.2} ms: {verdict}"),
            Goal::Tokens(least) => println!("goal    {least:.0} tokens/s: {verdict}"),
        }
    }
    if let Some(device) = p.figures.measured_on() {
        println!("rates   of pipes, tensor cores and barriers, as measured on {device}");
    }
    if let Some(most) = args.waits {
        println!();
        places(p, most);
    }
    println!("\nassumed, not measured:");
    assumptions(p, args).iter().for_each(|line| println!("  {line}"));
}

/// What the figures stand on.
fn assumptions(p: &Projection, args: &ProjectionArgs) -> Vec<String> {
    let memory = format!("memory delivers {:.2} TB/s, {READS} of the data sheet's", read_rate(p.figures.gpu) / 1e6);
    let mut all = vec![format!(
        "a launch takes its edge, and then as long as the slowest of memory, issue, pipe and latency; an edge {EDGE} us, {PROGRAMMATIC:.2} \
         if the launch is programmatic"
    )];
    match &p.ptxas {
        Some(release) if p.launches.iter().any(|(c, _)| c.waits.is_some()) => all.extend([
            format!("{memory}, {} us after it was asked by who asks alone", timeline::MEMORY),
            format!(
                "latency is a multiprocessor of sm_{} that is followed clock by clock through the machine code of its warps by ptxas {release}, and \
                 has all others in it; how near it is to an H200 is in docs/benchmarks.md",
                timeline::SM
            ),
        ]),
        ptxas => {
            let longer =
                if args.prompt.is_some() { "products of 512 columns took 2.7 to 2.9" } else { "steps took 1.9 to 2.4" };
            all.extend([
                format!("{memory}, {LATENCY} us after it was asked; what the step wrote itself is in L2 and comes after {CACHED} us"),
                "the fullest multiprocessor issues four instructions of warps a clock; a wave of resident blocks ends before the next begins"
                    .to_owned(),
                match ptxas {
                    Some(release) => format!("instructions and loads on the way are those of machine code by ptxas {release}"),
                    None => "instructions are those of PTX, as ptxas and nvdisasm were not found: what is on the way is not known, and latency no bound"
                        .to_owned(),
                },
                format!("that warps wait for one load after the other is not counted: on an H200 {longer} times as long (benches/results)"),
            ]);
        }
    }
    if p.launches.iter().any(|(c, _)| c.ran.is_some()) {
        all.push("products with many blocks are counted over some of them, as all do the same".to_owned());
    }
    if p.persistent_layers > 0 {
        all.push(format!(
            "{} layers are launches with barriers of the grid, {:.2} us each: a phase between two of them takes as long as the slowest of its own, \
             and what is asked for across a barrier counts for nothing",
            p.persistent_layers, p.figures.barrier
        ));
    } else if args.step.persistent {
        all.push("no layer is taken by a persistent launch".to_owned());
    }
    if !args.step.no_programmatic && !p.programmatic {
        all.push("launches are not programmatic: the GPU has none".to_owned());
    }
    all
}

/// What the end of a launch waits for, as shares of its time.
fn waits(c: &LaunchKind) -> String {
    let Some(waits) = &c.waits else { return "-".to_owned() };
    let most = waits.timeline.path.iter().take(3).filter(|(_, share)| *share >= 0.01);
    most.map(|(wait, share)| format!("{} {:.0} %", wait.name(), 100.0 * share)).collect::<Vec<_>>().join(", ")
}

/// The places at which warps wait longest.
fn places(p: &Projection, most: usize) {
    for (c, _) in &p.launches {
        let Some(waits) = &c.waits else { continue };
        let columns = [
            ("of the time", Align::Right),
            ("of warps", Align::Right),
            ("for", Align::Left),
            ("instruction", Align::Left),
            ("source", Align::Left),
        ];
        let mut table = Table::new(columns);
        for place in waits.places.iter().take(most) {
            let source = place
                .source
                .as_ref()
                .map_or_else(|| "-".to_owned(), |(file, line)| format!("{}:{line}", shown(Path::new(file))));
            let [path, warps] = [place.path, place.warps].map(|share| format!("{:.1} %", 100.0 * share));
            table.row(vec![path, warps, place.wait.name().to_owned(), place.instruction.clone(), source]);
        }
        println!(
            "{} {}, {} blocks of {} threads: where warps wait\n\n{table}",
            c.kernel,
            size(c),
            c.demand.blocks,
            c.threads
        );
    }
}

fn size(c: &LaunchKind) -> String {
    c.size.map_or_else(|| "-".to_owned(), |(rows, cols)| format!("{rows} x {cols}"))
}

fn table(p: &Projection, rows: &[(LaunchKind, Time)]) -> Table {
    let right = [
        "launches",
        "blocks",
        "a SM",
        "waves",
        "in flight",
        "memory",
        "edges",
        "memory",
        "issue",
        "pipe",
        "latency",
        "us",
        "all",
    ];
    let columns = [("kernel", Align::Left), ("size", Align::Left)].into_iter();
    let mut table = Table::new(
        columns
            .chain(right.map(|name| (name, Align::Right)))
            .chain([("binds", Align::Left), ("waits for", Align::Left)]),
    );
    for (c, time) in rows {
        let d = &c.demand;
        let us = |t: f64| if t < 0.005 { "-".to_owned() } else { format!("{t:.2}") };
        let in_flight = d.on_the_way(p.figures.gpu);
        table.row(vec![
            c.kernel.to_owned(),
            size(c),
            c.launches.to_string(),
            format!("{:.0}", d.blocks),
            format!("{:.0}", d.resident),
            format!("{:.0}", d.waves(p.figures.gpu)),
            if in_flight > 0.0 { bytes(in_flight as u64) } else { "-".to_owned() },
            bytes(d.dram.max(0.0) as u64),
            us(time.edges),
            us(time.memory),
            us(time.issue),
            us(time.pipe),
            us(time.latency),
            us(time.total()),
            us(c.launches as f64 * time.total()),
            time.bound().name().to_owned(),
            waits(c),
        ]);
    }
    table
}

fn json_of_waits(waits: &Waits) -> Value {
    let shares = |of: &[(Wait, f64)]| {
        of.iter().map(|(wait, share)| (wait.name().to_owned(), json!(share))).collect::<Map<_, _>>()
    };
    let place = |place: &WaitPlace| {
        json!({
            "path": place.path,
            "warps": place.warps,
            "for": place.wait.name(),
            "instruction": place.instruction,
            "file": place.source.as_ref().map(|s| &s.0),
            "line": place.source.as_ref().map(|s| s.1),
        })
    };
    let Timeline { path, warps, .. } = &waits.timeline;
    json!({ "path": shares(path), "warps": shares(warps), "places": waits.places.iter().take(PLACES).map(place).collect::<Vec<_>>() })
}

fn json(p: &Projection, args: &ProjectionArgs) -> Value {
    let launch = |(c, time): &(LaunchKind, Time)| {
        let d = &c.demand;
        json!({
            "kernel": c.kernel,
            "rows": c.size.map(|s| s.0),
            "cols": c.size.map(|s| s.1),
            "launches": c.launches,
            "blocks": d.blocks,
            "resident_blocks": d.resident,
            "waves": d.waves(p.figures.gpu),
            "bytes_in_flight": d.on_the_way(p.figures.gpu),
            "dram_bytes": d.dram,
            "l2_bytes": d.cached,
            "warp_instructions": d.issue,
            "barriers": d.barriers,
            "us": {
                "edges": time.edges,
                "memory": time.memory,
                "issue": time.issue,
                "pipe": time.pipe,
                "latency": time.latency,
                "total": time.total(),
            },
            "binds": time.bound().name(),
            "waits": c.waits.as_ref().map(json_of_waits),
        })
    };
    json!({
        "projection": true,
        "gpu": p.figures.gpu.title,
        "rates_measured_on": p.figures.measured_on(),
        "model": p.subject.title,
        "context": args.context,
        "sequences": args.sequences,
        "prompt": args.prompt,
        "tokens": p.tokens,
        "kv": args.step.kv.to_string(),
        "activations": args.step.activations.to_string(),
        "programmatic": p.programmatic,
        "persistent_layers": p.persistent_layers,
        "counts": if p.ptxas.is_some() { "machine code" } else { "PTX" },
        "ptxas": p.ptxas,
        "launches": p.launches.iter().map(launch).collect::<Vec<_>>(),
        "phases": p.phases.iter().map(launch).collect::<Vec<_>>(),
        "launches_a_step": p.count(),
        "dram_bytes": p.dram(),
        "needed_bytes": p.needed,
        "sum_us": p.sum(),
        "floor_us": p.floor(),
        "share_of_floor": p.floor() / p.sum(),
        "tokens_a_second": p.rate(),
        "goal_us": p.subject.goal.map(|goal| match goal {
            Goal::Milliseconds(most) => 1e3 * most,
            Goal::Tokens(least) => 1e6 * p.tokens as f64 / least,
        }),
        "assumed": assumptions(p, args),
    })
}
