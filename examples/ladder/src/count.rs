//! What launches do, as the software driver counts it, by the rules of Nsight Compute.

use std::sync::{Mutex, PoisonError};
use warpsmith_host::Error;
use warpsmith_host::driver::software::{self, Checks};

/// Sums over the launches of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Kernels launched.
    pub launches: u64,
    /// Instructions, one for each lane that executed them.
    pub lane_instructions: u64,
    /// Warp-wide loads from global memory, and the 32-byte sectors that they touch.
    pub loads: (u64, u64),
    /// Warp-wide stores to global memory, and the sectors that they touch.
    pub stores: (u64, u64),
    /// Bytes to and from memory: with perfect caches, and with none.
    pub dram: (u64, u64),
    /// Passes over the banks of shared memory.
    pub shared_wavefronts: u64,
    /// Those that conflicts cost.
    pub bank_conflicts: u64,
    /// Arrivals of warps at barriers.
    pub barriers: u64,
}

/// Profiles are kept for the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs launches and waits for them; counts if the engine is the software driver.
pub(crate) fn count(software: bool, run: impl FnOnce() -> Result<(), Error>) -> Result<Option<Counted>, Error> {
    if !software {
        return run().map(|()| None);
    }
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    software::reset_launch_profiles();
    {
        // Checks that are on stay on.
        let _counting = software::check(Checks { profile: true, ..software::checks() });
        run()?;
    }
    let mut sum = Counted::default();
    for launch in software::launch_profiles() {
        let (total, dram) = (&launch.profile.total, launch.profile.dram_bytes());
        sum.launches += launch.launches;
        sum.lane_instructions += total.lane_instructions;
        sum.loads.0 += total.global_load_requests;
        sum.loads.1 += total.global_load_sectors;
        sum.stores.0 += total.global_store_requests;
        sum.stores.1 += total.global_store_sectors;
        sum.dram.0 += dram.0;
        sum.dram.1 += dram.1;
        sum.shared_wavefronts += total.shared_wavefronts();
        sum.bank_conflicts += total.shared_conflicts();
        sum.barriers += total.barriers;
    }
    Ok(Some(sum))
}
