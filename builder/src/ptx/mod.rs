//! Passes over the PTX text: metadata against entries, launch bounds, shared memory, lints.
//!
//! The text is the code generator's (LLVM's or libNVVM's), so a wrong one is a fault of a kernel, of
//! the metadata or of the compiler, never of a user's input at run time. All findings of a text are
//! reported together. Nothing here panics, whatever the text.
//!
//! [`join`](mod@join) makes one text of those that the compiler writes for a crate, [`warpsmith_ptx::outline`] finds
//! declarations and bodies, [`meta`] reads the `// @kernel` lines, [`check`] compares the two and says which launch bounds are missing,
//! [`registers`] numbers registers as they come, [`split`](mod@split) cuts the text into modules, and [`complete`](mod@complete) does all of it with one outline.

mod check;
mod complete;
mod join;
mod lines;
mod meta;
mod moves;
mod registers;
mod split;
#[cfg(test)]
mod tests;

use crate::arch::Arch;
use std::collections::BTreeSet;
use warpsmith_image::map_in_threads;
use warpsmith_ptx::outline::{Outline, outline_by_parts};

pub(crate) use check::keeps_local_memory;
pub(crate) use complete::{Complete, complete};
pub(crate) use join::{join, unresolved};
pub(crate) use lines::compact;
pub(crate) use moves::without_moves;

/// Bytes of a text that are worth a thread's turn.
const PART: usize = 1 << 18;

/// The outline of a text of a whole crate.
fn outline(text: &str) -> Outline<'_> {
    outline_by_parts(text, PART, |parts| map_in_threads(parts, |part| warpsmith_ptx::outline(part)))
}

/// The kernels of a text, by what declares them.
pub(crate) fn entries(text: &str) -> BTreeSet<String> {
    const ENTRY: &str = ".entry ";
    let name = |at: usize| {
        let rest = text.get(at + ENTRY.len()..).unwrap_or_default();
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).next().unwrap_or_default().to_owned()
    };
    memchr::memmem::find_iter(text.as_bytes(), ENTRY).map(name).collect()
}

/// What a text must satisfy.
pub(crate) struct Rules<'a> {
    pub(crate) arch: Arch,
    /// What `.version` must say; `None`: anything.
    pub(crate) isa: Option<(u32, u32)>,
    /// Kernels that may use local memory although their metadata does not say so.
    pub(crate) allow_local: &'a [String],
    /// Whether local memory is refused in all others, or told.
    pub(crate) refuse_local: bool,
}
