//! What the checks are told of the host: where it allocated and launched what, and in which order.

use std::backtrace::Backtrace;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

pub use warpsmith_check::AllocationKind;

use crate::software::checks::host_site;
use crate::software::tables::order::{OpId, Order, Ordering};

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
    pub(crate) fn here() -> Site {
        Site(Arc::new(Backtrace::force_capture()))
    }

    pub(crate) fn trace(&self) -> &Backtrace {
        &self.0
    }

    /// The frames of the host program, innermost first: file, line and function.
    pub fn frames(&self) -> Vec<String> {
        host_site(&self.0).frames.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
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
pub(crate) struct Records {
    pub order: Order,
    /// The environment asks for them, so that no guard's end stops them.
    pub stays: bool,
    pub next: u64,
    pub live: BTreeMap<u64, AllocationRecord>,
    pub freed: VecDeque<AllocationRecord>,
    pub operations: VecDeque<OperationRecord>,
}

/// How many guards ask for checks.
pub(crate) static GUARDS: AtomicUsize = AtomicUsize::new(0);

impl Records {
    pub fn new(stays: bool) -> Box<Records> {
        Box::new(Records {
            order: Order::default(),
            stays,
            next: 1,
            live: BTreeMap::new(),
            freed: VecDeque::new(),
            operations: VecDeque::new(),
        })
    }

    /// What the environment and the guards of before ask for.
    pub fn at_start() -> Option<Box<Records>> {
        let stays = checks_on();
        (stays || GUARDS.load(Atomic::SeqCst) > 0).then(|| Records::new(stays))
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

    pub fn named(&mut self, address: u64, name: &str) {
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

    pub fn issued(&mut self, what: &str, ordering: &Ordering, site: &Site) {
        if self.operations.len() == OPERATIONS {
            self.operations.pop_front();
        }
        let issued_at = site.clone();
        let record =
            OperationRecord { op: ordering.id(), what: what.to_owned(), ordering: ordering.clone(), issued_at };
        self.operations.push_back(record);
    }

    pub fn find(&self, address: u64) -> Option<AllocationRecord> {
        let inside = |r: &AllocationRecord| address >= r.address && address - r.address < r.bytes;
        let live = self.live.range(..=address).next_back().map(|(_, r)| r).filter(|r| inside(r));
        live.or_else(|| self.freed.iter().rev().find(|r| inside(r))).cloned()
    }

    /// What a context, or the process, leaves behind; variables go with their modules.
    pub fn left(&self, context: Option<u64>) -> Vec<AllocationRecord> {
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
