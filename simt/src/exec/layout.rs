//! How the state of the machine is laid out: rows of registers, predicates, special registers, windows of addresses.
//!
//! Facts alone, which lowering, the handlers and the observers agree on.

use crate::memory::POISON_KEY;

/// Lanes of a warp.
pub const LANES: usize = 32;
/// Bytes of a row of 32-bit registers; a row of 64-bit registers has twice that.
pub const ROW: u32 = 128;
/// Set in an operand that lies in the constant pool.
pub const CONST: u32 = 1 << 31;
/// Predicate slot that is always true: the guard of unguarded operations.
pub const PRED_TRUE: u16 = 0;
/// Predicate slot that holds the carry flag of extended-precision arithmetic.
pub const PRED_CARRY: u16 = 1;
/// Predicate slot for destinations that nobody reads.
pub const PRED_SINK: u16 = 2;
/// First predicate slot for a function's own predicates.
pub const PRED_FIRST: u16 = 3;

/// A row of 32-bit registers.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Row(pub [u32; LANES]);

pub const POISON_ROW: Row = Row([POISON_KEY as u32; LANES]);

/// Generic address of shared offset 0.
pub const SHARED_WINDOW: u64 = 0x8000_0000_0000;
/// Generic address of local offset 0.
pub const LOCAL_WINDOW: u64 = 0x9000_0000_0000;
/// Generic address of parameter offset 0.
pub const PARAM_WINDOW: u64 = 0xA000_0000_0000;
/// Addresses of functions: 16 apart.
pub const CODE_WINDOW: u64 = 0xB000_0000_0000;

/// Bytes of shared memory that every block has for the system from sm_80 on, beside its own. They begin as zeros: cooperative
/// groups keep their barriers there.
pub const RESERVED: u32 = 1024;

/// Index into [`Cx::uniform`](super::Cx).
pub mod uniform {
    pub const NTID: usize = 0;
    pub const CTAID: usize = 3;
    pub const NCTAID: usize = 6;
    pub const WARPID: usize = 9;
    pub const NWARPID: usize = 10;
    pub const SMID: usize = 11;
    pub const NSMID: usize = 12;
    pub const GRIDID: usize = 13;
    pub const DYNAMIC_SHARED: usize = 14;
    pub const TOTAL_SHARED: usize = 15;
    /// Address of a cooperative launch's workspace, and offset of the reserved shared memory.
    pub const WORKSPACE_HIGH: usize = 16;
    pub const WORKSPACE_LOW: usize = 17;
    pub const RESERVED: usize = 18;
    pub const COUNT: usize = 19;
}
