//! No type name means two things inside one crate: who reads `Place` in one file has not to find out which of several it is, and a
//! search finds one definition.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

mod sources;

use sources::{code, files, members, workspace};

/// Names with several definitions, of which each build has one, by crate.
const ONE_A_BUILD: [(&str, &[&str], &str); 3] = [
    ("driver/api", &["Marks", "Segment"], "of Linux, and of systems that cannot share memory between processes"),
    (
        "device",
        &["Awaited", "Element", "In", "InOut", "Out"],
        "of kernels, and of the host program that names their arguments",
    ),
    ("examples/runner", &["Signals"], "of Unix, and of other systems"),
];

/// The name of the type that a line defines, if it does: at the top of its file or module, or in a function.
fn defined(line: &str) -> Option<&str> {
    let (indented, mut words) = (line.starts_with(' '), line.trim_start());
    if let Some(public) = words.strip_prefix("pub") {
        words = match public.strip_prefix('(') {
            Some(within) => within.split_once(')')?.1,
            None => public,
        };
        words = words.strip_prefix(' ')?;
    }
    words = words.strip_prefix("unsafe ").unwrap_or(words);
    let (keyword, rest) = words.split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        // Others are of traits.
        "type" => !indented,
        _ => false,
    };
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && !name.is_empty()).then_some(name)
}

/// Where each type of a crate is defined, tests left out.
fn types(source: &Path) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(source) {
        let relative = path.strip_prefix(source).unwrap();
        if relative.with_extension("").iter().any(|part| part == "tests") {
            continue;
        }
        for (line, text) in code(&fs::read_to_string(&path).unwrap()).lines().enumerate() {
            if let Some(name) = defined(text) {
                all.entry(name.to_owned()).or_default().push(format!("{}:{}", relative.display(), line + 1));
            }
        }
    }
    all
}

#[test]
fn no_type_name_means_two_things_in_one_crate() {
    let members = members();
    assert!(ONE_A_BUILD.iter().all(|(c, ..)| members.iter().any(|m| m == c)), "a crate is listed that is none");
    let mut wrong = Vec::new();
    for member in &members {
        let types = types(&workspace().join(member).join("src"));
        let listed = ONE_A_BUILD.iter().filter(|(c, ..)| c == member).flat_map(|(_, names, _)| names.iter());
        for name in listed.clone() {
            if types.get(*name).is_none_or(|places| places.len() < 2) {
                wrong.push(format!("{member}: {name} is listed, and not defined twice"));
            }
        }
        let twice = types.iter().filter(|(name, places)| places.len() > 1 && !listed.clone().any(|l| l == name));
        wrong.extend(twice.map(|(name, places)| format!("{member}: {name} is defined at {}", places.join(", "))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_definition_is_found_however_it_is_written() {
    let of = |line| defined(line);
    assert_eq!(of("pub(in crate::a) struct Place {"), Some("Place"));
    assert_eq!(of("struct Words([u32; 4]);"), Some("Words"));
    assert_eq!(of("    pub enum Kind<T> {"), Some("Kind"));
    assert_eq!(of("pub unsafe trait Words: Sized {"), Some("Words"));
    assert_eq!(of("type Row<'b> = (u32, &'b str);"), Some("Row"));
    assert_eq!(of("    type Output = u32;"), None);
    assert_eq!(of("pub fn structure() {}"), None);
    assert_eq!(of("        struct $name;"), None);
}
