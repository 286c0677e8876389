//! ISA gating.
use super::{Diagnostic, ast};
/// Checks.
pub fn check(_module: &ast::Module) -> Vec<Diagnostic> { Vec::new() }
