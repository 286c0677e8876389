//! Bodies: blocks, labels, tables, statements.

use super::super::ast::{Body, Instruction, Label, Location, Operand};
use super::super::lexer::{Kind, Token};
use super::functions::{Owner, Params};
use super::names::Scopes;
use super::operands::{Names, PENDING, Place};
use super::{MAX_DIAGNOSTICS, Parsed, Parser, shorten};

/// How deep blocks may nest.
pub(super) const MAX_BLOCKS: usize = 512;

/// Directives that stand at module scope only.
const OUTER: &[&str] = &["entry", "func", "visible", "weak", "extern", "version", "target", "alias", "section"];

impl<'a> Parser<'a> {
    /// A body whose `{` comes next. `scopes` holds the parameters.
    pub(super) fn body(&mut self, mut scopes: Scopes<'a>, function: &str) -> Body {
        self.advance();
        while !scopes.stack.is_empty() {
            match self.token.kind {
                Kind::Punct(b'{') if scopes.stack.len() >= MAX_BLOCKS => {
                    let _: Parsed<()> = self.unexpected("blocks are nested too deeply");
                    self.skip_braces("block");
                }
                Kind::Punct(b'{') => {
                    let open = self.advance().pos;
                    scopes.push(open);
                }
                Kind::Punct(b'}') => {
                    self.advance();
                    scopes.pop();
                }
                Kind::Eof => {
                    let open = scopes.stack.last().map(|s| s.open).unwrap_or_default();
                    if !self.cut {
                        self.error(open, format!("Unterminated body of '{}': no closing `}}`", shorten(function)));
                    }
                    return scopes.body;
                }
                // The body's `}` is missing: the module goes on from here. Labels that were still to
                // come are not missed.
                Kind::Dot if OUTER.contains(&self.token.text) => {
                    let open = scopes.stack.first().map(|s| s.open).unwrap_or_default();
                    self.error(open, format!("Unterminated body of '{}': no closing `}}`", shorten(function)));
                    return scopes.body;
                }
                Kind::Dot => {
                    if self.body_directive(&mut scopes).is_err() {
                        self.recover();
                    }
                }
                Kind::Ident | Kind::Punct(b'@') => {
                    if self.statement(&mut scopes).is_err() {
                        self.recover();
                    }
                }
                _ => {
                    let _: Parsed<()> = self.unexpected("expected an instruction");
                    if self.advance().kind != Kind::Punct(b';') {
                        self.recover();
                    }
                }
            }
        }
        self.resolve_labels(&mut scopes);
        scopes.body
    }

    fn body_directive(&mut self, scopes: &mut Scopes<'a>) -> Parsed<()> {
        match self.token.text {
            "reg" | "local" | "shared" | "param" | "global" | "const" | "align" => {
                self.variables(super::ast::Linkage::Private, Some(scopes))
            }
            "loc" => self.loc(scopes),
            "pragma" => self.pragma().map(drop),
            "file" => self.file(),
            _ => {
                let failed = self.unexpected("unknown directive");
                self.advance();
                failed
            }
        }
    }

    /// `.loc file line col [, function_name label [+ n], inlined_at file line col] // comment`
    fn loc(&mut self, scopes: &mut Scopes<'a>) -> Parsed<()> {
        self.advance();
        let file = self.expect_u32()?;
        let line = self.expect_u32()?;
        let col = self.expect_u32()?;
        let mut inlined = Vec::new();
        while self.take(b',') {
            match self.expect_ident("`function_name` or `inlined_at`")?.text {
                "function_name" => {
                    self.expect_ident("a label")?;
                    if self.take(b'+') {
                        self.expect_u32()?;
                    }
                }
                "inlined_at" => {
                    let place = (self.expect_u32()?, self.expect_u32()?, self.expect_u32()?);
                    inlined = scopes.inlined(place);
                }
                _ => return self.unexpected("expected `function_name` or `inlined_at` before it"),
            }
        }
        let comment = self.lexer.comment_after(self.last_end).to_string();
        scopes.set_location(Location { file, line, col, comment, inlined });
        Ok(())
    }

    /// A label or an instruction.
    fn statement(&mut self, scopes: &mut Scopes<'a>) -> Parsed<()> {
        let start = self.token.pos;
        let guarded = self.take(b'@');
        let guard = if guarded { self.guard(scopes)? } else { None };
        let opcode = self.expect_ident("an instruction")?;
        if !guarded && self.at(b':') {
            self.advance();
            return self.label(opcode, scopes);
        }
        let mut modifiers = Vec::new();
        while self.token.kind == Kind::Dot {
            modifiers.push(self.advance().text.to_string());
        }
        let (names, call) = match opcode.text {
            "bra" => (Names::Labels, false),
            "brx" => (Names::Forward, false),
            "call" => (Names::Forward, true),
            _ => (Names::Strict, false),
        };
        let references = scopes.references.len();
        let mut operands = Vec::new();
        if !self.at(b';') {
            loop {
                let pos = self.token.pos;
                let place =
                    Place { opcode: opcode.text, modifiers: &modifiers, first: operands.is_empty(), pos: start };
                let operand = self.operand(scopes, names, call, &place)?;
                // Only video instructions have parts of registers, and only `vmad` has negation; lowering looks at the rest.
                match &operand {
                    Operand::Selected(..) if !opcode.text.starts_with('v') => {
                        let place = if operands.is_empty() { "destination" } else { "source operand" };
                        let text =
                            format!("Video selector is not allowed on {place} for instruction '{}'", opcode.text);
                        return self.fail(pos, text);
                    }
                    Operand::Minus(_) if opcode.text != "vmad" => {
                        let text = format!("Operand negation not allowed for instruction '{}'", opcode.text);
                        return self.fail(pos, text);
                    }
                    _ => operands.push(operand),
                }
                if !self.take(b',') {
                    break;
                }
            }
        }
        if scopes.references.len() > references {
            scopes.unresolved.push(scopes.body.instructions.len());
        }
        self.end_statement();
        let opcode = opcode.text.to_string();
        let mut instruction = Instruction { guard, opcode, modifiers, operands, pos: start, loc: scopes.location };
        self.spaced(scopes, &mut instruction);
        scopes.body.instructions.push(instruction);
        Ok(())
    }

    fn label(&mut self, name: Token<'a>, scopes: &mut Scopes<'a>) -> Parsed<()> {
        let table = self.token.kind == Kind::Dot
            && matches!(self.token.text, "branchtargets" | "calltargets" | "callprototype");
        let Some(label) = scopes.label(name.text, table) else {
            self.error(name.pos, format!("Duplicate definition of label '{}'", shorten(name.text)));
            if table {
                self.recover();
            }
            return Ok(());
        };
        if !table {
            return Ok(());
        }
        let key = scopes.label_name(label);
        match self.advance().text {
            "branchtargets" => {
                let mut targets = Vec::new();
                loop {
                    let target = self.expect_ident("a label")?;
                    if let Operand::Label(label) = self.forward(target, scopes)? {
                        targets.push(label);
                    }
                    if !self.take(b',') {
                        break;
                    }
                }
                scopes.body.branch_targets.insert(key, targets);
            }
            "calltargets" => {
                let mut targets = vec![self.function_name()?];
                while self.take(b',') {
                    targets.push(self.function_name()?);
                }
                scopes.body.call_targets.insert(key, targets);
            }
            _ => {
                let returns = if self.at(b'(') { self.params(Owner::Prototype) } else { Params::default() };
                if !(self.token.kind == Kind::Ident && self.token.text == "_") {
                    return self.unexpected("expected `_`");
                }
                self.advance();
                let params = if self.at(b'(') { self.params(Owner::Prototype) } else { Params::default() };
                while self.token.kind == Kind::Dot {
                    match self.token.text {
                        "noreturn" => {
                            self.advance();
                        }
                        "abi_preserve" | "abi_preserve_control" => {
                            self.advance();
                            self.expect_u32()?;
                        }
                        _ => return self.unexpected("unknown directive of a prototype"),
                    }
                }
                scopes.body.prototypes.insert(key, (returns.0, params.0));
            }
        }
        self.end_statement();
        Ok(())
    }

    /// Turns references into labels; says which have none.
    fn resolve_labels(&mut self, scopes: &mut Scopes<'a>) {
        if self.diagnostics.len() < MAX_DIAGNOSTICS {
            let missing: Vec<_> =
                scopes.references.iter().filter(|r| r.label.is_none()).map(|r| (r.pos, r.name)).collect();
            for (pos, name) in missing {
                self.error(pos, format!("Unknown symbol '{}'", shorten(name)));
            }
        }
        let Scopes { body, references, unresolved, .. } = scopes;
        let resolve = |label: &mut Label| {
            if label.0 & PENDING != 0 {
                let reference = references.get((label.0 & !PENDING) as usize);
                *label = reference.and_then(|r| r.label).unwrap_or_default();
            }
        };
        for &index in unresolved.iter() {
            let Some(instruction) = body.instructions.get_mut(index) else { continue };
            for operand in &mut instruction.operands {
                if let Operand::Label(label) = operand {
                    resolve(label);
                }
            }
        }
        body.branch_targets.values_mut().flatten().for_each(resolve);
    }
}
