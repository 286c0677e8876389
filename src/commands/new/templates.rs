//! The files of a new project, as they stand in `templates/`.

use crate::cli::Template;

/// A file's path in the project, and its text.
pub type ProjectFile = (String, &'static str);

/// The toolchain of this repository: kernels are compiled with the release that they were tried with.
const TOOLCHAIN: &str = include_str!("../../../rust-toolchain.toml");
const RUSTFMT: &str = include_str!("../../../rustfmt.toml");

macro_rules! common {
    ($file:literal) => {
        include_str!(concat!("../../../templates/common/", $file))
    };
}

/// The configuration of cargo for a project on a checkout.
pub const CONFIG: &str = common!("cargo-config.toml");

/// What belongs to one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Its name.
    pub kernel: &'static str,
    /// The root of its crate.
    pub lib: &'static str,
    /// The kernel, its contract and its reference.
    pub code: &'static str,
    /// A host program.
    pub main: &'static str,
    /// Its test.
    pub test: &'static str,
    /// Its benchmark.
    pub bench: &'static str,
}

macro_rules! of {
    ($folder:literal, $kernel:literal) => {
        Parts {
            kernel: $kernel,
            lib: include_str!(concat!("../../../templates/", $folder, "/lib.rs")),
            code: include_str!(concat!("../../../templates/", $folder, "/", $kernel, ".rs")),
            main: include_str!(concat!("../../../templates/", $folder, "/main.rs")),
            test: include_str!(concat!("../../../templates/", $folder, "/test.rs")),
            bench: include_str!(concat!("../../../templates/", $folder, "/bench.rs")),
        }
    };
}

/// The kernel of a template.
pub fn parts(template: Template) -> Parts {
    match template {
        Template::Elementwise => of!("elementwise", "saxpy"),
        Template::Reduction => of!("reduction", "sum"),
        Template::Gemv => of!("gemv", "gemv"),
        Template::Matmul => of!("matmul", "matmul"),
    }
}

/// The kernel's name, and the files in the order in which they are read.
pub fn files(template: Template) -> (&'static str, Vec<ProjectFile>) {
    let Parts { kernel, lib, code, main, test, bench } = parts(template);
    let files = vec![
        ("README.md".to_owned(), common!("README.md")),
        ("Cargo.toml".to_owned(), common!("Cargo.toml.in")),
        ("build.rs".to_owned(), common!("build.rs")),
        ("kernels/Cargo.toml".to_owned(), common!("kernels.toml.in")),
        ("kernels/src/lib.rs".to_owned(), lib),
        (format!("kernels/src/{kernel}.rs"), code),
        ("src/main.rs".to_owned(), main),
        (format!("tests/{kernel}.rs"), test),
        (format!("benches/{kernel}.rs"), bench),
        ("rust-toolchain.toml".to_owned(), TOOLCHAIN),
        ("rustfmt.toml".to_owned(), RUSTFMT),
        (".gitignore".to_owned(), common!("gitignore")),
    ];
    (kernel, files)
}
