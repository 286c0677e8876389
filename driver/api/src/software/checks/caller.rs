//! The thread whose call issued an operation, for the engine's threads, which run it later: its checks, its findings, its stack.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use warpsmith_check::{Checks, HostSite, Report};

use super::asked::{OVERRIDE, PENDING, SETTINGS, checks, watched};
use super::site::host_site;
use crate::software::thread;

/// Frames that tell places apart.
const DEPTH: usize = 48;

thread_local! {
    static ACTING: RefCell<Option<Arc<Caller>>> = const { RefCell::new(None) };
}

/// Who issued an operation.
pub(crate) struct Caller {
    key: u64,
    thread: Option<String>,
    checks: Option<Checks>,
    pending: Arc<Mutex<Vec<Report>>>,
    /// Where, if somebody may ask.
    trace: Option<Backtrace>,
    outputs: Vec<usize>,
}

impl Caller {
    /// The calling thread, in the call at hand.
    pub fn here() -> Arc<Caller> {
        Arc::new(Caller {
            key: thread::key().unwrap_or(0),
            thread: std::thread::current().name().map(str::to_owned),
            checks: OVERRIDE.try_with(std::cell::Cell::get).ok().flatten(),
            pending: PENDING.try_with(|p| Arc::clone(&p.borrow())).unwrap_or_default(),
            trace: watched(checks()).then(Backtrace::force_capture),
            outputs: trace(),
        })
    }

    /// Runs `f` as if that thread did.
    pub fn act<R>(self: &Arc<Caller>, f: impl FnOnce() -> R) -> R {
        struct Back(Option<Arc<Caller>>, Option<Checks>, Arc<Mutex<Vec<Report>>>);
        impl Drop for Back {
            fn drop(&mut self) {
                let _ = ACTING.try_with(|a| *a.borrow_mut() = self.0.take());
                let _ = OVERRIDE.try_with(|o| o.set(self.1));
                let _ = PENDING.try_with(|p| *p.borrow_mut() = std::mem::take(&mut self.2));
            }
        }
        let _back = Back(
            ACTING.try_with(|a| a.borrow_mut().replace(Arc::clone(self))).ok().flatten(),
            OVERRIDE.try_with(|o| o.replace(self.checks)).ok().flatten(),
            PENDING.try_with(|p| p.replace(Arc::clone(&self.pending))).unwrap_or_default(),
        );
        f()
    }
}

fn acting<R>(f: impl FnOnce(&Caller) -> R) -> Option<R> {
    ACTING.try_with(|a| a.borrow().as_deref().map(f)).ok().flatten()
}

/// Whether the calling thread runs an operation for another one.
pub(crate) fn is_acting() -> bool {
    acting(|_| ()).is_some()
}

/// Where the operation at hand was issued.
pub(super) fn site() -> HostSite {
    match acting(|c| c.trace.as_ref().map(host_site).unwrap_or_default()) {
        Some(site) => site,
        None => host_site(&Backtrace::force_capture()),
    }
}

/// The name of the thread that issued it.
pub(super) fn thread_name() -> Option<String> {
    acting(|c| c.thread.clone()).unwrap_or_else(|| std::thread::current().name().map(str::to_owned))
}

/// The number of the thread that issued it, and the addresses of its stack.
pub(super) fn output_lane() -> (u64, Vec<usize>) {
    acting(|c| (c.key, c.outputs.clone())).unwrap_or_else(|| (thread::key().unwrap_or(0), trace()))
}

/// Whether copies to the host are kept.
pub(super) fn keeps_outputs() -> bool {
    SETTINGS.get().is_some_and(|s| s.outputs)
}

/// Where the calling thread is, if copies are kept.
fn trace() -> Vec<usize> {
    if keeps_outputs() { addresses() } else { Vec::new() }
}

/// Return addresses of the callers: cheap, and the same for the same place within a process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn addresses() -> Vec<usize> {
    let mut frames = [std::ptr::null_mut(); DEPTH];
    // SAFETY: there is room for as many addresses as it is told.
    let n = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as libc::c_int) };
    frames.iter().take(n.max(0) as usize).map(|f| f.addr()).collect()
}

/// Elsewhere every copy looks up its names.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn addresses() -> Vec<usize> {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    vec![DEPTH, NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)]
}
