//! Libraries: PTX that is parsed once and gets a module in a context when something of it is first
//! used there. Kernels of libraries stand for the function in whichever context uses them.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use warpsmith_simt::KernelInfo;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::functions::module;
use crate::software::image;
use crate::software::jit::Options;
use crate::software::rules::{capture, limits};
use crate::software::run::issue;
use crate::software::tables::{
    objects::{Library, LibraryKernel},
    software::{Software, engine, with, with_context},
    state::State,
};
use crate::types::*;

/// Options of libraries: a table of host functions (0), which means nothing here, and the promise to
/// keep the code in place (1), which is not needed.
const OPTIONS: i32 = 1;

#[allow(clippy::too_many_arguments)]
pub(crate) fn load_data(
    library: Out<CUlibrary>,
    code: In<c_void>,
    options: Out<i32>,
    values: Out<*mut c_void>,
    count: u32,
    library_options: Out<i32>,
    _: Out<*mut c_void>,
    library_count: u32,
) -> Res {
    library.check()?;
    load(library, &image::at(code)?, &Options::read(count, options, values)?, library_options, library_count)
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn load_file(
    library: Out<CUlibrary>,
    path: In<c_char>,
    options: Out<i32>,
    values: Out<*mut c_void>,
    count: u32,
    library_options: Out<i32>,
    _: Out<*mut c_void>,
    library_count: u32,
) -> Res {
    library.check()?;
    let text = image::of_file(&path.text()?)?;
    load(library, &text, &Options::read(count, options, values)?, library_options, library_count)
}

fn load(library: Out<CUlibrary>, text: &str, jit: &Options, options: Out<i32>, count: u32) -> Res {
    if options.input().list(count as usize)?.iter().any(|o| !(0..=OPTIONS).contains(o)) {
        return Err(Code::INVALID_VALUE);
    }
    let ptx = module::parse(text, engine()?.sm(), jit, &[])?;
    with(|state, _| {
        let id = state.fresh();
        state.libraries.insert(id, Library { ptx, modules: HashMap::new(), kernels: HashMap::new() });
        library.set(CUlibrary::from_id(id))
    })
}

pub(crate) fn unload(library: CUlibrary) -> Res {
    issue::finish_device()?;
    let gone = with(|state, _| {
        if !state.libraries.contains_key(&library.id()) {
            return Err(Code::INVALID_HANDLE);
        }
        capture::unsafe_call(state)?;
        let found = state.libraries.remove(&library.id()).ok_or(Code::INVALID_HANDLE)?;
        state.kernels.retain(|_, k| k.library != library.id());
        let mut gone = Vec::new();
        for module in found.modules.values() {
            state.functions.retain(|_, f| f.module != *module);
            if let Some(found) = state.modules.remove(module) {
                state.variables_gone(&found.instance);
                gone.push(found);
            }
        }
        Ok(gone)
    })?;
    drop(gone);
    Ok(())
}

fn find(state: &State, library: CUlibrary) -> Res<&Library> {
    state.libraries.get(&library.id()).ok_or(Code::INVALID_HANDLE)
}

fn kernel(state: &State, kernel: CUkernel) -> Res<&LibraryKernel> {
    state.kernels.get(&kernel.id()).ok_or(Code::INVALID_HANDLE)
}

fn info(state: &State, of: CUkernel) -> Res<&KernelInfo> {
    let kernel = kernel(state, of)?;
    let library = state.libraries.get(&kernel.library).ok_or(Code::INVALID_HANDLE)?;
    library.ptx.kernel(&kernel.name).ok_or(Code::INVALID_HANDLE)
}

fn kernel_of(state: &mut State, library: CUlibrary, name: &str) -> Res<CUkernel> {
    let found = find(state, library)?;
    if let Some(id) = found.kernels.get(name) {
        return Ok(CUkernel::from_id(*id));
    }
    module::kernel_of(&found.ptx, name)?;
    let id = state.fresh();
    let made = LibraryKernel {
        library: library.id(),
        name: Arc::from(name),
        c_name: name.bytes().chain([0]).collect(),
        attributes: HashMap::new(),
    };
    state.kernels.insert(id, made);
    if let Some(library) = state.libraries.get_mut(&library.id()) {
        library.kernels.insert(name.to_owned(), id);
    }
    Ok(CUkernel::from_id(id))
}

/// The library's module in a context, made on first use.
fn module_in(state: &mut State, software: &Software, context: u64, library: u64) -> Res<u64> {
    let found = state.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
    if let Some(module) = found.modules.get(&context).filter(|m| state.modules.contains_key(m)) {
        return Ok(*module);
    }
    let ptx = Arc::clone(&found.ptx);
    let module = module::place(state, software, context, ptx)?;
    if let Some(library) = state.libraries.get_mut(&library) {
        library.modules.insert(context, module);
    }
    Ok(module)
}

/// The function that a kernel handle stands for in a context.
pub(crate) fn function_in(state: &mut State, software: &Software, context: u64, of: CUkernel) -> Res<u64> {
    let found = kernel(state, of)?;
    let (library, name) = (found.library, Arc::clone(&found.name));
    let module = module_in(state, software, context, library)?;
    let fresh = state.modules.get(&module).is_some_and(|m| !m.functions.contains_key(&*name));
    let id = module::function_of(state, module, &name)?;
    if fresh {
        let device = state.device_of(context)?;
        let set: Vec<(i32, i32)> = kernel(state, of)?
            .attributes
            .iter()
            .filter(|((d, _), _)| *d == device)
            .map(|((_, attribute), value)| (*attribute, *value))
            .collect();
        for (attribute, value) in set {
            limits::set(state, software, id, attribute, value)?;
        }
    }
    Ok(id)
}

/// A function handle for what may be one or a kernel's, as launches take both.
pub(crate) fn resolve(state: &mut State, software: &Software, context: u64, handle: CUfunction) -> Res<CUfunction> {
    if state.kernels.contains_key(&handle.id()) {
        return Ok(CUfunction::from_id(function_in(state, software, context, CUkernel::from_id(handle.id()))?));
    }
    Ok(handle)
}

pub(crate) fn get_kernel(out: Out<CUkernel>, library: CUlibrary, name: In<c_char>) -> Res {
    out.check()?;
    let name = name.text()?;
    with(|state, _| out.set(kernel_of(state, library, &name)?))
}

pub(crate) fn kernel_count(count: Out<u32>, library: CUlibrary) -> Res {
    with(|state, _| count.set(find(state, library)?.ptx.kernels().count() as u32))
}

pub(crate) fn enumerate(kernels: Out<CUkernel>, count: u32, library: CUlibrary) -> Res {
    kernels.check()?;
    with(|state, _| {
        let names: Vec<String> = find(state, library)?.ptx.kernels().map(|k| k.name.clone()).collect();
        for (at, name) in names.iter().take(count as usize).enumerate() {
            kernels.set_at(at, kernel_of(state, library, name)?)?;
        }
        Ok(())
    })
}

pub(crate) fn get_module(out: Out<CUmodule>, library: CUlibrary) -> Res {
    out.check()?;
    with_context(|state, software, context| {
        out.set(CUmodule::from_id(module_in(state, software, context, library.id())?))
    })
}

pub(crate) fn get_global(address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: In<c_char>) -> Res {
    let name = name.text()?;
    with_context(|state, software, context| {
        let module = module_in(state, software, context, library.id())?;
        let module = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let (at, size) = module.instance.global(&name).ok_or(Code::NOT_FOUND)?;
        address.set_if_asked(at);
        bytes.set_if_asked(size as usize);
        Ok(())
    })
}

/// Variables in managed memory; the machine places every variable in device memory, so there are none.
pub(crate) fn get_managed(_: Out<CUdeviceptr>, _: Out<usize>, library: CUlibrary, name: In<c_char>) -> Res {
    name.text()?;
    with(|state, _| find(state, library).and(Err(Code::NOT_FOUND)))
}

pub(crate) fn get_function(out: Out<CUfunction>, of: CUkernel) -> Res {
    out.check()?;
    with_context(|state, software, context| out.set(CUfunction::from_id(function_in(state, software, context, of)?)))
}

pub(crate) fn of_kernel(library: Out<CUlibrary>, of: CUkernel) -> Res {
    with(|state, _| library.set(CUlibrary::from_id(kernel(state, of)?.library)))
}

pub(crate) fn kernel_name(name: Out<*const c_char>, of: CUkernel) -> Res {
    with(|state, _| name.set(kernel(state, of)?.c_name.as_ptr().cast()))
}

pub(crate) fn get_attribute(value: Out<i32>, attribute: i32, of: CUkernel, device: CUdevice) -> Res {
    value.check()?;
    with(|state, software| {
        let device = software.device(device)?;
        let set = kernel(state, of)?.attributes.get(&(device.ordinal, attribute)).copied();
        let library = state.libraries.get(&kernel(state, of)?.library).ok_or(Code::INVALID_HANDLE)?;
        let info = info(state, of)?;
        value.set(match (attribute, set) {
            (8 | 9, Some(set)) => set,
            (8, None) => limits::default_dynamic_shared(info) as i32,
            (9, None) => -1,
            _ => limits::attribute(info, library.ptx.target_sm(), device.spec.sm(), attribute)? as i32,
        })
    })
}

pub(crate) fn set_attribute(attribute: i32, value: i32, of: CUkernel, device: CUdevice) -> Res {
    with(|state, software| {
        let device = software.device(device)?;
        limits::check_settable(info(state, of)?, device.spec, attribute, value)?;
        let found = state.kernels.get_mut(&of.id()).ok_or(Code::INVALID_HANDLE)?;
        found.attributes.insert((device.ordinal, attribute), value);
        let (library, name) = (found.library, Arc::clone(&found.name));
        // Functions that exist already follow.
        let modules = state.libraries.get(&library).map(|l| l.modules.clone()).unwrap_or_default();
        for (context, module) in modules {
            let here = state.device_of(context) == Ok(device.ordinal);
            let id = state.modules.get(&module).and_then(|m| m.functions.get(&*name)).copied();
            if let Some(id) = id.filter(|_| here) {
                limits::set(state, software, id, attribute, value)?;
            }
        }
        Ok(())
    })
}

pub(crate) fn set_config(of: CUkernel, config: i32, device: CUdevice) -> Res {
    with(|state, software| {
        software.device(device)?;
        kernel(state, of)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}

pub(crate) fn param_info(of: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>) -> Res {
    offset.check()?;
    with(|state, _| {
        let param = info(state, of)?.params.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.set(param.offset as usize)?;
        size.set_if_asked(param.size as usize);
        Ok(())
    })
}

pub(crate) fn param_count(of: CUkernel, count: Out<usize>) -> Res {
    with(|state, _| count.set(info(state, of)?.params.len()))
}
