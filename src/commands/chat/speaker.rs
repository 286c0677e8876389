//! Replies: what a process feeds and generates in a turn, alone or as one of several that all do the same.

use std::time::Instant;

use serde::Serialize;
use warpsmith_host::decode::Session;
use warpsmith_host::tokenizer::Tokenizer;

use crate::cli::SamplingArgs;
use crate::commands::session::{self, BY_COUNT, BY_STOP, BY_TOKEN, Rate, printable};
use crate::failure::Failure;
use crate::output;

/// What a turn did.
#[derive(Debug, Serialize)]
pub struct Turn {
    pub text: String,
    /// `count`, `end of text` or `stop text`; `context`: the cache is full.
    ended_by: &'static str,
    /// Tokens of the conversation that were in the cache already.
    cached: usize,
    /// Those that were fed at once.
    pub prompt: Rate,
    /// Those that were fed one by one.
    pub generation: Rate,
    tokens_generated: Vec<u32>,
}

/// What generates replies.
pub struct Speaker<'a> {
    /// Most tokens of a reply.
    pub count: usize,
    pub sampling: &'a SamplingArgs,
    pub tokenizer: &'a Tokenizer,
    pub session: Session,
    /// Nothing is shown.
    pub silent: bool,
}

impl Speaker<'_> {
    /// The reply to a conversation of these tokens, at least one.
    pub fn turn(&mut self, tokens: &[u32]) -> Result<Turn, Failure> {
        // What the cache has of this, but for the last token, which gives the first of the reply.
        let same = self.session.sequence().tokens().iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let cached = same.min(tokens.len().saturating_sub(1));
        self.session.rollback(cached)?;
        let start = Instant::now();
        let first = self.session.prefill(&tokens[cached..])?;
        let prompt = Rate::since(start, tokens.len() - cached);
        let mut turn = self.generate(first)?;
        (turn.cached, turn.prompt) = (cached, prompt);
        Ok(turn)
    }

    fn generate(&mut self, first: u32) -> Result<Turn, Failure> {
        let Speaker { count, sampling, silent, .. } = *self;
        let (mut stops, mut stream) = (session::stops(sampling)?, self.tokenizer.continue_stream());
        let (mut text, mut tokens, mut next) = (String::new(), Vec::new(), first);
        let mut show = |piece: String| {
            if !silent {
                print!("{}", printable(&piece));
                output::flush();
            }
            text.push_str(&piece);
        };
        let start = Instant::now();
        let ended_by = loop {
            if tokens.len() >= count {
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
            if tokens.len() < count {
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
