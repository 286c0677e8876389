//! The PTX that was compiled with an archive: of all its units, joined, and kept beside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::Units;
use super::units::{Earlier, Unit};
use crate::BuildError;
use crate::cache::Sum;
use crate::ptx;
use warpsmith_image::map_in_threads;

/// What was compiled with an archive.
pub(super) struct JoinedText {
    pub(super) ptx: String,
    /// What it was joined from, if that was now.
    pub(super) units: Vec<Unit>,
}

/// The assembly files of an archive.
pub(super) struct Texts<'a> {
    pub(super) units: Units,
    pub(super) crate_name: &'a str,
    pub(super) deps: PathBuf,
    pub(super) target_dir: &'a Path,
}

impl Texts<'_> {
    /// The text that was compiled with this archive. It is kept beside the archive with a sum of both, because cargo looks at
    /// times alone, so that what it calls fresh may have been cut, and because a build may have ended before it wrote the text.
    pub(super) fn of(&self, archive: &Path, is_fresh: bool) -> Result<JoinedText, BuildError> {
        let bytes = std::fs::read(archive).map_err(BuildError::io("read", archive))?;
        let (stem, members) = self.members(&bytes).ok_or_else(|| BuildError::Answer {
            what: archive.display().to_string(),
            reason: "no member is named after the crate".to_owned(),
        })?;
        let path = self.deps.join(format!("{stem}.ptx"));
        // Another form of text than this one is another file to a builder of that time.
        let head = format!("// compact, registers in order, {}\n", Sum::of(&bytes));
        if is_fresh {
            let kept =
                std::fs::read_to_string(&path).ok().filter(|kept| Sum::noted(&path) == Some(Sum::of(kept.as_bytes())));
            return match kept.as_deref().and_then(|kept| kept.strip_prefix(&head)) {
                Some(text) => Ok(JoinedText { ptx: text.to_owned(), units: Vec::new() }),
                None => Err(BuildError::Damaged { path }),
            };
        }
        let joined = self.read(&stem, &members)?;
        let kept = head.clone() + &joined.ptx;
        std::fs::write(&path, &kept).map_err(BuildError::io("write", &path))?;
        Sum::of(kept.as_bytes()).write_beside(&path)?;
        self.remove_parts(&stem);
        Ok(joined)
    }

    /// Name and hash of the crate, and its units. Cargo copies the archive to a name without hash, but the names of its members
    /// keep it: `my_kernels-0123456789abcdef.2s3kbepjjd92l98kwmgrtxgdd.0fz4msh.rcgu.o`.
    fn members(&self, archive: &[u8]) -> Option<(String, BTreeSet<String>)> {
        let needle = format!("{}-", self.crate_name);
        let word = |from: usize, is_of: fn(&u8) -> bool| -> String {
            archive.get(from..).unwrap_or_default().iter().take_while(|b| is_of(b)).map(|b| char::from(*b)).collect()
        };
        let start = memmem::find(archive, needle.as_bytes())?;
        let stem = needle.clone() + &word(start + needle.len(), u8::is_ascii_hexdigit);
        let mut members = BTreeSet::new();
        for at in memmem::find_iter(archive, stem.as_bytes()) {
            let name = word(at, |b| b.is_ascii_alphanumeric() || b"._-".contains(b));
            members.extend(name.strip_suffix(".o").filter(|name| name.ends_with(".rcgu")).map(str::to_owned));
        }
        Some((stem, members))
    }

    fn read(&self, stem: &str, members: &BTreeSet<String>) -> Result<JoinedText, BuildError> {
        let whole = self.deps.join(format!("{stem}.s"));
        let units: Vec<(&str, PathBuf)> =
            members.iter().map(|name| (unit_name(name), self.deps.join(format!("{name}.s")))).collect();
        let damaged = |path: &PathBuf| BuildError::Damaged { path: path.clone() };
        let alone = |name: &str| {
            let unit = Unit::read(name, &whole).map_err(|_| damaged(&whole))?;
            Ok(JoinedText { ptx: unit.text.clone(), units: vec![unit] })
        };
        match (self.units, units.as_slice()) {
            (Units::Whole, _) => alone(""),
            // The compiler renames a text that is the only one.
            (Units::Modules, [(name, path)]) if !path.exists() => alone(name),
            (Units::Modules, units) => {
                let earlier = Earlier::of(self.target_dir);
                let read = |(name, path): &(&str, PathBuf)| earlier.unit(name, path).map_err(|_| damaged(path));
                let units = map_in_threads(units, read).into_iter().collect::<Result<Vec<_>, _>>()?;
                let texts: Vec<&str> = units.iter().map(|unit| unit.text.as_str()).collect();
                let ptx = ptx::join(&texts).map_err(|_| damaged(&whole))?;
                Ok(JoinedText { ptx, units })
            }
        }
    }

    /// Removes the units' texts, also those of earlier compilations, whose names are others. The compiler has its own copies.
    fn remove_parts(&self, stem: &str) {
        let prefix = format!("{stem}.");
        for entry in std::fs::read_dir(&self.deps).into_iter().flatten().flatten() {
            let is_part = entry.file_name().to_str().is_some_and(|n| n.starts_with(&prefix) && n.ends_with(".rcgu.s"));
            if is_part {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// What the compiler calls a unit, of the name of its file: `my_kernels-0123456789abcdef.2s3kbepjjd92l98kwmgrtxgdd.0fz4msh.rcgu`.
fn unit_name(member: &str) -> &str {
    member.split('.').nth(1).unwrap_or_default()
}
