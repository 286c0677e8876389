//! The software driver as a `libcuda.so.1`, for programs that load one.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, Kind};

const NAME: &str = "libcuda.so.1";

/// The package that the library is made of, where there is no checkout: two lines, and the name that loaders ask for.
const PACKAGE: [(&str, &str); 3] = [
    (
        "Cargo.toml",
        concat!(
            "[workspace]\n\n[package]\nname = \"software-cuda\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n",
            "[lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nwarpsmith-driver-api = \"=",
            env!("CARGO_PKG_VERSION"),
            "\"\n"
        ),
    ),
    ("src/lib.rs", "pub use warpsmith_driver_api as api;\n"),
    ("build.rs", "fn main() {\n    println!(\"cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1\");\n}\n"),
];

/// The folder of the software driver's library; `None` for a program that has the driver built in.
pub fn library_for(program: &OsStr) -> Result<Option<PathBuf>, Failure> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(|dir| dir.join("software-cuda")));
    if let Some(folder) = beside.filter(|f| f.join(NAME).exists()) {
        return Ok(Some(folder));
    }
    if find_program(program).is_some_and(|path| has_driver(&path)) {
        return Ok(None);
    }
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("driver/Cargo.toml").is_file() {
        return Err(Failure::new(
            Kind::NoEngine,
            "the software driver's libcuda.so.1 is not beside this program (in the folder software-cuda): build it with \
             `cargo build --release -p warpsmith-driver`",
        ));
    }
    built().map(Some)
}

/// The library of this version in the user's cache, which is built there if it is missing.
fn built() -> Result<PathBuf, Failure> {
    let failed = |what: String| Failure::new(Kind::NoEngine, format!("the software driver's {NAME}: {what}"));
    let own = cache().ok_or_else(|| failed("neither XDG_CACHE_HOME nor HOME says where it may be kept".to_owned()))?;
    let folder = own.join("software-cuda");
    if folder.join(NAME).is_file() {
        return Ok(folder);
    }
    eprintln!("building the software driver's {NAME}, once, in {}: this takes a minute or more", own.display());
    let write = |(name, text): &(&str, &str)| {
        let path = own.join("package").join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, text)).map_err(|e| failed(format!("{}: {e}", path.display())))
    };
    PACKAGE.iter().try_for_each(write)?;
    let target = own.join("target");
    // From the current folder, whose configuration of cargo may name another registry.
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(own.join("package/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_BUILD_TARGET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|e| failed(format!("cargo cannot be started: {e}")))?;
    if !status.success() {
        return Err(failed(format!("its build in {} failed: {status}", own.display())));
    }
    let place = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        // Another process may do the same: each puts a whole file in place.
        let partial = folder.join(format!("{NAME}.{}", std::process::id()));
        std::fs::copy(target.join("release/libsoftware_cuda.so"), &partial)?;
        std::fs::rename(&partial, folder.join(NAME))
    };
    place().map_err(|e| failed(format!("{}: {e}", folder.display())))?;
    Ok(folder)
}

/// Where what this version needs is kept.
fn cache() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")))?;
    Some(folder.join("warpsmith").join(env!("CARGO_PKG_VERSION")))
}

fn find_program(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return Some(path.to_path_buf());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(path)).find(|p| p.is_file())
}

/// Whether a file holds the marker of the software driver.
fn has_driver(path: &Path) -> bool {
    const MARKER: &[u8] = b"warpsmith_software_driver";
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let (mut buffer, mut kept) = (vec![0u8; 1 << 20], 0);
    loop {
        let Ok(n) = file.read(&mut buffer[kept..]) else { return false };
        if n == 0 {
            return false;
        }
        let end = kept + n;
        if buffer[..end].windows(MARKER.len()).any(|w| w == MARKER) {
            return true;
        }
        // The marker may lie across two pieces.
        let tail = end.min(MARKER.len() - 1);
        buffer.copy_within(end - tail..end, 0);
        kept = tail;
    }
}
