//! Decoding of comparisons and selections.

use super::facts::{OF_FLOATS, relation};
use super::integer::{operands, unsupported};
use super::mods::{Mods, wide};
use super::operand::{P, V};
use super::proto::{Builder, Lowered};
use crate::exec::OpFn;
use crate::exec::float::{self, FloatCmp, FloatType};
use crate::exec::int::{self, Bin, Cmp};
use crate::exec::lanes::combine;
use crate::note::{Relation, Taint};
use crate::ptx::ast::{Instruction, Operand, Type};

/// What `setp` and `set` can ask.
const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

/// A comparison's handler, what it asks, and its operands.
type HalfTest = Option<(OpFn, Relation, [V; 2])>;

impl Builder<'_> {
    /// The comparison's handlers: of the whole, or of both halves of a pair.
    fn comparison(&mut self, m: &Mods<'_>, name: &str, ty: Type, a: V, b: V) -> Lowered<[HalfTest; 2]> {
        use Type::{BF16, BF16x2, F16, F16x2, F32, F64};
        let ftz = m.take("ftz");
        let float = match ty {
            F16 | F16x2 => Some(FloatType::F16),
            BF16 | BF16x2 => Some(FloatType::BF16),
            F32 => Some(FloatType::F32),
            F64 => Some(FloatType::F64),
            _ => None,
        };
        let Some(float) = float else {
            let (op, unsigned) = match name {
                "eq" => (Cmp::Eq, false),
                "ne" => (Cmp::Ne, false),
                "lt" => (Cmp::Lt, false),
                "le" => (Cmp::Le, false),
                "gt" => (Cmp::Gt, false),
                "ge" => (Cmp::Ge, false),
                "lo" => (Cmp::Lt, true),
                "ls" => (Cmp::Le, true),
                "hi" => (Cmp::Gt, true),
                "hs" => (Cmp::Ge, true),
                _ => return Err(format!("comparison `.{name}` needs a float type")),
            };
            let ordered = !matches!(op, Cmp::Eq | Cmp::Ne);
            if ordered && matches!(ty, Type::B16 | Type::B32 | Type::B64) && !unsigned {
                return Err(format!("comparison `.{name}` needs a signed or unsigned type"));
            }
            let ty = match (ty, unsigned) {
                (Type::S16, true) => Type::U16,
                (Type::S32, true) => Type::U32,
                (Type::S64, true) => Type::U64,
                (other, _) => other,
            };
            let f = int::compare(op, ty).ok_or_else(|| unsupported("this type"))?;
            let relation = relation(name, ty, ty.is_signed());
            return Ok([Some((f, relation, [a, b])), None]);
        };
        let base = |n: &str| {
            Some(match n {
                "eq" => Cmp::Eq,
                "ne" => Cmp::Ne,
                "lt" => Cmp::Lt,
                "le" => Cmp::Le,
                "gt" => Cmp::Gt,
                "ge" => Cmp::Ge,
                _ => return None,
            })
        };
        let op = match name {
            "num" => FloatCmp::Num,
            "nan" => FloatCmp::Nan,
            _ => match (base(name), name.strip_suffix('u').and_then(base)) {
                (Some(c), _) => FloatCmp::Ordered(c),
                (_, Some(c)) => FloatCmp::Unordered(c),
                _ => return Err(format!("comparison `.{name}` is not for floats")),
            },
        };
        let f = float::compare(op, float);
        let (mut a, mut b) = (a, b);
        if ftz {
            a = self.flushed(a, ty);
            b = self.flushed(b, ty);
        }
        if matches!(ty, F16x2 | BF16x2) {
            let Some(shift) = int::shift(int::Shift::Right, Type::B32) else { return Err(unsupported("this type")) };
            let sixteen = self.bits32(16);
            let (high_a, high_b) = (self.temp(false), self.temp(false));
            self.op2(shift, Taint::Same(2), high_a, [a, sixteen]);
            self.op2(shift, Taint::Same(2), high_b, [b, sixteen]);
            return Ok([Some((f, OF_FLOATS, [a, b])), Some((f, OF_FLOATS, [high_a, high_b]))]);
        }
        Ok([Some((f, OF_FLOATS, [a, b])), None])
    }

    /// Comparison, and how to combine it with a predicate.
    fn comparison_words<'m>(m: &Mods<'m>) -> Lowered<(&'m str, u64)> {
        // Modifiers may stand in any order.
        let name = match m.any(COMPARISONS) {
            Some(name) => name,
            None => m.first().ok_or_else(|| "the comparison is missing".to_string())?,
        };
        let join = match m.any(&["and", "or", "xor"]) {
            None => combine::NONE,
            Some("and") => combine::AND,
            Some("or") => combine::OR,
            Some(_) => combine::XOR,
        };
        Ok((name, join))
    }

    pub(super) fn setp(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let (name, join) = Self::comparison_words(m)?;
        let ty = m.ty()?;
        let (d, a, b, q) = match (i.operands.as_slice(), join) {
            ([d, a, b], combine::NONE) => (d, a, b, P::True),
            ([d, a, b, c], 1..) => (d, a, b, self.pred(c)?),
            _ => return Err("Arguments mismatch for instruction 'setp'".to_string()),
        };
        let (p, r) = match d {
            Operand::Pair(p, r) => (self.pred_dst(p)?, self.pred_dst(r)?),
            p => (self.pred_dst(p)?, P::Sink),
        };
        let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
        let [first, second] = self.comparison(m, name, ty, a, b)?;
        m.finish()?;
        // The second half of a pair goes to the second destination; otherwise that gets the negation.
        let whole = second.is_none();
        let mut q = q;
        if !whole && join != combine::NONE {
            // The first result may replace the predicate that the second still needs.
            let t = self.temp_pred();
            self.logic_of(t, q, P::True, 0);
            q = t;
        }
        for (half, (p, r)) in [(first, (p, if whole { r } else { P::Sink })), (second, (r, P::Sink))] {
            if let Some((f, relation, sources)) = half {
                let op = self.op2(f, Taint::Compare(relation), V::None, sources);
                (op.p, op.r, op.q, op.imm) = (p, r, q, join);
            }
        }
        Ok(())
    }

    /// `set`: a comparison whose result is all ones, or 1.0. Which types go together is for `ptx::isa` to say.
    pub(super) fn set(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let (name, join) = Self::comparison_words(m)?;
        let (dty, sty) = (m.ty()?, m.ty()?);
        let (d, a, b, q) = match (i.operands.as_slice(), join) {
            ([d, a, b], combine::NONE) => (d, a, b, P::True),
            ([d, a, b, c], 1..) => (d, a, b, self.pred(c)?),
            _ => return Err("Arguments mismatch for instruction 'set'".to_string()),
        };
        let (a, b) = (self.src(a, sty)?, self.src(b, sty)?);
        let halves = self.comparison(m, name, sty, a, b)?;
        m.finish()?;
        let pair = halves[1].is_some();
        let one = match dty {
            // Each half has its own result.
            Type::U32 | Type::S32 if pair => 0xffff,
            Type::U32 | Type::S32 => 0xffff_ffff,
            Type::U16 | Type::S16 => 0xffff,
            Type::F32 => 0x3f80_0000,
            Type::F16 | Type::F16x2 => 0x3c00,
            Type::BF16 | Type::BF16x2 => 0x3f80,
            _ => return Err(unsupported("this result type")),
        };
        let d = self.dst(d, dty)?;
        let mut results = [V::None; 2];
        for (n, half) in halves.into_iter().enumerate() {
            let Some((f, relation, sources)) = half else { continue };
            let p = self.temp_pred();
            let op = self.op2(f, Taint::Compare(relation), V::None, sources);
            (op.p, op.q, op.imm) = (p, q, join);
            let yes = self.bits32(if n == 1 { one << 16 } else { one });
            let no = self.bits32(0);
            results[n] = if pair { self.temp(false) } else { d };
            self.select(false, results[n], [yes, no], p);
        }
        if pair && let Some(or) = int::bin(Bin::Or, Type::B32) {
            self.op2(or, Taint::Or, d, results);
        }
        Ok(())
    }

    pub(super) fn selp(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b, q] = operands(i)?;
        let (a, b, q) = (self.src(a, ty)?, self.src(b, ty)?, self.pred(q)?);
        let d = self.dst(d, ty)?;
        self.select(wide(ty), d, [a, b], q);
        Ok(())
    }

    pub(super) fn slct(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let ftz = m.take("ftz");
        let (ty, selector) = (m.ty()?, m.ty()?);
        m.finish()?;
        if !matches!(selector, Type::S32 | Type::F32) {
            return Err(unsupported("this type"));
        }
        let [d, a, b, c] = operands(i)?;
        let (a, b, mut c) = (self.src(a, ty)?, self.src(b, ty)?, self.src(c, selector)?);
        if ftz {
            c = self.flushed(c, Type::F32);
        }
        let d = self.dst(d, ty)?;
        self.op3(int::slct(wide(ty), selector == Type::F32), Taint::All, d, [a, b, c]).apart = true;
        Ok(())
    }
}
