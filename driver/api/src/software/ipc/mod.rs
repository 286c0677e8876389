//! Memory and events that processes share (`cuIpc*`).
//!
//! An allocation whose handle is taken moves into a [`Segment`]: a file of memory without a name that the process keeps open, so
//! that nothing is left anywhere when the last process that has it ends. A handle says which process has it open, and by which
//! number; another process opens it through `/proc`. Each holds a lock on the file for as long as it has it mapped, which the kernel
//! takes back from processes that die: so everyone can ask whether somebody else still has it.

#[cfg(not(target_os = "linux"))]
mod absent;
mod event;
mod handle;
#[cfg(target_os = "linux")]
mod segment;

#[cfg(not(target_os = "linux"))]
use absent as platform;
#[cfg(target_os = "linux")]
use segment as platform;

use crate::codes::Code;

pub(crate) use event::{Awaited, Look, Mark, SharedEvent};
pub(crate) use handle::{Handle, Kind};
pub(crate) use platform::Segment;

/// Why nothing can be shared: what the driver answers, and the reason in words.
pub(crate) struct Refusal {
    pub code: Code,
    pub why: String,
}

/// Whether processes can share memory here.
pub(crate) const SUPPORTED: bool = cfg!(target_os = "linux");
