//! Counters that are kept in the repository, and what has become worse since.
//!
//! A file of one JSON object, a figure a line, sorted by name, so that a change of a kernel is a change of its lines.

use std::collections::BTreeMap;
use std::path::Path;

/// A counter that grows by this share is worse.
pub const TOLERANCE: f64 = 0.02;

/// Figures by name. Of all of them less is better.
pub type Figures = BTreeMap<String, u64>;

/// A figure that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub name: String,
    /// In the baseline.
    pub old: u64,
    /// Now.
    pub new: u64,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} -> {}", self.name, self.old, self.new)?;
        if self.old > 0 {
            write!(f, " ({:+.1} %)", 100.0 * (self.new as f64 / self.old as f64 - 1.0))?;
        }
        Ok(())
    }
}

/// How a run compares with the baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Worse by the tolerance or more.
    pub worse: Vec<Change>,
    /// Better by as much.
    pub better: Vec<Change>,
    /// Figures that the baseline lacks.
    pub new: Vec<String>,
    /// Figures of the baseline that the run lacks.
    pub gone: Vec<String>,
}

/// Compares a run with the baseline.
pub fn compare(baseline: &Figures, run: &Figures) -> Comparison {
    let mut all = Comparison::default();
    for (name, &new) in run {
        let Some(&old) = baseline.get(name) else {
            all.new.push(name.clone());
            continue;
        };
        let change = || Change { name: name.clone(), old, new };
        let allowed = TOLERANCE * old as f64;
        if new > old && (new - old) as f64 >= allowed {
            all.worse.push(change());
        } else if new < old && (old - new) as f64 >= allowed {
            all.better.push(change());
        }
    }
    all.gone.extend(baseline.keys().filter(|name| !run.contains_key(*name)).cloned());
    all
}

/// Reads a baseline.
pub fn read(path: &Path) -> Result<Figures, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{} is no baseline: {e}", path.display()))
}

/// The text of a baseline: a figure a line, sorted.
pub fn text(figures: &Figures) -> String {
    // Strings of figures have no character that JSON escapes, but serde_json decides that.
    let line = |(name, n): (&String, &u64)| format!("  {}: {n}", serde_json::Value::from(name.as_str()));
    format!("{{\n{}\n}}\n", figures.iter().map(line).collect::<Vec<_>>().join(",\n"))
}
