//! A library with NCCL's names that writes down how it is called.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library, compiled once, and the file that its calls are lines of: `FAKE_NCCL_CALLS` names it.
pub fn library() -> (PathBuf, PathBuf) {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collectives/tests/data/fake_nccl.rs");
        let out = folder.path().join("libnccl.so.2");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let args = ["--edition=2024", "--crate-type=cdylib"];
        let built = Command::new(rustc).args(args).arg(source).arg("-o").arg(&out).status();
        assert!(built.unwrap().success());
        folder
    });
    let calls = folder.path().join("calls");
    // SAFETY: tests that load the library hold the devices, and nothing else reads the environment meanwhile.
    unsafe { std::env::set_var("FAKE_NCCL_CALLS", &calls) };
    let _ = std::fs::remove_file(&calls);
    (folder.path().join("libnccl.so.2"), calls)
}
