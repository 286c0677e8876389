//! What cargo and the compiler say while the kernels are compiled, a line of JSON each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::hints::with_hint;

#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    message: Option<Diagnostic>,
    filenames: Option<Vec<PathBuf>>,
    fresh: Option<bool>,
    target: Option<MessageTarget>,
}
#[derive(Deserialize)]
struct MessageTarget {
    kind: Vec<String>,
}
#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    rendered: Option<String>,
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Span>,
}
#[derive(Deserialize)]
struct Code {
    code: String,
}
#[derive(Deserialize)]
struct Span {
    file_name: String,
    is_primary: bool,
}

#[derive(Default)]
pub(crate) struct Messages {
    pub(crate) errors: Vec<String>,
    /// The files that they are about; a lint's are about none.
    places: BTreeSet<Option<String>>,
    pub(crate) warnings: Vec<String>,
    pub(super) archive: Option<PathBuf>,
    pub(super) fresh: bool,
}

impl Messages {
    pub(super) fn read(stdout: &str, manifest: &Path) -> Messages {
        let mut result = Messages::default();
        for line in stdout.lines() {
            let Ok(message) = serde_json::from_str::<Message>(line) else {
                continue;
            };
            match message.reason.as_str() {
                // Verbose as it is, cargo tells warnings of crates that others wrote.
                "compiler-message" => {
                    let is_here = message.package_id.is_none_or(|id| id.starts_with("path+"));
                    let is_told = |told: &Diagnostic| is_here || told.level != "warning";
                    result.diagnostic(message.message.filter(is_told));
                }
                "compiler-artifact" if message.manifest_path.as_deref() == Some(manifest) => {
                    let is_lib = message.target.is_some_and(|t| t.kind.iter().any(|k| k == "staticlib"));
                    if let (true, Some(files)) = (is_lib, message.filenames) {
                        result.archive = files.into_iter().find(|f| f.extension().is_some_and(|e| e == "a"));
                        result.fresh = message.fresh.unwrap_or(false);
                    }
                }
                _ => {}
            }
        }
        result
    }

    /// What the compiler says by itself.
    pub(crate) fn of_compiler(stderr: &str) -> Messages {
        let mut result = Messages::default();
        stderr.lines().for_each(|line| result.diagnostic(serde_json::from_str(line).ok()));
        result
    }

    /// Whether there are errors, and each is the compiler's own and in one of these files.
    pub(crate) fn errors_are_in(&self, files: &[&str]) -> bool {
        let is_there = |place: &Option<String>| place.as_deref().is_some_and(|file| files.contains(&file));
        !self.places.is_empty() && self.places.iter().all(is_there)
    }

    fn diagnostic(&mut self, diagnostic: Option<Diagnostic>) {
        let Some(Diagnostic { level, message, rendered, code, spans }) = diagnostic else {
            return;
        };
        let Some(rendered) = rendered else { return };
        // How many they were can be seen.
        if message.starts_with("aborting due to ") {
            return;
        }
        // A failure note is the hint at `rustc --explain`.
        if level.starts_with("error") || level == "failure-note" {
            let is_lint = code.is_some_and(|code| !code.code.starts_with('E'));
            if level.starts_with("error") {
                let mut primary =
                    spans.into_iter().filter(|span| span.is_primary).map(|span| span.file_name).peekable();
                match is_lint || primary.peek().is_none() {
                    true => drop(self.places.insert(None)),
                    false => self.places.extend(primary.map(Some)),
                }
            }
            self.errors.push(with_hint(&message, rendered));
        } else if level == "warning" {
            // Ours, and meant: the PTX version is a target feature that rustc calls unstable.
            let about_flags = message.contains("specified for `-Ctarget-feature`");
            let is_count = message.ends_with("emitted");
            if !about_flags && !is_count && !self.warnings.contains(&rendered) {
                self.warnings.push(rendered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_keep_their_text_and_drop_our_flags() {
        let line = |level: &str, message: &str, rendered: &str| {
            serde_json::json!({"reason": "compiler-message", "manifest_path": "/k/Cargo.toml", "package_id": "path+file:///k#0.1.0",
                "message": {"level": level, "message": message, "rendered": rendered}})
            .to_string()
        };
        let stdout = [
            line("error", "mismatched types", "error[E0308]: mismatched types\n  --> src/lib.rs:3:5\n"),
            line("warning", "unstable feature specified for `-Ctarget-feature`: `ptx74`", "warning: unstable…"),
            line("warning", "unused variable: `x`", "warning: unused variable: `x`\n"),
            line("warning", "unused variable: `x`", "warning: unused variable: `x`\n"),
            line("warning", "1 warning emitted", "warning: 1 warning emitted\n"),
            line("warning", "of libm", "warning: of libm").replace("path+file:///k", "registry+https://index#libm"),
            "not json".to_owned(),
        ]
        .join("\n");
        let messages = Messages::read(&stdout, Path::new("/k/Cargo.toml"));
        assert_eq!(messages.errors, ["error[E0308]: mismatched types\n  --> src/lib.rs:3:5\n"]);
        assert_eq!(messages.warnings, ["warning: unused variable: `x`\n"]);
        assert!(messages.archive.is_none());
    }

    #[test]
    fn errors_are_told_by_their_places() {
        let error = |code: &str, files: &[&str]| {
            let spans: Vec<_> = files
                .iter()
                .map(|file| serde_json::json!({"file_name": file, "is_primary": *file != "note.rs"}))
                .collect();
            serde_json::json!({"level": "error", "message": "m", "rendered": "r", "code": {"code": code}, "spans": spans})
                .to_string()
        };
        let end = serde_json::json!({"level": "error", "message": "aborting due to 1 previous error", "rendered": "a",
            "code": null, "spans": []});
        let are_in = |lines: &[String]| {
            let messages = Messages::of_compiler(&format!("{}\n{end}\n", lines.join("\n")));
            assert_eq!(messages.errors.len(), lines.len());
            messages.errors_are_in(&["a.rs", "b.rs"])
        };
        assert!(are_in(&[error("E0308", &["a.rs", "note.rs"]), error("E0425", &["b.rs"])]));
        assert!(!are_in(&[error("E0308", &["a.rs"]), error("E0308", &["c.rs"])]));
        assert!(!are_in(&[error("dead_code", &["a.rs"])]));
        assert!(!are_in(&[error("E0463", &[])]));
        assert!(!are_in(&[]));
    }
}
