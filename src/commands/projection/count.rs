//! What the launches of a step count: each kind of them once, on the memory of the device that they were listed for.

use std::ops::Range;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget};
use warpsmith_check::{ByWarp, Inspect, Start};
use warpsmith_device::launch::Start as Order;
use warpsmith_device::{Access, ArgMeta, Geometry};
use warpsmith_driver_api::software::{LaunchProfile, own_frame};
use warpsmith_host::decode::{ListedLaunch, ListedValue};
use warpsmith_host::gpu_kernels::gemv::SWIGLU;
use warpsmith_host::gpu_kernels::persistent::Instance as Layers;
use warpsmith_simt::{Instance, Launch, LoadOptions, Machine, Module};

use crate::commands::budget::{Assembled, PROFILE, Tools, assemble};
use crate::commands::estimate::Demand;
use crate::commands::estimate::counted::{demand, extended};
use crate::commands::estimate::figures::Figures;
use crate::commands::estimate::timeline::{self, Timeline, Wait};
use crate::failure::{Failure, Kind};

/// Blocks of a product that are run, and twice as many: the others do the same.
const FEW: u64 = 32;

/// Launches that differ in nothing but the layer that they are of.
pub struct LaunchKind {
    pub kernel: &'static str,
    pub geometry: Geometry,
    /// Threads of a block.
    pub threads: u32,
    /// How many.
    pub launches: usize,
    /// Rows and columns of the matrix of a product, and whether it is gates and ups.
    pub size: Option<(u32, u32)>,
    pub demand: Demand,
    /// Blocks that were run, if not all.
    pub ran: Option<u64>,
    /// Where warps wait, of machine code whose timeline is known.
    pub waits: Option<Waits>,
}

/// Where the warps of a launch wait.
pub struct Waits {
    pub timeline: Timeline,
    /// Instructions at which they wait longest, the longest first.
    pub places: Vec<WaitPlace>,
}

/// An instruction at which warps wait.
pub struct WaitPlace {
    /// Share of the time to the launch's end.
    pub path: f64,
    /// Share of all clocks of warps.
    pub warps: f64,
    pub wait: Wait,
    /// As nvdisasm prints it.
    pub instruction: String,
    /// The line of the kernel's source that it is from, if that is known.
    pub source: Option<(String, u32)>,
}

impl Waits {
    fn of(
        figures: &Figures,
        (profile, by_warp): (&LaunchProfile, &ByWarp),
        code: &Assembled,
        (blocks, demand): (u64, &Demand),
        start: Order,
    ) -> Waits {
        let timeline = Timeline::of(
            figures,
            &timeline::Launched {
                code: &code.code,
                lines: &profile.profile.lines,
                by_warp,
                blocks,
                threads: profile.launch.block.iter().product(),
                resident: demand.resident as u64,
                programmatic: start == Order::Programmatic,
            },
        );
        let place = |at: &timeline::InstructionWaits| {
            let i = &code.code.instructions[at.index];
            let line = profile.profile.lines.iter().find(|l| l.ptx_line == i.ptx_line);
            let source = line.and_then(|l| own_frame(&l.source)).map(|f| (f.file.clone(), f.line));
            let words = [&i.guard, &i.opcode, &i.operands].map(String::as_str);
            let instruction = words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
            WaitPlace { path: at.path, warps: at.warps, wait: at.wait, instruction, source }
        };
        let places = timeline.instructions.iter().map(place).collect();
        Waits { timeline, places }
    }
}

/// Whether two launches differ only in where their buffers are, and in what varies, such as which layer it is.
fn alike(a: &ListedLaunch, b: &ListedLaunch) -> bool {
    let same = |(meta, a): &(&'static ArgMeta, ListedValue), b: &ListedValue| match (a, b) {
        (ListedValue::Buffer { bytes: a, .. }, ListedValue::Buffer { bytes: b, .. }) => a == b,
        (ListedValue::Value(a), ListedValue::Value(b)) => {
            a.len() == b.len() && (0..).zip(a.iter().zip(b)).all(|(at, (a, b))| a == b || meta.varies_at(at))
        }
        _ => false,
    };
    let arguments = || a.arguments.iter().zip(&b.arguments);
    a.kernel.name == b.kernel.name && a.geometry == b.geometry && arguments().all(|(a, (_, b))| same(a, b))
}

/// Launches of a kind, and how many.
type Kinds = Vec<(ListedLaunch, usize)>;

/// The kinds of launches, in the order of their first ones.
fn kinds(listed: &[ListedLaunch]) -> Kinds {
    let mut kinds = Kinds::new();
    for launch in listed {
        match kinds.iter_mut().find(|(kind, _)| alike(kind, launch)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((launch.clone(), 1)),
        }
    }
    kinds
}

/// The engine that counts, and what makes machine code.
pub struct Engine<'a> {
    pub figures: &'a Figures,
    pub machine: &'a Machine,
    pub tools: Option<&'a Tools>,
    /// Without a bar of progress.
    pub quiet: bool,
}

/// Counts a step.
pub fn all(engine: &Engine<'_>, listed: &[ListedLaunch]) -> Result<Vec<LaunchKind>, Failure> {
    counted(engine, kinds(listed), listed)
}

/// Counts the phases of the layers of a step that are done in few launches, as the launches of `apart`, a step in which they are done in
/// five each: what `listed` has not, with the blocks that the phases take.
pub fn phases(
    engine: &Engine<'_>,
    listed: &[ListedLaunch],
    apart: &[ListedLaunch],
) -> Result<Vec<LaunchKind>, Failure> {
    let together = kinds(listed);
    let instances: Vec<Layers> =
        Layers::ALL.iter().copied().filter(|i| together.iter().any(|(l, _)| l.kernel.name == i.meta().name)).collect();
    let product = |kernel: &str| instances.iter().find(|i| i.replaces(kernel));
    // Of a product its weights say which it is: another of its shape may be outside.
    let of = |l: &ListedLaunch| (l.kernel.name, sizes(l).and_then(|size| Some((size, l.buffers().next()?.0))));
    let mut outside: Vec<&ListedLaunch> = listed.iter().collect();
    let inside = apart.iter().filter(|launch| {
        let same = |other: &&ListedLaunch| of(other) == of(launch) && other.geometry == launch.geometry;
        let place = outside.iter().position(same);
        place.is_none_or(|place| {
            outside.swap_remove(place);
            false
        })
    });
    let mut phases = Kinds::new();
    for (mut launch, n) in kinds(&inside.cloned().collect::<Vec<_>>()) {
        if let (Some(instance), Some((rows, _))) = (product(launch.kernel.name), sizes(&launch)) {
            let gated = launch.number("flags").is_some_and(|flags| flags & SWIGLU != 0);
            launch.geometry = instance.blocks_of_phase(rows, gated).unwrap_or(launch.geometry);
        }
        phases.push((launch, n));
    }
    counted(engine, phases, apart)
}

/// Counts kinds of launches of a step.
fn counted(engine: &Engine<'_>, kinds: Kinds, listed: &[ListedLaunch]) -> Result<Vec<LaunchKind>, Failure> {
    let Engine { figures, machine, tools, quiet } = *engine;
    let written = written(listed);
    let bar = ProgressBar::new(kinds.len() as u64);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let mut all = Vec::new();
    for (launch, launches) in kinds {
        let counted = one(figures, machine, &launch, tools, &written)
            .map_err(|e| Failure::new(Kind::Operation, format!("{}: {e}", launch.kernel.name)))?;
        all.push(LaunchKind { launches, ..counted });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Rows and columns of the matrix of a product.
fn sizes(launch: &ListedLaunch) -> Option<(u32, u32)> {
    launch.number("rows").zip(launch.number("cols"))
}

/// Where a step writes: what it reads there a cache of the chip has. Ranges that do not overlap, in order.
fn written(listed: &[ListedLaunch]) -> Vec<Range<u64>> {
    let buffers = listed.iter().flat_map(ListedLaunch::buffers);
    let mut all: Vec<Range<u64>> =
        buffers.filter(|b| b.2 != Access::Read && b.1 > 0).map(|(at, bytes, _)| at..at + bytes).collect();
    all.sort_by_key(|r| (r.start, r.end));
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in all {
        match apart.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => apart.push(range),
        }
    }
    apart
}

/// The PTX that a device of this capability is given for a launch.
fn code_of(launch: &ListedLaunch, sm: u32) -> Result<String, String> {
    let name = launch.kernel.name;
    let (_, text) = warpsmith_host::builtin_image().code_of(name, sm).map_err(|e| e.to_string())?;
    Ok(launch.constants.in_text(&text, name).unwrap_or_else(|| text.into_owned()))
}

fn one(
    figures: &Figures,
    machine: &Machine,
    launch: &ListedLaunch,
    tools: Option<&Tools>,
    written: &[Range<u64>],
) -> Result<LaunchKind, String> {
    let (name, gpu) = (launch.kernel.name, figures.gpu);
    let text = code_of(launch, gpu.sm)?;
    let module = Module::load(&text, &LoadOptions { sm: gpu.sm }).map_err(|e| e.to_string())?;
    let instance = machine.instantiate(Arc::new(module)).map_err(|e| e.to_string())?;
    let size = sizes(launch);
    let blocks: u64 = launch.geometry.grid.iter().map(|n| u64::from(*n)).product();
    // Blocks of other kernels do not all do the same. Those of further columns come behind those of all rows.
    let [of_rows, ..] = launch.geometry.grid.map(u64::from);
    let enough = if of_rows < blocks && of_rows <= 3 * FEW { of_rows } else { FEW };
    let few = size.filter(|_| blocks > 3 * enough).map(|_| enough);
    let memory = |profile: &LaunchProfile| {
        let (all, cached) = profile.profile.touched(written);
        [(all - cached) as f64, cached as f64]
    };
    let (profile, [dram, cached]) = match few {
        None => {
            let all = run(machine, &instance, launch, None, written)?;
            let bytes = memory(&all);
            (all, bytes)
        }
        Some(few) => {
            let first = run(machine, &instance, launch, Some(few), written)?;
            let twice = run(machine, &instance, launch, Some(2 * few), written)?;
            // Columns read the same weights again, which caches have.
            let more = |of: u64| (of as f64 - 2.0 * few as f64).max(0.0) / few as f64;
            let (of_first, of_twice) = (memory(&first), memory(&twice));
            let turns = [more(of_rows), more(blocks)];
            let bytes = [0, 1].map(|i| of_twice[i] + (of_twice[i] - of_first[i]) * turns[i]);
            (extended(&first, &twice, few, blocks), bytes)
        }
    };
    let code = tools.map(|tools| assemble(name, &text, gpu.sm, tools)).transpose().map_err(|e| e.to_string())?;
    let mut demand = demand(figures, &profile, code.as_ref(), (dram, cached))?;
    // Blocks that wait for one another at barriers of the grid would have to be simulated together.
    let followed = code.as_ref().filter(|_| gpu.sm == timeline::SM && !profile.launch.cooperative);
    let ran = few.map(|few| 2 * few);
    let waits = followed.map(|code| {
        let by_warp = started(machine, launch, few, |start| ByWarp::of(machine, &instance, start))?;
        let by_warp = by_warp.map_err(|fault| fault.to_string())?;
        Ok::<_, String>(Waits::of(figures, (&profile, &by_warp), code, (blocks, &demand), launch.geometry.start))
    });
    let waits = waits.transpose()?;
    demand.timeline = waits.as_ref().map(|w| w.timeline.us);
    let threads = launch.geometry.block_for(launch.kernel).iter().product();
    Ok(LaunchKind { kernel: name, geometry: launch.geometry, threads, launches: 1, size, demand, ran, waits })
}

/// Numbers of which hardly any two are equal, in no order.
fn logits(n: usize) -> Vec<u8> {
    (0..n as u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) as f32 / 2f32.powi(28)).to_le_bytes()).collect()
}

/// Lets `run` have a launch, or its first blocks, that finds memory as every launch does.
fn started<R>(
    machine: &Machine,
    listed: &ListedLaunch,
    first_blocks: Option<u64>,
    run: impl FnOnce(&Start<'_>) -> R,
) -> Result<R, String> {
    // Words by which blocks count are zero whenever a launch begins; one that was left early has not seen to that.
    for (meta, value) in &listed.arguments {
        let ListedValue::Buffer { address, bytes, access } = *value else { continue };
        if access == Access::ReadWrite && meta.element == "u32" && bytes > 0 {
            machine.memory().fill(address, &[0], bytes).map_err(|e| e.to_string())?;
        }
        // Who looks for the largest logit finds one, and not as many as there are.
        if access == Access::Read && meta.name == "logits" {
            machine.memory().write(address, &logits(bytes as usize / size_of::<f32>())).map_err(|e| e.to_string())?;
        }
    }
    let Geometry { grid, dynamic_shared, start, .. } = listed.geometry;
    let launch = Launch {
        dynamic_shared,
        max_dynamic_shared: dynamic_shared,
        cooperative: start == Order::Cooperative,
        ..Launch::new(grid, listed.geometry.block_for(listed.kernel))
    };
    let parameters = listed.parameters();
    Ok(run(&Start { first_blocks, ..Start::new(listed.kernel.name, &launch, &parameters) }))
}

/// Runs a launch, or its first blocks, that finds these addresses in caches, and counts.
fn run(
    machine: &Machine,
    instance: &Instance,
    listed: &ListedLaunch,
    first_blocks: Option<u64>,
    cached: &[Range<u64>],
) -> Result<LaunchProfile, String> {
    started(machine, listed, first_blocks, |start| {
        let ran = machine.inspect_start(instance, Start { checks: PROFILE, cached, ..*start });
        if let Some(fault) = ran.fault {
            return Err(fault.to_string());
        }
        let module = instance.module();
        let info = module.kernel(start.kernel).ok_or("its module does not have it")?;
        let profile = ran.profile.ok_or("nothing was counted")?;
        Ok(LaunchProfile::new(machine.config().sm, module, info, start.launch, profile))
    })?
}
