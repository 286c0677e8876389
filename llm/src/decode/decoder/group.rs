//! What a decoder computes its steps together with: nothing else, other devices, or other processes.

use super::options::{DecoderOptions, column_bytes, peer_options};
use crate::builtin::builtin_image;
use crate::decode::agree::{other_than, stands_for, words_of_all};
use crate::decode::model::Joined;
use crate::decode::together::{Member, Shares, Split, Stage};
use crate::decode::{DecodeError, Model};
use warpsmith_collectives::{Error as GroupError, Peers};
use warpsmith_runtime::{Device, Stream};

/// What a decoder computes its steps together with.
pub(super) enum Group {
    /// Nothing else.
    Alone,
    /// Other devices of this process, which add up and gather by these.
    Devices(Vec<Peers>),
    /// Other processes.
    Processes(Joined, Split),
}

impl Group {
    pub fn of(model: &Model, options: &DecoderOptions) -> Result<Group, DecodeError> {
        if let (Some(joined), Some((split, ..))) = (model.join()?, model.processes()) {
            let most = joined.member().and_then(Peers::of).map(Peers::capacity);
            let column = column_bytes(model);
            if let Some(most) = most.filter(|most| *most < column && split == Split::Shares) {
                let (operation, len, most) = ("all-gather of logits", column / 4, most / 4);
                return Err(GroupError::TooLong { operation, len, most }.into());
            }
            return Ok(Group::Processes(joined, split));
        }
        let devices: Vec<Device> = model.devices().cloned().collect();
        Ok(match devices.len() {
            1 => Group::Alone,
            _ => Group::Devices(Peers::group(&devices, builtin_image(), peer_options(model, options))?),
        })
    }

    pub fn peers(&self) -> &[Peers] {
        match self {
            Group::Devices(peers) => peers,
            _ => &[],
        }
    }

    pub fn member(&self) -> Option<&Member> {
        match self {
            Group::Processes(joined, _) => joined.member(),
            _ => None,
        }
    }

    /// One of the devices, or this process, among those that have shares of every layer.
    pub fn shares(&self, rank: usize) -> Option<Shares<'_>> {
        match self {
            Group::Processes(joined, Split::Shares) => {
                joined.member().map(|member| Peers::of(member).map_or(Shares::Process(member), Shares::Peer))
            }
            _ => self.peers().get(rank).map(Shares::Peer),
        }
    }

    /// This process among those that have other layers.
    pub fn stage(&self) -> Option<Stage<'_>> {
        match self {
            Group::Processes(joined, Split::Stages) => joined.member().map(Stage),
            _ => None,
        }
    }

    /// What all processes can do at once: the chunk that fits for all of them, where they have the same options.
    pub fn agree(&self, stream: &Stream, options: DecoderOptions) -> Result<DecoderOptions, DecodeError> {
        let Some(member) = self.member() else { return Ok(options) };
        let compared = DecoderOptions { chunk: 0, peers: Default::default(), programmatic: false, ..options };
        let [low, high] = stands_for(&format!("{compared:?}"));
        let all = words_of_all(member, stream, &[low, high, options.chunk as u32])?;
        let (same, chunks): (Vec<Vec<u32>>, Vec<u32>) = all.iter().map(|words| (words[..2].to_vec(), words[2])).unzip();
        let rank = member.rank() as usize;
        if let Some(other) = other_than(rank, &same) {
            return Err(DecodeError::Disagree { rank, other, what: "other options of its decoder" });
        }
        let chunk = chunks.into_iter().min().map_or(options.chunk, |least| least as usize);
        Ok(DecoderOptions { chunk, ..options })
    }
}
