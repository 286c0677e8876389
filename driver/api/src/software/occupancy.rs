//! How many blocks of a kernel fit on a multiprocessor, by NVIDIA's occupancy calculator: threads,
//! blocks, registers (in units of 256 a warp, warps in fours), shared memory (in units of 128 bytes).

use warpsmith_simt::KernelInfo;

use super::function::{max_threads, registers};
use super::spec::{REGISTERS, Spec, WARP};
use super::{library, with_context};
use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::types::*;

const SHARED_UNIT: usize = 128;

/// Blocks of a kernel on a multiprocessor, by each resource.
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
    /// By NVIDIA's occupancy calculator; `None` for an architecture that the software driver does not know.
    pub fn of(sm: u32, registers: u32, static_shared: u32, dynamic_shared: u32, threads: u32) -> Option<Occupancy> {
        super::spec::find(sm).map(|s| limits(s, registers, static_shared, dynamic_shared as usize, threads))
    }

    /// Blocks that are resident at once.
    pub fn blocks(&self) -> u32 {
        self.by_blocks.min(self.by_warps).min(self.by_registers).min(self.by_shared)
    }

    /// Resident warps, of 100 possible ones.
    pub fn percent(&self) -> f64 {
        100.0 * f64::from(self.blocks() * self.warps) / f64::from(self.max_warps.max(1))
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
}

fn limits(spec: &Spec, registers: u32, static_shared: u32, dynamic: usize, threads: u32) -> Occupancy {
    let warps = threads.div_ceil(WARP).max(1);
    let registers_per_warp = (registers.max(1) * WARP).next_multiple_of(256);
    let shared = (static_shared as usize).saturating_add(dynamic);
    let by_shared = if shared > spec.shared_optin as usize {
        0
    } else {
        let shared = (shared + spec.shared_reserved as usize).next_multiple_of(SHARED_UNIT);
        (spec.shared_per_sm as usize).checked_div(shared).unwrap_or(usize::MAX)
    };
    Occupancy {
        by_blocks: spec.max_blocks_per_sm,
        by_warps: spec.max_threads_per_sm / (warps * WARP),
        by_registers: ((REGISTERS / registers_per_warp) & !3) / warps,
        by_shared: u32::try_from(by_shared).unwrap_or(u32::MAX),
        warps,
        max_warps: spec.max_threads_per_sm / WARP,
    }
}

/// Blocks of `threads` threads and `dynamic` bytes of shared memory on one multiprocessor.
pub(super) fn blocks_per_sm(spec: &Spec, info: &KernelInfo, threads: u32, dynamic: usize) -> u32 {
    if threads == 0 || threads > max_threads(info) {
        return 0;
    }
    limits(spec, registers(info), info.static_shared, dynamic, threads).blocks()
}

pub(crate) fn max_active_blocks(blocks: Out<i32>, function: CUfunction, block_size: i32, shared: usize) -> Res {
    max_active_blocks_with_flags(blocks, function, block_size, shared, 0)
}

pub(crate) fn max_active_blocks_with_flags(
    blocks: Out<i32>,
    function: CUfunction,
    block_size: i32,
    shared: usize,
    flags: u32,
) -> Res {
    blocks.check()?;
    if block_size <= 0 || flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?;
        let spec = software.device(state.device_of(found.context)?)?.spec;
        blocks.set(blocks_per_sm(spec, found.info()?, block_size as u32, shared) as i32)
    })
}

pub(crate) fn max_potential(
    grid: Out<i32>,
    block: Out<i32>,
    function: CUfunction,
    shared_of_block: CUoccupancyB2DSize,
    shared: usize,
    limit: i32,
) -> Res {
    max_potential_with_flags(grid, block, function, shared_of_block, shared, limit, 0)
}

pub(crate) fn max_potential_with_flags(
    grid: Out<i32>,
    block: Out<i32>,
    function: CUfunction,
    shared_of_block: CUoccupancyB2DSize,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Res {
    grid.check()?;
    block.check()?;
    if limit < 0 || flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let (spec, function) = with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?.clone();
        let spec = software.device(state.device_of(found.context)?)?.spec;
        Ok((spec, found))
    })?;
    // From here on outside the lock: the caller's function may do as it likes.
    let info = function.info()?;
    let most = if limit == 0 { max_threads(info) } else { max_threads(info).min(limit as u32) };
    let mut best = (0, 0, 0);
    let mut size = most;
    while size > 0 {
        let dynamic = match shared_of_block {
            // SAFETY: the caller gave this function to be asked for block sizes.
            Some(f) => unsafe { f(size as i32) },
            None => shared,
        };
        let blocks = blocks_per_sm(spec, info, size, dynamic);
        if blocks * size > best.0 {
            best = (blocks * size, blocks, size);
        }
        // The limit itself first, then whole warps.
        size = if size % WARP == 0 { size - WARP } else { size / WARP * WARP };
    }
    block.set(best.2 as i32)?;
    grid.set((best.1 * spec.multiprocessors) as i32)
}

pub(crate) fn available_shared(bytes: Out<usize>, function: CUfunction, blocks: i32, block_size: i32) -> Res {
    bytes.check()?;
    if blocks <= 0 || block_size <= 0 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?;
        let spec = software.device(state.device_of(found.context)?)?.spec;
        let info = found.info()?;
        if blocks_per_sm(spec, info, block_size as u32, 0) < blocks as u32 {
            return Err(Code::INVALID_VALUE);
        }
        let share = spec.shared_per_sm as usize / blocks as usize / SHARED_UNIT * SHARED_UNIT;
        let used = spec.shared_reserved as usize + info.static_shared as usize;
        bytes.set(share.saturating_sub(used).min((spec.shared_optin - info.static_shared) as usize))
    })
}

/// Clusters of the configuration that run at once: of one block, which is all that there are here.
pub(crate) fn max_active_clusters(clusters: Out<i32>, function: CUfunction, config: In<LaunchConfig>) -> Res {
    clusters.check()?;
    let config = config.get()?;
    cluster_of_one(&config)?;
    let threads = config.block.iter().fold(1u32, |a, n| a.saturating_mul(*n));
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?;
        let spec = software.device(state.device_of(found.context)?)?.spec;
        let blocks = blocks_per_sm(spec, found.info()?, threads, config.shared_mem_bytes as usize);
        clusters.set((blocks * spec.multiprocessors) as i32)
    })
}

/// The largest cluster that a launch may have.
pub(crate) fn max_cluster_size(size: Out<i32>, function: CUfunction, config: In<LaunchConfig>) -> Res {
    size.check()?;
    config.get()?;
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        state.function(function)?;
        size.set(1)
    })
}

fn cluster_of_one(config: &LaunchConfig) -> Res {
    // SAFETY: the caller of the API vouches for the attributes that its structure names.
    let attributes = unsafe { Raw::wrap(config.attributes) }.input().list(config.num_attributes as usize)?;
    let larger = attributes.iter().any(|a| a.id == 4 && a.value[..3] != [1, 1, 1]);
    if larger { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    fn kernel(registers: u32, static_shared: u32) -> KernelInfo {
        KernelInfo {
            name: "k".into(),
            params: Vec::new(),
            param_bytes: 0,
            max_threads: None,
            required_threads: None,
            min_blocks: None,
            static_shared,
            local_bytes: 0,
            registers,
            const_bytes: 0,
        }
    }

    /// Figures of NVIDIA's occupancy calculator spreadsheet.
    #[test]
    fn agrees_with_the_occupancy_calculator() {
        for (sm, registers, shared, threads, blocks) in [
            (80, 32, 0, 256, 8),
            (80, 64, 0, 256, 4),
            (80, 255, 0, 256, 1),
            (80, 32, 48 * 1024, 256, 3),
            (86, 32, 0, 256, 6),
            (86, 32, 0, 64, 16),
            (90, 32, 0, 32, 32),
            (90, 40, 0, 1024, 1),
            (75, 32, 0, 256, 4),
        ] {
            let spec = spec::find(sm).unwrap();
            let got = blocks_per_sm(spec, &kernel(registers, shared), threads, 0);
            assert_eq!(got, blocks, "sm_{sm}, {registers} registers, {shared} B shared, {threads} threads");
        }
    }
}
