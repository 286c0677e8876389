//! Streams.

use std::collections::BTreeMap;
use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::rules::capture;
use crate::software::tables::{
    objects::{Stream, StreamKey, Ticket},
    software::{engine, with_context},
    state::State,
};
use crate::types::*;

pub(crate) const LEAST_PRIORITY: i32 = 0;
pub(crate) const GREATEST_PRIORITY: i32 = -5;
const NON_BLOCKING: u32 = 1;

pub(crate) fn create(stream: Out<CUstream>, flags: u32) -> Res {
    create_with_priority(stream, flags, LEAST_PRIORITY)
}

pub(crate) fn create_with_priority(stream: Out<CUstream>, flags: u32, priority: i32) -> Res {
    stream.check()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, context| {
        let id = state.fresh();
        let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
        state.streams.insert(id, Stream { context, flags, priority, attributes: BTreeMap::new() });
        stream.set(CUstream::from_id(id))
    })
}

pub(crate) fn destroy(stream: CUstream) -> Res {
    with_context(|state, _, context| {
        let StreamKey::Own(id) = state.stream_key(context, stream)? else { return Err(Code::INVALID_HANDLE) };
        capture::destroys(state, StreamKey::Own(id))?;
        if let Some(checks) = state.checks.as_mut() {
            checks.order.stream_destroyed(StreamKey::Own(id));
        }
        state.streams.remove(&id);
        Ok(())
    })
}

pub(crate) fn get_priority(stream: CUstream, priority: Out<i32>) -> Res {
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        priority.set(match key {
            StreamKey::Own(id) => state.streams.get(&id).map_or(LEAST_PRIORITY, |s| s.priority),
            StreamKey::Legacy(_) | StreamKey::PerThread(..) => LEAST_PRIORITY,
        })
    })
}

pub(crate) fn get_flags(stream: CUstream, flags: Out<u32>) -> Res {
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        flags.set(match key {
            StreamKey::Own(id) => state.streams.get(&id).map_or(0, |s| s.flags),
            StreamKey::Legacy(_) | StreamKey::PerThread(..) => 0,
        })
    })
}

pub(crate) fn get_id(stream: CUstream, id: Out<u64>) -> Res {
    with_context(|state, _, context| {
        id.set(match state.stream_key(context, stream)? {
            StreamKey::Own(id) => id,
            // Handles are multiples of 16, so that these are nobody else's.
            StreamKey::Legacy(context) => context + 1,
            StreamKey::PerThread(context, thread) => (thread << 40) | (context + 2),
        })
    })
}

pub(crate) fn get_context(stream: CUstream, out: Out<CUcontext>) -> Res {
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        out.set(CUcontext::from_id(state.stream_context(key)?))
    })
}

/// Whether a call may wait for a stream; what it waits for.
fn asked(state: &mut State, context: u64, stream: CUstream) -> Res<(StreamKey, Vec<Ticket>)> {
    let key = state.stream_key(context, stream)?;
    state.check_failed(state.stream_context(key)?)?;
    capture::waits_for(state, key)?;
    let before = state.queue.before(state.lane(key));
    if before.is_empty() {
        state.host_waited(key);
    }
    Ok((key, before))
}

/// Waits for a stream.
pub(crate) fn synchronize(stream: CUstream) -> Res {
    let (key, before) = with_context(|state, _, context| asked(state, context, stream))?;
    if before.is_empty() {
        return Ok(());
    }
    engine()?.wait(&before);
    with_context(|state, _, _| {
        state.host_waited(key);
        // A stream that was destroyed meanwhile has no error of its own.
        state.stream_context(key).map_or(Ok(()), |owner| state.check_failed(owner))
    })
}

/// Asks whether a stream is done.
pub(crate) fn query(stream: CUstream) -> Res {
    let (_, before) = with_context(|state, _, context| asked(state, context, stream))?;
    if before.is_empty() { Ok(()) } else { Err(Code::NOT_READY) }
}

pub(crate) fn get_context_v2(stream: CUstream, out: Out<CUcontext>, green: Out<*mut c_void>) -> Res {
    green.set_if_asked(std::ptr::null_mut());
    get_context(stream, out)
}

pub(crate) fn get_device(stream: CUstream, device: Out<CUdevice>) -> Res {
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        device.set(state.device_of(state.stream_context(key)?)?)
    })
}

// CU_LAUNCH_ATTRIBUTE_*, as streams have them.
const SYNCHRONIZATION_POLICY: u32 = 3;
const PRIORITY: u32 = 8;

/// Which attributes a stream keeps: access window, synchronisation policy, priority, memory domains.
fn known(attribute: u32) -> Res {
    if matches!(attribute, 1 | SYNCHRONIZATION_POLICY | PRIORITY | 9 | 10) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

pub(crate) fn get_attribute(stream: CUstream, attribute: u32, value: Out<c_void>) -> Res {
    known(attribute)?;
    with_context(|state, _, context| {
        let found = match state.stream_key(context, stream)? {
            StreamKey::Own(id) => state.streams.get(&id),
            StreamKey::Legacy(_) | StreamKey::PerThread(..) => None,
        };
        let mut answer = found.and_then(|s| s.attributes.get(&attribute).copied()).unwrap_or([0; 16]);
        match attribute {
            PRIORITY => answer[0] = found.map_or(LEAST_PRIORITY, |s| s.priority) as u32,
            SYNCHRONIZATION_POLICY if answer[0] == 0 => answer[0] = 1,
            _ => {}
        }
        value.cast::<[u32; 16]>().set(answer)
    })
}

pub(crate) fn set_attribute(stream: CUstream, attribute: u32, value: In<c_void>) -> Res {
    known(attribute)?;
    let value = value.cast::<[u32; 16]>().get()?;
    with_context(|state, _, context| {
        let StreamKey::Own(id) = state.stream_key(context, stream)? else { return Ok(()) };
        let found = state.streams.get_mut(&id).ok_or(Code::INVALID_HANDLE)?;
        if attribute == PRIORITY {
            found.priority = (value[0] as i32).clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
        } else {
            found.attributes.insert(attribute, value);
        }
        Ok(())
    })
}

pub(crate) fn copy_attributes(to: CUstream, from: CUstream) -> Res {
    with_context(|state, _, context| {
        let (to, from) = (state.stream_key(context, to)?, state.stream_key(context, from)?);
        if let (StreamKey::Own(to), StreamKey::Own(from)) = (to, from) {
            let attributes = state.streams.get(&from).map(|s| s.attributes.clone()).unwrap_or_default();
            state.streams.get_mut(&to).ok_or(Code::INVALID_HANDLE)?.attributes = attributes;
        }
        Ok(())
    })
}
