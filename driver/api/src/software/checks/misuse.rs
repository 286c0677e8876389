//! Calls of the driver that are wrong: they are refused and do nothing, and a program that does not look at the code goes on as
//! if they had.

use std::cell::Cell;

use warpsmith_check::{Defect, Finding, Rule, Severity};

use super::asked::checks;
use crate::codes::{result_name, result_text};
use crate::instrument;

thread_local! {
    /// The call of this thread that caused its last finding.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// The running call of this thread has caused a finding.
pub(super) fn told() {
    let _ = TOLD.try_with(|t| t.set(instrument::call_number()));
}

/// What is wrong with a call that answers a code, and `None` for codes that a correct program may see: those about resources,
/// devices and modules, those that say how far work is, and those with which calls after a fault are answered.
fn reason(code: i32, function: &str) -> Option<&'static str> {
    Some(match code {
        1 => {
            "an argument is null or out of range, or an address that is no memory of the kind that the function takes: freed, \
             never allocated, or not the start of an allocation"
        }
        3 => "cuInit has not been called",
        201 if function.starts_with("cuIpcOpen") => {
            "the handle is from this process, or open in another context of the device; or no context is current"
        }
        201 => "no context is current on this thread, or it has been destroyed",
        400 => "the handle is none of the kind that the function takes, or has been destroyed",
        401 => "the object is not in a state in which this is possible",
        701 => "the block asks for more threads, registers or shared memory than the kernel or the device allows",
        720 => "the grid of a cooperative launch does not fit on the device at once",
        709 => "the context has been destroyed",
        712 => "the memory is page-locked already",
        713 => "the memory is not page-locked",
        800 => "a host function must not call CUDA",
        900..=908 => "the call is not possible while a stream captures, or not for a stream that does not",
        _ => return None,
    })
}

/// Whether programs call the function to find something out, so that being refused is an answer.
fn asks(function: &str) -> bool {
    ["Get", "Query", "Can", "IsCapturing", "Occupancy", "AttachMem", "Advise", "Prefetch"]
        .iter()
        .any(|word| function.contains(word))
}

/// A call of this thread has answered a code.
pub(crate) fn refused(function: &str, code: i32) {
    let Some(reason) = reason(code, function).filter(|_| !asks(function)) else { return };
    let checks = checks();
    if !(checks.init || checks.races || checks.sync) {
        return;
    }
    // What a finding of the same call explains.
    if TOLD.try_with(|t| t.get() == instrument::call_number()).unwrap_or(true) {
        return;
    }
    let defect = Defect::Refused {
        function: function.to_owned(),
        code,
        name: result_name(code).to_owned(),
        meaning: result_text(code).to_owned(),
        reason: reason.to_owned(),
    };
    let finding = Finding::new(Rule::ApiMisuse, Severity::Warning, defect);
    super::submit(vec![finding], None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_no_misuse() {
        assert!(asks("cuPointerGetAttribute") && asks("cuStreamQuery") && asks("cuDeviceCanAccessPeer"));
        assert!(!asks("cuMemFree_v2") && !asks("cuLaunchKernel") && !asks("cuStreamDestroy_v2"));
        // Not ready, not found, out of memory, and what follows a fault.
        assert!([0, 2, 4, 500, 600, 700, 719, 801].iter().all(|&code| reason(code, "cuMemAlloc_v2").is_none()));
    }
}
