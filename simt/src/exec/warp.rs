//! A warp: its splits, its frames, and the choice of what runs next.
//!
//! A *split* is a set of lanes at one position. Code is laid out so that lower positions come
//! first (loops are contiguous, before what follows them), and of the splits that can run the one
//! with the deepest call and then the lowest position does: lanes that left a loop early wait for
//! the others behind it. Splits at one position merge. A split that jumps backwards long enough
//! while it looks like a spin loop makes way for the one that has waited longest, so that the lane
//! that holds a lock gets to release it.

use std::collections::HashMap;

use super::lanes::{lane_of, lanes_of};
use super::{Cx, Flow, LANES, Op, PRED_CARRY, PRED_TRUE, ROW, rendezvous};
use crate::fault::FaultKind;
use crate::memory::POISON_KEY;
use crate::program::{Function, Program, Slot, Target};

/// A row of 32-bit registers.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Row(pub [u32; LANES]);

pub(crate) const POISON_ROW: Row = Row([POISON_KEY as u32; LANES]);

/// Depth of calls, and bytes of local memory of a thread, before the stack overflows.
const MAX_DEPTH: u32 = 1024;
const MAX_LOCAL: u32 = 512 << 10;
/// Scheduling decisions for which a split that was let through keeps its preference.
const FAVOUR: u32 = 256;
/// Backward jumps before a split that looks like a spin loop makes way; and one that does not.
const SPINS: u32 = 32;
const LONG_SPINS: u32 = 1 << 20;

/// Why a split does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Ready,
    /// In a collective of this kind and mask.
    Collective { imm: u64, mask: u32 },
    /// Before an instruction that the whole warp executes together.
    Converge,
    /// At a block barrier.
    Barrier { id: u32 },
}

/// Lanes at one position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub pc: u32,
    pub mask: u32,
    pub frame: u32,
    pub state: State,
    /// When it last ran.
    stamp: u64,
    favour: u32,
}

/// An activation of a function; the same for all lanes that came the same way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    parent: u32,
    pub function: u32,
    call: u32,
    return_to: u32,
    depth: u32,
    row: u32,
    pred: u32,
    local: u32,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// All lanes have exited.
    Done,
    /// No split can run before other warps have.
    Blocked,
    /// It spins.
    Spinning,
    Fault,
}

/// One arrival of a warp at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub id: u32,
}

/// A block barrier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barrier {
    /// Warps that have arrived, as a set and counted.
    pub set: u32,
    pub arrived: u32,
    /// Threads expected; 0: all.
    pub expected: u32,
    /// Lanes whose predicate was true, and false, for `bar.red`.
    pub yes: u32,
    pub no: u32,
}

/// `bar` operands, packed into `Op::imm`.
pub(crate) mod bar {
    pub(crate) const SYNC: u64 = 0;
    pub(crate) const ARRIVE: u64 = 1;
    pub(crate) const RED_POPC: u64 = 2;
    pub(crate) const RED_AND: u64 = 3;
    pub(crate) const RED_OR: u64 = 4;
    pub(crate) const KIND: u64 = 7;
    pub(crate) const ALIGNED: u64 = 8;
    pub(crate) const COUNT: u64 = 16;
}

/// A warp of a block.
pub(crate) struct Warp {
    pub index: u32,
    pub live: u32,
    pub splits: Vec<Split>,
    frames: Vec<Frame>,
    known: HashMap<(u32, u32, u32), u32>,
    regs: Vec<Row>,
    preds: Vec<u32>,
    local: Vec<Row>,
    pub tid: [Row; 3],
    /// Lanes that have arrived at each barrier while others of the warp have not.
    pub at_barrier: [u32; 16],
    stamp: u64,
}

impl Warp {
    pub(crate) fn new(index: u32) -> Warp {
        Warp {
            index,
            live: 0,
            splits: Vec::new(),
            frames: Vec::new(),
            known: HashMap::new(),
            regs: Vec::new(),
            preds: Vec::new(),
            local: Vec::new(),
            tid: [Row([0; LANES]); 3],
            at_barrier: [0; 16],
            stamp: 0,
        }
    }

    /// Prepares the warp to run a kernel from its start.
    pub(crate) fn start(&mut self, program: &Program, entry: u32, live: u32) {
        let Some(function) = program.functions.get(entry as usize) else { return };
        self.live = live;
        self.at_barrier = [0; 16];
        self.stamp = 0;
        self.frames.clear();
        self.known.clear();
        self.splits.clear();
        let root = Frame { parent: 0, function: entry, call: 0, return_to: 0, depth: 0, row: 0, pred: 0, local: 0 };
        self.frames.push(root);
        self.reserve(&root, function);
        self.clear(&root, function, !0);
        if live != 0 {
            let pc = function.entry;
            self.splits.push(Split { pc, mask: live, frame: 0, state: State::Ready, stamp: 0, favour: 0 });
        }
    }

    fn reserve(&mut self, frame: &Frame, function: &Function) {
        let rows = ((frame.row + function.row_bytes) / ROW) as usize;
        if self.regs.len() < rows {
            self.regs.resize(rows, Row([0; LANES]));
        }
        let preds = (frame.pred + function.preds) as usize;
        if self.preds.len() < preds {
            self.preds.resize(preds, 0);
        }
        let words = (frame.local + function.local_bytes).div_ceil(4) as usize;
        if self.local.len() < words {
            self.local.resize(words, POISON_ROW);
        }
    }

    /// Gives lanes that enter a frame defined contents for what they may read before they write it.
    fn clear(&mut self, frame: &Frame, function: &Function, lanes: u32) {
        let blank = |row: &mut Row, value: u32| {
            if lanes == !0 {
                *row = Row([value; LANES]);
            } else {
                lanes_of(lanes).for_each(|l| row.0[l] = value);
            }
        };
        for &(at, wide) in &function.unset_rows {
            let first = ((frame.row + at) / ROW) as usize;
            self.regs[first..first + 1 + usize::from(wide)].iter_mut().for_each(|r| blank(r, 0));
        }
        let preds = &mut self.preds[frame.pred as usize..];
        preds[PRED_TRUE as usize] = !0;
        preds[PRED_CARRY as usize] &= !lanes;
        for &p in &function.unset_preds {
            preds[p as usize] &= !lanes;
        }
        let (from, to) = (frame.local / 4, (frame.local + function.local_bytes).div_ceil(4));
        self.local[from as usize..to as usize].iter_mut().for_each(|r| blank(r, POISON_KEY as u32));
    }

    /// Points the context at a frame of this warp.
    pub(crate) fn enter(&mut self, cx: &mut Cx, program: &Program, pools: &[Vec<Row>], frame: u32) {
        let frame = self.frames[frame as usize];
        let function = &program.functions[frame.function as usize];
        // SAFETY: `reserve` made room for the frame behind each of these offsets.
        unsafe {
            cx.regs = self.regs.as_mut_ptr().cast::<u8>().add(frame.row as usize);
            cx.preds = self.preds.as_mut_ptr().add(frame.pred as usize);
        }
        cx.local = self.local.as_mut_ptr().cast();
        cx.local_base = frame.local;
        cx.local_top = frame.local + function.local_bytes;
        cx.consts = pools[frame.function as usize].as_ptr().cast();
        cx.live = self.live;
    }

    fn depth(&self, split: &Split) -> u32 {
        self.frames[split.frame as usize].depth
    }

    /// Whether some split can run.
    pub(crate) fn ready(&self) -> bool {
        self.splits.iter().any(|s| s.state == State::Ready)
    }

    /// Adds lanes at a position, with those that are there already.
    pub(crate) fn add(&mut self, pc: u32, mask: u32, frame: u32, state: State) {
        if mask == 0 {
            return;
        }
        let same = self.splits.iter_mut().find(|s| s.pc == pc && s.frame == frame && s.state == state);
        match same {
            Some(split) => split.mask |= mask,
            None => self.splits.push(Split { pc, mask, frame, state, stamp: self.stamp, favour: 0 }),
        }
    }

    /// Takes out the split that shall run.
    fn pick(&mut self) -> Option<Split> {
        if self.splits.len() > 1 {
            self.merge();
        }
        let ready = self.splits.iter().enumerate().filter(|(_, s)| s.state == State::Ready);
        let key = |s: &Split| (s.favour == 0, u32::MAX - self.depth(s), s.pc);
        let best = ready.min_by_key(|(_, s)| key(s)).map(|(i, _)| i)?;
        Some(self.splits.swap_remove(best))
    }

    fn merge(&mut self) {
        let mut i = 0;
        while i < self.splits.len() {
            let mut j = i + 1;
            while j < self.splits.len() {
                let (a, b) = (self.splits[i], self.splits[j]);
                if a.pc == b.pc && a.frame == b.frame && a.state == b.state {
                    self.splits[i].mask |= b.mask;
                    self.splits[i].stamp = a.stamp.min(b.stamp);
                    self.splits[i].favour = 0;
                    self.splits.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// Runs until no split can.
    pub(crate) fn run(
        &mut self,
        cx: &mut Cx,
        program: &Program,
        pools: &[Vec<Row>],
        barriers: &mut [Barrier; 16],
    ) -> Stop {
        cx.tid = [0, 1, 2].map(|i| self.tid[i].0.as_ptr());
        cx.spins = 0;
        cx.sync_seen = false;
        loop {
            let Some(mut split) = self.pick() else {
                return if self.splits.is_empty() { Stop::Done } else { Stop::Blocked };
            };
            self.stamp += 1;
            split.stamp = self.stamp;
            self.enter(cx, program, pools, split.frame);
            let depth = self.depth(&split);
            let others = self.splits.iter().filter(|s| s.state == State::Ready && self.depth(s) == depth);
            cx.stop = if split.favour > 0 { 0 } else { others.map(|s| s.pc).min().unwrap_or(u32::MAX) };
            cx.mask = split.mask;
            let (flow, pc) = run_split(cx, split.pc);
            split.favour = split.favour.saturating_sub(1);
            let lanes = cx.active;
            let rest = split.mask & !lanes;
            let op = program.ops[pc as usize];
            match flow {
                Flow::Next | Flow::Jump => {
                    split.pc = cx.next;
                    self.splits.push(split);
                }
                Flow::Diverge => {
                    let other = Split { pc: op.c, mask: split.mask & !cx.taken, ..split };
                    self.splits.push(Split { pc: cx.next, mask: cx.taken, ..split });
                    self.splits.push(other);
                }
                Flow::Scatter => {
                    for lane in lanes_of(lanes) {
                        // SAFETY: the handler has checked every active lane's index.
                        let target = unsafe { super::control::indexed_target(cx, &op, lane) };
                        self.add(target.unwrap_or(pc + 1), 1 << lane, split.frame, State::Ready);
                    }
                    self.add(pc + 1, rest, split.frame, State::Ready);
                }
                Flow::Yield => {
                    split.pc = cx.next;
                    split.favour = 0;
                    self.splits.push(split);
                    self.let_through(split.stamp);
                    return Stop::Spinning;
                }
                Flow::Rendezvous => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    if rendezvous::arrive(self, cx, program, pools, pc, lanes, split.frame) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Barrier => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    if self.arrive(cx, &op, pc, lanes, split.frame, barriers) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Call => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    if self.call(cx, program, &op, pc, lanes, split.frame) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Ret if split.frame != 0 => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    self.give_back(program, lanes, split.frame);
                }
                Flow::Ret | Flow::Exit => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    self.live &= !lanes;
                    cx.live = self.live;
                    cx.progress += 1;
                    rendezvous::complete(self, cx, program, pools);
                    if self.arrivals(cx, program, barriers) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Fault => {
                    self.splits.push(split);
                    return Stop::Fault;
                }
            }
        }
    }

    /// Prefers the split that has waited longest.
    fn let_through(&mut self, current: u64) {
        let waiting = self.splits.iter_mut().filter(|s| s.state == State::Ready && s.stamp != current);
        if let Some(split) = waiting.min_by_key(|s| s.stamp) {
            split.favour = FAVOUR;
        }
    }

    /// Lanes come to a block barrier.
    fn arrive(&mut self, cx: &mut Cx, op: &Op, pc: u32, lanes: u32, frame: u32, barriers: &mut [Barrier; 16]) -> Flow {
        let lane = lanes.trailing_zeros() as usize & 31;
        // SAFETY: lowering made `a` and, with a count, `b` rows of 32 bits; the frame is current.
        let (ids, counts) = unsafe {
            let counts = if op.imm & bar::COUNT != 0 { cx.src(op.b) } else { cx.src(op.a) };
            let get = |row| lanes_of(lanes).map(|l| lane_of::<u32>(row, l)).collect::<Vec<_>>();
            (get(cx.src(op.a)), get(counts))
        };
        let (id, count) = (ids[0], if op.imm & bar::COUNT != 0 { counts[0] } else { 0 });
        let wrong = if ids.iter().any(|&i| i != id) || counts.iter().any(|&c| c != counts[0]) {
            Some("lanes of one warp give different barrier operands".to_string())
        } else if id > 15 {
            Some(format!("barrier {id} does not exist; there are barriers 0 to 15"))
        } else if count % 32 != 0 || (count == 0 && op.imm & bar::COUNT != 0) {
            Some(format!("a barrier counts whole warps, not {count} threads"))
        } else {
            None
        };
        if let Some(detail) = wrong {
            return cx.raise(op, FaultKind::DivergentBarrier, lane as u32, None, detail);
        }
        let barrier = &mut barriers[id as usize];
        let first = barrier.set == 0 && barrier.arrived == 0 && self.at_barrier[id as usize] == 0;
        if first {
            barrier.expected = count;
        } else if barrier.expected != count {
            let detail = format!("barrier {id} is waited for with {} threads and with {count}", barrier.expected);
            return cx.raise(op, FaultKind::DivergentBarrier, lane as u32, None, detail);
        }
        if op.imm & bar::KIND >= bar::RED_POPC {
            // SAFETY: lowering made `q` a predicate of the frame.
            let yes = (unsafe { cx.pred(op.q) } & lanes).count_ones();
            barrier.yes += yes;
            barrier.no += lanes.count_ones() - yes;
        }
        self.at_barrier[id as usize] |= lanes;
        if op.imm & bar::KIND == bar::ARRIVE {
            self.add(pc + 1, lanes, frame, State::Ready);
        } else {
            self.add(pc, lanes, frame, State::Barrier { id });
        }
        self.arrived(cx, Arrival { id }, op.imm & bar::ALIGNED != 0, barriers)
    }

    /// Counts the warp's arrival at a barrier if all its lanes are there.
    fn arrived(&mut self, cx: &mut Cx, arrival: Arrival, aligned: bool, barriers: &mut [Barrier; 16]) -> Flow {
        let id = arrival.id;
        let lanes = self.at_barrier[id as usize];
        if lanes == 0 || self.live & !lanes != 0 {
            return Flow::Next;
        }
        let mut waiting = self.splits.iter().filter(|s| s.state == State::Barrier { id });
        if aligned
            && let Some(first) = waiting.next()
            && let Some(other) = waiting.find(|s| s.pc != first.pc)
        {
            let (here, elsewhere) = (first.mask, other.mask);
            let detail = format!(
                "lanes of one warp wait at different aligned barriers: {here:#010x} here, {elsewhere:#010x} elsewhere"
            );
            // SAFETY: positions of splits lie inside the code.
            let op = unsafe { &*cx.code.add(first.pc as usize) };
            return cx.raise(op, FaultKind::DivergentBarrier, here.trailing_zeros() & 31, None, detail);
        }
        self.at_barrier[id as usize] = 0;
        let barrier = &mut barriers[id as usize];
        barrier.set |= 1 << self.index;
        barrier.arrived += 1;
        cx.counters.barriers += 1;
        cx.progress += 1;
        Flow::Next
    }

    /// After an exit, arrivals that waited for the lanes that are gone.
    fn arrivals(&mut self, cx: &mut Cx, program: &Program, barriers: &mut [Barrier; 16]) -> Flow {
        for id in 0..16 {
            if self.at_barrier[id as usize] == 0 {
                continue;
            }
            let aligned = self.splits.iter().any(|s| {
                s.state == State::Barrier { id } && program.ops[s.pc as usize].imm & bar::ALIGNED != 0
            });
            if self.arrived(cx, Arrival { id }, aligned, barriers) == Flow::Fault {
                return Flow::Fault;
            }
        }
        Flow::Next
    }

    /// Lets the splits that wait at a barrier go on.
    pub(crate) fn release(&mut self, cx: &mut Cx, program: &Program, pools: &[Vec<Row>], id: u32, barrier: &Barrier) {
        for i in 0..self.splits.len() {
            let split = self.splits[i];
            if split.state != (State::Barrier { id }) {
                continue;
            }
            self.splits[i].state = State::Ready;
            self.splits[i].pc = split.pc + 1;
            let op = &program.ops[split.pc as usize];
            if op.imm & bar::KIND < bar::RED_POPC {
                continue;
            }
            self.enter(cx, program, pools, split.frame);
            cx.active = split.mask;
            // SAFETY: lowering made `d` a row of 32 bits for popc, and `p` a predicate.
            unsafe {
                match op.imm & bar::KIND {
                    bar::RED_POPC => lanes_of(split.mask).for_each(|l| super::lanes::set_lane(cx.dst(op.d), l, barrier.yes)),
                    bar::RED_AND => cx.set_pred(op.p, if barrier.no == 0 { !0 } else { 0 }),
                    _ => cx.set_pred(op.p, if barrier.yes != 0 { !0 } else { 0 }),
                }
            }
        }
    }

    /// Lanes enter a function.
    fn call(&mut self, cx: &mut Cx, program: &Program, op: &Op, pc: u32, lanes: u32, frame: u32) -> Flow {
        let call = &program.calls[op.x as usize];
        let lane = lanes.trailing_zeros() & 31;
        match call.target {
            Target::Assert => {
                let detail = self.assertion(cx, &call.args, lane as usize);
                cx.raise(op, FaultKind::AssertFailed, lane, None, detail)
            }
            Target::Function(function) => self.enter_function(cx, program, op, pc, lanes, frame, function),
            Target::Indirect(row) => {
                let mut rest = lanes;
                while rest != 0 {
                    let lane = rest.trailing_zeros() as usize;
                    // SAFETY: lowering made `row` a row of 64 bits of the frame, which is current.
                    let address = |l| unsafe { lane_of::<u64>(cx.src(row), l) };
                    let target = address(lane);
                    let together = lanes_of(rest).filter(|&l| address(l) == target).fold(0, |m, l| m | 1 << l);
                    rest &= !together;
                    let index = target.wrapping_sub(super::space::CODE_WINDOW) / 16;
                    let function = program.functions.get(index as usize).filter(|f| f.entry != u32::MAX);
                    let fits = function.is_some_and(|f| target % 16 == 0 && f.params.len() == call.args.len());
                    if !fits {
                        let detail = format!("indirect call to {target:#x}, which is not a function with these parameters");
                        return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, Some(target), detail);
                    }
                    if self.enter_function(cx, program, op, pc, together, frame, index as u32) == Flow::Fault {
                        return Flow::Fault;
                    }
                    // The register file may have moved.
                    cx.regs = self.rows(frame);
                }
                Flow::Next
            }
        }
    }

    fn rows(&mut self, frame: u32) -> *mut u8 {
        let at = self.frames[frame as usize].row as usize;
        // SAFETY: the frame's rows lie inside the register file.
        unsafe { self.regs.as_mut_ptr().cast::<u8>().add(at) }
    }

    #[allow(clippy::too_many_arguments)]
    fn enter_function(&mut self, cx: &mut Cx, program: &Program, op: &Op, pc: u32, lanes: u32, frame: u32, function: u32) -> Flow {
        let caller = self.frames[frame as usize];
        let (from, to) = (&program.functions[caller.function as usize], &program.functions[function as usize]);
        let next = Frame {
            parent: frame,
            function,
            call: op.x,
            return_to: pc + 1,
            depth: caller.depth + 1,
            row: caller.row + from.row_bytes,
            pred: caller.pred + from.preds,
            local: (caller.local + from.local_bytes).next_multiple_of(16),
        };
        if next.depth > MAX_DEPTH || next.local + to.local_bytes > MAX_LOCAL {
            let detail = format!(
                "{} nested calls, {} bytes of local memory; the limits are {MAX_DEPTH} and {MAX_LOCAL}",
                next.depth,
                next.local + to.local_bytes
            );
            return cx.raise(op, FaultKind::StackOverflow, lanes.trailing_zeros() & 31, None, detail);
        }
        let frames = &mut self.frames;
        let id = *self.known.entry((frame, pc, function)).or_insert_with(|| {
            frames.push(next);
            frames.len() as u32 - 1
        });
        self.reserve(&next, to);
        self.clear(&next, to, lanes);
        for (arg, param) in program.calls[op.x as usize].args.iter().zip(&to.params) {
            self.copy_local(caller.local + arg.at, next.local + param.at, arg.size.min(param.size), lanes);
        }
        self.add(to.entry, lanes, id, State::Ready);
        Flow::Next
    }

    /// Lanes return from a function.
    fn give_back(&mut self, program: &Program, lanes: u32, frame: u32) {
        let callee = self.frames[frame as usize];
        let caller = self.frames[callee.parent as usize];
        let function = &program.functions[callee.function as usize];
        for (to, from) in program.calls[callee.call as usize].returns.iter().zip(&function.returns) {
            self.copy_local(callee.local + from.at, caller.local + to.at, from.size.min(to.size), lanes);
        }
        self.add(callee.return_to, lanes, callee.parent, State::Ready);
    }

    fn copy_local(&mut self, from: u32, to: u32, bytes: u32, lanes: u32) {
        for word in 0..bytes.div_ceil(4) {
            let row = self.local[(from / 4 + word) as usize];
            let into = &mut self.local[(to / 4 + word) as usize].0;
            lanes_of(lanes).for_each(|l| into[l] = row.0[l]);
        }
    }

    /// The text of a failed assertion: `__assertfail(message, file, line, function, character size)`.
    fn assertion(&self, cx: &mut Cx, args: &[Slot], lane: usize) -> String {
        let word = |at: u32| self.local.get(((cx.local_base + at) / 4) as usize).map_or(0, |r| r.0[lane]);
        let number = |i: usize| {
            args.get(i).map_or(0, |s| {
                let high = if s.size > 4 { u64::from(word(s.at + 4)) << 32 } else { 0 };
                u64::from(word(s.at)) | high
            })
        };
        let text = |address: u64| {
            let Some(entry) = crate::memory::lookup(&cx.memory, address) else { return "?".to_string() };
            let at = address - entry.base;
            let bytes = (at..entry.size.min(at + 256)).map(|i| {
                // SAFETY: `i` is inside the allocation, which the snapshot keeps alive.
                unsafe { entry.host().add(i as usize).read() ^ entry.key as u8 }
            });
            String::from_utf8_lossy(&bytes.take_while(|&b| b != 0).collect::<Vec<_>>()).into_owned()
        };
        format!("{}:{}: {}: assertion `{}` failed", text(number(1)), number(2), text(number(3)), text(number(0)))
    }
}

/// Executes a split until something needs the scheduler; gives that and where it happened.
fn run_split(cx: &mut Cx, pc: u32) -> (Flow, u32) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt")]
    unsafe fn with_popcnt(cx: &mut Cx, pc: u32) -> (Flow, u32) {
        // SAFETY: as for the portable call.
        unsafe { run_body(cx, pc) }
    }
    #[cfg(target_arch = "x86_64")]
    if super::lanes::simd() {
        // SAFETY: `simd` says that the feature is there.
        return unsafe { with_popcnt(cx, pc) };
    }
    // SAFETY: splits only ever stand at positions that lowering made.
    unsafe { run_body(cx, pc) }
}

/// # Safety
/// `pc` is a position in the code, the context stands in a frame of that code's function, and the host has
/// the features that the code's handlers were chosen for.
#[inline(always)]
unsafe fn run_body(cx: &mut Cx, mut pc: u32) -> (Flow, u32) {
    let mut start = pc;
    loop {
        // SAFETY: every path through a function ends in an operation that jumps or stops, so `pc` stays inside the code.
        let op = unsafe { &*cx.code.add(pc as usize) };
        // SAFETY: guards are predicates of the frame.
        let active = cx.mask & unsafe { cx.pred(op.guard) };
        cx.active = active;
        if active != cx.mask {
            // SAFETY: there is one weight more than there are operations.
            let weight = unsafe { *cx.weights.add(pc as usize + 1) - *cx.weights.add(pc as usize) };
            let off = u64::from((cx.mask & !active).count_ones()) * u64::from(weight);
            cx.counters.lane_instructions = cx.counters.lane_instructions.wrapping_sub(off);
            if active == 0 {
                pc += 1;
                continue;
            }
        }
        // SAFETY: the contract of handlers, which lowering established for this operation.
        let flow = unsafe { (op.f)(cx, op) };
        if flow == Flow::Next {
            pc += 1;
            continue;
        }
        // SAFETY: there is one weight more than there are operations.
        let issued = u64::from(unsafe { *cx.weights.add(pc as usize + 1) - *cx.weights.add(start as usize) });
        cx.counters.warp_instructions += issued;
        cx.counters.lane_instructions =
            cx.counters.lane_instructions.wrapping_add(issued * u64::from(cx.mask.count_ones()));
        cx.executed += issued;
        if flow != Flow::Jump {
            return (flow, pc);
        }
        let next = cx.next;
        if next <= pc {
            cx.spins += 1;
            if cx.executed > cx.limit {
                let detail = format!("a block has executed {} instructions", cx.executed);
                return (cx.raise(op, FaultKind::InstructionLimit, active.trailing_zeros() & 31, None, detail), pc);
            }
            if cx.spins >= if cx.sync_seen { SPINS } else { LONG_SPINS } {
                return (Flow::Yield, pc);
            }
        }
        if next >= cx.stop {
            return (Flow::Jump, pc);
        }
        pc = next;
        start = next;
    }
}
