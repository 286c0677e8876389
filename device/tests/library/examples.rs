//! The kernels of the documentation's examples compile for the GPU. (`compile_fail` compiles the examples for the host, which
//! leaves kernels' bodies out and has their contracts.)

use super::common::examples::{examples, files, modules};
use std::{fs, path::Path};
use warpsmith_builder::KernelCrate;

/// What a kernel calls, file by file; `fp8`, `packed` and `random` have examples for both sides.
const MODULES: [&str; 18] = [
    "args",
    "atomic",
    "barrier",
    "block_reduce",
    "constant",
    "grid",
    "lib",
    "math",
    "mem",
    "mma/mod",
    "pipeline",
    "print/mod",
    "shared/layout",
    "shared/mod",
    "sync",
    "tile/mod",
    "unroll",
    "warp/mod",
];

#[test]
fn examples_compile_for_the_gpu() {
    // rust-cuda's generator never has the forms of newer architectures.
    if super::common::other_generator() {
        return;
    }
    let device = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = files();
    assert!(!files.iter().any(|(_, text)| text.contains("```text")), "an example that nothing compiles");
    for module in MODULES {
        let (_, text) = files.iter().find(|(path, _)| path.ends_with(format!("src/{module}.rs"))).unwrap();
        assert!(!examples(text).is_empty(), "{module} has no example of a kernel");
    }
    let (modules, count) = modules(&files);
    let code = format!("#![no_std]\n#![feature(abi_ptx, asm_experimental_arch, f16)]\n{modules}");

    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // The same place each time: what the builder keeps for it is used again.
    let folder = scratch.join("examples");
    let fixture = device.join("tests/fixtures/all-device");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), code).unwrap();
    let manifest = fs::read_to_string(fixture.join("Cargo.toml")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest.replace("../../..", &device.to_string_lossy())).unwrap();
    fs::copy(fixture.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let output = KernelCrate::new(&folder)
        .archs(["sm_80"])
        .out_dir(folder.join("out"))
        .cache_dir(scratch.join("../warpsmith"))
        .quiet()
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(output.warnings, Vec::<String>::new());
    assert!(output.manifest.kernels.len() >= count, "a kernel in each");
    fs::remove_dir_all(folder.join("out")).unwrap();
}
