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
    /// The token that is fed; with [`CHOSEN`] the place, in what a step before chose, of the token.
    pub token: u32,
    /// Its position, which is the number of tokens before it.
    pub position: u32,
    /// Positions that the sequence's caches have room for. A position at or past it is neither stored nor attended to.
    pub capacity: u32,
    /// Positions of a page: `capacity` where all are in one; else a multiple of [`GROUP`].
    pub page: u32,
    /// The keys of all layers, page after page, `[layer][kv_head][page][head_dim]` each; a multiple of 16.
    pub k: DeviceAddress,
    /// The values, laid out as the keys are.
    pub v: DeviceAddress,
    /// The keys' scales of an int8 cache, f32 and laid out as its rows are; else null.
    pub k_scales: DeviceAddress,
    /// The values' scales of an int8 cache; else null.
    pub v_scales: DeviceAddress,
    /// Null where all positions are in one page. Else u32 `[capacity / GROUP]`: for each [`GROUP`] positions the row of `k`, of `v` and of
    /// the scales at which they begin, of the first head of the first layer.
    pub pages: DeviceAddress,
}

/// Bit of a column's token: the device has chosen it, and the host need not know it.
pub const CHOSEN: u32 = 1 << 31;

/// Positions that lie one behind the other in any cache, from each multiple of it on: a page has a whole number of them.
pub const GROUP: u32 = 16;

const _: () = assert!(size_of::<Column>() == 56 && align_of::<Column>() == 8);

#[cfg(not(target_arch = "nvptx64"))]
impl Column {
    /// A column for kernels that take their caches as arguments.
    #[must_use]
    pub fn at(token: u32, position: u32) -> Column {
        Column { token, position, ..Column::default() }
    }

    /// The column with caches of keys and values of `capacity` positions, all in one page.
    #[must_use]
    pub fn with_caches(self, capacity: u32, k: DeviceAddress, v: DeviceAddress) -> Column {
        Column { capacity, page: capacity, k, v, ..self }
    }

    /// The column with the scales of its int8 caches.
    #[must_use]
    pub fn with_scales(self, k_scales: DeviceAddress, v_scales: DeviceAddress) -> Column {
        Column { k_scales, v_scales, ..self }
    }

    /// The column with its caches in pages of so many positions.
    #[must_use]
    pub fn in_pages(self, page: u32, pages: DeviceAddress) -> Column {
        Column { page, pages, ..self }
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
