//! Undefined data.
//!
//! Memory has one bit a byte: global memory in its allocation (`shadow`), shared memory per block, local memory per
//! warp. Registers have one bit a bit, per warp, in the layout of the register file, made when the first undefined value turns
//! up. While a warp's registers are all defined (`Cx::tainted` is false) only its accesses are looked at; otherwise every
//! operation is followed by the rule in its note ([`Taint`]). Moving undefined data is no finding: it is one when a branch, a
//! guard, an address, or an operand that decides what an operation does depends on it, and when it leaves the device
//! ([`Memory::undefined`](warpsmith_simt::Memory::undefined)).
//!
//! **Room.** 12.5 % of tracked allocations and of shared memory, a quarter of local memory (a byte a word), and for
//! warps that meet undefined values once more their register file.
//!
//! What has been reported counts as defined from then on, so that one mistake gives one finding.

mod access;
mod collective;
mod copies;
mod matrix;
mod place;
mod registers;
mod report;
mod rules;

use super::checker::Checker;
use super::defect::{Decides, Defect};
use super::raw::{RawFinding, RawSite};
use super::{Detail, Rule, Severity, Site, SiteKind};
use collective::Brought;
pub(crate) use collective::{bring, give};
use registers::Registers;
use report::{Origins, Past};
use warpsmith_simt::machine::atom::via;
use warpsmith_simt::machine::block::Grid;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::memory::Snapshot;
use warpsmith_simt::machine::note::{Note, Notes, Role, Taint};
use warpsmith_simt::machine::program::{Function, Program};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::words::{Via, Words};
use warpsmith_simt::machine::{Cx, Flow, LANES, Op, uniform};
use warpsmith_simt::observer::{Entered, LocalCopy};

/// Branches after which a warp looks whether all its registers are defined again.
const LOOK: u32 = 16;

/// State of a launch.
pub(crate) struct Init {
    notes: *const Notes,
    program: *const Program,
    sites: Vec<place::Known>,
    origins: Origins,
    brought: Brought,
}

impl Init {
    pub(crate) fn new(grid: &Grid<'_>) -> Init {
        Init {
            notes: std::ptr::from_ref(&grid.program.notes),
            program: std::ptr::from_ref(grid.program),
            sites: vec![place::Known::default(); grid.program.sites as usize + 1],
            origins: Origins::default(),
            brought: Brought::default(),
        }
    }

    /// What tells the program from others while it lives.
    fn program(&self) -> u64 {
        self.program as usize as u64
    }

    /// Tells how the undefined data came to where it is that the launch leaves in global memory.
    pub(crate) fn tell(
        &self,
        kernel: &str,
        memory: &Snapshot,
        follows: &dyn Fn(u32) -> Option<Rule>,
        finish: &dyn Fn(RawSite) -> Site,
    ) {
        self.origins.tell(kernel, memory, follows, finish);
    }

    /// The program's notes.
    ///
    /// # Safety
    /// A checked launch runs, whose program has notes.
    pub(super) unsafe fn notes<'a>(&self) -> &'a Notes {
        // SAFETY: the program outlives the launch, and has notes by the contract.
        unsafe { &*self.notes }
    }
}

/// What is known of a warp.
#[derive(Default)]
struct WarpInit {
    registers: Registers,
    /// Undefined bytes of local memory, four bits a word: word `w` of lane `l` is element `32 w + l`.
    local: Vec<u8>,
    /// Of each such word, the origin of the undefined data that was stored there, plus 1; empty until some is.
    local_origins: Vec<u32>,
    tainted: bool,
    branches: u32,
}

impl WarpInit {
    /// Lanes enter a frame: what they may read before they write it is undefined.
    fn enter(&mut self, row: u32, pred: u32, local: u32, function: &Function, lanes: u32) {
        self.registers.reserve((row + function.row_bytes) / 4, pred + function.preds);
        let words = (local + function.local_bytes).div_ceil(4) as usize;
        if self.local.len() < words * LANES {
            self.local.resize(words * LANES, 0);
        }
        for word in self.local[(local / 4) as usize * LANES..words * LANES].chunks_mut(LANES) {
            lanes_of(lanes).for_each(|l| word[l] = 15);
        }
        if !self.local_origins.is_empty() {
            self.local_origins.resize(self.local.len(), 0);
            for word in self.local_origins[(local / 4) as usize * LANES..words * LANES].chunks_mut(LANES) {
                lanes_of(lanes).for_each(|l| word[l] = 0);
            }
        }
        for &(at, wide) in &function.unset_rows {
            self.registers.unset(row + at, wide, lanes);
        }
        for &p in &function.unset_preds {
            self.registers.unset_pred(pred + p, lanes);
        }
        self.tainted |= !function.unset_rows.is_empty() || !function.unset_preds.is_empty();
    }

    fn copy_local(&mut self, &LocalCopy { from, to, bytes }: &LocalCopy, lanes: u32) {
        for word in 0..bytes.div_ceil(4) {
            let (from, to) = ((from / 4 + word) as usize * LANES, (to / 4 + word) as usize * LANES);
            for lane in lanes_of(lanes) {
                self.local[to + lane] = self.local[from + lane];
                if !self.local_origins.is_empty() {
                    self.local_origins[to + lane] = self.local_origins[from + lane];
                }
            }
        }
    }

    /// Sets the defined bytes of a lane's local memory, and where the others came from.
    fn set_local(&mut self, at: u64, n: u64, lane: usize, bits: u64, origin: u32) {
        for i in 0..n {
            let word = ((at + i) / 4) as usize * LANES + lane;
            let Some(mask) = self.local.get_mut(word) else { continue };
            let bit = 1 << ((at + i) & 3);
            if bits >> i & 1 != 0 {
                *mask &= !bit;
                continue;
            }
            *mask |= bit;
            self.local_origins.resize(self.local.len(), 0);
            self.local_origins[word] = origin + 1;
        }
    }

    fn past_of_local(&self, at: u64, lane: usize) -> Past {
        past(self.local_origins.get((at / 4) as usize * LANES + lane))
    }
}

/// The past of what lies where this was noted.
fn past(noted: Option<&u32>) -> Past {
    noted.and_then(|n| n.checked_sub(1)).map_or(Past::Unwritten, Past::Stored)
}

/// State of a block.
#[derive(Default)]
pub(crate) struct BlockInit {
    warps: Vec<WarpInit>,
    /// Defined bytes of shared memory.
    shared: Vec<u64>,
    /// Of each four bytes of it, the origin of the undefined data that was stored there, plus 1; empty until some is.
    shared_origins: Vec<u32>,
}

impl BlockInit {
    pub(crate) fn new(grid: &Grid<'_>, on: bool) -> BlockInit {
        let Some(function) = grid.program.functions.get(grid.entry as usize).filter(|_| on) else {
            return BlockInit::default();
        };
        let mut warps = Vec::new();
        for _ in 0..grid.threads.div_ceil(LANES as u32) {
            let mut warp = WarpInit::default();
            warp.enter(0, 0, 0, function, !0);
            warps.push(warp);
        }
        // One word more: an access that ends at the last byte may look at the next.
        let mut shared = vec![0u64; grid.shared_bytes as usize / 64 + 2];
        // What is reserved begins as zeros.
        for at in (grid.shared_bytes - grid.reserved) as usize..grid.shared_bytes as usize {
            shared[at / 64] |= 1 << (at % 64);
        }
        BlockInit { warps, shared, shared_origins: Vec::new() }
    }

    /// Whether the `n` bytes of shared memory from `at`, at most 64, are defined, one bit each.
    fn shared(&self, at: u64, n: u64) -> u64 {
        let (i, bit) = ((at >> 6) as usize, at & 63);
        let (Some(&first), Some(&second)) = (self.shared.get(i), self.shared.get(i + 1)) else { return low(n) };
        let bits = if bit == 0 { first } else { first >> bit | second << (64 - bit) };
        bits & low(n)
    }

    /// Whether the `n` bytes of shared memory from `at` are all defined.
    fn shared_defined(&self, (at, n): (u64, u64)) -> bool {
        let Some(last) = at.checked_add(n - 1).map(|last| last / 64) else { return false };
        let Some(words) = self.shared.get((at / 64) as usize..=last as usize) else { return false };
        let [first, .., end] = words else { return !words[0] >> (at % 64) & low(n) == 0 };
        let inner = words[1..words.len() - 1].iter().fold(!0, |all, word| all & word);
        !first >> (at % 64) == 0 && inner == !0 && !end & low((at + n - 1) % 64 + 1) == 0
    }

    fn past_of_shared(&self, at: u64) -> Past {
        past(self.shared_origins.get((at / 4) as usize))
    }

    fn set_shared(&mut self, at: u64, n: u64, bits: u64, origin: u32) {
        let missing = !bits & low(n);
        if missing != 0 {
            self.shared_origins.resize(self.shared.len() * 16, 0);
            for byte in positions(missing) {
                if let Some(noted) = self.shared_origins.get_mut(((at + byte) / 4) as usize) {
                    *noted = origin + 1;
                }
            }
        }
        let mut done = 0;
        warpsmith_simt::machine::shadow::spans(at, n, |i, mask| {
            if let Some(word) = self.shared.get_mut(i) {
                *word = *word & !mask | bits >> done << mask.trailing_zeros() & mask;
            }
            done += mask.count_ones();
            true
        });
    }
}

/// The positions of the bits that are set.
fn positions(mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (at < 64).then_some(at.into())
    })
}

/// The running warp.
fn warp(cx: &Cx) -> usize {
    cx.uniform[uniform::WARPID] as usize
}

/// A warp is about to run.
pub(crate) fn resume(c: &mut Checker, cx: &mut Cx) {
    cx.following = c.block.init.warps.get(warp(cx)).is_some_and(|w| w.tainted);
}

/// Lanes have entered a function's frame, with these arguments.
pub(crate) fn entered(
    c: &mut Checker,
    cx: &mut Cx,
    &Entered { row, pred, local, function, lanes }: &Entered<'_>,
    arguments: &mut dyn Iterator<Item = LocalCopy>,
) {
    let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
    w.enter(row, pred, local, function, lanes);
    arguments.for_each(|copy| w.copy_local(&copy, lanes));
    cx.following = w.tainted;
}

/// Lanes have left one, with these values.
pub(crate) fn left(c: &mut Checker, cx: &Cx, lanes: u32, results: &mut dyn Iterator<Item = LocalCopy>) {
    let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
    results.for_each(|copy| w.copy_local(&copy, lanes));
}

/// The machine itself has written bytes of a lane's local memory.
pub(crate) fn given(c: &mut Checker, cx: &Cx, at: u32, bytes: u32, lane: usize) {
    if let Some(w) = c.block.init.warps.get_mut(warp(cx)) {
        w.set_local(at.into(), bytes.into(), lane, !0, report::UNSET);
    }
}

/// The allocation table has changed: places that are known may be gone.
pub(crate) fn forget(c: &mut Checker) {
    c.init.sites.fill(place::Known::default());
}

/// An operation whose guard may be undefined, before it is known whether any lane executes it.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn guarded(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    let w = warp(cx);
    let Some(state) = c.block.init.warps.get_mut(w) else { return };
    let r = &mut state.registers;
    let slot = cx.frame_pred + u32::from(op.guard >> 1);
    let lanes = r.pred(slot) & cx.mask;
    if lanes == 0 {
        return;
    }
    if note.role == Role::Plain && note.class != super::Class::Control {
        // SAFETY: a checked launch runs.
        let writes = unsafe { c.init.notes().writes(note) };
        let origin = r.pred_origin(slot);
        // Active lanes are dealt with when the operation is executed.
        for &reg in writes {
            r.mark(cx, reg, lanes & !cx.active, note.short, origin);
        }
        return;
    }
    let origin = r.pred_origin(slot);
    r.define_pred(slot, lanes);
    let what = if note.class == super::Class::Control { Decides::Guard } else { Decides::Execution };
    report::deciding(c, cx, Rule::UndefinedBranch, pc, lanes, origin, what);
}

/// Before an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn before(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    if let Role::Divide(bits) = note.role {
        // SAFETY: by the contract.
        unsafe { division(c, cx, op, pc, bits) };
    }
    if !cx.following {
        return;
    }
    // SAFETY: by the contract; a checked launch runs.
    unsafe {
        match note.role {
            Role::Access(i) => {
                if let Some(&access) = c.init.notes().accesses.get(i as usize) {
                    access::decides(c, cx, op, pc, &access);
                }
            }
            Role::CopyAsync => copies::copy_decides(c, cx, op, pc),
            // Of the registers of a matrix, only the address decides.
            Role::MatrixAccess | Role::Object => {
                let wide = Via::of(cx, op).via != via::SHARED32;
                access::row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
                if note.role == Role::Object {
                    rules::plain(c, cx, op, note);
                }
            }
            Role::CopyBulk => copies::bulk_decides(c, cx, op, pc),
            Role::StoreAsync => {
                let wide = Via::of(cx, op).via != via::SHARED32;
                access::row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
            }
            Role::StoreBulk => {
                let wide = Via::of(cx, op).via != via::SHARED32;
                access::row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
                access::row_decides(c, cx, pc, op.b, true, Rule::UndefinedOperand);
            }
            Role::Collective => collective::before(c, cx, op, pc),
            Role::Barrier => {
                for &reg in c.init.notes().reads(note) {
                    access::reg_decides(c, cx, pc, reg, Rule::UndefinedOperand);
                }
            }
            Role::Branch | Role::Plain if note.class == super::Class::Control => {
                for &reg in c.init.notes().reads(note) {
                    access::reg_decides(c, cx, pc, reg, Rule::UndefinedBranch);
                }
                look(c, cx);
            }
            _ if note.taint == Taint::Matrix => matrix::multiply(c, cx, op, note),
            _ => rules::plain(c, cx, op, note),
        }
    }
}

/// After an operation.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn after(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, note: &Note, flow: Flow) {
    // SAFETY: by the contract; a checked launch runs.
    unsafe {
        match note.role {
            Role::Access(i) => {
                if let Some(&access) = c.init.notes().accesses.get(i as usize) {
                    access::done(c, cx, op, pc, note, &access);
                }
            }
            Role::CopyAsync => copies::copy_done(c, cx, op, pc),
            Role::CopyBulk => copies::bulk_done(c, cx, op, pc),
            Role::StoreAsync => copies::stored(c, cx, op, pc),
            Role::StoreBulk => copies::filled(c, cx, op, pc),
            Role::Object => copies::object_done(c, cx, op),
            Role::MatrixAccess if flow == Flow::Next => matrix::access(c, cx, op, pc, note),
            Role::Collective if cx.following && flow == Flow::Next => collective::after(c, cx, op),
            Role::Barrier if cx.following => {
                let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
                for &reg in c.init.notes().writes(note) {
                    w.registers.define(cx, reg, cx.active);
                }
            }
            _ => {}
        }
    }
}

/// Now and then, whether all registers are defined again.
fn look(c: &mut Checker, cx: &mut Cx) {
    let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
    w.branches += 1;
    if w.branches.is_multiple_of(LOOK) && w.registers.all_defined() {
        w.tainted = false;
        cx.following = false;
    }
}

/// Reports divisors that are zero.
unsafe fn division(c: &mut Checker, cx: &Cx, op: &Op, pc: u32, bits: u8) {
    // SAFETY: the contract of handlers: `b` is a row of the type's width.
    let divisor = |lane| unsafe {
        match bits {
            64 => lane_of::<u64>(cx.src(op.b), lane),
            bits => u64::from(lane_of::<u32>(cx.src(op.b), lane)) & low(bits.into()),
        }
    };
    let Some(lane) = lanes_of(cx.active).find(|&l| divisor(l) == 0) else { return };
    if c.findings.again(Rule::DivisionByZero, pc, u32::MAX) {
        return;
    }
    let lanes = lanes_of(cx.active).filter(|&l| divisor(l) == 0).count();
    c.findings.add(RawFinding {
        rule: Rule::DivisionByZero,
        severity: Severity::Warning,
        defect: Defect::DivisionByZero,
        sites: vec![RawSite {
            kind: SiteKind::Division,
            thread: Some((c.block.index, warp(cx) as u32, lane as u32)),
            pc,
            detail: if lanes == 1 { Detail::None } else { Detail::OtherLanes(lanes as u32 - 1) },
        }],
        addresses: Vec::new(),
        interval: None,
    });
}
