//! User objects: counted references to something of the caller's, which graphs and their executable
//! copies may hold. The last reference's end calls the caller's function, outside every lock.

use std::ffi::c_void;

use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::software::run::callback;
use crate::software::tables::{
    graphs,
    objects::UserObject,
    ops::{Held, HostCall, HostFunction},
    software::with,
    state::State,
};
use crate::types::*;

/// The caller must promise not to wait for the destructor: the only flag there is, and needed.
const NO_DESTRUCTOR_SYNC: u32 = 1;

/// The graph takes the caller's references instead of new ones.
const MOVE: u32 = 1;

pub(crate) fn create(
    object: Out<CUuserObject>,
    data: Out<c_void>,
    destroy: CUhostFn,
    references: u32,
    flags: u32,
) -> Res {
    object.check()?;
    let function = HostFunction::Plain(destroy.ok_or(Code::INVALID_VALUE)?);
    if flags != NO_DESTRUCTOR_SYNC || !(1..=i32::MAX as u32).contains(&references) {
        return Err(Code::INVALID_VALUE);
    }
    let destroy = HostCall { function, user_data: data.address().expose_provenance() };
    with(|state, _| {
        let id = state.fresh();
        state.objects.insert(id, UserObject { references: u64::from(references), destroy });
        object.set(CUuserObject::from_id(id))
    })
}

fn take(state: &mut State, object: u64, count: u64) -> Res {
    let found = state.objects.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
    found.references += count;
    Ok(())
}

/// Gives references back; what is to be called when they were the last.
fn give(state: &mut State, object: u64, count: u64) -> Res<Option<HostCall>> {
    let found = state.objects.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
    found.references = found.references.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
    if found.references > 0 {
        return Ok(None);
    }
    Ok(state.objects.remove(&object).map(|o| o.destroy))
}

/// Another holder of the same references.
pub(crate) fn share(state: &mut State, held: &Held) {
    for (object, count) in held {
        // Held, so that it is there.
        let _ = take(state, *object, *count);
    }
}

/// What to call, outside the lock, when a holder is gone.
pub(crate) fn release_all(state: &mut State, held: &Held) -> Vec<HostCall> {
    held.iter().filter_map(|(object, count)| give(state, *object, *count).ok().flatten()).collect()
}

pub(crate) fn call(gone: Vec<HostCall>) {
    gone.into_iter().for_each(callback::host);
}

pub(crate) fn retain(object: CUuserObject, count: u32) -> Res {
    if count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    with(|state, _| take(state, object.id(), u64::from(count)))
}

pub(crate) fn release(object: CUuserObject, count: u32) -> Res {
    if count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let gone = with(|state, _| give(state, object.id(), u64::from(count)))?;
    call(gone.into_iter().collect());
    Ok(())
}

pub(crate) fn graph_retain(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) -> Res {
    if count == 0 || flags & !MOVE != 0 {
        return Err(Code::INVALID_VALUE);
    }
    with(|state, _| {
        graphs::find(state, graph)?;
        let found = state.objects.get(&object.id()).ok_or(Code::INVALID_VALUE)?;
        if flags == MOVE && found.references < u64::from(count) {
            return Err(Code::INVALID_VALUE);
        }
        if flags != MOVE {
            take(state, object.id(), u64::from(count))?;
        }
        *graphs::find_mut(state, graph)?.objects.entry(object.id()).or_insert(0) += u64::from(count);
        Ok(())
    })
}

pub(crate) fn graph_release(graph: CUgraph, object: CUuserObject, count: u32) -> Res {
    let gone = with(|state, _| {
        let held = &mut graphs::find_mut(state, graph)?.objects;
        let left = held.get(&object.id()).and_then(|n| n.checked_sub(u64::from(count))).ok_or(Code::INVALID_VALUE)?;
        if left == 0 {
            held.remove(&object.id());
        } else {
            held.insert(object.id(), left);
        }
        give(state, object.id(), u64::from(count))
    })?;
    call(gone.into_iter().collect());
    Ok(())
}
