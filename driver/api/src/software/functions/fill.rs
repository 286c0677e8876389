//! Fills of device memory.

use crate::CUstream;
use crate::codes::{Code, Res};
use crate::software::run::issue;
use crate::software::tables::{
    allocations,
    ops::{Fill, Op},
    software::Software,
    state::State,
};
use crate::types::{CUdeviceptr, MemsetNodeParams};

/// The operation of a fill, checked: alignment, pitch and bounds.
pub(crate) fn of_params(state: &State, software: &Software, context: u64, p: &MemsetNodeParams) -> Res<Op> {
    let element = p.element_size as usize;
    if !matches!(element, 1 | 2 | 4) || !p.dst.is_multiple_of(element as u64) {
        return Err(Code::INVALID_VALUE);
    }
    let row = p.width.checked_mul(element).ok_or(Code::INVALID_VALUE)?;
    if row == 0 || p.height == 0 {
        return Ok(Op::Empty);
    }
    let pitch = if p.height == 1 { row } else { p.pitch };
    if pitch < row || !pitch.is_multiple_of(element) {
        return Err(Code::INVALID_VALUE);
    }
    let span = (p.height - 1).checked_mul(pitch).and_then(|n| n.checked_add(row)).ok_or(Code::INVALID_VALUE)?;
    let found = allocations::find(state, software, context, p.dst).ok_or(Code::INVALID_VALUE)?;
    if found.bytes.saturating_sub(p.dst - found.base) < span as u64 {
        return Err(Code::INVALID_VALUE);
    }
    let device = found.device.map_or_else(|| state.device_of(context), Ok)?;
    Ok(Op::Fill(Fill {
        device,
        dst: p.dst,
        pitch,
        value: p.value,
        element: p.element_size,
        width: p.width,
        height: p.height,
    }))
}

pub(crate) fn to_params(f: &Fill) -> MemsetNodeParams {
    MemsetNodeParams {
        dst: f.dst,
        pitch: f.pitch,
        value: f.value,
        element_size: f.element,
        width: f.width,
        height: f.height,
    }
}

fn fill(p: MemsetNodeParams, stream: CUstream) -> Res {
    issue::enqueue(stream, |state, software, context| of_params(state, software, context, &p))
}

macro_rules! widths {
    ($($line:ident $line_async:ident $rows:ident $rows_async:ident $t:ty;)*) => {$(
        pub(crate) fn $line(dst: CUdeviceptr, value: $t, count: usize) -> Res {
            $line_async(dst, value, count, CUstream::NULL)
        }
        pub(crate) fn $line_async(dst: CUdeviceptr, value: $t, count: usize, stream: CUstream) -> Res {
            $rows_async(dst, 0, value, count, 1, stream)
        }
        pub(crate) fn $rows(dst: CUdeviceptr, pitch: usize, value: $t, width: usize, height: usize) -> Res {
            $rows_async(dst, pitch, value, width, height, CUstream::NULL)
        }
        pub(crate) fn $rows_async(
            dst: CUdeviceptr, pitch: usize, value: $t, width: usize, height: usize, stream: CUstream,
        ) -> Res {
            fill(MemsetNodeParams { dst, pitch, value: u32::from(value), element_size: size_of::<$t>() as u32, width, height }, stream)
        }
    )*};
}

widths! {
    d8 d8_async rows8 rows8_async u8;
    d16 d16_async rows16 rows16_async u16;
    d32 d32_async rows32 rows32_async u32;
}
