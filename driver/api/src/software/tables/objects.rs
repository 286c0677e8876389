//! What handles stand for, as data: each kind of object that callers hold, but for graphs (`ops`, `plan`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use warpsmith_simt::{Instance, Module as Ptx};

use crate::codes::Code;
use crate::software::ipc::{Segment, SharedEvent};
use crate::software::jit::Options;
use crate::software::tables::members::Member;
use crate::software::tables::ops::{GraphAllocation, HostCall};
use crate::types::*;

/// The number of a task; none is used twice.
pub(crate) type Ticket = u64;

/// A stream, default streams included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum StreamKey {
    /// The legacy default stream of a context.
    Legacy(u64),
    /// The default stream of a thread in a context.
    PerThread(u64, u64),
    Own(u64),
}

pub(crate) struct Context {
    pub device: i32,
    pub flags: u32,
    pub primary: bool,
    /// References to a primary context; a context of one's own has one.
    pub references: u64,
    /// The error of a kernel that failed in it; every later call answers it.
    pub failed: Option<Code>,
    pub limits: BTreeMap<i32, usize>,
    pub cache_config: i32,
}

impl Context {
    pub fn new(device: i32, flags: u32, primary: bool) -> Context {
        Context {
            device,
            flags,
            primary,
            references: u64::from(!primary),
            failed: None,
            limits: BTreeMap::new(),
            cache_config: 0,
        }
    }
}

pub(crate) struct Module {
    pub context: u64,
    pub instance: Arc<Instance>,
    pub functions: HashMap<String, u64>,
}

#[derive(Clone)]
pub(crate) struct Function {
    pub module: u64,
    pub context: u64,
    pub instance: Arc<Instance>,
    pub name: Arc<str>,
    /// The name with a NUL, for callers in C.
    pub c_name: Arc<[u8]>,
    pub max_dynamic_shared: u32,
    pub carveout: i32,
}

pub(crate) struct Stream {
    pub context: u64,
    pub flags: u32,
    pub priority: i32,
    /// `CUstreamAttrValue` by id; they are kept, and change nothing here.
    pub attributes: BTreeMap<u32, [u32; 16]>,
}

pub(crate) struct Event {
    pub context: u64,
    pub flags: u32,
    pub state: EventState,
    /// What other processes see of it.
    pub shared: Option<Arc<SharedEvent>>,
}

#[derive(Clone)]
pub(crate) enum EventState {
    Never,
    Done(Instant),
    /// Recorded behind work that is not done: the task that passes it.
    Pending(Ticket),
    /// Recorded in a capture, after these nodes.
    Captured {
        capture: u64,
        nodes: Vec<u64>,
    },
}

pub(crate) struct Allocation {
    pub context: u64,
    pub bytes: u64,
    pub pool: Option<u64>,
}

/// Another process's memory.
pub(crate) struct Opened {
    pub context: u64,
    /// How often it was opened and not closed.
    pub count: u64,
    pub segment: Arc<Segment>,
}

/// A range of host memory, by its first address in the table.
pub(crate) struct HostRange {
    pub bytes: usize,
    pub flags: u32,
    pub kind: HostKind,
    pub context: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    Pinned,
    Managed,
    /// The caller's own memory.
    Registered,
}

pub(crate) struct Array {
    pub context: u64,
    pub memory: Arc<GraphAllocation>,
    pub shape: ArrayDescriptor3D,
}

pub(crate) struct Library {
    pub ptx: Arc<Ptx>,
    /// The module in each context that has used the library.
    pub modules: HashMap<u64, u64>,
    pub kernels: HashMap<String, u64>,
}

pub(crate) struct LibraryKernel {
    pub library: u64,
    pub name: Arc<str>,
    /// The name with a NUL, for callers in C.
    pub c_name: Arc<[u8]>,
    /// Attributes that were set, by device.
    pub attributes: HashMap<(i32, i32), i32>,
}

/// A linker invocation: what it was given so far, and the image made of it.
pub(crate) struct Link {
    pub inputs: Vec<(String, String)>,
    /// Of the libraries given so far.
    pub members: Vec<Member>,
    /// Kept until the invocation is destroyed: the caller reads it there.
    pub image: Option<Arc<[u8]>>,
    pub options: Options,
}

pub(crate) struct UserObject {
    pub references: u64,
    pub destroy: HostCall,
}

pub(crate) struct Pool {
    pub device: i32,
    /// The pool that a device has from the start; it cannot be destroyed.
    pub default: bool,
    /// The device's pool for allocations that name none.
    pub current: bool,
    pub used: u64,
    pub used_high: u64,
    /// Attributes 1 to 4: three switches and the release threshold.
    pub settings: [u64; 4],
    /// What was said of other devices' access.
    pub access: BTreeMap<i32, i32>,
}

impl Pool {
    pub fn new(device: i32, default: bool) -> Pool {
        Pool {
            device,
            default,
            current: default,
            used: 0,
            used_high: 0,
            settings: [1, 1, 1, 0],
            access: BTreeMap::new(),
        }
    }

    /// Whether another device was given access.
    pub fn reachable_from(&self, device: i32) -> bool {
        self.access.get(&device) == Some(&3)
    }

    pub fn give_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }
}

pub(crate) struct Capture {
    pub context: u64,
    pub graph: u64,
    /// Whether the capture made the graph, which then ends with a capture that fails.
    pub owned: bool,
    pub origin: StreamKey,
    pub mode: i32,
    pub thread: u64,
    pub spoiled: bool,
    /// The streams that take part, each with the nodes that its next node will depend on.
    pub streams: HashMap<StreamKey, Vec<u64>>,
    /// What the last question for dependencies was answered with, kept for the asker.
    pub shown: Vec<CUgraphNode>,
}
