//! What ranks can do together, and with what.

use crate::Error;
use std::any::Any;
use std::marker::PhantomData;
use warpsmith_device::{DeviceSlice, Element, bf16, f16};
use warpsmith_runtime::{Capture, Event, Stream};

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f32`.
    F32,
    /// `f16`.
    F16,
    /// `bf16`.
    Bf16,
}

impl Kind {
    /// u16s of a number.
    pub(crate) fn halves(self) -> usize {
        if self == Kind::F32 { 2 } else { 1 }
    }
}

/// A number that ranks can reduce.
pub trait Number: Element {
    /// Its kind.
    const KIND: Kind;
}

impl Number for f32 {
    const KIND: Kind = Kind::F32;
}
impl Number for f16 {
    const KIND: Kind = Kind::F16;
}
impl Number for bf16 {
    const KIND: Kind = Kind::Bf16;
}

/// How numbers of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
}

/// What is done in place. Slice `r` of a buffer is its part `r` of as many equal ones as there are ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Everybody gets all of it, reduced.
    AllReduce(Reduce),
    /// Rank `r` gets slice `r`, reduced; its other slices stay as they are.
    ReduceScatter(Reduce),
    /// Everybody gets slice `r` of rank `r`.
    AllGather,
    /// Everybody gets what the root has.
    Broadcast {
        /// The rank that has it.
        root: u32,
    },
    /// Another rank gets it, and receives it from here.
    Send {
        /// Who gets it.
        to: u32,
    },
    /// What another rank sends.
    Receive {
        /// Who sends it.
        from: u32,
    },
}

impl Operation {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::AllReduce(_) => "all-reduce",
            Operation::ReduceScatter(_) => "reduce-scatter",
            Operation::AllGather => "all-gather",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Send { .. } => "send",
            Operation::Receive { .. } => "receive",
        }
    }

    /// Whether a rank of a group can do it with so many elements, in slices of multiples of `unit`.
    pub(crate) fn check(self, rank: u32, ranks: u32, len: usize, unit: usize) -> Result<(), Error> {
        let other = |what, other| match other < ranks && (other != rank || what == "broadcast from") {
            true => Ok(()),
            false => Err(Error::NoRank { what, rank: other, ranks }),
        };
        match self {
            Operation::AllReduce(_) => Ok(()),
            Operation::ReduceScatter(_) | Operation::AllGather if len.is_multiple_of(ranks as usize * unit) => Ok(()),
            Operation::ReduceScatter(_) | Operation::AllGather => {
                Err(Error::Slices { operation: self.name(), len, ranks, unit })
            }
            Operation::Broadcast { root } => other("broadcast from", root),
            Operation::Send { to } => other("send to", to),
            Operation::Receive { from } => other("receive from", from),
        }
    }
}

/// Elements of a buffer, whatever their kind.
pub struct Elements<'a> {
    address: u64,
    len: usize,
    kind: Kind,
    buffer: PhantomData<&'a mut ()>,
}

impl<'a> Elements<'a> {
    /// Those of a slice.
    pub fn of<T: Number>(slice: &'a mut DeviceSlice<T>) -> Elements<'a> {
        Elements { address: slice.address().raw(), len: slice.len(), kind: T::KIND, buffer: PhantomData }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What they are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Their first address.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Elements from `first` on, as bytes.
    pub(crate) fn bytes(&mut self, first: usize, count: usize) -> &mut DeviceSlice<u8> {
        let (first, end) = (first.min(self.len), first.saturating_add(count).min(self.len));
        let each = 2 * self.kind.halves();
        // SAFETY: a part of the slice that this borrows exclusively.
        unsafe { DeviceSlice::from_raw_mut(self.address + (each * first) as u64, each * (end - first)) }
    }

    /// Elements from `first` on, as the u16s that they consist of.
    pub(crate) fn halves(&mut self, first: usize, count: usize) -> &mut DeviceSlice<u16> {
        let (first, end) = (first.min(self.len), first.saturating_add(count).min(self.len));
        let each = self.kind.halves();
        // SAFETY: a part of the slice that this borrows exclusively.
        unsafe { DeviceSlice::from_raw_mut(self.address + (2 * each * first) as u64, each * (end - first)) }
    }
}

/// Where a collective goes: a stream, or the graph that one is being captured into.
pub enum On<'a, 'c> {
    /// It is issued behind what the stream has.
    Stream(&'a Stream),
    /// It is recorded.
    Capture(&'a mut Capture<'c>),
}

impl<'a> From<&'a Stream> for On<'a, '_> {
    fn from(stream: &'a Stream) -> Self {
        On::Stream(stream)
    }
}

impl<'a, 'c> From<&'a mut Capture<'c>> for On<'a, 'c> {
    fn from(capture: &'a mut Capture<'c>) -> Self {
        On::Capture(capture)
    }
}

/// A rank of a group.
pub trait Collective: Send {
    /// Which one it is, from 0 on.
    fn rank(&self) -> u32;

    /// How many there are.
    fn ranks(&self) -> u32;

    /// Issues or records an operation on elements of this rank's device. Nothing is done with none.
    ///
    /// # Errors
    /// What the group cannot do, a group that has lost ranks, and failed launches.
    fn issue(&self, on: On<'_, '_>, operation: Operation, x: Elements<'_>) -> Result<(), Error>;

    /// Waits until the stream has got to an event that was recorded on it.
    ///
    /// # Errors
    /// [`Error::Missing`] if ranks did not come in time, [`Error::Lost`] if one has gone, after which the stream's work has ended and its
    /// results mean nothing; failed work.
    fn wait(&self, stream: &Stream, mark: Event) -> Result<(), Error>;

    /// Leaves the group, of which nothing can be used any more: what waits here ends, and others that wait for this rank are told, where the
    /// group has a way to.
    fn leave(&self);

    /// The rank as what it is, where something can be done with that kind of ranks alone: `Peers::of` asks.
    fn any(&self) -> Option<&dyn Any> {
        None
    }

    /// Waits for the stream's work.
    ///
    /// # Errors
    /// As for [`Collective::wait`].
    fn synchronize(&self, stream: &Stream) -> Result<(), Error> {
        let mark = stream.record()?;
        self.wait(stream, mark)?;
        Ok(stream.synchronize()?)
    }
}

impl<C: Collective + ?Sized> Collective for Box<C> {
    fn rank(&self) -> u32 {
        (**self).rank()
    }

    fn ranks(&self) -> u32 {
        (**self).ranks()
    }

    fn issue(&self, on: On<'_, '_>, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
        (**self).issue(on, operation, x)
    }

    fn wait(&self, stream: &Stream, mark: Event) -> Result<(), Error> {
        (**self).wait(stream, mark)
    }

    fn leave(&self) {
        (**self).leave();
    }

    fn any(&self) -> Option<&dyn Any> {
        (**self).any()
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), Error> {
        (**self).synchronize(stream)
    }
}

/// The operations by name.
pub trait Collectives: Collective {
    /// [`Operation::AllReduce`].
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    fn all_reduce<'a, 'c, T: Number>(
        &self,
        on: impl Into<On<'a, 'c>>,
        x: &mut DeviceSlice<T>,
        reduce: Reduce,
    ) -> Result<(), Error>
    where
        'c: 'a,
    {
        self.issue(on.into(), Operation::AllReduce(reduce), Elements::of(x))
    }

    /// [`Operation::ReduceScatter`].
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    fn reduce_scatter<'a, 'c, T: Number>(
        &self,
        on: impl Into<On<'a, 'c>>,
        x: &mut DeviceSlice<T>,
        reduce: Reduce,
    ) -> Result<(), Error>
    where
        'c: 'a,
    {
        self.issue(on.into(), Operation::ReduceScatter(reduce), Elements::of(x))
    }

    /// [`Operation::AllGather`].
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    fn all_gather<'a, 'c, T: Number>(&self, on: impl Into<On<'a, 'c>>, x: &mut DeviceSlice<T>) -> Result<(), Error>
    where
        'c: 'a,
    {
        self.issue(on.into(), Operation::AllGather, Elements::of(x))
    }

    /// [`Operation::Broadcast`].
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    fn broadcast<'a, 'c, T: Number>(
        &self,
        on: impl Into<On<'a, 'c>>,
        x: &mut DeviceSlice<T>,
        root: u32,
    ) -> Result<(), Error>
    where
        'c: 'a,
    {
        self.issue(on.into(), Operation::Broadcast { root }, Elements::of(x))
    }

    /// [`Operation::Send`]. `x` is borrowed as all are, and not changed.
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    fn send<'a, 'c, T: Number>(&self, on: impl Into<On<'a, 'c>>, x: &mut DeviceSlice<T>, to: u32) -> Result<(), Error>
    where
        'c: 'a,
    {
        self.issue(on.into(), Operation::Send { to }, Elements::of(x))
    }

    /// [`Operation::Receive`].
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    fn receive<'a, 'c, T: Number>(
        &self,
        on: impl Into<On<'a, 'c>>,
        x: &mut DeviceSlice<T>,
        from: u32,
    ) -> Result<(), Error>
    where
        'c: 'a,
    {
        self.issue(on.into(), Operation::Receive { from }, Elements::of(x))
    }
}

impl<C: Collective + ?Sized> Collectives for C {}
