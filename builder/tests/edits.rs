//! Edits of some kernels, which are compiled alone: the code is that of a compilation of all.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use warpsmith_builder::{BuildError, KernelCrate, Output};

const LIB: &str = r#"#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, f16))]
pub mod one;
pub mod common_code;
pub mod two;
"#;

const SHARED: &str = r#"use warpsmith_device::prelude::*;

#[device]
pub fn twice(x: u32) -> u32 {
    x * 2
}

pub struct Table(pub [u32; 64]);
pub static TABLE: Table = { let mut t = [7; 64]; t[5] = 9; Table(t) };

/// Of both files.
#[inline(never)]
pub fn mixed(x: u32) -> u32 {
    x.wrapping_mul(2_654_435_761).rotate_left(x & 7)
}
"#;

const ONE: &str = r#"use warpsmith_device::prelude::*;

use crate::common_code;

/// Of the first file.
#[kernel(block = 64)]
pub unsafe fn first(x: In<u32>, y: Out<u32>, n: u32) {
    let t = thread::idx_x() as usize;
    if t < n as usize {
        y.set(t, own(x.at(t)) + 3);
    }
}

fn own(x: u32) -> u32 {
    common_code::mixed(x) ^ 11
}

#[device]
pub fn lent(x: u32) -> u32 {
    x + 17
}

/// Beside it.
#[kernel(block = 32)]
pub unsafe fn beside(y: InOut<u32>) {
    let at = y.get(0) as usize % 64;
    let of_table = *(&raw const common_code::TABLE.0).cast::<u32>().add(at);
    y.set(1, common_code::twice(of_table));
}

#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(x: u32) -> u32 {
    x
}
"#;

const TWO: &str = r#"use warpsmith_device::prelude::*;

macro_rules! of {
    ($name:ident, $by:literal) => {
        /// By a macro.
        #[kernel(block = 32)]
        pub unsafe fn $name(y: InOut<u32>) {
            y.set(0, crate::one::lent(y.get(0)) * $by);
        }
    };
}
of!(by_3, 3);
of!(by_5, 5);

/// Of the second file.
#[kernel(block = 32, instances(second_2<2>, second_4<4>))]
pub unsafe fn second<const N: usize>(y: InOut<u32>) {
    y.set(0, crate::common_code::mixed(y.get(N)));
}
"#;

/// A crate at one place, whose procedural macros are compiled once.
struct Crate {
    dir: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Crate {
    /// As above, compiled as a whole.
    fn compiled() -> Crate {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("edits of kernels");
        std::fs::create_dir_all(dir.join("src")).unwrap();
        let device = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("device");
        let manifest = format!(
            "[package]\nname = \"edited-kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n\
             [lints.rust]\nunused_mut = \"deny\"\n\
             [dependencies]\nwarpsmith-device = {{ path = {device:?} }}\n"
        );
        let made = Crate { dir, _alone: alone };
        for (file, text) in [
            ("Cargo.toml", &*manifest),
            ("src/lib.rs", LIB),
            ("src/common_code.rs", SHARED),
            ("src/one.rs", ONE),
            ("src/two.rs", TWO),
        ] {
            made.write(file, text);
        }
        // What a test that failed left, too.
        for name in ["edits", "edits-aside"] {
            let _ = std::fs::remove_dir_all(made.folder().join(name));
        }
        // So that cargo compiles it.
        std::fs::write(made.dir.join("src/lib.rs"), LIB).unwrap();
        made.build().unwrap();
        assert!(made.folder().join("edits/base.json").is_file(), "no edit can be told from this");
        made
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.dir.join(file);
        // So that what stays is not compiled again.
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return;
        }
        std::fs::write(path, text).unwrap();
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let old = std::fs::read_to_string(self.dir.join(file)).unwrap();
        assert!(old.contains(from), "{from:?} is not in {file}");
        self.write(file, &old.replace(from, to));
    }

    fn build(&self) -> Result<Output, BuildError> {
        let out = self.dir.join("out");
        KernelCrate::new(&self.dir).archs(["sm_80"]).out_dir(out).cache_dir(common::cache()).quiet().build()
    }

    /// The target directory of the architecture.
    fn folder(&self) -> PathBuf {
        let here = self.dir.canonicalize().unwrap();
        let folders =
            std::fs::read_dir(common::cache().join("kernels")).into_iter().flatten().map(|entry| entry.unwrap().path());
        let is_of =
            |folder: &PathBuf| std::fs::read_to_string(folder.join("workspace")).is_ok_and(|of| Path::new(&of) == here);
        folders.into_iter().find(is_of).map_or_else(|| here.join("nowhere"), |folder| folder.join("sm_80"))
    }

    /// When all kernels were compiled last, and when some.
    fn times(&self) -> [Option<SystemTime>; 2] {
        ["units.json", "edits/done.json"]
            .map(|name| self.folder().join(name).metadata().and_then(|m| m.modified()).ok())
    }

    /// Builds, says how, and holds the result against that of cargo.
    fn rebuilt(&self) -> (How, Output) {
        let before = self.times();
        let output = self.build().unwrap();
        let after = self.times();
        let how = match (before[0] == after[0], before[1] == after[1]) {
            (true, true) => How::Nothing,
            (true, false) => How::Edited,
            (false, _) => How::Whole,
        };
        assert_eq!(output.images[0].fresh, how == How::Nothing);
        let files = |output: &Output| {
            let read = |path: &Path| std::fs::read_to_string(path).unwrap();
            (read(&output.images[0].path), read(&output.manifest_path), output.warnings.clone())
        };
        let found = files(&output);
        let kept = self.folder().join("edits");
        let aside = self.folder().join("edits-aside");
        std::fs::rename(&kept, &aside).unwrap();
        let whole = files(&self.build().unwrap());
        assert!(found.0 == whole.0, "the text is another than that of the whole:\n{}\n---\n{}", found.0, whole.0);
        assert_eq!((found.1, found.2), (whole.1, whole.2));
        // The next edit is told from the compilation that cargo has made meanwhile, but what was kept of edits stays.
        if let Ok(base) = std::fs::read(kept.join("base.json")) {
            std::fs::write(aside.join("base.json"), base).unwrap();
            std::fs::remove_dir_all(&kept).unwrap();
        }
        std::fs::rename(&aside, &kept).unwrap();
        (how, output)
    }

    #[track_caller]
    fn is_built(&self, how: How) -> Output {
        let (found, output) = self.rebuilt();
        assert_eq!(found, how);
        output
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Nothing,
    Edited,
    Whole,
}

#[test]
fn an_edit_of_kernels_compiles_these_and_has_the_code_of_the_whole() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    let text = |output: &Output| std::fs::read_to_string(&output.images[0].path).unwrap();
    let before = text(&kernels.is_built(How::Nothing));
    kernels.edit("src/one.rs", "+ 3)", "+ 4)");
    let after = text(&kernels.is_built(How::Edited));
    assert_ne!(before, after);
    for (from, to) in [
        // A function that is the kernels' own.
        ("^ 11", "^ 12"),
        // Less of what others have: the text of the other has no other user of it then in this file.
        ("common_code::mixed(x) ^ 12", "x ^ 12"),
        ("common_code::twice(of_table)", "of_table"),
        // A line more, below which is nothing that others use.
        ("    y.set(1, of_table);", "\n    y.set(1, of_table + 1);"),
        // Documentation is part of the metadata, and a block of the launch.
        ("/// Beside it.", "/// Beside the first."),
        ("block = 64", "block = 128"),
    ] {
        kernels.edit("src/one.rs", from, to);
        let output = kernels.is_built(How::Edited);
        assert!(output.manifest.kernel("first").is_some() && output.manifest.kernels.len() == 6, "{from}");
    }
    assert_eq!(kernels.build().unwrap().manifest.kernel("first").unwrap().block, [128, 1, 1]);
}

#[test]
fn what_was_compiled_of_an_edit_is_not_compiled_again() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    let read = |output: Output| std::fs::read_to_string(&output.images[0].path).unwrap();
    let first = read(kernels.build().unwrap());
    kernels.edit("src/one.rs", "+ 3)", "+ 5)");
    let edited = kernels.build().unwrap();
    assert!(!edited.images[0].fresh);
    let edited = read(edited);
    let times = kernels.times();
    let again = kernels.build().unwrap();
    assert!(again.images[0].fresh && read(again) == edited && kernels.times() == times);
    // What is as it was compiled at first is there, and the edit after it.
    kernels.edit("src/one.rs", "+ 5)", "+ 3)");
    assert!(read(kernels.build().unwrap()) == first);
    kernels.edit("src/one.rs", "+ 3)", "+ 5)");
    let again = kernels.build().unwrap();
    assert!(again.images[0].fresh && read(again) == edited && kernels.times() == times);
    // What is for the host alone is nothing to the GPU.
    kernels.edit(
        "src/one.rs",
        "pub fn reference(x: u32) -> u32 {\n    x\n",
        "pub fn reference(x: u32) -> u32 {\n    x + 1\n\n\n",
    );
    assert!(read(kernels.build().unwrap()) == edited && kernels.times() == times);
}

#[test]
fn an_edit_of_more_than_kernels_compiles_the_whole() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    for (file, from, to) in [
        // The other file uses it, in kernels that a macro makes.
        ("src/one.rs", "x + 17", "x + 18"),
        ("src/common_code.rs", "x * 2", "x * 3"),
        ("src/common_code.rs", "t[5] = 9", "t[5] = 10"),
        // Kernels of a macro, and a function that instances are made of.
        ("src/two.rs", "* $by", "+ $by"),
        ("src/two.rs", "of!(by_5, 5)", "of!(by_5, 6)"),
        ("src/two.rs", "y.get(N)", "y.get(N + 1)"),
        // What others use is moved by a line, and so is what is said of its place.
        ("src/one.rs", "    let t = thread::idx_x() as usize;\n", "\n    let t = thread::idx_x() as usize;\n"),
        // Kernels come and go, and have another name.
        ("src/one.rs", "pub unsafe fn beside", "pub unsafe fn next_to_it"),
        ("src/one.rs", "/// Beside it.\n", "#[cfg(any())]\n"),
        ("src/lib.rs", "pub mod two;\n", ""),
        ("src/lib.rs", "pub mod common_code;\n", "pub mod common_code;\npub mod two;\n"),
        // Another crate, or its manifest.
        ("Cargo.toml", "version = \"0.1.0\"", "version = \"0.1.1\""),
    ] {
        kernels.edit(file, from, to);
        assert_eq!(kernels.rebuilt().0, How::Whole, "{file}: {from} → {to}");
    }
}

/// The kernels of a file that another includes are beside what else is there.
#[test]
fn a_file_that_another_includes_is_no_file_of_its_own() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    let holder = "include!(\"one.rs\");\n#[device]\npub fn via(x: u32) -> u32 {\n    own(x)\n}\n";
    kernels.write("src/holder.rs", holder);
    kernels.edit("src/two.rs", "crate::one::lent(y.get(0))", "crate::holder::via(y.get(0))");
    kernels.edit("src/lib.rs", "pub mod one;\n", "pub mod holder;\n");
    let text = |output: Output| std::fs::read_to_string(&output.images[0].path).unwrap();
    let before = text(kernels.build().unwrap());
    kernels.edit("src/one.rs", "^ 11", "^ 12");
    let after = text(kernels.build().unwrap());
    let by_3 = |text: &str| text[text.find(".entry by_3(").unwrap()..].split("\n}").next().unwrap().to_owned();
    assert_ne!(by_3(&before), by_3(&after));
}

#[test]
fn a_mistake_in_an_edit_is_shown_as_rustc_shows_it_and_can_be_mended() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    kernels.edit("src/one.rs", "let t = thread::idx_x() as usize;", "let t: usize = \"no number\";");
    let times = kernels.times();
    let BuildError::Compile { rendered, package, .. } = kernels.build().unwrap_err() else { panic!("another error") };
    assert_eq!((package.as_str(), kernels.times()[0]), ("edited-kernels", times[0]));
    for part in
        ["error[E0308]: mismatched types\n --> src/one.rs:8:", "let t: usize = \"no number\";", "expected `usize`"]
    {
        assert!(rendered.contains(part), "no {part:?} in:\n{rendered}");
    }
    // A lint that is an error is cargo's to tell, and so is a word of no language.
    for (mistake, said) in
        [("let mut t = thread::idx_x() as usize;", "does not need to be mutable"), ("}}", "unexpected closing")]
    {
        kernels.write("src/one.rs", &ONE.replace("let t = thread::idx_x() as usize;", mistake));
        let error = kernels.build().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    kernels.write("src/one.rs", &ONE.replace("+ 3)", "+ 6)"));
    kernels.build().unwrap();
    kernels.is_built(How::Nothing);
}

#[test]
fn warnings_of_what_was_not_edited_stay() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    kernels.edit("src/common_code.rs", "    x.wrapping_mul", "    let unused = 1;\n    x.wrapping_mul");
    let warnings = kernels.is_built(How::Whole).warnings;
    assert!(warnings.len() == 1, "{}", warnings.concat());
    let edit = |from: &str, to: &str| kernels.edit("src/one.rs", from, to);
    edit("let t = thread", "let too = 2;\n    let t = thread");
    // Cargo tells them by file; a kernel moved what others use.
    assert_eq!(kernels.is_built(How::Whole).warnings.len(), 2);
    edit("let too = 2;", "let tool = 2;");
    let warnings = kernels.build().unwrap().warnings;
    assert!(warnings.len() == 2 && warnings.iter().any(|w| w.contains("`tool`")), "{warnings:?}");
    edit("let tool = 2;", "let _tool = 2;");
    let warnings = kernels.build().unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("`unused`"), "{warnings:?}");
    assert_eq!(kernels.build().unwrap().warnings, warnings);
}

#[test]
fn what_is_kept_of_edits_may_be_damaged() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    let read = |output: Output| std::fs::read_to_string(&output.images[0].path).unwrap();
    for (nth, name) in ["units.ptx", "units.json", "edits/base.json"].into_iter().enumerate() {
        let path = kernels.folder().join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        kernels.edit("src/one.rs", &format!("+ {})", nth + 3), &format!("+ {})", nth + 4));
        assert_eq!(kernels.rebuilt().0, How::Whole, "{name}");
    }
    kernels.edit("src/one.rs", "+ 6)", "+ 7)");
    kernels.is_built(How::Edited);
    // The texts of an edit, which is asked for again.
    for (nth, name) in ["edits/units.ptx", "edits/units.json", "edits/done.json"].into_iter().enumerate() {
        kernels.edit("src/one.rs", &format!("+ {})", nth + 7), &format!("+ {})", nth + 8));
        let edited = read(kernels.build().unwrap());
        let path = kernels.folder().join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(read(kernels.build().unwrap()) == edited, "{name}");
    }
}

/// The only kernel of a file goes, so that nothing of the file is compiled.
#[test]
fn a_kernel_that_an_edit_leaves_out_is_gone() {
    if common::other_generator() {
        return;
    }
    let kernels = Crate::compiled();
    let alone = "use warpsmith_device::prelude::*;\n/// Alone.\n#[kernel(block = 32)]\npub unsafe fn alone(y: InOut<u32>) {\n    y.set(0, 1);\n}\n";
    kernels.write("src/alone.rs", alone);
    kernels.edit("src/lib.rs", "pub mod two;\n", "pub mod alone;\npub mod two;\n");
    assert!(kernels.is_built(How::Whole).manifest.kernel("alone").is_some());
    kernels.edit("src/alone.rs", "set(0, 1)", "set(0, 2)");
    assert!(kernels.is_built(How::Edited).manifest.kernel("alone").is_some());
    kernels.edit("src/alone.rs", "#[kernel", "#[cfg(any())]\n#[kernel");
    assert!(kernels.is_built(How::Whole).manifest.kernel("alone").is_none());
}
