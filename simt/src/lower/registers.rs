//! Operands of the text as registers and constants, and the addresses of what has a name.

use super::mods::wide;
use super::operand::{P, RegisterClass, Symbol, V, X};
use super::proto::{Builder, Lowered};
use crate::exec::local;
use crate::program::Const;
use crate::ptx::ast::{self, Operand, Type};

impl Builder<'_> {
    pub(super) fn check_class(&self, reg: ast::Reg, class: RegisterClass) -> Lowered<()> {
        let found = self.classes.get(reg.0 as usize).copied().unwrap_or(RegisterClass::Other);
        if found == class {
            return Ok(());
        }
        let name = self.body.registers.get(reg.0 as usize).map_or("?", |r| r.1.as_str());
        let need = match class {
            RegisterClass::Pred => "a predicate",
            RegisterClass::Narrow => "a register of up to 32 bits",
            RegisterClass::Wide => "a 64-bit register",
            RegisterClass::Other => "another register",
        };
        Err(format!("Arguments mismatch for instruction: `{name}` is not {need}"))
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
                self.check_class(*r, if is_wide { RegisterClass::Wide } else { RegisterClass::Narrow })?;
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
                self.check_class(*r, if is_wide { RegisterClass::Wide } else { RegisterClass::Narrow })?;
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
                self.check_class(*r, RegisterClass::Pred)?;
                Ok(P::Reg(r.0, false))
            }
            Operand::Not(r) => {
                self.check_class(*r, RegisterClass::Pred)?;
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
                self.check_class(*r, RegisterClass::Pred)?;
                Ok(P::Reg(r.0, false))
            }
            Operand::Sink => Ok(P::Sink),
            _ => Err("unexpected operand: the destination must be a predicate".to_string()),
        }
    }

    pub(super) fn is_pred(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Reg(r) | Operand::Not(r) if self.classes.get(r.0 as usize) == Some(&RegisterClass::Pred))
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
            Symbol::Function(i) if is_wide => self.address_of_function(name, i),
            Symbol::Function(_) => Err(format!("the address of `{name}` needs 64 bits")),
        }
    }

    pub(super) fn use_shared(&mut self, i: u32) {
        if !self.shared.contains(&i) {
            self.shared.push(i);
        }
    }
}
