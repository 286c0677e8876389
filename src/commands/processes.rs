//! One of several processes that run a model together: who it is, by whatever started it, and what they exchange data by.

use std::time::Duration;

use warpsmith_driver_api::Engine;
use warpsmith_host::Device;
use warpsmith_host::collectives::{Library, Nccl, SocketOptions, Sockets, World};
use warpsmith_host::decode::{LoadProgress, Model};
use warpsmith_host::model::ModelFile;

use crate::cli::{ProcessArgs, Transport};
use crate::failure::{Failure, Kind};

/// For how long a process waits for others, which may read the file from a slower disk. Whose process ends is noticed at once over sockets.
const PATIENCE: Duration = Duration::from_secs(600);

/// This process among the others.
pub struct Party {
    world: World,
    split: warpsmith_host::decode::Split,
    transport: Transport,
}

impl Party {
    /// What the options and the environment say; nothing, where they ask for no others.
    pub fn of(args: &ProcessArgs) -> Result<Option<Party>, Failure> {
        let Some(place) = &args.processes else { return Ok(None) };
        let world = match place.as_str() {
            "" => World::from_environment().map_err(|e| Failure::usage(format!("--processes: {e}")))?,
            place => parse(place)?,
        };
        Ok(Some(Party { world, split: args.split.into(), transport: args.transport }))
    }

    /// Whether it is the one that prints.
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
        let failed = |e: warpsmith_host::collectives::Error| Failure::new(Kind::Operation, e.to_string());
        let library = match (self.transport, device.engine()) {
            (Transport::Nccl, _) => Some(Library::load().map_err(failed)?),
            (Transport::Auto, Engine::Cuda { .. }) => Library::load().ok(),
            (Transport::Auto | Transport::Sockets, _) => None,
        };
        match library {
            Some(library) => {
                let version = library.version().map_err(failed)?;
                eprintln!("rank {} of {}: NCCL {version}", self.world.rank, self.world.ranks);
                let rank = Nccl::join(&library, &self.world, device, PATIENCE).map_err(failed)?;
                Ok(Model::load_rank_with(device, file, rank, self.split, progress)?)
            }
            None => {
                eprintln!("rank {} of {}: sockets, through host memory", self.world.rank, self.world.ranks);
                let options = SocketOptions { timeout: PATIENCE, ..Default::default() };
                let rank = Sockets::join(&self.world, device, options).map_err(failed)?;
                Ok(Model::load_rank_with(device, file, rank, self.split, progress)?)
            }
        }
    }
}

/// `RANK/RANKS@HOST:PORT`.
fn parse(place: &str) -> Result<World, Failure> {
    let parts = || {
        let (ranks, address) = place.split_once('@')?;
        let (rank, ranks) = ranks.split_once('/')?;
        let (rank, ranks) = (rank.parse::<u32>().ok()?, ranks.parse::<u32>().ok()?);
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty())?.1;
        port.parse::<u16>().ok().filter(|_| rank < ranks)?;
        Some(World { rank, ranks, local_rank: rank, address: address.to_owned() })
    };
    let expected = "expected RANK/RANKS@HOST:PORT with a rank below their number, as in 0/2@127.0.0.1:29501";
    parts().ok_or_else(|| Failure::usage(format!("--processes={place}: {expected}")))
}
