//! The PTX frontend: text to syntax tree.
//!
//! [`parse`] reads a module, resolves names and reports everything that is wrong with it at once;
//! [`isa::check`] says what the module's `.version` and `.target` do not allow, in `ptxas`' words.
//! Neither decides what an instruction means, nor whether it exists: lowering does.
//!
//! Contract: no input makes the frontend panic, recurse without bound, or allocate more than a
//! constant factor of the input's size. Register ranges such as `%r<4000000000>` cost nothing;
//! only registers that are used get an entry.
//!
//! ```
//! let module = warpsmith_ptx::parse(
//!     ".version 7.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }",
//! )
//! .unwrap();
//! assert_eq!(module.functions[0].name, "k");
//! ```

mod approximate;
pub mod ast;
mod constants;
mod diagnostics;
pub mod isa;
mod lexer;
mod link;
pub mod outline;
mod parser;
pub mod pragma;
mod tune;

pub use constants::{KnownBytes, with_constants};
pub use diagnostics::Diagnostic;
pub use link::{Input, Linked, link};
pub use outline::{outline, outline_by_parts};
pub use tune::Tuning;

/// Parses a PTX module.
///
/// # Errors
///
/// Every error found, in text order, at most [`MAX_DIAGNOSTICS`] of them.
pub fn parse(text: &str) -> Result<ast::Module, Vec<Diagnostic>> {
    parser::parse(text)
}

/// No more than this many errors are reported for one module.
pub const MAX_DIAGNOSTICS: usize = 100;
