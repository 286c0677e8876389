//! What the checkers need to know of the host: where it allocated and launched what, and in which order.
//!
//! On under `WARPSMITH_CHECK` (set, and not `0`), and while somebody keeps a [guard](super::check): each allocation and
//! operation then keeps the host's stack. What nobody freed is told when its context is destroyed, and at the end of the
//! process.

use std::fmt::Write as _;
use std::sync::atomic::Ordering as Atomic;

use crate::lock::lock;
use crate::software::tables::{
    device::Device,
    objects::StreamKey,
    order::{Follows, Lane, OpId, Ordering},
    records::{AllocationKind, AllocationRecord, GUARDS, OperationRecord, Records, Site},
    software::{engine, with},
    state::State,
};

/// A guard asks for checks: from now on there are records.
pub(crate) fn guard_begins() {
    GUARDS.fetch_add(1, Atomic::SeqCst);
    if let Ok(software) = engine() {
        lock(&software.state).start_checks();
    }
}

/// The last guard's end stops them, unless the environment asks for them.
pub(crate) fn guard_ends() {
    if GUARDS.fetch_sub(1, Atomic::SeqCst) == 1
        && let Ok(software) = engine()
    {
        lock(&software.state).stop_checks();
    }
}

impl State {
    fn start_checks(&mut self) {
        if self.checks.is_none() {
            self.checks = Some(self.paused_checks.take().unwrap_or_else(|| Records::new(false)));
        }
    }

    /// Forgets the records. Numbers go on where they were: what the memory remembers of earlier operations is before
    /// everything to come.
    fn stop_checks(&mut self) {
        // A new guard may have begun meanwhile.
        if GUARDS.load(Atomic::SeqCst) > 0 || self.checks.as_ref().is_none_or(|c| c.stays) {
            return;
        }
        if let Some(mut checks) = self.checks.take() {
            checks.order = checks.order.settled();
            checks.live.clear();
            checks.freed.clear();
            checks.operations.clear();
            self.paused_checks = Some(checks);
        }
    }

    /// A stream as the order sees it.
    pub fn lane(&self, key: StreamKey) -> Lane {
        Lane { key, context: self.stream_context(key).unwrap_or(0), blocking: self.is_blocking(key) }
    }

    /// Issues an operation on a stream, if checks are on.
    pub fn issue(&mut self, key: StreamKey, what: &str, follows: Follows) -> Option<Ordering> {
        let lane = self.lane(key);
        let checks = self.checks.as_mut()?;
        let ordering = checks.order.begin(lane, follows);
        checks.issued(what, &ordering, &Site::here());
        Some(ordering)
    }

    /// Issues a graph's operations, each with what it is and the places of those before it; empty if checks are off.
    pub fn issue_graph(&mut self, key: StreamKey, nodes: &[(String, Follows, Vec<usize>)]) -> Vec<Ordering> {
        let lane = self.lane(key);
        let Some(checks) = self.checks.as_mut() else { return Vec::new() };
        let dependencies: Vec<_> = nodes.iter().map(|(_, follows, deps)| (*follows, deps.clone())).collect();
        let orderings = checks.order.begin_graph(lane, &dependencies);
        let site = Site::here();
        for (ordering, (what, ..)) in orderings.iter().zip(nodes) {
            checks.issued(what, ordering, &site);
        }
        orderings
    }

    /// The host has waited for a stream.
    pub fn host_waited(&mut self, key: StreamKey) {
        let lane = self.lane(key);
        if let Some(checks) = self.checks.as_mut() {
            checks.order.stream_done(lane);
        }
    }

    /// A module got its places.
    pub fn variables_placed(&mut self, context: u64, instance: &warpsmith_simt::Instance) {
        if let Some(checks) = self.checks.as_mut() {
            for (name, address, bytes) in instance.globals() {
                checks.allocated(address, bytes, AllocationKind::Variable, context, 0);
                checks.named(address, name);
            }
        }
    }

    /// A module's variables go with it.
    pub fn variables_gone(&mut self, instance: &warpsmith_simt::Instance) {
        if let Some(checks) = self.checks.as_mut() {
            instance.globals().for_each(|(_, address, _)| checks.freed(address, 0));
        }
    }

    /// A free that waits for the whole device, as `cuMemFree` does.
    pub fn device_waited(&mut self, device: &Device) {
        let here: Vec<u64> =
            self.contexts.iter().filter(|(_, c)| c.device == device.ordinal).map(|(id, _)| *id).collect();
        if let Some(checks) = self.checks.as_mut() {
            here.into_iter().for_each(|c| checks.order.context_done(c));
        }
    }
}

fn ask<R>(f: impl FnOnce(&Records) -> R) -> Option<R> {
    let software = engine().ok()?;
    lock(&software.state).checks.as_deref().map(f)
}

/// The allocation that holds an address, live or the last one freed there; `None` too if checks are off.
pub fn allocation_at(address: u64) -> Option<AllocationRecord> {
    ask(|checks| checks.find(address)).flatten()
}

/// What is allocated now, by address; empty if checks are off.
pub fn live_allocations() -> Vec<AllocationRecord> {
    ask(|checks| checks.live.values().cloned().collect()).unwrap_or_default()
}

/// The newest operations, oldest first; empty if checks are off.
pub fn operations() -> Vec<OperationRecord> {
    ask(|checks| checks.operations.iter().cloned().collect()).unwrap_or_default()
}

/// The record of an operation, if it is still kept.
pub fn operation(op: OpId) -> Option<OperationRecord> {
    ask(|checks| checks.operations.iter().rev().find(|r| r.op == op).cloned()).flatten()
}

/// What the host did about a fault: where it issued the operation, and allocated and freed what lies at the address.
/// Empty if checks are off.
pub(crate) fn host_side(ordering: Option<&Ordering>, context: u64, address: Option<u64>) -> String {
    let here = with(|state, _| state.device_of(context)).ok();
    let mut text = String::new();
    let mut tell = |what: &str, site: &Site| {
        let _ = write!(text, "\n  {what}");
        for frame in site.frames().iter().take(6) {
            let _ = write!(text, "\n    {frame}");
        }
    };
    if let Some(record) = ordering.and_then(|o| operation(o.id())) {
        tell("launched at", &record.issued_at);
    }
    if let Some(record) = address.and_then(allocation_at) {
        tell(
            &format!("{} bytes of {} at {:#x}, allocated at", record.bytes, record.kind, record.address),
            &record.allocated_at,
        );
        if let Some((_, site)) = &record.freed {
            tell("freed at", site);
        }
    }
    if let (Some(address), Some(here)) = (address, here)
        && let Some(owner) = out_of_reach(address, here)
    {
        let _ = write!(
            text,
            "\n  the address is memory of device {owner}, which kernels of device {here} reach after cuCtxEnablePeerAccess"
        );
    }
    text
}

/// The other device that has an address.
fn out_of_reach(address: u64, here: i32) -> Option<i32> {
    let others = engine().ok()?.devices.iter().filter(|d| d.ordinal != here);
    others.filter(|d| d.machine.memory().find(address).is_some()).map(|d| d.ordinal).next()
}

/// What nobody freed so far; empty if checks are off.
pub(crate) fn left() -> Vec<AllocationRecord> {
    ask(|checks| checks.left(None)).unwrap_or_default()
}

/// What is allocated at the end of the process; nothing if a thread that the exit cut short holds the lock.
pub(crate) fn left_over() -> Vec<AllocationRecord> {
    let Ok(software) = engine() else { return Vec::new() };
    let Ok(state) = software.state.try_lock() else { return Vec::new() };
    state.checks.as_deref().map(|c| c.left(None)).unwrap_or_default()
}
