//! How many blocks of a kernel fit on a multiprocessor.

use warpsmith_arch::{Demand, Occupancy, WARP};
use warpsmith_simt::KernelInfo;

use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::software::functions::library;
use crate::software::rules::limits;
use crate::software::spec::Spec;
use crate::software::tables::software::with_context;
use crate::types::*;

/// Blocks of `threads` threads and `dynamic` bytes of shared memory on one multiprocessor.
pub(crate) fn blocks_per_sm(spec: Spec, info: &KernelInfo, threads: u32, dynamic: usize) -> u32 {
    if threads == 0 || threads > limits::max_threads(info) {
        return 0;
    }
    let shared = u32::try_from(dynamic).map_or(u32::MAX, |dynamic| info.static_shared.saturating_add(dynamic));
    Occupancy::on(spec.arch, Demand { registers: limits::registers(info), threads, shared }).blocks()
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
    let most = if limit == 0 { limits::max_threads(info) } else { limits::max_threads(info).min(limit as u32) };
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
    grid.set((best.1 * spec.gpu.multiprocessors) as i32)
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
        let (arch, blocks) = (spec.arch, blocks as u32);
        let share = arch.shared / blocks / arch.shared_unit * arch.shared_unit;
        let used = arch.shared_reserved + info.static_shared;
        bytes.set(share.saturating_sub(used).min(arch.shared_optin - info.static_shared) as usize)
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
        clusters.set((blocks * spec.gpu.multiprocessors) as i32)
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
    use super::*;
    use crate::software::spec;

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

    /// ptxas fits a kernel of 256 threads with `.minnctapersm 2` into 128 registers, on every architecture that is claimed.
    #[test]
    fn blocks_that_a_kernel_asks_for_are_resident() {
        let spec = spec::find(90).unwrap();
        for (min_blocks, registers, blocks) in
            [(None, 255, 1), (Some(2), 128, 2), (Some(3), 80, 3), (Some(64), 255, 1), (Some(0), 255, 1)]
        {
            let info = KernelInfo { max_threads: Some([256, 1, 1]), min_blocks, ..kernel(255, 0) };
            assert_eq!(limits::registers(&info), registers, "{min_blocks:?}");
            assert_eq!(blocks_per_sm(spec, &info, 256, 0), blocks, "{min_blocks:?}");
        }
    }
}
