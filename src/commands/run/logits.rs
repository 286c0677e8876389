//! `--dump-logits`: written beside the file that is asked for, which is replaced when all is there.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Where logits go.
pub struct Dump {
    path: PathBuf,
    /// Becomes the file. None where that is a pipe or a device, which is written to as it is.
    file: Option<NamedTempFile>,
}

impl Dump {
    /// Finds out whether `path` can be written, without changing what is there. It must not be the model, which is being read.
    pub fn new(path: &Path, model: &Path) -> Result<Dump, Failure> {
        let failed = |e: std::io::Error| Failure::write(path, &e);
        let there = match std::fs::metadata(path) {
            Ok(there) => Some(there),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        if there.as_ref().is_some_and(|t| !t.is_dir()) && same_file::is_same_file(path, model).map_err(failed)? {
            let both = format!("--dump-logits {} is the model, which it would destroy", path.display());
            return Err(Failure::usage(format!("{both}: name another file")));
        }
        match there {
            Some(t) if t.is_dir() => Err(failed(std::io::ErrorKind::IsADirectory.into())),
            Some(t) if !t.is_file() => Ok(Dump { path: path.to_owned(), file: None }),
            Some(t) => {
                // The file itself and not a link to it is replaced, with the rights that it has.
                let path = std::fs::canonicalize(path).map_err(failed)?;
                std::fs::OpenOptions::new().append(true).open(&path).map_err(failed)?;
                let file = beside(&path).map_err(failed)?;
                file.as_file().set_permissions(t.permissions()).map_err(failed)?;
                Ok(Dump { path, file: Some(file) })
            }
            None => Ok(Dump { path: path.to_owned(), file: Some(beside(path).map_err(failed)?) }),
        }
    }

    /// Writes the rows as f32, little-endian.
    pub fn write(self, rows: &[Vec<f32>]) -> Result<(), Failure> {
        let Dump { path, file } = self;
        let written = match file {
            Some(mut file) => put(file.as_file_mut(), rows).and_then(|()| Ok(file.persist(&path).map(drop)?)),
            None => std::fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| put(&mut file, rows)),
        };
        written.map_err(|e| Failure::write(&path, &e))
    }
}

/// A file in the same folder, with the rights that a new file gets.
fn beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".warpsmith-logits");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

fn put(file: &mut std::fs::File, rows: &[Vec<f32>]) -> std::io::Result<()> {
    let mut out = BufWriter::new(file);
    for value in rows.iter().flatten() {
        out.write_all(&value.to_le_bytes())?;
    }
    out.flush()
}
