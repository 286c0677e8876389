//! The project in the current folder: what its build would stumble over.

use std::path::{Path, PathBuf};

use super::Finding;

/// Nothing if no crate here uses `cust` from the registry, which is what wants a CUDA library directory; warpsmith's published
/// crates use it without its build script.
pub fn project(dir: &Path) -> Vec<Finding> {
    let uses_cust = |dir: &&Path| {
        let lock = std::fs::read_to_string(dir.join("Cargo.lock")).unwrap_or_default();
        lock.lines().any(|line| line == "name = \"cust_raw\"")
    };
    let Some(root) = dir.ancestors().find(uses_cust) else { return Vec::new() };
    vec![library_path(dir), toolchain_file(root)]
}

/// What `CUDA_LIBRARY_PATH` will be for cargo in `dir`, and who says so.
fn library_path(dir: &Path) -> Finding {
    let fix = "set it to a folder that holds a folder lib64, which may be empty, such as driver/link of a checkout of warpsmith, in \
               the environment or in [env] of .cargo/config.toml; published crates of warpsmith do not need it";
    let finding = |state, detail: String| Finding {
        name: "CUDA_LIBRARY_PATH".to_owned(),
        needed_for: "build",
        state,
        detail,
        fix: if state == "ok" { String::new() } else { fix.to_owned() },
    };
    let (value, said_by) = match std::env::var("CUDA_LIBRARY_PATH").ok() {
        Some(value) => (value, "the environment".to_owned()),
        None => match configured(dir) {
            Ok(Some((value, file))) => (value, file.display().to_string()),
            Ok(None) if toolkit() => return finding("ok", "not set; a CUDA toolkit is installed".to_owned()),
            Ok(None) => {
                return finding(
                    "missing",
                    "not set, and no CUDA toolkit is found: the build script of `cust` fails".to_owned(),
                );
            }
            Err(problem) => return finding("missing", problem),
        },
    };
    let folders: Vec<&str> = value.split(':').filter(|f| !f.is_empty()).collect();
    let has_libraries = |f: &&str| ["lib64", "lib"].iter().any(|lib| Path::new(f).join(lib).is_dir());
    match folders.iter().any(has_libraries) {
        true => finding("ok", format!("{value}, from {said_by}")),
        false => finding(
            "missing",
            format!("{value}, from {said_by}: none of its folders (a colon separates them) holds a folder lib64"),
        ),
    }
}

/// The value in the nearest configuration of cargo, made absolute as cargo does.
fn configured(dir: &Path) -> Result<Option<(String, PathBuf)>, String> {
    for folder in dir.ancestors() {
        let file = folder.join(".cargo/config.toml");
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let config: toml::Table = text.parse().map_err(|e| format!("{} is no TOML: {e}", file.display()))?;
        let Some(entry) = config.get("env").and_then(|env| env.get("CUDA_LIBRARY_PATH")) else { continue };
        let value = entry.as_str().or_else(|| entry.get("value").and_then(toml::Value::as_str));
        let Some(value) = value else {
            return Err(format!("{}: CUDA_LIBRARY_PATH has no value", file.display()));
        };
        let relative = entry.get("relative").and_then(toml::Value::as_bool).unwrap_or(false);
        let path = if relative { folder.join(value).display().to_string() } else { value.to_owned() };
        return Ok(Some((path, file)));
    }
    Ok(None)
}

/// Whether `cust` finds a toolkit by itself.
fn toolkit() -> bool {
    let named =
        ["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    named.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from)).any(|p| p.join("include/cuda.h").is_file())
}

/// What renders a book, where there is one.
pub fn book(dir: &Path) -> Option<Finding> {
    let book = dir.ancestors().map(|d| d.join("docs/book.toml")).find(|file| file.is_file())?;
    let version = std::process::Command::new("mdbook").arg("--version").output().ok().filter(|o| o.status.success());
    let finding = |state, detail, fix: &str| Finding {
        name: "mdbook".to_owned(),
        needed_for: "optional",
        state,
        detail,
        fix: fix.to_owned(),
    };
    Some(match version {
        Some(output) => finding("ok", String::from_utf8_lossy(&output.stdout).trim().to_owned(), ""),
        None => {
            let detail = format!("not found; it renders {}, which reads as it stands", book.display());
            finding("missing", detail, "cargo install mdbook")
        }
    })
}

/// Without the file, the next `rustup update` may bring a compiler that nobody tried on kernels.
fn toolchain_file(root: &Path) -> Finding {
    let file = root.join("rust-toolchain.toml");
    let listed = std::fs::read_to_string(&file).is_ok_and(|text| text.contains("rust-src"));
    let (state, detail, fix) = match (file.is_file(), listed) {
        (true, true) => ("ok", file.display().to_string(), ""),
        (true, false) => {
            ("warning", format!("{} does not list rust-src", file.display()), "components = [\"rust-src\"]")
        }
        (false, _) => (
            "warning",
            format!("{} is not there", file.display()),
            "write it, with channel = \"1.95.0\" and components = [\"rust-src\"], so that all builds have one compiler",
        ),
    };
    Finding { name: "rust-toolchain.toml".to_owned(), needed_for: "optional", state, detail, fix: fix.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn state<'a>(findings: &'a [Finding], name: &str) -> (&'a str, &'a str) {
        let finding = findings.iter().find(|f| f.name == name).unwrap();
        (finding.state, &finding.detail)
    }

    #[test]
    fn a_project_is_told_what_its_build_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let (root, inner) = (dir.path(), dir.path().join("crates/host"));
        std::fs::create_dir_all(&inner).unwrap();
        assert!(project(&inner).is_empty(), "it does not use cust");

        std::fs::write(root.join("Cargo.lock"), "[[package]]\nname = \"cust_raw\"\n").unwrap();
        std::fs::create_dir(root.join(".cargo")).unwrap();
        let config = root.join(".cargo/config.toml");
        std::fs::write(&config, "[env]\nCUDA_LIBRARY_PATH = { value = \"cuda-link\", relative = true }\n").unwrap();
        if std::env::var_os("CUDA_LIBRARY_PATH").is_none() {
            let found = project(&inner);
            let (level, detail) = state(&found, "CUDA_LIBRARY_PATH");
            assert!(level == "missing" && detail.contains("lib64"), "{detail}");
            std::fs::create_dir_all(root.join("cuda-link/lib64")).unwrap();
            assert_eq!(state(&project(&inner), "CUDA_LIBRARY_PATH").0, "ok");
            std::fs::write(&config, "[env\n").unwrap();
            assert!(state(&project(&inner), "CUDA_LIBRARY_PATH").1.contains("no TOML"));
        }
        assert_eq!(state(&project(&inner), "rust-toolchain.toml").0, "warning");
        std::fs::write(root.join("rust-toolchain.toml"), "components = [\"rust-src\"]").unwrap();
        assert_eq!(state(&project(&inner), "rust-toolchain.toml").0, "ok");
    }
}
