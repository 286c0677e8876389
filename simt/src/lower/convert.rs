//! Decoding of `cvt`, `mov` and address conversions.

use super::facts::Facts;
use super::integer::{operands, unsupported};
use super::mods::{Mods, wide};
use super::operand::{P, RegisterClass, V};
use super::proto::{Builder, Lowered};
use crate::exec::cvt::{self, Extend, General, Numeric};
use crate::exec::half::{self, B, H, HalfOp, X2};
use crate::exec::int::{self, Bin, Shift};
use crate::exec::layout::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::exec::mem;
use crate::exec::soft::Round;
use crate::note::Taint;
use crate::ptx::ast::{Instruction, Operand, Type};

fn kind(ty: Type) -> Option<Numeric> {
    Some(match ty {
        Type::F16 => Numeric::F16,
        Type::BF16 => Numeric::BF16,
        Type::F32 => Numeric::F32,
        Type::F64 => Numeric::F64,
        _ if ty.is_int() => Numeric::Int { bits: ty.bits() as u8, signed: ty.is_signed() },
        _ => return None,
    })
}

impl Builder<'_> {
    /// A source whose register may be wider than the type; gives the row with at least the type's bits.
    fn loose_src(&mut self, operand: &Operand, ty: Type) -> Lowered<V> {
        let Some(v) = self.reg(operand) else { return self.src(operand, ty) };
        match (self.class(v), wide(ty)) {
            (RegisterClass::Wide, true) | (RegisterClass::Narrow, false) => Ok(v),
            (RegisterClass::Wide, false) => {
                let t = self.temp(false);
                self.moved(cvt::extend(Extend::Truncate), t, v);
                Ok(t)
            }
            _ => self.src(operand, ty),
        }
    }

    /// Where a result of a type goes, if the register may be wider: a row of the type's width, and the register.
    fn loose_dst(&mut self, operand: &Operand, ty: Type) -> Lowered<(V, Option<V>)> {
        match self.reg(operand) {
            Some(v) if self.class(v) == RegisterClass::Wide && !wide(ty) => Ok((self.temp(false), Some(v))),
            _ => Ok((self.dst(operand, ty)?, None)),
        }
    }

    /// Extends an integer result into a wider register.
    fn widen_into(&mut self, from: V, ty: Type, to: Option<V>) {
        if let Some(to) = to {
            self.moved(cvt::extend(if ty.is_signed() { Extend::S32 } else { Extend::U32 }), to, from);
        }
    }

    pub(super) fn cvt(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if m.take("pack") {
            return self.cvt_pack(i, m);
        }
        let integral = m.any(&["rni", "rzi", "rmi", "rpi"]);
        let away = m.take("rna");
        let round = if away { Some(Round::Away) } else { m.round() };
        let (ftz, sat) = (m.take("ftz"), m.take("sat"));
        let (relu, finite) = (m.take("relu"), m.take("satfinite"));
        let (Some(to), Some(from)) = (m.first(), m.first()) else { return Err("a type is missing".to_string()) };
        m.finish()?;
        let special = |word: &str| matches!(word, "tf32" | "e4m3x2" | "e5m2x2" | "f16x2" | "bf16x2");
        if special(to) || special(from) {
            return self.cvt_packed(i, to, from, round, (ftz, sat), (relu, finite));
        }
        let types = (Type::named(to), Type::named(from));
        let (Some(dty), Some(sty)) = types else { return Err(unsupported(&format!("`.{to}.{from}`"))) };
        let (Some(dst), Some(src)) = (kind(dty), kind(sty)) else {
            return Err(unsupported(&format!("`.{to}.{from}`")));
        };
        let [d, a] = operands(i)?;
        if (relu || finite) && !matches!(dst, Numeric::F16 | Numeric::BF16) {
            return Err(unsupported("this modifier with this type"));
        }
        let mut a = self.loose_src(a, sty)?;
        if ftz && sty == Type::F32 {
            a = self.flushed(a, sty);
        }
        let (row, wider) = self.loose_dst(d, dty)?;
        if let (Numeric::Int { .. }, Numeric::Int { .. }) = (dst, src)
            && !sat
        {
            self.int_to_int(row, dty, a, sty);
            self.widen_into(row, dty, wider);
            return Ok(());
        }
        let float_to_int = matches!(dst, Numeric::Int { .. }) && !matches!(src, Numeric::Int { .. });
        let mode = match integral {
            Some("rni") => Round::Nearest,
            Some("rzi") => Round::Zero,
            Some("rmi") => Round::Down,
            Some(_) => Round::Up,
            None if float_to_int => return Err("a rounding modifier is missing".to_string()),
            // To a float that may not hold the value.
            None if round.is_none()
                && !matches!(dst, Numeric::Int { .. })
                && (matches!(src, Numeric::Int { .. }) || sty.bits() > dty.bits()) =>
            {
                return Err("Rounding modifier required for instruction 'cvt'".to_string());
            }
            None => round.unwrap_or(Round::Nearest),
        };
        let is_integral = integral.is_some();
        // Integers of 8 and 16 bits go through 32 bits on their way to a float.
        let small = matches!(src, Numeric::Int { bits: 8 | 16, .. });
        let (direct_src, direct_a) = match src {
            Numeric::Int { signed, .. } if small && !sat => {
                (Numeric::Int { bits: 32, signed }, self.extended_to(a, sty, false))
            }
            _ => (src, a),
        };
        let direct = if sat || finite { None } else { cvt::direct(dst, direct_src, mode, is_integral) };
        match direct {
            Some(f) => {
                self.op1(f, Taint::All, row, direct_a);
            }
            None => {
                let how = General { dst, src, round: mode, integral: is_integral, sat, finite };
                let op = self.op1(cvt::general, Taint::All, row, a);
                (op.imm, op.apart) = (how.pack(), true);
            }
        }
        if ftz && dty == Type::F32 {
            let t = self.flushed(row, dty);
            self.copy(row, t, false);
        }
        if relu {
            let f = if dty == Type::F16 { half::op::<H>(HalfOp::Relu) } else { half::op::<B>(HalfOp::Relu) };
            self.op1(f, Taint::All, row, row);
        }
        self.widen_into(row, dty, wider);
        Ok(())
    }

    /// Integer to integer without saturation: extension and truncation.
    fn int_to_int(&mut self, d: V, dty: Type, a: V, sty: Type) {
        let (dbits, sbits) = (dty.bits(), sty.bits());
        let extend = |ty: Type| match ty {
            Type::S8 => Some(Extend::S8),
            Type::U8 => Some(Extend::U8),
            Type::S16 => Some(Extend::S16),
            Type::U16 => Some(Extend::U16),
            _ => None,
        };
        if dbits > sbits || (dbits == sbits && dbits >= 32) {
            // The source's low bits, extended by its sign.
            match (extend(sty), dbits) {
                (Some(step), 64) => {
                    let t = self.temp(false);
                    self.moved(cvt::extend(step), t, a);
                    self.moved(cvt::extend(if sty.is_signed() { Extend::S32 } else { Extend::U32 }), d, t);
                }
                (Some(step), _) => self.moved(cvt::extend(step), d, a),
                (None, 64) if sbits == 32 => {
                    self.moved(cvt::extend(if sty.is_signed() { Extend::S32 } else { Extend::U32 }), d, a);
                }
                _ => self.copy(d, a, dbits == 64),
            }
            return;
        }
        let mut a = a;
        if sbits == 64 {
            let t = if dbits == 32 { d } else { self.temp(false) };
            self.moved(cvt::extend(Extend::Truncate), t, a);
            a = t;
        }
        match extend(dty) {
            Some(step) => self.moved(cvt::extend(step), d, a),
            None if sbits != 64 => self.copy(d, a, false),
            None => {}
        }
    }

    /// Conversions to and from packed and tensor formats.
    fn cvt_packed(
        &mut self,
        i: &Instruction,
        to: &str,
        from: &str,
        round: Option<Round>,
        (ftz, sat): (bool, bool),
        (relu, finite): (bool, bool),
    ) -> Lowered<()> {
        let what = || unsupported(&format!("`cvt` from `.{from}` to `.{to}` with these modifiers"));
        if ftz || sat {
            return Err(what());
        }
        let round = round.ok_or_else(|| "a rounding modifier is missing".to_string())?;
        let f32_pair = |b: &mut Self| -> Lowered<(V, V)> {
            let [_, x, y] = operands(i)?;
            Ok((b.src(x, Type::F32)?, b.src(y, Type::F32)?))
        };
        let d = i.operands.first().ok_or_else(|| "operands are missing".to_string())?;
        match (to, from) {
            ("f16x2" | "bf16x2", "f32") => {
                let (a, b) = f32_pair(self)?;
                let bf16 = to == "bf16x2";
                let f = cvt::pack2(bf16, round, finite).ok_or_else(what)?;
                let d = self.dst(d, Type::B32)?;
                self.op2(f, Taint::Pack, d, [a, b]);
                if relu {
                    let f = if bf16 { half::op::<X2<B>>(HalfOp::Relu) } else { half::op::<X2<H>>(HalfOp::Relu) };
                    self.op1(f, Taint::Halves, d, d);
                }
            }
            ("tf32", "f32") if !relu && !finite => {
                let [d, a] = operands(i)?;
                let a = self.src(a, Type::F32)?;
                let d = self.dst(d, Type::B32)?;
                self.op1(cvt::tf32(round).ok_or_else(what)?, Taint::All, d, a);
            }
            ("e4m3x2" | "e5m2x2", "f32") if finite && round == Round::Nearest => {
                let (a, b) = f32_pair(self)?;
                let d = self.dst(d, Type::B16)?;
                self.op2(cvt::fp8_from_f32(to == "e5m2x2", relu), Taint::All, d, [a, b]);
            }
            ("e4m3x2" | "e5m2x2", "f16x2") if finite && round == Round::Nearest => {
                let [d, a] = operands(i)?;
                let a = self.src(a, Type::B32)?;
                let d = self.dst(d, Type::B16)?;
                self.op1(cvt::fp8_from_f16(to == "e5m2x2", relu), Taint::All, d, a);
            }
            ("f16x2", "e4m3x2" | "e5m2x2") if !finite && round == Round::Nearest => {
                let [d, a] = operands(i)?;
                let a = self.src(a, Type::B16)?;
                let d = self.dst(d, Type::B32)?;
                self.op1(cvt::f16_from_fp8(from == "e5m2x2"), Taint::All, d, a);
                if relu {
                    self.op1(half::op::<X2<H>>(HalfOp::Relu), Taint::Halves, d, d);
                }
            }
            _ => return Err(what()),
        }
        Ok(())
    }

    /// `cvt.pack.sat.{u16,s16}.s32 d, a, b` and `cvt.pack.sat.{u8,s8}.s32.b32 d, a, b, c`.
    fn cvt_pack(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let sat = m.take("sat");
        let small = m.any(&["u2", "s2", "u4", "s4"]);
        let (to, signed) = match small {
            Some(word) => (if word.ends_with('2') { 2 } else { 4 }, word.starts_with('s')),
            None => match m.ty()? {
                ty @ (Type::U16 | Type::S16 | Type::U8 | Type::S8) => (ty.bits(), ty.is_signed()),
                _ => return Err(unsupported("this combination of types")),
            },
        };
        let from = m.ty()?;
        let with_c = m.take("b32");
        m.finish()?;
        if !sat || from != Type::S32 {
            return Err(unsupported("this combination of types"));
        }
        let u = Type::U32;
        let (d, a, b, c) = match (i.operands.as_slice(), with_c) {
            ([d, a, b], false) if to == 16 => (d, a, b, V::None),
            ([d, a, b, c], true) if to < 16 => (d, a, b, self.src(c, u)?),
            _ => return Err("Arguments mismatch for instruction 'cvt.pack'".to_string()),
        };
        let (a, b) = (self.src(a, u)?, self.src(b, u)?);
        let c = if c == V::None { a } else { c };
        let d = self.dst(d, u)?;
        let op = self.op3(cvt::pack_sat, Taint::All, d, [a, b, c]);
        (op.imm, op.apart) = (u64::from(to) | u64::from(signed) << 8, true);
        Ok(())
    }

    /// `mov.v2.u32 {a, b}, {c, d}` and the like: all sources are read before anything is written.
    fn mov_vector(&mut self, d: &Operand, a: &Operand, ty: Type, count: u32) -> Lowered<()> {
        let Operand::Vector(to) = d else { return Err("Result vector expected".to_string()) };
        let from: Vec<Operand> = match a {
            Operand::Vector(items) => items.clone(),
            Operand::Special(name) if !name.contains('.') => {
                "xyzw".chars().map(|x| Operand::Special(format!("{name}.{x}"))).collect()
            }
            one => vec![one.clone(); count as usize],
        };
        if to.len() != count as usize || from.len() != to.len() {
            return Err("Argument vector size mismatch for instruction 'mov'".to_string());
        }
        let mut read = Vec::with_capacity(to.len());
        for operand in &from {
            let (v, t) = (self.src(operand, ty)?, self.temp(wide(ty)));
            self.copy(t, v, wide(ty));
            read.push(t);
        }
        for (operand, v) in to.iter().zip(read) {
            let d = self.dst(operand, ty)?;
            self.copy(d, v, wide(ty));
        }
        Ok(())
    }

    pub(super) fn mov(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let count = m.any(&["v2", "v4"]);
        let ty = m.ty()?;
        m.finish()?;
        let [d, a] = operands(i)?;
        if let Some(count) = count {
            return self.mov_vector(d, a, ty, if count == "v2" { 2 } else { 4 });
        }
        match (d, a) {
            _ if ty == Type::Pred => {
                let (p, q) = (self.pred_dst(d)?, self.pred(a)?);
                self.logic_of(p, q, P::True, 0);
                Ok(())
            }
            _ if ty == Type::B128 => self.mov128(d, a),
            (_, Operand::Vector(parts)) => self.pack(d, parts, ty),
            (Operand::Vector(parts), _) => self.unpack(parts, a, ty),
            _ => {
                let a = self.src(a, ty)?;
                let d = self.dst(d, ty)?;
                self.copy(d, a, wide(ty));
                Ok(())
            }
        }
    }

    /// `mov.b128`, to and from two registers of 64 bits or four of 32 as well.
    fn mov128(&mut self, d: &Operand, a: &Operand) -> Lowered<()> {
        let side = |o: &Operand| match o {
            Operand::Vector(parts) => Ok(Some(parts.clone())),
            _ => Ok::<_, String>(None),
        };
        let halves = |parts: &[Operand]| match parts.len() {
            2 => Ok(parts.to_vec()),
            4 => Ok(vec![Operand::Vector(parts[..2].to_vec()), Operand::Vector(parts[2..].to_vec())]),
            _ => Err("Arguments mismatch for instruction 'mov': the vector does not fit the type".to_string()),
        };
        match (side(d)?, side(a)?) {
            (None, None) => {
                let (d, a) = (self.quad(d)?, self.quad(a)?);
                d.into_iter().zip(a).for_each(|(d, a)| self.copy(d, a, true));
            }
            (None, Some(parts)) => {
                let d = self.quad(d)?;
                for (half, to) in halves(&parts)?.iter().zip(d) {
                    let from = match half {
                        Operand::Vector(pair) => {
                            let low = self.src(&pair[0], Type::B32)?;
                            let high = self.src(&pair[1], Type::B32)?;
                            self.joined(low, high)?
                        }
                        whole => self.src(whole, Type::B64)?,
                    };
                    self.copy(to, from, true);
                }
            }
            (Some(parts), None) => {
                let a = self.quad(a)?;
                for (half, from) in halves(&parts)?.iter().zip(a) {
                    match half {
                        Operand::Vector(pair) => {
                            let (low, high) = self.split(from)?;
                            for (to, from) in pair.iter().zip([low, high]) {
                                let to = self.dst(to, Type::B32)?;
                                self.copy(to, from, false);
                            }
                        }
                        whole => {
                            let to = self.dst(whole, Type::B64)?;
                            self.copy(to, from, true);
                        }
                    }
                }
            }
            _ => return Err("Arguments mismatch for instruction 'mov'".to_string()),
        }
        Ok(())
    }

    /// Two registers of 32 bits as one of 64.
    pub(super) fn joined(&mut self, low: V, high: V) -> Lowered<V> {
        let (Some(shl), Some(or)) = (int::shift(Shift::Left, Type::B64), int::bin(Bin::Or, Type::U64)) else {
            return Err(unsupported("this type"));
        };
        let (low, high) = (self.widened(low, true), self.widened(high, true));
        let by = self.bits32(32);
        let (t, d) = (self.temp(true), self.temp(true));
        self.op2(shl, Taint::Same(2), t, [high, by]);
        self.op2(or, Taint::Or, d, [low, t]);
        Ok(d)
    }

    /// One register of 64 bits as two of 32.
    pub(super) fn split(&mut self, v: V) -> Lowered<(V, V)> {
        let Some(shr) = int::shift(Shift::Right, Type::B64) else { return Err(unsupported("this type")) };
        let by = self.bits32(32);
        let (t, low, high) = (self.temp(true), self.temp(false), self.temp(false));
        self.moved(cvt::extend(Extend::Truncate), low, v);
        self.op2(shr, Taint::Same(2), t, [v, by]);
        self.moved(cvt::extend(Extend::Truncate), high, t);
        Ok((low, high))
    }

    /// Types of the parts of a vector `mov`.
    fn part_type(ty: Type, parts: usize) -> Lowered<Type> {
        match (ty.bits() as usize / parts.max(1), ty.bits()) {
            (8, _) => Ok(Type::B8),
            (16, _) => Ok(Type::B16),
            (32, 64) => Ok(Type::B32),
            _ => Err("Arguments mismatch for instruction 'mov': the vector does not fit the type".to_string()),
        }
    }

    /// `mov.b32 d, {a, b}` and the like: the first part is the lowest.
    fn pack(&mut self, d: &Operand, parts: &[Operand], ty: Type) -> Lowered<()> {
        let part = Self::part_type(ty, parts.len())?;
        let rows = parts.iter().map(|p| self.src(p, part)).collect::<Lowered<Vec<V>>>()?;
        let is_wide = wide(ty);
        let d = self.dst(d, ty)?;
        let width = part.bits();
        let (uty, any) = if is_wide { (Type::B64, Type::U64) } else { (Type::B32, Type::U32) };
        let (Some(shl), Some(or)) = (int::shift(Shift::Left, uty), int::bin(Bin::Or, any)) else {
            return Err(unsupported("this type"));
        };
        let mut sum = V::None;
        for (n, row) in rows.into_iter().enumerate() {
            let from = match width {
                8 => Type::U8,
                16 => Type::U16,
                _ => Type::U32,
            };
            let mut v = self.extended_to(row, from, is_wide);
            if n > 0 {
                let amount = self.bits32(n as u32 * width);
                let t = self.temp(is_wide);
                self.op2(shl, Taint::Same(2), t, [v, amount]);
                v = t;
                let t = self.temp(is_wide);
                self.op2(or, Taint::Or, t, [sum, v]);
                v = t;
            }
            sum = v;
        }
        if ty == Type::B16 {
            // Two bytes in a 16-bit register.
            self.copy(d, sum, false);
        } else {
            self.copy(d, sum, is_wide);
        }
        Ok(())
    }

    /// `mov.b32 {d, e}, a` and the like.
    fn unpack(&mut self, parts: &[Operand], a: &Operand, ty: Type) -> Lowered<()> {
        let part = Self::part_type(ty, parts.len())?;
        let a = self.src(a, ty)?;
        let is_wide = wide(ty);
        let Some(shr) = int::shift(Shift::Right, if is_wide { Type::B64 } else { Type::B32 }) else {
            return Err(unsupported("this type"));
        };
        // All parts are computed before any is written: a part may replace the source.
        let mut results = Vec::with_capacity(parts.len());
        for (n, operand) in parts.iter().enumerate() {
            if *operand == Operand::Sink {
                continue;
            }
            let mut v = a;
            if n > 0 {
                let amount = self.bits32(n as u32 * part.bits());
                let t = self.temp(is_wide);
                self.op2(shr, Taint::Same(2), t, [v, amount]);
                v = t;
            }
            if is_wide {
                let t = self.temp(false);
                self.moved(cvt::extend(Extend::Truncate), t, v);
                v = t;
            }
            results.push((self.dst(operand, part)?, v, part));
        }
        for (d, v, part) in results {
            match part {
                Type::B8 => self.moved(cvt::extend(Extend::U8), d, v),
                Type::B16 => self.moved(cvt::extend(Extend::U16), d, v),
                _ => self.copy(d, v, false),
            }
        }
        if self.protos.last().is_none_or(|p| p.instruction != self.at) {
            self.nop(Facts::registers(Taint::Defined));
        }
        Ok(())
    }

    /// `cvta` and `cvta.to`.
    pub(super) fn cvta(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let back = m.take("to");
        let space = m.first().unwrap_or("");
        let ty = m.ty()?;
        m.finish()?;
        if !matches!(ty, Type::U64 | Type::B64 | Type::S64) {
            return Err("addresses have 64 bits: `.u64` is needed".to_string());
        }
        let entry_params = self.function.is_entry;
        let window = match space {
            "global" | "const" => 0,
            "shared" | "shared::cta" | "shared::cluster" => SHARED_WINDOW,
            "local" => LOCAL_WINDOW,
            "param" | "param::entry" if entry_params => PARAM_WINDOW,
            _ => return Err(unsupported(&format!("`cvta` of `.{space}`"))),
        };
        let [d, a] = operands(i)?;
        let a = self.src(a, Type::U64)?;
        let d = self.dst(d, Type::U64)?;
        if window == 0 {
            self.copy(d, a, true);
            return Ok(());
        }
        let Some(f) = int::bin(if back { Bin::Sub } else { Bin::Add }, Type::U64) else {
            return Err(unsupported("cvta"));
        };
        let window = self.bits64(window);
        self.op2(f, Taint::Left, d, [a, window]);
        Ok(())
    }

    pub(super) fn isspacep(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let window = match m.first().unwrap_or("") {
            "global" => 0,
            "shared" | "shared::cta" | "shared::cluster" => SHARED_WINDOW,
            "local" => LOCAL_WINDOW,
            "param" | "param::entry" => PARAM_WINDOW,
            // No address is in the constant space: its variables lie in global memory.
            "const" => 1 << 63,
            space => return Err(unsupported(&format!("space `.{space}`"))),
        };
        m.finish()?;
        let [p, a] = operands(i)?;
        let (p, a) = (self.pred_dst(p)?, self.src(a, Type::U64)?);
        let op = self.op1(mem::isspacep, Taint::All, V::None, a);
        (op.p, op.imm) = (p, window);
        Ok(())
    }
}
