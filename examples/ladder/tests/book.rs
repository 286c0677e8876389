//! The planted mistakes are found by the rule that is named for each, their mended twins are clean; and what the book says
//! that the ladder's program prints is what it prints.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

#[allow(dead_code)] // links are what the test of the same name in `tests/` looks at
#[path = "../../../tests/book/markdown.rs"]
mod markdown;

use std::path::{Path, PathBuf};
use std::process::Command;
use warpsmith_ladder::defects::DEFECTS;

const BIN: &str = env!("CARGO_BIN_EXE_warpsmith-ladder");

/// Whether the program ends well, and what it prints on stdout and stderr: paths from the workspace on, and the program as
/// after a release build.
fn ladder(words: &[&str], checks: &str) -> (bool, String) {
    let root = root();
    let mut command = Command::new(BIN);
    command.args(words).current_dir(&root).env("WARPSMITH_DRIVER", "software").env("WARPSMITH_CHECK", checks);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    let text = text.replace(BIN, "target/release/warpsmith-ladder");
    (output.status.success(), text.replace(&format!("{}/", root.display()), "").replace(" ./", " "))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn mended_mistakes_are_clean() {
    for defect in DEFECTS {
        let (well, text) = ladder(&["mended", defect.name], "all");
        assert!(well && text.ends_with("PASS\n"), "{}: {text}", defect.name);
        assert!(!text.contains("error[") && !text.contains("warning["), "{}: {text}", defect.name);
    }
}

#[test]
fn what_the_book_quotes_is_printed_and_every_mistake_is_found_by_its_rule() {
    let mut quoted = Vec::new();
    for path in markdown::pages(&root()) {
        let page = markdown::Page::parse(&std::fs::read_to_string(&path).unwrap());
        for listing in &page.listings {
            let Some(command) = markdown::command(listing) else { continue };
            let Some((before, words)) = command.split_once("cargo run --release -p warpsmith-ladder -- ") else {
                continue;
            };
            let checks = before.trim().trim_start_matches("WARPSMITH_CHECK=");
            let (_, text) = ladder(&words.split(' ').collect::<Vec<_>>(), checks);
            if let Err(problem) = markdown::stands_in(&listing.text, &text) {
                panic!("{}:{}: {problem}; the program prints\n{text}", path.display(), listing.line);
            }
            quoted.push((words.to_owned(), text));
        }
    }
    for defect in DEFECTS {
        let words = format!("defect {}", defect.name);
        let Some((_, text)) = quoted.iter().find(|(w, _)| *w == words) else {
            panic!("no page shows the report of `{words}`");
        };
        assert!(text.contains(&format!("[{}]: ", defect.rule)), "{}: {text}", defect.name);
    }
}
