//! The book in docs/, and the READMEs: listings are compiled and run, outputs are what programs print, links lead somewhere.
//!
//! A listing in Rust or TOML has a comment above its fence that names the file that it is taken from,
//! `<!-- from examples/02_graph.rs -->`, and is a contiguous part of it; a line `// …` stands for lines that are left out,
//! and indentation may be shifted as a whole. The file itself is compiled and run by the tests of its crate. Above an
//! output stands the command that prints it, `<!-- output of: cargo run --release --example 02_graph -->`.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

#[path = "book/markdown.rs"]
mod markdown;

use markdown::{Listing, Page, command, pages, stands_in};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use warpsmith_host::model::Architecture;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What the workspace compiles and tests; projects made of `templates/` are built and run by `tests/new.rs`.
const COMPILED: [&str; 12] = [
    "benches/",
    "builder/",
    "device/",
    "driver/",
    "examples/",
    "gpu-kernels/",
    "host/",
    "llm/",
    "runtime/",
    "src/",
    "templates/",
    "tests/messages/",
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn all() -> HashMap<PathBuf, Page> {
    pages(Path::new(ROOT)).into_iter().map(|p| (p.clone(), Page::parse(&read(&p)))).collect()
}

/// Fails with all problems at once.
#[track_caller]
fn none(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.strip_prefix(ROOT).unwrap_or(path).display())
}

fn listing_problem(listing: &Listing) -> Option<String> {
    let from = listing.note.as_ref().and_then(|n| n.strip_prefix("from "));
    let Some(path) = from else {
        let needed = matches!(listing.language.as_str(), "rust" | "toml");
        return needed.then(|| "no comment `<!-- from FILE -->` above it".to_owned());
    };
    if !COMPILED.iter().any(|folder| path.starts_with(folder)) {
        return Some(format!("{path} is in no folder that the tests compile"));
    }
    let source = match fs::read_to_string(Path::new(ROOT).join(path)) {
        Ok(source) => source,
        Err(error) => return Some(format!("{path}: {error}")),
    };
    stands_in(&listing.text, &source).err().map(|problem| format!("not as in {path}: {problem}"))
}

#[test]
fn listings_stand_in_sources_that_are_compiled() {
    let mut problems = Vec::new();
    let mut taken = 0;
    for (path, page) in all() {
        for listing in &page.listings {
            taken += usize::from(listing.note.as_ref().is_some_and(|n| n.starts_with("from ")));
            problems.extend(listing_problem(listing).map(|p| format!("{}: {p}", place(&path, listing.line))));
        }
    }
    none(problems);
    assert!(taken > 5, "{taken} listings: the pages were not read");
}

#[test]
fn links_and_anchors_lead_somewhere() {
    let pages = all();
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for (line, link) in page.links.iter().filter(|(_, l)| !l.contains("://") && !l.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if file == "SUMMARY.md" {
                problems.push(format!("{}: mdBook makes no page of the summary", place(path, *line)));
            }
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let Ok(target) = target.canonicalize() else {
                problems.push(format!("{}: no file {file}", place(path, *line)));
                continue;
            };
            let known = || match pages.get(&target) {
                Some(page) => page.anchors.iter().any(|a| a == anchor),
                None => Page::parse(&read(&target)).anchors.iter().any(|a| a == anchor),
            };
            if !anchor.is_empty() && !known() {
                problems.push(format!("{}: no heading #{anchor} in {}", place(path, *line), target.display()));
            }
        }
    }
    none(problems);
}

#[test]
fn the_summary_names_every_chapter_once() {
    let docs = Path::new(ROOT).join("docs");
    let summary = Page::parse(&read(&docs.join("SUMMARY.md")));
    let mut named: Vec<String> = summary.links.into_iter().map(|(_, l)| l).collect();
    let mut chapters: Vec<String> =
        fs::read_dir(&docs).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    chapters.retain(|c| c.ends_with(".md") && c != "SUMMARY.md");
    named.sort();
    chapters.sort();
    assert_eq!(named, chapters);
}

/// The folders of the workspace's crates, and those of the root package.
fn folders() -> BTreeSet<String> {
    let manifest: toml::Table = read(&Path::new(ROOT).join("Cargo.toml")).parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap().iter().map(|member| member.as_str().unwrap());
    let top = members.filter(|member| *member != ".").map(|member| member.split('/').next().unwrap());
    top.chain(["src", "tests"]).map(str::to_owned).collect()
}

/// Files of the workspace that say something about chapters.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            sources(&path, found);
        } else if [".rs", ".md", ".toml"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

#[test]
fn chapters_that_sources_name_exist() {
    let mut files = Vec::new();
    for folder in folders() {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let mut problems = Vec::new();
    for file in files {
        let text = read(&file);
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.'));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            if name.ends_with(".md") && !Path::new(ROOT).join("docs").join(name).exists() {
                problems.push(format!("{}: docs/{name}", file.display()));
            }
        }
    }
    none(problems);
}

/// The chapter on the environment has every variable that a source reads, and no other.
#[test]
fn every_environment_variable_has_its_row() {
    let mut files = Vec::new();
    // This file names what it looks for.
    for folder in folders().into_iter().filter(|folder| folder != "tests") {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let read_by: HashSet<String> = files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "rs"))
        .flat_map(|f| {
            let text = read(f);
            let names = text.split("\"WARPSMITH_").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
            // A variable of the tests' own processes, and a prefix of names that the builder makes.
            names
                .filter(|n| {
                    !n.starts_with("TEST_")
                        && n.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                        && !n.ends_with('_')
                })
                .map(|n| format!("WARPSMITH_{n}"))
                .collect::<Vec<_>>()
        })
        .collect();
    let chapter = read(&Path::new(ROOT).join("docs/environment.md"));
    let rows = chapter.lines().filter_map(|l| l.strip_prefix("| `WARPSMITH_")?.split('`').next());
    let told: HashSet<String> = rows.map(|n| format!("WARPSMITH_{n}")).collect();
    let missing = read_by.difference(&told).map(|n| format!("docs/environment.md: no row for {n}"));
    let stale = told.difference(&read_by).map(|n| format!("docs/environment.md: no source reads {n}"));
    none(missing.chain(stale).collect());
    assert!(told.len() > 15, "{told:?}");
}

/// Sentences say how many architectures load, and the table of models names them, all of them and no other.
#[test]
fn models_that_load_are_those_that_are_told() {
    let known: Vec<&str> = Architecture::ALL.into_iter().map(Architecture::name).collect();
    let (mut problems, mut sentences) = (Vec::new(), 0);
    for path in pages(Path::new(ROOT)) {
        let text = read(&path);
        for (at, _) in text.match_indices(" architectures of models") {
            let told = text[..at].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            sentences += 1;
            if told != known.len().to_string() {
                problems.push(format!("{}: `{told}` architectures of models, {} load", path.display(), known.len()));
            }
        }
    }
    let table = read(&Path::new(ROOT).join("docs/models.md"));
    let rows = table.lines().filter(|line| line.contains("| loads |"));
    let loads: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    if loads != known.iter().copied().collect() {
        problems.push(format!("docs/models.md: {loads:?} load, known are {known:?}"));
    }
    none(problems);
    assert!(sentences > 0, "no sentence counts them: the pages were not read");
}

/// The table of CUDA's constructs names items that exist: each word in code of its second column is one of a source.
#[test]
fn the_porting_table_names_items_that_exist() {
    let mut files = Vec::new();
    for folder in ["device/src", "macros/src", "runtime/src", "builder/src"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let code: String = files.iter().map(|f| read(f)).collect::<Vec<_>>().join("\n");
    let code: Vec<&str> = code.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
    let words: HashSet<&str> = code.iter().flat_map(|l| l.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    let (mut problems, mut items) = (Vec::new(), 0);
    for row in read(&Path::new(ROOT).join("docs/porting.md")).lines().filter(|l| l.starts_with('|')) {
        let ours = row.split('|').nth(2).unwrap_or_default();
        for item in ours.split('`').skip(1).step_by(2).filter(|i| !i.starts_with("warpsmith ")) {
            items += 1;
            let name = item.split(['(', '!', ']']).next().unwrap_or_default();
            let path = name.trim_start_matches("#[").split("::");
            problems.extend(path.filter(|part| !words.contains(part)).map(|part| format!("`{item}`: no `{part}`")));
        }
    }
    none(problems);
    assert!(items > 50, "{items} items: the table was not read");
}

/// What a command prints, on stdout and then on stderr: paths from the workspace on, programs as after a release build.
/// Nothing for the ladder's program, which the tests of its own crate run.
fn output(command: &str) -> Option<String> {
    let bin = Path::new(env!("CARGO_BIN_EXE_warpsmith"));
    let built = bin.parent().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let (program, arguments) = match words[..] {
        _ if words.contains(&"warpsmith-ladder") => return None,
        ["cargo", "run", "--release", "--example", name] => (built.join("examples").join(name), &[][..]),
        ["cargo", "run", "--release", "--example", name, "--", ..] => (built.join("examples").join(name), &words[6..]),
        ["cargo", "run", "--release", "--", ..] => (bin.to_owned(), &words[4..]),
        ["warpsmith", ..] => (bin.to_owned(), &words[1..]),
        _ => panic!("no program is known for `{command}`"),
    };
    let arguments = arguments.iter().map(|a| a.replace("target/release", &built.to_string_lossy()));
    let ran = Command::new(&program)
        .args(arguments)
        .current_dir(ROOT)
        .env("WARPSMITH_DRIVER", "software")
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}; `cargo build --examples` makes it", program.display()));
    let text = [ran.stdout, ran.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    let text = text.replace(&*built.to_string_lossy(), "target/release");
    Some(text.replace(&format!("{ROOT}/"), "").replace(" ./", " "))
}

#[test]
fn outputs_are_what_programs_print() {
    let mut problems = Vec::new();
    for (path, page) in all() {
        for listing in &page.listings {
            let Some(text) = command(listing).and_then(output) else { continue };
            if let Err(problem) = stands_in(&listing.text, &text) {
                problems.push(format!("{}: {problem}; the program prints\n{text}", place(&path, listing.line)));
            }
        }
    }
    none(problems);
}

#[test]
fn a_listing_that_is_not_in_its_source_is_told() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let source = "fn a() {\n    one();\n\n    two();\n    three();\n}\nfn b() {\n    one();\n    four();\n}\n";
    for good in ["one();\n\ntwo();", "one();\n// …\nthree();", "fn b() {\n    one();\n    // …\n}", "one();\nfour();"]
    {
        assert_eq!(stands_in(&lines(good), source), Ok(()), "{good}");
    }
    for (bad, piece) in [
        ("one();\ntwo();", "one();"),
        ("one();\n  two();", "one();"),
        ("three();\n// …\ntwo();", "two();"),
        ("fn b() {\none();", "fn b() {"),
        ("", "empty"),
    ] {
        assert!(stands_in(&lines(bad), source).is_err_and(|e| e.contains(piece)), "{bad}");
    }
    let page = Page::parse("# A `b` c: d\n[x](y.md#z), `[n](o)`\n<!-- from f -->\n```rust\n[p](q)\n```\n## A b c d\n");
    assert_eq!(page.anchors, ["a-b-c-d", "a-b-c-d-1"]);
    assert_eq!(page.links, [(2, "y.md#z".to_owned())]);
    let listing = &page.listings[0];
    assert_eq!(
        (listing.note.as_deref(), listing.line, listing.text.as_slice()),
        (Some("from f"), 4, &lines("[p](q)")[..])
    );
    assert!(listing_problem(listing).is_some());
}

/// Numbers of hazards in a text, such as `OX-14` or `ox_14`, as they stand in docs/hazards.md.
fn hazards(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
    for pair in words.windows(2) {
        let engine = pair[0].to_ascii_uppercase();
        // In machine code, RZ is a register and numbers have zeros in front.
        let number = pair[1].parse::<u8>().is_ok() && !pair[1].starts_with('0');
        if matches!(engine.as_str(), "OX" | "FE" | "RZ") && number {
            found.insert(format!("{engine}-{}", pair[1]));
        }
    }
    found
}

#[test]
fn hazards_that_tests_are_named_after_are_in_the_book_with_those_tests() {
    let page = read(&Path::new(ROOT).join("docs/hazards.md"));
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    [
        "gpu-kernels",
        "host",
        "llm",
        "runtime",
        "collectives",
        "check",
        "device",
        "driver",
        "simt",
        "builder",
        "bench",
        "src",
        "examples",
        "tests",
    ]
    .iter()
    .for_each(|dir| sources(&Path::new(ROOT).join(dir), &mut files));
    let (listed, mut tests) = (hazards(&page), String::new());
    for file in &files {
        let text = read(file);
        for unknown in hazards(&text).difference(&listed) {
            problems.push(format!("{}: {unknown} has no row in docs/hazards.md", file.display()));
        }
        tests.push_str(&text);
    }
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    assert!(named.len() > 40, "{named:?}");
    problems.extend(
        named
            .iter()
            .filter(|t| !tests.contains(&format!("fn {t}(")))
            .map(|t| format!("docs/hazards.md: no test `{t}`")),
    );
    none(problems);
}

/// Behind each mutant: tests, with their files where those are not the mutant's, or a reason.
#[test]
fn tests_that_notice_mutants_exist() {
    let page = read(&Path::new(ROOT).join("tests/mutants.md"));
    let mut files = Vec::new();
    ["host", "llm", "runtime"].iter().for_each(|dir| sources(&Path::new(ROOT).join(dir), &mut files));
    let tests: String = files.iter().map(|file| read(file)).collect();
    let (mut problems, mut named) = (Vec::new(), 0);
    for (mutant, rest) in page.lines().filter(|row| row.starts_with("| `")).filter_map(|row| row.split_once(" | ")) {
        for name in rest.split('`').skip(1).step_by(2) {
            let known = match name.contains('/') {
                true => Path::new(ROOT).join(name).exists(),
                false => tests.contains(&format!("fn {name}(")),
            };
            named += 1;
            if !known {
                problems.push(format!("tests/mutants.md, {mutant}: no `{name}`"));
            }
        }
    }
    assert!(named > 40, "{named}");
    none(problems);
}
