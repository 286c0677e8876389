//! One model over two processes, each with half of the layers: the text of one device.
//!
//! `cargo run --release --example 09_stages` starts both itself, as `torchrun`, `mpirun` or `srun` would on as many machines: they say by
//! variables who a process is and where the first is met. They pass the residual stream and the tokens on over TCP; with NCCL the same is
//! `Nccl::join(&Library::load()?, &world, &device, timeout)` in place of `Sockets::join`.

use std::error::Error;
use std::ops::ControlFlow;
use std::process::Command;

use warpsmith::Device;
use warpsmith::collectives::{SocketOptions, Sockets, World};
use warpsmith::decode::{Model, SequenceOptions, Session, Split};
use warpsmith::model::ModelFile;
use warpsmith::tokenizer::{Special, Tokenizer};

const RANKS: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os("RANK").is_some() { stage() } else { launch() }
}

/// What each of the processes does.
fn stage() -> Result<(), Box<dyn Error>> {
    let world = World::from_environment()?;
    let file = ModelFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/models/warpsmith-2m-q8_0.gguf"))?;
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let prompt = tokenizer.encode("The woman said to him,", Special::Parse)?;
    let device = Device::open(world.local_rank % Device::count()?)?;
    let rank = Sockets::join(&world, &device, SocketOptions::default())?;
    let model = Model::load_rank(&device, &file, rank, Split::Stages)?;
    // All processes make the same calls, and get the same tokens.
    let mut session = Session::new(&model, SequenceOptions::default())?;
    let tokens = session.generate(&prompt, 12, |_| ControlFlow::Continue(()))?;
    println!("engine: {}", device.engine());
    println!("rank {} of {}, {} bytes of weights", world.rank, world.ranks, model.bytes());
    println!("{}", tokenizer.decode_continuation(&tokens).escape_debug());
    if world.rank == 0 {
        let whole = Model::load(&device, &file)?;
        let mut alone = Session::new(&whole, SequenceOptions::default())?;
        assert_eq!(tokens, alone.generate(&prompt, 12, |_| ControlFlow::Continue(()))?);
    }
    Ok(())
}

/// Starts both, and waits for them.
fn launch() -> Result<(), Box<dyn Error>> {
    let address = World::free_address()?;
    let start = |rank: u32| {
        Command::new(std::env::current_exe()?)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", RANKS.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WARPSMITH_RENDEZVOUS", &address)
            .spawn()
    };
    let processes = (0..RANKS).map(start).collect::<Result<Vec<_>, _>>()?;
    for mut process in processes {
        assert!(process.wait()?.success());
    }
    println!("PASS");
    Ok(())
}
