//! A runner in thirty lines: load a GGUF model, decode greedily, one graph launch per token.
//!
//! `cargo run --release --example 03_generate -- [M.gguf] [PROMPT]`

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;

use warpsmith::Device;
use warpsmith::decode::{Model, SequenceOptions, Session};
use warpsmith::model::ModelFile;
use warpsmith::tokenizer::{Special, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path =
        args.next().unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/models/warpsmith-2m-q8_0.gguf").into());
    let prompt = args.next().unwrap_or_else(|| "The woman said to him,".into());

    let file = ModelFile::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let device = Device::open(0)?;
    println!("engine: {}", device.engine());
    let model = Model::load(&device, &file)?;
    let mut sequence = Session::new(&model, SequenceOptions { capacity: Some(128), ..Default::default() })?;

    let tokens = tokenizer.encode(&prompt, Special::Parse)?;
    let mut text = tokenizer.stream();
    let generated = sequence.generate(&tokens, 32, |token| {
        print!("{}", text.push(token).escape_debug());
        match std::io::stdout().flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    println!();
    let graph = sequence.graph().ok_or("no graph was captured")?;
    println!("{} tokens, graph of {} nodes replayed {} times\nPASS", generated.len(), graph.nodes, graph.replays);
    Ok(())
}
