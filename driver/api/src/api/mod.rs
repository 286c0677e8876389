//! The exported functions. Each is written once, as a signature and the software engine's function
//! for it; the macro `api!` makes of it
//!
//! - the `extern "C"` function, which never unwinds, and its twin for per-thread default streams;
//! - the forwarder to NVIDIA's driver, which looks the symbol up on first use;
//! - the account of calls and the injected failure;
//! - the clamping of codes that callers cannot hold;
//! - the row in the table of `cuGetProcAddress`.

mod control;
mod graph;
mod library;
mod memory;
mod proc_address;
mod stream;
mod unsupported;

pub use control::*;
pub use graph::*;
pub use library::*;
pub use memory::*;
pub use stream::*;
pub use unsupported::*;

pub(crate) use proc_address::{lookup, lookup_v1, lookup_v2};

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::CUresult;
use crate::codes::{Code, Res, clamp};
use crate::engine::{Active, Real, active};
use crate::{instrument, software, teardown};

/// A row of the table of `cuGetProcAddress`.
pub(crate) struct Row {
    /// The name without version suffix, which callers ask for.
    pub base: &'static str,
    /// The first CUDA version whose ABI of `base` is this one.
    pub since: i32,
    /// The exported name.
    pub name: &'static str,
    /// Whether this is the twin for per-thread default streams.
    pub per_thread: bool,
    pub address: usize,
}

/// Answers a call by the engine that runs. One function for all rows: a copy for each was a quarter of this crate's code.
pub(crate) fn dispatch(
    name: &'static str,
    per_thread: bool,
    real: &dyn Fn(&Real) -> Option<CUresult>,
    software: &dyn Fn() -> Res,
) -> CUresult {
    if let Some(early) = before(name) {
        return early;
    }
    let raw = match active() {
        None => Code::NOT_INITIALIZED.0,
        Some(Active::Cuda(library)) => real(library).unwrap_or(Code::NOT_FOUND.0),
        Some(Active::Software) if teardown::is_forked() => Code::NOT_INITIALIZED.0,
        Some(Active::Software) if software::in_callback() => Code::NOT_PERMITTED.0,
        Some(Active::Software) => {
            software::present();
            let _default_stream = software::DefaultStream::enter(per_thread);
            let code = guarded(name, software);
            crate::software::refused(name, code);
            code
        }
    };
    after(raw)
}

/// Answers a call that needs no engine.
pub(crate) fn dispatch_always(name: &'static str, call: &dyn Fn() -> Res) -> CUresult {
    if let Some(early) = before(name) {
        return early;
    }
    after(guarded(name, call))
}

fn before(name: &'static str) -> Option<CUresult> {
    if teardown::is_over() {
        return Some(Code::DEINITIALIZED.0);
    }
    match instrument::enter(name) {
        None => Some(Code::DEINITIALIZED.0),
        Some(None) => None,
        Some(Some(injected)) => Some(after(injected)),
    }
}

fn after(raw: i32) -> CUresult {
    instrument::set_last_raw(raw);
    clamp(raw)
}

fn guarded(name: &str, call: &dyn Fn() -> Res) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(Code(code))) => code,
        Err(_) => {
            software::report(format!("internal error: {name} panicked in the software driver; please report this"));
            Code::UNKNOWN.0
        }
    }
}

/// See the module's documentation. A row reads
/// `[base since | twin] name(arguments) => software function;` where the twin is optional.
macro_rules! api {
    (rows $rows:ident; $($(#[$m:meta])* [$base:ident $since:literal $(| $twin:ident)?] $name:ident $args:tt => $sw:path;)*) => {
        $(
            crate::api::api!(@one [$(#[$m])*] $name false $args $sw);
            $(crate::api::api!(@one [#[doc = "The same function where null names the per-thread default stream."]] $twin true $args $sw);)?
        )*
        pub(crate) fn $rows(out: &mut Vec<crate::api::Row>) {
            $(
                out.push(crate::api::row!($base $since $name false));
                $(out.push(crate::api::row!($base $since $twin true));)?
            )*
        }
    };
    (@one [$($doc:tt)*] $name:ident $per_thread:literal ($($arg:ident : $ty:ty),* $(,)?) $sw:path) => {
        crate::api::export! { [$($doc)*] $name ($($arg: $ty),*)
            crate::api::dispatch(
                stringify!($name),
                $per_thread,
                &|real| crate::api::forward!(real, $name, ($($arg: $ty),*)),
                &|| {
                    // SAFETY: this function's caller fulfils what the driver API demands of these arguments.
                    $(let $arg = unsafe { crate::arg::Raw::wrap($arg) };)*
                    $sw($($arg),*)
                },
            )
        }
    };
}

/// Functions that are answered without an engine.
macro_rules! api_always {
    (rows $rows:ident; $($(#[$m:meta])* [$base:ident $since:literal] $name:ident ($($arg:ident : $ty:ty),* $(,)?) => $sw:path;)*) => {
        $(
            crate::api::export! { [$(#[$m])*] $name ($($arg: $ty),*)
                crate::api::dispatch_always(stringify!($name), &|| {
                    // SAFETY: this function's caller fulfils what the driver API demands of these arguments.
                    $(let $arg = unsafe { crate::arg::Raw::wrap($arg) };)*
                    $sw($($arg),*)
                })
            }
        )*
        pub(crate) fn $rows(out: &mut Vec<crate::api::Row>) {
            $(out.push(crate::api::row!($base $since $name false));)*
        }
    };
}

/// Functions that the software engine does not have: `CUDA_ERROR_NOT_SUPPORTED`.
macro_rules! api_unsupported {
    (rows $rows:ident; $([$base:ident $since:literal $(| $twin:ident)?] $name:ident $args:tt;)*) => {
        $(
            crate::api::api_unsupported!(@one $name false $args);
            $(crate::api::api_unsupported!(@one $twin true $args);)?
        )*
        pub(crate) fn $rows(out: &mut Vec<crate::api::Row>) {
            $(
                out.push(crate::api::row!($base $since $name false));
                $(out.push(crate::api::row!($base $since $twin true));)?
            )*
        }
    };
    (@one $name:ident $per_thread:literal ($($arg:ident : $ty:ty),* $(,)?)) => {
        crate::api::export! {
            [#[doc = "On the software engine: not supported."]]
            $name ($($arg: $ty),*)
            crate::api::dispatch(
                stringify!($name),
                $per_thread,
                &|real| crate::api::forward!(real, $name, ($($arg: $ty),*)),
                &|| crate::software::unsupported(stringify!($name)),
            )
        }
    };
}

macro_rules! export {
    ([$($doc:tt)*] $name:ident ($($arg:ident : $ty:ty),*) $body:expr) => {
        #[doc = concat!("`", stringify!($name), "` of the CUDA driver API.")]
        ///
        $($doc)*
        ///
        /// # Safety
        /// Every pointer is null or valid for what the CUDA driver API documents for this function.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> crate::CUresult {
            $body
        }
    };
}

macro_rules! forward {
    ($real:ident, $name:ident, ($($arg:ident : $ty:ty),*)) => {{
        static SLOT: crate::engine::Slot = crate::engine::Slot::new(concat!(stringify!($name), "\0"));
        SLOT.resolve($real).map(|address| {
            // SAFETY: the driver's function of this name has this signature.
            let function: unsafe extern "C" fn($($ty),*) -> crate::CUresult = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller fulfils what the driver API demands of these arguments.
            unsafe { function($($arg),*) }
        })
    }};
}

macro_rules! row {
    ($base:ident $since:literal $name:ident $per_thread:literal) => {
        crate::api::Row {
            base: stringify!($base),
            since: $since,
            name: stringify!($name),
            per_thread: $per_thread,
            address: $name as *const () as usize,
        }
    };
}

pub(crate) use {api, api_always, api_unsupported, export, forward, row};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_a_report() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = guarded("cuSomething", &|| panic!("a defect"));
        let answered = dispatch_always("cuSomethingElse", &|| panic!("another"));
        std::panic::set_hook(hook);
        assert_eq!((code, answered), (999, 999));
        let report = software::last_report().unwrap_or_default();
        assert!(report.contains("cuSomethingElse panicked"), "{report}");
    }
}
