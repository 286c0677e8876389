//! The outline of a module: what it declares, where in the text each declaration stands, and what each body refers to.
//!
//! [`parse`](crate::parse) reads a whole module and refuses what is wrong with it. The outline is for tools that cut, join and
//! complete texts: it keeps byte ranges instead of meanings, takes any text, and of an instruction knows the opcode and the names.
//! Both read the same tokens.
//!
//! ```
//! let text = ".version 7.4\n.target sm_80\n.visible .entry k(.param .u64 p) { ret; }";
//! let outline = warpsmith_ptx::outline(text);
//! assert_eq!(outline.functions[0].params[0].size, 8);
//! assert_eq!(&text[outline.items[0].range.clone()], ".visible .entry k(.param .u64 p) { ret; }");
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use crate::ast::{Space, Type};
use crate::lexer::{Kind, Lexer, Token};

/// What a text declares.
#[derive(Debug, Default)]
pub struct Outline<'a> {
    /// `.version major.minor`.
    pub version: Option<(u32, u32)>,
    /// The architecture of `.target`, such as `sm_80`.
    pub target: Option<&'a str>,
    /// Entries and functions, declarations among them, in the order of the text.
    pub functions: Vec<FunctionOutline<'a>>,
    /// Variables of the module, in the order of the text.
    pub variables: Vec<VariableOutline<'a>>,
    /// The declarations in the order of the text.
    pub items: Vec<Item<'a>>,
    /// Whether the text ends within a declaration.
    pub is_open: bool,
}

impl<'a> Outline<'a> {
    /// Adds the outline of what follows, which begins at byte `at` of the whole.
    fn push(&mut self, mut rest: Outline<'a>, at: usize) {
        self.version = rest.version.or(self.version);
        self.target = rest.target.or(self.target);
        rest.functions.iter_mut().for_each(|function| function.header_end += at);
        self.functions.append(&mut rest.functions);
        self.variables.append(&mut rest.variables);
        let shifted = |Range { start, end }: &Range<usize>| start + at..end + at;
        rest.items.iter_mut().for_each(|item| item.range = shifted(&item.range));
        self.items.append(&mut rest.items);
        self.is_open = rest.is_open;
    }
}

/// Where a function or a statement of variables stands, with its linkage.
#[derive(Debug)]
pub struct Item<'a> {
    /// The names that it declares; several for a statement of several variables.
    pub names: Vec<&'a str>,
    /// The state space of variables; `None` for a function.
    pub space: Option<Space>,
    /// Whether it is an `.entry`.
    pub is_entry: bool,
    /// Bytes of the text, from the linkage to the closing brace or semicolon.
    pub range: Range<usize>,
}

/// An entry or a function.
#[derive(Debug, Default)]
pub struct FunctionOutline<'a> {
    /// Its name.
    pub name: &'a str,
    /// `.entry` rather than `.func`.
    pub is_entry: bool,
    /// `.extern`.
    pub is_extern: bool,
    /// Its parameters, in order.
    pub params: Vec<ParamOutline<'a>>,
    /// Byte offset behind the parameter list.
    pub header_end: usize,
    /// Directives between parameter list and body, with their dots.
    pub directives: Vec<&'a str>,
    /// `None` for a declaration.
    pub body: Option<BodyOutline<'a>>,
}

/// What a body contains.
#[derive(Debug, Default)]
pub struct BodyOutline<'a> {
    /// Every word but its own numbered registers: opcodes with their modifiers, labels, symbols.
    pub names: BTreeSet<&'a str>,
    /// How often each opcode stands in it, with its modifiers.
    pub opcodes: BTreeMap<&'a str, u32>,
    /// Names in the address of a store or an atomic.
    pub stored_to: BTreeSet<&'a str>,
    /// Variables that it declares.
    pub variables: Vec<VariableOutline<'a>>,
}

/// A parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamOutline<'a> {
    /// Its name.
    pub name: &'a str,
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub align: u64,
}

/// A variable in a state space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableOutline<'a> {
    /// Its state space.
    pub space: Space,
    /// Its name.
    pub name: &'a str,
    /// Bytes.
    pub align: u64,
    /// Bytes; `None` for an array without size.
    pub size: Option<u64>,
    /// `.extern`.
    pub is_extern: bool,
}

/// Whether a variable of this name is the memory of a constant, which nothing writes: rustc names it `alloc_` and a hash, and LLVM what has no name (no static is so)
/// `anon.`, a hash of the text and a number, with `_$_` for points.
#[must_use]
pub fn is_constant(name: &str) -> bool {
    let is_hash = |hash: &str| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let of_llvm = || name.strip_prefix("anon_$_")?.split_once("_$_");
    name.trim_start_matches("__").strip_prefix("alloc_").is_some_and(is_hash)
        || of_llvm().is_some_and(|(hash, number)| {
            is_hash(hash) && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        })
}

/// A token, and behind an opcode the modifiers that are written to it: `ld.global.b32`.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    kind: Kind,
    /// With the dots.
    text: &'a str,
    start: usize,
}

impl Word<'_> {
    fn is(&self, punct: u8) -> bool {
        self.kind == Kind::Punct(punct)
    }

    fn is_word(&self) -> bool {
        matches!(self.kind, Kind::Ident | Kind::Dot)
    }
}

/// Splits into tokens, without line directives.
fn tokens(text: &str) -> Vec<Word<'_>> {
    let mut lexer = Lexer::new(text);
    let mut out: Vec<Word<'_>> = Vec::with_capacity(text.len() / 5);
    let mut end = 0;
    loop {
        let Token { kind, start, end: to, first, .. } = lexer.next();
        if kind == Kind::Eof {
            return out;
        }
        if kind == Kind::Dot && first && text.get(start..to) == Some(".loc") {
            lexer.skip_line();
            continue;
        }
        match out.last_mut() {
            Some(last) if kind == Kind::Dot && last.kind == Kind::Ident && start == end => {
                last.text = text.get(last.start..to).unwrap_or_default();
            }
            _ => out.push(Word { kind, text: text.get(start..to).unwrap_or_default(), start }),
        }
        end = to;
    }
}

/// The state spaces of variables.
fn space(word: &str) -> Option<Space> {
    Some(match word {
        ".shared" => Space::Shared,
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".local" => Space::Local,
        _ => return None,
    })
}

/// The outline of a text. What is no declaration is passed over; a text that ends too early ends its last declaration.
pub fn outline(text: &str) -> Outline<'_> {
    let mut outline = Outline::default();
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, at: 0, end: text.len(), ends: 0 };
    let mut is_extern = false;
    let mut linkage = None;
    while let Some(token) = reader.next() {
        match (token.kind, token.text) {
            (Kind::Dot, ".version") => outline.version = reader.take(Kind::Float).and_then(version),
            (Kind::Dot, ".target") => outline.target = reader.word(),
            (Kind::Dot, word @ (".extern" | ".visible" | ".weak" | ".common")) => {
                is_extern |= word == ".extern";
                linkage.get_or_insert(token.start);
            }
            (Kind::Dot, kind @ (".entry" | ".func")) => {
                let function = reader.function(kind == ".entry", std::mem::take(&mut is_extern));
                let range = linkage.take().unwrap_or(token.start)..reader.offset();
                let names = function.iter().map(|f| f.name).collect();
                outline.items.push(Item { names, space: None, is_entry: kind == ".entry", range });
                outline.functions.extend(function);
            }
            (Kind::Dot, word) if let Some(space) = space(word) => {
                let before = outline.variables.len();
                reader.variables(space, std::mem::take(&mut is_extern), &mut outline.variables);
                let range = linkage.take().unwrap_or(token.start)..reader.offset();
                let names = outline.variables.iter().skip(before).map(|v| v.name).collect();
                outline.items.push(Item { names, space: Some(space), is_entry: false, range });
            }
            (Kind::Punct(b'{'), _) => reader.skip_to(b'{', b'}'),
            _ => (is_extern, linkage) = (false, None),
        }
    }
    // The loop above found the end once.
    outline.is_open = reader.ends > 1 || linkage.is_some();
    outline
}

/// [`outline`] of a long text, made of parts of some `bytes` which no declaration crosses: `map` makes their outlines, in whatever
/// way it has, such as by several threads.
pub fn outline_by_parts<'a>(
    text: &'a str,
    bytes: usize,
    map: impl FnOnce(&[&'a str]) -> Vec<Outline<'a>>,
) -> Outline<'a> {
    let parts = parts(text, bytes);
    let outlines = map(&parts);
    let is_cut = outlines.iter().rev().skip(1).any(|outline| outline.is_open);
    if is_cut || outlines.len() != parts.len() {
        return outline(text);
    }
    let (mut whole, mut at) = (Outline::default(), 0);
    for (part, outline) in parts.iter().zip(outlines) {
        whole.push(outline, at);
        at += part.len();
    }
    whole
}

/// The text, cut behind lines that look like the end of a body.
fn parts(text: &str, bytes: usize) -> Vec<&str> {
    // A comment may hold such lines.
    if text.contains("/*") {
        return vec![text];
    }
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let from = rest.floor_char_boundary(bytes);
        let Some(end) = rest.get(from..).and_then(|behind| behind.find("\n}\n")) else { break };
        let (part, behind) = rest.split_at(from + end + 3);
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}

/// The words of a text, names and directives among them, without its comments, numbers and strings.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    tokens(text).into_iter().filter(Word::is_word).map(|t| t.text)
}

/// The text with other names for some of its words; comments and strings stay as they are.
pub fn with_renamed(text: &str, names: &BTreeMap<&str, String>) -> String {
    if names.is_empty() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for token in tokens(text).into_iter().filter(Word::is_word) {
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

/// Bytes of a fundamental type, as a directive names it.
fn type_size(word: &str) -> Option<u64> {
    let ty = Type::named(word.strip_prefix('.')?).filter(|ty| *ty != Type::Pred)?;
    Some(u64::from(ty.bits() / 8))
}

struct Reader<'t, 'a> {
    tokens: &'t [Word<'a>],
    at: usize,
    end: usize,
    /// How often there was no next token.
    ends: usize,
}

impl<'t, 'a> Reader<'t, 'a> {
    fn next(&mut self) -> Option<Word<'a>> {
        let token = self.tokens.get(self.at).copied();
        self.at += usize::from(token.is_some());
        self.ends += usize::from(token.is_none());
        token
    }

    fn peek(&self) -> Option<Word<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn peek_is(&self, punct: u8) -> bool {
        self.peek().is_some_and(|t| t.is(punct))
    }

    fn take(&mut self, kind: Kind) -> Option<&'a str> {
        let token = self.peek().filter(|t| t.kind == kind)?;
        self.at += 1;
        Some(token.text)
    }

    fn word(&mut self) -> Option<&'a str> {
        self.take(Kind::Ident)
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.take(Kind::Int)?.trim_end_matches('U');
        match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
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
    fn function(&mut self, is_entry: bool, is_extern: bool) -> Option<FunctionOutline<'a>> {
        let mut function = FunctionOutline { is_entry, is_extern, ..FunctionOutline::default() };
        while self.peek().is_some_and(|t| t.kind == Kind::Dot) {
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
            if token.kind == Kind::Dot {
                function.directives.push(token.text);
            }
        }
        Some(function)
    }

    /// Behind `(`; moves behind `)`.
    fn params(&mut self) -> Vec<ParamOutline<'a>> {
        let mut params = Vec::new();
        let mut current = ParamOutline::default();
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
                (Kind::Dot, ".param") => started = true,
                (Kind::Dot, ".ptr") => of_pointee = true,
                (Kind::Dot, ".align") => {
                    let align = self.number().unwrap_or(0);
                    if !of_pointee {
                        current.align = align;
                    }
                }
                (Kind::Dot, word) => current.size = type_size(word).unwrap_or(current.size),
                (Kind::Ident, name) => current.name = name,
                _ => {}
            }
        }
        params
    }

    /// Behind a state space; moves behind `;`.
    fn variables(&mut self, space: Space, is_extern: bool, out: &mut Vec<VariableOutline<'a>>) {
        let mut element = 1;
        let mut align = 0;
        let mut current: Option<VariableOutline<'a>> = None;
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
                (Kind::Dot, ".align") => align = self.number().unwrap_or(0),
                (Kind::Dot, ".v2") => element *= 2,
                (Kind::Dot, ".v4") => element *= 4,
                (Kind::Dot, word) => element *= type_size(word).unwrap_or(1),
                (Kind::Ident, name) if current.is_none() => {
                    let align = if align == 0 { element } else { align };
                    current = Some(VariableOutline { space, name, align, size: Some(element), is_extern });
                }
                _ => {}
            }
        }
        out.extend(current);
    }

    /// Behind `{`; moves behind the `}` that closes it.
    fn body(&mut self) -> BodyOutline<'a> {
        let mut body = BodyOutline::default();
        let mut opcodes: HashMap<&'a str, u32> = HashMap::new();
        let mut registers: Vec<&'a str> = Vec::new();
        let mut depth = 1_u32;
        // An opcode is the first word of a statement, behind labels and the guard.
        let (mut is_first, mut in_guard) = (true, false);
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
                (Kind::Punct(b';'), _) => (in_store, is_first) = (false, true),
                (Kind::Punct(b'@'), _) => in_guard = true,
                (Kind::Punct(b'['), _) => in_address = true,
                (Kind::Punct(b']'), _) => in_address = false,
                (Kind::Dot, word) if let Some(space) = space(word) => {
                    self.variables(space, false, &mut body.variables);
                }
                (Kind::Dot, ".reg") => self.registers(&mut registers, &mut body.names),
                (Kind::Ident, word) if is_numbered(word, &registers) => {
                    (is_first, in_guard) = (is_first && in_guard, false);
                }
                (Kind::Ident, word) => {
                    if !is_first || in_guard || self.peek_is(b':') {
                        body.names.insert(word);
                    }
                    if std::mem::take(&mut in_guard) || self.peek_is(b':') {
                        continue;
                    }
                    if std::mem::take(&mut is_first) {
                        *opcodes.entry(word).or_default() += 1;
                        in_store = ["st.", "atom.", "red."].iter().any(|p| word.starts_with(p));
                    } else if in_store && in_address {
                        body.stored_to.insert(word);
                    }
                }
                (Kind::Dot, _) => is_first = false,
                _ => {}
            }
        }
        body.names.extend(opcodes.keys());
        body.opcodes = opcodes.into_iter().collect();
        body
    }

    /// Behind `.reg`; moves behind `;`. Of `%r<9>`, which declares `%r0` to `%r8`, the name is one of `numbered`, others are `names`.
    fn registers(&mut self, numbered: &mut Vec<&'a str>, names: &mut BTreeSet<&'a str>) {
        while let Some(token) = self.next() {
            match token.kind {
                Kind::Punct(b';') => return,
                Kind::Ident if self.peek_is(b'<') => numbered.push(token.text),
                Kind::Ident => {
                    names.insert(token.text);
                }
                _ => {}
            }
        }
    }
}

/// Whether a word is one of the registers that were declared by their number.
fn is_numbered(word: &str, numbered: &[&str]) -> bool {
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.len() < word.len() && numbered.contains(&stem)
}
