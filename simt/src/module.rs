//! Modules: PTX text that has been parsed, checked and lowered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use crate::approx::{self, Approximation};
use crate::lower;
use crate::program::Program;
use crate::ptx::ast::{self, Pos};
use crate::ptx::{self, Diagnostic};
use crate::source::{Frame, frames};

/// What the text is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Architecture of the device, e.g. 90.
    pub sm: u32,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { sm: 90 }
    }
}

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
    kernels: Vec<KernelInfo>,
    refused: BTreeMap<String, LoadError>,
    sm: u32,
    version: (u32, u32),
    files: BTreeMap<u32, String>,
    text: String,
    /// Where each line of the text starts, once somebody asks for one.
    line_starts: OnceLock<Vec<usize>>,
}

impl Module {
    /// Parses, checks and lowers PTX text.
    ///
    /// # Errors
    /// Everything that `ptxas` would refuse and is checked here, and everything that the machine cannot
    /// execute, with its line.
    pub fn load(text: &str, options: &LoadOptions) -> Result<Module, LoadError> {
        let module = Module::load_entries(text, options)?;
        if module.refused.is_empty() {
            return Ok(module);
        }
        // What several entries reach is said once.
        let mut all: Vec<Diagnostic> = module.refused.into_values().flat_map(|e| e.diagnostics).collect();
        all.sort_by(|a, b| (a.pos, &a.message).cmp(&(b.pos, &b.message)));
        all.dedup_by(|a, b| (a.pos, &a.message) == (b.pos, &b.message));
        all.truncate(ptx::MAX_DIAGNOSTICS);
        Err(LoadError { diagnostics: all })
    }

    /// As [`load`](Module::load), but what the machine cannot execute costs only the entries that reach it, as
    /// [`refused`](Module::refused) tells; so does a GPU's loader take a module whose other entries are never used.
    ///
    /// # Errors
    /// Everything that `ptxas` would refuse and is checked here, with its line.
    pub fn load_entries(text: &str, options: &LoadOptions) -> Result<Module, LoadError> {
        let error = |mut diagnostics: Vec<Diagnostic>| {
            diagnostics.sort_by_key(|d| d.pos);
            diagnostics.truncate(ptx::MAX_DIAGNOSTICS);
            Diagnostic::attach_text(&mut diagnostics, text);
            LoadError { diagnostics }
        };
        let ast = ptx::parse(text).map_err(|diagnostics| LoadError { diagnostics })?;
        let mut found = ptx::isa::check(&ast);
        found.extend(target(&ast, options.sm));
        let lowered = lower::lower(&ast, options.sm);
        if !found.is_empty() {
            let errors = match lowered {
                Ok(lowered) => lowered.refused.into_iter().flat_map(|(_, reasons)| reasons).collect(),
                Err(errors) => errors,
            };
            // One finding per place: what the ISA forbids need not be called unsupported as well.
            let mut known: std::collections::HashSet<Pos> = found.iter().map(|d| d.pos).collect();
            found.extend(errors.into_iter().filter(|d| d.pos.line == 0 || known.insert(d.pos)));
            return Err(error(found));
        }
        let lower::Lowered { program, kernels, refused } = lowered.map_err(error)?;
        let refused = refused.into_iter().map(|(name, reasons)| (name, error(reasons))).collect();
        let ast::Module { version, files, .. } = ast;
        Ok(Module {
            program,
            kernels,
            refused,
            sm: ast.target.sm,
            version,
            files,
            text: text.to_string(),
            line_starts: OnceLock::new(),
        })
    }

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
        for op in &self.program.ops {
            let debug = self.program.debug.get(op.debug as usize).copied().unwrap_or_default();
            if let Some(location) = self.program.locations.get(debug.location as usize) {
                all.entry(debug.line).or_insert_with(|| self.frames(location));
            }
        }
        all
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

/// Whether code for the module's target runs on the device.
fn target(module: &ast::Module, sm: u32) -> Option<Diagnostic> {
    let target = module.target.sm;
    let message = match module.target.suffix {
        _ if target > sm => {
            format!(
                "the module's .target is sm_{target}, newer than the device (sm_{sm}): compile for sm_{sm} or lower"
            )
        }
        Some('a') if target != sm => {
            format!("the module's .target is sm_{target}a, which runs on sm_{target} only, and the device is sm_{sm}")
        }
        Some('f') if target / 10 != sm / 10 => {
            format!("the module's .target is sm_{target}f, of another family than the device (sm_{sm})")
        }
        _ => return None,
    };
    Some(Diagnostic::new(Pos::default(), message))
}
