//! Matrix products: `mma.sync` and `wmma.mma`.
//!
//! All fragments but those of `mma.m8n8k4.f16` follow one rule, that of the ISA's figures for `mma.m16n8k…`.
//! Think of A as rows and of B as columns of k elements. Lane l is number l % 4 of group l / 4. Register r of a
//! factor holds consecutive elements of k, beginning at the lane's number times their count, of row (or column)
//! l / 4; further registers go to the next eight rows first, then to the next elements of k. An accumulator holds
//! pairs: row l / 4 and columns 2 (l % 4), 2 (l % 4) + 1; further ones go to the next eight rows first, then to the
//! next eight columns. The fragments of `wmma` are of the same kind (the ISA leaves them open); where it gives
//! them more registers than there are elements, the elements repeat, as on hardware.

use super::lanes::{compiled_twice, lane_of, set_lane};
use super::soft::Round;
use super::tensor::{self, Kind, Part, Sum};
use super::{Cx, Flow, LANES, Op, product};
use crate::fault::{FaultKind, Reason};
use std::cell::OnceCell;

/// A product of matrices, packed into `Op::imm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Kind,
    pub b: Kind,
    pub c: Kind,
    pub d: Kind,
    /// `.satfinite` of integers.
    pub sat: bool,
    /// `.and.popc` rather than `.xor.popc`.
    pub and: bool,
    /// Rounding of f64.
    pub(crate) round: Round,
    pub wmma: bool,
    /// Layouts of A and B of `m8n8k4.f16`: A by columns, B by rows.
    pub a_columns: bool,
    pub b_rows: bool,
    /// Architecture whose sums to follow.
    pub sm: u32,
}

impl Shape {
    pub fn pack(self) -> u64 {
        let round = match self.round {
            Round::Zero => 1,
            Round::Down => 2,
            Round::Up => 3,
            _ => 0,
        };
        let flags = [self.sat, self.and, self.wmma, self.a_columns, self.b_rows];
        let flags = flags.iter().enumerate().fold(0, |f, (i, &on)| f | u64::from(on) << i);
        let fields = [
            (self.m as u64 / 8, 0),
            (self.n as u64 / 8, 3),
            (self.k as u64, 6),
            (self.a as u64, 16),
            (self.b as u64, 20),
            (self.c as u64, 24),
            (self.d as u64, 28),
            (round, 32),
            (flags, 34),
            (u64::from(self.sm & 0xff), 40),
        ];
        fields.iter().fold(0, |word, (value, at)| word | value << at)
    }

    pub fn unpack(imm: u64) -> Shape {
        let flag = |i: u32| imm >> (34 + i) & 1 != 0;
        Shape {
            m: (imm as usize & 7) * 8,
            n: (imm as usize >> 3 & 7) * 8,
            k: imm as usize >> 6 & 0x1ff,
            a: Kind::of(imm >> 16),
            b: Kind::of(imm >> 20),
            c: Kind::of(imm >> 24),
            d: Kind::of(imm >> 28),
            round: match imm >> 32 & 3 {
                1 => Round::Zero,
                2 => Round::Down,
                3 => Round::Up,
                _ => Round::Nearest,
            },
            sat: flag(0),
            and: flag(1),
            wmma: flag(2),
            a_columns: flag(3),
            b_rows: flag(4),
            sm: (imm >> 40 & 0xff) as u32,
        }
    }

    /// The product that four pairs of quads of a warp compute four times.
    pub fn is_quads(self) -> bool {
        self.k == 4 && self.a == Kind::F16
    }

    /// Registers of A, B, C, D.
    pub fn registers(self) -> [usize; 4] {
        if self.is_quads() {
            let of = |kind| if kind == Kind::F16 { 4 } else { 8 };
            return [2, 2, of(self.c), of(self.d)];
        }
        [
            factor_registers(self.m, self.k, self.a, self.wmma),
            factor_registers(self.n, self.k, self.b, self.wmma),
            accumulator_registers(self.m, self.n, self.c),
            accumulator_registers(self.m, self.n, self.d),
        ]
    }
}

/// Registers of a factor of `rows` rows (or columns) of `k` elements.
pub fn factor_registers(rows: usize, k: usize, kind: Kind, wmma: bool) -> usize {
    if wmma && kind == Kind::F16 { 8 } else { rows * k / (LANES * kind.per_register()) }
}

/// Registers of an accumulator.
pub fn accumulator_registers(m: usize, n: usize, kind: Kind) -> usize {
    m * n / LANES / if kind == Kind::F16 { 2 } else { 1 }
}

/// Row (or column) and first element of k that a lane's register of a factor holds.
pub fn factor_place(rows: usize, k: usize, kind: Kind, lane: usize, register: usize) -> (usize, usize) {
    let per = kind.per_register();
    // Beyond the last register the elements repeat.
    let register = register % (rows * k / (LANES * per)).max(1);
    let tiles = rows / 8;
    (lane / 4 + 8 * (register % tiles), per * (lane % 4 + 4 * (register / tiles)))
}

/// Row and column of an element of an accumulator.
pub fn accumulator_place(m: usize, lane: usize, element: usize) -> (usize, usize) {
    let (pair, e) = (element / 2, element % 2);
    let tiles = m / 8;
    (lane / 4 + 8 * (pair % tiles), lane % 4 * 2 + e + 8 * (pair / tiles))
}

/// Whether a whole warp is here; if not, what to do.
pub(super) fn all_here(cx: &mut Cx, op: &Op) -> Option<Flow> {
    if cx.active != cx.live {
        return Some(Flow::Rendezvous);
    }
    if cx.active != !0 {
        let lane = cx.active.trailing_zeros() & 31;
        return Some(cx.raise(op, FaultKind::MaskMisuse, lane, None, Some(Reason::PartOfWarp)));
    }
    None
}

/// Reads the elements of a factor, row after row.
unsafe fn factor(cx: &Cx, op: &Op, first: usize, registers: usize, (rows, k, kind): (usize, usize, Kind)) -> Vec<u64> {
    let (per, bits) = (kind.per_register(), kind.bits());
    let mut words = vec![0; rows * k];
    let mask = if bits == 32 { !0 } else { (1u64 << (bits & 31)) - 1 };
    for r in 0..registers.min(rows * k / (LANES * per)) {
        // SAFETY: the contract of handlers: the list has the factor's rows, of 64 bits for f64.
        let row = unsafe { cx.src(cx.list(op, first + r)) };
        for lane in 0..LANES {
            let (at, from) = factor_place(rows, k, kind, lane, r);
            let to = &mut words[at * k + from..];
            if kind == Kind::F64 {
                // SAFETY: as above.
                to[0] = unsafe { lane_of::<u64>(row, lane) };
                continue;
            }
            // SAFETY: as above.
            let word = u64::from(unsafe { lane_of::<u32>(row, lane) });
            for (e, to) in to.iter_mut().take(per).enumerate() {
                *to = word >> (bits as usize * e) & mask;
            }
        }
    }
    words
}

/// One element of an accumulator: of a 64-bit row for f64, of half a register for f16.
unsafe fn get(cx: &Cx, op: &Op, first: usize, kind: Kind, lane: usize, element: usize) -> u64 {
    // SAFETY: the contract of handlers: the list has the accumulator's rows.
    unsafe {
        match kind {
            Kind::F64 => lane_of::<u64>(cx.src(cx.list(op, first + element)), lane),
            Kind::F16 => {
                let word = lane_of::<u32>(cx.src(cx.list(op, first + element / 2)), lane);
                u64::from(word >> (16 * (element % 2)) & 0xffff)
            }
            _ => lane_of::<u32>(cx.src(cx.list(op, first + element)), lane).into(),
        }
    }
}

/// Writes an accumulator's elements of all lanes.
unsafe fn put(cx: &Cx, op: &Op, kind: Kind, results: &[[u64; LANES]]) {
    // SAFETY: the contract of handlers: the list begins with the rows of D.
    unsafe {
        match kind {
            Kind::F64 => {
                for (r, lanes) in results.iter().enumerate() {
                    let to = cx.dst(cx.list(op, r));
                    lanes.iter().enumerate().for_each(|(l, &v)| set_lane::<u64>(to, l, v));
                }
            }
            Kind::F16 => {
                for (r, pair) in results.chunks_exact(2).enumerate() {
                    let to = cx.dst(cx.list(op, r));
                    for (lane, (low, high)) in pair[0].iter().zip(&pair[1]).enumerate() {
                        set_lane::<u32>(to, lane, (low | high << 16) as u32);
                    }
                }
            }
            _ => {
                for (r, lanes) in results.iter().enumerate() {
                    let to = cx.dst(cx.list(op, r));
                    lanes.iter().enumerate().for_each(|(l, &v)| set_lane::<u32>(to, l, v as u32));
                }
            }
        }
    }
}

/// The rows of a factor of floating-point numbers, ready for the sums of its type.
enum Factor {
    Parts(Vec<Part>),
    Doubles(Vec<f64>),
}

impl Factor {
    fn new(words: &[u64], kind: Kind) -> Factor {
        let all = words.iter();
        match kind {
            Kind::F64 => Factor::Doubles(all.map(|&w| f64::from_bits(w)).collect()),
            _ => Factor::Parts(all.map(|&w| tensor::part(kind, w as u32)).collect()),
        }
    }
}

/// The element of D in a row of A and a column of B.
fn element(shape: Shape, sum: Sum, (a, i): (&Factor, usize), (b, j): (&Factor, usize), width: usize, c: u64) -> u64 {
    let (i, j) = (i * width..(i + 1) * width, j * width..(j + 1) * width);
    match (a, b) {
        (Factor::Parts(a), Factor::Parts(b)) => {
            let groups = a[i].chunks(sum.group).zip(b[j].chunks(sum.group));
            let c = tensor::accumulator(c as u32, shape.c, shape.d);
            groups.fold(c, |c, (a, b)| tensor::dot([shape.a, shape.b], a, b, c, shape.d, sum)).into()
        }
        (Factor::Doubles(a), Factor::Doubles(b)) => {
            tensor::dot64(&a[i], &b[j], f64::from_bits(c), shape.round).to_bits()
        }
        // Lowering pairs only types of one sort.
        _ => 0,
    }
}

compiled_twice!(
    /// `mma.sync` and `wmma.mma`: `imm` is the [`Shape`]; the list holds the rows of D, A, B and C. No memory is touched.
    pub mma,
    body
);

#[inline(always)]
unsafe fn body<const FAST: bool>(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    let shape = Shape::unpack(op.imm);
    let sum = Sum::of(shape.sm, shape.a);
    // SAFETY: the contract of handlers: the list has nd + na + nb + nc rows of the types' widths.
    unsafe {
        match (shape.a, shape.c, shape.d) {
            (Kind::B1, ..) => product::bits(cx, op, shape),
            (kind, ..) if kind.is_int() => product::integers::<FAST>(cx, op, shape),
            _ if shape.is_quads() => quads(cx, op, shape, sum),
            (Kind::F64, ..) | (_, Kind::F16, _) | (.., Kind::F16) => one_by_one(cx, op, shape, sum),
            // By the definition: x86 without AVX2 is rare, and steps of eight compiled for it would be a hundredth of a program.
            _ if !FAST && cfg!(target_arch = "x86_64") => one_by_one(cx, op, shape, sum),
            _ => {
                let factors = OnceCell::new();
                product::floats::<FAST>(cx, op, shape, sum, |i, j, c| {
                    let Factors { a, b, width } = factors.get_or_init(|| Factors::read(cx, op, shape));
                    element(shape, sum, (a, i), (b, j), *width, c.into()) as u32
                });
            }
        }
    }
    cx.counters.matrix_instructions += 1;
    Flow::Next
}

/// Both factors, ready for the sums of their type.
struct Factors {
    a: Factor,
    b: Factor,
    /// Elements of a row.
    width: usize,
}

impl Factors {
    #[cold]
    #[inline(never)]
    unsafe fn read(cx: &Cx, op: &Op, shape: Shape) -> Factors {
        let [na, nb, _, nd] = shape.registers();
        // SAFETY: the contract of handlers: the list has nd + na + nb rows of the types' widths.
        unsafe {
            let a = factor(cx, op, nd, na, (shape.m, shape.k, shape.a));
            let b = factor(cx, op, nd + na, nb, (shape.n, shape.k, shape.b));
            Factors { a: Factor::new(&a, shape.a), b: Factor::new(&b, shape.b), width: shape.k }
        }
    }
}

/// Every element by its definition.
#[inline(never)]
unsafe fn one_by_one(cx: &Cx, op: &Op, shape: Shape, sum: Sum) {
    let [na, nb, _, nd] = shape.registers();
    let mut results = vec![[0u64; LANES]; shape.m * shape.n / LANES];
    // SAFETY: the contract of handlers: the list has nd + na + nb + nc rows of the types' widths.
    unsafe {
        let Factors { a, b, width } = Factors::read(cx, op, shape);
        for (e, lanes) in results.iter_mut().enumerate() {
            for (lane, result) in lanes.iter_mut().enumerate() {
                let (i, j) = accumulator_place(shape.m, lane, e);
                let c = get(cx, op, nd + na + nb, shape.c, lane, e);
                *result = element(shape, sum, (&a, i), (&b, j), width, c);
            }
        }
        put(cx, op, shape.d, &results);
    }
}

/// `mma.m8n8k4.f16`: lanes 0-3 and 16-19 compute one product of their own, lanes 4-7 and 20-23 the next, and so on.
unsafe fn quads(cx: &Cx, op: &Op, shape: Shape, sum: Sum) {
    let [na, nb, _, nd] = shape.registers();
    let mut results = vec![[0u64; LANES]; 8];
    let half = |first: usize, lane: usize, e: usize| {
        // SAFETY: the contract of handlers: the list has two rows for each factor.
        let word = unsafe { lane_of::<u32>(cx.src(cx.list(op, first + e / 2)), lane) };
        word >> (16 * (e % 2)) & 0xffff
    };
    for pair in 0..4 {
        let lanes: [usize; 8] = std::array::from_fn(|i| 4 * pair + i % 4 + 16 * (i / 4));
        let (mut a, mut b) = (vec![Part::default(); 32], vec![Part::default(); 32]);
        for (i, &lane) in lanes.iter().enumerate() {
            for e in 0..4 {
                // By rows of A a lane holds its row; by columns, one element of four rows.
                let (row, k) = if shape.a_columns { (e + 4 * (i / 4), i % 4) } else { (i, e) };
                a[row * 4 + k] = tensor::part(Kind::F16, half(nd, lane, e));
                let (column, k) = if shape.b_rows { (e + 4 * (i / 4), i % 4) } else { (i, e) };
                b[column * 4 + k] = tensor::part(Kind::F16, half(nd + na, lane, e));
            }
        }
        let (a, b) = (Factor::Parts(a), Factor::Parts(b));
        // f16 accumulators hold a row; f32 ones pairs of two rows.
        let place = |kind: Kind, i: usize, e: usize| match kind {
            Kind::F16 => (i, e),
            _ => ((i & 1) + (e & 2) + 4 * (i / 4), (e & 4) + (i & 2) + (e & 1)),
        };
        let mut c = [[0u64; 8]; 8];
        for (i, &lane) in lanes.iter().enumerate() {
            for e in 0..8 {
                let (row, column) = place(shape.c, i, e);
                // SAFETY: as above.
                c[row][column] = unsafe { get(cx, op, nd + na + nb, shape.c, lane, e) };
            }
        }
        for (i, &lane) in lanes.iter().enumerate() {
            for (e, lanes) in results.iter_mut().enumerate() {
                let (row, column) = place(shape.d, i, e);
                lanes[lane] = element(shape, sum, (&a, row), (&b, column), 4, c[row][column]);
            }
        }
    }
    // SAFETY: as above.
    unsafe { put(cx, op, shape.d, &results) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_survive_packing() {
        let shape = Shape {
            m: 32,
            n: 8,
            k: 256,
            a: Kind::U4,
            b: Kind::S4,
            c: Kind::S32,
            d: Kind::S32,
            sat: true,
            and: true,
            round: Round::Up,
            wmma: true,
            a_columns: true,
            b_rows: true,
            sm: 121,
        };
        assert_eq!(Shape::unpack(shape.pack()), shape);
        assert!(shape.pack() >> 63 == 0, "the top bit marks collectives");
    }

    #[test]
    fn fragments_cover_their_matrix() {
        for (rows, k, kind) in [(16, 16, Kind::F16), (8, 256, Kind::B1), (32, 16, Kind::S8), (16, 8, Kind::TF32)] {
            let mut seen = vec![0; rows * k];
            for lane in 0..LANES {
                for r in 0..rows * k / (LANES * kind.per_register()) {
                    let (row, from) = factor_place(rows, k, kind, lane, r);
                    (0..kind.per_register()).for_each(|e| seen[row * k + from + e] += 1);
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{rows} {k} {kind:?}");
        }
        for (m, n) in [(16, 8), (8, 32), (32, 8), (16, 16), (8, 8)] {
            let mut seen = vec![0; m * n];
            for lane in 0..LANES {
                for e in 0..m * n / LANES {
                    let (row, column) = accumulator_place(m, lane, e);
                    seen[row * n + column] += 1;
                }
            }
            assert!(seen.iter().all(|&x| x == 1), "{m} {n}");
        }
    }
}
