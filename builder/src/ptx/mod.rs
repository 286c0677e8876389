//! Passes over the PTX text: metadata against entries, launch bounds, shared memory, lints.
//!
//! The text is the code generator's (LLVM's or libNVVM's), so a wrong one is a fault of a kernel, of
//! the metadata or of the compiler, never of a user's input at run time. All findings of a text are
//! reported together. Nothing here panics, whatever the text.
//!
//! [`join`](mod@join) makes one text of those that the compiler writes for a crate, [`warpsmith_ptx::outline`] finds
//! declarations and bodies, [`meta`] reads the `// @kernel` lines, [`check`] compares the two and writes the launch bounds,
//! [`split`](mod@split) cuts what is checked into modules.

mod check;
mod join;
mod lines;
mod meta;
mod moves;
mod split;
#[cfg(test)]
mod tests;

use crate::arch::Arch;
use warpsmith_image::KernelEntry;
pub(crate) use warpsmith_image::pack::Piece;

pub(crate) use check::{check, keeps_local_memory};
pub(crate) use join::{join, unresolved};
pub(crate) use lines::{compact, strip};
pub(crate) use moves::without_moves;
pub(crate) use split::split;

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

/// A text that satisfies the rules.
#[derive(Debug)]
pub(crate) struct Checked {
    /// With launch bounds.
    pub(crate) text: String,
    pub(crate) isa: (u32, u32),
    /// By name.
    pub(crate) kernels: Vec<KernelEntry>,
    pub(crate) warnings: Vec<String>,
}
