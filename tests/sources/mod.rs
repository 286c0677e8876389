//! The workspace's crates, for tests of how their sources are written.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A list of folders in the workspace's manifest.
pub fn listed(list: &str) -> Vec<String> {
    let manifest: toml::Table = fs::read_to_string(workspace().join("Cargo.toml")).unwrap().parse().unwrap();
    let members = manifest["workspace"][list].as_array().unwrap();
    members.iter().map(|m| m.as_str().unwrap().to_owned()).collect()
}

/// The folders of the workspace's crates.
pub fn members() -> Vec<String> {
    listed("members").into_iter().filter(|m| workspace().join(m).join("src").is_dir()).collect()
}

/// All files of Rust beneath a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// A file's code, without comments and without the unit tests at its end.
pub fn code(text: &str) -> String {
    let code: String = text.lines().map(|l| l.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    match code.find("#[cfg(test)]\nmod tests {") {
        Some(end) => code[..end].to_owned(),
        None => code,
    }
}
