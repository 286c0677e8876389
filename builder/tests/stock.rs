//! Real builds of a kernels crate: with the stock generator, or with the one that `WARPSMITH_BACKEND` names. What only the
//! stock generator does is not asked of the other; `cuda_builder.rs` says what that one does.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::Fixture;
use warpsmith_builder::{BuildError, KernelCrate, Manifest};

#[test]
fn three_architectures_in_one_build() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let output = fixture.kernel_crate().archs(["sm_90", "sm_75", "sm_80"]).build().unwrap();
    let found: Vec<_> = output.images.iter().map(|i| (i.sm, i.isa)).collect();
    assert_eq!(found, [(75, (7, 4)), (80, (7, 4)), (90, (7, 8))]);
    for image in &output.images {
        let text = std::fs::read_to_string(&image.path).unwrap();
        assert!(text.contains(&format!(".target sm_{}\n", image.sm)), "{text}");
        assert!(text.contains(&format!(".version {}.{}\n", image.isa.0, image.isa.1)), "{text}");
        // The crate's own profile has no optimisation, overflow checks and unwinding.
        assert!(!text.contains(".extern .func"), "{text}");
        let conv3 = text.split("entry conv3(").nth(1).unwrap();
        assert!(conv3.contains(")\n.maxntid 128, 1, 1\n.minnctapersm 4\n{"), "{conv3}");
    }
    assert_eq!(output.warnings, Vec::<String>::new());
}

#[test]
fn the_manifest_says_what_the_ptx_has() {
    let fixture = Fixture::basic();
    let output = fixture.build().unwrap();
    let manifest = Manifest::read(&output.manifest_path).unwrap();
    assert_eq!(manifest, output.manifest);
    assert_eq!((manifest.library.as_str(), manifest.backend.as_str()), ("basic-kernels", common::generator().as_str()));
    let names: Vec<_> = manifest.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["conv3", "dynamic", "shared_two"]);

    let conv3 = manifest.kernel("conv3").unwrap();
    assert_eq!((conv3.family.as_str(), conv3.variant.as_str()), ("conv", "v3"));
    assert_eq!((conv3.block, conv3.min_blocks, conv3.static_shared), ([128, 1, 1], 4, 0));
    assert_eq!(
        conv3.args.iter().map(|a| (a.name.as_str(), a.offset)).collect::<Vec<_>>(),
        [("x", 0), ("y", 8), ("n", 16)]
    );

    let shared = manifest.kernel("shared_two").unwrap();
    assert_eq!(shared.args.iter().map(|a| a.offset).collect::<Vec<_>>(), [0, 8, 32]);
    assert_eq!((shared.static_shared, shared.dynamic_shared_used), (2160, false));
    let dynamic = manifest.kernel("dynamic").unwrap();
    assert_eq!((dynamic.static_shared, dynamic.dynamic_shared_used), (0, true));

    let rust = std::fs::read_to_string(&output.rust_path).unwrap();
    assert!(output.rust_path.ends_with("basic_kernels.rs"));
    assert!(rust.starts_with("(\"basic-kernels\", include_str!(\""), "{rust}");
    assert!(rust.contains("kernels.pack"), "{rust}");
}

#[test]
fn a_barrier_between_two_branches_stays_one() {
    let fixture = Fixture::basic();
    let output = fixture.kernel_crate().archs(["sm_75", "sm_90"]).build().unwrap();
    for image in &output.images {
        let text = std::fs::read_to_string(&image.path).unwrap();
        assert_eq!(text.matches("bar.sync").count(), 1, "{text}");
    }
    assert_eq!(output.manifest.kernel("conv3").unwrap().collectives, BTreeMap::from([("barrier".to_owned(), 1)]));
}

#[test]
fn a_second_build_compiles_nothing_and_an_edit_reaches_the_ptx() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let archs = ["sm_75", "sm_80", "sm_90"];
    let first = fixture.kernel_crate().archs(archs).build().unwrap();
    let written = |output: &warpsmith_builder::Output| -> Vec<_> {
        let mut files: Vec<_> = output.images.iter().map(|i| i.path.clone()).collect();
        files.extend([output.manifest_path.clone(), output.rust_path.clone()]);
        files.iter().map(|f| f.metadata().unwrap().modified().unwrap()).collect()
    };
    let times = written(&first);
    let second = fixture.kernel_crate().archs(archs).build().unwrap();
    assert!(second.images.iter().all(|i| i.fresh), "{:?}", second.images);
    assert_eq!(written(&second), times, "an unchanged file was written");

    // Another architecture in between must not disturb the others.
    fixture.kernel_crate().archs(["sm_86"]).out_dir(fixture.dir.path().join("elsewhere")).build().unwrap();
    assert!(fixture.kernel_crate().archs(archs).build().unwrap().images.iter().all(|i| i.fresh));

    let line_of = |output: &warpsmith_builder::Output| std::fs::read_to_string(&output.images[1].path).unwrap();
    let before = line_of(&second);
    fixture.edit("x.add(t ^ 1)", "x.add(t ^ 5)");
    let start = std::time::Instant::now();
    let third = fixture.kernel_crate().archs(archs).build().unwrap();
    println!("edit to PTX for {archs:?}: {:.2} s", start.elapsed().as_secs_f64());
    assert!(third.images.iter().all(|i| !i.fresh));
    let after = line_of(&third);
    assert_ne!(before, after);
    assert_eq!(third.manifest, second.manifest);
    assert_eq!(third.rust_path.metadata().unwrap().modified().unwrap(), times[4], "the expression did not change");
}

#[test]
fn kernel_crates_of_one_workspace_do_not_undo_each_other() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let edit = |file: &str, from: &str, to: &str| {
        let path = fixture.path.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from:?} is not in {file}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    };
    common::copy(&fixture.path.join("src"), &fixture.path.join("other/src"));
    std::fs::write(
        fixture.path.join("other/Cargo.toml"),
        "[package]\nname = \"other-kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [features]\nextra = []\nnvvm = []\n[dependencies]\nhelper = { path = \"../helper\" }\n",
    )
    .unwrap();
    edit("Cargo.toml", "[workspace]\n", "[workspace]\nmembers = [\"other\"]\n");
    // As proc-macro2 does.
    edit(
        "helper/build.rs",
        "fn main() {\n",
        "fn main() {\n    println!(\"cargo:rerun-if-env-changed=RUSTC_BOOTSTRAP\");\n",
    );
    let other = || {
        let out = fixture.dir.path().join("out of the other");
        KernelCrate::new(fixture.path.join("other")).archs(["sm_80"]).out_dir(out).cache_dir(common::cache()).build()
    };
    for fresh in [false, true] {
        assert_eq!(fixture.build().unwrap().images[0].fresh, fresh);
        assert_eq!(other().unwrap().images[0].fresh, fresh);
    }
}

/// The files below a folder whose names end so.
fn files(dir: &std::path::Path, ends: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry, ends)),
            false if entry.to_string_lossy().ends_with(ends) => found.push(entry),
            false => {}
        }
    }
    found
}

#[test]
fn a_damaged_cache_heals() {
    let fixture = Fixture::basic();
    // Its own: others use the shared one at the same time.
    let cache = fixture.dir.path().join("cache");
    let build = || fixture.kernel_crate().cache_dir(&cache).build().unwrap();
    let text = |output: &warpsmith_builder::Output| std::fs::read_to_string(&output.images[0].path).unwrap();
    let cut = |path: &std::path::Path| {
        let length = path.metadata().unwrap().len();
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
    };
    let whole = text(&build());
    // What the assembly says, with nothing else changed.
    let ptx = files(&cache, ".ptx");
    assert!(!ptx.is_empty());
    cut(&ptx[0]);
    assert_eq!(text(&build()), whole);
    // rust-cuda's generator keeps nothing else of ours.
    if common::other_generator() {
        return;
    }
    let libraries: Vec<_> =
        files(&cache.join("kernels"), ".rlib").into_iter().filter(|p| p.to_string_lossy().contains("nvptx")).collect();
    assert!(!libraries.is_empty());
    // A library that the next compilation reads.
    for library in files(&cache.join("kernels"), ".rlib") {
        cut(&library);
    }
    fixture.append("// changed\n");
    assert_eq!(text(&build()), whole);
    // `core`: cut, and then emptied, as a full disk leaves files.
    for damage in [true, false] {
        let core = files(&cache, "libcore.rlib").remove(0);
        match damage {
            true => cut(&core),
            false => std::fs::write(&core, "").unwrap(),
        }
        fixture.append("// changed again\n");
        assert_eq!(text(&build()), whole);
    }
}

/// A kernel in a module of its own, which uses a static of another module and a function that is not inlined.
const FAR: &str = r#"
core::arch::global_asm!("// @kernel {{\"name\":\"far\",\"block\":[32,1,1],\"args\":[\
     {{\"name\":\"y\",\"type\":\"InOut<u32>\",\"kind\":\"inout\",\"element\":\"u32\",\"size\":8,\"align\":8}}]}}");
entry! {
    fn far(y: *mut u32) {
        let at = *y as usize % 64;
        *y = crate::mixed(*(&raw const crate::TABLE.0).cast::<u32>().add(at));
    }
}
"#;
const USED_BY_FAR: &str = "
mod far;
pub struct Table([u32; 64]);
pub static TABLE: Table = { let mut t = [7; 64]; t[5] = 9; Table(t) };
#[inline(never)]
pub fn mixed(x: u32) -> u32 { x.wrapping_mul(2_654_435_761).rotate_left(x & 7) }
";

#[test]
fn modules_are_compiled_apart_and_joined() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let far = fixture.path.join("src/far.rs");
    std::fs::write(&far, FAR).unwrap();
    fixture.append(USED_BY_FAR);
    let build = || {
        let output = fixture.build().unwrap();
        let text = std::fs::read_to_string(&output.images[0].path).unwrap();
        (output, text)
    };
    let (output, first) = build();
    assert!(output.manifest.kernel("far").is_some() && output.manifest.kernel("conv3").is_some());
    assert!(!first.contains(".extern .func") && !first.contains(".extern .global"), "{first}");
    assert_eq!(first.lines().filter(|l| l.contains(".global .align")).count(), 1, "one table:\n{first}");
    let assembled =
        warpsmith_builder::ptxas::find().map(|p| p.assemble(&output.images[0].path, "sm_80".parse().unwrap()));
    assert!(assembled.is_none_or(|answer| answer.inspect_err(|e| println!("{e}")).is_ok()));

    // An edit of one module leaves the kernels of the others as they are, and what was compiled before is not taken for it.
    let entry = |text: &str, name: &str| {
        let from = text.find(&format!(".entry {name}(")).unwrap();
        let body = &text[from..];
        body[..body.find("\n}").unwrap()].to_owned()
    };
    std::fs::write(&far, FAR.replace("% 64", "% 32")).unwrap();
    let (output, second) = build();
    assert!(!output.images[0].fresh);
    assert_ne!(entry(&first, "far"), entry(&second, "far"));
    assert_eq!(entry(&first, "conv3"), entry(&second, "conv3"));
    std::fs::write(&far, FAR).unwrap();
    assert_eq!(build().1, first);
}

#[test]
fn a_static_of_a_dependency_is_compiled_with_the_kernels() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let helper = fixture.path.join("helper/src/lib.rs");
    let text = std::fs::read_to_string(&helper).unwrap();
    let table =
        "pub struct Table(pub [u32; 64]);\npub static TABLE: Table = { let mut t = [7; 64]; t[5] = 9; Table(t) };\n";
    std::fs::write(&helper, text + table).unwrap();
    fixture.edit(
        "if t < n as usize {\n            *y",
        "if t < *(&raw const helper::TABLE.0).cast::<u32>().add(n as usize % 64) as usize {\n            *y",
    );
    let build = || {
        let output = fixture.build().unwrap();
        (output.images[0].fresh, std::fs::read_to_string(&output.images[0].path).unwrap())
    };
    let (_, first) = build();
    assert!(!first.contains(".extern .global"), "{first}");
    assert_eq!(first.lines().filter(|l| l.contains(".global .align")).count(), 1, "one table:\n{first}");
    assert_eq!(build(), (true, first));
}

#[test]
fn a_compile_error_is_shown_as_rustc_shows_it() {
    let fixture = Fixture::basic();
    fixture.edit("let t = _thread_idx_x() as usize;", "let t: usize = \"no number\";");
    let error = fixture.build().unwrap_err();
    let BuildError::Compile { package, arch, rendered } = &error else { panic!("{error:?}") };
    assert_eq!((package.as_str(), arch.as_str()), ("basic-kernels", "sm_80"));
    for part in [
        // rust-cuda's compiler is started elsewhere and gives the whole path.
        if common::other_generator() {
            "error[E0308]: mismatched types\n  --> "
        } else {
            "error[E0308]: mismatched types\n  --> src/lib.rs:"
        },
        "src/lib.rs:",
        "let t: usize = \"no number\";\n",
        "expected `usize`, found `&str`",
        "For more information about this error, try `rustc --explain E0308`.",
    ] {
        assert!(rendered.contains(part), "no {part:?} in:\n{rendered}");
    }
    assert_eq!(error.to_string(), *rendered);
    assert!(!fixture.dir.path().join("out dir").exists(), "nothing is written on failure");
}

#[test]
fn an_error_in_a_dependency_and_in_cargo_toml_is_shown() {
    let fixture = Fixture::basic();
    std::fs::write(fixture.path.join("helper/src/lib.rs"), "#![no_std]\nfn f() { missing() }\n").unwrap();
    assert!(fixture.error().contains("cannot find function `missing`"), "{}", fixture.error());
    std::fs::write(fixture.path.join("Cargo.toml"), "[package\n").unwrap();
    assert!(fixture.error().contains("Cargo.toml"), "{}", fixture.error());
}

#[test]
fn warnings_of_the_kernels_are_kept() {
    let fixture = Fixture::basic();
    fixture.edit("let t = _thread_idx_x() as usize;", "let t = _thread_idx_x() as usize; let unused_thing = 1;");
    let output = fixture.kernel_crate().archs(["sm_75", "sm_80"]).build().unwrap();
    assert_eq!(output.warnings.len(), 1, "{:?}", output.warnings);
    assert!(output.warnings[0].starts_with("warning: unused variable: `unused_thing`\n"), "{:?}", output.warnings);
    // They are told again when nothing has to be compiled.
    assert_eq!(fixture.kernel_crate().archs(["sm_75", "sm_80"]).build().unwrap().warnings, output.warnings);
}

#[test]
fn metadata_that_does_not_fit_is_refused() {
    let fixture = Fixture::basic();
    fixture.edit("\\\"size\\\":24,\\\"align\\\":8", "\\\"size\\\":16,\\\"align\\\":8");
    fixture.edit("\\\"name\\\":\\\"dynamic\\\"", "\\\"name\\\":\\\"dinamic\\\"");
    let text = fixture.error();
    for part in [
        "the PTX of `basic-kernels` for sm_80 is refused",
        "kernel `shared_two`, argument `shape` (Shape): size 16 by its metadata, but 24 in the PTX",
        "kernel `shared_two`, argument `y` (Out<u32>): offset 24 by its metadata, but 32",
        "entry `dynamic` has no metadata",
        "metadata for `dinamic`, but no entry",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn broken_json_is_refused() {
    let fixture = Fixture::basic();
    fixture.edit("\\\"block\\\":[64,1,1],", "\\\"block\\\":[64,1,");
    assert!(fixture.error().contains("cannot be read"), "{}", fixture.error());
}

#[test]
fn a_function_that_is_defined_nowhere_is_refused() {
    let fixture = Fixture::basic();
    fixture.append("unsafe extern \"C\" { fn not_there(x: u32) -> u32; }\n");
    fixture.edit("*y = a;", "*y = not_there(a);");
    common::says("defined_nowhere", &fixture.error());
}

#[test]
fn local_memory_is_refused_unless_allowed() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    fixture.edit("*y = a;", "let mut list = [a; 16]; let i = _thread_idx_x() as usize % 16; list[i] += 7; list[(i * 5) % 16] ^= 9; *y = list[(i * 3) % 16];");
    common::says("local_memory", &fixture.error());
    let output = fixture.kernel_crate().allow_local(["dynamic"]).build().unwrap();
    assert_eq!(output.manifest.kernel("dynamic").unwrap().local_bytes, 64);
}

#[test]
fn a_static_in_global_memory_is_warned_of() {
    let fixture = Fixture::basic();
    fixture.append("#[unsafe(no_mangle)] static mut SMEM_SUM: [u32; 32] = [0; 32];\n");
    fixture.edit("*y = a;", "SMEM_SUM[(a % 32) as usize] += 1; *y = SMEM_SUM[3];");
    let output = fixture.build().unwrap();
    assert!(
        output.warnings.iter().any(|w| w.contains("`SMEM_SUM`, which sounds like shared memory")),
        "{:?}",
        output.warnings
    );
}

#[test]
fn features_reach_the_kernels_and_unknown_ones_are_refused() {
    let fixture = Fixture::basic();
    let output = fixture.kernel_crate().features(["extra"]).build().unwrap();
    assert!(output.manifest.kernel("extra").is_some());
    assert!(fixture.build().unwrap().manifest.kernel("extra").is_none());
    let text = fixture.kernel_crate().features(["extar"]).build().unwrap_err().to_string();
    assert!(text.contains("no feature `extar`"), "{text}");
}

#[test]
fn lines_are_there_if_asked_for() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let with = |yes| {
        let output = fixture.kernel_crate().line_info(yes).build().unwrap();
        std::fs::read_to_string(&output.images[0].path).unwrap()
    };
    let text = with(true);
    assert!(text.contains("\t.loc\t1 ") && text.contains("src/lib.rs\""), "{text}");
    assert!(!text.contains(".debug_info"), "ptxas refuses full debug information");
    assert!(!with(false).contains("\t.loc\t"));
}

#[test]
fn builds_at_the_same_time_do_not_disturb_each_other() {
    let fixtures: Vec<Fixture> = (0..3).map(|_| Fixture::basic()).collect();
    for (i, fixture) in fixtures.iter().enumerate() {
        fixture.edit("x.add(t ^ 1)", &format!("x.add(t ^ {})", 1000 + i));
    }
    std::thread::scope(|scope| {
        let handles: Vec<_> = fixtures
            .iter()
            .map(|f| scope.spawn(|| f.kernel_crate().archs(["sm_80", "sm_90"]).build().unwrap()))
            .collect();
        for (i, handle) in handles.into_iter().enumerate() {
            for image in handle.join().unwrap().images {
                let text = std::fs::read_to_string(&image.path).unwrap();
                // As an index, or as libNVVM makes of it, in bytes.
                let is_own = [1000 + i, 4 * (1000 + i)].iter().any(|n| text.contains(&format!(", {n};")));
                assert!(is_own, "the text of another crate:\n{text}");
            }
        }
    });
}

#[test]
fn a_higher_isa_can_be_asked_for() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    let output = fixture.kernel_crate().isa("sm_80", (8, 0)).build().unwrap();
    assert_eq!(output.images[0].isa, (8, 0));
    let text = fixture.kernel_crate().isa("sm_80", (7, 0)).build().unwrap_err().to_string();
    assert!(text.contains("sm_80 is compiled for PTX ISA 7.4 or newer"), "{text}");
}

#[test]
fn wrong_crates_are_refused_by_name() {
    let fixture = Fixture::basic();
    let error = |name: &str| {
        KernelCrate::new(fixture.path.join(name))
            .out_dir(fixture.dir.path().join("o"))
            .cache_dir(common::cache())
            .build()
            .unwrap_err()
            .to_string()
    };
    assert!(error("nowhere").contains("nowhere: No such file"), "{}", error("nowhere"));
    assert!(error("src").contains("there is no Cargo.toml"), "{}", error("src"));
    assert!(error("attr").contains("procedural macro"), "{}", error("attr"));
}

#[test]
fn cuda_builder_lists_what_it_lacks() {
    let fixture = Fixture::basic();
    match fixture.kernel_crate().backend(warpsmith_builder::Backend::CudaBuilder).build() {
        Ok(output) => assert_eq!(output.manifest.backend, "cuda_builder"),
        Err(BuildError::CudaBuilderUnavailable { missing }) => {
            assert!(!missing.is_empty());
            assert!(missing.iter().all(|m| !m.what.is_empty() && !m.fix.is_empty()), "{missing:?}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn ptxas_agrees_where_it_is_found() {
    let Some(ptxas) = warpsmith_builder::ptxas::find() else {
        println!("ptxas was not found; nothing compared");
        return;
    };
    let fixture = Fixture::basic();
    let output = fixture.kernel_crate().archs(["sm_80", "sm_90"]).build().unwrap();
    for image in &output.images {
        let arch = image.sm.to_string().parse().unwrap();
        let found = ptxas.assemble(&image.path, arch).unwrap();
        assert_eq!(found.len(), output.manifest.kernels.len());
        for resources in &found {
            let kernel = output.manifest.kernel(&resources.kernel).unwrap();
            assert_eq!(resources.static_shared, kernel.static_shared, "{}", kernel.name);
            assert_eq!((resources.spill_stores, resources.stack), (0, 0));
        }
        let text = std::fs::read_to_string(&image.path).unwrap();
        assert_eq!(ptxas.assemble_text(&text, arch).unwrap(), found);
        let error = ptxas.assemble_text(&text.replace("bar.sync", "bar.sink"), arch).unwrap_err().to_string();
        assert!(error.contains("assembling ") && error.contains(", line "), "{error}");
    }
}
