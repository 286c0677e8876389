//! The tables of everything that callers hold, and the questions that every call asks of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use warpsmith_simt::Instance;

use super::array::Array;
use super::capture::Capture;
use super::checks::{self, LeftBy};
use super::device::Device;
use super::exec::Exec;
use super::graph::Graph;
use super::graph_memory::GraphAllocation;
use super::host::HostRange;
use super::library::{Kernel, Library};
use super::link::Link;
use super::objects::UserObject;
use super::pool::Pool;
use super::queue::{Queue, Ticket};
use super::thread;
use super::track::{AllocationRecord, Checks};
use crate::codes::{Code, Res};
use crate::types::*;

pub(super) struct State {
    next: u64,
    pub contexts: HashMap<u64, Context>,
    pub modules: HashMap<u64, Module>,
    pub functions: HashMap<u64, Function>,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
    pub graphs: HashMap<u64, Graph>,
    /// Which graph a node is in.
    pub node_owner: HashMap<u64, u64>,
    pub execs: HashMap<u64, Exec>,
    pub pools: HashMap<u64, Pool>,
    pub links: HashMap<u64, Link>,
    pub libraries: HashMap<u64, Library>,
    pub kernels: HashMap<u64, Kernel>,
    /// Pinned and registered host memory, by address.
    pub host: BTreeMap<usize, HostRange>,
    /// What `cuMemAlloc` and its kin gave out, by device and address.
    pub allocations: HashMap<(i32, u64), Allocation>,
    /// What launched graphs allocated and nobody freed yet, by device and address.
    pub graph_memory: HashMap<(i32, u64), Arc<GraphAllocation>>,
    pub objects: HashMap<u64, UserObject>,
    pub arrays: HashMap<u64, Array>,
    /// Contexts' access to other devices: context and device.
    pub peers: HashSet<(u64, i32)>,
    /// What the checkers are told, if somebody asks for checks.
    pub checks: Option<Box<Checks>>,
    /// The same between two times that somebody does.
    pub paused_checks: Option<Box<Checks>>,
    pub captures: HashMap<u64, Capture>,
    /// The capture that a stream takes part in.
    pub capturing: HashMap<StreamKey, u64>,
    /// Operations that did not run in the calls that issued them.
    pub queue: Queue,
}

pub(super) struct Context {
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

pub(super) struct Module {
    pub context: u64,
    pub instance: Arc<Instance>,
    pub functions: HashMap<String, u64>,
}

#[derive(Clone)]
pub(super) struct Function {
    pub module: u64,
    pub context: u64,
    pub instance: Arc<Instance>,
    pub name: Arc<str>,
    /// The name with a NUL, for callers in C.
    pub c_name: Arc<[u8]>,
    pub max_dynamic_shared: u32,
    pub carveout: i32,
}

pub(super) struct Stream {
    pub context: u64,
    pub flags: u32,
    pub priority: i32,
    /// `CUstreamAttrValue` by id; they are kept, and change nothing here.
    pub attributes: BTreeMap<u32, [u32; 16]>,
}

pub(super) struct Event {
    pub context: u64,
    pub flags: u32,
    pub state: EventState,
}

#[derive(Clone)]
pub(super) enum EventState {
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

pub(super) struct Allocation {
    pub context: u64,
    pub bytes: u64,
    pub pool: Option<u64>,
}

/// A stream, default streams included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum StreamKey {
    /// The legacy default stream of a context.
    Legacy(u64),
    /// The default stream of a thread in a context.
    PerThread(u64, u64),
    Own(u64),
}

impl State {
    pub fn new(devices: &[Device]) -> State {
        let mut state = State {
            next: 0x5700_0000,
            contexts: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            node_owner: HashMap::new(),
            execs: HashMap::new(),
            pools: HashMap::new(),
            links: HashMap::new(),
            libraries: HashMap::new(),
            kernels: HashMap::new(),
            host: BTreeMap::new(),
            allocations: HashMap::new(),
            graph_memory: HashMap::new(),
            objects: HashMap::new(),
            arrays: HashMap::new(),
            peers: HashSet::new(),
            checks: Checks::at_start(),
            paused_checks: None,
            captures: HashMap::new(),
            capturing: HashMap::new(),
            queue: Queue::default(),
        };
        for device in devices {
            let context = state.fresh();
            state.contexts.insert(context, Context::new(device.ordinal, 0, true));
            let pool = state.fresh();
            state.pools.insert(pool, Pool::new(device.ordinal, true));
        }
        state
    }

    /// A handle that no kind of object had before.
    pub fn fresh(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    pub fn primary(&mut self, device: i32) -> Res<(u64, &mut Context)> {
        self.contexts
            .iter_mut()
            .find(|(_, c)| c.primary && c.device == device)
            .map(|(id, c)| (*id, c))
            .ok_or(Code::INVALID_DEVICE)
    }

    /// A context that exists and is not an inactive primary one.
    pub fn live_context(&self, id: u64) -> Res<&Context> {
        let context = self.contexts.get(&id).ok_or(Code::CONTEXT_IS_DESTROYED)?;
        if context.references == 0 { Err(Code::CONTEXT_IS_DESTROYED) } else { Ok(context) }
    }

    /// The calling thread's context, failed or not.
    pub fn current_context(&self) -> Res<u64> {
        let id = thread::stack(|s| s.last().copied())?.ok_or(Code::INVALID_CONTEXT)?;
        self.live_context(id)?;
        Ok(id)
    }

    /// The calling thread's context; if a kernel failed in it, that kernel's error.
    pub fn usable_context(&self) -> Res<u64> {
        let id = self.current_context()?;
        self.check_failed(id)?;
        Ok(id)
    }

    pub fn check_failed(&self, context: u64) -> Res {
        match self.contexts.get(&context).and_then(|c| c.failed) {
            Some(code) => Err(code),
            None => Ok(()),
        }
    }

    pub fn fail(&mut self, context: u64, code: Code) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.failed.get_or_insert(code);
        }
    }

    pub fn device_of(&self, context: u64) -> Res<i32> {
        self.contexts.get(&context).map(|c| c.device).ok_or(Code::CONTEXT_IS_DESTROYED)
    }

    /// What a stream handle names, in the current context.
    pub fn stream_key(&self, context: u64, stream: CUstream) -> Res<StreamKey> {
        match stream.id() {
            0 if thread::default_is_per_thread() => Ok(StreamKey::PerThread(context, thread::key()?)),
            0 | 1 => Ok(StreamKey::Legacy(context)),
            2 => Ok(StreamKey::PerThread(context, thread::key()?)),
            id if self.streams.contains_key(&id) => Ok(StreamKey::Own(id)),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    pub fn stream_context(&self, key: StreamKey) -> Res<u64> {
        match key {
            StreamKey::Legacy(context) | StreamKey::PerThread(context, _) => Ok(context),
            StreamKey::Own(id) => self.streams.get(&id).map(|s| s.context).ok_or(Code::INVALID_HANDLE),
        }
    }

    /// Whether work on the stream waits for the legacy default stream and it for the stream.
    pub fn is_blocking(&self, key: StreamKey) -> bool {
        match key {
            StreamKey::Own(id) => self.streams.get(&id).is_some_and(|s| s.flags & 1 == 0),
            StreamKey::Legacy(_) | StreamKey::PerThread(..) => true,
        }
    }

    pub fn function(&self, function: CUfunction) -> Res<&Function> {
        self.functions.get(&function.id()).ok_or(Code::INVALID_HANDLE)
    }

    /// Takes down everything that lives in a context.
    pub fn clear_context(&mut self, context: u64, software: &super::Software) -> Remains {
        let mut instances = Vec::new();
        let mut left = self.checks.as_mut().map(|c| c.context_gone(context)).unwrap_or_default();
        if self.contexts.get(&context).is_some_and(|c| c.failed.is_some()) {
            // After a fault every call fails, those that free memory included.
            left.clear();
        }
        self.functions.retain(|_, f| f.context != context);
        self.modules.retain(|_, m| {
            let keep = m.context != context;
            if !keep {
                instances.push(Arc::clone(&m.instance));
            }
            keep
        });
        let gone: HashSet<u64> = self.streams.iter().filter(|(_, s)| s.context == context).map(|(id, _)| *id).collect();
        self.streams.retain(|id, _| !gone.contains(id));
        self.events.retain(|_, e| e.context != context);
        self.arrays.retain(|_, a| a.context != context);
        self.peers.retain(|(c, _)| *c != context);
        let captures: Vec<u64> =
            self.captures.iter().filter(|(_, c)| c.context == context).map(|(id, _)| *id).collect();
        for id in captures {
            self.drop_capture(id);
        }
        let mut freed = Vec::new();
        self.allocations.retain(|(device, address), a| {
            let keep = a.context != context;
            if !keep {
                freed.push((*device, *address, a.pool, a.bytes));
            }
            keep
        });
        for (device, address, pool, bytes) in freed {
            if let Some(pool) = pool.and_then(|p| self.pools.get_mut(&p)) {
                pool.give_back(bytes);
            }
            if let Ok(device) = software.device(device) {
                // The table says that this is an allocation; a refusal leaves it to the machine.
                let _ = device.machine.memory().free(address);
            }
        }
        Remains { instances, left }
    }
}

/// What is left of a context.
#[derive(Default)]
#[must_use = "to be settled outside the lock"]
pub(super) struct Remains {
    instances: Vec<Arc<Instance>>,
    left: Vec<AllocationRecord>,
}

impl Remains {
    /// Frees the modules and tells what nobody freed; not under the lock on the tables.
    pub fn settle(self) {
        drop(self.instances);
        checks::leave(self.left, LeftBy::Context);
    }
}
