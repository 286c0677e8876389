//! Operations before registers have places, and the builder that instructions are decoded into.

use std::collections::HashMap;
use std::rc::Rc;

use super::facts::Facts;
use super::mods::wide;
use crate::exec::block::RESERVED;
use crate::exec::lanes::map0;
use crate::exec::{CONST, OpFn, ROW, control, cvt, int, local, uniform};
use crate::note::Work;
use crate::note::{Class as Counted, Taint};
use crate::program::{Call, Const, Pooled};
use crate::ptx::ast::{self, Body, Instruction, Label, Operand, Type};

pub(super) type Lowered<T> = Result<T, String>;

/// A row: a virtual register or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum V {
    None,
    Reg(u32),
    /// Byte offset in the constant pool.
    Const(u32),
}

/// A predicate operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum P {
    True,
    False,
    Sink,
    Reg(u32, bool),
}

/// The last word of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum X {
    Raw(u32),
    Row(V),
    Pred(P),
}

/// Words and rows behind `Op::x`.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub head: Vec<u32>,
    /// Destinations, which stand before the sources.
    pub writes: Vec<V>,
    pub rows: Vec<V>,
}

/// What control does after an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
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
    pub kind: Kind,
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
    pub class: Counted,
    pub work: Work,
}

/// What a register is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Pred,
    Narrow,
    Wide,
    Other,
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Symbol {
    Global(u32),
    Const(u32),
    Shared(u32),
    /// Offset in the frame's local memory.
    Local(u32),
    /// Parameter or call parameter in the frame's local memory, and its size.
    Slot(u32, u32),
    /// Offset and size in the kernel's parameters.
    Param(u32, u32),
    Function(u32),
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
    pub classes: Vec<Class>,
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
    pub talks: bool,
    /// It asks where the shared memory that is reserved for the system is.
    pub reserved: bool,
    /// Relaxed integer operations on global memory that commute with their like: operation, and kind as a bit.
    pub reductions: Vec<(usize, u32)>,
    /// The approximate instructions so far.
    pub approximate: crate::approx::Set,
    /// Architecture of the device.
    pub sm: u32,
    /// The instruction that is being decoded.
    pub at: u32,
    guard: P,
    /// Class and cost of the instruction that is being decoded.
    pub(super) class_of: Counted,
    pub(super) work_of: Work,
    fresh: bool,
    /// Where the function's stack pointer is kept, if it uses `alloca`.
    pub saved_stack: Option<V>,
    /// The halves of registers of 128 bits.
    quads: HashMap<u32, [V; 2]>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        functions: &'a [ast::Function],
        function: &'a ast::Function,
        body: &'a Body,
        globals: Rc<HashMap<&'a str, Symbol>>,
    ) -> Builder<'a> {
        let class = |ty: &Type| match ty.bits() {
            1 => Class::Pred,
            8..=32 => Class::Narrow,
            64 => Class::Wide,
            _ => Class::Other,
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
            talks: false,
            reserved: false,
            reductions: Vec::new(),
            approximate: 0,
            sm: 0,
            at: 0,
            guard: P::True,
            class_of: Counted::Control,
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
                self.check_class(reg, Class::Pred)?;
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
            kind: Kind::Plain,
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
    fn given(&mut self, f: OpFn, d: V) -> &mut Proto {
        let op = self.push(f, Facts::registers(Taint::Defined));
        op.d = d;
        op
    }

    /// A new register.
    pub(super) fn temp(&mut self, is_wide: bool) -> V {
        self.classes.push(if is_wide { Class::Wide } else { Class::Narrow });
        V::Reg(self.classes.len() as u32 - 1)
    }

    pub(super) fn temp_pred(&mut self) -> P {
        self.classes.push(Class::Pred);
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

    fn check_class(&self, reg: ast::Reg, class: Class) -> Lowered<()> {
        let found = self.classes.get(reg.0 as usize).copied().unwrap_or(Class::Other);
        if found == class {
            return Ok(());
        }
        let name = self.body.registers.get(reg.0 as usize).map_or("?", |r| r.1.as_str());
        let need = match class {
            Class::Pred => "a predicate",
            Class::Narrow => "a register of up to 32 bits",
            Class::Wide => "a 64-bit register",
            Class::Other => "another register",
        };
        Err(format!("Arguments mismatch for instruction: `{name}` is not {need}"))
    }

    pub(super) fn class(&self, v: V) -> Class {
        match v {
            V::Reg(r) => self.classes.get(r as usize).copied().unwrap_or(Class::Other),
            V::Const(_) | V::None => Class::Other,
        }
    }

    /// A register, whatever its width.
    pub(super) fn reg(&self, operand: &Operand) -> Option<V> {
        match operand {
            Operand::Reg(r) => Some(V::Reg(r.0)),
            _ => None,
        }
    }

    /// A source of a type.
    pub(super) fn src(&mut self, operand: &Operand, ty: Type) -> Lowered<V> {
        let is_wide = wide(ty);
        let float = matches!(ty, Type::F16 | Type::BF16 | Type::F16x2 | Type::BF16x2);
        match operand {
            Operand::Reg(r) => {
                self.check_class(*r, if is_wide { Class::Wide } else { Class::Narrow })?;
                Ok(V::Reg(r.0))
            }
            Operand::Int(i) => match ty {
                Type::F32 | Type::F64 => Err("an integer constant where a float is expected".to_string()),
                _ if is_wide => Ok(self.bits64(*i as u64)),
                Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::BF16 => Ok(self.bits32(*i as u16 as u32)),
                _ => Ok(self.bits32(*i as u32)),
            },
            Operand::F32(_) | Operand::F64(_) if float => Err("a float constant cannot have this type".to_string()),
            Operand::F32(bits) if ty == Type::F64 => Ok(self.bits64(f64::from(f32::from_bits(*bits)).to_bits())),
            Operand::F64(bits) if ty == Type::F32 => Ok(self.bits32((f64::from_bits(*bits) as f32).to_bits())),
            Operand::F32(bits) if !is_wide => Ok(self.bits32(*bits)),
            Operand::F64(bits) if is_wide => Ok(self.bits64(*bits)),
            Operand::F32(_) | Operand::F64(_) => Err("a float constant of another width".to_string()),
            Operand::Special(name) => self.special(name, is_wide),
            Operand::Symbol(name, offset) => self.address_of(name, *offset, is_wide),
            _ => Err("unexpected operand: a register or a constant is needed".to_string()),
        }
    }

    /// A destination of a type; `_` gives a register that nobody reads.
    pub(super) fn dst(&mut self, operand: &Operand, ty: Type) -> Lowered<V> {
        let is_wide = wide(ty);
        match operand {
            Operand::Reg(r) => {
                self.check_class(*r, if is_wide { Class::Wide } else { Class::Narrow })?;
                Ok(V::Reg(r.0))
            }
            Operand::Sink => Ok(self.temp(is_wide)),
            _ => Err("unexpected operand: the destination must be a register".to_string()),
        }
    }

    /// The low and the high half of a register of 128 bits.
    pub(super) fn quad(&mut self, operand: &Operand) -> Lowered<[V; 2]> {
        match operand {
            Operand::Reg(r) if self.body.registers.get(r.0 as usize).is_some_and(|r| r.0 == Type::B128) => {
                if let Some(&halves) = self.quads.get(&r.0) {
                    return Ok(halves);
                }
                let halves = [self.temp(true), self.temp(true)];
                self.quads.insert(r.0, halves);
                Ok(halves)
            }
            Operand::Sink => Ok([self.temp(true), self.temp(true)]),
            _ => Err("Arguments mismatch for instruction: a 128-bit register is needed".to_string()),
        }
    }

    /// A source predicate.
    pub(super) fn pred(&self, operand: &Operand) -> Lowered<P> {
        match operand {
            Operand::Reg(r) => {
                self.check_class(*r, Class::Pred)?;
                Ok(P::Reg(r.0, false))
            }
            Operand::Not(r) => {
                self.check_class(*r, Class::Pred)?;
                Ok(P::Reg(r.0, true))
            }
            Operand::Int(0) => Ok(P::False),
            Operand::Int(_) => Ok(P::True),
            _ => Err("unexpected operand: a predicate is needed".to_string()),
        }
    }

    /// A destination predicate.
    pub(super) fn pred_dst(&self, operand: &Operand) -> Lowered<P> {
        match operand {
            Operand::Reg(r) => {
                self.check_class(*r, Class::Pred)?;
                Ok(P::Reg(r.0, false))
            }
            Operand::Sink => Ok(P::Sink),
            _ => Err("unexpected operand: the destination must be a predicate".to_string()),
        }
    }

    pub(super) fn is_pred(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Reg(r) | Operand::Not(r) if self.classes.get(r.0 as usize) == Some(&Class::Pred))
    }

    pub(super) fn symbol(&self, name: &str) -> Lowered<Symbol> {
        let found = self.locals.get(name).or_else(|| self.globals.get(name));
        found.copied().ok_or_else(|| format!("Unknown symbol '{name}'"))
    }

    /// The address of a symbol in its own space.
    pub(super) fn address_of(&mut self, name: &str, offset: i64, is_wide: bool) -> Lowered<V> {
        match self.symbol(name)? {
            Symbol::Global(i) | Symbol::Const(i) if is_wide => Ok(self.constant(Const::Global(i, offset), true)),
            Symbol::Global(_) | Symbol::Const(_) => Err(format!("the address of `{name}` needs 64 bits")),
            Symbol::Shared(i) => {
                self.use_shared(i);
                Ok(self.constant(Const::Shared(i, offset), is_wide))
            }
            Symbol::Local(at) | Symbol::Slot(at, _) => {
                let d = self.temp(is_wide);
                let op = self.given(local::local_symbol, d);
                (op.imm, op.x) = (u64::from(at).wrapping_add_signed(offset), X::Raw(is_wide.into()));
                Ok(d)
            }
            Symbol::Param(at, _) => Ok(self.constant(Const::Bits(u64::from(at).wrapping_add_signed(offset)), is_wide)),
            Symbol::Function(i) if is_wide => {
                self.callees.push(i);
                Ok(self.constant(Const::Function(i), true))
            }
            Symbol::Function(_) => Err(format!("the address of `{name}` needs 64 bits")),
        }
    }

    pub(super) fn use_shared(&mut self, i: u32) {
        if !self.shared.contains(&i) {
            self.shared.push(i);
        }
    }

    /// The value of a special register.
    pub(super) fn special(&mut self, name: &str, is_wide: bool) -> Lowered<V> {
        let (base, dimension) = match name.split_once('.') {
            None => (name, 0),
            Some((base, d)) => (
                base,
                match d {
                    "x" => 0,
                    "y" => 1,
                    "z" => 2,
                    _ => 3,
                },
            ),
        };
        let constant = |b: &mut Self, v: u64| Ok(b.constant(Const::Bits(v), is_wide));
        let lanes = |b: &mut Self, f: OpFn| {
            let narrow = b.temp(false);
            b.given(f, narrow);
            Ok(b.widened(narrow, is_wide))
        };
        let slot = match base {
            // The fourth component of the vectors is 0, or 1 for sizes.
            "tid" | "ctaid" | "cluster_ctaid" | "clusterid" if dimension == 3 => return constant(self, 0),
            "ntid" | "nctaid" | "cluster_nctaid" | "nclusterid" if dimension == 3 => return constant(self, 1),
            "tid" => {
                let d = self.temp(is_wide);
                let op = self.given(control::thread_index, d);
                (op.imm, op.x) = (dimension as u64, X::Raw(is_wide.into()));
                return Ok(d);
            }
            "laneid" => return lanes(self, map0(|l| l as u32)),
            "lanemask_eq" => return lanes(self, map0(|l| 1u32 << l)),
            "lanemask_lt" => return lanes(self, map0(|l| (1u32 << l) - 1)),
            "lanemask_le" => return lanes(self, map0(|l| ((2u64 << l) as u32).wrapping_sub(1))),
            "lanemask_gt" => return lanes(self, map0(|l| !((2u64 << l) as u32).wrapping_sub(1))),
            "lanemask_ge" => return lanes(self, map0(|l| !((1u32 << l) - 1))),
            "ntid" => uniform::NTID + dimension,
            "ctaid" | "clusterid" => uniform::CTAID + dimension,
            "nctaid" | "nclusterid" => uniform::NCTAID + dimension,
            "warpid" => uniform::WARPID,
            "nwarpid" => uniform::NWARPID,
            "smid" => uniform::SMID,
            "nsmid" => uniform::NSMID,
            "gridid" => uniform::GRIDID,
            "dynamic_smem_size" => uniform::DYNAMIC_SHARED,
            "total_smem_size" | "aggr_smem_size" => uniform::TOTAL_SHARED,
            // A cluster is one block.
            "cluster_ctaid" | "cluster_ctarank" | "current_graph_exec" => return constant(self, 0),
            "cluster_nctaid" | "cluster_nctarank" => return constant(self, 1),
            "clock" | "clock64" | "globaltimer" | "globaltimer_lo" | "clock_hi" | "globaltimer_hi" => {
                let d = self.temp(is_wide);
                let op = self.given(control::clock, d);
                op.x = X::Raw(is_wide.into());
                op.imm = if base.ends_with("_hi") { 32 } else { 0 };
                return Ok(d);
            }
            // Where a cooperative launch has its workspace.
            "envreg1" => uniform::WORKSPACE_HIGH,
            "envreg2" => uniform::WORKSPACE_LOW,
            _ if base.starts_with("envreg") => return constant(self, 0),
            "reserved_smem_offset_cap" => return constant(self, RESERVED.into()),
            "reserved_smem_offset_begin" | "reserved_smem_offset_0" => return self.reserved(0, is_wide),
            "reserved_smem_offset_1" => return self.reserved(RESERVED / 2, is_wide),
            "reserved_smem_offset_end" => return self.reserved(RESERVED, is_wide),
            _ => return Err(format!("special register `%{name}` is not supported")),
        };
        let d = self.temp(is_wide);
        let op = self.given(control::uniform, d);
        (op.imm, op.x) = (slot as u64, X::Raw(is_wide.into()));
        Ok(d)
    }

    /// An offset in the shared memory that is reserved for the system.
    fn reserved(&mut self, offset: u32, is_wide: bool) -> Lowered<V> {
        self.reserved = true;
        let d = self.temp(is_wide);
        let op = self.given(control::uniform, d);
        (op.imm, op.x) = (uniform::RESERVED as u64, X::Raw(is_wide.into()));
        if offset != 0 {
            let ty = if is_wide { Type::U64 } else { Type::U32 };
            let add = int::bin(int::Bin::Add, ty).ok_or("this special register is not supported")?;
            let by = self.constant(Const::Bits(offset.into()), is_wide);
            self.op2(add, Taint::Left, d, [d, by]);
        }
        Ok(d)
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

/// The operand word of a row.
pub(super) fn word(v: V, place: impl Fn(u32) -> u32) -> u32 {
    match v {
        V::None => 0,
        V::Reg(r) => place(r),
        V::Const(at) => at | CONST,
    }
}
