//! What is inspected: a kernel's PTX, and the profile of a launch of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpsmith_builder::Manifest;
use warpsmith_check::record::Record;
use warpsmith_driver_api::software::own_frame;
use warpsmith_host::KernelImage;
use warpsmith_simt::{LoadOptions, Module};

use crate::cli::InspectArgs;
use crate::commands::check::{bench::Kernels, program::read_report};
use crate::commands::profile;
use crate::commands::project::cargo;
use crate::commands::watch::LAST_PROFILE;
use crate::failure::{Failure, Kind};

/// File and line.
pub type SourceLine = (String, u32);

/// A kernel, its text, and what a launch of it did.
pub struct Subject {
    /// The whole module.
    pub ptx: String,
    /// Lines of the kernel in it, from 1.
    pub lines: std::ops::RangeInclusive<u32>,
    /// Source places of lines with instructions: the innermost in the kernel's own crate.
    pub places: BTreeMap<u32, SourceLine>,
    /// A launch, as `warpsmith profile --json` prints it.
    pub profile: Option<Value>,
    /// Where text and profile are from, in words.
    pub from: String,
    /// What the reader has to know.
    pub notes: Vec<String>,
    /// Bytes of shared memory that the kernel declares, by its text.
    pub static_shared: u32,
    /// Threads of a block, by its text.
    pub threads: Option<u32>,
}

impl Subject {
    /// Finds the kernel: in a file, among those that ship, or in the project.
    pub fn find(args: &InspectArgs, sm: u32) -> Result<Subject, Failure> {
        let shipped = warpsmith_host::kernels()?.kernel(&args.kernel).is_some();
        if let Some(file) = &args.ptx_file {
            let text = std::fs::read_to_string(file)
                .map_err(|e| Failure::usage(format!("--ptx-file {}: {e}", file.display())))?;
            let mut subject = Subject::load(args, sm, text, file.display().to_string())?;
            if let Some(report) = &args.counters {
                subject.profile = Some(subject.counted(&args.kernel, report)?);
                return Ok(subject);
            }
            // A project's last profile may be of this text.
            if let Some(last) = target_of(args).and_then(|target| read_last(&target)) {
                subject.add(launch_of(&last, &args.kernel));
            }
            return Ok(subject);
        }
        if shipped {
            let (arch, text) = warpsmith_host::builtin_image().code_of(&args.kernel, sm)?;
            let code = Kernels::new(sm);
            let module = code.of(&args.kernel).map_err(|e| Failure::new(Kind::Operation, e))?;
            let mut subject = Subject::of(args, &module, text.into_owned(), format!("PTX for sm_{arch}, which ships"))?;
            let shape = args.shape.as_deref().unwrap_or_default();
            let largest = profile::launches(&code, &args.kernel, shape)?
                .into_iter()
                .max_by_key(|(_, l)| l.profile.total.warp_instructions);
            if let Some((shape, launch)) = largest {
                subject.from = format!("{}; profiled now with {shape}", subject.from);
                subject.add(Some(launch.to_json()));
            }
            return Ok(subject);
        }
        if args.shape.is_some() {
            return Err(Failure::usage(
                "--shape is for kernels that ship; others are profiled as their tests launch them",
            ));
        }
        Subject::of_project(args, sm)
    }

    /// A kernel of the project: text and profile are those of the last round of `warpsmith watch`.
    fn of_project(args: &InspectArgs, sm: u32) -> Result<Subject, Failure> {
        let kernel = &args.kernel;
        let nowhere = |why: &str| {
            Failure::usage(format!(
                "no kernel `{kernel}` ships (`warpsmith kernels` lists them), and {why}: run `warpsmith watch --once` in the \
                 project that has it, or give its text with --ptx-file"
            ))
        };
        let target = target_of(args).ok_or_else(|| nowhere("this folder is in no cargo project"))?;
        let last = read_last(&target).ok_or_else(|| nowhere("the project here was not profiled yet"))?;
        let manifests =
            last["manifests"].as_array().into_iter().flatten().filter_map(|m| m.as_str().map(PathBuf::from));
        for path in manifests {
            let Ok(manifest) = Manifest::read(&path) else { continue };
            let Some(image) = manifest.images.iter().rfind(|i| i.sm <= sm) else { continue };
            if manifest.kernel(kernel).is_none() {
                continue;
            }
            let file = path.with_file_name(&image.file);
            let text = embedded(&path, kernel, image.sm)?;
            let mut subject = Subject::load(args, sm, text, file.display().to_string())?;
            subject.add(launch_of(&last, kernel));
            return Ok(subject);
        }
        Err(nowhere("the last profile of the project here knows none of that name"))
    }

    fn load(args: &InspectArgs, sm: u32, ptx: String, from: String) -> Result<Subject, Failure> {
        let module = Module::load(&ptx, &LoadOptions { sm })
            .map_err(|e| Failure::new(Kind::Operation, format!("{from} does not load for sm_{sm}:\n{e}")))?;
        Subject::of(args, &module, ptx, from)
    }

    fn of(args: &InspectArgs, module: &Module, ptx: String, from: String) -> Result<Subject, Failure> {
        let Some(info) = module.kernel(&args.kernel) else {
            let names: Vec<&str> = module.kernels().map(|k| k.name.as_str()).collect();
            return Err(Failure::usage(format!("{from} has no kernel `{}`; it has {}", args.kernel, names.join(", "))));
        };
        let threads = info.required_threads.or(info.max_threads).map(|t| t.iter().product());
        let static_shared = info.static_shared;
        let lines = range(&ptx, &args.kernel)
            .ok_or_else(|| Failure::new(Kind::Operation, format!("the body of `{}` has no end", args.kernel)))?;
        let places = module.places();
        let own = |(line, frames): (u32, Vec<_>)| own_frame(&frames).map(|f| (line, (f.file.clone(), f.line)));
        let places = places.into_iter().filter(|(line, _)| lines.contains(line)).filter_map(own).collect();
        Ok(Subject { ptx, lines, places, profile: None, from, notes: Vec::new(), static_shared, threads })
    }

    /// The launch of a report file, which has to be one of this text.
    fn counted(&self, kernel: &str, report: &Path) -> Result<Value, Failure> {
        let launches: Vec<Value> = read_report(report)?.into_iter().filter_map(Record::into_profile).collect();
        let found = launch_of(&json!({ "launches": launches }), kernel);
        let refused = |why: &str| Failure::usage(format!("--counters {}: {why} of `{kernel}`", report.display()));
        let launch = found.ok_or_else(|| refused("it has no launch"))?;
        if self.is_of(&launch) { Ok(launch) } else { Err(refused("it counted another text")) }
    }

    /// Whether a launch ran this text.
    fn is_of(&self, profile: &Value) -> bool {
        let text: Vec<&str> = self.ptx.lines().collect();
        let same = |l: &Value| {
            let at = l["line"].as_u64().and_then(|n| (n as usize).checked_sub(1));
            at.and_then(|at| text.get(at)).map(|t| t.trim()) == l["text"].as_str()
        };
        profile["ptx"].as_array().is_some_and(|lines| lines.iter().all(same))
    }

    /// Adds a profile, if it is one of this text.
    fn add(&mut self, profile: Option<Value>) {
        let Some(profile) = profile else { return };
        if self.is_of(&profile) {
            self.profile = Some(profile);
        } else {
            self.notes.push(
                "the last profile is of another text and is not shown: run `warpsmith watch --once` again".to_owned(),
            );
        }
    }
}

/// The text of a kernel's module as the program embeds it, which is what its launches ran: from the pack beside the manifest.
fn embedded(manifest: &Path, kernel: &str, sm: u32) -> Result<String, Failure> {
    let file = manifest.with_file_name("kernels.pack");
    let refuse = |path: &Path, e: std::io::Error| Failure::new(Kind::Operation, format!("{}: {e}", path.display()));
    let pack = std::fs::read(&file).map_err(|e| refuse(&file, e))?;
    let text = std::fs::read_to_string(manifest).map_err(|e| refuse(manifest, e))?;
    let library = Manifest::read(manifest).map_err(|e| Failure::new(Kind::Operation, e.to_string()))?.library;
    // An image lives as long as the program does; this one is read once.
    let parts: (&str, &str, &[u8]) = (library.leak(), text.leak(), pack.leak());
    // SAFETY: nothing is launched with it, its code is read.
    let image = unsafe { KernelImage::from_pack(parts) };
    Ok(image.code_of(kernel, sm)?.1.into_owned())
}

/// Of the launches of a kernel, the one that issued most.
fn launch_of(last: &Value, kernel: &str) -> Option<Value> {
    let of_kernel = last["launches"].as_array()?.iter().filter(|l| l["kernel"].as_str() == Some(kernel));
    of_kernel.max_by_key(|l| l["metrics"]["smsp__inst_executed.sum"].as_u64()).cloned()
}

fn read_last(target: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(target.join(LAST_PROFILE)).ok()?).ok()
}

/// cargo's target directory of the project, if there is one.
fn target_of(args: &InspectArgs) -> Option<PathBuf> {
    let dir = args.project.clone().unwrap_or_else(|| PathBuf::from("."));
    let output = cargo(&dir).args(["metadata", "--format-version=1", "--no-deps"]).output().ok()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).ok()?;
    metadata["target_directory"].as_str().map(PathBuf::from)
}

/// The lines of an entry, from `.entry` to its closing brace.
fn range(ptx: &str, kernel: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let is_entry = |line: &str| {
        let name = line.split_once(".entry").map(|(_, rest)| rest.trim_start());
        name.and_then(|n| n.strip_prefix(kernel))
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "_$".contains(c)))
    };
    let first = ptx.lines().position(is_entry)?;
    let (mut depth, mut opened) = (0i32, false);
    for (at, line) in ptx.lines().enumerate().skip(first) {
        let code = line.split("//").next().unwrap_or_default();
        for c in code.chars() {
            match c {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth -= 1,
                _ => {}
            }
        }
        if opened && depth == 0 {
            return Some(first as u32 + 1..=at as u32 + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_ends_with_its_own_brace() {
        let text = ".visible .entry ab(.param .u64 p)\n{\nret;\n}\n.visible .entry a(\n.param .u64 p\n)\n.maxntid 1\n{\n{ .reg \
                    .b32 r;\n}\nld.v2.u32 {a, b}, [p]; // {\nret;\n}\n";
        assert_eq!(range(text, "a"), Some(5..=14));
        assert_eq!(range(text, "ab"), Some(1..=4));
        assert_eq!(range(text, "b"), None);
        assert_eq!(range(".entry a() {", "a"), None);
    }
}
