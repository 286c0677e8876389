//! Kernels of modules: attributes.

use std::ffi::c_char;

use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::software::functions::library;
use crate::software::rules::limits;
use crate::software::tables::software::with_context;
use crate::types::*;

pub(crate) fn get_attribute(value: Out<i32>, attribute: i32, function: CUfunction) -> Res {
    value.check()?;
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        let found = state.function(function)?;
        let sm = software.device(state.device_of(found.context)?)?.spec.sm();
        value.set(match attribute {
            8 => found.max_dynamic_shared as i32,
            9 => found.carveout,
            _ => limits::attribute(found.info()?, found.instance.module().target_sm(), sm, attribute)? as i32,
        })
    })
}

pub(crate) fn set_attribute(function: CUfunction, attribute: i32, value: i32) -> Res {
    with_context(|state, software, context| {
        let function = library::resolve(state, software, context, function)?;
        limits::set(state, software, function.id(), attribute, value)
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
