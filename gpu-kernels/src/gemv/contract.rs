//! What all entry points ask for.

use super::arguments::{QuantizedSeen, Seen};
use super::quant_format::{NONE, groups, parts as quantized_parts};
use super::{
    ACTIVATED, ADD, BIAS, CLAMPED, ERF, EXPERTS, GELU, MAX_CHOSEN, MAX_COLUMNS, NEXT, NORM, PAIRS, PREFETCH,
    QuantFormat, SWIGLU, parts,
};
use crate::format::{
    decode::Decode,
    record::{Spec, UNIT},
};
use core::ops::RangeInclusive;
use warpsmith_device::{
    DeviceSlice, Element,
    prelude::{ContractError, F32x4, Geometry, KernelMeta, U32x4, contract},
};

/// Columns of f16 of so many, as the [flag](PAIRS) says.
pub fn pairs(columns: u32, flags: u32) -> u32 {
    if flags & PAIRS == 0 { columns } else { columns.saturating_mul(2) }
}

/// The grid of a product.
pub fn grid(blocks: u32, columns: u32) -> Geometry {
    Geometry::grid(blocks, columns, 1u32)
}

/// Columns of f32.
pub struct Columns<'a> {
    pub x: &'a DeviceSlice<f32>,
    pub cols: u32,
    pub columns: u32,
    pub x_stride: u32,
}

/// The norm that columns may still need.
pub struct InputNorm<'a> {
    pub sums: &'a DeviceSlice<f32>,
    pub parts: u32,
    pub eps: f32,
}

/// What outputs are quantized as, and where to.
pub struct QuantizedOutputs<'a> {
    pub quant_format: u32,
    pub quantized: &'a DeviceSlice<U32x4>,
    pub group_counters: &'a DeviceSlice<u32>,
}

/// Where outputs go, and what becomes of them.
pub struct SeenEpilogue<'a> {
    pub add: &'a DeviceSlice<f32>,
    pub bias: &'a DeviceSlice<f32>,
    pub next_weight: &'a DeviceSlice<f32>,
    pub y: &'a DeviceSlice<f32>,
    pub scaled: &'a DeviceSlice<f32>,
    pub next_sums: &'a DeviceSlice<f32>,
    pub rows: u32,
    pub columns: u32,
    pub y_stride: u32,
    pub add_stride: u32,
    pub flags: u32,
}

/// What an entry point with quantized activations asks of its arguments.
pub struct Limits {
    /// Vectors of a column of `x`.
    pub column: u64,
    /// Flags beyond those that all entry points know.
    pub flags: u32,
    /// What `block_units` may be.
    pub units: RangeInclusive<u32>,
    /// What says which matrix a column is multiplied with.
    pub table: Table,
}

/// What `block_units` may be where activations share a scale: none that is told, or as many units as share that at least.
pub const fn of_blocks(most: u32) -> RangeInclusive<u32> {
    (if most == 0 { 0 } else { 2 })..=most
}

/// What says which of several matrices a column is multiplied with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// A number for each column, which has a block of its own.
    Columns,
    /// A group: a block has the columns of a tile.
    Tiles,
}

/// Which matrix each column is multiplied with.
pub struct Chosen<'a> {
    pub chosen: &'a DeviceSlice<u32>,
    pub matrices: u32,
    pub sharing: u32,
    pub flags: u32,
}

impl Chosen<'_> {
    /// How many matrices there are, and columns of `x`; of a table of that kind.
    fn check(&self, m: &'static KernelMeta, columns: u32, table: Table) -> Result<(u64, u32), ContractError> {
        if self.flags & EXPERTS == 0 {
            return Ok((1, columns));
        }
        contract::within(m, "matrices", self.matrices, 1u32, i32::MAX)?;
        contract::require(m, self.sharing > 0, "sharing", "at least 1", 0)?;
        contract::multiple_of(m, "columns", columns, (self.sharing, "sharing"))?;
        let tiles = if table == Table::Tiles { crate::experts::group::tiles(columns, self.matrices) } else { 0 };
        let needed = 3 * u64::from(tiles) + u64::from(columns);
        contract::at_least(m, "chosen", self.chosen.len(), (needed, "columns, and three numbers a tile"))?;
        contract::within(m, "matrices", tiles, 0u32, MAX_CHOSEN)?;
        Ok((self.matrices.into(), columns / self.sharing))
    }
}

/// The norm, the matrices and the outputs of a product, of either list of arguments.
macro_rules! parts_of {
    ($given:expr) => {
        (
            InputNorm { sums: $given.sums, parts: $given.parts, eps: $given.eps },
            Chosen { chosen: $given.chosen, matrices: $given.matrices, sharing: $given.sharing, flags: $given.flags },
            SeenEpilogue {
                add: $given.add,
                bias: $given.bias,
                next_weight: $given.next_weight,
                y: $given.y,
                scaled: $given.scaled,
                next_sums: $given.next_sums,
                rows: $given.rows,
                columns: $given.columns,
                y_stride: $given.y_stride,
                add_stride: $given.add_stride,
                flags: $given.flags,
            },
        )
    };
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
    if F::MOST_OPEN > 0 {
        contract::within(m, "block_units", block_units, 0u32, F::MOST_OPEN)?;
    }
    let block = match (F::SCALED, F::SPEC.block_bytes, F::SPEC.block_units) {
        (false, ..) => 1,
        (_, 0, _) => UNIT,
        (.., Spec::ANY) => UNIT << block_units,
        (.., Spec::ROW) => UNIT,
        (.., units) => UNIT << units,
    };
    contract::multiple_of(m, "cols", cols, (block, "a block"))?;
    let vectors = F::record(cols as usize, block_units).vectors;
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

impl Columns<'_> {
    pub fn check(&self, m: &'static KernelMeta) -> Result<(), ContractError> {
        check_columns(m, ("x", self.x), (self.columns, "x_stride", self.x_stride), (self.cols, "cols"))?;
        contract::multiple_of(m, "x", (self.x.address(), "its address"), align_of::<F32x4>() as u32)?;
        if self.columns > 1 {
            contract::multiple_of(m, "x_stride", self.x_stride, 4u32)?;
        }
        Ok(())
    }
}

impl InputNorm<'_> {
    pub fn check(&self, m: &'static KernelMeta, columns: u32) -> Result<(), ContractError> {
        contract::require(m, self.parts > 0, "parts", "at least 1", 0)?;
        let needed = u64::from(columns) * u64::from(self.parts);
        contract::at_least(m, "sums", self.sums.len(), (needed, "columns * parts"))?;
        let possible = self.eps >= 0.0 && self.eps.is_finite();
        contract::require(m, possible, "eps", "a finite number, not negative", self.eps)
    }
}

impl QuantizedOutputs<'_> {
    /// What it has to be for `columns` columns of `n` elements.
    pub fn check(&self, m: &'static KernelMeta, columns: u32, n: (u32, &'static str)) -> Result<(), ContractError> {
        if self.quant_format == NONE {
            return Ok(());
        }
        let format = QuantFormat::numbered(self.quant_format);
        contract::require(m, format.is_some(), "quant_format", "0 or the number of `QuantFormat`", self.quant_format)?;
        let Some(format) = format else { return Ok(()) };
        contract::multiple_of(m, n.1, n.0, (format.block(), "a block of the quantized"))?;
        let needed = u64::from(columns) * format.len(n.0);
        contract::at_least(m, "quantized", self.quantized.len(), (needed, "all blocks of all columns"))?;
        let needed = u64::from(columns) * u64::from(groups(n.0));
        contract::at_least(m, "group_counters", self.group_counters.len(), (needed, "columns * groups"))
    }
}

impl SeenEpilogue<'_> {
    fn swiglu(&self) -> bool {
        self.flags & SWIGLU != 0
    }

    /// Rows of weights.
    fn stacked(&self) -> u64 {
        u64::from(self.rows) * if self.swiglu() { 2 } else { 1 }
    }

    /// What is asked for, with flags that not all know in `more`, and how many columns of how many rows: at most `most`, but where a
    /// table says which matrix each has.
    fn check_flags(&self, m: &'static KernelMeta, most: u32, more: u32) -> Result<(), ContractError> {
        let known = more | ADD | BIAS | NORM | NEXT | SWIGLU | PREFETCH | GELU | CLAMPED | ACTIVATED | ERF | EXPERTS;
        let most = if self.flags & EXPERTS != 0 { MAX_CHOSEN } else { most };
        contract::require(m, self.flags & !known == 0, "flags", format_args!("only flags out of {known}"), self.flags)?;
        let one = self.flags & (GELU | CLAMPED) != GELU | CLAMPED;
        contract::require(m, one, "flags", "GELU or CLAMPED, not both", self.flags)?;
        let one = self.flags & (ACTIVATED | SWIGLU) != ACTIVATED | SWIGLU;
        contract::require(m, one, "flags", "ACTIVATED or SWIGLU, not both", self.flags)?;
        let one = self.flags & (ERF | ACTIVATED) != ERF && self.flags & (ERF | GELU) != ERF | GELU;
        contract::require(m, one, "flags", "ERF with ACTIVATED alone, without GELU", self.flags)?;
        contract::within(m, "rows", self.rows, 1u32, i32::MAX / 2)?;
        contract::within(m, "columns", self.columns, 1u32, most)
    }

    /// Every buffer that is used, with so many matrices; a column's sum of squares comes in `parts` parts.
    fn check(&self, m: &'static KernelMeta, matrices: u64, parts: u32) -> Result<(), ContractError> {
        let (columns, rows) = (u64::from(self.columns), (self.rows, "rows"));
        check_columns(m, ("y", self.y), (self.columns, "y_stride", self.y_stride), rows)?;
        if self.flags & BIAS != 0 {
            contract::exactly(m, "bias", self.bias.len(), (matrices * self.stacked(), "rows of weights"))?;
        }
        if self.flags & ADD != 0 {
            let needed = (columns - 1) * u64::from(self.add_stride) + u64::from(self.rows);
            contract::at_least(m, "add", self.add.len(), (needed, "rows of all columns"))?;
        }
        if self.flags & NEXT != 0 {
            contract::at_least(m, "next_weight", self.next_weight.len(), rows)?;
            check_columns(m, ("scaled", self.scaled), (self.columns, "y_stride", self.y_stride), rows)?;
            let needed = columns * u64::from(parts);
            contract::at_least(m, "next_sums", self.next_sums.len(), (needed, "columns * blocks"))?;
        }
        Ok(())
    }
}

/// The contract of an entry point that takes one column, or [`MAX_COLUMNS`] if `most` is not 1.
pub fn check<F: Decode>(m: &'static KernelMeta, most: usize, given: &Seen<'_>) -> Result<(), ContractError> {
    let (norm, chosen, to) = parts_of!(given);
    let (most, table) = if most == 1 { (1, Table::Columns) } else { (MAX_COLUMNS, Table::Tiles) };
    to.check_flags(m, most, 0)?;
    let (matrices, columns) = chosen.check(m, to.columns, table)?;
    let x = Columns { x: given.x, cols: given.cols, columns, x_stride: given.x_stride };
    check_weights::<F>(m, ("weights", given.weights), matrices * to.stacked(), x.cols, given.block_units)?;
    x.check(m)?;
    if to.flags & NORM != 0 {
        norm.check(m, columns)?;
    }
    to.check(m, matrices, parts(to.rows, x.cols, to.swiglu()))
}

/// The contract of an entry point whose activations are quantized.
pub fn check_quantized<F: Decode, X: Element>(
    m: &'static KernelMeta,
    given: &QuantizedSeen<'_, X>,
    limits: &Limits,
) -> Result<(), ContractError> {
    let (norm, chosen, to) = parts_of!(given);
    to.check_flags(m, MAX_COLUMNS, limits.flags)?;
    let (matrices, columns) = chosen.check(m, to.columns, limits.table)?;
    let units = given.block_units;
    contract::within(m, "block_units", units, *limits.units.start(), *limits.units.end())?;
    check_weights::<F>(m, ("weights", given.weights), matrices * to.stacked(), given.cols, units)?;
    let all = u64::from(pairs(columns, to.flags)) * limits.column;
    contract::at_least(m, "x", given.x.len(), (all, "all blocks of all columns"))?;
    contract::require(
        m,
        u32::try_from(all).is_ok(),
        "columns",
        "fewer than 2^32 vectors of all columns of x",
        columns,
    )?;
    if to.flags & NORM != 0 {
        norm.check(m, columns)?;
    }
    to.check(m, matrices, quantized_parts(to.rows, to.swiglu()))?;
    let outputs = QuantizedOutputs {
        quant_format: given.quant_format,
        quantized: given.quantized,
        group_counters: given.group_counters,
    };
    outputs.check(m, to.columns, (to.rows, "rows"))
}

/// The contract of an entry point that quantizes in blocks of `block` columns; `quantized`: its length, and that of a column.
pub fn check_quantizer(
    m: &'static KernelMeta,
    x: &Columns<'_>,
    block: u32,
    quantized: (usize, u64),
) -> Result<(), ContractError> {
    contract::require(m, x.cols > 0, "cols", "at least 1", 0)?;
    contract::multiple_of(m, "cols", x.cols, (block, "a block"))?;
    contract::within(m, "columns", x.columns, 1u32, MAX_CHOSEN)?;
    x.check(m)?;
    let needed = u64::from(x.columns) * quantized.1;
    contract::at_least(m, "quantized", quantized.0, (needed, "all blocks of all columns"))
}
