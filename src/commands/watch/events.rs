//! Saves: what changed in the folders of a project's packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::commands::project::Project;
use crate::failure::{Failure, Kind};

/// Editors write a file in several steps; this long after the last one a save is over.
const QUIET: Duration = Duration::from_millis(40);

/// Watches until it is dropped.
pub struct Saves {
    events: Receiver<notify::Result<notify::Event>>,
    _watcher: RecommendedWatcher,
    /// What came while nobody waited.
    pending: BTreeSet<PathBuf>,
}

impl Saves {
    /// Begins to watch `src`, `tests`, `build.rs` and `Cargo.toml` of every package.
    pub fn of(project: &Project) -> Result<Saves, Failure> {
        let failed = |e: notify::Error| Failure::new(Kind::Operation, format!("files cannot be watched: {e}"));
        let (send, events) = channel();
        let mut watcher = notify::recommended_watcher(move |event| {
            // Nobody listens any more when the program ends.
            let _ = send.send(event);
        })
        .map_err(failed)?;
        for folder in project.packages.values() {
            // Folders rather than files: a save often puts a new file in place of the old one.
            watcher.watch(folder, RecursiveMode::NonRecursive).map_err(failed)?;
            for name in ["src", "tests"] {
                let inner = folder.join(name);
                if inner.is_dir() {
                    watcher.watch(&inner, RecursiveMode::Recursive).map_err(failed)?;
                }
            }
        }
        Ok(Saves { events, _watcher: watcher, pending: BTreeSet::new() })
    }

    /// Waits for a save, and answers the files.
    pub fn wait(&mut self) -> Result<Vec<PathBuf>, Failure> {
        while self.pending.is_empty() {
            match self.events.recv() {
                Ok(event) => self.note(event),
                Err(_) => return Err(Failure::new(Kind::Operation, "files are not watched any more")),
            }
        }
        while let Ok(event) = self.events.recv_timeout(QUIET) {
            self.note(event);
        }
        Ok(std::mem::take(&mut self.pending).into_iter().collect())
    }

    /// Whether something was saved since the last wait.
    pub fn any(&mut self) -> bool {
        while let Ok(event) = self.events.try_recv() {
            self.note(event);
        }
        !self.pending.is_empty()
    }

    fn note(&mut self, event: notify::Result<notify::Event>) {
        let Ok(event) = event else { return };
        if matches!(event.kind, EventKind::Access(_) | EventKind::Other) {
            return;
        }
        self.pending.extend(event.paths.into_iter().filter(|path| is_source(path)));
    }
}

/// A file that a build reads, and not what an editor keeps beside it.
fn is_source(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let kept = path.extension().is_some_and(|e| e == "rs" || e == "toml");
    kept && !name.starts_with(['.', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_editors_leave_beside_a_file_is_no_save() {
        for (path, source) in [
            ("src/lib.rs", true),
            ("Cargo.toml", true),
            ("src/.lib.rs.swp", false),
            ("src/.#lib.rs", false),
            ("src/lib.rs~", false),
            ("src/4913", false),
            ("Cargo.lock", false),
        ] {
            assert_eq!(is_source(Path::new(path)), source, "{path}");
        }
    }
}
