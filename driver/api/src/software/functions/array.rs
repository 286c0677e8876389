//! Arrays: rows and slices without gaps in device memory, reached by copies alone. Textures and
//! surfaces over them are not here.

use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::report::report;
use crate::software::rules::capture;
use crate::software::run::issue;
use crate::software::spec;
use crate::software::tables::{graph_allocations, objects::Array, ops::Place, software::with_context, state::State};
use crate::types::*;

const LAYERED: u32 = 0x01;
const SURFACE: u32 = 0x02;
const CUBEMAP: u32 = 0x04;
const GATHER: u32 = 0x08;

/// Colour attachments: they matter to graphics only.
const COLOR: u32 = 0x20;
const SUPPORTED: u32 = LAYERED | SURFACE | CUBEMAP | GATHER | COLOR;

/// Those of CUDA 13: depth textures, sparse arrays, deferred mapping, video, too.
const KNOWN: u32 = 0x1ff;

/// Whether there are arrays of this shape: by its flags and by which extents it has, it is of one kind, and fits that kind's
/// limits, if kernels may write it those of surfaces too.
fn check(shape: &ArrayDescriptor3D) -> Res {
    let &ArrayDescriptor3D { width, height, depth, flags, .. } = shape;
    if flags & !KNOWN != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if flags & !SUPPORTED != 0 {
        report(format!("arrays with the flags {:#x} are not supported by the software driver", flags & !SUPPORTED));
        return Err(Code::NOT_SUPPORTED);
    }
    let (layered, cubemap, gather) = (flags & LAYERED != 0, flags & CUBEMAP != 0, flags & GATHER != 0);
    let flat = height > 0 && depth == 0;
    let kinds: (&[i32], i32) = match (cubemap, layered) {
        (true, true) => (&[spec::TEXTURE_CUBEMAP_LAYERED], spec::SURFACE_CUBEMAP_LAYERED),
        (true, false) => (&[spec::TEXTURE_CUBEMAP], spec::SURFACE_CUBEMAP),
        (false, true) if height == 0 => (&[spec::TEXTURE_1D_LAYERED], spec::SURFACE_1D_LAYERED),
        (false, true) => (&[spec::TEXTURE_2D_LAYERED], spec::SURFACE_2D_LAYERED),
        _ if depth > 0 => (&[spec::TEXTURE_3D, spec::TEXTURE_3D_ALTERNATE], spec::SURFACE_3D),
        _ if gather => (&[spec::TEXTURE_2D_GATHER], spec::SURFACE_2D),
        _ if flat => (&[spec::TEXTURE_2D], spec::SURFACE_2D),
        _ => (&[spec::TEXTURE_1D], spec::SURFACE_1D),
    };
    // The extents that such a kind has, in the order of its limits.
    let extents: &[usize] = match (cubemap, layered) {
        (true, true) => &[width, depth],
        (true, false) => &[width],
        (false, true) if height == 0 => &[width, depth],
        (false, true) => &[width, height, depth],
        _ if depth > 0 => &[width, height, depth],
        _ if flat => &[width, height],
        _ => &[width],
    };
    let within = |kind: &i32| {
        let most = spec::array_limits(*kind);
        most.len() == extents.len() && extents.iter().zip(most).all(|(n, most)| (1..=*most as usize).contains(n))
    };
    let sides = match (cubemap, layered) {
        (true, true) => width == height && depth % 6 == 0,
        (true, false) => width == height && depth == 6,
        _ => true,
    };
    let good = kinds.0.iter().any(within) && sides && (!gather || flat) && (flags & SURFACE == 0 || within(&kinds.1));
    if good { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

fn element(shape: &ArrayDescriptor3D) -> Res<usize> {
    let channel = match shape.format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(Code::INVALID_VALUE),
    };
    if matches!(shape.channels, 1 | 2 | 4) { Ok(channel * shape.channels as usize) } else { Err(Code::INVALID_VALUE) }
}

impl Array {
    fn row(&self) -> Res<usize> {
        Ok(element(&self.shape)? * self.shape.width)
    }

    fn extent(&self) -> Res<[usize; 3]> {
        Ok([self.row()?, self.shape.height.max(1), self.shape.depth.max(1)])
    }

    /// The place of a box of bytes, rows and slices at an offset, if it is inside.
    pub(crate) fn place(&self, at: [usize; 3], extent: [usize; 3]) -> Res<Place> {
        let size = self.extent()?;
        let inside = at.iter().zip(extent).zip(size).all(|((a, n), most)| a.checked_add(n).is_some_and(|e| e <= most));
        if !inside {
            return Err(Code::INVALID_VALUE);
        }
        let (pitch, slice) = (size[0], size[0] * size[1]);
        let offset = at[2] * slice + at[1] * pitch + at[0];
        Ok(Place {
            device: Some(self.memory.device.ordinal),
            address: self.memory.address + offset as u64,
            pitch,
            slice,
        })
    }
}

pub(crate) fn find(state: &State, array: *mut c_void) -> Res<&Array> {
    state.arrays.get(&(array.addr() as u64)).ok_or(Code::INVALID_HANDLE)
}

pub(crate) fn create(array: Out<*mut c_void>, shape: In<ArrayDescriptor>) -> Res {
    let s = shape.get()?;
    make(
        array,
        ArrayDescriptor3D {
            width: s.width,
            height: s.height,
            depth: 0,
            format: s.format,
            channels: s.channels,
            flags: 0,
        },
    )
}

pub(crate) fn create_3d(array: Out<*mut c_void>, shape: In<ArrayDescriptor3D>) -> Res {
    make(array, shape.get()?)
}

fn make(array: Out<*mut c_void>, shape: ArrayDescriptor3D) -> Res {
    array.check()?;
    check(&shape)?;
    let row = element(&shape)?.checked_mul(shape.width).ok_or(Code::INVALID_VALUE)?;
    let bytes = row
        .checked_mul(shape.height.max(1))
        .and_then(|n| n.checked_mul(shape.depth.max(1)))
        .ok_or(Code::INVALID_VALUE)?;
    with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        let memory = graph_allocations::reserve(software, state.device_of(context)?, bytes)?;
        let id = state.fresh();
        state.arrays.insert(id, Array { context, memory, shape });
        array.set(std::ptr::without_provenance_mut(id as usize))
    })
}

pub(crate) fn get_descriptor(shape: Out<ArrayDescriptor>, array: Out<c_void>) -> Res {
    with_context(|state, _, _| {
        let s = find(state, array.address())?.shape;
        shape.set(ArrayDescriptor { width: s.width, height: s.height, format: s.format, channels: s.channels })
    })
}

pub(crate) fn get_descriptor_3d(shape: Out<ArrayDescriptor3D>, array: Out<c_void>) -> Res {
    with_context(|state, _, _| shape.set(find(state, array.address())?.shape))
}

pub(crate) fn destroy(array: Out<c_void>) -> Res {
    issue::finish_device()?;
    with_context(|state, _, _| {
        find(state, array.address())?;
        capture::unsafe_call(state)?;
        state.arrays.remove(&(array.address().addr() as u64));
        Ok(())
    })
}
