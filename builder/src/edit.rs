//! An edit of some kernels: they are compiled, and the code of all others is what it was.
//!
//! The compiler takes most of its time over a large crate for what an edit does not touch: it reads and expands every kernel
//! before it finds that their code is there already. But nothing can refer to a kernel. Where all that changed since the last compilation is
//! `#[kernel]` functions, so that every other item stands where it stood and says what it said, the code of the kernels in all other files
//! is what it was. The compiler is then started as cargo started it, with those others left out (`macros/src/chosen.rs`), and the texts that it
//! writes take the place of those with the same kernels.
//!
//! Whatever does not fit (another file, another variable, a kernel more, a warning turned into an error, a name that no text defines) is
//! compiled as a whole, by cargo; so is every edit where cargo says otherwise how it starts the compiler, as on Windows. Lints that ask who uses an item are silent about an edit, and speak in the next compilation of the whole.

mod base;
mod invocation;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use memchr::memmem;
use serde::{Deserialize, Serialize};

use crate::BuildError;
use crate::cache::hash;
use crate::cargo::{Compilation, Compiled, Messages, Ran, Unit};
use crate::process::{CHOSEN, join, run};
use crate::ptx;
use base::{Base, Change};

/// Lints of what nobody uses, as those who would are left out.
const SILENT: [&str; 4] = ["-Adead_code", "-Aunused_imports", "-Aunused_macros", "-Aunused_macro_rules"];

/// What is kept of edits, in the target directory of an architecture.
pub(crate) struct Edits<'a> {
    compilation: &'a Compilation<'a>,
    folder: PathBuf,
    /// Cargo's command, as one word.
    command: String,
}

/// The compilation of an edit that the folder holds the texts of.
#[derive(Serialize, Deserialize)]
struct Done {
    of: String,
    warnings: Vec<String>,
}

impl<'a> Edits<'a> {
    pub(crate) fn new(compilation: &'a Compilation<'a>, cargo: &std::process::Command) -> Edits<'a> {
        // What is taken from the environment depends on who asks, and does not reach the compiler.
        let set: Vec<_> = cargo.get_envs().filter(|(_, value)| value.is_some()).collect();
        let said = format!(
            "{cargo_program:?} {:?} {set:?}",
            cargo.get_args().collect::<Vec<_>>(),
            cargo_program = cargo.get_program()
        );
        let command = hash(&[&said, &compilation.toolchain.verbose_version]);
        Edits { compilation, folder: compilation.target_dir.join("edits"), command }
    }

    /// There is nothing that edits could be told from, until [`Edits::remember`].
    pub(crate) fn forget(&self) {
        Base::remove(&self.folder);
    }

    /// Takes a compilation of all kernels for the one that edits are told from. Where it is none, the next edit is compiled as a whole.
    pub(crate) fn remember(&self, ran: &Ran) {
        if let Some(base) = Base::of(&self.command, self.compilation, ran) {
            let _ = base.write(&self.folder);
        }
    }

    /// The kernels as they are now, if only some of them changed since; `None`: ask cargo.
    pub(crate) fn compile(&self) -> Result<Option<Compiled>, BuildError> {
        let Some(base) = Base::read(&self.folder, &self.command) else { return Ok(None) };
        let Change::Kernels(edited) = base.change(&self.compilation.package.workspace_root) else { return Ok(None) };
        // Both take about as long where the machine is idle.
        let (texts, found) = std::thread::scope(|scope| {
            let texts = scope.spawn(|| Unit::read_all(self.compilation.target_dir));
            let found = self.units(&base, &edited);
            (join(texts), found)
        });
        let (Some(texts), Some(Found { units, warnings, fresh })) = (texts, found?) else { return Ok(None) };
        let Some(texts) = replaced(texts, units, edited.keys()) else { return Ok(None) };
        // A crate of one module is as it is.
        let joined = match <[String; 1]>::try_from(texts) {
            Ok([text]) => Ok(text),
            Err(texts) => ptx::join(&texts),
        };
        let Ok(ptx) = joined else { return Ok(None) };
        // An edited file's are told anew, and so are those of everything but the kernels that were left out.
        let told: Vec<_> = warnings.iter().map(|warning| head(warning)).collect();
        let stays =
            |warning: &&String| !edited.keys().any(|file| warning.contains(file)) && !told.contains(&head(warning));
        let warnings = base.warnings.iter().filter(stays).chain(&warnings).cloned().collect();
        Ok(Some(Compiled { ptx, fresh, warnings, inputs: base.inputs }))
    }

    /// The texts of the kernels in these files.
    fn units(&self, base: &Base, edited: &BTreeMap<String, String>) -> Result<Option<Found>, BuildError> {
        if edited.is_empty() {
            return Ok(Some(Found { units: Vec::new(), warnings: Vec::new(), fresh: true }));
        }
        let Some(of) = base.name(&self.folder) else { return Ok(None) };
        let mut parts = vec![of.to_string()];
        parts.extend(edited.iter().flat_map(|(file, text)| [file.clone(), source::seen(text)]));
        let of = hash(&parts.iter().map(String::as_str).collect::<Vec<_>>());
        let (out, done) = (self.folder.join("texts"), self.folder.join("done.json"));
        let last: Option<Done> = std::fs::read(&done).ok().and_then(|json| serde_json::from_slice(&json).ok());
        if let Some(Done { warnings, .. }) = last.filter(|done| done.of == of)
            && let Some(units) = Unit::read_all(&self.folder)
        {
            return Ok(Some(Found { units, warnings, fresh: true }));
        }
        let _ = std::fs::remove_file(&done);
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out).map_err(BuildError::io("create", &out))?;
        let incremental = self.folder.join("incremental");
        let mut command = base.invocation.redirected(&out, &incremental);
        let files: Vec<&str> = edited.keys().map(String::as_str).collect();
        command
            .args(SILENT)
            .current_dir(&self.compilation.package.workspace_root)
            .env("RUSTC_BOOTSTRAP", self.compilation.unstable())
            .env(CHOSEN, files.join("\n"));
        let output = run(&mut command)?;
        let messages = Messages::of_compiler(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            if messages.errors_are_in(&files) {
                return Err(self.compilation.compile_error(messages.errors.concat()));
            }
            // Nor does it stumble over what it kept again.
            let _ = std::fs::remove_dir_all(&incremental);
            return Ok(None);
        }
        let Some(units) = read(&out) else { return Ok(None) };
        Unit::write_all(&units, &self.folder)?;
        let _ = std::fs::remove_dir_all(&out);
        let warnings = messages.warnings;
        let json = serde_json::to_vec(&Done { of, warnings: warnings.clone() }).unwrap_or_default();
        let _ = std::fs::write(&done, json);
        Ok(Some(Found { units, warnings, fresh: false }))
    }
}

struct Found {
    units: Vec<Unit>,
    warnings: Vec<String>,
    fresh: bool,
}

/// What a warning says, and of which place. What follows depends on those before it.
fn head(warning: &str) -> Vec<&str> {
    warning.lines().take(2).collect()
}

/// The units whose texts the compiler wrote into a folder.
fn read(out: &Path) -> Option<Vec<Unit>> {
    let entries = std::fs::read_dir(out).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|e| e == "s")).map(|path| Unit::read("", &path).ok()).collect()
}

/// All texts, with `units` in place of those that have the same kernels. `None`: there are none for some of `units`, or none among them for
/// some that has kernels of these files, as where a kernel has gone.
fn replaced<'f>(all: Vec<Unit>, units: Vec<Unit>, files: impl Iterator<Item = &'f String>) -> Option<Vec<String>> {
    let with_kernels = units.into_iter().filter(|unit| !unit.kernels.is_empty());
    let mut new: BTreeMap<BTreeSet<String>, String> = with_kernels.map(|unit| (unit.kernels, unit.text)).collect();
    for file in files {
        // As the metadata of a kernel has it.
        let said = format!("\"file\":{}", serde_json::to_string(&file.replace('\\', "/")).ok()?);
        let mut of_file =
            all.iter().filter(|unit| memmem::find(unit.text.as_bytes(), said.as_bytes()).is_some()).peekable();
        of_file.peek()?;
        if !of_file.all(|unit| new.contains_key(&unit.kernels)) {
            return None;
        }
    }
    let texts = all.into_iter().map(|unit| new.remove(&unit.kernels).unwrap_or(unit.text)).collect();
    new.is_empty().then_some(texts)
}
