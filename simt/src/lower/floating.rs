//! Decoding of floating-point instructions.

use super::facts::arithmetic as halves_or_all;
use super::integer::{operands, unsupported};
use super::mods::Mods;
use super::operand::V;
use super::proto::{Builder, Lowered};
use crate::approx;
use crate::exec::OpFn;
use crate::exec::cvt::{self, Numeric};
use crate::exec::float::{self, Approx, Arith, Unary};
use crate::exec::half::{self, B, H, HalfOp, X2};
use crate::exec::soft::Round;
use crate::note::Taint;
use crate::ptx::ast::{Instruction, Operand, Type};

/// The handler of a half-precision operation, if the type is one.
fn half_op(op: HalfOp, ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::F16 => half::op::<H>(op),
        Type::BF16 => half::op::<B>(op),
        Type::F16x2 => half::op::<X2<H>>(op),
        Type::BF16x2 => half::op::<X2<B>>(op),
        _ => return None,
    })
}

pub(super) fn is_float(word: &str) -> bool {
    matches!(word, "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f32x2" | "f64")
}

impl Builder<'_> {
    /// The value with subnormals flushed.
    pub(super) fn flushed(&mut self, v: V, ty: Type) -> V {
        let t = self.temp(ty == Type::F64);
        let f = half_op(HalfOp::Flush, ty).unwrap_or_else(|| float::unary(Unary::Flush, ty == Type::F64));
        self.op1(f, halves_or_all(ty), t, v);
        t
    }

    /// Applies `.ftz`, `.sat` and `.relu` to a result in place.
    fn finish_float(&mut self, d: V, ty: Type, ftz: bool, sat: bool, relu: bool) {
        let (wide, taint) = (ty == Type::F64, halves_or_all(ty));
        if ftz {
            let f = half_op(HalfOp::Flush, ty).unwrap_or_else(|| float::unary(Unary::Flush, wide));
            self.op1(f, taint, d, d);
        }
        if sat {
            let f = half_op(HalfOp::Saturate, ty).unwrap_or_else(|| float::unary(Unary::Saturate, wide));
            self.op1(f, taint, d, d);
        }
        if relu && let Some(f) = half_op(HalfOp::Relu, ty) {
            self.op1(f, taint, d, d);
        }
    }

    /// `add sub mul fma mad div sqrt rcp` with IEEE rounding.
    fn arithmetic(&mut self, i: &Instruction, m: &Mods<'_>, op: Arith) -> Lowered<()> {
        let round = m.round();
        let (ftz, sat, relu) = (m.take("ftz"), m.take("sat"), m.take("relu"));
        let ty = m.ty()?;
        // `add.f32.f16`: operands but the addend are of half precision.
        let factors = if ty == Type::F32 && matches!(op, Arith::Add | Arith::Sub | Arith::Fma) {
            m.any(&["f16", "bf16"])
        } else {
            None
        };
        m.finish()?;
        let half = match op {
            Arith::Add => Some(HalfOp::Add),
            Arith::Sub => Some(HalfOp::Sub),
            Arith::Mul => Some(HalfOp::Mul),
            Arith::Fma => Some(HalfOp::Fma),
            _ => None,
        };
        let half = half.and_then(|h| half_op(h, ty));
        let round = match (round, ty) {
            (Some(r), _) => r,
            (None, _) if half.is_some() => Round::Nearest,
            (None, Type::F32 | Type::F64) if matches!(op, Arith::Add | Arith::Sub | Arith::Mul) => Round::Nearest,
            (None, _) => return Err("a rounding modifier is missing".to_string()),
        };
        if half.is_some() && round != Round::Nearest {
            return Err(unsupported("this rounding with this type"));
        }
        if relu && !(half.is_some() && op == Arith::Fma) {
            return Err("`.relu` needs `fma` of a half-precision type".to_string());
        }
        if (ftz || sat) && ty == Type::F64 {
            return Err("`.ftz` and `.sat` are not for `.f64`".to_string());
        }
        if ftz && matches!(ty, Type::BF16 | Type::BF16x2) {
            return Err("Illegal modifier '.ftz' for this type".to_string());
        }
        let fused = ty == Type::F32 && round == Round::Nearest;
        let f = match (ty, half) {
            (_, Some(f)) => f,
            (Type::F32, _) => float::arith32(op, round, ftz && fused),
            (Type::F64, _) => float::arith64(op, round),
            _ => return Err(unsupported("this type")),
        };
        let flush = ftz && !fused;
        let mut sources = [V::None; 3];
        let count = match op {
            Arith::Fma => 3,
            Arith::Sqrt | Arith::Rcp => 1,
            _ => 2,
        };
        if i.operands.len() != count + 1 {
            return Err(format!("Arguments mismatch for instruction '{}'", i.opcode));
        }
        if factors.is_some() && ftz {
            return Err(unsupported("`.ftz` with operands of two types"));
        }
        let halves = if op == Arith::Fma { 2 } else { 1 };
        for (n, (to, from)) in sources.iter_mut().zip(&i.operands[1..]).enumerate() {
            if let Some(word) = factors.filter(|_| n < halves) {
                *to = self.widened_half(from, word == "bf16")?;
                continue;
            }
            *to = self.src(from, ty)?;
            if flush {
                *to = self.flushed(*to, ty);
            }
        }
        let d = self.dst(&i.operands[0], ty)?;
        self.op3(f, halves_or_all(ty), d, sources);
        self.finish_float(d, ty, flush, sat, relu);
        Ok(())
    }

    /// A half-precision source as f32, which is exact.
    fn widened_half(&mut self, operand: &Operand, bf16: bool) -> Lowered<V> {
        let (ty, kind) = if bf16 { (Type::BF16, Numeric::BF16) } else { (Type::F16, Numeric::F16) };
        let a = self.src(operand, ty)?;
        let f = cvt::direct(Numeric::F32, kind, Round::Nearest, false).ok_or_else(|| unsupported("this type"))?;
        let t = self.temp(false);
        self.op1(f, Taint::All, t, a);
        Ok(t)
    }

    /// `add sub mul fma` of `.f32x2`.
    fn packed(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let op = match i.opcode.as_str() {
            "add" => Arith::Add,
            "sub" => Arith::Sub,
            "mul" => Arith::Mul,
            "fma" => Arith::Fma,
            other => return Err(unsupported(&format!("`{other}.f32x2`"))),
        };
        let round = m.round();
        if round.is_none() && op == Arith::Fma {
            return Err("Rounding modifier required for instruction 'fma'".to_string());
        }
        let round = round.unwrap_or(Round::Nearest);
        let ftz = m.take("ftz");
        m.take("f32x2");
        m.finish()?;
        let (d, sources) = i.operands.split_first().ok_or_else(|| "operands are missing".to_string())?;
        if sources.len() != if op == Arith::Fma { 3 } else { 2 } {
            return Err(format!("Arguments mismatch for instruction '{}'", i.opcode));
        }
        let mut rows = [V::None; 3];
        for (to, from) in rows.iter_mut().zip(sources) {
            *to = self.src(from, Type::B64)?;
        }
        let d = self.dst(d, Type::B64)?;
        if let Some(f) = float::arith32x2(op, ftz).filter(|_| round == Round::Nearest) {
            self.op3(f, Taint::All, d, rows);
            return Ok(());
        }
        // Directed rounding: one half after the other.
        let f = float::arith32(op, round, false);
        let mut halves = [[V::None; 3]; 2];
        for (n, &row) in rows.iter().enumerate().take(sources.len()) {
            let (low, high) = self.split(row)?;
            for (half, v) in halves.iter_mut().zip([low, high]) {
                half[n] = if ftz { self.flushed(v, Type::F32) } else { v };
            }
        }
        let mut results = [V::None; 2];
        for (half, result) in halves.into_iter().zip(&mut results) {
            *result = self.temp(false);
            self.op3(f, Taint::All, *result, half);
            self.finish_float(*result, Type::F32, ftz, false, false);
        }
        let whole = self.joined(results[0], results[1])?;
        self.copy(d, whole, true);
        Ok(())
    }

    /// Any instruction on a float type that integers have too.
    pub(super) fn float(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if i.modifiers.last().is_some_and(|w| w == "f32x2") {
            return self.packed(i, m);
        }
        match i.opcode.as_str() {
            "add" => self.arithmetic(i, m, Arith::Add),
            "sub" => self.arithmetic(i, m, Arith::Sub),
            "mul" => self.arithmetic(i, m, Arith::Mul),
            "fma" | "mad" => self.arithmetic(i, m, Arith::Fma),
            "div" => self.float_div(i, m),
            "min" | "max" => self.float_extreme(i, m),
            _ => self.float_sign(i, m),
        }
    }

    fn float_div(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let Some(kind) = m.any(&["approx", "full"]) else { return self.arithmetic(i, m, Arith::Div) };
        let ftz = m.take("ftz");
        if m.ty()? != Type::F32 {
            return Err(unsupported("this type"));
        }
        m.finish()?;
        let [d, a, b] = operands(i)?;
        let (mut a, mut b) = (self.src(a, Type::F32)?, self.src(b, Type::F32)?);
        if ftz {
            (a, b) = (self.flushed(a, Type::F32), self.flushed(b, Type::F32));
        }
        let d = self.dst(d, Type::F32)?;
        self.op2(float::div_approx(kind == "full"), Taint::All, d, [a, b]);
        self.approximate |= approx::one("div", kind, ftz, "f32");
        self.finish_float(d, Type::F32, ftz, false, false);
        Ok(())
    }

    fn float_extreme(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let max = i.opcode == "max";
        let (ftz, nan) = (m.take("ftz"), m.take("NaN"));
        let xorsign = m.take("xorsign");
        let abs = m.take("abs");
        let ty = m.ty()?;
        m.finish()?;
        let three = i.operands.len() == 4 && ty == Type::F32 && !xorsign;
        if (xorsign != abs && !three) || (xorsign && ty == Type::F64) {
            return Err(unsupported("`.xorsign` or `.abs` in this form"));
        }
        let half = match (xorsign, max) {
            (true, _) => HalfOp::XorSign { max, nan },
            (false, true) => HalfOp::Max { nan },
            (false, false) => HalfOp::Min { nan },
        };
        let half = half_op(half, ty);
        let f = match (ty, half) {
            (_, Some(f)) => f,
            (Type::F32, _) => float::extreme32(max, nan, xorsign),
            (Type::F64, _) if !nan && !ftz => float::extreme64(max),
            _ => return Err(unsupported("this type")),
        };
        if three {
            return self.extreme_of_three(i, f, ftz, abs);
        }
        let [d, a, b] = operands(i)?;
        let (mut a, mut b) = (self.src(a, ty)?, self.src(b, ty)?);
        if ftz {
            (a, b) = (self.flushed(a, ty), self.flushed(b, ty));
        }
        let d = self.dst(d, ty)?;
        self.op2(f, halves_or_all(ty), d, [a, b]);
        Ok(())
    }

    /// `min`, `max` of three f32: of the first two, and of that and the third.
    fn extreme_of_three(&mut self, i: &Instruction, f: OpFn, ftz: bool, abs: bool) -> Lowered<()> {
        let [d, sources @ ..] = operands::<4>(i)?;
        let mut rows = [V::None; 3];
        for (row, source) in rows.iter_mut().zip(sources) {
            *row = self.src(source, Type::F32)?;
            if ftz {
                *row = self.flushed(*row, Type::F32);
            }
            if abs {
                let t = self.temp(false);
                self.op1(float::unary(Unary::Abs, false), Taint::All, t, *row);
                *row = t;
            }
        }
        let d = self.dst(d, Type::F32)?;
        let [a, b, c] = rows;
        let t = self.temp(false);
        self.op2(f, Taint::All, t, [a, b]);
        self.op2(f, Taint::All, d, [t, c]);
        Ok(())
    }

    /// `neg`, `abs`.
    fn float_sign(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ftz = m.take("ftz");
        let ty = m.ty()?;
        m.finish()?;
        if ftz && matches!(ty, Type::BF16 | Type::BF16x2) {
            return Err("Illegal modifier '.ftz' for this type".to_string());
        }
        let neg = i.opcode == "neg";
        let half = half_op(if neg { HalfOp::Neg } else { HalfOp::Abs }, ty);
        let f = half.unwrap_or_else(|| float::unary(if neg { Unary::Neg } else { Unary::Abs }, ty == Type::F64));
        let [d, a] = operands(i)?;
        let mut a = self.src(a, ty)?;
        if ftz {
            a = self.flushed(a, ty);
        }
        let d = self.dst(d, ty)?;
        self.op1(f, halves_or_all(ty), d, a);
        Ok(())
    }

    /// `rcp sqrt rsqrt sin cos lg2 ex2 tanh`.
    pub(super) fn function(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if !m.take("approx") {
            return match i.opcode.as_str() {
                "rcp" => self.arithmetic(i, m, Arith::Rcp),
                "sqrt" => self.arithmetic(i, m, Arith::Sqrt),
                _ => Err("`.approx` is missing".to_string()),
            };
        }
        let ftz = m.take("ftz");
        let ty = m.ty()?;
        m.finish()?;
        let (op, half) = match i.opcode.as_str() {
            "rcp" => (Approx::Rcp, None),
            "sqrt" => (Approx::Sqrt, None),
            "rsqrt" => (Approx::Rsqrt, None),
            "sin" => (Approx::Sin, None),
            "cos" => (Approx::Cos, None),
            "lg2" => (Approx::Lg2, None),
            "ex2" => (Approx::Ex2, half_op(HalfOp::Ex2, ty)),
            _ => (Approx::Tanh, half_op(HalfOp::Tanh, ty)),
        };
        let required = match (op, ty) {
            (Approx::Rcp, Type::F64) | (Approx::Ex2, Type::BF16 | Type::BF16x2) => Some(true),
            (Approx::Tanh, _) | (Approx::Ex2, Type::F16 | Type::F16x2) => Some(false),
            _ => None,
        };
        if required.is_some_and(|r| r != ftz) {
            let must = if ftz { "is not for" } else { "is required for" };
            return Err(format!("'.ftz' {must} instruction '{}' of this type", i.opcode));
        }
        let f = match ty {
            Type::F32 => Some(float::approx32(op)),
            Type::F64 => float::approx64(op, ftz),
            _ => half,
        };
        let f = f.ok_or_else(|| unsupported("this type"))?;
        let word = i.modifiers.last().map_or("", String::as_str);
        self.approximate |= approx::one(&i.opcode, "approx", ftz, word);
        let [d, a] = operands(i)?;
        let mut a = self.src(a, ty)?;
        let flush = ftz && matches!(ty, Type::F32 | Type::BF16 | Type::BF16x2);
        if flush {
            a = self.flushed(a, ty);
        }
        let d = self.dst(d, ty)?;
        self.op1(f, halves_or_all(ty), d, a);
        self.finish_float(d, ty, flush, false, false);
        Ok(())
    }

    pub(super) fn copysign(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        if !matches!(ty, Type::F32 | Type::F64) {
            return Err(unsupported("this type"));
        }
        let [d, a, b] = operands(i)?;
        let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
        let d = self.dst(d, ty)?;
        self.op2(float::copysign(ty == Type::F64), Taint::All, d, [a, b]);
        Ok(())
    }

    pub(super) fn testp(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let property = m.first().unwrap_or("");
        let ty = m.ty()?;
        m.finish()?;
        let f = match ty {
            Type::F32 | Type::F64 => float::testp(property, ty == Type::F64),
            _ => None,
        };
        let f = f.ok_or_else(|| unsupported("this property or type"))?;
        let [p, a] = operands(i)?;
        let (p, a) = (self.pred_dst(p)?, self.src(a, ty)?);
        self.op2(f, Taint::All, V::None, [a, a]).p = p;
        Ok(())
    }
}
