//! Events: marks in streams with the time at which they were passed.

use std::time::Instant;

use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::software::checks::Caller;
use crate::software::functions::ipc::refused;
use crate::software::ipc::{self, Awaited, Handle, Kind, Look, SharedEvent};
use crate::software::report::report;
use crate::software::rules::capture;
use crate::software::run::{issue, worker};
use crate::software::tables::{
    objects::{Event, EventState, Ticket},
    ops::Op,
    queue::Batch,
    software::{Software, engine, with_context},
    state::State,
    work::{Rest, Step, Todo},
};
use crate::types::*;

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// Of record and wait: a node in a capture, not an edge.
const EXTERNAL: u32 = 1;

pub(crate) fn create(event: Out<CUevent>, flags: u32) -> Res {
    event.check()?;
    if flags & !(BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS) != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, context| {
        let shared = (flags & INTERPROCESS != 0).then(SharedEvent::new).transpose().map_err(refused)?;
        let id = state.fresh();
        state.events.insert(id, Event { context, flags, state: EventState::Never, shared });
        event.set(CUevent::from_id(id))
    })
}

pub(crate) fn ipc_handle(handle: Out<IpcHandle>, event: CUevent) -> Res {
    handle.check()?;
    with_context(|state, _, _| {
        let event = state.events.get(&event.id()).ok_or(Code::INVALID_HANDLE)?;
        let shared = event.shared.as_ref().ok_or(Code::INVALID_HANDLE)?;
        handle.set(shared.handle()?.bytes())
    })
}

pub(crate) fn open_ipc_handle(event: Out<CUevent>, handle: IpcHandle) -> Res {
    event.check()?;
    if !ipc::SUPPORTED {
        return Err(Code::NOT_SUPPORTED);
    }
    with_context(|state, _, context| {
        let handle = Handle::of(&handle, Kind::Event).ok_or(Code::INVALID_VALUE)?;
        let shared = Some(SharedEvent::open(&handle).map_err(refused)?);
        let id = state.fresh();
        let flags = DISABLE_TIMING | INTERPROCESS;
        state.events.insert(id, Event { context, flags, state: EventState::Never, shared });
        event.set(CUevent::from_id(id))
    })
}

pub(crate) fn destroy(event: CUevent) -> Res {
    with_context(|state, _, _| {
        state.events.remove(&event.id()).ok_or(Code::INVALID_HANDLE)?;
        if let Some(checks) = state.checks.as_mut() {
            checks.order.event_destroyed(event.id());
        }
        Ok(())
    })
}

pub(crate) fn record(event: CUevent, stream: CUstream) -> Res {
    record_with_flags(event, stream, 0)
}

pub(crate) fn record_with_flags(event: CUevent, stream: CUstream, flags: u32) -> Res {
    if flags & !EXTERNAL != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let id = event.id();
    if flags & EXTERNAL != 0 {
        return issue::enqueue(stream, |state, _, _| {
            state.events.get(&id).map(|_| Op::EventRecord(id)).ok_or(Code::INVALID_HANDLE)
        });
    }
    with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        let owner = state.stream_context(key)?;
        state.check_failed(owner)?;
        let event = state.events.get(&id).ok_or(Code::INVALID_HANDLE)?;
        if event.context != owner {
            return Err(Code::INVALID_HANDLE);
        }
        let mark = match capture::target(state, key)? {
            Some(capture) => EventState::Captured { capture, nodes: capture::dependencies(state, capture, key)? },
            None => {
                let mark = state.events.get(&id).map_or(Ok(None), issue::mark)?;
                let lane = state.lane(key);
                if let Some(checks) = state.checks.as_mut() {
                    checks.order.record(id, lane);
                }
                let before = state.queue.before(lane);
                if !before.is_empty() {
                    worker::ensure(state, software, owner)?;
                    let todos = vec![Todo { step: Step::Record(id, mark), ordering: None }];
                    state.put(Batch::one(lane, todos, Vec::new()), 0, &before, &Caller::here());
                    software.changed.notify_all();
                    return Ok(());
                }
                if let Some(mark) = mark {
                    mark.pass();
                }
                EventState::Done(Instant::now())
            }
        };
        if let Some(event) = state.events.get_mut(&id) {
            event.state = mark;
        }
        Ok(())
    })
}

pub(crate) fn wait(stream: CUstream, event: CUevent, flags: u32) -> Res {
    if flags & !EXTERNAL != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let id = event.id();
    if flags & EXTERNAL != 0 {
        return issue::enqueue(stream, |state, _, _| {
            state.events.get(&id).map(|_| Op::EventWait(id)).ok_or(Code::INVALID_HANDLE)
        });
    }
    with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        let owner = state.stream_context(key)?;
        state.check_failed(owner)?;
        let event = state.events.get(&id).ok_or(Code::INVALID_HANDLE)?;
        let (mark, awaited) = (event.state.clone(), issue::awaited(event)?);
        match mark {
            EventState::Captured { capture, nodes } => capture::join(state, key, capture, &nodes),
            // In a capture this would be an edge from outside.
            EventState::Never | EventState::Done(_) | EventState::Pending(_) => {
                capture::isolated(state, key)?;
                let lane = state.lane(key);
                let tickets: Vec<_> = state.event_ticket(id).into_iter().collect();
                state.queue.wait_for(lane, &tickets);
                if let Some(checks) = state.checks.as_mut() {
                    checks.order.wait(lane, id);
                }
                learn(state, software, id);
                if let Some(awaited) = awaited {
                    let before = state.queue.before(lane);
                    worker::ensure(state, software, owner)?;
                    let todos = vec![Todo { step: Step::Await(awaited), ordering: None }];
                    state.put(Batch::one(lane, todos, Vec::new()), 0, &before, &Caller::here());
                    software.changed.notify_all();
                }
                Ok(())
            }
        }
    })
}

/// Another process was the last to record an event: what that knows of this one cannot be told, and may be everything.
fn learn(state: &mut State, software: &Software, event: u64) {
    let shared = state.events.get(&event).and_then(|e| e.shared.as_ref());
    if shared.is_some_and(|s| s.is_foreign()) {
        software.devices.iter().for_each(|device| state.device_waited(device));
    }
}

/// What another process has still to do before an event is passed.
fn awaited(state: &State, event: CUevent) -> Res<Option<Awaited>> {
    state.events.get(&event.id()).map_or(Ok(None), issue::awaited)
}

/// Whether a call may ask for an event; the task that it waits for.
fn asked(state: &mut State, event: CUevent) -> Res<Option<Ticket>> {
    let mark = state.events.get(&event.id()).ok_or(Code::INVALID_HANDLE)?.state.clone();
    if let EventState::Captured { capture, .. } = mark {
        capture::invalidate(state, capture);
        return Err(Code::CAPTURED_EVENT);
    }
    capture::unsafe_call(state)?;
    Ok(state.event_ticket(event.id()))
}

fn known(state: &mut State, event: CUevent) {
    if let Some(checks) = state.checks.as_mut() {
        checks.order.event_done(event.id());
    }
}

/// Asks whether an event was passed.
pub(crate) fn query(event: CUevent) -> Res {
    with_context(|state, software, _| {
        if asked(state, event)?.is_some() {
            return Err(Code::NOT_READY);
        }
        match awaited(state, event)?.map(|awaited| awaited.look()) {
            Some(Look::Pending) => return Err(Code::NOT_READY),
            Some(Look::Lost(why)) => {
                report(format!("an event of several processes is never passed: {why}"));
                return Err(Code::LAUNCH_FAILED);
            }
            Some(Look::Passed) | None => {}
        }
        known(state, event);
        learn(state, software, event.id());
        Ok(())
    })
}

/// Waits for an event.
pub(crate) fn synchronize(event: CUevent) -> Res {
    let tickets = with_context(|state, software, context| {
        let mut tickets: Vec<Ticket> = asked(state, event)?.into_iter().collect();
        if let Some(awaited) = awaited(state, event)? {
            // As a task, so that a launch which waits knows that somebody may come.
            worker::ensure(state, software, context)?;
            let rest = Rest::of([Todo { step: Step::Await(awaited), ordering: None }]);
            tickets.push(state.queue.add(context, Vec::new(), rest, Caller::here()));
            software.changed.notify_all();
        }
        Ok(tickets)
    })?;
    if !tickets.is_empty() {
        engine()?.wait(&tickets);
    }
    with_context(|state, software, _| {
        known(state, event);
        learn(state, software, event.id());
        Ok(())
    })
}

pub(crate) fn elapsed(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Res {
    milliseconds.check()?;
    with_context(|state, _, _| {
        let time = |event: CUevent| {
            let event = state.events.get(&event.id()).ok_or(Code::INVALID_HANDLE)?;
            match event.state {
                _ if event.flags & DISABLE_TIMING != 0 => Err(Code::INVALID_HANDLE),
                EventState::Done(at) => Ok(at),
                EventState::Never => Err(Code::INVALID_HANDLE),
                EventState::Pending(_) => Err(Code::NOT_READY),
                EventState::Captured { .. } => Err(Code::CAPTURED_EVENT),
            }
        };
        let (start, end) = (time(start)?, time(end)?);
        let seconds = match end.checked_duration_since(start) {
            Some(forward) => forward.as_secs_f64(),
            None => -start.duration_since(end).as_secs_f64(),
        };
        milliseconds.set((seconds * 1e3) as f32)
    })
}
