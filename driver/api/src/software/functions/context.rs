//! Contexts: primary ones with references, ones of the caller's own, and each thread's stack.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::Arc;

use warpsmith_simt::Instance;

use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::software::checks::{self, LeftBy};
use crate::software::functions::stream;
use crate::software::report::tell;
use crate::software::rules::capture;
use crate::software::tables::{
    allocations,
    objects::Context,
    records::AllocationRecord,
    software::{Software, engine, with, with_context},
    state::State,
};
use crate::software::thread;
use crate::types::*;

// SCHED_*, MAP_HOST, LMEM_RESIZE_TO_MAX, COREDUMP_ENABLE, USER_COREDUMP_ENABLE, SYNC_MEMOPS.
const FLAGS: u32 = 0xff;

pub(crate) fn primary_retain(context: Out<CUcontext>, device: CUdevice) -> Res {
    context.check()?;
    with(|state, software| {
        software.device(device)?;
        let (id, primary) = state.primary(device)?;
        primary.references += 1;
        context.set(CUcontext::from_id(id))
    })
}

/// Ends the work in a primary context, if a call is about to end the context.
fn close_primary(device: CUdevice, last: impl FnOnce(u64) -> bool) -> Res {
    let id = with(|state, software| {
        software.device(device)?;
        let (id, primary) = state.primary(device)?;
        Ok(Some(id).filter(|_| last(primary.references)))
    })?;
    if let Some(id) = id {
        engine()?.close(id);
    }
    Ok(())
}

pub(crate) fn primary_release(device: CUdevice) -> Res {
    close_primary(device, |references| references == 1)?;
    let gone = with(|state, software| {
        software.device(device)?;
        let (id, primary) = state.primary(device)?;
        if primary.references == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        primary.references -= 1;
        Ok(if primary.references == 0 { reset(state, software, id) } else { Remains::default() })
    })?;
    gone.settle();
    Ok(())
}

pub(crate) fn primary_reset(device: CUdevice) -> Res {
    close_primary(device, |_| true)?;
    let gone = with(|state, software| {
        software.device(device)?;
        let (id, primary) = state.primary(device)?;
        primary.references = 0;
        Ok(reset(state, software, id))
    })?;
    gone.settle();
    Ok(())
}

/// Takes down everything that lives in a context.
fn clear(state: &mut State, context: u64, software: &Software) -> Remains {
    let mut instances = Vec::new();
    let mut left = state.checks.as_mut().map(|c| c.context_gone(context)).unwrap_or_default();
    if state.contexts.get(&context).is_some_and(|c| c.failed.is_some()) {
        // After a fault every call fails, those that free memory included.
        left.clear();
    }
    state.functions.retain(|_, f| f.context != context);
    state.modules.retain(|_, m| {
        let keep = m.context != context;
        if !keep {
            instances.push(Arc::clone(&m.instance));
        }
        keep
    });
    let gone: HashSet<u64> = state.streams.iter().filter(|(_, s)| s.context == context).map(|(id, _)| *id).collect();
    state.streams.retain(|id, _| !gone.contains(id));
    state.events.retain(|_, e| e.context != context);
    state.arrays.retain(|_, a| a.context != context);
    state.peers.retain(|(c, _)| *c != context);
    // Its device is there for as long as the process is.
    let _ = state.device_of(context).and_then(|device| apply_peers(state, software, device));
    let captures: Vec<u64> = state.captures.iter().filter(|(_, c)| c.context == context).map(|(id, _)| *id).collect();
    for id in captures {
        state.drop_capture(id);
    }
    let mut freed = Vec::new();
    state.allocations.retain(|(device, address), a| {
        let keep = a.context != context;
        if !keep {
            freed.push((*device, *address, a.pool, a.bytes));
        }
        keep
    });
    let opened = state.opened.extract_if(|_, o| o.context == context);
    for (device, address) in opened.map(|(place, _)| place) {
        if let Ok(device) = software.device(device) {
            // Its owner may have freed it.
            let _ = device.machine.memory().detach(address);
        }
    }
    for (device, address, pool, bytes) in freed {
        tell(allocations::retract(state, device, address));
        if let Some(pool) = pool.and_then(|p| state.pools.get_mut(&p)) {
            pool.give_back(bytes);
        }
        if let Ok(device) = software.device(device) {
            // The table says that this is an allocation; a refusal leaves it to the machine.
            let _ = device.machine.memory().free(address);
        }
    }
    Remains { instances, left }
}

/// What is left of a context.
#[derive(Default)]
#[must_use = "to be settled outside the lock"]
struct Remains {
    instances: Vec<Arc<Instance>>,
    left: Vec<AllocationRecord>,
}

impl Remains {
    /// Frees the modules and tells what nobody freed; not under the lock on the tables.
    fn settle(self) {
        drop(self.instances);
        checks::leave(self.left, LeftBy::Context);
    }
}

fn reset(state: &mut State, software: &Software, id: u64) -> Remains {
    let gone = clear(state, id, software);
    if let Some(context) = state.contexts.get_mut(&id) {
        let references = context.references;
        *context = Context { references, flags: context.flags, ..Context::new(context.device, 0, true) };
    }
    gone
}

pub(crate) fn primary_set_flags(device: CUdevice, flags: u32) -> Res {
    if flags & !FLAGS != 0 || flags & 7 > 4 {
        return Err(Code::INVALID_VALUE);
    }
    with(|state, software| {
        software.device(device)?;
        state.primary(device)?.1.flags = flags;
        Ok(())
    })
}

pub(crate) fn primary_state(device: CUdevice, flags: Out<u32>, active: Out<i32>) -> Res {
    with(|state, software| {
        software.device(device)?;
        let (_, primary) = state.primary(device)?;
        flags.set(primary.flags)?;
        active.set(i32::from(primary.references > 0))
    })
}

pub(crate) fn create(context: Out<CUcontext>, flags: u32, device: CUdevice) -> Res {
    context.check()?;
    if flags & !FLAGS != 0 || flags & 7 > 4 {
        return Err(Code::INVALID_VALUE);
    }
    let id = with(|state, software| {
        software.device(device)?;
        let id = state.fresh();
        state.contexts.insert(id, Context::new(device, flags, false));
        Ok(id)
    })?;
    thread::stack(|s| s.push(id))?;
    context.set(CUcontext::from_id(id))
}

pub(crate) fn create_v3(context: Out<CUcontext>, _: Out<c_void>, count: i32, flags: u32, device: CUdevice) -> Res {
    if count != 0 {
        return Err(Code::UNSUPPORTED_EXEC_AFFINITY);
    }
    create(context, flags, device)
}

pub(crate) fn create_v4(context: Out<CUcontext>, parameters: Out<c_void>, flags: u32, device: CUdevice) -> Res {
    if !parameters.is_null() {
        return Err(Code::UNSUPPORTED_EXEC_AFFINITY);
    }
    create(context, flags, device)
}

pub(crate) fn destroy(context: CUcontext) -> Res {
    let id = context.id();
    if with(|state, _| Ok(state.contexts.get(&id).is_some_and(|c| !c.primary)))? {
        engine()?.close(id);
    }
    let gone = with(|state, software| {
        match state.contexts.get(&id) {
            None => return Err(Code::INVALID_CONTEXT),
            // A primary context is released, not destroyed.
            Some(c) if c.primary => return Err(Code::INVALID_CONTEXT),
            Some(_) => {}
        }
        let gone = clear(state, id, software);
        state.contexts.remove(&id);
        // Its engine thread ends.
        software.changed.notify_all();
        Ok(gone)
    })?;
    gone.settle();
    // Current to this thread it is popped; in other threads' stacks it stays and answers "destroyed".
    thread::stack(|s| {
        if s.last() == Some(&id) {
            s.pop();
        }
    })
}

pub(crate) fn push(context: CUcontext) -> Res {
    with(|state, _| state.contexts.get(&context.id()).map(|_| ()).ok_or(Code::INVALID_CONTEXT))?;
    thread::stack(|s| s.push(context.id()))
}

pub(crate) fn pop(context: Out<CUcontext>) -> Res {
    let id = thread::stack(Vec::pop)?.ok_or(Code::INVALID_CONTEXT)?;
    context.set_if_asked(CUcontext::from_id(id));
    Ok(())
}

pub(crate) fn set_current(context: CUcontext) -> Res {
    if context == CUcontext::NULL {
        return thread::stack(|s| s.pop()).map(|_| ());
    }
    with(|state, _| state.contexts.get(&context.id()).map(|_| ()).ok_or(Code::INVALID_CONTEXT))?;
    thread::stack(|s| match s.last_mut() {
        Some(top) => *top = context.id(),
        None => s.push(context.id()),
    })
}

pub(crate) fn get_current(context: Out<CUcontext>) -> Res {
    let id = thread::stack(|s| s.last().copied())?;
    context.set(id.map_or(CUcontext::NULL, CUcontext::from_id))
}

pub(crate) fn get_device(device: Out<CUdevice>) -> Res {
    with(|state, _| {
        let context = state.current_context()?;
        device.set(state.device_of(context)?)
    })
}

pub(crate) fn get_flags(flags: Out<u32>) -> Res {
    with(|state, _| {
        let id = state.current_context()?;
        flags.set(state.live_context(id)?.flags)
    })
}

pub(crate) fn get_id(context: CUcontext, id: Out<u64>) -> Res {
    with(|state, _| {
        let found = if context == CUcontext::NULL { state.current_context()? } else { context.id() };
        state.contexts.get(&found).ok_or(Code::INVALID_CONTEXT)?;
        id.set(found)
    })
}

/// Waits for all work in a context.
fn wait(context: u64) -> Res {
    let tickets = with(|state, _| {
        capture::context_sync(state, context)?;
        Ok(state.queue.of_contexts(|c| c == context))
    })?;
    engine()?.wait(&tickets);
    with(|state, _| {
        if let Some(checks) = state.checks.as_mut() {
            checks.order.context_done(context);
        }
        state.check_failed(context)
    })
}

pub(crate) fn synchronize() -> Res {
    wait(with_context(|_, _, context| Ok(context))?)
}

fn limits(device_limits: i32) -> Option<usize> {
    // Stack, printf FIFO, malloc heap, sync depth, pending launches, L2 fetch granularity, persisting L2.
    match device_limits {
        0 => Some(1024),
        1 => Some(1 << 20),
        2 => Some(8 << 20),
        3 => Some(2),
        4 => Some(2048),
        5 => Some(64),
        6 => Some(0),
        _ => None,
    }
}

pub(crate) fn set_limit(limit: i32, value: usize) -> Res {
    with_context(|state, _, context| {
        limits(limit).ok_or(Code::UNSUPPORTED_LIMIT)?;
        let context = state.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?;
        context.limits.insert(limit, value);
        Ok(())
    })
}

pub(crate) fn get_limit(value: Out<usize>, limit: i32) -> Res {
    with_context(|state, _, context| {
        let default = limits(limit).ok_or(Code::UNSUPPORTED_LIMIT)?;
        value.set(state.live_context(context)?.limits.get(&limit).copied().unwrap_or(default))
    })
}

pub(crate) fn get_cache_config(config: Out<i32>) -> Res {
    with_context(|state, _, context| config.set(state.live_context(context)?.cache_config))
}

pub(crate) fn set_cache_config(config: i32) -> Res {
    if !(0..=3).contains(&config) {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, context| {
        state.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?.cache_config = config;
        Ok(())
    })
}

pub(crate) fn get_shared_config(config: Out<i32>) -> Res {
    // Every architecture here has banks of four bytes, whatever was set.
    with_context(|_, _, _| config.set(1))
}

pub(crate) fn set_shared_config(config: i32) -> Res {
    if !(0..=2).contains(&config) {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|_, _, _| Ok(()))
}

pub(crate) fn api_version(context: CUcontext, version: Out<u32>) -> Res {
    with(|state, _| {
        if context != CUcontext::NULL && !state.contexts.contains_key(&context.id()) {
            return Err(Code::INVALID_CONTEXT);
        }
        version.set(3020)
    })
}

pub(crate) fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Res {
    with_context(|_, _, _| {
        least.set_if_asked(stream::LEAST_PRIORITY);
        greatest.set_if_asked(stream::GREATEST_PRIORITY);
        Ok(())
    })
}

pub(crate) fn reset_l2() -> Res {
    with_context(|_, _, _| Ok(()))
}

/// Lets kernels of a device reach what its contexts have access to.
pub(crate) fn apply_peers(state: &State, software: &Software, device: i32) -> Res {
    let of_contexts = state.peers.iter().filter(|(c, _)| state.device_of(*c) == Ok(device)).map(|(_, peer)| *peer);
    let of_pools = state.pools.values().filter(|p| p.reachable_from(device)).map(|p| p.device);
    let mut ordinals: Vec<i32> = of_contexts.chain(of_pools).filter(|peer| *peer != device).collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    let peers: Vec<_> = ordinals.iter().filter_map(|o| software.device(*o).ok()).map(|d| d.machine.memory()).collect();
    software.device(device)?.machine.memory().set_peers(&peers);
    Ok(())
}

pub(crate) fn enable_peer(peer: CUcontext, flags: u32) -> Res {
    with_context(|state, software, context| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let other = state.live_context(peer.id()).map_err(|_| Code::INVALID_CONTEXT)?.device;
        let device = state.device_of(context)?;
        if other == device {
            return Err(Code::INVALID_DEVICE);
        }
        if !state.peers.insert((context, other)) {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        apply_peers(state, software, device)
    })
}

pub(crate) fn disable_peer(peer: CUcontext) -> Res {
    with_context(|state, software, context| {
        let other = state.live_context(peer.id()).map_err(|_| Code::INVALID_CONTEXT)?.device;
        if !state.peers.remove(&(context, other)) {
            return Err(Code::PEER_ACCESS_NOT_ENABLED);
        }
        apply_peers(state, software, state.device_of(context)?)
    })
}

pub(crate) fn profiler() -> Res {
    with_context(|_, _, _| Ok(()))
}

fn named_or_current(state: &State, context: CUcontext) -> Res<u64> {
    if context == CUcontext::NULL {
        return state.current_context();
    }
    state.live_context(context.id()).map_err(|_| Code::INVALID_CONTEXT)?;
    Ok(context.id())
}

pub(crate) fn get_device_v2(device: Out<CUdevice>, context: CUcontext) -> Res {
    with(|state, _| device.set(state.device_of(named_or_current(state, context)?)?))
}

pub(crate) fn synchronize_v2(context: CUcontext) -> Res {
    let context = with(|state, _| {
        let context = named_or_current(state, context)?;
        state.check_failed(context)?;
        Ok(context)
    })?;
    wait(context)
}

pub(crate) fn set_flags(flags: u32) -> Res {
    if flags & !FLAGS != 0 || flags & 7 > 4 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, context| {
        state.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?.flags = flags;
        Ok(())
    })
}

/// Another reference to the current context, for callers of the first version.
pub(crate) fn attach(context: Out<CUcontext>, flags: u32) -> Res {
    context.check()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, current| {
        state.contexts.get_mut(&current).ok_or(Code::INVALID_CONTEXT)?.references += 1;
        context.set(CUcontext::from_id(current))
    })
}

pub(crate) fn detach(context: CUcontext) -> Res {
    let last = with(|state, _| {
        let found = state.contexts.get_mut(&context.id()).ok_or(Code::INVALID_CONTEXT)?;
        if found.references == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        if found.references > 1 {
            found.references -= 1;
            return Ok(false);
        }
        Ok(true)
    })?;
    if last { destroy(context) } else { Ok(()) }
}

/// Affinity of contexts to multiprocessors: the devices have none.
pub(crate) fn get_affinity(_: Out<c_void>, _: i32) -> Res {
    with_context(|_, _, _| Err(Code::UNSUPPORTED_EXEC_AFFINITY))
}

pub(crate) fn affinity_support(supported: Out<i32>, _: i32, device: CUdevice) -> Res {
    engine()?.device(device)?;
    supported.set(0)
}
