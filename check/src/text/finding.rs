//! A finding as a reader sees it.

use std::fmt;

use warpsmith_simt::Frame;

use crate::site::own_at;
use crate::{Also, Finding, Rule, Site, own_frame};

/// Writes a place: first the line of the kernel's own crate, then what that was inlined into, then what of other crates lies
/// between it and the instruction.
fn write_place(f: &mut fmt::Formatter<'_>, frames: &[Frame]) -> fmt::Result {
    let Some(own) = own_at(frames).or(frames.len().checked_sub(1)) else { return Ok(()) };
    write!(f, "\n    at {}", frames[own])?;
    frames[own + 1..].iter().try_for_each(|frame| write!(f, "\n    inlined into {frame}"))?;
    let mut inner = frames[..own].iter().rev();
    if let Some(first) = inner.next() {
        write!(f, "\n    in {first}")?;
        inner.try_for_each(|frame| write!(f, ", in {frame}"))?;
    }
    Ok(())
}

impl Also {
    /// The lines of its first two sides: those of the kernel's own crate, else of the PTX.
    fn lines(&self) -> Vec<String> {
        let line = |s: &Site| match own_frame(&s.source) {
            Some(frame) => frame.to_string(),
            None => format!("PTX line {}", s.ptx_line),
        };
        self.sites.iter().take(2).filter(|s| s.ptx_line != 0).map(line).collect()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())?;
        if let (Some([bx, by, bz]), Some([tx, ty, tz])) = (self.block, self.thread) {
            write!(f, " by block ({bx},{by},{bz}), thread ({tx},{ty},{tz}), lane {}", self.lane)?;
        }
        let note = self.note();
        if !note.is_empty() {
            write!(f, ": {note}")?;
        }
        write_place(f, &self.source)?;
        match self.ptx_line {
            0 => Ok(()),
            line => write!(f, "\n    PTX line {line}: {}", self.ptx_text.trim()),
        }
    }
}

/// What follows from a finding, of which a report shows so many lines.
const SHOWN: usize = 4;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity.name(), self.rule.name(), self.message())?;
        if self.count > 1 {
            let unit = if self.rule == Rule::Leak { "allocations" } else { "times" };
            write!(f, " ({} {unit})", self.count)?;
        }
        if !self.kernel.is_empty() {
            write!(f, "\n  in kernel `{}`", self.kernel)?;
        }
        self.sites.iter().try_for_each(|site| write!(f, "\n  {site}"))?;
        for also in self.also.iter().take(SHOWN) {
            write!(f, "\n  also {}: {}", also.rule.name(), also.message())?;
            if also.count > 1 {
                write!(f, " ({} times)", also.count)?;
            }
            let lines = also.lines();
            if !lines.is_empty() {
                write!(f, ", {}", lines.join(" and "))?;
            }
        }
        if self.also.len() > SHOWN {
            write!(f, "\n  and {} more places with the same cause", self.also.len() - SHOWN)?;
        }
        for (word, text) in [("memory", self.memory()), ("help", self.help())] {
            for (i, line) in text.lines().enumerate() {
                if i == 0 {
                    write!(f, "\n  {word}: {line}")?;
                } else {
                    write!(f, "\n    {line}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_line_stands_before_the_librarys() {
        let frame = |file: &str, line| Frame { file: file.into(), line, column: 0 };
        struct Shown(Vec<Frame>);
        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_place(f, &self.0)
            }
        }
        let chain = [
            frame("core/src/ptr.rs", 9),
            frame("/d/src/args.rs", 67),
            frame("/k/src/a.rs", 5),
            frame("/k/src/lib.rs", 1),
        ];
        let text = Shown(chain.to_vec()).to_string();
        assert_eq!(
            text,
            "\n    at /k/src/a.rs:5\n    inlined into /k/src/lib.rs:1\n    in /d/src/args.rs:67, in core/src/ptr.rs:9"
        );
        assert_eq!(Shown(Vec::new()).to_string(), "");
    }
}
