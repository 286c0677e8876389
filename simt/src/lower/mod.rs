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
mod calls;
mod collective;
mod compare;
mod convert;
mod dataflow;
mod decode;
mod dependents;
mod emit;
mod entries;
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
mod polls;
mod proto;
mod registers;
mod seeds;
mod special;
mod video;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::module::KernelInfo;
use crate::program::{Const, Function, GlobalVariable, Program, SharedVariable, Slot};
use crate::ptx::ast::{self, Linkage, Pos, Space};
use crate::ptx::{self, Diagnostic};
use operand::Symbol;
use proto::Builder;

/// Constant memory of a module.
const MAX_CONST: u64 = 64 << 10;

/// A module in its executable form.
pub(crate) struct LoweredModule {
    pub program: Program,
    pub kernels: Vec<KernelInfo>,
    /// Entries that are not in the program, because they reach something that is not supported: name and reasons.
    pub refused: Vec<(String, Vec<Diagnostic>)>,
}

/// Lowers a module.
pub(crate) fn lower(module: &ast::Module, sm: u32) -> Result<LoweredModule, Vec<Diagnostic>> {
    let (errors, refused) = (Vec::new(), BTreeMap::new());
    let mut lowering = Lowering { module, sm, program: Program::default(), errors, refused, names: Rc::default() };
    lowering.variables();
    lowering.functions();
    let (kernels, refused) = lowering.entries();
    match lowering.errors.is_empty() {
        true => Ok(LoweredModule { program: lowering.program, kernels, refused }),
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
        (builder.sm, builder.pragmas) = (self.sm, &self.module.pragmas);
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
}

fn global(v: &ast::Variable) -> GlobalVariable {
    GlobalVariable {
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
