//! One build of the tests: what rustc and the kernels' build say, and what there is to run.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::{Project, cargo};
use crate::child;
use crate::failure::{Failure, Kind};

/// What a build gave.
#[derive(Debug, Default)]
pub struct Built {
    /// Errors as the compiler renders them; empty if the build succeeded.
    pub errors: Vec<String>,
    /// Warnings of the project's own packages.
    pub warnings: Vec<String>,
    /// Test programs, each with the folder of its package.
    pub programs: Vec<(PathBuf, PathBuf)>,
    /// Manifests of kernels that build scripts of local packages wrote.
    pub manifests: Vec<PathBuf>,
    /// Those of packages of the workspace.
    pub own: Vec<PathBuf>,
    /// Programs of benchmarks, each with the folder of its package.
    pub benches: Vec<(PathBuf, PathBuf)>,
}

/// What is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The tests that are meant.
    Tests,
    /// All benchmarks, as tests are built: their programs' own work is none that matters.
    Benches,
}

/// Builds them. Lines that say what is compiled go on to stderr if `talk`: a first build takes minutes.
pub fn build(project: &Project, targets: Targets, talk: bool) -> Result<Built, Failure> {
    let benches = ["--bench".to_owned(), "*".to_owned()];
    let selection: &[String] = if targets == Targets::Tests { &project.selection } else { &benches };
    let failed = |e: std::io::Error| Failure::new(Kind::Toolchain, format!("cargo cannot be run: {e}"));
    let mut command = cargo(&project.dir);
    command.args(["test", "--no-run", "--message-format=json"]).args(selection);
    let mut guarded = child::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).map_err(failed)?;
    let stdout = child::listen(guarded.child().stdout.take());
    let pipe = guarded.child().stderr.take();
    let listener = std::thread::spawn(move || {
        let mut all = String::new();
        for line in pipe.into_iter().flat_map(|p| BufReader::new(p).lines()).map_while(Result::ok) {
            let word = line.trim_start().split(' ').next().unwrap_or_default().to_owned();
            if talk && ["Compiling", "Downloading", "Downloaded", "Blocking", "Updating"].contains(&word.as_str()) {
                eprintln!("{line}");
            }
            all.push_str(&line);
            all.push('\n');
        }
        all.into_bytes()
    });
    let output = guarded.output(stdout, listener).map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let mut built = Built::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Ok(message) = serde_json::from_str::<Value>(line) {
            built.take(&message, project);
        }
    }
    if !output.status.success() && built.errors.is_empty() {
        built.errors.push(of_build_script(&said).unwrap_or_else(|| said.trim_end().to_owned()));
    }
    Ok(built)
}

impl Built {
    fn take(&mut self, message: &Value, project: &Project) {
        let package = message["package_id"].as_str().and_then(|id| project.packages.get(id));
        match message["reason"].as_str() {
            Some("compiler-message") => {
                let text = message["message"]["rendered"].as_str().unwrap_or_default().trim_end().to_owned();
                // `error: aborting due to …` and `warning: 1 warning emitted` have no place and say nothing new.
                let placed = message["message"]["spans"].as_array().is_some_and(|s| !s.is_empty());
                let (is_error, known) = match message["message"]["level"].as_str() {
                    Some("error" | "error: internal compiler error") => (true, self.errors.contains(&text)),
                    Some("warning") => (false, self.warnings.contains(&text)),
                    _ => return,
                };
                if known || !placed && (text.contains("aborting due to") || text.ends_with("emitted")) {
                    return;
                }
                if is_error { self.errors.push(text) } else { self.warnings.push(text) }
            }
            Some("compiler-artifact") if message["profile"]["test"] == true => {
                if let (Some(program), Some(folder)) = (message["executable"].as_str(), package) {
                    let kinds = message["target"]["kind"].as_array().into_iter().flatten();
                    let bench = kinds.into_iter().any(|kind| kind == "bench");
                    let list = if bench { &mut self.benches } else { &mut self.programs };
                    list.push((PathBuf::from(program), folder.clone()));
                }
            }
            Some("build-script-executed") if package.is_some() => {
                let folders = message["out_dir"].as_str().and_then(|dir| std::fs::read_dir(dir).ok());
                let manifests = folders.into_iter().flatten().flatten().map(|e| e.path().join("manifest.json"));
                let manifests: Vec<PathBuf> = manifests.filter(|m| m.is_file()).collect();
                if message["package_id"].as_str().is_some_and(|id| project.members.contains(id)) {
                    self.own.extend(manifests.iter().cloned());
                }
                self.manifests.extend(manifests);
            }
            _ => {}
        }
    }
}

/// What a build script that failed wrote to stderr: with kernels, rustc's own text. cargo indents it below a heading.
fn of_build_script(said: &str) -> Option<String> {
    let (_, text) = said.split_once("--- stderr\n")?;
    let lines = text.lines().take_while(|l| !l.starts_with("warning: build failed"));
    let text: Vec<&str> = lines.map(|l| l.strip_prefix("  ").unwrap_or(l)).collect();
    Some(text.join("\n").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_script_is_heard_without_what_cargo_says_around_it() {
        let said = "   Compiling k v0.1.0\nerror: failed to run custom build command for `k v0.1.0`\n\nCaused by:\n  process didn't \
            exit successfully: `build` (exit status: 1)\n  --- stdout\n  cargo:rerun-if-changed=src\n\n  --- stderr\n  \
            error[E0599]: no method\n    --> kernels/src/a.rs:1:2\nwarning: build failed, waiting for other jobs\n";
        assert_eq!(of_build_script(said).unwrap(), "error[E0599]: no method\n  --> kernels/src/a.rs:1:2");
        assert_eq!(of_build_script("error: no such target"), None);
    }
}
