//! By what processes exchange data: chosen by name, and then a rank like any other.

use crate::{Collective, Error, Library, Nccl, SocketOptions, Sockets, World};
use std::sync::Arc;
use std::time::Duration;
use warpsmith_runtime::Device;

/// What several processes that run a model exchange data by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// [`Nccl`] on GPUs where its library is found, else [`Sockets`]. All processes have to find the same.
    #[default]
    Auto,
    /// [`Nccl`].
    Nccl,
    /// [`Sockets`].
    Sockets,
}

gpu_kernels::named! {
    Transport, "transport", 3:
    Auto = "auto", "NCCL on GPUs where its library is found, else sockets; all processes have to find the same";
    Nccl = "nccl", "NCCL";
    Sockets = "sockets", "TCP, through the memory of the hosts: slow, and everywhere";
}

/// A transport that there is.
pub enum Exchange {
    /// By NCCL.
    Nccl(Arc<Library>),
    /// Over TCP.
    Sockets,
}

impl Transport {
    /// What it is for processes that have devices such as this one.
    ///
    /// # Errors
    /// [`Error::NoNccl`] where NCCL is asked for and not there.
    pub fn choose(self, device: &Device) -> Result<Exchange, Error> {
        let library = match self {
            Transport::Nccl => Some(Library::load()?),
            Transport::Auto if !device.is_software() => Library::load().ok(),
            Transport::Auto | Transport::Sockets => None,
        };
        Ok(library.map_or(Exchange::Sockets, Exchange::Nccl))
    }
}

impl Exchange {
    /// A rank of `world`, for a device of this process. All ranks make the call, and wait for each other for so long.
    ///
    /// # Errors
    /// Those of [`Nccl::join`] and [`Sockets::join`].
    pub fn join(&self, world: &World, device: &Device, timeout: Duration) -> Result<Box<dyn Collective + Sync>, Error> {
        Ok(match self {
            Exchange::Nccl(library) => Box::new(Nccl::join(library, world, device, timeout)?),
            Exchange::Sockets => {
                Box::new(Sockets::join(world, device, SocketOptions { timeout, ..Default::default() })?)
            }
        })
    }
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exchange::Nccl(library) => match library.version() {
                Ok(version) => write!(f, "NCCL {version}"),
                Err(error) => write!(f, "NCCL, whose version is unknown: {error}"),
            },
            Exchange::Sockets => f.write_str("sockets, through host memory"),
        }
    }
}
