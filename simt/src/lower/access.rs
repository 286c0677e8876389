//! Decoding of loads, stores, atomics and copies.

use super::allocate;
use super::facts::{self, Facts, Ordered, accesses};
use super::integer::{operands, unsupported};
use super::mods::{Mods, wide};
use super::operand::{Address, List, RegisterClass, Symbol, V};
use super::proto::{Builder, Lowered};
use crate::exec::cvt::{self, Extend};
use crate::exec::mem::{self, Via as Row};
use crate::exec::words::{Atomic, Plain, Via, Words};
use crate::exec::{OpFn, atom, control, fill, strong};
use crate::note::{Access, Does, Role, Scope, Taint};
use crate::program::{Const, Overlap};
use crate::ptx::ast::{Base, Instruction, Operand, Space, Type};

/// What an atomic instruction does to each of its elements.
struct Element {
    f: OpFn,
    /// The type of its registers.
    raw: Type,
    size: u32,
    facts: Facts,
    cas: bool,
    /// Its kind, if it commutes with its like.
    commutes: Option<u32>,
}

/// Whether the ISA has the atomic operation `name` on `count` elements of a type.
fn has_atomic(name: &str, ty: Type, count: u32, noftz: bool) -> bool {
    let halves = matches!(ty, Type::F16 | Type::BF16 | Type::F16x2 | Type::BF16x2);
    let vectors =
        count == 1 && name == "add" || count > 1 && count * ty.bits() <= 128 && matches!(name, "add" | "min" | "max");
    let has_type = name != "cas" || matches!(ty, Type::B16 | Type::B32 | Type::B64 | Type::B128);
    let alone = count == 1 || (ty, name) == (Type::F32, "add");
    has_type && if halves { noftz && vectors } else { !noftz && alone }
}

impl Builder<'_> {
    pub(super) fn space(m: &Mods<'_>) -> Space {
        let words = [
            "global",
            "shared",
            "shared::cta",
            "shared::cluster",
            "local",
            "const",
            "param",
            "param::entry",
            "param::func",
        ];
        match m.any(&words) {
            None => Space::Generic,
            Some("global") => Space::Global,
            Some("local") => Space::Local,
            Some("const") => Space::Const,
            Some(w) if w.starts_with("param") => Space::Param,
            Some(_) => Space::Shared,
        }
    }

    /// Refuses what `ptxas` does: an order without a scope, a type that memory does not have.
    fn scoped(i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if let Some(order) = m.peek(&["acquire", "release", "relaxed"])
            && m.peek(&["cta", "cluster", "gpu", "sys"]).is_none()
        {
            return Err(format!("Modifier '.{order}' requires scope with '{}' instruction", i.opcode));
        }
        match m.peek(&["f16", "f16x2", "bf16", "bf16x2"]) {
            Some(ty) => Err(format!("`.{ty}` is no type of '{}': use `.b16` or `.b32`", i.opcode)),
            None => Ok(()),
        }
    }

    /// Cache operators and hints, which change nothing here.
    pub(super) fn hints(m: &Mods<'_>) -> bool {
        m.any(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
        m.take("nc");
        let policy = m.skip(|w| w == "L2::cache_hint");
        m.skip(|w| w.starts_with("L1::") || w.starts_with("L2::") || w == "unified");
        policy
    }

    /// An address operand in a space.
    pub(super) fn address(&mut self, operand: &Operand, space: Space) -> Lowered<Address> {
        let Operand::Address(base, offset) = operand else {
            return Err("unexpected operand: an address is needed".to_string());
        };
        let offset = *offset as u64;
        let mismatch = |name: &str| format!("State space mismatch between instruction and address: `{name}`");
        match base {
            Base::Absolute => match space {
                Space::Param | Space::Local => Ok(Address { space, via: Row::Offset, row: V::None, offset }),
                _ => {
                    let row = self.bits64(offset);
                    Ok(Address { space, via: Row::Register64, row, offset: 0 })
                }
            },
            Base::Reg(r) => {
                let row = V::Reg(r.0);
                let via = match self.class(row) {
                    RegisterClass::Wide => Row::Register64,
                    RegisterClass::Narrow if matches!(space, Space::Shared | Space::Local) => Row::Register32,
                    _ => return Err("an address needs a 64-bit register".to_string()),
                };
                let in_frame = space == Space::Param && !self.function.is_entry;
                Ok(Address { space: if in_frame { Space::Local } else { space }, via, row, offset })
            }
            Base::Symbol(name) => match (self.symbol(name)?, space) {
                (Symbol::Global(i), Space::Global | Space::Generic) | (Symbol::Const(i), Space::Const) => {
                    let row = self.constant(Const::Global(i, 0), true);
                    Ok(Address { space, via: Row::Register64, row, offset })
                }
                // What takes generic addresses of shared memory only is here, too.
                (Symbol::Shared(i), Space::Shared | Space::Generic) => {
                    self.use_shared(i);
                    let row = self.constant(Const::Shared(i, 0), false);
                    Ok(Address { space: Space::Shared, via: Row::Register32, row, offset })
                }
                (Symbol::Local(at), Space::Local) | (Symbol::Slot(at, _), Space::Param) => Ok(Address {
                    space: Space::Local,
                    via: Row::Offset,
                    row: V::None,
                    offset: offset.wrapping_add(at.into()),
                }),
                (Symbol::Param(at, _), Space::Param) => {
                    Ok(Address { space, via: Row::Offset, row: V::None, offset: offset.wrapping_add(at.into()) })
                }
                _ => Err(mismatch(name)),
            },
        }
    }

    /// How handlers that take several spaces read an address.
    pub(super) fn via(address: &Address) -> Lowered<u32> {
        Ok(match (address.space, address.via) {
            (Space::Global, Row::Register64) => atom::via::GLOBAL,
            (Space::Shared, Row::Register32) => atom::via::SHARED32,
            (Space::Shared, Row::Register64) => atom::via::SHARED64,
            (Space::Generic, Row::Register64) => atom::via::GENERIC,
            _ => return Err(unsupported("this instruction in this space")),
        })
    }

    /// The elements of a vector operand.
    pub(super) fn elements(operand: &Operand, count: u32) -> Lowered<Vec<&Operand>> {
        match operand {
            Operand::Vector(items) if items.len() == count as usize => Ok(items.iter().collect()),
            Operand::Vector(_) => Err("the vector operand has another number of elements".to_string()),
            single if count == 1 => Ok(vec![single]),
            _ => Err("a vector operand is needed".to_string()),
        }
    }

    pub(super) fn count(m: &Mods<'_>) -> u32 {
        match m.any(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        }
    }

    /// A block may come this far at the same time as others, but waits here for its turn where kernels have one.
    fn turn(&mut self) {
        self.push(control::turn, Facts::registers(Taint::Defined));
    }

    /// Before what orders or combines memory accesses of different blocks.
    pub(super) fn talk(&mut self) {
        self.turn();
        self.overlap = self.overlap.max(Overlap::UntilTurn);
    }

    /// Before a strong access: other threads may be waited for.
    fn note(&mut self, ordered: Ordered, space: Space) {
        if ordered.order.strong() && !matches!(space, Space::Local | Space::Param) {
            self.push(control::note_sync, Facts::registers(Taint::Defined));
            if space != Space::Shared && ordered.scope != Scope::Cta {
                self.talk();
            }
        }
    }

    pub(super) fn load(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        Self::scoped(i, m)?;
        let ordered = Ordered::access(m);
        let space = Self::space(m);
        let nc = m.peek(&["nc"]).is_some();
        if space != Space::Global && nc {
            return Err("Modifier '.nc' requires .global space".to_string());
        }
        let policy = Self::hints(m);
        let count = Self::count(m);
        let ty = m.ty()?;
        m.finish()?;
        let (d, address) = match i.operands.as_slice() {
            [d, a] if !policy => (d, a),
            [d, a, _] => (d, a),
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        };
        // 128 bits are two elements of 64.
        let (size, items) = if ty == Type::B128 { (8, 2 * count) } else { (ty.bits() / 8, count) };
        let address = self.address(address, space)?;
        let handler = if ordered.order.strong() { strong::load_handler } else { mem::load_handler };
        let f = handler(address.space, address.via, size, items).filter(|_| ty != Type::B128 || count == 1);
        let f = f.ok_or_else(|| unsupported("this access"))?;
        self.note(ordered, space);
        let mut rows = Vec::with_capacity(count as usize);
        let mut fixes = Vec::new();
        for operand in Self::elements(d, count)? {
            if ty == Type::B128 {
                rows.extend(self.quad(operand)?);
                continue;
            }
            let target = self.reg(operand);
            let is_wide = target.is_some_and(|v| self.class(v) == RegisterClass::Wide);
            // Narrow signed and narrow-in-wide values are extended behind the load.
            if is_wide && !wide(ty) || matches!(ty, Type::S8 | Type::S16) {
                let t = self.temp(false);
                rows.push(t);
                if let Some(v) = target {
                    fixes.push((v, t, is_wide));
                }
            } else {
                rows.push(self.dst(operand, raw_type(ty))?);
            }
        }
        let site = self.site();
        let access = accesses(Does::Load, facts::place(&address), (size, items), ordered);
        let op = self.push(f, Facts::access(Access { nc, ..access }, Taint::Load));
        (op.a, op.imm, op.apart) = (address.row, address.offset, true);
        op.list = Some(Box::new(List { head: Plain { site }.list(), writes: rows, rows: Vec::new() }));
        for (v, t, is_wide) in fixes {
            let from = if ty.is_signed() { ty } else { Type::U32 };
            let last = self.extended_to(t, from, is_wide);
            self.copy(v, last, is_wide);
        }
        Ok(())
    }

    pub(super) fn store(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        Self::scoped(i, m)?;
        let ordered = Ordered::access(m);
        let space = Self::space(m);
        let policy = Self::hints(m);
        let count = Self::count(m);
        let ty = m.ty()?;
        m.finish()?;
        let (address, a) = match i.operands.as_slice() {
            [address, a] if !policy => (address, a),
            [address, a, _] => (address, a),
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        };
        let address = self.address(address, space)?;
        let (size, items) = if ty == Type::B128 { (8, 2 * count) } else { (ty.bits() / 8, count) };
        let handler = if ordered.order.strong() { strong::store_handler } else { mem::store_handler };
        let f = handler(address.space, address.via, size, items).filter(|_| ty != Type::B128 || count == 1);
        let f = f.ok_or_else(|| unsupported("this access"))?;
        self.note(ordered, space);
        let mut rows = Vec::with_capacity(count as usize);
        for operand in Self::elements(a, count)? {
            if ty == Type::B128 {
                rows.extend(self.quad(operand)?);
            } else {
                rows.push(narrowed(self, operand, ty)?);
            }
        }
        let site = self.site();
        let access = accesses(Does::Store, facts::place(&address), (size, items), ordered);
        let op = self.push(f, Facts::access(access, Taint::All));
        (op.a, op.imm) = (address.row, address.offset);
        op.list = Some(Box::new(List { head: Plain { site }.list(), writes: Vec::new(), rows }));
        Ok(())
    }

    /// `st.bulk`.
    pub(super) fn store_bulk(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        m.take("bulk");
        m.take("weak");
        let space = if m.take("shared::cta") { Space::Shared } else { Space::Generic };
        m.finish()?;
        let [to, size, value] = operands(i)?;
        if !matches!(value, Operand::Int(0)) {
            return Err("`st.bulk` stores nothing but 0".to_string());
        }
        let to = self.address(to, space)?;
        let (via, size) = (Self::via(&to)?, self.src(size, Type::U64)?);
        let site = self.site();
        let op = self.push(fill::fill, Facts::role(Role::StoreBulk, Taint::All));
        (op.a, op.b, op.imm) = (to.row, size, to.offset);
        op.list = Some(Box::new(List { head: Via { site, via }.list(), ..List::default() }));
        Ok(())
    }

    /// `atom` and `red`.
    pub(super) fn atomic(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let relaxed = m.peek(&["acquire", "release", "acq_rel"]).is_none();
        let ordered = Ordered::atomic(m);
        let space = Self::space(m);
        let policy = Self::hints(m);
        let noftz = m.take("noftz");
        let count = Self::count(m);
        let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];
        let name = m.any(&names).ok_or_else(|| unsupported("this atomic operation"))?;
        let ty = m.ty()?;
        m.finish()?;
        let what = || unsupported(&format!("`{}.{name}` of this type", i.opcode));
        let atom = i.opcode == "atom";
        if !atom && (matches!(name, "exch" | "cas") || ordered.order.acquires()) || !has_atomic(name, ty, count, noftz)
        {
            return Err(what());
        }
        if count > 1 && space == Space::Shared {
            return Err("State space incorrect for feature 'atom instruction with vector types'".to_string());
        }
        let given = i.operands.len() - usize::from(policy && i.operands.len() > 2);
        let (d, rest) = if atom {
            let (d, rest) = i.operands[..given].split_first().ok_or_else(|| "operands are missing".to_string())?;
            (Some(d), rest)
        } else {
            (None, &i.operands[..given])
        };
        let needed = if name == "cas" { 3 } else { 2 };
        if rest.len() != needed {
            return Err(format!("Arguments mismatch for instruction '{}.{name}'", i.opcode));
        }
        let address = self.address(&rest[0], space)?;
        let via = Self::via(&address)?;
        let commutes = commuting(name, ty).filter(|_| relaxed);
        if address.space != Space::Shared {
            self.turn();
            if commutes.is_none() {
                self.overlap = self.overlap.max(Overlap::UntilTurn);
            }
        }
        if ty == Type::B128 {
            return self.atomic128(name, d, rest, &address, (via, ordered));
        }
        let f = atom::handler(name, ty).ok_or_else(what)?;
        let raw = raw_type(ty);
        // Float constants keep their type; everything else is bits.
        let of = |o: &Operand| if matches!(o, Operand::F32(_) | Operand::F64(_)) { ty } else { raw };
        let mut sources = Vec::new();
        for b in Self::elements(&rest[1], count)? {
            sources.push(self.src(b, of(b))?);
        }
        let c = match rest.get(2) {
            Some(c) => Some(self.src(c, of(c))?),
            None => None,
        };
        let results = match d {
            None | Some(Operand::Sink) => Vec::new(),
            Some(d) => Self::elements(d, count)?,
        };
        let facts = Facts::atomic(name, &address, ty.bits() / 8, ordered);
        let element = Element { f, raw, size: ty.bits() / 8, facts, cas: name == "cas", commutes };
        self.atomic_elements(&element, &address, via, &sources, c, &results)
    }

    /// The operations of an atomic instruction: one an element.
    fn atomic_elements(
        &mut self,
        element: &Element,
        address: &Address,
        via: u32,
        sources: &[V],
        c: Option<V>,
        results: &[&Operand],
    ) -> Lowered<()> {
        let (size, count) = (element.size, sources.len() as u32);
        let mut moves = Vec::new();
        for (n, &b) in sources.iter().enumerate() {
            let d = match results.get(n) {
                None | Some(Operand::Sink) => V::None,
                // A result must not replace what later elements need.
                Some(d) if count > 1 => {
                    let (t, d) = (self.temp(false), self.dst(d, element.raw)?);
                    moves.push((d, t));
                    t
                }
                Some(d) => self.dst(d, element.raw)?,
            };
            let site = self.site();
            let op = self.push(element.f, element.facts);
            (op.d, op.a, op.b, op.c) = (d, address.row, b, c.unwrap_or(b));
            (op.imm, op.apart) = (address.offset.wrapping_add(u64::from(n as u32 * size)), true);
            let align = if n == 0 { size * count } else { size };
            let words = Atomic { at: Via { site, via }, result: d != V::None, align, cas: element.cas };
            op.list = Some(Box::new(List { head: words.list(), ..List::default() }));
            if let Some(kind) = element.commutes.filter(|_| address.space != Space::Shared) {
                self.reductions.push((self.protos.len() - 1, kind));
            }
        }
        moves.into_iter().for_each(|(d, t)| self.copy(d, t, false));
        Ok(())
    }

    /// `atom.{exch,cas}.b128`.
    fn atomic128(
        &mut self,
        name: &str,
        d: Option<&Operand>,
        rest: &[Operand],
        address: &Address,
        (via, ordered): (u32, Ordered),
    ) -> Lowered<()> {
        if !matches!(name, "exch" | "cas") {
            return Err(unsupported(&format!("`atom.{name}.b128`")));
        }
        let mut rows = self.quad(&rest[1])?.to_vec();
        rows.extend(self.quad(rest.get(2).unwrap_or(&rest[1]))?);
        let result = !matches!(d, None | Some(Operand::Sink));
        let writes = match d {
            Some(d) if result => self.quad(d)?.to_vec(),
            _ => vec![self.temp(true), self.temp(true)],
        };
        let site = self.site();
        let op = self.push(atom::atomic128, Facts::atomic(name, address, 16, ordered));
        (op.a, op.imm, op.apart) = (address.row, address.offset, true);
        let head = Atomic { at: Via { site, via }, result, align: 16, cas: name == "cas" }.list();
        op.list = Some(Box::new(List { head, writes, rows }));
        Ok(())
    }

    /// Kinds of the function's commuting reductions; those whose result somebody reads talk to other blocks instead.
    pub(super) fn settle_reductions(&mut self) -> u32 {
        let mut read = vec![false; self.classes.len()];
        let reductions = std::mem::take(&mut self.reductions);
        if reductions.is_empty() {
            return 0;
        }
        for (at, p) in self.protos.iter().enumerate() {
            // A guarded operation keeps what its destination held; that is not a use.
            let own = reductions.binary_search_by_key(&at, |r| r.0).ok().map(|_| p.d);
            allocate::visit(p, |r, write| read[r as usize] |= !write && own != Some(V::Reg(r)));
        }
        let mut kinds = 0;
        for (at, kind) in reductions {
            let Some(p) = self.protos.get_mut(at) else { continue };
            match p.d {
                V::Reg(r) if read[r as usize] => self.overlap = self.overlap.max(Overlap::UntilTurn),
                _ => {
                    p.d = V::None;
                    if let Some(list) = &mut p.list {
                        let mut words = list.head.iter().copied();
                        let words = Atomic::get(&mut || words.next().unwrap_or(0));
                        list.head = Atomic { result: false, ..words }.list();
                    }
                    kinds |= kind;
                }
            }
        }
        kinds
    }

    /// `fence`, `membar`.
    pub(super) fn fence(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if i.opcode == "membar" && m.peek(&["sc", "acq_rel", "acquire", "release", "gpu"]).is_some() {
            return Err("Illegal modifier for instruction 'membar'".to_string());
        }
        if m.peek(&["proxy"]).is_some() {
            m.any(&["global", "shared::cta", "shared::cluster"]);
        }
        let block_only = m.take("cta");
        let proxy = m.peek(&["proxy", "proxy::async"]).is_some();
        let known = m.skip(|w| {
            matches!(
                w,
                "sc" | "acq_rel" | "acquire" | "release" | "gpu" | "sys" | "cluster" | "gl" | "mbarrier_init" | "alias"
            ) || w.starts_with("proxy")
                || w.starts_with("async")
                || w.starts_with("sync_restrict")
                || proxy && matches!(w, "global" | "shared::cta" | "shared::cluster")
        });
        m.finish()?;
        if !known && !block_only {
            return Err("the fence's scope is missing".to_string());
        }
        if !block_only {
            self.talk();
        }
        // Those of a proxy order what other processes do as well.
        self.push(if block_only { control::nop } else { control::fence }, Facts::fence(i));
        Ok(())
    }
}

/// A bit for each kind of integer operation that commutes with its like, whatever the order of threads.
fn commuting(name: &str, ty: Type) -> Option<u32> {
    let of = match (name, ty) {
        ("add", Type::U32 | Type::S32) => 0,
        ("and", Type::B32) => 1,
        ("or", Type::B32) => 2,
        ("xor", Type::B32) => 3,
        ("min", Type::U32) => 4,
        ("min", Type::S32) => 5,
        ("max", Type::U32) => 6,
        ("max", Type::S32) => 7,
        ("add", Type::U64 | Type::S64) => 8,
        ("and", Type::B64) => 9,
        ("or", Type::B64) => 10,
        ("xor", Type::B64) => 11,
        ("min", Type::U64) => 12,
        ("min", Type::S64) => 13,
        ("max", Type::U64) => 14,
        ("max", Type::S64) => 15,
        _ => return None,
    };
    Some(1 << of)
}

/// The bits of a type.
fn raw_type(ty: Type) -> Type {
    match ty.bits() {
        8 => Type::B8,
        16 => Type::B16,
        32 => Type::B32,
        64 => Type::B64,
        _ => ty,
    }
}

/// A value to store; a wide register gives its low bits.
pub(super) fn narrowed(b: &mut Builder<'_>, operand: &Operand, ty: Type) -> Lowered<V> {
    match b.reg(operand) {
        Some(v) if b.class(v) == RegisterClass::Wide && !wide(ty) => {
            let t = b.temp(false);
            b.moved(cvt::extend(Extend::Truncate), t, v);
            Ok(t)
        }
        _ if matches!(operand, Operand::F32(_) | Operand::F64(_)) => b.src(operand, ty),
        _ => b.src(operand, raw_type(ty)),
    }
}
