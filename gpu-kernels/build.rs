//! Tells the build scripts of dependents where the source of the kernels lies.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:root={}", env!("CARGO_MANIFEST_DIR"));
}
