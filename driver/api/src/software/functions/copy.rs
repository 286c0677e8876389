//! Copies. Ranges of device memory are checked at the call; host memory is read or written when
//! the copy runs, which for a captured copy is every time its graph runs.

use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::functions::array;
use crate::software::rules::capture;
use crate::software::run::issue;
use crate::software::tables::{
    allocations,
    ops::{Copy, Op, Place},
    queue::Batch,
    software::{Software, with, with_context},
    state::State,
};
use crate::types::*;

/// The first address that no host memory can have.
const DEVICE_BASE: u64 = 1 << 48;
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// A place in host memory.
pub(crate) fn on_host(address: usize) -> Res<Place> {
    // A device address here is the commonest mistake with raw copies.
    if address == 0 || address as u64 >= DEVICE_BASE {
        return Err(Code::INVALID_VALUE);
    }
    Ok(Place { device: None, address: address as u64, pitch: 0, slice: 0 })
}

/// A place in device memory, or in host memory that devices reach; `bytes` from it must be there.
pub(crate) fn on_device(state: &State, software: &Software, context: u64, address: u64, bytes: usize) -> Res<Place> {
    let found = allocations::find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
    if found.bytes.saturating_sub(address - found.base) < bytes as u64 {
        return Err(Code::INVALID_VALUE);
    }
    let device = found.device.map_or_else(|| state.device_of(context), Ok)?;
    Ok(Place { device: Some(device), address, pitch: 0, slice: 0 })
}

/// Whichever the address is.
fn anywhere(state: &State, software: &Software, context: u64, address: u64, bytes: usize) -> Res<Place> {
    match on_device(state, software, context, address, bytes) {
        Err(_) if address < DEVICE_BASE && allocations::find(state, software, context, address).is_none() => {
            on_host(address as usize)
        }
        place => place,
    }
}

pub(crate) fn linear(dst: Place, src: Place, bytes: usize) -> Op {
    Op::Copy(Copy { src, dst, width: bytes, height: 1, depth: 1 })
}

pub(crate) type Make<'a> = &'a dyn Fn(&State, &Software, u64) -> Res<Op>;

/// A copy that has happened when the call returns: it uses the default stream and waits for it.
pub(crate) fn sync(bytes: usize, make: Make<'_>) -> Res {
    let todo = with_context(|state, software, context| {
        let key = state.stream_key(context, CUstream::NULL)?;
        capture::waits_for(state, key)?;
        if bytes == 0 {
            return Ok(None);
        }
        let op = make(state, software, context)?;
        let mut steps = Vec::new();
        issue::prepare(state, software, &op, &mut steps)?;
        let lane = state.lane(key);
        let before = state.queue.before(lane);
        let todos = issue::in_stream(state, key, &op, steps);
        state.host_waited(key);
        Ok(Some((context, before, Batch::one(lane, todos, Vec::new()))))
    })?;
    let Some((context, before, batch)) = todo else { return Ok(()) };
    issue::after(&before, batch)?;
    with(|state, _| state.check_failed(context))
}

pub(crate) fn on_stream(stream: CUstream, bytes: usize, make: Make<'_>) -> Res {
    issue::enqueue(stream, |state, software, context| {
        // A copy of nothing still is a node in a capture.
        if bytes == 0 { Ok(Op::Empty) } else { make(state, software, context) }
    })
}

pub(crate) fn htod(dst: CUdeviceptr, src: In<c_void>, bytes: usize) -> Res {
    let from = src.address().expose_provenance();
    sync(bytes, &|s, w, c| Ok(linear(on_device(s, w, c, dst, bytes)?, on_host(from)?, bytes)))
}

pub(crate) fn dtoh(dst: Out<c_void>, src: CUdeviceptr, bytes: usize) -> Res {
    let to = dst.address().expose_provenance();
    sync(bytes, &|s, w, c| Ok(linear(on_host(to)?, on_device(s, w, c, src, bytes)?, bytes)))
}

pub(crate) fn dtod(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Res {
    sync(bytes, &|s, w, c| Ok(linear(on_device(s, w, c, dst, bytes)?, on_device(s, w, c, src, bytes)?, bytes)))
}

pub(crate) fn any(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Res {
    sync(bytes, &|s, w, c| Ok(linear(anywhere(s, w, c, dst, bytes)?, anywhere(s, w, c, src, bytes)?, bytes)))
}

pub(crate) fn htod_async(dst: CUdeviceptr, src: In<c_void>, bytes: usize, stream: CUstream) -> Res {
    let from = src.address().expose_provenance();
    on_stream(stream, bytes, &|s, w, c| Ok(linear(on_device(s, w, c, dst, bytes)?, on_host(from)?, bytes)))
}

pub(crate) fn dtoh_async(dst: Out<c_void>, src: CUdeviceptr, bytes: usize, stream: CUstream) -> Res {
    let to = dst.address().expose_provenance();
    on_stream(stream, bytes, &|s, w, c| Ok(linear(on_host(to)?, on_device(s, w, c, src, bytes)?, bytes)))
}

pub(crate) fn dtod_async(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) -> Res {
    on_stream(stream, bytes, &|s, w, c| {
        Ok(linear(on_device(s, w, c, dst, bytes)?, on_device(s, w, c, src, bytes)?, bytes))
    })
}

pub(crate) fn any_async(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) -> Res {
    on_stream(stream, bytes, &|s, w, c| {
        Ok(linear(anywhere(s, w, c, dst, bytes)?, anywhere(s, w, c, src, bytes)?, bytes))
    })
}

fn between(s: &State, w: &Software, dst: (u64, CUcontext), src: (u64, CUcontext), bytes: usize) -> Res<Op> {
    for context in [dst.1, src.1] {
        s.live_context(context.id()).map_err(|_| Code::INVALID_CONTEXT)?;
    }
    Ok(linear(on_device(s, w, dst.1.id(), dst.0, bytes)?, on_device(s, w, src.1.id(), src.0, bytes)?, bytes))
}

pub(crate) fn peer(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
) -> Res {
    sync(bytes, &|s, w, _| between(s, w, (dst, dst_context), (src, src_context), bytes))
}

pub(crate) fn peer_async(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Res {
    on_stream(stream, bytes, &|s, w, _| between(s, w, (dst, dst_context), (src, src_context), bytes))
}

/// One side of a `CUDA_MEMCPY3D`.
struct Side {
    kind: u32,
    host: usize,
    device: u64,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    rows: usize,
    array: *mut c_void,
}

impl Side {
    fn place(&self, s: &State, w: &Software, context: u64, extent: [usize; 3]) -> Res<Place> {
        let [width, height, depth] = extent;
        if self.kind == ARRAY {
            return array::find(s, self.array)?.place([self.x, self.y, self.z], extent);
        }
        // A pitch or height of zero means rows, or slices, without gaps; fewer bytes than a row is no pitch.
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let rows = if self.rows == 0 { height } else { self.rows };
        if pitch < width || (depth > 1 && rows < height) {
            return Err(Code::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(rows).ok_or(Code::INVALID_VALUE)?;
        let offset =
            |x: usize, y: usize, z: usize| z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x);
        let start = offset(self.x, self.y, self.z).ok_or(Code::INVALID_VALUE)?;
        let span = offset(width, height.saturating_sub(1), depth.saturating_sub(1)).ok_or(Code::INVALID_VALUE)?;
        let base = if self.kind == HOST { self.host as u64 } else { self.device };
        let address = base.checked_add(start as u64).ok_or(Code::INVALID_VALUE)?;
        let place = match self.kind {
            HOST => on_host(address as usize)?,
            DEVICE => on_device(s, w, context, address, span)?,
            UNIFIED => anywhere(s, w, context, address, span)?,
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(Place { pitch, slice, ..place })
    }
}

/// The operation of a `CUDA_MEMCPY3D`, checked.
pub(crate) fn of_3d(s: &State, w: &Software, context: u64, c: &Memcpy3D) -> Res<Op> {
    if c.src_lod != 0 || c.dst_lod != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let extent = [c.width_in_bytes, c.height, c.depth];
    if extent.contains(&0) {
        return Ok(Op::Empty);
    }
    let src = Side {
        kind: c.src_memory_type,
        host: c.src_host.expose_provenance(),
        device: c.src_device,
        x: c.src_x_in_bytes,
        y: c.src_y,
        z: c.src_z,
        pitch: c.src_pitch,
        rows: c.src_height,
        array: c.src_array,
    };
    let dst = Side {
        kind: c.dst_memory_type,
        host: c.dst_host.expose_provenance(),
        device: c.dst_device,
        x: c.dst_x_in_bytes,
        y: c.dst_y,
        z: c.dst_z,
        pitch: c.dst_pitch,
        rows: c.dst_height,
        array: c.dst_array,
    };
    Ok(Op::Copy(Copy {
        src: src.place(s, w, context, extent)?,
        dst: dst.place(s, w, context, extent)?,
        width: extent[0],
        height: extent[1],
        depth: extent[2],
    }))
}

/// A copy as `CUDA_MEMCPY3D`, with its offsets folded into the addresses.
pub(crate) fn to_3d(c: &Copy) -> Memcpy3D {
    let kind = |p: &Place| if p.device.is_some() { DEVICE } else { HOST };
    let host = |p: &Place| if p.device.is_some() { 0 } else { p.address as usize };
    let device = |p: &Place| if p.device.is_some() { p.address } else { 0 };
    let rows = |p: &Place| p.slice.checked_div(p.pitch).unwrap_or(0);
    let null = std::ptr::null_mut();
    Memcpy3D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_memory_type: kind(&c.src),
        src_host: std::ptr::with_exposed_provenance(host(&c.src)),
        src_device: device(&c.src),
        src_array: null,
        reserved0: null,
        src_pitch: c.src.pitch,
        src_height: rows(&c.src),
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: kind(&c.dst),
        dst_host: std::ptr::with_exposed_provenance_mut(host(&c.dst)),
        dst_device: device(&c.dst),
        dst_array: null,
        reserved1: null,
        dst_pitch: c.dst.pitch,
        dst_height: rows(&c.dst),
        width_in_bytes: c.width,
        height: c.height,
        depth: c.depth,
    }
}

fn widen(c: &Memcpy2D) -> Memcpy3D {
    let null = std::ptr::null_mut();
    Memcpy3D {
        src_x_in_bytes: c.src_x_in_bytes,
        src_y: c.src_y,
        src_z: 0,
        src_lod: 0,
        src_memory_type: c.src_memory_type,
        src_host: c.src_host,
        src_device: c.src_device,
        src_array: c.src_array,
        reserved0: null,
        src_pitch: c.src_pitch,
        src_height: 0,
        dst_x_in_bytes: c.dst_x_in_bytes,
        dst_y: c.dst_y,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: c.dst_memory_type,
        dst_host: c.dst_host,
        dst_device: c.dst_device,
        dst_array: c.dst_array,
        reserved1: null,
        dst_pitch: c.dst_pitch,
        dst_height: 0,
        width_in_bytes: c.width_in_bytes,
        height: c.height,
        depth: 1,
    }
}

pub(crate) fn copy_3d(copy: In<Memcpy3D>) -> Res {
    let copy = copy.get()?;
    sync(1, &|s, w, c| of_3d(s, w, c, &copy))
}

pub(crate) fn copy_3d_async(copy: In<Memcpy3D>, stream: CUstream) -> Res {
    let copy = copy.get()?;
    on_stream(stream, 1, &|s, w, c| of_3d(s, w, c, &copy))
}

pub(crate) fn copy_2d(copy: In<Memcpy2D>) -> Res {
    let copy = widen(&copy.get()?);
    sync(1, &|s, w, c| of_3d(s, w, c, &copy))
}

pub(crate) fn copy_2d_async(copy: In<Memcpy2D>, stream: CUstream) -> Res {
    let copy = widen(&copy.get()?);
    on_stream(stream, 1, &|s, w, c| of_3d(s, w, c, &copy))
}

/// A copy between devices: each side's context says where its addresses belong.
fn of_peer(s: &State, w: &Software, c: &Memcpy3D) -> Res<Op> {
    for context in [c.reserved0, c.reserved1] {
        s.live_context(context.addr() as u64).map_err(|_| Code::INVALID_CONTEXT)?;
    }
    let null = std::ptr::null_mut();
    // Addresses belong to one device only, whichever context asks.
    of_3d(s, w, c.dst_context(), &Memcpy3D { reserved0: null, reserved1: null, ..*c })
}

impl Memcpy3D {
    /// `CUDA_MEMCPY3D_PEER` has contexts where `CUDA_MEMCPY3D` has reserved fields.
    fn dst_context(&self) -> u64 {
        self.reserved1.addr() as u64
    }
}

pub(crate) fn peer_3d(copy: In<Memcpy3D>) -> Res {
    let copy = copy.get()?;
    sync(1, &|s, w, _| of_peer(s, w, &copy))
}

pub(crate) fn peer_3d_async(copy: In<Memcpy3D>, stream: CUstream) -> Res {
    let copy = copy.get()?;
    on_stream(stream, 1, &|s, w, _| of_peer(s, w, &copy))
}

/// Copies of a batch in order, which their being unordered allows. Every address must be known to the driver
/// or the host's; the attributes only hint.
#[allow(clippy::too_many_arguments)]
pub(crate) fn batch(
    dst: Out<CUdeviceptr>,
    src: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    _: Out<c_void>,
    _: Out<usize>,
    _: usize,
    stream: CUstream,
) -> Res {
    let (dst, src, sizes) = (dst.input().list(count)?, src.input().list(count)?, sizes.input().list(count)?);
    if count == 0 || stream == CUstream::NULL || sizes.contains(&0) {
        return Err(Code::INVALID_VALUE);
    }
    for ((dst, src), bytes) in dst.into_iter().zip(src).zip(sizes) {
        any_async(dst, src, bytes, stream)?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn batch_v1(
    dst: Out<CUdeviceptr>,
    src: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    attributes: Out<c_void>,
    indices: Out<usize>,
    attribute_count: usize,
    failed: Out<usize>,
    stream: CUstream,
) -> Res {
    failed.set_if_asked(usize::MAX);
    batch(dst, src, sizes, count, attributes, indices, attribute_count, stream)
}
