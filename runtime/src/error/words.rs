//! Words of messages that depend on what an error holds.

use std::fmt;

use warpsmith_device::ContractError;

use super::is_fault;

pub(super) fn hint(code: i32) -> Option<&'static str> {
    Some(match code {
        3 | 4 => "the driver is not initialised, or the process is already shutting down",
        34 | 35 => "the installed driver is a stub or too old; update it, or set WARPSMITH_DRIVER=software",
        100 => "no GPU is visible; set WARPSMITH_DRIVER=software to run without one",
        209 => "the image holds no code for this GPU; name its architecture in `KernelCrate::archs`",
        218 => "the driver's compiler refuses the PTX: its log is above",
        222 => {
            "the PTX is newer than the driver understands: update the GPU driver, or have the builder emit an \
             older PTX ISA version"
        }
        500 => "the loaded module has no symbol of this name",
        701 => "the launch needs more registers or shared memory than a multiprocessor has",
        900..=908 => "a call that a stream capture forbids; the capture is void, begin another one",
        code if is_fault(code) => {
            "a kernel faulted and the device's context is lost: every later call fails. Run with \
             WARPSMITH_DRIVER=software for a report that names kernel, thread and address"
        }
        _ => return None,
    })
}

pub(super) fn contract_hint(error: &ContractError) -> &'static str {
    match error.argument {
        "grid" => {
            "`geometry` of its contract gave these: leave out a launch that has nothing to do, or let `check` ask for at \
             least one element; what does not fit y or z goes into x"
        }
        "block" => "`geometry` of its contract gave these: `#[kernel(block = …)]` says how many threads it may give",
        _ => "`check` of its contract asks for this: pass buffers and numbers that fit each other",
    }
}

/// A prefix and an optional text.
pub(super) struct Part<'a, T>(pub &'static str, pub &'a Option<T>);

impl<T: fmt::Display> fmt::Display for Part<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(text) => write!(f, "{}{text}", self.0),
            None => Ok(()),
        }
    }
}

pub(super) struct Plural(pub u32);

impl fmt::Display for Plural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 1 { "" } else { "s" })
    }
}

pub(super) struct List<'a>(pub &'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { f.write_str(&self.0.join(", ")) }
    }
}

pub(super) struct Archs<'a>(pub &'a [u32]);

impl fmt::Display for Archs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no architecture (as a build with DOCS_RS set leaves it)");
        }
        for (i, sm) in self.0.iter().enumerate() {
            write!(f, "{}sm_{sm}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
