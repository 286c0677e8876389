//! By what processes exchange data: chosen by name, and then a rank like any other.

use crate::{Collective, Error, Library, Nccl, PeerOptions, Peers, SocketOptions, Sockets, World};
use gpu_kernels::collective::MAX_RANKS;
use std::sync::Arc;
use std::time::Duration;
use warpsmith_runtime::{Device, KernelImage};

/// Bytes that ranks over peer memory stage at a time: those of a column of logits, for as many tokens as there are.
const STAGED: usize = 4 << 20;

/// What several processes that run a model exchange data by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// On GPUs [`Nccl`] where its library is found, by all processes or by none; else [`Peers`] where all of them can open each other's memory.
    /// Else, and on the software driver, where kernels that wait take longer, [`Sockets`].
    #[default]
    Auto,
    /// [`Nccl`].
    Nccl,
    /// [`Peers`].
    Peers,
    /// [`Sockets`].
    Sockets,
}

gpu_kernels::named! {
    Transport, "transport", 4:
    Auto = "auto", "on GPUs NCCL where its library is found, by all processes or none, else peer memory where all can open it; else sockets";
    Nccl = "nccl", "NCCL";
    Peers = "peers", "each other's device memory, in launches of the step: processes of one machine";
    Sockets = "sockets", "TCP, through the memory of the hosts: slow, and everywhere";
}

/// A transport that there is.
pub enum Exchange {
    /// By NCCL.
    Nccl(Arc<Library>),
    /// Over peer memory.
    Peers,
    /// Over peer memory where all can open it, else over TCP: they agree when they join.
    PeersOrSockets,
    /// Over TCP.
    Sockets,
}

impl Transport {
    /// What it is for processes that have devices such as this one.
    ///
    /// # Errors
    /// [`Error::NoNccl`] where NCCL is asked for and not there.
    pub fn choose(self, device: &Device) -> Result<Exchange, Error> {
        Ok(match self {
            Transport::Nccl => Exchange::Nccl(Library::load()?),
            Transport::Auto if !device.is_software() => {
                Library::load().map_or(Exchange::PeersOrSockets, Exchange::Nccl)
            }
            Transport::Peers => Exchange::Peers,
            Transport::Auto | Transport::Sockets => Exchange::Sockets,
        })
    }
}

impl Exchange {
    /// A rank of `world`, for a device of this process. All ranks make the call, and wait for each other for so long. `image` has the kernels of
    /// `gpu-kernels`, for those over peer memory.
    ///
    /// # Errors
    /// Those of [`Nccl::join`], [`Peers::join`] and [`Sockets::join`].
    pub fn join(
        &self,
        world: &World,
        device: &Device,
        image: &KernelImage,
        timeout: Duration,
    ) -> Result<Box<dyn Collective + Sync>, Error> {
        let peers = || {
            let options = PeerOptions { capacity: STAGED, timeout, ..Default::default() };
            Peers::join(world, device, image, options)
        };
        match self {
            Exchange::Nccl(library) => return Ok(Box::new(Nccl::join(library, world, device, timeout)?)),
            Exchange::Peers => return Ok(Box::new(peers()?)),
            // Of what one cannot open all are told.
            Exchange::PeersOrSockets if world.ranks <= MAX_RANKS => match peers() {
                Err(Error::Unreachable { .. }) => {}
                joined => return Ok(Box::new(joined?)),
            },
            Exchange::PeersOrSockets | Exchange::Sockets => {}
        }
        Ok(Box::new(Sockets::join(world, device, SocketOptions { timeout, ..Default::default() })?))
    }
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exchange::Nccl(library) => match library.version() {
                Ok(version) => write!(f, "NCCL {version}"),
                Err(error) => write!(f, "NCCL, whose version is unknown: {error}"),
            },
            Exchange::Peers => f.write_str("peer memory"),
            Exchange::PeersOrSockets => f.write_str("peer memory, or sockets where one cannot open another's"),
            Exchange::Sockets => f.write_str("sockets, through host memory"),
        }
    }
}
