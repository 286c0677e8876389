//! Loading: from PTX text to a module.

use std::sync::OnceLock;

use crate::lower;
use crate::module::{LoadError, Module};
use crate::ptx::ast::{self, Pos};
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
        let lower::LoweredModule { program, kernels, refused } = lowered.map_err(error)?;
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
