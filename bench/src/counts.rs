//! What the software driver counts of a launch, and of a larger one by two smaller ones.

use warpsmith_check::Checks;
use warpsmith_driver_api::software::{self, LaunchProfile};
use warpsmith_host::{Error, Stream};

const PROFILE: Checks = Checks { init: false, races: false, sync: false, profile: true, seed: 0 };

/// Rows of a product that are counted, and twice as many; counters of more follow.
pub const FEW_ROWS: usize = 64;

/// Sums over all kernels of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lanes that executed an instruction.
    pub lane_instructions: u64,
    /// Instructions that warps issued.
    pub warp_instructions: u64,
    /// Bytes of memory, each sector of a launch once.
    pub dram_bytes: u64,
    /// Sectors of all requests to global memory.
    pub sectors: u64,
    /// Requests of warps to global memory.
    pub requests: u64,
    /// Passes over shared memory beyond the ideal number.
    pub bank_conflicts: u64,
    /// Launches of kernels.
    pub launches: u64,
    /// What was launched, one kernel and shape after the other.
    pub kernels: Vec<KernelCounts>,
}

/// A kernel's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Its name.
    pub name: String,
    /// Lanes that executed an instruction.
    pub lane_instructions: u64,
    /// Threads of its blocks.
    pub threads: u32,
    /// Bytes of its dynamic shared memory.
    pub dynamic_shared: u32,
}

impl Counts {
    /// Of what `work` launches.
    pub fn of(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Counts, Error> {
        let guard = software::check(PROFILE);
        software::reset_launch_profiles();
        let done = work().and_then(|()| stream.synchronize());
        let profiles = software::launch_profiles();
        drop(guard);
        done.map(|()| Counts::sum(&profiles))
    }

    fn sum(profiles: &[LaunchProfile]) -> Counts {
        let mut all = Counts::default();
        for p in profiles {
            let t = &p.profile.total;
            all.lane_instructions += t.lane_instructions;
            all.warp_instructions += t.warp_instructions;
            all.dram_bytes += p.profile.dram_bytes().0;
            all.sectors += t.global_sectors();
            all.requests += t.global_load_requests + t.global_store_requests + t.global_copy_requests;
            all.bank_conflicts += t.shared_conflicts();
            all.launches += p.launches;
            all.kernels.push(KernelCounts {
                name: p.kernel.clone(),
                lane_instructions: t.lane_instructions,
                threads: p.launch.block.iter().product(),
                dynamic_shared: p.launch.dynamic_shared,
            });
        }
        all
    }

    /// The kernel that took most.
    pub fn main_kernel(&self) -> Option<&KernelCounts> {
        self.kernels.iter().max_by_key(|k| k.lane_instructions)
    }

    /// The counters, by name.
    pub fn figures(&self) -> [(&'static str, u64); 6] {
        [
            ("lane_instructions", self.lane_instructions),
            ("warp_instructions", self.warp_instructions),
            ("dram_bytes", self.dram_bytes),
            ("sectors", self.sectors),
            ("requests", self.requests),
            ("bank_conflicts", self.bank_conflicts),
        ]
    }

    /// What `times` times as many rows as `self` has would count, `twice` being of twice as many: every block of rows
    /// does the same, so counters grow by the same for each.
    pub fn extrapolated(&self, twice: &Counts, times: u64) -> Counts {
        let more = times.saturating_sub(1);
        let at = |f: fn(&Counts) -> u64| f(self) + (f(twice).saturating_sub(f(self))) * more;
        let grown = |(few, twice): (&KernelCounts, &KernelCounts)| {
            let step = twice.lane_instructions.saturating_sub(few.lane_instructions);
            KernelCounts { lane_instructions: few.lane_instructions + step * more, ..few.clone() }
        };
        Counts {
            kernels: self.kernels.iter().zip(&twice.kernels).map(grown).collect(),
            lane_instructions: at(|c| c.lane_instructions),
            warp_instructions: at(|c| c.warp_instructions),
            dram_bytes: at(|c| c.dram_bytes),
            sectors: at(|c| c.sectors),
            requests: at(|c| c.requests),
            bank_conflicts: at(|c| c.bank_conflicts),
            ..self.clone()
        }
    }
}
