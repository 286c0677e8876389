//! Decoding of matrix instructions.

use super::facts::Facts;
use super::integer::{operands, unsupported};
use super::mods::Mods;
use super::operand::{List, V};
use super::proto::{Builder, Lowered};
use crate::exec::OpFn;
use crate::exec::fragment::{self, Tile};
use crate::exec::mma::{self, Shape, accumulator_registers, factor_registers};
use crate::exec::soft::Round;
use crate::exec::tensor::Kind;
use crate::exec::words::{Matrices, Via, Words};
use crate::note::{Role, Taint};
use crate::ptx::ast::{Instruction, Operand, Space, Type};

/// `m16n8k16` as numbers.
pub(super) fn size(word: &str) -> Option<[usize; 3]> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
}

/// Shapes and types of `mma` that exist; the types of C and D follow by [`accumulators`].
fn mma_exists([m, n, k]: [usize; 3], a: Kind, b: Kind) -> bool {
    use Kind::{B1, BF16, E4M3, E5M2, F16, F64, S4, S8, TF32, U4, U8};
    match (a, b) {
        (F16, F16) => matches!((m, n, k), (8, 8, 4) | (16, 8, 8 | 16)),
        (BF16, BF16) => matches!((m, n, k), (16, 8, 8 | 16)),
        (TF32, TF32) => matches!((m, n, k), (16, 8, 4 | 8)),
        (F64, F64) => matches!((m, n, k), (8, 8, 4) | (16, 8, 4 | 8 | 16)),
        (S8 | U8, S8 | U8) => matches!((m, n, k), (8, 8, 16) | (16, 8, 16 | 32)),
        (S4 | U4, S4 | U4) => matches!((m, n, k), (8, 8, 32) | (16, 8, 32 | 64)),
        (B1, B1) => matches!((m, n, k), (8, 8, 128) | (16, 8, 128 | 256)),
        (E4M3 | E5M2, E4M3 | E5M2) => matches!((m, n, k), (16, 8, 16 | 32)),
        _ => false,
    }
}

/// Shapes and types of `wmma` that exist.
fn wmma_exists(mnk: [usize; 3], kind: Kind) -> bool {
    match kind {
        Kind::F16 | Kind::BF16 | Kind::S8 | Kind::U8 => matches!(mnk, [16, 16, 16] | [32, 8, 16] | [8, 32, 16]),
        Kind::TF32 => mnk == [16, 16, 8],
        Kind::F64 => mnk == [8, 8, 4],
        Kind::S4 | Kind::U4 => mnk == [8, 8, 32],
        Kind::B1 => mnk == [8, 8, 128],
        _ => false,
    }
}

/// Whether C and D may have these types with factors of that one.
fn accumulators(a: Kind, c: Kind, d: Kind, mixed: bool) -> bool {
    match a {
        Kind::F16 => {
            let halves = [c, d].iter().all(|t| matches!(t, Kind::F16 | Kind::F32));
            halves && (c == d || mixed)
        }
        Kind::E4M3 | Kind::E5M2 => c == d && matches!(c, Kind::F16 | Kind::F32),
        Kind::BF16 | Kind::TF32 => (c, d) == (Kind::F32, Kind::F32),
        Kind::F64 => (c, d) == (Kind::F64, Kind::F64),
        _ => (c, d) == (Kind::S32, Kind::S32),
    }
}

/// The modifiers that products of both families have.
struct Options {
    popc: bool,
    join: Option<&'static str>,
    sat: bool,
    round: Option<Round>,
}

impl Options {
    fn take(m: &Mods<'_>) -> Options {
        let (popc, join) = (m.take("popc"), m.any(&["xor", "and"]));
        Options { popc, join, sat: m.take("satfinite"), round: m.round() }
    }

    /// Whether a product of factors of this kind may have them.
    fn fit(&self, a: Kind) -> bool {
        (!self.sat || a.is_int())
            && (a == Kind::B1) == (self.popc && self.join.is_some())
            && (self.popc || self.join.is_none())
            && (self.round.is_none() || a == Kind::F64)
    }

    /// The product of `wmma`, whose fragments know their layouts from when they were loaded.
    fn shape(&self, [m, n, k]: [usize; 3], [a, b, c, d]: [Kind; 4], sm: u32) -> Shape {
        let (sat, and, round) = (self.sat, self.join == Some("and"), self.round.unwrap_or(Round::Nearest));
        Shape { m, n, k, a, b, c, d, sat, and, round, wmma: true, a_columns: false, b_rows: false, sm }
    }
}

impl Builder<'_> {
    /// The registers of a fragment.
    fn fragment(&mut self, operand: &Operand, count: usize, kind: Kind, write: bool) -> Lowered<Vec<V>> {
        let single = std::slice::from_ref(operand);
        let items = match operand {
            Operand::Vector(items) => items.as_slice(),
            _ => single,
        };
        if items.len() != count {
            return Err(format!("a fragment has {} registers instead of {count}", items.len()));
        }
        let ty = if kind == Kind::F64 { Type::B64 } else { Type::B32 };
        // Accumulators may be written as floats.
        let source = |b: &mut Self, o: &Operand| match o {
            Operand::F32(_) | Operand::F64(_) if kind == Kind::F64 => b.src(o, Type::F64),
            Operand::F32(_) | Operand::F64(_) => b.src(o, Type::F32),
            _ => b.src(o, ty),
        };
        items.iter().map(|o| if write { self.dst(o, ty) } else { source(self, o) }).collect()
    }

    /// `mma.sync` of dense matrices.
    pub(super) fn mma(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        if m.skip(|w| w == "sp" || w.starts_with("sp::")) {
            return Err(unsupported("`mma.sp` (sparse matrices)"));
        }
        if m.skip(|w| w.starts_with("kind::") || w.starts_with("block_scale")) {
            return Err(unsupported("`mma` with `.kind` or `.block_scale`"));
        }
        let sync = m.take("sync") && m.take("aligned");
        let options = Options::take(m);
        let Some(mnk) = m.first().and_then(size) else { return Err(unsupported("this shape of `mma`")) };
        let layouts = (m.any(&["row", "col"]), m.any(&["row", "col"]));
        let what = || unsupported("`mma` of these types and this shape");
        let words: Vec<Option<Kind>> = std::iter::from_fn(|| m.first()).map(Kind::named).collect();
        let &[Some(d), Some(a), Some(b), Some(c)] = words.as_slice() else { return Err(what()) };
        let quads = mnk == [8, 8, 4] && a == Kind::F16;
        // `take` finds words in any order: "row.col" and "col.row" differ by where they stand.
        let order: Vec<&str> = i.modifiers.iter().filter(|w| *w == "row" || *w == "col").map(String::as_str).collect();
        if !sync || layouts.0.is_none() || order.len() != 2 || !(quads || order == ["row", "col"]) {
            return Err(unsupported("this form of `mma`"));
        }
        let fits = mma_exists(mnk, a, b)
            && accumulators(a, c, d, quads && !(c == Kind::F32 && d == Kind::F16))
            && options.fit(a);
        if !fits {
            return Err(what());
        }
        let (a_columns, b_rows) = (order[0] == "col", order[1] == "row");
        let shape = Shape { wmma: false, a_columns, b_rows, ..options.shape(mnk, [a, b, c, d], self.sm) };
        self.product(i, shape)
    }

    fn product(&mut self, i: &Instruction, shape: Shape) -> Lowered<()> {
        let [na, nb, nc, nd] = shape.registers();
        let [d, a, b, c] = operands(i)?;
        let mut rows = self.fragment(a, na, shape.a, false)?;
        rows.extend(self.fragment(b, nb, shape.b, false)?);
        rows.extend(self.fragment(c, nc, shape.c, false)?);
        let writes = self.fragment(d, nd, shape.d, true)?;
        let op = self.push(mma::mma(), Facts::registers(Taint::Matrix));
        (op.imm, op.apart) = (shape.pack(), true);
        op.list = Some(Box::new(List { rows, writes, ..List::default() }));
        Ok(())
    }

    /// `ldmatrix`, `stmatrix` of 8×8 matrices of 16-bit elements.
    pub(super) fn matrix_access(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let load = i.opcode == "ldmatrix";
        let form = m.take("sync") && m.take("aligned") && m.take("m8n8");
        let what = || unsupported(&format!("this form of `{}`", i.opcode));
        let count = match m.any(&["x1", "x2", "x4"]) {
            Some("x1") => 1usize,
            Some("x2") => 2,
            Some(_) => 4,
            None => return Err(what()),
        };
        let transposed = m.take("trans");
        let space = if m.any(&["shared", "shared::cta"]).is_some() { Space::Shared } else { Space::Generic };
        if !form || !m.take("b16") {
            return Err(what());
        }
        m.finish()?;
        let (data, address) = match (i.operands.as_slice(), load) {
            ([d, a], true) => (d, a),
            ([a, d], false) => (d, a),
            _ => return Err(format!("Arguments mismatch for instruction '{}'", i.opcode)),
        };
        let address = self.address(address, space)?;
        let via = Self::via(&address)?;
        let data = self.fragment(data, count, Kind::B1, load)?;
        let at = Via { site: self.site(), via };
        let head = Matrices { at, count: count as u32, transposed }.list();
        let (writes, rows) = if load { (data, Vec::new()) } else { (Vec::new(), data) };
        let (f, taint): (OpFn, _) =
            if load { (fragment::ldmatrix, Taint::LoadMatrix) } else { (fragment::stmatrix, Taint::StoreMatrix) };
        let op = self.push(f, Facts::role(Role::MatrixAccess, taint));
        (op.a, op.imm, op.apart) = (address.row, address.offset, true);
        op.list = Some(Box::new(List { head, writes, rows }));
        Ok(())
    }

    /// `movmatrix.sync.aligned.m8n8.trans.b16`.
    pub(super) fn move_matrix(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let form = ["sync", "aligned", "m8n8", "trans", "b16"].iter().all(|w| m.take(w));
        m.finish()?;
        if !form {
            return Err(unsupported("this form of `movmatrix`"));
        }
        let [d, a] = operands(i)?;
        let (d, a) = (self.dst(d, Type::B32)?, self.src(a, Type::B32)?);
        self.op1(fragment::movmatrix, Taint::All, d, a).apart = true;
        Ok(())
    }

    /// `wmma.load`, `wmma.store`, `wmma.mma`.
    pub(super) fn wmma(&mut self, i: &Instruction, m: &Mods<'_>) -> Lowered<()> {
        let what = || unsupported("this form of `wmma`");
        let kind = m.any(&["load", "store", "mma"]);
        let matrix = m.any(&["a", "b", "c", "d"]);
        // `.aligned` came later than `wmma` itself.
        let sync = m.take("sync");
        m.take("aligned");
        if !sync {
            return Err(what());
        }
        let order: Vec<&str> = i.modifiers.iter().filter(|w| *w == "row" || *w == "col").map(String::as_str).collect();
        m.skip(|w| w == "row" || w == "col");
        match (kind, matrix, order.as_slice()) {
            (Some("mma"), None, &[a, b]) => self.wmma_product(i, m, a, b),
            (Some("load"), Some(x @ ("a" | "b" | "c")), &[layout]) => self.wmma_access(i, m, x, layout == "row"),
            (Some("store"), Some("d"), &[layout]) => self.wmma_access(i, m, "d", layout == "row"),
            _ => Err(what()),
        }
    }

    fn wmma_access(&mut self, i: &Instruction, m: &Mods<'_>, matrix: &str, by_rows: bool) -> Lowered<()> {
        let load = i.modifiers.first().is_some_and(|w| w == "load");
        let space = Self::space(m);
        let what = || unsupported("`wmma` of this type and shape");
        let (Some(mnk), Some(kind)) = (m.first().and_then(size), m.first().and_then(Kind::named)) else {
            return Err(what());
        };
        m.finish()?;
        let [rows, columns, k] = mnk;
        let accumulator = matches!(matrix, "c" | "d");
        let exists = if accumulator {
            let factors = [Kind::F16, Kind::BF16, Kind::TF32, Kind::F64, Kind::S8, Kind::S4, Kind::B1];
            factors.iter().any(|&f| wmma_exists(mnk, f) && (accumulators(f, kind, kind, true)))
        } else {
            wmma_exists(mnk, kind)
        };
        // Small elements lie along k, in the order of a product.
        let packed = kind.bits() < 8 && by_rows != (matrix == "a");
        if !exists || packed || !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return Err(what());
        }
        let (outer, inner, along, registers) = match matrix {
            "a" => (rows, k, by_rows, factor_registers(rows, k, kind, true)),
            "b" => (columns, k, !by_rows, factor_registers(columns, k, kind, true)),
            _ => (rows, columns, by_rows, accumulator_registers(rows, columns, kind)),
        };
        let (data, address, stride) = match (i.operands.as_slice(), load) {
            ([d, a], true) => (d, a, None),
            ([d, a, s], true) => (d, a, Some(s)),
            ([a, d], false) => (d, a, None),
            ([a, d, s], false) => (d, a, Some(s)),
            _ => return Err("Arguments mismatch for instruction 'wmma'".to_string()),
        };
        let address = self.address(address, space)?;
        let via = Self::via(&address)?;
        let stride = match stride {
            Some(s) => self.src(s, Type::U32)?,
            // Without a stride, the matrix lies alone.
            None => self.bits32(if along { inner } else { outer } as u32),
        };
        if !matches!(data, Operand::Vector(_)) {
            return Err("Vector expected for instruction 'wmma'".to_string());
        }
        let data = self.fragment(data, registers, kind, load)?;
        let tile = Tile { kind, accumulator, outer, inner, along, registers };
        let head = tile.access(Via { site: self.site(), via }).list();
        let (writes, rows) = if load { (data, Vec::new()) } else { (Vec::new(), data) };
        let (f, taint): (OpFn, _) =
            if load { (fragment::wmma_load, Taint::LoadTile) } else { (fragment::wmma_store, Taint::StoreTile) };
        let op = self.push(f, Facts::role(Role::MatrixAccess, taint));
        (op.a, op.b, op.imm, op.apart) = (address.row, stride, address.offset, true);
        op.list = Some(Box::new(List { head, writes, rows }));
        Ok(())
    }

    fn wmma_product(&mut self, i: &Instruction, m: &Mods<'_>, a_layout: &str, b_layout: &str) -> Lowered<()> {
        let options = Options::take(m);
        let what = || unsupported("`wmma.mma` of these types and this shape");
        let Some(mnk) = m.first().and_then(size) else { return Err(what()) };
        let kinds: Vec<Option<Kind>> = std::iter::from_fn(|| m.first()).map(Kind::named).collect();
        let (a, b, c, d) = match kinds.as_slice() {
            // f16 factors are not named.
            [Some(d), Some(c)] => (Kind::F16, Kind::F16, *c, *d),
            [Some(d), Some(a), Some(b), Some(c)] if *a != Kind::F16 => (*a, *b, *c, *d),
            _ => return Err(what()),
        };
        let small = a.bits() < 8;
        let fits = wmma_exists(mnk, a)
            && a == b
            && accumulators(a, c, d, true)
            && options.fit(a)
            && (!small || (a_layout, b_layout) == ("row", "col"));
        if !fits {
            return Err(what());
        }
        let shape = options.shape(mnk, [a, b, c, d], self.sm);
        self.product(i, shape)
    }
}
