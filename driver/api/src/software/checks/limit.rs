//! How much a kernel may do: tests end although a kernel does not.

use std::sync::Mutex;

use super::asked::{OVERRIDE, SETTINGS};
use crate::lock::lock;

/// Instructions that a block may execute (its warps together) where somebody checks launches and nobody has set a limit.
pub const DEFAULT_LIMIT: u64 = 1 << 30;

static CHOSEN: Mutex<Option<u64>> = Mutex::new(None);

/// Sets how many instructions one block of a kernel may execute, its warps together; 0: as many as it likes. `None` goes back
/// to `WARPSMITH_INSTRUCTION_LIMIT`, or else to [`DEFAULT_LIMIT`] for launches of threads that keep a guard of
/// [`check`](super::check), and to no limit for all others. It holds for the launches of all threads from now on.
///
/// A launch beyond the limit answers `CUDA_ERROR_LAUNCH_TIMEOUT`; the report names the kernel, the thread, and the loop.
///
/// ```
/// use warpsmith_driver_api::software::{instruction_limit, set_instruction_limit};
/// assert_eq!(instruction_limit(), 0);
/// set_instruction_limit(Some(1_000_000));
/// assert_eq!(instruction_limit(), 1_000_000);
/// set_instruction_limit(None);
/// ```
pub fn set_instruction_limit(limit: Option<u64>) {
    *lock(&CHOSEN) = limit;
}

/// What holds for launches of the calling thread; 0: no limit.
pub fn instruction_limit() -> u64 {
    effective()
}

pub(super) fn effective() -> u64 {
    let guarded = || OVERRIDE.try_with(std::cell::Cell::get).ok().flatten().map(|_| DEFAULT_LIMIT);
    let environment = || SETTINGS.get().and_then(|s| s.limit);
    let chosen = *lock(&CHOSEN);
    chosen.or_else(environment).or_else(guarded).unwrap_or(0)
}
