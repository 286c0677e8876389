//! What stops a kernel, and the report about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::memory::Nearest;
use crate::source::Frame;

mod reason;
mod refusal;

pub use reason::{BarrierDispute, ObjectMisuse, Reason, Stuck};
pub use refusal::LaunchRefusal;

/// The class of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every allocation, window or parameter block that it may touch.
    OutOfBounds,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// An access near address zero.
    NullPointer,
    /// The kernel executed `trap`.
    Trap,
    /// The kernel called `__assertfail`.
    AssertFailed,
    /// Lanes of one warp, or warps of one block, disagree about a barrier.
    DivergentBarrier,
    /// `free` of what is no block of the device's heap.
    HeapMisuse,
    /// An `mbarrier` object is used before it is initialised, or beyond its counts.
    BarrierMisuse,
    /// A warp collective names or excludes lanes that it must not.
    MaskMisuse,
    /// No lane can ever run again, or all of them spin on memory that nobody changes.
    Deadlock,
    /// An instruction that cannot be executed as written, such as a jump outside its table.
    IllegalInstruction,
    /// Call depth or local memory exceeded the limit.
    StackOverflow,
    /// The configured instruction limit was reached.
    InstructionLimit,
    /// The launch itself is wrong; nothing ran. The reason is a [`LaunchRefusal`].
    BadLaunch,
}

impl FaultKind {
    /// A short lower-case name, e.g. `out of bounds`.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::OutOfBounds => "out of bounds",
            FaultKind::Misaligned => "misaligned address",
            FaultKind::NullPointer => "null pointer",
            FaultKind::Trap => "trap",
            FaultKind::AssertFailed => "assertion failed",
            FaultKind::DivergentBarrier => "divergent barrier",
            FaultKind::HeapMisuse => "device heap misuse",
            FaultKind::BarrierMisuse => "mbarrier misuse",
            FaultKind::MaskMisuse => "membermask misuse",
            FaultKind::Deadlock => "deadlock",
            FaultKind::IllegalInstruction => "illegal instruction",
            FaultKind::StackOverflow => "stack overflow",
            FaultKind::InstructionLimit => "instruction limit",
            FaultKind::BadLaunch => "bad launch",
        }
    }
}

/// A state space as reports name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Global memory, constants included.
    Global,
    /// Shared memory of a block.
    Shared,
    /// Local memory of a thread.
    Local,
    /// Kernel parameters.
    Param,
}

/// What accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessKind {
    /// It reads.
    Load,
    /// It writes.
    Store,
    /// It reads and writes at once.
    Atomic,
    /// `cp.async`.
    AsyncCopy,
    /// `st.async`, `red.async`.
    AsyncStore,
    /// `cp.async.bulk`, `cp.reduce.async.bulk`.
    BulkCopy,
    /// `st.bulk`.
    BulkStore,
    /// It works on an `mbarrier` object.
    Mbarrier,
}

impl AccessKind {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            AccessKind::Load => "load",
            AccessKind::Store => "store",
            AccessKind::Atomic => "atomic operation",
            AccessKind::AsyncCopy => "asynchronous copy",
            AccessKind::AsyncStore => "asynchronous store",
            AccessKind::BulkCopy => "bulk copy",
            AccessKind::BulkStore => "bulk store",
            AccessKind::Mbarrier => "mbarrier operation",
        }
    }
}

/// An access that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadAccess {
    /// What accesses.
    pub what: AccessKind,
    /// Its bytes.
    pub bytes: u64,
    /// The state space.
    pub place: Place,
    /// The address, or the offset in the space.
    pub address: u64,
    /// Why it must not happen.
    pub problem: Problem,
}

/// Why an access must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    /// Its address is no multiple of so many bytes.
    Misaligned(u64),
    /// Its address is a null pointer, or near one.
    Null,
    /// Kernels may only read there.
    ReadOnly,
    /// Not all of it lies in memory. Spaces other than global memory have so many bytes.
    Outside(u64),
    /// It takes an address of this space for one of global memory.
    OtherSpace(Place),
}

impl fmt::Display for BadAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadAccess { what, bytes, place, address, problem } = *self;
        write!(f, "{} of {bytes} bytes", what.name())?;
        match (problem, place) {
            (Problem::Misaligned(n), _) => write!(f, " needs an address that is a multiple of {n}"),
            (Problem::Null, _) => write!(f, " at a null pointer plus {address}"),
            (Problem::ReadOnly, Place::Param) => {
                write!(f, " at parameter offset {address}: kernel parameters are read-only")
            }
            (Problem::ReadOnly, _) => f.write_str(" in constant memory, which kernels may only read"),
            (Problem::OtherSpace(space), _) => {
                let kind = match space {
                    Place::Global => "host",
                    Place::Shared => "shared-memory",
                    Place::Local => "local-memory",
                    Place::Param => "parameter",
                };
                write!(f, " in global memory (a {kind} address, used as a global one)")
            }
            (Problem::Outside(_), Place::Global) => f.write_str(" in global memory"),
            (Problem::Outside(n), Place::Shared) => {
                write!(f, " at shared offset {address}; the block has {n} bytes of shared memory")
            }
            (Problem::Outside(n), Place::Local) => {
                write!(f, " at local offset {address}; the thread has {n} bytes of local memory")
            }
            (Problem::Outside(n), Place::Param) => {
                write!(f, " at parameter offset {address}; the kernel has {n} bytes of parameters")
            }
        }
    }
}

/// What somebody does who keeps a block from going on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Waits {
    /// It runs, and nothing comes of it.
    Spins,
    /// It goes round a loop, which begins here.
    LoopBegins,
    /// It goes round a loop, which ends here.
    LoopEnds,
    /// It waits for others of the block or the cluster.
    AtBarrier {
        /// The barrier; `None`: that of the cluster.
        barrier: Option<u32>,
        /// Threads that have arrived, and that are expected, where the barrier counts them.
        arrived: Option<(u32, u32)>,
        /// Lanes of its warp that have not reached the barrier.
        lanes: u32,
        /// Warps that have not reached it.
        warps: Vec<u32>,
    },
    /// It waits in a collective.
    InCollective {
        /// The lanes that the membermask names.
        mask: u32,
        /// Those of them that have not come.
        missing: u32,
    },
    /// It waits for other lanes of its warp.
    ForLanes {
        /// Those lanes.
        lanes: u32,
    },
    /// It has left.
    HasExited,
}

impl Waits {
    /// The order in which reports tell it: those who run first, those who have left last.
    pub fn rank(&self) -> u8 {
        match self {
            Waits::Spins | Waits::LoopBegins | Waits::LoopEnds => 0,
            Waits::AtBarrier { .. } => 1,
            Waits::InCollective { .. } | Waits::ForLanes { .. } => 2,
            Waits::HasExited => 3,
        }
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waits::Spins => f.write_str("spin"),
            Waits::LoopBegins => f.write_str("the loop begins here"),
            Waits::LoopEnds => f.write_str("and goes back from here"),
            Waits::AtBarrier { barrier, arrived, lanes, warps } => {
                match barrier {
                    Some(id) => write!(f, "wait at barrier {id}")?,
                    None => f.write_str("wait at the barrier of the cluster")?,
                }
                if let Some((arrived, expected)) = arrived {
                    write!(f, " ({arrived} of {expected} threads)")?;
                }
                if *lanes != 0 {
                    write!(f, ", which lanes {lanes:#010x} of the warp have not reached")?;
                } else if !warps.is_empty() {
                    let warps: Vec<String> = warps.iter().map(u32::to_string).collect();
                    write!(f, ", which warps {} have not reached", warps.join(", "))?;
                }
                Ok(())
            }
            Waits::InCollective { mask, missing } => {
                write!(f, "wait in a collective of lanes {mask:#010x} for lanes {missing:#010x}")
            }
            Waits::ForLanes { lanes } => write!(f, "wait for lanes {lanes:#010x} of the warp"),
            Waits::HasExited => f.write_str("have exited"),
        }
    }
}

/// Lanes of a warp that wait, spin or have exited, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiter {
    /// The warp.
    pub warp: u32,
    /// Its lanes.
    pub lanes: u32,
    /// Their position in the module's code.
    pub pc: u32,
    /// What they do.
    pub does: Waits,
    /// Line in the PTX text, 0 if none.
    pub ptx_line: u32,
    /// The source place, as in [`Fault::source`].
    pub source: Option<String>,
}

impl Waiter {
    /// One whose lines are not known yet.
    pub(crate) fn new(warp: u32, lanes: u32, pc: u32, does: Waits) -> Waiter {
        Waiter { warp, lanes, pc, does, ptx_line: 0, source: None }
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warp {}, lanes {:#010x}, PTX line {}: {}", self.warp, self.lanes, self.ptx_line, self.does)?;
        self.source.iter().try_for_each(|source| write!(f, " ({source})"))
    }
}

/// Why a launch stopped, and where.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The class.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// Index of the block.
    pub block: [u32; 3],
    /// The same as one number.
    pub linear_block: u64,
    /// Index of the (first) thread at fault.
    pub thread: [u32; 3],
    /// Its warp in the block.
    pub warp: u32,
    /// Lane of that thread in its warp.
    pub lane: u32,
    /// Position in the module's code.
    pub pc: u32,
    /// Line in the PTX text, 0 if none.
    pub ptx_line: u32,
    /// That line.
    pub ptx_text: String,
    /// `file:line` from `.loc`, with the inline chain where the compiler gave one.
    pub source: Option<String>,
    /// The same as places, innermost first; empty without line information.
    pub frames: Vec<Frame>,
    /// The address, for memory faults.
    pub address: Option<u64>,
    /// The access, if it is one that must not happen.
    pub access: Option<BadAccess>,
    /// What is wrong, if it is no access and the class does not say all.
    pub reason: Option<Reason>,
    /// Who waits for whom, or has left.
    pub waiters: Vec<Waiter>,
    /// Of an access to global memory, the allocation that its address lies in or next to.
    pub nearest: Option<Nearest>,
}

impl Fault {
    /// A fault of a kernel of which nothing more is known.
    pub fn new(kind: FaultKind, kernel: &str) -> Fault {
        Fault {
            kind,
            kernel: kernel.to_owned(),
            block: [0; 3],
            linear_block: 0,
            thread: [0; 3],
            warp: 0,
            lane: 0,
            pc: u32::MAX,
            ptx_line: 0,
            ptx_text: String::new(),
            source: None,
            frames: Vec::new(),
            address: None,
            access: None,
            reason: None,
            waiters: Vec::new(),
            nearest: None,
        }
    }

    /// What is wrong, in words.
    pub fn message(&self) -> String {
        let reason = || self.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        self.access.map_or_else(reason, |access| access.to_string())
    }

    /// What is known beyond that, a line each: who waits for whom, the nearest allocation.
    pub fn circumstances(&self) -> Vec<String> {
        let nearest = self.nearest.iter().map(ToString::to_string);
        self.waiters.iter().map(ToString::to_string).chain(nearest).collect()
    }

    /// Both, as lines.
    pub fn detail(&self) -> String {
        let mut text = self.message();
        for line in self.circumstances() {
            text += "\n";
            text += &line;
        }
        text
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == FaultKind::BadLaunch {
            return write!(f, "error[{}]: kernel `{}`: {}", self.kind.name(), self.kernel, self.message());
        }
        write!(f, "error[{}]", self.kind.name())?;
        if let Some(address) = self.address {
            write!(f, ": address {address:#x}")?;
        }
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "\n  kernel `{}`, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})", self.kernel)?;
        if let Some(source) = &self.source {
            write!(f, "\n  at {source}")?;
        }
        if self.ptx_line != 0 {
            write!(f, "\n  PTX line {}: {}", self.ptx_line, self.ptx_text.trim())?;
        }
        for line in self.detail().lines() {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_kernel_block_thread_line_and_detail() {
        let access = BadAccess {
            what: AccessKind::Store,
            bytes: 4,
            place: Place::Global,
            address: 0x1000,
            problem: Problem::Outside(0),
        };
        let fault = Fault {
            block: [1, 0, 0],
            thread: [5, 0, 0],
            lane: 5,
            ptx_line: 12,
            ptx_text: "\tst.global.b32 [%rd1], %r1;".into(),
            source: Some("src/k.rs:7".into()),
            address: Some(0x1000),
            access: Some(access),
            nearest: Some(Nearest { address: 0x1000, allocation: None, freed: false }),
            ..Fault::new(FaultKind::OutOfBounds, "k")
        };
        assert_eq!(
            fault.to_string(),
            "error[out of bounds]: address 0x1000\n  kernel `k`, block (1,0,0), thread (5,0,0)\n  at src/k.rs:7\n  \
             PTX line 12: st.global.b32 [%rd1], %r1;\n  store of 4 bytes in global memory\n  no memory is allocated"
        );
    }
}
