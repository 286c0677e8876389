//! Decoding of matrix instructions.

use super::integer::unsupported;
use super::mods::Mods;
use super::proto::{Builder, List, Lowered, V};
use crate::exec::mem::Via;
use crate::exec::mma::{self, Factor, Shape};
use crate::ptx::ast::{Instruction, Operand, Space, Type};

impl Builder<'_> {
    fn fragment(&mut self, operand: &Operand, count: usize, write: bool) -> Lowered<Vec<V>> {
        let single = std::slice::from_ref(operand);
        let items = match operand {
            Operand::Vector(items) => items.as_slice(),
            _ => single,
        };
        if items.len() != count {
            return Err(format!("a fragment has {} registers instead of {count}", items.len()));
        }
        // Accumulators may be written as floats.
        let source = |b: &mut Self, o: &Operand| match o {
            Operand::F32(_) | Operand::F64(_) => b.src(o, Type::F32),
            _ => b.src(o, Type::B32),
        };
        items.iter().map(|o| if write { self.dst(o, Type::B32) } else { source(self, o) }).collect()
    }

    /// `mma.sync.aligned.m16n8k….row.col`.
    pub(super) fn mma(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let sync = m.take("sync") && m.take("aligned");
        let k = match m.any(&["m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"]) {
            Some("m16n8k4") => 4,
            Some("m16n8k8") => 8,
            Some("m16n8k16") => 16,
            Some(_) => 32,
            None => return Err(unsupported("this shape of `mma`")),
        };
        if !(sync && m.take("row") && m.take("col")) {
            return Err(unsupported("this form of `mma`"));
        }
        let sat = m.take("satfinite");
        let words: Vec<&str> = std::iter::from_fn(|| m.first()).collect();
        let factor = |w: &str| {
            Some(match w {
                "f16" => Factor::F16,
                "bf16" => Factor::BF16,
                "tf32" => Factor::TF32,
                "s8" => Factor::S8,
                "u8" => Factor::U8,
                _ => return None,
            })
        };
        let what = || unsupported("`mma` of these types and this shape");
        let &[d, a, b, c] = words.as_slice() else { return Err(what()) };
        let (Some(a), Some(b)) = (factor(a), factor(b)) else { return Err(what()) };
        let integers = matches!(a, Factor::S8 | Factor::U8);
        let fits = match a {
            Factor::F16 | Factor::BF16 => matches!(k, 8 | 16) && a == b,
            Factor::TF32 => matches!(k, 4 | 8) && a == b,
            Factor::S8 | Factor::U8 => matches!(k, 16 | 32) && matches!(b, Factor::S8 | Factor::U8),
        };
        let accumulator = if integers { "s32" } else { "f32" };
        if !fits || d != accumulator || c != accumulator || (sat && !integers) {
            return Err(what());
        }
        let shape = Shape { a, b, k, sat, sm: self.sm };
        let (na, nb) = shape.registers();
        let [d, a, b, c] = super::integer::operands(i)?;
        let mut rows = self.fragment(a, na, false)?;
        rows.extend(self.fragment(b, nb, false)?);
        rows.extend(self.fragment(c, 4, false)?);
        let results = self.fragment(d, 4, true)?;
        let op = self.push(mma::mma);
        (op.imm, op.apart) = (shape.pack(), true);
        op.list = Some(Box::new(List { rows, writes: results, ..List::default() }));
        Ok(())
    }

    /// `ldmatrix.sync.aligned.m8n8.x{1,2,4}{.trans}.shared.b16`.
    pub(super) fn matrix_access(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if i.opcode != "ldmatrix" {
            return Err(unsupported(&format!("instruction `{}`", i.opcode)));
        }
        let form = m.take("sync") && m.take("aligned") && m.take("m8n8");
        let count = match m.any(&["x1", "x2", "x4"]) {
            Some("x1") => 1usize,
            Some("x2") => 2,
            Some(_) => 4,
            None => return Err(unsupported("this form of `ldmatrix`")),
        };
        let transposed = m.take("trans");
        let generic = m.any(&["shared", "shared::cta"]).is_none();
        let ty = m.ty()?;
        m.finish()?;
        if !form || ty != Type::B16 {
            return Err(unsupported("this form of `ldmatrix`"));
        }
        let [d, address] = super::integer::operands(i)?;
        let address = self.address(address, if generic { Space::Generic } else { Space::Shared })?;
        let offset = i32::try_from(address.offset as i64).map_err(|_| "the offset is too large".to_string())?;
        let writes = self.fragment(d, count, true)?;
        let op = self.push(mma::ldmatrix);
        (op.a, op.imm, op.apart) = (address.row, count as u64 | u64::from(transposed) << 8, true);
        let head = vec![0, u32::from(address.via == Via::Register64), offset as u32];
        op.list = Some(Box::new(List { head, writes, rows: Vec::new() }));
        Ok(())
    }
}
