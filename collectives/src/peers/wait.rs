//! Waiting for ranks, and for those that do not come.

use super::Peers;
use crate::Error;
use crate::lock::lock;
use std::time::{Duration, Instant};
use warpsmith_runtime::{Event, Stream};

impl Peers {
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
                match rank.seat().go_on(&beside, &done) {
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
    /// [`Error::Missing`] as for [`Collective::synchronize`](crate::Collective::synchronize), and the rank of a stream whose work failed, with
    /// what its device says. Kernels of other ranks may wait then: see [`Peers::recover`].
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

    /// Makes a whole group of threads as it was at first, whatever went wrong: ends kernels that wait, waits for the streams, one for each rank, and
    /// clears counters and flags. Graphs of the group stay good.
    ///
    /// # Errors
    /// Devices that are lost; a group of processes that has ended, of which nothing is made.
    pub fn recover<'s>(ranks: &[Peers], streams: impl Iterator<Item = &'s Stream>) -> Result<(), Error> {
        if let Some(beyond) = ranks.iter().find_map(|rank| rank.group.beyond.as_ref()) {
            return beyond.links.check();
        }
        let all: Vec<(&Peers, &Stream)> = ranks.iter().zip(streams).collect();
        Peers::end(&all)?;
        for (_, stream) in &all {
            stream.synchronize()?;
        }
        for rank in ranks {
            // SAFETY: all streams of its ranks have ended.
            unsafe { rank.seat().clear(&rank.device().stream()?) }?;
        }
        if let Some(rank) = ranks.first() {
            lock(&rank.group.missing).clear();
        }
        Ok(())
    }

    /// Says who is missing, and sees to it that the stream's work ends; nothing, where this rank waits for nobody.
    pub(super) fn give_up(&self, stream: &Stream, waited: Duration) -> Result<(), Error> {
        let seat = self.seat();
        let missing = seat.absent(&seat.flags(&seat.device.stream()?)?);
        if missing.is_empty() {
            return Ok(());
        }
        if let Some(beyond) = &self.group.beyond {
            // Who watches lets the kernels go.
            beyond.links.fail(Error::Missing { rank: self.rank, missing, waited });
            return Ok(());
        }
        lock(&self.group.missing).clone_from(&missing);
        Peers::end(&[(self, stream)])?;
        stream.synchronize()?;
        Err(Error::Missing { rank: self.rank, missing, waited })
    }
}
