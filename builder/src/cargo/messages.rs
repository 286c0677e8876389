//! What cargo and the compiler say while the kernels are compiled, a line of JSON each.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::hints::with_hint;

#[derive(Deserialize)]
struct Message {
    reason: String,
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
}

#[derive(Default)]
pub(super) struct Messages {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
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
                "compiler-message" => result.diagnostic(message.message),
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

    fn diagnostic(&mut self, diagnostic: Option<Diagnostic>) {
        let Some(Diagnostic { level, message, rendered }) = diagnostic else {
            return;
        };
        let Some(rendered) = rendered else { return };
        // A failure note is the hint at `rustc --explain`.
        if level.starts_with("error") || level == "failure-note" {
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
            serde_json::json!({"reason": "compiler-message", "manifest_path": "/k/Cargo.toml",
                "message": {"level": level, "message": message, "rendered": rendered}})
            .to_string()
        };
        let stdout = [
            line("error", "mismatched types", "error[E0308]: mismatched types\n  --> src/lib.rs:3:5\n"),
            line("warning", "unstable feature specified for `-Ctarget-feature`: `ptx74`", "warning: unstable…"),
            line("warning", "unused variable: `x`", "warning: unused variable: `x`\n"),
            line("warning", "unused variable: `x`", "warning: unused variable: `x`\n"),
            line("warning", "1 warning emitted", "warning: 1 warning emitted\n"),
            "not json".to_owned(),
        ]
        .join("\n");
        let messages = Messages::read(&stdout, Path::new("/k/Cargo.toml"));
        assert_eq!(messages.errors, ["error[E0308]: mismatched types\n  --> src/lib.rs:3:5\n"]);
        assert_eq!(messages.warnings, ["warning: unused variable: `x`\n"]);
        assert!(messages.archive.is_none());
    }
}
