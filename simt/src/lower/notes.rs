//! Notes for checked launches, made from the instruction that an operation was decoded from.

use std::collections::HashSet;

use super::allocate::Places;
use super::mods::{Mods, bits, is_int};
use super::objects::{self, Holds};
use super::proto::{Builder, Class as Width, List, P, Proto, V, X};
use super::taint::{is_short, taint};
use crate::check::metrics::Work;
use crate::check::note::{Access, Class, Does, Note, Notes, Order, Reg, Role, Scope, Taint, Where};
use crate::exec::{CONST, PRED_CARRY};
use crate::ptx::ast::{Instruction, Operand, Type};

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
    let instruction = b.body.instructions.get(proto.instruction as usize);
    let regs = notes.regs.len() as u32;
    let reads = sources(b, proto, places, &mut notes.regs);
    let writes = destinations(b, proto, places, &mut notes.regs);
    let (role, class, taint) = match (instruction, proto.taint) {
        (_, Some(Taint::Frame(size))) => (frame(proto, size, notes), Class::Local, Taint::Load),
        (None, _) => (Role::Plain, Class::Other, Taint::All),
        (Some(i), _) => {
            let role = role(b, i, proto, notes);
            if let Role::Access(at) = role
                && let Some(access) = notes.accesses.get_mut(at as usize)
            {
                access.seed = seeds.contains(&(proto.instruction as usize));
                let shared = matches!(access.at, Where::Shared32 | Where::Shared64 | Where::Generic);
                if let Holds::Address(variables) = objects::of(b, holds, proto.a)
                    && shared
                {
                    let list: Vec<u32> = variables.into_iter().collect();
                    let known = notes.objects.iter().position(|o| *o == list);
                    let at = known.unwrap_or_else(|| {
                        notes.objects.push(list);
                        notes.objects.len() - 1
                    });
                    access.objects = at as u32 + 1;
                }
            }
            (role, class(i), taint(i, proto, role))
        }
    };
    let work = instruction.map_or(Work::None, work);
    let short = is_short(b, proto);
    Note {
        busy: role != Role::Plain,
        role,
        taint,
        class,
        work,
        first: proto.weight > 0,
        marked: false,
        short,
        regs,
        reads,
        writes,
    }
}

/// An access of a parameter or return value that is a register: in the frame's local memory.
fn frame(p: &Proto, size: u8, notes: &mut Notes) -> Role {
    let loads = p.list.as_ref().is_some_and(|l| !l.writes.is_empty());
    notes.accesses.push(Access {
        does: if loads { Does::Load } else { Does::Store },
        at: Where::Frame,
        size: size.into(),
        count: 1,
        order: Order::Weak,
        scope: Scope::Gpu,
        nc: false,
        cas: false,
        seed: false,
        objects: 0,
    });
    Role::Access(notes.accesses.len() as u32 - 1)
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
        other => b.class(other) == Width::Wide,
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
    if matches!(opcode(b, p), "addc" | "subc" | "madc") {
        regs.push(Reg::Pred(PRED_CARRY));
    }
    (regs.len() - before) as u16
}

fn destinations(b: &Builder<'_>, p: &Proto, places: &Places, regs: &mut Vec<Reg>) -> u16 {
    let before = regs.len();
    let listed = p.list.as_deref().map_or(&[][..], |l: &List| &l.writes[..]);
    regs.extend(std::iter::once(&p.d).chain(listed).filter_map(|&v| row(b, v, places)));
    for q in [p.p, p.r] {
        if let P::Reg(..) = q {
            regs.push(Reg::Pred(places.pred(q)));
        }
    }
    let carries = |i: &Instruction| i.modifiers.iter().any(|w| w == "cc");
    if matches!(opcode(b, p), "add" | "addc" | "sub" | "subc" | "mad" | "madc")
        && b.body.instructions.get(p.instruction as usize).is_some_and(carries)
    {
        regs.push(Reg::Pred(PRED_CARRY));
    }
    (regs.len() - before) as u16
}

fn opcode<'b>(b: &'b Builder<'_>, p: &Proto) -> &'b str {
    b.body.instructions.get(p.instruction as usize).map_or("", |i| i.opcode.as_str())
}

fn scope(m: &Mods<'_>) -> Scope {
    match m.any(&["cta", "cluster", "gpu", "gl", "sys"]) {
        Some("cta") => Scope::Cta,
        Some("cluster") => Scope::Cluster,
        Some("sys") => Scope::System,
        _ => Scope::Gpu,
    }
}

fn role(b: &Builder<'_>, i: &Instruction, p: &Proto, notes: &mut Notes) -> Role {
    let m = &Mods::new(i);
    match i.opcode.as_str() {
        "st" | "red" if m.take("async") => {
            if p.list.is_some() {
                Role::StoreAsync
            } else {
                Role::Plain
            }
        }
        "ld" | "ldu" | "st" if p.list.is_some() => {
            access(b, i, p, notes, if i.opcode == "st" { Does::Store } else { Does::Load })
        }
        "atom" | "red" if p.list.is_some() => access(b, i, p, notes, Does::Atomic),
        "griddepcontrol" if m.take("wait") => Role::WaitDependencies,
        "fence" | "membar" if m.skip(|w| w.starts_with("proxy") || w == "mbarrier_init") => Role::Plain,
        "fence" | "membar" => {
            let (acquire, release) = (m.take("acquire"), m.take("release"));
            Role::Fence { acquires: acquire || !release, releases: release || !acquire, scope: scope(m) }
        }
        "bra" | "brx" => Role::Branch,
        "div" | "rem" if p.weight > 0 => match i.modifiers.last().and_then(|w| Type::named(w)) {
            Some(ty) if is_int(ty) => Role::Divide(bits(ty) as u8),
            _ => Role::Plain,
        },
        "ldmatrix" | "stmatrix" if p.list.is_some() => Role::MatrixAccess,
        "wmma" if p.list.is_some() && (m.take("load") || m.take("store")) => Role::MatrixAccess,
        "mbarrier" if p.list.is_some() => Role::Object,
        "shfl" | "vote" | "match" | "redux" | "elect" if p.imm & crate::exec::collective::COLLECTIVE != 0 => {
            Role::Collective
        }
        "bar" | "barrier" if p.imm & crate::exec::collective::COLLECTIVE != 0 => Role::Collective,
        "bar" | "barrier" if !m.take("cluster") => Role::Barrier,
        "cp" if p.list.is_some() && m.take("mbarrier") => Role::Object,
        "cp" if m.take("bulk") => match m.any(&["commit_group", "wait_group"]) {
            Some("commit_group") => Role::CommitBulk,
            Some(_) => match i.operands.first() {
                Some(Operand::Int(n)) => Role::WaitBulk { left: *n as u32, read: m.take("read") },
                _ => Role::Plain,
            },
            None if p.list.is_some() => Role::CopyBulk,
            None => Role::Plain,
        },
        "cp" if m.take("async") && !m.take("mbarrier") => {
            match m.any(&["commit_group", "wait_group", "wait_all", "ca", "cg"]) {
                Some("commit_group") => Role::CommitGroup,
                Some("wait_all") => Role::WaitGroup(u32::MAX),
                Some("wait_group") => match i.operands.first() {
                    Some(Operand::Int(n)) => Role::WaitGroup(*n as u32),
                    _ => Role::Plain,
                },
                // The copy itself, not what prepares its operands.
                Some(_) if p.list.is_some() => Role::CopyAsync,
                _ => Role::Plain,
            }
        }
        _ => Role::Plain,
    }
}

/// Notes a load, store or atomic.
fn access(b: &Builder<'_>, i: &Instruction, p: &Proto, notes: &mut Notes, does: Does) -> Role {
    let m = &Mods::new(i);
    let spaces = [
        "global",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "const",
        "param",
        "param::entry",
        "param::func",
    ];
    let wide = width(b, p.a);
    let fixed = p.a == V::None;
    let at = match m.any(&spaces) {
        Some("global") => Where::Global,
        Some("const") => Where::Const,
        Some("local") if fixed => Where::Frame,
        Some("local") if wide => Where::Local64,
        Some("local") => Where::Local32,
        // Parameters of functions lie in the frame.
        Some(w) if w.starts_with("param") && fixed && !is_entry_param(b, i, does) => Where::Frame,
        Some(w) if w.starts_with("param") && !b.function.is_entry => {
            if wide {
                Where::Local64
            } else {
                Where::Local32
            }
        }
        Some(w) if w.starts_with("param") => Where::Param,
        Some(_) if wide => Where::Shared64,
        Some(_) => Where::Shared32,
        None => Where::Generic,
    };
    let atomic = does == Does::Atomic;
    let order = match m.any(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]) {
        Some("volatile") => Order::Volatile,
        Some("relaxed" | "mmio") => Order::Relaxed,
        Some("acquire") => Order::Acquire,
        Some("release") => Order::Release,
        Some("acq_rel") => Order::AcqRel,
        _ if atomic => Order::Relaxed,
        _ => Order::Weak,
    };
    let scope = if order == Order::Volatile { Scope::System } else { scope(m) };
    let nc = m.take("nc");
    let cas = m.take("cas");
    let count = match m.any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let Ok(ty) = m.ty() else { return Role::Plain };
    let (size, count) = match (super::mods::bits(ty) / 8, atomic) {
        // A vector of atomics is an operation an element; 128 bits are two rows of 64.
        (size, true) => (size, 1),
        (16, false) => (8, 2 * count),
        (size, false) => (size, count),
    };
    notes.accesses.push(Access { does, at, size, count, order, scope, nc, cas, seed: false, objects: 0 });
    Role::Access(notes.accesses.len() as u32 - 1)
}

/// Whether a fixed `.param` address is one of the kernel's own parameters.
fn is_entry_param(b: &Builder<'_>, i: &Instruction, does: Does) -> bool {
    use super::proto::Symbol;
    use crate::ptx::ast::Base;
    let operand = if does == Does::Load { i.operands.get(1) } else { i.operands.first() };
    match operand {
        Some(Operand::Address(Base::Symbol(name), _)) => matches!(b.symbol(name), Ok(Symbol::Param(..))),
        _ => b.function.is_entry,
    }
}

fn class(i: &Instruction) -> Class {
    let has = |word: &str| i.modifiers.iter().any(|w| w == word);
    let float = || match i.modifiers.last().map(String::as_str) {
        Some("f64") => Class::Fp64,
        Some("f16" | "f16x2" | "bf16" | "bf16x2") => Class::Half,
        Some(t) if t.starts_with("f32") || t == "tf32" => Class::Fp32,
        _ => Class::Integer,
    };
    match i.opcode.as_str() {
        "ld" | "ldu" | "st" => {
            if i.modifiers.iter().any(|w| w.starts_with("shared")) {
                Class::Shared
            } else if i.modifiers.iter().any(|w| w == "local" || w == "const" || w.starts_with("param")) {
                Class::Local
            } else {
                Class::Global
            }
        }
        "atom" | "red" => Class::Atomic,
        "cp" => Class::Global,
        "ldmatrix" | "stmatrix" => Class::Shared,
        "mma" | "wmma" | "movmatrix" => Class::Tensor,
        "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => Class::Collective,
        "bar" if has("warp") => Class::Collective,
        "bar" | "barrier" | "fence" | "membar" | "mbarrier" => Class::Barrier,
        "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" => Class::Control,
        "cvt" | "cvta" => Class::Convert,
        "mov" | "selp" | "slct" | "isspacep" => Class::Move,
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "div" if has("approx") => Class::Special,
        "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "neg" | "abs" | "rcp" | "sqrt" | "copysign"
        | "testp" | "setp" | "set" => float(),
        "addc" | "subc" | "madc" | "mul24" | "mad24" | "rem" | "and" | "or" | "xor" | "not" | "cnot" | "shl"
        | "shr" | "shf" | "lop3" | "prmt" | "bfe" | "bfi" | "bfind" | "bmsk" | "szext" | "popc" | "clz" | "brev"
        | "fns" | "sad" | "dp4a" | "dp2a" | "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr"
        | "vmad" | "vset" | "vadd2" | "vsub2" | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4"
        | "vsub4" | "vavrg4" | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" => Class::Integer,
        _ => Class::Other,
    }
}

/// The floating-point operations of an instruction.
fn work(i: &Instruction) -> Work {
    #[derive(Clone, Copy)]
    enum Does {
        Add,
        Mul,
        Fma,
    }
    let does = match i.opcode.as_str() {
        "mma" | "wmma" | "wgmma" => return i.modifiers.iter().find_map(|m| volume(m)).map_or(Work::None, Work::Tensor),
        "add" | "sub" => Does::Add,
        "mul" => Does::Mul,
        "fma" | "mad" => Does::Fma,
        _ => return Work::None,
    };
    match (i.modifiers.last().map_or("", String::as_str), does) {
        ("f32", Does::Add) => Work::Fadd,
        ("f32", Does::Mul) => Work::Fmul,
        ("f32", Does::Fma) => Work::Ffma,
        ("f64", Does::Add) => Work::Dadd,
        ("f64", Does::Mul) => Work::Dmul,
        ("f64", Does::Fma) => Work::Dfma,
        (ty @ ("f16" | "bf16" | "f16x2" | "bf16x2"), does) => {
            let n = if ty.ends_with("x2") { 2 } else { 1 };
            match does {
                Does::Add => Work::Hadd(n),
                Does::Mul => Work::Hmul(n),
                Does::Fma => Work::Hfma(n),
            }
        }
        _ => Work::None,
    }
}

/// `m16n8k16`: twice the product.
fn volume(shape: &str) -> Option<u32> {
    let (m, rest) = shape.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    let number = |t: &str| t.parse::<u32>().ok().filter(|n| *n <= 4096);
    Some(2 * number(m)? * number(n)? * number(k)?)
}
