//! Ranks as threads of one process, over peer memory.

mod launches;
mod wait;

pub use launches::NextNorm;

use crate::{Collective, Elements, Error, On, Operation, Reduce};
use gpu_kernels::collective::{self as kernels, MAX_RANKS, exchange::Exchange, frame_words};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use warpsmith_device::{DeviceAddress, DeviceSlice, Kernel};
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

/// A rank of a group of threads, on a device that reaches those of all others.
///
/// Streams and graphs of all ranks have to have ended before the last rank of the group is dropped; its devices' streams are waited for
/// then. A graph keeps the group.
pub struct Peers {
    rank: u32,
    group: Arc<Group>,
    /// By peer: whether messages to and from it were issued since the last wait.
    messages: Mutex<Vec<[bool; 2]>>,
}

struct Group {
    devices: Vec<Device>,
    frames: Vec<Buffer<u32>>,
    /// For each rank, the addresses of all frames on its device.
    tables: Vec<Buffer<DeviceAddress>>,
    /// Words that are staged at a time.
    capacity: u32,
    options: PeerOptions,
    /// Who did not come, if somebody did not.
    missing: Mutex<Vec<u32>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        // What still runs may reach the frames of others. An error has nobody to be told; the memory is then not reached any more.
        for device in &self.devices {
            let _ = device.synchronize();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            device.load(image)?;
            device.warm([kernels::Collective::META, Exchange::META])?;
        }
        let capacity = words_of(&options);
        let words = usize::try_from(frame_words(ranks, capacity)).unwrap_or(usize::MAX);
        let mut frames = Vec::with_capacity(devices.len());
        for device in devices {
            let stream = device.stream()?;
            frames.push(stream.zeros::<u32>(words)?);
            stream.synchronize()?;
        }
        let addresses: Vec<DeviceAddress> = frames.iter().map(|frame| frame.address()).collect();
        let tables = devices.iter().map(|d| d.stream()?.upload(&addresses)).collect::<Result<_, _>>()?;
        let devices = devices.to_vec();
        let group = Arc::new(Group { devices, frames, tables, capacity, options, missing: Mutex::default() });
        let rank = |rank| Peers { rank, group: group.clone(), messages: Mutex::new(vec![[false; 2]; ranks as usize]) };
        Ok((0..ranks).map(rank).collect())
    }

    /// Device memory that a rank of a group takes; `None` if no address can hold it.
    pub fn device_bytes(ranks: usize, options: &PeerOptions) -> Option<u64> {
        let ranks = u32::try_from(ranks).ok().filter(|n| (1..=MAX_RANKS).contains(n))?;
        let padded = |bytes: u64| Some(bytes.checked_add(511)? / 512 * 512);
        padded(frame_words(ranks, words_of(options)).checked_mul(4)?)?.checked_add(padded(8 * u64::from(ranks))?)
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        &self.group.devices[self.rank as usize]
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
        self.group.devices.len() as u32
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
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        while !done.is_done()? {
            let waited = start.elapsed();
            if waited > self.group.options.timeout {
                self.give_up(stream, waited)?;
                // The work takes long by itself.
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        Ok(done.synchronize()?)
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), Error> {
        let mark = stream.record()?;
        self.wait(stream, mark)?;
        lock(&self.messages).fill([false; 2]);
        Ok(stream.synchronize()?)
    }

    fn leave(&self) {
        lock(&self.group.missing).push(self.rank);
    }
}
