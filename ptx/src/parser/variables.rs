//! Variable declarations and their initialisers.

use super::super::ast::{Linkage, Pos, Relocation, Space, Type, Variable};
use super::super::lexer::{Kind, Token};
use super::constant::Constant;
use super::names::{Scopes, register};
use super::{Global, Parsed, Parser, shorten};

/// How many dimensions an array may have.
pub(super) const MAX_DIMS: usize = 32;

/// What stands before a variable's or parameter's name.
pub(super) struct Head {
    pub space: Option<Space>,
    /// `.align`, else the type's own.
    pub align: u32,
    pub vector: u32,
    pub ty: Type,
    pub pos: Pos,
}

impl Head {
    /// Bytes of one element, a vector counted whole.
    pub fn element(&self) -> u32 {
        size_of(self.ty) * self.vector
    }
}

/// Bytes of a fundamental type; predicates have no size in memory.
pub(super) fn size_of(ty: Type) -> u32 {
    if ty == Type::Pred { 0 } else { ty.bits() / 8 }
}

/// The types that variables may have.
fn variable_type(word: &str) -> Option<Type> {
    Type::named(word).filter(|ty| !matches!(ty, Type::BF16 | Type::BF16x2))
}

fn space(word: &str) -> Option<Space> {
    Some(match word {
        "reg" => Space::Reg,
        "param" => Space::Param,
        "local" => Space::Local,
        "shared" => Space::Shared,
        "global" => Space::Global,
        "const" => Space::Const,
        _ => return None,
    })
}

/// The bytes of an initialiser as they come.
#[derive(Default)]
struct Init<'a> {
    bytes: Vec<u8>,
    relocations: Vec<Relocation>,
    /// `0xFF(sym), 0xFF00(sym), …`: an address in the making, and how many of its bytes are there.
    partial: Option<(Address<'a>, u32)>,
    /// An inner list has ended before its time.
    short: Option<Pos>,
}

#[derive(Clone, Copy, PartialEq)]
struct Address<'a> {
    symbol: &'a str,
    addend: i64,
    generic: bool,
}

impl<'a> Parser<'a> {
    /// `.visible` and the like at module scope, and what it belongs to.
    pub(super) fn declaration(&mut self) -> Parsed<()> {
        let linkage = match self.token.text {
            "visible" => Some(Linkage::Visible),
            "weak" => Some(Linkage::Weak),
            "extern" => Some(Linkage::Extern),
            "common" => Some(Linkage::Common),
            _ => None,
        };
        if linkage.is_some() {
            self.advance();
        }
        let linkage = linkage.unwrap_or(Linkage::Private);
        if self.at_dot("attribute") {
            self.attribute()?;
        }
        if self.token.kind != Kind::Dot {
            return self.unexpected("expected a directive");
        }
        match self.token.text {
            "entry" => self.function(true, linkage),
            "func" => self.function(false, linkage),
            word if word == "align" || space(word).is_some() => self.variables(linkage, None),
            _ => self.unexpected("unknown directive"),
        }
    }

    /// `.attribute(.managed)`, `.attribute(.unified(1, 2))`.
    pub(super) fn attribute(&mut self) -> Parsed<()> {
        self.advance();
        self.expect(b'(')?;
        loop {
            if self.token.kind != Kind::Dot {
                return self.unexpected("expected an attribute");
            }
            self.advance();
            if self.take(b'(') {
                self.expect_u64()?;
                while self.take(b',') {
                    self.expect_u64()?;
                }
                self.expect(b')')?;
            }
            if !self.take(b',') {
                return self.expect(b')');
            }
        }
    }

    /// State space, alignment and type, in the orders that PTX allows.
    pub(super) fn head(&mut self) -> Parsed<Head> {
        let pos = self.token.pos;
        let (mut at, mut align, mut vector) = (None, None, 1);
        loop {
            if self.token.kind != Kind::Dot {
                return self.unexpected("expected a state space or a type");
            }
            let word = self.token.text;
            if let Some(space) = space(word) {
                if at.is_some() {
                    return self.unexpected("a state space stands there already");
                }
                at = Some(space);
                self.advance();
            } else if let Some(ty) = variable_type(word) {
                if ty == Type::Pred && at != Some(Space::Reg) {
                    return self.fail(pos, "A predicate variable must be in register state space");
                }
                self.advance();
                let natural = size_of(ty).max(1) * vector;
                if natural > 16 {
                    return self.fail(pos, "Vector type too large, exceeds 128 bit limit");
                }
                return Ok(Head { space: at, align: align.unwrap_or(natural), vector, ty, pos });
            } else {
                match word {
                    "align" => align = Some(self.alignment()?),
                    "attribute" => self.attribute()?,
                    "v2" | "v4" => {
                        vector = if word == "v2" { 2 } else { 4 };
                        self.advance();
                    }
                    "texref" | "samplerref" | "surfref" => {
                        return self.fail(self.token.pos, format!("Opaque type .{word} is not supported"));
                    }
                    "bf16" | "bf16x2" | "tf32" | "e4m3" | "e5m2" | "e4m3x2" | "e5m2x2" => {
                        return self
                            .fail(self.token.pos, format!("Type .{word} may only be used as an instruction type"));
                    }
                    _ => return self.unexpected("expected a state space or a type"),
                }
            }
        }
    }

    /// `.align 16`.
    pub(super) fn alignment(&mut self) -> Parsed<u32> {
        self.advance();
        let pos = self.token.pos;
        let align = self.expect_u32()?;
        if align.is_power_of_two() { Ok(align) } else { self.fail(pos, "Alignment must be a power of two") }
    }

    /// `[3][4]`, `[]`: dimensions; an unsized one is 0.
    pub(super) fn dims(&mut self) -> Parsed<Vec<u64>> {
        let mut dims = Vec::new();
        while self.at(b'[') {
            if dims.len() == MAX_DIMS {
                return self.unexpected("too many dimensions");
            }
            self.advance();
            if dims.is_empty() && self.take(b']') {
                dims.push(0);
                continue;
            }
            dims.push(self.expect_u64()?);
            self.expect(b']')?;
        }
        Ok(dims)
    }

    /// Bytes of an array; an error if they do not fit 64 bits.
    pub(super) fn array_size(&mut self, name: Token<'a>, element: u32, dims: &[u64]) -> Parsed<u64> {
        let size = dims.iter().try_fold(u64::from(element), |size, &n| size.checked_mul(n));
        match size.filter(|&size| size <= i64::MAX as u64) {
            Some(size) => Ok(size),
            None => self.fail(name.pos, format!("Size of '{}' exceeds 64 bits", shorten(name.text))),
        }
    }

    /// One declaration of variables: at module scope, or in a body if `scopes` is there.
    pub(super) fn variables(&mut self, linkage: Linkage, mut scopes: Option<&mut Scopes<'a>>) -> Parsed<()> {
        let head = self.head()?;
        let Some(space) = head.space else { return self.fail(head.pos, "No variable storage specified") };
        if scopes.is_none() {
            let place = match space {
                Space::Reg => ".reg",
                Space::Local => ".local",
                Space::Param => ".param",
                _ => "",
            };
            if !place.is_empty() {
                let text = format!("Variables in {place} state space may not be declared at module scope");
                return self.fail(head.pos, text);
            }
        }
        loop {
            let name = self.expect_name("a variable's name")?;
            match (&mut scopes, space) {
                (Some(scopes), Space::Reg) => self.register(&head, name, scopes)?,
                (scopes, _) => {
                    let variable = self.variable(&head, space, name, linkage)?;
                    match scopes {
                        Some(scopes) => {
                            let global = self.globals.contains_key(name.text);
                            if !scopes.declare_variable(name.text, variable, global) {
                                self.duplicate(name);
                            }
                        }
                        None => self.declare_global(name, variable),
                    }
                }
            }
            if !self.take(b',') {
                self.end_statement();
                return Ok(());
            }
        }
    }

    /// An identifier that may name something: not `_` nor a constant's name.
    pub(super) fn expect_name(&mut self, what: &str) -> Parsed<Token<'a>> {
        if matches!(self.token.text, "_" | "WARP_SZ") {
            return self.unexpected(&format!("expected {what}"));
        }
        self.expect_ident(what)
    }

    pub(super) fn duplicate(&mut self, name: Token<'a>) {
        self.error(name.pos, format!("Duplicate definition of variable '{}'", shorten(name.text)));
    }

    fn register(&mut self, head: &Head, name: Token<'a>, scopes: &mut Scopes<'a>) -> Parsed<()> {
        if self.at(b'[') {
            let text = format!("Variable '{}' cannot be allocated into a register", shorten(name.text));
            return self.fail(name.pos, text);
        }
        if self.at(b'=') {
            return self.no_init(name);
        }
        if self.at(b'<') {
            self.advance();
            let count = self.expect_u32()?;
            self.expect(b'>')?;
            if let Err(twice) = scopes.declare_range(name.text, register(head.ty, head.vector), count) {
                self.error(name.pos, format!("Duplicate definition of variable '{}'", shorten(&twice)));
            }
            return Ok(());
        }
        if !scopes.declare(name.text, register(head.ty, head.vector)) {
            self.duplicate(name);
        }
        Ok(())
    }

    fn no_init<T>(&mut self, name: Token<'a>) -> Parsed<T> {
        let text = format!("No initial value is allowed for '{}' in this state space", shorten(name.text));
        self.fail(name.pos, text)
    }

    fn variable(&mut self, head: &Head, space: Space, name: Token<'a>, linkage: Linkage) -> Parsed<Variable> {
        if self.at(b'<') {
            return self.unexpected("numbered names are supported for registers only");
        }
        let mut dims = self.dims()?;
        let mut init = Init::default();
        if self.at(b'=') {
            if !matches!(space, Space::Global | Space::Const) || linkage == Linkage::Extern {
                return self.no_init(name);
            }
            self.advance();
            self.initialiser(head, &mut dims, &mut init)?;
        }
        if space == Space::Param && head.vector > 1 && dims.is_empty() {
            let text = format!("Variable '{}' cannot be allocated in .param state space", shorten(name.text));
            self.error(name.pos, text);
        }
        if dims.contains(&0) && linkage != Linkage::Extern {
            let text = format!("Non-external variable '{}' has incomplete type", shorten(name.text));
            self.error(name.pos, text);
        }
        let size = self.array_size(name, head.element(), &dims)?;
        Ok(Variable {
            name: name.text.to_string(),
            space,
            ty: head.ty,
            vector: head.vector,
            align: head.align,
            dims,
            size,
            linkage,
            init: init.bytes,
            relocations: init.relocations,
            pos: name.pos,
        })
    }

    fn declare_global(&mut self, name: Token<'a>, variable: Variable) {
        match self.globals.get(name.text) {
            None => {
                self.globals.insert(name.text, Global::Variable(self.module.variables.len()));
                self.module.variables.push(variable);
            }
            Some(Global::Function(_)) => {
                self.error(name.pos, format!("Inconsistent redefinition of symbol '{}'", shorten(name.text)));
            }
            Some(&Global::Variable(index)) => {
                // One of the two may be a declaration of the other.
                let Some(old) = self.module.variables.get_mut(index) else { return };
                let (was, is) = (old.linkage, variable.linkage);
                if is == Linkage::Extern && was != Linkage::Private {
                } else if was == Linkage::Extern && is == Linkage::Private {
                    let text = format!("'.extern' variable '{}' cannot be resolved by a '.static'", shorten(name.text));
                    self.error(name.pos, text);
                } else if was == Linkage::Extern {
                    *old = variable;
                } else {
                    self.duplicate(name);
                }
            }
        }
    }

    // ---- initialisers ----

    fn initialiser(&mut self, head: &Head, dims: &mut [u64], init: &mut Init<'a>) -> Parsed<()> {
        match head.ty {
            Type::F16 | Type::F16x2 => return self.unexpected("no initial value is allowed for .f16 and .f16x2"),
            Type::B128 => return self.unexpected("no initial value is supported for .b128"),
            _ => {}
        }
        if dims.is_empty() {
            self.element(head, init)?;
        } else {
            let pos = self.token.pos;
            let count = self.list(head, dims, init)?;
            if let Some(first) = dims.first_mut().filter(|first| **first == 0) {
                // A list that is short further in leaves the length open.
                if init.short.is_some_and(|short| short != pos) {
                    init.short = None;
                }
                *first = count;
            }
        }
        if init.partial.is_some() {
            return self.unexpected("the bytes of an address are incomplete");
        }
        Ok(())
    }

    /// `{ …, … }` for dimensions `dims`; returns how many items it has.
    fn list(&mut self, head: &Head, dims: &[u64], init: &mut Init<'a>) -> Parsed<u64> {
        let open = self.token.pos;
        if !self.at(b'{') {
            return self.fail(open, "Initial value type mismatch");
        }
        self.advance();
        let (limit, inner) = dims.split_first().map_or((0, dims), |(first, inner)| (*first, inner));
        let mut count = 0;
        if !self.take(b'}') {
            loop {
                if limit != 0 && count == limit {
                    return self.fail(self.token.pos, "Greater number of elements in array initializer");
                }
                if let Some(short) = init.short {
                    // ISA and assemblers disagree on where the next row starts.
                    return self.fail(short, "An inner initialiser list that others follow must be complete");
                }
                if inner.is_empty() {
                    self.element(head, init)?;
                } else {
                    self.list(head, inner, init)?;
                }
                count += 1;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b'}')?;
        }
        if limit != 0 && count < limit {
            init.short = Some(open);
        }
        Ok(count)
    }

    /// One element: a value, or as many in braces as a vector has.
    fn element(&mut self, head: &Head, init: &mut Init<'a>) -> Parsed<()> {
        if head.vector == 1 {
            if self.at(b'{') {
                return self.fail(self.token.pos, "Initial value type mismatch");
            }
            return self.value(head.ty, init);
        }
        self.expect(b'{')?;
        for index in 0..head.vector {
            if index > 0 && !self.take(b',') {
                return self.fail(self.token.pos, "Incorrect number of elements in vector initializer");
            }
            self.value(head.ty, init)?;
        }
        self.expect(b'}')
    }

    fn value(&mut self, ty: Type, init: &mut Init<'a>) -> Parsed<()> {
        let pos = self.token.pos;
        let mismatch = "Initial value type mismatch";
        if self.token.kind == Kind::Ident && self.token.text != "WARP_SZ" {
            let address = self.address()?;
            match ty {
                Type::U64 => {}
                Type::U32 => return self.fail(pos, "Addresses of 32 bits are not supported as initial values"),
                _ => return self.fail(pos, mismatch),
            }
            self.complete(init, pos)?;
            init.relocations.push(address.at(init.bytes.len()));
            init.bytes.extend([0; 8]);
            return Ok(());
        }
        let constant = self.constant()?;
        if self.at(b'(') {
            let Constant::Int(mask, _) = constant else { return self.fail(pos, mismatch) };
            if ty != Type::U8 {
                return self.fail(pos, mismatch);
            }
            return self.address_byte(mask as u64, pos, init);
        }
        self.complete(init, pos)?;
        let bytes = match (ty, constant) {
            (Type::F32 | Type::B32, Constant::F32(bits)) => u64::from(bits),
            (Type::F32 | Type::B32, Constant::F64(value)) => u64::from((value as f32).to_bits()),
            (Type::F64 | Type::B64, Constant::F64(value)) => value.to_bits(),
            // What ptxas makes of a float among bytes: the last byte of its representation.
            (Type::B8, Constant::F64(value)) => value.to_bits() & 0xff,
            (Type::B8, Constant::F32(bits)) => u64::from(bits & 0xff),
            (Type::F32 | Type::F64, _) | (_, Constant::F32(_) | Constant::F64(_)) => return self.fail(pos, mismatch),
            (_, Constant::Int(value, _)) => value as u64,
        };
        init.bytes.extend(bytes.to_le_bytes().iter().take(size_of(ty) as usize));
        Ok(())
    }

    fn complete(&mut self, init: &Init<'a>, pos: Pos) -> Parsed<()> {
        if init.partial.is_some() { self.fail(pos, "The bytes of an address are incomplete") } else { Ok(()) }
    }

    /// `sym`, `sym+4`, `generic(sym)`, `generic(sym)+4`.
    fn address(&mut self) -> Parsed<Address<'a>> {
        let mut name = self.expect_name("a symbol")?;
        let generic = name.text == "generic" && self.take(b'(');
        if generic {
            name = self.expect_name("a symbol")?;
            self.expect(b')')?;
        }
        let addend = if self.take(b'+') { self.integer()? } else { 0 };
        match self.globals.get(name.text) {
            None => return self.fail(name.pos, format!("Invalid initial value symbol '{}'", shorten(name.text))),
            Some(Global::Variable(index)) => {
                let space = self.module.variables.get(*index).map(|v| v.space);
                if !matches!(space, Some(Space::Global | Space::Const)) {
                    let text = "Variable used as initial value not in .global or .const state space";
                    return self.fail(name.pos, text);
                }
            }
            Some(Global::Function(_)) if addend != 0 => return self.fail(name.pos, "Initial value type mismatch"),
            Some(Global::Function(_)) => {}
        }
        Ok(Address { symbol: name.text, addend, generic })
    }

    /// `0xFF00(sym)`: one byte of an address. Only whole addresses, lowest byte first, are taken.
    fn address_byte(&mut self, mask: u64, pos: Pos, init: &mut Init<'a>) -> Parsed<()> {
        self.advance();
        let address = self.address()?;
        self.expect(b')')?;
        let have = match init.partial {
            Some((before, have)) if before == address => have,
            Some(_) => return self.fail(pos, "The bytes of an address are incomplete"),
            None => 0,
        };
        if mask != 0xff << (8 * have) {
            return self.fail(pos, "The bytes of an address must all be there, lowest first");
        }
        if have == 7 {
            init.partial = None;
            init.relocations.push(address.at(init.bytes.len() - 7));
        } else {
            init.partial = Some((address, have + 1));
        }
        init.bytes.push(0);
        Ok(())
    }
}

impl Address<'_> {
    fn at(self, offset: usize) -> Relocation {
        Relocation { at: offset as u64, symbol: self.symbol.to_string(), addend: self.addend, generic: self.generic }
    }
}
