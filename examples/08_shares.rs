//! One model over several devices, each with its share of the weights: the text of one device.
//!
//! `WARPSMITH_DEVICES=2 cargo run --release --example 08_shares`: the software driver has one device unless it is told otherwise.

use std::error::Error;
use std::ops::ControlFlow;

use warpsmith::Device;
use warpsmith::decode::{Model, SequenceOptions, Session};
use warpsmith::model::ModelFile;
use warpsmith::tokenizer::{Special, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let file = ModelFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/models/warpsmith-2m-q8_0.gguf"))?;
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let prompt = tokenizer.encode("The woman said to him,", Special::Parse)?;
    let mut texts = Vec::new();
    for ranks in [1, Device::count()?] {
        let devices = (0..ranks).map(Device::open).collect::<Result<Vec<_>, _>>()?;
        let model = Model::load_over(&devices, &file)?;
        let mut session = Session::new(&model, SequenceOptions::default())?;
        let tokens = session.generate(&prompt, 12, |_| ControlFlow::Continue(()))?;
        println!("engine: {}", model.device().engine());
        println!("{ranks} devices, at most {} bytes of weights on each", model.bytes());
        texts.push(tokenizer.decode_continuation(&tokens));
    }
    assert_eq!(texts.first(), texts.last());
    println!("{}\nPASS", texts.concat().escape_debug());
    Ok(())
}
