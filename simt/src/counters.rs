//! What a launch did, counted.
//!
//! Counters are deterministic: the same launch gives the same numbers, on one core or on many.
//! They describe the PTX that ran, not the machine code that a GPU would run, and they are never
//! times. Sectors and bank conflicts follow the rules that Nsight Compute's counters follow.

use std::ops::{Add, AddAssign};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one launch, or the sum of several.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Counters) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }

        impl Counters {
            /// Name and value of every counter, in declaration order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Instructions that warps issued.
    warp_instructions,
    /// Lanes that executed them, predicated-off lanes not counted.
    lane_instructions,
    /// Bytes that lanes asked for in loads from global memory.
    global_load_bytes,
    /// Bytes that lanes wrote to global memory.
    global_store_bytes,
    /// Distinct 32-byte sectors touched by each warp-wide load, summed.
    global_load_sectors,
    /// Distinct 32-byte sectors touched by each warp-wide store, summed.
    global_store_sectors,
    /// Warp-wide loads and stores of global memory.
    global_requests,
    /// Bytes that lanes loaded from shared memory.
    shared_load_bytes,
    /// Bytes that lanes stored to shared memory.
    shared_store_bytes,
    /// Warp-wide loads and stores of shared memory.
    shared_requests,
    /// Extra passes over the 32 four-byte banks, beyond the ideal number.
    shared_bank_conflicts,
    /// Bytes loaded from or stored to local memory by `ld.local`, `st.local` and generic accesses.
    local_bytes,
    /// Conditional and indexed branches that warps executed.
    branches,
    /// Those whose lanes disagreed.
    divergent_branches,
    /// Arrivals of warps at block barriers.
    barriers,
    /// Lanes' atomic operations and reductions.
    atomics,
    /// Warp collectives: shuffles, votes, matches, reductions, warp barriers.
    collectives,
    /// Function calls by warps.
    calls,
    /// Warp-wide matrix instructions.
    matrix_instructions,
    /// Blocks that ran.
    blocks,
}

impl Add for Counters {
    type Output = Counters;

    fn add(mut self, other: Counters) -> Counters {
        self += other;
        self
    }
}

impl Counters {
    /// Mean share of active lanes per instruction, from 0 to 1.
    pub fn lane_efficiency(&self) -> f64 {
        ratio(self.lane_instructions, self.warp_instructions.saturating_mul(32))
    }

    /// Bytes asked for per byte of the sectors touched by global loads; above 1 when lanes share.
    pub fn load_efficiency(&self) -> f64 {
        ratio(self.global_load_bytes, self.global_load_sectors.saturating_mul(32))
    }

    /// Bytes written per byte of the sectors touched by global stores.
    pub fn store_efficiency(&self) -> f64 {
        ratio(self.global_store_bytes, self.global_store_sectors.saturating_mul(32))
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_field_by_field() {
        let a = Counters { branches: 2, blocks: 1, ..Counters::default() };
        let b = Counters { branches: 3, atomics: 7, ..Counters::default() };
        let c = a + b;
        assert_eq!((c.branches, c.blocks, c.atomics, c.calls), (5, 1, 7, 0));
        assert_eq!(c.iter().map(|(_, v)| v).sum::<u64>(), 13);
    }

    #[test]
    fn ratios_of_nothing_are_zero() {
        assert_eq!(Counters::default().lane_efficiency(), 0.0);
    }
}
