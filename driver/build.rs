//! Names the shared library `libcuda.so.1` and lays the links by which a loader finds it:
//! `<target>/<profile>/software-cuda/libcuda.so{,.1}` point at `../deps/libwarpsmith_driver.so`, where every build leaves the
//! library; only `cargo build` puts it into `<target>/<profile>` as well. They are not in that folder itself: cargo puts it on
//! `LD_LIBRARY_PATH`, and every test would then find the software driver where it looks for the real one.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Err(message) = run() {
        println!("cargo:warning={message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    if env::var("CARGO_CFG_TARGET_OS").unwrap_or_default() != "linux" {
        return Ok(());
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // OUT_DIR is <target>/<profile>/build/<package>-<hash>/out.
    if let Some(profile) = out.ancestors().nth(3) {
        let links = profile.join("software-cuda");
        fs::create_dir_all(&links).map_err(|e| format!("cannot create {}: {e}", links.display()))?;
        for name in ["libcuda.so.1", "libcuda.so"] {
            let link = links.join(name);
            place(Path::new("../deps/libwarpsmith_driver.so"), &link)
                .map_err(|e| format!("cannot link {}: {e}", link.display()))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn place(to: &Path, link: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|old| old == to) {
        return Ok(());
    }
    match fs::remove_file(link) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    match std::os::unix::fs::symlink(to, link) {
        // Another build script of this crate (a second profile) was quicker.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(not(unix))]
fn place(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}
