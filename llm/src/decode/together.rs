//! What a step does together with others: with devices or processes that have their shares of every layer, and with processes that have
//! other layers.
//!
//! Devices of one process, and processes that have joined over peer memory, add up by launches of [`Peers`], which a step makes like any
//! other. Other processes do by whatever [`Collective`] they have joined, which is issued behind the launches, or recorded among them. What
//! follows on it is no programmatic launch, as what it follows may be none.

use super::DecodeError;
use warpsmith_collectives::{self as collectives, Collective, Elements, On, Operation, Peers, Reduce};
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_runtime::{Capture, Error, Stream};

/// How processes divide a model among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Split {
    /// Each has its share of every layer: all compute every token together.
    #[default]
    Shares,
    /// Each has some of the layers, in order: one after the other computes every token. The first has the embeddings, the last the head.
    Stages,
}

gpu_kernels::named! {
    Split, "way of dividing a model", 2:
    Shares = "shares", "its share of every layer: all compute every token together";
    Stages = "stages", "layers of its own: one after the other computes every token";
}

/// A rank of a model that processes have divided.
pub(super) type Member = dyn Collective + Sync;

/// What takes the launches of a step, and what ranks do between them.
pub(super) trait StepLauncher: Launcher<Error = Error> {
    /// Issues or records a collective behind what was launched.
    fn together(&mut self, rank: &Member, operation: Operation, x: Elements<'_>) -> Result<(), Error>;
}

/// What the group says, as what takes the launches would.
fn foreign(error: collectives::Error) -> Error {
    match error {
        collectives::Error::Runtime(error) => error,
        other => Error::Foreign(Box::new(other)),
    }
}

/// What the group has said, if it was that which failed.
pub(super) fn of_group(error: Error) -> Result<DecodeError, Error> {
    match error {
        Error::Foreign(other) => match other.downcast::<collectives::Error>() {
            Ok(error) => Ok(DecodeError::Collective(*error)),
            Err(other) => Err(Error::Foreign(other)),
        },
        Error::CaptureFailed { stage, source } => {
            of_group(*source).map_err(|source| Error::CaptureFailed { stage, source: Box::new(source) })
        }
        other => Err(other),
    }
}

impl StepLauncher for &Stream {
    fn together(&mut self, rank: &Member, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
        rank.issue(On::Stream(self), operation, x).map_err(foreign)
    }
}

impl StepLauncher for Capture<'_> {
    fn together(&mut self, rank: &Member, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
        rank.issue(On::Capture(self), operation, x).map_err(foreign)
    }
}

impl<L: StepLauncher> StepLauncher for &mut L {
    fn together(&mut self, rank: &Member, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
        L::together(self, rank, operation, x)
    }
}

/// Words as the numbers that collectives move, whatever they mean.
fn as_numbers(words: &mut DeviceSlice<u32>) -> &mut DeviceSlice<f32> {
    // SAFETY: the same memory; all bits are valid in both, and a broadcast moves them as they are.
    unsafe { DeviceSlice::from_raw_mut(words.address().raw(), words.len()) }
}

/// Does an operation in launches of the step, where the rank is over peer memory, or else behind them.
fn operate<L: StepLauncher>(on: &mut L, rank: &Member, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
    match Peers::of(rank) {
        // SAFETY: a decoder waits for what it launched before its group goes.
        Some(peers) => unsafe { peers.launch_operation(on, operation, x) },
        None => on.together(rank, operation, x),
    }
}

/// One of those that have a share of every layer.
#[derive(Clone, Copy)]
pub(super) enum Shares<'a> {
    /// A device beside others, whose memory it reaches, of this process or of those beside it.
    Peer(&'a Peers),
    /// A process.
    Process(&'a Member),
}

impl Shares<'_> {
    /// Whether it is the first: the one that adds what is added once, and that chooses tokens.
    pub fn is_first(self) -> bool {
        match self {
            Shares::Peer(peer) => peer.rank() == 0,
            Shares::Process(member) => member.rank() == 0,
        }
    }

    /// Adds up whole columns over all of them.
    pub fn add_up<L: StepLauncher>(self, on: &mut L, x: &mut DeviceSlice<f32>) -> Result<(), Error> {
        match self {
            // SAFETY: a decoder waits for what it launched before its group goes.
            Shares::Peer(peer) => unsafe { peer.launch_all_reduce(on, x, None) },
            Shares::Process(member) => on.together(member, Operation::AllReduce(Reduce::Sum), Elements::of(x)),
        }
    }

    /// All parts of the logits, in which each of them has a slice of every column, from one to the next a `stride`.
    pub fn gather<L: StepLauncher>(
        self,
        on: &mut L,
        logits: &mut DeviceSlice<f32>,
        (columns, len, stride): (usize, usize, usize),
        slice: usize,
    ) -> Result<(), Error> {
        match self {
            // SAFETY: as above.
            Shares::Peer(peer) => unsafe { peer.launch_gather_columns(on, logits, (columns, len, stride), slice) },
            Shares::Process(member) => (0..columns).try_for_each(|column| {
                let slices = &mut logits[column * stride..][..slice * member.ranks() as usize];
                on.together(member, Operation::AllGather, Elements::of(slices))
            }),
        }
    }

    /// Tells all of them the words of the first.
    pub fn tell<L: StepLauncher>(self, on: &mut L, words: &mut DeviceSlice<u32>) -> Result<(), Error> {
        match self {
            // SAFETY: as above.
            Shares::Peer(peer) => unsafe { peer.launch_broadcast(on, words) },
            Shares::Process(member) => {
                on.together(member, Operation::Broadcast { root: 0 }, Elements::of(as_numbers(words)))
            }
        }
    }
}

/// One of those that have other layers.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a>(pub &'a Member);

impl Stage<'_> {
    /// Whether it has the embeddings.
    pub fn is_first(self) -> bool {
        self.0.rank() == 0
    }

    /// Whether it has the head.
    pub fn is_last(self) -> bool {
        self.0.rank() + 1 == self.0.ranks()
    }

    /// Gives the residual stream to the next.
    pub fn pass_on<L: StepLauncher>(self, on: &mut L, x: &mut DeviceSlice<f32>) -> Result<(), Error> {
        operate(on, self.0, Operation::Send { to: self.0.rank() + 1 }, Elements::of(x))
    }

    /// Takes the residual stream of the one before.
    pub fn take_over<L: StepLauncher>(self, on: &mut L, x: &mut DeviceSlice<f32>) -> Result<(), Error> {
        operate(on, self.0, Operation::Receive { from: self.0.rank().saturating_sub(1) }, Elements::of(x))
    }

    /// Tells all of them the words of the last.
    pub fn tell<L: StepLauncher>(self, on: &mut L, words: &mut DeviceSlice<u32>) -> Result<(), Error> {
        let root = self.0.ranks() - 1;
        operate(on, self.0, Operation::Broadcast { root }, Elements::of(as_numbers(words)))
    }
}
