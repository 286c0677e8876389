//! Operands of instructions.

use super::super::ast::{Base, Label, Operand, Pos};
use super::super::lexer::{Kind, Token};
use super::constant::Constant;
use super::names::{Found, Scopes};
use super::{Global, Parsed, Parser, shorten};

/// Bit of a [`Label`] that is still an index into [`Scopes::references`].
pub(super) const PENDING: u32 = 1 << 31;

/// How names that nothing declares are taken.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Names {
    /// They are errors.
    Strict,
    /// They are labels that may come later (`call`, `brx`).
    Forward,
    /// All names are labels (`bra`).
    Labels,
}

/// Where an operand stands.
pub(super) struct Place<'p> {
    pub opcode: &'p str,
    pub modifiers: &'p [String],
    /// It is the first of its instruction.
    pub first: bool,
    /// Of the instruction.
    pub pos: Pos,
}

impl<'a> Parser<'a> {
    /// One operand; `call`'s parenthesised lists if `call`.
    pub(super) fn operand(
        &mut self,
        scopes: &mut Scopes<'a>,
        names: Names,
        call: bool,
        place: &Place<'_>,
    ) -> Parsed<Operand> {
        let first = match self.token.kind {
            Kind::Punct(b'{') => return self.vector(scopes),
            Kind::Punct(b'[') => return self.address_operand(scopes),
            Kind::Punct(b'(') if call => return self.call_list(scopes),
            _ => self.simple(scopes, names)?,
        };
        let first = match first {
            Operand::Reg(reg) if self.at(b'+') => self.sum(scopes, reg, place)?,
            Operand::Symbol(name, 0) if self.at(b'[') => self.subscript(scopes, &name, place)?,
            other => other,
        };
        if self.at(b'|') {
            self.advance();
            let second = self.simple(scopes, Names::Strict)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn simple(&mut self, scopes: &mut Scopes<'a>, names: Names) -> Parsed<Operand> {
        match self.token.kind {
            Kind::Ident if self.token.text == "_" => {
                self.advance();
                Ok(Operand::Sink)
            }
            Kind::Ident if self.token.text != "WARP_SZ" => self.name(scopes, names),
            Kind::Punct(b'!') => {
                let pos = self.token.pos;
                self.advance();
                if self.token.kind == Kind::Ident && self.token.text != "WARP_SZ" {
                    return match self.name(scopes, Names::Strict)? {
                        Operand::Reg(reg) => Ok(Operand::Not(reg)),
                        Operand::Sink => Ok(Operand::Sink),
                        _ => self.fail(pos, "`!` needs a predicate register"),
                    };
                }
                match self.constant()? {
                    Constant::Int(value, _) => Ok(Operand::Int(i64::from(value == 0))),
                    _ => self.fail(pos, "Constant expression type mismatch"),
                }
            }
            Kind::Punct(b'-') if self.before_name() => {
                self.advance();
                Ok(Operand::Minus(Box::new(self.name(scopes, Names::Strict)?)))
            }
            _ if self.at_constant() => Ok(match self.constant()? {
                Constant::Int(value, _) => Operand::Int(value),
                Constant::F32(bits) => Operand::F32(bits),
                Constant::F64(value) => Operand::F64(value.to_bits()),
            }),
            _ => self.unexpected("expected an operand"),
        }
    }

    /// Whether a name follows.
    fn before_name(&self) -> bool {
        let next = self.lexer.clone().next();
        next.kind == Kind::Ident && next.text != "WARP_SZ"
    }

    fn name(&mut self, scopes: &mut Scopes<'a>, names: Names) -> Parsed<Operand> {
        let token = self.advance();
        if names == Names::Labels {
            return self.forward(token, scopes);
        }
        let selected = self.token.kind == Kind::Dot && self.adjacent();
        match scopes.find(token.text) {
            Some(Found::Register(reg)) if !selected => Ok(Operand::Reg(reg)),
            Some(Found::Register(reg)) => {
                let selector = self.advance();
                let parts = match selector.text.split_at_checked(1) {
                    Some(("b", parts)) => (parts, 4, b'0'..=b'7'),
                    Some(("h", parts)) => (parts, 2, b'0'..=b'3'),
                    _ => ("", 0, b'0'..=b'0'),
                };
                if parts.0.is_empty() || parts.0.len() > parts.1 || !parts.0.bytes().all(|c| parts.2.contains(&c)) {
                    return self.fail(selector.pos, format!("Unknown video selector: '.{}'", shorten(selector.text)));
                }
                Ok(Operand::Selected(reg, selector.text.to_string()))
            }
            Some(Found::Vector(regs)) => {
                if !selected {
                    return Ok(Operand::Vector(regs.into_iter().map(Operand::Reg).collect()));
                }
                let selector = self.advance();
                let index = match selector.text {
                    "x" | "r" => 0,
                    "y" | "g" => 1,
                    "z" | "b" => 2,
                    "w" | "a" => 3,
                    _ => usize::MAX,
                };
                match regs.get(index) {
                    Some(reg) => Ok(Operand::Reg(*reg)),
                    None => self.bad_selector(selector),
                }
            }
            Some(Found::Symbol(name)) => self.symbol(name.to_string()),
            Some(Found::Renamed(index)) => {
                let name = scopes.body.variables.get(index).map(|v| v.name.clone()).unwrap_or_default();
                self.symbol(name)
            }
            Some(Found::Label(label)) => Ok(Operand::Label(label)),
            Some(Found::Unknown) => {
                self.skip_selector();
                Ok(Operand::Sink)
            }
            None => {
                if self.globals.contains_key(token.text) {
                    return self.symbol(token.text.to_string());
                }
                if let Some(special) = token.text.strip_prefix('%').filter(|name| is_special(name)) {
                    return self.special(special, selected);
                }
                if names == Names::Forward && !selected {
                    return self.forward(token, scopes);
                }
                self.unknown(token, scopes);
                self.skip_selector();
                Ok(Operand::Sink)
            }
        }
    }

    fn skip_selector(&mut self) {
        if self.token.kind == Kind::Dot && self.adjacent() {
            self.advance();
        }
    }

    fn bad_selector<T>(&mut self, selector: Token<'a>) -> Parsed<T> {
        self.fail(selector.pos, format!("Unknown vector selector: '{}'", shorten(selector.text)))
    }

    fn unknown(&mut self, token: Token<'a>, scopes: &mut Scopes<'a>) {
        self.error(token.pos, format!("Unknown symbol '{}'", shorten(token.text)));
        scopes.give_up(token.text);
    }

    /// A label by a name that may be defined later.
    pub(super) fn forward(&mut self, token: Token<'a>, scopes: &mut Scopes<'a>) -> Parsed<Operand> {
        let label = scopes.refer(token.text, token.pos);
        if label.0 & PENDING != 0 {
            return self.fail(token.pos, "Too many label references");
        }
        Ok(Operand::Label(Label(label.0 | PENDING)))
    }

    /// The offset behind a symbol.
    fn symbol(&mut self, name: String) -> Parsed<Operand> {
        let offset = if self.take(b'+') { self.integer()? } else { 0 };
        Ok(Operand::Symbol(name, offset))
    }

    fn special(&mut self, name: &str, selected: bool) -> Parsed<Operand> {
        if !selected {
            return Ok(Operand::Special(name.to_string()));
        }
        let selector = self.advance();
        match selector.text {
            "x" | "y" | "z" | "w" => Ok(Operand::Special(format!("{name}.{}", selector.text))),
            _ => self.bad_selector(selector),
        }
    }

    fn vector(&mut self, scopes: &mut Scopes<'a>) -> Parsed<Operand> {
        self.advance();
        let mut items = Vec::new();
        loop {
            items.push(self.simple(scopes, Names::Strict)?);
            if !self.take(b',') {
                self.expect(b'}')?;
                return Ok(Operand::Vector(items));
            }
        }
    }

    fn call_list(&mut self, scopes: &mut Scopes<'a>) -> Parsed<Operand> {
        self.advance();
        let mut items = Vec::new();
        if self.take(b')') {
            return Ok(Operand::List(items));
        }
        loop {
            items.push(self.simple(scopes, Names::Strict)?);
            if !self.take(b',') {
                self.expect(b')')?;
                return Ok(Operand::List(items));
            }
        }
    }

    /// `[base+offset]`; with coordinates or a sampler behind it, a list of the address and those.
    fn address_operand(&mut self, scopes: &mut Scopes<'a>) -> Parsed<Operand> {
        self.advance();
        let pos = self.token.pos;
        let address = if self.token.kind == Kind::Ident && self.token.text != "WARP_SZ" {
            match self.name(scopes, Names::Strict)? {
                Operand::Reg(reg) => {
                    let offset = self.offset()?;
                    Operand::Address(Base::Reg(reg), offset)
                }
                Operand::Symbol(name, offset) => Operand::Address(Base::Symbol(name), offset),
                Operand::Sink => {
                    self.offset()?;
                    Operand::Sink
                }
                _ => return self.fail(pos, "An address must be a register, a symbol or a constant"),
            }
        } else if self.at_constant() {
            let offset = self.integer()?;
            Operand::Address(Base::Absolute, offset)
        } else {
            return self.unexpected("expected an address");
        };
        if self.at(b'-') {
            return self.unexpected("expected `]`; a negative offset is written `+-8`");
        }
        if !self.at(b',') {
            self.expect(b']')?;
            return Ok(address);
        }
        let mut list = vec![address];
        while self.take(b',') {
            list.push(if self.at(b'{') { self.vector(scopes)? } else { self.simple(scopes, Names::Strict)? });
        }
        self.expect(b']')?;
        Ok(Operand::List(list))
    }

    fn offset(&mut self) -> Parsed<i64> {
        if self.take(b'+') { self.integer() } else { Ok(0) }
    }

    /// The predicate of a guard.
    pub(super) fn guard(&mut self, scopes: &mut Scopes<'a>) -> Parsed<Option<(super::ast::Reg, bool)>> {
        let negated = self.take(b'!');
        let pos: Pos = self.token.pos;
        if self.token.kind != Kind::Ident {
            return self.unexpected("expected a predicate");
        }
        match self.name(scopes, Names::Strict)? {
            Operand::Reg(reg) => Ok(Some((reg, negated))),
            Operand::Sink => Ok(None),
            _ => self.fail(pos, "A guard must be a predicate register"),
        }
    }

    /// A function's name, as in `.calltargets`.
    pub(super) fn function_name(&mut self) -> Parsed<String> {
        let token = self.expect_name("a function's name")?;
        if !matches!(self.globals.get(token.text), Some(Global::Function(_))) {
            self.error(token.pos, format!("Unknown symbol '{}'", shorten(token.text)));
        }
        Ok(token.text.to_string())
    }
}

/// The special registers of the ISA, without `%`.
fn is_special(name: &str) -> bool {
    const SPECIAL: &[&str] = &[
        "tid",
        "ntid",
        "ctaid",
        "nctaid",
        "laneid",
        "warpid",
        "nwarpid",
        "smid",
        "nsmid",
        "gridid",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "total_smem_size",
        "aggr_smem_size",
        "dynamic_smem_size",
        "current_graph_exec",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
    ];
    if SPECIAL.contains(&name) {
        return true;
    }
    let numbered = |prefix: &str, end: u32| {
        let number = name.strip_prefix(prefix).filter(|n| n.len() == 1 || !n.starts_with('0'));
        number.and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n < end)
    };
    let base = name.strip_suffix("_64").unwrap_or(name);
    numbered("envreg", 32)
        || numbered("reserved_smem_offset_", 2)
        || (base.starts_with("pm") && base.get(2..).is_some_and(|n| matches!(n.as_bytes(), [b'0'..=b'7'])))
}
