//! The executable form of a module, as lowering makes it and the executor runs it.

use crate::exec::Op;
use crate::exec::layout::{CODE_WINDOW, LANES, Row};
use crate::note::Notes;
use crate::ptx::ast;

/// A value in a function's constant pool, the same for all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    Bits(u64),
    /// Address of a global or constant variable (index into [`Program::globals`]) plus an offset.
    Global(u32, i64),
    /// Offset of a shared variable (index into [`Program::shared`]) plus an offset.
    Shared(u32, i64),
    /// Address of a function.
    Function(u32),
}

impl Const {
    /// The value, with the addresses of the module's variables and the kernel's places of shared ones.
    pub(crate) fn resolve(self, globals: &[u64], shared: &[(u32, u32)]) -> u64 {
        match self {
            Const::Bits(bits) => bits,
            Const::Global(i, offset) => globals.get(i as usize).copied().unwrap_or(0).wrapping_add_signed(offset),
            Const::Shared(i, offset) => {
                let at = shared.iter().find(|s| s.0 == i).map_or(0, |s| s.1);
                u64::from(at).wrapping_add_signed(offset)
            }
            Const::Function(i) => CODE_WINDOW + 16 * u64::from(i),
        }
    }
}

/// A constant's place in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    pub value: Const,
    /// Byte offset of its row.
    pub at: u32,
    pub wide: bool,
}

/// A parameter or return value of a function in its frame's local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub at: u32,
    pub size: u32,
}

/// A function's code and what a frame of it needs.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Position of its first operation; `u32::MAX` for one without a body.
    pub entry: u32,
    /// Bytes of register rows.
    pub row_bytes: u32,
    /// Predicates, the fixed ones included.
    pub preds: u32,
    /// Bytes of local memory: variables, and parameters of calls.
    pub local_bytes: u32,
    /// Bytes of it that the program declared.
    pub declared_local: u32,
    pub consts: Vec<Pooled>,
    pub const_bytes: u32,
    pub params: Vec<Slot>,
    pub returns: Vec<Slot>,
    /// Rows and predicates that may be read before they are written: offset and width.
    pub unset_rows: Vec<(u32, bool)>,
    pub unset_preds: Vec<u32>,
    /// Functions that it calls or whose address it takes, and shared variables that it names.
    pub callees: Vec<u32>,
    pub shared: Vec<u32>,
    pub registers: u32,
    /// What in it orders or combines memory accesses of different blocks.
    pub overlap: Overlap,
    /// It asks where the shared memory that is reserved for the system is.
    pub reserved: bool,
    /// Kinds of the reductions in it that commute with their like.
    pub reductions: u32,
    /// The approximate instructions in it.
    pub approximate: crate::approx::Set,
    /// How it lets the launch behind its kernel begin.
    pub dependents: Dependents,
}

/// How far blocks may run at the same time with the result that they have one after the other, if they do not race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overlap {
    /// From beginning to end: nothing that a block does depends on another.
    #[default]
    Whole,
    /// Until a block orders or combines its accesses with those of others: it waits there for those before it to end.
    UntilTurn,
    /// Not at all: it prints or allocates, or may wait for others in a loop.
    None,
}

/// How a kernel lets the launch behind it begin, if that may begin before the kernel has ended (`griddepcontrol.launch_dependents`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// It does not say when.
    #[default]
    Unnamed,
    /// Behind its own `griddepcontrol.wait`, in the same basic block, and every thread comes by such a block before it ends, other than by `trap`.
    BehindWait,
    /// Where threads may not have waited.
    Early,
}

/// What a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    Function(u32),
    /// The address is in this row (64 bits).
    Indirect(u32),
    /// A function that the driver provides.
    Library(Library),
}

/// A function that the driver provides to kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Assert,
    Printf,
    Malloc,
    Free,
}

/// A call site.
#[derive(Clone, Debug)]
pub struct Call {
    pub target: Callee,
    pub args: Vec<Slot>,
    pub returns: Vec<Slot>,
}

/// Where an operation comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debug {
    pub line: u32,
    /// Index into [`Program::locations`], or `u32::MAX`.
    pub location: u32,
}

/// A `.global` or `.const` variable.
#[derive(Clone, Debug)]
pub struct GlobalVariable {
    pub name: String,
    pub size: u64,
    pub align: u32,
    /// Kernels may only read it.
    pub constant: bool,
    pub init: Vec<u8>,
    /// Byte offset and value of each address in the initialiser.
    pub addresses: Vec<(u64, Const)>,
}

/// A `.shared` variable; one of size 0 is the start of dynamic shared memory.
#[derive(Clone, Debug)]
pub struct SharedVariable {
    pub name: String,
    pub size: u64,
    pub align: u32,
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Entry {
    pub function: u32,
    /// Functions reachable from it, itself included.
    pub reachable: Vec<u32>,
    /// Offsets of the shared variables that it uses, as (variable, offset).
    pub shared: Vec<(u32, u32)>,
    /// Start of dynamic shared memory.
    pub shared_bytes: u32,
    /// How far its blocks may run at the same time.
    pub overlap: Overlap,
    /// The approximate instructions in it and in what it calls.
    pub approximate: crate::approx::Set,
    /// It uses the shared memory that is reserved for the system.
    pub reserved: bool,
    /// Whether it lets the launch behind it begin only when it has waited for the one in front of it.
    pub lets_behind_wait: bool,
}

/// A lowered module.
#[derive(Default)]
pub struct Program {
    pub ops: Vec<Op>,
    pub lists: Vec<u32>,
    /// PTX instructions before each operation; one more entry than operations.
    pub weights: Vec<u32>,
    pub debug: Vec<Debug>,
    pub locations: Vec<ast::Location>,
    pub calls: Vec<Call>,
    pub functions: Vec<Function>,
    pub globals: Vec<GlobalVariable>,
    pub shared: Vec<SharedVariable>,
    /// In the order of the module's kernels.
    pub entries: Vec<Entry>,
    /// Cache sites of loads and stores.
    pub sites: u32,
    /// What checked launches know of each operation.
    pub notes: Notes,
}

impl Program {
    /// Where the operations of the kernel with this function lie, those of what it calls included.
    pub fn reached(&self, entry: u32) -> Vec<std::ops::Range<usize>> {
        let all = self.ops.len();
        let Some(entry) = self.entries.iter().find(|e| e.function == entry) else {
            return std::iter::once(0..all).collect();
        };
        // Functions lie one after the other.
        let mut starts: Vec<usize> = self.functions.iter().map(|f| f.entry as usize).filter(|&at| at < all).collect();
        starts.sort_unstable();
        let range = |&i: &u32| {
            let from = self.functions.get(i as usize)?.entry as usize;
            let next = starts.partition_point(|&at| at <= from);
            (from < all).then(|| from..starts.get(next).copied().unwrap_or(all))
        };
        entry.reachable.iter().filter_map(range).collect()
    }
}

/// What all blocks of a launch have in common.
pub struct Grid<'a> {
    pub program: &'a Program,
    /// Constant pools by function; empty for functions that the kernel does not reach.
    pub pools: &'a [Vec<Row>],
    /// Index of the entry's function.
    pub entry: u32,
    pub grid: [u32; 3],
    /// Multiprocessors that the device says it has.
    pub multiprocessors: u32,
    pub block: [u32; 3],
    pub threads: u32,
    /// With what is reserved.
    pub shared_bytes: u32,
    pub dynamic_shared: u32,
    /// Bytes at the end of shared memory that are reserved for the system: `RESERVED` if the kernel asks for them, or none.
    pub reserved: u32,
    /// Address of a cooperative launch's workspace.
    pub workspace: Option<u64>,
}

impl Grid<'_> {
    pub fn coordinates(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }

    /// Thread index of a lane.
    pub fn thread(&self, warp: u32, lane: u32) -> [u32; 3] {
        let linear = warp * LANES as u32 + lane;
        let [x, y, _] = self.block;
        [linear % x, linear / x % y, linear / x / y]
    }
}
