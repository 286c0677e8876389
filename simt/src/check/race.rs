//! Races.

use super::checker::Checker;
use super::note::Note;
use crate::exec::block::Grid;
use crate::exec::{Cx, Op};

/// State of a launch.
#[derive(Default)]
pub(crate) struct Races {}

/// State of a block.
#[derive(Default)]
pub(crate) struct BlockRaces {}

impl BlockRaces {
    pub(crate) fn new(_: &Grid<'_>) -> BlockRaces {
        BlockRaces {}
    }
}

/// Before an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn before(_: &mut Checker, _: &mut Cx, _: &Op, _: u32, _: &Note) {}

/// After a collective that all lanes `cx.active` have executed, in groups by the mask in row `x`.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn collective(_: &mut Checker, _: &mut Cx, _: &Op, _: u32) {}

/// After a collective of `lanes` of a warp that met from several places.
pub(crate) fn met(_: &mut Checker, _warp: u32, _lanes: u32, _sites: &[(u32, u32)]) {}

/// A warp has arrived at a block barrier, to wait for the others or not.
pub(crate) fn arrived(_: &mut Checker, _warp: u32, _id: u32, _waits: bool) {}

/// A barrier has opened: `set` are the warps that had arrived.
pub(crate) fn opened(_: &mut Checker, _id: u32, _set: u32) {}
