//! `warpsmith chat`: several turns with one model. What was said stays in the cache: a turn feeds what is new.

use std::io::{BufRead, IsTerminal};
use std::time::Instant;

use serde::Serialize;
use warpsmith_host::chat::{ChatOptions, ChatTemplate, Message};
use warpsmith_host::decode::Session;
use warpsmith_host::tokenizer::Tokenizer;

use super::run::report::{EngineReport, ModelReport};
use super::session::{self, BY_COUNT, BY_STOP, BY_TOKEN, Loaded, Rate, printable};
use crate::cli::ChatArgs;
use crate::failure::{Failure, Kind};
use crate::output;

/// Positions that a conversation has room for, unless `--context` says otherwise.
const CONTEXT: usize = 4096;
/// Forgets all that was said.
const RESET: &str = "/reset";

/// What a turn did.
#[derive(Debug, Serialize)]
struct Turn {
    text: String,
    /// `count`, `end of text` or `stop text`; `context`: the cache is full.
    ended_by: &'static str,
    /// Tokens of the conversation that were in the cache already.
    cached: usize,
    /// Those that were fed at once.
    prompt: Rate,
    /// Those that were fed one by one.
    generation: Rate,
    tokens_generated: Vec<u32>,
}

struct Conversation<'a> {
    args: &'a ChatArgs,
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
    options: ChatOptions,
    session: Session,
    messages: Vec<Message>,
}

impl Conversation<'_> {
    /// Forgets everything but what the model was told at first.
    fn reset(&mut self) {
        self.messages.clear();
        self.messages.extend(self.args.system.as_ref().map(|text| Message::new("system", text)));
    }

    /// The reply to a message. If it fails, the conversation is as it was before.
    fn turn(&mut self, text: &str) -> Result<Turn, Failure> {
        self.messages.push(Message::new("user", text));
        let turn = self.reply();
        match &turn {
            Ok(turn) => self.messages.push(Message::new("assistant", &turn.text)),
            Err(_) => drop(self.messages.pop()),
        }
        turn
    }

    fn reply(&mut self) -> Result<Turn, Failure> {
        let tokens = self.template.encode(self.tokenizer, &self.messages, &self.options).map_err(Failure::input)?;
        let capacity = self.session.capacity();
        if tokens.is_empty() {
            return Err(Failure::input("the chat template makes no prompt of this conversation"));
        }
        if tokens.len() > capacity {
            return Err(Failure::input(format!(
                "the conversation has {} tokens, more than the context of {capacity}: begin anew ({RESET}), or with a larger --context",
                tokens.len()
            )));
        }
        // What the cache has of this, but for the last token, which gives the first of the reply.
        let same = self.session.sequence().tokens().iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        let cached = same.min(tokens.len() - 1);
        self.session.rollback(cached)?;
        let start = Instant::now();
        let first = self.session.prefill(&tokens[cached..])?;
        let prompt = Rate::since(start, tokens.len() - cached);
        let mut turn = self.generate(first)?;
        (turn.cached, turn.prompt) = (cached, prompt);
        Ok(turn)
    }

    fn generate(&mut self, first: u32) -> Result<Turn, Failure> {
        let (args, sampling) = (self.args, &self.args.sampling);
        let (mut stops, mut stream) = (session::stops(sampling)?, self.tokenizer.continue_stream());
        let (mut text, mut tokens, mut next) = (String::new(), Vec::new(), first);
        let mut show = |piece: String| {
            if !args.json {
                print!("{}", printable(&piece));
                output::flush();
            }
            text.push_str(&piece);
        };
        let start = Instant::now();
        let ended_by = loop {
            if tokens.len() >= args.count {
                break BY_COUNT;
            }
            tokens.push(next);
            if self.tokenizer.is_eog(next) && !sampling.ignore_eos {
                break BY_TOKEN;
            }
            show(stops.push(&stream.push(next)));
            if stops.found() {
                break BY_STOP;
            }
            // Nobody reads any more.
            output::check()?;
            if tokens.len() < args.count {
                if self.session.len() >= self.session.capacity() {
                    break "context";
                }
                next = self.session.feed(next)?;
            }
        };
        show(stops.push(&stream.finish()));
        show(stops.finish());
        let generation = Rate::since(start, tokens.len().saturating_sub(1));
        Ok(Turn { text, ended_by, cached: 0, prompt: Rate::default(), generation, tokens_generated: tokens })
    }
}

/// The template that the options name, or the model's.
fn template(args: &ChatArgs, loaded: &Loaded, tokenizer: &Tokenizer) -> Result<ChatTemplate, Failure> {
    let Some(path) = &args.template else {
        return ChatTemplate::from_gguf(loaded.file.gguf(), tokenizer)
            .map_err(|e| Failure::input(format!("{}: {e}; --template FILE gives one", loaded.path.display())));
    };
    let source = std::fs::read_to_string(path)
        .map_err(|e| Failure::input(format!("cannot read the chat template {}: {e}", path.display())))?;
    ChatTemplate::new(&source, tokenizer).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}

/// Runs the command.
pub fn run(args: &ChatArgs) -> Result<(), Failure> {
    let loaded = Loaded::open(args.model.clone(), args.engine.context)?;
    let tokenizer = loaded.tokenizer.as_ref().map_err(|reason| {
        Failure::input(format!("{}: messages cannot be turned into tokens: {reason}", loaded.path.display()))
    })?;
    let template = template(args, &loaded, tokenizer)?;
    let most = loaded.file.config().context;
    let capacity = args.engine.context.unwrap_or(CONTEXT.min(most));
    if capacity == 0 || capacity > most {
        return Err(Failure::input(format!("--context {capacity}: the model's context is {most} positions")));
    }
    session::stops(&args.sampling)?;

    let devices = session::open_devices(&args.engine)?;
    if !args.json {
        println!("engine  {}\nmodel   {}\n", EngineReport::new(&devices), ModelReport::new(&loaded.path, &loaded.file));
        output::flush();
    }
    let model = session::load(&devices, &loaded.file, args.json)?;
    let session = session::session(&model, &args.engine, &args.sampling, (capacity, false))?;
    let options = ChatOptions { variables: args.variables.iter().cloned().collect(), ..Default::default() };
    let mut talk = Conversation { args, tokenizer, template, options, session, messages: Vec::new() };
    talk.reset();
    converse(&mut talk)
}

/// A message a line, until there are no more.
fn converse(talk: &mut Conversation<'_>) -> Result<(), Failure> {
    let (json, input) = (talk.args.json, std::io::stdin());
    let asks = input.is_terminal() && !json;
    let (mut turns, mut prompt, mut generation) = (0usize, Rate::default(), Rate::default());
    let mut line = String::new();
    loop {
        if asks {
            print!("> ");
            output::flush();
        }
        output::check()?;
        line.clear();
        let read = input.lock().read_line(&mut line);
        if read.map_err(|e| Failure::new(Kind::Operation, format!("cannot read standard input: {e}")))? == 0 {
            break;
        }
        let message = line.trim_end_matches(['\n', '\r']);
        if message.trim().is_empty() {
            continue;
        }
        if message.trim() == RESET {
            talk.reset();
            continue;
        }
        let turn = match talk.turn(message) {
            Ok(turn) => turn,
            // Who sits before it may say something shorter; a program gets the exit code.
            Err(failure) if asks => {
                eprintln!("error: {failure}");
                continue;
            }
            Err(failure) => return Err(failure),
        };
        turns += 1;
        prompt = Rate::of(prompt.tokens + turn.prompt.tokens, prompt.seconds + turn.prompt.seconds);
        let Rate { tokens, seconds, .. } = turn.generation;
        generation = Rate::of(generation.tokens + tokens, generation.seconds + seconds);
        if json {
            println!("{}", serde_json::to_string(&turn).map_err(|e| Failure::new(Kind::Operation, e.to_string()))?);
        } else {
            println!("\n");
        }
    }
    if !json {
        println!(
            "{turns} turns: {} tokens fed at once, {:.1} tokens/s; {} one by one, {:.1} tokens/s",
            prompt.tokens, prompt.tokens_per_second, generation.tokens, generation.tokens_per_second
        );
    }
    Ok(())
}
