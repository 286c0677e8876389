//! Notes for checked launches, from the facts that operations were pushed with.

use std::collections::HashSet;

use super::allocate::Places;
use super::facts::Effect;
use super::objects::{self, Holds};
use super::operand::{List, P, RegisterClass, V, X};
use super::proto::{Builder, Proto};
use crate::exec::{CONST, PRED_CARRY};
use crate::note::Work;
use crate::note::{Access, Class, Note, Notes, Reg, Role, Taint, Where};

/// The note of an operation that was made of nothing: a jump between blocks, a sentinel.
pub(super) fn blank(notes: &Notes) -> Note {
    Note {
        busy: false,
        role: Role::Plain,
        taint: Taint::Defined,
        class: Class::Control,
        work: Work::None,
        first: false,
        marked: false,
        short: false,
        regs: notes.regs.len() as u32,
        reads: 0,
        writes: 0,
    }
}

/// The note of an operation.
pub(super) fn note(
    b: &Builder<'_>,
    proto: &Proto,
    places: &Places,
    (seeds, holds): (&HashSet<usize>, &[Holds]),
    notes: &mut Notes,
) -> Note {
    let regs = notes.regs.len() as u32;
    let reads = sources(b, proto, places, &mut notes.regs);
    let writes = destinations(proto, b, places, &mut notes.regs);
    let role = match proto.facts.effect {
        Effect::None => Role::Plain,
        Effect::Role(role) => role,
        Effect::Access(access) => {
            let seed = seeds.contains(&(proto.instruction as usize));
            let objects = variables(b, proto, &access, holds, &mut notes.objects);
            notes.accesses.push(Access { seed, objects, ..access });
            Role::Access(notes.accesses.len() as u32 - 1)
        }
    };
    Note {
        busy: role != Role::Plain,
        role,
        taint: proto.facts.taint,
        class: proto.facts.class.unwrap_or(proto.class),
        work: proto.work,
        first: proto.weight > 0,
        marked: false,
        short: is_short(b, proto),
        regs,
        reads,
        writes,
    }
}

/// The shared variables that an access's address was made from, numbered from 1; 0 if that is not known.
fn variables(b: &Builder<'_>, p: &Proto, access: &Access, holds: &[Holds], known: &mut Vec<Vec<u32>>) -> u32 {
    if !matches!(access.at, Where::Shared32 | Where::Shared64 | Where::Generic) {
        return 0;
    }
    let Holds::Address(variables) = objects::of(b, holds, p.a) else { return 0 };
    let list: Vec<u32> = variables.into_iter().collect();
    let at = known.iter().position(|o| *o == list).unwrap_or_else(|| {
        known.push(list);
        known.len() - 1
    });
    at as u32 + 1
}

/// Whether destinations are registers that the program declared with 16 bits.
fn is_short(b: &Builder<'_>, p: &Proto) -> bool {
    match p.d {
        V::Reg(r) => b.body.registers.get(r as usize).is_some_and(|r| r.0.bits() == 16),
        _ => false,
    }
}

fn row(b: &Builder<'_>, v: V, places: &Places) -> Option<Reg> {
    let at = match v {
        V::None => return None,
        V::Reg(_) => places.row(v),
        V::Const(at) => at | CONST,
    };
    Some(if width(b, v) { Reg::Wide(at) } else { Reg::Narrow(at) })
}

/// Whether a row has lanes of 64 bits.
fn width(b: &Builder<'_>, v: V) -> bool {
    match v {
        V::Const(at) => b.consts.binary_search_by_key(&at, |c| c.at).is_ok_and(|i| b.consts[i].wide),
        other => b.class(other) == RegisterClass::Wide,
    }
}

fn sources(b: &Builder<'_>, p: &Proto, places: &Places, regs: &mut Vec<Reg>) -> u16 {
    let before = regs.len();
    let listed = p.list.as_deref().map_or(&[][..], |l: &List| &l.rows[..]);
    let x = if let X::Row(v) = p.x { v } else { V::None };
    regs.extend([p.a, p.b, p.c, x].iter().chain(listed).filter_map(|&v| row(b, v, places)));
    let mut pred = |q: P| {
        if let P::Reg(..) = q {
            regs.push(Reg::Pred(places.source(q) >> 1));
        }
    };
    pred(p.q);
    if let X::Pred(q) = p.x {
        pred(q);
    }
    if p.carry.0 {
        regs.push(Reg::Pred(PRED_CARRY));
    }
    (regs.len() - before) as u16
}

fn destinations(p: &Proto, b: &Builder<'_>, places: &Places, regs: &mut Vec<Reg>) -> u16 {
    let before = regs.len();
    let listed = p.list.as_deref().map_or(&[][..], |l: &List| &l.writes[..]);
    regs.extend(std::iter::once(&p.d).chain(listed).filter_map(|&v| row(b, v, places)));
    for q in [p.p, p.r] {
        if let P::Reg(..) = q {
            regs.push(Reg::Pred(places.pred(q)));
        }
    }
    if p.carry.1 {
        regs.push(Reg::Pred(PRED_CARRY));
    }
    (regs.len() - before) as u16
}
