//! Waiting for ranks, and for those that do not come.

use super::{Peers, lock};
use crate::{Collective, Error};
use gpu_kernels::collective::{ARRIVED, BLOCKS, COUNTS, EPOCHS, FLAGS, MAX_RANKS, SIGNALS, STAGING, TAKEN, place};
use std::time::{Duration, Instant};
use warpsmith_device::DeviceSlice;
use warpsmith_runtime::{Event, Stream};

impl Peers {
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

    /// Lets kernels of these ranks go until all that their streams have has ended. Again and again: ranks that go on write flags of others
    /// that had been let go.
    fn end(ranks: &[(&Peers, &Stream)]) -> Result<(), Error> {
        let mut first = Ok(());
        let mut left = Vec::with_capacity(ranks.len());
        for (rank, stream) in ranks {
            match stream.record().and_then(|done| Ok((rank.device().stream()?, done))) {
                Ok((beside, done)) => left.push((rank, beside, done)),
                Err(error) => first = first.and(Err(error.into())),
            }
        }
        let mut pause = Duration::from_micros(20);
        while !left.is_empty() {
            let mut still = Vec::with_capacity(left.len());
            for (rank, beside, done) in left {
                match rank.go_on(&beside, &done) {
                    Ok(true) => {}
                    Ok(false) => still.push((rank, beside, done)),
                    Err(error) => first = first.and(Err(error)),
                }
            }
            left = still;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        first
    }

    /// Whether a stream has got to its mark; if not, what waits is let go.
    fn go_on(&self, beside: &Stream, done: &Event) -> Result<bool, Error> {
        if done.is_done()? {
            return Ok(true);
        }
        let frame = beside.read(&self.group.frames[self.rank as usize][..STAGING])?;
        self.release(beside, &frame)?;
        beside.synchronize()?;
        Ok(false)
    }

    /// Where streams have got to, one for each rank of a whole group: by one thread that has issued what all ranks do.
    ///
    /// # Errors
    /// A group that has lost ranks, and the rank of a stream on which nothing can be recorded.
    pub fn marks<'s>(ranks: &[Peers], streams: impl Iterator<Item = &'s Stream>) -> Result<Vec<Event>, (u32, Error)> {
        let mark = |(rank, stream): (&Peers, &Stream)| {
            rank.usable().and_then(|()| Ok(stream.record()?)).map_err(|e| (rank.rank, e))
        };
        ranks.iter().zip(streams).map(mark).collect()
    }

    /// Waits until the streams have got to their marks.
    ///
    /// # Errors
    /// [`Error::Missing`] as for [`Collective::synchronize`], and the rank of a stream whose work failed, with what its device says. Kernels
    /// of other ranks may wait then: see [`Peers::recover`].
    pub fn wait_for<'s>(
        ranks: &[Peers],
        streams: impl Iterator<Item = &'s Stream>,
        marks: Vec<Event>,
    ) -> Result<(), (u32, Error)> {
        let mut waiting: Vec<_> = ranks.iter().zip(streams).zip(marks).collect();
        let (mut start, mut pause) = (Instant::now(), Duration::from_micros(20));
        loop {
            let mut left = Vec::with_capacity(waiting.len());
            for ((rank, stream), done) in waiting {
                if !done.is_done().map_err(|e| (rank.rank, e.into()))? {
                    left.push(((rank, stream), done));
                }
            }
            let Some(((first, _), _)) = left.first() else { return Ok(()) };
            let waited = start.elapsed();
            if waited > first.group.options.timeout {
                for ((rank, stream), _) in &left {
                    rank.give_up(stream, waited).map_err(|e| (rank.rank, e))?;
                }
                // Nobody waits for anybody: the work takes long by itself.
                start = Instant::now();
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
            waiting = left;
        }
    }

    /// Makes a whole group as it was at first, whatever went wrong: ends kernels that wait, waits for the streams, one for each rank, and
    /// clears counters and flags. Graphs of the group stay good.
    ///
    /// # Errors
    /// Devices that are lost.
    pub fn recover<'s>(ranks: &[Peers], streams: impl Iterator<Item = &'s Stream>) -> Result<(), Error> {
        let all: Vec<(&Peers, &Stream)> = ranks.iter().zip(streams).collect();
        Peers::end(&all)?;
        for (_, stream) in &all {
            stream.synchronize()?;
        }
        for rank in ranks {
            let beside = rank.device().stream()?;
            let base = rank.group.frames[rank.rank as usize].address().raw();
            // SAFETY: nothing of the group runs: all streams of its ranks have ended.
            let words = unsafe { DeviceSlice::<u32>::from_raw_mut(base, STAGING) };
            beside.write(words, &[0; STAGING])?;
            beside.synchronize()?;
            lock(&rank.messages).fill([false; 2]);
        }
        if let Some(rank) = ranks.first() {
            lock(&rank.group.missing).clear();
        }
        Ok(())
    }

    /// Says who is missing, and sees to it that the stream's work ends; nothing, where this rank waits for nobody.
    pub(super) fn give_up(&self, stream: &Stream, waited: Duration) -> Result<(), Error> {
        let beside = self.device().stream()?;
        let frame = beside.read(&self.group.frames[self.rank as usize][..STAGING])?;
        let missing = self.absent(&frame);
        if missing.is_empty() {
            return Ok(());
        }
        lock(&self.group.missing).clone_from(&missing);
        Peers::end(&[(self, stream)])?;
        stream.synchronize()?;
        Err(Error::Missing { rank: self.rank, missing, waited })
    }
}
