//! The executor: handlers for operations, and the machinery that runs warps and blocks.
//!
//! Code is an array of [`Op`]s; each carries a pointer to the *handler* that executes it for all
//! active lanes of a warp at once. Registers are rows of 32 lanes; operands are byte offsets of
//! rows. A handler writes only the lanes in [`Cx::active`].
//!
//! **Contract of handlers** (why they are `unsafe fn`): the caller guarantees that every row,
//! predicate, list and target that the `Op` names lies inside the current frame, the constant
//! pool, or the program. Lowering is the only maker of `Op`s and checks widths and ranges as it
//! makes them; addresses that a *program* computes are checked by the handlers themselves.

pub(crate) mod atom;
pub(crate) mod barrier;
pub(crate) mod block;
pub(crate) mod bounds;
pub(crate) mod bulk;
pub(crate) mod collective;
pub(crate) mod control;
pub(crate) mod cvt;
pub(crate) mod float;
pub(crate) mod format;
pub(crate) mod fragment;
pub(crate) mod frames;
pub(crate) mod half;
pub(crate) mod int;
pub(crate) mod lanes;
pub(crate) mod library;
pub(crate) mod limit;
pub(crate) mod local;
pub(crate) mod mbarrier;
pub(crate) mod mem;
pub(crate) mod mma;
pub(crate) mod publish;
pub(crate) mod remote;
pub(crate) mod rendezvous;
#[cfg(target_arch = "x86_64")]
pub(crate) mod scattered;
pub(crate) mod soft;
pub(crate) mod space;
pub(crate) mod stack;
pub(crate) mod tensor;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vector;
pub(crate) mod video;
pub(crate) mod warp;
pub(crate) mod words;

use crate::counters::Counters;
use crate::fault::{BadAccess, FaultKind, Waiter};
use crate::memory::Snapshot;
use crate::note::Note;
use crate::observer::Observer;

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

pub type OpFn = unsafe fn(&mut Cx, &Op) -> Flow;

/// One executable operation.
#[derive(Clone, Copy)]
pub struct Op {
    pub f: OpFn,
    /// Destination row.
    pub d: u32,
    /// Source rows.
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// Destination predicates.
    pub p: u16,
    pub r: u16,
    /// Source predicate: slot · 2 + negated.
    pub q: u16,
    /// Guard: slot · 2 + negated.
    pub guard: u16,
    pub imm: u64,
    /// A fourth source row, an index into a table, or a branch target, as the handler says.
    pub x: u32,
    /// Index into the program's debug table.
    pub debug: u32,
}

/// What the run loop does after a handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Go on with the next operation.
    Next,
    /// Go to `Cx::next`.
    Jump,
    /// Lanes `Cx::taken` go to `Cx::next`, the others to `op.c`.
    Diverge,
    /// Indexed branch whose lanes disagree.
    Scatter,
    /// A collective that not all named lanes have reached.
    Rendezvous,
    /// A block barrier.
    Barrier,
    Call,
    Ret,
    Exit,
    /// The split has spun long enough; `Cx::next` is where it goes on.
    Yield,
    /// `Cx::fault` says why.
    Fault,
}

/// A cached allocation of one load or store site.
#[derive(Clone, Copy)]
pub struct Site {
    pub base: u64,
    pub size: u64,
    pub host: *mut u8,
    pub key: u64,
}

impl Site {
    pub const EMPTY: Site = Site { base: 0, size: 0, host: std::ptr::null_mut(), key: 0 };
}

/// A fault as a handler raises it.
pub struct RawFault {
    pub kind: FaultKind,
    pub lane: u32,
    pub pc: u32,
    pub address: Option<u64>,
    pub access: Option<BadAccess>,
    pub detail: String,
    /// Who waits, or has left, if that is what it is about.
    pub waiters: Vec<Waiter>,
}

/// Index into [`Cx::uniform`].
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

/// What handlers see: the current warp's frame and the worker's state.
pub struct Cx {
    /// Register rows of the current frame.
    pub regs: *mut u8,
    /// Constant pool of the current function.
    pub consts: *const u8,
    /// Predicates of the current frame.
    pub preds: *mut u32,
    /// Lanes that execute the current operation.
    pub active: u32,
    /// Lanes of the running split.
    pub mask: u32,
    /// Lanes of the warp that have not exited.
    pub live: u32,
    /// Target of a jump.
    pub next: u32,
    /// Lanes that take a diverging branch.
    pub taken: u32,
    /// The run loop returns at a jump to this position or beyond.
    pub stop: u32,
    /// Backward jumps since the warp was scheduled.
    pub spins: u32,
    /// The warp has executed something that a spin loop would.
    pub sync_seen: bool,
    /// Other blocks run at the same time, on other cores.
    pub parallel: bool,
    /// Changes with everything that another warp could notice.
    pub progress: u64,
    /// Instructions that the block's warps have executed; also the clock.
    pub executed: u64,
    /// The launch stops when `executed` passes this.
    pub limit: u64,
    /// Where it does.
    pub(crate) sample: limit::Sample,
    /// Whom to tell of a launch that takes its time; the count of instructions at the last look at the clock, and at the
    /// next one.
    pub(crate) pulse: Option<std::sync::Arc<limit::Pulse>>,
    pub looked: u64,
    pub look_at: u64,

    pub code: *const Op,
    pub lists: *const u32,
    /// Instructions before each operation, to count what operations stand for.
    pub weights: *const u32,

    pub memory: Snapshot,
    pub sites: Vec<Site>,
    pub shared: *mut u8,
    pub shared_bytes: u32,
    /// Local memory of the warp: word `w` of lane `l` is word `32 w + l`.
    pub local: *mut u8,
    /// Where the current frame's local variables start, and end.
    pub local_base: u32,
    pub local_top: u32,
    pub params: *const u8,
    pub param_bytes: u32,

    /// What the device provides beyond executing.
    pub(crate) services: Option<std::sync::Arc<library::Services>>,
    /// Memory that `alloca` gives, of the warp that runs.
    pub(crate) stack: *mut stack::Stack,
    /// Thread indices of the warp's lanes.
    pub tid: [*const u32; 3],
    pub uniform: [u64; uniform::COUNT],
    pub counters: Counters,
    pub fault: Option<Box<RawFault>>,

    /// Of a watched launch: its observer, and the notes on its operations.
    pub observer: Option<Box<dyn Observer>>,
    pub notes: *const Note,
    /// The observer follows every operation of the running warp, guards included; it says so itself.
    pub following: bool,
    /// Accesses and synchronisation are looked at before they are executed.
    pub watching: bool,
    /// Every operation is counted.
    pub counting: bool,
    /// State of the generator that shuffles the schedule; 0: the reference schedule.
    pub dice: u64,
    /// How often it has interrupted the block.
    pub interrupts: u32,
    /// Where the current frame starts: bytes of register rows, and predicates.
    pub frame_row: u32,
    pub frame_pred: u32,
}

impl Cx {
    /// Tells the observer of a watched launch something.
    #[inline(always)]
    pub(crate) fn observe(&mut self, tell: impl FnOnce(&mut dyn Observer, &mut Cx)) {
        if let Some(mut observer) = self.observer.take() {
            tell(&mut *observer, self);
            self.observer = Some(observer);
        }
    }

    /// A number below `n` that decides about the schedule: 0 in the reference schedule, else from the seed (xorshift64*).
    pub fn roll(&mut self, n: usize) -> usize {
        if self.dice == 0 || n < 2 {
            return 0;
        }
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        (self.dice.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    /// Records a fault and stops.
    #[cold]
    #[inline(never)]
    pub fn raise(&mut self, op: &Op, kind: FaultKind, lane: u32, address: Option<u64>, detail: String) -> Flow {
        let pc = self.position(op);
        self.fault = Some(Box::new(RawFault { kind, lane, pc, address, access: None, detail, waiters: Vec::new() }));
        Flow::Fault
    }

    pub fn position(&self, op: &Op) -> u32 {
        let bytes = (std::ptr::from_ref(op) as usize).wrapping_sub(self.code as usize);
        (bytes / size_of::<Op>()) as u32
    }

    /// A source row.
    ///
    /// # Safety
    /// `at` is an operand of an operation of the current frame.
    #[inline(always)]
    pub unsafe fn src(&self, at: u32) -> *const u8 {
        let base = if at & CONST != 0 { self.consts } else { self.regs.cast_const() };
        // SAFETY: lowering made `at` an offset inside the pool or the frame.
        unsafe { base.add((at & !CONST) as usize) }
    }

    /// A destination row.
    ///
    /// # Safety
    /// As for [`src`](Cx::src).
    #[inline(always)]
    pub unsafe fn dst(&self, at: u32) -> *mut u8 {
        // SAFETY: lowering made `at` an offset inside the frame.
        unsafe { self.regs.add(at as usize) }
    }

    /// Lanes whose source predicate (slot · 2 + negated) holds.
    ///
    /// # Safety
    /// `q` is an operand of an operation of the current frame.
    #[inline(always)]
    pub unsafe fn pred(&self, q: u16) -> u32 {
        // SAFETY: lowering made the slot one of the frame.
        unsafe { *self.preds.add((q >> 1) as usize) ^ u32::from(q & 1).wrapping_neg() }
    }

    /// Writes the active lanes of a predicate.
    ///
    /// # Safety
    /// `slot` is a destination of an operation of the current frame.
    #[inline(always)]
    pub unsafe fn set_pred(&mut self, slot: u16, bits: u32) {
        // SAFETY: lowering made the slot one of the frame.
        unsafe {
            let p = self.preds.add(slot as usize);
            *p = (*p & !self.active) | (bits & self.active);
        }
    }

    /// A word of the operation's list.
    ///
    /// # Safety
    /// `op.x + i` lies inside the list that lowering made for the operation.
    #[inline(always)]
    pub unsafe fn list(&self, op: &Op, i: usize) -> u32 {
        // SAFETY: by the contract.
        unsafe { *self.lists.add(op.x as usize + i) }
    }
}
