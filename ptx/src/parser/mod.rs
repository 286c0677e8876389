//! Recursive descent over PTX text.
//!
//! Every parsing method has reported what was wrong when it returns [`Failed`]; its caller
//! recovers (see [`Parser::recover`]) and goes on, so that one run finds many errors. Errors that
//! concern a name only (an undeclared register) are reported without failing.
//!
//! What is recursive is bounded: expressions by [`constant::MAX_DEPTH`], initialisers by
//! [`variables::MAX_DIMS`], blocks are kept on a stack of at most [`body::MAX_BLOCKS`].

mod body;
mod constant;
mod elements;
mod functions;
mod names;
mod operands;
mod variables;

use super::ast::{Base, Module, Operand, Pos};
use super::diagnostics::{Diagnostic, excerpt};
use super::lexer::{Bad, Kind, Lexer, Token};
use super::{MAX_DIAGNOSTICS, ast};
use foldhash::{HashMap, HashMapExt};

/// The error is in the list already.
#[derive(Debug)]
struct Failed;

type Parsed<T> = Result<T, Failed>;

/// A module-scope name.
#[derive(Clone, Copy)]
enum Global {
    Variable(usize),
    Function(usize),
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token that comes next.
    token: Token<'a>,
    /// Where the token before it ended.
    last_end: usize,
    diagnostics: Vec<Diagnostic>,
    /// An unterminated comment has swallowed the rest, and that is reported.
    cut: bool,
    module: Module,
    globals: HashMap<&'a str, Global>,
}

pub(super) fn parse(text: &str) -> Result<Module, Vec<Diagnostic>> {
    let mut lexer = Lexer::new(text);
    let token = lexer.next();
    let module = Module::default();
    let mut parser =
        Parser { lexer, token, last_end: 0, diagnostics: Vec::new(), cut: false, module, globals: HashMap::new() };
    parser.module();
    parser.resolve_aliases();
    let Parser { mut diagnostics, module, .. } = parser;
    if diagnostics.is_empty() {
        Ok(module)
    } else {
        diagnostics.sort_by_key(|d| d.pos);
        Err(diagnostics)
    }
}

/// Directives that start something at module scope or a statement in a body: where an error ends
/// at the latest, if one stands first on its line.
const ANCHORS: &[&str] = &[
    "version",
    "target",
    "address_size",
    "file",
    "loc",
    "section",
    "visible",
    "weak",
    "extern",
    "common",
    "entry",
    "func",
    "global",
    "const",
    "shared",
    "local",
    "reg",
    "alias",
    "pragma",
];

impl<'a> Parser<'a> {
    // ---- tokens ----

    fn advance(&mut self) -> Token<'a> {
        let token = self.token;
        self.last_end = token.end;
        self.token = self.lexer.next();
        token
    }

    fn at(&self, c: u8) -> bool {
        self.token.kind == Kind::Punct(c)
    }

    fn at_dot(&self, word: &str) -> bool {
        self.token.kind == Kind::Dot && self.token.text == word
    }

    /// No blank stands between the last token and this one.
    fn adjacent(&self) -> bool {
        self.token.start == self.last_end
    }

    fn take(&mut self, c: u8) -> bool {
        let here = self.at(c);
        if here {
            self.advance();
        }
        here
    }

    fn take_dot(&mut self, word: &str) -> bool {
        let here = self.at_dot(word);
        if here {
            self.advance();
        }
        here
    }

    fn expect(&mut self, c: u8) -> Parsed<()> {
        if self.take(c) {
            return Ok(());
        }
        self.unexpected(&format!("expected `{}`", c as char))
    }

    fn expect_ident(&mut self, what: &str) -> Parsed<Token<'a>> {
        if self.token.kind == Kind::Ident {
            return Ok(self.advance());
        }
        self.unexpected(&format!("expected {what}"))
    }

    fn expect_string(&mut self) -> Parsed<&'a str> {
        if self.token.kind == Kind::Str {
            return Ok(self.advance().text);
        }
        self.unexpected("expected a string")
    }

    // ---- errors ----

    fn error(&mut self, pos: Pos, message: impl Into<String>) {
        if self.diagnostics.len() >= MAX_DIAGNOSTICS {
            return;
        }
        let line_text = self.line_text(pos);
        self.diagnostics.push(Diagnostic { pos, message: message.into(), line_text });
        if self.diagnostics.len() == MAX_DIAGNOSTICS {
            self.lexer.stop();
            self.token = self.lexer.next();
        }
    }

    fn line_text(&self, pos: Pos) -> String {
        let text = self.lexer.text();
        // Errors mostly concern the line of the last token: look back from there.
        let near = self.token.start.min(text.len());
        let line = if pos.line == self.token.pos.line || text.is_empty() {
            let start = text.as_bytes()[..near].iter().rposition(|&c| c == b'\n').map_or(0, |at| at + 1);
            text.get(start..).and_then(|rest| rest.split('\n').next())
        } else {
            text.split('\n').nth((pos.line as usize).saturating_sub(1))
        };
        excerpt(line.unwrap_or_default(), pos.col)
    }

    fn fail<T>(&mut self, pos: Pos, message: impl Into<String>) -> Parsed<T> {
        self.error(pos, message);
        Err(Failed)
    }

    /// Reports the next token as one that must not stand there.
    fn unexpected<T>(&mut self, wanted: &str) -> Parsed<T> {
        if self.diagnostics.len() >= MAX_DIAGNOSTICS {
            return Err(Failed);
        }
        let token = self.token;
        self.cut |= token.kind == Kind::Bad(Bad::UnterminatedComment);
        let message = match token.kind {
            Kind::Eof => format!("Parsing error near end of file: {wanted}"),
            Kind::Bad(Bad::Character) => format!("Unexpected character {:?}", token.text),
            Kind::Bad(Bad::UnterminatedString) => "Unterminated string".to_string(),
            Kind::Bad(Bad::UnterminatedComment) => "Unterminated comment: no `*/` follows".to_string(),
            Kind::Bad(Bad::Number) => format!("Malformed number '{}'", shorten(token.text)),
            Kind::Dot => format!("Parsing error near '.{}': {wanted}", shorten(token.text)),
            _ => format!("Parsing error near '{}': {wanted}", shorten(token.text)),
        };
        self.fail(token.pos, message)
    }

    /// Skips the rest of a statement: up to and with its `;`, or up to a brace or an anchoring
    /// directive that stands first on its line. A token that is first on its line where the
    /// statement should have ended starts the next one, so nothing is skipped then.
    fn recover(&mut self) {
        while self.token.kind != Kind::Eof {
            if self.take(b';') {
                return;
            }
            let t = self.token;
            let stop = match t.kind {
                Kind::Punct(b'{' | b'}') => t.first,
                Kind::Dot => t.first && ANCHORS.contains(&t.text),
                _ => false,
            };
            if stop {
                return;
            }
            self.advance();
        }
    }

    /// The `;` of a statement. A missing one at a line's end is reported, and parsing goes on there.
    fn end_statement(&mut self) {
        if self.take(b';') {
            return;
        }
        let first = self.token.first;
        let _: Parsed<()> = self.unexpected("expected `;`");
        if !first {
            self.recover();
        }
    }

    /// Skips a `{ … }` whose opening brace comes next.
    fn skip_braces(&mut self, what: &str) {
        let open = self.token.pos;
        let mut depth = 0usize;
        loop {
            match self.advance().kind {
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') if depth <= 1 => return,
                Kind::Punct(b'}') => depth -= 1,
                Kind::Eof => return self.error(open, format!("Unterminated {what}: no closing `}}`")),
                _ => {}
            }
        }
    }

    // ---- module scope ----

    fn module(&mut self) {
        if self.version().is_err() {
            return;
        }
        if self.at_dot("target") {
            if self.target().is_err() {
                self.recover();
            }
        } else {
            self.error(self.token.pos, "Missing .target directive at start of file");
        }
        while self.token.kind != Kind::Eof {
            let stray = matches!(self.token.kind, Kind::Punct(b'{'));
            if stray {
                let _: Parsed<()> = self.unexpected("expected a directive");
                self.skip_braces("block");
            } else if self.token.kind != Kind::Dot {
                let _: Parsed<()> = self.unexpected("expected a directive");
                self.advance();
                self.recover_module();
            } else {
                let start = self.token.start;
                if self.module_directive().is_err() {
                    // A directive that must not stand here is passed, or recovery would stop at it.
                    if self.token.start == start {
                        self.advance();
                    }
                    self.recover_module();
                }
            }
        }
    }

    fn recover_module(&mut self) {
        loop {
            self.recover();
            if self.at(b'{') {
                self.skip_braces("block");
            } else if self.at(b'}') {
                self.advance();
            } else {
                return;
            }
        }
    }

    fn version(&mut self) -> Parsed<()> {
        if !self.at_dot("version") {
            if let Kind::Bad(_) = self.token.kind {
                return self.unexpected("");
            }
            return self.fail(self.token.pos, "Missing .version directive at start of file");
        }
        self.advance();
        let token = self.token;
        let parts = token.text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (Kind::Float, Some(version)) = (token.kind, parts) else {
            return self.unexpected("expected a version as in `.version 7.0`");
        };
        self.advance();
        if version < (1, 0) {
            return self.fail(token.pos, format!("Unsupported .version {}.{}; the first is 1.0", version.0, version.1));
        }
        self.module.version = version;
        Ok(())
    }

    fn target(&mut self) -> Parsed<()> {
        self.advance();
        let mut any = false;
        loop {
            let token = self.expect_ident("a target as in `.target sm_80`")?;
            match token.text {
                "debug" => self.module.target.debug = true,
                "texmode_unified" | "texmode_independent" | "map_f64_to_f32" => {}
                name => match parse_target(name) {
                    Some((sm, suffix)) => {
                        any = true;
                        self.module.target.sm = sm;
                        self.module.target.suffix = suffix;
                    }
                    None => return self.fail(token.pos, format!("Unsupported .target '{}'", shorten(name))),
                },
            }
            if !self.take(b',') {
                break;
            }
        }
        if !any && self.module.target.sm == 0 {
            return self.fail(self.token.pos, "Missing architecture in .target directive");
        }
        Ok(())
    }

    fn module_directive(&mut self) -> Parsed<()> {
        match self.token.text {
            "target" => self.target(),
            "address_size" => {
                self.advance();
                let at = self.token.pos;
                match self.expect_u32()? {
                    64 => Ok(()),
                    other => self.fail(at, format!(".address_size {other} is not supported: only 64 is")),
                }
            }
            "file" => self.file(),
            "section" => self.section(),
            "pragma" => {
                let strings = self.pragma()?;
                self.module.pragmas.extend(strings);
                Ok(())
            }
            "alias" => self.alias(),
            _ => self.declaration(),
        }
    }

    fn file(&mut self) -> Parsed<()> {
        self.advance();
        let index = self.expect_u32()?;
        let path = self.expect_string()?;
        self.module.files.insert(index, path.to_string());
        // A time stamp and a size may follow.
        while self.take(b',') {
            self.expect_u64()?;
        }
        Ok(())
    }

    fn section(&mut self) -> Parsed<()> {
        self.advance();
        match self.token.kind {
            Kind::Dot | Kind::Ident => self.advance(),
            _ => return self.unexpected("expected a section's name"),
        };
        if !self.at(b'{') {
            return self.unexpected("expected `{`");
        }
        self.skip_braces("section");
        Ok(())
    }

    fn pragma(&mut self) -> Parsed<Vec<String>> {
        self.advance();
        let mut strings = vec![self.expect_string()?.to_owned()];
        while self.take(b',') {
            strings.push(self.expect_string()?.to_owned());
        }
        self.end_statement();
        Ok(strings)
    }

    fn alias(&mut self) -> Parsed<()> {
        self.advance();
        let alias = self.expect_ident("a function's name")?;
        self.expect(b',')?;
        let target = self.expect_ident("a function's name")?;
        self.end_statement();
        for name in [alias, target] {
            if !matches!(self.globals.get(name.text), Some(Global::Function(_))) {
                self.error(name.pos, format!("Unknown symbol '{}'", shorten(name.text)));
            }
        }
        self.module.aliases.push((alias.text.to_string(), target.text.to_string()));
        Ok(())
    }

    /// Lets everything that refers to an alias refer to what it stands for.
    fn resolve_aliases(&mut self) {
        if self.module.aliases.is_empty() {
            return;
        }
        let map: HashMap<String, String> = self.module.aliases.iter().cloned().collect();
        let rename = |name: &mut String| {
            // An alias of an alias is legal, a circle is not; the bound ends either.
            for _ in 0..16 {
                match map.get(name.as_str()) {
                    Some(target) => name.clone_from(target),
                    None => break,
                }
            }
        };
        fn visit(operand: &mut Operand, rename: &impl Fn(&mut String)) {
            match operand {
                Operand::Symbol(name, _) | Operand::Address(Base::Symbol(name), _) => rename(name),
                Operand::Vector(items) | Operand::List(items) => items.iter_mut().for_each(|i| visit(i, rename)),
                Operand::Pair(a, b) => {
                    visit(a, rename);
                    visit(b, rename);
                }
                _ => {}
            }
        }
        let ast::Module { functions, variables, .. } = &mut self.module;
        for body in functions.iter_mut().filter_map(|f| f.body.as_mut()) {
            body.instructions.iter_mut().flat_map(|i| &mut i.operands).for_each(|o| visit(o, &rename));
            body.call_targets.values_mut().flatten().for_each(&rename);
        }
        variables.iter_mut().flat_map(|v| &mut v.relocations).for_each(|r| rename(&mut r.symbol));
    }
}

/// `sm_90a` → `(90, Some('a'))`. `compute_NN` counts too.
fn parse_target(name: &str) -> Option<(u32, Option<char>)> {
    let rest = name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_"))?;
    let (digits, suffix) = match rest.strip_suffix(['a', 'f']) {
        Some(digits) => (digits, rest.chars().last()),
        None => (rest, None),
    };
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, suffix))
}

/// A name as it stands in a message: never endless.
fn shorten(name: &str) -> String {
    match name.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", name.get(..at).unwrap_or_default()),
        None => name.to_string(),
    }
}
