//! How many blocks of a launch a multiprocessor holds, as `cuda_occupancy.h` of the CUDA toolkit computes it.

use crate::{Architecture, PARTITIONS, REGISTER_UNIT, REGISTERS, WARP};

/// What a block asks a multiprocessor for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// 32-bit registers of a thread.
    pub registers: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block, declared and dynamic.
    pub shared: u32,
}

/// Blocks of a launch on a multiprocessor, by each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks that a multiprocessor holds at most.
    pub by_blocks: u32,
    /// Blocks whose warps fit.
    pub by_warps: u32,
    /// Blocks whose registers fit.
    pub by_registers: u32,
    /// Blocks whose shared memory fits; `u32::MAX` if they use none.
    pub by_shared: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Warps that a multiprocessor holds.
    pub max_warps: u32,
}

impl Occupancy {
    /// Of blocks on an architecture. Registers are allocated to warps in units of 256 from a quarter of the multiprocessor's, so
    /// that warps fit in fours; shared memory to blocks in units of 128 bytes (256 before sm_80), with what the driver keeps.
    pub const fn on(arch: &Architecture, block: Demand) -> Occupancy {
        let warps = if block.threads == 0 { 1 } else { block.threads.div_ceil(WARP) };
        let registers = if block.registers == 0 { 1 } else { block.registers };
        let warp = registers.saturating_mul(WARP).saturating_add(REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
        let by_shared = if block.shared > arch.shared_optin {
            0
        } else {
            match (block.shared + arch.shared_reserved).next_multiple_of(arch.shared_unit) {
                0 => u32::MAX,
                taken => arch.shared / taken,
            }
        };
        Occupancy {
            by_blocks: arch.blocks,
            by_warps: arch.warps() / warps,
            by_registers: REGISTERS / PARTITIONS / warp * PARTITIONS / warps,
            by_shared,
            warps,
            max_warps: arch.warps(),
        }
    }

    /// The same by numbers: of an architecture, registers of a thread, declared and dynamic bytes of shared memory, threads of a
    /// block. `None` for an architecture that is not known.
    pub fn of(sm: u32, registers: u32, static_shared: u32, dynamic_shared: u32, threads: u32) -> Option<Occupancy> {
        let shared = static_shared.saturating_add(dynamic_shared);
        Some(Occupancy::on(Architecture::find(sm)?, Demand { registers, threads, shared }))
    }

    /// Blocks that are resident at once.
    pub fn blocks(&self) -> u32 {
        self.by_blocks.min(self.by_warps).min(self.by_registers).min(self.by_shared)
    }

    /// Resident warps, of 100 possible ones.
    pub fn percent(&self) -> f64 {
        100.0 * f64::from(self.blocks() * self.warps) / f64::from(self.max_warps)
    }

    /// The resource that allows the fewest blocks.
    pub fn limiter(&self) -> &'static str {
        let all = [
            (self.by_registers, "registers"),
            (self.by_shared, "shared memory"),
            (self.by_warps, "warps"),
            (self.by_blocks, "blocks"),
        ];
        all.into_iter().min_by_key(|l| l.0).map_or("nothing", |l| l.1)
    }

    /// Blocks of a launch of `grid` blocks on the fullest of `multiprocessors`: they are dealt out evenly, and no more are
    /// resident than fit.
    pub fn resident(&self, grid: u64, multiprocessors: u32) -> u32 {
        let each = grid.div_ceil(u64::from(multiprocessors.max(1)));
        u32::try_from(each).map_or(self.blocks(), |each| each.min(self.blocks()))
    }
}
