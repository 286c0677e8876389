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
use numbers::{Eight, LONGEST, Numbers, exponent, least};

/// Rows of an accumulator's registers, as many as a product has at most.
type Results = [[u32; LANES]; 8];

/// `c + Σ a·b` as [`tensor::dot`](super::tensor::dot) has it, of eight columns; none where it has to be asked. All factors are
/// finite; `coarse`: no product but zero is below 2^-90.
///
/// Products are multiplied in f32, where they are exact, or so small that they are cut off: no type has more than eleven bits.
///
/// # Safety
/// With `FAST`, the CPU has AVX2.
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

/// Eight columns of a row of an accumulator: where they stand in its registers.
struct Columns {
    register: usize,
    lane: usize,
}

impl Columns {
    fn new(m: usize, row: usize, tile: usize) -> Columns {
        Columns { register: 2 * (row / 8 + m / 8 * tile), lane: row % 8 * 4 }
    }

    /// Pairs of columns are in two registers of four lanes.
    #[inline(always)]
    fn get(&self, registers: &Results) -> Eight<u32> {
        from_fn(|i| registers[self.register + i % 2][self.lane + i / 2])
    }

    #[inline(always)]
    fn set(&self, registers: &mut Results, values: Eight<u32>) {
        for (i, value) in values.into_iter().enumerate() {
            registers[self.register + i % 2][self.lane + i / 2] = value;
        }
    }
}

/// What is between factors and accumulators.
///
/// A trait, and no closures: what a compiler does not inline is compiled without the features of the handler.
trait Product {
    /// Goes to eight columns.
    fn columns(&mut self, tile: usize);
    /// These columns of a row, to which `c` is added.
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32>;
}

/// Reads accumulators, has rows of eight columns computed, and writes the results.
///
/// # Safety
/// The contract of handlers: the list has the registers of D, A, B and C; accumulators are of 32 bits.
#[inline(always)]
unsafe fn write<P: Product>(cx: &Cx, op: &Op, shape: Shape, product: &mut P) {
    let [na, nb, nc, nd] = shape.registers();
    let (mut before, mut after): (Results, Results) = ([[0; LANES]; 8], [[0; LANES]; 8]);
    for (r, row) in before.iter_mut().take(nc).enumerate() {
        // SAFETY: by the contract.
        *row = unsafe { row_of::<u32>(cx.src(cx.list(op, nd + na + nb + r))) };
    }
    for tile in 0..shape.n / 8 {
        product.columns(tile);
        for row in 0..shape.m {
            let place = Columns::new(shape.m, row, tile);
            place.set(&mut after, product.row(row, place.get(&before)));
        }
    }
    for (r, row) in after.iter().take(nd).enumerate() {
        // SAFETY: by the contract.
        unsafe { cx.dst(cx.list(op, r)).cast::<[u32; LANES]>().write_unaligned(*row) };
    }
}

/// The factors of a product, read from their registers.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn factors(cx: &Cx, op: &Op, shape: Shape) -> (Numbers, Numbers) {
    let [na, _, _, nd] = shape.registers();
    // SAFETY: by the contract.
    unsafe {
        let a = Numbers::read(cx, op, nd, (shape.m, shape.k, shape.a));
        (a, Numbers::read(cx, op, nd + na, (shape.n, shape.k, shape.b)))
    }
}

/// The result where a factor or the accumulator is NaN.
const NAN: u32 = 0x7fff_ffff;

/// Of floating-point numbers. `FAST`: the CPU has AVX2.
struct Floats<E, const FAST: bool> {
    a: Numbers,
    b: Numbers,
    k: usize,
    sum: Sum,
    tile: usize,
    values: [Eight<f32>; LONGEST],
    exponents: [Eight<i32>; LONGEST],
    /// Columns of the tile in which something is not finite, and in which something is NaN. Zeros are in their place.
    apart: [Eight<bool>; 2],
    coarse: bool,
    exact: E,
}

impl<E: FnMut(usize, usize, u32) -> u32, const FAST: bool> Product for Floats<E, FAST> {
    #[inline(always)]
    fn columns(&mut self, tile: usize) {
        self.tile = tile;
        self.values = self.b.columns(&self.b.values, tile, self.k);
        self.exponents = self.b.columns(&self.b.exponents, tile, self.k);
        if !self.b.finite {
            let of = |is: fn(f32) -> bool| from_fn(|i| self.values[..self.k].iter().any(|row| is(row[i])));
            self.apart = [of(|x| !x.is_finite()), of(f32::is_nan)];
            for (values, exponents) in self.values[..self.k].iter_mut().zip(&mut self.exponents) {
                for i in (0..8).filter(|&i| self.apart[0][i]) {
                    (values[i], exponents[i]) = (0.0, exponent(0.0, 0, 0));
                }
            }
        }
    }

    #[inline(always)]
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32> {
        let k = self.k;
        let (values, exponents) = (self.a.row(&self.a.values, row, k), self.a.row(&self.a.exponents, row, k));
        let finite = self.a.finite || values[..k].iter().all(|x| x.is_finite());
        if !finite && values[..k].iter().any(|x| x.is_nan()) {
            return [NAN; 8];
        }
        let nan: Eight<bool> = from_fn(|i| self.apart[1][i] || f32::from_bits(c[i]).is_nan());
        let mut sums = None;
        if finite {
            let (a, b) = ((&values[..k], &exponents[..k]), (&self.values[..k], &self.exponents[..k]));
            let c = from_fn(|i| if nan[i] { 0 } else { c[i] });
            // SAFETY: by the meaning of `FAST`.
            sums = unsafe { aligned::<FAST>(a, b, c, self.sum, self.coarse) };
        }
        from_fn(|i| match sums {
            _ if nan[i] => NAN,
            Some(sums) if !self.apart[0][i] => sums[i],
            _ => (self.exact)(row, 8 * self.tile + i, c[i]),
        })
    }
}

/// Products of floating-point numbers with sums in f32; `exact` is asked for an element of D that is not quick: its row, its
/// column, that of C.
///
/// # Safety
/// As for [`write`]; with `FAST`, the CPU has AVX2.
#[inline(always)]
pub unsafe fn floats<const FAST: bool>(
    cx: &Cx,
    op: &Op,
    shape: Shape,
    sum: Sum,
    exact: impl FnMut(usize, usize, u32) -> u32,
) {
    let (values, exponents) = ([[0.0; 8]; LONGEST], [[0; 8]; LONGEST]);
    let (k, coarse) = (shape.k.min(LONGEST), least(shape.a) > -126);
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = factors(cx, op, shape);
        let apart = [[false; 8]; 2];
        let mut product = Floats::<_, FAST> { a, b, k, sum, tile: 0, values, exponents, apart, coarse, exact };
        write(cx, op, shape, &mut product);
    }
}

/// Of integers of four and eight bits. `FAST`: the CPU has AVX2.
struct Integers<const FAST: bool> {
    a: Numbers,
    b: Numbers,
    k: usize,
    columns: [Eight<f32>; LONGEST],
    sat: bool,
}

impl<const FAST: bool> Product for Integers<FAST> {
    #[inline(always)]
    fn columns(&mut self, tile: usize) {
        self.columns = self.b.columns(&self.b.values, tile, self.k);
    }

    #[inline(always)]
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32> {
        let a = self.a.row(&self.a.values, row, self.k);
        // SAFETY: by the meaning of `FAST`.
        let sums = unsafe { along::dot::<FAST>(&a[..self.k], &self.columns[..self.k]) };
        from_fn(|i| add(c[i], sums[i] as i32, self.sat))
    }
}

/// Products of integers of four and eight bits: sums of products are below 2^24, and exact in f32.
///
/// # Safety
/// As for [`write`]; with `FAST`, the CPU has AVX2.
#[inline(always)]
pub unsafe fn integers<const FAST: bool>(cx: &Cx, op: &Op, shape: Shape) {
    let (k, columns) = (shape.k.min(LONGEST), [[0.0; 8]; LONGEST]);
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = factors(cx, op, shape);
        write(cx, op, shape, &mut Integers::<FAST> { a, b, k, columns, sat: shape.sat });
    }
}

/// Rows of single bits: of at most four tiles, each of at most 256 elements.
type BitRows = [[u64; 4]; 32];

/// Of single bits.
struct Bits {
    a: BitRows,
    b: BitRows,
    shape: Shape,
    tile: usize,
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
        self.tile = tile;
    }

    #[inline(always)]
    fn row(&mut self, row: usize, c: Eight<u32>) -> Eight<u32> {
        let mut sums = [0; 8];
        for (i, sum) in sums.iter_mut().enumerate() {
            let mut ones = 0;
            // Words that a row of 128 bits does not have are 0 in both.
            for (a, b) in self.a[row].into_iter().zip(self.b[8 * self.tile + i]) {
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
        write(cx, op, shape, &mut Bits { a, b, shape, tile: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensor::{self, Kind, Part};
    use super::numbers::widen;
    use super::*;

    /// An element as `Numbers` has it.
    fn number(kind: Kind, code: u32) -> (f32, i32) {
        let mut values = [0.0; LANES * 8];
        widen(kind, &[code; LANES], &mut values[..LANES * kind.per_register()]);
        let field = (values[0].to_bits() >> 23 & 0xff) as i32;
        (values[0], exponent(values[0], field, least(kind)))
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
