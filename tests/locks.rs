//! Each lock file of the repository fits the manifests of the packages in it. Those outside the workspace (of fuzzing, of programs by
//! others) are written by no build of the workspace, so one falls behind as soon as a package gets a dependency.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The files of the repository with one of these names.
fn files(folder: &Path, names: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && name != ".git" {
            files(&path, names, found);
        } else if names.contains(&name) {
            found.push(path);
        }
    }
}

/// Packages that a manifest names: those that are always there, and all.
#[derive(Default)]
struct Dependencies {
    needed: BTreeSet<String>,
    all: BTreeSet<String>,
}

impl Dependencies {
    /// `shared` are those of the workspace, from which a package may take some.
    fn of(manifest: &Table, shared: &Table) -> Dependencies {
        let mut found = Dependencies::default();
        found.add(manifest, shared);
        for target in manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|all| all.values()) {
            found.add(target.as_table().unwrap(), shared);
        }
        found
    }

    fn add(&mut self, tables: &Table, shared: &Table) {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let table = tables.get(kind).and_then(Value::as_table);
            for (key, dependency) in table.into_iter().flatten() {
                let of = if dependency.get("workspace").is_some() {
                    shared.get(key).unwrap_or(dependency)
                } else {
                    dependency
                };
                let name = of.get("package").and_then(Value::as_str).unwrap_or(key);
                let optional = dependency.get("optional").and_then(Value::as_bool).unwrap_or(false);
                if kind != "dev-dependencies" && !optional {
                    self.needed.insert(name.to_owned());
                }
                self.all.insert(name.to_owned());
            }
        }
    }
}

/// What is wrong with a package of a lock file, for each manifest of that name.
fn problem(listed: &BTreeSet<String>, manifests: &[Dependencies]) -> Option<String> {
    let fits = |of: &Dependencies| of.needed.is_subset(listed) && listed.is_subset(&of.all);
    if manifests.iter().any(fits) {
        return None;
    }
    let Some(of) = manifests.first() else { return Some("no manifest is of it".to_owned()) };
    let missing: Vec<_> = of.needed.difference(listed).collect();
    let gone: Vec<_> = listed.difference(&of.all).collect();
    Some(format!("lacks {missing:?} and has {gone:?}, which its manifest does not name"))
}

fn packages(lock: &Table) -> impl Iterator<Item = (String, BTreeSet<String>)> + '_ {
    let own = lock["package"].as_array().unwrap().iter().filter(|package| package.get("source").is_none());
    own.map(|package| {
        let listed = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        // `name`, or with a version where several are there.
        let listed = listed.map(|name| name.as_str().unwrap().split(' ').next().unwrap().to_owned());
        (package["name"].as_str().unwrap().to_owned(), listed.collect())
    })
}

#[test]
fn lock_files_fit_the_manifests_of_their_packages() {
    let mut found = Vec::new();
    files(Path::new(ROOT), &["Cargo.toml", "Cargo.lock"], &mut found);
    let (locks, manifests): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| path.ends_with("Cargo.lock"));
    let read = |path: &PathBuf| {
        fs::read_to_string(path).unwrap().parse::<Table>().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let root = read(&Path::new(ROOT).join("Cargo.toml"));
    let shared = root["workspace"]["dependencies"].as_table().unwrap();
    let mut known: HashMap<String, Vec<Dependencies>> = HashMap::new();
    for manifest in manifests.iter().map(read) {
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        if let Some(name) = name {
            known.entry(name.to_owned()).or_default().push(Dependencies::of(&manifest, shared));
        }
    }
    assert!(locks.len() >= 4, "{locks:?}");
    let mut problems = Vec::new();
    for path in &locks {
        for (name, listed) in packages(&read(path)) {
            let manifests = known.get(&name).map_or(&[][..], Vec::as_slice);
            problems.extend(problem(&listed, manifests).map(|text| format!("{}: {name} {text}", path.display())));
        }
    }
    assert!(problems.is_empty(), "{}\nwrite them again: cargo metadata in their folders", problems.join("\n"));
}

#[test]
fn a_lock_file_that_fell_behind_is_noticed() {
    let of = |text: &str| {
        vec![Dependencies::of(&text.parse().unwrap(), &"s = { package = 'g', version = '1' }".parse().unwrap())]
    };
    let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let manifest = "[dependencies]\na = '1'\nb = { version = '1', optional = true }\n[target.'cfg(unix)'.dependencies]\nc.workspace = true\ns.workspace = true\n\
                    [dev-dependencies]\nd = '1'\n[build-dependencies]\nrenamed = { package = 'e', version = '1' }\n";
    for good in [&["a", "c", "e", "g"][..], &["a", "b", "c", "d", "e", "g"]] {
        assert_eq!(problem(&listed(good), &of(manifest)), None, "{good:?}");
    }
    assert!(problem(&listed(&["a", "e", "g"]), &of(manifest)).unwrap().contains("lacks [\"c\"]"));
    assert!(problem(&listed(&["a", "c", "e", "f", "g"]), &of(manifest)).unwrap().contains("has [\"f\"]"));
    assert!(problem(&listed(&["a"]), &[]).is_some());
}
