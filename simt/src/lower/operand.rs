//! Operands before registers have places.

use crate::exec::layout::CONST;
use crate::exec::mem::Via;
use crate::ptx::ast::Space;

/// A row: a virtual register or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum V {
    None,
    Reg(u32),
    /// Byte offset in the constant pool.
    Const(u32),
}

/// A predicate operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum P {
    True,
    False,
    Sink,
    Reg(u32, bool),
}

/// The last word of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum X {
    Raw(u32),
    Row(V),
    Pred(P),
}

/// Words and rows behind `Op::x`.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub head: Vec<u32>,
    /// Destinations, which stand before the sources.
    pub writes: Vec<V>,
    pub rows: Vec<V>,
}

/// What a register is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegisterClass {
    Pred,
    Narrow,
    Wide,
    Other,
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Symbol {
    Global(u32),
    Const(u32),
    Shared(u32),
    /// Offset in the frame's local memory.
    Local(u32),
    /// Parameter or call parameter in the frame's local memory, and its size.
    Slot(u32, u32),
    /// Offset and size in the kernel's parameters.
    Param(u32, u32),
    Function(u32),
}

/// An address operand: where it points, how, and the offset.
pub(super) struct Address {
    pub space: Space,
    pub via: Via,
    pub row: V,
    pub offset: u64,
}

/// The operand word of a row.
pub(super) fn word(v: V, place: impl Fn(u32) -> u32) -> u32 {
    match v {
        V::None => 0,
        V::Reg(r) => place(r),
        V::Const(at) => at | CONST,
    }
}
