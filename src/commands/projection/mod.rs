//! `warpsmith project`: the time of a step on a GPU that is not here, of decoding or of a prompt. The launches are those that a decoder lists for the
//! model, each kind is counted once on the software driver, and [`estimate`](super::estimate) makes time of what it counts.

mod count;
mod report;
mod subject;

use warpsmith_arch::Gpu;
use warpsmith_driver_api::Choice;
use warpsmith_driver_api::software::machine;
use warpsmith_host::Device;
use warpsmith_host::decode::{Decoder, DecoderOptions, Model, Part, Predict, Sequence, SequenceOptions};
use warpsmith_host::device::launch::Start;
use warpsmith_host::gpu_kernels::persistent::THREADS;

use super::budget::Tools;
use super::estimate::figures::Figures;
use super::estimate::{Time, read_rate, timeline};
use super::profile::gpus;
use crate::cli::ProjectionArgs;
use crate::failure::{Failure, Kind};
use count::{Engine, LaunchKind};
use subject::ProjectedModel;

/// By how much the counted bytes may differ from those that a step of one token has to move, and one of several: what says of each where it
/// is counts too.
const NEAR: [f64; 2] = [0.02, 0.05];

/// A step, as it is projected.
struct Projection {
    figures: Figures,
    subject: ProjectedModel,
    /// Kinds of launches, in the order of their first ones, with the time of each.
    launches: Vec<(LaunchKind, Time)>,
    /// Phases of the layers that are done in few launches, with the time of each.
    phases: Vec<(LaunchKind, Time)>,
    /// Layers that take a launch for themselves or for several.
    persistent_layers: usize,
    programmatic: bool,
    /// Tokens of the step.
    tokens: usize,
    /// Bytes that a step has to move: weights and what is cached.
    needed: u64,
    /// Release of ptxas; `None`: counts are of PTX.
    ptxas: Option<String>,
}

impl Projection {
    /// Tokens of the step a second.
    fn rate(&self) -> f64 {
        1e6 * self.tokens as f64 / self.sum()
    }

    /// Microseconds of the step.
    fn sum(&self) -> f64 {
        self.launches.iter().map(|(c, t)| c.launches as f64 * t.total()).sum()
    }

    /// Launches of the step.
    fn count(&self) -> usize {
        self.launches.iter().map(|(c, _)| c.launches).sum()
    }

    /// Bytes of memory that were counted.
    fn dram(&self) -> f64 {
        self.launches.iter().map(|(c, _)| c.launches as f64 * c.demand.dram).sum()
    }

    /// Microseconds in which memory delivers what a step has to move.
    fn floor(&self) -> f64 {
        self.needed as f64 / read_rate(self.figures.gpu)
    }
}

/// Runs the command.
pub fn run(args: &ProjectionArgs) -> Result<(), Failure> {
    let figures = Figures::new(gpus::find(&args.gpu).map_err(Failure::usage)?, args.rates.as_deref())?;
    let subject = ProjectedModel::of(args)?;
    let tools = tools()?;
    if args.waits.is_some() {
        followed(&figures, tools.is_some())?;
    }
    let device = device(figures.gpu)?;
    let model = Model::reserve(&device, &subject.file)?;
    let of_decoder = DecoderOptions {
        chunk: args.prompt.unwrap_or(1),
        batch: args.sequences,
        fast_prefill: args.fast_prefill,
        positions: Some(args.context),
        activations: args.step.activations,
        tuned: args.step.tuned,
        programmatic: !args.step.no_programmatic,
        // As on the GPU that is meant.
        specialise: Some(!args.step.no_specialise),
        persistent: args.step.persistent,
        ..DecoderOptions::default()
    };
    let mut decoder = Decoder::new(&model, of_decoder)?;
    let options = SequenceOptions { capacity: Some(args.context), kv: args.step.kv, ..SequenceOptions::default() };
    let tokens = vec![0; args.prompt.unwrap_or(1)];
    let behind = args.context.checked_sub(tokens.len()).ok_or_else(|| {
        Failure::usage(format!("a prompt of {} tokens ends behind --context {}", tokens.len(), args.context))
    })?;
    let mut sequences =
        (0..args.sequences).map(|_| Sequence::new(&model, options)).collect::<Result<Vec<Sequence>, _>>()?;
    let mut list = |decoder: &mut Decoder| {
        let part = |sequence| Part { sequence, tokens: &tokens, predict: Predict::Next };
        let mut parts: Vec<Part<'_>> = sequences.iter_mut().map(part).collect();
        decoder.list_mixed(&mut parts, behind)
    };
    let listed = list(&mut decoder)?;
    let reported = match args.prompt {
        Some(_) => None,
        None => Some(decoder.launches_per_step(args.sequences, args.step.kv)?),
    };
    let machine = machine(0).ok_or_else(|| Failure::new(Kind::NoEngine, "the software driver does not run"))?;
    let engine = Engine { figures: &figures, machine, tools: tools.as_ref(), quiet: args.json };
    let counted = count::all(&engine, &listed)?;
    let together: Vec<&LaunchKind> = counted.iter().filter(|c| c.geometry.start == Start::Cooperative).collect();
    let phases = if together.is_empty() {
        Vec::new()
    } else {
        // Their launch has the same code for all scalars, as cooperative ones do.
        let of_apart = DecoderOptions { persistent: false, specialise: Some(false), ..of_decoder };
        let mut apart = Decoder::new(&model, of_apart)?;
        let mut counted = count::phases(&engine, &listed, &list(&mut apart)?)?;
        // A block of the launch takes as many of a phase's as have its threads.
        let resident = together.iter().map(|c| c.demand.resident).fold(f64::INFINITY, f64::min);
        for c in &mut counted {
            c.demand.resident = (resident * f64::from(THREADS) / f64::from(c.threads)).min(c.demand.resident);
        }
        counted.into_iter().map(|c| (c.demand.time_of_phase(&figures), c)).map(|(time, c)| (c, time)).collect()
    };
    let projection = Projection {
        needed: subject.needed(args),
        subject,
        launches: times(&figures, counted, &phases),
        figures,
        phases,
        persistent_layers: decoder.persistent_layers(),
        programmatic: decoder.programmatic(),
        tokens: tokens.len() * args.sequences,
        ptxas: tools.map(|t| t.ptxas.release().to_string()),
    };
    report::print(&projection, args);
    check(&projection, reported)
}

/// The time of each kind of launches. Of launches of several phases each has the share of these that it has of the bytes.
fn times(figures: &Figures, counted: Vec<LaunchKind>, phases: &[(LaunchKind, Time)]) -> Vec<(LaunchKind, Time)> {
    let cooperative = |c: &LaunchKind| c.geometry.start == Start::Cooperative;
    let bytes: f64 = counted.iter().filter(|c| cooperative(c)).map(|c| c.launches as f64 * c.demand.dram).sum();
    let time = |c: &LaunchKind| {
        if !cooperative(c) {
            return c.demand.time(figures, c.geometry.start == Start::Programmatic);
        }
        let share = c.demand.dram / bytes;
        let phases = phases.iter().map(|(phase, time)| (share * phase.launches as f64, *time));
        Time::of_phases(figures, c.demand.barriers, phases)
    };
    counted.into_iter().map(|c| (time(&c), c)).map(|(time, c)| (c, time)).collect()
}

/// Whether warps can be followed, which who asks where they wait needs.
fn followed(figures: &Figures, tools: bool) -> Result<(), Failure> {
    let gpu = figures.gpu;
    if gpu.sm != timeline::SM {
        let text = format!("--waits knows the latencies of sm_{}, and {} is sm_{}", timeline::SM, gpu.title, gpu.sm);
        return Err(Failure::usage(text));
    }
    if tools { Ok(()) } else { Tools::find("project --waits").map(drop) }
}

/// The tools that make machine code, if they are there; an error if they were named and are not.
fn tools() -> Result<Option<Tools>, Failure> {
    let named = |name| std::env::var_os(name).is_some_and(|path| !path.is_empty());
    match Tools::find("project") {
        Ok(tools) => Ok(Some(tools)),
        Err(_) if !named("WARPSMITH_PTXAS") && !named("WARPSMITH_NVDISASM") => Ok(None),
        Err(missing) => Err(missing),
    }
}

/// The software driver as a device of that GPU's architecture, with as much memory as any model wants: what is not touched takes none.
fn device(gpu: &Gpu) -> Result<Device, Failure> {
    // SAFETY: nothing of this process has started a thread that reads the environment: the engine has not begun.
    unsafe {
        std::env::set_var("WARPSMITH_SM", gpu.sm.to_string());
        if std::env::var_os("WARPSMITH_MEMORY").is_none() {
            std::env::set_var("WARPSMITH_MEMORY", "1T");
        }
    }
    warpsmith_driver_api::select(Choice::Software).map_err(|e| Failure::new(Kind::NoEngine, e.to_string()))?;
    Ok(Device::open(0)?)
}

/// What was counted has to be what a decoder says that it launches, and what a step has to move.
fn check(p: &Projection, reported: Option<usize>) -> Result<(), Failure> {
    if let Some(reported) = reported.filter(|reported| p.count() != *reported) {
        let text = format!("{} launches were counted, and a decoder reports {reported}", p.count());
        return Err(Failure::new(Kind::Operation, text));
    }
    let (counted, needed) = (p.dram(), p.needed as f64);
    if (counted / needed - 1.0).abs() > NEAR[usize::from(p.tokens > 1)] {
        let text = format!(
            "{counted:.0} bytes of memory were counted, and a step has to move {needed:.0}: the times are of another step"
        );
        return Err(Failure::new(Kind::Operation, text));
    }
    Ok(())
}
