//! Collectives: what several ranks, each with a device, do together with a buffer of each.
//!
//! | implementation | ranks | capturable | |
//! |---|---|---|---|
//! | [`Peers`] | threads of one process, or processes of one machine | yes | kernels of ours over peer memory: [`gpu_kernels::collective`] |
//! | [`Nccl`] | processes or threads | yes | `libnccl.so.2`, loaded at run time |
//! | [`Sockets`] | processes | yes | host memory and TCP: needs neither NCCL nor devices that reach each other |
//! | [`HostRanks`] | threads of one process | no | host memory: what the others are compared with |
//!
//! [`Transport`] chooses one of those that processes have. [`Control`] is beside them: what to do next, where rank 0 alone knows.
//!
//! All of them are in place, and ordered on a stream or recorded in a graph ([`On`]). Every rank issues the same collectives in the
//! same order. Operations return when they are issued; [`Collective::synchronize`] waits, and says who is missing when that takes too long.
//!
//! Sums of [`Peers`], [`Sockets`] and [`HostRanks`] are formed in f32 in the order of the ranks and rounded once, so that all of them have the
//! same bits, on all ranks and in every run. NCCL's order is its own.

mod control;
mod error;
mod host;
mod lock;
mod mesh;
mod nccl;
mod operation;
mod peers;
mod sockets;
mod transport;
mod world;

pub use control::{Control, Follow, Lead};
pub use error::Error;
pub use host::HostRanks;
pub use nccl::{Library, Nccl, UniqueId};
pub use operation::{Collective, Collectives, Elements, Kind, Number, On, Operation, Reduce};
pub use peers::{NextNorm, PeerOptions, Peers, Shots};
pub use sockets::{SocketOptions, Sockets};
pub use transport::{Exchange, Transport};
pub use world::World;
