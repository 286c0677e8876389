//! Which shared variables an address was made from.
//!
//! A program that computes an address from one variable and reaches another with it relies on where the two happen to lie. What
//! is followed are moves, sums and alignment, without regard to the order of instructions: a register that is ever given
//! something else, such as an address out of memory, is not known, and accesses through it are not looked at.

use std::collections::BTreeSet;

use super::operand::{V, X};
use super::proto::{Builder, Proto};
use crate::program::Const;

/// What a register may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Holds {
    /// Nothing is written to it.
    #[default]
    Nothing,
    /// A number that was not made from the address of a shared variable.
    Number,
    /// An address made from that of one of these variables.
    Address(BTreeSet<u32>),
    /// Either, or something else.
    Unknown,
}

/// Variables beyond which an address is not followed.
const MOST: usize = 8;

impl Holds {
    /// What a register holds to which both may be written.
    fn or(self, other: Holds) -> Holds {
        match (self, other) {
            (Holds::Nothing, x) | (x, Holds::Nothing) => x,
            (Holds::Number, Holds::Number) => Holds::Number,
            (Holds::Address(mut a), Holds::Address(b)) => {
                a.extend(b);
                if a.len() > MOST { Holds::Unknown } else { Holds::Address(a) }
            }
            _ => Holds::Unknown,
        }
    }

    fn is_number(&self) -> bool {
        *self == Holds::Number
    }
}

/// A sum, or bits joined: an address stays one if the rest are numbers.
fn sum(operands: &[Holds]) -> Holds {
    let mut addresses = operands.iter().filter(|h| !h.is_number());
    match (addresses.next(), addresses.next()) {
        (None, _) => Holds::Number,
        (Some(one), None) => one.clone(),
        _ => Holds::Unknown,
    }
}

/// What the function's registers hold.
pub(super) fn holds(b: &Builder<'_>) -> Vec<Holds> {
    let mut known = vec![Holds::Nothing; b.classes.len()];
    if !b.consts.iter().any(|c| matches!(c.value, Const::Shared(..))) {
        return known;
    }
    // What is held only grows, in at most `MOST` and three steps a register; a chain of registers takes as many rounds.
    loop {
        let mut changed = false;
        for proto in &b.protos {
            let result = result(b, proto, &known);
            let listed = proto.list.as_deref().map_or(&[][..], |l| &l.writes[..]);
            for &to in std::iter::once(&proto.d).chain(listed) {
                let V::Reg(r) = to else { continue };
                let Some(held) = known.get_mut(r as usize) else { continue };
                let now = held.clone().or(result.clone());
                changed |= now != *held;
                *held = now;
            }
        }
        if !changed {
            return known;
        }
    }
}

/// What an operand holds.
pub(super) fn of(b: &Builder<'_>, known: &[Holds], v: V) -> Holds {
    match v {
        V::None => Holds::Nothing,
        V::Reg(r) => known.get(r as usize).cloned().unwrap_or_default(),
        V::Const(at) => match b.consts.binary_search_by_key(&at, |c| c.at).ok().map(|i| b.consts[i].value) {
            Some(Const::Shared(variable, _)) => Holds::Address(BTreeSet::from([variable])),
            _ => Holds::Number,
        },
    }
}

/// What an operation gives its destinations.
fn result(b: &Builder<'_>, p: &Proto, known: &[Holds]) -> Holds {
    let fourth = if let X::Row(v) = p.x { v } else { V::None };
    let operands: Vec<Holds> =
        [p.a, p.b, p.c, fourth].into_iter().filter(|&v| v != V::None).map(|v| of(b, known, v)).collect();
    let opcode = b.body.instructions.get(p.instruction as usize).map_or("", |i| i.opcode.as_str());
    if matches!(opcode, "selp" | "slct") {
        return operands.into_iter().take(2).fold(Holds::Nothing, Holds::or);
    }
    // What comes out of memory is a number as long as it is only added to an address.
    if matches!(opcode, "ld" | "ldu" | "atom") {
        return Holds::Number;
    }
    if operands.contains(&Holds::Nothing) {
        return Holds::Nothing;
    }
    let numbers = |list: &[Holds]| list.iter().all(Holds::is_number);
    match (opcode, &operands[..]) {
        ("mov" | "cvt" | "cvta" | "add" | "and" | "or" | "xor", all) => sum(all),
        ("sub", [from, rest @ ..]) if numbers(rest) => from.clone(),
        ("mad" | "mad24", [a, b, to]) if a.is_number() && b.is_number() => to.clone(),
        ("shfl", [value, rest @ ..]) if numbers(rest) => value.clone(),
        (_, all) if numbers(all) => Holds::Number,
        _ => Holds::Unknown,
    }
}
