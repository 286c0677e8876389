//! Lowering: from the syntax tree to executable code.
//!
//! Per function: instructions are decoded into operations over virtual registers ([`proto`],
//! `decode`), basic blocks are laid out ([`graph`]), registers get places ([`allocate`]), and operations
//! are emitted. Whatever is not supported is an error with its line; lowering goes on
//! behind it, so that all errors are reported at once. The work is linear in the size of the code
//! but for nested loops and registers that live across blocks.

mod access;
mod allocate;
mod asynchronous;
mod behind;
mod compare;
mod convert;
mod decode;
mod facts;
mod floating;
mod flow;
mod graph;
mod integer;
mod matrix;
mod mods;
mod notes;
mod objects;
mod operand;
mod proto;
mod registers;
mod seeds;
mod special;
mod video;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::exec::{Op, control};
use crate::module::{KernelInfo, ParamInfo};
use crate::program::{Const, Debug, Entry, Function, Global, Program, SharedVariable, Slot, Target};
use crate::ptx::ast::{self, Linkage, Pos, Space};
use crate::ptx::{self, Diagnostic};
use allocate::{Places, Shape};
use operand::{P, Symbol, X};
use proto::{Builder, Kind};

/// Statically declared shared memory of a kernel, and constant memory of a module.
const MAX_STATIC_SHARED: u64 = 48 << 10;
const MAX_CONST: u64 = 64 << 10;

/// A module in its executable form.
pub(crate) struct Lowered {
    pub program: Program,
    pub kernels: Vec<KernelInfo>,
    /// Entries that are not in the program, because they reach something that is not supported: name and reasons.
    pub refused: Vec<(String, Vec<Diagnostic>)>,
}

/// Lowers a module.
pub(crate) fn lower(module: &ast::Module, sm: u32) -> Result<Lowered, Vec<Diagnostic>> {
    let (errors, refused) = (Vec::new(), BTreeMap::new());
    let mut lowering = Lowering { module, sm, program: Program::default(), errors, refused, names: Rc::default() };
    lowering.variables();
    lowering.functions();
    let (kernels, refused) = lowering.entries();
    match lowering.errors.is_empty() {
        true => Ok(Lowered { program: lowering.program, kernels, refused }),
        // Everything that is wrong, once.
        false => Err(lowering.errors.into_iter().chain(lowering.refused.into_values().flatten()).collect()),
    }
}

/// Whether an error says that the module is right, but this machine cannot run it: such errors say so in these words.
fn unsupported(error: &Diagnostic) -> bool {
    error.message.contains("not supported")
}

struct Lowering<'a> {
    module: &'a ast::Module,
    sm: u32,
    program: Program,
    errors: Vec<Diagnostic>,
    /// By function: what in it is not supported.
    refused: BTreeMap<u32, Vec<Diagnostic>>,
    names: Rc<HashMap<&'a str, Symbol>>,
}

impl<'a> Lowering<'a> {
    fn error(&mut self, pos: Pos, message: impl Into<String>) {
        self.errors.push(Diagnostic::new(pos, message));
    }

    /// Gives the module's variables their entries.
    fn variables(&mut self) {
        let module = self.module;
        // Definitions win over `.extern` declarations of the same name; so do functions with a body.
        for (i, f) in module.functions.iter().enumerate() {
            let declared = self.names.get(f.name.as_str());
            if declared.is_none() || f.body.is_some() {
                Rc::make_mut(&mut self.names).insert(&f.name, Symbol::Function(i as u32));
            }
        }
        let mut constants = 0u64;
        for v in &module.variables {
            let known = self.names.contains_key(v.name.as_str());
            if v.linkage == Linkage::Extern && v.space != Space::Shared {
                if !module.variables.iter().any(|o| o.name == v.name && o.linkage != Linkage::Extern) {
                    self.error(v.pos, format!("Unresolved extern variable '{}'", v.name));
                }
                continue;
            }
            if known && v.linkage == Linkage::Extern {
                continue;
            }
            if v.space == Space::Const {
                constants = constants.saturating_add(v.size);
            }
            self.variable(v);
        }
        if constants > MAX_CONST {
            self.error(Pos::default(), format!("{constants} bytes of constant memory, {MAX_CONST} is the most"));
        }
        // Addresses in initialisers, now that all names are known.
        let mut at = 0;
        for v in &module.variables {
            if !matches!(v.space, Space::Global | Space::Const) || v.linkage == Linkage::Extern {
                continue;
            }
            for r in &v.relocations {
                let value = match self.names.get(r.symbol.as_str()) {
                    Some(&(Symbol::Global(i) | Symbol::Const(i))) => Const::Global(i, r.addend),
                    Some(&Symbol::Function(i)) => Const::Function(i),
                    _ => {
                        self.error(v.pos, format!("the address of '{}' cannot be used in an initialiser", r.symbol));
                        continue;
                    }
                };
                if r.at.checked_add(8).is_none_or(|end| end > v.size) {
                    self.error(v.pos, "an address in the initialiser lies outside the variable");
                    continue;
                }
                self.program.globals[at].addresses.push((r.at, value));
            }
            at += 1;
        }
    }

    /// Adds one variable outside functions, or shared inside.
    fn variable(&mut self, v: &'a ast::Variable) {
        let symbol = match v.space {
            Space::Shared => {
                self.program.shared.push(SharedVariable { name: v.name.clone(), size: v.size, align: v.align.max(1) });
                Symbol::Shared(self.program.shared.len() as u32 - 1)
            }
            Space::Global | Space::Const => {
                self.program.globals.push(global(v));
                in_memory(v, self.program.globals.len() as u32 - 1)
            }
            _ => {
                self.error(v.pos, format!("variable '{}' cannot be declared here", v.name));
                return;
            }
        };
        Rc::make_mut(&mut self.names).insert(&v.name, symbol);
    }

    fn functions(&mut self) {
        let module = self.module;
        for (index, function) in module.functions.iter().enumerate() {
            let before = self.errors.len();
            let lowered = match &function.body {
                Some(body) => self.function(function, body),
                None => Function { entry: u32::MAX, ..Function::default() },
            };
            self.program.functions.push(lowered);
            if self.errors.len() > before && self.errors[before..].iter().all(unsupported) {
                self.refused.insert(index as u32, self.errors.split_off(before));
            }
        }
        self.program.weights.push(self.program.weights.last().copied().unwrap_or(0));
    }

    /// Lowers a function with a body.
    fn function(&mut self, function: &'a ast::Function, body: &'a ast::Body) -> Function {
        let before = self.errors.len();
        let mut builder = Builder::new(&self.module.functions, function, body, Rc::clone(&self.names));
        builder.sm = self.sm;
        builder.first_call = self.program.calls.len() as u32;
        builder.first_site = self.program.sites;
        let cluster =
            function.directives.reqnctapercluster.map_or(1, |c| c.iter().fold(1, |n, &k| n * u64::from(k.max(1))));
        if cluster > 1 {
            let name = &function.name;
            self.error(
                function.pos,
                format!("`{name}`: clusters of several blocks (.reqnctapercluster) are not supported"),
            );
        }
        let mut result = Function { entry: u32::MAX, ..Function::default() };
        self.declare(&mut builder, &mut result);
        let mut starts = Vec::with_capacity(body.instructions.len() + 1);
        if let Err(message) = builder.load_params() {
            self.error(function.pos, message);
        }
        for (at, instruction) in body.instructions.iter().enumerate() {
            // Parameters in registers are loaded before the first instruction.
            starts.push(if at == 0 { 0 } else { builder.protos.len() });
            let kept = builder.protos.len();
            let decoded = builder.begin(at, instruction).and_then(|()| builder.decode(instruction));
            if let Err(message) = decoded {
                builder.protos.truncate(kept);
                // What no ISA has is an error of the module, not a limit of this machine.
                let known = ptx::isa::knows(instruction);
                let message = if known { message } else { message.replace("is not supported", "is unknown") };
                self.error(instruction.pos, message);
            }
        }
        starts.push(builder.protos.len());
        builder.at = body.instructions.len().saturating_sub(1) as u32;
        if let Err(message) = builder.end() {
            self.error(function.pos, message);
        }
        result.reductions = builder.settle_reductions();
        result.approximate = builder.approximate;
        if self.errors.len() == before {
            let labels: Vec<usize> = body.labels.iter().map(|l| starts.get(l.1).copied().unwrap_or(0)).collect();
            if let Err(message) = self.emit(&mut builder, body, &labels, &mut result) {
                self.error(function.pos, message);
            }
        }
        if self.errors.len() > before {
            // It has no code, but what it calls is known.
            return Function { entry: u32::MAX, callees: builder.callees, ..Function::default() };
        }
        result
    }

    /// Gives parameters and the body's variables their places.
    fn declare(&mut self, b: &mut Builder<'a>, result: &mut Function) {
        let function = b.function;
        if function.is_entry {
            for p in &function.params {
                b.locals.insert(&p.name, Symbol::Param(p.offset, p.size));
            }
        } else {
            for (params, to) in [(&function.returns, &mut result.returns), (&function.params, &mut result.params)] {
                for p in params {
                    match b.reserve(p.size, p.align) {
                        Ok(at) => {
                            b.locals.insert(&p.name, Symbol::Slot(at, p.size));
                            to.push(Slot { at, size: p.size });
                        }
                        Err(message) => self.errors.push(Diagnostic::new(function.pos, message)),
                    }
                }
            }
        }
        for v in &b.body.variables {
            match v.space {
                Space::Local | Space::Param => {
                    let size = u32::try_from(v.size).unwrap_or(u32::MAX);
                    match b.reserve(size, v.align) {
                        Ok(at) if v.space == Space::Local => {
                            result.declared_local += size;
                            b.locals.insert(&v.name, Symbol::Local(at));
                        }
                        Ok(at) => {
                            b.alignments.insert(&v.name, v.align);
                            b.locals.insert(&v.name, Symbol::Slot(at, size));
                        }
                        Err(message) => self.errors.push(Diagnostic::new(v.pos, message)),
                    }
                }
                Space::Shared => {
                    self.program.shared.push(SharedVariable {
                        name: v.name.clone(),
                        size: v.size,
                        align: v.align.max(1),
                    });
                    b.locals.insert(&v.name, Symbol::Shared(self.program.shared.len() as u32 - 1));
                }
                Space::Global | Space::Const => {
                    self.program.globals.push(global(v));
                    b.locals.insert(&v.name, in_memory(v, self.program.globals.len() as u32 - 1));
                    if !v.relocations.is_empty() {
                        let message = "addresses in an initialiser inside a function are not supported";
                        self.errors.push(Diagnostic::new(v.pos, message));
                    }
                }
                _ => self.errors.push(Diagnostic::new(v.pos, "a variable of this space cannot be declared here")),
            }
        }
    }

    /// Lays out the decoded code and appends it to the program.
    fn emit(
        &mut self,
        b: &mut Builder<'_>,
        body: &ast::Body,
        labels: &[usize],
        result: &mut Function,
    ) -> Result<(), String> {
        let blocks = graph::blocks(&b.protos, labels);
        let order = graph::layout(&blocks);
        let shape = if b.function.is_entry { Shape::Packed } else { Shape::Units };
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
                if proto.kind != Kind::Plain && proto.kind != Kind::Stop {
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
            let Some(next) = this.next.filter(|_| !matches!(last, Kind::Branch(_))) else { continue };
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
            p: crate::exec::PRED_SINK,
            r: crate::exec::PRED_SINK,
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
        blocks: &[graph::Block],
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
                Kind::Jump(_) => self.program.ops[op].x = at(this.targets.first().copied())?,
                Kind::Branch(_) => {
                    self.program.ops[op].x = at(this.targets.first().copied())?;
                    self.program.ops[op].c = at(this.next)?;
                }
                Kind::Indexed(list) => {
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
                Kind::Plain | Kind::Stop => {}
            }
        }
        Ok(())
    }

    /// Takes over what the builder has gathered besides code.
    fn collect(&mut self, b: &mut Builder<'_>, places: &Places, result: &mut Function) {
        for mut call in b.calls.drain(..) {
            if let Target::Indirect(register) = call.target {
                call.target = Target::Indirect(places.slot.get(register as usize).copied().unwrap_or(0));
            }
            self.program.calls.push(call);
        }
        self.program.sites += b.sites;
        for &r in &places.unset {
            let slot = places.slot[r as usize];
            match b.classes[r as usize] {
                operand::Class::Pred => result.unset_preds.push(slot),
                class => result.unset_rows.push((slot, class == operand::Class::Wide)),
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
        result.talks = b.talks;
        result.reserved = b.reserved;
    }

    /// Works out what each kernel needs, callees included; and which cannot run, and why.
    fn entries(&mut self) -> (Vec<KernelInfo>, Vec<(String, Vec<Diagnostic>)>) {
        let (mut kernels, mut refused) = (Vec::new(), Vec::new());
        let constants =
            self.module.variables.iter().filter(|v| v.space == Space::Const && v.linkage != Linkage::Extern);
        // `declare` has refused more than fits.
        let constants =
            constants.fold(0u64, |end, v| end.next_multiple_of(v.align.max(1).into()).saturating_add(v.size));
        let constants = u32::try_from(constants).unwrap_or(u32::MAX);
        for (index, function) in self.module.functions.iter().enumerate() {
            if !function.is_entry || function.body.is_none() {
                continue;
            }
            let reachable = self.reachable(index as u32);
            let reasons = reachable.iter().filter_map(|i| self.refused.get(i)).flatten().cloned();
            let reasons: Vec<Diagnostic> = reasons.collect();
            if !reasons.is_empty() {
                refused.push((function.name.clone(), reasons));
                continue;
            }
            let of = |i: &u32| &self.program.functions[*i as usize];
            let mut variables: Vec<u32> = reachable.iter().flat_map(|i| of(i).shared.iter().copied()).collect();
            variables.sort_unstable();
            variables.dedup();
            let (mut shared, mut end, mut dynamic) = (Vec::new(), 0u64, 1u64);
            for &i in &variables {
                let v = &self.program.shared[i as usize];
                if v.size == 0 {
                    dynamic = dynamic.max(v.align.into());
                    continue;
                }
                end = end.next_multiple_of(v.align.into());
                shared.push((i, end as u32));
                end = end.saturating_add(v.size);
                if end > MAX_STATIC_SHARED {
                    break;
                }
            }
            if end > MAX_STATIC_SHARED {
                let name = &function.name;
                let message = format!(
                    "Entry function '{name}' uses too much shared data ({end:#x} bytes, {MAX_STATIC_SHARED:#x} max)"
                );
                self.errors.push(Diagnostic::new(function.pos, message));
            }
            let start = end.next_multiple_of(dynamic.clamp(16, 4096));
            let start = if dynamic > 1 || variables.len() > shared.len() { start } else { end };
            let start = start as u32;
            shared
                .extend(variables.iter().filter(|&&i| self.program.shared[i as usize].size == 0).map(|&i| (i, start)));
            let reductions = reachable.iter().fold(0, |kinds, i| kinds | of(i).reductions);
            // Reductions of different kinds do not commute with each other.
            let serial = reachable.iter().any(|i| of(i).talks) || reductions.count_ones() > 1;
            let local = reachable.iter().map(|i| of(i).declared_local).fold(0, u32::saturating_add);
            let registers = reachable.iter().map(|i| of(i).registers).max().unwrap_or(0);
            let param_bytes = function.params.iter().map(|p| p.offset.saturating_add(p.size)).max().unwrap_or(0);
            kernels.push(KernelInfo {
                name: function.name.clone(),
                params: function
                    .params
                    .iter()
                    .map(|p| ParamInfo { name: p.name.clone(), offset: p.offset, size: p.size, align: p.align })
                    .collect(),
                param_bytes,
                max_threads: function.directives.maxntid,
                required_threads: function.directives.reqntid,
                min_blocks: function.directives.minnctapersm,
                static_shared: start,
                local_bytes: local,
                // A few for addresses and scratch that an assembler always needs.
                registers: (registers + 8).min(255).min(function.directives.maxnreg.unwrap_or(255)),
                const_bytes: constants,
            });
            let approximate = reachable.iter().fold(0, |set, i| set | of(i).approximate);
            let reserved = reachable.iter().any(|i| of(i).reserved);
            let (function, shared_bytes) = (index as u32, start);
            let entry = Entry { function, reachable, shared, shared_bytes, serial, approximate, reserved };
            self.program.entries.push(entry);
        }
        (kernels, refused)
    }

    fn reachable(&self, from: u32) -> Vec<u32> {
        let mut seen = vec![false; self.program.functions.len()];
        let mut list = vec![from];
        seen[from as usize] = true;
        // Functions whose addresses stand in variables can be called from anywhere.
        let addressed = self.program.globals.iter().flat_map(|g| g.addresses.iter()).filter_map(|a| match a.1 {
            Const::Function(i) => Some(i),
            _ => None,
        });
        for i in addressed {
            if !std::mem::replace(&mut seen[i as usize], true) {
                list.push(i);
            }
        }
        let mut next = 0;
        while let Some(&f) = list.get(next) {
            next += 1;
            for &callee in &self.program.functions[f as usize].callees {
                if !std::mem::replace(&mut seen[callee as usize], true) {
                    list.push(callee);
                }
            }
        }
        list
    }
}

fn global(v: &ast::Variable) -> Global {
    Global {
        name: v.name.clone(),
        size: v.size,
        align: v.align.max(1),
        constant: v.space == Space::Const,
        init: v.init.clone(),
        addresses: Vec::new(),
    }
}

/// What the name of a `.global` or `.const` variable stands for.
fn in_memory(v: &ast::Variable, index: u32) -> Symbol {
    if v.space == Space::Const { Symbol::Const(index) } else { Symbol::Global(index) }
}

/// A jump in the place of another operation.
fn bare(like: &proto::Proto) -> proto::Proto {
    proto::Proto {
        f: control::jump,
        d: operand::V::None,
        a: operand::V::None,
        b: operand::V::None,
        c: operand::V::None,
        p: P::Sink,
        r: P::Sink,
        q: P::True,
        guard: P::True,
        imm: 0,
        x: X::Raw(0),
        list: None,
        kind: Kind::Plain,
        apart: false,
        instruction: like.instruction,
        weight: 0,
        carry: (false, false),
        facts: facts::Facts::registers(crate::note::Taint::Defined),
        class: crate::note::Class::Control,
        work: crate::note::Work::None,
    }
}

/// An operation with its registers in their places.
fn operation(p: &proto::Proto, places: &Places, debug: u32, lists: &mut Vec<u32>) -> Op {
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
