//! What belongs to a thread: its stack of contexts, its default stream, its capture mode.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::codes::{Code, Res};

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static PER_THREAD_DEFAULT: Cell<bool> = const { Cell::new(false) };
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
    static KEY: Presence = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        CALLERS.fetch_add(1, Ordering::SeqCst);
        Presence(NEXT.fetch_add(1, Ordering::Relaxed))
    };
}

/// Threads that have called the driver and live, and how often any has.
static CALLERS: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The number of a thread, which counts among the callers while it lives.
struct Presence(u64);

impl Drop for Presence {
    fn drop(&mut self) {
        CALLERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Notes a call of the calling thread.
pub(crate) fn present() {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let _ = key();
}

/// How many threads have called the driver and live.
pub(crate) fn callers() -> usize {
    CALLERS.load(Ordering::SeqCst)
}

/// How often the driver was called.
pub(crate) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Works on the thread's stack of contexts; the last is current.
pub(crate) fn stack<R>(f: impl FnOnce(&mut Vec<u64>) -> R) -> Res<R> {
    STACK.try_with(|s| f(&mut s.borrow_mut())).map_err(|_| Code::DEINITIALIZED)
}

/// A number for the calling thread that no other thread has or had.
pub(crate) fn key() -> Res<u64> {
    KEY.try_with(|k| k.0).map_err(|_| Code::DEINITIALIZED)
}

pub(crate) fn capture_mode() -> i32 {
    CAPTURE_MODE.try_with(Cell::get).unwrap_or(0)
}

pub(crate) fn set_capture_mode(mode: i32) {
    let _ = CAPTURE_MODE.try_with(|m| m.set(mode));
}

/// Whether the calling thread is inside a host function of a stream, which must not call CUDA.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.try_with(Cell::get).unwrap_or(false)
}

/// Runs a host function as one.
pub(crate) fn as_callback<R>(f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            let _ = IN_CALLBACK.try_with(|c| c.set(self.0));
        }
    }
    let _reset = Reset(IN_CALLBACK.try_with(|c| c.replace(true)).unwrap_or(false));
    f()
}

/// Whether null names the per-thread default stream in the call at hand.
pub(crate) fn default_is_per_thread() -> bool {
    PER_THREAD_DEFAULT.try_with(Cell::get).unwrap_or(false)
}

/// Sets what null names, for one call.
pub(crate) struct DefaultStream(bool);

impl DefaultStream {
    pub(crate) fn enter(per_thread: bool) -> DefaultStream {
        DefaultStream(PER_THREAD_DEFAULT.try_with(|c| c.replace(per_thread)).unwrap_or(false))
    }
}

impl Drop for DefaultStream {
    fn drop(&mut self) {
        let _ = PER_THREAD_DEFAULT.try_with(|c| c.set(self.0));
    }
}
