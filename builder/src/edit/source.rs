//! A file of source as a compilation for the GPU sees it: kernels with the functions that are theirs alone, and the rest.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The items of a file, but for those that are for the host alone.
#[derive(Debug)]
struct SourceFile<'a> {
    /// What code of other files may depend on.
    rest: Vec<SourceItem<'a>>,
    /// Functions under `#[kernel]`, which no other code can name, and private functions that nothing but these name.
    kernels: Vec<SourceItem<'a>>,
}

/// An item with its attributes, and where it stands: line directives say it.
#[derive(Debug, PartialEq, Eq)]
struct SourceItem<'a> {
    line: usize,
    column: usize,
    text: &'a str,
}

/// What differs between two states of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Nothing that is compiled for the GPU.
    None,
    /// Kernels alone.
    Kernels,
    /// More, or more than can be told.
    Other,
}

/// Compares two states of a file.
pub(super) fn difference(old: &str, new: &str) -> Difference {
    let (Some(old), Some(new)) = (SourceFile::read(old), SourceFile::read(new)) else { return Difference::Other };
    if old.rest != new.rest || old.kernels.len() != new.kernels.len() {
        return Difference::Other;
    }
    if old.kernels == new.kernels { Difference::None } else { Difference::Kernels }
}

/// What tells a state of a file from those that the GPU would get other code of.
pub(super) fn seen(text: &str) -> String {
    SourceFile::read(text).map_or_else(|| text.to_owned(), |source| format!("{source:?}"))
}

/// Attributes of what no GPU gets, as token trees are written out.
const OF_THE_HOST: [&str; 2] = ["cfg(not(target_arch=\"nvptx64\"))", "cfg(test)"];

/// Attributes of a function that leave it to those who name it.
const HARMLESS: [&str; 9] =
    ["doc", "inline", "device", "warpsmith_device::device", "allow", "expect", "must_use", "cfg", "rustfmt::skip"];

/// What an item is to the others of its file.
#[derive(PartialEq, Eq)]
enum ItemKind {
    Kernel,
    /// A function that this module and those below it may name.
    Private(String),
    /// A module below this one.
    Module,
    Other,
}

struct Read<'a> {
    item: SourceItem<'a>,
    kind: ItemKind,
    /// All words in it.
    words: BTreeSet<String>,
}

impl<'a> SourceFile<'a> {
    /// `None`: it is not made of tokens.
    fn read(text: &'a str) -> Option<SourceFile<'a>> {
        let trees: Vec<TokenTree> = text.parse::<TokenStream>().ok()?.into_iter().collect();
        let mut all = Vec::new();
        let mut rest = trees.as_slice();
        while let Some(first) = rest.first() {
            let (attributes, length) = extent(rest);
            let (trees, behind) = rest.split_at_checked(length)?;
            rest = behind;
            if attributes.iter().any(|attribute| OF_THE_HOST.contains(&without_spaces(attribute).as_str())) {
                continue;
            }
            let (start, range) = (first.span().start(), first.span().byte_range());
            let text = text.get(range.start..trees.last()?.span().byte_range().end)?;
            let mut words = BTreeSet::new();
            trees.iter().for_each(|tree| add_words(tree, &mut words));
            let kind = kind(&attributes, trees.get(2 * attributes.len()..).unwrap_or_default());
            all.push(Read { item: SourceItem { line: start.line, column: start.column, text }, kind, words });
        }
        Some(SourceFile::sorted(all))
    }

    fn sorted(mut all: Vec<Read<'a>>) -> SourceFile<'a> {
        let is_rest = |kind: &ItemKind| matches!(kind, ItemKind::Other | ItemKind::Module);
        if all.iter().any(|read| read.kind == ItemKind::Module) {
            all.iter_mut().filter(|read| read.kind != ItemKind::Kernel).for_each(|read| read.kind = ItemKind::Other);
        }
        loop {
            let named: BTreeSet<String> =
                all.iter().filter(|read| is_rest(&read.kind)).flat_map(|read| read.words.iter().cloned()).collect();
            let is_shared =
                |read: &&mut Read<'a>| matches!(&read.kind, ItemKind::Private(name) if named.contains(name));
            let shared: Vec<_> = all.iter_mut().filter(is_shared).collect();
            if shared.is_empty() {
                break;
            }
            shared.into_iter().for_each(|read| read.kind = ItemKind::Other);
        }
        let (rest, kernels): (Vec<_>, Vec<_>) = all.into_iter().partition(|read| is_rest(&read.kind));
        let items = |all: Vec<Read<'a>>| all.into_iter().map(|read| read.item).collect();
        SourceFile { rest: items(rest), kernels: items(kernels) }
    }
}

fn add_words(tree: &TokenTree, words: &mut BTreeSet<String>) {
    match tree {
        TokenTree::Ident(word) => drop(words.insert(word.to_string())),
        TokenTree::Group(group) => group.stream().into_iter().for_each(|tree| add_words(&tree, words)),
        _ => {}
    }
}

/// Of an item of these attributes, and what stands behind them.
fn kind(attributes: &[TokenStream], trees: &[TokenTree]) -> ItemKind {
    let words: Vec<String> = trees
        .iter()
        .map_while(|tree| match tree {
            TokenTree::Ident(word) => Some(word.to_string()),
            _ => None,
        })
        .collect();
    let function = trees.iter().position(|tree| matches!(tree, TokenTree::Ident(word) if word == "fn"));
    if function.is_some() && attributes.iter().any(is_kernel) {
        return ItemKind::Kernel;
    }
    if words.iter().any(|word| word == "mod") {
        return ItemKind::Module;
    }
    let is_harmless = |attribute: &TokenStream| path(attribute).is_some_and(|path| HARMLESS.contains(&path.as_str()));
    match words.as_slice() {
        [before @ .., word, name] if word == "fn" && before.iter().all(|w| w == "unsafe" || w == "const") => {
            if attributes.iter().all(is_harmless) {
                ItemKind::Private(name.clone())
            } else {
                ItemKind::Other
            }
        }
        _ => ItemKind::Other,
    }
}

/// The attributes of the first item, and of how many trees it is made: up to its braces or semicolon. What stands behind braces that
/// were not its end is taken for another item.
fn extent(trees: &[TokenTree]) -> (Vec<TokenStream>, usize) {
    if let [TokenTree::Punct(hash), TokenTree::Punct(mark), TokenTree::Group(_), ..] = trees
        && (hash.as_char(), mark.as_char()) == ('#', '!')
    {
        return (Vec::new(), 3);
    }
    let mut attributes = Vec::new();
    let mut at = 0;
    while let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = trees.get(at..).unwrap_or_default() {
        if hash.as_char() != '#' || group.delimiter() != Delimiter::Bracket {
            break;
        }
        attributes.push(group.stream());
        at += 2;
    }
    let is_end = |tree: &TokenTree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    };
    let left = trees.get(at..).unwrap_or_default();
    (attributes, at + left.iter().position(is_end).map_or(left.len(), |end| end + 1))
}

fn without_spaces(tokens: &TokenStream) -> String {
    tokens.to_string().replace(' ', "")
}

/// What an attribute is called, with its path; `None`: it has another form.
fn path(attribute: &TokenStream) -> Option<String> {
    let trees: Vec<TokenTree> = attribute.clone().into_iter().collect();
    let is_of_path = |tree: &TokenTree| match tree {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(mark) => mark.as_char() == ':',
        _ => false,
    };
    let length = trees.iter().position(|tree| !is_of_path(tree)).unwrap_or(trees.len());
    let name: String = trees.iter().take(length).map(ToString::to_string).collect();
    (length > 0).then_some(name)
}

/// Whether it is `kernel`, under whatever path, of one kernel. The function that instances are made of can be called.
fn is_kernel(attribute: &TokenStream) -> bool {
    let options = attribute.clone().into_iter().find_map(|tree| match tree {
        TokenTree::Group(options) => Some(options.stream()),
        _ => None,
    });
    let is_instances = |tree: TokenTree| matches!(tree, TokenTree::Ident(word) if word == "instances");
    path(attribute).is_some_and(|path| path == "kernel" || path.ends_with("::kernel"))
        && !options.is_some_and(|options| options.into_iter().any(is_instances))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"//! A file.
use device::{In, kernel};

/// One.
#[kernel(block = 256)]
pub unsafe fn one(x: In<f32>) {
    own(x); // {
}

#[device]
pub fn helper(x: In<f32>) { shared('{') }

#[device::kernel(block = 32)]
#[allow(unused)]
unsafe fn two() {
    loop {}
}

#[kernel(block = 32, instances(three_4<4>))]
unsafe fn three<const V: usize>() {}

fn shared(c: char) { deeper(c) }
fn deeper(c: char) {}
/// Of the kernels.
#[inline(always)]
unsafe fn own(x: In<f32>) { own_too(x) }
const fn own_too(x: In<f32>) {}
#[unsafe(no_mangle)]
fn exported() {}

#[cfg(not(target_arch = "nvptx64"))]
pub fn reference() -> f64 { own(1.0) }

#[cfg(test)]
mod tests {}
"#;

    #[test]
    fn kernels_are_told_from_the_rest() {
        let source = SourceFile::read(FILE).unwrap();
        let lines = |items: &[SourceItem<'_>]| items.iter().map(|item| item.line).collect::<Vec<_>>();
        assert_eq!(lines(&source.kernels), [4, 13, 24, 27]);
        assert!(source.kernels[0].text.starts_with("/// One.\n#[kernel") && source.kernels[1].text.contains("loop {}"));
        // The semicolon behind the braces of `use` is what is left of line 2.
        assert_eq!(lines(&source.rest), [1, 2, 2, 10, 19, 22, 23, 28]);
        assert!(SourceFile::read("fn f( {").is_none());
        // A module below may name what is private here.
        let with_module = format!("{FILE}mod below;\n");
        assert_eq!(lines(&SourceFile::read(&with_module).unwrap().kernels), [4, 13]);
    }

    #[test]
    fn an_edit_is_of_kernels_alone_or_of_more() {
        use Difference::{Kernels, None, Other};
        for (from, to, want) in [
            ("own(x); // {", "own(x); // }", Kernels),
            ("own(x); // {", "own(y);", Kernels),
            ("    loop {}\n", "    loop { break; }\n", Kernels),
            ("{ own_too(x) }", "{ own_too(y) }", Kernels),
            ("own_too(x: In<f32>) {}", "own_too(x: In<f32>) { loop {} }", Kernels),
            // A kernel gets another name, which is for the compiler's text to tell.
            ("fn two", "fn second", Kernels),
            // What the GPU gets none of.
            ("{ own(1.0) }", "{ own(2.0) }", None),
            ("mod tests {}", "mod tests { fn f() {} }", None),
            ("}\n\n#[cfg(test)]", "}\n\n\n#[cfg(test)]", None),
            // Others use it, if by another.
            ("fn deeper(c: char) {}", "fn deeper(c: char) { loop {} }", Other),
            ("shared('{')", "shared('}')", Other),
            // A kernel uses what others use.
            ("own(x); // {", "shared(x); // {", Kernels),
            // Others use what was the kernels'.
            ("{ deeper(c) }", "{ deeper(c); own() }", Other),
            ("unsafe fn three<const V: usize>() {}", "unsafe fn three<const V: usize>() { loop {} }", Other),
            ("device::{In, kernel}", "device::{In, Out, kernel}", Other),
            ("//! A file.", "//! This file.", Other),
            // Others stand elsewhere.
            ("    own(x); // {\n", "\n    own(x); // {\n", Other),
            ("#[device]\npub fn", "#[device]\n\npub fn", Other),
            ("#[kernel(block = 256)]", "#[device]", Other),
            ("mod tests {}", "mod tests {", Other),
            ("fn exported() {}", "fn exported() { loop {} }", Other),
        ] {
            let edited = FILE.replacen(from, to, 1);
            assert_ne!(edited, FILE, "{from}");
            assert_eq!(difference(FILE, &edited), want, "{from} → {to}");
        }
        assert_eq!(difference(FILE, FILE), None);
    }
}
