//! What `run` and `chat` share: a model on disk, on a device, and the text that it generates.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use warpsmith_host::Device;
use warpsmith_host::chat::Stops;
use warpsmith_host::decode::{
    DecoderOptions, LoadProgress, Mode, Model, Precision, Sampling, SequenceOptions, Session, SessionOptions,
};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::Tokenizer;

use super::processes::Party;
use crate::cli::{EngineArgs, SamplingArgs, StepArgs};
use crate::failure::{Failure, Kind};
use crate::table::bytes;

/// Everything about the model that does not need a device.
pub struct Loaded {
    pub path: PathBuf,
    pub file: ModelFile,
    /// `Err` says why this file's text cannot be read or written; token ids still work.
    pub tokenizer: Result<Tokenizer, String>,
}

impl Loaded {
    /// Opens a model for sequences of at most so many positions, if that is said, and refuses one for which there are no kernels.
    pub fn open(path: PathBuf, positions: Option<usize>) -> Result<Self, Failure> {
        let named = |e: &dyn std::fmt::Display| Failure::input(format!("{}: {e}", path.display()));
        let file = ModelFile::open_within(&path, positions.unwrap_or(usize::MAX)).map_err(|e| named(&e))?;
        file.check_kernels().map_err(|e| named(&e))?;
        let tokenizer = Tokenizer::from_gguf(file.gguf()).map_err(|e| e.to_string());
        Ok(Self { path, file, tokenizer })
    }
}

/// The devices that a model is run on, one at least.
pub struct Devices {
    /// The one that chooses tokens.
    pub first: Device,
    all: Vec<Device>,
    /// This process among others, if there are others.
    pub party: Option<Party>,
}

impl Devices {
    /// How many of this process they are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether another process reads and prints.
    pub fn listens(&self) -> bool {
        self.party.as_ref().is_some_and(|party| !party.speaks())
    }
}

/// Opens the devices that the options name, or the one of this process among others.
pub fn open_devices(args: &EngineArgs, party: Option<Party>) -> Result<Devices, Failure> {
    if let Some(choice) = args.driver {
        warpsmith_driver_api::select(choice.into()).map_err(|e| Failure::new(Kind::NoEngine, e.to_string()))?;
    }
    let ordinal = match (args.devices.first().copied().or(args.device), &party) {
        (Some(ordinal), _) => ordinal,
        (None, Some(party)) => party.device()?,
        (None, None) => 0,
    };
    let first = Device::open(ordinal)?;
    let mut all = vec![first.clone()];
    for ordinal in args.devices.iter().skip(1) {
        all.push(Device::open(*ordinal)?);
    }
    Ok(Devices { first, all, party })
}

/// Uploads the weights, or what this process has of them; says how far it is, where that takes more than two seconds.
pub fn load(devices: &Devices, file: &ModelFile, quiet: bool) -> Result<Model, Failure> {
    match &devices.party {
        Some(party) => party.load(&devices.first, file, teller(quiet || devices.listens())),
        None => Ok(Model::load_over_with(&devices.all, file, teller(quiet))?),
    }
}

fn teller(quiet: bool) -> impl FnMut(LoadProgress<'_>) {
    let mut said = Instant::now();
    move |LoadProgress { tensor, done, total }| {
        if !quiet && said.elapsed().as_secs() >= 2 {
            eprintln!("loading: {} of {} ({tensor})", bytes(done), bytes(total));
            said = Instant::now();
        }
    }
}

/// How the run rounds, as the options say.
pub fn precision(args: &EngineArgs) -> Precision {
    Precision { kv: args.step.kv, activations: args.step.activations, fast_prefill: args.fast_prefill }
}

/// A session with the options' engine and sampling, for `capacity` positions.
pub fn session(
    model: &Model,
    engine: &EngineArgs,
    sampling: &SamplingArgs,
    (capacity, prompt_logits): (usize, bool),
) -> Result<Session, Failure> {
    let SamplingArgs { temperature, top_k, top_p, penalty, seed, .. } = *sampling;
    let options = SessionOptions {
        sequence: SequenceOptions {
            capacity: Some(capacity),
            kv: precision(engine).kv,
            sampling: Sampling { temperature, top_k, top_p, penalty, seed },
        },
        decoder: DecoderOptions { prompt_logits, ..decoder_options(engine, capacity) },
    };
    Ok(Session::new(model, options)?)
}

/// What a decoder for sequences of `capacity` positions is made with.
pub fn decoder_options(engine: &EngineArgs, capacity: usize) -> DecoderOptions {
    let Precision { activations, fast_prefill, .. } = precision(engine);
    let StepArgs { tuned, no_programmatic, no_specialise, persistent, .. } = engine.step;
    DecoderOptions {
        mode: if engine.eager { Mode::Eager } else { Mode::Graph },
        fast_prefill,
        activations,
        tuned,
        programmatic: !no_programmatic,
        specialise: no_specialise.then_some(false),
        persistent,
        chunk: DecoderOptions::default().chunk.min(capacity.max(1)),
        ..Default::default()
    }
}

/// The texts that end a reply.
pub fn stops(args: &SamplingArgs) -> Result<Stops, Failure> {
    Stops::new(args.stop.iter().cloned()).map_err(|e| Failure::usage(format!("--stop: {e}")))
}

/// Why a text ended.
pub const BY_COUNT: &str = "count";
/// A token that ends texts.
pub const BY_TOKEN: &str = "end of text";
/// One of `--stop`.
pub const BY_STOP: &str = "stop text";

/// Tokens and how long they took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rate {
    /// Tokens.
    pub tokens: usize,
    /// Wall time.
    pub seconds: f64,
    /// Their quotient.
    pub tokens_per_second: f64,
}

impl Rate {
    /// Of so many tokens since `start`.
    pub fn since(start: Instant, tokens: usize) -> Rate {
        Rate::of(tokens, start.elapsed().as_secs_f64())
    }

    /// Of so many tokens in so many seconds.
    pub fn of(tokens: usize, seconds: f64) -> Rate {
        Rate { tokens, seconds, tokens_per_second: tokens as f64 / seconds.max(1e-9) }
    }
}

/// Model output is not trusted with the terminal: control characters but newline and tab are shown, not obeyed.
pub fn printable(text: &str) -> String {
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
