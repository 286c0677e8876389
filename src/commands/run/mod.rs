//! `warpsmith run`: decode, and say what was run, how, and whether it is right.

mod logits;
mod progress;
pub mod report;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Instant;

use warpsmith_driver_api::software;
use warpsmith_host::Device;
use warpsmith_host::chat::Stops;
use warpsmith_host::decode::{Mode, Routes, Session};
use warpsmith_host::tokenizer::{Special, TextStream, Tokenizer};

use super::processes::Party;
use super::session::{self, BY_COUNT, BY_STOP, BY_TOKEN, Loaded, Rate, printable};
use crate::cli::RunArgs;
use crate::failure::{Failure, Kind};
use crate::output;
use progress::Progress;
use report::{EngineReport, GraphReport, KernelRow, ModelReport, Report};

/// Decoded when neither `--prompt` nor `--tokens` is given.
const DEFAULT_PROMPT: &str = "The woman said to him,";

/// The model that ships with the project, looked for below the current folder, then where the project was built.
pub fn shipped_model() -> Result<PathBuf, Failure> {
    let name = Path::new("models/warpsmith-2m-q8_0.gguf");
    let candidates = [name.to_owned(), Path::new(env!("CARGO_MANIFEST_DIR")).join(name)];
    candidates.into_iter().find(|p| p.is_file()).ok_or_else(|| {
        Failure::input(format!(
            "the model that ships with the project ({}) is not here: give one with --model",
            name.display()
        ))
    })
}

/// The tokens to continue.
fn prompt(loaded: &Loaded, args: &RunArgs) -> Result<Vec<u32>, Failure> {
    let vocab = loaded.file.config().vocab;
    let tokens = match (&args.tokens, &loaded.tokenizer) {
        (Some(tokens), _) => tokens.clone(),
        (None, Ok(tokenizer)) => {
            let text = args.prompt.as_deref().unwrap_or(DEFAULT_PROMPT);
            tokenizer.encode(text, Special::Parse).map_err(Failure::input)?
        }
        (None, Err(reason)) => {
            return Err(Failure::input(format!(
                "the prompt cannot be turned into tokens: {reason}; give ids with --tokens"
            )));
        }
    };
    if tokens.is_empty() {
        return Err(Failure::input("the prompt is empty: there is nothing to continue"));
    }
    if let Some((i, token)) = tokens.iter().enumerate().find(|&(_, &t)| t as usize >= vocab) {
        return Err(Failure::input(format!(
            "token {token} (number {i} of the prompt) is not in the vocabulary of {vocab}"
        )));
    }
    Ok(tokens)
}

/// Positions that the run needs, if the model and `--context` allow them.
fn context(loaded: &Loaded, prompt: usize, args: &RunArgs) -> Result<usize, Failure> {
    let most = loaded.file.config().context;
    // The last generated token is printed, not fed.
    let needed = prompt.saturating_add(args.count.saturating_sub(1));
    let limit = args.engine.context.unwrap_or(most);
    if limit == 0 || limit > most {
        return Err(Failure::input(format!("--context {limit}: the model's context is {most} positions")));
    }
    if needed > limit {
        let room = (limit + 1).saturating_sub(prompt);
        let hint = if prompt > limit {
            "shorten the prompt".to_owned()
        } else {
            format!("generate at most {room} tokens (-n {room}) or shorten the prompt")
        };
        return Err(Failure::input(format!(
            "{prompt} prompt tokens and {} generated ones need {needed} positions, but the context is {limit}: {hint}",
            args.count
        )));
    }
    Ok(args.engine.context.unwrap_or(needed))
}

/// Prints text as it comes, unless the run reports in JSON, and looks for texts that end it.
struct Printer<'a> {
    stream: Option<TextStream<'a>>,
    stops: Stops,
    silent: bool,
}

impl<'a> Printer<'a> {
    fn new(tokenizer: &'a Result<Tokenizer, String>, stops: Stops, silent: bool) -> Self {
        Self { stream: tokenizer.as_ref().ok().map(Tokenizer::stream), stops, silent }
    }

    fn text(&mut self, token: u32) -> String {
        match &mut self.stream {
            Some(stream) => stream.push(token),
            None => format!("{token} "),
        }
    }

    fn show(&self, text: &str) {
        if !self.silent {
            print!("{}", printable(text));
            output::flush();
        }
    }

    /// A token of the prompt, in which nothing ends the text.
    fn prompt(&mut self, token: u32) {
        let text = self.text(token);
        self.show(&text);
    }

    /// A generated token; whether a text ended with it that ends the run.
    fn generated(&mut self, token: u32) -> bool {
        let text = self.text(token);
        let text = self.stops.push(&text);
        self.show(&text);
        self.stops.found()
    }

    fn finish(mut self) {
        let last = self.stream.take().map(TextStream::finish).unwrap_or_default();
        let mut text = self.stops.push(&last);
        text.push_str(&std::mem::take(&mut self.stops).finish());
        text.push('\n');
        self.show(&text);
    }
}

/// What the decoding gave.
struct Decoded {
    fed: Vec<u32>,
    generated: Vec<u32>,
    /// One row per fed position, where they are wanted.
    logits: Vec<Vec<f32>>,
    /// The experts of each.
    experts: Vec<Routes>,
    /// Why it ended.
    ended_by: &'static str,
    prompt: Rate,
    generation: Rate,
}

fn decode(
    sequence: &mut Session,
    loaded: &Loaded,
    prompt: &[u32],
    args: &RunArgs,
    (keep_logits, silent): (bool, bool),
) -> Result<Decoded, Failure> {
    let mut printer = Printer::new(&loaded.tokenizer, session::stops(&args.sampling)?, silent);
    let ends = loaded.tokenizer.as_ref().ok().filter(|_| !args.sampling.ignore_eos);
    let (mut logits, mut experts) = (Vec::new(), Vec::new());
    let progress = Progress::new(prompt.len(), silent);
    let start = Instant::now();
    let mut next = match keep_logits {
        true => sequence.prefill_each(prompt, |row| {
            logits.push(row.logits);
            experts.push(row.experts);
            progress.tell(logits.len());
        })?,
        false => sequence.prefill_with_progress(prompt, |done| progress.tell(done))?,
    };
    let of_prompt = Rate::since(start, prompt.len());
    // Its line is where the text begins.
    drop(progress);
    prompt.iter().for_each(|&token| printer.prompt(token));
    let (mut fed, mut generated, mut ended_by) = (prompt.to_vec(), Vec::new(), BY_COUNT);
    let start = Instant::now();
    while generated.len() < args.count {
        generated.push(next);
        if ends.is_some_and(|t| t.is_eog(next)) {
            ended_by = BY_TOKEN;
            break;
        }
        if printer.generated(next) {
            ended_by = BY_STOP;
            break;
        }
        if generated.len() < args.count {
            let token = next;
            next = sequence.feed(token)?;
            fed.push(token);
            if keep_logits {
                logits.push(sequence.logits()?);
                experts.push(sequence.experts()?);
            }
        }
    }
    // The first token came with the prompt.
    let generation = Rate::since(start, fed.len() - prompt.len());
    printer.finish();
    Ok(Decoded { fed, generated, logits, experts, ended_by, prompt: of_prompt, generation })
}

/// Rows of the table: counted by the software driver, or timed by events on a GPU.
fn kernel_rows(device: &Device, sequence: &mut Session, decoded: &Decoded) -> Result<Vec<KernelRow>, Failure> {
    if device.is_software() {
        return Ok(KernelRow::counted(software::profile()));
    }
    // A graph launch is one event pair, so the last step is run again, launch by launch.
    let Some(&last) = decoded.fed.last() else { return Ok(Vec::new()) };
    sequence.rollback(decoded.fed.len() - 1)?;
    sequence.set_mode(Mode::Eager);
    let (_, profile) = sequence.profile(|s| s.feed(last))?;
    Ok(KernelRow::timed(&profile))
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    // Input first: nothing is uploaded for a prompt that cannot be run.
    let path = match &args.model {
        Some(path) => path.clone(),
        None => shipped_model()?,
    };
    let loaded = Loaded::open(path, args.engine.context)?;
    let prompt = prompt(&loaded, args)?;
    let capacity = context(&loaded, prompt.len(), args)?;
    if let (Err(reason), false) = (&loaded.tokenizer, args.sampling.stop.is_empty()) {
        return Err(Failure::input(format!("--stop looks for text, which this file does not give: {reason}")));
    }
    let party = Party::of(&args.engine.processes)?;
    let listens = party.as_ref().is_some_and(|party| !party.speaks());
    let silent = args.json || listens;
    let dumped = args.dump_logits.as_ref().filter(|_| !listens);
    let dump = dumped.map(|path| logits::Dump::new(path, &loaded.path)).transpose()?;

    let devices = session::open_devices(&args.engine, party)?;
    let engine = EngineReport::new(&devices);
    let model_report = ModelReport::new(&loaded.path, &loaded.file);
    if !silent {
        println!("engine  {engine}\nmodel   {model_report}");
        if let (Err(reason), None) = (&loaded.tokenizer, &args.prompt) {
            println!("text    not shown, token ids instead: {reason}");
        }
        println!();
    }

    let model = session::load(&devices, &loaded.file, args.json)?;
    let plan = verify::Plan::new(args.verify, &loaded.file, prompt.len() + args.count.saturating_sub(1));
    let keep_logits = args.dump_logits.is_some() || plan.positions > 0;
    let mut sequence = session::session(&model, &args.engine, &args.sampling, (capacity, keep_logits))?;
    software::reset_profile();
    let decoded = decode(&mut sequence, &loaded, &prompt, args, (keep_logits, silent))?;
    if let Some(dump) = dump {
        dump.write(&decoded.logits)?;
    }
    let precision = session::precision(&args.engine);
    let graph = GraphReport::new(&sequence, !args.engine.step.no_programmatic);
    let kernels = kernel_rows(&devices.first, &mut sequence, &decoded)?;
    if listens {
        return Ok(());
    }
    let reference = verify::compare(&plan, &loaded.file, precision, &decoded, args.json)?;

    let stops = session::stops(&args.sampling)?;
    let text = loaded.tokenizer.as_ref().ok().map(|t| t.decode_continuation(&decoded.generated));
    let (seconds, fed) = (decoded.prompt.seconds + decoded.generation.seconds, decoded.fed.len());
    let report = Report {
        engine,
        model: model_report,
        kv: precision.kv.to_string(),
        activations: precision.activations.to_string(),
        fast_prefill: precision.fast_prefill,
        context: capacity,
        text: text.map(|t| stops.cut(&t).to_owned()),
        ended_by: decoded.ended_by,
        tokens_fed: decoded.fed,
        tokens_generated: decoded.generated,
        graph,
        seconds,
        tokens_per_second: Rate::of(fed, seconds).tokens_per_second,
        prompt: decoded.prompt,
        generation: decoded.generation,
        kernels,
        reference,
    };
    if args.json {
        output::json(&report)?;
    } else {
        print!("{report}");
    }
    match &report.reference {
        Some(r) if !r.passed() => Err(Failure::new(Kind::Verification, r.to_string())),
        _ => Ok(()),
    }
}
