//! `warpsmith-runner`: serve a GGUF model over HTTP, or continue some prompts together.

mod cli;

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Parser;
use cli::Cli;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use warpsmith_host::chat::ChatTemplate;
use warpsmith_host::collectives::{Exchange, Peers, World};
use warpsmith_host::decode::{LoadProgress, Model, Sampling};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, Tokenizer};
use warpsmith_host::{Device, builtin_image};
use warpsmith_runner::engine::{self, Options};
use warpsmith_runner::http::request::Defaults;
use warpsmith_runner::http::{self, Service};
use warpsmith_runner::metrics::Metrics;
use warpsmith_runner::queue::{Event, Prompt, Queue, Requests};
use warpsmith_runner::ranks;
use warpsmith_runner::serve::{self, Limits, Signals};

/// Time for the engine to end the step that it is in, once nobody waits for it.
const LAST_STEP: Duration = Duration::from_secs(5);

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
    Sampling { temperature: cli.temperature, ..Default::default() }.check()?;
    let file = ModelFile::open_within(&cli.model, cli.context.unwrap_or(usize::MAX))?;
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let world = cli.processes.world()?;
    let model = load(cli, &file, world.as_ref())?;
    eprintln!("engine: {}", model.device().engine());
    let eog = tokenizer.eog().to_vec();
    let Cli { batch, context, prefill, fast_prefill, draft, pool, kv, activations, tuned, .. } = *cli;
    let follows = world.as_ref().is_some_and(|world| world.rank > 0);
    let options = Options { batch, context, prefill, fast_prefill, draft, pool, kv, activations, tuned, eog, world };
    if follows {
        heed_second_signal()?;
        return Ok(ranks::follow(&model, &options)?);
    }
    if cli.prompts.is_empty() {
        let template = template(cli, &file, &tokenizer)?;
        serve(cli, model, tokenizer, template, options)
    } else {
        complete(cli, &model, &tokenizer, &options)
    }
}

/// The model on the devices of this process, or what this one of several has of it.
fn load(cli: &Cli, file: &ModelFile, world: Option<&World>) -> Result<Model, Box<dyn Error>> {
    let mut said = 0;
    let progress = |LoadProgress { done, total, .. }: LoadProgress<'_>| {
        let percent = done * 100 / total.max(1);
        if percent / 10 > said {
            said = percent / 10;
            eprintln!("loading {percent} %");
        }
    };
    let Some(world) = world else {
        let ordinals = if cli.devices.is_empty() { std::slice::from_ref(&cli.device) } else { &cli.devices[..] };
        let devices = ordinals.iter().map(|ordinal| Device::open(*ordinal)).collect::<Result<Vec<_>, _>>()?;
        return Ok(Model::load_over_with(&devices, file, progress)?);
    };
    let device = Device::open(world.local_rank % Device::count()?.max(1))?;
    let exchange = cli.processes.transport.choose(&device)?;
    eprintln!("rank {} of {}: {exchange}", world.rank, world.ranks);
    let rank = exchange.join(world, &device, builtin_image(), ranks::PATIENCE)?;
    if matches!(exchange, Exchange::PeersOrSockets) {
        let found = if Peers::of(&rank).is_some() { Exchange::Peers } else { Exchange::Sockets };
        eprintln!("rank {} of {}: {found}", world.rank, world.ranks);
    }
    Ok(Model::load_rank_with(&device, file, rank, cli.processes.split, progress)?)
}

/// Whoever starts several processes tells all of them to end. The first then ends what runs, and tells the others when that is done: they
/// heed a second signal alone.
fn heed_second_signal() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let wait = move || {
        runtime.block_on(async {
            let signal = signals.next().await;
            eprintln!("{signal}: rank 0 says when this ends");
            let signal = signals.next().await;
            eprintln!("{signal}: ended at once");
            std::process::exit(128 + i32::from(signal.number));
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// The template of the options, or the model's. A model without one still completes texts.
fn template(
    cli: &Cli,
    file: &ModelFile,
    tokenizer: &Tokenizer,
) -> Result<Result<ChatTemplate, String>, Box<dyn Error>> {
    let Some(path) = &cli.server.chat_template else {
        let template = ChatTemplate::from_gguf(file.gguf(), tokenizer);
        return Ok(template.map_err(|e| format!("{e}; the server's option --chat-template FILE gives one")));
    };
    let source =
        std::fs::read_to_string(path).map_err(|e| format!("cannot read the chat template {}: {e}", path.display()))?;
    let template = ChatTemplate::new(&source, tokenizer).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Ok(template))
}

fn serve(
    cli: &Cli,
    model: Model,
    tokenizer: Tokenizer,
    template: Result<ChatTemplate, String>,
    options: Options,
) -> Result<(), Box<dyn Error>> {
    let server = &cli.server;
    let limits = Limits {
        connections: server.max_connections,
        header: server.max_header,
        header_timeout: server.header_timeout,
        write_timeout: server.write_timeout,
        shutdown_timeout: server.shutdown_timeout,
    };
    if let Err(reason) = &template {
        eprintln!("warning: no /v1/chat/completions: {reason}");
    }
    let stem = || cli.model.file_stem().map_or_else(|| "model".into(), |s| s.to_string_lossy().into_owned());
    let name = server.name.clone().or_else(|| model.config().name.clone()).unwrap_or_else(stem);
    let (queue, requests) = Queue::new(server.queue);
    let metrics = Arc::new(Metrics::default());
    let service = Arc::new(Service {
        tokenizer,
        template,
        model: name,
        created: http::reply::now(),
        vocab: model.config().vocab,
        context: options.positions(&model),
        defaults: Defaults { max_tokens: cli.count, temperature: cli.temperature },
        max_body: server.max_body,
        body_timeout: server.body_timeout,
        queue,
        metrics: metrics.clone(),
        answers: AtomicU64::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(server.threads)
        .enable_all()
        .build()?;
    let mut ended = start_engine(model, options, requests, metrics.clone())?;
    let served: Result<Option<String>, Box<dyn Error>> = runtime.block_on(async {
        let listener = TcpListener::bind(&server.listen).await;
        let listener = listener.map_err(|e| format!("cannot listen on {}: {e}", server.listen))?;
        let mut signals = Signals::new()?;
        eprintln!("serving http://{}/v1", listener.local_addr()?);
        let mut failed = None;
        let stop = async {
            tokio::select! {
                signal = signals.next() => {
                    eprintln!("{signal}: no new requests; those that run have {} s", limits.shutdown_timeout.as_secs_f64());
                    tokio::spawn(async move {
                        let signal = signals.next().await;
                        eprintln!("{signal}: ended at once");
                        std::process::exit(128 + i32::from(signal.number));
                    });
                }
                end = &mut ended => failed = Some(end.unwrap_or_else(|_| "it left without a word".into())),
            }
        };
        if !serve::serve(listener, http::router(service), &limits, &metrics, stop).await {
            eprintln!("warning: some requests did not end in time and were dropped");
        }
        Ok(failed)
    });
    // Requests that are still there go, and with the last of them the engine.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(reason) = served? {
        return Err(format!("the engine has stopped: {reason}").into());
    }
    wait_for_end(ended)
}

fn wait_for_end(ended: oneshot::Receiver<String>) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    match runtime.block_on(async { tokio::time::timeout(LAST_STEP, ended).await }) {
        // It dropped its end without a word: there was nothing to say.
        Ok(Err(_)) => Ok(()),
        Ok(Ok(reason)) => Err(format!("the engine has stopped: {reason}").into()),
        Err(_) => {
            eprintln!("warning: the engine is still in a step");
            Ok(())
        }
    }
}

/// Runs the engine on a thread of its own. What is received says why it ended, if that was not because all was done.
fn start_engine(
    model: Model,
    options: Options,
    mut requests: Requests,
    metrics: Arc<Metrics>,
) -> Result<oneshot::Receiver<String>, Box<dyn Error>> {
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new().name("engine".into()).spawn(move || {
        let served = catch_unwind(AssertUnwindSafe(|| engine::serve(&model, &options, &mut requests, &metrics)));
        // Requests in the queue are told by its end.
        drop(requests);
        let reason = match served {
            // The device's memory goes before anybody is told that this is the end.
            Ok(Ok(())) => return drop(model),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
        };
        let _ = sender.send(reason);
    })?;
    Ok(ended)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

fn complete(cli: &Cli, model: &Model, tokenizer: &Tokenizer, options: &Options) -> Result<(), Box<dyn Error>> {
    let (queue, mut requests) = Queue::new(cli.prompts.len());
    let mut replies = Vec::new();
    for prompt in &cli.prompts {
        let tokens = tokenizer.encode(prompt, Special::Text)?;
        let sampling = Sampling { temperature: cli.temperature, ..Default::default() };
        let place = queue.enter().ok_or("there are more prompts than places")?;
        replies.push(place.send(Prompt { tokens, max_tokens: cli.count, sampling, logprobs: None })?);
    }
    drop(queue);
    engine::serve(model, options, &mut requests, &Metrics::default())?;
    for (prompt, mut events) in cli.prompts.iter().zip(replies) {
        let mut tokens = Vec::new();
        while let Some(event) = events.blocking_recv() {
            match event {
                Event::Token(token, _) => tokens.push(token),
                Event::Done(_) => {}
                Event::Failed(failure) => return Err(format!("{prompt:?}: {failure:?}").into()),
            }
        }
        println!("{prompt}{}", tokenizer.decode_continuation(&tokens));
    }
    Ok(())
}
