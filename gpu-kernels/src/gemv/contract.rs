//! What all entry points ask for.

use super::{ADD, MAX_COLUMNS, NEXT, NORM, SWIGLU, parts};
use crate::format::{
    decode::Decode,
    record::{Spec, UNIT},
};
use warpsmith_device::{
    DeviceSlice,
    prelude::{ContractError, F32x4, KernelMeta, U32x4, contract},
};

/// The arguments of an entry point.
pub struct Shapes<'a> {
    pub weights: &'a DeviceSlice<U32x4>,
    pub x: &'a DeviceSlice<f32>,
    pub add: &'a DeviceSlice<f32>,
    pub sums: &'a DeviceSlice<f32>,
    pub next_weight: &'a DeviceSlice<f32>,
    pub y: &'a DeviceSlice<f32>,
    pub scaled: &'a DeviceSlice<f32>,
    pub next_sums: &'a DeviceSlice<f32>,
    pub rows: u32,
    pub cols: u32,
    pub columns: u32,
    pub x_stride: u32,
    pub y_stride: u32,
    pub add_stride: u32,
    pub parts: u32,
    pub block_units: u32,
    pub flags: u32,
    pub eps: f32,
}

/// A table of weights: its shape and its length.
pub fn check_weights<F: Decode>(
    m: &'static KernelMeta,
    (name, weights): (&'static str, &DeviceSlice<U32x4>),
    rows: u64,
    cols: u32,
    block_units: u32,
) -> Result<(), ContractError> {
    contract::require(m, cols > 0, "cols", "at least 1", 0)?;
    let block = match (F::SCALED, F::SPEC.block_bytes, F::SPEC.block_units) {
        (false, ..) => 1,
        (_, 0, _) => UNIT,
        (.., Spec::ANY) => {
            contract::within(m, "block_units", block_units, 0u32, 8u32)?;
            UNIT << block_units
        }
        (.., units) => UNIT << units,
    };
    contract::multiple_of(m, "cols", cols, (block, "a block"))?;
    let vectors = F::SPEC.record(cols as usize, block_units).vectors;
    let all = contract::product(m, name, &[rows, vectors as u64, 16])? / 16;
    contract::exactly(m, name, weights.len(), (all, "records of all rows"))
}

/// `columns` parts of `part` elements, `stride` apart.
pub fn check_columns(
    m: &'static KernelMeta,
    (name, slice): (&'static str, &DeviceSlice<f32>),
    (columns, stride_name, stride): (u32, &'static str, u32),
    (part, what): (u32, &'static str),
) -> Result<(), ContractError> {
    contract::require(
        m,
        columns == 1 || stride >= part,
        stride_name,
        format_args!("at least {part} ({what})"),
        stride,
    )?;
    let needed = u64::from(columns - 1) * u64::from(stride) + u64::from(part);
    contract::at_least(m, name, slice.len(), (needed, "whole columns"))
}

/// The contract of an entry point that takes `most` columns, or up to 64 if that is not 1.
pub fn check<F: Decode>(m: &'static KernelMeta, most: usize, s: &Shapes<'_>) -> Result<(), ContractError> {
    let known = ADD | NORM | NEXT | SWIGLU;
    contract::require(m, s.flags & !known == 0, "flags", format_args!("only flags out of {known}"), s.flags)?;
    let swiglu = s.flags & SWIGLU != 0;
    contract::within(m, "rows", s.rows, 1u32, i32::MAX / 2)?;
    contract::within(m, "columns", s.columns, 1u32, if most == 1 { 1 } else { MAX_COLUMNS })?;
    let rows = u64::from(s.rows) * if swiglu { 2 } else { 1 };
    check_weights::<F>(m, ("weights", s.weights), rows, s.cols, s.block_units)?;
    check_columns(m, ("x", s.x), (s.columns, "x_stride", s.x_stride), (s.cols, "cols"))?;
    contract::multiple_of(m, "x", (s.x.address(), "its address"), align_of::<F32x4>() as u32)?;
    if s.columns > 1 {
        contract::multiple_of(m, "x_stride", s.x_stride, 4u32)?;
    }
    check_columns(m, ("y", s.y), (s.columns, "y_stride", s.y_stride), (s.rows, "rows"))?;
    if s.flags & ADD != 0 {
        let needed = u64::from(s.columns - 1) * u64::from(s.add_stride) + u64::from(s.rows);
        contract::at_least(m, "add", s.add.len(), (needed, "rows of all columns"))?;
    }
    if s.flags & NORM != 0 {
        contract::require(m, s.parts > 0, "parts", "at least 1", 0)?;
        let needed = u64::from(s.columns) * u64::from(s.parts);
        contract::at_least(m, "sums", s.sums.len(), (needed, "columns * parts"))?;
        contract::require(m, s.eps >= 0.0 && s.eps.is_finite(), "eps", "a finite number, not negative", s.eps)?;
    }
    if s.flags & NEXT != 0 {
        contract::at_least(m, "next_weight", s.next_weight.len(), (s.rows, "rows"))?;
        check_columns(m, ("scaled", s.scaled), (s.columns, "y_stride", s.y_stride), (s.rows, "rows"))?;
        let needed = u64::from(s.columns) * u64::from(parts(s.rows, s.cols, swiglu));
        contract::at_least(m, "next_sums", s.next_sums.len(), (needed, "columns * blocks"))?;
    }
    Ok(())
}
