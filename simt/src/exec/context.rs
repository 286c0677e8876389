//! What handlers see: an operation, and the state of the machine that it is executed on.

use std::sync::Arc;

use super::layout::{CONST, uniform};
use super::progress::Pulse;
use super::services::Services;
use super::stack::Stack;
use crate::counters::Counters;
use crate::fault::{BadAccess, FaultKind, Reason, Waiter};
use crate::memory::Snapshot;
use crate::note::Note;
use crate::observer::Observer;

/// The handler of an operation.
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
    /// The split goes on with the next operation when it is the block's turn.
    Turn,
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
    pub reason: Option<Reason>,
    /// Who waits, or has left, if that is what it is about.
    pub waiters: Vec<Waiter>,
}

/// Backward jumps before a split that looks like a spin loop makes way.
pub(super) const SPINS: u32 = 32;

/// Backward jumps of a warp that is beyond the limit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(super) jumps: u32,
    pub(super) warp: u64,
    /// The longest: from where, and where to.
    pub(super) from: u32,
    pub(super) to: u32,
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
    /// Kernels may reach memory that other processes use at the same time.
    pub interprocess: bool,
    /// Blocks before this one may still run: it has to stop where it would talk to others.
    pub early: bool,
    /// Changes with everything that another warp could notice.
    pub progress: u64,
    /// Instructions that the block's warps have executed; also the clock.
    pub executed: u64,
    /// The launch stops when `executed` passes this.
    pub limit: u64,
    /// Where it does.
    pub(crate) sample: Sample,
    /// Whom to tell of a launch that takes its time; the count of instructions at the last look at the clock, and at the
    /// next one.
    pub(crate) pulse: Option<Arc<Pulse>>,
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
    pub(crate) services: Option<Arc<Services>>,
    /// Memory that `alloca` gives, of the warp that runs.
    pub(crate) stack: *mut Stack,
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
    /// A context that stands nowhere; what runs sets it up.
    pub(crate) fn empty() -> Cx {
        Cx {
            regs: std::ptr::null_mut(),
            consts: std::ptr::null(),
            preds: std::ptr::null_mut(),
            active: 0,
            mask: 0,
            live: 0,
            next: 0,
            taken: 0,
            stop: 0,
            spins: 0,
            sync_seen: false,
            parallel: false,
            interprocess: false,
            early: false,
            progress: 0,
            executed: 0,
            limit: u64::MAX,
            sample: Sample::default(),
            pulse: None,
            looked: 0,
            look_at: 0,
            code: std::ptr::null(),
            lists: std::ptr::null(),
            weights: std::ptr::null(),
            memory: Snapshot::default(),
            sites: Vec::new(),
            shared: std::ptr::null_mut(),
            shared_bytes: 0,
            local: std::ptr::null_mut(),
            local_base: 0,
            local_top: 0,
            services: None,
            stack: std::ptr::null_mut(),
            params: std::ptr::null(),
            param_bytes: 0,
            tid: [std::ptr::null(); 3],
            uniform: [0; uniform::COUNT],
            counters: Counters::default(),
            fault: None,
            observer: None,
            notes: std::ptr::null(),
            following: false,
            watching: false,
            counting: false,
            dice: 0,
            interrupts: 0,
            frame_row: 0,
            frame_pred: 0,
        }
    }

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
    pub fn raise(&mut self, op: &Op, kind: FaultKind, lane: u32, address: Option<u64>, reason: Option<Reason>) -> Flow {
        let pc = self.position(op);
        self.fault = Some(Box::new(RawFault { kind, lane, pc, address, access: None, reason, waiters: Vec::new() }));
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
