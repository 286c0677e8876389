//! A compilation of all kernels, so that an edit can be told from it: what it read, and how the compiler was started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::invocation::Invocation;
use super::source::{Difference, difference};
use crate::BuildError;
use crate::cache::{Stamp, Sum};
use crate::cargo::{Compilation, PROFILE, Ran, listed_files};
use crate::sysroot::TARGET;

/// A compilation, but for its [texts](Unit).
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Base {
    /// Cargo's command and the compiler, as one word.
    command: String,
    pub(super) invocation: Invocation,
    /// Files of the kernels crate, as the compiler names them, and what is in them.
    sources: BTreeMap<String, (Stamp, String)>,
    /// All other files that were read, where they lie on this machine.
    others: BTreeMap<PathBuf, Stamp>,
    /// Variables that the compiler or a build script looked at.
    variables: BTreeMap<String, Option<String>>,
    pub(super) warnings: Vec<String>,
    pub(super) inputs: Vec<PathBuf>,
}

/// What became of the sources since.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No file was written.
    None,
    /// The files in which kernels changed, if any, and their texts; nothing else did that the GPU's code depends on.
    Kernels(BTreeMap<String, String>),
    Other,
}

fn base_in(folder: &Path) -> PathBuf {
    folder.join("base.json")
}

impl Base {
    /// What a compilation has to be told from later ones; `None`: it cannot be told, as a build script reads more than it names, or a file
    /// changed meanwhile.
    pub(super) fn of(command: &str, compilation: &Compilation<'_>, ran: &Ran) -> Option<Base> {
        let Ran { compiled, said, began, archive, .. } = ran;
        let package = compilation.package;
        let built = Built { compilation };
        let own = listed_files(&std::fs::read_to_string(built.dep_info(archive)?).ok()?);
        let mut sources = BTreeMap::new();
        for name in &own {
            let path = package.workspace_root.join(name);
            sources.insert(name.clone(), (Stamp::of(&path)?, std::fs::read_to_string(path).ok()?));
        }
        // What is private in a file that another includes is not private to it.
        if sources.values().any(|(_, text)| text.contains("include!")) {
            return None;
        }
        let own: BTreeSet<PathBuf> = own.iter().map(|name| package.workspace_root.join(name)).collect();
        // Cargo's list has what others the crate depends on.
        if !own.iter().all(|path| compiled.inputs.contains(path)) {
            return None;
        }
        let manifests = package.inputs.iter().filter(|path| path.is_file());
        let read: BTreeSet<&PathBuf> = compiled.inputs.iter().chain(manifests).collect();
        let stamps: BTreeMap<PathBuf, Stamp> =
            read.iter().map(|path| Some(((*path).clone(), Stamp::of(path)?))).collect::<Option<_>>()?;
        if stamps.values().any(|stamp| stamp.is_since(*began)) {
            return None;
        }
        Some(Base {
            command: command.to_owned(),
            invocation: Invocation::find(said, &package.crate_name)?,
            variables: built
                .variables(&read)?
                .into_iter()
                .map(|name| (name.clone(), std::env::var(name).ok()))
                .collect(),
            sources,
            others: stamps.into_iter().filter(|(path, _)| !own.contains(path)).collect(),
            warnings: compiled.warnings.clone(),
            inputs: compiled.inputs.clone(),
        })
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), BuildError> {
        let path = base_in(folder);
        std::fs::create_dir_all(folder).map_err(BuildError::io("create", folder))?;
        let json = serde_json::to_vec(self)
            .map_err(|error| BuildError::Answer { what: path.display().to_string(), reason: error.to_string() })?;
        std::fs::write(&path, json).map_err(BuildError::io("write", &path))
    }

    /// There is none from here on.
    pub(super) fn remove(folder: &Path) {
        let _ = std::fs::remove_file(base_in(folder));
    }

    /// The last one, if it was made by this command.
    pub(super) fn read(folder: &Path, command: &str) -> Option<Base> {
        let base: Base = serde_json::from_slice(&std::fs::read(base_in(folder)).ok()?).ok()?;
        (base.command == command).then_some(base)
    }

    /// What tells it from others.
    pub(super) fn name(&self, folder: &Path) -> Option<Sum> {
        Sum::of_file(&base_in(folder)).ok()
    }

    /// What changed since.
    pub(super) fn change(&self, root: &Path) -> Change {
        let is_same = |(name, value): (&String, &Option<String>)| std::env::var(name).ok() == *value;
        let stands = |(path, noted): (&PathBuf, &Stamp)| Stamp::of(path).as_ref() == Some(noted);
        if !self.variables.iter().all(is_same) || !self.others.iter().all(stands) {
            return Change::Other;
        }
        let mut edited = BTreeMap::new();
        let mut is_written = false;
        for (name, (noted, old)) in &self.sources {
            let path = root.join(name);
            if Stamp::of(&path).as_ref() == Some(noted) {
                continue;
            }
            is_written = true;
            let Ok(new) = std::fs::read_to_string(path) else { return Change::Other };
            match difference(old, &new) {
                Difference::None => {}
                Difference::Kernels => drop(edited.insert(name.clone(), new)),
                Difference::Other => return Change::Other,
            }
        }
        if is_written { Change::Kernels(edited) } else { Change::None }
    }
}

/// What cargo left in the target directory.
struct Built<'a> {
    compilation: &'a Compilation<'a>,
}

impl Built<'_> {
    /// The compiler's list of what it read of the kernels crate.
    fn dep_info(&self, archive: &Path) -> Option<PathBuf> {
        let deps = archive.parent()?.join("deps");
        let of_crate = format!("{}-", self.compilation.package.crate_name);
        let lists = files(&deps).filter(|path| name(path).starts_with(&of_crate) && name(path).ends_with(".d"));
        lists.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok())
    }

    /// The environment that the compiler and build scripts looked at. `None`: a script here does not say what it reads, and cargo runs it
    /// after every edit.
    fn variables(&self, read: &BTreeSet<&PathBuf>) -> Option<BTreeSet<String>> {
        let root = &self.compilation.package.workspace_root;
        let mut variables = BTreeSet::new();
        let (mut here, mut silent) = (BTreeSet::new(), BTreeSet::new());
        for profile in
            [self.compilation.target_dir.join(TARGET).join(PROFILE), self.compilation.target_dir.join(PROFILE)]
        {
            let scripts: Vec<PathBuf> = folders(&profile.join("build")).collect();
            for file in std::iter::once(&profile.join("deps")).chain(&scripts).flat_map(|folder| files(folder)) {
                let package = || {
                    file.parent()
                        .map_or("", |folder| name(folder))
                        .rsplit_once('-')
                        .map_or("", |(name, _)| name)
                        .to_owned()
                };
                let is_output = name(&file) == "output";
                if !is_output && file.extension().is_none_or(|extension| extension != "d") {
                    continue;
                }
                let text = std::fs::read_to_string(&file).ok()?;
                if !is_output {
                    variables.extend(text.lines().filter_map(looked_at).map(str::to_owned));
                    if listed_files(&text).iter().any(|name| read.contains(&root.join(name))) {
                        here.insert(package());
                    }
                    continue;
                }
                let asked: Vec<&str> = text.lines().filter_map(|line| told(line, "rerun-if-env-changed")).collect();
                if asked.is_empty() && !text.lines().any(|line| told(line, "rerun-if-changed").is_some()) {
                    silent.insert(package());
                }
                variables.extend(asked.into_iter().map(str::to_owned));
            }
        }
        here.is_disjoint(&silent).then_some(variables)
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    entries(folder).filter(|path| path.is_file())
}

fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    entries(folder).filter(|path| path.is_dir())
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The variable that a line of the compiler's list names.
fn looked_at(line: &str) -> Option<&str> {
    let said = line.strip_prefix("# env-dep:")?;
    Some(said.split_once('=').map_or(said, |(name, _)| name))
}

/// What a build script tells cargo under this name.
fn told<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let said = line.strip_prefix("cargo::").or_else(|| line.strip_prefix("cargo:"))?;
    said.strip_prefix(name)?.strip_prefix('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_and_lists_say_is_read() {
        assert_eq!(told("cargo:rerun-if-changed=a b.rs", "rerun-if-changed"), Some("a b.rs"));
        assert_eq!(told("cargo::rerun-if-changed=x", "rerun-if-changed"), Some("x"));
        assert_eq!(told("cargo:rerun-if-changed=x", "rerun-if-env-changed"), None);
        assert_eq!(looked_at("# env-dep:SEED"), Some("SEED"));
        assert_eq!(looked_at("# env-dep:OUT_DIR=/t/out"), Some("OUT_DIR"));
        assert_eq!(looked_at("/t/k.a: src/lib.rs"), None);
    }
}
