//! Modules: PTX text that has been parsed, checked and lowered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use crate::approx::{self, Approximation};
use crate::program::Program;
use crate::ptx::{Diagnostic, ast};
use crate::source::{Frame, frames};

/// Why a module does not load: everything that is wrong, in text order.
#[derive(Clone, Debug)]
pub struct LoadError {
    /// The findings, at least one.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.diagnostics.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Name.
    pub name: String,
    /// Byte offset in the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// What is known of a kernel without running it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<ParamInfo>,
    /// Size of the parameter block.
    pub param_bytes: u32,
    /// `.maxntid`.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub min_blocks: Option<u32>,
    /// Bytes of statically declared shared memory that the kernel uses.
    pub static_shared: u32,
    /// Bytes of local memory that a thread needs, callees included.
    pub local_bytes: u32,
    /// 32-bit registers live at once: an estimate of what an assembler would allocate, at most 255 and `.maxnreg`.
    pub registers: u32,
    /// Bytes of the module's `.const` variables: they are in one bank, which every kernel of the module has.
    pub const_bytes: u32,
}

/// A loaded module; immutable.
pub struct Module {
    #[doc(hidden)]
    pub program: Program,
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) refused: BTreeMap<String, LoadError>,
    pub(crate) sm: u32,
    pub(crate) version: (u32, u32),
    pub(crate) files: BTreeMap<u32, String>,
    pub(crate) text: String,
    /// Where each line of the text starts, once somebody asks for one.
    pub(crate) line_starts: OnceLock<Vec<usize>>,
}

impl Module {
    /// The entries that the machine cannot execute, and why, by name.
    pub fn refused(&self) -> &BTreeMap<String, LoadError> {
        &self.refused
    }

    /// The entries that can run, in text order.
    pub fn kernels(&self) -> impl Iterator<Item = &KernelInfo> {
        self.kernels.iter()
    }

    /// The entry of that name.
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// The approximate instructions in a kernel and in what it calls: the machine's results may differ from a GPU's within
    /// the bounds.
    pub fn approximations(&self, kernel: &str) -> Vec<&'static Approximation> {
        let at = self.kernels.iter().position(|k| k.name == kernel);
        let set = at.and_then(|at| self.program.entries.get(at)).map_or(0, |entry| entry.approximate);
        approx::members(set).collect()
    }

    /// Whether a kernel lets the launch behind it begin only when it has waited for the one in front of it itself: all that was before that
    /// one is then complete when the launch behind begins.
    pub fn lets_behind_wait(&self, kernel: &str) -> bool {
        let at = self.kernels.iter().position(|k| k.name == kernel);
        at.and_then(|at| self.program.entries.get(at)).is_some_and(|entry| entry.lets_behind_wait)
    }

    /// The architecture in `.target`, e.g. 80.
    pub fn target_sm(&self) -> u32 {
        self.sm
    }

    /// `.version` as (major, minor).
    pub fn isa_version(&self) -> (u32, u32) {
        self.version
    }

    /// Where the lines of the text that have instructions are from: by line, the source places of its first instruction,
    /// innermost first. Lines without line information are left out.
    pub fn places(&self) -> BTreeMap<u32, Vec<Frame>> {
        let mut all = BTreeMap::new();
        for pc in 0..self.program.ops.len() {
            if let (line, Some(location)) = self.place(pc as u32) {
                all.entry(line).or_insert_with(|| self.frames(location));
            }
        }
        all
    }

    /// The line and the source location of a position in the code; 0 and `None` where there is none.
    pub(crate) fn place(&self, pc: u32) -> (u32, Option<&ast::Location>) {
        let program = &self.program;
        let debug = program.ops.get(pc as usize).and_then(|op| program.debug.get(op.debug as usize));
        let location = debug.and_then(|d| program.locations.get(d.location as usize));
        (debug.map_or(0, |d| d.line), location)
    }

    /// The text that it was loaded from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A line of the text, from 1; empty if there is none.
    pub fn line(&self, number: u32) -> &str {
        let starts = self.line_starts.get_or_init(|| {
            let behind = self.text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
            std::iter::once(0).chain(behind).collect()
        });
        let from = (number as usize).checked_sub(1).and_then(|n| starts.get(n));
        from.and_then(|&at| self.text.get(at..)).and_then(|rest| rest.lines().next()).unwrap_or("")
    }

    /// Source places of a location, innermost first.
    pub fn frames(&self, location: &ast::Location) -> Vec<Frame> {
        let file = |index: &u32| self.files.get(index).map_or("?", String::as_str);
        let mut frames = frames(file(&location.file), location);
        // LLVM's comments name the callers' files relative to the crate's workspace; the file table knows them in full.
        for frame in frames.iter_mut().skip(1) {
            let full = |path: &&String| path.strip_suffix(&frame.file).is_some_and(|rest| rest.ends_with('/'));
            if let Some(path) = self.files.values().find(full) {
                frame.file.clone_from(path);
            }
        }
        let call =
            |(at, line, column): &(u32, u32, u32)| Frame { file: file(at).to_string(), line: *line, column: *column };
        frames.extend(location.inlined.iter().map(call));
        frames
    }

    /// A source location in words.
    pub(crate) fn source(&self, location: &ast::Location) -> String {
        let file = self.files.get(&location.file).map_or("?", String::as_str);
        let place = format!("{file}:{}", location.line);
        match location.comment.trim().trim_start_matches('/').trim() {
            "" if location.inlined.is_empty() => place,
            "" => {
                let calls = self.frames(location).iter().skip(1).map(|f| format!(" @[ {f}")).collect::<String>();
                format!("{place} ({}{})", calls.trim_start(), " ]".repeat(location.inlined.len()))
            }
            chain => format!("{place} ({chain})"),
        }
    }
}
