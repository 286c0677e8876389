//! The end of the process. Destructors of thread-local and static values call into the driver late;
//! they are told `CUDA_ERROR_DEINITIALIZED` instead of finding half of it gone.

use std::sync::atomic::{AtomicBool, Ordering};

static OVER: AtomicBool = AtomicBool::new(false);
/// This process was forked off one that had started the engine, whose threads it lacks.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether the process is past the point where its exit handlers ran.
pub(crate) fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

/// Whether the driver was started in a process that this one was forked off: it cannot be used here. CUDA's cannot either, and
/// answers `CUDA_ERROR_NOT_INITIALIZED`.
pub(crate) fn is_forked() -> bool {
    let forked = FORKED.load(Ordering::Relaxed);
    static TOLD: AtomicBool = AtomicBool::new(false);
    if forked && !TOLD.swap(true, Ordering::Relaxed) {
        let text = "warpsmith driver: CUDA was initialised before this process was forked, and cannot be used in it: start the \
                    process anew (in Python, multiprocessing's start method `spawn`), or fork before the first cuInit\n";
        tell(text);
    }
    forked
}

/// Another thread may have held the lock of standard error when the process was forked: past it.
#[cfg(unix)]
fn tell(text: &str) {
    // SAFETY: the pointer is to so many bytes.
    let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Processes are not forked here.
#[cfg(not(unix))]
fn tell(text: &str) {
    eprint!("{text}");
}

#[cfg(unix)]
extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

extern "C" fn over() {
    if FORKED.load(Ordering::Relaxed) {
        // The end of the process that was forked is the one that counts.
        OVER.store(true, Ordering::Relaxed);
        return;
    }
    // Nothing may unwind out of an exit handler.
    let _ = std::panic::catch_unwind(crate::software::finish);
    OVER.store(true, Ordering::Relaxed);
}

/// Registers the exit handler; called once, when an engine starts.
pub(crate) fn watch() {
    // SAFETY: the handler reads and writes statics, and unwinds nowhere. Where no slot is left, late calls are answered as early ones.
    let _ = unsafe { libc::atexit(over) };
}

/// Notes forks from now on; called once, when the software engine starts.
pub(crate) fn watch_forks() {
    #[cfg(unix)]
    // SAFETY: the handler writes a static. Where there is no room for it, a child finds what it finds.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}
