//! What goes wrong between ranks.

use std::path::PathBuf;
use std::time::Duration;

/// Why a collective failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory, streams and launches.
    #[error(transparent)]
    Runtime(#[from] warpsmith_runtime::Error),
    /// A group of a size that there cannot be.
    #[error("a group of {ranks} ranks: there can be 1 to {most}")]
    Ranks {
        /// How many were asked for.
        ranks: usize,
        /// How many there can be.
        most: u32,
    },
    /// A rank that the group does not have, or one that would send to itself.
    #[error("{what} rank {rank} of a group of {ranks}: another rank of the group is needed")]
    NoRank {
        /// What it was to be.
        what: &'static str,
        /// The rank.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// A buffer that does not fall into equal slices.
    #[error(
        "{operation} of {len} elements among {ranks} ranks: slices of {unit} elements are needed, as many for each"
    )]
    Slices {
        /// The collective.
        operation: &'static str,
        /// Elements of the buffer.
        len: usize,
        /// How many ranks there are.
        ranks: u32,
        /// What a slice is a multiple of.
        unit: usize,
    },
    /// More than a group has room to stage, in a collective that does not go in parts.
    #[error("{operation} of {len} elements: the group stages {most} at a time (`PeerOptions::capacity`)")]
    TooLong {
        /// The collective.
        operation: &'static str,
        /// Elements of the buffer.
        len: usize,
        /// How many can be staged.
        most: usize,
    },
    /// Ranks of which nothing was heard in time. The group cannot be used any more.
    #[error("rank {rank} waited {waited:?} for {}: the group cannot be used any more", Listed(missing))]
    Missing {
        /// Who waited.
        rank: u32,
        /// Who did not come; empty where that cannot be told.
        missing: Vec<u32>,
        /// For how long.
        waited: Duration,
    },
    /// The group lost ranks before.
    #[error("the group has lost {}: make a new one", Listed(missing))]
    Broken {
        /// Who did not come.
        missing: Vec<u32>,
    },
    /// A rank that has gone: its process ended, or it left after a failure. The group cannot be used any more.
    #[error("rank {rank} has lost rank {lost}: {reason}; the group cannot be used any more")]
    Lost {
        /// Who noticed.
        rank: u32,
        /// Who has gone.
        lost: u32,
        /// What is known of it.
        reason: String,
    },
    /// A rank whose memory another one cannot get at: it is on another machine or in another container, or nothing leads from one device to
    /// the other. All ranks of the group are told.
    #[error(
        "rank {rank} cannot reach the memory of rank {other}: {reason}\nhint: peer memory is for devices of one machine that reach each \
         other, in processes that see each other; sockets and NCCL go everywhere"
    )]
    Unreachable {
        /// Who cannot reach it.
        rank: u32,
        /// Whose memory it is.
        other: u32,
        /// Why not.
        reason: String,
    },
    /// Two ranks that do not do the same. The group cannot be used any more.
    #[error("rank {rank} has {own}, rank {other} {theirs}: all ranks have to issue the same, in the same order")]
    Differs {
        /// Who noticed.
        rank: u32,
        /// With whom.
        other: u32,
        /// What the first does.
        own: String,
        /// What the other does.
        theirs: String,
    },
    /// Host memory is no part of a graph.
    #[error("{0} through host memory cannot be captured")]
    NotCapturable(&'static str),
    /// NCCL is not there.
    #[error("NCCL was not found as {path:?}: {reason}\nhint: install libnccl2, or name the library in WARPSMITH_NCCL")]
    NoNccl {
        /// What was looked for.
        path: PathBuf,
        /// What the loader says, or the function that the library lacks.
        reason: String,
    },
    /// NCCL refuses.
    #[error("{call} failed: {text} ({code})")]
    Nccl {
        /// The function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// What NCCL says of it.
        text: String,
    },
    /// A variable of the launcher that makes no sense, or is not there.
    #[error("{variable}={value}: {expected}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value, `(unset)` if it has none.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// No place of a process among others.
    #[error("{place}: expected RANK/RANKS@HOST:PORT with a rank below their number, as in 0/2@127.0.0.1:29501")]
    Place {
        /// What was given.
        place: String,
    },
    /// More than rank 0 can tell the others at once.
    #[error("{len} bytes to tell: {most} at once at most")]
    TooMuch {
        /// Bytes.
        len: usize,
        /// How many there can be.
        most: usize,
    },
    /// Ranks could not meet.
    #[error("rendezvous at {address}: {reason}")]
    Rendezvous {
        /// Where.
        address: String,
        /// Why not.
        reason: String,
    },
}

struct Listed<'a>(&'a [u32]);

impl std::fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("others of its group"),
            [one] => write!(f, "rank {one}"),
            many => {
                let names: Vec<String> = many.iter().map(ToString::to_string).collect();
                write!(f, "ranks {}", names.join(", "))
            }
        }
    }
}
