//! Speculative decoding: a small model guesses the next tokens of a larger one, which verifies several in a step. The text is the one
//! that the larger model gives alone.
//!
//! `cargo run --release --example 06_drafts -- [M.gguf] [SMALLER.gguf] [PROMPT]`

use std::error::Error;
use std::ops::ControlFlow;

use warpsmith::Device;
use warpsmith::decode::{DecodeError, Decoder, DecoderOptions, Draft, Model, Sequence, SequenceOptions, Session};
use warpsmith::model::ModelFile;
use warpsmith::tokenizer::{Special, Tokenizer};

/// Tokens of a draft.
const DRAFT: usize = 4;
const COUNT: usize = 48;

/// A model that guesses, with a cache of its own.
struct Guesser(Session);

impl Guesser {
    /// What follows `tokens`, by this model.
    fn guess(&mut self, tokens: &[u32]) -> Result<Vec<u32>, DecodeError> {
        // What it has fed itself and was not accepted is forgotten; at least one token is fed, for what follows it.
        let same = self.0.sequence().tokens().iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.0.rollback(same.min(tokens.len() - 1))?;
        let rest = &tokens[self.0.len()..];
        self.0.generate(rest, DRAFT, |_| ControlFlow::Continue(()))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/models");
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| format!("{models}/warpsmith-2m-q8_0.gguf"));
    let smaller = args.next().unwrap_or_else(|| format!("{models}/warpsmith-2m-q4_k.gguf"));
    let prompt = args.next().unwrap_or_else(|| "The woman said to him,".into());

    let (file, small_file) = (ModelFile::open(&path)?, ModelFile::open(&smaller)?);
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let device = Device::open(0)?;
    println!("engine: {}", device.engine());
    let (model, small) = (Model::load(&device, &file)?, Model::load(&device, &small_file)?);
    if small.config().vocab != model.config().vocab {
        return Err("the models have different vocabularies".into());
    }

    let prompt = tokenizer.encode(&prompt, Special::Parse)?;
    let options = SequenceOptions { capacity: Some(prompt.len() + COUNT + DRAFT), ..Default::default() };
    let mut guesser = Guesser(Session::new(&small, options)?);
    let mut decoder = Decoder::new(&model, DecoderOptions { drafts: DRAFT, ..Default::default() })?;
    let mut sequence = Sequence::new(&model, options)?;

    let mut tokens = prompt.clone();
    let mut token = decoder.prefill(&mut sequence, &prompt)?;
    tokens.push(token);
    let mut steps = 1;
    while tokens.len() < prompt.len() + COUNT {
        let draft = guesser.guess(&tokens)?;
        let verified = decoder.step_drafts(&mut [Draft { sequence: &mut sequence, token, draft: &draft }])?;
        tokens.extend(verified.into_iter().flatten());
        token = *tokens.last().ok_or("no token")?;
        steps += 1;
    }
    tokens.truncate(prompt.len() + COUNT);
    let generated = &tokens[prompt.len()..];
    println!("{}", tokenizer.decode_continuation(generated).escape_debug());

    // The same without guesses.
    let mut alone = Session::new(&model, options)?;
    let expected = alone.generate(&prompt, COUNT, |_| ControlFlow::Continue(()))?;
    if generated != expected {
        return Err("drafts changed the text".into());
    }
    println!("{COUNT} tokens in {steps} steps of the larger model\nPASS");
    Ok(())
}
