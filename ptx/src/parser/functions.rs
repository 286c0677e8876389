//! Entries, functions, their parameters and directives.

use super::super::ast::{Directives, Function, Linkage, Param, Space, Type};
use super::super::lexer::{Kind, Token};
use super::names::Scopes;
use super::{Global, Parsed, Parser, shorten};

/// Where a parameter list belongs to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Owner {
    Entry,
    Function,
    /// `.callprototype`: names may be `_`.
    Prototype,
}

/// What differs between two prototypes of a function.
fn prototypes_differ(a: &Function, b: &Function) -> Option<&'static str> {
    if a.params.len() != b.params.len() {
        return Some("number of parameters");
    }
    if a.returns.len() != b.returns.len() {
        return Some("number of return values");
    }
    let pairs = a.returns.iter().zip(&b.returns).chain(a.params.iter().zip(&b.params));
    pairs.into_iter().find_map(|(a, b)| a.difference(b))
}

/// A parameter list with the names as the text has them.
pub(super) type Params<'a> = (Vec<Param>, Vec<Token<'a>>);

impl<'a> Parser<'a> {
    /// `.entry …` or `.func …`, up to and with the body or `;`.
    pub(super) fn function(&mut self, is_entry: bool, linkage: Linkage) -> Parsed<()> {
        self.advance();
        if self.at_dot("attribute") {
            self.attribute()?;
        }
        let owner = if is_entry { Owner::Entry } else { Owner::Function };
        let returns = if !is_entry && self.at(b'(') { self.params(owner) } else { Params::default() };
        let name = self.expect_name(if is_entry { "an entry's name" } else { "a function's name" })?;
        let params = if self.at(b'(') { self.params(owner) } else { Params::default() };
        if returns.0.len() > 1 && returns.0.iter().any(|p| !p.in_register) {
            self.error(name.pos, "Multiple return parameters require .register state space");
        }
        let (directives, noreturn) = self.directives(is_entry)?;
        let mut function = Function {
            name: name.text.to_string(),
            is_entry,
            linkage,
            returns: returns.0,
            params: params.0,
            directives,
            noreturn,
            body: None,
            pos: name.pos,
        };
        let defined = self.at(b'{');
        let fresh = self.check_redeclaration(&function, name, defined);
        let index = match self.globals.get(name.text) {
            Some(Global::Function(index)) => *index,
            _ => {
                let index = self.module.functions.len();
                if fresh {
                    self.globals.insert(name.text, Global::Function(index));
                }
                index
            }
        };
        if defined {
            let mut scopes = Scopes::new(self.token.pos);
            for (params, names) in [(&function.returns, returns.1), (&function.params, params.1)] {
                let words: Vec<&str> = names.iter().map(|n| n.text).collect();
                for twice in scopes.declare_params(params, &words) {
                    self.duplicate(names[twice]);
                }
            }
            function.body = Some(self.body(scopes, name.text));
        } else if self.at(b';') {
            self.advance();
        } else {
            return self.unexpected("expected a body or `;`");
        }
        // One entry for each name: a definition takes its declaration's place.
        match self.module.functions.get_mut(index) {
            None => self.module.functions.push(function),
            Some(old) if fresh && (defined || old.body.is_none()) => *old = function,
            Some(_) => {}
        }
        Ok(())
    }

    /// Reports a clash with what the name stands for already; true if there is none.
    fn check_redeclaration(&mut self, function: &Function, name: Token<'a>, defined: bool) -> bool {
        let text = shorten(name.text);
        let problem = match self.globals.get(name.text) {
            _ if defined && function.linkage == Linkage::Extern => {
                Some(format!("Function definition conflicts with '.extern' declaration for function '{text}'"))
            }
            None => None,
            Some(Global::Variable(_)) => Some(format!("Inconsistent redefinition of symbol '{text}'")),
            Some(Global::Function(index)) => match self.module.functions.get(*index) {
                Some(old) if defined && old.body.is_some() => {
                    Some(format!("Duplicate definition of function '{text}'"))
                }
                Some(old) if old.is_entry != function.is_entry => {
                    Some(format!("Inconsistent redefinition of symbol '{text}'"))
                }
                Some(old) => prototypes_differ(old, function)
                    .map(|what| format!("Inconsistent prototypes of '{text}', {what} differ")),
                None => None,
            },
        };
        match problem {
            Some(problem) => {
                self.error(name.pos, problem);
                false
            }
            None => true,
        }
    }

    /// `( … )`. Recovers inside: a bad parameter list does not cost the body.
    pub(super) fn params(&mut self, owner: Owner) -> Params<'a> {
        let mut list = Params::default();
        self.advance();
        if self.take(b')') {
            return list;
        }
        let mut end = 0u32;
        loop {
            match self.param(owner, &mut end) {
                Ok((param, name)) => {
                    list.0.push(param);
                    list.1.push(name);
                }
                Err(_) => {
                    while !matches!(self.token.kind, Kind::Eof | Kind::Punct(b',' | b')' | b'{' | b'}' | b';')) {
                        self.advance();
                    }
                }
            }
            if self.take(b',') {
                continue;
            }
            if !self.take(b')') {
                let _: Parsed<()> = self.unexpected("expected `,` or `)`");
                while !matches!(self.token.kind, Kind::Eof | Kind::Punct(b')' | b'{' | b'}' | b';')) {
                    self.advance();
                }
                self.take(b')');
            }
            return list;
        }
    }

    fn param(&mut self, owner: Owner, end: &mut u32) -> Parsed<(Param, Token<'a>)> {
        let head = self.head()?;
        let mut ptr = None;
        if owner == Owner::Entry && self.take_dot("ptr") {
            let space = match self.token.text {
                _ if self.token.kind != Kind::Dot => Space::Generic,
                "global" => Space::Global,
                "const" => Space::Const,
                "local" => Space::Local,
                "shared" => Space::Shared,
                "align" => Space::Generic,
                _ => return self.unexpected("expected a state space or `.align`"),
            };
            if space != Space::Generic {
                self.advance();
            }
            let align = if self.at_dot("align") { self.alignment()? } else { 4 };
            ptr = Some((space, align));
        }
        let name = if owner == Owner::Prototype && self.token.kind == Kind::Ident && self.token.text == "_" {
            self.advance()
        } else {
            self.expect_name("a parameter's name")?
        };
        let text = shorten(name.text);
        let in_register = match head.space {
            Some(Space::Param) => false,
            Some(Space::Reg) if owner != Owner::Entry => true,
            _ => {
                let whose = if owner == Owner::Entry { "Entry parameter" } else { "Parameter" };
                return self.fail(name.pos, format!("{whose} '{text}' must have .param state space"));
            }
        };
        let dims = self.dims()?;
        if head.vector > 1 && !in_register && dims.is_empty() {
            return self.fail(name.pos, format!("Variable '{text}' cannot be allocated in .param state space"));
        }
        if in_register && !dims.is_empty() {
            return self.fail(name.pos, format!("Variable '{text}' cannot be allocated into a register"));
        }
        if owner == Owner::Entry && dims.contains(&0) {
            return self.fail(name.pos, format!("Entry parameter '{text}' has incomplete type"));
        }
        // A predicate is passed as a word.
        let element = if head.ty == Type::Pred { 4 } else { head.element() };
        let size = self.array_size(name, element, &dims)?;
        let mask = head.align - 1;
        let offset = end.checked_add(mask).map(|at| at & !mask);
        let fits = u32::try_from(size).ok().zip(offset).and_then(|(size, at)| Some((size, at, at.checked_add(size)?)));
        let Some((size, offset, behind)) = fits else {
            return self.fail(name.pos, format!("Parameter '{text}' does not fit the parameter space"));
        };
        *end = behind;
        let param = Param {
            name: name.text.to_string(),
            ty: head.ty,
            vector: head.vector,
            array: !dims.is_empty(),
            align: head.align,
            size,
            offset,
            ptr,
            in_register,
        };
        Ok((param, name))
    }

    /// Directives between a function's head and its body.
    fn directives(&mut self, is_entry: bool) -> Parsed<(Directives, bool)> {
        let mut found = Directives::default();
        let mut noreturn = false;
        while self.token.kind == Kind::Dot {
            let word = self.token.text;
            match word {
                "noreturn" if !is_entry => {
                    self.advance();
                    noreturn = true;
                }
                "abi_preserve" | "abi_preserve_control" if !is_entry => {
                    self.advance();
                    self.expect_u32()?;
                }
                "pragma" => drop(self.pragma()?),
                "maxntid" | "reqntid" | "reqnctapercluster" if is_entry => {
                    self.advance();
                    let shape = self.shape(word)?;
                    match word {
                        "maxntid" => found.maxntid = Some(shape),
                        "reqntid" => found.reqntid = Some(shape),
                        _ => found.reqnctapercluster = Some(shape),
                    }
                    if found.maxntid.is_some() && found.reqntid.is_some() {
                        let text = "Conflicting directives: .maxntid and .reqntid cannot both be specified";
                        self.error(self.token.pos, text);
                        found.maxntid = None;
                    }
                }
                "minnctapersm" | "maxnreg" | "maxnctapersm" | "maxclusterrank" if is_entry => {
                    self.advance();
                    let value = Some(self.positive(word)?);
                    match word {
                        "minnctapersm" => found.minnctapersm = value,
                        "maxnreg" => found.maxnreg = value,
                        "maxclusterrank" => found.maxclusterrank = value,
                        _ => {}
                    }
                }
                "explicitcluster" | "blocksareclusters" if is_entry => {
                    self.advance();
                    found.explicitcluster |= word == "explicitcluster";
                    found.blocksareclusters |= word == "blocksareclusters";
                }
                _ => return self.unexpected("unknown directive of a function"),
            }
        }
        Ok((found, noreturn))
    }

    fn positive(&mut self, what: &str) -> Parsed<u32> {
        let pos = self.token.pos;
        match self.expect_u32()? {
            0 => self.fail(pos, format!("Positive non-zero value expected for {what}")),
            value => Ok(value),
        }
    }

    /// One to three sizes.
    fn shape(&mut self, what: &str) -> Parsed<[u32; 3]> {
        let mut shape = [1; 3];
        for (index, size) in shape.iter_mut().enumerate() {
            if index > 0 && !self.take(b',') {
                break;
            }
            *size = self.positive(what)?;
        }
        Ok(shape)
    }
}
