//! Decoding of asynchronous copies, `mbarrier`, and of hints about caches and scheduling.

use super::facts::Facts;
use super::integer::{operands, unsupported};
use super::mods::Mods;
use super::operand::{List, V};
use super::proto::{Builder, Lowered};
use crate::exec::atom::Reduce;
use crate::exec::mbarrier::{self, act};
use crate::exec::mem::{self, Via as Row};
use crate::exec::words::{Barrier, Bulk, CopyAsync, Offset, StoreAsync, Via, Words};
use crate::exec::{bulk, control, remote};
use crate::note::{Role, Taint};
use crate::ptx::ast::{Instruction, Operand, Space, Type};

fn mismatch<T>(i: &Instruction) -> Lowered<T> {
    Err(format!("Arguments mismatch for instruction '{}'", i.opcode))
}

fn near(offset: u64) -> Lowered<Offset> {
    Offset::new(offset).ok_or_else(|| "the offset is too large".to_string())
}

/// The reduction that a bulk copy into `to` makes, as a code, and the bytes of its elements.
fn bulk_reduction(m: &Mods<'_>, to: Space, noftz: bool) -> Lowered<(u32, u32)> {
    let name = m.any(&["add", "min", "max", "inc", "dec", "and", "or", "xor"]);
    let ty = m.ty()?;
    let halves = matches!(ty, Type::F16 | Type::BF16);
    let found = name.and_then(|n| Reduce::new(n, ty)).filter(|_| noftz == (halves && name == Some("add")));
    // Into shared memory: integers only.
    let found = found.filter(|_| {
        to == Space::Global || matches!(ty, Type::U32 | Type::S32 | Type::B32) || (ty, name) == (Type::U64, Some("add"))
    });
    let found = found.ok_or_else(|| unsupported("this reduction"))?;
    Ok((found.code(), ty.bits() / 8))
}

impl Builder<'_> {
    /// `cp`: asynchronous copies and their groups. Copies are done at once, so waiting for them is nothing.
    pub(super) fn copy_async(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let reduce = m.take("reduce");
        if !m.take("async") {
            return Err(unsupported("this copy"));
        }
        if m.take("bulk") {
            return self.bulk(i, m, reduce);
        }
        if reduce {
            return Err(unsupported("this copy"));
        }
        if let Some(word) = m.any(&["commit_group", "wait_group", "wait_all"]) {
            m.finish()?;
            let role = match (word, i.operands.as_slice()) {
                ("wait_group", [Operand::Int(n @ 0..)]) => Role::WaitGroup(*n as u32),
                ("wait_all", []) => Role::WaitGroup(u32::MAX),
                ("commit_group", []) => Role::CommitGroup,
                _ => return mismatch(i),
            };
            self.nop(Facts::role(role, Taint::Defined));
            return Ok(());
        }
        if m.take("mbarrier") {
            let what = act::ASYNC | if m.take("noinc") { act::NO_INC } else { 0 };
            let space = Self::space(m);
            if !m.take("arrive") || !m.take("b64") {
                return Err(unsupported("this form of `cp.async.mbarrier`"));
            }
            m.finish()?;
            let [address] = operands(i)?;
            self.barrier_object(address, space, what)?.facts.taint = Taint::HandOver;
            return Ok(());
        }
        let ca = match m.any(&["ca", "cg"]) {
            Some(c) => c == "ca",
            None => return Err(unsupported("this asynchronous copy")),
        };
        let to_shared = m.any(&["shared", "shared::cta", "shared::cluster"]).is_some() && m.take("global");
        let policy = Self::hints(m);
        m.finish()?;
        if !to_shared {
            return Err("`.shared.global` is needed".to_string());
        }
        let given = i.operands.len() - usize::from(policy && i.operands.len() > 3);
        let (to, from, size, extra) = match &i.operands[..given] {
            [to, from, size] => (to, from, size, None),
            [to, from, size, extra] => (to, from, size, Some(extra)),
            _ => return mismatch(i),
        };
        let bytes = match size {
            Operand::Int(n @ (4 | 8 | 16)) if ca || *n == 16 => *n as u64,
            _ => return Err("the size of an asynchronous copy is 4, 8 or 16 (only 16 with `.cg`)".to_string()),
        };
        let to = self.address(to, Space::Shared)?;
        let from = self.address(from, Space::Global)?;
        let zero = self.bits32(0);
        let all = self.bits32(bytes as u32);
        let wanted = match extra {
            None => all,
            // A predicate says whether to ignore the source.
            Some(p) if self.is_pred(p) => {
                let q = self.pred(p)?;
                let t = self.temp(false);
                self.select(false, t, [zero, all], q);
                t
            }
            Some(n) => self.src(n, Type::U32)?,
        };
        let (to_offset, from_offset) = (near(to.offset)?, near(from.offset)?);
        let wide = to.via == Row::Register64;
        let site = self.site();
        let op = self.push(mem::copy_async, Facts::role(Role::CopyAsync, Taint::All));
        (op.a, op.b, op.c) = (to.row, from.row, wanted);
        op.imm = to_offset.bits() & 0xffff_ffff | bytes << 32;
        let words = CopyAsync { site, from_offset, wide };
        op.list = Some(Box::new(List { head: words.list(), ..List::default() }));
        Ok(())
    }

    /// `cp.async.bulk` and `cp.reduce.async.bulk` without tensor maps.
    fn bulk(&mut self, i: &Instruction, m: &Mods<'_>, reduce: bool) -> Lowered<()> {
        if m.take("tensor") {
            return Err(unsupported("`cp.async.bulk.tensor` (copies by tensor maps)"));
        }
        if let Some(word) = m.any(&["commit_group", "wait_group"]) {
            return self.bulk_group(i, m, word);
        }
        if m.take("prefetch") {
            return self.bulk_prefetch(i, m);
        }
        if m.any(&["multicast::cluster"]).is_some() {
            return Err(unsupported("`.multicast::cluster` (clusters of several blocks)"));
        }
        let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
        let at = words.iter().position(|w| *w == "bulk").map_or(0, |p| p + 1);
        let place = |w: Option<&&str>| match w {
            Some(&"global") => Some(Space::Global),
            Some(&("shared::cta" | "shared::cluster")) => Some(Space::Shared),
            _ => None,
        };
        let (Some(to), Some(from)) = (place(words.get(at)), place(words.get(at + 1))) else {
            return Err(unsupported("this bulk copy"));
        };
        m.skip(|w| w == "global" || w.starts_with("shared::"));
        let barrier = m.take("mbarrier::complete_tx::bytes");
        let group = m.take("bulk_group");
        let masked = m.take("cp_mask");
        let policy = m.take("L2::cache_hint");
        let noftz = m.take("noftz");
        let (reduction, element) = if reduce { bulk_reduction(m, to, noftz)? } else { (bulk::NO_REDUCTION, 1) };
        m.finish()?;
        let from_shared = words.get(at + 1) == Some(&"shared::cta");
        let exists = match (to, from) {
            (Space::Shared, Space::Global) => barrier && !group && !reduce && !masked,
            (Space::Shared, Space::Shared) => {
                barrier && !group && !masked && words.get(at) == Some(&"shared::cluster") && from_shared
            }
            (Space::Global, Space::Shared) => group && !barrier && from_shared && !(masked && reduce),
            _ => false,
        };
        // The mask stands last, behind the policy.
        let behind = usize::from(policy && (masked || i.operands.len() > 3)) + usize::from(masked);
        let given = i.operands.len().saturating_sub(behind);
        let (to_operand, from_operand, size, object) = match &i.operands[..given] {
            [to, from, size] if !barrier => (to, from, size, None),
            [to, from, size, object] if barrier => (to, from, size, Some(object)),
            _ => return mismatch(i),
        };
        if !exists {
            return Err(unsupported("this bulk copy"));
        }
        let to = self.address(to_operand, to)?;
        let from = self.address(from_operand, from)?;
        let size = self.src(size, Type::U32)?;
        let (to_via, from_via) = (Self::via(&to)?, Self::via(&from)?);
        let mask = i.operands.last().filter(|_| masked).map_or(Ok(size), |mask| self.src(mask, Type::U16))?;
        let (barrier_via, barrier_offset, barrier_row) = match object {
            None => (bulk::NO_BARRIER, Offset::ZERO, size),
            Some(object) => {
                let object = self.address(object, Space::Shared)?;
                (Self::via(&object)?, near(object.offset)?, object.row)
            }
        };
        if reduce && to.space == Space::Global {
            self.talk();
        }
        let words = Bulk {
            to: Via { site: self.site(), via: to_via },
            from: Via { site: self.site(), via: from_via },
            from_offset: near(from.offset)?,
            barrier_via,
            barrier_offset,
            reduction,
            element,
            masked,
        };
        let op = self.push(bulk::bulk_copy, Facts::role(Role::CopyBulk, Taint::All));
        (op.a, op.b, op.c, op.imm) = (to.row, from.row, size, to.offset);
        op.list = Some(Box::new(List { head: words.list(), writes: Vec::new(), rows: vec![barrier_row, mask] }));
        Ok(())
    }

    /// `cp.async.bulk.commit_group` and `cp.async.bulk.wait_group`.
    fn bulk_group(&mut self, i: &Instruction, m: &Mods<'_>, word: &str) -> Lowered<()> {
        let read = m.take("read");
        m.finish()?;
        let role = match (word, i.operands.as_slice()) {
            ("wait_group", [Operand::Int(n @ 0..)]) => Role::WaitBulk { left: *n as u32, read },
            ("commit_group", []) if !read => Role::CommitBulk,
            _ => return mismatch(i),
        };
        self.nop(Facts::role(role, Taint::Defined));
        Ok(())
    }

    /// `cp.async.bulk.prefetch`.
    fn bulk_prefetch(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let fits = m.take("L2") && m.take("global");
        let policy = Self::hints(m);
        m.finish()?;
        match i.operands.as_slice() {
            [address, size] | [address, size, _] if fits && (i.operands.len() == 3) == policy => {
                self.address(address, Space::Global)?;
                self.src(size, Type::U32)?;
                self.nop(Facts::registers(Taint::Defined));
                Ok(())
            }
            _ => mismatch(i),
        }
    }

    /// `st.async`, `red.async`: into the shared memory of the cluster, which is one block.
    pub(super) fn store_async(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let reduces = i.opcode == "red";
        m.take("async");
        m.take("weak");
        if reduces && !(m.take("relaxed") && m.take("cluster")) || !m.take("mbarrier::complete_tx::bytes") {
            return Err(unsupported("this form of an asynchronous store"));
        }
        let space = if m.take("shared::cluster") { Space::Shared } else { Space::Generic };
        let count = Self::count(m);
        let name = m.any(&["add", "min", "max", "inc", "dec", "and", "or", "xor"]).filter(|_| reduces);
        let ty = m.ty()?;
        m.finish()?;
        let size = ty.bits() / 8;
        if !matches!(size, 4 | 8) || count * size > 16 {
            return Err(unsupported("this type"));
        }
        let reduction = if reduces {
            let exists = match (name, ty) {
                (Some("inc" | "dec"), _) => ty == Type::U32,
                (Some("and" | "or" | "xor"), _) => ty == Type::B32,
                (Some("add"), _) => matches!(ty, Type::U32 | Type::S32 | Type::U64),
                _ => matches!(ty, Type::U32 | Type::S32),
            };
            let found = name.filter(|_| exists && count == 1).and_then(|n| Reduce::new(n, ty));
            found.ok_or_else(|| unsupported("this reduction"))?.code()
        } else {
            bulk::NO_REDUCTION
        };
        let [to, value, object] = operands(i)?;
        let (to, object) = (self.address(to, space)?, self.address(object, space)?);
        let mut rows = vec![object.row];
        for operand in Self::elements(value, count)? {
            rows.push(super::access::narrowed(self, operand, ty)?);
        }
        let (via, object_via) = (Self::via(&to)?, Self::via(&object)?);
        let words = StoreAsync {
            at: Via { site: self.site(), via },
            barrier_via: object_via,
            barrier_offset: near(object.offset)?,
            reduction,
            size,
            count,
        };
        let op = self.push(remote::store_async, Facts::role(Role::StoreAsync, Taint::All));
        (op.a, op.imm) = (to.row, to.offset);
        op.list = Some(Box::new(List { head: words.list(), writes: Vec::new(), rows }));
        Ok(())
    }

    /// Adds an operation on the `mbarrier` object at an address.
    fn barrier_object(&mut self, operand: &Operand, space: Space, what: u32) -> Lowered<&mut super::proto::Proto> {
        let address = self.address(operand, space)?;
        let via = Self::via(&address)?;
        let site = self.site();
        let op = self.push(mbarrier::mbarrier, Facts::role(Role::Object, Taint::All));
        (op.a, op.imm, op.apart) = (address.row, address.offset, true);
        op.list = Some(Box::new(List { head: Barrier { at: Via { site, via }, what }.list(), ..List::default() }));
        Ok(op)
    }

    /// `mbarrier.arrive` and `mbarrier.arrive_drop`, in the form that `what` says.
    fn arrive(&mut self, i: &Instruction, mut what: u32, space: Space, cluster: bool) -> Lowered<()> {
        let [d, address, rest @ ..] = i.operands.as_slice() else { return mismatch(i) };
        let (expect, no_complete) = (what & act::EXPECT != 0, what & act::NO_COMPLETE != 0);
        let one = self.bits32(1);
        let (count, bytes) = match rest {
            [] if !expect && !no_complete => (one, V::None),
            [bytes] if expect => (one, self.src(bytes, Type::U32)?),
            [count] => (self.src(count, Type::U32)?, V::None),
            _ => return mismatch(i),
        };
        let d = match d {
            Operand::Sink => V::None,
            _ if cluster => return Err("an arrival at another block's mbarrier has no result".to_string()),
            d => self.dst(d, Type::B64)?,
        };
        what |= if d == V::None { act::SILENT } else { 0 };
        let op = self.barrier_object(address, space, what)?;
        (op.d, op.b, op.c) = (d, count, bytes);
        Ok(())
    }

    /// `mbarrier`.
    pub(super) fn mbarrier(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        const KINDS: [&str; 9] = [
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "expect_tx",
            "complete_tx",
            "test_wait",
            "try_wait",
            "pending_count",
        ];
        let kind = i.modifiers.first().and_then(|w| KINDS.iter().find(|k| *k == w));
        let kind = *kind.ok_or_else(|| unsupported("this form of `mbarrier`"))?;
        m.take(kind);
        let expect = m.take("expect_tx");
        let parity = m.take("parity");
        let no_complete = m.take("noComplete");
        let relaxed = if m.any(&["acquire", "release", "relaxed"]) == Some("relaxed") { act::RELAXED } else { 0 };
        m.any(&["cta", "cluster"]);
        let cluster = i.modifiers.iter().any(|w| w == "shared::cluster");
        let space = Self::space(m);
        if !m.take("b64") {
            return Err("Type .b64 is required for instruction 'mbarrier'".to_string());
        }
        let remote = matches!(kind, "arrive" | "arrive_drop" | "expect_tx" | "complete_tx");
        if !matches!(space, Space::Shared | Space::Generic) || (cluster && !remote) {
            return Err(format!("State space incorrect for instruction 'mbarrier.{kind}'"));
        }
        m.finish()?;
        let u = Type::U32;
        match (kind, i.operands.as_slice()) {
            ("pending_count", [d, token]) => {
                let (d, a) = (self.dst(d, u)?, self.src(token, Type::B64)?);
                self.op1(mbarrier::pending_count, Taint::All, d, a).apart = true;
            }
            ("init", [address, count]) => {
                let count = self.src(count, u)?;
                self.barrier_object(address, space, act::INIT)?.b = count;
            }
            ("inval", [address]) => {
                self.barrier_object(address, space, act::INVAL)?;
            }
            ("expect_tx" | "complete_tx", [address, bytes]) => {
                let bytes = self.src(bytes, u)?;
                let what = if kind == "expect_tx" { act::EXPECT_TX } else { act::COMPLETE_TX };
                self.barrier_object(address, space, what)?.b = bytes;
            }
            ("arrive" | "arrive_drop", [_, _, ..]) => {
                let mut what = act::ARRIVE | relaxed;
                what |= if kind == "arrive_drop" { act::DROP } else { 0 };
                what |= if no_complete { act::NO_COMPLETE } else { 0 };
                what |= if expect { act::EXPECT } else { 0 };
                self.arrive(i, what, space, cluster)?;
            }
            ("test_wait" | "try_wait", [p, address, token, rest @ ..]) => {
                let p = self.pred_dst(p)?;
                let token = self.src(token, if parity { u } else { Type::B64 })?;
                match rest {
                    [] => {}
                    [hint] if kind == "try_wait" => {
                        self.src(hint, u)?;
                    }
                    _ => return mismatch(i),
                }
                let what = act::TEST | relaxed | if parity { act::PARITY } else { 0 };
                let op = self.barrier_object(address, space, what)?;
                (op.p, op.b) = (p, token);
            }
            _ => return mismatch(i),
        }
        Ok(())
    }

    /// `mapa`, `getctarank`: a cluster is one block, whose rank is 0.
    pub(super) fn cluster_address(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("shared::cluster");
        let ty = m.ty()?;
        m.finish()?;
        if !matches!(ty, Type::U32 | Type::U64) {
            return Err(unsupported("this type"));
        }
        if i.opcode == "getctarank" {
            let [d, a] = operands(i)?;
            self.src(a, ty)?;
            let d = self.dst(d, Type::U32)?;
            let zero = self.bits32(0);
            self.copy(d, zero, false);
            return Ok(());
        }
        let [d, a, rank] = operands(i)?;
        let (a, rank) = (self.src(a, ty)?, self.src(rank, Type::U32)?);
        let d = self.dst(d, ty)?;
        self.op1(control::own_rank, Taint::All, V::None, rank);
        self.copy(d, a, ty == Type::U64);
        Ok(())
    }

    /// Instructions without effect here: hints about caches and scheduling.
    pub(super) fn hint(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let mut facts = Facts::registers(Taint::Defined);
        match i.opcode.as_str() {
            "createpolicy" => {
                m.skip(|_| true);
                let form = i.modifiers.first().map_or("", String::as_str);
                let eviction = i.modifiers.iter().any(|w| w.starts_with("L2::evict"));
                if !matches!(form, "fractional" | "range" | "cvt") || !(eviction || form == "cvt") {
                    return Err(unsupported("this form of `createpolicy`"));
                }
                let Some(d) = i.operands.first() else { return mismatch(i) };
                let d = self.dst(d, Type::B64)?;
                let zero = self.bits64(0);
                self.copy(d, zero, true);
                return Ok(());
            }
            "nanosleep" => {
                if !m.take("u32") {
                    return Err(unsupported("this type"));
                }
                m.finish()?;
                let [time] = operands(i)?;
                self.src(time, Type::U32)?;
                self.push(control::note_sync, Facts::registers(Taint::Defined));
                return Ok(());
            }
            "griddepcontrol" => {
                let what = m.any(&["wait", "launch_dependents"]);
                m.finish()?;
                if what.is_none() || !i.operands.is_empty() {
                    return Err(unsupported("this form of `griddepcontrol`"));
                }
                if what == Some("wait") {
                    facts = Facts::role(Role::WaitDependencies, Taint::Defined);
                }
            }
            "setmaxnreg" => {
                let known = m.any(&["inc", "dec"]).is_some() && m.take("sync") && m.take("aligned") && m.take("u32");
                m.finish()?;
                let [Operand::Int(count)] = i.operands.as_slice() else { return mismatch(i) };
                if !known {
                    return Err(unsupported("this form of `setmaxnreg`"));
                }
                if !(24..=256).contains(count) || count % 8 != 0 {
                    return Err(format!("`setmaxnreg` takes a multiple of 8 from 24 to 256, not {count}"));
                }
            }
            "pmevent" => {
                let most = if m.take("mask") { 0xffff } else { 15 };
                m.finish()?;
                let [Operand::Int(n)] = i.operands.as_slice() else { return mismatch(i) };
                if !(0..=most).contains(n) {
                    return Err(format!("the operand of `pmevent` is 0 to {most}, not {n}"));
                }
            }
            _ => {
                // `prefetch`, `applypriority`, `discard`: an address that is not looked at.
                if i.modifiers.iter().any(|w| w == "tensormap") {
                    return Err(unsupported("`prefetch.tensormap` (tensor maps)"));
                }
                let Some(Operand::Address(..)) = i.operands.first() else { return mismatch(i) };
                let sized = i.opcode == "applypriority" || i.opcode == "discard";
                let global = !i.modifiers.iter().any(|w| w.starts_with("shared"));
                match (sized, &i.operands[1..]) {
                    (false, []) | (true, [Operand::Int(128)]) if global => {}
                    _ => return mismatch(i),
                }
            }
        }
        self.nop(facts);
        Ok(())
    }
}
