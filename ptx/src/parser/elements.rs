//! Shorthands: sums and subscripts as operands, and spaces that a symbol implies.

use super::super::ast::{Base, Instruction, Operand, Pos, Reg, Space, Type};
use super::super::lexer::Kind;
use super::names::{Found, Scopes};
use super::operands::Place;
use super::variables::size_of;
use super::{Global, Parsed, Parser, shorten};

/// What is declared of a symbol in memory.
struct Declared {
    space: Space,
    ty: Type,
    array: bool,
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Adds an instruction before the one that is being read.
fn emit(scopes: &mut Scopes<'_>, pos: Pos, opcode: &str, modifiers: &[&str], operands: Vec<Operand>) {
    let (opcode, modifiers, loc) = (opcode.to_string(), words(modifiers), scopes.location);
    scopes.body.instructions.push(Instruction { guard: None, opcode, modifiers, operands, pos, loc });
}

impl<'a> Parser<'a> {
    fn declared(&self, scopes: &Scopes<'a>, name: &str) -> Option<Declared> {
        if let Some(&(ty, array)) = scopes.params.get(name) {
            return Some(Declared { space: Space::Param, ty, array });
        }
        let variable = match scopes.body.variables.iter().find(|v| v.name == name) {
            Some(variable) => variable,
            None => match self.globals.get(name) {
                Some(Global::Variable(index)) => self.module.variables.get(*index)?,
                _ => return None,
            },
        };
        Some(Declared { space: variable.space, ty: variable.ty, array: !variable.dims.is_empty() })
    }

    /// `%r1+4` as an operand: the sum of a register and a constant, in the register's width.
    pub(super) fn sum(&mut self, scopes: &mut Scopes<'a>, reg: Reg, place: &Place<'_>) -> Parsed<Operand> {
        let pos = self.token.pos;
        self.advance();
        let value = self.integer()?;
        if place.first && !matches!(place.opcode, "bar" | "barrier" | "nanosleep") {
            return self.fail(pos, format!("Result register required for instruction '{}'", place.opcode));
        }
        let Some((ty, name)) = scopes.body.registers.get(reg.0 as usize).cloned() else { return Ok(Operand::Reg(reg)) };
        let add = match (ty, size_of(ty)) {
            (Type::F16 | Type::F16x2 | Type::F32 | Type::F64, _) => "",
            (_, 2) => "u16",
            (_, 4) => "u32",
            (_, 8) => "u64",
            _ => "",
        };
        if add.is_empty() {
            return self.fail(pos, format!("an offset of '{}', which is no integer, is not supported", shorten(&name)));
        }
        let sum = scopes.temporary(ty, format!("{name}+{value}"));
        emit(scopes, place.pos, "add", &[add], vec![Operand::Reg(sum), Operand::Reg(reg), Operand::Int(value)]);
        Ok(Operand::Reg(sum))
    }

    /// `x[3]` or `x[%r1+3]`: the place of an element of an array, which loads and stores take for their address and others
    /// for a value.
    pub(super) fn subscript(&mut self, scopes: &mut Scopes<'a>, name: &str, place: &Place<'_>) -> Parsed<Operand> {
        let pos = self.token.pos;
        self.advance();
        let declared = self.declared(scopes, name).filter(|d| d.array);
        let Some(declared) = declared else { return self.fail(pos, "Array indexing on non-array") };
        let memory = matches!(place.opcode, "ld" | "ldu" | "st");
        let register = match self.token.kind {
            Kind::Ident => match scopes.find(self.token.text) {
                Some(Found::Register(reg)) => Some(reg),
                _ => None,
            },
            _ => None,
        };
        if register.is_some() {
            self.advance();
        }
        let offset = match register {
            Some(_) if !self.take(b'+') => 0,
            _ => self.integer()?,
        };
        self.expect(b']')?;
        let bytes = offset.wrapping_mul(size_of(declared.ty).into());
        let Some(index) = register else {
            return Ok(match memory {
                true => Operand::Address(Base::Symbol(name.to_string()), bytes),
                false => Operand::Symbol(name.to_string(), bytes),
            });
        };
        let at = self.scaled(scopes, index, declared.ty, (name, bytes), place.pos)?;
        if memory {
            return Ok(Operand::Address(Base::Reg(at), 0));
        }
        let wide = place.modifiers.iter().filter_map(|m| Type::named(m)).any(|ty| size_of(ty) == 8);
        if wide {
            return Ok(Operand::Reg(at));
        }
        let low = scopes.temporary(Type::U32, name.to_string());
        emit(scopes, place.pos, "cvt", &["u32", "u64"], vec![Operand::Reg(low), Operand::Reg(at)]);
        Ok(Operand::Reg(low))
    }

    /// The address of a symbol plus an index, which is unsigned, times the size of a type, in a new register of 64 bits.
    fn scaled(
        &mut self,
        scopes: &mut Scopes<'a>,
        index: Reg,
        ty: Type,
        (name, bytes): (&str, i64),
        pos: Pos,
    ) -> Parsed<Reg> {
        let kind = scopes.body.registers.get(index.0 as usize).map_or(Type::Pred, |r| r.0);
        let new = |scopes: &mut Scopes<'a>| scopes.temporary(Type::U64, format!("{name}[]"));
        let wide = match kind {
            Type::U64 | Type::S64 | Type::B64 => index,
            Type::U32 | Type::S32 | Type::B32 => {
                let wide = new(scopes);
                emit(scopes, pos, "cvt", &["u64", "u32"], vec![Operand::Reg(wide), Operand::Reg(index)]);
                wide
            }
            _ => return self.fail(pos, "a subscript is an integer of 32 or 64 bits"),
        };
        let (base, at) = (new(scopes), new(scopes));
        emit(scopes, pos, "mov", &["u64"], vec![Operand::Reg(base), Operand::Symbol(name.to_string(), bytes)]);
        let size = Operand::Int(size_of(ty).into());
        emit(scopes, pos, "mad", &["lo", "u64"], vec![Operand::Reg(at), Operand::Reg(wide), size, Operand::Reg(base)]);
        Ok(at)
    }

    /// A load, store or atomic without a space whose address is a symbol is one in the symbol's space.
    pub(super) fn spaced(&self, scopes: &Scopes<'a>, instruction: &mut Instruction) {
        let operand = match instruction.opcode.as_str() {
            "ld" | "ldu" | "atom" => instruction.operands.get(1),
            "st" | "red" => instruction.operands.first(),
            _ => None,
        };
        let Some(Operand::Address(Base::Symbol(name), _)) = operand else { return };
        let spaces = ["global", "shared", "local", "const", "param"];
        let given = |m: &String| spaces.contains(&m.split("::").next().unwrap_or_default());
        if instruction.modifiers.iter().any(given) {
            return;
        }
        let word = match self.declared(scopes, name).map(|d| d.space) {
            Some(Space::Global) => "global",
            Some(Space::Shared) => "shared",
            Some(Space::Local) => "local",
            // No generic address is in these.
            _ => return,
        };
        instruction.modifiers.insert(0, word.to_string());
    }
}
