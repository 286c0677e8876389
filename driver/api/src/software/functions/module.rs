//! Modules.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use warpsmith_simt::{KernelInfo, Module as Ptx};

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::image;
use crate::software::jit::Options;
use crate::software::parsed;
use crate::software::report::report;
use crate::software::rules::{capture, limits};
use crate::software::run::issue;
use crate::software::tables::{
    objects::{Function, Module},
    software::{Software, with_context},
    state::State,
};
use crate::types::*;

/// Parses PTX for the software devices' architecture, under the limits of the options; their logs get what went wrong, or
/// what was found, behind the linker's warnings.
pub(crate) fn parse(text: &str, sm: u32, options: &Options, warnings: &[String]) -> Res<Arc<Ptx>> {
    let start = Instant::now();
    let tuned = if options.tuning.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(options.tuning.apply(text)) };
    let loaded = parsed::module(&tuned, sm);
    options.took(start);
    match loaded {
        Ok(ptx) => {
            let warnings = warnings.iter().map(|warning| format!("warning : {warning}\n"));
            options.info(&(warnings.collect::<String>() + &summary(&ptx, sm)));
            Ok(ptx)
        }
        Err(error) => {
            let log = error.to_string();
            options.error(&log);
            report(log);
            Err(Code::INVALID_PTX)
        }
    }
}

/// Gives a module's variables their places on a context's device, and the module a handle.
pub(crate) fn place(state: &mut State, software: &Software, context: u64, ptx: Arc<Ptx>) -> Res<u64> {
    let machine = &software.device(state.device_of(context)?)?.machine;
    let instance = Arc::new(machine.instantiate(ptx).map_err(|error| {
        report(format!("the module's variables have no place: {error}"));
        Code::OUT_OF_MEMORY
    })?);
    state.variables_placed(context, &instance);
    let id = state.fresh();
    state.modules.insert(id, Module { context, instance, functions: HashMap::new() });
    Ok(id)
}

fn load(module: Out<CUmodule>, text: &str, options: &Options) -> Res {
    module.check()?;
    let sm = with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        Ok(software.device(state.device_of(context)?)?.spec.sm())
    })?;
    // Outside the lock: parsing takes its time.
    let ptx = parse(text, sm, options, &[])?;
    with_context(|state, software, context| module.set(CUmodule::from_id(place(state, software, context, ptx)?)))
}

fn summary(ptx: &Ptx, sm: u32) -> String {
    let mut text = format!("info: {} entry function(s) for sm_{sm} (software)\n", ptx.kernels().count());
    for k in ptx.kernels() {
        let _ = writeln!(
            text,
            "info: '{}': about {} registers, {} bytes smem, {} bytes stack, {} bytes of parameters",
            k.name, k.registers, k.static_shared, k.local_bytes, k.param_bytes
        );
    }
    for (name, why) in ptx.refused() {
        let _ = writeln!(text, "warning: '{name}' cannot run here:\n{why}");
    }
    text
}

pub(crate) fn load_data(module: Out<CUmodule>, image: In<c_void>) -> Res {
    module.check()?;
    load(module, &image::at(image)?, &Options::none())
}

pub(crate) fn load_data_ex(
    module: Out<CUmodule>,
    image: In<c_void>,
    count: u32,
    options: Out<i32>,
    values: Out<*mut c_void>,
) -> Res {
    module.check()?;
    let options = Options::read(count, options, values)?;
    load(module, &image::at(image)?, &options)
}

pub(crate) fn load_file(module: Out<CUmodule>, path: In<c_char>) -> Res {
    load(module, &image::of_file(&path.text()?)?, &Options::none())
}

pub(crate) fn unload(module: CUmodule) -> Res {
    issue::finish_device()?;
    let gone = with_context(|state, _, _| {
        let module_id = module.id();
        if !state.modules.contains_key(&module_id) {
            return Err(Code::INVALID_HANDLE);
        }
        capture::unsafe_call(state)?;
        state.functions.retain(|_, f| f.module != module_id);
        let gone = state.modules.remove(&module_id);
        if let Some(module) = &gone {
            state.variables_gone(&module.instance);
        }
        Ok(gone)
    })?;
    drop(gone);
    Ok(())
}

pub(crate) fn get_function(function: Out<CUfunction>, module: CUmodule, name: In<c_char>) -> Res {
    function.check()?;
    let name = name.text()?;
    with_context(|state, _, _| function.set(CUfunction::from_id(function_of(state, module.id(), &name)?)))
}

/// A kernel of that name. One that the software driver cannot run says why now, when it is asked for.
pub(crate) fn kernel_of<'p>(ptx: &'p Ptx, name: &str) -> Res<&'p KernelInfo> {
    match (ptx.kernel(name), ptx.refused().get(name)) {
        (Some(info), _) => Ok(info),
        (None, Some(why)) => {
            report(format!("the software driver cannot run the kernel `{name}`:\n{why}"));
            Err(Code::NOT_SUPPORTED)
        }
        (None, None) => Err(Code::NOT_FOUND),
    }
}

/// The handle of a module's kernel, the same at every question.
pub(crate) fn function_of(state: &mut State, module: u64, name: &str) -> Res<u64> {
    let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
    if let Some(id) = found.functions.get(name) {
        return Ok(*id);
    }
    let info = kernel_of(found.instance.module(), name)?;
    let made = Function {
        module,
        context: found.context,
        instance: Arc::clone(&found.instance),
        name: Arc::from(name),
        c_name: name.bytes().chain([0]).collect(),
        max_dynamic_shared: limits::default_dynamic_shared(info),
        carveout: -1,
    };
    let id = state.fresh();
    state.functions.insert(id, made);
    if let Some(module) = state.modules.get_mut(&module) {
        module.functions.insert(name.to_owned(), id);
    }
    Ok(id)
}

pub(crate) fn function_count(count: Out<u32>, module: CUmodule) -> Res {
    count.check()?;
    with_context(|state, _, _| {
        let module = state.modules.get(&module.id()).ok_or(Code::INVALID_HANDLE)?;
        count.set(module.instance.module().kernels().count() as u32)
    })
}

pub(crate) fn enumerate(functions: Out<CUfunction>, count: u32, module: CUmodule) -> Res {
    functions.check()?;
    with_context(|state, _, _| {
        let found = state.modules.get(&module.id()).ok_or(Code::INVALID_HANDLE)?;
        let names: Vec<String> = found.instance.module().kernels().map(|k| k.name.clone()).collect();
        for (at, name) in names.iter().take(count as usize).enumerate() {
            let id = function_of(state, module.id(), name)?;
            functions.set_at(at, CUfunction::from_id(id))?;
        }
        Ok(())
    })
}

/// Whether code is loaded when it is first used (2) or with its module (1).
pub(crate) fn loading_mode(mode: Out<i32>) -> Res {
    mode.set(1)
}

pub(crate) fn get_global(address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: In<c_char>) -> Res {
    let name = name.text()?;
    with_context(|state, _, _| {
        let module = state.modules.get(&module.id()).ok_or(Code::INVALID_HANDLE)?;
        let (at, size) = module.instance.global(&name).ok_or(Code::NOT_FOUND)?;
        address.set_if_asked(at);
        bytes.set_if_asked(size as usize);
        Ok(())
    })
}
