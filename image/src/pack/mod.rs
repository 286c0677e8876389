//! The pack: a library's texts for all architectures, and machine code made of them, in one file that a program embeds.
//!
//! ```text
//! "WSPACK\0\x05"                       magic and version
//! u32 bytes, u32 raw bytes, u32 crc   of the index, little-endian
//! index                               JSON, in a zstd frame
//! frames                              zstd, one behind the other
//! ```
//!
//! The text of an architecture is its pieces in their order, and a module's those that belong to it. Pieces of one module
//! for all architectures are one group, since they hardly differ; what several modules have in common is another. Groups of kernels
//! whose names are neighbours are in one frame of some megabytes, since kernels of a family are alike in much; while someone iterates,
//! each is in a frame of its own. Registers and labels in a group are counted from those before (`pack/numbers.rs`), unless a text has what
//! looks like that. The line directives that were taken out of a group are in a part of another frame: they are asked for when a defect is
//! reported.
//!
//! ```text
//! items, then of each what it is and
//!   0, a place:  file, line, column, its call
//!   1, a call:   that of the function that it stands in, and the number of its site
//!   2, another:  bytes, and the directive as it stands
//! for each piece: directives, of each the lines since the one before, then of each its place
//! ```
//!
//! A call is named by how many calls of the group stand between it and there, and none by how many do in all. Places are counted from the one before, to
//! both sides by turns: 0, -1, 1, -2. The sites of calls, such as `src/lib.rs:42:21`, are a line each of a frame of their own.
//!
//! Numbers are LEB128. The CRC-32 of a frame is that of its content. While someone iterates, a frame says too what it was made of, and
//! the next build takes it over where that is wanted again ([`Effort::Fast`]).
//!
//! Machine code, where a build was asked for it, is a frame for each module of a text, behind those of texts.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

mod frames;
mod lines;
mod numbers;
mod read;
mod write;

pub use read::Pack;
pub use write::{Effort, Machine, Text, module_text, write};

const MAGIC: [u8; 8] = *b"WSPACK\0\x05";

/// What the file holds, but for the frames themselves.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    images: Vec<Image>,
    frames: Vec<Frame>,
    /// Where the text of each group is.
    texts: Vec<Part>,
    /// Where its line directives are.
    lines: Vec<Part>,
    /// The frame with the sites of calls.
    call_sites: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cubins: Vec<Cubins>,
}

/// Machine code for a target: a cubin of each module of one of the texts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cubins {
    /// What it is for, such as `sm_90a`.
    pub target: String,
    /// The architecture of the text that it was made of.
    pub sm: u32,
    /// The frame of each module.
    frames: Vec<usize>,
}

/// The code for an architecture.
#[derive(Debug, Serialize, Deserialize)]
pub struct Image {
    /// Architecture: 80 for `sm_80`.
    pub sm: u32,
    /// The kernels of each module.
    pub modules: Vec<Vec<String>>,
    pieces: Vec<Place>,
}

/// Where a piece is.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    /// The group of its text.
    group: usize,
    /// Its bytes among the text.
    at: usize,
    bytes: usize,
    /// Which one of the pieces of the group it is.
    nth: usize,
    /// The modules that it belongs to, if not to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modules: Option<BTreeSet<usize>>,
}

/// A part of a frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Part {
    frame: usize,
    at: usize,
    bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Frame {
    /// Behind the index.
    at: usize,
    bytes: usize,
    raw: usize,
    crc: u32,
    /// Whether its content is the relative form of its texts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    relative: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memo: Option<frames::Memo>,
}

/// Some lines of a text that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the text.
    pub bytes: Range<usize>,
    /// Lines of the text, from 0.
    pub lines: Range<usize>,
    /// The modules that it belongs to, by number; `None`: all.
    pub modules: Option<BTreeSet<usize>>,
}

/// A pack that cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// It cannot be written.
    #[error("packing the kernels: {0}")]
    Write(String),
    /// It is not as the builder wrote it.
    #[error("its pack is damaged: {0}. Build the crate that embeds it again")]
    Damaged(String),
}

fn refuse(error: &dyn std::fmt::Display) -> PackError {
    PackError::Write(error.to_string())
}

/// Writes a number as LEB128.
fn write_number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a number of LEB128 and moves behind it.
fn read_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0usize;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= usize::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
