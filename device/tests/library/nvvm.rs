//! The forms for rust-cuda, which its code generator compiles and these tests only approximate: see `common::nvvm`.

use super::common::nvvm::{cargo, nvvm};
use std::path::Path;

/// How often an entry has a barrier or a shuffle.
fn collectives(ptx: &str, entry: &str) -> [usize; 2] {
    let body = &ptx[ptx.find(&format!(".entry {entry}(")).unwrap_or_else(|| panic!("no entry {entry}"))..];
    let body = &body[..body.find("\n}").unwrap()];
    let count = |words: &[&str]| body.lines().filter(|l| words.iter().any(|w| l.trim_start().starts_with(w))).count();
    [count(&["bar.", "barrier."]), count(&["shfl.sync"])]
}

#[test]
fn collectives_are_not_copied_in_the_forms_for_rust_cuda() {
    if super::common::other_generator() {
        return;
    }
    for (entry, wanted) in [
        ("barrier_between_branches", [1, 0]),
        ("barrier_in_loop", [1, 0]),
        ("shuffle_between_branches", [0, 1]),
        ("block_reduction_between_branches", [2, 10]),
        ("helpers_between_branches", [2, 10]),
    ] {
        assert_eq!(collectives(nvvm(), entry), wanted, "{entry}");
    }
}

#[test]
fn kernels_of_the_repository_have_forms_for_rust_cuda() {
    if super::common::other_generator() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if !root.join("gpu-kernels").is_dir() {
        println!("the crate is not in its repository; nothing compiled");
        return;
    }
    let mut args = vec!["check"];
    for package in ["gpu-kernels", "ladder-kernels", "rate-kernels"] {
        args.extend(["--package", package]);
    }
    args.extend(["--features", "gpu-kernels/nvvm,ladder-kernels/nvvm,rate-kernels/nvvm"]);
    cargo(&root, &args);
}
