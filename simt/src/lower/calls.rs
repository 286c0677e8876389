//! Decoding of calls: arguments, return values, and the places in frames by which they go.

use super::facts::{self, Facts};
use super::integer::unsupported;
use super::mods::{Mods, wide};
use super::operand::{List, P, RegisterClass, Symbol, V, X};
use super::proto::{Builder, Lowered};
use crate::exec::int::{self, Cmp};
use crate::exec::mem::{self, Via};
use crate::exec::words::{Plain, Words};
use crate::exec::{alloca, control};
use crate::note::Taint;
use crate::program::{Call, Callee, Const, Library, Overlap, Slot};
use crate::ptx::ast::{self, Instruction, Operand, Space, Type};
use crate::ptx::pragma::machine_code_of;

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
    /// Return values that are registers go where the caller looks for them.
    pub(super) fn store_returns(&mut self) -> Lowered<()> {
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
        if wide(ty) != (self.class(v) == RegisterClass::Wide) && !matches!(v, V::Const(_)) {
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
                    Callee::Function(index)
                } else if let Some(which) = library(name, function) {
                    // What kernels print and allocate is ordered by their blocks.
                    if which != Library::Assert {
                        self.overlap = Overlap::None;
                    }
                    Callee::Library(which)
                } else {
                    return Err(self.unresolved(name));
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
                self.call_to(Callee::Indirect(register), args, returns, &params, &results)?;
                Ok(())
            }
            _ => Err("the callee must be a function or a register".to_string()),
        }
    }

    /// What to say of a function that nobody defines.
    fn unresolved(&self, name: &str) -> String {
        if let Some(file) = machine_code_of(self.pragmas, name) {
            return unsupported(&format!("`{name}`, which {file} has as machine code and not as PTX,"));
        }
        // A GPU's driver has them, for kernels that launch kernels.
        if ["__cuda_syscall_", "cnp"].iter().any(|prefix| name.starts_with(prefix)) {
            return unsupported(&format!("`{name}` (a call of the driver from the device)"));
        }
        format!("Unresolved extern function '{name}'")
    }

    /// The address of a function, which somebody has to define.
    pub(super) fn address_of_function(&mut self, name: &str, index: u32) -> Lowered<V> {
        let function = &self.functions[index as usize];
        if function.body.is_none() && library(name, function).is_none() {
            return Err(self.unresolved(name));
        }
        self.callees.push(index);
        Ok(self.constant(Const::Function(index), true))
    }

    /// A call whose arguments are call parameters, registers or constants.
    fn call_to(
        &mut self,
        target: Callee,
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
            Callee::Indirect(register) => V::Reg(register),
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
}
