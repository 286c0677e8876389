//! An instruction that does not say what it is to the checks does not compile.
//!
//! The source is copied, a defect planted in the copy, and the compiler asked. The copy without a defect compiles, so what
//! is refused is the defect.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the compiler says to a copy of the source in which `file` is what `plant` makes of it.
fn compiled(name: &str, file: &str, plant: impl Fn(&str) -> String) -> Result<(), String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let copy = tmp.join("facts").join(name);
    let _ = fs::remove_dir_all(&copy);
    copy_tree(&here.join("src"), &copy.join("simt/src"));
    let path = copy.join("simt/src").join(file);
    fs::write(&path, plant(&fs::read_to_string(&path).unwrap())).unwrap();
    fs::write(copy.join("simt/Cargo.toml"), manifest(here)).unwrap();
    fs::write(copy.join("Cargo.toml"), workspace(&here.join(".."))).unwrap();
    // Versions are those of the lock file.
    fs::copy(here.join("../Cargo.lock"), copy.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet"])
        .current_dir(&copy)
        .env("CARGO_TARGET_DIR", tmp.join("facts/target"))
        .env("CARGO_TERM_COLOR", "never")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    fs::remove_dir_all(&copy).unwrap();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// The crate's manifest without what its tests need: those crates depend on the crate where it is.
fn manifest(here: &Path) -> String {
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    let (before, rest) = manifest.split_once("[dev-dependencies]").expect("tests have dependencies");
    let (_, behind) = rest.split_once("\n[").expect("lints follow");
    format!("{before}[{behind}")
}

/// A workspace of the copy alone, which inherits what the crate does: the other crates stay where they are.
fn workspace(root: &Path) -> String {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let inherited = manifest.split_once("[workspace.package]").and_then(|(_, rest)| rest.split_once("\n[profile."));
    let (inherited, _) = inherited.expect("settings of the workspace are before the profiles");
    let inherited = inherited.replace("path = \"", &format!("path = \"{}/", root.display()));
    format!("[workspace]\nresolver = \"3\"\nmembers = [\"simt\"]\n\n[workspace.package]{inherited}")
}

fn copy_tree(from: &Path, to: &PathBuf) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => fs::copy(entry.path(), target).map(|_| ()).unwrap(),
        }
    }
}

fn behind(text: &str, mark: &str, more: &str) -> String {
    assert_eq!(text.matches(mark).count(), 1, "{mark}");
    text.replace(mark, &format!("{mark}{more}"))
}

#[test]
fn facts_are_not_optional() {
    compiled("twin", "lib.rs", str::to_owned).unwrap_or_else(|said| panic!("the source itself:\n{said}"));
    let missing =
        "\nimpl Builder<'_> {\n    fn planted(&mut self) {\n        self.push(crate::exec::control::nop);\n    }\n}\n";
    let said = compiled("operation", "lower/video.rs", |text| text.to_owned() + missing).unwrap_err();
    assert!(said.contains("E0061") && said.contains("Facts"), "an operation without facts:\n{said}");
    let opcode = |text: &str| behind(text, "Setmaxnreg \"setmaxnreg\",", " Wgmma \"wgmma\",");
    let said = compiled("opcode", "lower/decode.rs", opcode).unwrap_err();
    assert!(said.contains("E0004") && said.contains("Wgmma"), "an opcode without class and cost:\n{said}");
}
