//! `warpsmith-runner`: serve a GGUF model over HTTP, or continue some prompts together.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use clap::{Parser, ValueEnum};
use tiny_http::Server;
use warpsmith_host::Device;
use warpsmith_host::decode::{KvType, LoadProgress, Model, Sampling};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, Tokenizer};
use warpsmith_runner::engine::{self, Event, Options, Request};
use warpsmith_runner::http::{self, Service};

/// Serves a GGUF model: requests are decoded together, one graph launch for a token of each.
///
///   warpsmith-runner --model M.gguf                       serves on http://127.0.0.1:8080
///   warpsmith-runner --model M.gguf "One" "Another"       continues these prompts and ends
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Cli {
    /// GGUF model.
    #[arg(long, value_name = "M.gguf")]
    model: PathBuf,
    /// Prompts to continue, instead of a server.
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Address to serve on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Requests that are decoded together, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 8)]
    batch: usize,
    /// Positions that a request may use [default: the model's context]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Type of the KV cache.
    #[arg(long, value_enum, default_value_t = Kv::F16)]
    kv: Kv,
    /// Device ordinal.
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,
    /// Tokens to generate for each prompt of the command line.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 64)]
    count: usize,
    /// Logits are divided by it; 0 takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kv {
    F16,
    F32,
    Int8,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let file = ModelFile::open(&cli.model)?;
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let device = Device::open(cli.device)?;
    let mut said = 0;
    let model = Model::load_with(&device, &file, |LoadProgress { done, total, .. }| {
        let percent = done * 100 / total.max(1);
        if percent / 10 > said {
            said = percent / 10;
            eprintln!("loading {percent} %");
        }
    })?;
    eprintln!("engine: {}", device.engine());
    let kv = match cli.kv {
        Kv::F16 => KvType::F16,
        Kv::F32 => KvType::F32,
        Kv::Int8 => KvType::Int8,
    };
    let options = Options { batch: cli.batch, context: cli.context, kv, end: tokenizer.eos() };
    if cli.prompts.is_empty() {
        serve(cli, &model, tokenizer, &options)
    } else {
        complete(cli, &model, &tokenizer, &options)
    }
}

fn serve(cli: &Cli, model: &Model, tokenizer: Tokenizer, options: &Options) -> Result<(), Box<dyn Error>> {
    let server = Server::http(&cli.listen).map_err(|e| format!("cannot listen on {}: {e}", cli.listen))?;
    eprintln!("serving http://{}/v1/completions", server.server_addr());
    let (queue, requests) = channel();
    let name = model.config().name.clone().unwrap_or_else(|| cli.model.display().to_string());
    let service = Arc::new(Service { tokenizer, model: name, queue });
    std::thread::scope(|threads| {
        threads.spawn(|| http::run(&server, &service));
        let result = engine::serve(model, options, &requests);
        server.unblock();
        result
    })?;
    Ok(())
}

fn complete(cli: &Cli, model: &Model, tokenizer: &Tokenizer, options: &Options) -> Result<(), Box<dyn Error>> {
    let (queue, requests) = channel();
    let mut replies = Vec::new();
    for prompt in &cli.prompts {
        let tokens = tokenizer.encode(prompt, Special::Text)?;
        let (reply, events) = channel();
        let sampling = Sampling { temperature: cli.temperature, ..Default::default() };
        queue.send(Request { tokens, max_tokens: cli.count, sampling, reply })?;
        replies.push(events);
    }
    drop(queue);
    engine::serve(model, options, &requests)?;
    for (prompt, events) in cli.prompts.iter().zip(replies) {
        let mut tokens = Vec::new();
        for event in events {
            match event {
                Event::Token(token) => tokens.push(token),
                Event::Done(_) => {}
                Event::Failed(text) => return Err(format!("{prompt:?}: {text}").into()),
            }
        }
        println!("{prompt}{}", tokenizer.decode(&tokens));
    }
    Ok(())
}
