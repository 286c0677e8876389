//! Modules and the linker. An image is PTX text; machine code answers `CUDA_ERROR_NO_BINARY_FOR_GPU`.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::sync::Arc;

use warpsmith_simt::{LoadOptions, Module as Ptx};

use super::function::default_dynamic_shared;
use super::state::{Function, Module, State};
use super::{Software, capture, report, with, with_context};
use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::types::*;

const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];
const FATBIN: [u8; 4] = [0x50, 0xed, 0x55, 0xba];

// CU_JIT_*.
const INFO_LOG: i32 = 3;
const INFO_LOG_SIZE: i32 = 4;
const ERROR_LOG: i32 = 5;
const ERROR_LOG_SIZE: i32 = 6;
const INPUT_PTX: i32 = 1;

/// The log buffers among JIT options: the buffer, its size, and where to answer how much was written.
#[derive(Clone, Copy)]
struct Log {
    buffer: Out<c_char>,
    size: usize,
    written: Option<(Out<*mut c_void>, usize)>,
}

/// The information log and the error log.
pub(super) struct Logs {
    info: Log,
    errors: Log,
}

impl Logs {
    pub fn read(count: u32, options: Out<i32>, values: Out<*mut c_void>) -> Res<Logs> {
        Ok(Logs {
            info: Log::read(count, options, values, INFO_LOG, INFO_LOG_SIZE)?,
            errors: Log::read(count, options, values, ERROR_LOG, ERROR_LOG_SIZE)?,
        })
    }
}

impl Log {
    fn read(count: u32, options: Out<i32>, values: Out<*mut c_void>, buffer: i32, size: i32) -> Res<Log> {
        let mut log = Log { buffer: Out::null(), size: 0, written: None };
        for at in 0..count as usize {
            let option = options.input().at(at)?;
            let value = values.input().at(at)?;
            if option == buffer {
                // SAFETY: the option's value is the caller's buffer of the size that the other option gives.
                log.buffer = unsafe { crate::arg::Raw::wrap(value.cast::<c_char>()) };
            } else if option == size {
                log.size = value.addr();
                log.written = Some((values, at));
            }
        }
        Ok(log)
    }

    fn write(self, text: &str) {
        if self.buffer.is_null() || self.size == 0 {
            return;
        }
        // The buffer is not null and not empty: nothing is left that could be refused.
        let _ = self.buffer.set_text(text, self.size);
        if let Some((values, at)) = self.written {
            let length = text.len().min(self.size - 1) + 1;
            let _ = values.set_at(at, std::ptr::without_provenance_mut(length));
        }
    }
}

/// The text of an image, which has no length of its own.
pub(super) fn text_of(image: In<c_void>) -> Res<String> {
    let start = image.address().cast::<c_char>();
    if start.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut head = [0u8; 4];
    for (at, byte) in head.iter_mut().enumerate() {
        // SAFETY: an image is machine code with a header, or text up to a NUL, where this stops.
        *byte = unsafe { start.add(at).read() } as u8;
        if *byte == 0 {
            break;
        }
    }
    match head {
        ELF | FATBIN => {
            let kind = if head == ELF { "a cubin" } else { "a fat binary" };
            report(format!("the image is {kind}: the software driver runs PTX text"));
            return Err(Code::NO_BINARY_FOR_GPU);
        }
        [0, ..] => return Err(Code::INVALID_IMAGE),
        _ => {}
    }
    // SAFETY: not machine code, so a NUL-terminated text, as the API documents.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_IMAGE)
}

/// Parses PTX for the software devices' architecture; logs get what went wrong, or what was found.
pub(super) fn parse(text: &str, sm: u32, logs: Option<&Logs>) -> Res<Arc<Ptx>> {
    match Ptx::load(text, &LoadOptions { sm }) {
        Ok(ptx) => {
            if let Some(logs) = logs {
                logs.info.write(&summary(&ptx, sm));
            }
            Ok(Arc::new(ptx))
        }
        Err(error) => {
            let log = error.to_string();
            if let Some(logs) = logs {
                logs.errors.write(&log);
            }
            report(log);
            Err(Code::INVALID_PTX)
        }
    }
}

/// Gives a module's variables their places on a context's device, and the module a handle.
pub(super) fn place(state: &mut State, software: &Software, context: u64, ptx: Arc<Ptx>) -> Res<u64> {
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

fn load(module: Out<CUmodule>, text: &str, logs: Option<&Logs>) -> Res {
    module.check()?;
    let sm = with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        Ok(software.device(state.device_of(context)?)?.spec.sm)
    })?;
    // Outside the lock: parsing takes its time.
    let ptx = parse(text, sm, logs)?;
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
    text
}

pub(crate) fn load_data(module: Out<CUmodule>, image: In<c_void>) -> Res {
    module.check()?;
    load(module, &text_of(image)?, None)
}

pub(crate) fn load_data_ex(
    module: Out<CUmodule>,
    image: In<c_void>,
    count: u32,
    options: Out<i32>,
    values: Out<*mut c_void>,
) -> Res {
    module.check()?;
    let logs = Logs::read(count, options, values)?;
    load(module, &text_of(image)?, Some(&logs))
}

pub(crate) fn load_file(module: Out<CUmodule>, path: In<c_char>) -> Res {
    let path = path.text()?;
    let image = read_file(&path)?;
    load(module, &image, None)
}

pub(super) fn read_file(path: &str) -> Res<String> {
    let bytes = std::fs::read(path).map_err(|error| {
        report(format!("{path}: {error}"));
        Code::FILE_NOT_FOUND
    })?;
    if bytes.starts_with(&ELF) || bytes.starts_with(&FATBIN) {
        report(format!("{path}: machine code: the software driver runs PTX text"));
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default().to_vec();
    String::from_utf8(bytes).map_err(|_| Code::INVALID_IMAGE)
}

pub(crate) fn unload(module: CUmodule) -> Res {
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

/// The handle of a module's kernel, the same at every question.
pub(super) fn function_of(state: &mut State, module: u64, name: &str) -> Res<u64> {
    let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
    if let Some(id) = found.functions.get(name) {
        return Ok(*id);
    }
    let info = found.instance.module().kernel(name).ok_or(Code::NOT_FOUND)?;
    let made = Function {
        module,
        context: found.context,
        instance: Arc::clone(&found.instance),
        name: Arc::from(name),
        c_name: name.bytes().chain([0]).collect(),
        max_dynamic_shared: default_dynamic_shared(info),
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

/// A linker invocation: the PTX texts given so far, and the image made of them.
pub(crate) struct Link {
    inputs: Vec<String>,
    /// Kept until the invocation is destroyed: the caller reads it there.
    image: Option<Arc<[u8]>>,
    logs: Logs,
}

// SAFETY: the logs' buffers are the caller's, good until the invocation is destroyed, from whichever thread completes it.
unsafe impl Send for Link {}

pub(crate) fn link_create(count: u32, options: Out<i32>, values: Out<*mut c_void>, out: Out<CUlinkState>) -> Res {
    out.check()?;
    let logs = Logs::read(count, options, values)?;
    with_context(|state, _, _| {
        let id = state.fresh();
        state.links.insert(id, Link { inputs: Vec::new(), image: None, logs });
        out.set(CUlinkState::from_id(id))
    })
}

fn link_add(link: CUlinkState, kind: i32, text: String) -> Res {
    if kind != INPUT_PTX {
        report("the software driver links PTX text alone".to_owned());
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    with_context(|state, _, _| {
        let link = state.links.get_mut(&link.id()).ok_or(Code::INVALID_HANDLE)?;
        link.inputs.push(text);
        Ok(())
    })
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn link_add_data(
    link: CUlinkState,
    kind: i32,
    data: Out<c_void>,
    size: usize,
    _: In<c_char>,
    _: u32,
    _: Out<i32>,
    _: Out<*mut c_void>,
) -> Res {
    let bytes = data.cast::<u8>().input().list(size)?;
    // The size may count a NUL.
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default().to_vec();
    link_add(link, kind, String::from_utf8(text).map_err(|_| Code::INVALID_IMAGE)?)
}

pub(crate) fn link_add_file(
    link: CUlinkState,
    kind: i32,
    path: In<c_char>,
    _: u32,
    _: Out<i32>,
    _: Out<*mut c_void>,
) -> Res {
    link_add(link, kind, read_file(&path.text()?)?)
}

/// One PTX text of several: later ones lose their header, whose directives may stand once only.
fn merge(inputs: &[String]) -> String {
    let mut text = String::new();
    for (at, input) in inputs.iter().enumerate() {
        for line in input.lines() {
            let header = [".version", ".target", ".address_size"].iter().any(|d| line.trim_start().starts_with(d));
            if at == 0 || !header {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

pub(crate) fn link_complete(link: CUlinkState, image: Out<*mut c_void>, size: Out<usize>) -> Res {
    image.check()?;
    with_context(|state, software, context| {
        let sm = software.device(state.device_of(context)?)?.spec.sm;
        let link = state.links.get_mut(&link.id()).ok_or(Code::INVALID_HANDLE)?;
        let text = merge(&link.inputs);
        parse(&text, sm, Some(&link.logs))?;
        // The NUL counts: callers copy as much as they are told, and load the copy.
        let bytes: Arc<[u8]> = text.into_bytes().into_iter().chain([0]).collect();
        image.set(bytes.as_ptr().cast_mut().cast())?;
        size.set_if_asked(bytes.len());
        link.image = Some(bytes);
        Ok(())
    })
}

pub(crate) fn link_destroy(link: CUlinkState) -> Res {
    with(|state, _| {
        let gone = state.links.remove(&link.id()).ok_or(Code::INVALID_HANDLE)?;
        drop(gone.image);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_texts_have_one_header() {
        let a = ".version 7.0\n.target sm_80\n.address_size 64\nA".to_owned();
        let b = ".version 7.1\n  .target sm_75\n.address_size 64\nB".to_owned();
        assert_eq!(merge(&[a, b]), ".version 7.0\n.target sm_80\n.address_size 64\nA\nB\n");
    }
}
