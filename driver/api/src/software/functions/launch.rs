//! Launches: of kernels, checked against the device's and the kernel's limits, and of host functions.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use warpsmith_arch::{MAX_BLOCK, MAX_GRID, MAX_THREADS};

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::functions::{library, occupancy};
use crate::software::params::Params;
use crate::software::rules::{capture, limits};
use crate::software::run::issue;
use crate::software::tables::{
    ops::{COOPERATIVE, HostCall, HostFunction, Kernel, Op, PROGRAMMATIC},
    software::{Software, with_context},
    state::State,
};
use crate::types::*;

/// A kernel with its arguments read, if it could be launched so.
#[allow(clippy::too_many_arguments)]
pub(crate) fn checked(
    state: &State,
    software: &Software,
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    list: In<*mut c_void>,
    extra: In<*mut c_void>,
) -> Res<Kernel> {
    let found = state.function(function)?;
    state.live_context(found.context)?;
    let fits = |size: [u32; 3], most: [u32; 3]| size.iter().zip(most).all(|(n, most)| (1..=most).contains(n));
    if !fits(grid, MAX_GRID) || !fits(block, MAX_BLOCK) {
        return Err(Code::INVALID_VALUE);
    }
    // Bounded above: the product fits.
    let threads: u32 = block.iter().product();
    if threads > MAX_THREADS {
        return Err(Code::INVALID_VALUE);
    }
    let info = found.info()?;
    let spec = software.device(state.device_of(found.context)?)?.spec;
    limits::check_block(info, block)?;
    if shared > found.max_dynamic_shared || info.static_shared.saturating_add(shared) > spec.arch.shared_optin {
        return Err(Code::INVALID_VALUE);
    }
    let params = Arc::new(Params::read(info, list, extra)?);
    Ok(Kernel { function: function.id(), grid, block, shared, params, attributes: BTreeMap::new() })
}

#[allow(clippy::too_many_arguments)]
fn launch(
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: CUstream,
    list: Out<*mut c_void>,
    extra: Out<*mut c_void>,
    attributes: BTreeMap<u32, [u32; 16]>,
) -> Res {
    issue::enqueue(stream, |state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        // A stream runs the kernels of its own context.
        if state.function(function)?.context != context {
            return Err(Code::INVALID_HANDLE);
        }
        let kernel = checked(state, software, function, grid, block, shared, list.input(), extra.input())?;
        Ok(Op::Kernel(Kernel { attributes, ..kernel }))
    })
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn kernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    list: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Res {
    launch(
        function,
        [grid_x, grid_y, grid_z],
        [block_x, block_y, block_z],
        shared,
        stream,
        list,
        extra,
        BTreeMap::new(),
    )
}

/// All blocks of a cooperative launch must fit on the device at once. The machine starts blocks beside one that waits for
/// them, under every launch.
fn fits_at_once(function: CUfunction, grid: [u32; 3], block: [u32; 3], shared: u32) -> Res {
    let blocks: u64 = grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    let threads = block.iter().fold(1u32, |a, n| a.saturating_mul(*n));
    let room = with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?;
        let spec = software.device(state.device_of(found.context)?)?.spec;
        Ok(u64::from(occupancy::blocks_per_sm(spec, found.info()?, threads, shared as usize))
            * u64::from(spec.gpu.multiprocessors))
    })?;
    if blocks > room { Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE) } else { Ok(()) }
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn cooperative(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    list: Out<*mut c_void>,
) -> Res {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    fits_at_once(function, grid, block, shared)?;
    let mut value = [0; 16];
    value[0] = 1;
    launch(function, grid, block, shared, stream, list, Out::null(), BTreeMap::from([(COOPERATIVE, value)]))
}

pub(crate) fn kernel_ex(
    config: In<LaunchConfig>,
    function: CUfunction,
    list: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Res {
    let config = config.get()?;
    let (grid, block) = (config.grid, config.block);
    // SAFETY: the caller of the API vouches for the attributes that its structure names.
    let attributes = unsafe { crate::arg::Raw::wrap(config.attributes) }.input();
    let mut kept = BTreeMap::new();
    for attribute in attributes.list(config.num_attributes as usize)? {
        let [x, y, z, ..] = attribute.value;
        match attribute.id {
            // Ignore, access window, synchronisation policy, priority.
            0 | 1 | 3 | 8 => {}
            PROGRAMMATIC => {
                kept.insert(PROGRAMMATIC, attribute.value);
            }
            COOPERATIVE if x == 0 => {}
            COOPERATIVE => {
                fits_at_once(function, grid, block, config.shared_mem_bytes)?;
                kept.insert(COOPERATIVE, attribute.value);
            }
            // Clusters of one block are no clusters.
            4 if [x, y, z] == [1, 1, 1] => {}
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
    launch(function, grid, block, config.shared_mem_bytes, config.stream, list, extra, kept)
}

pub(crate) fn host_function(stream: CUstream, function: CUhostFn, user_data: Out<c_void>) -> Res {
    let function = HostFunction::Plain(function.ok_or(Code::INVALID_VALUE)?);
    let user_data = user_data.address().expose_provenance();
    issue::enqueue(stream, |_, _, _| Ok(Op::Host(HostCall { function, user_data })))
}

/// The mode says how a GPU's stream waits for the host: by blocking (0) or spinning (1).
pub(crate) fn host_function_v2(stream: CUstream, function: CUhostFn, user_data: Out<c_void>, mode: u32) -> Res {
    if mode > 1 { Err(Code::INVALID_VALUE) } else { host_function(stream, function, user_data) }
}

pub(crate) fn add_callback(stream: CUstream, callback: CUstreamCallback, user_data: Out<c_void>, flags: u32) -> Res {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let function = HostFunction::OfStream(callback.ok_or(Code::INVALID_VALUE)?, stream.id());
    let user_data = user_data.address().expose_provenance();
    with_context(|state, _, context| {
        // Unlike host functions, callbacks cannot be captured.
        let key = state.stream_key(context, stream)?;
        capture::eager_only(state, key)
    })?;
    issue::enqueue(stream, |_, _, _| Ok(Op::Host(HostCall { function, user_data })))
}
