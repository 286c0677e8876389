//! `warpsmith bench-model`: tokens a second of prompts and of generation, as `llama-bench` gives them.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Feed, Model, Pool, PoolOptions, Sequence, SequenceOptions, Session,
};
use warpsmith_host::model::ModelFile;

use super::named::Named;
use super::processes::Party;
use super::run::report::{EngineReport, ModelReport};
use super::run::shipped_model;
use super::session::{self, Loaded, Rate};
use crate::cli::{BenchModelArgs, EngineArgs, defaults};
use crate::failure::Failure;
use crate::output;
use crate::table::{Align, Table};

/// Runs of each test that are not timed: kernels are compiled in the first, and graphs of prompts captured in the second, whose work is
/// counted.
const UNTIMED: usize = 2;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    /// A prompt of so many tokens, fed at once to an empty sequence.
    Prompt(usize),
    /// So many tokens, fed one by one to an empty sequence, each the one that was chosen before.
    Generation(usize),
    /// The same of so many sequences together.
    Batch(usize, usize),
}

impl Workload {
    /// Positions that a sequence needs.
    fn length(self) -> usize {
        match self {
            Workload::Prompt(n) | Workload::Generation(n) | Workload::Batch(n, _) => n,
        }
    }

    /// Tokens of all sequences.
    fn tokens(self) -> usize {
        match self {
            Workload::Prompt(n) | Workload::Generation(n) => n,
            Workload::Batch(n, batch) => n * batch,
        }
    }

    /// As `llama-bench` has it.
    fn name(self) -> String {
        match self {
            Workload::Prompt(n) => format!("pp{n}"),
            Workload::Generation(n) => format!("tg{n}"),
            Workload::Batch(n, batch) => format!("tg{n} x {batch}"),
        }
    }

    /// Sequences that are fed together.
    fn batch(self) -> Option<usize> {
        match self {
            Workload::Prompt(_) | Workload::Generation(_) => None,
            Workload::Batch(_, batch) => Some(batch),
        }
    }

    /// Behind what [`Runner::begin`] has left.
    fn run(self, subject: &mut Runner, tokens: &[u32]) -> Result<Rate, DecodeError> {
        let start = Instant::now();
        match subject {
            Runner::One(session) => {
                if let Workload::Prompt(n) = self {
                    session.prefill(&tokens[..n])?;
                } else {
                    session.generate(&tokens[..1], self.length(), |_| ControlFlow::Continue(()))?;
                }
            }
            Runner::Many(decoder, sequences) => {
                let first = |i: usize| tokens[i % tokens.len()];
                let feed = |(i, sequence)| Feed { sequence, token: first(i) };
                let batch = self.batch().unwrap_or(1);
                let mut pipeline =
                    decoder.pipeline(sequences.iter_mut().take(batch).enumerate().map(feed).collect())?;
                pipeline.limit(self.length());
                while pipeline.next_tokens()?.is_some() {}
            }
        }
        Ok(Rate::since(start, self.tokens()))
    }
}

/// What tests are run on: one decoder at a time, as several processes have one.
enum Runner {
    /// A sequence alone.
    One(Box<Session>),
    /// Several, which keep keys and values in pages.
    Many(Box<Decoder>, Vec<Sequence>),
}

impl Runner {
    /// For tests of one sequence, or of at most so many together.
    fn new(model: &Model, engine: &EngineArgs, capacity: usize, batch: Option<usize>) -> Result<Runner, Failure> {
        let Some(batch) = batch else {
            let session = session::session(model, engine, &defaults(), (capacity, false))?;
            return Ok(Runner::One(Box::new(session)));
        };
        let decoder = Decoder::new(model, DecoderOptions { batch, ..session::decoder_options(engine, capacity) })?;
        let of = PoolOptions { kv: session::precision(engine).kv, ..Default::default() };
        let positions = batch * capacity.next_multiple_of(of.page);
        let pool = Pool::new(model, PoolOptions { positions, ..of })?;
        let options = SequenceOptions { capacity: Some(capacity), kv: of.kv, ..Default::default() };
        let sequences = (0..batch).map(|_| Sequence::in_pool(&pool, options)).collect::<Result<_, _>>()?;
        Ok(Runner::Many(Box::new(decoder), sequences))
    }

    /// Leaves so many sequences with these tokens and no others.
    fn begin(&mut self, batch: usize, tokens: &[u32]) -> Result<(), DecodeError> {
        let (decoder, sequences) = match self {
            Runner::One(session) => {
                let recurrent = session.model().config().delta.is_some();
                if recurrent || session.len() < tokens.len() {
                    session.reset();
                }
                session.rollback(tokens.len().min(session.len()))?;
                if session.len() < tokens.len() {
                    session.prefill(tokens)?;
                }
                return Ok(());
            }
            Runner::Many(decoder, sequences) => (decoder, sequences),
        };
        for sequence in sequences.iter_mut().take(batch) {
            sequence.reset();
            if !tokens.is_empty() {
                decoder.prefill(sequence, tokens)?;
            }
        }
        Ok(())
    }
}

/// What the software driver counted for each token of a test.
#[derive(Clone, Copy, Debug, Serialize)]
struct TokenCounts {
    /// Kernel launches; a graph's nodes are launches too.
    launches: f64,
    /// Warp instructions times active lanes.
    lane_instructions: f64,
    /// Bytes that loads and stores of device memory asked for.
    global_bytes: f64,
}

impl TokenCounts {
    /// Of what was launched since counters were reset.
    fn now(tokens: usize) -> TokenCounts {
        let mut all = TokenCounts { launches: 0.0, lane_instructions: 0.0, global_bytes: 0.0 };
        for k in software::profile() {
            all.launches += k.launches as f64;
            all.lane_instructions += k.counters.lane_instructions as f64;
            all.global_bytes += (k.counters.global_load_bytes + k.counters.global_store_bytes) as f64;
        }
        let each = |n: f64| n / tokens as f64;
        TokenCounts {
            launches: each(all.launches),
            lane_instructions: each(all.lane_instructions),
            global_bytes: each(all.global_bytes),
        }
    }
}

/// A line of the report.
#[derive(Debug, Serialize)]
struct BenchRow {
    test: String,
    tokens: usize,
    /// Tokens a second of each repetition.
    rates: Vec<f64>,
    mean: f64,
    /// Of the sample; 0 of a single repetition.
    standard_deviation: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_token: Option<TokenCounts>,
}

impl BenchRow {
    fn new(test: Workload, rates: Vec<f64>, per_token: Option<TokenCounts>) -> BenchRow {
        let n = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / n;
        let squares: f64 = rates.iter().map(|r| (r - mean).powi(2)).sum();
        let standard_deviation = if rates.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        BenchRow { test: test.name(), tokens: test.tokens(), rates, mean, standard_deviation, per_token }
    }
}

#[derive(Serialize)]
struct BenchReport {
    engine: EngineReport,
    model: ModelReport,
    kv: String,
    activations: String,
    fast_prefill: bool,
    /// Tokens in the cache before each test.
    depth: usize,
    repetitions: usize,
    tests: Vec<BenchRow>,
}

/// A model's file and where it is.
fn opened(path: PathBuf, args: &BenchModelArgs) -> Result<(ModelFile, PathBuf), Failure> {
    let loaded = Loaded::open(path, args.engine.context)?;
    Ok((loaded.file, loaded.path))
}

/// Runs the command.
pub fn run(args: &BenchModelArgs) -> Result<(), Failure> {
    let tests: Vec<Workload> = (args.prompt.iter().map(|n| Workload::Prompt(*n)))
        .chain(args.generate.iter().map(|n| Workload::Generation(*n)))
        .chain(args.batch.iter().flat_map(|b| args.generate.iter().map(|n| Workload::Batch(*n, *b))))
        .filter(|t| t.length() > 0)
        .collect();
    let longest = tests.iter().map(|t| t.length()).max();
    let longest = longest.ok_or_else(|| Failure::usage("there is nothing to time: -p and -n are both 0".to_owned()))?;
    let longest = longest + args.depth;
    let (file, path) = match (&args.model, args.format) {
        (None, None) if args.layers.is_some() => {
            return Err(Failure::usage("--layers is for shapes; name one by --model"));
        }
        (None, None) => opened(shipped_model()?, args)?,
        (None, Some(_)) => return Err(Failure::usage("--format is for shapes; name one by --model")),
        (Some(model), format) => match Named::of(model, format)? {
            Named::Shape(shape, format) => {
                let mut config = shape.config();
                config.layers = args.layers.unwrap_or(config.layers);
                let file = ModelFile::random(config, format, shape.tied).map_err(Failure::input)?;
                (file, PathBuf::from(format!("{} with random weights", shape.title)))
            }
            Named::File(_) if args.layers.is_some() => {
                return Err(Failure::usage("--layers is for shapes; a file has as many as it has"));
            }
            Named::File(path) => opened(path, args)?,
        },
    };
    let (context, vocab) = (file.config().context, file.config().vocab);
    let capacity = args.engine.context.unwrap_or(longest);
    if longest > capacity || capacity > context {
        return Err(Failure::input(format!(
            "{longest} tokens in a context of {capacity}: the model's context is {context} positions; ask for fewer by -p, -n and -d"
        )));
    }
    let devices = session::open_devices(&args.engine, Party::of(&args.engine.processes)?)?;
    let listens = devices.listens();
    let device = &devices.first;
    let (engine, model_report) = (EngineReport::new(&devices), ModelReport::new(&path, &file));
    if !args.json && !listens {
        println!("engine  {engine}\nmodel   {model_report}\n");
        output::flush();
    }
    let model = session::load(&devices, &file, args.json)?;
    // Any tokens: what they are changes no launch.
    let tokens: Vec<u32> = (0..longest).map(|i| ((i * 7919 + 13) % vocab) as u32).collect();
    let bar = if listens { ProgressBar::hidden() } else { ProgressBar::no_length() };
    bar.set_length((tests.len() * (args.repetitions + UNTIMED)) as u64);
    bar.set_style(
        ProgressStyle::with_template("{msg}: run {pos} of {len}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let (alone, together): (Vec<Workload>, Vec<Workload>) = tests.into_iter().partition(|test| test.batch().is_none());
    let mut rows = Vec::new();
    for tests in [alone, together] {
        let Some(first) = tests.first() else { continue };
        let batch = first.batch().and(args.batch.iter().copied().max());
        let mut subject = Runner::new(&model, &args.engine, capacity, batch)?;
        for test in tests {
            rows.push(row(test, &mut subject, (args.depth, &tokens), (args.repetitions, device.is_software()), &bar)?);
        }
    }
    bar.finish_and_clear();
    if listens {
        return Ok(());
    }
    let precision = session::precision(&args.engine);
    let report = BenchReport {
        engine,
        model: model_report,
        kv: precision.kv.to_string(),
        activations: precision.activations.to_string(),
        fast_prefill: precision.fast_prefill,
        depth: args.depth,
        repetitions: args.repetitions,
        tests: rows,
    };
    if args.json {
        output::json(&report)?;
    } else {
        print(&report, device.is_software());
    }
    Ok(())
}

/// Times a test, and counts it where that is possible.
fn row(
    test: Workload,
    subject: &mut Runner,
    (depth, tokens): (usize, &[u32]),
    (repetitions, counts): (usize, bool),
    bar: &ProgressBar,
) -> Result<BenchRow, Failure> {
    bar.set_message(test.name());
    let (before, tokens) = tokens.split_at(depth);
    let begin = |subject: &mut Runner| subject.begin(test.batch().unwrap_or(1), before);
    let mut per_token = None;
    for _ in 0..UNTIMED {
        begin(subject)?;
        software::reset_profile();
        test.run(subject, tokens)?;
        per_token = counts.then(|| TokenCounts::now(test.tokens()));
        bar.inc(1);
    }
    let mut rates = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        begin(subject)?;
        rates.push(test.run(subject, tokens)?.tokens_per_second);
        bar.inc(1);
    }
    Ok(BenchRow::new(test, rates, per_token))
}

fn print(report: &BenchReport, software: bool) {
    let mut columns = vec![("test", Align::Left), ("tokens/s", Align::Right), ("±", Align::Right)];
    if software {
        columns.extend(["launches/token", "lane instructions/token", "bytes/token"].map(|c| (c, Align::Right)));
    }
    let mut table = Table::new(columns);
    for row in &report.tests {
        let mut cells = vec![row.test.clone(), format!("{:.1}", row.mean), format!("{:.1}", row.standard_deviation)];
        if let Some(c) = row.per_token {
            cells.push(format!("{:.2}", c.launches));
            cells.push(format!("{:.2} M", c.lane_instructions / 1e6));
            cells.push(format!("{:.2} MB", c.global_bytes / 1e6));
        }
        table.row(cells);
    }
    print!("{table}");
    println!(
        "\nppN: a prompt of N tokens at once; tgN: N tokens one by one; tgN x B: of B sequences together, tokens of all; {} repetitions; \
         behind {} tokens; cache {}, activations {}",
        report.repetitions, report.depth, report.kv, report.activations
    );
    if software {
        println!(
            "tokens/s are this computer's: the software driver is no timing model. The counts are those of any GPU."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_mean_and_deviation_of_its_sample() {
        let row = BenchRow::new(Workload::Prompt(512), vec![1.0, 2.0, 3.0], None);
        assert_eq!((row.test.as_str(), row.tokens, row.mean, row.standard_deviation), ("pp512", 512, 2.0, 1.0));
        let single = BenchRow::new(Workload::Generation(8), vec![5.0], None);
        assert_eq!((single.test.as_str(), single.standard_deviation), ("tg8", 0.0));
    }
}
