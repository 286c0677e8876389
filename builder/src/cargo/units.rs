//! The texts of a crate's modules, compact, as they were last compiled together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::BuildError;
use crate::cache::{Stamp, Sum};
use crate::ptx;

/// A module's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The compiler's name for it, which stays.
    pub(crate) name: String,
    /// Of the file that it was read from: the compiler links what it kept.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) kernels: BTreeSet<String>,
    pub(crate) text: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    stamp: Option<Stamp>,
    kernels: BTreeSet<String>,
    bytes: usize,
}

/// The file of a folder, such as an architecture's target directory, which has all texts one behind the other. A sum stands beside it, and an index.
fn file(target_dir: &Path) -> PathBuf {
    target_dir.join("units.ptx")
}

fn index(target_dir: &Path) -> PathBuf {
    target_dir.join("units.json")
}

impl Unit {
    /// Of a text as the compiler wrote it.
    pub(crate) fn read(name: &str, path: &Path) -> std::io::Result<Unit> {
        let stamp = Stamp::of(path);
        let text = ptx::compact(&std::fs::read_to_string(path)?);
        Ok(Unit { name: name.to_owned(), stamp, kernels: ptx::entries(&text), text })
    }

    /// Writes those of a compilation.
    pub(crate) fn write_all(units: &[Unit], target_dir: &Path) -> Result<(), BuildError> {
        let (texts, index) = (file(target_dir), index(target_dir));
        let all: String = units.iter().map(|unit| unit.text.as_str()).collect();
        let entry = |Unit { name, stamp, kernels, text }: &Unit| Entry {
            name: name.clone(),
            stamp: stamp.clone(),
            kernels: kernels.clone(),
            bytes: text.len(),
        };
        let json = serde_json::to_vec(&units.iter().map(entry).collect::<Vec<_>>())
            .map_err(|error| BuildError::Answer { what: index.display().to_string(), reason: error.to_string() })?;
        std::fs::write(&texts, &all).map_err(BuildError::io("write", &texts))?;
        Sum::of(all.as_bytes()).write_beside(&texts)?;
        std::fs::write(&index, json).map_err(BuildError::io("write", &index))
    }

    /// The last ones, if they are there as they were written.
    pub(crate) fn read_all(target_dir: &Path) -> Option<Vec<Unit>> {
        let (texts, index) = (file(target_dir), index(target_dir));
        let entries: Vec<Entry> = serde_json::from_slice(&std::fs::read(index).ok()?).ok()?;
        let all = std::fs::read_to_string(&texts).ok()?;
        if Sum::noted(&texts)? != Sum::of(all.as_bytes()) {
            return None;
        }
        let mut rest = all.as_str();
        let mut units = Vec::new();
        for Entry { name, stamp, kernels, bytes } in entries {
            let (text, behind) = rest.split_at_checked(bytes)?;
            units.push(Unit { name, stamp, kernels, text: text.to_owned() });
            rest = behind;
        }
        rest.is_empty().then_some(units)
    }
}

/// Those that the compiler's files still are.
pub(super) struct Earlier(BTreeMap<String, Unit>);

impl Earlier {
    pub(super) fn of(target_dir: &Path) -> Earlier {
        let units = Unit::read_all(target_dir).unwrap_or_default();
        Earlier(units.into_iter().map(|unit| (unit.name.clone(), unit)).collect())
    }

    /// The unit of this file, read if need be.
    pub(super) fn unit(&self, name: &str, path: &Path) -> std::io::Result<Unit> {
        match (self.0.get(name), Stamp::of(path)) {
            (Some(known), Some(stamp)) if known.stamp.as_ref() == Some(&stamp) => Ok(known.clone()),
            _ => Unit::read(name, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_were_written_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a.s"), ".visible .entry one(\n)\n{\n\tret;                                  // x\n}\n")
            .unwrap();
        std::fs::write(path("b.s"), "// nothing\n").unwrap();
        let read = |name: &str| Unit::read(name, &path(&format!("{name}.s"))).unwrap();
        let units = vec![read("a"), read("b")];
        assert_eq!(units[0].kernels, BTreeSet::from(["one".to_owned()]));
        assert_eq!(Unit::read_all(dir.path()), None);
        Unit::write_all(&units, dir.path()).unwrap();
        assert_eq!(Unit::read_all(dir.path()), Some(units.clone()));

        // What is the file that it was is not read again, under whatever name; what was written anew is.
        let earlier = Earlier::of(dir.path());
        std::fs::hard_link(path("a.s"), path("a.2.s")).unwrap();
        assert_eq!(earlier.unit("a", &path("a.2.s")).unwrap(), units[0]);
        std::fs::write(
            path("a.s.new"),
            ".visible .entry two(\n)\n{\n\tret;                                  // x\n}\n",
        )
        .unwrap();
        std::fs::rename(path("a.s.new"), path("a.s")).unwrap();
        assert_eq!(earlier.unit("a", &path("a.s")).unwrap().kernels, BTreeSet::from(["two".to_owned()]));
        assert_eq!(earlier.unit("b", &path("a.2.s")).unwrap().kernels, units[0].kernels);

        for name in ["units.ptx", "units.json"] {
            Unit::write_all(&units, dir.path()).unwrap();
            let whole = std::fs::read(path(name)).unwrap();
            std::fs::write(path(name), &whole[..whole.len() - 1]).unwrap();
            assert_eq!(Unit::read_all(dir.path()), None, "{name}");
        }
    }
}
