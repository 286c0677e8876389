//! Runs work, outside every lock on the tables.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use warpsmith_simt::{FaultKind, Instance, Launch, MemoryError};

use super::device::Device;
use super::graph_memory::{self, GraphAllocation};
use super::ops::{Copy, Fill, HostCall, HostFunction, Op, Place};
use super::order::{Follows, Ordering};
use super::params::Params;
use super::state::{EventState, State, StreamKey};
use super::{Software, capture, checks, report, thread, track, with, with_context};
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
    Fill(Fill),
    Host(HostCall),
    Record(u64),
    Alloc(Arc<GraphAllocation>),
    Free(i32, u64),
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

/// Puts an operation on a stream: into the stream's capture, or runs it.
pub(super) fn enqueue(stream: CUstream, make: impl FnOnce(&mut State, &'static Software, u64) -> Res<Op>) -> Res {
    let todo = with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        let owner = state.stream_context(key)?;
        state.live_context(owner)?;
        state.check_failed(owner)?;
        let target = capture::target(state, key)?;
        let op = make(state, software, owner)?;
        match target {
            Some(capture) => {
                capture::add(state, capture, key, op)?;
                Ok(None)
            }
            None => {
                let mut steps = Vec::with_capacity(1);
                prepare(state, software, &op, &mut steps)?;
                let steps = in_stream(state, key, &op, steps);
                if fills_pageable(state, &op) {
                    state.host_waited(key);
                }
                Ok(Some((owner, steps)))
            }
        }
    })?;
    match todo {
        Some((context, steps)) => run(context, steps),
        None => Ok(()),
    }
}

/// Whether it is a copy to host memory that the driver does not know: such a call returns when the copy is done (CUDA
/// Driver API, "API synchronization behavior").
fn fills_pageable(state: &State, op: &Op) -> bool {
    let Op::Copy(copy) = op else { return false };
    let to = copy.dst.address as usize;
    let known = state.host.range(..=to).next_back().is_some_and(|(base, range)| to - base < range.bytes);
    copy.dst.device.is_none() && !known
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

/// Runs steps in order. A step that faults makes its context answer the error from now on, and the
/// steps after it do not run; only a launch that could not begin is an error here.
pub(super) fn run(context: u64, steps: Vec<Todo>) -> Res {
    for Todo { step, ordering } in steps {
        match step {
            Step::Kernel { device, context, instance, name, launch, params } => {
                let started = Instant::now();
                match checks::launch(device, &instance, &name, &launch, params.bytes(), ordering.as_ref()) {
                    Ok(counters) => report::record(&name, started.elapsed(), &counters),
                    Err(fault) => {
                        let text = format!("{fault}{}", track::host_side(ordering.as_ref(), fault.address));
                        if !checks::tells_faults() {
                            eprintln!("{text}");
                        }
                        report(text);
                        let code = match fault.kind {
                            FaultKind::BadLaunch(_) => return Err(Code::INVALID_VALUE),
                            FaultKind::OutOfBounds | FaultKind::NullPointer => Code::ILLEGAL_ADDRESS,
                            FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
                            FaultKind::AssertFailed => Code::ASSERT,
                            FaultKind::IllegalInstruction => Code::ILLEGAL_INSTRUCTION,
                            FaultKind::StackOverflow => Code::HARDWARE_STACK_ERROR,
                            FaultKind::InstructionLimit => Code::LAUNCH_TIMEOUT,
                            _ => Code::LAUNCH_FAILED,
                        };
                        return with(|state, _| {
                            state.fail(context, code);
                            Ok(())
                        });
                    }
                }
            }
            Step::Copy(op) => {
                checks::copies(&op, ordering.as_ref());
                if let Err(error) = copy(&op) {
                    return fail(context, format!("copy of {} bytes: {error}", op.width * op.height * op.depth));
                }
                checks::copied(&op);
            }
            Step::Fill(op) => {
                checks::fills(&op, ordering.as_ref());
                if let Err(error) = fill(&op) {
                    return fail(
                        context,
                        format!("fill of {} bytes: {error}", op.width * op.height * op.element as usize),
                    );
                }
            }
            Step::Host(call) => host(call),
            Step::Alloc(allocation) => with(|state, _| {
                graph_memory::run_alloc(state, allocation);
                Ok(())
            })?,
            Step::Free(device, address) => with(|state, _| {
                graph_memory::run_free(state, device, address);
                Ok(())
            })?,
            Step::Record(event) => {
                with(|state, _| {
                    if let Some(event) = state.events.get_mut(&event) {
                        event.state = EventState::Done(Instant::now());
                    }
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}

/// Memory went away after the work was checked: what a GPU reports as an illegal address.
fn fail(context: u64, what: String) -> Res {
    let text = format!("error: {what}");
    eprintln!("{text}");
    report(text);
    with(|state, _| {
        state.fail(context, Code::ILLEGAL_ADDRESS);
        Ok(())
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

/// Runs a host function as CUDA does: on a thread of the driver's, which must not call CUDA.
pub(super) fn host(call: HostCall) {
    let invoke = move || {
        thread::as_callback(|| {
            let data = std::ptr::with_exposed_provenance_mut::<c_void>(call.user_data);
            match call.function {
                // SAFETY: the caller gave this function for this data, to be called once the stream is here.
                HostFunction::Plain(f) => unsafe { f(data) },
                // SAFETY: as above.
                HostFunction::OfStream(f, stream) => unsafe { f(CUstream::from_id(stream), 0, data) },
            }
        });
    };
    let spawned = std::thread::Builder::new().name("warpsmith host function".into()).spawn(invoke);
    match spawned {
        Ok(handle) => {
            // A host function that panics aborts at its own boundary; there is no outcome to look at.
            let _ = handle.join();
        }
        Err(_) => invoke(),
    }
}
