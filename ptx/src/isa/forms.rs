//! What an instruction's operands and modifiers must be, whatever the module's version and target.
//!
//! [`check`] knows the rules that `ptxas` enforces on the type of every operand (section "Operands" of the ISA:
//! bits fit any type of their size, signed and unsigned integers fit each other, a float only itself; loads, stores
//! and conversions take wider registers), on constants, on special registers, and on modifiers that exclude each
//! other. An instruction that it does not know is left to lowering.

use super::super::ast::{Base, Instruction, Operand, Reg, Type};
use super::applies;

/// One form of an instruction.
struct Form {
    opcodes: &'static str,
    /// As [`super::table::Rule::when`].
    when: &'static str,
    /// Types that it may have, separated by `|`; empty for any.
    types: &'static str,
    /// A letter for each operand:
    /// `T` the instruction's type, exactly; `R` as wide or wider; `W` an integer of twice the bits;
    /// `D` and `S` the first and the second of two types, exactly; `X` and `Y` as wide or wider; `C` a 32-bit integer;
    /// `Q` of 64 bits; `B` any 32 bits; `P` a predicate; `_` anything.
    roles: &'static str,
}

const fn form(opcodes: &'static str, when: &'static str, types: &'static str, roles: &'static str) -> Form {
    Form { opcodes, when, types, roles }
}

const INTS: &str = "u16|s16|u32|s32|u64|s64";
const BITS: &str = "b16|b32|b64";
const ARITHMETIC: &str = "u16|s16|u32|s32|u64|s64|f32|f64|f16|f16x2|bf16|bf16x2|u16x2|s16x2|f32x2";
const FLOATS: &str = "f32|f64|f16|f16x2|bf16|bf16x2|f32x2";
const SIGNED: &str = "s16|s32|s64|f32|f64|f16|f16x2|bf16|bf16x2|s16x2";
const MOVABLE: &str = "b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64";
const MEMORY: &str = "b8|u8|s8|b16|b32|b64|b128|u16|s16|u32|s32|u64|s64|f32|f64";

/// The first that applies counts.
static FORMS: &[Form] = &[
    form("add|sub", "", ARITHMETIC, "TTT"),
    form("addc|subc", "", "u32|s32|u64|s64", "TTT"),
    form("mul", "wide", "u16|s16|u32|s32", "WTT"),
    form("mad", "wide", "u16|s16|u32|s32", "WTTW"),
    form("mul", "hi|lo", INTS, "TTT"),
    form("mad|madc", "hi|lo", INTS, "TTTT"),
    form("mul", "", FLOATS, "TTT"),
    form("mad", "", "f32|f64", "TTTT"),
    form("mul24", "", "u32|s32", "TTT"),
    form("mad24", "", "u32|s32", "TTTT"),
    form("div", "", "u16|s16|u32|s32|u64|s64|f32|f64", "TTT"),
    form("rem", "", INTS, "TTT"),
    form("min|max", "", ARITHMETIC, "TTTT"),
    form("neg|abs", "", SIGNED, "TT"),
    form("and|or|xor", "", "b16|b32|b64|pred", "TTT"),
    form("not", "", "b16|b32|b64|pred", "TT"),
    form("cnot", "", BITS, "TT"),
    form("shl", "", BITS, "TTC"),
    form("shr", "", "b16|b32|b64|u16|s16|u32|s32|u64|s64", "TTC"),
    form("popc|clz", "", "b32|b64", "CT"),
    form("brev", "", "b32|b64", "TT"),
    form("bfind", "", "u32|s32|u64|s64", "CT"),
    form("bfe", "", "u32|s32|u64|s64", "TTCC"),
    form("bfi", "", "b32|b64", "TTTCC"),
    form("sad", "", INTS, "TTTT"),
    form("dp4a|dp2a", "", "", "CCCC"),
    form("lop3", "!and|or|xor", "b32", "TTTT_"),
    form("prmt", "", "b32", "TTTT"),
    form("shf", "", "b32", "TTTC"),
    form("selp", "", MOVABLE, "TTTP"),
    form("slct", "", MOVABLE, "DDDS"),
    form("setp", "", "b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64|f16|f16x2|bf16|bf16x2", "PTTP"),
    form("set", "", "", "DSSP"),
    form("fma", "", FLOATS, "TTTT"),
    form("sqrt|rcp|rsqrt|sin|cos|lg2|ex2|tanh", "", FLOATS, "TT"),
    form("copysign", "", "f32|f64", "TTT"),
    form("testp", "", "f32|f64", "PT"),
    form("mov", "", "b16|b32|b64|b128|u16|s16|u32|s32|u64|s64|f32|f64|pred", "TT"),
    form("ld|ldu", "", MEMORY, "R"),
    form("st", "!async|bulk", MEMORY, "_R"),
    form("cvt", "!pack #2", "", "XY"),
    form("atom", "!v2|v4|v8|async !cas", "", "T_T"),
    form("atom", "cas", "", "T_TT"),
    form("red", "!v2|v4|v8|async", "", "_T"),
    form("shfl", "sync", "b32", "TTCCC"),
    form("vote", "sync ballot", "b32", "TPC"),
    form("vote", "sync", "", "PPC"),
    form("match", "", "b32|b64", "BTC"),
    form("redux", "!f32", "", "CCC"),
    form("activemask", "", "b32", "T"),
    form("nanosleep", "", "u32", "C"),
    form("cvta", "u64", "", "QQ"),
    form("ldmatrix", "", "", "B_"),
    form("stmatrix", "", "", "_B"),
    form("bar|barrier", "sync|arrive !warp !cluster", "", "CC"),
];

/// Cache operators.
const CACHE: &[&str] = &["ca", "cg", "cs", "lu", "cv", "wb", "wt"];
/// Memory orders.
const ORDERS: &[&str] = &["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio"];
/// Scopes.
const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

/// What an operand must be.
#[derive(Clone, Copy)]
enum Want {
    Same(Type),
    Wider(Type),
    Double(Type),
    Count,
    Pred,
    Any,
}

/// What is wrong with an instruction, if anything is.
pub(super) fn check(i: &Instruction, registers: &[(Type, String)]) -> Option<String> {
    modifiers(i).or_else(|| operands(i, registers))
}

fn mismatch(i: &Instruction) -> Option<String> {
    let mut name = i.opcode.clone();
    // ptxas counts some modifiers as part of the name.
    if matches!(name.as_str(), "mul" | "mad" | "shf" | "madc")
        && let Some(first) = i.modifiers.first().filter(|m| matches!(m.as_str(), "lo" | "hi" | "wide" | "l" | "r"))
    {
        name = format!("{name}.{first}");
    }
    Some(format!("Arguments mismatch for instruction '{name}'"))
}

fn operands(i: &Instruction, registers: &[(Type, String)]) -> Option<String> {
    let ty = |r: &Reg| registers.get(r.0 as usize).map_or(Type::B32, |r| r.0);
    for operand in &i.operands {
        if let Operand::Address(Base::Reg(r), _) = operand
            && !(is_bits(ty(r)) || Type::is_int(ty(r)))
        {
            let name = registers.get(r.0 as usize).map_or("?", |r| r.1.as_str());
            let word = ty(r).word();
            return Some(format!(
                "Illegal to use symbol '{name}' of type .{word} as address operand. Use integer or bit only."
            ));
        }
        let special = matches!(operand, Operand::Special(_));
        if special && !matches!(i.opcode.as_str(), "mov" | "cvt") {
            return Some(format!("Special register argument not allowed for instruction '{}'", i.opcode));
        }
    }
    let form = FORMS.iter().find(|f| f.opcodes.split('|').any(|o| o == i.opcode) && applies(f.when, i))?;
    let types: Vec<&str> = i.modifiers.iter().map(String::as_str).filter(|m| names_type(m)).collect();
    let (first, last) = (types.first().copied().unwrap_or("u32"), types.last().copied().unwrap_or("u32"));
    let two = form.roles.contains(['D', 'X']);
    if !form.types.is_empty() && types.len() == if two { 2 } else { 1 } && !form.types.split('|').any(|t| t == first) {
        return Some(match i.opcode.as_str() {
            "neg" | "abs" if matches!(first, "u16" | "u32" | "u64") => {
                format!("Instruction '{}' applies only to signed numeric types", i.opcode)
            }
            _ => format!("Unexpected instruction types specified for '{}'", i.opcode),
        });
    }
    let typed = form.roles.contains(['T', 'R', 'W', 'D', 'X']);
    if typed && types.len() != if two { 2 } else { 1 } && i.opcode != "vote" {
        return None;
    }
    let (Some(first), Some(last)) = (type_of(first), type_of(last)) else { return None };
    if i.opcode == "mov" {
        let count = if has_word(i, "v2") { 2 } else { 4 };
        if has_word(i, "v2") || has_word(i, "v4") {
            return vectors(i, first, count, &ty);
        }
        if matches!(i.operands.get(1), Some(Operand::Special(name)) if is_vector(name)) {
            return Some("Argument vector size mismatch for instruction 'mov'".to_string());
        }
        if i.operands.iter().any(|o| matches!(o, Operand::Vector(_))) {
            return packing(i, first, &ty);
        }
    }
    for (role, operand) in form.roles.chars().zip(&i.operands) {
        let want = match role {
            'T' | 'D' => Want::Same(first),
            'R' | 'X' => Want::Wider(first),
            'S' => Want::Same(last),
            'Y' => Want::Wider(last),
            'W' => Want::Double(first),
            'C' => Want::Count,
            'Q' => Want::Double(Type::U32),
            'B' => Want::Same(Type::B32),
            'P' => Want::Pred,
            _ => Want::Any,
        };
        let fine = match operand {
            Operand::Vector(items) => items.iter().all(|o| fits(want, o, &ty, true)),
            Operand::Pair(a, b) if matches!(want, Want::Pred) => fits(want, a, &ty, false) && fits(want, b, &ty, false),
            Operand::Pair(a, b) => fits(want, a, &ty, false) && fits(Want::Pred, b, &ty, false),
            Operand::Special(name) => special_fits(want, name),
            Operand::Symbol(..) if !matches!(i.opcode.as_str(), "mov" | "cvt" | "cvta") => {
                return Some(format!("A register is needed where '{}' has a symbol", i.opcode));
            }
            Operand::Symbol(..) if i.opcode == "mov" => !first.is_float(),
            other => fits(want, other, &ty, false),
        };
        if !fine {
            return mismatch(i);
        }
    }
    None
}

fn has_word(i: &Instruction, word: &str) -> bool {
    i.modifiers.iter().any(|m| m == word)
}

/// Special registers of four components, without a selector.
fn is_vector(name: &str) -> bool {
    let names = ["tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"];
    names.contains(&name)
}

/// `mov.v2` and `mov.v4`: vectors of so many elements of the type; a constant stands for all of them.
fn vectors(i: &Instruction, element: Type, count: usize, ty: &impl Fn(&Reg) -> Type) -> Option<String> {
    if element.bits() as usize * count > 128 {
        return Some("Vector type too large, exceeds 128 bit limit".to_string());
    }
    if element == Type::Pred {
        return Some("Vector qualifier is not allowed for instruction 'mov'".to_string());
    }
    let [d, a] = i.operands.as_slice() else { return mismatch(i) };
    if !matches!(d, Operand::Vector(_)) {
        return Some("Result vector expected".to_string());
    }
    let fine = |o: &Operand| match o {
        Operand::Vector(items) => items.len() == count && items.iter().all(|o| fits(Want::Same(element), o, ty, false)),
        Operand::Special(name) => count == 4 && is_vector(name) && special_fits(Want::Same(element), name),
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => fits(Want::Same(element), o, ty, false),
        _ => false,
    };
    if fine(d) && fine(a) { None } else { Some("Argument vector size mismatch for instruction 'mov'".to_string()) }
}

/// `mov` between a register and a vector: the elements have the register's bits together.
fn packing(i: &Instruction, whole: Type, ty: &impl Fn(&Reg) -> Type) -> Option<String> {
    let elements = |o: &Operand| match o {
        Operand::Vector(items) => items.iter().all(|item| match item {
            Operand::Reg(r) => ty(r) != Type::Pred && Type::bits(ty(r)) as usize * items.len() == whole.bits() as usize,
            _ => true,
        }),
        Operand::Reg(r) => Type::bits(ty(r)) == whole.bits() && ty(r) != Type::Pred,
        _ => true,
    };
    if i.operands.iter().all(elements) { None } else { mismatch(i) }
}

fn fits(want: Want, operand: &Operand, ty: &impl Fn(&Reg) -> Type, in_vector: bool) -> bool {
    match operand {
        Operand::Reg(r) => {
            let have = ty(r);
            match want {
                Want::Any => true,
                Want::Pred => have == Type::Pred,
                Want::Count => have.bits() == 32 && (is_bits(have) || have.is_int()),
                Want::Double(t) => have.bits() == 2 * t.bits() && (is_bits(have) || have.is_int()),
                Want::Same(t) => have.bits() == t.bits() && related(t, have),
                // Elements of a vector of floats may be integers.
                Want::Wider(t) if in_vector && t == Type::F32 && have.bits() == 32 => have != Type::F16x2,
                Want::Wider(t) => have.bits() >= t.bits() && related(t, have),
            }
        }
        Operand::Int(_) => match want {
            Want::Same(t) | Want::Wider(t) => !t.is_float(),
            _ => true,
        },
        Operand::F32(_) | Operand::F64(_) => {
            let width = if matches!(operand, Operand::F32(_)) { 32 } else { 64 };
            match want {
                Want::Same(t) | Want::Wider(t) => matches!(t, Type::F32 | Type::F64) || is_bits(t) && t.bits() == width,
                Want::Any => true,
                _ => false,
            }
        }
        _ => true,
    }
}

/// A `mov` of a special register has its size; the low half of one of 32 bits may be moved.
fn special_fits(want: Want, name: &str) -> bool {
    let Want::Same(t) = want else { return true };
    let wide = matches!(name, "clock64" | "globaltimer" | "current_graph_exec") || name.ends_with("_64");
    let either = matches!(name, "gridid" | "is_explicit_cluster");
    either || (is_bits(t) || t.is_int()) && (t.bits() == 64) == wide
}

/// Modifiers that need or exclude each other, and numbers of operands.
fn modifiers(i: &Instruction) -> Option<String> {
    let has = |word: &str| i.modifiers.iter().any(|m| m == word);
    match i.opcode.as_str() {
        "ld" | "st" if !has("async") && !has("bulk") => return memory(i),
        "ret" | "exit" | "trap" | "brkpt" if !i.operands.is_empty() => return mismatch(i),
        "setp" | "set" => return comparison(i),
        "cvt" => return conversion(i),
        "atom" | "red" if !(has("async") || has("v2") || has("v4") || has("v8") || i.modifiers.is_empty()) => {
            return atomic(i);
        }
        "bar" | "barrier" if !has("warp") && !has("cluster") => {
            let count = match (has("red"), i.operands.as_slice()) {
                (true, [_, _, count, _]) | (false, [_, count]) => count,
                _ => return None,
            };
            if matches!(count, Operand::Int(n) if n % 32 != 0) {
                return Some("Number of threads participating in barrier must be in multiple of warp size".to_string());
            }
        }
        "match" if has("any") && matches!(i.operands.first(), Some(Operand::Pair(..))) => {
            return Some("Predicate output not allowed for instruction 'match.any'".to_string());
        }
        "cp" if has("async") && !has("bulk") => {
            let spaces: Vec<&str> = i
                .modifiers
                .iter()
                .map(|m| m.split("::").next().unwrap_or_default())
                .filter(|m| matches!(*m, "shared" | "global"))
                .collect();
            if (has("ca") || has("cg")) && spaces != ["shared", "global"] {
                return Some("State space incorrect for instruction 'cp.async'".to_string());
            }
            if let [_, _, Operand::Int(size), Operand::Int(from), ..] = i.operands.as_slice()
                && !(0..=*size).contains(from)
            {
                let text = "out of range, expected to be in range";
                return Some(format!("Argument 3 of instruction 'cp.async': value '{from}' {text} [0..{size}]"));
            }
            if has("wait_group") && !matches!(i.operands.as_slice(), [Operand::Int(_)]) {
                return Some("Arguments mismatch for instruction 'cp.async.wait_group'".to_string());
            }
        }
        "mma" if i.modifiers.iter().any(|m| m.starts_with("m16n8k")) => {
            let layouts: Vec<&str> =
                i.modifiers.iter().map(String::as_str).filter(|m| matches!(*m, "row" | "col")).collect();
            if layouts.len() == 2 && layouts != ["row", "col"] {
                let (which, bad) = if layouts[0] == "col" { ("alayout", "col") } else { ("blayout", "row") };
                return Some(format!("Illegal {which} '.{bad}' for instruction 'mma'"));
            }
        }
        _ => {}
    }
    None
}

/// `ld` and `st`.
fn memory(i: &Instruction) -> Option<String> {
    let has = |word: &str| i.modifiers.iter().any(|m| m == word);
    let one = |words: &[&str]| i.modifiers.iter().map(String::as_str).find(|m| words.contains(m));
    let opcode = i.opcode.as_str();
    let illegal = |word: &str| Some(format!("Illegal modifier '.{word}' for instruction '{opcode}'"));
    let together = |a: &str, b: &str| Some(format!("Modifier '.{a}' cannot be combined with modifier '.{b}'"));
    let forbidden: &[&str] = match opcode {
        "ld" => &["wb", "wt", "release", "acq_rel", "sc"],
        _ => &["ca", "lu", "cv", "acquire", "acq_rel", "sc", "nc"],
    };
    if let Some(word) = one(forbidden) {
        return illegal(word);
    }
    let limit = if has("L2::cache_hint") { 3 } else { 2 };
    if i.operands.len() > limit {
        return mismatch(i);
    }
    let (cache, order, scope) = (one(CACHE), one(ORDERS), one(SCOPES));
    let space = i.modifiers.iter().map(|m| m.split("::").next().unwrap_or_default());
    let space =
        space.into_iter().find(|m| matches!(*m, "global" | "shared" | "local" | "const" | "param")).unwrap_or_default();
    if has("nc") {
        if let Some(order) = order {
            return together(order, "nc");
        }
        if space != "global" {
            return Some("Modifier '.nc' requires .global space".to_string());
        }
        if matches!(cache, Some("cv" | "lu")) {
            return Some("Illegal cache operation for instruction 'ld.nc'".to_string());
        }
    }
    if let (Some(cache), Some(level)) = (cache, i.modifiers.iter().find(|m| m.starts_with("L1::"))) {
        return together(level.trim_start_matches("L1::"), cache);
    }
    match (order, scope) {
        (None, Some(scope)) => {
            return Some(format!("Modifier '.{scope}' requires memory order with '{opcode}' instruction"));
        }
        (Some(order @ ("weak" | "volatile")), Some(scope)) => return together(order, scope),
        (Some(order @ ("relaxed" | "acquire" | "release")), None) => {
            return Some(format!("Modifier '.{order}' requires scope with '{opcode}' instruction"));
        }
        _ => {}
    }
    let order = order.filter(|o| *o != "weak")?;
    if let Some(cache) = cache {
        return together(order, cache);
    }
    let volatile_local = order == "volatile" && space == "local";
    if matches!(space, "const" | "param" | "local") && !volatile_local {
        return Some(format!("Modifier '.{order}' cannot be applied to '.{space}' space"));
    }
    None
}

/// `atom` and `red`.
fn atomic(i: &Instruction) -> Option<String> {
    let opcode = i.opcode.as_str();
    let forbidden: &[&str] = if opcode == "red" { &["weak", "acquire", "acq_rel"] } else { &["weak"] };
    if let Some(word) = i.modifiers.iter().find(|m| forbidden.contains(&m.as_str())) {
        return Some(format!("Illegal modifier '.{word}' for instruction '{opcode}'"));
    }
    const TABLE: &[(&str, &[&str])] = &[
        ("add", &["u32", "s32", "u64", "f64", "f16", "f16x2", "f32", "bf16", "bf16x2"]),
        ("min", &["u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"]),
        ("max", &["u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"]),
        ("inc", &["u32"]),
        ("dec", &["u32"]),
        ("and", &["b32", "b64"]),
        ("or", &["b32", "b64"]),
        ("xor", &["b32", "b64"]),
        ("exch", &["b32", "b64", "b128"]),
        ("cas", &["b16", "b32", "b64", "b128"]),
    ];
    let (op, types) = TABLE.iter().find(|(op, _)| i.modifiers.iter().any(|m| m == op))?;
    let ty = i.modifiers.iter().map(String::as_str).find(|m| names_type(m))?;
    if !types.contains(&ty) {
        let list: Vec<String> = types.iter().map(|t| format!(".{t}")).collect();
        let list = list.join(" or ");
        return Some(format!("Operation .{op} requires {list} type for instruction '{opcode}'"));
    }
    let half = matches!(ty, "f16" | "f16x2" | "bf16" | "bf16x2");
    (half && *op == "add" && !i.modifiers.iter().any(|m| m == "noftz"))
        .then(|| format!("'.noftz' modifier required for instruction '{opcode}' with type '.{ty}'"))
}

/// The comparison of `setp` and `set` must be one of the type that is compared.
fn comparison(i: &Instruction) -> Option<String> {
    let (ordered, unsigned) = (["lt", "le", "gt", "ge"], ["lo", "ls", "hi", "hs"]);
    let is = |m: &str| {
        matches!(m, "eq" | "ne" | "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "num" | "nan")
            || ordered.contains(&m)
            || unsigned.contains(&m)
    };
    let op = i.modifiers.iter().map(String::as_str).find(|m| is(m))?;
    let ty = i.modifiers.iter().rev().find_map(|m| type_of(m))?;
    if i.opcode == "set"
        && let [to, _] = i.modifiers.iter().filter_map(|m| type_of(m)).collect::<Vec<Type>>()[..]
        && !result_fits(to, ty)
    {
        return Some("Unexpected instruction types specified for 'set'".to_string());
    }
    if i.opcode == "setp"
        && matches!(ty, Type::F16 | Type::BF16)
        && matches!(i.operands.first(), Some(Operand::Pair(..)))
    {
        return Some("Predicate output not allowed for instruction 'setp'".to_string());
    }
    let to = i.modifiers.iter().find_map(|m| type_of(m));
    let flushes = matches!(ty, Type::F32 | Type::F16 | Type::F16x2) && !matches!(to, Some(Type::BF16 | Type::BF16x2));
    if has_word(i, "ftz") && !flushes {
        return Some(format!("Illegal modifier '.ftz' for instruction '{}'", i.opcode));
    }
    let fine = match op {
        "eq" | "ne" => true,
        _ if ty.is_float() => !unsigned.contains(&op),
        _ if is_bits(ty) => false,
        _ if ordered.contains(&op) => true,
        _ => unsigned.contains(&op) && matches!(ty, Type::U16 | Type::U32 | Type::U64),
    };
    (!fine).then(|| "Mismatch between instruction type and comparison qualifier".to_string())
}

/// The result types that `set` has for a type that is compared.
fn result_fits(to: Type, from: Type) -> bool {
    let packed = matches!(from, Type::F16x2 | Type::BF16x2);
    let half = matches!(from, Type::F16 | Type::BF16);
    match to {
        Type::U16 | Type::S16 => half,
        Type::U32 | Type::S32 => from != Type::B128 && from.bits() >= 16,
        Type::F16 => !packed && from != Type::BF16 && from.bits() >= 16,
        Type::BF16 => !packed && from.bits() >= 16,
        Type::F32 => !packed && !half && from.bits() >= 16,
        Type::F16x2 | Type::BF16x2 => to == from,
        _ => false,
    }
}

/// Which conversions round, and which must not say so.
fn conversion(i: &Instruction) -> Option<String> {
    let types: Vec<&str> = i.modifiers.iter().map(String::as_str).filter(|m| names_type(m)).collect();
    let [to, from] = types[..] else { return None };
    let (to, from) = (type_of(to)?, type_of(from)?);
    if matches!(to, Type::F16x2 | Type::BF16x2) || matches!(from, Type::F16x2 | Type::BF16x2) || i.operands.len() != 2 {
        return None;
    }
    let has = |words: [&str; 4]| i.modifiers.iter().any(|m| words.contains(&m.as_str()));
    let (whole, round) = (has(["rni", "rzi", "rmi", "rpi"]), has(["rn", "rz", "rm", "rp"]));
    let (required, allowed) = match (to.is_float(), from.is_float()) {
        (false, false) => (false, [false, false]),
        (false, true) => (true, [true, false]),
        (true, false) => (true, [false, true]),
        (true, true) if to == from => (false, [true, false]),
        (true, true) if to.bits() < from.bits() => (true, [false, true]),
        (true, true) if to.bits() == from.bits() => (false, [false, true]),
        (true, true) => (false, [false, from == Type::BF16]),
    };
    if whole && !allowed[0] || round && !allowed[1] {
        return Some("Illegal rounding modifier for instruction 'cvt'".to_string());
    }
    if required && !whole && !round {
        return Some("Rounding modifier required for instruction 'cvt'".to_string());
    }
    let flushes = i.modifiers.iter().any(|m| m == "ftz");
    (flushes && to != Type::F32 && from != Type::F32)
        .then(|| "Illegal modifier '.ftz' for instruction 'cvt'".to_string())
}

/// The types with one word each that registers can have.
fn type_of(word: &str) -> Option<Type> {
    match word {
        // Packed integers stand in the same registers as packed halves.
        "u16x2" | "s16x2" => Some(Type::F16x2),
        _ => Type::named(word),
    }
}

/// Opcodes that forms are known of, separated by `|`.
pub(super) fn opcodes() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|f| f.opcodes)
}

/// Whether a modifier is a type, known here or not.
pub(super) fn names_type(word: &str) -> bool {
    type_of(word).is_some()
        || matches!(word, "f32x2" | "tf32" | "ue8m0x2" | "s2f6x2" | "s4" | "u4" | "s2" | "u2" | "b1" | "b1024")
        || matches!(word, "e4m3" | "e5m2" | "e4m3x2" | "e5m2x2" | "e2m3x2" | "e3m2x2" | "e2m1x2")
        || matches!(word, "e4m3x4" | "e5m2x4" | "e2m3x4" | "e3m2x4" | "e2m1x4")
}

fn is_bits(ty: Type) -> bool {
    matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128)
}

/// Whether a register's type goes with an instruction's, sizes aside.
fn related(instruction: Type, register: Type) -> bool {
    if instruction == Type::Pred || register == Type::Pred {
        return instruction == register;
    }
    is_bits(instruction)
        || is_bits(register)
        || instruction == register
        // Packed halves count as an integer.
        || instruction.is_int() && (register.is_int() || register == Type::F16x2)
}
