//! Kernels crates that come as a dependency: where cargo unpacked them, and what they are compiled against.
//!
//! Cargo tells the build script of a package where a *direct* dependency lies if that one declares `links` and prints a
//! key `root`. A package from a registry lies in a folder that all projects of the machine share and that cargo owns, so
//! it is compiled from a copy.

use std::path::{Path, PathBuf};

use crate::BuildError;
use crate::cache::{copy_tree, hash};

/// What the kernels' half for the GPU must share with the half for the host: a launch is typed by it.
const SHARED: [&str; 2] = ["warpsmith-device", "warpsmith-macros"];

/// What cargo writes into a folder when it is complete.
const MARK: &str = ".cargo-ok";

/// A crate for the nested cargo in place of the registry's of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Where the dependency with this `links` name lies.
pub(crate) fn root(links: &str) -> Result<PathBuf, BuildError> {
    let variable = format!("DEP_{}_ROOT", links.to_uppercase().replace('-', "_"));
    std::env::var_os(&variable).map(PathBuf::from).ok_or_else(|| BuildError::Setting {
        setting: format!("KernelCrate::dependency({links:?})"),
        reason: format!(
            "{variable} is not set: no direct dependency of this package has `links = \"{links}\"` in its Cargo.toml \
             and a build script that prints `cargo:root=` and its own folder (CARGO_MANIFEST_DIR)"
        ),
    })
}

/// Whether cargo unpacked this folder from a registry.
fn is_unpacked(dir: &Path) -> bool {
    dir.join(MARK).is_file()
}

/// The folder to compile, and what to compile it against: itself if it is somebody's source; a copy of a package that
/// cargo unpacked, with the crates that were unpacked beside it for the outer build.
pub(crate) fn source(dir: PathBuf, cache: &Path) -> Result<(PathBuf, Vec<Patch>), BuildError> {
    if !is_unpacked(&dir) {
        return Ok((dir, Vec::new()));
    }
    let Some(name) = dir.file_name() else { return Ok((dir, Vec::new())) };
    // A version's text never changes, but packages that are tried before they are published come and go under one name.
    let mark = dir.join(MARK);
    let unpacked = mark.metadata().and_then(|m| m.modified()).map_err(BuildError::io("read the time of", &mark))?;
    let copy = cache.join("unpacked").join(hash(&[&dir.to_string_lossy(), &format!("{unpacked:?}")])).join(name);
    if !copy.is_dir() {
        let fresh = copy.with_extension("new");
        let _ = std::fs::remove_dir_all(&fresh);
        if let Some(parent) = copy.parent() {
            std::fs::create_dir_all(parent).map_err(BuildError::io("create", parent))?;
        }
        copy_tree(&dir, &fresh)?;
        stand_alone(&fresh.join("Cargo.toml"))?;
        std::fs::rename(&fresh, &copy).map_err(BuildError::io("rename into place", &copy))?;
    }
    Ok((copy, siblings(&dir)?))
}

/// A target directory lies in a workspace as a rule, which cargo would take the copy for a member of. And what the package
/// needs for its own tests is not needed here, but cargo would look for it.
fn stand_alone(manifest: &Path) -> Result<(), BuildError> {
    let text = std::fs::read_to_string(manifest).map_err(BuildError::io("read", manifest))?;
    let mut keep = true;
    let mut out = String::new();
    // Cargo writes the manifest of a package: a table a header, each on a line of its own.
    for line in text.lines() {
        if line.starts_with('[') {
            keep =
                !(line.starts_with("[dev-dependencies") || line.contains(".dev-dependencies")) && line != "[workspace]";
        }
        if keep {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.push_str("\n[workspace]\n");
    std::fs::write(manifest, out).map_err(BuildError::io("write", manifest))
}

/// Of each shared crate, the folder beside `dir`, if cargo unpacked exactly one version there.
fn siblings(dir: &Path) -> Result<Vec<Patch>, BuildError> {
    let Some(registry) = dir.parent() else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(registry).map_err(BuildError::io("read", registry))?;
    let folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|p| is_unpacked(p)).collect();
    let versions = |name: &str| -> Vec<PathBuf> {
        let of = |path: &PathBuf| {
            let file = path.file_name().and_then(|f| f.to_str()).unwrap_or_default();
            file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_version)
        };
        folders.iter().filter(|path| of(path)).cloned().collect()
    };
    Ok(SHARED
        .iter()
        .filter_map(|name| match versions(name).as_slice() {
            [path] => Some(Patch { name: (*name).to_owned(), path: path.clone() }),
            _ => None,
        })
        .collect())
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unpack(registry: &Path, package: &str) -> PathBuf {
        let dir = registry.join(package);
        std::fs::create_dir_all(dir.join("src")).unwrap();
        std::fs::write(dir.join(".cargo-ok"), "{\"v\":1}").unwrap();
        let manifest = format!(
            "[package]\nname = \"{package}\"\n\n[dependencies.a]\nversion = \"1\"\nfeatures = [\n    \"f\",\n]\n\n\
             [dev-dependencies.b]\nversion = \"2\"\n\n[target.\"cfg(unix)\".dev-dependencies.c]\nversion = \"3\"\n\n\
             [lints.rust]\nunsafe_op = \"deny\"\n"
        );
        std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
        dir
    }

    #[test]
    fn a_path_is_compiled_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let kernels = dir.path().join("kernels");
        std::fs::create_dir(&kernels).unwrap();
        assert_eq!(source(kernels.clone(), &dir.path().join("cache")).unwrap(), (kernels, Vec::new()));
    }

    #[test]
    fn an_unpacked_package_is_compiled_from_a_copy_against_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let kernels = unpack(dir.path(), "my-kernels-0.3.1");
        let device = unpack(dir.path(), "warpsmith-device-0.1.0");
        unpack(dir.path(), "warpsmith-device-extras-0.1.0");
        // Two versions: which of them the outer build took cannot be seen here, so the lock file decides.
        unpack(dir.path(), "warpsmith-macros-0.1.0");
        unpack(dir.path(), "warpsmith-macros-0.2.0");
        let cache = dir.path().join("cache");
        let (copy, patches) = source(kernels.clone(), &cache).unwrap();
        assert!(copy.starts_with(&cache) && copy.ends_with("my-kernels-0.3.1"), "{}", copy.display());
        let manifest = std::fs::read_to_string(copy.join("Cargo.toml")).unwrap();
        let expected = "[package]\nname = \"my-kernels-0.3.1\"\n\n[dependencies.a]\nversion = \"1\"\nfeatures = [\n    \"f\",\n]\n\n\
                        [lints.rust]\nunsafe_op = \"deny\"\n\n[workspace]\n";
        assert_eq!(manifest, expected);
        assert_eq!(patches, [Patch { name: "warpsmith-device".to_owned(), path: device }]);
        assert_eq!(source(kernels, &cache).unwrap().0, copy, "the second build finds the copy");
    }

    #[test]
    fn a_dependency_that_does_not_say_where_it_lies_is_an_error_with_the_remedy() {
        let message = root("nobodys-kernels").unwrap_err().to_string();
        assert!(
            message.contains("DEP_NOBODYS_KERNELS_ROOT") && message.contains("links = \"nobodys-kernels\""),
            "{message}"
        );
    }
}
