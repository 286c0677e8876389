//! Checked and profiled launches.
//!
//! [`Machine::inspect`](crate::Machine::inspect) runs a kernel as [`launch`](crate::Machine::launch) does, with the same
//! results, and watches it: every operation has a note that says what it reads, writes and accesses, and the
//! run loop calls the checkers before and after it. What the checkers see they report as [`Finding`]s, grouped by
//! rule and places; unlike faults, findings do not stop the kernel.
//!
//! | module | what it watches |
//! |---|---|
//! | `copies` | asynchronous copies that are used before the wait for them; bulk copies: `race` |
//! | `init` | undefined bytes: in memory one bit a byte, in registers one bit a bit, made when the first undefined value turns up; they may be copied around freely and are reported where they decide something or leave the device |
//! | `race` | unordered accesses under the PTX memory model; barriers and collectives |
//! | `fold` | findings of one cause, as one |
//! | `story` | how undefined data came to where it is, for later launches and for copies to the host |
//! | `history` | operations of the host program that use the same memory unordered |
//! | `profile`, `metrics` | counters by operation, and their rules |
//!
//! Memory: races cost 0.63 bytes a byte of each 4 KiB page of global memory that the launch touches; 16 bytes a byte where
//! lanes do not access runs of bytes, and more where many threads read the same bytes unordered (at most 96 readers are
//! remembered). Of shared memory, an access costs 160 bytes until the next barrier of the block, up to 1.3 MB; where
//! warps write what others have accessed without one, it costs what global memory does.

pub(crate) mod checker;
pub(crate) mod copies;
pub(crate) mod finding;
pub(crate) mod fold;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod metrics;
pub(crate) mod note;
pub(crate) mod profile;
pub(crate) mod race;
pub(crate) mod story;
pub(crate) mod touched;

pub use finding::{Also, Finding, Frame, Rule, Severity, Site, own_frame};
pub use history::Ordering;
pub use metrics::Metrics;
pub use note::Class;
pub use profile::{LineProfile, Profile};

use crate::counters::Counters;
use crate::fault::Fault;

/// What a launch is watched for. Bounds, alignment and deadlock are always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Undefined data. Needs [`Memory::track`](crate::Memory::track) before the memory in question is allocated.
    pub init: bool,
    /// Races.
    pub races: bool,
    /// Barriers, membermasks, convergence of collectives, asynchronous copies.
    pub sync: bool,
    /// Counters by operation.
    pub profile: bool,
    /// Shuffles the order of blocks, warps and lanes; 0 is the reference order.
    pub seed: u64,
}

impl Checks {
    /// Every check, no profile, reference order.
    pub const ALL: Checks = Checks { init: true, races: true, sync: true, profile: false, seed: 0 };
}

/// What a watched launch gave.
#[derive(Debug, Default)]
pub struct Inspection {
    /// What it did.
    pub counters: Counters,
    /// What is wrong with it, in the order in which it was first seen.
    pub findings: Vec<Finding>,
    /// Counters by line, if asked for.
    pub profile: Option<Profile>,
    /// What stopped it, if something did.
    pub fault: Option<Box<Fault>>,
    /// One of the findings is about the fault.
    pub fault_told: bool,
}
