//! The kernels of the documentation's examples compile for the GPU. (As documentation tests they compile for the host, which
//! leaves their bodies out.)

use std::{fmt::Write, fs, path::Path};
use warpsmith_builder::KernelCrate;

/// The code of a file's documentation that has kernels, without marks and what only the host needs.
fn examples(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines().map(str::trim_start) {
        let Some(line) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else { continue };
        let line = line.strip_prefix(' ').unwrap_or(line);
        match (&mut open, line) {
            (None, "```") => open = Some(String::new()),
            (None, _) => {}
            (Some(_), "```") => found.extend(open.take().filter(|code| code.contains("#[kernel"))),
            (Some(code), _) => {
                let line = line.strip_prefix("# ").unwrap_or(line);
                if !line.starts_with("#![") && line != "fn main() {}" {
                    writeln!(code, "    {line}").unwrap();
                }
            }
        }
    }
    found
}

fn sources(folder: &Path, list: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, list);
        } else {
            list.push(fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn examples_compile_for_the_gpu() {
    let device = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&device.join("src"), &mut files);
    assert!(!files.iter().any(|f| f.contains("```text")), "an example that nothing compiles");
    let mut code = String::from("#![no_std]\n#![feature(abi_ptx, asm_experimental_arch, f16)]\n");
    let examples: Vec<String> = files.iter().flat_map(|f| examples(f)).collect();
    for (i, example) in examples.iter().enumerate() {
        writeln!(code, "pub mod example_{i} {{\n{example}}}").unwrap();
    }

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
    assert_eq!(output.manifest.kernels.len(), examples.len(), "a kernel in each");
    assert!(examples.len() >= 14, "{} examples were found", examples.len());
    fs::remove_dir_all(folder.join("out")).unwrap();
}
