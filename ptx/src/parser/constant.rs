//! Literals and constant expressions.
//!
//! The rules are the ISA's: integers are 64 bits wide, signed unless they carry a `U` or do not
//! fit; C's operators and precedences; a float is never mixed with an integer. Overflowing
//! literals are errors.

use super::super::ast::Pos;
use super::super::lexer::Kind;
use super::{Parsed, Parser};

/// How deep an expression may nest.
pub(super) const MAX_DEPTH: u32 = 128;

/// The value of a constant expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Constant {
    /// Two's complement, and whether it is unsigned.
    Int(i64, bool),
    /// `0f…`
    F32(u32),
    /// `0d…` or decimal.
    F64(f64),
}

/// Binary operators by precedence, loosest first; two characters before their one-character prefix.
const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'a> Parser<'a> {
    /// True if the next token can start a constant expression (`(` included).
    pub(super) fn at_constant(&self) -> bool {
        match self.token.kind {
            Kind::Int | Kind::Float | Kind::HexF32 | Kind::HexF64 => true,
            Kind::Ident => self.token.text == "WARP_SZ",
            Kind::Punct(c) => matches!(c, b'-' | b'+' | b'~' | b'(' | b'!'),
            _ => false,
        }
    }

    /// A constant expression, `?:` included.
    pub(super) fn constant(&mut self) -> Parsed<Constant> {
        self.ternary(0)
    }

    /// A constant expression that must be an integer.
    pub(super) fn integer(&mut self) -> Parsed<i64> {
        let pos = self.token.pos;
        match self.constant()? {
            Constant::Int(value, _) => Ok(value),
            _ => self.fail(pos, "Integer constant expected"),
        }
    }

    /// A plain integer literal, as directives take it.
    pub(super) fn expect_u64(&mut self) -> Parsed<u64> {
        if self.token.kind != Kind::Int {
            return self.unexpected("expected an integer");
        }
        let token = self.token;
        match parse_int(token.text) {
            Some((value, _)) => {
                self.advance();
                Ok(value as u64)
            }
            None => self.fail(token.pos, "Constant overflow"),
        }
    }

    /// A plain integer literal of at most 32 bits.
    pub(super) fn expect_u32(&mut self) -> Parsed<u32> {
        let pos = self.token.pos;
        match u32::try_from(self.expect_u64()?) {
            Ok(value) => Ok(value),
            Err(_) => self.fail(pos, "Constant overflow"),
        }
    }

    fn ternary(&mut self, depth: u32) -> Parsed<Constant> {
        let pos = self.token.pos;
        let condition = self.binary(0, depth)?;
        if !self.at(b'?') {
            return Ok(condition);
        }
        self.advance();
        let yes = self.ternary(depth + 1)?;
        self.expect(b':')?;
        let no = self.ternary(depth + 1)?;
        match condition {
            Constant::Int(0, _) => Ok(no),
            Constant::Int(..) => Ok(yes),
            _ => self.fail(pos, "Constant expression type mismatch"),
        }
    }

    /// The operator that comes next and its level, if it binds at least as tightly as `min`.
    fn operator(&self, min: usize) -> Option<(usize, &'static str)> {
        let Kind::Punct(c) = self.token.kind else { return None };
        let next = self.lexer.byte(self.token.end);
        let (level, found) = LEVELS.iter().enumerate().find_map(|(level, ops)| {
            let fits = |op: &&str| op.as_bytes().iter().zip([c, next]).all(|(a, b)| *a == b);
            // `&` must not take the first half of `&&`, nor `<` that of `<<`.
            let doubled = |op: &str| op.len() == 1 && next == c && matches!(c, b'|' | b'&' | b'<' | b'>');
            let op = ops.iter().copied().find(|op| fits(op) && !doubled(op))?;
            Some((level, op))
        })?;
        (level >= min).then_some((level, found))
    }

    /// Precedence climbing: one frame for a chain of equal operators.
    fn binary(&mut self, min: usize, depth: u32) -> Parsed<Constant> {
        let mut left = self.unary(depth)?;
        while let Some((level, op)) = self.operator(min) {
            let pos = self.token.pos;
            for _ in 0..op.len() {
                self.advance();
            }
            let right = self.binary(level + 1, depth)?;
            left = match apply(op, left, right) {
                Ok(value) => value,
                Err(message) => return self.fail(pos, message),
            };
        }
        Ok(left)
    }

    fn unary(&mut self, depth: u32) -> Parsed<Constant> {
        let pos = self.token.pos;
        if depth > MAX_DEPTH {
            return self.fail(pos, "Constant expression is nested too deeply");
        }
        match self.token.kind {
            Kind::Punct(op @ (b'-' | b'+' | b'~' | b'!')) => {
                self.advance();
                let value = self.unary(depth + 1)?;
                match (op, value) {
                    (b'-', Constant::Int(v, u)) => Ok(Constant::Int(v.wrapping_neg(), u)),
                    (b'-', Constant::F64(v)) => Ok(Constant::F64(-v)),
                    (b'+', Constant::Int(..) | Constant::F64(_)) => Ok(value),
                    (b'~', Constant::Int(v, u)) => Ok(Constant::Int(!v, u)),
                    (b'!', Constant::Int(v, _)) => Ok(Constant::Int(i64::from(v == 0), false)),
                    (_, Constant::F32(_)) => {
                        self.fail(pos, "An operator cannot be applied to a 0f literal: set its sign bit instead")
                    }
                    _ => self.fail(pos, "Constant expression type mismatch"),
                }
            }
            Kind::Punct(b'(') => {
                self.advance();
                if self.token.kind == Kind::Dot {
                    let unsigned = match self.token.text {
                        "u64" => true,
                        "s64" => false,
                        _ => return self.unexpected("expected `.s64` or `.u64`"),
                    };
                    self.advance();
                    self.expect(b')')?;
                    return match self.unary(depth + 1)? {
                        Constant::Int(v, _) => Ok(Constant::Int(v, unsigned)),
                        Constant::F64(v) if unsigned => Ok(Constant::Int(v as u64 as i64, true)),
                        Constant::F64(v) => Ok(Constant::Int(v as i64, false)),
                        Constant::F32(_) => self.fail(pos, "Constant expression type mismatch"),
                    };
                }
                let value = self.ternary(depth + 1)?;
                self.expect(b')')?;
                Ok(value)
            }
            _ => self.literal(pos),
        }
    }

    fn literal(&mut self, pos: Pos) -> Parsed<Constant> {
        let text = self.token.text;
        let value = match self.token.kind {
            Kind::Int => parse_int(text).map(|(v, u)| Constant::Int(v, u)),
            Kind::HexF32 => text.get(2..).and_then(|d| u32::from_str_radix(d, 16).ok()).map(Constant::F32),
            Kind::HexF64 => (text.get(2..).and_then(|d| u64::from_str_radix(d, 16).ok()))
                .map(|bits| Constant::F64(f64::from_bits(bits))),
            Kind::Float => text.parse::<f64>().ok().filter(|v| v.is_finite()).map(Constant::F64),
            Kind::Ident if text == "WARP_SZ" => Some(Constant::Int(32, false)),
            _ => return self.unexpected("expected a constant"),
        };
        match value {
            Some(value) => {
                self.advance();
                Ok(value)
            }
            None => self.fail(pos, "Constant overflow"),
        }
    }
}

/// An integer literal and whether it is unsigned.
fn parse_int(text: &str) -> Option<(i64, bool)> {
    let (digits, suffix) = match text.strip_suffix('U') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let value = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(digits.get(2..)?, 16),
        [b'0', b'b' | b'B', ..] => u64::from_str_radix(digits.get(2..)?, 2),
        [b'0', _, ..] => u64::from_str_radix(digits, 8),
        _ => digits.parse(),
    }
    .ok()?;
    Some((value as i64, suffix || value > i64::MAX as u64))
}

fn apply(op: &str, left: Constant, right: Constant) -> Result<Constant, &'static str> {
    let mismatch = "Constant expression type mismatch";
    match (left, right) {
        (Constant::Int(a, ua), Constant::Int(b, ub)) => integers(op, a, b, ua || ub, ua),
        (Constant::F64(a), Constant::F64(b)) => {
            let truth = |t: bool| Ok(Constant::Int(i64::from(t), false));
            match op {
                "+" => Ok(Constant::F64(a + b)),
                "-" => Ok(Constant::F64(a - b)),
                "*" => Ok(Constant::F64(a * b)),
                "/" => Ok(Constant::F64(a / b)),
                "<" => truth(a < b),
                ">" => truth(a > b),
                "<=" => truth(a <= b),
                ">=" => truth(a >= b),
                "==" => truth(a == b),
                "!=" => truth(a != b),
                _ => Err(mismatch),
            }
        }
        _ => Err(mismatch),
    }
}

fn integers(op: &str, a: i64, b: i64, unsigned: bool, left_unsigned: bool) -> Result<Constant, &'static str> {
    let order = if unsigned { (a as u64).cmp(&(b as u64)) } else { a.cmp(&b) };
    let truth = |t: bool| Ok(Constant::Int(i64::from(t), false));
    let amount = b as u64;
    let value = match op {
        "||" => return truth(a != 0 || b != 0),
        "&&" => return truth(a != 0 && b != 0),
        "==" => return truth(a == b),
        "!=" => return truth(a != b),
        "<" => return truth(order.is_lt()),
        ">" => return truth(order.is_gt()),
        "<=" => return truth(order.is_le()),
        ">=" => return truth(order.is_ge()),
        // A shift has the type of its left side; the amount counts modulo 64, as `ptxas` folds it.
        "<<" => return Ok(Constant::Int(a.wrapping_shl(amount as u32), left_unsigned)),
        ">>" if left_unsigned => {
            return Ok(Constant::Int((a as u64).wrapping_shr(amount as u32) as i64, true));
        }
        ">>" => return Ok(Constant::Int(a.wrapping_shr(amount as u32), false)),
        "/" | "%" if b == 0 => return Err("Constant expression has division by zero"),
        "/" if unsigned => ((a as u64) / (b as u64)) as i64,
        "%" if unsigned => ((a as u64) % (b as u64)) as i64,
        "/" => a.wrapping_div(b),
        "%" => a.wrapping_rem(b),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        _ => return Err("Constant expression type mismatch"),
    };
    Ok(Constant::Int(value, unsigned))
}
