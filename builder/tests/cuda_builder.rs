//! Real builds of a kernels crate with rust-cuda, where its toolchain is found. `builder/cuda-builder/setup` makes it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::Fixture;
use warpsmith_builder::{Backend, BuildError, KernelCrate, Output};

/// With this generator, whatever the environment says.
fn kernel_crate(fixture: &Fixture) -> KernelCrate {
    fixture.kernel_crate().backend(Backend::CudaBuilder)
}

/// What comes out of it; `None`, told, where there is no toolchain.
fn build(kernels: &KernelCrate) -> Option<Result<Output, BuildError>> {
    if std::env::var("WARPSMITH_BACKEND").is_ok_and(|b| b == "stock") {
        println!("SKIPPED: WARPSMITH_BACKEND=stock");
        return None;
    }
    match kernels.build() {
        Err(BuildError::CudaBuilderUnavailable { missing }) => {
            println!("SKIPPED, nothing was tested: rust-cuda's toolchain is not found");
            missing.iter().for_each(|m| println!("{m}"));
            assert!(!missing.is_empty() && missing.iter().all(|m| !m.what.is_empty() && !m.fix.is_empty()));
            None
        }
        other => Some(other),
    }
}

#[test]
fn a_crate_comes_out_as_from_the_stock_generator() {
    let fixture = Fixture::basic();
    let Some(output) = build(&kernel_crate(&fixture).features(["extra"])) else { return };
    let output = output.unwrap();
    assert_eq!(output.manifest.backend, "cuda_builder");
    let names: Vec<_> = output.manifest.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["conv3", "dynamic", "extra", "shared_two"]);
    // A barrier between two branches stays one.
    let conv3 = output.manifest.kernel("conv3").unwrap();
    assert_eq!(conv3.collectives, BTreeMap::from([("barrier".to_owned(), 1)]));
    assert_eq!((conv3.block, conv3.min_blocks, conv3.local_bytes), ([128, 1, 1], 4, 0));
    let shared = output.manifest.kernel("shared_two").unwrap();
    assert_eq!(shared.args.iter().map(|a| a.offset).collect::<Vec<_>>(), [0, 8, 32]);
    assert_eq!((shared.static_shared, shared.dynamic_shared_used), (2160, false));
    assert_eq!(output.warnings, Vec::<String>::new());
    let text = std::fs::read_to_string(&output.images[0].path).unwrap();
    let target = format!(".target sm_{}\n", output.images[0].sm);
    assert!(text.contains(&target) && text.contains(")\n.maxntid 128, 1, 1\n.minnctapersm 4\n{"), "{text}");
}

#[test]
fn local_memory_is_told_with_its_size() {
    let fixture = Fixture::basic();
    fixture.edit(
        "*y = a;",
        "let mut list = [a; 16]; let i = _thread_idx_x() as usize % 16; list[i] += 7; list[(i * 5) % 16] ^= 9; *y = list[(i * 3) % 16];",
    );
    let Some(output) = build(&kernel_crate(&fixture)) else { return };
    let output = output.unwrap();
    assert_eq!(output.manifest.kernel("dynamic").unwrap().local_bytes, 64);
    assert_eq!(output.warnings.len(), 1, "{:?}", output.warnings);
    assert!(output.warnings[0].contains("kernel `dynamic` keeps 64 bytes per thread in local memory"));
    let Some(allowed) = build(&kernel_crate(&fixture).allow_local(["dynamic"])) else { return };
    assert_eq!(allowed.unwrap().warnings, Vec::<String>::new());
}

#[test]
fn counts_of_bits_that_it_miscompiles_are_refused_with_their_lines() {
    let fixture = Fixture::basic();
    fixture.edit("*y = a;", "*y = (a as u64).trailing_zeros() + a.count_ones();");
    fixture.append("pub fn half(n: usize) -> usize { n.next_power_of_two() / 2 }\n");
    let Some(built) = build(&kernel_crate(&fixture)) else { return };
    let error = built.expect_err("it would be compiled wrong");
    let source = std::fs::read_to_string(fixture.source()).unwrap();
    let line = |text: &str| source.lines().position(|l| l.contains(text)).unwrap() + 1;
    let message = error.to_string();
    for (text, function) in [("trailing_zeros", "trailing_zeros` of `u64"), ("half(", "next_power_of_two` of `usize")] {
        let wanted = format!("src/lib.rs:{}: `{function}` counts bits", line(text));
        assert!(message.contains(&wanted), "no {wanted:?} in\n{message}");
    }
    assert_eq!(message.matches("counts bits").count(), 2, "the count in u32 is right:\n{message}");
    assert!(!fixture.dir.path().join("out dir").exists(), "nothing is written");

    // Mended, it is compiled; and the lint reads what belongs to the text of now.
    fixture.edit("(a as u64).trailing_zeros()", "a.trailing_zeros()");
    fixture.edit("n.next_power_of_two() / 2", "(n as u32).next_power_of_two() as usize / 2");
    let Some(built) = build(&kernel_crate(&fixture)) else { return };
    built.unwrap();
}

#[test]
fn what_the_compiler_says_is_shown() {
    let fixture = Fixture::basic();
    fixture.edit("let t = _thread_idx_x() as usize;", "let t = _thread_idx_x() as usize; let unused_thing = 1;");
    let Some(output) = build(&kernel_crate(&fixture)) else { return };
    let warnings = output.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("warning: unused variable: `unused_thing`\n"), "{warnings:?}");

    fixture.edit("let unused_thing = 1;", "let t: usize = \"no number\";");
    let Some(built) = build(&kernel_crate(&fixture)) else { return };
    let error = built.unwrap_err();
    let BuildError::Compile { rendered, .. } = &error else { panic!("{error:?}") };
    for part in ["error[E0308]: mismatched types\n", "src/lib.rs:", "let t: usize = \"no number\";\n"] {
        assert!(rendered.contains(part), "no {part:?} in:\n{rendered}");
    }
}

#[test]
fn indices_and_types_of_cuda_std_may_be_used() {
    let fixture = Fixture::basic();
    // It brings a panic handler.
    let helper = fixture.path.join("helper/src/lib.rs");
    let text = std::fs::read_to_string(&helper).unwrap();
    let (before, rest) = text.split_once("#[panic_handler]").unwrap();
    std::fs::write(&helper, format!("{before}{}", rest.split_once("}\n}\n").unwrap().1)).unwrap();
    let manifest = fixture.path.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let with = format!(
        "cuda_std = {{ git = \"https://github.com/Rust-GPU/rust-cuda\", rev = \"{}\" }}\n",
        warpsmith_builder::CUDA_BUILDER_REVISION
    );
    std::fs::write(&manifest, text.replace("[dependencies]\n", &format!("[dependencies]\n{with}"))).unwrap();
    fixture.edit(
        "*y = a;",
        "let v = cuda_std::glam::Vec2::new(a as f32, 2.0); *y.add(cuda_std::thread::index_1d() as usize) = v.dot(v) as u32;",
    );
    let Some(first) = build(&kernel_crate(&Fixture::basic())) else { return };
    first.unwrap();
    // It takes any glam from 0.22 on, and its imports break with 0.34: a lock file holds it.
    for args in [&["generate-lockfile"][..], &["update", "glam", "--precise", "0.30.10"]] {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        let output = cargo.args(args).current_dir(&fixture.path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = kernel_crate(&fixture).build().unwrap();
    let text = std::fs::read_to_string(&output.images[0].path).unwrap();
    let dynamic = text.split("entry dynamic(").nth(1).unwrap().split("\n}").next().unwrap();
    for register in ["%ctaid.x", "%ntid.x", "%tid.x"] {
        assert!(dynamic.contains(register), "{dynamic}");
    }
}
