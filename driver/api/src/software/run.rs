//! Runs work, outside every lock on the tables: in the call that issues it, or later as a task (see `queue`).

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use warpsmith_simt::{Fault, FaultKind, Instance, Launch, MemoryError, Waiting};

use super::checks::{Caller, Launched};
use super::device::Device;
use super::graph_memory::{self, GraphAllocation};
use super::ops::{Copy, Fill, HostCall, HostFunction, Op, Place};
use super::order::{Follows, OpId, Ordering};
use super::params::Params;
use super::queue::{Batch, Rest, Ticket};
use super::state::{EventState, State, StreamKey};
use super::worker::{self, Inline};
use super::{Software, capture, checks, memory as device_memory, report, thread, track, with, with_context};
use crate::CUstream;
use crate::codes::{Code, Res};

/// A step with its place in the order of operations, where checks are on.
pub(super) struct Todo {
    pub step: Step,
    /// Which earlier operations the step may rely on; what a checked launch is given.
    pub ordering: Option<Ordering>,
}

/// Work with everything it needs, so that handles that are destroyed meanwhile do not matter.
pub(super) enum Step {
    Kernel {
        device: &'static Device,
        context: u64,
        instance: Arc<Instance>,
        name: Arc<str>,
        launch: Launch,
        params: Arc<Params>,
    },
    Copy(Copy),
    /// A copy whose source in host memory was read when it was issued.
    Staged(Copy, Vec<u8>),
    Fill(Fill),
    Host(HostCall),
    Record(u64),
    Alloc(Arc<GraphAllocation>),
    Free(i32, u64),
    /// Gives memory of a pool back: its context, address, and the operation that frees it.
    GiveBack(u64, u64, OpId),
}

/// Appends the steps of an operation. A kernel whose module is unloaded, or an event that is
/// destroyed, answers `CUDA_ERROR_INVALID_HANDLE`.
pub(super) fn prepare(state: &State, software: &'static Software, op: &Op, steps: &mut Vec<Step>) -> Res {
    match op {
        Op::Kernel(kernel) => {
            let function = state.functions.get(&kernel.function).ok_or(Code::INVALID_HANDLE)?;
            state.live_context(function.context)?;
            steps.push(Step::Kernel {
                device: software.device(state.device_of(function.context)?)?,
                context: function.context,
                instance: Arc::clone(&function.instance),
                name: Arc::clone(&function.name),
                launch: Launch {
                    grid: kernel.grid,
                    block: kernel.block,
                    dynamic_shared: kernel.shared,
                    max_dynamic_shared: function.max_dynamic_shared,
                    cooperative: kernel.is_cooperative(),
                },
                params: Arc::clone(&kernel.params),
            });
        }
        Op::Copy(copy) => steps.push(Step::Copy(*copy)),
        Op::Fill(fill) => steps.push(Step::Fill(*fill)),
        Op::Host(call) => steps.push(Step::Host(*call)),
        Op::Empty => {}
        Op::Child(graph) => {
            for id in graph.topological().ok_or(Code::INVALID_VALUE)? {
                if let Some(node) = graph.nodes.get(&id) {
                    prepare(state, software, &node.op, steps)?;
                }
            }
        }
        Op::EventRecord(event) => {
            state.events.get(event).ok_or(Code::INVALID_HANDLE)?;
            steps.push(Step::Record(*event));
        }
        Op::Alloc(allocation) => steps.push(Step::Alloc(Arc::clone(allocation))),
        Op::Free(device, address) => steps.push(Step::Free(*device, *address)),
        // Whatever the event stands for has run.
        Op::EventWait(event) => {
            state.events.get(event).ok_or(Code::INVALID_HANDLE)?;
        }
    }
    Ok(())
}

/// Puts an operation on a stream: into the stream's capture, or runs it, now or when what is in front of it is done.
pub(super) fn enqueue(stream: CUstream, make: impl FnOnce(&mut State, &'static Software, u64) -> Res<Op>) -> Res {
    let now = with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        let owner = state.stream_context(key)?;
        state.live_context(owner)?;
        state.check_failed(owner)?;
        let target = capture::target(state, key)?;
        let op = make(state, software, owner)?;
        if let Some(capture) = target {
            capture::add(state, capture, key, op)?;
            return Ok(None);
        }
        let mut steps = Vec::with_capacity(1);
        prepare(state, software, &op, &mut steps)?;
        let waits = returns_when_done(state, &op);
        let lane = state.lane(key);
        let (mut before, events) = (state.queue.before(lane), event_tickets(state, &op));
        let todos = in_stream(state, key, &op, steps);
        if waits {
            state.host_waited(key);
        }
        let mut batch = Batch::one(lane, todos, Vec::new());
        before.extend(events);
        if before.is_empty() || waits {
            return Ok(Some((batch, before)));
        }
        stage(state, &mut batch);
        worker::ensure(state, software, owner)?;
        state.put(batch, 0, &before, &Caller::here());
        software.changed.notify_all();
        Ok(None)
    })?;
    match now {
        Some((batch, before)) => after(&before, batch),
        None => Ok(()),
    }
}

/// Runs a batch in the call that issues it, when these tasks are done.
pub(super) fn after(before: &[Ticket], batch: Batch) -> Res {
    if !before.is_empty() {
        super::engine()?.wait(before);
        with(|state, _| state.check_failed(batch.lane.context))?;
    }
    inline(batch).map(drop)
}

/// The tasks that an operation waits for beyond those of its stream: what an event stands for.
pub(super) fn event_tickets(state: &State, op: &Op) -> Vec<Ticket> {
    match op {
        Op::EventWait(event) => state.event_ticket(*event).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether a call returns only when its operation is done: a copy to host memory that the driver does not know, or of such
/// memory in more than one piece, or from host to host.
fn returns_when_done(state: &State, op: &Op) -> bool {
    let Op::Copy(copy) = op else { return false };
    let pieces = copy.src.device.is_none() && !is_known(state, &copy.src) && copy.height * copy.depth > 1;
    fills_pageable(state, op) || pieces || copy.src.device.is_none() && copy.dst.device.is_none()
}

fn is_known(state: &State, place: &Place) -> bool {
    let at = place.address as usize;
    state.host.range(..=at).next_back().is_some_and(|(base, range)| at - base < range.bytes)
}

/// A copy that runs later from host memory that the driver does not know: the caller may write there when its call returns.
fn stage(state: &State, batch: &mut Batch) {
    let todos = batch.nodes.iter_mut().flat_map(|n| &mut n.rest.todos);
    for todo in todos {
        let Step::Copy(copy) = todo.step else { continue };
        if copy.src.device.is_none() && !is_known(state, &copy.src) {
            let from = std::ptr::with_exposed_provenance::<u8>(copy.src.address as usize);
            // SAFETY: the caller of the copy vouches for one row of readable host memory while the call lasts.
            let bytes = unsafe { std::slice::from_raw_parts(from, copy.width) }.to_vec();
            todo.step = Step::Staged(copy, bytes);
        }
    }
}

/// Whether it is a copy to host memory that the driver does not know: such a call returns when the copy is done (CUDA
/// Driver API, "API synchronization behavior").
fn fills_pageable(state: &State, op: &Op) -> bool {
    let Op::Copy(copy) = op else { return false };
    copy.dst.device.is_none() && !is_known(state, &copy.dst)
}

/// Gives an operation of a stream its place in the order.
pub(super) fn in_stream(state: &mut State, key: StreamKey, op: &Op, steps: Vec<Step>) -> Vec<Todo> {
    let ordering = match state.checks.is_some() {
        false => None,
        true => {
            let (what, lane) = (describe(state, op), state.lane(key));
            match (op, state.checks.as_mut()) {
                (Op::EventRecord(event), Some(checks)) => {
                    checks.order.record(*event, lane);
                    None
                }
                (Op::EventWait(event), Some(checks)) => {
                    checks.order.wait(lane, *event);
                    None
                }
                _ => state.issue(key, &what, follows(op)),
            }
        }
    };
    steps.into_iter().map(|step| Todo { step, ordering: ordering.clone() }).collect()
}

/// How it follows what is in front of it.
pub(super) fn follows(op: &Op) -> Follows {
    match op {
        Op::Kernel(kernel) if kernel.is_programmatic() => Follows::Begun,
        Op::Kernel(_) => Follows::Ended,
        _ => Follows::Other,
    }
}

/// What a report calls an operation.
pub(super) fn describe(state: &State, op: &Op) -> String {
    match op {
        Op::Kernel(k) => state.functions.get(&k.function).map_or_else(|| "kernel".to_owned(), |f| f.name.to_string()),
        Op::Copy(_) => "copy".to_owned(),
        Op::Fill(_) => "fill".to_owned(),
        Op::Host(_) => "host function".to_owned(),
        Op::Empty => "empty node".to_owned(),
        Op::Child(_) => "child graph".to_owned(),
        Op::EventRecord(_) => "event record".to_owned(),
        Op::EventWait(_) => "event wait".to_owned(),
        Op::Alloc(_) => "allocation".to_owned(),
        Op::Free(..) => "free".to_owned(),
    }
}

/// A launch that waits, with what is to be said of it.
pub(super) struct InFlight {
    device: &'static Device,
    context: u64,
    instance: Arc<Instance>,
    name: Arc<str>,
    launch: Launch,
    ordering: Option<Ordering>,
    started: Instant,
    waiting: Box<Waiting>,
}

impl InFlight {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_changing(&self) -> bool {
        self.waiting.is_changing()
    }

    pub fn is_stale(&self) -> bool {
        self.waiting.is_stale(&self.device.machine)
    }

    pub fn sees_host(&self) -> bool {
        self.waiting.sees_host()
    }

    pub fn is_limited(&self) -> bool {
        self.waiting.is_limited()
    }

    pub fn describe(&self) -> String {
        self.waiting.describe(&self.device.machine)
    }
}

/// How running a task went.
pub(super) enum Ran {
    /// To its end, or to a fault, which its context answers from now on.
    Done,
    /// A launch of it waits.
    Waiting(Rest),
    /// It has come to a function of the host; what that is told, and what is left.
    Host(HostCall, i32, Rest),
}

/// Runs a batch in the call that issues it. What cannot run there becomes tasks; the answer is those that nothing in the batch
/// depends on.
pub(super) fn inline(mut batch: Batch) -> Res<Vec<Ticket>> {
    let _counted = Inline::enter();
    let context = batch.lane.context;
    for at in 0..batch.nodes.len() {
        let Some(node) = batch.nodes.get_mut(at) else { break };
        let mut rest = std::mem::take(&mut node.rest);
        if !node.events.is_empty() {
            node.rest = rest;
            return later(batch, at);
        }
        loop {
            if matches!(rest.todos.front(), Some(Todo { step: Step::Host(_), .. })) {
                node.rest = rest;
                return later(batch, at);
            }
            let Some(todo) = rest.todos.pop_front() else { break };
            match run(context, todo, None)? {
                Went::On => {}
                Went::Down => return Ok(Vec::new()),
                Went::Waits(launch) => {
                    rest.launch = Some(launch);
                    node.rest = rest;
                    return later(batch, at);
                }
            }
        }
    }
    Ok(Vec::new())
}

/// Makes tasks of what is left of a batch.
fn later(batch: Batch, from: usize) -> Res<Vec<Ticket>> {
    let caller = Caller::here();
    with(|state, software| {
        worker::ensure(state, software, batch.lane.context)?;
        let ends = state.put(batch, from, &[], &caller);
        software.changed.notify_all();
        Ok(ends)
    })
}

/// Goes on with a task, on its engine thread. In a context that has failed nothing runs but callbacks, which are told the
/// error; in one that ends not even those.
pub(super) fn go_on(context: u64, ticket: Ticket, mut rest: Rest, failed: Option<Code>, closing: bool) -> Ran {
    let mut failed = failed;
    if failed.is_some() {
        rest.launch = None;
    }
    if let Some(launch) = rest.launch.take() {
        let InFlight { device, context, instance, name, launch, ordering, started, waiting } = *launch;
        match checks::resume(device, &instance, &name, &launch, waiting, ordering.as_ref()) {
            Launched::Waiting(waiting) => {
                let flight = InFlight { device, context, instance, name, launch, ordering, started, waiting };
                rest.launch = Some(Box::new(flight));
                return Ran::Waiting(rest);
            }
            Launched::Done(counters) => report::record(&name, started.elapsed(), &counters),
            Launched::Fault(fault) => failed = Some(faulted(context, &fault, ordering.as_ref())),
        }
    }
    while let Some(todo) = rest.todos.pop_front() {
        match (todo.step, failed) {
            (Step::Host(call), None) => return Ran::Host(call, 0, rest),
            (Step::Host(call @ HostCall { function: HostFunction::OfStream(..), .. }), Some(Code(code)))
                if !closing =>
            {
                return Ran::Host(call, code, rest);
            }
            (_, Some(_)) => {}
            (step, None) => match run(context, Todo { step, ordering: todo.ordering }, Some(ticket)) {
                Ok(Went::On) => {}
                Ok(Went::Waits(launch)) => {
                    rest.launch = Some(launch);
                    return Ran::Waiting(rest);
                }
                Ok(Went::Down) => failed = with(|state, _| Ok(state.check_failed(context).err())).ok().flatten(),
                // A launch that could not begin, or an engine that is gone.
                Err(code) => {
                    failed = Some(code);
                    fail_with(context, code);
                }
            },
        }
    }
    Ran::Done
}

/// Ends a launch that waits, as a deadlock.
pub(super) fn deadlock(context: u64, flight: InFlight) {
    let InFlight { device, instance, name, launch, ordering, waiting, .. } = flight;
    match checks::deadlock(device, &instance, &name, &launch, waiting, ordering.as_ref()) {
        Launched::Fault(fault) => drop(faulted(context, &fault, ordering.as_ref())),
        // It always is one.
        Launched::Done(_) | Launched::Waiting(_) => {}
    }
}

/// A task panicked: its context cannot be used any more.
pub(super) fn panicked(context: u64) -> Ran {
    report("internal error: a task panicked in the software driver; please report this".to_owned());
    fail_with(context, Code::UNKNOWN);
    Ran::Done
}

fn fail_with(context: u64, code: Code) {
    // Where the engine is gone, nobody asks.
    let _ = with(|state, _| {
        state.fail(context, code);
        Ok(())
    });
}

/// A launch has faulted: who is told, and what its context answers from now on.
fn faulted(context: u64, fault: &Fault, ordering: Option<&Ordering>) -> Code {
    let code = match fault.kind {
        FaultKind::BadLaunch(_) => Code::INVALID_VALUE,
        FaultKind::OutOfBounds | FaultKind::NullPointer => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
        FaultKind::AssertFailed => Code::ASSERT,
        FaultKind::IllegalInstruction => Code::ILLEGAL_INSTRUCTION,
        FaultKind::StackOverflow => Code::HARDWARE_STACK_ERROR,
        FaultKind::InstructionLimit => Code::LAUNCH_TIMEOUT,
        _ => Code::LAUNCH_FAILED,
    };
    let text = format!("{fault}{}", track::host_side(ordering, fault.address));
    if !checks::tells_faults() {
        eprintln!("{text}");
    }
    report(text);
    if code != Code::INVALID_VALUE {
        fail_with(context, code);
    }
    code
}

/// How a step went.
enum Went {
    On,
    /// To a fault: its context answers the error from now on, and the steps after it do not run.
    Down,
    Waits(Box<InFlight>),
}

/// Runs a step, which is no function of the host; only a launch that could not begin is an error here. `ticket` is the task
/// that it is of, if it is of one.
fn run(context: u64, todo: Todo, ticket: Option<Ticket>) -> Res<Went> {
    let Todo { step, ordering } = todo;
    match step {
        Step::Kernel { device, context, instance, name, launch, params } => {
            let started = Instant::now();
            match checks::launch(device, &instance, &name, &launch, params.bytes(), ordering.as_ref()) {
                Launched::Done(counters) => report::record(&name, started.elapsed(), &counters),
                Launched::Waiting(waiting) => {
                    let flight = InFlight { device, context, instance, name, launch, ordering, started, waiting };
                    return Ok(Went::Waits(Box::new(flight)));
                }
                Launched::Fault(fault) => {
                    return match faulted(context, &fault, ordering.as_ref()) {
                        Code::INVALID_VALUE => Err(Code::INVALID_VALUE),
                        _ => Ok(Went::Down),
                    };
                }
            }
        }
        Step::Copy(op) => return copies(context, &op, ordering.as_ref()),
        Step::Staged(op, bytes) => {
            let src = Place { address: bytes.as_ptr().expose_provenance() as u64, ..op.src };
            return copies(context, &Copy { src, ..op }, ordering.as_ref());
        }
        Step::Fill(op) => {
            checks::fills(&op, ordering.as_ref());
            if let Err(error) = fill(&op) {
                let bytes = op.width * op.height * op.element as usize;
                return fail(context, format!("fill of {bytes} bytes: {error}"));
            }
        }
        // Functions of the host run on their own thread alone.
        Step::Host(call) => call_host(call, 0),
        Step::Alloc(allocation) => with(|state, _| {
            graph_memory::run_alloc(state, allocation);
            Ok(())
        })?,
        Step::Free(device, address) => with(|state, _| {
            graph_memory::run_free(state, device, address);
            Ok(())
        })?,
        Step::GiveBack(context, address, op) => {
            with(|state, software| device_memory::give_back(state, software, context, address, op))?;
        }
        Step::Record(event) => with(|state, _| {
            if let Some(event) = state.events.get_mut(&event) {
                match event.state {
                    // Recorded again since.
                    EventState::Pending(other) if ticket.is_some_and(|t| t != other) => {}
                    _ => event.state = EventState::Done(Instant::now()),
                }
            }
            Ok(())
        })?,
    }
    Ok(Went::On)
}

fn copies(context: u64, op: &Copy, ordering: Option<&Ordering>) -> Res<Went> {
    checks::copies(op, ordering);
    if let Err(error) = copy(op) {
        return fail(context, format!("copy of {} bytes: {error}", op.width * op.height * op.depth));
    }
    checks::copied(op);
    Ok(Went::On)
}

/// Memory went away after the work was checked: what a GPU reports as an illegal address.
fn fail(context: u64, what: String) -> Res<Went> {
    let text = format!("error: {what}");
    eprintln!("{text}");
    report(text);
    with(|state, _| {
        state.fail(context, Code::ILLEGAL_ADDRESS);
        Ok(Went::Down)
    })
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("no such device")]
    Device,
}

fn memory(ordinal: i32) -> Result<&'static warpsmith_simt::Memory, Failure> {
    super::engine().and_then(|e| e.device(ordinal)).map(|d| d.machine.memory()).map_err(|_| Failure::Device)
}

fn copy(op: &Copy) -> Result<(), Failure> {
    let row =
        |place: &Place, y: usize, z: usize| place.address.wrapping_add((z * place.slice + y * place.pitch) as u64);
    for z in 0..op.depth {
        for y in 0..op.height {
            copy_row(op, row(&op.dst, y, z), row(&op.src, y, z))?;
        }
    }
    Ok(())
}

fn copy_row(op: &Copy, dst: u64, src: u64) -> Result<(), Failure> {
    let n = op.width;
    let from = std::ptr::with_exposed_provenance::<u8>(src as usize);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(dst as usize);
    match (op.dst.device, op.src.device) {
        (Some(d), Some(s)) if d == s => memory(d)?.copy(dst, src, n as u64)?,
        (Some(d), Some(s)) => {
            let mut between = vec![0u8; n];
            memory(s)?.read(src, &mut between)?;
            memory(d)?.write(dst, &between)?;
        }
        // SAFETY: the caller of the copy vouches for `n` readable bytes of host memory while it runs.
        (Some(d), None) => memory(d)?.write(dst, unsafe { std::slice::from_raw_parts(from, n) })?,
        // SAFETY: the caller of the copy vouches for `n` writable bytes of host memory while it runs.
        (None, Some(s)) => {
            // SAFETY: the caller of the copy vouches for `n` writable bytes of host memory while it runs.
            memory(s)?.read(src, unsafe { std::slice::from_raw_parts_mut(to, n) })?;
            checks::leaves(s, src, n as u64);
        }
        // SAFETY: as both above; the ranges may overlap.
        (None, None) => unsafe { std::ptr::copy(from, to, n) },
    }
    Ok(())
}

fn fill(op: &Fill) -> Result<(), Failure> {
    let pattern = op.value.to_le_bytes();
    let pattern = pattern.get(..op.element as usize).unwrap_or(&pattern);
    for y in 0..op.height {
        memory(op.device)?.fill(op.dst.wrapping_add((y * op.pitch) as u64), pattern, op.width as u64)?;
    }
    Ok(())
}

/// Calls a host function as CUDA does: on a thread of the driver's, which must not call CUDA.
pub(super) fn call_host(call: HostCall, status: i32) {
    thread::as_callback(|| {
        let data = std::ptr::with_exposed_provenance_mut::<c_void>(call.user_data);
        match call.function {
            // SAFETY: the caller gave this function for this data, to be called once the stream is here.
            HostFunction::Plain(f) => unsafe { f(data) },
            // SAFETY: as above.
            HostFunction::OfStream(f, stream) => unsafe { f(CUstream::from_id(stream), status, data) },
        }
    });
}

/// Calls a function that tells a caller of the end of something, on another thread, and waits for it.
pub(super) fn host(call: HostCall) {
    let spawned = std::thread::Builder::new().name("warpsmith host function".into()).spawn(move || call_host(call, 0));
    match spawned {
        Ok(handle) => {
            // A host function that panics aborts at its own boundary; there is no outcome to look at.
            let _ = handle.join();
        }
        Err(_) => call_host(call, 0),
    }
}

/// Waits for all work on the device of the calling thread's context, as calls that free its memory do.
pub(super) fn finish_device() -> Res {
    finish(|state| {
        let device = state.device_of(state.current_context()?)?;
        Ok(state.queue.of_contexts(|c| state.device_of(c) == Ok(device)))
    })
}

/// Waits for all work on all devices, as calls that free memory of the host do.
pub(super) fn finish_all() -> Res {
    finish(|state| Ok(state.queue.of_contexts(|_| true)))
}

fn finish(which: impl FnOnce(&State) -> Res<Vec<Ticket>>) -> Res {
    let tickets = with(|state, _| if state.queue.is_empty() { Ok(Vec::new()) } else { which(state) });
    match tickets {
        Ok(tickets) if !tickets.is_empty() => super::engine()?.wait(&tickets),
        // The call itself says what is wrong.
        _ => {}
    }
    Ok(())
}
