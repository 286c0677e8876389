//! Places in source code, as line information names them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ptx::ast::Location;

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// File, as the compiler wrote it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, 0 if unknown.
    pub column: u32,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.column != 0 { write!(f, ":{}", self.column) } else { Ok(()) }
    }
}

/// The frames of a location, innermost first: the place itself, then the calls that were inlined.
pub(crate) fn frames(file: &str, location: &Location) -> Vec<Frame> {
    let mut frames = vec![Frame { file: file.to_string(), line: location.line, column: location.col }];
    // LLVM: `// mod.rs:83:5 @[ src/lib.rs:9:47 @[ src/lib.rs:13:13 ] ]`; the first place is the location itself.
    let places = location.comment.split("@[").skip(1).map(|p| p.trim().trim_end_matches([']', ' ']));
    for place in places {
        let mut parts = place.rsplitn(3, ':');
        let (column, line, file) = (parts.next(), parts.next(), parts.next());
        let number = |p: Option<&str>| p.and_then(|p| p.trim().parse::<u32>().ok());
        if let (Some(column), Some(line), Some(file)) = (number(column), number(line), file) {
            frames.push(Frame { file: file.trim().to_string(), line, column });
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_an_inline_chain() {
        let comment = "mod.rs:83:5 @[ src/lib.rs:9:47 @[ src/lib.rs:13:13 ] ]".to_string();
        let location = Location { file: 1, line: 83, col: 5, comment, inlined: Vec::new() };
        let shown: Vec<String> = frames("core/mod.rs", &location).iter().map(Frame::to_string).collect();
        assert_eq!(shown, ["core/mod.rs:83:5", "src/lib.rs:9:47", "src/lib.rs:13:13"]);
    }
}
