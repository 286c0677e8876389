//! The tables of everything that callers hold, and the questions that every call asks of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::codes::{Code, Res};
use crate::software::checks::Caller;
use crate::software::ipc::Segment;
use crate::software::tables::{
    device::Device,
    objects::{
        Allocation, Array, Capture, Context, Event, EventState, Function, HostRange, Library, LibraryKernel, Link,
        Module, Opened, Pool, Stream, StreamKey, Ticket, UserObject,
    },
    ops::{Graph, GraphAllocation, HostCall},
    plan::Exec,
    queue::{Batch, Queue},
    records::Records,
    work::{Rest, Step, Todo},
};
use crate::software::thread;
use crate::types::*;

pub(crate) struct State {
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
    pub kernels: HashMap<u64, LibraryKernel>,
    /// Pinned and registered host memory, by address.
    pub host: BTreeMap<usize, HostRange>,
    /// What `cuMemAlloc` and its kin gave out, by device and address.
    pub allocations: HashMap<(i32, u64), Allocation>,
    /// Of those, what other processes may open.
    pub exported: HashMap<(i32, u64), Arc<Segment>>,
    /// What was opened of other processes, by device and address.
    pub opened: HashMap<(i32, u64), Opened>,
    /// What launched graphs allocated and nobody freed yet, by device and address.
    pub graph_memory: HashMap<(i32, u64), Arc<GraphAllocation>>,
    pub objects: HashMap<u64, UserObject>,
    pub arrays: HashMap<u64, Array>,
    /// Contexts' access to other devices: context and device.
    pub peers: HashSet<(u64, i32)>,
    /// What the checkers are told, if somebody asks for checks.
    pub checks: Option<Box<Records>>,
    /// The same between two times that somebody does.
    pub paused_checks: Option<Box<Records>>,
    pub captures: HashMap<u64, Capture>,
    /// The capture that a stream takes part in.
    pub capturing: HashMap<StreamKey, u64>,
    /// Operations that did not run in the calls that issued them.
    pub queue: Queue,
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
            exported: HashMap::new(),
            opened: HashMap::new(),
            graph_memory: HashMap::new(),
            objects: HashMap::new(),
            arrays: HashMap::new(),
            peers: HashSet::new(),
            checks: Records::at_start(),
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

    /// Makes tasks of a batch from its node `from` on; those before it are done. The first come after `before`. The answer
    /// is the tasks that nothing in the batch depends on, which is what the stream's next operation comes after.
    pub fn put(&mut self, batch: Batch, from: usize, before: &[Ticket], caller: &Arc<Caller>) -> Vec<Ticket> {
        let Batch { lane, nodes } = batch;
        let mut tickets: Vec<Option<Ticket>> = Vec::with_capacity(nodes.len());
        let mut ends: Vec<Ticket> = Vec::new();
        for (at, node) in nodes.into_iter().enumerate() {
            if at < from {
                tickets.push(None);
                continue;
            }
            let deps: Vec<Ticket> = node.deps.iter().filter_map(|d| tickets.get(*d).copied().flatten()).collect();
            ends.retain(|t| !deps.contains(t));
            let mut after = if deps.is_empty() { before.to_vec() } else { deps };
            after.extend(node.events);
            let events: Vec<u64> = (node.rest.todos.iter())
                .filter_map(|todo| if let Step::Record(event, _) = &todo.step { Some(*event) } else { None })
                .collect();
            let ticket = self.queue.add(lane.context, after, node.rest, Arc::clone(caller));
            for event in events {
                if let Some(event) = self.events.get_mut(&event) {
                    event.state = EventState::Pending(ticket);
                }
            }
            tickets.push(Some(ticket));
            ends.push(ticket);
        }
        self.queue.wait_for(lane, &ends);
        ends
    }

    /// Calls functions of the host behind tasks, in no stream's order.
    pub fn call_behind(&mut self, context: u64, after: Vec<Ticket>, calls: Vec<HostCall>, caller: &Arc<Caller>) {
        let todos = calls.into_iter().map(|call| Todo { step: Step::Host(call), ordering: None });
        self.queue.add(context, after, Rest::of(todos), Arc::clone(caller));
    }

    /// What an event still waits for.
    pub fn event_ticket(&self, event: u64) -> Option<Ticket> {
        match self.events.get(&event)?.state {
            EventState::Pending(ticket) if !self.queue.is_done(ticket) => Some(ticket),
            _ => None,
        }
    }
}
