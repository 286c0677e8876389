//! The examples of the documentation, as the sources have them.
#![allow(dead_code, clippy::unwrap_used)]

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// The library's files and their texts.
pub fn files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    files
}

/// A module for each example that has kernels, and how many there are.
pub fn modules(files: &[(PathBuf, String)]) -> (String, usize) {
    let (mut code, mut count) = (String::new(), 0);
    for example in files.iter().flat_map(|(_, text)| examples(text)) {
        writeln!(code, "pub mod example_{count} {{\n{example}}}").unwrap();
        count += 1;
    }
    (code, count)
}

/// The code of a file's documentation that has kernels, without marks and what only the host needs.
pub fn examples(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines().map(str::trim_start) {
        let Some(line) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else { continue };
        let line = line.strip_prefix(' ').unwrap_or(line);
        match (&mut open, line) {
            // In whatever language: a listing that is not Rust has no kernel.
            (None, _) if line.starts_with("```") => open = Some(String::new()),
            (None, _) => {}
            (Some(_), "```") => found.extend(open.take().filter(|code| code.contains("#[kernel"))),
            (Some(code), _) => {
                let line = line.strip_prefix("# ").unwrap_or(line);
                if !line.starts_with("#![") && line != "fn main() {}" {
                    writeln!(code, "    {line}").unwrap();
                }
            }
        }
    }
    found
}

fn sources(folder: &Path, list: &mut Vec<(PathBuf, String)>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, list);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            list.push((path, text));
        }
    }
}
