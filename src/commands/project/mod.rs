//! A project with kernels of its own: what is built, tested and watched, as `cargo metadata` describes it.

mod budget;
mod build;
mod check;
mod compare;
mod harness;
mod library;
mod ready;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cli::Place;
use crate::failure::{Failure, Kind};

pub use budget::budget;
pub use build::{Built, Targets, build};
pub use check::check;
pub use compare::compare;
pub use harness::{Ran, Test, run};
pub use library::Library;
pub use ready::Ready;

/// Which project, and which of its tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Its folder, if it is not the current one.
    pub dir: Option<&'a Path>,
    /// The package whose tests are meant.
    pub package: Option<&'a str>,
    /// Its integration test.
    pub test: Option<&'a str>,
}

/// A project, and which of its tests are meant.
#[derive(Debug)]
pub struct Project {
    /// Where cargo is called.
    pub dir: PathBuf,
    /// cargo's target directory.
    pub target: PathBuf,
    /// Options of `cargo test` that select packages and targets.
    pub selection: Vec<String>,
    /// Folders of the packages whose source lies on this machine, by cargo's package ids.
    pub packages: HashMap<String, PathBuf>,
    /// The packages of the workspace.
    pub members: BTreeSet<String>,
    /// Names of its benchmarks.
    pub benches: Vec<String>,
    /// What the workspace and its packages say about warpsmith.
    pub settings: Vec<Value>,
}

/// cargo, as the project's toolchain file chooses it.
pub fn cargo(dir: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir).stdin(std::process::Stdio::null());
    command
}

/// What cargo says of the project in a folder, with or without what it depends on.
///
/// # Errors
/// Cargo cannot be started, or finds no project, or a broken one.
pub fn metadata(dir: &Path, dependencies: bool) -> Result<Value, Failure> {
    let mut command = cargo(dir);
    command.args(["metadata", "--format-version=1"]);
    if !dependencies {
        command.arg("--no-deps");
    }
    let output = command
        .output()
        .map_err(|e| Failure::new(Kind::Toolchain, format!("cargo cannot be started in {}: {e}", dir.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::usage(format!(
            "cargo finds no project in {}: go to one, name one with --project, or make one with `warpsmith new`\n{}",
            dir.display(),
            said.trim_end()
        )));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Failure::new(Kind::Operation, format!("cargo metadata cannot be read: {e}")))
}

impl Project {
    /// The project whose kernels a command means: the one that is named, or the one in the current folder if it builds
    /// kernels. In none, and in warpsmith's own repository, those are meant that ship.
    pub fn here(place: &Place) -> Result<Option<Project>, Failure> {
        if place.shipped {
            return Ok(None);
        }
        let selection = Selection { dir: place.project.as_deref(), ..Selection::default() };
        if place.project.is_some() {
            return Project::read(selection).map(Some);
        }
        let current = std::env::current_dir().unwrap_or_default();
        if !current.ancestors().any(|dir| dir.join("Cargo.toml").is_file()) {
            return Ok(None);
        }
        // Where it is broken, what is meant is not known: cargo says what is wrong.
        let metadata = metadata(Path::new("."), false)?;
        if builds_kernels(&metadata) { Project::read(selection).map(Some) } else { Ok(None) }
    }

    /// Asks cargo about the project that is meant.
    pub fn read(selection: Selection<'_>) -> Result<Project, Failure> {
        let dir = selection.dir.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        if !dir.is_dir() {
            return Err(Failure::usage(format!("--project {}: there is no such folder", dir.display())));
        }
        let metadata = metadata(&dir, true)?;
        Project::select(selection, dir, &metadata)
    }

    fn select(wanted: Selection<'_>, dir: PathBuf, metadata: &Value) -> Result<Project, Failure> {
        let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
        let all = list(&metadata["packages"]);
        let local: Vec<&Value> = all.iter().filter(|p| p["source"].is_null()).collect();
        // A workspace may say which of its tests are those of kernels.
        let wish = &metadata["metadata"]["warpsmith"]["watch"];
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let package = wanted.package.map(str::to_owned).or_else(|| text(&wish["package"]));
        let of_wish = || if wanted.package.is_none() { text(&wish["test"]) } else { None };
        let test = wanted.test.map(str::to_owned).or_else(of_wish);

        let default: BTreeSet<String> = list(&metadata["workspace_default_members"]).iter().filter_map(text).collect();
        let chosen: Vec<&Value> = match &package {
            Some(name) => local.iter().copied().filter(|p| p["name"].as_str() == Some(name)).collect(),
            None => local.iter().copied().filter(|p| text(&p["id"]).is_some_and(|id| default.contains(&id))).collect(),
        };
        if chosen.is_empty() {
            let names: Vec<&str> = local.iter().filter_map(|p| p["name"].as_str()).collect();
            let asked = package.map_or_else(String::new, |p| format!(" `{p}`"));
            return Err(Failure::usage(format!(
                "no package{asked} to test; --package takes one of {}",
                names.join(", ")
            )));
        }
        let mut selection: Vec<String> = package.iter().flat_map(|p| ["--package".to_owned(), p.clone()]).collect();
        let targets: Vec<Value> = chosen.iter().flat_map(|p| list(&p["targets"])).collect();
        let is = |t: &Value, kind: &str| list(&t["kind"]).iter().any(|k| k == kind);
        match test {
            Some(test) => selection.extend(["--test".to_owned(), test]),
            None => {
                let has = |kind: &str| targets.iter().any(|t| t["test"] == true && is(t, kind));
                if has("lib") {
                    selection.push("--lib".to_owned());
                }
                if has("test") {
                    selection.extend(["--test".to_owned(), "*".to_owned()]);
                }
                if !has("lib") && !has("test") {
                    return Err(Failure::usage(
                        "the project has no tests: a file in tests/ that launches a kernel is one, as `warpsmith new` makes it",
                    ));
                }
            }
        }
        let benches = targets.iter().filter(|t| is(t, "bench")).filter_map(|t| text(&t["name"])).collect();
        let folder = |p: &Value| Some(Path::new(p["manifest_path"].as_str()?).parent()?.to_path_buf());
        let target = metadata["target_directory"].as_str().map_or_else(|| dir.join("target"), PathBuf::from);
        let packages = local.iter().filter_map(|p| Some((text(&p["id"])?, folder(p)?))).collect();
        let members: BTreeSet<String> = list(&metadata["workspace_members"]).iter().filter_map(text).collect();
        let of_members = local.iter().filter(|p| text(&p["id"]).is_some_and(|id| members.contains(&id)));
        let said = of_members.map(|p| &p["metadata"]).chain([&metadata["metadata"]]);
        let settings = said.map(|m| m["warpsmith"].clone()).filter(|m| !m.is_null()).collect();
        Ok(Project { dir, target, selection, packages, members, benches, settings })
    }
}

/// Whether a package of the workspace builds kernels, and is not warpsmith's own.
fn builds_kernels(metadata: &Value) -> bool {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let builds = |p: &Value| {
        let dependencies = p["dependencies"].as_array().into_iter().flatten();
        dependencies.into_iter().any(|d| d["name"] == "warpsmith-builder" && d["kind"] == "build")
    };
    packages().any(builds) && !packages().any(|p| p["name"] == "warpsmith-builder")
}
