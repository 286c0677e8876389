//! The toolchain that `builder/cuda-builder/setup` made: a folder of its own, whose file `env` says what its parts are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the folder, where it is not the usual one.
pub(crate) const VARIABLE: &str = "WARPSMITH_RUST_CUDA";

/// The folder and its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) dir: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Made {
    /// What this user's `setup` left; `None` if it did not run to the end, or not here.
    pub(crate) fn find() -> Option<Made> {
        Made::read(&folder(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))?)
    }

    fn read(dir: &Path) -> Option<Made> {
        let text = std::fs::read_to_string(dir.join("env")).ok()?;
        Some(Made { dir: dir.to_owned(), variables: parse(&text) })
    }

    /// The variables that a process gets beside its own; lists of folders are not among them.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().filter(|(name, _)| *name != LIBRARIES).map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Folders of shared libraries, to stand before all others.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = PathBuf> {
        self.variables.get(LIBRARIES).into_iter().flat_map(std::env::split_paths)
    }

    /// Where the runner was compiled, once for every project of this user.
    pub(crate) fn target(&self) -> PathBuf {
        self.dir.join("target")
    }
}

const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// The variable of this process, else the one of the folder.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    let own = std::env::var_os(name).filter(|value| !value.is_empty());
    own.or_else(|| Made::find()?.variables.get(name).map(OsString::from))
}

/// As `setup` finds it.
pub(crate) fn folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(dir) = variable(VARIABLE) {
        return Some(PathBuf::from(dir));
    }
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("warpsmith/rust-cuda"))
}

/// Lines `NAME='value'`, which a shell can read too. What is no such line is passed over.
fn parse(text: &str) -> BTreeMap<String, String> {
    let value = |line: &str| {
        let (name, quoted) = line.split_once('=')?;
        Some((name.to_owned(), quoted.strip_prefix('\'')?.strip_suffix('\'')?.to_owned()))
    };
    text.lines().filter_map(value).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_setup_wrote_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Made::read(dir.path()), None, "setup did not come to its end");
        let text = "CUDA_PATH='/a b/cuda'\nLLVM_LINK_SHARED='1'\nLD_LIBRARY_PATH='/a b/lib:/c'\nbroken\nX=y\n";
        std::fs::write(dir.path().join("env"), text).unwrap();
        let made = Made::read(dir.path()).unwrap();
        let variables: Vec<_> = made.variables().collect();
        assert_eq!(variables, [("CUDA_PATH", "/a b/cuda"), ("LLVM_LINK_SHARED", "1")]);
        assert_eq!(made.libraries().collect::<Vec<_>>(), [PathBuf::from("/a b/lib"), PathBuf::from("/c")]);
        assert_eq!(made.target(), dir.path().join("target"));
    }

    #[test]
    fn the_folder_is_where_setup_puts_it() {
        let with = |set: &[(&str, &str)]| {
            let set: BTreeMap<String, OsString> = set.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
            folder(&|name| set.get(name).cloned())
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("HOME", "/h")]), Some("/h/.cache/warpsmith/rust-cuda".into()));
        assert_eq!(with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]), Some("/c/warpsmith/rust-cuda".into()));
        assert_eq!(with(&[("HOME", "/h"), (VARIABLE, "/mine")]), Some("/mine".into()));
        // The script says the same, by its own words.
        let script = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda-builder/setup")).unwrap();
        for part in [VARIABLE, "XDG_CACHE_HOME", "\".cache\"", "warpsmith/rust-cuda", "f\"{name}='{value}'\\n\""] {
            assert!(script.contains(part), "{part}");
        }
    }
}
