//! What the build of kernels says of the first mistakes: each is made here, and what is said stands in a file of `messages/`,
//! which docs/mistakes.md quotes. `WARPSMITH_MESSAGES=write` writes the files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;
use warpsmith_builder::KernelCrate;

/// What the build of a kernels crate with these kernels says.
fn error(kernels: &str) -> String {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = scratch.join("first-mistakes");
    fs::create_dir_all(dir.join("src")).unwrap();
    let device = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::write(
        dir.join("Cargo.toml"),
        format!(
            "[package]\nname = \"first-mistakes\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n\
             [dependencies]\nwarpsmith-device = {{ path = {device:?} }}\n"
        ),
    )
    .unwrap();
    let head = "#![cfg_attr(target_arch = \"nvptx64\", no_std)]\n\
                #![cfg_attr(target_arch = \"nvptx64\", feature(abi_ptx, asm_experimental_arch, f16))]\n\
                use warpsmith_device::prelude::*;\n";
    fs::write(dir.join("src/lib.rs"), format!("{head}{kernels}")).unwrap();
    let built = KernelCrate::new(&dir)
        .archs(["sm_80"])
        .out_dir(dir.join("out"))
        .cache_dir(scratch.join("../warpsmith"))
        .quiet()
        .build();
    built.map(|_| ()).expect_err("the build must fail").to_string()
}

/// Errors of the compiler that a hint belongs to, each with its hint.
fn hinted(text: &str) -> String {
    let (mut told, mut error) = (String::new(), "");
    for line in text.lines() {
        if line.starts_with("error") {
            error = line;
        } else if line.trim_start().starts_with("= hint: ") {
            told.push_str(&format!("{error}\n{line}\n"));
        }
    }
    told
}

#[track_caller]
fn says(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/messages/{name}.txt"));
    if std::env::var("WARPSMITH_MESSAGES").is_ok_and(|v| v == "write") {
        fs::write(&path, format!("{}\n", text.trim_end())).unwrap();
    }
    let stands = fs::read_to_string(&path).unwrap_or_default();
    assert!(stands.trim_end() == text.trim_end(), "{} is\n{stands}\nthe message is\n{text}", path.display());
}

#[test]
fn first_mistakes_are_told_what_to_write() {
    // The texts are those of the pinned rustc.
    if common::other_generator() {
        return;
    }
    // Names are looked up before types, so each takes a build of its own.
    let names = "#[kernel(block = 32)]
        pub unsafe fn names(y: Out<f32>) {
            let v = vec![1.0f32; 4];
            println!(\"{}\", v[0]);
            let w: Vec<f32> = Default::default();
            let d = std::time::Duration::ZERO;
            __syncthreads();
            y.set(threadIdx.x as usize, expf(1.0));
        }";
    says("names", &hinted(&error(names)));
    let types = "#[kernel(block = 32)]
        pub unsafe fn types(x: In<f32>, y: InOut<f32>, z: Out<f32>) {
            let i = thread::global_x();
            z[i] = x[i] * y[i];
            let a = x.at(i).sqrt();
            z.set(i, a.mul_add(2.0, 1.0));
        }";
    says("types", &hinted(&error(types)));
    // Two kernels, each of which is right alone.
    let kernel = |name: &str, cells: u32| {
        format!(
            "#[kernel(block = 32)]
            pub unsafe fn {name}(y: Out<f32>) {{
                let cells = shared_array!(CELLS: [f32; {cells}]);
                cells.set(thread::lane() as usize, 1.0);
                sync::block();
                y.set(0, cells.get(0));
            }}\n"
        )
    };
    says("shared_name_twice", &error(&(kernel("first", 32) + &kernel("second", 64))));
}
