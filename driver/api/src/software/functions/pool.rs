//! Stream-ordered allocation and its pools. An allocation is there at once, and a free takes effect when what is in front of it
//! is done, which mostly is at once.

use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::checks::{self, Caller};
use crate::software::functions::{context, graph_memory};
use crate::software::report::tell;
use crate::software::rules::capture;
use crate::software::run::worker;
use crate::software::tables::{
    allocations, graph_allocations,
    objects::Pool,
    ops::Op,
    order::Follows,
    queue::Batch,
    software::{with, with_context},
    state::State,
    work::{Step, Todo},
};
use crate::types::*;

fn of_device(state: &State, device: i32, pick: impl Fn(&Pool) -> bool) -> Res<u64> {
    state.pools.iter().find(|(_, p)| p.device == device && pick(p)).map(|(id, _)| *id).ok_or(Code::INVALID_DEVICE)
}

fn take(address: Out<CUdeviceptr>, bytes: usize, pool: Option<CUmemoryPool>, stream: CUstream) -> Res {
    address.check()?;
    with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        let device = state.device_of(state.stream_context(key)?)?;
        let pool = match pool {
            Some(pool) => pool.id(),
            None => of_device(state, device, |p| p.current)?,
        };
        match state.pools.get(&pool) {
            Some(p) if p.device == device => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        if let Some(capture) = capture::target(state, key)? {
            return address.set(graph_memory::captured_alloc(state, software, capture, key, device, bytes)?);
        }
        let owner = state.stream_context(key)?;
        let op = state.issue(key, "allocation", Follows::Other).map_or(0, |o| o.id());
        let taken = allocations::take(state, software, owner, bytes, Some((pool, op)))?;
        if let Some(pool) = state.pools.get_mut(&pool) {
            pool.used += bytes as u64;
            pool.used_high = pool.used_high.max(pool.used);
        }
        address.set(taken)
    })
}

pub(crate) fn alloc_async(address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> Res {
    take(address, bytes, None, stream)
}

pub(crate) fn alloc_from_pool_async(
    address: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Res {
    take(address, bytes, Some(pool), stream)
}

pub(crate) fn free_async(address: CUdeviceptr, stream: CUstream) -> Res {
    let found = with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        let target = capture::target(state, key)?;
        if address == 0 {
            return Ok(Vec::new());
        }
        if let Some(capture) = target {
            let op = graph_allocations::free_op(state, address)?;
            return capture::add(state, capture, key, op).map(|_| Vec::new());
        }
        let lane = state.lane(key);
        let before = state.queue.before(lane);
        let later = |state: &mut State, step: Step| {
            let owner = lane.context;
            worker::ensure(state, software, owner)?;
            let todos = vec![Todo { step, ordering: None }];
            state.put(Batch::one(lane, todos, Vec::new()), 0, &before, &Caller::here());
            software.changed.notify_all();
            Ok(())
        };
        if !before.is_empty()
            && let Ok(Op::Free(device, address)) = graph_allocations::free_op(state, address)
        {
            later(state, Step::Free(device, address))?;
            return Ok(Vec::new());
        }
        if graph_allocations::give_back(state, address) {
            return Ok(Vec::new());
        }
        // Looked up before it is issued: a free of nothing is no operation.
        let found = allocations::find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
        if found.device.is_some_and(|device| state.opened.contains_key(&(device, found.base))) {
            return Err(Code::INVALID_VALUE);
        }
        let ordering = state.issue(key, "free", Follows::Other);
        let device = software.device(state.device_of(context)?)?;
        let found = ordering.as_ref().map_or_else(Vec::new, |o| checks::retires(device, address, o));
        let op = ordering.map_or(0, |o| o.id());
        if before.is_empty() {
            tell(allocations::give_back(state, software, context, address, op)?);
        } else {
            later(state, Step::GiveBack(context, address, op))?;
        }
        Ok(found)
    })?;
    checks::submit(found, None);
    Ok(())
}

pub(crate) fn default(pool: Out<CUmemoryPool>, device: CUdevice) -> Res {
    with(|state, software| {
        software.device(device)?;
        pool.set(CUmemoryPool::from_id(of_device(state, device, |p| p.default)?))
    })
}

pub(crate) fn current(pool: Out<CUmemoryPool>, device: CUdevice) -> Res {
    with(|state, software| {
        software.device(device)?;
        pool.set(CUmemoryPool::from_id(of_device(state, device, |p| p.current)?))
    })
}

pub(crate) fn set_current(device: CUdevice, pool: CUmemoryPool) -> Res {
    with(|state, software| {
        software.device(device)?;
        match state.pools.get(&pool.id()) {
            Some(p) if p.device == device => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        for (id, p) in state.pools.iter_mut().filter(|(_, p)| p.device == device) {
            p.current = *id == pool.id();
        }
        Ok(())
    })
}

pub(crate) fn create(pool: Out<CUmemoryPool>, properties: In<MemPoolProps>) -> Res {
    pool.check()?;
    let properties = properties.get()?;
    // Pinned memory of a device.
    if properties.alloc_type != 1 || properties.location.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if properties.handle_types != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    with(|state, software| {
        let device = software.device(properties.location.id).map_err(|_| Code::INVALID_VALUE)?.ordinal;
        let id = state.fresh();
        state.pools.insert(id, Pool::new(device, false));
        pool.set(CUmemoryPool::from_id(id))
    })
}

pub(crate) fn destroy(pool: CUmemoryPool) -> Res {
    with(|state, _| {
        let found = state.pools.get(&pool.id()).ok_or(Code::INVALID_VALUE)?;
        if found.default {
            return Err(Code::INVALID_VALUE);
        }
        // What came from it stays until it is freed.
        let (device, current) = (found.device, found.current);
        state.pools.remove(&pool.id());
        if current {
            for p in state.pools.values_mut().filter(|p| p.device == device && p.default) {
                p.current = true;
            }
        }
        Ok(())
    })
}

pub(crate) fn trim(pool: CUmemoryPool, _keep: usize) -> Res {
    // Nothing is held back that could be given back.
    with(|state, _| state.pools.get(&pool.id()).map(|_| ()).ok_or(Code::INVALID_VALUE))
}

pub(crate) fn set_attribute(pool: CUmemoryPool, attribute: i32, value: Out<c_void>) -> Res {
    with(|state, _| {
        let pool = state.pools.get_mut(&pool.id()).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            1..=3 => pool.settings[attribute as usize - 1] = u64::from(value.cast::<u32>().get()? != 0),
            4 => pool.settings[3] = value.cast::<u64>().get()?,
            // The high-water marks can be reset, to zero alone.
            6 | 8 if value.cast::<u64>().get()? == 0 => pool.used_high = pool.used,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    })
}

pub(crate) fn get_attribute(pool: CUmemoryPool, attribute: i32, value: Out<c_void>) -> Res {
    with(|state, _| {
        let pool = state.pools.get(&pool.id()).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            1..=3 => value.cast::<u32>().set(pool.settings[attribute as usize - 1] as u32),
            4 => value.cast::<u64>().set(pool.settings[3]),
            5 | 7 => value.cast::<u64>().set(pool.used),
            6 | 8 => value.cast::<u64>().set(pool.used_high),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

/// Pinned memory of a device is what pools are of.
fn location(place: Out<MemLocation>, kind: i32) -> Res<CUdevice> {
    let place = place.get()?;
    match (place.kind, kind) {
        (1, 1) => Ok(place.id),
        (1..=4, 1 | 2) => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) fn default_at(pool: Out<CUmemoryPool>, place: Out<MemLocation>, kind: i32) -> Res {
    default(pool, location(place, kind)?)
}

pub(crate) fn current_at(pool: Out<CUmemoryPool>, place: Out<MemLocation>, kind: i32) -> Res {
    current(pool, location(place, kind)?)
}

pub(crate) fn set_current_at(place: Out<MemLocation>, kind: i32, pool: CUmemoryPool) -> Res {
    set_current(location(place, kind)?, pool)
}

/// Access of devices to a pool's memory: 0 none, 3 reading and writing. The device's own cannot be taken away.
pub(crate) fn set_access(pool: CUmemoryPool, list: In<MemAccessDesc>, count: usize) -> Res {
    let list = list.list(count)?;
    with(|state, software| {
        let found = state.pools.get_mut(&pool.id()).ok_or(Code::INVALID_VALUE)?;
        for entry in &list {
            if entry.location.kind != 1 || !matches!(entry.flags, 0 | 3) {
                return Err(Code::INVALID_VALUE);
            }
            software.device(entry.location.id)?;
            if entry.location.id == found.device && entry.flags == 0 {
                return Err(Code::INVALID_VALUE);
            }
        }
        for entry in &list {
            found.access.insert(entry.location.id, entry.flags);
        }
        list.iter().try_for_each(|entry| context::apply_peers(state, software, entry.location.id))
    })
}

pub(crate) fn get_access(flags: Out<i32>, pool: CUmemoryPool, place: Out<MemLocation>) -> Res {
    let place = place.get()?;
    if place.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    with(|state, software| {
        software.device(place.id)?;
        let found = state.pools.get(&pool.id()).ok_or(Code::INVALID_VALUE)?;
        let own = if place.id == found.device { 3 } else { 0 };
        flags.set(found.access.get(&place.id).copied().unwrap_or(own))
    })
}
