//! What is wrong, as fields: everything that the sentences about a finding are made of.
//!
//! The checkers fill these in when they find something; the module `text` makes the sentences from them, last.

use serde::{Deserialize, Serialize};
use warpsmith_simt::machine::memory::{Snapshot, lookup};
use warpsmith_simt::machine::note::Scope;
use warpsmith_simt::{BadAccess, FaultKind, Nearest, Place, Reason, Waiter};

use crate::Rule;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Defect {
    /// Two accesses of one launch that nothing orders, or not enough.
    Race(Box<Race>),
    /// Lanes of a warp store to one address in one instruction.
    SameAddress {
        /// How many lanes store.
        lanes: u32,
        /// Whether their values differ.
        different: bool,
        /// The state space.
        space: Place,
        /// The address, or the offset in the space.
        at: u64,
        /// What lies there.
        within: Within,
    },
    /// Shared memory is used while a `cp.async` to it is under way.
    CopyUnderWay {
        /// Whether it is written, rather than read.
        writes: bool,
        /// The offset in shared memory.
        at: u64,
    },
    /// A barrier opens only because threads that went around it have exited.
    BarrierLeftOut {
        /// How many threads.
        threads: u32,
    },
    /// A warp executes another kind of barrier than those who wait.
    BarrierKinds {
        /// The barrier.
        barrier: u32,
        /// What the first to arrive has executed.
        first: String,
        /// What is executed now.
        now: String,
    },
    /// A warp comes to a barrier again before it has opened.
    BarrierAgain {
        /// The barrier.
        barrier: u32,
    },
    /// Lanes execute one collective with masks that disagree.
    MasksDisagree {
        /// The instruction.
        collective: String,
        /// The lanes that wait.
        lanes: u32,
        /// Those that they wait for, and that do not wait for them.
        others: u32,
    },
    /// Lanes execute one collective at several places of the code.
    SplitCollective {
        /// The instruction.
        collective: String,
        /// The lanes.
        lanes: u32,
        /// How many places.
        places: usize,
    },
    /// A shuffle reads a lane that takes no part.
    ShuffleSource {
        /// The lane that is read.
        lane: u32,
        /// The membermask, if it does not name the lane; else the lane has exited.
        mask: Option<u32>,
    },
    /// An access runs out of the shared variable that its address was made from.
    VariableOverrun {
        /// `load`, `store` or `atomic`.
        access: Verb,
        /// Bytes of the access.
        bytes: u64,
        /// Its offset in shared memory.
        at: u64,
        /// The variables that the address may have been made from.
        of: Vec<Variable>,
        /// The variable that is hit; `None`: what lies between two.
        hit: Option<Variable>,
    },
    /// What an operation does depends on undefined data.
    Undefined {
        /// What depends on it.
        decides: Decides,
        /// The data.
        data: Undefined,
    },
    /// Undefined bytes that a copy takes to the host.
    UndefinedOutput {
        /// Bytes of the copy.
        bytes: u64,
        /// How many of them are undefined.
        undefined: u64,
        /// The memory of the first.
        nearest: Nearest,
        /// How they came there.
        past: OutputPast,
    },
    /// An integer division by zero.
    DivisionByZero,
    /// Operations of the host program use the same bytes, and nothing orders them.
    Overlap {
        /// The later operation.
        operation: String,
        /// Whether it writes.
        writes: bool,
        /// The earlier operation.
        earlier: String,
        /// Whether that writes.
        earlier_writes: bool,
        /// The first address that both use, and its memory.
        nearest: Nearest,
        /// The later one is a programmatic launch that does not wait for the one before it.
        programmatic: bool,
    },
    /// Memory is freed that an operation may still use.
    FreedInUse {
        /// What frees it.
        operation: String,
        /// What may still use it.
        user: String,
        /// The first address in use, and its memory.
        nearest: Nearest,
    },
    /// Memory that nobody freed.
    Leak {
        /// The kind of memory.
        memory: AllocationKind,
        /// Bytes of all such allocations of one place.
        bytes: u64,
        /// The first of them, and its bytes.
        first: (u64, u64),
        /// What ended.
        left_by: LeftBy,
    },
    /// A call of the driver that is wrong, and was refused.
    Refused {
        /// The function.
        function: String,
        /// What it answered.
        code: i32,
        /// The name of that code.
        name: String,
        /// What the code means.
        meaning: String,
        /// What is wrong with calls that answer it.
        reason: String,
    },
    /// Results depend on the order of blocks, warps or lanes.
    Schedule {
        /// The two seeds.
        seeds: (u64, u64),
        /// What differs.
        difference: Difference,
    },
    /// Nothing can go on, or threads disagree about a barrier or a mask: the launch stopped.
    Stuck {
        /// The class of the fault.
        fault: FaultKind,
        /// What is wrong.
        reason: Option<Reason>,
        /// Somebody runs, and nothing comes of it.
        spinning: bool,
        /// Somebody waits at a barrier.
        at_barrier: bool,
    },
    /// Anything else that stopped the launch.
    Fault {
        /// The class.
        fault: FaultKind,
        /// The address, for memory faults.
        address: Option<u64>,
        /// The access, if it is one that must not happen.
        access: Option<BadAccess>,
        /// What is wrong, if it is no access and the class does not say all.
        reason: Option<Reason>,
        /// Who waits for whom, or has left.
        waiters: Vec<Waiter>,
        /// Of an access to global memory, the allocation that its address lies in or next to.
        nearest: Option<Nearest>,
    },
}

/// Two accesses that clash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Race {
    /// What the access at hand does.
    pub access: Verb,
    /// What the earlier one did.
    pub earlier: Verb,
    /// Whether the access at hand writes.
    pub writes: bool,
    /// The state space.
    pub space: Place,
    /// The first byte of both: its address, or its offset in the space.
    pub at: u64,
    /// Bytes of the access at hand.
    pub bytes: u64,
    /// What lies there.
    pub within: Within,
    /// The order that is missing.
    pub missing: Missing,
    /// The value that is written was there already.
    pub silent: bool,
    /// The variable in global memory that was probably meant to be in shared memory.
    pub variable: Option<String>,
    /// What to do about it.
    pub advice: Advice,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// It loads.
    Read,
    /// It stores.
    Write,
    /// It does both at once.
    Atomic,
    /// It is an asynchronous copy.
    Copy,
}

/// What an address lies in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Within {
    /// Shared memory of a block, of so many bytes.
    Shared {
        /// All of it.
        bytes: u64,
    },
    /// An allocation.
    Allocation {
        /// First address.
        base: u64,
        /// Its size.
        bytes: u64,
    },
    /// A variable of the module.
    Variable {
        /// Its name.
        name: String,
        /// First address.
        base: u64,
        /// Its size.
        bytes: u64,
    },
    /// Nothing that is known.
    Unknown,
}

impl Within {
    /// The allocation of an address of global memory, if there is one.
    pub(crate) fn allocation(memory: &Snapshot, at: u64) -> Within {
        lookup(memory, at).map_or(Within::Unknown, |e| Within::Allocation { base: e.base, bytes: e.size })
    }
}

/// The order that is missing between two accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Missing {
    /// The read-only cache is not coherent.
    Coherence,
    /// The wait for an asynchronous copy.
    Wait {
        /// The copy completes at an mbarrier.
        object: bool,
        /// It is what the copy writes that is used, rather than what it reads.
        target: bool,
    },
    /// A scope that includes the other block.
    WiderScope {
        /// The scope.
        scope: Scope,
        /// It is the earlier access that has it.
        earlier: bool,
        /// The block that it does not include.
        block: u64,
    },
    /// Release and acquire are there, but one has block scope; lines in the PTX where they are known.
    WiderSynchronisation {
        /// Line of the release.
        release: Option<u32>,
        /// Line of the acquire.
        acquire: Option<u32>,
    },
    /// A barrier of the warp.
    WarpBarrier {
        /// The lane of the earlier access.
        earlier_lane: u32,
        /// The lane at hand.
        lane: u32,
        /// Execution in lockstep orders them today.
        lockstep: bool,
        /// The earlier lane has exited.
        exited: bool,
    },
    /// A barrier of the block, or release and acquire.
    BlockBarrier {
        /// Warp and lane of the earlier access.
        earlier: (u32, u32),
        /// Warp and lane at hand.
        now: (u32, u32),
        /// The earlier lane has exited.
        exited: bool,
    },
    /// An acquire behind the relaxed atomic that has read what was released.
    Acquire {
        /// The block that released.
        earlier_block: u64,
        /// The block that does not acquire.
        block: u64,
    },
    /// A release and an acquire between blocks.
    BlockOrder {
        /// The block of the earlier access.
        earlier_block: u64,
        /// The block at hand.
        block: u64,
    },
}

/// What to do about accesses that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// Nothing beyond the order that is missing.
    None,
    /// The compiler may have dropped an ordering that the source asks for.
    DroppedOrdering,
    /// The kernel relies on accesses that order nothing.
    RelaxedOnly,
}

/// A shared variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its offset in shared memory.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
}

impl Variable {
    /// The offset behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// What undefined data decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decides {
    /// The target of a branch.
    ControlFlow,
    /// Whether a branch, a call or an exit is taken.
    Guard,
    /// Whether an instruction that is no branch is executed.
    Execution,
    /// The address of an access.
    Address,
    /// What a collective, a barrier or another instruction does.
    Operand,
    /// Which way a compare-and-swap goes.
    Comparison,
}

/// Undefined data: where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Undefined {
    /// A register that nothing has written.
    Register,
    /// Bytes of memory that a load has read.
    Loaded {
        /// The state space.
        space: Place,
        /// The first undefined byte.
        at: u64,
        /// Bytes of the load.
        bytes: u64,
        /// How many of them are undefined.
        undefined: u32,
        /// What lies there.
        within: Within,
        /// How they came to be undefined.
        past: Past,
    },
    /// Memory that a copy within the device has read.
    Copied(Nearest),
}

/// How bytes of memory came to be undefined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Past {
    /// Nothing has been stored there.
    Unwritten,
    /// Undefined data has been stored there, by the kernel that is named if it was another launch's.
    Stored {
        /// That kernel.
        kernel: Option<String>,
    },
}

/// How undefined bytes came to what is copied to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum OutputPast {
    /// Nothing has given them a value.
    Unwritten,
    /// A kernel stores to the allocation, but not there.
    WrittenElsewhere,
    /// Undefined data has been stored there; where it came from is not kept.
    Forgotten,
    /// It follows from another finding of the kernel.
    Follows(Rule),
    /// A kernel has stored undefined data there.
    Stored(Option<Undefined>),
    /// A copy within the device has brought them.
    Copied(Nearest),
}

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AllocationKind {
    /// `cuMemAlloc` and its kin.
    Device,
    /// Stream-ordered, of a pool.
    Pool,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc` and its kin.
    Pinned,
    /// The caller's own, by `cuMemHostRegister`.
    Registered,
    /// A variable of a module.
    Variable,
    /// Another process's, by `cuIpcOpenMemHandle`.
    Interprocess,
}

/// What ended before memory was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftBy {
    /// Its context.
    Context,
    /// The process.
    Process,
}

/// What differs between runs under two seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Difference {
    /// The bits of a kernel's outputs.
    Outputs,
    /// The exit code of a program.
    ExitCode {
        /// Under the first seed.
        before: u8,
        /// Under the second.
        after: u8,
    },
    /// The bytes of a copy to the host.
    Bytes {
        /// Its number among those of its thread, from 1.
        number: usize,
        /// Its size.
        bytes: u64,
    },
    /// Which copy it is: its size under either seed, `None` where there is none.
    Path {
        /// Its number among those of its thread, from 1.
        number: usize,
        /// Bytes under the first seed.
        before: Option<u64>,
        /// Bytes under the second.
        after: Option<u64>,
    },
    /// Something behind the copies that are listed one by one.
    Later {
        /// The number of the first that is not listed.
        number: usize,
    },
}
