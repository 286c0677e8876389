//! The syntax tree of a PTX module.
//!
//! The parser resolves what needs only names: registers, labels and `.loc` lines become indices,
//! nested scopes are flattened (a register or variable that shadows another gets its own entry).
//! Shorthands are written out: `%r1+4` as an operand and `x[%r1]` become instructions before the one that they stand
//! in, and a load or store without a space whose address is a symbol gets the symbol's space.
//! What an instruction *means* is decided later, by lowering; here it is an opcode, its
//! dot-separated modifiers, and operands.

use std::collections::BTreeMap;

/// Where a token stands in the PTX text; lines and columns count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pos {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub col: u32,
}

/// One PTX module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// `.version major.minor`.
    pub version: (u32, u32),
    /// `.target sm_NN[a|f]`.
    pub target: Target,
    /// `.file` table: index → path.
    pub files: BTreeMap<u32, String>,
    /// Variables at module scope (`.global`, `.const`, `.shared`).
    pub variables: Vec<Variable>,
    /// Functions and entries, declarations included, in text order; one for each name, a
    /// definition in the place of its declaration.
    pub functions: Vec<Function>,
    /// `.alias name, function`. Operands and relocations refer to the function already.
    pub aliases: Vec<(String, String)>,
    /// Strings of `.pragma` at module scope, in text order.
    pub pragmas: Vec<String>,
}

/// The architecture that the module was written for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// 75 for `sm_75`.
    pub sm: u32,
    /// `a` or `f` of `sm_90a`, `sm_100f`.
    pub suffix: Option<char>,
    /// `.target …, debug`.
    pub debug: bool,
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Reg,
    Param,
    Local,
    Shared,
    Global,
    Const,
    Generic,
}

/// A fundamental type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
}

impl Type {
    /// The word that a directive or a modifier has for it, without its dot.
    pub fn word(self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }

    /// Whether it holds floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2 | Type::F32 | Type::F64)
    }

    /// Bits of a value; 1 for a predicate.
    pub fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::BF16 => 16,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::BF16x2 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
            Type::B128 => 128,
        }
    }

    /// Whether it is an integer with or without a sign; `.b32` and its like are neither.
    pub fn is_int(self) -> bool {
        matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64) || self.is_signed()
    }

    /// Whether it is an integer with a sign.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// The type that a modifier names, without its dot.
    pub fn named(word: &str) -> Option<Type> {
        Some(match word {
            "pred" => Type::Pred,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::BF16,
            "bf16x2" => Type::BF16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            _ => return None,
        })
    }
}

/// Linkage of a module-scope name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Linkage {
    Private,
    Visible,
    Weak,
    Common,
    Extern,
}

/// A variable outside the register space.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name as written.
    pub name: String,
    /// State space.
    pub space: Space,
    /// Element type.
    pub ty: Type,
    /// Elements of a vector type (`.v2`, `.v4`), else 1.
    pub vector: u32,
    /// Alignment in bytes: `.align`, else that of the (vector) type.
    pub align: u32,
    /// Array dimensions; empty for a scalar. A first dimension of 0 is an unsized array (`x[]`).
    pub dims: Vec<u64>,
    /// Size in bytes (0 for an unsized array).
    pub size: u64,
    /// Linkage.
    pub linkage: Linkage,
    /// Initial bytes, without the addresses in `relocations`; may be shorter than `size` (rest is zero).
    pub init: Vec<u8>,
    /// Addresses to store into the initial bytes.
    pub relocations: Vec<Relocation>,
    /// Where it is declared.
    pub pos: Pos,
}

/// An address in an initialiser.
#[derive(Clone, Debug)]
pub struct Relocation {
    /// Byte offset in the variable.
    pub at: u64,
    /// The symbol whose address is stored (8 bytes).
    pub symbol: String,
    /// Added to the address.
    pub addend: i64,
    /// `generic(symbol)`: store the generic address, not the one in the symbol's space.
    pub generic: bool,
}

/// An entry's or function's parameter or return value, or a `.param` variable in a body.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// Elements of a vector type (`.v2`, `.v4`), else 1.
    pub vector: u32,
    /// Declared with dimensions.
    pub array: bool,
    /// Alignment in bytes.
    pub align: u32,
    /// Size in bytes; a predicate takes 4.
    pub size: u32,
    /// Byte offset in the parameter block of an entry (natural layout by alignment).
    pub offset: u32,
    /// `.ptr [.space] [.align n]` attribute of an entry parameter.
    pub ptr: Option<(Space, u32)>,
    /// True if declared as `.reg` (a `.func` may take registers).
    pub in_register: bool,
}

impl Param {
    /// What `ptxas` calls different about two parameters in the same place of two prototypes.
    pub fn difference(&self, other: &Param) -> Option<&'static str> {
        let layout = |p: &Param| (p.ty, p.vector, p.array, p.size);
        match () {
            () if self.in_register != other.in_register => Some("parameter state space"),
            () if layout(self) != layout(other) => Some("parameter types"),
            () if self.align != other.align => Some("parameter alignment"),
            () => None,
        }
    }
}

/// Performance-tuning directives of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Directives {
    pub maxntid: Option<[u32; 3]>,
    pub reqntid: Option<[u32; 3]>,
    pub minnctapersm: Option<u32>,
    pub maxnreg: Option<u32>,
    pub reqnctapercluster: Option<[u32; 3]>,
    pub maxclusterrank: Option<u32>,
    pub explicitcluster: bool,
    pub blocksareclusters: bool,
}

/// An `.entry` or a `.func`.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name.
    pub name: String,
    /// `.entry` rather than `.func`.
    pub is_entry: bool,
    /// Linkage.
    pub linkage: Linkage,
    /// Return values of a `.func`.
    pub returns: Vec<Param>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Performance-tuning directives.
    pub directives: Directives,
    /// `.noreturn`.
    pub noreturn: bool,
    /// `None` for a declaration.
    pub body: Option<Body>,
    /// Where it is declared.
    pub pos: Pos,
}

/// A register of a body: an index into [`Body::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// A label of a body: an index into [`Body::labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Label(pub u32);

/// A function's body, scopes flattened.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Type and name of every register that is declared *and used*.
    pub registers: Vec<(Type, String)>,
    /// Names of the labels, and the index in `instructions` that each stands before
    /// (`instructions.len()` for one at the end).
    pub labels: Vec<(String, usize)>,
    /// `.local`, `.shared`, `.param` variables declared in the body. Those that shadow another
    /// name are renamed to be unique; operands refer to the unique name.
    pub variables: Vec<Variable>,
    /// `.calltargets` lists by name.
    pub call_targets: BTreeMap<String, Vec<String>>,
    /// `.branchtargets` lists by name.
    pub branch_targets: BTreeMap<String, Vec<Label>>,
    /// `.callprototype` by name: return values and parameters.
    pub prototypes: BTreeMap<String, (Vec<Param>, Vec<Param>)>,
    /// The instructions in text order.
    pub instructions: Vec<Instruction>,
    /// Source locations that `Instruction::loc` indexes.
    pub locations: Vec<Location>,
}

/// A `.loc` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index into [`Module::files`].
    pub file: u32,
    /// Line.
    pub line: u32,
    /// Column.
    pub col: u32,
    /// The comment that followed it: LLVM prints the inline chain there, e.g.
    /// `mod.rs:83:5 @[ src/lib.rs:9:47 ]`.
    pub comment: String,
    /// File, line and column of the calls that were inlined, innermost first, from `inlined_at` as nvcc writes it.
    pub inlined: Vec<(u32, u32, u32)>,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// `@%p` or `@!%p`: the predicate and whether it is negated.
    pub guard: Option<(Reg, bool)>,
    /// First word, e.g. `ld`.
    pub opcode: String,
    /// The dot-separated rest, without dots, e.g. `["global", "v4", "b32"]`. A `::` stays inside
    /// its word: `["shared::cta", "b32"]`, `["L1::no_allocate"]`.
    pub modifiers: Vec<String>,
    /// Operands in text order. A `d|p` pair is one [`Operand::Pair`].
    pub operands: Vec<Operand>,
    /// Where it stands.
    pub pos: Pos,
    /// The last `.loc` before it, an index into [`Body::locations`].
    pub loc: Option<u32>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// `%r1`.
    Reg(Reg),
    /// `!%p1`.
    Not(Reg),
    /// `%r1.b0`, `%r1.h32`: parts of a register, of video instructions; without the dot.
    Selected(Reg, String),
    /// `-%r1`, of video instructions.
    Minus(Box<Operand>),
    /// A special register, without `%`: `tid.x`, `laneid`, `lanemask_lt`, `clock64`.
    Special(String),
    /// An integer immediate, as its 64-bit two's complement; `0x…U` and decimal alike. `WARP_SZ` is 32.
    Int(i64),
    /// `0f…`: the bits of an f32.
    F32(u32),
    /// `0d…` or a decimal float literal: the bits of an f64.
    F64(u64),
    /// A variable, parameter or function named outside brackets, with offset: `sym`, `sym+4`.
    Symbol(String, i64),
    /// `[base+offset]`.
    Address(Base, i64),
    /// `{%r1, %r2, _}`.
    Vector(Vec<Operand>),
    /// `d|p` (`shfl`, `setp`, `match`, `vote`, `elect`).
    Pair(Box<Operand>, Box<Operand>),
    /// `_`.
    Sink,
    /// A branch target, `.branchtargets` or `.callprototype` name resolved as a label.
    Label(Label),
    /// The parenthesised lists of a `call`; or an address with what else its brackets hold, as the
    /// coordinates of `[%rd1, {%r1, %r2}]`.
    List(Vec<Operand>),
}

/// What an address starts from.
#[derive(Clone, Debug, PartialEq)]
pub enum Base {
    /// A register.
    Reg(Reg),
    /// A symbol (variable or parameter).
    Symbol(String),
    /// Nothing: the offset is the address.
    Absolute,
}
