//! Undefined bytes: memory is watched for them, and they are reported when a copy takes them to the host.

use warpsmith_simt::{Finding, Machine, Rule, Severity};

/// From now on, allocations of the machine know which of their bytes are defined.
pub(super) fn track(machine: &Machine) {
    machine.memory().track(true);
}

/// Reports undefined bytes of a range that a copy has taken to the host.
pub(in crate::software) fn leaves(device: i32, address: u64, bytes: u64) {
    if !super::checks().init {
        return;
    }
    let Ok(found) = super::super::engine().and_then(|e| e.device(device)) else { return };
    let memory = found.machine.memory();
    if let Some((offset, count)) = memory.undefined(address, bytes) {
        let place = memory.describe(address + offset);
        super::submit(vec![undefined_output(address, bytes, offset, count, &place)], None);
    }
}

/// The finding that a copy of `bytes` from `address` has taken `count` undefined bytes along, the first at `offset`.
pub fn undefined_output(address: u64, bytes: u64, offset: u64, count: u64, place: &str) -> Finding {
    let first = address.wrapping_add(offset);
    Finding {
        rule: Rule::UndefinedOutput,
        severity: Severity::Error,
        kernel: String::new(),
        message: format!(
            "a copy of {bytes} bytes to the host contains {count} undefined ones, the first at {first:#x}"
        ),
        sites: Vec::new(),
        memory: place.to_owned(),
        help: "no kernel, copy or fill has given these bytes a value".to_owned(),
        count: 1,
    }
}
