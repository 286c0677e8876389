//! Joins modules into one, as the driver's linker does with PTX.
//!
//! The rules are the ISA's (linking directives): of a `.visible` name there is one definition; a `.weak` one gives way to it,
//! and of several weak ones the first is kept; of `.common` variables the initialised one is kept, else the largest. A name
//! without a linking directive belongs to its own module and gets another name where two modules have it. What gives way
//! becomes a declaration if the definition that is kept stands further down, since PTX has to declare what it uses.
//!
//! A function that a module declares with another prototype than it is defined with is called through an [adapter](prototypes).
//!
//! The result has one header, of the newest `.version` and `.target` among the modules, and one table of files.

mod prototypes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::ast::{self, Linkage};
use super::lexer::{Kind, Lexer, Token};
use prototypes::Adapters;

/// A module to be linked.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What errors call it.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// Modules joined into one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// Its text.
    pub text: String,
    /// What a linker warns of, in its words: functions whose prototypes differ.
    pub warnings: Vec<String>,
}

/// The modules joined in their order.
///
/// # Errors
/// In words: a module that does not parse, with its diagnostics, or a name with several definitions.
pub fn link(inputs: &[Input<'_>]) -> Result<Linked, String> {
    let modules = inputs.iter().map(Unit::read).collect::<Result<Vec<_>, String>>()?;
    let kept = resolve(&modules)?;
    let (major, minor) = modules.iter().map(|m| m.ast.version).max().unwrap_or_default();
    let target = modules.iter().max_by_key(|m| m.rank()).map_or("", |m| m.target);
    let mut text = format!(".version {major}.{minor}\n{target}\n.address_size 64\n");
    let mut files = 0u32;
    let mut taken: HashSet<String> = modules.iter().flat_map(|m| m.words.iter().map(|w| (*w).to_owned())).collect();
    let own = renamed(&modules, &mut taken);
    let adapters = Adapters::find(&modules, &kept, &mut taken)?;
    for (at, (module, (own, adapted))) in modules.iter().zip(own.iter().zip(&adapters.names)).enumerate() {
        text.push_str(&module.text_with(&module.edits(at, &kept, [own, adapted], files)?));
        text.push('\n');
        files = files.saturating_add(module.ast.files.keys().max().copied().unwrap_or(0));
    }
    text.push_str(&adapters.text);
    Ok(Linked { text, warnings: adapters.warnings })
}

/// A name that no module has, made of one that some have.
fn free_name(name: &str, why: &str, taken: &mut HashSet<String>) -> String {
    let made = (1u64..).map(|n| format!("{name}${why}{n}")).find(|made| !taken.contains(made)).unwrap_or_default();
    taken.insert(made.clone());
    made
}

/// For each module, the names of its own that another module has too, and what they are called in the joined text.
fn renamed<'a>(modules: &[Unit<'a>], taken: &mut HashSet<String>) -> Vec<HashMap<&'a str, String>> {
    let owns: Vec<BTreeSet<&str>> = modules.iter().map(Unit::own).collect();
    let common: HashSet<&str> = modules
        .iter()
        .zip(&owns)
        .flat_map(|(m, own)| m.symbols.keys().copied().filter(|name| !own.contains(name)))
        .collect();
    // The first module that has a name keeps it.
    let mut seen: HashSet<&str> = HashSet::new();
    let mut all = Vec::new();
    for own in owns {
        let mut names = HashMap::new();
        for name in own {
            if common.contains(name) || !seen.insert(name) {
                names.insert(name, free_name(name, "own", taken));
            }
        }
        all.push(names);
    }
    all
}

/// What a module says of a name at module scope.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    linkage: Linkage,
    defined: bool,
    /// An entry is the host's to call, whatever its linkage.
    entry: bool,
    initialised: bool,
    size: u64,
}

/// A part of the text, and what stands there in the joined one.
type Edit = (Range<usize>, String);

/// A declaration or definition in the text.
struct Declaration<'a> {
    names: Vec<&'a str>,
    range: Range<usize>,
    /// Up to and without the body of a function, or the `=` of the variable.
    head: Range<usize>,
    /// The linking directive with its dot.
    linking: Option<Range<usize>>,
}

struct Unit<'a> {
    input: Input<'a>,
    ast: ast::Module,
    symbols: BTreeMap<&'a str, Symbol>,
    items: Vec<Declaration<'a>>,
    /// The header's directives, which the joined text has once.
    header: Vec<Range<usize>>,
    target: &'a str,
    /// Labels of `.section`s.
    labels: BTreeSet<&'a str>,
    words: HashSet<&'a str>,
}

/// For each name with several definitions, or with one that others declare, the module whose definition is kept.
fn resolve<'a>(modules: &[Unit<'a>]) -> Result<HashMap<&'a str, usize>, String> {
    let mut found: BTreeMap<&'a str, Vec<(usize, Symbol)>> = BTreeMap::new();
    for (at, module) in modules.iter().enumerate() {
        for (name, symbol) in &module.symbols {
            if symbol.defined && (symbol.linkage != Linkage::Private || symbol.entry) {
                found.entry(name).or_default().push((at, *symbol));
            }
        }
    }
    let mut kept = HashMap::new();
    for (name, all) in found {
        let name_of = |at: usize| modules.get(at).map_or("", |m| m.input.name);
        let mut strong = all.iter().filter(|(_, s)| !matches!(s.linkage, Linkage::Weak | Linkage::Common));
        let first = strong.next();
        if let (Some((a, _)), Some((b, _))) = (first, strong.next()) {
            return Err(format!("'{name}' is defined in {} and in {}", name_of(*a), name_of(*b)));
        }
        let mut initialised = all.iter().filter(|(_, s)| s.linkage == Linkage::Common && s.initialised);
        if let (Some((a, _)), Some((b, _))) = (initialised.next(), initialised.next()) {
            return Err(format!("the .common '{name}' has a value in {} and in {}", name_of(*a), name_of(*b)));
        }
        // The largest of those with equal claims; the first of those that are equal.
        let claim = |s: &Symbol| match s.linkage {
            Linkage::Weak => (1, 0),
            Linkage::Common => (2 + u64::from(s.initialised), s.size),
            _ => (4, 0),
        };
        if let Some((at, symbol)) = all.iter().rev().max_by_key(|(_, s)| claim(s)) {
            if let Some((other, _)) = all.iter().find(|(_, s)| s.size > symbol.size && s.linkage == Linkage::Common) {
                let (here, there) = (name_of(*at), name_of(*other));
                return Err(format!("'{name}' of {here} is smaller than the .common one of {there}"));
            }
            kept.insert(name, *at);
        }
    }
    Ok(kept)
}

impl<'a> Unit<'a> {
    fn read(input: &Input<'a>) -> Result<Unit<'a>, String> {
        let ast = super::parse(input.text).map_err(|diagnostics| {
            let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            format!("{}: {}", input.name, lines.join("\n"))
        })?;
        let mut unit = Unit {
            input: *input,
            symbols: BTreeMap::new(),
            items: Vec::new(),
            header: Vec::new(),
            target: "",
            labels: BTreeSet::new(),
            words: HashSet::new(),
            ast,
        };
        unit.scan();
        for item in &unit.items {
            for name in &item.names {
                if let Some(symbol) = unit.symbol(name) {
                    unit.symbols.insert(name, symbol);
                }
            }
        }
        Ok(unit)
    }

    fn symbol(&self, name: &str) -> Option<Symbol> {
        if let Some(f) = self.ast.functions.iter().find(|f| f.name == name) {
            let defined = f.body.is_some();
            return Some(Symbol { linkage: f.linkage, defined, entry: f.is_entry, initialised: false, size: 0 });
        }
        let v = self.ast.variables.iter().find(|v| v.name == name)?;
        Some(Symbol {
            linkage: v.linkage,
            defined: v.linkage != Linkage::Extern,
            entry: false,
            initialised: !v.init.is_empty() || !v.relocations.is_empty(),
            size: v.size,
        })
    }

    /// Orders targets: later architectures first, and among equal ones those with features of their own.
    fn rank(&self) -> (u32, Option<char>) {
        (self.ast.target.sm, self.ast.target.suffix.map(|c| if c == 'a' { 'z' } else { c }))
    }

    /// Whether it defines the name for other modules too, so that another module's definition may be kept in its place.
    fn gives_way(&self, name: &str) -> bool {
        self.symbols.get(name).is_some_and(|s| s.defined && (s.linkage != Linkage::Private || s.entry))
    }

    /// Names that other modules do not see.
    fn own(&self) -> BTreeSet<&'a str> {
        let private = self.symbols.iter().filter(|(_, s)| s.linkage == Linkage::Private && s.defined && !s.entry);
        private.map(|(name, _)| *name).chain(self.labels.iter().copied()).collect()
    }

    /// Finds the items of the text, which the parser has found good.
    fn scan(&mut self) {
        let mut lexer = Lexer::new(self.input.text);
        loop {
            let first = lexer.next();
            match (first.kind, first.text) {
                (Kind::Eof, _) => return,
                (Kind::Dot, "version" | "target" | "address_size") => self.header_line(first, &mut lexer),
                (Kind::Dot, "section") => self.section(&mut lexer),
                (Kind::Dot, "file" | "pragma" | "alias") => {}
                (Kind::Dot, _) => self.item(first, &mut lexer),
                _ => {}
            }
        }
    }

    /// `.version 9.0`, `.target sm_90, debug`: what follows on the line, and behind commas.
    fn header_line(&mut self, first: Token<'a>, lexer: &mut Lexer<'a>) {
        let mut end = first.end;
        loop {
            let mut ahead = lexer.clone();
            let token = ahead.next();
            let part = match token.kind {
                Kind::Int | Kind::Float => first.text != "target",
                Kind::Ident | Kind::Punct(b',') => first.text == "target",
                _ => false,
            };
            if !part {
                break;
            }
            end = token.end;
            *lexer = ahead;
        }
        if first.text == "target" {
            self.target = self.input.text.get(first.start..end).unwrap_or_default();
        }
        self.header.push(first.start..end);
    }

    fn section(&mut self, lexer: &mut Lexer<'a>) {
        let (mut depth, mut last) = (0usize, None);
        loop {
            let token = lexer.next();
            match token.kind {
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') if depth <= 1 => return,
                Kind::Punct(b'}') => depth -= 1,
                Kind::Punct(b':') => self.labels.extend(last.take()),
                Kind::Eof => return,
                _ => {}
            }
            last = (token.kind == Kind::Ident).then_some(token.text);
        }
    }

    /// A function with its body, or variables up to their `;`.
    fn item(&mut self, first: Token<'a>, lexer: &mut Lexer<'a>) {
        let mut item = Declaration {
            names: Vec::new(),
            range: first.start..first.end,
            head: first.start..first.start,
            linking: None,
        };
        let (mut token, mut depth, mut function, mut head, mut expected) = (first, 0usize, false, false, true);
        loop {
            if matches!(token.kind, Kind::Ident) {
                self.words.insert(token.text);
            }
            match token.kind {
                Kind::Dot if matches!(token.text, "visible" | "weak" | "common" | "extern") && depth == 0 => {
                    item.linking = Some(token.start..token.end);
                }
                Kind::Dot if matches!(token.text, "func" | "entry") && depth == 0 => function = true,
                Kind::Ident if depth == 0 && expected => {
                    item.names.push(token.text);
                    expected = false;
                }
                Kind::Punct(b',') if depth == 0 => expected = !function,
                Kind::Punct(b'=') if depth == 0 && !head => (item.head.end, head) = (token.start, true),
                Kind::Punct(open @ (b'{' | b'(' | b'[')) => {
                    if open == b'{' && depth == 0 && function {
                        (item.head.end, head) = (token.start, true);
                    }
                    depth += 1;
                }
                Kind::Punct(b'}') if depth == 1 && function => break,
                Kind::Punct(b'}' | b')' | b']') => depth = depth.saturating_sub(1),
                Kind::Punct(b';') if depth == 0 => break,
                Kind::Eof => break,
                _ => {}
            }
            token = lexer.next();
        }
        item.range.end = token.end;
        if !head {
            item.head.end = token.start;
        }
        self.items.push(item);
    }

    /// What changes in this module's text, the `at`th, in the order of the text.
    fn edits(
        &self,
        at: usize,
        kept: &HashMap<&str, usize>,
        [own, adapted]: [&HashMap<&str, String>; 2],
        files: u32,
    ) -> Result<Vec<Edit>, String> {
        let mut edits: Vec<Edit> = self.header.iter().map(|r| (r.clone(), String::new())).collect();
        for item in &self.items {
            let adapter = item.names.first().and_then(|name| adapted.get(name));
            match adapter {
                Some(new) => edits.push((item.range.clone(), format!("{};", self.head(item, new)))),
                None => edits.extend(self.given_way(item, at, kept)?),
            }
        }
        let renamed = |name: &str| own.get(name).or_else(|| adapted.get(name));
        edits.sort_by_key(|(range, _)| range.start);
        let gone = edits.clone();
        let inside = |t: &Token<'_>| gone.iter().any(|(range, _)| range.start <= t.start && t.start < range.end);
        let mut lexer = Lexer::new(self.input.text);
        // Whether the next number is that of a file.
        let mut file = false;
        if !own.is_empty() || !adapted.is_empty() || files > 0 {
            loop {
                let token = lexer.next();
                match token.kind {
                    Kind::Eof => break,
                    Kind::Ident if !inside(&token) => {
                        edits.extend(renamed(token.text).map(|name| (token.start..token.end, name.clone())));
                    }
                    Kind::Int if file && files > 0 && !inside(&token) => {
                        if let Some(n) = token.text.parse::<u32>().ok().and_then(|n| n.checked_add(files)) {
                            edits.push((token.start..token.end, n.to_string()));
                        }
                    }
                    _ => {}
                }
                file = match token.kind {
                    Kind::Dot => matches!(token.text, "file" | "loc"),
                    Kind::Ident => token.text == "inlined_at",
                    _ => false,
                };
            }
        }
        edits.sort_by_key(|(range, _)| range.start);
        Ok(edits)
    }

    /// The edit of an item that another module's definition replaces.
    fn given_way(
        &self,
        item: &Declaration<'_>,
        at: usize,
        kept: &HashMap<&str, usize>,
    ) -> Result<Option<Edit>, String> {
        let replaced = |name: &&&str| self.gives_way(name) && kept.get(**name).is_some_and(|by| *by != at);
        let Some(name) = item.names.iter().find(replaced) else { return Ok(None) };
        if item.names.len() > 1 {
            let module = self.input.name;
            return Err(format!("'{name}' of {module} gives way to another: declare it in a statement of its own"));
        }
        let entry = self.symbols.get(name).is_some_and(|s| s.entry);
        if entry || kept.get(name).is_some_and(|by| *by < at) {
            return Ok(Some((item.range.clone(), String::new())));
        }
        let linking = item.linking.clone().unwrap_or(item.head.start..item.head.start);
        let part = |range: Range<usize>| self.input.text.get(range).unwrap_or_default();
        let (before, behind) = (part(item.head.start..linking.start), part(linking.end..item.head.end));
        Ok(Some((item.range.clone(), format!("{before}.extern{};", behind.trim_end()))))
    }

    fn text_with(&self, edits: &[Edit]) -> String {
        let mut text = String::with_capacity(self.input.text.len());
        let mut from = 0;
        for (range, replacement) in edits {
            text.push_str(self.input.text.get(from..range.start).unwrap_or_default());
            text.push_str(replacement);
            from = range.end;
        }
        text.push_str(self.input.text.get(from..).unwrap_or_default());
        text
    }
}
