//! Puts work on streams: into a capture, into the call that issues it, or as a task behind what is in front of it (see `queue`).

use std::sync::Arc;

use warpsmith_simt::Launch;

use crate::CUstream;
use crate::codes::{Code, Res};
use crate::software::checks::Caller;
use crate::software::ipc::{Awaited, Mark};
use crate::software::rules::capture;
use crate::software::run::{
    execute::{Went, run},
    worker::{self, Inline},
};
use crate::software::tables::{
    objects::{Event, StreamKey, Ticket},
    ops::{Op, Place},
    order::Follows,
    queue::Batch,
    software::{Software, engine, with, with_context},
    state::State,
    work::{Step, Todo},
};

/// Appends the steps of an operation. A kernel whose module is unloaded, or an event that is
/// destroyed, answers `CUDA_ERROR_INVALID_HANDLE`.
pub(crate) fn prepare(state: &State, software: &'static Software, op: &Op, steps: &mut Vec<Step>) -> Res {
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
            let found = state.events.get(event).ok_or(Code::INVALID_HANDLE)?;
            steps.push(Step::Record(*event, mark(found)?));
        }
        Op::Alloc(allocation) => steps.push(Step::Alloc(Arc::clone(allocation))),
        Op::Free(device, address) => steps.push(Step::Free(*device, *address)),
        // Whatever the event stands for in this process has run.
        Op::EventWait(event) => {
            let found = state.events.get(event).ok_or(Code::INVALID_HANDLE)?;
            steps.extend(awaited(found)?.map(Step::Await));
        }
    }
    Ok(())
}

/// The mark of a record that is issued, if processes share the event.
pub(crate) fn mark(event: &Event) -> Res<Option<Mark>> {
    let Some(shared) = &event.shared else { return Ok(None) };
    shared.check()?;
    Ok(Some(shared.record()))
}

/// Another process's record that who waits for the event waits for.
pub(crate) fn awaited(event: &Event) -> Res<Option<Awaited>> {
    let Some(shared) = &event.shared else { return Ok(None) };
    shared.check()?;
    Ok(shared.awaited())
}

/// Puts an operation on a stream: into the stream's capture, or runs it, now or when what is in front of it is done.
pub(crate) fn enqueue(stream: CUstream, make: impl FnOnce(&mut State, &'static Software, u64) -> Res<Op>) -> Res {
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
pub(crate) fn after(before: &[Ticket], batch: Batch) -> Res {
    if !before.is_empty() {
        engine()?.wait(before);
        with(|state, _| state.check_failed(batch.lane.context))?;
    }
    inline(batch).map(drop)
}

/// The tasks that an operation waits for beyond those of its stream: what an event stands for.
pub(crate) fn event_tickets(state: &State, op: &Op) -> Vec<Ticket> {
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
pub(crate) fn in_stream(state: &mut State, key: StreamKey, op: &Op, steps: Vec<Step>) -> Vec<Todo> {
    let ordering = match state.checks.is_some() {
        false => None,
        true => {
            let (what, lane, follows) = (describe(state, op), state.lane(key), follows(state, op));
            match (op, state.checks.as_mut()) {
                (Op::EventRecord(event), Some(checks)) => {
                    checks.order.record(*event, lane);
                    None
                }
                (Op::EventWait(event), Some(checks)) => {
                    checks.order.wait(lane, *event);
                    None
                }
                _ => state.issue(key, &what, follows),
            }
        }
    };
    steps.into_iter().map(|step| Todo { step, ordering: ordering.clone() }).collect()
}

/// How it follows what is in front of it.
pub(crate) fn follows(state: &State, op: &Op) -> Follows {
    match op {
        Op::Kernel(kernel) if kernel.is_programmatic() => Follows::Begun {
            lets_behind_wait: state
                .functions
                .get(&kernel.function)
                .is_some_and(|f| f.instance.module().lets_behind_wait(&f.name)),
        },
        Op::Kernel(_) => Follows::Ended,
        _ => Follows::Other,
    }
}

/// What a report calls an operation.
pub(crate) fn describe(state: &State, op: &Op) -> String {
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

/// Runs a batch in the call that issues it. What cannot run there becomes tasks; the answer is those that nothing in the batch
/// depends on.
pub(crate) fn inline(mut batch: Batch) -> Res<Vec<Ticket>> {
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
            if rest.todos.front().is_some_and(|t| matches!(t.step, Step::Host(_)) || t.is_pending()) {
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

/// Waits for all work on the device of the calling thread's context, as calls that free its memory do.
pub(crate) fn finish_device() -> Res {
    finish(|state| {
        let device = state.device_of(state.current_context()?)?;
        Ok(state.queue.of_contexts(|c| state.device_of(c) == Ok(device)))
    })
}

/// Waits for all work on all devices, as calls that free memory of the host do.
pub(crate) fn finish_all() -> Res {
    finish(|state| Ok(state.queue.of_contexts(|_| true)))
}

fn finish(which: impl FnOnce(&State) -> Res<Vec<Ticket>>) -> Res {
    let tickets = with(|state, _| if state.queue.is_empty() { Ok(Vec::new()) } else { which(state) });
    match tickets {
        Ok(tickets) if !tickets.is_empty() => engine()?.wait(&tickets),
        // The call itself says what is wrong.
        _ => {}
    }
    Ok(())
}
