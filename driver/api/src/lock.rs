//! Locks that a panic does not close.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while a table was locked leaves it consistent enough to answer: no entry is half-made.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
