//! `warpsmith inspect`: a kernel's code beside the Rust that it is from, with what each line counts.

mod issue;
mod listing;
mod subject;

use serde_json::{Value, json};
use warpsmith_builder::{Arch, ptxas, ptxas::Resources};
use warpsmith_driver_api::software::Occupancy;

use super::budget::{Tools, sass};
use crate::cli::{InspectArgs, View};
use crate::failure::{Failure, Kind};
use crate::table::{bytes, count};
use issue::Issue;
use listing::Sources;
use subject::Subject;

/// Runs the command.
pub fn run(args: &InspectArgs) -> Result<(), Failure> {
    let view = args.view();
    // Before anything that takes time.
    let tools = if view == View::Sass { Some(Tools::find("inspect --sass")?) } else { None };
    let subject = Subject::find(args, args.sm)?;
    let assembler = tools.as_ref().map(|t| t.ptxas.clone()).or_else(ptxas::find);
    let refused = |e| Failure::new(Kind::Toolchain, format!("ptxas refuses `{}` on sm_{}: {e}", args.kernel, args.sm));
    let arch: Arch = format!("sm_{}", args.sm).parse().map_err(|e| Failure::usage(format!("{e}")))?;
    let (resources, code) = match (&assembler, &tools) {
        (Some(ptxas), None) => (ptxas.assemble_entry(&subject.ptx, &args.kernel, arch).map_err(refused)?, None),
        (Some(ptxas), Some(tools)) => {
            let found = ptxas.compile_entry(&subject.ptx, &args.kernel, arch).map_err(refused)?;
            let (resources, cubin) = found
                .ok_or_else(|| Failure::new(Kind::Toolchain, format!("ptxas made no code of `{}`", args.kernel)))?;
            let toolchain = |e: String| Failure::new(Kind::Toolchain, e);
            let text = tools.nvdisasm.disassemble(&cubin).map_err(|e| toolchain(e.to_string()))?;
            (Some(resources), Some(sass::read(&text, &args.kernel).map_err(toolchain)?))
        }
        (None, _) => (None, None),
    };
    let issue = code.as_ref().zip(subject.profile.as_ref()).map(|(code, profile)| Issue::of(code, profile));
    let mut sources = Sources::default();
    if args.json {
        let mut value = to_json(args, &subject, resources.as_ref(), code.as_ref(), &mut sources);
        value["issue"] = issue.as_ref().map(Issue::to_json).into();
        return print(&format!("{value:#}\n"));
    }
    let mut text = head(args, &subject, resources.as_ref(), issue.as_ref());
    match (view, &code) {
        (View::Sass, Some(code)) => {
            text += &listing::beside(&listing::sass(&subject, code), &mut sources, "SASS").to_string();
            if subject.profile.is_some() {
                text +=
                    "\nCounters are those of the PTX line that an instruction is from, of which it may be a part.\n";
            }
        }
        (View::Rust, _) => text += &listing::rust(&subject, &mut sources).to_string(),
        _ => text += &listing::beside(&listing::ptx(&subject), &mut sources, "PTX").to_string(),
    }
    print(&text)
}

/// Writes a long text, of which a pager or `head` may not want all.
fn print(text: &str) -> Result<(), Failure> {
    print!("{text}");
    crate::output::check()
}

/// Registers of a thread, and bytes of shared memory of a block that are declared; by ptxas if it was found.
fn registers(subject: &Subject, resources: Option<&Resources>) -> (Option<u32>, u32) {
    let estimate = || subject.profile.as_ref()?["metrics"]["launch__registers_per_thread"].as_u64().map(|n| n as u32);
    (resources.map(|r| r.registers).or_else(estimate), resources.map_or(subject.static_shared, |r| r.static_shared))
}

/// Threads of a block and dynamic shared memory: the launch's, else what the text says.
fn block(subject: &Subject) -> (Option<u32>, u32) {
    let metric = |name: &str| subject.profile.as_ref()?["metrics"][name].as_u64().map(|n| n as u32);
    let threads = metric("launch__block_size").or(subject.threads);
    (threads, metric("launch__shared_mem_per_block_dynamic").unwrap_or(0))
}

fn occupancy(args: &InspectArgs, subject: &Subject, resources: Option<&Resources>) -> Option<Occupancy> {
    let ((registers, shared), (threads, dynamic)) = (registers(subject, resources), block(subject));
    Occupancy::of(args.sm, registers?, shared, dynamic, threads?)
}

/// What stands above the listing.
fn head(args: &InspectArgs, subject: &Subject, resources: Option<&Resources>, issue: Option<&Issue>) -> String {
    let mut out = format!("{} on sm_{}: {}\n", args.kernel, args.sm, subject.from);
    let mut say = |name: &str, text: String| out.push_str(&format!("  {name:<14}{text}\n"));
    match (registers(subject, resources).0, resources) {
        (_, Some(r)) => {
            let spills = r.spill_stores + r.spill_loads;
            say("registers", format!("{}, {spills} bytes of spills, {} bytes of stack", r.registers, r.stack));
        }
        (Some(n), None) => {
            say("registers", format!("about {n}: ptxas was not found (`warpsmith doctor` says how to get it)"))
        }
        (None, None) => say("registers", "unknown: ptxas was not found (`warpsmith doctor` says how to get it)".into()),
    }
    say(
        "shared memory",
        format!(
            "{} declared, {} dynamic",
            bytes(registers(subject, resources).1.into()),
            bytes(block(subject).1.into())
        ),
    );
    if let Some(o) = occupancy(args, subject, resources) {
        let (percent, blocks) = (o.percent(), o.blocks());
        say("occupancy", format!("{percent:.0} %: {blocks} blocks of {} warps, limited by {}", o.warps, o.limiter()));
    }
    match &subject.profile {
        Some(profile) => {
            let dims = |v: &Value| -> String {
                v.as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>().join("x")
            };
            let metric = |name: &str| profile["metrics"][name].as_u64().unwrap_or(0);
            let launches = profile["launches"].as_u64().unwrap_or(1);
            say(
                "launched",
                format!(
                    "{launches} x grid {} of blocks {}: {} instructions of warps, {} of lanes",
                    dims(&profile["grid"]),
                    dims(&profile["block"]),
                    count(metric("smsp__inst_executed.sum")),
                    count(metric("smsp__thread_inst_executed_pred_on.sum")),
                ),
            );
        }
        None => say("launched", "never, as far as is known here: no counters".into()),
    }
    if let Some(issue) = issue {
        let slots = |n: f64| count(n.round() as u64);
        let loops = issue.loops.as_ref().map_or(0.0, |l| l.slots);
        say(
            "issued",
            format!("{} instructions of warps in machine code, {} in loops", slots(issue.kernel), slots(loops)),
        );
    }
    for note in &subject.notes {
        say("note", note.clone());
    }
    out.push('\n');
    out
}

fn to_json(
    args: &InspectArgs,
    subject: &Subject,
    resources: Option<&Resources>,
    code: Option<&sass::Code>,
    sources: &mut Sources,
) -> Value {
    let (count, shared) = registers(subject, resources);
    let (threads, dynamic) = block(subject);
    let occupancy = occupancy(args, subject, resources);
    let profile = subject.profile.as_ref();
    json!({
        "kernel": args.kernel,
        "sm": args.sm,
        "from": subject.from,
        "registers": count,
        "registers_from": match (count, resources) {
            (_, Some(_)) => Some("ptxas"),
            (Some(_), None) => Some("estimate"),
            (None, None) => None,
        },
        "spill_stores": resources.map(|r| r.spill_stores),
        "spill_loads": resources.map(|r| r.spill_loads),
        "stack": resources.map(|r| r.stack),
        "static_shared": shared,
        "dynamic_shared": dynamic,
        "threads": threads,
        "occupancy_percent": occupancy.as_ref().map(Occupancy::percent),
        "blocks_per_multiprocessor": occupancy.as_ref().map(Occupancy::blocks),
        "grid": profile.map(|p| p["grid"].clone()),
        "block": profile.map(|p| p["block"].clone()),
        "launches": profile.map(|p| p["launches"].clone()),
        "metrics": profile.map(|p| p["metrics"].clone()),
        "notes": subject.notes,
        "rust": listing::rust_to_json(subject, sources),
        "ptx": listing::to_json(&listing::ptx(subject), false),
        "sass": code.map(|c| listing::to_json(&listing::sass(subject, c), true)),
    })
}
