//! One of several processes that run a model together: who it is, by whatever started it, and what they exchange data by.

use std::time::Duration;

use warpsmith_host::collectives::{Control, Error, Exchange, Peers, Transport, World};
use warpsmith_host::decode::{LoadProgress, Model, Split};
use warpsmith_host::model::ModelFile;
use warpsmith_host::{Device, builtin_image};

use crate::cli::ProcessArgs;
use crate::failure::{Failure, Kind};

/// For how long a process waits for others, which may read the file from a slower disk. Whose process ends is noticed at once, but by NCCL.
const PATIENCE: Duration = Duration::from_secs(600);

/// This process among the others.
pub struct Party {
    world: World,
    split: Split,
    transport: Transport,
}

impl Party {
    /// What the options and the environment say; nothing, where they ask for no others.
    pub fn of(args: &ProcessArgs) -> Result<Option<Party>, Failure> {
        let Some(place) = &args.processes else { return Ok(None) };
        let (world, as_given) = match place.as_str() {
            "" => (World::from_environment(), "--processes: "),
            place => (place.parse(), "--processes="),
        };
        let world = world.map_err(|e| Failure::usage(format!("{as_given}{e}")))?;
        Ok(Some(Party { world, split: args.split, transport: args.transport }))
    }

    /// Whether it is the one that reads and prints.
    pub fn speaks(&self) -> bool {
        self.world.rank == 0
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        self.world.ranks as usize
    }

    /// The device of this process, unless one is named: that of its number on the machine, where all devices are seen by all; else the one
    /// that is.
    pub fn device(&self) -> Result<u32, Failure> {
        Ok(self.world.local_rank % Device::count()?.max(1))
    }

    /// Meets the others, and uploads what this one has of the model.
    pub fn load(
        &self,
        device: &Device,
        file: &ModelFile,
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model, Failure> {
        let exchange = self.transport.choose(device)?;
        eprintln!("rank {} of {}: {exchange}", self.world.rank, self.world.ranks);
        let rank = exchange.join(&self.world, device, builtin_image(), PATIENCE)?;
        if matches!(exchange, Exchange::PeersOrSockets) {
            let found = if Peers::of(&rank).is_some() { Exchange::Peers } else { Exchange::Sockets };
            eprintln!("rank {} of {}: {found}", self.world.rank, self.world.ranks);
        }
        Ok(Model::load_rank_with(device, file, rank, self.split, progress)?)
    }

    /// What the first tells the others, who have to have `same` in common.
    pub fn control(&self, same: &str) -> Result<Control, Failure> {
        Ok(Control::join(&self.world, same, 0, PATIENCE)?.0)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(Kind::Operation, error.to_string())
    }
}
