//! Calls: frames of functions, their parameters, their return.

use super::lanes::{lane_of, lanes_of};
use super::layout::{CODE_WINDOW, Row};
use super::warp::{Activation, State, Warp};
use super::{Cx, Flow, Op};
use crate::fault::{FaultKind, Reason};
use crate::observer::{Entered, LocalCopy};
use crate::program::{Callee, Function, Program};

/// Depth of calls, and bytes of local memory of a thread, before the stack overflows.
const MAX_DEPTH: u32 = 1024;
const MAX_LOCAL: u32 = 512 << 10;

impl Warp {
    /// Lanes enter a function.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn call(
        &mut self,
        cx: &mut Cx,
        program: &Program,
        pools: &[Vec<Row>],
        op: &Op,
        pc: u32,
        lanes: u32,
        frame: u32,
    ) -> Flow {
        let call = &program.calls[op.x as usize];
        match call.target {
            Callee::Library(which) => {
                let flow = self.library(cx, op, which, call, lanes);
                if flow != Flow::Fault {
                    self.add(pc + 1, lanes, frame, State::Ready);
                }
                flow
            }
            Callee::Function(function) => self.enter_function(cx, program, op, pc, lanes, frame, function),
            Callee::Indirect(row) => {
                let mut rest = lanes;
                while rest != 0 {
                    let lane = rest.trailing_zeros() as usize;
                    // SAFETY: lowering made `row` a row of 64 bits of the frame, which is current.
                    let address = |l| unsafe { lane_of::<u64>(cx.src(row), l) };
                    let target = address(lane);
                    let together = lanes_of(rest).filter(|&l| address(l) == target).fold(0, |m, l| m | 1 << l);
                    rest &= !together;
                    let index = target.wrapping_sub(CODE_WINDOW) / 16;
                    // Only functions that the kernel can name have their constants in place.
                    let known = |f: &&Function| {
                        f.entry != u32::MAX && (f.const_bytes == 0 || !pools[index as usize].is_empty())
                    };
                    let function = program.functions.get(index as usize).filter(known);
                    let fits = function.is_some_and(|f| target % 16 == 0 && f.params.len() == call.args.len());
                    if !fits {
                        let (kind, reason) = (FaultKind::IllegalInstruction, Reason::NoFunction { target });
                        return cx.raise(op, kind, lane as u32, Some(target), Some(reason));
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
    fn enter_function(
        &mut self,
        cx: &mut Cx,
        program: &Program,
        op: &Op,
        pc: u32,
        lanes: u32,
        frame: u32,
        function: u32,
    ) -> Flow {
        let caller = self.frames[frame as usize];
        let (from, to) = (&program.functions[caller.function as usize], &program.functions[function as usize]);
        let next = Activation {
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
            let (depth, local) = (next.depth, next.local + to.local_bytes);
            let reason = Reason::Calls { depth, local, limits: (MAX_DEPTH, MAX_LOCAL) };
            return cx.raise(op, FaultKind::StackOverflow, lanes.trailing_zeros() & 31, None, Some(reason));
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
        if cx.observer.is_some() {
            let slots = program.calls[op.x as usize].args.iter().zip(&to.params);
            let mut copies = slots.map(|(a, p)| LocalCopy {
                from: caller.local + a.at,
                to: next.local + p.at,
                bytes: a.size.min(p.size),
            });
            let entered = Entered { row: next.row, pred: next.pred, local: next.local, function: to, lanes };
            cx.observe(|o, cx| o.entered(cx, &entered, &mut copies));
        }
        self.add(to.entry, lanes, id, State::Ready);
        Flow::Next
    }

    /// Tells the observer that lanes have returned.
    pub(super) fn left(&self, cx: &mut Cx, program: &Program, lanes: u32, frame: u32) {
        if cx.observer.is_none() {
            return;
        }
        let callee = self.frames[frame as usize];
        let caller = self.frames[callee.parent as usize];
        let function = &program.functions[callee.function as usize];
        let slots = program.calls[callee.call as usize].returns.iter().zip(&function.returns);
        let mut copies = slots.map(|(to, from)| LocalCopy {
            from: callee.local + from.at,
            to: caller.local + to.at,
            bytes: from.size.min(to.size),
        });
        cx.observe(|o, cx| o.left(cx, lanes, &mut copies));
    }

    /// Lanes return from a function.
    pub(super) fn give_back(&mut self, program: &Program, lanes: u32, frame: u32) {
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
}
