//! Undefined data.

use super::checker::Checker;
use super::note::Note;
use crate::exec::block::Grid;
use crate::exec::{Cx, Flow, Op};

/// State of a launch.
#[derive(Default)]
pub(crate) struct Init {}

/// State of a block.
#[derive(Default)]
pub(crate) struct BlockInit {}

impl BlockInit {
    pub(crate) fn new(_: &Grid<'_>) -> BlockInit {
        BlockInit {}
    }
}

/// Before an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn before(_: &mut Checker, _: &mut Cx, _: &Op, _: u32, _: &Note) {}

/// After an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn after(_: &mut Checker, _: &mut Cx, _: &Op, _: &Note, _: Flow) {}
