//! Decoding of control flow, and of memory that a thread takes until it returns.

use super::facts::Facts;
use super::integer::unsupported;
use super::mods::Mods;
use super::operand::{P, V, X};
use super::proto::{Builder, Control, Lowered};
use crate::exec::{OpFn, alloca, control};
use crate::note::{Role, Taint};
use crate::ptx::ast::{self, Instruction, Operand, Type};

impl Builder<'_> {
    pub(super) fn branch(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("uni");
        m.finish()?;
        let [Operand::Label(label)] = i.operands.as_slice() else { return Err("a label is needed".to_string()) };
        self.check_label(*label)?;
        let guard = self.guard();
        let decides = Facts::role(Role::Branch, Taint::All);
        if guard == P::True {
            self.push(control::jump, decides).kind = Control::Jump(*label);
        } else {
            let op = self.push(control::branch, decides);
            // The guard decides where lanes go; all of them execute the branch.
            (op.guard, op.q, op.kind) = (P::True, guard, Control::Branch(*label));
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
        (op.a, op.kind) = (a, Control::Indexed(targets.clone()));
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
            _ => control::trap as OpFn,
        };
        let unguarded = self.guard() == P::True;
        let op = self.push(f, Facts::registers(Taint::Defined));
        if unguarded {
            op.kind = Control::Stop;
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
        (op.kind, op.guard, op.weight) = (Control::Stop, P::True, 0);
        Ok(())
    }
}
