//! Places in the host program: who called the driver.

use std::backtrace::Backtrace;
use warpsmith_check::{HostFrame, HostSite};

/// How many frames a report shows.
const MOST: usize = 8;

/// Who called the driver, of a stack.
pub(crate) fn host_site(trace: &Backtrace) -> HostSite {
    parse(&trace.to_string())
}

fn parse(text: &str) -> HostSite {
    let mut frames: Vec<HostFrame> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            let mut parts = place.rsplitn(3, ':');
            let numbers = (parts.next(), parts.next().and_then(|l| l.parse().ok()));
            if let (Some(frame), (Some(_), Some(line)), Some(file)) = (frames.last_mut(), numbers, parts.next()) {
                (frame.file, frame.line) = (Some(file.to_owned()), line);
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.parse::<u32>().is_ok()
        {
            frames.push(HostFrame { function: name.to_owned(), file: None, line: 0 });
        }
    }
    let api = frames.iter().position(|f| is_api(&f.function));
    let (api, callers) = match api {
        Some(at) => (frames[at].function.clone(), frames.split_off(at + 1)),
        None => (String::new(), frames),
    };
    // One entry of the API may call another.
    let callers = callers.into_iter().skip_while(|f| is_api(&f.function));
    let kept: Vec<HostFrame> = callers.take_while(|f| !is_end(&f.function)).collect();
    let own: Vec<HostFrame> = kept.iter().filter(|f| !is_library(f)).take(MOST).cloned().collect();
    let frames = if own.is_empty() { kept.into_iter().take(MOST).collect() } else { own };
    HostSite { api, frames }
}

/// `cuLaunchKernel`, `cuMemcpyDtoH_v2`.
fn is_api(function: &str) -> bool {
    let rest = function.strip_prefix("cu").unwrap_or("");
    rest.starts_with(|c: char| c.is_ascii_uppercase()) && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What lies below the program's own functions.
fn is_end(function: &str) -> bool {
    [
        "std::sys::backtrace::__rust_begin_short_backtrace",
        "__libc_start",
        "_start",
        "core::ops::function::FnOnce::call_once",
    ]
    .iter()
    .any(|end| function.starts_with(end))
}

/// Where the runtime's sources are, beside ours, as the compiler was told; `None` in a registry.
fn runtime_sources() -> Option<String> {
    Some(format!("{}runtime/src/", file!().strip_suffix("driver/api/src/software/checks/site.rs")?))
}

/// The runtime between a program and the driver.
fn is_library(frame: &HostFrame) -> bool {
    // Inlined functions go by their short names: only the file tells where they come from.
    let of_library = |file: &String| {
        file.starts_with("/rustc/")
            || ["/lib/rustlib/src/rust/library/", "/registry/src/"].iter().any(|f| file.contains(f))
            || runtime_sources().is_some_and(|folder| file.contains(&folder))
    };
    if frame.file.as_ref().is_some_and(of_library) {
        return true;
    }
    // A library without symbols.
    if frame.function == "<unknown>" {
        return true;
    }
    let name = frame.function.trim_start_matches('<');
    ["std::", "core::", "alloc::", "test::", "cust::", "warpsmith_host::runtime::", "warpsmith_driver_api::"]
        .iter()
        .any(|library| name.starts_with(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_program_only() {
        let text = "   0: std::backtrace::Backtrace::create
             at /rustc/x/library/std/src/backtrace.rs:331:13
   1: warpsmith_driver_api::software::run::run
             at driver/api/src/software/run.rs:1:2
   2: cuLaunchKernel
             at driver/api/src/api/mod.rs:10:5
   3: warpsmith_runtime::stream::Stream::launch
             at runtime/src/stream.rs:90:9
   4: issue<(), app::Work>
             at runtime/src/stream.rs:120:5
   4: cuda_malloc<u8>
             at /home/me/.cargo/registry/src/index-1/cust-0.3.2/src/memory/malloc.rs:49:9
   4: app::step
             at /home/me/app/src/main.rs:42:13
   5: <unknown>
   6: app::main
   7: core::ops::function::FnOnce::call_once
   8: std::rt::lang_start
";
        let site = parse(text);
        assert_eq!(site.api, "cuLaunchKernel");
        let shown: Vec<String> = site.frames.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["/home/me/app/src/main.rs:42 in app::step", "app::main"]);
    }

    #[test]
    fn a_real_trace_has_this_function() {
        let site = host_site(&Backtrace::force_capture());
        assert_eq!(site.api, "", "no function of the API was called");
    }
}
