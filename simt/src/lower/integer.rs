//! Decoding of integer, bit and logic instructions, comparisons and selections.

use super::facts::{self, Facts, cancels};
use super::mods::{Mods, wide};
use super::operand::{P, V};
use super::proto::{Builder, Lowered};
use crate::exec::cvt;
use crate::exec::int::{self, Bin, Carry, Cmp, Un};
use crate::exec::lanes::combine;
use crate::exec::{dot, permute, truth};
use crate::note::{Role, Taint};
use crate::ptx::ast::{Instruction, Operand, Type};

pub(super) fn unsupported(what: &str) -> String {
    format!("{what} is not supported")
}

/// The operands, if there are as many as needed.
pub(super) fn operands<const N: usize>(i: &Instruction) -> Lowered<&[Operand; N]> {
    i.operands.as_slice().try_into().map_err(|_| {
        format!("Arguments mismatch for instruction '{}': {N} expected, {} found", i.opcode, i.operands.len())
    })
}

/// Whether amounts are limited, and not taken modulo their range.
fn clamps(m: &Mods<'_>) -> Lowered<bool> {
    match m.any(&["clamp", "wrap"]) {
        Some(mode) => Ok(mode == "clamp"),
        None => Err("`.clamp` or `.wrap` is missing".to_string()),
    }
}

impl Builder<'_> {
    fn binary(&mut self, f: Option<crate::exec::OpFn>, facts: Facts, ty: Type, i: &Instruction) -> Lowered<()> {
        let f = f.ok_or_else(|| unsupported("this type"))?;
        let [d, a, b] = operands(i)?;
        let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
        let d = self.dst(d, ty)?;
        let op = self.push(f, facts);
        (op.d, op.a, op.b) = (d, a, b);
        Ok(())
    }

    /// As [`binary`](Self::binary), of two sources that cancel each other where they are one register.
    fn cancelling(&mut self, f: Option<crate::exec::OpFn>, taint: Taint, ty: Type, i: &Instruction) -> Lowered<()> {
        self.binary(f, Facts::registers(taint), ty, i)?;
        let op = self.last();
        op.facts.taint = cancels(op.a, op.b, taint);
        Ok(())
    }

    /// `add`, `sub` of integers.
    fn add_sub(&mut self, i: &Instruction, m: &Mods<'_>, sub: bool) -> Lowered<()> {
        let x2 = m.any(&["u16x2", "s16x2"]);
        if x2.is_some() {
            m.finish()?;
            return match sub {
                false => self.binary(int::bin_x2(Bin::Add, true), Facts::registers(Taint::Halves), Type::B32, i),
                true => Err(unsupported("this type")),
            };
        }
        let (cc, sat) = (m.take("cc"), m.take("sat"));
        let ty = m.ty()?;
        m.finish()?;
        if cc {
            return self.extended(i, ty, if sub { Carry::Sub } else { Carry::Add }, false, true);
        }
        if sat && ty != Type::S32 {
            return Err("`.sat` needs type `.s32`".to_string());
        }
        let op = match (sub, sat) {
            (false, false) => Bin::Add,
            (true, false) => Bin::Sub,
            (false, true) => Bin::AddSat,
            (true, true) => Bin::SubSat,
        };
        if !ty.is_int() || ty.bits() == 8 {
            return Err(unsupported("this type"));
        }
        let taint = if sat { Taint::All } else { Taint::Left };
        match sub {
            true => self.cancelling(int::bin(op, ty), taint, ty, i),
            false => self.binary(int::bin(op, ty), Facts::registers(taint), ty, i),
        }
    }

    /// `addc`, `subc`.
    fn add_sub_carry(&mut self, i: &Instruction, m: &Mods<'_>, sub: bool) -> Lowered<()> {
        let cc = m.take("cc");
        let ty = m.ty()?;
        m.finish()?;
        self.extended(i, ty, if sub { Carry::Sub } else { Carry::Add }, true, cc)
    }

    /// `add`.
    pub(super) fn add(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        self.add_sub(i, m, false)
    }

    /// `sub`.
    pub(super) fn sub(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        self.add_sub(i, m, true)
    }

    /// `addc`.
    pub(super) fn add_carry(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        self.add_sub_carry(i, m, false)
    }

    /// `subc`.
    pub(super) fn sub_borrow(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        self.add_sub_carry(i, m, true)
    }

    fn extended(&mut self, i: &Instruction, ty: Type, op: Carry, cin: bool, cout: bool) -> Lowered<()> {
        if !ty.is_int() || ty.bits() < 32 {
            return Err(unsupported("this type"));
        }
        let three = matches!(op, Carry::MadLo | Carry::MadHi { .. });
        let (d, sources) = match i.operands.as_slice() {
            [d, a, b] if !three => (d, [a, b, b]),
            [d, a, b, c] if three => (d, [a, b, c]),
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        };
        let [a, b, c] = [self.src(sources[0], ty)?, self.src(sources[1], ty)?, self.src(sources[2], ty)?];
        let d = self.dst(d, ty)?;
        let taint = match op {
            Carry::Sub if !cin => cancels(a, b, Taint::Left),
            Carry::MadHi { .. } => Taint::All,
            Carry::Add | Carry::Sub | Carry::MadLo => Taint::Left,
        };
        let sum = self.op3(int::extended(op, wide(ty)), taint, d, [a, b, c]);
        sum.imm = u64::from(cin) | u64::from(cout) << 1 | u64::from(op == Carry::Sub) << 2;
        sum.carry = (cin, cout);
        Ok(())
    }

    /// The operation pushed last.
    pub(super) fn last(&mut self) -> &mut super::proto::Proto {
        let n = self.protos.len() - 1;
        &mut self.protos[n]
    }

    /// `mul`, `mad`, `mul24`, `mad24`, `madc` of integers.
    pub(super) fn multiply(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let (mad, short, carry_in) = (i.opcode.starts_with("mad"), i.opcode.ends_with("24"), i.opcode == "madc");
        let Some(part) = m.any(&["lo", "hi", "wide"]) else {
            return Err("`.lo`, `.hi` or `.wide` is missing".to_string());
        };
        let (cc, sat) = (m.take("cc"), m.take("sat"));
        let ty = m.ty()?;
        m.finish()?;
        if !ty.is_int() || ty.bits() == 8 || (short && ty.bits() != 32) {
            return Err(unsupported("this type"));
        }
        if cc || carry_in {
            let op = match part {
                "lo" => Carry::MadLo,
                "hi" => Carry::MadHi { signed: ty.is_signed() },
                _ => return Err(unsupported("`.wide` with a carry")),
            };
            return self.extended(i, ty, op, carry_in, cc);
        }
        if sat && !(mad && part == "hi" && ty == Type::S32) {
            return Err("`.sat` needs `mad.hi.s32`".to_string());
        }
        if part == "wide" {
            let result = match ty {
                Type::S16 => Type::S32,
                Type::U16 => Type::U32,
                Type::S32 => Type::S64,
                _ => Type::U64,
            };
            let f = int::wide(ty, mad).ok_or_else(|| unsupported("this type"))?;
            if mad {
                let [d, a, b, c] = operands(i)?;
                let (a, b, c) = (self.src(a, ty)?, self.src(b, ty)?, self.src(c, result)?);
                let d = self.dst(d, result)?;
                self.op3(f, Taint::Left, d, [a, b, c]).apart = true;
            } else {
                let [d, a, b] = operands(i)?;
                let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
                let d = self.dst(d, result)?;
                self.op2(f, Taint::Left, d, [a, b]);
            }
            return Ok(());
        }
        let op = match (short, part) {
            (false, "lo") => Bin::MulLo,
            (false, _) => Bin::MulHi,
            (true, "lo") => Bin::Mul24Lo,
            (true, _) => Bin::Mul24Hi,
        };
        let taint = if op == Bin::MulLo { Taint::Left } else { Taint::All };
        if !mad {
            return self.binary(int::bin(op, ty), Facts::registers(taint), ty, i);
        }
        let [d, a, b, c] = operands(i)?;
        let (a, b, c) = (self.src(a, ty)?, self.src(b, ty)?, self.src(c, ty)?);
        let d = self.dst(d, ty)?;
        if op == Bin::MulLo
            && let Some(f) = int::mad_lo(ty)
        {
            self.op3(f, taint, d, [a, b, c]);
            return Ok(());
        }
        let (Some(product), Some(sum)) = (int::bin(op, ty), int::bin(if sat { Bin::AddSat } else { Bin::Add }, ty))
        else {
            return Err(unsupported("this type"));
        };
        let t = self.temp(wide(ty));
        self.op2(product, taint, t, [a, b]);
        self.op2(sum, if sat { Taint::All } else { Taint::Left }, d, [t, c]);
        Ok(())
    }

    /// `div`, `rem` of integers.
    pub(super) fn divide(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        if !ty.is_int() || ty.bits() == 8 {
            return Err(unsupported("this type"));
        }
        let facts = Facts::role(Role::Divide(ty.bits() as u8), Taint::All);
        self.binary(int::bin(if i.opcode == "div" { Bin::Div } else { Bin::Rem }, ty), facts, ty, i)
    }

    /// `min`, `max` of integers.
    pub(super) fn extreme(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let op = if i.opcode == "min" { Bin::Min } else { Bin::Max };
        let relu = m.take("relu");
        let x2 = m.any(&["u16x2", "s16x2"]);
        let ty = match x2 {
            Some("s16x2") => Type::S32,
            Some(_) => Type::U32,
            None => m.ty()?,
        };
        m.finish()?;
        if !ty.is_int() || ty.bits() == 8 || (relu && ty != Type::S32) {
            return Err(unsupported("this type"));
        }
        let f = if x2.is_some() { int::bin_x2(op, ty.is_signed()) } else { int::bin(op, ty) };
        let taint = if x2.is_some() { Taint::Halves } else { Taint::All };
        self.binary(f, Facts::registers(taint), ty, i)?;
        if relu {
            let d = self.last().d;
            self.op1(int::relu(ty, x2.is_some()), taint, d, d);
        }
        Ok(())
    }

    /// One-operand instructions whose result has the operand's type, or 32 bits.
    pub(super) fn unary_int(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let shift = m.take("shiftamt");
        let ty = m.ty()?;
        m.finish()?;
        let (op, taint, narrow) = match i.opcode.as_str() {
            "neg" => (Un::Neg, Taint::Left, false),
            "abs" => (Un::Abs, Taint::All, false),
            "not" => (Un::Not, Taint::Xor, false),
            "cnot" => (Un::Cnot, Taint::All, false),
            "brev" => (Un::Brev, Taint::Same(0), false),
            "popc" => (Un::Popc, Taint::All, true),
            "clz" => (Un::Clz, Taint::All, true),
            _ => (if shift { Un::BfindShift } else { Un::Bfind }, Taint::All, true),
        };
        let [d, a] = operands(i)?;
        if ty == Type::Pred && op == Un::Not {
            let (p, q) = (self.pred_dst(d)?, self.pred(a)?);
            let q = match q {
                P::Reg(r, n) => P::Reg(r, !n),
                P::True => P::False,
                _ => P::True,
            };
            self.logic_of(p, q, P::True, 0);
            return Ok(());
        }
        let f = int::un(op, ty).ok_or_else(|| unsupported("this type"))?;
        let a = self.src(a, ty)?;
        let d = self.dst(d, if narrow { Type::U32 } else { ty })?;
        self.op1(f, taint, d, a);
        Ok(())
    }

    /// `and`, `or`, `xor`.
    pub(super) fn logic(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        let (op, taint) = match i.opcode.as_str() {
            "and" => (Bin::And, Taint::And),
            "or" => (Bin::Or, Taint::Or),
            _ => (Bin::Xor, Taint::Xor),
        };
        if ty == Type::Pred {
            let [d, a, b] = operands(i)?;
            let (p, a, b) = (self.pred_dst(d)?, self.pred(a)?, self.pred(b)?);
            let code = match op {
                Bin::And => 0,
                Bin::Or => 1,
                _ => 2,
            };
            self.logic_of(p, a, b, code);
            return Ok(());
        }
        if !matches!(ty, Type::B16 | Type::B32 | Type::B64) {
            return Err(unsupported("this type"));
        }
        match op {
            Bin::Xor => self.cancelling(int::bin(op, ty), taint, ty, i),
            _ => self.binary(int::bin(op, ty), Facts::registers(taint), ty, i),
        }
    }

    /// `shl`, `shr`.
    pub(super) fn shift(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        let op = if i.opcode == "shl" { int::Shift::Left } else { int::Shift::Right };
        if i.opcode == "shl" && ty.is_int() {
            return Err("Unexpected instruction types specified for 'shl'".to_string());
        }
        let f = int::shift(op, ty).ok_or_else(|| unsupported("this type"))?;
        let [d, a, n] = operands(i)?;
        let (a, n) = (self.src(a, ty)?, self.src(n, Type::U32)?);
        let d = self.dst(d, ty)?;
        self.op2(f, Taint::Same(2), d, [a, n]);
        Ok(())
    }

    /// Bit-field and byte instructions with operands of fixed types.
    pub(super) fn fields(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        match i.opcode.as_str() {
            "shf" => {
                let left = match m.any(&["l", "r"]) {
                    Some(d) => d == "l",
                    None => return Err("`.l` or `.r` is missing".to_string()),
                };
                let clamp = clamps(m)?;
                self.fixed3(i, m, &[Type::B32], int::funnel(left, clamp), Taint::Same(4))
            }
            "prmt" => self.permute(i, m),
            "bfe" => {
                let ty = m.ty()?;
                m.finish()?;
                let f = int::bfe(ty).ok_or_else(|| unsupported("this type"))?;
                self.typed3(i, [ty, Type::U32, Type::U32], f, Taint::Same(6))
            }
            "bfi" => {
                let ty = m.ty()?;
                m.finish()?;
                let f = int::bfi(ty).ok_or_else(|| unsupported("this type"))?;
                let [d, a, b, c, e] = operands(i)?;
                let u = Type::U32;
                let sources = [self.src(a, ty)?, self.src(b, ty)?, self.src(c, u)?, self.src(e, u)?];
                let d = self.dst(d, ty)?;
                self.op4(f, Taint::Same(12), d, sources);
                Ok(())
            }
            "bmsk" | "szext" => {
                let clamp = clamps(m)?;
                let ty = m.ty()?;
                m.finish()?;
                let f = match (i.opcode.as_str(), ty) {
                    ("bmsk", Type::B32) => int::bmsk(clamp),
                    ("szext", Type::U32 | Type::S32) => int::szext(ty == Type::S32, clamp),
                    _ => return Err(unsupported("this type")),
                };
                self.binary(Some(f), Facts::registers(Taint::All), Type::U32, i)
            }
            "fns" => self.fixed3(i, m, &[Type::B32], int::fns(), Taint::All),
            "sad" => {
                let ty = m.ty()?;
                m.finish()?;
                let f = int::sad(ty).ok_or_else(|| unsupported("this type"))?;
                self.typed3(i, [ty; 3], f, Taint::All)
            }
            "dp4a" => {
                let (a, b) = (m.ty()?, m.ty()?);
                let f = dot::dp4a(sign_of(a)?, sign_of(b)?);
                self.fixed3(i, m, &[], f, Taint::All)
            }
            _ => self.dot_of_two(i, m),
        }
    }

    /// `prmt`.
    fn permute(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        let mode = m.any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]).unwrap_or("");
        if ty != Type::B32 {
            return Err(unsupported("this type"));
        }
        m.finish()?;
        let u = Type::U32;
        let [d, a, b, c] = operands(i)?;
        let (a, b, c) = (self.src(a, u)?, self.src(b, u)?, self.src(c, u)?);
        let d = self.dst(d, u)?;
        self.bytes_of(mode, d, [a, b, c])
    }

    /// Four bytes of two registers, by selectors that may be a constant.
    pub(super) fn bytes_of(&mut self, mode: &str, d: V, sources: [V; 3]) -> Lowered<()> {
        let (f, imm) = match self.constant_bits(sources[2]) {
            Some(c) => permute::prmt_constant(mode, c as u32),
            None => permute::prmt(mode).map(|f| (f, 0)),
        }
        .ok_or_else(|| unsupported("this mode"))?;
        self.op3(f, Taint::Same(4), d, sources).imm = imm;
        Ok(())
    }

    /// `dp2a`.
    fn dot_of_two(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let high = match m.any(&["lo", "hi"]) {
            Some(part) => part == "hi",
            None => return Err("`.lo` or `.hi` is missing".to_string()),
        };
        let (a, b) = (m.ty()?, m.ty()?);
        m.finish()?;
        let mode = u32::from(high) | u32::from(sign_of(a)?) << 1 | u32::from(sign_of(b)?) << 2;
        let [d, a, b, c] = operands(i)?;
        let u = Type::U32;
        let sources = [self.src(a, u)?, self.src(b, u)?, self.src(c, u)?, self.bits32(mode)];
        let d = self.dst(d, u)?;
        self.op4(int::dp2a(), Taint::All, d, sources);
        Ok(())
    }

    /// An operation on three sources of these types; its destination has the type of the first.
    fn typed3(&mut self, i: &Instruction, types: [Type; 3], f: crate::exec::OpFn, taint: Taint) -> Lowered<()> {
        let [d, a, b, c] = operands(i)?;
        let sources = [self.src(a, types[0])?, self.src(b, types[1])?, self.src(c, types[2])?];
        let d = self.dst(d, types[0])?;
        self.op3(f, taint, d, sources);
        Ok(())
    }

    fn fixed3(
        &mut self,
        i: &Instruction,
        m: &Mods<'_>,
        types: &[Type],
        f: crate::exec::OpFn,
        taint: Taint,
    ) -> Lowered<()> {
        for &ty in types {
            if m.ty()? != ty {
                return Err(unsupported("this type"));
            }
        }
        m.finish()?;
        let [d, a, b, c] = operands(i)?;
        let u = Type::U32;
        let (a, b, c) = (self.src(a, u)?, self.src(b, u)?, self.src(c, u)?);
        let d = self.dst(d, u)?;
        self.op3(f, taint, d, [a, b, c]);
        Ok(())
    }

    /// `lop3`, with or without its predicate form.
    pub(super) fn lop3(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let join = m.any(&["or", "and"]);
        if m.ty()? != Type::B32 {
            return Err(unsupported("this type"));
        }
        m.finish()?;
        let u = Type::U32;
        let (d, p, rest, q) = match (i.operands.as_slice(), join) {
            ([d, a, b, c, table], None) => (d, None, [a, b, c, table], None),
            ([Operand::Pair(d, p), a, b, c, table, q], Some(_)) => (&**d, Some(&**p), [a, b, c, table], Some(q)),
            _ => return Err("Arguments mismatch for instruction 'lop3'".to_string()),
        };
        let mut sources = [V::None; 4];
        for (to, from) in sources.iter_mut().zip(rest) {
            *to = self.src(from, u)?;
        }
        // Larger tables than a byte are taken, and cut.
        let Operand::Int(table) = rest[3] else {
            return Err("the truth table of `lop3` must be a constant".to_string());
        };
        sources[3] = self.bits32(u32::from(*table as u8));
        let d = self.dst(d, u)?;
        let (handler, imm) = truth::lop3(*table as u8);
        self.op4(handler, Taint::Lop3, d, sources).imm = imm;
        if let (Some(p), Some(q)) = (p, q) {
            let (p, q) = (self.pred_dst(p)?, self.pred(q)?);
            let zero = self.bits32(0);
            let Some(f) = int::compare(Cmp::Ne, Type::B32) else { return Err(unsupported("this type")) };
            let op = self.op2(f, facts::ANY_BIT, V::None, [d, zero]);
            (op.p, op.q) = (p, q);
            op.imm = if join == Some("or") { combine::OR } else { combine::AND };
        }
        Ok(())
    }

    /// Extends a 32-bit register in place from a narrower type, or to 64 bits into a new one.
    pub(super) fn extended_to(&mut self, v: V, from: Type, to_wide: bool) -> V {
        let step = match from {
            Type::S8 => Some(cvt::Extend::S8),
            Type::U8 | Type::B8 => Some(cvt::Extend::U8),
            Type::S16 => Some(cvt::Extend::S16),
            Type::U16 | Type::B16 => Some(cvt::Extend::U16),
            _ => None,
        };
        let mut v = v;
        if let Some(step) = step {
            let t = self.temp(false);
            self.moved(cvt::extend(step), t, v);
            v = t;
        }
        if to_wide && from.bits() < 64 {
            let t = self.temp(true);
            self.moved(cvt::extend(if from.is_signed() { cvt::Extend::S32 } else { cvt::Extend::U32 }), t, v);
            v = t;
        }
        v
    }
}

pub(super) fn sign_of(ty: Type) -> Lowered<bool> {
    match ty {
        Type::S32 => Ok(true),
        Type::U32 => Ok(false),
        _ => Err(unsupported("this type")),
    }
}
