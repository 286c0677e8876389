//! How undefined bits pass through operations, for checked launches.

use super::mods::{bits, is_int, is_signed};
use super::proto::{Builder, P, Proto, V};
use crate::check::note::{Relation, Role, Taint, Test};
use crate::ptx::ast::{Instruction, Type};

/// Whether destinations are registers that the program declared with 16 bits.
pub(super) fn is_short(b: &Builder<'_>, p: &Proto) -> bool {
    match p.d {
        V::Reg(r) => b.body.registers.get(r as usize).is_some_and(|r| bits(r.0) == 16),
        _ => false,
    }
}

/// How undefined bits pass through.
pub(super) fn taint(i: &Instruction, p: &Proto, role: Role) -> Taint {
    if let Some(taint) = p.taint {
        return taint;
    }
    let has = |word: &str| i.modifiers.iter().any(|w| w == word);
    let ty = i.modifiers.last().and_then(|w| Type::named(w));
    let int = ty.is_some_and(is_int);
    let pairs = i.modifiers.iter().any(|w| w.ends_with("16x2"));
    let same = p.a == p.b && matches!(p.a, V::Reg(_));
    let to_predicate = matches!(p.p, P::Reg(..)) || matches!(p.r, P::Reg(..));
    match i.opcode.as_str() {
        "ld" | "ldu" if matches!(role, Role::Access(_)) => Taint::Load,
        "atom" | "red" if matches!(role, Role::Access(_)) => {
            if has("exch") {
                Taint::Exchange
            } else {
                Taint::Atomic
            }
        }
        "setp" | "set" if to_predicate && p.a != V::None => Taint::Compare(relation(i)),
        "set" if p.q != P::True => Taint::Select,
        "set" if p.b != V::None => Taint::Or,
        "lop3" if to_predicate => {
            Taint::Compare(Relation { test: Test::Equal, negated: true, signed: false, bits: 32 })
        }
        "setp" | "and" | "or" | "xor" | "not" | "mov" if to_predicate => Taint::Logic,
        "xor" | "sub" if same && (int || i.opcode == "xor") => Taint::Defined,
        "and" => Taint::And,
        "or" => Taint::Or,
        "xor" | "not" => Taint::Xor,
        "lop3" => Taint::Lop3,
        "selp" => Taint::Select,
        "brev" => Taint::Same(0),
        "shl" | "shr" => Taint::Same(2),
        "shf" | "prmt" => Taint::Same(4),
        "bfe" => Taint::Same(6),
        "bfi" => Taint::Same(12),
        "add" | "sub" | "mul" | "fma" | "neg" | "abs" | "min" | "max" | "ex2" | "tanh" if pairs => Taint::Halves,
        "cvt" if matches!(i.modifiers.as_slice(), [.., to, from] if to.ends_with("f16x2") && from == "f32") => {
            if p.b == V::None { Taint::Halves } else { Taint::Pack }
        }
        "addc" | "subc" | "madc" | "cvta" => Taint::Left,
        "add" | "sub" | "neg" if int && !has("sat") => Taint::Left,
        "mul" | "mad" if int && (has("lo") || has("wide")) => Taint::Left,
        "cp" if role == Role::Object => Taint::HandOver,
        "mma" => Taint::Matrix,
        "wmma" if has("load") => Taint::LoadTile,
        "wmma" if has("store") => Taint::StoreTile,
        "wmma" => Taint::Matrix,
        "ldmatrix" => Taint::LoadMatrix,
        "stmatrix" => Taint::StoreMatrix,
        _ => Taint::All,
    }
}

/// What `setp` and `set` ask: the comparison stands first, the type of the operands last.
fn relation(i: &Instruction) -> Relation {
    let ty = i
        .modifiers
        .last()
        .and_then(|w| Type::named(w))
        .filter(|t| is_int(*t) || matches!(t, Type::B16 | Type::B32 | Type::B64));
    let Some(ty) = ty else { return Relation { test: Test::Other, negated: false, signed: false, bits: 64 } };
    let (test, unsigned) = match i.modifiers.first().map(String::as_str) {
        Some("eq" | "ne") => (Test::Equal, false),
        Some("lt" | "ge") => (Test::Less, false),
        Some("gt" | "le") => (Test::Greater, false),
        Some("lo" | "hs") => (Test::Less, true),
        Some("hi" | "ls") => (Test::Greater, true),
        _ => (Test::Other, false),
    };
    let negated = matches!(i.modifiers.first().map(String::as_str), Some("ne" | "ge" | "hs" | "le" | "ls"));
    Relation { test, negated, signed: is_signed(ty) && !unsigned, bits: bits(ty) as u8 }
}
