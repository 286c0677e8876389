//! Decoding of video instructions.

use super::integer::{sign_of, unsupported};
use super::mods::Mods;
use super::operand::V;
use super::proto::{Builder, Lowered};
use crate::exec::video::{self, Compare, Mode, Scalar, Second, Video, WHOLE};
use crate::note::Taint;
use crate::ptx::ast::{Instruction, Operand, Reg, Type};

/// What stands for a source or the destination.
struct VideoOperand<'a> {
    operand: Operand,
    selector: Option<&'a str>,
    minus: bool,
}

fn part(operand: &Operand) -> VideoOperand<'_> {
    match operand {
        Operand::Selected(reg, selector) => {
            VideoOperand { operand: Operand::Reg(*reg), selector: Some(selector), minus: false }
        }
        Operand::Minus(inner) => VideoOperand { minus: true, ..part(inner) },
        other => VideoOperand { operand: other.clone(), selector: None, minus: false },
    }
}

fn incorrect<T>(operand: usize) -> Lowered<T> {
    Err(format!("Incorrect video selector for operand {operand}"))
}

/// The part that a scalar instruction selects.
fn selected(selector: Option<&str>, operand: usize) -> Lowered<u32> {
    let parts = ["b0", "b1", "b2", "b3", "h0", "h1"];
    match selector {
        None => Ok(WHOLE),
        Some(selector) => match parts.iter().position(|p| *p == selector) {
            Some(part) => Ok(part as u32),
            None => incorrect(operand),
        },
    }
}

fn comparison(m: &Mods<'_>) -> Lowered<Compare> {
    Ok(match m.any(&["eq", "ne", "lt", "le", "gt", "ge"]) {
        Some("eq") => Compare::Equal,
        Some("ne") => Compare::NotEqual,
        Some("lt") => Compare::Less,
        Some("le") => Compare::LessEqual,
        Some("gt") => Compare::Greater,
        Some(_) => Compare::GreaterEqual,
        None => return Err("the comparison is missing".to_string()),
    })
}

fn mismatch<T>(i: &Instruction) -> Lowered<T> {
    Err(format!("Arguments mismatch for instruction '{}'", i.opcode))
}

/// Refuses operands that a scalar video instruction cannot have.
fn form(
    i: &Instruction,
    (mad, plus_one, second): (bool, bool, Second),
    to: &VideoOperand<'_>,
    [a, b]: [&VideoOperand<'_>; 2],
    c: Option<&VideoOperand<'_>>,
) -> Lowered<()> {
    let (minus_product, minus_c) = (a.minus ^ b.minus, c.is_some_and(|c| c.minus));
    if to.selector.is_some() && (mad || c.is_none()) {
        return Err(format!("Video selector is not allowed on destination for instruction '{}'", i.opcode));
    }
    if to.selector.is_some() && second != Second::Nothing {
        return Err("Video instruction cannot have destination selector and secondary operation".to_string());
    }
    if c.is_some_and(|c| c.selector.is_some()) {
        return Err("Video selector is not allowed on 'source C' operand".to_string());
    }
    if to.minus || !mad && (a.minus || b.minus || minus_c) {
        return Err(format!("Operand negation not allowed for instruction '{}'", i.opcode));
    }
    if minus_product && minus_c {
        return Err("Operand negation limited to either (source A xor source B) or source C".to_string());
    }
    if plus_one && (a.minus || b.minus || minus_c) {
        return Err("Conflicting use of '.po' modifier with operand negation".to_string());
    }
    Ok(())
}

impl Builder<'_> {
    /// Scalar video instructions: one part of each source.
    pub(super) fn video(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let op = match i.opcode.as_str() {
            "vadd" => Video::Add,
            "vsub" => Video::Sub,
            "vabsdiff" => Video::AbsoluteDifference,
            "vmin" => Video::Min,
            "vmax" => Video::Max,
            "vset" => Video::Set,
            "vshl" => Video::ShiftLeft,
            "vshr" => Video::ShiftRight,
            "vmad" => Video::MultiplyAdd,
            _ => return Err(unsupported(&format!("instruction `{}`", i.opcode))),
        };
        let (mad, set) = (op == Video::MultiplyAdd, op == Video::Set);
        let shift = matches!(op, Video::ShiftLeft | Video::ShiftRight);
        let saturate = !set && m.take("sat");
        let detail = if set {
            comparison(m)? as u32
        } else if shift {
            u32::from(match m.any(&["clamp", "wrap"]) {
                Some(word) => word == "wrap",
                None => return Err(format!("Clamp modifier required for instruction '{}'", i.opcode)),
            })
        } else if mad {
            match m.any(&["shr7", "shr15"]) {
                Some("shr7") => 1,
                Some(_) => 2,
                None => 0,
            }
        } else {
            0
        };
        let plus_one = mad && m.take("po");
        let second = match if mad { None } else { m.any(&["add", "min", "max"]) } {
            None => Second::Nothing,
            Some("add") => Second::Add,
            Some("min") => Second::Min,
            Some(_) => Second::Max,
        };
        let d_signed = if set { false } else { sign_of(m.ty()?)? };
        let (a_signed, b_type) = (sign_of(m.ty()?)?, m.ty()?);
        if shift && b_type != Type::U32 {
            return Err("Operation requires .u32 type".to_string());
        }
        let b_signed = sign_of(b_type)?;
        m.finish()?;
        let (d, a, b, c) = match i.operands.as_slice() {
            [d, a, b] if !mad && second == Second::Nothing => (d, a, b, None),
            [d, a, b, c] => (d, a, b, Some(c)),
            _ => return mismatch(i),
        };
        let (to, a, b, c) = (part(d), part(a), part(b), c.map(part));
        let minus = [a.minus ^ b.minus, c.as_ref().is_some_and(|c| c.minus)];
        form(i, (mad, plus_one, second), &to, [&a, &b], c.as_ref())?;
        let parts = [selected(a.selector, 1)?, selected(b.selector, 2)?, selected(to.selector, 0)?];
        let signed = [a_signed, b_signed, d_signed];
        let mode = Scalar { op, parts, signed, saturate, second, detail, minus, plus_one };
        let u = Type::U32;
        let (a, b) = (self.src(&a.operand, u)?, self.src(&b.operand, u)?);
        let c = match c {
            Some(c) => self.src(&c.operand, u)?,
            None => self.bits32(0),
        };
        let mode = self.bits32(mode.word());
        let d = self.dst(&to.operand, u)?;
        self.op4(video::scalar(), Taint::All, d, [a, b, c, mode]);
        Ok(())
    }

    /// SIMD video instructions: two halves, or four bytes.
    pub(super) fn video_parts(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let (name, parts) = i.opcode.split_at(i.opcode.len() - 1);
        let op = match name {
            "vadd" => Video::Add,
            "vsub" => Video::Sub,
            "vavrg" => Video::Average,
            "vabsdiff" => Video::AbsoluteDifference,
            "vmin" => Video::Min,
            "vmax" => Video::Max,
            "vset" => Video::Set,
            _ => return Err(unsupported(&format!("instruction `{}`", i.opcode))),
        };
        let halves = parts == "2";
        let set = op == Video::Set;
        let (saturate, accumulate) = (!set && m.take("sat"), m.take("add"));
        if saturate && accumulate {
            return Err("Illegal combination of .sat and .add modifiers".to_string());
        }
        let compare = if set { comparison(m)? } else { Compare::default() };
        let d_signed = if set { false } else { sign_of(m.ty()?)? };
        let (a_signed, b_signed) = (sign_of(m.ty()?)?, sign_of(m.ty()?)?);
        m.finish()?;
        let [to, a, b, c] = match i.operands.as_slice() {
            [d, a, b, c] => [part(d), part(a), part(b), part(c)],
            _ => return mismatch(i),
        };
        if to.minus || a.minus || b.minus || c.minus {
            return Err(format!("Operand negation not allowed for instruction '{}'", i.opcode));
        }
        let mask = mask(halves, to.selector)?;
        if c.selector.is_some() {
            return incorrect(3);
        }
        let u = Type::U32;
        let own = [register(&a.operand, 1)?, register(&b.operand, 2)?, register(&c.operand, 3)?].map(Operand::Reg);
        let [left, right, c] = [self.src(&own[0], u)?, self.src(&own[1], u)?, self.src(&own[2], u)?];
        let a = self.choose(halves, left, right, a.selector, 1)?;
        let b = self.choose(halves, left, right, b.selector, 2)?;
        let mode = Mode { op, halves, a_signed, b_signed, d_signed, saturate, accumulate, mask, compare };
        let mode = self.bits32(mode.word());
        let d = self.dst(&to.operand, u)?;
        self.op4(video::parts(), Taint::All, d, [a, b, c, mode]);
        Ok(())
    }

    /// The parts of both sources that a selector names, highest first; by default, those of its own.
    fn choose(&mut self, halves: bool, a: V, b: V, selector: Option<&str>, operand: usize) -> Lowered<V> {
        let Some(selector) = selector else { return Ok(if operand == 1 { a } else { b }) };
        let Some(digits) = selector.strip_prefix(if halves { 'h' } else { 'b' }) else { return incorrect(operand) };
        if digits.len() != if halves { 2 } else { 4 } {
            return incorrect(operand);
        }
        let bytes = digits.bytes().fold(0, |word, digit| {
            let digit = u32::from(digit - b'0');
            if halves { word << 8 | (2 * digit + 1) << 4 | (2 * digit) } else { word << 4 | digit }
        });
        let bytes = self.bits32(bytes);
        let chosen = self.temp(false);
        self.bytes_of("", chosen, [a, b, bytes])?;
        Ok(chosen)
    }
}

/// Operands are registers: constants have no parts.
fn register(operand: &Operand, index: usize) -> Lowered<Reg> {
    match operand {
        Operand::Reg(reg) => Ok(*reg),
        _ => incorrect(index),
    }
}

/// The parts of the destination, named from the highest down.
fn mask(halves: bool, selector: Option<&str>) -> Lowered<u32> {
    let Some(selector) = selector else { return Ok(if halves { 3 } else { 15 }) };
    let parts = if halves { b'0'..=b'1' } else { b'0'..=b'3' };
    let digits = selector.strip_prefix(if halves { 'h' } else { 'b' }).unwrap_or("").as_bytes();
    if digits.is_empty() || !digits.iter().all(|d| parts.contains(d)) || !digits.windows(2).all(|d| d[0] > d[1]) {
        return incorrect(0);
    }
    Ok(digits.iter().fold(0, |mask, digit| mask | 1 << (digit - b'0')))
}
