//! Fragments of matrices and memory: `ldmatrix`, `stmatrix`, `movmatrix`, `wmma.load`, `wmma.store`.
//!
//! **Where addresses are.** As for atomics: row `op.a` (32 or 64 bits, as the second word of the list says) plus
//! `op.imm`; the list begins with the cache site and [`via`](super::atom::via). Data rows stand at the list's end.

use super::atom::address;
use super::bounds::{Place, refuse};
use super::lanes::{lane_of, set_lane};
use super::mma::{accumulator_place, all_here, factor_place};
use super::space::{Global, Shared, Space};
use super::tensor::Kind;
use super::words::{Matrices, TileAccess, Via, Words};
use super::{Cx, Flow, LANES, Op};
use crate::fault::AccessKind;

/// The elements of an 8×8 matrix that a lane holds: row and column of the first, and of the second.
fn pair(lane: usize, transposed: bool) -> [(usize, usize); 2] {
    let (row, column) = (lane / 4, lane % 4 * 2);
    if transposed { [(column, row), (column + 1, row)] } else { [(row, column), (row, column + 1)] }
}

/// A 16-byte row of a matrix in shared memory.
unsafe fn row(cx: &mut Cx, op: &Op, lane: usize, what: AccessKind) -> Result<*mut u8, Flow> {
    // SAFETY: the contract of handlers.
    unsafe {
        let (place, at) = address(cx, op, lane);
        let site = Via::of(cx, op).site as usize;
        let inside = place == Place::Shared && at & 15 == 0;
        match if inside { Shared::<u64>::resolve::<false>(cx, site, at, 16) } else { None } {
            Some((host, _)) => Ok(host),
            None => Err(refuse(cx, op, place, lane, at, 16, what)),
        }
    }
}

/// `ldmatrix`: lane `8 m + r` gives the address of row `r` of matrix `m`, of 16 bytes in shared memory. The list holds the
/// site, how addresses are read, the number of matrices and [`TRANSPOSED`], and one destination row a matrix.
pub unsafe fn ldmatrix(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    // SAFETY: the contract of handlers; each row of a matrix is checked before it is read.
    unsafe {
        let Matrices { count, transposed, .. } = Matrices::of(cx, op);
        let matrices = count as usize;
        // All is read before anything is written: a destination may be the address.
        let mut results = [[0u32; LANES]; 4];
        for (m, result) in results.iter_mut().enumerate().take(matrices) {
            let mut matrix = [[0u16; 8]; 8];
            for (r, elements) in matrix.iter_mut().enumerate() {
                match row(cx, op, m * 8 + r, AccessKind::Load) {
                    Ok(from) => *elements = from.cast::<[u16; 8]>().read_unaligned(),
                    Err(flow) => return flow,
                }
            }
            for (lane, value) in result.iter_mut().enumerate() {
                let [low, high] = pair(lane, transposed).map(|(r, c)| u32::from(matrix[r][c]));
                *value = low | high << 16;
            }
        }
        for (m, result) in results.iter().enumerate().take(matrices) {
            let to = cx.dst(Matrices::row(cx, op, m));
            result.iter().enumerate().for_each(|(lane, &value)| set_lane::<u32>(to, lane, value));
        }
        cx.counters.shared_requests += 1;
        cx.counters.shared_load_bytes += 128 * matrices as u64;
    }
    Flow::Next
}

/// `stmatrix`: as [`ldmatrix`], with source rows.
pub unsafe fn stmatrix(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    // SAFETY: the contract of handlers; each row of a matrix is checked before it is written.
    unsafe {
        let Matrices { count, transposed, .. } = Matrices::of(cx, op);
        let matrices = count as usize;
        for m in 0..matrices.min(4) {
            let from = cx.src(Matrices::row(cx, op, m));
            let mut matrix = [[0u16; 8]; 8];
            for lane in 0..LANES {
                let value = lane_of::<u32>(from, lane);
                let [low, high] = pair(lane, transposed);
                matrix[low.0][low.1] = value as u16;
                matrix[high.0][high.1] = (value >> 16) as u16;
            }
            for (r, elements) in matrix.iter().enumerate() {
                match row(cx, op, m * 8 + r, AccessKind::Store) {
                    Ok(to) => to.cast::<[u16; 8]>().write_unaligned(*elements),
                    Err(flow) => return flow,
                }
            }
        }
        cx.counters.shared_requests += 1;
        cx.counters.shared_store_bytes += 128 * matrices as u64;
    }
    cx.progress += 1;
    Flow::Next
}

/// `movmatrix`: row `d` gets the 8×8 matrix in row `a`, transposed.
pub unsafe fn movmatrix(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    // SAFETY: the contract of handlers: `a` and `d` are rows of 32 bits.
    unsafe {
        let mut matrix = [[0u16; 8]; 8];
        for lane in 0..LANES {
            let value = lane_of::<u32>(cx.src(op.a), lane);
            let [low, high] = pair(lane, false);
            matrix[low.0][low.1] = value as u16;
            matrix[high.0][high.1] = (value >> 16) as u16;
        }
        for lane in 0..LANES {
            let [low, high] = pair(lane, true).map(|(r, c)| u32::from(matrix[r][c]));
            set_lane::<u32>(cx.dst(op.d), lane, low | high << 16);
        }
    }
    Flow::Next
}

/// A part of a register that a matrix instruction loads or stores, and where it lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub lane: usize,
    /// The register's row, whether it has 64-bit lanes, and where the part starts in it.
    pub row: u32,
    pub wide: bool,
    pub bit: u32,
    pub shared: bool,
    pub at: u64,
    pub bytes: u64,
}

/// The pieces of an `ldmatrix` or `stmatrix`, register by register.
///
/// # Safety
/// The contract of handlers; all lanes are here.
pub unsafe fn matrix_pieces(cx: &Cx, op: &Op, mut f: impl FnMut(Piece)) {
    // SAFETY: by the contract.
    unsafe {
        let Matrices { count, transposed, .. } = Matrices::of(cx, op);
        for m in 0..count.min(4) as usize {
            let to = Matrices::row(cx, op, m);
            for lane in 0..LANES {
                for (half, (r, column)) in pair(lane, transposed).into_iter().enumerate() {
                    let (place, at) = address(cx, op, m * 8 + r);
                    let at = at.wrapping_add(2 * column as u64);
                    let (shared, bit) = (place == Place::Shared, 16 * half as u32);
                    f(Piece { lane, row: to, wide: false, bit, shared, at, bytes: 2 });
                }
            }
        }
    }
}

/// The addresses of the rows of an `ldmatrix` or `stmatrix`, with the lanes that give them.
///
/// # Safety
/// The contract of handlers; all lanes are here.
pub unsafe fn matrix_rows(cx: &Cx, op: &Op, mut f: impl FnMut(usize, u64)) {
    // SAFETY: by the contract.
    unsafe {
        for lane in 0..8 * Matrices::of(cx, op).count.min(4) as usize {
            f(lane, address(cx, op, lane).1);
        }
    }
}

/// The pieces of a `wmma.load` or `wmma.store`, register by register.
///
/// # Safety
/// The contract of handlers; all lanes are here.
pub unsafe fn tile_pieces(cx: &Cx, op: &Op, mut f: impl FnMut(Piece)) {
    // SAFETY: by the contract.
    unsafe {
        let tile = Tile::read(cx, op);
        let (pieces, bits) = tile.pieces();
        for r in 0..tile.registers {
            let row = TileAccess::row(cx, op, r);
            for (p, lane) in (0..pieces).flat_map(|p| (0..LANES).map(move |l| (p, l))) {
                let stride = lane_of::<u32>(cx.src(op.b), lane).into();
                let (place, base) = address(cx, op, lane);
                let at = base.wrapping_add(tile.offset(lane, r, p, stride));
                let (shared, bit) = (place == Place::Shared, bits * p as u32);
                f(Piece { lane, row, wide: tile.kind == Kind::F64, bit, shared, at, bytes: bits.div_ceil(8).into() });
            }
        }
    }
}

/// What `wmma.load` and `wmma.store` move.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub kind: Kind,
    /// An accumulator rather than a factor.
    pub accumulator: bool,
    /// Rows, or columns of B; and elements of k, or columns of an accumulator.
    pub outer: usize,
    pub inner: usize,
    /// Elements of the inner dimension are neighbours in memory.
    pub along: bool,
    pub registers: usize,
}

impl Tile {
    /// The words of an access of the tile.
    pub fn access(self, at: Via) -> TileAccess {
        let [outer, inner, registers] = [self.outer, self.inner, self.registers].map(|n| n as u32);
        let Tile { accumulator, along, .. } = self;
        TileAccess { at, kind: self.kind as u32, accumulator, outer, inner, along, registers }
    }

    unsafe fn read(cx: &Cx, op: &Op) -> Tile {
        // SAFETY: the contract of handlers: lowering put the words there.
        let TileAccess { kind, accumulator, outer, inner, along, registers, .. } = unsafe { TileAccess::of(cx, op) };
        let [outer, inner, registers] = [outer, inner, registers].map(|n| n as usize);
        Tile { kind: Kind::of(kind.into()), accumulator, outer, inner, along, registers }
    }

    /// Elements of a register that are moved one by one: all of a register at once where they are neighbours.
    fn pieces(self) -> (usize, u32) {
        let bits = self.kind.bits();
        let per = if self.accumulator { if self.kind == Kind::F16 { 2 } else { 1 } } else { self.kind.per_register() };
        if self.along { (1, per as u32 * bits) } else { (per, bits) }
    }

    /// Byte offset of a piece of a register.
    fn offset(self, lane: usize, register: usize, piece: usize, stride: u64) -> u64 {
        let (o, i) = if self.accumulator {
            let per = if self.kind == Kind::F16 { 2 } else { 1 };
            accumulator_place(self.outer, lane, register * per + piece)
        } else {
            let (o, i) = factor_place(self.outer, self.inner, self.kind, lane, register);
            (o, i + piece)
        };
        let (line, within) = if self.along { (o, i) } else { (i, o) };
        (line as u64 * stride + within as u64) * u64::from(self.kind.bits()) / 8
    }

    /// What the first row (or column) in memory and the step to the next must be multiples of, in bytes. The ISA's example wants
    /// both to be multiples of the fragment's bytes; its default strides, and CUDA's `ldm`, may be smaller.
    fn alignment(self) -> [u64; 2] {
        let fragment = self.registers as u64 * if self.kind == Kind::F64 { 8 } else { 4 };
        let fragment = fragment.next_power_of_two().min(32);
        let line = if self.along { self.inner } else { self.outer } as u64 * u64::from(self.kind.bits()) / 8;
        [fragment, fragment.min(line).min(16)]
    }
}

/// Host address of a piece.
unsafe fn piece<const WRITE: bool>(cx: &mut Cx, op: &Op, lane: usize, offset: u64, bytes: u64) -> Result<Found, Flow> {
    let what = if WRITE { AccessKind::Store } else { AccessKind::Load };
    // SAFETY: the contract of handlers.
    unsafe {
        let (place, base) = address(cx, op, lane);
        let at = base.wrapping_add(offset);
        let site = Via::of(cx, op).site as usize;
        let found = match place {
            _ if at & (bytes - 1) != 0 => None,
            Place::Global => Global::resolve::<WRITE>(cx, site, at, bytes),
            Place::Shared => Shared::<u64>::resolve::<WRITE>(cx, site, at, bytes),
            _ => None,
        };
        match found {
            Some((host, key)) => Ok(Found { host, key, place, at }),
            None => Err(refuse(cx, op, place, lane, at, bytes, what)),
        }
    }
}

struct Found {
    host: *mut u8,
    key: u64,
    place: Place,
    at: u64,
}

/// Refuses rows that do not start where the ISA says.
unsafe fn aligned(cx: &mut Cx, op: &Op, tile: Tile, what: AccessKind) -> Option<Flow> {
    // SAFETY: the contract of handlers: `b` is a row of 32 bits.
    unsafe {
        let stride = u64::from(lane_of::<u32>(cx.src(op.b), 0)) * u64::from(tile.kind.bits()) / 8;
        let (place, at) = address(cx, op, 0);
        let [first, step] = tile.alignment();
        if at & (first - 1) != 0 {
            return Some(refuse(cx, op, place, 0, at, first, what));
        }
        let second = at.wrapping_add(stride);
        (stride & (step - 1) != 0).then(|| refuse(cx, op, place, 0, second, step, what))
    }
}

/// What a tile costs, however its elements are dealt to lanes, which the ISA leaves open.
#[derive(Debug, PartialEq, Eq)]
pub struct Cost {
    /// Distinct sectors, in order, and distinct bytes.
    pub sectors: Vec<u64>,
    pub bytes: u64,
    /// Passes over the banks of shared memory: words that the busiest one has to give, and as few as there could be.
    pub passes: u64,
    pub ideal: u64,
}

impl Cost {
    /// Of pieces of so many bytes each, aligned to that, at these addresses.
    pub fn of(addresses: &mut Vec<u64>, bytes: u64) -> Cost {
        addresses.sort_unstable();
        addresses.dedup();
        let each = |shift: u32| {
            let parts = addresses.iter().flat_map(|&at| at >> shift..=at.wrapping_add(bytes - 1) >> shift);
            let mut parts: Vec<u64> = parts.collect();
            parts.dedup();
            parts
        };
        let words = each(2);
        let mut banks = [0u64; 32];
        words.iter().for_each(|w| banks[(w & 31) as usize] += 1);
        Cost {
            sectors: each(5),
            bytes: addresses.len() as u64 * bytes,
            passes: banks.into_iter().max().unwrap_or(0),
            ideal: (words.len() as u64).div_ceil(32),
        }
    }
}

/// Counts a tile: one request.
fn counted(cx: &mut Cx, store: bool, place: Place, addresses: &mut Vec<u64>, bytes: u64) {
    let all = addresses.len() as u64 * bytes;
    let cost = Cost::of(addresses, bytes);
    let c = &mut cx.counters;
    if place == Place::Shared {
        c.shared_requests += 1;
        *(if store { &mut c.shared_store_bytes } else { &mut c.shared_load_bytes }) += all;
        c.shared_bank_conflicts += cost.passes - cost.ideal;
    } else {
        c.global_requests += 1;
        *(if store { &mut c.global_store_bytes } else { &mut c.global_load_bytes }) += all;
        *(if store { &mut c.global_store_sectors } else { &mut c.global_load_sectors }) += cost.sectors.len() as u64;
    }
}

/// `wmma.load`: the matrix lies at row `op.a` + `op.imm`, its rows (or columns) the elements in row `op.b` apart.
pub unsafe fn wmma_load(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    // SAFETY: the contract of handlers; every piece is checked before it is read.
    unsafe {
        let tile = Tile::read(cx, op);
        if let Some(flow) = aligned(cx, op, tile, AccessKind::Load) {
            return flow;
        }
        let (pieces, bits) = tile.pieces();
        let bytes = u64::from(bits.div_ceil(8));
        // All is read before anything is written: a destination may be the address.
        let mut results = vec![[0u64; LANES]; tile.registers];
        let mut addresses = Vec::with_capacity(tile.registers * pieces * LANES);
        let mut place = Place::Global;
        for (r, result) in results.iter_mut().enumerate() {
            for p in 0..pieces {
                for (lane, value) in result.iter_mut().enumerate() {
                    let stride = lane_of::<u32>(cx.src(op.b), lane).into();
                    let offset = tile.offset(lane, r, p, stride);
                    let found = match piece::<false>(cx, op, lane, offset, bytes) {
                        Ok(found) => found,
                        Err(flow) => return flow,
                    };
                    let mut word = [0u8; 8];
                    found.host.copy_to_nonoverlapping(word.as_mut_ptr(), bytes as usize);
                    let word = u64::from_le_bytes(word) ^ (found.key & (u64::MAX >> (64 - 8 * bytes)));
                    *value |= word << (bits as usize * p);
                    addresses.push(found.at);
                    place = found.place;
                }
            }
        }
        counted(cx, false, place, &mut addresses, bytes);
        for (r, result) in results.iter().enumerate() {
            let to = cx.dst(TileAccess::row(cx, op, r));
            for (lane, &value) in result.iter().enumerate() {
                match tile.kind {
                    Kind::F64 => set_lane::<u64>(to, lane, value),
                    _ => set_lane::<u32>(to, lane, value as u32),
                }
            }
        }
    }
    Flow::Next
}

/// `wmma.store`: as [`wmma_load`], with source rows.
pub unsafe fn wmma_store(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    // SAFETY: the contract of handlers; every piece is checked before it is written.
    unsafe {
        let tile = Tile::read(cx, op);
        if let Some(flow) = aligned(cx, op, tile, AccessKind::Store) {
            return flow;
        }
        let (pieces, bits) = tile.pieces();
        let bytes = u64::from(bits.div_ceil(8));
        let mut addresses = Vec::with_capacity(tile.registers * pieces * LANES);
        let mut place = Place::Global;
        for r in 0..tile.registers {
            let from = cx.src(TileAccess::row(cx, op, r));
            for p in 0..pieces {
                for lane in 0..LANES {
                    let stride = lane_of::<u32>(cx.src(op.b), lane).into();
                    let offset = tile.offset(lane, r, p, stride);
                    let found = match piece::<true>(cx, op, lane, offset, bytes) {
                        Ok(found) => found,
                        Err(flow) => return flow,
                    };
                    let value = match tile.kind {
                        Kind::F64 => lane_of::<u64>(from, lane),
                        _ => lane_of::<u32>(from, lane).into(),
                    };
                    let word = (value >> (bits as usize * p)) ^ found.key;
                    found.host.copy_from_nonoverlapping(word.to_le_bytes().as_ptr(), bytes as usize);
                    addresses.push(found.at);
                    place = found.place;
                }
            }
        }
        counted(cx, true, place, &mut addresses, bytes);
    }
    cx.progress += 1;
    Flow::Next
}
