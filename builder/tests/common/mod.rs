//! Copies of the fixture crates in temporary folders, built with one shared cache.
#![allow(dead_code, reason = "every test program uses its own part")]

use std::path::{Path, PathBuf};

use warpsmith_builder::{BuildError, KernelCrate, Output};

/// Compares a message with its file in `messages/`, which docs/mistakes.md quotes. `WARPSMITH_MESSAGES=write` writes it.
#[track_caller]
pub fn says(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/messages/{name}.txt"));
    if std::env::var("WARPSMITH_MESSAGES").is_ok_and(|v| v == "write") {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stands.trim_end() == text, "{} is\n{stands}\nthe message is\n{text}", path.display());
}

/// The generator of these tests, as the manifest names it.
pub fn generator() -> String {
    std::env::var("WARPSMITH_BACKEND").ok().filter(|b| !b.is_empty()).unwrap_or_else(|| "stock".to_owned())
}

/// Whether it is not the stock generator, of which the calling test is.
pub fn other_generator() -> bool {
    let other = generator() != "stock";
    if other {
        println!("SKIPPED: a test of the stock generator");
    }
    other
}

/// A copy of a fixture that a test may change.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl Fixture {
    /// The kernels crate, in a folder with a space in its name.
    pub fn basic() -> Fixture {
        let dir = tempfile::Builder::new().prefix("warpsmith builder ").tempdir().unwrap();
        let path = dir.path().join("basic kernels");
        copy(&fixtures().join("basic"), &path);
        Fixture { dir, path }
    }

    pub fn source(&self) -> PathBuf {
        self.path.join("src/lib.rs")
    }

    /// Replaces text in `src/lib.rs`; the text must be there.
    pub fn edit(&self, from: &str, to: &str) {
        let old = std::fs::read_to_string(self.source()).unwrap();
        assert!(old.contains(from), "{from:?} is not in the fixture");
        std::fs::write(self.source(), old.replace(from, to)).unwrap();
    }

    pub fn append(&self, text: &str) {
        let old = std::fs::read_to_string(self.source()).unwrap();
        std::fs::write(self.source(), old + text).unwrap();
    }

    pub fn kernel_crate(&self) -> KernelCrate {
        KernelCrate::new(&self.path).archs(["sm_80"]).out_dir(self.dir.path().join("out dir")).cache_dir(cache())
    }

    pub fn build(&self) -> Result<Output, BuildError> {
        self.kernel_crate().build()
    }

    pub fn error(&self) -> String {
        self.build().expect_err("the build must fail").to_string()
    }
}

impl Drop for Fixture {
    /// Removes what was compiled for this copy from the shared cache.
    fn drop(&mut self) {
        let copy = self.path.canonicalize().unwrap_or_default();
        for entry in std::fs::read_dir(cache().join("kernels")).into_iter().flatten().flatten() {
            let of = std::fs::read_to_string(entry.path().join("workspace")).unwrap_or_default();
            if std::path::Path::new(&of) == copy {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The cache of the workspace's own build, so that `core` is compiled once for everything.
pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("warpsmith")
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
