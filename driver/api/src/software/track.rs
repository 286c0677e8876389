//! What the checkers need to know of the host: where it allocated and launched what, and in which order.
//!
//! On under `WARPSMITH_CHECK` (set, and not `0`), and while somebody keeps a [guard](super::check): each allocation and
//! operation then keeps the host's stack. What nobody freed is told when its context is destroyed, and at the end of the
//! process.

use std::backtrace::Backtrace;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

use super::checks::{HostSite, LeftBy, Report, leaked};
use super::device::Device;
use super::engine;
use super::order::{Follows, Lane, OpId, Order, Ordering};
use super::state::{State, StreamKey};
use crate::engine::lock;

/// Operations whose records are kept; the launch site of an older one is no longer known.
const OPERATIONS: usize = 4096;
/// Freed allocations that are remembered.
const FREED: usize = 4096;

/// Whether the environment asks for checks.
pub fn checks_on() -> bool {
    std::env::var_os("WARPSMITH_CHECK").is_some_and(|v| !v.is_empty() && v != "0")
}

/// A place in the host program: its stack, without the driver's own frames.
#[derive(Clone)]
pub struct Site(Arc<Backtrace>);

impl Site {
    fn here() -> Site {
        Site(Arc::new(Backtrace::force_capture()))
    }

    pub(super) fn trace(&self) -> &Backtrace {
        &self.0
    }

    /// The frames of the host program, innermost first: file, line and function.
    pub fn frames(&self) -> Vec<String> {
        HostSite::of(&self.0).frames.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocationKind {
    /// `cuMemAlloc` and its kin.
    Device,
    /// Stream-ordered, of a pool.
    Pool,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc` and its kin.
    Pinned,
    /// The caller's own, by `cuMemHostRegister`.
    Registered,
    /// A variable of a module.
    Variable,
}

impl fmt::Display for AllocationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AllocationKind::Device => "device memory",
            AllocationKind::Pool => "pool memory",
            AllocationKind::Managed => "managed memory",
            AllocationKind::Pinned => "pinned memory",
            AllocationKind::Registered => "registered memory",
            AllocationKind::Variable => "a variable",
        })
    }
}

/// An allocation, live or freed.
#[derive(Clone, Debug)]
pub struct AllocationRecord {
    /// Its number; none is used twice.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes, as asked for.
    pub bytes: u64,
    /// What it is.
    pub kind: AllocationKind,
    /// The variable's name.
    pub name: Option<String>,
    /// The context that it lives in.
    pub context: u64,
    /// The operation that allocated it in a stream's order; 0 if the host did, at once.
    pub allocated_by: OpId,
    /// Where the host allocated it.
    pub allocated_at: Site,
    /// The operation that freed it (0: the host), and where.
    pub freed: Option<(OpId, Site)>,
}

/// An operation of a stream or graph.
#[derive(Clone, Debug)]
pub struct OperationRecord {
    /// Its number.
    pub op: OpId,
    /// What it is: the kernel's name, or `copy`, `fill` and so on.
    pub what: String,
    /// Its place in the order.
    pub ordering: Ordering,
    /// Where the host issued it.
    pub issued_at: Site,
}

/// The order of operations, and the records.
pub(super) struct Checks {
    pub order: Order,
    /// The environment asks for them, so that no guard's end stops them.
    stays: bool,
    next: u64,
    live: BTreeMap<u64, AllocationRecord>,
    freed: VecDeque<AllocationRecord>,
    operations: VecDeque<OperationRecord>,
}

/// How many guards ask for checks.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

impl Checks {
    fn new(stays: bool) -> Box<Checks> {
        Box::new(Checks {
            order: Order::default(),
            stays,
            next: 1,
            live: BTreeMap::new(),
            freed: VecDeque::new(),
            operations: VecDeque::new(),
        })
    }

    /// What the environment and the guards of before ask for.
    pub fn at_start() -> Option<Box<Checks>> {
        let stays = checks_on();
        (stays || GUARDS.load(Atomic::SeqCst) > 0).then(|| Checks::new(stays))
    }

    pub fn allocated(&mut self, address: u64, bytes: u64, kind: AllocationKind, context: u64, op: OpId) {
        let record = AllocationRecord {
            id: self.next,
            address,
            bytes,
            kind,
            name: None,
            context,
            allocated_by: op,
            allocated_at: Site::here(),
            freed: None,
        };
        self.next += 1;
        self.live.insert(address, record);
    }

    fn named(&mut self, address: u64, name: &str) {
        if let Some(record) = self.live.get_mut(&address) {
            record.name = Some(name.to_owned());
        }
    }

    pub fn freed(&mut self, address: u64, op: OpId) {
        if let Some(mut record) = self.live.remove(&address) {
            record.freed = Some((op, Site::here()));
            if self.freed.len() == FREED {
                self.freed.pop_front();
            }
            self.freed.push_back(record);
        }
    }

    fn issued(&mut self, what: &str, ordering: &Ordering, site: &Site) {
        if self.operations.len() == OPERATIONS {
            self.operations.pop_front();
        }
        let issued_at = site.clone();
        let record =
            OperationRecord { op: ordering.id(), what: what.to_owned(), ordering: ordering.clone(), issued_at };
        self.operations.push_back(record);
    }

    fn find(&self, address: u64) -> Option<AllocationRecord> {
        let inside = |r: &AllocationRecord| address >= r.address && address - r.address < r.bytes;
        let live = self.live.range(..=address).next_back().map(|(_, r)| r).filter(|r| inside(r));
        live.or_else(|| self.freed.iter().rev().find(|r| inside(r))).cloned()
    }

    /// What a context, or the process, leaves behind; variables go with their modules.
    fn left(&self, context: Option<u64>) -> Vec<AllocationRecord> {
        let left = |r: &&AllocationRecord| context.is_none_or(|c| c == r.context) && r.kind != AllocationKind::Variable;
        self.live.values().filter(left).cloned().collect()
    }

    /// A context ends: what was left in it, which is forgotten.
    pub fn context_gone(&mut self, context: u64) -> Vec<AllocationRecord> {
        let left = self.left(Some(context));
        self.live.retain(|_, r| r.context != context);
        self.order.context_done(context);
        left
    }
}

/// A guard asks for checks: from now on there are records.
pub(super) fn guard_begins() {
    GUARDS.fetch_add(1, Atomic::SeqCst);
    if let Ok(software) = engine() {
        lock(&software.state).start_checks();
    }
}

/// The last guard's end stops them, unless the environment asks for them.
pub(super) fn guard_ends() {
    if GUARDS.fetch_sub(1, Atomic::SeqCst) == 1
        && let Ok(software) = engine()
    {
        lock(&software.state).stop_checks();
    }
}

impl State {
    fn start_checks(&mut self) {
        if self.checks.is_none() {
            self.checks = Some(self.paused_checks.take().unwrap_or_else(|| Checks::new(false)));
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

fn ask<R>(f: impl FnOnce(&Checks) -> R) -> Option<R> {
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
pub(super) fn host_side(ordering: Option<&Ordering>, address: Option<u64>) -> String {
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
    text
}

/// What nobody freed so far: what the end of the process would report; empty if checks are off.
pub fn leaks() -> Vec<Report> {
    leaked(ask(|checks| checks.left(None)).unwrap_or_default(), LeftBy::Process)
}

/// What is allocated at the end of the process; nothing if a thread that the exit cut short holds the lock.
pub(super) fn left_over() -> Vec<AllocationRecord> {
    let Ok(software) = engine() else { return Vec::new() };
    let Ok(state) = software.state.try_lock() else { return Vec::new() };
    state.checks.as_deref().map(|c| c.left(None)).unwrap_or_default()
}
