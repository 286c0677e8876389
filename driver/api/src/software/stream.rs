//! Streams.

use super::state::{Stream, StreamKey};
use super::{capture, with_context};
use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::types::*;

pub(super) const LEAST_PRIORITY: i32 = 0;
pub(super) const GREATEST_PRIORITY: i32 = -5;
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
        state.streams.insert(id, Stream { context, flags, priority });
        stream.set(CUstream::from_id(id))
    })
}

pub(crate) fn destroy(stream: CUstream) -> Res {
    with_context(|state, _, context| {
        let StreamKey::Own(id) = state.stream_key(context, stream)? else { return Err(Code::INVALID_HANDLE) };
        capture::destroys(state, StreamKey::Own(id))?;
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

/// Waits for a stream, or asks whether it is done: its work ran when it was issued.
pub(crate) fn synchronize(stream: CUstream) -> Res {
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        state.check_failed(state.stream_context(key)?)?;
        capture::waits_for(state, key)
    })
}
