//! `warpsmith run`: decode, and say what was run, how, and whether it is right.

mod report;
mod verify;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use warpsmith_driver_api::software;
use warpsmith_host::Device;
use warpsmith_host::decode::{Activations, KvType, LoadProgress, Mode, Model, Sampling, Session, SessionOptions};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, TextStream, Tokenizer};

use crate::cli::{ActivationsChoice, KvChoice, RunArgs};
use crate::failure::{Failure, Kind};
use crate::table::bytes;
use report::{EngineReport, GraphReport, KernelRow, ModelReport, Report};

/// Decoded when neither `--prompt` nor `--tokens` is given.
const DEFAULT_PROMPT: &str = "The woman said to him,";

/// The model that ships with the project, looked for below the current folder, then where the project was built.
fn shipped_model() -> Result<PathBuf, Failure> {
    let name = Path::new("models/warpsmith-2m-q8_0.gguf");
    let candidates = [name.to_owned(), Path::new(env!("CARGO_MANIFEST_DIR")).join(name)];
    candidates.into_iter().find(|p| p.is_file()).ok_or_else(|| {
        Failure::input(format!(
            "the model that ships with the project ({}) is not here: give one with --model",
            name.display()
        ))
    })
}

/// Everything about the model that does not need a device.
struct Loaded {
    path: PathBuf,
    file: ModelFile,
    /// `Err` says why this file's text cannot be read or written; token ids still work.
    tokenizer: Result<Tokenizer, String>,
}

impl Loaded {
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let named = |e: &dyn std::fmt::Display| Failure::input(format!("{}: {e}", path.display()));
        let file = ModelFile::open(&path).map_err(|e| named(&e))?;
        let tokenizer = Tokenizer::from_gguf(file.gguf()).map_err(|e| e.to_string());
        Ok(Self { path, file, tokenizer })
    }

    fn prompt(&self, args: &RunArgs) -> Result<Vec<u32>, Failure> {
        let vocab = self.file.config().vocab;
        let tokens = match (&args.tokens, &self.tokenizer) {
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
    fn context(&self, prompt: usize, args: &RunArgs) -> Result<usize, Failure> {
        let most = self.file.config().context;
        // The last generated token is printed, not fed.
        let needed = prompt.saturating_add(args.count.saturating_sub(1));
        let limit = args.context.unwrap_or(most);
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
        Ok(args.context.unwrap_or(needed))
    }
}

/// Prints text as it comes, unless the run reports in JSON.
struct Printer<'a> {
    stream: Option<TextStream<'a>>,
    silent: bool,
}

impl<'a> Printer<'a> {
    fn new(tokenizer: &'a Result<Tokenizer, String>, silent: bool) -> Self {
        Self { stream: tokenizer.as_ref().ok().map(Tokenizer::stream), silent }
    }

    /// Broken pipes end the output, not the run: the report or the logits may still be wanted.
    fn push(&mut self, token: u32) {
        if self.silent {
            return;
        }
        let text = match &mut self.stream {
            Some(stream) => stream.push(token),
            None => format!("{token} "),
        };
        let mut out = std::io::stdout();
        let _ = out.write_all(printable(&text).as_bytes()).and_then(|()| out.flush());
    }

    fn finish(self) {
        if let (Some(stream), false) = (self.stream, self.silent) {
            println!("{}", printable(&stream.finish()));
        } else if !self.silent {
            println!();
        }
    }
}

/// Model output is not trusted with the terminal: control characters but newline and tab are shown, not obeyed.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// What the decoding gave.
struct Decoded {
    fed: Vec<u32>,
    generated: Vec<u32>,
    /// One row per fed position, where they are wanted.
    logits: Vec<Vec<f32>>,
    /// Why it ended before the asked-for count.
    ended_by: &'static str,
    seconds: f64,
}

fn decode(
    sequence: &mut Session,
    loaded: &Loaded,
    prompt: &[u32],
    args: &RunArgs,
    keep_logits: bool,
) -> Result<Decoded, Failure> {
    let mut printer = Printer::new(&loaded.tokenizer, args.json);
    let eos = loaded.tokenizer.as_ref().ok().and_then(Tokenizer::eos).filter(|_| !args.ignore_eos);
    let mut decoded =
        Decoded { fed: Vec::new(), generated: Vec::new(), logits: Vec::new(), ended_by: "count", seconds: 0.0 };
    let start = Instant::now();
    let feed = |decoded: &mut Decoded, sequence: &mut Session, token: u32| -> Result<u32, Failure> {
        let next = sequence.feed(token)?;
        decoded.fed.push(token);
        if keep_logits {
            decoded.logits.push(sequence.logits()?);
        }
        Ok(next)
    };
    let mut next = 0;
    for &token in prompt {
        printer.push(token);
        next = feed(&mut decoded, sequence, token)?;
    }
    while decoded.generated.len() < args.count {
        decoded.generated.push(next);
        if eos == Some(next) {
            decoded.ended_by = "end of text";
            break;
        }
        printer.push(next);
        if decoded.generated.len() < args.count {
            next = feed(&mut decoded, sequence, next)?;
        }
    }
    decoded.seconds = start.elapsed().as_secs_f64();
    printer.finish();
    Ok(decoded)
}

fn write_logits(path: &Path, file: File, rows: &[Vec<f32>]) -> Result<(), Failure> {
    let mut out = BufWriter::new(file);
    let mut write = || -> std::io::Result<()> {
        for value in rows.iter().flatten() {
            out.write_all(&value.to_le_bytes())?;
        }
        out.flush()
    };
    write().map_err(|e| Failure::write(path, &e))
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

/// Uploads the weights; says how far it is, where that takes more than two seconds.
fn load(device: &Device, file: &ModelFile, quiet: bool) -> Result<Model, Failure> {
    let mut said = Instant::now();
    Ok(Model::load_with(device, file, |LoadProgress { tensor, done, total }| {
        if !quiet && said.elapsed().as_secs() >= 2 {
            eprintln!("loading: {} of {} ({tensor})", bytes(done), bytes(total));
            said = Instant::now();
        }
    })?)
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    if let Some(choice) = args.driver {
        warpsmith_driver_api::select(choice.into()).map_err(|e| Failure::new(Kind::NoEngine, e.to_string()))?;
    }
    // Input first: nothing is uploaded for a prompt that cannot be run, and no file is left half written.
    let loaded = Loaded::open(match &args.model {
        Some(path) => path.clone(),
        None => shipped_model()?,
    })?;
    let prompt = loaded.prompt(args)?;
    let capacity = loaded.context(prompt.len(), args)?;
    let dump = match &args.dump_logits {
        Some(path) => Some((path, File::create(path).map_err(|e| Failure::write(path, &e))?)),
        None => None,
    };

    let device = Device::open(args.device)?;
    let engine = EngineReport::new(&device);
    let model_report = ModelReport::new(&loaded.path, &loaded.file);
    if !args.json {
        println!("engine  {engine}\nmodel   {model_report}");
        if let (Err(reason), None) = (&loaded.tokenizer, &args.prompt) {
            println!("text    not shown, token ids instead: {reason}");
        }
        println!();
    }

    let model = load(&device, &loaded.file, args.json)?;
    let kv = match args.kv {
        KvChoice::F16 => KvType::F16,
        KvChoice::F32 => KvType::F32,
        KvChoice::Int8 => KvType::Int8,
    };
    let activations = match args.activations {
        ActivationsChoice::F32 => Activations::F32,
        ActivationsChoice::Int16 => Activations::Int16,
        ActivationsChoice::Int8 => Activations::Int8,
    };
    let mode = if args.eager { Mode::Eager } else { Mode::Graph };
    let RunArgs { temperature, top_k, top_p, penalty, seed, tuned, programmatic, persistent, .. } = *args;
    let sampling = Sampling { temperature, top_k, top_p, penalty, seed };
    let options = SessionOptions {
        capacity: Some(capacity),
        kv,
        sampling,
        mode,
        activations,
        tuned,
        programmatic,
        persistent,
        ..Default::default()
    };
    let mut sequence = Session::new(&model, options)?;

    let plan = verify::Plan::new(args.verify, &loaded.file, prompt.len() + args.count.saturating_sub(1));
    software::reset_profile();
    let decoded = decode(&mut sequence, &loaded, &prompt, args, dump.is_some() || plan.positions > 0)?;
    if let Some((path, file)) = dump {
        write_logits(path, file, &decoded.logits)?;
    }
    let graph = GraphReport::new(&sequence, programmatic);
    let kernels = kernel_rows(&device, &mut sequence, &decoded)?;
    let reference = verify::compare(&plan, &loaded.file, (kv, activations), &decoded.fed, &decoded.logits, args.json)?;

    let report = Report {
        engine,
        model: model_report,
        kv: kv.to_string(),
        activations: activations.to_string(),
        context: capacity,
        tokens_per_second: (decoded.fed.len() as f64 / decoded.seconds.max(1e-9)),
        text: loaded.tokenizer.as_ref().ok().map(|t| t.decode_continuation(&decoded.generated)),
        ended_by: decoded.ended_by,
        tokens_fed: decoded.fed,
        tokens_generated: decoded.generated,
        graph,
        seconds: decoded.seconds,
        kernels,
        reference,
    };
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&report).map_err(|e| Failure::new(Kind::Operation, e.to_string()))?
        );
    } else {
        print!("{report}");
    }
    match &report.reference {
        Some(r) if !r.passed() => Err(Failure::new(Kind::Verification, r.to_string())),
        _ => Ok(()),
    }
}
