//! `warpsmith chat`: several turns with one model. What was said stays in the cache: a turn feeds what is new.

mod follow;
mod lines;
mod speaker;

use std::io::IsTerminal;

use warpsmith_host::chat::{ChatOptions, ChatTemplate, Message};
use warpsmith_host::collectives::{Control, Lead};
use warpsmith_host::tokenizer::Tokenizer;

use super::processes::Party;
use super::run::report::{EngineReport, ModelReport};
use super::session::{self, Loaded, Rate};
use crate::cli::ChatArgs;
use crate::failure::{Failure, Kind};
use crate::output;
use lines::Lines;
use speaker::{Speaker, Turn};

/// Positions that a conversation has room for, unless `--context` says otherwise.
const CONTEXT: usize = 4096;
/// Forgets all that was said.
const RESET: &str = "/reset";

struct Conversation<'a> {
    args: &'a ChatArgs,
    template: ChatTemplate,
    options: ChatOptions,
    speaker: Speaker<'a>,
    messages: Vec<Message>,
    /// The other processes, if there are some.
    lead: Option<Lead>,
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
        let tokens =
            self.template.encode(self.speaker.tokenizer, &self.messages, &self.options).map_err(Failure::input)?;
        let capacity = self.speaker.session.capacity();
        if tokens.is_empty() {
            return Err(Failure::input("the chat template makes no prompt of this conversation"));
        }
        if tokens.len() > capacity {
            return Err(Failure::input(format!(
                "the conversation has {} tokens, more than the context of {capacity}: begin anew ({RESET}), or with a larger --context",
                tokens.len()
            )));
        }
        if let Some(lead) = &mut self.lead {
            lead.tell(&follow::told(&tokens))?;
        }
        self.speaker.turn(&tokens)
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
    let party = Party::of(&args.engine.processes)?;
    // Messages are those of the process that reads them.
    let template = match party.as_ref().is_none_or(Party::speaks) {
        true => Some(template(args, &loaded, tokenizer)?),
        false => None,
    };
    let most = loaded.file.config().context;
    let capacity = args.engine.context.unwrap_or(CONTEXT.min(most));
    if capacity == 0 || capacity > most {
        return Err(Failure::input(format!("--context {capacity}: the model's context is {most} positions")));
    }
    session::stops(&args.sampling)?;

    let devices = session::open_devices(&args.engine, party)?;
    let silent = args.json || devices.listens();
    if !silent {
        println!("engine  {}\nmodel   {}\n", EngineReport::new(&devices), ModelReport::new(&loaded.path, &loaded.file));
        output::flush();
    }
    let model = session::load(&devices, &loaded.file, args.json)?;
    let session = session::session(&model, &args.engine, &args.sampling, (capacity, false))?;
    let mut speaker = Speaker { count: args.count, sampling: &args.sampling, tokenizer, session, silent };
    let control = devices.party.as_ref().map(|party| party.control(&follow::common(args, capacity))).transpose()?;
    let (lead, template) = match (control, template) {
        (Some(Control::Follow(rank)), _) => return follow::follow(rank, &mut speaker),
        (_, None) => return Err(Failure::new(Kind::Operation, "rank 0 is another process")),
        (Some(Control::Lead(lead)), Some(template)) => (Some(lead), template),
        (None, Some(template)) => (None, template),
    };
    let options = ChatOptions { variables: args.variables.iter().cloned().collect(), ..Default::default() };
    let mut talk = Conversation { args, template, options, speaker, messages: Vec::new(), lead };
    talk.reset();
    converse(&mut talk)?;
    talk.lead.map_or(Ok(()), |lead| Ok(lead.end()?))
}

/// A message a line, until there are no more.
fn converse(talk: &mut Conversation<'_>) -> Result<(), Failure> {
    let json = talk.args.json;
    let asks = std::io::stdin().is_terminal() && !json;
    let (mut turns, mut prompt, mut generation) = (0usize, Rate::default(), Rate::default());
    let lines = Lines::of_stdin(talk.lead.as_ref())?;
    loop {
        if asks {
            print!("> ");
            output::flush();
        }
        output::check()?;
        let Some(message) = lines.next(talk.lead.as_ref())? else { break };
        if message.trim().is_empty() {
            continue;
        }
        if message.trim() == RESET {
            talk.reset();
            continue;
        }
        let turn = match talk.turn(&message) {
            Ok(turn) => turn,
            // Who sits before it may say something shorter; a program gets the exit code. Without a process the others can do no more.
            Err(failure) if asks && (talk.lead.is_none() || failure.is(Kind::Input)) => {
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
