//! The lanes of a decoder on all devices of its model, and how it waits for them.

use super::Decoder;
use super::lane::Lane;
use crate::decode::DecodeError;
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

    /// What one of several devices says, with its name.
    pub(super) fn of_rank(&self, rank: usize, source: Error) -> DecodeError {
        match self.others.is_empty() {
            true => source.into(),
            false => DecodeError::Rank { rank, device: self.model.rank(rank).device.ordinal(), source },
        }
    }

    fn of_peer(&self, (rank, error): (u32, warpsmith_collectives::Error)) -> DecodeError {
        match error {
            warpsmith_collectives::Error::Runtime(source) => self.of_rank(rank as usize, source),
            other => other.into(),
        }
    }

    /// Where several devices have got to; nothing of one.
    pub(super) fn mark(&self) -> Result<Vec<Event>, DecodeError> {
        Peers::marks(&self.peers, self.lanes().map(|lane| &lane.stream)).map_err(|e| self.of_peer(e))
    }

    /// Waits until several devices have got there, for as long as [`DecoderOptions::peers`](super::DecoderOptions::peers) allows; nothing,
    /// where there is one.
    pub(super) fn wait_for(&self, marks: Vec<Event>) -> Result<(), DecodeError> {
        Peers::wait_for(&self.peers, self.lanes().map(|lane| &lane.stream), marks).map_err(|e| self.of_peer(e))
    }

    /// Waits for all that several devices have queued.
    pub(super) fn wait_for_ranks(&self) -> Result<(), DecodeError> {
        self.wait_for(self.mark()?)
    }

    /// Waits for what was queued, whatever became of it, and makes what launches rely on as it was at first.
    pub(super) fn restore_lanes(&mut self) -> Result<(), DecodeError> {
        if !self.peers.is_empty() {
            Peers::recover(&self.peers, self.lanes().map(|lane| &lane.stream))?;
        }
        for lane in self.lanes_mut() {
            lane.stream.synchronize()?;
            lane.buffers.restore(&lane.stream)?;
        }
        Ok(())
    }
}
