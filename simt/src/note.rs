//! What a checked launch knows of each operation, beside the code itself.
//!
//! Notes are made by the lowering that makes the code (`lower::facts`); unchecked launches do not look at them.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

use crate::exec::layout::CONST;

/// A register that an operation reads or writes, in the order of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reg {
    /// A row of 32-bit lanes at this offset in the frame, or in the constant pool ([`CONST`]).
    Narrow(u32),
    /// Two rows: 64-bit lanes.
    Wide(u32),
    /// A predicate slot.
    Pred(u16),
}

impl Reg {
    /// Whether it is a constant: always defined.
    #[inline]
    pub fn is_const(self) -> bool {
        matches!(self, Reg::Narrow(at) | Reg::Wide(at) if at & CONST != 0)
    }
}

/// How undefined bytes travel from an operation's sources to its destinations. Registers have a bit for each bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taint {
    /// Any undefined bit of a lane's sources makes its destinations undefined.
    All,
    /// Sums and products of integers: every bit from the lowest undefined one up.
    Left,
    /// The operation only moves, repeats and drops bits, so it is done on the undefined bits themselves. Operands
    /// (`a` = 1, `b` = 2, `c` = 4, `x` = 8) in the set say how: amounts, selectors.
    Same(u8),
    /// Bitwise: a defined bit of one operand may decide.
    And,
    Or,
    Xor,
    Lop3,
    /// `q ? a : b`.
    Select,
    /// A comparison, combined with `q` as `imm` says.
    Compare(Relation),
    /// Logic on predicates.
    Logic,
    /// Each half on its own.
    Halves,
    /// The first source becomes the upper half, the second the lower.
    Pack,
    /// `mma`: rows and columns meet.
    Matrix,
    /// `ldmatrix` from shared memory, and its opposite.
    LoadMatrix,
    StoreMatrix,
    /// `wmma.load`, and its opposite.
    LoadTile,
    StoreTile,
    /// A load, and an atomic operation: the memory decides. Of an exchange, memory takes the operand.
    Load,
    Atomic,
    Exchange,
    /// `cp.async.mbarrier.arrive`: the thread's copies are an mbarrier's from now on.
    HandOver,
    /// Always defined.
    Defined,
}

/// What a comparison of integers asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    pub test: Test,
    /// The result is the opposite of the test's.
    pub negated: bool,
    pub signed: bool,
    pub bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Equal,
    Less,
    Greater,
    /// Of floats: any undefined bit counts.
    Other,
}

/// Memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Weak,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

impl Order {
    /// Stronger than weak.
    #[inline]
    pub fn strong(self) -> bool {
        self != Order::Weak
    }
    #[inline]
    pub fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcqRel)
    }
    #[inline]
    pub fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcqRel)
    }
}

/// Scope of a strong access or a fence, from narrow to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    Cta,
    Cluster,
    Gpu,
    System,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::System => "sys",
        }
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Load,
    Store,
    /// `atom`, `red`: reads and writes at once.
    Atomic,
}

/// Where an access finds its addresses: in row `a` plus `imm` of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Global,
    Shared32,
    Shared64,
    Generic,
    Local32,
    Local64,
    /// `imm` alone, in the frame's local memory.
    Frame,
    Param,
    /// A constant bank: never written by kernels.
    Const,
}

/// A memory access of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub does: Does,
    pub at: Where,
    /// Bytes of an element, and elements.
    pub size: u32,
    pub count: u32,
    pub order: Order,
    pub scope: Scope,
    /// `.nc`: through the read-only cache.
    pub nc: bool,
    /// The weak load before a compare-and-swap loop at the same address, whose value only feeds it.
    pub seed: bool,
    /// `atom…cas`.
    pub cas: bool,
    /// Which of [`Notes::objects`] its address was made from; 0 if that is not known.
    pub objects: u32,
}

impl Access {
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::from(self.size * self.count)
    }
    #[inline]
    pub fn writes(&self) -> bool {
        self.does != Does::Load
    }
    #[inline]
    pub fn reads(&self) -> bool {
        self.does != Does::Store
    }
}

/// What an operation is to the checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// Index into [`Notes::accesses`].
    Access(u32),
    Fence {
        acquires: bool,
        releases: bool,
        scope: Scope,
    },
    /// A warp collective; its membermask is row `x`.
    Collective,
    Barrier,
    Branch,
    /// `cp.async`, from row `b` to row `a`: see `exec::mem::copy_async`.
    CopyAsync,
    /// `cp.async.commit_group`, and `wait_group n` (`u32::MAX`: `wait_all`).
    CommitGroup,
    WaitGroup(u32),
    /// An integer division by the value of so many bits in row `b`.
    Divide(u8),
    /// A matrix instruction that reads or writes memory.
    MatrixAccess,
    /// `cp.async.bulk`: see `exec::bulk`. An operation on an mbarrier object: see `exec::mbarrier`.
    CopyBulk,
    Object,
    /// `st.async`, `red.async`: see `exec::remote`.
    StoreAsync,
    /// `st.bulk`: see `exec::fill`.
    StoreBulk,
    /// `cp.async.bulk.commit_group`, and `wait_group` for all groups but the last so many (`.read`: for what they read).
    CommitBulk,
    WaitBulk {
        left: u32,
        read: bool,
    },
    /// `griddepcontrol.wait`.
    WaitDependencies,
}

/// Class of an instruction, as the profile counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// f32 arithmetic.
    Fp32,
    /// f64 arithmetic.
    Fp64,
    /// f16 and bf16 arithmetic.
    Half,
    /// Integer arithmetic and logic.
    Integer,
    /// Conversions.
    Convert,
    /// Moves, selections, special registers.
    Move,
    /// `.approx` functions.
    Special,
    /// Loads and stores of global and generic memory.
    Global,
    /// Loads and stores of shared memory.
    Shared,
    /// Loads and stores of local memory, parameters and constants.
    Local,
    /// Atomics and reductions.
    Atomic,
    /// Matrix instructions.
    Tensor,
    /// Shuffles, votes, matches, warp barriers.
    Collective,
    /// Block barriers and fences.
    Barrier,
    /// Branches, calls, returns.
    Control,
    /// Everything else.
    Other,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 16] = [
        Class::Fp32,
        Class::Fp64,
        Class::Half,
        Class::Integer,
        Class::Convert,
        Class::Move,
        Class::Special,
        Class::Global,
        Class::Shared,
        Class::Local,
        Class::Atomic,
        Class::Tensor,
        Class::Collective,
        Class::Barrier,
        Class::Control,
        Class::Other,
    ];

    /// A short lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Fp32 => "fp32",
            Class::Fp64 => "fp64",
            Class::Half => "half",
            Class::Integer => "integer",
            Class::Convert => "convert",
            Class::Move => "move",
            Class::Special => "special",
            Class::Global => "global",
            Class::Shared => "shared",
            Class::Local => "local",
            Class::Atomic => "atomic",
            Class::Tensor => "tensor",
            Class::Collective => "collective",
            Class::Barrier => "barrier",
            Class::Control => "control",
            Class::Other => "other",
        }
    }
}

/// Floating-point work of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    #[default]
    None,
    Fadd,
    Fmul,
    Ffma,
    Dadd,
    Dmul,
    Dfma,
    /// With the number of elements.
    Hadd(u8),
    Hmul(u8),
    Hfma(u8),
    /// Operations of the warp.
    Tensor(u32),
}

/// An operation's note.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// Its role is not [`Role::Plain`].
    pub busy: bool,
    pub role: Role,
    pub taint: Taint,
    pub class: Class,
    /// Floating-point operations.
    pub work: Work,
    /// The operation stands for a PTX instruction (its first one does, others are its continuation).
    pub first: bool,
    /// It has [`Notes::marks`].
    pub marked: bool,
    /// Destinations are registers of 16 bits: what lies above in their rows never counts.
    pub short: bool,
    /// Where its registers start in [`Notes::regs`]: sources first, then destinations.
    pub regs: u32,
    pub reads: u16,
    pub writes: u16,
}

/// A place of the code that matters to barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A barrier of the whole block, of a group of which each thread comes by one.
    Barrier(u32),
    /// Where ways through the barriers of that group and ways around them meet.
    Behind(u32),
}

/// Notes of a program, one for each of its operations.
#[derive(Default, Debug)]
pub struct Notes {
    pub notes: Vec<Note>,
    pub regs: Vec<Reg>,
    pub accesses: Vec<Access>,
    /// Shared variables that an address may have been made from, numbered from 1.
    pub objects: Vec<Vec<u32>>,
    pub marks: HashMap<u32, Vec<Mark>>,
    /// Groups of barriers that marks name.
    pub groups: u32,
}

impl Role {
    /// Whether checkers look at such operations after they have been executed.
    #[inline(always)]
    pub fn leaves_something(self) -> bool {
        !matches!(
            self,
            Role::Plain
                | Role::Branch
                | Role::Fence { .. }
                | Role::Divide(_)
                | Role::CommitBulk
                | Role::WaitBulk { .. }
                | Role::WaitDependencies
        )
    }
}

impl Notes {
    #[inline]
    pub fn reads(&self, note: &Note) -> &[Reg] {
        let from = note.regs as usize;
        &self.regs[from..from + note.reads as usize]
    }
    #[inline]
    pub fn writes(&self, note: &Note) -> &[Reg] {
        let from = note.regs as usize + note.reads as usize;
        &self.regs[from..from + note.writes as usize]
    }
}
