//! Undefined bytes: memory is watched for them, and they are reported when a copy takes them to the host.

use warpsmith_check::CheckedMemory;
use warpsmith_simt::Machine;

use super::asked::checks;
use crate::software::tables::software::engine;

/// From now on, allocations of the machine know which of their bytes are defined.
pub(super) fn track(machine: &Machine) {
    machine.memory().track(true);
}

/// Reports undefined bytes of a range that a copy has taken to the host.
pub(crate) fn leaves(device: i32, address: u64, bytes: u64) {
    if !checks().init {
        return;
    }
    let Ok(found) = engine().and_then(|e| e.device(device)) else { return };
    if let Some(finding) = found.machine.memory().undefined_output(address, bytes) {
        super::submit(vec![finding], None);
    }
}
