//! Ranks as threads of one process, over peer memory.

use crate::{Collective, Elements, Error, Kind, On, Operation, Reduce};
use gpu_kernels::collective::{
    self as kernels, ARRIVED, BLOCKS, BROADCAST, COUNTS, EPOCHS, FLAGS, GATHER, MAX, MAX_RANKS, ONE_SHOT, RESIDUAL,
    SCATTER, SIGNALS, STAGING, TAKEN, TWO_SHOT, exchange::Exchange, frame_words, place,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use warpsmith_device::{Contract, DeviceAddress, DeviceSlice, Kernel};
use warpsmith_runtime::{Buffer, Device, KernelImage, Stream};

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
#[derive(Clone, Copy, Debug)]
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

/// # Safety
/// That of `launch_unchecked`, for as long as the stream or the graph is at work.
unsafe fn launch_on(on: &mut On<'_, '_>, kernel: impl Contract) -> Result<(), Error> {
    match on {
        // SAFETY: the caller's promise.
        On::Stream(stream) => unsafe { stream.launch_unchecked(kernel) }?,
        // SAFETY: the caller's promise.
        On::Capture(capture) => unsafe { capture.launch_unchecked(kernel) }?,
    }
    Ok(())
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
        // Parts begin at whole words.
        let capacity = (options.capacity / 4).clamp(1, 1 << 29) as u32;
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
        self.parts(on.into(), Operation::AllReduce(Reduce::Sum), Elements::of(x), Some(residual))
    }

    fn usable(&self) -> Result<(), Error> {
        let missing = lock(&self.group.missing).clone();
        if missing.is_empty() { Ok(()) } else { Err(Error::Broken { missing }) }
    }

    /// The flags of a collective of so many bytes.
    fn flags(&self, operation: Operation, kind: Kind, bytes: usize) -> u32 {
        let one = match self.group.options.shots {
            Shots::One => true,
            Shots::Two => false,
            Shots::UpTo(most) => bytes <= most,
        };
        let of = |reduce| if reduce == Reduce::Max { MAX } else { 0 };
        let mode = match operation {
            Operation::AllReduce(reduce) => of(reduce) | if one { ONE_SHOT } else { TWO_SHOT },
            Operation::ReduceScatter(reduce) => of(reduce) | SCATTER,
            Operation::AllGather => GATHER,
            _ => BROADCAST,
        };
        mode | match kind {
            Kind::F32 => kernels::F32,
            Kind::F16 => kernels::F16,
            Kind::Bf16 => kernels::BF16,
        }
    }

    /// Issues an operation in parts that can be staged.
    fn parts(
        &self,
        mut on: On<'_, '_>,
        operation: Operation,
        mut x: Elements<'_>,
        mut residual: Option<&mut DeviceSlice<f32>>,
    ) -> Result<(), Error> {
        let (len, kind) = (x.len(), x.kind());
        let most = self.group.capacity as usize * 2 / kind.halves();
        let whole = matches!(operation, Operation::ReduceScatter(_) | Operation::AllGather);
        if whole && len > most {
            return Err(Error::TooLong { operation: operation.name(), len, most });
        }
        let mut first = 0;
        while first < len {
            let count = most.min(len - first);
            let onto = residual.as_mut().and_then(|r| r.get_mut(first..first + count));
            let part = x.halves(first, count);
            match operation {
                Operation::Send { to } => self.message(&mut on, part, to, false)?,
                Operation::Receive { from } => self.message(&mut on, part, from, true)?,
                _ => self.collective(&mut on, operation, kind, (part, onto, count))?,
            }
            first += count;
        }
        if let On::Capture(capture) = on {
            // SAFETY: nothing is issued; the graph keeps the frames.
            unsafe { capture.foreign(self.group.clone(), |_| ()) }?;
        }
        Ok(())
    }

    fn collective(
        &self,
        on: &mut On<'_, '_>,
        operation: Operation,
        kind: Kind,
        (x, residual, count): (&mut DeviceSlice<u16>, Option<&mut DeviceSlice<f32>>, usize),
    ) -> Result<(), Error> {
        let ranks = self.ranks();
        let onto = if residual.is_some() { RESIDUAL } else { 0 };
        let words = x.len().div_ceil(2) as u32;
        let launch = kernels::Collective {
            residual: residual.unwrap_or(DeviceSlice::empty_mut()),
            frames: &self.group.tables[self.rank as usize],
            len: count as u32,
            slice: words.div_ceil(ranks),
            capacity: self.group.capacity,
            rank: self.rank,
            ranks,
            root: if let Operation::Broadcast { root } = operation { root } else { 0 },
            flags: self.flags(operation, kind, x.byte_len()) | onto,
            x,
        };
        // SAFETY: the group has frames of that capacity for all ranks, which live as long as it does, and a graph keeps it.
        unsafe { launch_on(on, launch) }
    }

    fn message(&self, on: &mut On<'_, '_>, x: &mut DeviceSlice<u16>, peer: u32, receives: bool) -> Result<(), Error> {
        if let Some(issued) = lock(&self.messages).get_mut(peer as usize) {
            issued[usize::from(receives)] = true;
        }
        let launch = Exchange {
            frames: &self.group.tables[self.rank as usize],
            halves: x.len() as u32,
            capacity: self.group.capacity,
            rank: self.rank,
            peer,
            ranks: self.ranks(),
            receive: receives.into(),
            x,
        };
        // SAFETY: as for a collective.
        unsafe { launch_on(on, launch) }
    }

    /// Who has not got where this rank waits, by the flags in its frame.
    fn absent(&self, frame: &[u32]) -> Vec<u32> {
        let word = |at: usize| frame.get(at).copied().unwrap_or(0);
        let behind = |at: usize, epoch: u32| (word(at).wrapping_sub(epoch) as i32) < 0;
        let mut absent = Vec::new();
        for (block, rank) in (0..BLOCKS).flat_map(|b| (0..self.ranks()).map(move |r| (b, r))) {
            let epoch = word(EPOCHS + block as usize).wrapping_add(1);
            for phase in 0..2 {
                // This rank has got there, and waits.
                let waits = !behind(SIGNALS + place(phase, block, self.rank), epoch);
                if waits && behind(SIGNALS + place(phase, block, rank), epoch) {
                    absent.push(rank);
                }
            }
            let [sent, received] = lock(&self.messages).get(rank as usize).copied().unwrap_or_default();
            let count = |way| word(COUNTS + place(way, block, rank));
            let taken = sent && behind(FLAGS + place(TAKEN, block, rank), count(TAKEN));
            let arrived = received && behind(FLAGS + place(ARRIVED, block, rank), count(ARRIVED).wrapping_add(1));
            if taken || arrived {
                absent.push(rank);
            }
        }
        absent.sort_unstable();
        absent.dedup();
        absent
    }

    /// Ends the waits of this rank's kernels: whatever epoch they wait for has come.
    fn release(&self, stream: &Stream, frame: &[u32]) -> Result<(), Error> {
        const FAR: u32 = 1 << 30;
        let base = self.group.frames[self.rank as usize].address().raw();
        let mut raised = frame.to_vec();
        for (block, rank) in (0..BLOCKS).flat_map(|b| (0..MAX_RANKS).map(move |r| (b, r))) {
            for way in 0..2 {
                let epoch = frame.get(EPOCHS + block as usize).copied().unwrap_or(0);
                let count = frame.get(COUNTS + place(way, block, rank)).copied().unwrap_or(0);
                for (at, value) in [(SIGNALS, epoch), (FLAGS, count)] {
                    if let Some(word) = raised.get_mut(at + place(way, block, rank)) {
                        *word = value.wrapping_add(FAR);
                    }
                }
            }
        }
        for at in [SIGNALS, FLAGS] {
            let words = raised.get(at..at + 2 * (BLOCKS * MAX_RANKS) as usize).unwrap_or_default();
            // SAFETY: flags of this rank's frame, which its kernels read as atomics and nobody else needs any more.
            let flags = unsafe { DeviceSlice::<u32>::from_raw_mut(base + 4 * at as u64, words.len()) };
            stream.write(flags, words)?;
        }
        Ok(())
    }

    /// Says who is missing, and sees to it that the stream's work ends.
    fn give_up(&self, stream: &Stream, waited: Duration) -> Result<(), Error> {
        let beside = self.device().stream()?;
        let frame = beside.read(&self.group.frames[self.rank as usize][..STAGING])?;
        let missing = self.absent(&frame);
        if missing.is_empty() {
            // The work takes long by itself.
            return Ok(stream.synchronize()?);
        }
        lock(&self.group.missing).clone_from(&missing);
        self.release(&beside, &frame)?;
        stream.synchronize()?;
        Err(Error::Missing { rank: self.rank, missing, waited })
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
        self.parts(on, operation, x, None)
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), Error> {
        self.usable()?;
        let (done, start) = (stream.record()?, Instant::now());
        let mut pause = Duration::from_micros(20);
        while !done.is_done()? {
            let waited = start.elapsed();
            if waited > self.group.options.timeout {
                return self.give_up(stream, waited);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        lock(&self.messages).fill([false; 2]);
        Ok(stream.synchronize()?)
    }
}
