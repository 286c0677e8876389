//! What launches of collectives have to keep to.

#![cfg(not(target_arch = "nvptx64"))]

use super::exchange::Exchange;
use super::{
    BF16, BLOCKS, BROADCAST, Collective, F32, GATHER, KIND, MAX, MAX_RANKS, NEXT, ONE_SHOT, RESIDUAL, SCATTER, TWO_SHOT,
};
use warpsmith_device::prelude::*;

/// The ranks of a launch, and what it may stage.
fn ranks(
    m: &'static KernelMeta,
    frames: usize,
    ranks: u32,
    list: [(&'static str, u32); 2],
) -> Result<(), ContractError> {
    contract::within(m, "ranks", ranks, 1u32, MAX_RANKS)?;
    contract::exactly(m, "frames", frames, (ranks, "ranks"))?;
    for (name, rank) in list {
        contract::require(m, rank < ranks, name, "a rank below `ranks`", rank)?;
    }
    Ok(())
}

impl Contract for Collective<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(BLOCKS)
    }

    fn check(&self) -> Result<(), ContractError> {
        let (m, kind, mode) = (Self::META, self.flags & KIND, self.flags & !(KIND | MAX | RESIDUAL | NEXT));
        ranks(m, self.frames.len(), self.ranks, [("rank", self.rank), ("root", self.root)])?;
        let known = [ONE_SHOT, TWO_SHOT, SCATTER, GATHER, BROADCAST].contains(&mode) && kind <= BF16;
        contract::require(m, known, "flags", "a collective of a kind of elements", self.flags)?;
        let (onto, next) = (self.flags & RESIDUAL != 0, self.flags & NEXT != 0);
        let whole = kind == F32 && (mode == ONE_SHOT || mode == TWO_SHOT);
        let one = !(onto && next);
        contract::require(
            m,
            one && (!(onto || next) || whole),
            "flags",
            "a residual stream with all-reduce of f32 alone",
            self.flags,
        )?;
        contract::within(m, "len", self.len, 1u32, i32::MAX)?;
        contract::within(m, "columns", self.columns, 1u32, i32::MAX)?;
        let of_column = if kind == F32 { 2 * u64::from(self.len) } else { u64::from(self.len) };
        let words = of_column.div_ceil(2);
        let several = self.columns > 1;
        let apart = !several || u64::from(self.stride) >= words;
        contract::require(m, apart, "stride", "at least the words of a column", self.stride)?;
        let before = u64::from(self.columns - 1) * u64::from(self.stride);
        contract::within(m, "capacity", self.capacity, (before + words, "words of `x`"), i32::MAX)?;
        contract::within(m, "slice", self.slice, (words.div_ceil(self.ranks.into()), "words of `x` a rank"), i32::MAX)?;
        contract::at_least(m, "x", self.x.len(), (2 * before + of_column, "`len` elements of all columns"))?;
        contract::multiple_of(m, "x", (self.x.address(), "its address"), 4u32)?;
        if mode == SCATTER || (mode == GATHER && kind != F32) {
            let all = 2 * u64::from(self.slice) * u64::from(self.ranks);
            contract::require(m, of_column == all, "len", "slices of whole words", self.len)?;
        }
        contract::require(m, !onto || !several, "columns", "1, onto a residual stream", self.columns)?;
        if onto || next {
            let all = (before + u64::from(self.len), "`len` elements of all columns");
            contract::at_least(m, "residual", self.residual.len(), all)?;
            if next {
                contract::at_least(m, "scaled", self.scaled.len(), all)?;
                contract::exactly(m, "next_weight", self.next_weight.len(), (self.len, "len"))?;
                let parts = u64::from(self.columns) * u64::from(BLOCKS);
                contract::at_least(m, "sums", self.sums.len(), (parts, "a part of each block of all columns"))?;
            }
        }
        Ok(())
    }
}

impl Contract for Exchange<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(BLOCKS)
    }

    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        ranks(m, self.frames.len(), self.ranks, [("rank", self.rank), ("peer", self.peer)])?;
        contract::require(m, self.peer != self.rank, "peer", "another rank", self.peer)?;
        contract::require(m, self.receive <= 1, "receive", "0 or 1", self.receive)?;
        contract::within(m, "halves", self.halves, 1u32, i32::MAX)?;
        contract::within(m, "capacity", self.capacity, (self.halves.div_ceil(2), "words of `x`"), i32::MAX)?;
        contract::at_least(m, "x", self.x.len(), (self.halves, "halves"))?;
        contract::multiple_of(m, "x", (self.x.address(), "its address"), 4u32)
    }
}
