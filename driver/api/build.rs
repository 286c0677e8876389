//! Gives crates that link `-lcuda` an empty library to find: `OUT_DIR/lib/libcuda.so` is an empty linker script, so
//! `-lcuda` is satisfied by it and the `cu*` references bind to this crate's own functions.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Err(message) = run() {
        println!("cargo:warning={message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    let family = env::var("CARGO_CFG_TARGET_FAMILY").unwrap_or_default();
    if family.split(',').any(|f| f == "unix") {
        let lib = out.join("lib");
        let script = lib.join("libcuda.so");
        fs::create_dir_all(&lib)
            .and_then(|()| fs::write(&script, "/* Empty: warpsmith-driver-api defines the cu* functions. */\n"))
            .map_err(|e| format!("cannot write {}: {e}", script.display()))?;
        println!("cargo:rustc-link-search=native={}", lib.display());
    }
    Ok(())
}
