//! Ranks over peer memory: threads of one process, or processes of one machine.

mod beyond;
mod launches;
mod seat;
mod wait;

pub use launches::NextNorm;

use crate::lock::lock;
use crate::{Collective, Elements, Error, On, Operation, Reduce};
use beyond::Beyond;
use gpu_kernels::collective::{MAX_RANKS, frame_words};
use seat::{Seat, load};
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use warpsmith_device::{DeviceAddress, DeviceSlice};
use warpsmith_runtime::{Buffer, Device, Event, KernelImage, Stream};

/// How all-reduce goes about it. The results have the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shots {
    /// Every rank reads everything: least latency.
    One,
    /// Every rank reduces a slice and reads the others': least traffic.
    Two,
    /// One up to so many bytes, else two.
    UpTo(usize),
}

/// What a group is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerOptions {
    /// Bytes that are staged at a time, up to 2 GiB; all-reduce, broadcast and messages of more go in parts. A rank takes `2 + ranks`
    /// times as many of its device's memory.
    pub capacity: usize,
    /// How all-reduce goes about it.
    pub shots: Shots,
    /// For how long [`Collective::synchronize`] waits.
    pub timeout: Duration,
}

impl Default for PeerOptions {
    fn default() -> PeerOptions {
        PeerOptions { capacity: 1 << 20, shots: Shots::UpTo(128 << 10), timeout: Duration::from_secs(60) }
    }
}

/// A rank of a group, on a device that reaches those of all others: of threads of one process ([`Peers::group`]), or of processes of one machine
/// ([`Peers::join`]).
///
/// Streams and graphs of all ranks have to have ended before the last rank of the group is dropped; its devices' streams are waited for
/// then. A graph keeps the group. A process waits until the others have closed its memory, too, for some seconds at most, so that all of them drop
/// their ranks at about the same time; what is not closed by then stays allocated until the process ends.
pub struct Peers {
    rank: u32,
    /// Among the seats of the group.
    place: usize,
    group: Arc<Group>,
}

struct Group {
    /// Of the ranks that this process has, in their order.
    seats: Vec<Arc<Seat>>,
    /// For each of them, the addresses of all frames on its device.
    tables: Vec<Buffer<DeviceAddress>>,
    ranks: u32,
    /// Words that are staged at a time.
    capacity: u32,
    options: PeerOptions,
    /// Who did not come, if somebody did not; of ranks in one process.
    missing: Mutex<Vec<u32>>,
    /// The ranks of other processes, where there are some.
    beyond: Option<Beyond>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let (Some(beyond), [seat]) = (&mut self.beyond, &self.seats[..]) {
            if !beyond.part(seat, self.options.timeout) {
                // Somebody may still have it open.
                std::mem::forget(seat.clone());
            }
            return;
        }
        // What still runs may reach the frames of others. An error has nobody to be told; the memory is then not reached any more.
        for seat in &self.seats {
            let _ = seat.device.synchronize();
        }
    }
}

/// Words that are staged at a time: parts begin at whole ones.
fn words_of(options: &PeerOptions) -> u32 {
    (options.capacity / 4).clamp(1, 1 << 29) as u32
}

impl Peers {
    /// A group with a rank on each of these devices, in their order, which may name a device more than once. `image` has the kernels of
    /// `gpu-kernels`. Every device gets access to every other.
    ///
    /// # Errors
    /// More ranks than there can be, devices that do not reach each other, and failed allocations.
    pub fn group(devices: &[Device], image: &KernelImage, options: PeerOptions) -> Result<Vec<Peers>, Error> {
        let Some(ranks) = u32::try_from(devices.len()).ok().filter(|n| (1..=MAX_RANKS).contains(n)) else {
            return Err(Error::Ranks { ranks: devices.len(), most: MAX_RANKS });
        };
        for device in devices {
            devices.iter().try_for_each(|peer| device.enable_peer(peer))?;
            load(device, image)?;
        }
        let capacity = words_of(&options);
        let seat = |(rank, device)| Ok(Arc::new(Seat::new(device, (rank, ranks), capacity)?));
        let seats = (0..).zip(devices).map(seat).collect::<Result<Vec<Arc<Seat>>, Error>>()?;
        let addresses: Vec<DeviceAddress> = seats.iter().map(|seat| seat.frame.address()).collect();
        let tables = seats.iter().map(|seat| seat.table(&addresses)).collect::<Result<_, _>>()?;
        let group = Group { seats, tables, ranks, capacity, options, missing: Mutex::default(), beyond: None };
        let group = Arc::new(group);
        Ok((0..ranks).map(|rank| Peers { rank, place: rank as usize, group: group.clone() }).collect())
    }

    /// Device memory that a rank of a group takes; `None` if no address can hold it.
    pub fn device_bytes(ranks: usize, options: &PeerOptions) -> Option<u64> {
        let ranks = u32::try_from(ranks).ok().filter(|n| (1..=MAX_RANKS).contains(n))?;
        let padded = |bytes: u64| Some(bytes.checked_add(511)? / 512 * 512);
        padded(frame_words(ranks, words_of(options)).checked_mul(4)?)?.checked_add(padded(8 * u64::from(ranks))?)
    }

    /// A rank as one over peer memory, if it is one: what takes launches can then do what it does in launches of its own, fused with others.
    pub fn of<C: Collective + ?Sized>(rank: &C) -> Option<&Peers> {
        rank.any()?.downcast_ref()
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        &self.seat().device
    }

    fn seat(&self) -> &Seat {
        &self.group.seats[self.place]
    }

    /// Bytes that are staged at a time.
    pub fn capacity(&self) -> usize {
        4 * self.group.capacity as usize
    }

    /// `residual += all_reduce(x)`, in one launch: a layer's output onto the residual stream. `x` stays as it is.
    ///
    /// # Errors
    /// As for [`Collective::issue`].
    pub fn all_reduce_onto<'a, 'c>(
        &self,
        on: impl Into<On<'a, 'c>>,
        x: &mut DeviceSlice<f32>,
        residual: &mut DeviceSlice<f32>,
    ) -> Result<(), Error>
    where
        'c: 'a,
    {
        if x.len() != residual.len() {
            let (to, from) = (residual.len(), x.len());
            let operation = "Peers::all_reduce_onto";
            return Err(warpsmith_runtime::Error::SizeMismatch { operation, to, from }.into());
        }
        self.usable()?;
        self.issue_parts(on.into(), Operation::AllReduce(Reduce::Sum), Elements::of(x), Some(residual))
    }

    fn usable(&self) -> Result<(), Error> {
        if let Some(beyond) = &self.group.beyond {
            return beyond.links.check();
        }
        let missing = lock(&self.group.missing).clone();
        if missing.is_empty() { Ok(()) } else { Err(Error::Broken { missing }) }
    }

    /// Issues an operation in parts that can be staged.
    fn issue_parts(
        &self,
        on: On<'_, '_>,
        operation: Operation,
        x: Elements<'_>,
        residual: Option<&mut DeviceSlice<f32>>,
    ) -> Result<(), Error> {
        match on {
            On::Stream(mut stream) => {
                // SAFETY: the group waits for its devices before it goes.
                unsafe { self.parts(&mut stream, operation, x, residual) }?;
            }
            On::Capture(capture) => {
                // SAFETY: the graph keeps the group.
                unsafe { self.parts(capture, operation, x, residual) }?;
                // SAFETY: nothing is issued; the graph keeps the frames.
                unsafe { capture.foreign(self.group.clone(), |_| ()) }?;
            }
        }
        Ok(())
    }
}

impl Collective for Peers {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.group.ranks
    }

    fn issue(&self, on: On<'_, '_>, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
        self.usable()?;
        // Slices are whole words.
        operation.check(self.rank, self.ranks(), x.len(), 2 / x.kind().halves())?;
        let whole = matches!(operation, Operation::ReduceScatter(_) | Operation::AllGather);
        let (len, most) = (x.len(), self.most(x.kind()));
        if whole && len > most {
            return Err(Error::TooLong { operation: operation.name(), len, most });
        }
        self.issue_parts(on, operation, x, None)
    }

    fn wait(&self, stream: &Stream, done: Event) -> Result<(), Error> {
        self.usable()?;
        let (mut start, mut pause) = (Instant::now(), Duration::from_micros(20));
        while !done.is_done()? {
            let waited = start.elapsed();
            if waited > self.group.options.timeout {
                self.give_up(stream, waited)?;
                // The work takes long by itself, or ends now.
                start = Instant::now();
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        done.synchronize()?;
        // Others than threads may have ended the group meanwhile, and let kernels go here.
        if self.group.beyond.is_some() { self.usable() } else { Ok(()) }
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), Error> {
        let mark = stream.record()?;
        self.wait(stream, mark)?;
        self.seat().forget_messages();
        Ok(stream.synchronize()?)
    }

    fn leave(&self) {
        match &self.group.beyond {
            Some(beyond) => beyond.links.leave("it failed"),
            None => lock(&self.group.missing).push(self.rank),
        }
    }

    fn any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
