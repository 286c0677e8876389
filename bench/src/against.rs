//! Another build of the kernels beside the one under test: the other code generator, another compiler, last week's.
//!
//! ```text
//! WARPSMITH_BACKEND=cuda_builder cargo run --release --target-dir target/rust-cuda -- kernels --export target/rust-cuda/image
//! WARPSMITH_BENCH_AGAINST=target/rust-cuda/image cargo bench -- gemv/q1_0
//! ```

use std::path::Path;

use warpsmith_host::KernelImage;

/// Names the folder that `warpsmith kernels --export` wrote.
pub const VARIABLE: &str = "WARPSMITH_BENCH_AGAINST";

/// What the names of its variants end with.
pub const SUFFIX: &str = " (against)";

/// The other build, if one is asked for.
pub fn image() -> Result<Option<KernelImage>, String> {
    match std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        Some(folder) => read(Path::new(&folder)).map(Some).map_err(|e| format!("{VARIABLE}: {e}")),
        None => Ok(None),
    }
}

/// Reads an image. Its text lives as long as the process.
pub fn read(folder: &Path) -> Result<KernelImage, String> {
    let text = |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let manifest = text(&folder.join("manifest.json"))?;
    let parsed: serde_json::Value =
        serde_json::from_str(&manifest).map_err(|e| format!("{}/manifest.json: {e}", folder.display()))?;
    let library = parsed["library"].as_str().ok_or_else(|| format!("{}: no library is named", folder.display()))?;
    let mut code = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for path in entries.filter_map(|e| e.ok().map(|e| e.path())) {
        let sm = path.file_name().and_then(|n| n.to_str()?.strip_prefix("sm_")?.strip_suffix(".ptx")?.parse().ok());
        if let Some(sm) = sm {
            code.push((sm, leaked(text(&path)?)));
        }
    }
    if code.is_empty() {
        return Err(format!("{}: there is no sm_*.ptx", folder.display()));
    }
    code.sort_unstable();
    // SAFETY: the builder made both for the tree that is compared with, from kernels of these names and arguments.
    Ok(unsafe { KernelImage::from_parts((leaked(library.to_owned()), leaked(manifest), code.leak())) })
}

fn leaked(text: String) -> &'static str {
    text.leak()
}
