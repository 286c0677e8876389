//! Kernels of modules: attributes.

use std::ffi::c_char;

use warpsmith_arch::{DEFAULT_SHARED, MAX_THREADS, REGISTERS, WARP};
use warpsmith_simt::KernelInfo;

use super::spec::Spec;
use super::state::{Function, State};
use super::{Software, library, with_context};
use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::types::*;

impl Function {
    pub fn info(&self) -> Res<&KernelInfo> {
        self.instance.module().kernel(&self.name).ok_or(Code::INVALID_HANDLE)
    }
}

/// The most dynamic shared memory that a kernel may have before it opts in to more.
pub(super) fn default_dynamic_shared(info: &KernelInfo) -> u32 {
    DEFAULT_SHARED.saturating_sub(info.static_shared)
}

/// Threads of a block as the kernel declares them.
fn declared_threads(info: &KernelInfo) -> Option<u32> {
    let declared = info.required_threads.or(info.max_threads)?;
    Some(declared.iter().fold(1, |a: u32, n| a.saturating_mul(*n)).clamp(1, MAX_THREADS))
}

/// Registers of a thread: as many as are live at once, but no more than leave room for the declared block, for which an
/// assembler fits them.
pub(super) fn registers(info: &KernelInfo) -> u32 {
    let room = declared_threads(info).map_or(u32::MAX, |n| REGISTERS / n.next_multiple_of(WARP) / 8 * 8);
    info.registers.min(room)
}

/// The largest block: by the device, the declared bounds, and the registers.
pub(super) fn max_threads(info: &KernelInfo) -> u32 {
    let warps = REGISTERS / (registers(info).max(1).next_multiple_of(8) * WARP);
    declared_threads(info).unwrap_or(MAX_THREADS).min((warps * WARP).max(WARP))
}

/// Whether a kernel may be launched with such a block. A block that breaks the bounds which the kernel declares is a wrong
/// argument; one for whose threads there are not enough registers lacks resources.
pub(super) fn check_block(info: &KernelInfo, block: [u32; 3]) -> Res {
    let threads = block.iter().fold(1u32, |all, n| all.saturating_mul(*n));
    if info.required_threads.is_some_and(|required| required != block)
        || declared_threads(info).is_some_and(|most| threads > most)
    {
        return Err(Code::INVALID_VALUE);
    }
    if threads > max_threads(info) { Err(Code::LAUNCH_OUT_OF_RESOURCES) } else { Ok(()) }
}

/// An attribute that follows from the code and the device alone.
pub(super) fn attribute(info: &KernelInfo, target_sm: u32, device_sm: u32, attribute: i32) -> Res<u32> {
    Ok(match attribute {
        0 => max_threads(info),
        1 => info.static_shared,
        2 => info.const_bytes,
        7 => 0,
        3 => info.local_bytes,
        4 => registers(info),
        5 => target_sm,
        6 => device_sm,
        // Clusters: none.
        10..=15 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn get_attribute(value: Out<i32>, attribute: i32, function: CUfunction) -> Res {
    value.check()?;
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?;
        let sm = software.device(state.device_of(found.context)?)?.spec.sm();
        value.set(match attribute {
            8 => found.max_dynamic_shared as i32,
            9 => found.carveout,
            _ => self::attribute(found.info()?, found.instance.module().target_sm(), sm, attribute)? as i32,
        })
    })
}

/// Whether an attribute may be set to a value: dynamic shared memory, and the carve-out.
pub(super) fn check_settable(info: &KernelInfo, spec: Spec, attribute: i32, value: i32) -> Res {
    let room = spec.arch.shared_optin.saturating_sub(info.static_shared);
    match (attribute, u32::try_from(value)) {
        (8, Ok(bytes)) if bytes <= room => Ok(()),
        // -1: as the driver likes.
        (9, _) if (-1..=100).contains(&value) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(super) fn set(state: &mut State, software: &Software, function: u64, attribute: i32, value: i32) -> Res {
    let found = state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
    let spec = software.device(state.device_of(found.context)?)?.spec;
    check_settable(found.info()?, spec, attribute, value)?;
    let found = state.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?;
    if attribute == 8 {
        found.max_dynamic_shared = value as u32;
    } else {
        found.carveout = value;
    }
    Ok(())
}

pub(crate) fn set_attribute(function: CUfunction, attribute: i32, value: i32) -> Res {
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        set(state, software, function.id(), attribute, value)
    })
}

/// A preference that makes no difference here.
pub(crate) fn set_config(function: CUfunction, config: i32) -> Res {
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        state.function(function)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}

pub(crate) fn get_module(module: Out<CUmodule>, function: CUfunction) -> Res {
    with_context(|state, _, _| module.set(CUmodule::from_id(state.function(function)?.module)))
}

pub(crate) fn get_name(name: Out<*const c_char>, function: CUfunction) -> Res {
    with_context(|state, _, _| name.set(state.function(function)?.c_name.as_ptr().cast()))
}

pub(crate) fn get_param_info(function: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) -> Res {
    offset.check()?;
    with_context(|state, _, _| {
        let info = state.function(function)?.info()?;
        let param = info.params.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.set(param.offset as usize)?;
        size.set_if_asked(param.size as usize);
        Ok(())
    })
}

pub(crate) fn get_param_count(function: CUfunction, count: Out<usize>) -> Res {
    with_context(|state, _, _| count.set(state.function(function)?.info()?.params.len()))
}

/// Whether a function's code is loaded: it is, with its module.
pub(crate) fn is_loaded(loaded: Out<i32>, function: CUfunction) -> Res {
    with_context(|state, _, _| {
        state.function(function)?;
        loaded.set(1)
    })
}

pub(crate) fn ensure_loaded(function: CUfunction) -> Res {
    with_context(|state, _, _| state.function(function).map(|_| ()))
}
