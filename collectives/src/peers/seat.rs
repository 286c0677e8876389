//! What a rank has on its device: its frame, and how its kernels stand by the flags in there.

use crate::Error;
use crate::lock::lock;
use gpu_kernels::collective::{
    self as kernels, ARRIVED, BLOCKS, COUNTS, EPOCHS, FLAGS, MAX_RANKS, SIGNALS, STAGING, TAKEN, exchange::Exchange,
    frame_words, place,
};
use std::sync::Mutex;
use warpsmith_device::{DeviceAddress, DeviceSlice, Kernel};
use warpsmith_runtime::{Buffer, Device, Event, KernelImage, Stream};

/// A rank's device, and what it has there.
pub struct Seat {
    pub rank: u32,
    pub ranks: u32,
    pub device: Device,
    pub frame: Buffer<u32>,
    /// By peer: whether messages to and from it were issued since the last wait.
    messages: Mutex<Vec<[bool; 2]>>,
}

fn word(flags: &[u32], at: usize) -> u32 {
    flags.get(at).copied().unwrap_or(0)
}

/// Whether a flag has not got to an epoch.
fn behind(flags: &[u32], at: usize, epoch: u32) -> bool {
    (word(flags, at).wrapping_sub(epoch) as i32) < 0
}

/// Words of a frame.
pub fn words(ranks: u32, capacity: u32) -> usize {
    usize::try_from(frame_words(ranks, capacity)).unwrap_or(usize::MAX)
}

/// Makes the kernels known to a device.
pub fn load(device: &Device, image: &KernelImage) -> Result<(), Error> {
    device.load(image)?;
    Ok(device.warm([kernels::Collective::META, Exchange::META])?)
}

impl Seat {
    /// That of rank `rank` of `ranks`, with a frame that has been zeroed.
    pub fn new(device: &Device, (rank, ranks): (u32, u32), capacity: u32) -> Result<Seat, Error> {
        let stream = device.stream()?;
        let frame = stream.zeros::<u32>(words(ranks, capacity))?;
        stream.synchronize()?;
        let messages = Mutex::new(vec![[false; 2]; ranks as usize]);
        Ok(Seat { rank, ranks, device: device.clone(), frame, messages })
    }

    /// The addresses of all frames, on this device.
    pub fn table(&self, addresses: &[DeviceAddress]) -> Result<Buffer<DeviceAddress>, Error> {
        Ok(self.device.stream()?.upload(addresses)?)
    }

    /// Takes note of a message to a peer, or from it.
    pub fn notes_message(&self, peer: u32, receives: bool) {
        if let Some(issued) = lock(&self.messages).get_mut(peer as usize) {
            issued[usize::from(receives)] = true;
        }
    }

    /// All messages have been waited for.
    pub fn forget_messages(&self) {
        lock(&self.messages).fill([false; 2]);
    }

    /// Counters and flags as they are now.
    pub fn flags(&self, beside: &Stream) -> Result<Vec<u32>, Error> {
        Ok(beside.read(&self.frame[..STAGING])?)
    }

    /// Counters and flags as they were at first.
    ///
    /// # Safety
    /// Nothing of the group runs.
    pub unsafe fn clear(&self, beside: &Stream) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let words = unsafe { DeviceSlice::<u32>::from_raw_mut(self.frame.address().raw(), STAGING) };
        beside.write(words, &[0; STAGING])?;
        beside.synchronize()?;
        self.forget_messages();
        Ok(())
    }

    /// Who has not got where this rank waits, by its flags.
    pub fn absent(&self, flags: &[u32]) -> Vec<u32> {
        let mut absent = [self.absent_at_meetings(flags), self.absent_with_messages(flags)].concat();
        absent.sort_unstable();
        absent.dedup();
        absent
    }

    /// Who has not got where a collective of this rank waits.
    pub fn absent_at_meetings(&self, flags: &[u32]) -> Vec<u32> {
        let absent = |rank: &u32| {
            let mut places = (0..BLOCKS).flat_map(|block| (0..2).map(move |phase| (block, phase)));
            places.any(|(block, phase)| {
                let epoch = word(flags, EPOCHS + block as usize).wrapping_add(1);
                let is_behind = |rank| behind(flags, SIGNALS + place(phase, block, rank), epoch);
                // This rank has got there, and waits.
                !is_behind(self.rank) && is_behind(*rank)
            })
        };
        (0..self.ranks).filter(absent).collect()
    }

    /// Who has not taken a message, or not sent one, of those that were issued since the last wait: a next one, where all have come.
    pub fn absent_with_messages(&self, flags: &[u32]) -> Vec<u32> {
        let absent = |rank: &u32| {
            let [sent, received] = lock(&self.messages).get(*rank as usize).copied().unwrap_or_default();
            (0..BLOCKS).any(|block| {
                let count = |way| word(flags, COUNTS + place(way, block, *rank));
                let is_behind = |way, epoch| behind(flags, FLAGS + place(way, block, *rank), epoch);
                sent && is_behind(TAKEN, count(TAKEN)) || received && is_behind(ARRIVED, count(ARRIVED).wrapping_add(1))
            })
        };
        (0..self.ranks).filter(absent).collect()
    }

    /// Ends the waits of this rank's kernels: whatever epoch they wait for has come.
    pub fn release(&self, beside: &Stream) -> Result<(), Error> {
        const FAR: u32 = 1 << 30;
        let flags = self.flags(beside)?;
        let mut raised = flags.clone();
        for (block, rank) in (0..BLOCKS).flat_map(|b| (0..MAX_RANKS).map(move |r| (b, r))) {
            for way in 0..2 {
                let epoch = flags.get(EPOCHS + block as usize).copied().unwrap_or(0);
                let count = flags.get(COUNTS + place(way, block, rank)).copied().unwrap_or(0);
                for (at, value) in [(SIGNALS, epoch), (FLAGS, count)] {
                    if let Some(word) = raised.get_mut(at + place(way, block, rank)) {
                        *word = value.wrapping_add(FAR);
                    }
                }
            }
        }
        let base = self.frame.address().raw();
        for at in [SIGNALS, FLAGS] {
            let words = raised.get(at..at + 2 * (BLOCKS * MAX_RANKS) as usize).unwrap_or_default();
            // SAFETY: flags of this rank's frame, which its kernels read as atomics and nobody else needs any more.
            let flags = unsafe { DeviceSlice::<u32>::from_raw_mut(base + 4 * at as u64, words.len()) };
            beside.write(flags, words)?;
        }
        Ok(beside.synchronize()?)
    }

    /// Whether a stream has got to its mark; if not, what waits is let go.
    pub fn go_on(&self, beside: &Stream, done: &Event) -> Result<bool, Error> {
        if done.is_done()? {
            return Ok(true);
        }
        self.release(beside)?;
        Ok(false)
    }
}
