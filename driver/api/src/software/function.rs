//! Kernels of modules: attributes.

use std::ffi::c_char;

use warpsmith_simt::KernelInfo;

use super::spec::{MAX_THREADS, REGISTERS, SHARED_DEFAULT, WARP};
use super::state::Function;
use super::with_context;
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
    SHARED_DEFAULT.saturating_sub(info.static_shared)
}

/// The largest block: by the device, the declared bounds, and the registers.
pub(super) fn max_threads(info: &KernelInfo) -> u32 {
    let declared = info.required_threads.or(info.max_threads);
    let declared = declared.map_or(MAX_THREADS, |n| n.iter().fold(1, |a: u32, n| a.saturating_mul(*n)));
    let warps = REGISTERS / (info.registers.max(1).next_multiple_of(8) * WARP);
    declared.min(MAX_THREADS).min((warps * WARP).max(WARP))
}

pub(crate) fn get_attribute(value: Out<i32>, attribute: i32, function: CUfunction) -> Res {
    value.check()?;
    with_context(|state, software, _| {
        let found = state.function(function)?;
        let info = found.info()?;
        let spec = software.device(state.device_of(found.context)?)?.spec;
        let answer = match attribute {
            0 => max_threads(info),
            1 => info.static_shared,
            2 | 7 => 0,
            3 => info.local_bytes,
            4 => info.registers,
            5 => found.instance.module().target_sm(),
            6 => spec.sm,
            8 => found.max_dynamic_shared,
            9 => return value.set(found.carveout),
            // Clusters: none.
            10..=15 => 0,
            _ => return Err(Code::INVALID_VALUE),
        };
        value.set(answer as i32)
    })
}

pub(crate) fn set_attribute(function: CUfunction, attribute: i32, value: i32) -> Res {
    with_context(|state, software, _| {
        let found = state.functions.get(&function.id()).ok_or(Code::INVALID_HANDLE)?;
        let spec = software.device(state.device_of(found.context)?)?.spec;
        let room = spec.shared_optin.saturating_sub(found.info()?.static_shared);
        let found = state.functions.get_mut(&function.id()).ok_or(Code::INVALID_HANDLE)?;
        match (attribute, u32::try_from(value)) {
            (8, Ok(bytes)) if bytes <= room => found.max_dynamic_shared = bytes,
            // -1: as the driver likes.
            (9, _) if (-1..=100).contains(&value) => found.carveout = value,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    })
}

/// A preference that makes no difference here.
pub(crate) fn set_config(function: CUfunction, config: i32) -> Res {
    with_context(|state, _, _| {
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
