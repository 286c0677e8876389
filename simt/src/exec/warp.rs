//! A warp: its splits and its frames.
//!
//! A *split* is a set of lanes at one position. Code is laid out so that lower positions come
//! first (loops are contiguous, before what follows them), so lanes that left a loop early wait for
//! the others behind it ([`scheduler`](super::scheduler)). Splits at one position merge.

use std::collections::HashMap;

use super::Cx;
use super::barrier::BARRIERS;
use super::lanes::lanes_of;
use super::layout::{LANES, POISON_ROW, PRED_CARRY, PRED_TRUE, ROW, Row};
use super::stack::Stack;
use crate::memory::POISON_KEY;
use crate::program::{Function, Program};

/// Why a split does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ready,
    /// In a collective of this kind and mask.
    Collective {
        imm: u64,
        mask: u32,
    },
    /// Before an instruction that the whole warp executes together.
    Converge,
    /// At a block barrier.
    Barrier {
        id: u32,
    },
}

/// Lanes at one position.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    pub pc: u32,
    pub mask: u32,
    pub frame: u32,
    pub state: State,
    /// When it last ran.
    pub(super) stamp: u64,
    pub(super) favour: u32,
}

/// An activation of a function; the same for all lanes that came the same way.
#[derive(Clone, Copy, Debug)]
pub struct Activation {
    pub(super) parent: u32,
    pub function: u32,
    pub(super) call: u32,
    pub(super) return_to: u32,
    pub(super) depth: u32,
    pub(super) row: u32,
    pub(super) pred: u32,
    pub(super) local: u32,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// All lanes have exited.
    Done,
    /// No split can run before other warps have.
    Blocked,
    /// It spins.
    Spinning,
    /// It waits for the turn of its block.
    Turn,
    Fault,
}

/// A warp of a block.
pub struct Warp {
    pub index: u32,
    pub live: u32,
    pub splits: Vec<Split>,
    pub(super) frames: Vec<Activation>,
    pub(super) known: HashMap<(u32, u32, u32), u32>,
    pub(super) regs: Vec<Row>,
    pub(super) preds: Vec<u32>,
    pub(super) local: Vec<Row>,
    /// One, on the heap: handlers reach it through the context.
    stack: Vec<Stack>,
    pub tid: [Row; 3],
    /// Lanes that have arrived at each barrier while others of the warp have not.
    pub at_barrier: [u32; BARRIERS],
    /// Lanes that have arrived at the barrier of the cluster and not waited yet, and those whose phase is not complete.
    pub(super) owed: u32,
    pub(super) pending: u32,
    /// It has come to where it waits for the turn of its block.
    pub waits_for_turn: bool,
    /// Where lanes have exited.
    pub exits: Vec<(u32, u32)>,
    pub(super) stamp: u64,
}

impl Warp {
    pub fn new(index: u32) -> Warp {
        Warp {
            index,
            live: 0,
            splits: Vec::new(),
            frames: Vec::new(),
            known: HashMap::new(),
            regs: Vec::new(),
            preds: Vec::new(),
            local: Vec::new(),
            stack: vec![Stack::default()],
            tid: [Row([0; LANES]); 3],
            at_barrier: [0; BARRIERS],
            owed: 0,
            pending: 0,
            waits_for_turn: false,
            exits: Vec::new(),
            stamp: 0,
        }
    }

    /// Prepares the warp to run a kernel from its start.
    pub fn start(&mut self, program: &Program, entry: u32, live: u32) {
        let Some(function) = program.functions.get(entry as usize) else { return };
        self.live = live;
        self.at_barrier = [0; BARRIERS];
        (self.owed, self.pending) = (0, 0);
        self.waits_for_turn = false;
        self.exits.clear();
        self.stamp = 0;
        self.frames.clear();
        self.known.clear();
        self.splits.clear();
        self.stack.iter_mut().for_each(Stack::clear);
        let root =
            Activation { parent: 0, function: entry, call: 0, return_to: 0, depth: 0, row: 0, pred: 0, local: 0 };
        self.frames.push(root);
        self.reserve(&root, function);
        self.clear(&root, function, !0);
        if live != 0 {
            let pc = function.entry;
            self.splits.push(Split { pc, mask: live, frame: 0, state: State::Ready, stamp: 0, favour: 0 });
        }
    }

    pub(super) fn reserve(&mut self, frame: &Activation, function: &Function) {
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
    pub(super) fn clear(&mut self, frame: &Activation, function: &Function, lanes: u32) {
        let blank = |row: &mut Row, value: u32| {
            if lanes == !0 {
                *row = Row([value; LANES]);
            } else {
                lanes_of(lanes).for_each(|l| row.0[l] = value);
            }
        };
        for &(at, wide) in &function.unset_rows {
            let first = ((frame.row + at) / ROW) as usize;
            match &mut self.regs[first..first + 1 + usize::from(wide)] {
                // Lane `l` of 64 bits has words `2 l` and `2 l + 1` of the two rows.
                [low, high] => {
                    for l in lanes_of(lanes) {
                        let row = if l < LANES / 2 { &mut *low } else { &mut *high };
                        row.0[2 * l % LANES..][..2].fill(0);
                    }
                }
                rows => rows.iter_mut().for_each(|r| blank(r, 0)),
            }
        }
        let preds = &mut self.preds[frame.pred as usize..];
        // Of these lanes only: here may be a predicate of another function, where other lanes are.
        preds[PRED_TRUE as usize] |= lanes;
        preds[PRED_CARRY as usize] &= !lanes;
        for &p in &function.unset_preds {
            preds[p as usize] &= !lanes;
        }
        let (from, to) = (frame.local / 4, (frame.local + function.local_bytes).div_ceil(4));
        self.local[from as usize..to as usize].iter_mut().for_each(|r| blank(r, POISON_KEY as u32));
    }

    /// Points the context at a frame of this warp.
    #[inline]
    pub fn enter(&mut self, cx: &mut Cx, program: &Program, pools: &[Vec<Row>], frame: u32) {
        let frame = self.frames[frame as usize];
        let function = &program.functions[frame.function as usize];
        // SAFETY: `reserve` made room for the frame behind each of these offsets.
        unsafe {
            cx.regs = self.regs.as_mut_ptr().cast::<u8>().add(frame.row as usize);
            cx.preds = self.preds.as_mut_ptr().add(frame.pred as usize);
        }
        (cx.frame_row, cx.frame_pred) = (frame.row, frame.pred);
        cx.local = self.local.as_mut_ptr().cast();
        cx.stack = self.stack.as_mut_ptr();
        cx.local_base = frame.local;
        cx.local_top = frame.local + function.local_bytes;
        cx.consts = pools[frame.function as usize].as_ptr().cast();
        cx.live = self.live;
    }

    #[inline]
    pub(super) fn depth(&self, split: &Split) -> u32 {
        self.frames[split.frame as usize].depth
    }

    /// Whether some split can run.
    #[inline]
    pub fn ready(&self) -> bool {
        self.splits.iter().any(|s| s.state == State::Ready)
    }

    /// Adds lanes at a position, with those that are there already.
    #[inline]
    pub fn add(&mut self, pc: u32, mask: u32, frame: u32, state: State) {
        if mask == 0 {
            return;
        }
        let same = self.splits.iter_mut().find(|s| s.pc == pc && s.frame == frame && s.state == state);
        match same {
            Some(split) => split.mask |= mask,
            None => self.splits.push(Split { pc, mask, frame, state, stamp: self.stamp, favour: 0 }),
        }
    }
}
