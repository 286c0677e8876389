//! The cache directory: where it is, who may write in it, and writing without needless change.
//!
//! `<target directory>/warpsmith/` holds `sysroot-<hash>/` (compiled `core`) and
//! `kernels/<hash of workspace and package>/sm_XX/` (target directories of the nested cargo). Writers hold the lock file of the part that they change;
//! a directory appears under its final name only when it is complete.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::BuildError;

/// The target directory that an `OUT_DIR` lies in: the parent of the profile directory, without
/// the directory of an explicit `--target`.
pub(crate) fn target_dir_of(out_dir: &Path, target: Option<&str>) -> Option<PathBuf> {
    let build = out_dir.ancestors().skip(1).find(|dir| dir.file_name().is_some_and(|name| name == "build"))?;
    let root = build.parent()?.parent()?;
    match (root.file_name(), target) {
        (Some(name), Some(target)) if name == target => root.parent().map(Path::to_path_buf),
        _ => Some(root.to_path_buf()),
    }
}

/// A lock between processes; released on drop, and by the system if the process dies.
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Waits for the lock `dir/name`, saying on stderr what is waited for.
    pub(crate) fn acquire(dir: &Path, name: &str, what: &str) -> Result<DirLock, BuildError> {
        std::fs::create_dir_all(dir).map_err(BuildError::io("create", dir))?;
        let path = dir.join(name);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(BuildError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("warpsmith: waiting for another build to finish with {what}");
                file.lock().map_err(BuildError::io("lock", &path))?;
            }
            Err(TryLockError::Error(error)) => return Err(BuildError::io("lock", &path)(error)),
        }
        Ok(DirLock { _file: file })
    }
}

/// Writes a file unless it already has this content, so that nothing downstream is rebuilt.
pub(crate) fn write_if_changed(path: &Path, content: impl AsRef<[u8]>) -> Result<bool, BuildError> {
    let content = content.as_ref();
    if std::fs::read(path).is_ok_and(|old| old == content) {
        return Ok(false);
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(BuildError::io("create", parent))?;
    }
    std::fs::write(path, content).map_err(BuildError::io("write", path))?;
    Ok(true)
}

/// Copies a directory with the times of its files, by which cargo judges what is up to date. It
/// appears under its name only when it is complete.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<(), BuildError> {
    let partial = to.with_extension("partial");
    let _ = std::fs::remove_dir_all(&partial);
    copy_into(from, &partial)?;
    std::fs::rename(&partial, to).map_err(BuildError::io("rename into place", to))
}

fn copy_into(from: &Path, to: &Path) -> Result<(), BuildError> {
    std::fs::create_dir_all(to).map_err(BuildError::io("create", to))?;
    for entry in std::fs::read_dir(from).map_err(BuildError::io("read", from))? {
        let path = entry.map_err(BuildError::io("read", from))?.path();
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        let meta = path.metadata().map_err(BuildError::io("read", &path))?;
        if meta.is_dir() {
            copy_into(&path, &target)?;
        } else {
            std::fs::copy(&path, &target).map_err(BuildError::io("copy", &path))?;
            let modified = meta.modified().map_err(BuildError::io("read the time of", &path))?;
            let file = OpenOptions::new().write(true).open(&target).map_err(BuildError::io("open", &target))?;
            file.set_modified(modified).map_err(BuildError::io("set the time of", &target))?;
        }
    }
    Ok(())
}

/// What cargo judges a file by, its length, and which file of the disk it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: u128,
    #[serde(default)]
    node: u64,
}

impl Stamp {
    /// `None`: it is no file, or is not there.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        #[cfg(unix)]
        let node = std::os::unix::fs::MetadataExt::ino(&meta);
        #[cfg(not(unix))]
        let node = 0;
        Some(Stamp { bytes: meta.len(), modified: nanoseconds(meta.modified().ok()?), node })
    }

    /// Whether the file was written at that time or later.
    pub(crate) fn is_since(&self, time: SystemTime) -> bool {
        self.modified >= nanoseconds(time)
    }
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// A checksum of a file of the cache, kept beside it: length and CRC-32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum(String);

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Sum {
    pub(crate) fn of(bytes: &[u8]) -> Sum {
        Sum(format!("{} {:08x}", bytes.len(), crc32fast::hash(bytes)))
    }

    pub(crate) fn of_file(path: &Path) -> Result<Sum, BuildError> {
        Ok(Sum::of(&std::fs::read(path).map_err(BuildError::io("read", path))?))
    }

    fn place(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".sum");
        PathBuf::from(name)
    }

    pub(crate) fn write_beside(&self, path: &Path) -> Result<(), BuildError> {
        let place = Sum::place(path);
        std::fs::write(&place, &self.0).map_err(BuildError::io("write", &place))
    }

    /// What was noted when the file was written.
    pub(crate) fn noted(path: &Path) -> Option<Sum> {
        std::fs::read_to_string(Sum::place(path)).ok().map(Sum)
    }

    /// Whether the file is as it was written.
    pub(crate) fn stands_beside(path: &Path) -> bool {
        match (Sum::of_file(path), Sum::noted(path)) {
            (Ok(found), Some(noted)) => found == noted,
            _ => false,
        }
    }
}

/// FNV-1a, 64 bits: stable between releases of the standard library.
pub(crate) fn hash(parts: &[&str]) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.as_bytes().iter().chain(&[0u8]) {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{state:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_directory_of_every_layout() {
        let triple = Some("x86_64-unknown-linux-gnu");
        for (out_dir, expected) in [
            ("/w/target/debug/build/host-0123/out", "/w/target"),
            ("/w/my target/release/build/host-0123/out", "/w/my target"),
            ("/w/target/x86_64-unknown-linux-gnu/release/build/host-0123/out", "/w/target"),
            ("/w/target/debug/build/host/0123/out", "/w/target"),
        ] {
            assert_eq!(target_dir_of(Path::new(out_dir), triple), Some(PathBuf::from(expected)), "{out_dir}");
        }
        assert_eq!(target_dir_of(Path::new("/elsewhere/out"), triple), None);
    }

    #[test]
    fn writes_only_what_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.txt");
        assert!(write_if_changed(&path, "one").unwrap());
        assert!(!write_if_changed(&path, "one").unwrap());
        assert!(write_if_changed(&path, "two").unwrap());
    }

    #[test]
    fn a_copied_tree_keeps_content_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        write_if_changed(&from.join("a/b.txt"), "text").unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(from.join("a/b.txt")).unwrap().set_modified(long_ago).unwrap();
        let to = dir.path().join("to");
        copy_tree(&from, &to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("a/b.txt")).unwrap(), "text");
        assert_eq!(to.join("a/b.txt").metadata().unwrap().modified().unwrap(), long_ago);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing partial is left");
    }

    #[test]
    fn a_sum_tells_cut_and_changed_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.rlib");
        write_if_changed(&path, "what was written").unwrap();
        assert!(!Sum::stands_beside(&path), "nothing was noted");
        Sum::of_file(&path).unwrap().write_beside(&path).unwrap();
        assert!(Sum::stands_beside(&path));
        for damage in ["what was", "what was writtem", ""] {
            std::fs::write(&path, damage).unwrap();
            assert!(!Sum::stands_beside(&path), "{damage}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!Sum::stands_beside(&path));
    }

    #[test]
    fn hash_is_fnv1a() {
        // Published test vector of FNV-1a 64 for "a" followed by one zero byte is hash("a\0").
        let by_hand = |bytes: &[u8]| {
            bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |s, b| (s ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
        };
        assert_eq!(by_hand(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(&["a"]), format!("{:016x}", by_hand(b"a\0")));
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}
