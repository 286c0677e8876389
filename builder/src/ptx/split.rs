//! A library's text as modules: one for each kernel, with what it refers to, so that a driver compiles what is launched.
//!
//! The text is cut into pieces of whole lines. A piece belongs to the modules whose kernels reach it; directives belong to
//! all. Kernels that share memory which one of them may write stay in one module, for it would be two memories otherwise:
//! a `.global` that several reach, unless it is one of rustc's constants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::meta;
use warpsmith_image::map_in_threads;
use warpsmith_image::pack::{Piece, module_text};
use warpsmith_ptx::ast::Space;
use warpsmith_ptx::outline::{BodyOutline, Outline, is_constant, words};

/// Which text goes into which module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// The entries of each, by name.
    pub(super) modules: Vec<Vec<String>>,
    /// All of the text, in its order.
    pub(super) pieces: Vec<Piece>,
}

/// Lines that stand together and what they declare.
struct Part<'a> {
    lines: Range<usize>,
    /// Items in it.
    items: Vec<usize>,
    /// The kernel whose metadata this is.
    about: Option<&'a str>,
    /// Nothing but comments and blank lines, which go with what follows.
    is_remark: bool,
}

/// Cuts a text of this outline, which has no line directives. Refuses what it cannot cut without loss.
pub(super) fn split(text: &str, scan: &Outline<'_>) -> Result<Split, Vec<String>> {
    let starts = line_starts(text);
    let parts = parts(text, scan, &starts);
    let reach = Reach::of(text, scan, &parts, &starts);
    let modules = reach.modules();
    let mut pieces: Vec<Piece> = Vec::new();
    let of_entry: BTreeMap<&str, usize> =
        modules.iter().enumerate().flat_map(|(i, m)| m.entries.iter().map(move |name| (*name, i))).collect();
    for part in &parts {
        let owners = match part.about.and_then(|kernel| of_entry.get(kernel)) {
            Some(module) => Some(BTreeSet::from([*module])),
            None if part.items.is_empty() => None,
            None => {
                let has = |module: &Module<'_>| part.items.iter().any(|item| module.items.contains(item));
                Some(modules.iter().enumerate().filter(|(_, m)| has(m)).map(|(i, _)| i).collect())
            }
        };
        let at = |line: usize| starts.get(line).copied().unwrap_or(text.len());
        match pieces.last_mut() {
            Some(last) if last.modules == owners => {
                last.lines.end = part.lines.end;
                last.bytes.end = at(part.lines.end);
            }
            _ => pieces.push(Piece {
                bytes: at(part.lines.start)..at(part.lines.end),
                lines: part.lines.clone(),
                modules: owners,
            }),
        }
    }
    let names = modules.iter().map(|m| m.entries.iter().map(|name| (*name).to_owned()).collect()).collect();
    let split = Split { modules: names, pieces };
    let problems = check(text, scan, &split);
    if problems.is_empty() { Ok(split) } else { Err(problems) }
}

fn line_starts(text: &str) -> Vec<usize> {
    let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
    std::iter::once(0).chain(ends).filter(|start| *start < text.len()).collect()
}

/// Partitions the lines.
fn parts<'a>(text: &'a str, scan: &Outline<'a>, starts: &[usize]) -> Vec<Part<'a>> {
    let line_of = |offset: usize| starts.partition_point(|start| *start <= offset).saturating_sub(1);
    let line = |number: usize| {
        let from = starts.get(number).copied().unwrap_or(text.len());
        let to = starts.get(number + 1).copied().unwrap_or(text.len());
        text.get(from..to).unwrap_or_default().trim()
    };
    let about: BTreeMap<usize, &str> =
        meta::lines(text).into_iter().map(|(n, json)| (n - 1, kernel_named(json))).collect();
    let mut parts: Vec<Part<'a>> = Vec::new();
    let mut next = 0;
    let between = |from: usize, to: usize, parts: &mut Vec<Part<'a>>| {
        for number in from..to {
            let text = line(number);
            let about = about.get(&number).copied().filter(|name| !name.is_empty());
            let is_remark = about.is_none() && (text.is_empty() || text.starts_with("//"));
            parts.push(Part { lines: number..number + 1, items: Vec::new(), about, is_remark });
        }
    };
    for (index, item) in scan.items.iter().enumerate() {
        let (first, end) = (line_of(item.range.start), line_of(item.range.end.saturating_sub(1)) + 1);
        if first < next {
            // Two on one line stay together.
            if let Some(last) = parts.last_mut() {
                last.lines.end = last.lines.end.max(end);
                last.items.push(index);
            }
        } else {
            between(next, first, &mut parts);
            parts.push(Part { lines: first..end, items: vec![index], about: None, is_remark: false });
        }
        next = next.max(end);
    }
    between(next, starts.len(), &mut parts);
    with_remarks(parts)
}

/// Joins remarks with what follows them.
fn with_remarks(parts: Vec<Part<'_>>) -> Vec<Part<'_>> {
    let mut joined: Vec<Part<'_>> = Vec::with_capacity(parts.len());
    let mut remarks: Option<Range<usize>> = None;
    for mut part in parts {
        if part.is_remark {
            remarks = Some(remarks.map_or(part.lines.start, |r| r.start)..part.lines.end);
            continue;
        }
        if let Some(remarks) = remarks.take() {
            part.lines.start = remarks.start;
        }
        joined.push(part);
    }
    match (joined.last_mut(), remarks) {
        (Some(last), Some(remarks)) => last.lines.end = remarks.end,
        (None, Some(lines)) => joined.push(Part { lines, items: Vec::new(), about: None, is_remark: true }),
        (_, None) => {}
    }
    joined
}

fn kernel_named(json: &str) -> &str {
    let name = json.split_once("\"name\"").and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
    name.and_then(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()).unwrap_or_default()
}

fn items_of<'n>(word: &str, named: &'n HashMap<&str, Vec<usize>>) -> &'n [usize] {
    named.get(word).map_or(&[], Vec::as_slice)
}

/// The bodies of items that are functions.
fn bodies<'s, 'a>(scan: &'s Outline<'a>) -> HashMap<usize, &'s BodyOutline<'a>> {
    let functions = scan.items.iter().enumerate().filter(|(_, item)| item.space.is_none() && !item.names.is_empty());
    let with_functions = functions.zip(&scan.functions);
    with_functions.filter_map(|((item, _), function)| Some((item, function.body.as_ref()?))).collect()
}

struct Module<'a> {
    entries: BTreeSet<&'a str>,
    items: BTreeSet<usize>,
}

/// What refers to what.
struct Reach<'s, 'a> {
    scan: &'s Outline<'a>,
    /// For each item the others that must be with it.
    needs: Vec<BTreeSet<usize>>,
}

impl<'s, 'a> Reach<'s, 'a> {
    fn of(text: &str, scan: &'s Outline<'a>, parts: &[Part<'a>], starts: &[usize]) -> Reach<'s, 'a> {
        let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, item) in scan.items.iter().enumerate() {
            item.names.iter().for_each(|name| named.entry(name).or_default().push(index));
        }
        let referred = |text: &str| words(text).flat_map(|word| items_of(word, &named)).copied().collect();
        let at = |line: usize| starts.get(line).copied().unwrap_or(text.len());
        let lines = |part: &Part<'_>| text.get(at(part.lines.start)..at(part.lines.end)).unwrap_or_default();
        let of_all: BTreeSet<usize> =
            parts.iter().filter(|p| p.items.is_empty()).flat_map(|part| referred(lines(part))).collect();
        let mut needs = vec![of_all; scan.items.len()];
        let with_items: Vec<&Part<'a>> = parts.iter().filter(|p| !p.items.is_empty()).collect();
        let bodies = bodies(scan);
        let all_referred = map_in_threads(&with_items, |part| -> BTreeSet<usize> {
            let bodies =
                part.items.iter().map(|item| bodies.get(item).copied()).collect::<Option<Vec<&BodyOutline<'a>>>>();
            match bodies {
                // What was read already.
                Some(bodies) => {
                    let words = bodies.iter().flat_map(|body| &body.names);
                    words.flat_map(|word| items_of(word, &named)).copied().collect()
                }
                None => referred(lines(part)),
            }
        });
        for (part, all) in with_items.into_iter().zip(all_referred) {
            for item in &part.items {
                if let Some(needs) = needs.get_mut(*item) {
                    needs.extend(&all);
                    needs.extend(&part.items);
                }
            }
        }
        Reach { scan, needs }
    }

    fn from(&self, entry: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::from([entry]);
        let mut open = vec![entry];
        while let Some(item) = open.pop() {
            for needed in self.needs.get(item).into_iter().flatten() {
                if seen.insert(*needed) {
                    open.push(*needed);
                }
            }
        }
        seen
    }

    fn entries(&self) -> impl Iterator<Item = usize> {
        self.scan.items.iter().enumerate().filter(|(_, item)| item.is_entry).map(|(index, _)| index)
    }

    /// In the order of the text.
    fn modules(&self) -> Vec<Module<'a>> {
        let mut modules: Vec<Module<'a>> = Vec::new();
        for entry in self.entries() {
            let items = self.from(entry);
            let mut module = Module { entries: BTreeSet::new(), items };
            // Whose memory it shares, and who is reached itself, as by a launch from the device.
            let tied = |other: &mut Module<'a>| other.items.intersection(&module.items).any(|i| self.must_be_one(*i));
            let joined: Vec<Module<'a>> = modules.extract_if(.., tied).collect();
            for other in joined {
                module.entries.extend(other.entries);
                module.items.extend(other.items);
            }
            let item = self.scan.items.get(entry);
            module.entries.extend(item.into_iter().flat_map(|item| item.names.iter().copied()));
            modules.push(module);
        }
        modules
    }

    /// Whether there may be one copy of this only.
    fn must_be_one(&self, item: usize) -> bool {
        self.scan.items.get(item).is_some_and(|item| {
            item.is_entry || (item.space == Some(Space::Global) && !item.names.iter().all(|name| is_constant(name)))
        })
    }
}

/// That nothing is lost, by another way than it was cut.
fn check(text: &str, scan: &Outline<'_>, split: &Split) -> Vec<String> {
    let mut problems = Vec::new();
    let mut end = 0;
    for piece in &split.pieces {
        if piece.bytes.start != end {
            problems.push(format!("cut into modules, its bytes {end} to {} are lost", piece.bytes.start));
        }
        end = piece.bytes.end;
    }
    if end != text.len() {
        problems.push(format!("cut into modules, its bytes from {end} on are lost"));
    }
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    split.modules.iter().flatten().for_each(|name| *homes.entry(name).or_default() += 1);
    for entry in scan.functions.iter().filter(|f| f.is_entry) {
        if homes.remove(entry.name) != Some(1) {
            problems.push(format!("cut into modules, kernel `{}` is not in exactly one", entry.name));
        }
    }
    problems.extend(homes.keys().map(|name| format!("cut into modules, `{name}` is in one, but is no kernel")));
    let modules: Vec<(usize, &Vec<String>)> = split.modules.iter().enumerate().collect();
    let misread = map_in_threads(&modules, |(module, names)| {
        let text = module_text(text, &split.pieces, *module);
        let own = warpsmith_ptx::outline(&text);
        let entries: BTreeSet<&str> = own.functions.iter().filter(|f| f.is_entry).map(|f| f.name).collect();
        let is_as_cut = entries.iter().eq(names.iter()) && own.version == scan.version && own.target == scan.target;
        (!is_as_cut).then(|| format!("the module of {} does not read as cut: it has {entries:?}", names.join(", ")))
    });
    problems.extend(misread.into_iter().flatten());
    problems
}

#[cfg(test)]
mod tests;
