//! What the checks need to know of an operation, said where it is decoded.
//!
//! There is no default: [`Builder::push`](super::proto::Builder::push) takes [`Facts`], and the table of opcodes
//! ([`decode`](super::decode)) gives every one of them a class and a cost. An instruction that does not say what it is to the
//! checks does not compile.

use super::mods::Mods;
use super::operand::{Address, V};
use crate::exec::mem::Via;
use crate::note::{Access, Class, Does, Order, Relation, Role, Scope, Taint, Test, Where};
use crate::ptx::ast::{Instruction, Space, Type};

/// What an operation does besides computing registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// It accesses memory.
    Access(Access),
    /// What its role says.
    Role(Role),
}

/// What the checks need to know of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub taint: Taint,
    pub effect: Effect,
    /// The operation's class, where it is not the instruction's.
    pub class: Option<Class>,
}

impl Facts {
    /// It computes registers from registers.
    pub(super) fn registers(taint: Taint) -> Facts {
        Facts { taint, effect: Effect::None, class: None }
    }

    /// It has a role of its own; what it writes into registers is undefined as `taint` says.
    pub(super) fn role(role: Role, taint: Taint) -> Facts {
        Facts { taint, effect: Effect::Role(role), class: None }
    }

    /// It accesses memory.
    pub(super) fn access(access: Access, taint: Taint) -> Facts {
        Facts { taint, effect: Effect::Access(access), class: None }
    }

    /// It is an atomic operation, by its name, on elements of `size` bytes.
    pub(super) fn atomic(name: &str, address: &Address, size: u32, ordered: Ordered) -> Facts {
        let access = accesses(Does::Atomic, place(address), (size, 1), ordered);
        let taint = if name == "exch" { Taint::Exchange } else { Taint::Atomic };
        Facts::access(Access { cas: name == "cas", ..access }, taint)
    }

    /// `fence` and `membar`; those of a proxy order nothing here.
    pub(super) fn fence(i: &Instruction) -> Facts {
        let has = |word: &str| i.modifiers.iter().any(|w| w == word);
        if i.modifiers.iter().any(|w| w.starts_with("proxy") || w == "mbarrier_init") {
            return Facts::registers(Taint::Defined);
        }
        let scope = match () {
            () if has("cta") => Scope::Cta,
            () if has("cluster") => Scope::Cluster,
            () if has("sys") => Scope::System,
            () => Scope::Gpu,
        };
        let (acquires, releases) = (!has("release"), !has("acquire"));
        Facts::role(Role::Fence { acquires, releases, scope }, Taint::Defined)
    }

    /// It loads or stores a parameter, or a value that is returned, in the frame's local memory.
    pub(super) fn frame(size: u32, load: bool) -> Facts {
        let does = if load { Does::Load } else { Does::Store };
        let access = accesses(does, Where::Frame, (size, 1), Ordered { order: Order::Weak, scope: Scope::Gpu });
        Facts { class: Some(Class::Local), ..Facts::access(access, Taint::Load) }
    }
}

/// Memory order and scope, as the modifiers say them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered {
    pub order: Order,
    pub scope: Scope,
}

impl Ordered {
    /// Takes the modifiers of a load or a store.
    pub(super) fn access(m: &Mods<'_>) -> Ordered {
        let default = if m.take("mmio") { Order::Relaxed } else { Order::Weak };
        let order = match m.any(&["weak", "volatile"]) {
            Some("weak") => Order::Weak,
            Some(_) => Order::Volatile,
            None => Ordered::strong(m).unwrap_or(default),
        };
        let scope = Ordered::scope(m);
        Ordered { order, scope: if order == Order::Volatile { Scope::System } else { scope } }
    }

    /// Takes the modifiers of an atomic operation.
    pub(super) fn atomic(m: &Mods<'_>) -> Ordered {
        Ordered { order: Ordered::strong(m).unwrap_or(Order::Relaxed), scope: Ordered::scope(m) }
    }

    fn strong(m: &Mods<'_>) -> Option<Order> {
        Some(match m.any(&["relaxed", "acquire", "release", "acq_rel"])? {
            "relaxed" => Order::Relaxed,
            "acquire" => Order::Acquire,
            "release" => Order::Release,
            _ => Order::AcqRel,
        })
    }

    fn scope(m: &Mods<'_>) -> Scope {
        match m.any(&["cta", "cluster", "gpu", "sys"]) {
            Some("cta") => Scope::Cta,
            Some("cluster") => Scope::Cluster,
            Some("sys") => Scope::System,
            _ => Scope::Gpu,
        }
    }
}

/// An access of `size` bytes an element and `count` elements.
pub(super) fn accesses(does: Does, at: Where, (size, count): (u32, u32), ordered: Ordered) -> Access {
    let Ordered { order, scope } = ordered;
    Access { does, at, size, count, order, scope, nc: false, cas: false, seed: false, objects: 0 }
}

/// Where an access finds its addresses.
pub(super) fn place(address: &Address) -> Where {
    match (address.space, address.via) {
        (Space::Global, _) => Where::Global,
        (Space::Const, _) => Where::Const,
        (Space::Param, _) => Where::Param,
        (Space::Generic | Space::Reg, _) => Where::Generic,
        (Space::Local, Via::Offset) => Where::Frame,
        (Space::Local, Via::Register64) => Where::Local64,
        (Space::Local, Via::Register32) => Where::Local32,
        (Space::Shared, Via::Register64) => Where::Shared64,
        (Space::Shared, Via::Register32 | Via::Offset) => Where::Shared32,
    }
}

/// How undefined bits pass through arithmetic of a type: through each half of a pair on its own.
pub(super) fn arithmetic(ty: Type) -> Taint {
    if matches!(ty, Type::F16x2 | Type::BF16x2) { Taint::Halves } else { Taint::All }
}

/// How undefined bits pass through sums and differences of integers, and through `^`, which are 0 for equal operands
/// whatever those are: `otherwise` if the operands are not one register.
pub(super) fn cancels(a: V, b: V, otherwise: Taint) -> Taint {
    if a == b && matches!(a, V::Reg(_)) { Taint::Defined } else { otherwise }
}

/// A comparison with 0 that asks whether any bit is set.
pub(super) const ANY_BIT: Taint =
    Taint::Compare(Relation { test: Test::Equal, negated: true, signed: false, bits: 32 });

/// A comparison of floats: any undefined bit counts.
pub(super) const OF_FLOATS: Relation = Relation { test: Test::Other, negated: false, signed: false, bits: 64 };

/// What a comparison of integers by its name asks; `signed` of a type whose orderings are so.
pub(super) fn relation(name: &str, ty: Type, signed: bool) -> Relation {
    let (test, negated) = match name {
        "eq" => (Test::Equal, false),
        "ne" => (Test::Equal, true),
        "lt" | "lo" => (Test::Less, false),
        "ge" | "hs" => (Test::Less, true),
        "gt" | "hi" => (Test::Greater, false),
        "le" | "ls" => (Test::Greater, true),
        _ => return OF_FLOATS,
    };
    Relation { test, negated, signed, bits: ty.bits() as u8 }
}
