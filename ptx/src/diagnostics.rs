//! Errors with their place in the text.

use super::ast::Pos;
use std::fmt;

/// Longest excerpt of a line that a diagnostic keeps, in bytes.
const MAX_LINE: usize = 240;

/// One error in a PTX text.
///
/// Displayed as `ptxas` would, with the line and a caret below:
///
/// ```text
/// line 12; error   : Unknown symbol '%q1'
///     add.s32 %r1, %r2, %q1;
///                       ^
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where; line 0 if it concerns the module as a whole.
    pub pos: Pos,
    /// What is wrong.
    pub message: String,
    /// The text of the line (shortened if it is very long), empty if not known.
    pub line_text: String,
}

impl Diagnostic {
    /// A diagnostic that does not know its line's text yet; see [`Diagnostic::attach_text`].
    pub fn new(pos: Pos, message: impl Into<String>) -> Diagnostic {
        Diagnostic { pos, message: message.into(), line_text: String::new() }
    }

    /// Fills in `line_text` of every diagnostic that lacks it, in one pass over the module's text.
    pub fn attach_text(diagnostics: &mut [Diagnostic], text: &str) {
        let mut wanted: Vec<&mut Diagnostic> =
            diagnostics.iter_mut().filter(|d| d.line_text.is_empty() && d.pos.line > 0).collect();
        wanted.sort_by_key(|d| d.pos.line);
        let mut lines = (1u32..).zip(text.split('\n'));
        let mut current = lines.next();
        for diagnostic in wanted {
            while current.is_some_and(|(number, _)| number < diagnostic.pos.line) {
                current = lines.next();
            }
            if let Some((number, line)) = current
                && number == diagnostic.pos.line
            {
                diagnostic.line_text = excerpt(line, diagnostic.pos.col);
            }
        }
    }
}

/// The line, or the part of it around the column if it is long.
pub(super) fn excerpt(line: &str, col: u32) -> String {
    let line = line.trim_end();
    if line.len() <= MAX_LINE {
        return line.to_string();
    }
    let at = (col as usize).saturating_sub(1).min(line.len());
    let mut start = if at < MAX_LINE - 40 { 0 } else { at - MAX_LINE / 2 };
    let mut end = (start + MAX_LINE).min(line.len());
    while !line.is_char_boundary(start) {
        start -= 1;
    }
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", line.get(start..end).unwrap_or_default())
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pos.line == 0 {
            return write!(f, "error   : {}", self.message);
        }
        write!(f, "line {}; error   : {}", self.pos.line, self.message)?;
        if self.line_text.trim().is_empty() {
            return Ok(());
        }
        let indent = self.line_text.len() - self.line_text.trim_start().len();
        write!(f, "\n    {}", self.line_text.trim())?;
        let at = (self.pos.col as usize).saturating_sub(1);
        if self.line_text.starts_with('…') || at < indent || at > self.line_text.len() {
            return Ok(());
        }
        // Tabs stay tabs, so that the caret lines up whatever a tab's width is.
        let lead: String = (self.line_text.get(indent..at).unwrap_or_default().chars())
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        write!(f, "\n    {lead}^")
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_line_and_caret() {
        let mut d = [Diagnostic::new(Pos { line: 2, col: 6 }, "Unknown symbol 'x'")];
        Diagnostic::attach_text(&mut d, "first\n\tmov x\nlast");
        assert_eq!(d[0].to_string(), "line 2; error   : Unknown symbol 'x'\n    mov x\n        ^");
    }

    #[test]
    fn shortens_long_lines_at_character_boundaries() {
        let line = "é".repeat(1000);
        for col in [1, 200, 201, 1000, 2000, 5000] {
            assert!(excerpt(&line, col).len() <= MAX_LINE + 8);
        }
    }

    #[test]
    fn module_level_diagnostics_have_no_line() {
        assert_eq!(Diagnostic::new(Pos::default(), "m").to_string(), "error   : m");
    }
}
