//! What stops a kernel, and the report about it.

use std::fmt;

use crate::check::Frame;

/// The class of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The launch itself is wrong; nothing ran.
    BadLaunch(String),
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
            FaultKind::BadLaunch(_) => "bad launch",
        }
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
    /// Index of the (first) thread at fault.
    pub thread: [u32; 3],
    /// Lane of that thread in its warp.
    pub lane: u32,
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
    /// What is known beyond that: the nearest allocation, who waits for whom.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let FaultKind::BadLaunch(why) = &self.kind {
            return write!(f, "error[bad launch]: kernel `{}`: {why}", self.kernel);
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
        for line in self.detail.lines() {
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
        let fault = Fault {
            kind: FaultKind::OutOfBounds,
            kernel: "k".into(),
            block: [1, 0, 0],
            thread: [5, 0, 0],
            lane: 5,
            ptx_line: 12,
            ptx_text: "\tst.global.b32 [%rd1], %r1;".into(),
            source: Some("src/k.rs:7".into()),
            frames: Vec::new(),
            address: Some(0x1000),
            detail: "4 bytes\nnearest: none".into(),
        };
        assert_eq!(
            fault.to_string(),
            "error[out of bounds]: address 0x1000\n  kernel `k`, block (1,0,0), thread (5,0,0)\n  at src/k.rs:7\n  \
             PTX line 12: st.global.b32 [%rd1], %r1;\n  4 bytes\n  nearest: none"
        );
    }
}
