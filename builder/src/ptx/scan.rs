//! A scan of PTX text: comments, module-level declarations, and what each body refers to.
//!
//! Knows the grammar of declarations, and of instructions only the opcode and the names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a text declares.
#[derive(Debug, Default)]
pub(crate) struct Scan<'a> {
    pub(crate) version: Option<(u32, u32)>,
    pub(crate) target: Option<&'a str>,
    /// Comments that begin with `@kernel`: line number and the rest.
    pub(crate) kernel_lines: Vec<(usize, &'a str)>,
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) variables: Vec<Variable<'a>>,
    /// The declarations in the order of the text.
    pub(crate) items: Vec<Item<'a>>,
}

/// Where a function or a statement of variables stands, with its linkage.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub(crate) names: Vec<&'a str>,
    /// State space; empty for a function.
    pub(crate) space: &'a str,
    pub(crate) is_entry: bool,
    pub(crate) range: Range<usize>,
}

/// An entry or a function.
#[derive(Debug, Default)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_entry: bool,
    pub(crate) is_extern: bool,
    pub(crate) params: Vec<Param<'a>>,
    /// Byte offset behind the parameter list.
    pub(crate) header_end: usize,
    /// Directives between parameter list and body.
    pub(crate) directives: Vec<&'a str>,
    /// `None` for a declaration.
    pub(crate) body: Option<Body<'a>>,
}

/// What a body contains.
#[derive(Debug, Default)]
pub(crate) struct Body<'a> {
    pub(crate) names: BTreeSet<&'a str>,
    pub(crate) collectives: BTreeMap<&'static str, u32>,
    /// Names in the address of a store or an atomic.
    pub(crate) stored_to: BTreeSet<&'a str>,
    pub(crate) variables: Vec<Variable<'a>>,
}

/// A kernel parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Param<'a> {
    pub(crate) name: &'a str,
    pub(crate) size: u64,
    pub(crate) align: u64,
}

/// A variable in a state space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variable<'a> {
    pub(crate) space: &'a str,
    pub(crate) name: &'a str,
    pub(crate) align: u64,
    /// `None` for an array without size.
    pub(crate) size: Option<u64>,
    pub(crate) is_extern: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Punct(u8),
    Text,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    start: usize,
}

impl Token<'_> {
    fn is(&self, punct: u8) -> bool {
        self.kind == Kind::Punct(punct)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'%') || byte >= 0x80
}

/// Splits into tokens and collects the kernel lines.
fn tokens<'a>(text: &'a str, kernel_lines: &mut Vec<(usize, &'a str)>) -> Vec<Token<'a>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len() / 5);
    let (mut at, mut line) = (0, 1);
    let slice = |range: Range<usize>| text.get(range).unwrap_or_default();
    let end_of =
        |from: usize, stop: &dyn Fn(usize) -> bool| (from..bytes.len()).find(|i| stop(*i)).unwrap_or(bytes.len());
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b if b.is_ascii_whitespace() => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = end_of(at, &|i| bytes[i] == b'\n');
                let comment = slice(start + 2..at).trim();
                if let Some(rest) = comment.strip_prefix("@kernel") {
                    kernel_lines.push((line, rest.trim()));
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let close = end_of(at + 2, &|i| bytes[i] == b'*' && bytes.get(i + 1) == Some(&b'/'));
                at = (close + 2).min(bytes.len());
                line += bytes[start..at].iter().filter(|b| **b == b'\n').count();
            }
            b'"' => {
                let close = end_of(at + 1, &|i| bytes[i] == b'"' || bytes[i] == b'\n');
                at = (close + 1).min(bytes.len());
                // A line break ends an unclosed string; it is counted in the next round.
                if bytes.get(close) == Some(&b'\n') {
                    at = close;
                }
                out.push(Token { kind: Kind::Text, text: slice(start..at), start });
            }
            b if is_word(b) => {
                at = end_of(at, &|i| !is_word(bytes[i]));
                out.push(Token { kind: Kind::Word, text: slice(start..at), start });
            }
            b => {
                at += 1;
                out.push(Token { kind: Kind::Punct(b), text: slice(start..at), start });
            }
        }
    }
    out
}

/// Scans a module.
pub(crate) fn scan(text: &str) -> Scan<'_> {
    let mut scan = Scan::default();
    let tokens = tokens(text, &mut scan.kernel_lines);
    let mut reader = Reader { tokens: &tokens, at: 0, end: text.len() };
    let mut is_extern = false;
    let mut linkage = None;
    while let Some(token) = reader.next() {
        match (token.kind, token.text) {
            (Kind::Word, ".version") => scan.version = reader.word().and_then(version),
            (Kind::Word, ".target") => scan.target = reader.word(),
            (Kind::Word, word @ (".extern" | ".visible" | ".weak" | ".common")) => {
                is_extern |= word == ".extern";
                linkage.get_or_insert(token.start);
            }
            (Kind::Word, kind @ (".entry" | ".func")) => {
                let function = reader.function(kind == ".entry", std::mem::take(&mut is_extern));
                let range = linkage.take().unwrap_or(token.start)..reader.offset();
                let names = function.iter().map(|f| f.name).collect();
                scan.items.push(Item { names, space: "", is_entry: kind == ".entry", range });
                scan.functions.extend(function);
            }
            (Kind::Word, space @ (".shared" | ".global" | ".const" | ".local")) => {
                let before = scan.variables.len();
                reader.variables(space, std::mem::take(&mut is_extern), &mut scan.variables);
                let range = linkage.take().unwrap_or(token.start)..reader.offset();
                let names = scan.variables.iter().skip(before).map(|v| v.name).collect();
                scan.items.push(Item { names, space, is_entry: false, range });
            }
            (Kind::Punct(b'{'), _) => reader.skip_to(b'{', b'}'),
            _ => (is_extern, linkage) = (false, None),
        }
    }
    scan
}

/// The words of a text, names among them, without its comments.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    tokens(text, &mut Vec::new()).into_iter().filter(|t| t.kind == Kind::Word).map(|t| t.text)
}

/// The text with other names for some of its words.
pub(crate) fn with_renamed(text: &str, names: &BTreeMap<&str, String>) -> String {
    if names.is_empty() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for token in tokens(text, &mut Vec::new()).into_iter().filter(|t| t.kind == Kind::Word) {
        if let Some(new) = names.get(token.text) {
            out.push_str(text.get(from..token.start).unwrap_or_default());
            out.push_str(new);
            from = token.start + token.text.len();
        }
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Bytes of a fundamental type.
fn type_size(word: &str) -> Option<u64> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

struct Reader<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
    end: usize,
}

impl<'t, 'a> Reader<'t, 'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied();
        self.at += usize::from(token.is_some());
        token
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn peek_is(&self, punct: u8) -> bool {
        self.peek().is_some_and(|t| t.is(punct))
    }

    fn word(&mut self) -> Option<&'a str> {
        let token = self.peek().filter(|t| t.kind == Kind::Word)?;
        self.at += 1;
        Some(token.text)
    }

    fn number(&mut self) -> Option<u64> {
        let word = self.word()?;
        match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        }
    }

    /// Moves behind the bracket that closes one already read.
    fn skip_to(&mut self, open: u8, close: u8) {
        let mut depth = 1;
        while let Some(token) = self.next() {
            if token.is(open) {
                depth += 1;
            } else if token.is(close) {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
        }
    }

    /// Offset behind the token that was read last.
    fn offset(&self) -> usize {
        self.at.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(self.end, |t| t.start + t.text.len())
    }

    /// Behind `.entry` or `.func`.
    fn function(&mut self, is_entry: bool, is_extern: bool) -> Option<Function<'a>> {
        let mut function = Function { is_entry, is_extern, ..Function::default() };
        while self.peek().is_some_and(|t| t.kind == Kind::Word && t.text.starts_with('.')) {
            self.at += 1;
        }
        if !is_entry && self.peek_is(b'(') {
            self.at += 1;
            self.skip_to(b'(', b')');
        }
        function.name = self.word()?;
        if self.peek_is(b'(') {
            self.at += 1;
            function.params = self.params();
        }
        function.header_end = self.offset();
        while let Some(token) = self.next() {
            if token.is(b';') {
                break;
            }
            if token.is(b'{') {
                function.body = Some(self.body());
                break;
            }
            if token.kind == Kind::Word && token.text.starts_with('.') {
                function.directives.push(token.text);
            }
        }
        Some(function)
    }

    /// Behind `(`; moves behind `)`.
    fn params(&mut self) -> Vec<Param<'a>> {
        let mut params = Vec::new();
        let mut current = Param::default();
        let (mut of_pointee, mut started) = (false, false);
        while let Some(token) = self.next() {
            match (token.kind, token.text) {
                (Kind::Punct(b')' | b','), _) => {
                    if started {
                        if current.align == 0 {
                            current.align = current.size;
                        }
                        params.push(std::mem::take(&mut current));
                    }
                    (of_pointee, started) = (false, false);
                    if token.is(b')') {
                        break;
                    }
                }
                (Kind::Punct(b'['), _) => {
                    if let Some(count) = self.number() {
                        // The element size was noted as alignment if no `.align` stands there.
                        if current.align == 0 {
                            current.align = current.size;
                        }
                        current.size = current.size.saturating_mul(count);
                    }
                }
                (Kind::Word, ".param") => started = true,
                (Kind::Word, ".ptr") => of_pointee = true,
                (Kind::Word, ".align") => {
                    let align = self.number().unwrap_or(0);
                    if !of_pointee {
                        current.align = align;
                    }
                }
                (Kind::Word, word) => match type_size(word) {
                    Some(size) => current.size = size,
                    None if !word.starts_with('.') => current.name = word,
                    None => {}
                },
                _ => {}
            }
        }
        params
    }

    /// Behind a state space; moves behind `;`.
    fn variables(&mut self, space: &'a str, is_extern: bool, out: &mut Vec<Variable<'a>>) {
        let mut element = 1;
        let mut align = 0;
        let mut current: Option<Variable<'a>> = None;
        while let Some(token) = self.next() {
            match (token.kind, token.text) {
                (Kind::Punct(b';'), _) => break,
                (Kind::Punct(b','), _) => out.extend(current.take()),
                (Kind::Punct(b'('), _) => self.skip_to(b'(', b')'),
                (Kind::Punct(b'{'), _) => self.skip_to(b'{', b'}'),
                // An initialiser that is one value, perhaps a name; a list is skipped as a block.
                (Kind::Punct(b'='), _) if !self.peek_is(b'{') => {
                    while self.peek().is_some_and(|t| !t.is(b',') && !t.is(b';')) {
                        self.at += 1;
                    }
                }
                (Kind::Punct(b'['), _) => {
                    let count = self.number();
                    if let Some(variable) = &mut current {
                        variable.size = variable.size.zip(count).map(|(size, n)| size.saturating_mul(n));
                    }
                }
                (Kind::Word, ".align") => align = self.number().unwrap_or(0),
                (Kind::Word, ".v2") => element *= 2,
                (Kind::Word, ".v4") => element *= 4,
                (Kind::Word, word) => match type_size(word) {
                    Some(size) => element *= size,
                    None if !word.starts_with('.') && current.is_none() => {
                        current = Some(Variable {
                            space,
                            name: word,
                            align: if align == 0 { element } else { align },
                            size: Some(element),
                            is_extern,
                        });
                    }
                    None => {}
                },
                _ => {}
            }
        }
        out.extend(current);
    }

    /// Behind `{`; moves behind the `}` that closes it.
    fn body(&mut self) -> Body<'a> {
        let mut body = Body::default();
        let mut depth = 1_u32;
        let (mut in_store, mut in_address) = (false, false);
        while let Some(token) = self.next() {
            match (token.kind, token.text) {
                (Kind::Punct(b'{'), _) => depth += 1,
                (Kind::Punct(b'}'), _) => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                (Kind::Punct(b';'), _) => in_store = false,
                (Kind::Punct(b'['), _) => in_address = true,
                (Kind::Punct(b']'), _) => in_address = false,
                (Kind::Word, space @ (".shared" | ".local" | ".global" | ".const")) => {
                    self.variables(space, false, &mut body.variables);
                }
                (Kind::Word, word) => {
                    if let Some(kind) = collective(word) {
                        *body.collectives.entry(kind).or_default() += 1;
                    }
                    in_store |= ["st.", "atom.", "red."].iter().any(|p| word.starts_with(p));
                    if in_store && in_address {
                        body.stored_to.insert(word);
                    }
                    body.names.insert(word);
                }
                _ => {}
            }
        }
        body
    }
}

/// The kind of a collective instruction: one that all lanes of a warp or block execute together.
fn collective(opcode: &str) -> Option<&'static str> {
    Some(match opcode.split_once('.')?.0 {
        // `bar.warp.sync` joins a warp, the others a block or cluster; all must stay single.
        "bar" | "barrier" => "barrier",
        "shfl" => "shfl",
        "vote" => "vote",
        "match" => "match",
        "redux" => "redux",
        "elect" => "elect",
        "mma" | "wmma" | "wgmma" => "mma",
        "ldmatrix" | "stmatrix" => "ldmatrix",
        _ => return None,
    })
}
