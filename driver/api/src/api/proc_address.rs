//! The functions that are answered without an engine: errors, the version, and `cuGetProcAddress`.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_ulonglong, c_void};
use std::sync::OnceLock;

use super::Row;
use crate::arg::{In, Out};
use crate::codes::{Code, Res, describe};
use crate::engine::{Active, active};
use crate::software::VERSION;

const PER_THREAD_DEFAULT_STREAM: c_ulonglong = 2;

/// What needs no engine.
const ANSWERED_HERE: [&str; 6] =
    ["cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName", "cuGetProcAddress", "cuGetProcAddress_v2"];

fn table() -> &'static HashMap<&'static str, Vec<Row>> {
    static TABLE: OnceLock<HashMap<&'static str, Vec<Row>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut rows = Vec::new();
        super::control::always_rows(&mut rows);
        super::control::control_rows(&mut rows);
        super::library::library_rows(&mut rows);
        super::memory::memory_rows(&mut rows);
        super::stream::stream_rows(&mut rows);
        super::graph::graph_rows(&mut rows);
        super::unsupported::all_rows(&mut rows);
        // From CUDA 12 on the base name means the function with flags.
        rows.push(crate::api::row!(cuGraphInstantiate 12000 cuGraphInstantiateWithFlags false));
        let mut table: HashMap<&'static str, Vec<Row>> = HashMap::new();
        for row in rows {
            table.entry(row.base).or_default().push(row);
        }
        table
    })
}

use super::graph::cuGraphInstantiateWithFlags;

/// Every exported function: name and address.
pub(crate) fn exported() -> impl Iterator<Item = (&'static str, usize)> {
    table().values().flatten().map(|row| (row.name, row.address))
}

enum Lookup {
    Address(usize),
    NewerVersionNeeded,
    Unknown,
}

/// The address for a name as `cuGetProcAddress` takes it, of the newest ABI up to `version` that the engine has.
fn find(symbol: &str, version: i32, per_thread: bool, present: &dyn Fn(&str) -> bool) -> Lookup {
    if let Some(rows) = table().get(symbol) {
        let rows: Vec<&Row> = rows.iter().filter(|r| present(r.name)).collect();
        if rows.is_empty() {
            return Lookup::Unknown;
        }
        let newest =
            |twin: bool| rows.iter().filter(|r| r.since <= version && r.per_thread == twin).max_by_key(|r| r.since);
        let best = newest(false);
        let twin = newest(true).filter(|t| per_thread && best.is_none_or(|b| b.since <= t.since));
        return match twin.or(best) {
            Some(row) => Lookup::Address(row.address),
            None => Lookup::NewerVersionNeeded,
        };
    }
    // A full exported name, which some callers use.
    match exported().find(|(name, _)| *name == symbol) {
        Some((name, address)) if present(name) => Lookup::Address(address),
        Some(_) => Lookup::Unknown,
        None => Lookup::Unknown,
    }
}

/// The address of an exported function by its full name.
pub(crate) fn lookup(name: &str) -> Option<*const c_void> {
    exported().find(|(n, _)| *n == name).map(|(_, address)| std::ptr::with_exposed_provenance(address))
}

pub(crate) fn lookup_v1(symbol: In<c_char>, function: Out<*mut c_void>, version: c_int, flags: c_ulonglong) -> Res {
    resolve(symbol, function, version, flags).map_err(|(code, _)| code)
}

pub(crate) fn lookup_v2(
    symbol: In<c_char>,
    function: Out<*mut c_void>,
    version: c_int,
    flags: c_ulonglong,
    status: Out<c_int>,
) -> Res {
    // 0 found, 1 not found, 2 the version asked for is too old.
    match resolve(symbol, function, version, flags) {
        Ok(()) => {
            status.set_if_asked(0);
            Ok(())
        }
        Err((code, state)) => {
            status.set_if_asked(state);
            Err(code)
        }
    }
}

fn resolve(
    symbol: In<c_char>,
    function: Out<*mut c_void>,
    version: c_int,
    flags: c_ulonglong,
) -> Result<(), (Code, i32)> {
    function.check().map_err(|c| (c, 1))?;
    let name = symbol.text().map_err(|c| (c, 1))?;
    function.set(std::ptr::null_mut()).map_err(|c| (c, 1))?;
    // An older driver lacks functions for which there are forwarders here.
    let present = |name: &str| match active() {
        Some(Active::Cuda(real)) => {
            ANSWERED_HERE.contains(&name) || CString::new(name).is_ok_and(|n| real.symbol(&n).is_some())
        }
        _ => true,
    };
    let address = match find(&name, version, flags & PER_THREAD_DEFAULT_STREAM != 0, &present) {
        Lookup::Address(address) => std::ptr::with_exposed_provenance_mut(address),
        Lookup::NewerVersionNeeded => return Err((Code::NOT_FOUND, 2)),
        Lookup::Unknown => from_real(&name, version, flags).ok_or((Code::NOT_FOUND, 1))?,
    };
    function.set(address).map_err(|c| (c, 1))
}

/// What this library does not have, the real driver may.
fn from_real(name: &str, version: c_int, flags: c_ulonglong) -> Option<*mut c_void> {
    let Some(Active::Cuda(real)) = active() else { return None };
    let symbol = CString::new(name).ok()?;
    let ask = real.symbol(c"cuGetProcAddress")?;
    // SAFETY: the driver's symbol of this name has this signature.
    let ask: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> i32 =
        unsafe { std::mem::transmute(ask) };
    let mut address = std::ptr::null_mut();
    // SAFETY: a NUL-terminated name and a live place for the answer.
    let code = unsafe { ask(symbol.as_ptr(), &mut address, version, flags) };
    (code == 0 && !address.is_null()).then_some(address)
}

/// `cuDriverGetVersion`: the engine's version, and before there is one the software engine's.
pub(crate) fn version(version: Out<c_int>) -> Res {
    match active() {
        Some(Active::Cuda(real)) => version.set(real.version()),
        _ => version.set(VERSION),
    }
}

pub(crate) fn error_string(code: i32, text: Out<*const c_char>) -> Res {
    answer(code, text, |(_, text)| text.as_ptr())
}

pub(crate) fn error_name(code: i32, name: Out<*const c_char>) -> Res {
    answer(code, name, |(name, _)| name.as_ptr())
}

type Described = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn answer(code: i32, out: Out<*const c_char>, pick: impl Fn(Described) -> *const c_char) -> Res {
    out.check()?;
    match describe(code) {
        Some(found) => out.set(pick(found)),
        None => {
            out.set(std::ptr::null())?;
            Err(Code::INVALID_VALUE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(symbol: &str, version: i32, per_thread: bool) -> Option<&'static str> {
        match find(symbol, version, per_thread, &|_| true) {
            Lookup::Address(a) => table().values().flatten().find(|r| r.address == a).map(|r| r.name),
            _ => None,
        }
    }

    #[test]
    fn versions_choose_the_abi() {
        assert_eq!(name_of("cuStreamBeginCapture", 10000, false), Some("cuStreamBeginCapture"));
        assert_eq!(name_of("cuStreamBeginCapture", 10010, false), Some("cuStreamBeginCapture_v2"));
        assert_eq!(name_of("cuStreamBeginCapture", 12040, true), Some("cuStreamBeginCapture_v2_ptsz"));
        assert_eq!(name_of("cuGraphInstantiate", 12000, false), Some("cuGraphInstantiateWithFlags"));
        assert_eq!(name_of("cuCtxCreate", 3020, false), Some("cuCtxCreate_v2"));
        assert_eq!(name_of("cuCtxCreate", 12000, false), Some("cuCtxCreate_v3"));
        assert_eq!(name_of("cuMemAlloc", 12000, true), Some("cuMemAlloc_v2"), "no twin: the function itself");
        assert_eq!(name_of("cuMemAlloc_v2", 12000, false), Some("cuMemAlloc_v2"));
        assert_eq!(name_of("cuMemAlloc", 3000, false), Some("cuMemAlloc"));
        assert!(matches!(find("cuLibraryLoadData", 11080, false, &|_| true), Lookup::NewerVersionNeeded));
        assert_eq!(name_of("cuGraphGetEdges", 12020, false), Some("cuGraphGetEdges"));
        assert_eq!(name_of("cuGraphGetEdges", 12030, false), Some("cuGraphGetEdges_v2"));
        // An engine without the newest ABI answers with the one before, and without any not at all.
        let older = |name: &str| name != "cuGraphGetEdges_v2";
        let Lookup::Address(found) = find("cuGraphGetEdges", 13000, false, &older) else { panic!("the first ABI") };
        assert_eq!(Some(found), exported().find(|(n, _)| *n == "cuGraphGetEdges").map(|(_, a)| a));
        assert!(matches!(find("cuGraphGetEdges", 13000, false, &|_| false), Lookup::Unknown));
        assert!(matches!(find("cuNoSuchThing", 12000, false, &|_| true), Lookup::Unknown));
    }
}
