//! What is built, tested and watched: a cargo project, as `cargo metadata` describes it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cli::WatchArgs;
use crate::failure::{Failure, Kind};

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
}

/// cargo, as the project's toolchain file chooses it.
pub fn cargo(dir: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir).stdin(std::process::Stdio::null());
    command
}

impl Project {
    /// Asks cargo about the project that the options name.
    pub fn read(args: &WatchArgs) -> Result<Project, Failure> {
        let dir = args.project.clone().unwrap_or_else(|| PathBuf::from("."));
        if !dir.is_dir() {
            return Err(Failure::usage(format!("--project {}: there is no such folder", dir.display())));
        }
        let output = cargo(&dir)
            .args(["metadata", "--format-version=1"])
            .output()
            .map_err(|e| Failure::new(Kind::Toolchain, format!("cargo cannot be started: {e}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::usage(format!(
                "cargo finds no project in {}: go to one, name one with --project, or make one with `warpsmith new`\n{}",
                dir.display(),
                said.trim_end()
            )));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|e| Failure::new(Kind::Operation, format!("cargo metadata cannot be read: {e}")))?;
        Project::select(args, dir, &metadata)
    }

    fn select(args: &WatchArgs, dir: PathBuf, metadata: &Value) -> Result<Project, Failure> {
        let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
        let all = list(&metadata["packages"]);
        let local: Vec<&Value> = all.iter().filter(|p| p["source"].is_null()).collect();
        // A workspace may say which of its tests are those of kernels.
        let wish = &metadata["metadata"]["warpsmith"]["watch"];
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let package = args.package.clone().or_else(|| text(&wish["package"]));
        let test = args.test.clone().or_else(|| if args.package.is_none() { text(&wish["test"]) } else { None });

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
        match test {
            Some(test) => selection.extend(["--test".to_owned(), test]),
            None => {
                let targets: Vec<Value> = chosen.iter().flat_map(|p| list(&p["targets"])).collect();
                let has = |kind: &str| {
                    let is = |t: &&Value| t["test"] == true && list(&t["kind"]).iter().any(|k| k == kind);
                    targets.iter().filter(is).count() > 0
                };
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
        let folder = |p: &Value| Some(Path::new(p["manifest_path"].as_str()?).parent()?.to_path_buf());
        let target = metadata["target_directory"].as_str().map_or_else(|| dir.join("target"), PathBuf::from);
        let packages = local.iter().filter_map(|p| Some((text(&p["id"])?, folder(p)?))).collect();
        Ok(Project { dir, target, selection, packages })
    }
}
