//! Checks of kernels that run on the SIMT machine.
//!
//! [`Inspect::inspect`] runs a kernel as [`Machine::launch`](warpsmith_simt::Machine::launch) does, with the same
//! results, and watches it: every operation has a note that says what it reads, writes and accesses, and the machine
//! publishes it to its [observer](warpsmith_simt::observer) before and after it runs. What the checkers see they report as
//! [`Finding`]s; unlike faults, findings do not stop the kernel.
//!
//! A finding is data: a [`Defect`] with its fields, the places, the addresses. Which findings are the same one is said in one
//! place, by their [`Key`]. A [`Report`] is a finding with what the host knows of it; its line of JSON carries the same fields
//! through a [report file](record) to whoever reads it. Sentences are made from the fields, when somebody wants to read them.
//!
//! ```
//! use std::sync::Arc;
//! use warpsmith_check::{Checks, Inspect, Rule};
//! use warpsmith_simt::{Launch, LoadOptions, Machine, MachineConfig, Module};
//!
//! let ptx = r#"
//! .version 7.0
//! .target sm_80
//! .address_size 64
//! .visible .entry last(.param .u64 p) {
//!     .reg .b32 %r<2>; .reg .b64 %rd<2>;
//!     ld.param.u64 %rd1, [p];
//!     mov.u32 %r1, %tid.x;
//!     st.global.u32 [%rd1], %r1;
//!     ret;
//! }"#;
//! let module = Arc::new(Module::load(ptx, &LoadOptions { sm: 90 })?);
//! let machine = Machine::new(MachineConfig::default());
//! let instance = machine.instantiate(module)?;
//! let p = machine.memory().alloc(4, 256)?;
//! let launch = Launch::new([1, 1, 1], [64, 1, 1]);
//! let inspection = machine.inspect(&instance, "last", &launch, &p.to_le_bytes(), &Checks::ALL);
//! assert_eq!(inspection.findings[0].rule, Rule::RaceGlobal);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it watches |
//! |---|---|
//! | `copies` | asynchronous copies that are used before the wait for them; bulk copies: `race` |
//! | `init` | undefined bytes: in memory one bit a byte, in registers one bit a bit, made when the first undefined value turns up; they may be copied around freely and are reported where they decide something or leave the device |
//! | `race` | unordered accesses under the PTX memory model; barriers and collectives |
//! | `checker` | passes what the machine publishes on to these |
//! | `raw`, `findings` | what they find, by positions in the code, each once |
//! | `fold` | findings of one cause, as one |
//! | `defect`, `site`, `finding`, `report` | what is found, as data |
//! | `key` | which findings are the same one |
//! | `text` | the sentences |
//! | `json`, `record` | lines of a report file |
//! | `story` | how undefined data came to where it is, for later launches and for copies to the host |
//! | `history` | operations of the host program that use the same memory unordered |
//! | `talk` | what launches tell each other while they run |
//! | `profile`, `metrics` | counters by operation, and their rules |
//! | `by_warp` | the same count for each warp of single blocks |
//!
//! Memory: races cost 0.63 bytes a byte of each 4 KiB page of global memory that the launch touches; 16 bytes a byte where
//! lanes do not access runs of bytes, and more where many threads read the same bytes unordered (at most 96 readers are
//! remembered). Of shared memory, an access costs 160 bytes until the next barrier of the block, up to 1.3 MB; where
//! warps write what others have accessed without one, it costs what global memory does.

mod by_warp;
mod checker;
mod copies;
pub mod defect;
mod finding;
mod findings;
mod fold;
mod history;
mod init;
mod json;
mod key;
mod launch;
mod metrics;
mod pieces;
mod place;
mod profile;
mod race;
mod raw;
pub mod record;
mod report;
mod rule;
mod site;
mod story;
mod talk;
mod text;
mod touched;
mod uses;

pub use by_warp::{BlockByWarp, ByWarp};
pub use defect::{AllocationKind, Defect};
pub use finding::{Also, Finding};
pub use history::{CheckedMemory, Ordering};
pub use key::{Groups, Key};
pub use launch::{Inspect, Progress, Start, Waiting};
pub use metrics::Metrics;
pub use profile::{LineProfile, Profile};
pub use report::{HostFrame, HostSite, Report};
pub use rule::{Rule, Severity};
pub use site::{Detail, Site, SiteKind, own_frame};
pub use talk::{Before, Speaker, Talk};
pub use warpsmith_simt::{Class, Frame};

use warpsmith_simt::{Counters, Fault};

/// What a launch is watched for. Bounds, alignment and deadlock are always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Undefined data. Needs [`CheckedMemory::track`] before the memory in question is allocated.
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
