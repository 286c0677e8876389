//! Integer and bit operations.

use super::OpFn;
use super::lanes::{Lane, carry, cmp, each2, each3, map1, map2, map3, map4, select};
use crate::ptx::ast::Type;

/// Two-operand operations whose operands and result have one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bin {
    Add,
    Sub,
    MulLo,
    MulHi,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    AddSat,
    SubSat,
    Mul24Lo,
    Mul24Hi,
}

/// The same operation on each half of a register pair of 16-bit numbers.
#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

macro_rules! bin_of {
    ($op:expr, $t:ty, $wide:ty) => {
        match $op {
            Bin::Add => map2(|a: $t, b: $t| a.wrapping_add(b)),
            Bin::Sub => map2(|a: $t, b: $t| a.wrapping_sub(b)),
            Bin::MulLo => map2(|a: $t, b: $t| a.wrapping_mul(b)),
            Bin::MulHi => map2(|a: $t, b: $t| ((a as $wide * b as $wide) >> <$t>::BITS) as $t),
            // What sm_90 gives for division by zero: all ones.
            Bin::Div => each2(|a: $t, b: $t| if b == 0 { !0 } else { a.wrapping_div(b) }),
            Bin::Rem => each2(|a: $t, b: $t| if b == 0 { !0 } else { a.wrapping_rem(b) }),
            Bin::Min => map2(|a: $t, b: $t| if a < b { a } else { b }),
            Bin::Max => map2(|a: $t, b: $t| if a > b { a } else { b }),
            Bin::And => map2(|a: $t, b: $t| a & b),
            Bin::Or => map2(|a: $t, b: $t| a | b),
            Bin::Xor => map2(|a: $t, b: $t| a ^ b),
            Bin::AddSat => map2(|a: $t, b: $t| a.saturating_add(b)),
            Bin::SubSat => map2(|a: $t, b: $t| a.saturating_sub(b)),
            Bin::Mul24Lo | Bin::Mul24Hi => return None,
        }
    };
}

/// Low 24 bits, sign-extended.
#[inline(always)]
fn s24(x: i32) -> i64 {
    i64::from(x << 8 >> 8)
}

/// Low 24 bits.
#[inline(always)]
fn u24(x: u32) -> u64 {
    u64::from(x & 0xff_ffff)
}

/// The handler of a two-operand operation.
pub(crate) fn bin(op: Bin, ty: Type) -> Option<OpFn> {
    Some(match (op, ty) {
        (Bin::Mul24Lo, Type::S32) => map2(|a: i32, b: i32| (s24(a) * s24(b)) as i32),
        (Bin::Mul24Lo, Type::U32) => map2(|a: u32, b: u32| (u24(a) * u24(b)) as u32),
        (Bin::Mul24Hi, Type::S32) => map2(|a: i32, b: i32| ((s24(a) * s24(b)) >> 16) as i32),
        (Bin::Mul24Hi, Type::U32) => map2(|a: u32, b: u32| ((u24(a) * u24(b)) >> 16) as u32),
        (_, Type::S16) => bin_of!(op, i16, i32),
        (_, Type::U16 | Type::B16) => bin_of!(op, u16, u32),
        (_, Type::S32) => bin_of!(op, i32, i64),
        (_, Type::U32 | Type::B32) => bin_of!(op, u32, u64),
        (_, Type::S64) => bin_of!(op, i64, i128),
        (_, Type::U64 | Type::B64) => bin_of!(op, u64, u128),
        _ => return None,
    })
}

/// Operations on `.u16x2` and `.s16x2`.
pub(crate) fn bin_x2(op: Bin, signed: bool) -> Option<OpFn> {
    Some(match (op, signed) {
        (Bin::Add, _) => map2(|a: u32, b: u32| halves(a, b, u16::wrapping_add)),
        (Bin::Min, false) => map2(|a: u32, b: u32| halves(a, b, u16::min)),
        (Bin::Max, false) => map2(|a: u32, b: u32| halves(a, b, u16::max)),
        (Bin::Min, true) => map2(|a: u32, b: u32| halves(a, b, |x, y| (x as i16).min(y as i16) as u16)),
        (Bin::Max, true) => map2(|a: u32, b: u32| halves(a, b, |x, y| (x as i16).max(y as i16) as u16)),
        _ => return None,
    })
}

/// `max(a, 0)`, for `.relu`.
pub(crate) fn relu(ty: Type, x2: bool) -> OpFn {
    match (ty, x2) {
        (Type::S16, false) => map1(|a: i16| a.max(0)),
        (_, true) => map1(|a: u32| halves(a, 0, |x, _| (x as i16).max(0) as u16)),
        _ => map1(|a: i32| a.max(0)),
    }
}

/// One-operand operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Un {
    Neg,
    Abs,
    Not,
    Cnot,
    Popc,
    Clz,
    Brev,
    Bfind,
    BfindShift,
}

/// Position of the highest bit that differs from the sign, or all ones.
macro_rules! bfind {
    ($t:ty, $u:ty) => {
        |a: $t| {
            let x = if <$t>::MIN != 0 && (a as $u) >> (<$u>::BITS - 1) != 0 { !(a as $u) } else { a as $u };
            if x == 0 { !0u32 } else { <$u>::BITS - 1 - x.leading_zeros() }
        }
    };
}

macro_rules! un_of {
    ($op:expr, $t:ty, $u:ty) => {
        match $op {
            Un::Neg => map1(|a: $t| a.wrapping_neg()),
            Un::Abs => map1(|a: $t| if <$t>::MIN != 0 && a < 1 { a.wrapping_neg() } else { a }),
            Un::Not => map1(|a: $t| !a),
            Un::Cnot => map1(|a: $t| (a == 0) as $t),
            Un::Popc => map1(|a: $t| a.count_ones()),
            Un::Clz => map1(|a: $t| a.leading_zeros()),
            Un::Brev => map1(|a: $t| a.reverse_bits()),
            Un::Bfind => map1(bfind!($t, $u)),
            Un::BfindShift => map1(|a: $t| {
                let at = bfind!($t, $u)(a);
                if at == !0 { at } else { <$u>::BITS - 1 - at }
            }),
        }
    };
}

/// The handler of a one-operand operation; `popc`, `clz` and `bfind` give 32 bits.
pub(crate) fn un(op: Un, ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::S16 => un_of!(op, i16, u16),
        Type::U16 | Type::B16 => un_of!(op, u16, u16),
        Type::S32 => un_of!(op, i32, u32),
        Type::U32 | Type::B32 => un_of!(op, u32, u32),
        Type::S64 => un_of!(op, i64, u64),
        Type::U64 | Type::B64 => un_of!(op, u64, u64),
        _ => return None,
    })
}

/// Copies a register of 16 or 32 bits (`wide` false) or of 64 bits.
pub(crate) fn mov(wide: bool) -> OpFn {
    if wide { map1(|a: u64| a) } else { map1(|a: u32| a) }
}

/// `d = q ? a : b`.
pub(crate) fn sel(wide: bool) -> OpFn {
    if wide { select(|a: u64| a) } else { select(|a: u32| a) }
}

/// `mul.wide` and `mad.wide`; `ty` is the type of the factors.
pub(crate) fn wide(ty: Type, add: bool) -> Option<OpFn> {
    Some(match (ty, add) {
        (Type::S16, false) => map2(|a: i16, b: i16| i32::from(a) * i32::from(b)),
        (Type::U16, false) => map2(|a: u16, b: u16| u32::from(a) * u32::from(b)),
        (Type::S32, false) => map2(|a: i32, b: i32| i64::from(a) * i64::from(b)),
        (Type::U32, false) => map2(|a: u32, b: u32| u64::from(a) * u64::from(b)),
        (Type::S16, true) => map3(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
        (Type::U16, true) => map3(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        (Type::S32, true) => map3(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        (Type::U32, true) => map3(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        _ => return None,
    })
}

/// `mad.lo`, for the types where it is worth a handler of its own.
pub(crate) fn mad_lo(ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::S16 | Type::U16 => map3(|a: u16, b: u16, c: u16| a.wrapping_mul(b).wrapping_add(c)),
        Type::S32 | Type::U32 => map3(|a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
        Type::S64 | Type::U64 => map3(|a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c)),
        _ => return None,
    })
}

/// `sad`: c + |a − b|.
pub(crate) fn sad(ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::S16 => map3(|a: i16, b: i16, c: u16| c.wrapping_add(a.abs_diff(b))),
        Type::U16 => map3(|a: u16, b: u16, c: u16| c.wrapping_add(a.abs_diff(b))),
        Type::S32 => map3(|a: i32, b: i32, c: u32| c.wrapping_add(a.abs_diff(b))),
        Type::U32 => map3(|a: u32, b: u32, c: u32| c.wrapping_add(a.abs_diff(b))),
        Type::S64 => map3(|a: i64, b: i64, c: u64| c.wrapping_add(a.abs_diff(b))),
        Type::U64 => map3(|a: u64, b: u64, c: u64| c.wrapping_add(a.abs_diff(b))),
        _ => return None,
    })
}

/// Shifts clamp: amounts at or above the width shift everything out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shift {
    Left,
    Right,
}

/// The handler of `shl` and `shr`; the amount is 32 bits wide.
pub(crate) fn shift(op: Shift, ty: Type) -> Option<OpFn> {
    Some(match (op, ty) {
        (Shift::Left, Type::B16 | Type::U16 | Type::S16) => map2(|a: u16, n: u32| if n > 15 { 0 } else { a << n }),
        (Shift::Left, Type::B32 | Type::U32 | Type::S32) => map2(|a: u32, n: u32| if n > 31 { 0 } else { a << n }),
        (Shift::Left, Type::B64 | Type::U64 | Type::S64) => map2(|a: u64, n: u32| if n > 63 { 0 } else { a << n }),
        (Shift::Right, Type::B16 | Type::U16) => map2(|a: u16, n: u32| if n > 15 { 0 } else { a >> n }),
        (Shift::Right, Type::B32 | Type::U32) => map2(|a: u32, n: u32| if n > 31 { 0 } else { a >> n }),
        (Shift::Right, Type::B64 | Type::U64) => map2(|a: u64, n: u32| if n > 63 { 0 } else { a >> n }),
        (Shift::Right, Type::S16) => map2(|a: i16, n: u32| a >> n.min(15)),
        (Shift::Right, Type::S32) => map2(|a: i32, n: u32| a >> n.min(31)),
        (Shift::Right, Type::S64) => map2(|a: i64, n: u32| a >> n.min(63)),
        _ => return None,
    })
}

/// `shf`: the funnel shift of (b, a).
pub(crate) fn funnel(left: bool, clamp: bool) -> OpFn {
    match (left, clamp) {
        (true, false) => map3(|a: u32, b: u32, n: u32| (pair(a, b) << (n & 31) >> 32) as u32),
        (true, true) => map3(|a: u32, b: u32, n: u32| (pair(a, b) << n.min(32) >> 32) as u32),
        (false, false) => map3(|a: u32, b: u32, n: u32| (pair(a, b) >> (n & 31)) as u32),
        (false, true) => map3(|a: u32, b: u32, n: u32| (pair(a, b) >> n.min(32)) as u32),
    }
}

#[inline(always)]
pub(super) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

macro_rules! bfe {
    ($u:ty, $s:ty, $signed:expr) => {
        |a: $u, pos: u32, len: u32| {
            let (pos, len) = (pos & 0xff, len & 0xff);
            let width = <$u>::BITS;
            let sign = $signed && len != 0 && a >> (pos + len - 1).min(width - 1) & 1 != 0;
            let low = if pos >= width { 0 } else { a >> pos };
            let mask = if len >= width { !0 } else { ((1 as $u) << len).wrapping_sub(1) };
            // Bits past the top are copies of the sign.
            let filled = if pos >= width { 0 } else { (!(0 as $u)) >> pos };
            let fill = if sign { !(mask & filled) } else { 0 };
            low & mask | fill
        }
    };
}

/// `bfe`: a field, zero- or sign-extended.
pub(crate) fn bfe(ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::U32 => map3(bfe!(u32, i32, false)),
        Type::S32 => map3(bfe!(u32, i32, true)),
        Type::U64 => map3(bfe!(u64, i64, false)),
        Type::S64 => map3(bfe!(u64, i64, true)),
        _ => return None,
    })
}

macro_rules! bfi {
    ($u:ty) => {
        |a: $u, b: $u, pos: u32, len: u32| {
            let (pos, len) = (pos & 0xff, len & 0xff);
            let width = <$u>::BITS;
            if pos >= width || len == 0 {
                return b;
            }
            let mask = (if len >= width { !0 } else { ((1 as $u) << len).wrapping_sub(1) }) << pos;
            b & !mask | (a << pos) & mask
        }
    };
}

/// `bfi`: `b` with a field replaced by the low bits of `a`.
pub(crate) fn bfi(ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::B32 => map4(bfi!(u32)),
        Type::B64 => map4(bfi!(u64)),
        _ => return None,
    })
}

/// `bmsk`: `b` ones from bit `a` up.
pub(crate) fn bmsk(clamp: bool) -> OpFn {
    #[inline(always)]
    fn mask(pos: u32, len: u32) -> u32 {
        let field = if len > 31 { !0 } else { (1u32 << len) - 1 };
        if pos > 31 { 0 } else { field << pos }
    }
    if clamp { map2(|a: u32, b: u32| mask(a, b)) } else { map2(|a: u32, b: u32| mask(a & 31, b & 31)) }
}

/// `szext`: the low `b` bits of `a`, sign- or zero-extended.
pub(crate) fn szext(signed: bool, clamp: bool) -> OpFn {
    #[inline(always)]
    fn extend<const SIGNED: bool>(a: u32, n: u32) -> u32 {
        if n == 0 {
            0
        } else if n > 31 {
            a
        } else if SIGNED {
            ((a << (32 - n)) as i32 >> (32 - n)) as u32
        } else {
            a & ((1 << n) - 1)
        }
    }
    match (signed, clamp) {
        (true, true) => map2(|a: u32, b: u32| extend::<true>(a, b)),
        (false, true) => map2(|a: u32, b: u32| extend::<false>(a, b)),
        (true, false) => map2(|a: u32, b: u32| extend::<true>(a, b & 31)),
        (false, false) => map2(|a: u32, b: u32| extend::<false>(a, b & 31)),
    }
}

/// `fns`: the position of the n-th set bit of `mask` from `base`.
pub(crate) fn fns() -> OpFn {
    each3(|mask: u32, base: u32, offset: i32| {
        if base > 31 {
            return !0u32;
        }
        if offset == 0 {
            return if mask >> base & 1 != 0 { base } else { !0 };
        }
        let mut left = offset.unsigned_abs();
        let mut at = base as i32;
        while (0..32).contains(&at) {
            if mask >> at & 1 != 0 {
                left -= 1;
                if left == 0 {
                    return at as u32;
                }
            }
            at += offset.signum();
        }
        !0
    })
}

/// `dp2a`: c plus the products of two 16-bit numbers and the low or high two bytes of `b`. The half and the
/// signs are in the fourth operand: bit 0 high, bit 1 `a` signed, bit 2 `b` signed.
pub(crate) fn dp2a() -> OpFn {
    map4(|a: u32, b: u32, c: u32, mode: u32| {
        let b = if mode & 1 != 0 { b >> 16 } else { b };
        let x =
            |i: u32| if mode & 2 != 0 { i64::from((a >> (16 * i)) as i16) } else { i64::from(a >> (16 * i) & 0xffff) };
        let y = |i: u32| if mode & 4 != 0 { i64::from((b >> (8 * i)) as i8) } else { i64::from(b >> (8 * i) & 0xff) };
        c.wrapping_add((x(0) * y(0) + x(1) * y(1)) as u32)
    })
}

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

macro_rules! cmp_of {
    ($op:expr, $t:ty) => {
        match $op {
            Cmp::Eq => cmp(|a: $t, b: $t| a == b),
            Cmp::Ne => cmp(|a: $t, b: $t| a != b),
            Cmp::Lt => cmp(|a: $t, b: $t| a < b),
            Cmp::Le => cmp(|a: $t, b: $t| a <= b),
            Cmp::Gt => cmp(|a: $t, b: $t| a > b),
            Cmp::Ge => cmp(|a: $t, b: $t| a >= b),
        }
    };
}

/// The handler of an integer comparison.
pub(crate) fn compare(op: Cmp, ty: Type) -> Option<OpFn> {
    Some(match ty {
        Type::S16 => cmp_of!(op, i16),
        Type::U16 | Type::B16 => cmp_of!(op, u16),
        Type::S32 => cmp_of!(op, i32),
        Type::U32 | Type::B32 => cmp_of!(op, u32),
        Type::S64 => cmp_of!(op, i64),
        Type::U64 | Type::B64 => cmp_of!(op, u64),
        _ => return None,
    })
}

/// Extended-precision operations. The flag is what the hardware's adder has: a subtraction is `a + !b` plus the flag,
/// or plus 1 if it reads none, and what it leaves is the carry of that sum, which is set when nothing was borrowed. All
/// of them share it, so that a chain may mix them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carry {
    Add,
    Sub,
    MadLo,
    MadHi { signed: bool },
}

macro_rules! carry_of {
    ($op:expr, $u:ty, $wide:ty, $s:ty, $swide:ty) => {
        match $op {
            Carry::Add => carry(|a: $u, b: $u, _: $u, cin: bool| a.carrying_add_(b, cin)),
            Carry::Sub => carry(|a: $u, b: $u, _: $u, cin: bool| a.carrying_add_(!b, cin)),
            Carry::MadLo => carry(|a: $u, b: $u, c: $u, cin: bool| a.wrapping_mul(b).carrying_add_(c, cin)),
            Carry::MadHi { signed: false } => carry(|a: $u, b: $u, c: $u, cin: bool| {
                (((a as $wide * b as $wide) >> <$u>::BITS) as $u).carrying_add_(c, cin)
            }),
            Carry::MadHi { signed: true } => carry(|a: $u, b: $u, c: $u, cin: bool| {
                (((a as $s as $swide * b as $s as $swide) >> <$u>::BITS) as $u).carrying_add_(c, cin)
            }),
        }
    };
}

trait WithCarry: Lane {
    fn carrying_add_(self, b: Self, carry: bool) -> (Self, bool);
}

macro_rules! with_carry {
    ($($t:ty)*) => {$(
        impl WithCarry for $t {
            #[inline(always)]
            fn carrying_add_(self, b: $t, carry: bool) -> ($t, bool) {
                let (x, c) = self.overflowing_add(b);
                let (y, d) = x.overflowing_add(carry as $t);
                (y, c | d)
            }
        }
    )*};
}

with_carry!(u32 u64);

/// The handler of an extended-precision operation.
pub(crate) fn extended(op: Carry, wide: bool) -> OpFn {
    if wide { carry_of!(op, u64, u128, i64, i128) } else { carry_of!(op, u32, u64, i32, i64) }
}

/// `slct`: a if c ≥ 0, else b.
pub(crate) fn slct(wide: bool, float: bool) -> OpFn {
    match (wide, float) {
        (false, false) => map3(|a: u32, b: u32, c: i32| if c >= 0 { a } else { b }),
        (true, false) => map3(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        (false, true) => map3(|a: u32, b: u32, c: f32| if c >= 0.0 { a } else { b }),
        (true, true) => map3(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
    }
}
