//! Modules: PTX text that has been parsed, checked and lowered.

use std::fmt;

use crate::ptx::{self, Diagnostic};

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
    /// 32-bit registers live at once: an estimate of what an assembler would allocate, at most 255.
    pub registers: u32,
}

/// A loaded module; immutable.
pub struct Module {
    kernels: Vec<KernelInfo>,
    sm: u32,
    version: (u32, u32),
}

impl Module {
    /// Parses, checks and lowers PTX text.
    pub fn load(text: &str, options: &LoadOptions) -> Result<Module, LoadError> {
        let _ = options;
        let ast = ptx::parse(text).map_err(|diagnostics| LoadError { diagnostics })?;
        Ok(Module { kernels: Vec::new(), sm: ast.target.sm, version: ast.version })
    }

    /// The entries, in text order.
    pub fn kernels(&self) -> impl Iterator<Item = &KernelInfo> {
        self.kernels.iter()
    }

    /// The entry of that name.
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// The architecture in `.target`, e.g. 80.
    pub fn target_sm(&self) -> u32 {
        self.sm
    }

    /// `.version` as (major, minor).
    pub fn isa_version(&self) -> (u32, u32) {
        self.version
    }
}
