//! Switches for tests.

/// Makes modules that are loaded from now on, in this process, use no CPU features beyond the target's own.
pub fn force_portable(on: bool) {
    crate::exec::lanes::force_portable(on);
}
