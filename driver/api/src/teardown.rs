//! The end of the process. Destructors of thread-local and static values call into the driver late;
//! they are told `CUDA_ERROR_DEINITIALIZED` instead of finding half of it gone.

use std::sync::atomic::{AtomicBool, Ordering};

static OVER: AtomicBool = AtomicBool::new(false);

/// Whether the process is past the point where its exit handlers ran.
pub(crate) fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

extern "C" fn over() {
    // Nothing may unwind out of an exit handler.
    let _ = std::panic::catch_unwind(crate::software::finish);
    OVER.store(true, Ordering::Relaxed);
}

/// Registers the exit handler; called once, when an engine starts.
pub(crate) fn watch() {
    // SAFETY: the handler reads and writes statics, and unwinds nowhere. Where no slot is left, late calls are answered as early ones.
    let _ = unsafe { libc::atexit(over) };
}
