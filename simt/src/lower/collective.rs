//! Decoding of barriers and warp collectives.

use super::facts::Facts;
use super::integer::{operands, unsupported};
use super::mods::Mods;
use super::operand::{P, V, X};
use super::proto::{Builder, Lowered, Proto};
use crate::exec::barrier::bar;
use crate::exec::exchange::{self, COLLECTIVE, Collective};
use crate::exec::{collective, control};
use crate::note::{Role, Taint};
use crate::ptx::ast::{Instruction, Operand, Type};

impl Builder<'_> {
    /// `bar` and `barrier`.
    pub(super) fn barrier(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("cta");
        if m.take("warp") {
            m.take("sync");
            m.finish()?;
            let [mask] = operands(i)?;
            let mask = self.src(mask, Type::B32)?;
            self.collective(Collective::WarpSync, V::None, [V::None; 3], mask);
            return Ok(());
        }
        let aligned = m.take("aligned") || i.opcode == "bar";
        if i.opcode == "barrier" && m.take("cluster") {
            return self.cluster_barrier(i, m, aligned);
        }
        let kind = match m.any(&["sync", "arrive", "red"]) {
            Some("sync") => bar::SYNC,
            Some("arrive") => bar::ARRIVE,
            Some(_) => match m.any(&["popc", "and", "or"]) {
                Some("popc") => bar::RED_POPC,
                Some("and") => bar::RED_AND,
                Some(_) => bar::RED_OR,
                None => return Err("the reduction is missing".to_string()),
            },
            None => return Err(unsupported(&format!("`{}.{}`", i.opcode, i.modifiers.join(".")))),
        };
        let u = Type::U32;
        let mut imm = kind | if aligned { bar::ALIGNED } else { 0 };
        let (mut d, mut p, mut q) = (V::None, P::Sink, P::True);
        let mut rest = i.operands.as_slice();
        if kind >= bar::RED_POPC {
            m.ty()?;
            let [to, middle @ .., from] = rest else { return Err("operands are missing".to_string()) };
            if kind == bar::RED_POPC {
                d = self.dst(to, u)?;
            } else {
                p = self.pred_dst(to)?;
            }
            q = self.pred(from)?;
            rest = middle;
        }
        m.finish()?;
        let (id, count) = match rest {
            [id] if kind != bar::ARRIVE => (id, None),
            [id, count] => (id, Some(count)),
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        };
        let a = self.src(id, u)?;
        if self.constant_bits(a).is_some_and(|id| id > 15) {
            return Err("there are barriers 0 to 15".to_string());
        }
        if let Some(Operand::Int(n)) = count
            && n % 32 != 0
        {
            return Err("Number of threads participating in barrier must be in multiple of warp size".to_string());
        }
        let b = match count {
            None => V::None,
            Some(count) => {
                imm |= bar::COUNT;
                self.src(count, u)?
            }
        };
        let op = self.push(control::barrier, Facts::role(Role::Barrier, Taint::All));
        (op.d, op.a, op.b, op.p, op.q, op.imm) = (d, a, b, p, q, imm);
        op.apart = true;
        Ok(())
    }

    /// `barrier.cluster`: the cluster is one block.
    fn cluster_barrier(&mut self, i: &Instruction, m: &Mods<'_>, aligned: bool) -> Lowered<()> {
        let kind = match m.any(&["arrive", "wait"]) {
            Some("arrive") if m.take("relaxed") => bar::ARRIVE | bar::RELAXED,
            Some("arrive") => {
                m.take("release");
                bar::ARRIVE
            }
            Some(_) => {
                m.take("acquire");
                bar::SYNC
            }
            None => return Err(unsupported(&format!("`{}.{}`", i.opcode, i.modifiers.join(".")))),
        };
        m.finish()?;
        let [] = operands(i)?;
        // Nobody but this block is in the cluster, and what it orders other than the block's barrier does is nothing.
        let op = self.push(control::barrier, Facts::registers(Taint::All));
        op.imm = kind | bar::CLUSTER | if aligned { bar::ALIGNED } else { 0 };
        op.apart = true;
        Ok(())
    }

    fn collective(&mut self, kind: Collective, d: V, [a, b, c]: [V; 3], mask: V) -> &mut Proto {
        let op = self.push(collective::collective, Facts::role(Role::Collective, Taint::All));
        (op.d, op.a, op.b, op.c, op.x) = (d, a, b, c, X::Row(mask));
        op.imm = kind as u64 | COLLECTIVE;
        op.apart = true;
        op
    }

    /// `shfl.sync`.
    pub(super) fn shuffle(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if !m.take("sync") {
            return Err("`shfl` without `.sync` does not exist on sm_70 and higher".to_string());
        }
        let kind = match m.any(&["up", "down", "bfly", "idx"]) {
            Some("up") => Collective::ShflUp,
            Some("down") => Collective::ShflDown,
            Some("bfly") => Collective::ShflBfly,
            Some(_) => Collective::ShflIdx,
            None => return Err("the shuffle's mode is missing".to_string()),
        };
        let ty = m.ty()?;
        m.finish()?;
        if ty.bits() != 32 {
            return Err(unsupported("this type"));
        }
        let [d, a, b, c, mask] = operands(i)?;
        let (d, p) = match d {
            Operand::Pair(d, p) => (self.dst(d, Type::B32)?, self.pred_dst(p)?),
            d => (self.dst(d, Type::B32)?, P::Sink),
        };
        let a = self.src(a, if matches!(a, Operand::F32(_)) { Type::F32 } else { Type::B32 })?;
        let (b, c, mask) = (self.src(b, Type::B32)?, self.src(c, Type::B32)?, self.src(mask, Type::B32)?);
        let usual = self.constant_bits(mask) == Some(0xffff_ffff) && self.constant_bits(c).is_some();
        let op = self.collective(kind, d, [a, b, c], mask);
        op.p = p;
        if usual {
            op.f = collective::shfl_full;
        }
        Ok(())
    }

    /// `vote.sync`, `match.sync`, `redux.sync`, `elect.sync`.
    pub(super) fn gather(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let word = m.any(&["all", "any", "uni", "ballot"]);
        let op = if i.opcode == "redux" { m.any(&["add", "min", "max", "and", "or", "xor"]) } else { None };
        let (abs, nan) = (m.take("abs"), m.take("NaN"));
        if !m.take("sync") {
            return Err(format!("`{}` without `.sync` does not exist on sm_70 and higher", i.opcode));
        }
        if i.opcode == "elect" {
            m.finish()?;
            let [Operand::Pair(d, p), mask] = i.operands.as_slice() else {
                return Err("Arguments mismatch for instruction 'elect'".to_string());
            };
            let (d, p, mask) = (self.dst(d, Type::B32)?, self.pred_dst(p)?, self.src(mask, Type::B32)?);
            self.collective(Collective::Elect, d, [V::None; 3], mask).p = p;
            return Ok(());
        }
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, mask] = operands(i)?;
        match i.opcode.as_str() {
            "vote" => self.vote((word, ty), d, a, mask),
            "match" => self.match_lanes((word, ty), d, a, mask),
            _ => self.reduce((op, ty), (abs, nan), d, a, mask),
        }
    }

    /// `vote.sync`.
    fn vote(&mut self, form: (Option<&str>, Type), d: &Operand, a: &Operand, mask: &Operand) -> Lowered<()> {
        let (q, mask) = (self.pred(a)?, self.src(mask, Type::B32)?);
        let kind = match form {
            (Some("ballot"), Type::B32) => Collective::VoteBallot,
            (Some("all"), Type::Pred) => Collective::VoteAll,
            (Some("any"), Type::Pred) => Collective::VoteAny,
            (Some("uni"), Type::Pred) => Collective::VoteUni,
            _ => return Err(unsupported("this vote")),
        };
        let (d, p) = match kind {
            Collective::VoteBallot => (self.dst(d, Type::B32)?, P::Sink),
            _ => (V::None, self.pred_dst(d)?),
        };
        let op = self.collective(kind, d, [V::None; 3], mask);
        (op.p, op.q) = (p, q);
        Ok(())
    }

    /// `match.sync`.
    fn match_lanes(&mut self, form: (Option<&str>, Type), d: &Operand, a: &Operand, mask: &Operand) -> Lowered<()> {
        let (a, mask) = (self.src(a, form.1)?, self.src(mask, Type::B32)?);
        let kind = match form {
            (Some("any"), Type::B32) => Collective::MatchAny32,
            (Some("any"), Type::B64) => Collective::MatchAny64,
            (Some("all"), Type::B32) => Collective::MatchAll32,
            (Some("all"), Type::B64) => Collective::MatchAll64,
            _ => return Err(unsupported("this match")),
        };
        let (d, p) = match d {
            Operand::Pair(d, p) => (self.dst(d, Type::B32)?, self.pred_dst(p)?),
            d => (self.dst(d, Type::B32)?, P::Sink),
        };
        self.collective(kind, d, [a, V::None, V::None], mask).p = p;
        Ok(())
    }

    /// `redux.sync`; `abs` and `nan` are modifiers of those of floats.
    fn reduce(
        &mut self,
        form: (Option<&str>, Type),
        (abs, nan): (bool, bool),
        d: &Operand,
        a: &Operand,
        mask: &Operand,
    ) -> Lowered<()> {
        let kind = match form {
            (Some("add"), Type::U32 | Type::S32) => Collective::ReduxAdd,
            (Some("min"), Type::U32) => Collective::ReduxMinU,
            (Some("max"), Type::U32) => Collective::ReduxMaxU,
            (Some("min"), Type::S32) => Collective::ReduxMinS,
            (Some("max"), Type::S32) => Collective::ReduxMaxS,
            (Some("and"), Type::B32) => Collective::ReduxAnd,
            (Some("or"), Type::B32) => Collective::ReduxOr,
            (Some("xor"), Type::B32) => Collective::ReduxXor,
            (Some("min"), Type::F32) => Collective::ReduxMinF,
            (Some("max"), Type::F32) => Collective::ReduxMaxF,
            _ => return Err(unsupported("this reduction")),
        };
        let (a, mask) = (self.src(a, Type::B32)?, self.src(mask, Type::B32)?);
        let d = self.dst(d, Type::B32)?;
        if (abs || nan) && !matches!(kind, Collective::ReduxMinF | Collective::ReduxMaxF) {
            return Err(unsupported("`.abs` or `.NaN` with this type"));
        }
        let op = self.collective(kind, d, [a, V::None, V::None], mask);
        op.imm |= if abs { exchange::ABS } else { 0 } | if nan { exchange::NAN } else { 0 };
        Ok(())
    }

    pub(super) fn activemask(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.ty()?;
        m.finish()?;
        let [d] = operands(i)?;
        let d = self.dst(d, Type::B32)?;
        self.push(collective::activemask, Facts::registers(Taint::Defined)).d = d;
        Ok(())
    }
}
