//! Why a launch stopped, where it is no access to memory that is wrong.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::LaunchRefusal;

/// Why a launch stopped, if it is no [access](super::BadAccess). Sentences are made of it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing ran.
    Refused(LaunchRefusal),
    /// Nothing can go on.
    Stuck(Stuck),
    /// Threads disagree about a barrier.
    Barrier(BarrierDispute),
    /// An `mbarrier` object is misused.
    Object(ObjectMisuse),
    /// A lane executes a collective whose membermask does not name it.
    Unnamed {
        /// The lane.
        lane: u32,
        /// The membermask.
        mask: u32,
    },
    /// A matrix instruction is executed by a part of a warp.
    PartOfWarp,
    /// `brx.idx` with an index beyond its list of targets.
    TargetIndex,
    /// `mapa` of a block that the cluster, of one block, does not have.
    Rank {
        /// The block.
        rank: u32,
    },
    /// `st.bulk` of a size that it does not take.
    FillSize {
        /// The size.
        bytes: u64,
        /// It takes multiples of this.
        unit: u64,
        /// It takes no more than this.
        most: u64,
    },
    /// A bulk copy of a size that it does not take.
    CopySize {
        /// The size.
        bytes: u64,
        /// It takes multiples of this.
        unit: u64,
    },
    /// An indirect call to what is no function, or one with other parameters.
    NoFunction {
        /// The address that is called.
        target: u64,
    },
    /// Calls are nested too deeply, or need too much local memory.
    Calls {
        /// Nested calls.
        depth: u32,
        /// Bytes of local memory.
        local: u32,
        /// The most of both that there may be.
        limits: (u32, u32),
    },
    /// `alloca` of more than a thread has left.
    Alloca {
        /// The size.
        bytes: u64,
        /// Bytes that a thread has.
        most: u64,
        /// Those of them that are in use.
        used: u64,
    },
    /// `stackrestore` of what no `stacksave` gave.
    StackRestore {
        /// The value.
        value: u64,
    },
    /// An atomic operation of 128 bits on memory that other processes may use, on a CPU that has none.
    Wide,
    /// A function of the device's library is called, and the device has none.
    NoLibrary,
    /// `free` of what is no block of the device's heap.
    Free {
        /// The address.
        address: u64,
    },
    /// `vprintf` reads a string or its arguments where nothing is.
    Printf {
        /// The address.
        address: u64,
    },
    /// An assertion of the kernel's.
    Assertion {
        /// What was asserted.
        condition: String,
        /// The file that says so.
        file: String,
        /// Its line.
        line: u64,
        /// The function.
        function: String,
    },
    /// A block has executed more instructions than are allowed.
    Instructions {
        /// Those that it has executed.
        executed: u64,
        /// Those that are allowed.
        limit: u64,
    },
}

/// Why nothing can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stuck {
    /// No thread of the block can run.
    NobodyRuns,
    /// All threads of the block have spun or waited for long.
    BlockIsStale,
    /// All resident threads have.
    LaunchIsStale,
    /// Nobody is left who could end what all resident threads wait for.
    NobodyIsLeft,
    /// All threads wait, for what may yet come.
    AllWait,
    /// A handler has stopped the block and raised nothing.
    NothingRaised,
}

/// What threads disagree about at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BarrierDispute {
    /// Lanes of a warp give different operands.
    Operands,
    /// There is no such barrier.
    Number {
        /// The barrier.
        barrier: u32,
        /// The last that there is.
        last: u32,
    },
    /// A number of threads that are no whole warps.
    Threads {
        /// The number.
        threads: u32,
    },
    /// A barrier is waited for with two numbers of threads.
    Counts {
        /// The barrier.
        barrier: u32,
        /// What the first to arrive gave.
        first: u32,
        /// What is given now.
        now: u32,
    },
    /// A thread arrives at the barrier of its cluster again before it has waited.
    ArrivesAgain,
    /// A thread waits at the barrier of its cluster, where it has not arrived.
    NotArrived,
    /// Lanes of a warp wait at different aligned barriers.
    Places {
        /// Lanes that wait here.
        here: u32,
        /// Lanes that wait elsewhere.
        elsewhere: u32,
    },
}

/// How an `mbarrier` object is misused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ObjectMisuse {
    /// It is initialised with a number of arrivals that it cannot have.
    Count {
        /// The number.
        count: u32,
        /// The most that it can have.
        most: u32,
    },
    /// There is none: nothing has initialised the memory.
    Uninitialised,
    /// A copy completes where there is none.
    CopyUninitialised,
    /// More arrivals than it waits for.
    Arrivals {
        /// Arrivals.
        count: u32,
        /// Those that it waits for.
        pending: u32,
    },
    /// It is to wait for more bytes than it can.
    Bytes {
        /// The bytes.
        bytes: i64,
        /// The most.
        most: u32,
    },
    /// An arrival with `.noComplete` completes the phase.
    Completes,
    /// `mbarrier.pending_count` of a value that no operation returned.
    Token,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Refused(refusal) => refusal.fmt(f),
            Reason::Stuck(stuck) => stuck.fmt(f),
            Reason::Barrier(dispute) => dispute.fmt(f),
            Reason::Object(misuse) => misuse.fmt(f),
            Reason::Unnamed { lane, mask } => {
                write!(f, "lane {lane} executes a collective whose membermask {mask:#010x} does not name it")
            }
            Reason::PartOfWarp => f.write_str("a matrix instruction needs all 32 lanes of the warp"),
            Reason::TargetIndex => f.write_str("brx.idx with an index beyond its list of targets"),
            Reason::Rank { rank } => write!(f, "mapa of block {rank} of a cluster of one block"),
            Reason::FillSize { bytes, unit, most } => {
                write!(f, "st.bulk of {bytes} bytes; it takes a multiple of {unit}, at most {most}")
            }
            Reason::CopySize { bytes, unit } => write!(f, "a bulk copy moves multiples of {unit} bytes, not {bytes}"),
            Reason::NoFunction { target } => {
                write!(f, "indirect call to {target:#x}, which is not a function with these parameters")
            }
            Reason::Calls { depth, local, limits: (calls, bytes) } => {
                write!(f, "{depth} nested calls, {local} bytes of local memory; the limits are {calls} and {bytes}")
            }
            Reason::Alloca { bytes, most, used } => {
                write!(f, "alloca of {bytes} bytes; a thread has {most}, of which {used} are in use")
            }
            Reason::StackRestore { value } => write!(f, "stackrestore of {value:#x}, which no stacksave gave"),
            Reason::Wide => f.write_str(
                "the CPU has no atomic operation of 128 bits, which memory that other processes may use needs",
            ),
            Reason::NoLibrary => f.write_str("the device provides no functions"),
            Reason::Free { address } => {
                write!(f, "free({address:#x}) of what is no block of the device's heap, or no longer")
            }
            Reason::Printf { address } => {
                write!(f, "vprintf reads a string or its arguments at {address:#x}, where nothing is")
            }
            Reason::Assertion { condition, file, line, function } => {
                write!(f, "{file}:{line}: {function}: assertion `{condition}` failed")
            }
            Reason::Instructions { executed, limit } => {
                write!(f, "a block has executed {executed} instructions; the limit is {limit}")
            }
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stuck::NobodyRuns => "no thread of the block can run any more",
            Stuck::BlockIsStale => "all threads of the block spin or wait, and nothing has changed for a long time",
            Stuck::LaunchIsStale => "all resident threads spin or wait, and nothing has changed for a long time",
            Stuck::NobodyIsLeft => "all resident threads spin or wait, and nobody is left who could end that",
            Stuck::AllWait => "all its threads wait",
            Stuck::NothingRaised => "lost its fault",
        })
    }
}

impl fmt::Display for BarrierDispute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BarrierDispute::Operands => f.write_str("lanes of one warp give different barrier operands"),
            BarrierDispute::Number { barrier, last } => {
                write!(f, "barrier {barrier} does not exist; there are barriers 0 to {last}")
            }
            BarrierDispute::Threads { threads } => write!(f, "a barrier counts whole warps, not {threads} threads"),
            BarrierDispute::Counts { barrier, first, now } => {
                write!(f, "barrier {barrier} is waited for with {first} threads and with {now}")
            }
            BarrierDispute::ArrivesAgain => {
                f.write_str("a thread arrives at the barrier of its cluster again before it has waited")
            }
            BarrierDispute::NotArrived => {
                f.write_str("a thread waits at the barrier of its cluster, where it has not arrived")
            }
            BarrierDispute::Places { here, elsewhere } => write!(
                f,
                "lanes of one warp wait at different aligned barriers: {here:#010x} here, {elsewhere:#010x} elsewhere"
            ),
        }
    }
}

impl fmt::Display for ObjectMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ObjectMisuse::Count { count, most } => {
                write!(f, "an mbarrier is initialised with {count} arrivals; 1 to {most} are allowed")
            }
            ObjectMisuse::Uninitialised => {
                f.write_str("an mbarrier operation on memory that no mbarrier.init has initialised")
            }
            ObjectMisuse::CopyUninitialised => {
                f.write_str("a copy completes at memory that no mbarrier.init has initialised")
            }
            ObjectMisuse::Arrivals { count, pending } => {
                write!(f, "{count} arrivals at an mbarrier that waits for {pending}")
            }
            ObjectMisuse::Bytes { bytes, most } => {
                write!(f, "an mbarrier cannot wait for {bytes} bytes; {most} is the most")
            }
            ObjectMisuse::Completes => f.write_str("an arrival with .noComplete completes the phase of its mbarrier"),
            ObjectMisuse::Token => f.write_str("mbarrier.pending_count of a value that no mbarrier operation returned"),
        }
    }
}
