//! The lanes of a decoder on all devices of its model, and how it waits for them and for other processes.

use super::Decoder;
use super::group::Group;
use super::lane::Lane;
use crate::decode::DecodeError;
use crate::decode::together::of_group;
use warpsmith_collectives::Peers;
use warpsmith_runtime::{Error, Event};

impl Decoder {
    /// The lanes, in the order of the model's devices.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        std::iter::once(&self.lead).chain(&self.others)
    }

    pub(super) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        std::iter::once(&mut self.lead).chain(&mut self.others)
    }

    /// What one of several devices says, with its name; or the group.
    pub(super) fn of_rank(&self, rank: usize, source: Error) -> DecodeError {
        match (of_group(source), self.others.is_empty()) {
            (Ok(error), _) => error,
            (Err(source), true) => source.into(),
            (Err(source), false) => DecodeError::Rank { rank, device: self.model.rank(rank).device.ordinal(), source },
        }
    }

    fn of_peer(&self, (rank, error): (u32, warpsmith_collectives::Error)) -> DecodeError {
        match error {
            warpsmith_collectives::Error::Runtime(source) => self.of_rank(rank as usize, source),
            other => other.into(),
        }
    }

    /// Where several devices, or one beside other processes, have got to; nothing of one alone.
    pub(super) fn mark(&self) -> Result<Vec<Event>, DecodeError> {
        if self.group.member().is_some() {
            return Ok(vec![self.lead.stream.record()?]);
        }
        Peers::marks(self.group.peers(), self.lanes().map(|lane| &lane.stream)).map_err(|e| self.of_peer(e))
    }

    /// Waits until they have got there, for as long as [`DecoderOptions::peers`] or the group of processes allows; nothing, where there is
    /// one alone.
    pub(super) fn wait_for(&self, marks: Vec<Event>) -> Result<(), DecodeError> {
        if let Some(member) = self.group.member() {
            let stream = &self.lead.stream;
            let waited = marks.into_iter().try_for_each(|mark| member.wait(stream, mark));
            return waited.map_err(|error| self.of_peer((0, error)));
        }
        let streams = self.lanes().map(|lane| &lane.stream);
        Peers::wait_for(self.group.peers(), streams, marks).map_err(|e| self.of_peer(e))
    }

    /// Waits for all that several devices have queued.
    pub(super) fn wait_for_ranks(&mut self) -> Result<(), DecodeError> {
        self.wait_for(self.mark()?)?;
        self.under_way = false;
        Ok(())
    }

    /// Waits for what was queued, whatever became of it, and makes what launches rely on as it was at first. Where other processes may wait
    /// for what this one has not queued, it leaves them.
    pub(super) fn restore_lanes(&mut self) -> Result<(), DecodeError> {
        if let Group::Devices(peers) = &self.group {
            Peers::recover(peers, self.lanes().map(|lane| &lane.stream))?;
        }
        if let Some(member) = self.group.member().filter(|_| self.under_way) {
            member.leave();
        }
        for lane in self.lanes_mut() {
            lane.stream.synchronize()?;
            lane.buffers.restore(&lane.stream)?;
        }
        self.under_way = false;
        Ok(())
    }
}
