//! Emission: decoded functions become code, in the order of their blocks and with registers in their places.

use super::allocate::{self, FrameLayout, Places};
use super::facts::Facts;
use super::operand::{P, RegisterClass, V, X};
use super::proto::{Builder, Control, Proto};
use super::{Lowering, behind, dependents, graph, notes, objects, polls, seeds};
use crate::exec::{Op, PRED_SINK, control};
use crate::note::{Class, Taint, Work};
use crate::program::{Callee, Debug, Function, Overlap};
use crate::ptx::ast;

impl Lowering<'_> {
    /// Lays out the decoded code and appends it to the program.
    pub(super) fn emit(
        &mut self,
        b: &mut Builder<'_>,
        body: &ast::Body,
        labels: &[usize],
        result: &mut Function,
    ) -> Result<(), String> {
        let blocks = graph::blocks(&b.protos, labels);
        let order = graph::layout(&blocks);
        let shape = if b.function.is_entry { FrameLayout::Packed } else { FrameLayout::Units };
        let places = allocate::allocate(&b.protos, &blocks, &order, &b.classes, shape)?;
        let mut predecessors = vec![0u32; blocks.len()];
        for &block in &order {
            blocks[block].successors().for_each(|s| predecessors[s] += 1);
        }
        let program = &mut self.program;
        let debug = program.debug.len() as u32;
        let locations = program.locations.len() as u32;
        program.locations.extend(body.locations.iter().cloned());
        program.debug.extend(
            body.instructions
                .iter()
                .map(|i| Debug { line: i.pos.line, location: i.loc.map_or(u32::MAX, |l| locations + l) }),
        );
        if body.instructions.is_empty() {
            program.debug.push(Debug { line: b.function.pos.line, location: u32::MAX });
        }
        result.entry = program.ops.len() as u32;
        result.dependents = dependents::dependents(b, &blocks);
        let (seeds, holds) = (seeds::seeds(body), objects::holds(b));
        let notes = &mut program.notes;
        let (mut marks, groups) = behind::marks(b, &blocks, notes.groups);
        notes.groups = groups;
        let mut position = vec![u32::MAX; blocks.len()];
        // Operations whose targets are not known yet: position in the code, block.
        let mut patches = Vec::new();
        let mut weight = program.weights.last().copied().unwrap_or(0);
        for (n, &block) in order.iter().enumerate() {
            position[block] = program.ops.len() as u32;
            let this = &blocks[block];
            for (at, proto) in (this.start..).zip(&b.protos[this.start..this.end]) {
                if proto.kind != Control::Plain && proto.kind != Control::Stop {
                    patches.push((program.ops.len(), block));
                }
                let op = operation(proto, &places, debug, &mut program.lists);
                let mut note = notes::note(b, proto, &places, (&seeds, &holds), notes);
                if let Some(marks) = marks.remove(&at) {
                    (note.busy, note.marked) = (true, true);
                    notes.marks.insert(program.ops.len() as u32, marks);
                }
                notes.notes.push(note);
                program.ops.push(op);
                program.weights.push(weight);
                weight += proto.weight;
            }
            let last = b.protos[this.end - 1].kind.clone();
            let Some(next) = this.next.filter(|_| !matches!(last, Control::Branch(_))) else { continue };
            // Splits meet only where control jumps to.
            if order.get(n + 1) == Some(&next) && predecessors[next] == 1 {
                continue;
            }
            let blank = &b.protos[this.end - 1];
            let mut op = operation(&bare(blank), &places, debug, &mut program.lists);
            op.x = next as u32;
            patches.push((program.ops.len(), usize::MAX));
            notes.notes.push(notes::blank(notes));
            program.ops.push(op);
            program.weights.push(weight);
        }
        self.patch(&patches, &blocks, &position, b, labels)?;
        self.finish_weights(weight);
        self.collect(b, &places, result);
        Ok(())
    }

    /// Weights are those before an operation; the total goes behind the function.
    fn finish_weights(&mut self, total: u32) {
        // A sentinel operation keeps weights of neighbouring functions apart: it is never reached.
        let trap = Op {
            f: control::trap,
            d: 0,
            a: 0,
            b: 0,
            c: 0,
            p: PRED_SINK,
            r: PRED_SINK,
            q: 0,
            guard: 0,
            imm: 0,
            x: 0,
            debug: (self.program.debug.len() as u32).saturating_sub(1),
        };
        let notes = &mut self.program.notes;
        notes.notes.push(notes::blank(notes));
        self.program.ops.push(trap);
        self.program.weights.push(total);
    }

    /// Fills in the targets of jumps.
    fn patch(
        &mut self,
        patches: &[(usize, usize)],
        blocks: &[graph::BasicBlock],
        position: &[u32],
        b: &Builder<'_>,
        labels: &[usize],
    ) -> Result<(), String> {
        let lost = || "a jump leaves its function".to_string();
        let at = |block: Option<usize>| {
            block.and_then(|b| position.get(b)).copied().filter(|&p| p != u32::MAX).ok_or_else(lost)
        };
        for &(op, block) in patches {
            if block == usize::MAX {
                let next = self.program.ops[op].x as usize;
                self.program.ops[op].x = at(Some(next))?;
                continue;
            }
            let this = &blocks[block];
            match &b.protos[this.end - 1].kind {
                Control::Jump(_) => self.program.ops[op].x = at(this.targets.first().copied())?,
                Control::Branch(_) => {
                    self.program.ops[op].x = at(this.targets.first().copied())?;
                    self.program.ops[op].c = at(this.next)?;
                }
                Control::Indexed(list) => {
                    let start = self.program.lists.len() as u32;
                    self.program.lists.push(list.len() as u32);
                    for l in list {
                        let proto = labels.get(l.0 as usize).copied().ok_or_else(lost)?;
                        let target = blocks.binary_search_by_key(&proto, |b| b.start).ok();
                        let target = at(target)?;
                        self.program.lists.push(target);
                    }
                    self.program.ops[op].x = start;
                }
                Control::Plain | Control::Stop => {}
            }
        }
        Ok(())
    }

    /// Takes over what the builder has gathered besides code.
    fn collect(&mut self, b: &mut Builder<'_>, places: &Places, result: &mut Function) {
        for mut call in b.calls.drain(..) {
            if let Callee::Indirect(register) = call.target {
                call.target = Callee::Indirect(places.slot.get(register as usize).copied().unwrap_or(0));
            }
            self.program.calls.push(call);
        }
        self.program.sites += b.sites;
        for &r in &places.unset {
            let slot = places.slot[r as usize];
            match b.classes[r as usize] {
                RegisterClass::Pred => result.unset_preds.push(slot),
                class => result.unset_rows.push((slot, class == RegisterClass::Wide)),
            }
        }
        result.row_bytes = places.row_bytes;
        result.preds = places.preds;
        result.local_bytes = b.local_bytes;
        result.consts = std::mem::take(&mut b.consts);
        result.const_bytes = b.const_bytes;
        result.callees = std::mem::take(&mut b.callees);
        result.callees.sort_unstable();
        result.callees.dedup();
        result.shared = std::mem::take(&mut b.shared);
        result.registers = places.pressure;
        // How often a loop asks others is told by the counters, and must not depend on chance.
        let polls = b.overlap == Overlap::UntilTurn && polls::polls(b.body, b.function.is_entry);
        result.overlap = if polls { Overlap::None } else { b.overlap };
        result.reserved = b.reserved;
    }
}

/// A jump in the place of another operation.
fn bare(like: &Proto) -> Proto {
    Proto {
        f: control::jump,
        d: V::None,
        a: V::None,
        b: V::None,
        c: V::None,
        p: P::Sink,
        r: P::Sink,
        q: P::True,
        guard: P::True,
        imm: 0,
        x: X::Raw(0),
        list: None,
        kind: Control::Plain,
        apart: false,
        instruction: like.instruction,
        weight: 0,
        carry: (false, false),
        facts: Facts::registers(Taint::Defined),
        class: Class::Control,
        work: Work::None,
    }
}

/// An operation with its registers in their places.
fn operation(p: &Proto, places: &Places, debug: u32, lists: &mut Vec<u32>) -> Op {
    let x = match (&p.list, p.x) {
        (Some(list), _) => {
            let at = lists.len() as u32;
            lists.extend(&list.head);
            lists.extend(list.writes.iter().chain(&list.rows).map(|&v| places.row(v)));
            at
        }
        (None, X::Raw(x)) => x,
        (None, X::Row(v)) => places.row(v),
        (None, X::Pred(q)) => places.source(q).into(),
    };
    Op {
        f: p.f,
        d: places.row(p.d),
        a: places.row(p.a),
        b: places.row(p.b),
        c: places.row(p.c),
        p: places.pred(p.p),
        r: places.pred(p.r),
        q: places.source(p.q),
        guard: places.source(p.guard),
        imm: p.imm,
        x,
        debug: debug + p.instruction,
    }
}
