//! Decoding of control flow, barriers and warp collectives.

use super::facts::{self, Facts};
use super::integer::{operands, unsupported};
use super::mods::Mods;
use super::operand::{List, P, Symbol, V, X};
use super::proto::{Builder, Kind, Lowered};
use crate::exec::barrier::bar;
use crate::exec::collective;
use crate::exec::exchange::{self, COLLECTIVE, Kind as Collective};
use crate::exec::int::{self, Cmp};
use crate::exec::mem::{self, Via};
use crate::exec::words::{Plain, Words};
use crate::exec::{alloca, control};
use crate::note::{Role, Taint};
use crate::program::{Call, Library, Slot, Target};
use crate::ptx::ast::{self, Instruction, Operand, Space, Type};

/// The function of the driver's that a declaration names, if its parameters are as many.
fn library(name: &str, function: &ast::Function) -> Option<Library> {
    let (which, params, returns) = match name {
        "__assertfail" => (Library::Assert, 5, 0),
        "vprintf" => (Library::Printf, 2, 1),
        "malloc" => (Library::Malloc, 1, 1),
        "free" => (Library::Free, 1, 0),
        _ => return None,
    };
    (function.params.len() == params && function.returns.len() == returns).then_some(which)
}

impl Builder<'_> {
    pub(super) fn branch(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("uni");
        m.finish()?;
        let [Operand::Label(label)] = i.operands.as_slice() else { return Err("a label is needed".to_string()) };
        self.check_label(*label)?;
        let guard = self.guard();
        let decides = Facts::role(Role::Branch, Taint::All);
        if guard == P::True {
            self.push(control::jump, decides).kind = Kind::Jump(*label);
        } else {
            let op = self.push(control::branch, decides);
            // The guard decides where lanes go; all of them execute the branch.
            (op.guard, op.q, op.kind) = (P::True, guard, Kind::Branch(*label));
        }
        Ok(())
    }

    fn check_label(&self, label: ast::Label) -> Lowered<()> {
        let known = self.body.labels.get(label.0 as usize).is_some_and(|l| l.1 <= self.body.instructions.len());
        if known { Ok(()) } else { Err("the label does not exist".to_string()) }
    }

    pub(super) fn branch_indexed(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if !m.take("idx") {
            return Err("`.idx` is missing".to_string());
        }
        m.take("uni");
        m.finish()?;
        let [index, Operand::Label(list)] = i.operands.as_slice() else {
            return Err("an index and a list of targets are needed".to_string());
        };
        let name = self.body.labels.get(list.0 as usize).map(|l| l.0.as_str()).unwrap_or("");
        let targets = self.body.branch_targets.get(name).ok_or_else(|| format!("`{name}` is not a list of targets"))?;
        targets.iter().try_for_each(|&l| self.check_label(l))?;
        let a = self.src(index, Type::U32)?;
        let op = self.push(control::branch_indexed, Facts::role(Role::Branch, Taint::All));
        (op.a, op.kind) = (a, Kind::Indexed(targets.clone()));
        Ok(())
    }

    /// `ret`, `exit`, `trap`, `brkpt`.
    pub(super) fn stop(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("uni");
        m.finish()?;
        if i.opcode == "brkpt" {
            self.nop(Facts::registers(Taint::Defined));
            return Ok(());
        }
        if i.opcode == "ret" {
            self.store_returns()?;
            self.give_back_stack();
        }
        let f = match i.opcode.as_str() {
            "ret" => control::ret,
            "exit" => control::exit,
            _ => control::trap as crate::exec::OpFn,
        };
        let unguarded = self.guard() == P::True;
        let op = self.push(f, Facts::registers(Taint::Defined));
        if unguarded {
            op.kind = Kind::Stop;
        }
        Ok(())
    }

    /// Before a return: what the function took with `alloca` is gone.
    fn give_back_stack(&mut self) {
        if let Some(v) = self.saved_stack {
            self.op1(alloca::restore, Taint::All, V::None, v).x = X::Raw(1);
        }
    }

    /// `alloca`, `stacksave`, `stackrestore`.
    pub(super) fn stack(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        if !matches!(ty, Type::U32 | Type::U64) {
            return Err(unsupported("this type"));
        }
        let wide = X::Raw((ty == Type::U64).into());
        match (i.opcode.as_str(), i.operands.as_slice()) {
            ("alloca", [d, size, rest @ ..]) => {
                let align = match rest {
                    [] => 8,
                    [Operand::Int(n)] if (1..=1 << 16).contains(n) && n.count_ones() == 1 => *n as u64,
                    _ => return Err("the alignment of `alloca` is a power of two".to_string()),
                };
                let (d, a) = (self.dst(d, ty)?, self.src(size, ty)?);
                let op = self.op1(alloca::alloca, Taint::All, d, a);
                (op.imm, op.x, op.apart) = (align, wide, true);
            }
            ("stacksave", [d]) => {
                let d = self.dst(d, ty)?;
                let op = self.push(alloca::save, Facts::registers(Taint::Defined));
                (op.d, op.x) = (d, wide);
            }
            ("stackrestore", [a]) => {
                let a = self.src(a, ty)?;
                self.op1(alloca::restore, Taint::All, V::None, a).x = wide;
            }
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        }
        Ok(())
    }

    /// What a function's end without an instruction is.
    pub(super) fn end(&mut self) -> Lowered<()> {
        self.store_returns()?;
        self.give_back_stack();
        let op = self.push(control::ret, Facts::registers(Taint::Defined));
        (op.kind, op.guard, op.weight) = (Kind::Stop, P::True, 0);
        Ok(())
    }

    /// Return values that are registers go where the caller looks for them.
    fn store_returns(&mut self) -> Lowered<()> {
        if self.function.is_entry {
            return Ok(());
        }
        for (param, slot) in self.function.returns.iter().zip(self.slots(&self.function.returns)?) {
            self.pass(&self.registers_named(param), param, slot.at)?;
        }
        Ok(())
    }

    /// Parameters that are registers get their values.
    pub(super) fn load_params(&mut self) -> Lowered<()> {
        if self.function.is_entry {
            return Ok(());
        }
        if self.body.instructions.iter().any(|i| i.opcode == "alloca") {
            let d = self.temp(true);
            let op = self.push(alloca::save, Facts::registers(Taint::Defined));
            (op.d, op.x, op.guard, op.weight) = (d, X::Raw(1), P::True, 0);
            self.saved_stack = Some(d);
        }
        for (param, slot) in self.function.params.iter().zip(self.slots(&self.function.params)?) {
            self.receive(&self.registers_named(param), param, slot.at)?;
        }
        Ok(())
    }

    /// Places of parameters in the frame; `declare` has made them.
    fn slots(&self, params: &[ast::Param]) -> Lowered<Vec<Slot>> {
        let slot = |p: &ast::Param| match self.locals.get(p.name.as_str()) {
            Some(&Symbol::Slot(at, size)) => Ok(Slot { at, size }),
            _ => Err(format!("parameter `{}` has no place", p.name)),
        };
        params.iter().map(slot).collect()
    }

    /// The registers that a parameter is: one, those of a vector, or none if it lies in memory.
    fn registers_named(&self, param: &ast::Param) -> Vec<Operand> {
        if !param.in_register {
            return Vec::new();
        }
        let named = |name: String| {
            let at = self.body.registers.iter().position(|(_, known)| *known == name)?;
            Some(Operand::Reg(ast::Reg(at as u32)))
        };
        match param.vector {
            1 => named(param.name.clone()).into_iter().collect(),
            n => "xyzw".chars().take(n as usize).filter_map(|x| named(format!("{}.{x}", param.name))).collect(),
        }
    }

    /// Offset of element `n` of a parameter that is passed in registers.
    fn part(param: &ast::Param, n: usize) -> u32 {
        n as u32 * (param.size / param.vector.max(1))
    }

    /// Stores what a parameter gets, element by element, at an offset in the frame; a predicate as 0 or 1.
    fn pass(&mut self, values: &[Operand], param: &ast::Param, at: u32) -> Lowered<()> {
        for (n, value) in values.iter().enumerate() {
            let at = at + Self::part(param, n);
            if param.ty != Type::Pred {
                let v = self.src(value, param.ty)?;
                self.frame_access(v, param.ty, at, false)?;
                continue;
            }
            let (q, yes, no, t) = (self.pred(value)?, self.bits32(1), self.bits32(0), self.temp(false));
            self.select(false, t, [yes, no], q);
            self.frame_access(t, Type::B32, at, false)?;
        }
        Ok(())
    }

    /// Loads a parameter into the registers that are to have it.
    fn receive(&mut self, registers: &[Operand], param: &ast::Param, at: u32) -> Lowered<()> {
        for (n, register) in registers.iter().enumerate() {
            let at = at + Self::part(param, n);
            if param.ty != Type::Pred {
                let v = self.dst(register, param.ty)?;
                self.frame_access(v, param.ty, at, true)?;
                continue;
            }
            let (p, t, zero) = (self.pred_dst(register)?, self.temp(false), self.bits32(0));
            self.frame_access(t, Type::B32, at, true)?;
            let f = int::compare(Cmp::Ne, Type::B32).ok_or_else(|| unsupported("a predicate as a parameter"))?;
            self.op2(f, facts::ANY_BIT, V::None, [t, zero]).p = p;
        }
        Ok(())
    }

    /// The elements of an argument or a result in registers.
    fn parts<'o>(operand: &'o Operand, param: &ast::Param) -> Lowered<&'o [Operand]> {
        match operand {
            Operand::Vector(items) if items.len() == param.vector as usize => Ok(items),
            Operand::Vector(_) => Err(format!("Type of argument does not match formal parameter '{}'", param.name)),
            single if param.vector == 1 => Ok(std::slice::from_ref(single)),
            _ => Err(format!("Type of argument does not match formal parameter '{}'", param.name)),
        }
    }

    /// Loads or stores a register at an offset in the frame's local memory.
    fn frame_access(&mut self, v: V, ty: Type, at: u32, load: bool) -> Lowered<()> {
        let size = ty.bits().div_ceil(8);
        let f = if load { mem::load_handler } else { mem::store_handler };
        let f = f(Space::Local, Via::Offset, size, 1).ok_or_else(|| unsupported("a parameter of this type"))?;
        if super::mods::wide(ty) != (self.class(v) == super::operand::Class::Wide) && !matches!(v, V::Const(_)) {
            return Err("a parameter's register has another width".to_string());
        }
        let site = self.site();
        let op = self.push(f, Facts::frame(size, load));
        (op.imm, op.apart) = (at.into(), load);
        let (writes, rows) = if load { (vec![v], Vec::new()) } else { (Vec::new(), vec![v]) };
        op.list = Some(Box::new(List { head: Plain { site }.list(), writes, rows }));
        Ok(())
    }

    pub(super) fn call(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("uni");
        m.finish()?;
        let mut rest = i.operands.as_slice();
        let mut returns: &[Operand] = &[];
        if let [Operand::List(list), tail @ ..] = rest {
            (returns, rest) = (list, tail);
        }
        let Some((callee, mut rest)) = rest.split_first() else { return Err("the callee is missing".to_string()) };
        let mut args: &[Operand] = &[];
        if let [Operand::List(list), tail @ ..] = rest {
            (args, rest) = (list, tail);
        }
        match callee {
            Operand::Symbol(name, 0) => {
                let Symbol::Function(index) = self.symbol(name)? else {
                    return Err(format!("`{name}` is not a function"));
                };
                let function = &self.functions[index as usize];
                let target = if function.body.is_some() {
                    self.callees.push(index);
                    Target::Function(index)
                } else if let Some(which) = library(name, function) {
                    // What kernels print and allocate is ordered by their blocks.
                    self.talks |= which != Library::Assert;
                    Target::Library(which)
                } else {
                    return Err(format!("Unresolved extern function '{name}'"));
                };
                if function.is_entry {
                    return Err(format!("`{name}` is a kernel, not a function"));
                }
                let (params, results) = (function.params.clone(), function.returns.clone());
                self.call_to(target, args, returns, &params, &results)
            }
            Operand::Reg(_) => {
                let [Operand::Label(prototype)] = rest else {
                    return Err("an indirect call needs a prototype".to_string());
                };
                let name = self.body.labels.get(prototype.0 as usize).map(|l| l.0.as_str()).unwrap_or("");
                // A list of targets stands for their prototype, which is that of the first.
                let listed = self.body.call_targets.get(name).and_then(|list| list.first());
                let listed = listed.and_then(|f| self.functions.iter().find(|g| g.name == *f));
                let prototype = match (self.body.prototypes.get(name), listed) {
                    (Some((results, params)), _) => Some((results, params)),
                    (None, Some(f)) => Some((&f.returns, &f.params)),
                    (None, None) => None,
                };
                let Some((results, params)) = prototype else { return Err(format!("`{name}` is not a prototype")) };
                let row = self.src(callee, Type::U64)?;
                let V::Reg(register) = row else { return Err("a register is needed".to_string()) };
                let (results, params) = (results.clone(), params.clone());
                self.call_to(Target::Indirect(register), args, returns, &params, &results)?;
                Ok(())
            }
            _ => Err("the callee must be a function or a register".to_string()),
        }
    }

    /// A call whose arguments are call parameters, registers or constants.
    fn call_to(
        &mut self,
        target: Target,
        args: &[Operand],
        returns: &[Operand],
        params: &[ast::Param],
        results: &[ast::Param],
    ) -> Lowered<()> {
        if args.len() != params.len() || returns.len() != results.len() {
            return Err(format!(
                "Call has {} arguments and {} return values, the function has {} and {}",
                args.len(),
                returns.len(),
                params.len(),
                results.len()
            ));
        }
        let mut call = Call { target, args: Vec::new(), returns: Vec::new() };
        for (arg, param) in args.iter().zip(params) {
            let slot = match self.call_slot(arg) {
                Some(slot) => slot,
                None => {
                    let at = self.reserve(param.size, param.align)?;
                    self.pass(Self::parts(arg, param)?, param, at)?;
                    Slot { at, size: param.size }
                }
            };
            self.check_alignment(arg, param)?;
            if slot.size != param.size {
                return Err(format!("an argument has {} bytes, the parameter has {}", slot.size, param.size));
            }
            call.args.push(slot);
        }
        let mut loads = Vec::new();
        for (result, param) in returns.iter().zip(results) {
            let slot = match self.call_slot(result) {
                Some(slot) => slot,
                None => {
                    let at = self.reserve(param.size, param.align)?;
                    loads.push((Self::parts(result, param)?, param, at));
                    Slot { at, size: param.size }
                }
            };
            self.check_alignment(result, param)?;
            if slot.size != param.size {
                return Err(format!("a return value has {} bytes, the function returns {}", slot.size, param.size));
            }
            call.returns.push(slot);
        }
        let index = self.first_call + self.calls.len() as u32;
        let row = match call.target {
            Target::Indirect(register) => V::Reg(register),
            _ => V::None,
        };
        self.calls.push(call);
        let op = self.push(control::call, Facts::registers(Taint::All));
        // The row is named here too, so that it is kept alive; emission copies its place into the call.
        (op.x, op.a) = (X::Raw(index), row);
        loads.into_iter().try_for_each(|(registers, param, at)| self.receive(registers, param, at))
    }

    /// An argument is declared with the alignment of its parameter.
    fn check_alignment(&self, operand: &Operand, param: &ast::Param) -> Lowered<()> {
        let Operand::Symbol(name, 0) = operand else { return Ok(()) };
        match self.alignments.get(name.as_str()) {
            Some(&align) if align != param.align => {
                Err(format!("Alignment of argument does not match formal parameter '{}'", param.name))
            }
            _ => Ok(()),
        }
    }

    fn call_slot(&self, operand: &Operand) -> Option<Slot> {
        let Operand::Symbol(name, 0) = operand else { return None };
        match self.symbol(name) {
            Ok(Symbol::Slot(at, size)) => Some(Slot { at, size }),
            _ => None,
        }
    }

    /// `bar` and `barrier`.
    pub(super) fn barrier(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("cta");
        if m.take("warp") {
            m.take("sync");
            m.finish()?;
            let [mask] = operands(i)?;
            let mask = self.src(mask, Type::B32)?;
            self.collective(Collective::WarpSync, V::None, [V::None; 3], mask);
            return Ok(());
        }
        let aligned = m.take("aligned") || i.opcode == "bar";
        if i.opcode == "barrier" && m.take("cluster") {
            return self.cluster_barrier(i, m, aligned);
        }
        let kind = match m.any(&["sync", "arrive", "red"]) {
            Some("sync") => bar::SYNC,
            Some("arrive") => bar::ARRIVE,
            Some(_) => match m.any(&["popc", "and", "or"]) {
                Some("popc") => bar::RED_POPC,
                Some("and") => bar::RED_AND,
                Some(_) => bar::RED_OR,
                None => return Err("the reduction is missing".to_string()),
            },
            None => return Err(unsupported(&format!("`{}.{}`", i.opcode, i.modifiers.join(".")))),
        };
        let u = Type::U32;
        let mut imm = kind | if aligned { bar::ALIGNED } else { 0 };
        let (mut d, mut p, mut q) = (V::None, P::Sink, P::True);
        let mut rest = i.operands.as_slice();
        if kind >= bar::RED_POPC {
            m.ty()?;
            let [to, middle @ .., from] = rest else { return Err("operands are missing".to_string()) };
            if kind == bar::RED_POPC {
                d = self.dst(to, u)?;
            } else {
                p = self.pred_dst(to)?;
            }
            q = self.pred(from)?;
            rest = middle;
        }
        m.finish()?;
        let (id, count) = match rest {
            [id] if kind != bar::ARRIVE => (id, None),
            [id, count] => (id, Some(count)),
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        };
        let a = self.src(id, u)?;
        if self.constant_bits(a).is_some_and(|id| id > 15) {
            return Err("there are barriers 0 to 15".to_string());
        }
        if let Some(Operand::Int(n)) = count
            && n % 32 != 0
        {
            return Err("Number of threads participating in barrier must be in multiple of warp size".to_string());
        }
        let b = match count {
            None => V::None,
            Some(count) => {
                imm |= bar::COUNT;
                self.src(count, u)?
            }
        };
        let op = self.push(control::barrier, Facts::role(Role::Barrier, Taint::All));
        (op.d, op.a, op.b, op.p, op.q, op.imm) = (d, a, b, p, q, imm);
        op.apart = true;
        Ok(())
    }

    /// `barrier.cluster`: the cluster is one block.
    fn cluster_barrier(&mut self, i: &Instruction, m: &Mods<'_>, aligned: bool) -> Lowered<()> {
        let kind = match m.any(&["arrive", "wait"]) {
            Some("arrive") if m.take("relaxed") => bar::ARRIVE | bar::RELAXED,
            Some("arrive") => {
                m.take("release");
                bar::ARRIVE
            }
            Some(_) => {
                m.take("acquire");
                bar::SYNC
            }
            None => return Err(unsupported(&format!("`{}.{}`", i.opcode, i.modifiers.join(".")))),
        };
        m.finish()?;
        let [] = operands(i)?;
        // Nobody but this block is in the cluster, and what it orders other than the block's barrier does is nothing.
        let op = self.push(control::barrier, Facts::registers(Taint::All));
        op.imm = kind | bar::CLUSTER | if aligned { bar::ALIGNED } else { 0 };
        op.apart = true;
        Ok(())
    }

    fn collective(&mut self, kind: Collective, d: V, [a, b, c]: [V; 3], mask: V) -> &mut super::proto::Proto {
        let op = self.push(collective::collective, Facts::role(Role::Collective, Taint::All));
        (op.d, op.a, op.b, op.c, op.x) = (d, a, b, c, X::Row(mask));
        op.imm = kind as u64 | COLLECTIVE;
        op.apart = true;
        op
    }

    /// `shfl.sync`.
    pub(super) fn shuffle(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if !m.take("sync") {
            return Err("`shfl` without `.sync` does not exist on sm_70 and higher".to_string());
        }
        let kind = match m.any(&["up", "down", "bfly", "idx"]) {
            Some("up") => Collective::ShflUp,
            Some("down") => Collective::ShflDown,
            Some("bfly") => Collective::ShflBfly,
            Some(_) => Collective::ShflIdx,
            None => return Err("the shuffle's mode is missing".to_string()),
        };
        let ty = m.ty()?;
        m.finish()?;
        if ty.bits() != 32 {
            return Err(unsupported("this type"));
        }
        let [d, a, b, c, mask] = operands(i)?;
        let (d, p) = match d {
            Operand::Pair(d, p) => (self.dst(d, Type::B32)?, self.pred_dst(p)?),
            d => (self.dst(d, Type::B32)?, P::Sink),
        };
        let a = self.src(a, if matches!(a, Operand::F32(_)) { Type::F32 } else { Type::B32 })?;
        let (b, c, mask) = (self.src(b, Type::B32)?, self.src(c, Type::B32)?, self.src(mask, Type::B32)?);
        let usual = self.constant_bits(mask) == Some(0xffff_ffff) && self.constant_bits(c).is_some();
        let op = self.collective(kind, d, [a, b, c], mask);
        op.p = p;
        if usual {
            op.f = collective::shfl_full;
        }
        Ok(())
    }

    /// `vote.sync`, `match.sync`, `redux.sync`, `elect.sync`.
    pub(super) fn gather(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let word = m.any(&["all", "any", "uni", "ballot"]);
        let op = if i.opcode == "redux" { m.any(&["add", "min", "max", "and", "or", "xor"]) } else { None };
        let (abs, nan) = (m.take("abs"), m.take("NaN"));
        if !m.take("sync") {
            return Err(format!("`{}` without `.sync` does not exist on sm_70 and higher", i.opcode));
        }
        if i.opcode == "elect" {
            m.finish()?;
            let [Operand::Pair(d, p), mask] = i.operands.as_slice() else {
                return Err("Arguments mismatch for instruction 'elect'".to_string());
            };
            let (d, p, mask) = (self.dst(d, Type::B32)?, self.pred_dst(p)?, self.src(mask, Type::B32)?);
            self.collective(Collective::Elect, d, [V::None; 3], mask).p = p;
            return Ok(());
        }
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, mask] = operands(i)?;
        match i.opcode.as_str() {
            "vote" => self.vote((word, ty), d, a, mask),
            "match" => self.match_lanes((word, ty), d, a, mask),
            _ => self.reduce((op, ty), (abs, nan), d, a, mask),
        }
    }

    /// `vote.sync`.
    fn vote(&mut self, form: (Option<&str>, Type), d: &Operand, a: &Operand, mask: &Operand) -> Lowered<()> {
        let (q, mask) = (self.pred(a)?, self.src(mask, Type::B32)?);
        let kind = match form {
            (Some("ballot"), Type::B32) => Collective::VoteBallot,
            (Some("all"), Type::Pred) => Collective::VoteAll,
            (Some("any"), Type::Pred) => Collective::VoteAny,
            (Some("uni"), Type::Pred) => Collective::VoteUni,
            _ => return Err(unsupported("this vote")),
        };
        let (d, p) = match kind {
            Collective::VoteBallot => (self.dst(d, Type::B32)?, P::Sink),
            _ => (V::None, self.pred_dst(d)?),
        };
        let op = self.collective(kind, d, [V::None; 3], mask);
        (op.p, op.q) = (p, q);
        Ok(())
    }

    /// `match.sync`.
    fn match_lanes(&mut self, form: (Option<&str>, Type), d: &Operand, a: &Operand, mask: &Operand) -> Lowered<()> {
        let (a, mask) = (self.src(a, form.1)?, self.src(mask, Type::B32)?);
        let kind = match form {
            (Some("any"), Type::B32) => Collective::MatchAny32,
            (Some("any"), Type::B64) => Collective::MatchAny64,
            (Some("all"), Type::B32) => Collective::MatchAll32,
            (Some("all"), Type::B64) => Collective::MatchAll64,
            _ => return Err(unsupported("this match")),
        };
        let (d, p) = match d {
            Operand::Pair(d, p) => (self.dst(d, Type::B32)?, self.pred_dst(p)?),
            d => (self.dst(d, Type::B32)?, P::Sink),
        };
        self.collective(kind, d, [a, V::None, V::None], mask).p = p;
        Ok(())
    }

    /// `redux.sync`; `abs` and `nan` are modifiers of those of floats.
    fn reduce(
        &mut self,
        form: (Option<&str>, Type),
        (abs, nan): (bool, bool),
        d: &Operand,
        a: &Operand,
        mask: &Operand,
    ) -> Lowered<()> {
        let kind = match form {
            (Some("add"), Type::U32 | Type::S32) => Collective::ReduxAdd,
            (Some("min"), Type::U32) => Collective::ReduxMinU,
            (Some("max"), Type::U32) => Collective::ReduxMaxU,
            (Some("min"), Type::S32) => Collective::ReduxMinS,
            (Some("max"), Type::S32) => Collective::ReduxMaxS,
            (Some("and"), Type::B32) => Collective::ReduxAnd,
            (Some("or"), Type::B32) => Collective::ReduxOr,
            (Some("xor"), Type::B32) => Collective::ReduxXor,
            (Some("min"), Type::F32) => Collective::ReduxMinF,
            (Some("max"), Type::F32) => Collective::ReduxMaxF,
            _ => return Err(unsupported("this reduction")),
        };
        let (a, mask) = (self.src(a, Type::B32)?, self.src(mask, Type::B32)?);
        let d = self.dst(d, Type::B32)?;
        if (abs || nan) && !matches!(kind, Collective::ReduxMinF | Collective::ReduxMaxF) {
            return Err(unsupported("`.abs` or `.NaN` with this type"));
        }
        let op = self.collective(kind, d, [a, V::None, V::None], mask);
        op.imm |= if abs { exchange::ABS } else { 0 } | if nan { exchange::NAN } else { 0 };
        Ok(())
    }

    pub(super) fn activemask(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.ty()?;
        m.finish()?;
        let [d] = operands(i)?;
        let d = self.dst(d, Type::B32)?;
        self.push(collective::activemask, Facts::registers(Taint::Defined)).d = d;
        Ok(())
    }
}
