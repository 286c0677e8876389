//! Runs steps, outside every lock on the tables.

use std::time::Instant;

use warpsmith_simt::{Fault, FaultKind, MemoryError};

use crate::codes::{Code, Res};
use crate::software::checks::{self, Launched};
use crate::software::ipc::Look;
use crate::software::report::{self, report};
use crate::software::run::callback;
use crate::software::tables::{
    allocations, graph_allocations,
    objects::{EventState, Ticket},
    ops::{Copy, Fill, HostCall, HostFunction, Place},
    order::Ordering,
    software::{engine, with},
    work::{InFlight, Rest, Step, Todo},
};
use crate::software::track;

/// How running a task went.
pub(crate) enum Ran {
    /// To its end, or to a fault, which its context answers from now on.
    Done,
    /// A launch of it waits.
    Waiting(Rest),
    /// It has come to a function of the host; what that is told, and what is left.
    Host(HostCall, i32, Rest),
    /// It waits for another process.
    Awaits(Rest),
}

/// Goes on with a task, on its engine thread. In a context that has failed nothing runs but callbacks, which are told the
/// error; in one that ends not even those.
pub(crate) fn go_on(context: u64, ticket: Ticket, mut rest: Rest, failed: Option<Code>, closing: bool) -> Ran {
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
            (Step::Await(awaited), None) if matches!(awaited.look(), Look::Pending) => {
                rest.todos.push_front(Todo { step: Step::Await(awaited), ordering: todo.ordering });
                return Ran::Awaits(rest);
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
pub(crate) fn deadlock(context: u64, flight: InFlight) {
    let InFlight { device, instance, name, launch, ordering, waiting, .. } = flight;
    match checks::deadlock(device, &instance, &name, &launch, waiting, ordering.as_ref()) {
        Launched::Fault(fault) => drop(faulted(context, &fault, ordering.as_ref())),
        // It always is one.
        Launched::Done(_) | Launched::Waiting(_) => {}
    }
}

/// A task panicked: its context cannot be used any more.
pub(crate) fn panicked(context: u64) -> Ran {
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
        FaultKind::BadLaunch => Code::INVALID_VALUE,
        FaultKind::OutOfBounds | FaultKind::NullPointer => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
        FaultKind::AssertFailed => Code::ASSERT,
        FaultKind::IllegalInstruction => Code::ILLEGAL_INSTRUCTION,
        FaultKind::StackOverflow => Code::HARDWARE_STACK_ERROR,
        FaultKind::InstructionLimit => Code::LAUNCH_TIMEOUT,
        _ => Code::LAUNCH_FAILED,
    };
    let text = format!("{fault}{}", track::host_side(ordering, context, fault.address));
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
pub(crate) enum Went {
    On,
    /// To a fault: its context answers the error from now on, and the steps after it do not run.
    Down,
    Waits(Box<InFlight>),
}

/// Runs a step, which is no function of the host; only a launch that could not begin is an error here. `ticket` is the task
/// that it is of, if it is of one.
pub(crate) fn run(context: u64, todo: Todo, ticket: Option<Ticket>) -> Res<Went> {
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
        Step::Host(call) => callback::call_host(call, 0),
        Step::Alloc(allocation) => with(|state, _| {
            graph_allocations::run_alloc(state, allocation);
            Ok(())
        })?,
        Step::Free(device, address) => with(|state, _| {
            graph_allocations::run_free(state, device, address);
            Ok(())
        })?,
        Step::GiveBack(context, address, op) => {
            report::tell(with(|state, software| allocations::give_back(state, software, context, address, op))?);
        }
        Step::Await(awaited) => {
            // Who asks for it to run has found it no longer pending.
            if let Look::Lost(why) = awaited.look() {
                return lost(context, why);
            }
        }
        Step::Record(event, mark) => with(|state, _| {
            if let Some(mark) = mark {
                mark.pass();
            }
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

/// An event of several processes that is never passed.
fn lost(context: u64, why: &str) -> Res<Went> {
    let text = format!("error: an event of several processes is waited for in vain: {why}");
    eprintln!("{text}");
    report(text);
    fail_with(context, Code::LAUNCH_FAILED);
    Ok(Went::Down)
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
    engine().and_then(|e| e.device(ordinal)).map(|d| d.machine.memory()).map_err(|_| Failure::Device)
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
        (Some(d), Some(s)) => memory(s)?.copy_to(memory(d)?, dst, src, n as u64)?,
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
