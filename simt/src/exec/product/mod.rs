//! Products of matrices, eight columns of a row at a time: those of single bits, of integers, and of floating-point numbers with
//! sums in f32. What they are, [`tensor`](super::tensor) defines, number by number; here are the same bits in steps that a CPU
//! takes for eight numbers at once.
//!
//! A register of a fragment is a tile of eight rows as it stands: lane after lane, each with its elements, are row after row.

mod along;
mod numbers;

use std::array::from_fn;

use super::lanes::row_of;
use super::mma::Shape;
use super::tensor::Sum;
use super::{Cx, LANES, Op};
use numbers::{Across, Eight, Registers, Rows, exponent, exponents, least};

/// Rows of an accumulator's registers, as many as a product has at most.
type Results = [[u32; LANES]; 8];

/// `c + Σ a·b` as [`tensor::dot`](super::tensor::dot) has it, of eight columns; none where it has to be asked. All factors are
/// finite; `coarse`: no product but zero is below 2^-90.
///
/// Products are multiplied in f32, where they are exact, or so small that they are cut off: no type has more than eleven bits.
///
/// # Safety
/// With `FAST`, the CPU has AVX2 and F16C.
#[inline(always)]
unsafe fn aligned<const FAST: bool>(
    (a, ea): (&[f32], &[i32]),
    (b, eb): (&[Eight<f32>], &[Eight<i32>]),
    c: Eight<u32>,
    sum: Sum,
    coarse: bool,
) -> Option<Eight<u32>> {
    let mut c = c;
    let parts = a.chunks(sum.group).zip(ea.chunks(sum.group)).zip(b.chunks(sum.group).zip(eb.chunks(sum.group)));
    for ((a, ea), (b, eb)) in parts {
        let field = c.map(|c| (c >> 23 & 0xff) as i32);
        // SAFETY: the caller's promise.
        let top = unsafe { along::highest::<FAST>(field.map(|field| field - 127), ea, eb) };
        // So that scales are in the range of f32. Sums of nothing but zeros have a lower exponent.
        let zero = c.map(|c| coarse && c << 1 == 0);
        let odd: Eight<bool> = from_fn(|i| field[i] == 255 || top[i] > 100 || (top[i] < -90 && !zero[i]));
        if odd.iter().fold(false, |any, odd| any | odd) {
            return None;
        }
        let top = top.map(|top| top.max(-90));
        let scale = top.map(|top| f32::from_bits(((sum.fraction - top + 127) as u32) << 23));
        // Cut off towards zero, as by a shift.
        // SAFETY: finite, and below 2^27, since 2^top is more than a quarter of it.
        let mut own: Eight<i32> = from_fn(|i| unsafe { (f32::from_bits(c[i]) * scale[i]).to_int_unchecked() });
        let mut total = [0.0f64; 8];
        for (a, b) in a.chunks(8).zip(b.chunks(8)) {
            // SAFETY: the caller's promise; products as above, of which nine fit.
            own = unsafe { along::cut::<FAST>(own, a, b, scale) };
            total = from_fn(|i| total[i] + f64::from(own[i]));
            own = [0; 8];
        }
        // Below the fraction bits of a result, too, everything is cut off.
        let kept = !0 << (52 - sum.result);
        let unit = top.map(|top| f64::from_bits(((top - sum.fraction + 1023) as u64) << 52));
        c = from_fn(|i| (f64::from_bits((total[i] * unit[i]).to_bits() & kept) as f32).to_bits());
    }
    Some(c)
}

#[inline(always)]
fn add(c: u32, products: i32, sat: bool) -> u32 {
    let c = c as i32;
    (if sat { c.saturating_add(products) } else { c.wrapping_add(products) }) as u32
}

/// What is between factors and accumulators: of eight rows and eight columns at a time.
///
/// A trait, and no closures: what a compiler does not inline is compiled without the features of the handler.
trait Product {
    /// Goes to eight columns.
    fn columns(&mut self, tile: usize);
    /// Goes to eight rows.
    fn rows(&mut self, tile: usize);
    /// These columns of a row of the eight, to which `c` is added.
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32>;
}

/// Reads accumulators, has rows of eight columns computed, and writes the results.
///
/// # Safety
/// The contract of handlers: the list has the registers of D, A, B and C; accumulators are of 32 bits.
#[inline(always)]
unsafe fn write<P: Product>(cx: &Cx, op: &Op, shape: Shape, product: &mut P) {
    let [na, nb, _, nd] = shape.registers();
    // A destination may be a factor.
    let mut after: Results = [[0; LANES]; 8];
    let mut pairs = after.chunks_exact_mut(2).enumerate();
    for columns in 0..shape.n / 8 {
        product.columns(columns);
        for rows in 0..shape.m / 8 {
            product.rows(rows);
            let Some((pair, to)) = pairs.next() else { break };
            // Even columns are in one register, odd ones in the next; a row is in four lanes.
            // SAFETY: by the contract.
            let c = [0, 1].map(|odd| unsafe { row_of::<u32>(cx.src(cx.list(op, nd + na + nb + 2 * pair + odd))) });
            for row in 0..8 {
                let sums = product.row(row, from_fn(|i| c[i % 2][4 * row + i / 2]));
                sums.into_iter().enumerate().for_each(|(i, sum)| to[i % 2][4 * row + i / 2] = sum);
            }
        }
    }
    for (r, row) in after.iter().take(nd).enumerate() {
        // SAFETY: by the contract.
        unsafe { cx.dst(cx.list(op, r)).cast::<[u32; LANES]>().write_unaligned(*row) };
    }
}

/// The registers of A and those of B.
#[inline(always)]
fn factors<'a>(cx: &'a Cx, op: &'a Op, shape: Shape) -> [Registers<'a>; 2] {
    let [na, _, _, nd] = shape.registers();
    [(nd, shape.m, shape.a), (nd + na, shape.n, shape.b)].map(|(first, rows, kind)| Registers {
        cx,
        op,
        first,
        tiles: rows / 8,
        kind,
    })
}

/// The result where a factor or the accumulator is NaN.
const NAN: u32 = 0x7fff_ffff;

/// Of floating-point numbers. `FAST`: the CPU has AVX2 and F16C.
struct Floats<'a, E, const FAST: bool, const K: usize> {
    factors: [Registers<'a>; 2],
    sum: Sum,
    /// The tiles of the rows and of the columns below.
    tiles: [usize; 2],
    rows: (Rows<f32, K>, Rows<i32, K>, bool),
    columns: (Across<f32, K>, Across<i32, K>),
    /// Columns of the tile in which something is not finite, and in which something is NaN. Zeros are in their place.
    apart: [Eight<bool>; 2],
    coarse: bool,
    exact: E,
}

impl<E: FnMut(usize, usize, u32) -> u32, const FAST: bool, const K: usize> Product for Floats<'_, E, FAST, K> {
    #[inline(always)]
    fn columns(&mut self, tile: usize) {
        let b = self.factors[1];
        // SAFETY: by the contract of `floats`.
        let mut values = unsafe { b.columns::<FAST, false, K>(tile) };
        let (mut exponents, finite) = exponents(b.kind, &values);
        self.apart = [[false; 8]; 2];
        if !finite {
            let of = |is: fn(f32) -> bool| from_fn(|i| values.iter().any(|row| is(row[i])));
            self.apart = [of(|x| !x.is_finite()), of(f32::is_nan)];
            for (values, exponents) in values.iter_mut().zip(&mut exponents) {
                for i in (0..8).filter(|&i| self.apart[0][i]) {
                    (values[i], exponents[i]) = (0.0, exponent(0.0, 0, 0));
                }
            }
        }
        self.columns = (values, exponents);
        self.tiles[1] = tile;
    }

    #[inline(always)]
    fn rows(&mut self, tile: usize) {
        let a = self.factors[0];
        // SAFETY: by the contract of `floats`.
        let values = unsafe { a.rows::<FAST, false, K>(tile) };
        let (exponents, finite) = exponents(a.kind, &values);
        self.rows = (values, exponents, finite);
        self.tiles[0] = tile;
    }

    #[inline(always)]
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32> {
        let (values, exponents) = (&self.rows.0[row], &self.rows.1[row]);
        let finite = self.rows.2 || values.iter().all(|x| x.is_finite());
        if !finite && values.iter().any(|x| x.is_nan()) {
            return [NAN; 8];
        }
        let nan: Eight<bool> = from_fn(|i| self.apart[1][i] || f32::from_bits(c[i]).is_nan());
        let mut sums = None;
        if finite {
            let c = from_fn(|i| if nan[i] { 0 } else { c[i] });
            let b = (&self.columns.0[..], &self.columns.1[..]);
            // SAFETY: by the meaning of `FAST`.
            sums = unsafe { aligned::<FAST>((values, exponents), b, c, self.sum, self.coarse) };
        }
        let [rows, columns] = self.tiles;
        from_fn(|i| match sums {
            _ if nan[i] => NAN,
            Some(sums) if !self.apart[0][i] => sums[i],
            _ => (self.exact)(8 * rows + row, 8 * columns + i, c[i]),
        })
    }
}

/// Products of floating-point numbers with sums in f32; `exact` is asked for an element of D that is not quick: its row, its
/// column, that of C.
///
/// # Safety
/// As for [`write`]; with `FAST`, the CPU has AVX2 and F16C.
#[inline(always)]
pub unsafe fn floats<const FAST: bool>(
    cx: &Cx,
    op: &Op,
    shape: Shape,
    sum: Sum,
    exact: impl FnMut(usize, usize, u32) -> u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match shape.k {
            4 => floats_of::<FAST, 4>(cx, op, shape, sum, exact),
            8 => floats_of::<FAST, 8>(cx, op, shape, sum, exact),
            16 => floats_of::<FAST, 16>(cx, op, shape, sum, exact),
            _ => floats_of::<FAST, 32>(cx, op, shape, sum, exact),
        }
    }
}

/// # Safety
/// As for [`floats`]; `K` is the shape's.
#[inline(always)]
unsafe fn floats_of<const FAST: bool, const K: usize>(
    cx: &Cx,
    op: &Op,
    shape: Shape,
    sum: Sum,
    exact: impl FnMut(usize, usize, u32) -> u32,
) {
    let mut product = Floats::<_, FAST, K> {
        factors: factors(cx, op, shape),
        sum,
        tiles: [0; 2],
        rows: ([[0.0; K]; 8], [[0; K]; 8], true),
        columns: ([[0.0; 8]; K], [[0; 8]; K]),
        apart: [[false; 8]; 2],
        coarse: least(shape.a) > -126,
        exact,
    };
    // SAFETY: the caller's promise.
    unsafe { write(cx, op, shape, &mut product) };
}

/// Of integers of four and eight bits. `FAST`: the CPU has AVX2 and F16C.
struct Integers<'a, const FAST: bool, const K: usize> {
    factors: [Registers<'a>; 2],
    rows: Rows<f32, K>,
    columns: Across<f32, K>,
    sat: bool,
}

impl<const FAST: bool, const K: usize> Product for Integers<'_, FAST, K> {
    #[inline(always)]
    fn columns(&mut self, tile: usize) {
        // SAFETY: by the contract of `integers`.
        self.columns = unsafe { self.factors[1].columns::<FAST, true, K>(tile) };
    }

    #[inline(always)]
    fn rows(&mut self, tile: usize) {
        // SAFETY: by the contract of `integers`.
        self.rows = unsafe { self.factors[0].rows::<FAST, true, K>(tile) };
    }

    #[inline(always)]
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32> {
        // SAFETY: by the meaning of `FAST`.
        let sums = unsafe { along::dot::<FAST>(&self.rows[row], &self.columns) };
        from_fn(|i| add(c[i], sums[i] as i32, self.sat))
    }
}

/// Products of integers of four and eight bits: sums of products are below 2^24, and exact in f32.
///
/// # Safety
/// As for [`write`]; with `FAST`, the CPU has AVX2 and F16C.
#[inline(always)]
pub unsafe fn integers<const FAST: bool>(cx: &Cx, op: &Op, shape: Shape) {
    // SAFETY: the caller's promise.
    unsafe {
        match shape.k {
            16 => integers_of::<FAST, 16>(cx, op, shape),
            32 => integers_of::<FAST, 32>(cx, op, shape),
            _ => integers_of::<FAST, 64>(cx, op, shape),
        }
    }
}

/// # Safety
/// As for [`integers`]; `K` is the shape's.
#[inline(always)]
unsafe fn integers_of<const FAST: bool, const K: usize>(cx: &Cx, op: &Op, shape: Shape) {
    let factors = factors(cx, op, shape);
    let mut product = Integers::<FAST, K> { factors, rows: [[0.0; K]; 8], columns: [[0.0; 8]; K], sat: shape.sat };
    // SAFETY: the caller's promise.
    unsafe { write(cx, op, shape, &mut product) };
}

/// Rows of single bits: of at most four tiles, each of at most 256 elements.
type BitRows = [[u64; 4]; 32];

/// Of single bits.
struct Bits {
    a: BitRows,
    b: BitRows,
    shape: Shape,
    /// Of the rows and of the columns.
    tiles: [usize; 2],
}

impl Bits {
    /// # Safety
    /// As for [`write`]; the list has a factor of `rows` rows of `k` elements from `first` on.
    #[inline(always)]
    unsafe fn words(cx: &Cx, op: &Op, first: usize, rows: usize, k: usize) -> BitRows {
        let mut words = [[0; 4]; 32];
        for (row, words) in words.iter_mut().take(rows).enumerate() {
            for (step, words) in words.chunks_exact_mut(2).take(k / 128).enumerate() {
                // SAFETY: by the contract; a register has 128 bits of each of eight rows.
                let two = unsafe {
                    let register = cx.src(cx.list(op, first + row / 8 + rows / 8 * step));
                    register.cast::<[u64; 2]>().add(row % 8).read_unaligned()
                };
                words.copy_from_slice(&two);
            }
        }
        words
    }
}

impl Product for Bits {
    #[inline(always)]
    fn columns(&mut self, tile: usize) {
        self.tiles[1] = tile;
    }

    #[inline(always)]
    fn rows(&mut self, tile: usize) {
        self.tiles[0] = tile;
    }

    #[inline(always)]
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32> {
        let [rows, columns] = self.tiles;
        let mut sums = [0; 8];
        for (i, sum) in sums.iter_mut().enumerate() {
            let mut ones = 0;
            // Words that a row of 128 bits does not have are 0 in both.
            for (a, b) in self.a[8 * rows + row].into_iter().zip(self.b[8 * columns + i]) {
                ones += (if self.shape.and { a & b } else { a ^ b }).count_ones();
            }
            *sum = add(c[i], ones as i32, self.shape.sat);
        }
        sums
    }
}

/// Products of single bits: those that both rows have, or that one of them has, are counted.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
pub unsafe fn bits(cx: &Cx, op: &Op, shape: Shape) {
    let [na, _, _, nd] = shape.registers();
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (Bits::words(cx, op, nd, shape.m, shape.k), Bits::words(cx, op, nd + na, shape.n, shape.k));
        write(cx, op, shape, &mut Bits { a, b, shape, tiles: [0; 2] });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensor::{self, Kind, Part};
    use super::numbers::widen;
    use super::*;

    /// An element as `Numbers` has it.
    fn number(kind: Kind, code: u32) -> (f32, i32) {
        // SAFETY: without vectors of a CPU.
        let rows = unsafe { widen::<false, false, 32>(kind, |_| [code; LANES]) };
        let (exponents, _) = exponents(kind, &rows);
        (rows[0][0], exponents[0][0])
    }

    /// Any bits; ordinary numbers; many zeros; numbers near the smallest.
    fn code(kind: Kind, round: u64, mut next: impl FnMut() -> u64) -> u32 {
        let bits = kind.bits();
        let cut = |x: u64| (x as u32) & ((1u64 << bits) - 1) as u32;
        let sign = 1u64 << (bits - 1);
        match (kind, round % 4) {
            (_, 0) => cut(next()),
            (_, 2) => [0, cut(sign), cut(next() & !(sign >> 1))][next() as usize % 3],
            (Kind::F16, 1) => cut(next() & 0x83ff | (next() % 20 + 5) << 10),
            (Kind::BF16, 1) => cut(next() & 0x807f | (next() % 40 + 100) << 7),
            (Kind::TF32, 1) => cut(next() & 0x807f_ffff | (next() % 40 + 100) << 23),
            (Kind::F16, _) => cut(next() & 0x87ff),
            (Kind::BF16 | Kind::TF32, _) => cut(next() & (sign | ((sign >> 6) - 1))),
            _ => cut(next() & !(sign >> 2)),
        }
    }

    #[test]
    fn eight_columns_are_summed_as_each_is_by_the_definition() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 32
        };
        for kind in [Kind::F16, Kind::BF16, Kind::TF32, Kind::E4M3, Kind::E5M2] {
            let (mut quick, mut slow) = (0, 0);
            for round in 0..8_000 {
                let a: Vec<u32> = (0..16).map(|_| code(kind, round, &mut next)).collect();
                let b: Vec<[u32; 8]> = (0..16).map(|_| from_fn(|_| code(kind, round, &mut next))).collect();
                let c: [u32; 8] = from_fn(|_| match next() % 4 {
                    0 => 0,
                    1 => 0x8000_0000,
                    2 => next() as u32,
                    _ => (next() % 5) as u32 | (next() as u32 & 0x8fff_ffff) | 0x3000_0000,
                });
                let (av, ae): (Vec<f32>, Vec<i32>) = a.iter().map(|&code| number(kind, code)).unzip();
                let numbers = b.iter().map(|row| row.map(|code| number(kind, code)));
                let (bv, be): (Vec<[f32; 8]>, Vec<[i32; 8]>) =
                    numbers.map(|row| (row.map(|n| n.0), row.map(|n| n.1))).unzip();
                let finite = av.iter().chain(bv.iter().flatten()).all(|v| v.is_finite());
                for sm in [70, 80, 89, 90] {
                    let sum = Sum::of(sm, kind);
                    let coarse = least(kind) > -126;
                    // SAFETY: without vectors of a CPU; and with them, where it has them.
                    let plain = |_| unsafe { aligned::<false>((&av, &ae), (&bv, &be), c, sum, coarse) };
                    let got = Some(()).filter(|()| finite).and_then(plain);
                    #[cfg(target_arch = "x86_64")]
                    if finite && is_x86_feature_detected!("avx2") {
                        // SAFETY: as above.
                        assert_eq!(unsafe { aligned::<true>((&av, &ae), (&bv, &be), c, sum, coarse) }, got);
                    }
                    let Some(got) = got else {
                        slow += 1;
                        continue;
                    };
                    quick += 1;
                    for (i, got) in got.into_iter().enumerate() {
                        let p: Vec<Part> = a.iter().map(|&code| tensor::part(kind, code)).collect();
                        let q: Vec<Part> = b.iter().map(|row| tensor::part(kind, row[i])).collect();
                        let groups = p.chunks(sum.group).zip(q.chunks(sum.group));
                        let want = groups.fold(c[i], |c, (a, b)| tensor::dot([kind; 2], a, b, c, Kind::F32, sum));
                        assert_eq!(got, want, "{kind:?} sm_{sm} column {i}: {a:x?} {b:x?} {c:x?}");
                    }
                }
            }
            assert!(
                quick > 6_000 && slow > 100,
                "{kind:?}: {quick} sums were quick, {slow} were left to the other way"
            );
        }
    }
}
