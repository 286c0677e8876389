//! Operations before registers have places, and the builder that instructions are decoded into.

use std::collections::HashMap;
use std::rc::Rc;

use super::facts::Facts;
use super::operand::{List, P, RegisterClass, Symbol, V, X};
use crate::exec::layout::ROW;
use crate::exec::{OpFn, control, cvt, int};
use crate::note::Work;
use crate::note::{Class, Taint};
use crate::program::{Call, Const, Overlap, Pooled};
use crate::ptx::ast::{self, Body, Instruction, Label, Type};

pub(super) type Lowered<T> = Result<T, String>;

/// What control does after an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Control {
    Plain,
    Jump(Label),
    Branch(Label),
    Indexed(Vec<Label>),
    /// Never goes on.
    Stop,
}

/// An operation over virtual registers.
#[derive(Clone, Debug)]
pub(super) struct Proto {
    pub f: OpFn,
    pub d: V,
    pub a: V,
    pub b: V,
    pub c: V,
    pub p: P,
    pub r: P,
    pub q: P,
    pub guard: P,
    pub imm: u64,
    pub x: X,
    pub list: Option<Box<List>>,
    pub kind: Control,
    /// Destinations must not share places with sources.
    pub apart: bool,
    /// Index of the instruction.
    pub instruction: u32,
    /// PTX instructions that it stands for.
    pub weight: u32,
    /// It takes the carry; it leaves one.
    pub carry: (bool, bool),
    /// What the checks need to know of it.
    pub facts: Facts,
    /// Class and cost of its instruction.
    pub class: Class,
    pub work: Work,
}

/// A function that is being decoded.
pub(super) struct Builder<'a> {
    pub functions: &'a [ast::Function],
    pub function: &'a ast::Function,
    pub body: &'a Body,
    /// Names of the module; the function's own take precedence.
    pub globals: Rc<HashMap<&'a str, Symbol>>,
    pub locals: HashMap<&'a str, Symbol>,
    /// Alignments of the body's `.param` variables.
    pub alignments: HashMap<&'a str, u32>,
    pub classes: Vec<RegisterClass>,
    pub protos: Vec<Proto>,
    pub consts: Vec<Pooled>,
    known: HashMap<(Const, bool), u32>,
    pub const_bytes: u32,
    pub calls: Vec<Call>,
    /// Index of the function's first call, and cache site, in the program.
    pub first_call: u32,
    pub first_site: u32,
    pub sites: u32,
    pub shared: Vec<u32>,
    pub callees: Vec<u32>,
    pub local_bytes: u32,
    pub overlap: Overlap,
    /// It asks where the shared memory that is reserved for the system is.
    pub reserved: bool,
    /// Relaxed integer operations on global memory that commute with their like: operation, and kind as a bit.
    pub reductions: Vec<(usize, u32)>,
    /// The approximate instructions so far.
    pub approximate: crate::approx::Set,
    /// Architecture of the device.
    pub sm: u32,
    /// The module's pragmas.
    pub pragmas: &'a [String],
    /// The instruction that is being decoded.
    pub at: u32,
    guard: P,
    /// Class and cost of the instruction that is being decoded.
    pub(super) class_of: Class,
    pub(super) work_of: Work,
    fresh: bool,
    /// Where the function's stack pointer is kept, if it uses `alloca`.
    pub saved_stack: Option<V>,
    /// The halves of registers of 128 bits.
    pub quads: HashMap<u32, [V; 2]>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        functions: &'a [ast::Function],
        function: &'a ast::Function,
        body: &'a Body,
        globals: Rc<HashMap<&'a str, Symbol>>,
    ) -> Builder<'a> {
        let class = |ty: &Type| match ty.bits() {
            1 => RegisterClass::Pred,
            8..=32 => RegisterClass::Narrow,
            64 => RegisterClass::Wide,
            _ => RegisterClass::Other,
        };
        Builder {
            functions,
            function,
            body,
            globals,
            locals: HashMap::new(),
            alignments: HashMap::new(),
            classes: body.registers.iter().map(|(ty, _)| class(ty)).collect(),
            protos: Vec::with_capacity(body.instructions.len() + 8),
            consts: Vec::new(),
            known: HashMap::new(),
            const_bytes: 0,
            calls: Vec::new(),
            first_call: 0,
            first_site: 0,
            sites: 0,
            shared: Vec::new(),
            callees: Vec::new(),
            local_bytes: 0,
            overlap: Overlap::Whole,
            reserved: false,
            reductions: Vec::new(),
            approximate: 0,
            sm: 0,
            pragmas: &[],
            at: 0,
            guard: P::True,
            class_of: Class::Control,
            work_of: Work::None,
            fresh: true,
            saved_stack: None,
            quads: HashMap::new(),
        }
    }

    /// Starts an instruction.
    pub(super) fn begin(&mut self, at: usize, instruction: &Instruction) -> Lowered<()> {
        self.at = at as u32;
        self.fresh = true;
        self.guard = match instruction.guard {
            None => P::True,
            Some((reg, negated)) => {
                self.check_class(reg, RegisterClass::Pred)?;
                P::Reg(reg.0, negated)
            }
        };
        Ok(())
    }

    /// The guard of the instruction.
    pub(super) fn guard(&self) -> P {
        self.guard
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, f: OpFn, facts: Facts) -> &mut Proto {
        let weight = u32::from(self.fresh);
        self.fresh = false;
        self.protos.push(Proto {
            f,
            d: V::None,
            a: V::None,
            b: V::None,
            c: V::None,
            p: P::Sink,
            r: P::Sink,
            q: P::True,
            guard: self.guard,
            imm: 0,
            x: X::Raw(0),
            list: None,
            kind: Control::Plain,
            apart: false,
            instruction: self.at,
            weight,
            carry: (false, false),
            facts,
            class: self.class_of,
            work: self.work_of,
        });
        let last = self.protos.len() - 1;
        &mut self.protos[last]
    }

    /// An operation on registers alone, of one source.
    pub(super) fn op1(&mut self, f: OpFn, taint: Taint, d: V, a: V) -> &mut Proto {
        let op = self.push(f, Facts::registers(taint));
        (op.d, op.a) = (d, a);
        op
    }

    /// An operation that only moves bits of its source.
    pub(super) fn moved(&mut self, f: OpFn, d: V, a: V) {
        self.op1(f, Taint::Same(0), d, a);
    }

    /// Of two sources.
    pub(super) fn op2(&mut self, f: OpFn, taint: Taint, d: V, [a, b]: [V; 2]) -> &mut Proto {
        let op = self.push(f, Facts::registers(taint));
        (op.d, op.a, op.b) = (d, a, b);
        op
    }

    /// Of three.
    pub(super) fn op3(&mut self, f: OpFn, taint: Taint, d: V, [a, b, c]: [V; 3]) -> &mut Proto {
        let op = self.push(f, Facts::registers(taint));
        (op.d, op.a, op.b, op.c) = (d, a, b, c);
        op
    }

    /// Of four.
    pub(super) fn op4(&mut self, f: OpFn, taint: Taint, d: V, [a, b, c, x]: [V; 4]) -> &mut Proto {
        let op = self.push(f, Facts::registers(taint));
        (op.d, op.a, op.b, op.c, op.x) = (d, a, b, c, X::Row(x));
        op
    }

    /// `q ? a : b`.
    pub(super) fn select(&mut self, is_wide: bool, d: V, [a, b]: [V; 2], q: P) {
        self.op2(int::sel(is_wide), Taint::Select, d, [a, b]).q = q;
    }

    /// Logic on predicates: `q` and `x`, combined as `code` says.
    pub(super) fn logic_of(&mut self, p: P, q: P, x: P, code: u64) {
        let op = self.push(control::pred_logic, Facts::registers(Taint::Logic));
        (op.p, op.q, op.x, op.imm) = (p, q, X::Pred(x), code);
    }

    /// An instruction without effect here; to the checks, it has a role.
    pub(super) fn nop(&mut self, facts: Facts) {
        self.push(control::nop, facts);
    }

    /// A value that depends on nothing that may be undefined.
    pub(super) fn given(&mut self, f: OpFn, d: V) -> &mut Proto {
        let op = self.push(f, Facts::registers(Taint::Defined));
        op.d = d;
        op
    }

    /// A new register.
    pub(super) fn temp(&mut self, is_wide: bool) -> V {
        self.classes.push(if is_wide { RegisterClass::Wide } else { RegisterClass::Narrow });
        V::Reg(self.classes.len() as u32 - 1)
    }

    pub(super) fn temp_pred(&mut self) -> P {
        self.classes.push(RegisterClass::Pred);
        P::Reg(self.classes.len() as u32 - 1, false)
    }

    /// A constant of 32 or 64 bits.
    pub(super) fn constant(&mut self, value: Const, is_wide: bool) -> V {
        let value = match value {
            Const::Bits(bits) if !is_wide => Const::Bits(bits & 0xffff_ffff),
            other => other,
        };
        if let Some(&at) = self.known.get(&(value, is_wide)) {
            return V::Const(at);
        }
        let at = self.const_bytes;
        self.const_bytes += if is_wide { 2 * ROW } else { ROW };
        self.consts.push(Pooled { value, at, wide: is_wide });
        self.known.insert((value, is_wide), at);
        V::Const(at)
    }

    pub(super) fn bits32(&mut self, value: u32) -> V {
        self.constant(Const::Bits(value.into()), false)
    }

    pub(super) fn bits64(&mut self, value: u64) -> V {
        self.constant(Const::Bits(value), true)
    }

    /// The value of an integer constant row.
    pub(super) fn constant_bits(&self, v: V) -> Option<u64> {
        let V::Const(at) = v else { return None };
        let i = self.consts.binary_search_by_key(&at, |c| c.at).ok()?;
        match self.consts[i].value {
            Const::Bits(bits) => Some(bits),
            _ => None,
        }
    }

    pub(super) fn class(&self, v: V) -> RegisterClass {
        match v {
            V::Reg(r) => self.classes.get(r as usize).copied().unwrap_or(RegisterClass::Other),
            V::Const(_) | V::None => RegisterClass::Other,
        }
    }

    /// The value in a row of another width, zero-extended.
    pub(super) fn widened(&mut self, v: V, is_wide: bool) -> V {
        if !is_wide {
            return v;
        }
        let d = self.temp(true);
        self.moved(cvt::extend(cvt::Extend::U32), d, v);
        d
    }

    /// Copies a row.
    pub(super) fn copy(&mut self, d: V, a: V, is_wide: bool) {
        self.moved(int::mov(is_wide), d, a);
    }

    /// A new cache site.
    pub(super) fn site(&mut self) -> u32 {
        self.sites += 1;
        self.first_site + self.sites - 1
    }

    /// Room in the frame's local memory.
    pub(super) fn reserve(&mut self, bytes: u32, align: u32) -> Lowered<u32> {
        let align = align.clamp(4, 1 << 16).next_power_of_two();
        let at = self.local_bytes.checked_next_multiple_of(align);
        let end = at.and_then(|a| a.checked_add(bytes.checked_next_multiple_of(4)?));
        match (at, end) {
            // ptxas takes more than a thread can have; the launch does not.
            (Some(at), Some(end)) if end <= 256 << 20 => {
                self.local_bytes = end;
                Ok(at)
            }
            _ => Err("more than 256 MiB of local memory in one function".to_string()),
        }
    }
}
