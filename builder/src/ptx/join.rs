//! The texts of a crate's units as one.
//!
//! rustc writes a text for each module of a crate, so that an edit compiles the modules that it reaches and takes the others as
//! they were. Each text holds everything that its kernels refer to, but for statics and exported functions: those are declared
//! `.extern` where another text defines them.
//!
//! Two texts may have private things of one name. Except for constants, which are named after their content, the second is
//! renamed and never dropped: LLVM specialises a private function for the callers of its own text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::check::DRIVER_FUNCTIONS;
use super::lines::{Numbered, chains, push_reference, push_table, reference};
use warpsmith_image::map_in_threads;
use warpsmith_ptx::ast::Space;
use warpsmith_ptx::outline::{Outline, is_constant, outline, with_renamed, words};

/// The shared memory that a launch gives, by the name that `warpsmith_device::shared::dynamic` has for it. The device crate declares it
/// in its own text, which is none of these.
const DYNAMIC_SHARED: &str = "warpsmith_dynamic_shared";

/// What a text declares and nobody defines, by name: it is in another crate, if anywhere.
pub(crate) fn unresolved(text: &str) -> Vec<String> {
    // The shared memory that a launch gives needs no definition.
    let is_candidate = |line: &str| line.starts_with(".extern") && !line.contains(".shared");
    if !text.lines().any(is_candidate) {
        return Vec::new();
    }
    let scan = outline(text);
    let functions =
        scan.functions.iter().filter(|f| f.is_extern && !DRIVER_FUNCTIONS.contains(&f.name)).map(|f| f.name);
    let variables = scan.variables.iter().filter(|v| v.is_extern && v.space != Space::Shared).map(|v| v.name);
    functions.chain(variables).map(str::to_owned).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Body,
    /// A function without a body.
    Prototype,
    Variable,
    ExternVariable,
}

/// A declaration of a unit.
struct Item<'a> {
    unit: usize,
    names: Vec<&'a str>,
    kind: Kind,
    range: Range<usize>,
    /// Its first word, if that is one of linkage.
    linkage: Option<&'a str>,
}

impl Item<'_> {
    fn is_definition(&self) -> bool {
        matches!(self.kind, Kind::Body | Kind::Variable)
    }

    /// Whether other texts mean this by its name.
    fn is_public(&self) -> bool {
        self.is_definition() && self.linkage.is_some()
    }
}

/// Joins texts that were made for the same architecture. The order of the texts is the order of what they define.
pub(crate) fn join<T: AsRef<str>>(units: &[T]) -> Result<String, String> {
    let units: &[&str] = &units.iter().map(AsRef::as_ref).collect::<Vec<_>>();
    let scans: Vec<Outline<'_>> = map_in_threads(units, |unit| outline(unit));
    let heads: BTreeSet<_> = scans.iter().map(|scan| (scan.version, scan.target)).collect();
    let Some(first) = units.first() else { return Err("the compiler wrote no text".to_owned()) };
    if heads.len() > 1 {
        return Err(format!("the texts of the crate's modules are of several versions or targets: {heads:?}"));
    }
    let items: Vec<Vec<Item<'_>>> =
        scans.iter().enumerate().map(|(unit, scan)| items(unit, units.get(unit).map_or("", |u| u), scan)).collect();
    let public: BTreeMap<&str, &Item<'_>> =
        items.iter().flatten().filter(|i| i.is_public()).flat_map(|i| i.names.iter().map(move |n| (*n, i))).collect();

    let (mut files, mut all_chains) = (Files::default(), Numbered::default());
    let (mut parts, mut bodies) = (Parts::default(), Vec::new());
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    let mut declared: BTreeSet<String> = BTreeSet::new();
    for (unit, items) in units.iter().zip(&items) {
        let (_, chains) = chains(unit);
        let chains = chains.into_iter().map(|chain| all_chains.of(chain)).collect();
        let renamed = renamed(unit, items, &public, &taken);
        let words = Arc::new(Words { files: files.of(unit), chains, renamed });
        let renamed = &words.renamed;
        for item in items {
            let text = unit.get(item.range.clone()).unwrap_or_default();
            let name = item.names.first().copied().unwrap_or_default();
            let is_declared = |declared: &mut BTreeSet<String>| !declared.insert(name.to_owned());
            match item.kind {
                Kind::ExternVariable if public.contains_key(name) || is_declared(&mut declared) => {}
                Kind::ExternVariable => {
                    parts.variables.push((item.names.iter().map(|n| (*n).to_owned()).collect(), text.to_owned()));
                }
                Kind::Prototype if item.linkage == Some(".extern") => {
                    if is_declared(&mut declared) {
                        continue;
                    }
                    let bare = text.strip_prefix(".extern").unwrap_or(text);
                    match public.get(name) {
                        Some(body) => parts.prototypes.push(format!("{}{bare}", body.linkage.unwrap_or_default())),
                        None => parts.prototypes.push(text.to_owned()),
                    }
                }
                Kind::Prototype => parts.prototypes.push(with_renamed(text, renamed)),
                Kind::Body | Kind::Variable => {
                    // A constant that another text has, or a copy of what the linker is to choose one of.
                    if taken.contains_key(name) && !renamed.contains_key(name) {
                        continue;
                    }
                    let names: Vec<String> = item
                        .names
                        .iter()
                        .map(|name| renamed.get(*name).cloned().unwrap_or_else(|| (*name).to_owned()))
                        .collect();
                    for new in &names {
                        taken.insert(new.clone(), text);
                    }
                    match item.kind {
                        Kind::Variable => parts.variables.push((names, with_renamed(text, renamed))),
                        _ => bodies.push((text, Arc::clone(&words))),
                    }
                }
            }
        }
        parts.others.extend(others(unit, items));
    }
    if units.iter().any(|unit| unit.contains(DYNAMIC_SHARED)) && !declared.contains(DYNAMIC_SHARED) {
        let declaration = format!(".extern .shared .align 16 .b8 {DYNAMIC_SHARED}[];\n");
        parts.variables.push((vec![DYNAMIC_SHARED.to_owned()], declaration));
    }
    parts.bodies = map_in_threads(&bodies, |(text, words)| words.applied_to(text));
    let head = first.lines().filter(|line| is_head(line)).map(str::to_owned);
    let mut text = parts.text(head.collect(), &files);
    push_table(&mut text, &all_chains.in_order);
    Ok(text)
}

fn items<'a>(unit: usize, text: &'a str, scan: &Outline<'a>) -> Vec<Item<'a>> {
    let with_body: BTreeSet<&str> = scan.functions.iter().filter(|f| f.body.is_some()).map(|f| f.name).collect();
    let linkage = |range: &Range<usize>| {
        let word = text.get(range.clone())?.split_whitespace().next()?;
        [".visible", ".weak", ".common", ".extern"].into_iter().find(|known| *known == word)
    };
    scan.items
        .iter()
        .map(|item| {
            let linkage = linkage(&item.range);
            let ends_open = text.get(item.range.clone()).is_some_and(|t| t.ends_with(';'));
            let has_body = item.names.iter().any(|name| with_body.contains(name));
            let kind = match (item.space, linkage) {
                (None, _) if has_body && !ends_open => Kind::Body,
                (None, _) => Kind::Prototype,
                (_, Some(".extern")) => Kind::ExternVariable,
                _ => Kind::Variable,
            };
            Item { unit, names: item.names.clone(), kind, range: item.range.clone(), linkage }
        })
        .collect()
}

/// New names for private things of a unit whose names are taken.
fn renamed<'a>(
    unit: &str,
    items: &[Item<'a>],
    public: &BTreeMap<&str, &Item<'_>>,
    taken: &BTreeMap<String, &str>,
) -> BTreeMap<&'a str, String> {
    let mut renamed = BTreeMap::new();
    for item in items.iter().filter(|item| item.is_definition() && !item.is_public()) {
        let text = unit.get(item.range.clone()).unwrap_or_default();
        for name in &item.names {
            let of_another = public.get(name).is_some_and(|public| public.unit != item.unit);
            let is_same = |before: &&str| is_constant(name) && *before == text;
            if of_another || taken.get(*name).is_some_and(|before| !is_same(before)) {
                let is_free = |new: &String| !taken.contains_key(new) && !public.contains_key(new.as_str());
                let new = (1_usize..).map(|n| format!("{name}_{n}")).find(is_free);
                renamed.extend(new.map(|new| (*name, new)));
            }
        }
    }
    renamed
}

fn is_head(line: &str) -> bool {
    [".version", ".target", ".address_size"].iter().any(|word| line.starts_with(word))
}

/// What stands between the declarations and says something: metadata, and directives that are nobody's.
fn others(text: &str, items: &[Item<'_>]) -> Vec<String> {
    let mut between = Vec::new();
    let mut from = 0;
    for item in items {
        between.extend(text.get(from..item.range.start));
        from = from.max(item.range.end);
    }
    between.extend(text.get(from..));
    between
        .into_iter()
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|line| line.starts_with("// @kernel") || !(line.is_empty() || line.starts_with("//")))
        .filter(|line| !is_head(line) && !line.starts_with(".file") && !line.starts_with(".section\t.debug_macinfo"))
        .map(str::to_owned)
        .collect()
}

/// Source files, numbered anew.
#[derive(Default)]
struct Files {
    numbers: BTreeMap<String, usize>,
    in_order: Vec<String>,
}

impl Files {
    /// For the numbers of this unit those of the whole.
    fn of(&mut self, unit: &str) -> BTreeMap<String, usize> {
        let mut of = BTreeMap::new();
        for line in unit.lines() {
            let Some((number, path)) = line.trim().strip_prefix(".file").and_then(|l| l.trim().split_once([' ', '\t']))
            else {
                continue;
            };
            let next = self.in_order.len() + 1;
            let new = *self.numbers.entry(path.trim().to_owned()).or_insert(next);
            if new == next {
                self.in_order.push(path.trim().to_owned());
            }
            of.insert(number.to_owned(), new);
        }
        of
    }
}

/// What the names and numbers of a unit are in the whole.
struct Words<'a> {
    renamed: BTreeMap<&'a str, String>,
    files: BTreeMap<String, usize>,
    chains: Vec<usize>,
}

impl Words<'_> {
    /// A body as it stands in the whole: files and chains of its line directives have other numbers.
    fn applied_to(&self, text: &str) -> String {
        let text = with_renamed(text, &self.renamed);
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let rest = line.trim_start().strip_prefix(".loc").map(str::trim_start);
            let parts = rest.and_then(|rest| rest.split_once(' '));
            let Some((file, place)) = parts.and_then(|(old, rest)| Some((self.files.get(old)?, rest))) else {
                out.push_str(line);
                continue;
            };
            let (place, chain) = reference(place.trim_end());
            out.push_str("\t.loc\t");
            out.push_str(&file.to_string());
            out.push(' ');
            out.push_str(place);
            if let Some(chain) = chain.and_then(|chain| self.chains.get(chain)) {
                push_reference(&mut out, *chain);
            }
            out.push('\n');
        }
        out
    }
}

#[derive(Default)]
struct Parts {
    others: Vec<String>,
    prototypes: Vec<String>,
    /// With their names.
    variables: Vec<(Vec<String>, String)>,
    bodies: Vec<String>,
}

impl Parts {
    fn text(self, head: Vec<String>, files: &Files) -> String {
        let files = files.in_order.iter().enumerate().map(|(i, path)| format!("\t.file\t{} {path}", i + 1));
        let mut out = String::with_capacity(self.bodies.iter().map(String::len).sum::<usize>() + (1 << 16));
        for part in head
            .into_iter()
            .chain(self.others)
            .chain(self.prototypes)
            .chain(in_order(self.variables))
            .chain(self.bodies)
            .chain(files)
        {
            out.push_str(&part);
            out.push('\n');
        }
        out
    }
}

/// Variables behind those that their values name.
fn in_order(variables: Vec<(Vec<String>, String)>) -> Vec<String> {
    let at: BTreeMap<&str, usize> =
        variables.iter().enumerate().flat_map(|(i, (names, _))| names.iter().map(move |n| (n.as_str(), i))).collect();
    let needs: Vec<Vec<usize>> = variables
        .iter()
        .map(|(_, text)| match text.split_once('=') {
            Some((_, value)) => words(value).filter_map(|word| at.get(word).copied()).collect(),
            None => Vec::new(),
        })
        .collect();
    let mut order = Vec::with_capacity(variables.len());
    let mut seen = vec![false; variables.len()];
    for start in 0..variables.len() {
        let mut open = vec![(start, false)];
        while let Some((variable, is_done)) = open.pop() {
            if is_done {
                order.push(variable);
                continue;
            }
            let Some(seen) = seen.get_mut(variable) else { continue };
            if !std::mem::replace(seen, true) {
                open.push((variable, true));
                open.extend(needs.get(variable).into_iter().flatten().rev().map(|need| (*need, false)));
            }
        }
    }
    order.into_iter().filter_map(|i| variables.get(i).map(|(_, text)| text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version 7.4\n.target sm_80\n.address_size 64\n\n";

    fn joined(units: &[&str]) -> String {
        let units: Vec<String> = units.iter().map(|unit| format!("{HEAD}{unit}")).collect();
        join(&units).unwrap()
    }

    #[test]
    fn lines_name_the_files_of_the_whole() {
        let got = joined(&[
            "// @kernel {\"name\":\"a\"}\n.visible .entry a()\n{\n\t.loc\t1 7 1\n\t.loc\t2 8 1 // @0\n\tret;\n}\n\t.file\t1 \"/a.rs\"\n\t.file\t2 \"/c.rs\"\n// @0 [ x ]\n",
            "// @kernel {\"name\":\"b\"}\n.visible .entry b()\n{\n\t.loc\t1 9 1 // @0\n\t.loc\t2 5 1 // @1\n\tret;\n}\n\t.file\t1 \"/b.rs\"\n\t.file\t2 \"/a.rs\"\n// @0 [ y ]\n// @1 [ x ]\n",
        ]);
        assert_eq!(
            got,
            ".version 7.4\n.target sm_80\n.address_size 64\n// @kernel {\"name\":\"a\"}\n// @kernel {\"name\":\"b\"}\n\
             .visible .entry a()\n{\n\t.loc\t1 7 1\n\t.loc\t2 8 1 // @0\n\tret;\n}\n\
             .visible .entry b()\n{\n\t.loc\t3 9 1 // @1\n\t.loc\t1 5 1 // @0\n\tret;\n}\n\
             \t.file\t1 \"/a.rs\"\n\t.file\t2 \"/c.rs\"\n\t.file\t3 \"/b.rs\"\n// @0 [ x ]\n// @1 [ y ]\n"
        );
        assert!(unresolved(&got).is_empty());
    }

    #[test]
    fn private_functions_of_one_name_stay_two() {
        let unit = |entry: &str, number: u32| {
            format!(
                ".func (.param .b32 r) help(.param .b32 p)\n{{\n\tst.param.b32 [r], {number};\n\tret;\n}}\n\
                 .visible .entry {entry}()\n{{\n\tcall.uni (r), help, (p);\n\tret;\n}}\n"
            )
        };
        // Of one text too: what is the same here was specialised for its own callers, or calls something that was.
        for second in [2, 1] {
            let got = joined(&[&unit("a", 1), &unit("b", second)]);
            assert_eq!(got.matches("help(").count(), 1, "{got}");
            assert_eq!(got.matches("help_1(").count(), 1, "{got}");
            assert!(got.contains(".entry b()\n{\n\tcall.uni (r), help_1, (p)"), "{got}");
            assert!(got.contains(".entry a()\n{\n\tcall.uni (r), help, (p)"), "{got}");
        }
    }

    #[test]
    fn a_declaration_goes_where_its_definition_is() {
        let user = ".extern .func once(.param .b32 p)\n;\n.extern .global .align 4 .b8 TABLE[8];\n\
                    .visible .entry a()\n{\n\tcall.uni once, (p);\n\tld.global.u32 %r1, [TABLE+4];\n\tret;\n}\n";
        let owner = ".visible .global .align 4 .b8 TABLE[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n\
                     .visible .func once(.param .b32 p)\n{\n\tret;\n}\n";
        let got = joined(&[user, owner]);
        assert!(unresolved(&got).is_empty(), "{got}");
        assert!(!got.contains(".extern"), "{}", got);
        let place = |what: &str| got.find(what).unwrap();
        assert!(place(".visible .func once(.param .b32 p)\n;") < place(".entry a()"), "{}", got);
        assert!(place("TABLE[8] =") < place(".entry a()"), "{}", got);
        assert_eq!(got.matches("TABLE[8]").count(), 1);

        let got = joined(&[user, user.replace("a()", "b()").as_str()]);
        assert_eq!(unresolved(&got), ["once", "TABLE"]);
        assert_eq!(got.matches(".extern").count(), 2, "{}", got);
    }

    #[test]
    fn dynamic_shared_memory_of_the_device_crate_is_declared_once() {
        let unit =
            |entry: &str| format!(".visible .entry {entry}()\n{{\n\tmov.b32 %r1, {DYNAMIC_SHARED};\n\tret;\n}}\n");
        let got = joined(&[&unit("a"), &unit("b")]);
        let declaration = format!(".extern .shared .align 16 .b8 {DYNAMIC_SHARED}[];");
        assert_eq!(got.matches(&declaration).count(), 1, "{got}");
        assert!(got.find(&declaration) < got.find(".entry a()"), "{got}");
        assert!(!joined(&[".visible .entry a()\n{\n\tret;\n}\n"]).contains(DYNAMIC_SHARED));
    }

    #[test]
    fn constants_of_one_content_are_one_and_dynamic_shared_memory_is_nobodys() {
        let name = format!("alloc_{}", "0123456789abcdef".repeat(2));
        let unit = |entry: &str, value: u32| {
            format!(
                ".extern .shared .align 16 .b8 dynamic[];\n.global .align 1 .b8 {name}[1] = {{{value}}};\n\
                 .global .align 8 .u64 to[1] = {{generic({name})}};\n.visible .entry {entry}()\n{{\n\tmov.u64 %rd1, to;\n\tmov.u64 %rd2, dynamic;\n\tret;\n}}\n"
            )
        };
        let got = joined(&[&unit("a", 1), &unit("b", 1)]);
        assert!(unresolved(&got).is_empty());
        assert_eq!(got.matches(&format!("{name}[1]")).count(), 1, "{}", got);
        assert_eq!(got.matches("dynamic[]").count(), 1, "{}", got);
        assert!(got.contains("to_1[1]") && got.contains("mov.u64 %rd1, to_1;"), "{}", got);
        // A hash that does not hold what it says is a name like any other.
        let got = joined(&[&unit("a", 1), &unit("b", 2)]);
        assert!(got.contains(&format!("{name}_1[1] = {{2}}")) && got.contains(&format!("generic({name}_1)")), "{got}");
    }

    #[test]
    fn variables_stand_behind_what_their_values_name() {
        let got = joined(&[
            ".extern .global .b32 later;\n.global .u64 at = generic(later);\n",
            ".visible .global .b32 later = 3;\n",
        ]);
        assert!(got.find("later = 3") < got.find("at = "), "{}", got);
    }

    #[test]
    fn texts_of_several_targets_are_refused() {
        let of = |sm: u32| format!(".version 7.4\n.target sm_{sm}\n.address_size 64\n");
        assert!(join(&[of(80), of(90)]).unwrap_err().contains("sm_90"));
        assert!(join::<String>(&[]).is_err());
    }

    #[test]
    fn no_text_is_too_odd() {
        let text = format!(
            "{HEAD}.extern .func f();\n.visible .global .b32 x = 1;\n.func g()\n{{\n\t.loc\t1 2 3\n}}\n.file\t1 \"a\"\n"
        );
        for end in 0..text.len() {
            let _ = join(&[text[..end].to_owned(), text[..end].to_owned()]);
        }
    }
}
