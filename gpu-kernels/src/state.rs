//! What changes from token to token, in device memory.
//!
//! A step feeds *columns*: one token of one sequence (decode), a token each of several sequences (batched decode), or
//! consecutive tokens of one sequence (prefill). Kernels read `columns[c]` when they run and reach caches through it, so
//! a captured graph stays valid for every token, sequence, batch and cache: write the columns, replay.

use warpsmith_device::prelude::*;

/// One column of a step: a token, its place, and the caches of its sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Element)]
#[repr(C)]
pub struct Column {
    /// The token that is fed.
    pub token: u32,
    /// Its position, which is the number of tokens before it.
    pub position: u32,
    /// Positions that the sequence's caches have room for. A position at or past it is neither stored nor attended to.
    pub capacity: u32,
    /// Reserved: 0.
    pub flags: u32,
    /// The keys of all layers, `[layer][kv_head][capacity][head_dim]`; a multiple of 16.
    pub k: DeviceAddress,
    /// The values, laid out as the keys are.
    pub v: DeviceAddress,
    /// The keys' scales of an int8 cache, f32 `[layer][kv_head][capacity]`; else null.
    pub k_scales: DeviceAddress,
    /// The values' scales of an int8 cache; else null.
    pub v_scales: DeviceAddress,
}

const _: () = assert!(size_of::<Column>() == 48 && align_of::<Column>() == 8);

#[cfg(not(target_arch = "nvptx64"))]
impl Column {
    /// A column for kernels that take their caches as arguments.
    #[must_use]
    pub fn at(token: u32, position: u32) -> Column {
        Column { token, position, ..Column::default() }
    }
}

/// At least one column, and not more than a grid has rows.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn check_columns(m: &'static KernelMeta, columns: &DeviceSlice<Column>) -> Result<(), ContractError> {
    contract::within(m, "columns", columns.len(), 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))
}

/// A buffer of `columns` parts of `part` elements, `stride` apart.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn check_strided(
    m: &'static KernelMeta,
    name: &'static str,
    len: usize,
    (columns, stride): (usize, u32),
    (part, what): (u64, &'static str),
) -> Result<(), ContractError> {
    contract::require(m, u64::from(stride) >= part, "stride", format_args!("at least {part} ({what})"), stride)?;
    let before = contract::product(m, name, &[(columns as u64).saturating_sub(1), stride.into()])?;
    contract::at_least(m, name, len, (before.saturating_add(part), "whole columns, `stride` apart"))
}
