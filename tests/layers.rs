//! Which file imports which: no circle of more than three files. A circle is read, changed and compiled as one piece, however
//! small its files are; what lies below must not know what is above it.
//!
//! An import is a `use` of the crate's own paths, or such a path in the code. One that leads through a `pub use` leads to where
//! the item is, so that a façade neither makes a circle nor hides one. That a file declares its submodules, and calls them by
//! their names, is no import.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod sources;

use sources::{listed, members, workspace};

/// Files that may import each other in a circle.
const MOST: usize = 3;
/// Crates with a larger circle: how many files are in their largest, and what holds them together.
const LARGER: [(&str, usize, &str); 1] = [(
    "runtime",
    14,
    "devices, streams, buffers, events and graphs are handles that keep each other alive: this one stays",
)];

/// A module's path within its crate; the root's is empty.
type Module = Vec<String>;

/// Paths that a file's code names, as they are written.
#[derive(Default)]
struct Imports {
    uses: Vec<Use>,
    inline: Vec<Vec<String>>,
}

struct Use {
    path: Vec<String>,
    /// What it is called in the file.
    name: String,
    /// A façade is a road, not an import: what it leads to is looked up where somebody takes it.
    public: bool,
}

struct Sources {
    files: BTreeMap<Module, PathBuf>,
    imports: BTreeMap<Module, Imports>,
}

impl Sources {
    fn read(root: &Path) -> Sources {
        let files = modules(root);
        let imports =
            files.iter().map(|(m, path)| (m.clone(), parse(&fs::read_to_string(root.join(path)).unwrap()))).collect();
        Sources { files, imports }
    }

    /// An absolute path within the crate, if the path leads into it.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Vec<String>> {
        let (mut at, mut rest) = (from.clone(), path);
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            name => {
                let child = [from.as_slice(), &[name.to_owned()]].concat();
                self.files.get(&child)?;
            }
        }
        Some([at, rest.to_vec()].concat())
    }

    /// The file in which a path ends.
    fn target(&self, path: &[String], depth: usize) -> Module {
        let n = (0..=path.len()).rev().find(|n| self.files.contains_key(&path[..*n])).unwrap();
        let (module, rest) = (path[..n].to_vec(), &path[n..]);
        let facade = |name: &String| self.imports[&module].uses.iter().find(|u| u.name == *name);
        if let Some(through) = rest.first().filter(|_| depth < 8).and_then(facade)
            && let Some(on) = self.absolute(&module, &through.path)
        {
            return self.target(&[&on, &rest[1..]].concat(), depth + 1);
        }
        module
    }

    fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let of = |module: &Module, imports: &Imports| {
            let paths = imports.uses.iter().filter(|u| !u.public).map(|u| &u.path).chain(&imports.inline);
            let absolute = paths.filter_map(|p| self.absolute(module, p));
            let targets: BTreeSet<Module> =
                absolute.map(|p| self.target(&p, 0)).filter(|target| target != module).collect();
            targets
        };
        self.imports.iter().map(|(m, imports)| (m.clone(), of(m, imports))).collect()
    }
}

/// The files of a crate, by their modules.
fn modules(root: &Path) -> BTreeMap<Module, PathBuf> {
    let mut found = BTreeMap::new();
    for path in sources::files(root) {
        let relative = path.strip_prefix(root).unwrap();
        let mut module: Module =
            relative.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        let root = module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
        // A library beside a program of the same sources is a façade for others.
        if root.as_deref() != Some("lib") || !path.with_file_name("main.rs").exists() {
            found.insert(module, relative.to_owned());
        }
    }
    found
}

/// What the code of a file names, but for its tests.
fn parse(text: &str) -> Imports {
    let code = sources::code(text);
    let (mut found, mut rest, mut lines) = (Imports::default(), String::new(), code.lines());
    while let Some(line) = lines.next() {
        let words = line.trim_start();
        let public = words.starts_with("pub");
        let bare = words.strip_prefix("pub").map_or(words, |w| w.trim_start_matches(|c: char| c != ' ').trim_start());
        let Some(tree) = bare.strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().expect("a use ends"));
        }
        let mut paths = Vec::new();
        flatten(&[], tree.split(';').next().unwrap(), &mut paths);
        found.uses.extend(paths.into_iter().map(|(path, name)| Use { path, name, public }));
    }
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let rest = rest.replace("(in crate", "(");
    let own = rest.split(|c| !word(c)).filter(|p| ["crate::", "super::", "self::"].iter().any(|s| p.starts_with(s)));
    found.inline = own.map(|p| p.split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect()).collect();
    found
}

/// The paths of a tree of `use`, each with the name that it gets.
fn flatten(prefix: &[String], tree: &str, out: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    let segments =
        |text: &str| text.split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect::<Vec<_>>();
    if let (Some(open), true) = (tree.find('{'), tree.ends_with('}')) {
        let prefix = [prefix, &segments(&tree[..open])].concat();
        let (mut depth, mut start, inner) = (0, 0, &tree[open + 1..tree.len() - 1]);
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    flatten(&prefix, &inner[start..at], out);
                    start = at + 1;
                }
                _ => {}
            }
        }
        flatten(&prefix, &inner[start..], out);
        return;
    }
    let (path, renamed) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let mut path = [prefix, &segments(path)].concat();
    if path.len() > 1 && path.last().is_some_and(|s| s == "self") {
        path.pop();
    }
    if !tree.is_empty()
        && let Some(name) = renamed.map(str::to_owned).or_else(|| path.last().cloned())
    {
        out.push((path, name));
    }
}

/// Sets of files each of which reaches all others, larger than [`MOST`].
fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<&Module>> {
    let reach = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(at) = open.pop() {
            open.extend(edges[&at].iter().filter(|next| seen.insert((*next).clone())).cloned());
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = edges.keys().map(|m| (m, reach(m))).collect();
    let mut found: Vec<Vec<&Module>> = Vec::new();
    for from in edges.keys() {
        let circle: Vec<&Module> =
            edges.keys().filter(|to| reached[from].contains(*to) && reached[to].contains(from)).collect();
        if circle.len() > MOST && circle.first() == Some(&from) {
            found.push(circle);
        }
    }
    found
}

/// The circles of a crate: how many files each has, and what they import of each other.
fn report(root: &Path) -> Vec<(usize, String)> {
    let sources = Sources::read(root);
    let edges = sources.edges();
    let name = |m: &Module| sources.files[m].display().to_string();
    let tell = |circle: &Vec<&Module>| {
        let line = |m: &&Module| {
            let inside: Vec<String> = edges[*m].iter().filter(|to| circle.contains(to)).map(name).collect();
            format!("\n    {} imports {}", name(m), inside.join(", "))
        };
        let lines: String = circle.iter().map(line).collect();
        (circle.len(), format!("{} files import each other in a circle:{lines}", circle.len()))
    };
    circles(&edges).iter().map(tell).collect()
}

/// Cargo has no word for all members: without the second list, commands in the root would leave out every other crate.
#[test]
fn a_bare_command_covers_every_member() {
    assert_eq!(listed("default-members"), listed("members"));
}

#[test]
fn no_more_than_three_files_import_each_other_in_a_circle() {
    let members = members();
    assert!(members.len() > 15, "{members:?}");
    for (name, ..) in LARGER {
        assert!(members.iter().any(|m| m == name), "`{name}` is no crate of the workspace");
    }
    for member in &members {
        let found = report(&workspace().join(member).join("src"));
        let largest = found.iter().map(|c| c.0).max().unwrap_or(0);
        let known = LARGER.iter().find(|l| l.0 == *member).map_or(0, |l| l.1);
        let text: String = found.iter().map(|c| format!("\n{}", c.1)).collect();
        assert!(largest <= known, "{member}:{text}");
        assert_eq!(largest, known, "{member}: the circle has become smaller; `LARGER` says otherwise");
    }
}

/// Modules of a crate, and those above them, of which they may import nothing.
fn below(sources: &Sources, depth: usize, parts: &[&str], upper: &[&str]) {
    let part = |m: &Module| m.get(depth).cloned().unwrap_or_default();
    for name in parts.iter().chain(upper) {
        assert!(sources.files.keys().any(|m| part(m) == *name), "there is no module `{name}`");
    }
    for (from, targets) in sources.edges().iter().filter(|(m, _)| parts.contains(&part(m).as_str())) {
        let up = targets.iter().find(|t| upper.contains(&part(t).as_str()));
        assert_eq!(up, None, "{} imports what is above it", from.join("::"));
    }
}

/// The driver's tables are below its rules and how work runs, and its functions are above both.
#[test]
fn the_tables_of_the_driver_know_no_function_of_it() {
    let sources = Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("driver/api/src"));
    below(&sources, 1, &["tables"], &["rules", "run", "functions", "report", "track"]);
    below(&sources, 1, &["rules"], &["run", "functions"]);
    below(&sources, 1, &["run"], &["functions"]);
}

/// In the machine, memory knows no execution, execution no loading, and nothing but launches knows launches.
#[test]
fn the_machine_executes_what_it_does_not_load() {
    let sources = Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("simt/src"));
    let above_execution = ["module", "lower", "load", "launch"];
    let above_memory = [&above_execution[..], &["exec", "observer", "program"]].concat();
    below(&sources, 0, &["memory", "shadow", "fault"], &above_memory);
    below(&sources, 0, &["exec", "observer", "program"], &above_execution);
    below(&sources, 0, &["module"], &["lower", "load", "launch"]);
    below(&sources, 0, &["lower"], &["load", "launch"]);
}

/// What the checkers find is below them, none of them knows another, and only what observes a launch knows all.
#[test]
fn the_checkers_know_neither_each_other_nor_the_observer() {
    let sources = Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("check/src"));
    let observer = ["checker", "launch"];
    let checkers = ["init", "race", "copies"];
    below(&sources, 0, &["raw", "findings", "fold", "place"], &[&observer[..], &checkers].concat());
    for checker in checkers {
        let others: Vec<&str> = checkers.into_iter().filter(|c| *c != checker).collect();
        below(&sources, 0, &[checker], &[&observer[..], &others].concat());
    }
}

/// That circles are found, through `use`, through paths in code, and behind a façade.
#[test]
fn a_circle_is_found_however_it_is_written() {
    let folder = std::env::temp_dir().join(format!("warpsmith-layers-{}", std::process::id()));
    fs::create_dir_all(folder.join("low")).unwrap();
    let write = |file: &str, text: &str| fs::write(folder.join(file), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub mod low;\npub use low::{deep::Deep, deep};\n");
    write("a.rs", "use crate::{b::{self, B}};\npub struct A;\n");
    write("b.rs", "// use crate::a::A;\npub(crate) fn b() -> super::c::C { super::c::C }\npub struct B;\n");
    write("c.rs", "use crate::Deep;\npub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n");
    write("low/mod.rs", "pub mod deep;\n");
    write("low/deep.rs", "pub struct Deep;\n");
    assert_eq!(report(&folder), []);
    write("low/deep.rs", "use crate::\n    a::A as Other;\npub struct Deep;\n");
    let found = report(&folder);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == 4 && found[0].1.contains("c.rs imports low/deep.rs"), "{found:?}");
    fs::remove_dir_all(&folder).unwrap();
}
