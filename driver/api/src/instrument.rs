//! Per-thread accounts of API calls, and failures on demand for tests of error paths.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::codes::clamp;

thread_local! {
    static COUNTS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    static FAILURES: RefCell<Vec<InjectedFailure>> = const { RefCell::new(Vec::new()) };
    static NEXT_FAILURE: Cell<u64> = const { Cell::new(0) };
    static LAST_RAW: Cell<i32> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct InjectedFailure {
    id: u64,
    function: Option<String>,
    remaining: u64,
    code: i32,
}

/// How often the calling thread called each API function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCounts(BTreeMap<&'static str, u64>);

impl CallCounts {
    /// Calls of one function, by its exported name such as `cuLaunchKernel`.
    pub fn get(&self, function: &str) -> u64 {
        self.0.get(function).copied().unwrap_or(0)
    }
    /// Every function that was called, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(name, count)| (*name, *count))
    }
    /// All calls together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// The calls of the calling thread since it started or last reset them.
pub fn call_counts() -> CallCounts {
    COUNTS.try_with(|c| CallCounts(c.borrow().clone())).unwrap_or_default()
}

/// Forgets the calling thread's counts.
pub fn reset_call_counts() {
    let _ = COUNTS.try_with(|c| c.borrow_mut().clear());
}

/// Keeps an injected failure armed; dropping it disarms it.
#[must_use = "the failure is disarmed when the guard is dropped"]
#[derive(Debug)]
pub struct InjectionGuard {
    id: u64,
    // Failures belong to the thread that armed them.
    _thread: PhantomData<*const ()>,
}

impl InjectionGuard {
    /// Whether the failure has been answered already.
    pub fn fired(&self) -> bool {
        FAILURES.try_with(|f| !f.borrow().iter().any(|x| x.id == self.id)).unwrap_or(true)
    }
}

impl Drop for InjectionGuard {
    fn drop(&mut self) {
        let _ = FAILURES.try_with(|f| f.borrow_mut().retain(|x| x.id != self.id));
    }
}

/// The `nth` call (from 0) on this thread of `function`, or with `None` of any fallible function,
/// answers `code`, once, without doing anything. A code that callers cannot hold becomes 999.
///
/// # Panics
/// With the code 0: a call that answers success and does nothing leaves its caller with results that nobody wrote.
///
/// ```
/// use warpsmith_driver_api::{cuInit, software};
/// let guard = software::inject_failure(Some("cuInit"), 0, 100);
/// // SAFETY: cuInit takes no pointers.
/// assert_eq!(unsafe { cuInit(0) }, 100);
/// assert!(guard.fired());
/// ```
pub fn inject_failure(function: Option<&str>, nth: u64, code: i32) -> InjectionGuard {
    assert!(
        code != 0,
        "inject_failure: the code 0 is success, which is no failure to answer; name a CUDA error such as 2"
    );
    let id = NEXT_FAILURE.try_with(|n| n.replace(n.get() + 1)).unwrap_or(0);
    let failure = InjectedFailure { id, function: function.map(str::to_owned), remaining: nth, code: clamp(code) };
    let _ = FAILURES.try_with(|f| f.borrow_mut().push(failure));
    InjectionGuard { id, _thread: PhantomData }
}

/// What the engine answered to the calling thread's last call, before codes that `cust_raw` does
/// not know became 999.
pub fn last_raw_result() -> i32 {
    LAST_RAW.try_with(Cell::get).unwrap_or(0)
}

pub(crate) fn set_last_raw(code: i32) {
    let _ = LAST_RAW.try_with(|c| c.set(code));
}

/// The number of the calling thread's last call, which none before it had.
pub(crate) fn call_number() -> u64 {
    CALLS.try_with(Cell::get).unwrap_or(0)
}

/// Counts a call; the answer is an injected failure, if one is due. `None` in the outer place when
/// the thread is so far gone that its thread-local values are destroyed.
pub(crate) fn enter(name: &'static str) -> Option<Option<i32>> {
    COUNTS.try_with(|c| *c.borrow_mut().entry(name).or_insert(0) += 1).ok()?;
    let _ = CALLS.try_with(|c| c.set(c.get().wrapping_add(1)));
    FAILURES
        .try_with(|f| {
            let mut failures = f.borrow_mut();
            if failures.is_empty() {
                return None;
            }
            let mut due = None;
            for (at, failure) in failures.iter_mut().enumerate() {
                if failure.function.as_deref().is_some_and(|wanted| wanted != name) {
                    continue;
                }
                if failure.remaining == 0 {
                    due = due.or(Some(at));
                } else {
                    failure.remaining -= 1;
                }
            }
            due.map(|at| failures.remove(at).code)
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nth_call_fails_once() {
        let guard = inject_failure(Some("cuA"), 2, 700);
        let answers: Vec<_> = ["cuA", "cuB", "cuA", "cuA", "cuA"].map(|n| enter(n).flatten()).to_vec();
        assert_eq!(answers, [None, None, None, Some(700), None]);
        assert!(guard.fired());
        let counts = call_counts();
        assert_eq!((counts.get("cuA"), counts.get("cuB"), counts.total()), (4, 1, 5));
        reset_call_counts();
        assert_eq!(call_counts().total(), 0);
    }

    #[test]
    #[should_panic(expected = "the code 0 is success")]
    fn success_is_no_failure() {
        let _guard = inject_failure(Some("cuMemAllocHost_v2"), 0, 0);
    }

    #[test]
    fn any_function_and_drop() {
        {
            let _guard = inject_failure(None, 1, 36);
            assert_eq!(enter("cuA"), Some(None));
            assert_eq!(enter("cuB"), Some(Some(999)), "36 is not a code that callers can hold");
        }
        let guard = inject_failure(None, 0, 2);
        drop(guard);
        assert_eq!(enter("cuA"), Some(None));
    }
}
