//! Matrix instructions: `mma.sync` and `ldmatrix`.
//!
//! Floating-point products are summed as tensor cores were found to sum them (the published model of
//! MMA-Sim): all products and the addend are aligned to the largest exponent, cut off below a number
//! of fraction bits that depends on the architecture, added exactly, and the sum is cut off to f32.
//! Architectures below Hopper add 16-bit products in groups of eight.

use super::bounds::{Place, refuse};
use super::half::f16_to_f32;
use super::lanes::{lane_of, set_lane};
use super::soft::{self, Format, Round};
use super::space::{SHARED_WINDOW, Shared, Space};
use super::{Cx, Flow, LANES, Op};
use crate::fault::FaultKind;

/// Element types of the factors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Factor {
    F16,
    BF16,
    TF32,
    S8,
    U8,
}

/// A shape `m16n8k…` packed into `Op::imm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub a: Factor,
    pub b: Factor,
    pub k: u32,
    /// `.satfinite` of integers.
    pub sat: bool,
    /// Architecture whose sums to follow.
    pub sm: u32,
}

impl Shape {
    pub(crate) fn pack(self) -> u64 {
        self.a as u64
            | (self.b as u64) << 8
            | u64::from(self.k) << 16
            | u64::from(self.sat) << 24
            | u64::from(self.sm) << 32
    }

    fn unpack(imm: u64) -> Shape {
        let factor = |c: u64| match c & 0xff {
            0 => Factor::F16,
            1 => Factor::BF16,
            2 => Factor::TF32,
            3 => Factor::S8,
            _ => Factor::U8,
        };
        Shape {
            a: factor(imm),
            b: factor(imm >> 8),
            k: (imm >> 16 & 0xff) as u32,
            sat: imm >> 24 & 1 != 0,
            sm: (imm >> 32) as u32,
        }
    }

    /// Elements in a 32-bit register.
    fn per_register(self) -> u32 {
        match self.a {
            Factor::F16 | Factor::BF16 => 2,
            Factor::TF32 => 1,
            Factor::S8 | Factor::U8 => 4,
        }
    }

    /// Registers of A, of B.
    pub(crate) fn registers(self) -> (usize, usize) {
        let b = self.k / (4 * self.per_register());
        (2 * b as usize, b as usize)
    }
}

fn float(factor: Factor, bits: u32) -> f64 {
    match factor {
        Factor::F16 => f16_to_f32(bits as u16).into(),
        Factor::BF16 => f32::from_bits(bits << 16).into(),
        _ => f32::from_bits(bits & !0x1fff).into(),
    }
}

fn integer(factor: Factor, bits: u32) -> i64 {
    if factor == Factor::S8 { i64::from(bits as u8 as i8) } else { i64::from(bits as u8) }
}

/// Exponent of the highest bit, of normal numbers; that of the smallest normal for what lies below.
fn exponent(x: f64, smallest: i32) -> i32 {
    ((x.abs().to_bits() >> 52) as i32 - 1023).max(smallest)
}

/// c + Σ a·b, aligned and cut off.
fn dot(c: f32, products: &[(f64, f64)], smallest: i32, fraction: i32) -> f32 {
    let special: f64 = products.iter().map(|(a, b)| a * b).sum::<f64>() + f64::from(c);
    if !special.is_finite() && (!c.is_finite() || products.iter().any(|(a, b)| !a.is_finite() || !b.is_finite())) {
        return f32::from_bits(soft::convert(special, Format::F32, Round::Zero) as u32);
    }
    let terms = products.iter().map(|&(a, b)| {
        let e = exponent(a, smallest) + exponent(b, smallest);
        (a * b, e)
    });
    let own = (f64::from(c), exponent(c.into(), -126));
    let terms: Vec<(f64, i32)> = terms.chain([own]).filter(|t| t.0 != 0.0).collect();
    let Some(top) = terms.iter().map(|t| t.1).max() else {
        // Only zeros: their sum is -0 if all are.
        let negative = c.is_sign_negative() && products.iter().all(|(a, b)| (a * b).is_sign_negative());
        return if negative { -0.0 } else { 0.0 };
    };
    // In units of 2^(top - fraction); products are exact in f64, and scaling is.
    let scale = |x: f64| {
        let shift = fraction - top;
        let half = shift / 2;
        (x * 2f64.powi(half) * 2f64.powi(shift - half)).trunc() as i64
    };
    let sum: i128 = terms.iter().map(|&(x, _)| i128::from(scale(x))).sum();
    if sum == 0 {
        return 0.0;
    }
    f32::from_bits(soft::scaled(sum, top - fraction, Format::F32, Round::Zero) as u32)
}

fn all_here(cx: &mut Cx, op: &Op) -> Option<Flow> {
    if cx.active != cx.live {
        return Some(Flow::Rendezvous);
    }
    if cx.active != !0 {
        let detail = "a matrix instruction needs all 32 lanes of the warp".to_string();
        return Some(cx.raise(op, FaultKind::MaskMisuse, cx.active.trailing_zeros() & 31, None, detail));
    }
    None
}

/// `mma.sync`: the list holds the rows of D, A, B and C.
pub(crate) unsafe fn mma(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    let shape = Shape::unpack(op.imm);
    let (na, nb) = shape.registers();
    let per = shape.per_register();
    let bits = 32 / per;
    let k = shape.k as usize;
    let mut a = [[0u32; 32]; 16];
    let mut b = [[0u32; 32]; 8];
    let mask = if bits == 32 { !0 } else { (1u32 << bits) - 1 };
    // SAFETY: the contract of handlers: the list has 4 + na + nb + 4 rows of 32 bits.
    unsafe {
        for lane in 0..LANES {
            let (group, quad) = (lane / 4, lane % 4);
            for r in 0..na {
                let word = lane_of::<u32>(cx.src(cx.list(op, 4 + r)), lane);
                let row = group + 8 * (r % 2);
                for e in 0..per as usize {
                    let column = quad * per as usize + e + 4 * per as usize * (r / 2);
                    a[row][column & 31] = word >> ((bits * e as u32) & 31) & mask;
                }
            }
            for r in 0..nb {
                let word = lane_of::<u32>(cx.src(cx.list(op, 4 + na + r)), lane);
                for e in 0..per as usize {
                    let row = quad * per as usize + e + 4 * per as usize * r;
                    b[group][row & 31] = word >> ((bits * e as u32) & 31) & mask;
                }
            }
        }
        let mut d = [[0u32; LANES]; 4];
        for (r, results) in d.iter_mut().enumerate() {
            for (lane, result) in results.iter_mut().enumerate() {
                let (row, column) = (lane / 4 + 8 * (r / 2), lane % 4 * 2 + r % 2);
                let c = lane_of::<u32>(cx.src(cx.list(op, 4 + na + nb + r)), lane);
                *result = element(shape, &a[row][..k], &b[column][..k], c);
            }
        }
        for (r, results) in d.iter().enumerate() {
            let to = cx.dst(cx.list(op, r));
            for (lane, &value) in results.iter().enumerate() {
                set_lane::<u32>(to, lane, value);
            }
        }
    }
    cx.counters.matrix_instructions += 1;
    Flow::Next
}

fn element(shape: Shape, a: &[u32], b: &[u32], c: u32) -> u32 {
    if matches!(shape.a, Factor::S8 | Factor::U8) {
        let products = a.iter().zip(b).map(|(&x, &y)| integer(shape.a, x) * integer(shape.b, y));
        let sum = i64::from(c as i32) + products.sum::<i64>();
        return if shape.sat { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32 } else { sum as u32 };
    }
    let pairs: Vec<(f64, f64)> = a.iter().zip(b).map(|(&x, &y)| (float(shape.a, x), float(shape.b, y))).collect();
    let smallest = if shape.a == Factor::F16 { -14 } else { -126 };
    let (fraction, group) = match (shape.sm, shape.a) {
        (90.., _) => (25, 16),
        (75..=89, Factor::TF32) => (24, 4),
        (75..=89, _) => (24, 8),
        _ => (23, 4),
    };
    pairs.chunks(group).fold(f32::from_bits(c), |sum, part| dot(sum, part, smallest, fraction)).to_bits()
}

/// `ldmatrix`: `imm` is the number of matrices, bit 8 transposes; the list holds the site, whether addresses are
/// 64-bit, the offset, and the destination rows.
pub(crate) unsafe fn ldmatrix(cx: &mut Cx, op: &Op) -> Flow {
    if let Some(flow) = all_here(cx, op) {
        return flow;
    }
    let (count, transposed) = ((op.imm & 0xff) as usize, op.imm >> 8 & 1 != 0);
    // SAFETY: the contract of handlers; each row of a matrix is checked before it is read.
    unsafe {
        let (wide, offset) = (cx.list(op, 1) != 0, cx.list(op, 2) as i32 as i64 as u64);
        for m in 0..count.min(4) {
            let mut matrix = [[0u16; 8]; 8];
            for (row, elements) in matrix.iter_mut().enumerate() {
                let lane = m * 8 + row;
                let base =
                    if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
                let base = if base & !0xffff_ffff == SHARED_WINDOW { base & 0xffff_ffff } else { base };
                let address = base.wrapping_add(offset);
                let from = if address & 15 == 0 { Shared::<u64>::resolve(cx, 0, address, 16) } else { None };
                let Some((from, _)) = from else { return refuse(cx, op, Place::Shared, lane, address, 16, "load") };
                *elements = from.cast::<[u16; 8]>().read_unaligned();
            }
            let to = cx.dst(cx.list(op, 3 + m));
            for lane in 0..LANES {
                let (row, column) = (lane / 4, lane % 4 * 2);
                let (low, high) = if transposed {
                    (matrix[column][row], matrix[column + 1][row])
                } else {
                    (matrix[row][column], matrix[row][column + 1])
                };
                set_lane::<u32>(to, lane, u32::from(low) | u32::from(high) << 16);
            }
        }
    }
    cx.counters.shared_requests += 1;
    cx.counters.shared_load_bytes += 128 * count as u64;
    Flow::Next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_where_nothing_is_cut_off() {
        let products: Vec<(f64, f64)> = (1..=16).map(|i| (f64::from(i), f64::from(17 - i))).collect();
        let want: f64 = products.iter().map(|(a, b)| a * b).sum::<f64>() + 0.5;
        assert_eq!(f64::from(dot(0.5, &products, -14, 25)), want);
        assert_eq!(dot(0.0, &[(0.0, 1.0)], -14, 25).to_bits(), 0);
        assert!(dot(0.0, &[(f64::INFINITY, 0.0)], -14, 25).is_nan());
        assert_eq!(dot(1.0, &[(f64::INFINITY, 2.0)], -14, 25), f32::INFINITY);
    }

    #[test]
    fn small_terms_are_cut_off_not_rounded() {
        // With 25 fraction bits below 2^0, 2^-26 vanishes and 2^-25 stays; f32 then cuts off again.
        assert_eq!(dot(1.0, &[(2f64.powi(-13), 2f64.powi(-13))], -14, 25), 1.0);
        let two = [(2f64.powi(-12), 2f64.powi(-12)), (2f64.powi(-12), 2f64.powi(-12))];
        assert_eq!(dot(1.0, &two, -14, 25), 1.0 + 2f32.powi(-23));
        assert_eq!(dot(-1.0, &[(2f64.powi(-12), -(2f64.powi(-12)))], -14, 25), -1.0);
    }
}
