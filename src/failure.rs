//! Why a command ends, and the exit code that says so.

use std::path::Path;
use std::process::ExitCode;

use warpsmith_host::Error;
use warpsmith_host::decode::DecodeError;

/// What the exit code tells a script. `warpsmith --help` documents the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command line makes no sense.
    Usage = 2,
    /// A driver call, a launch or a file operation failed.
    Operation = 1,
    /// The model or the prompt cannot be used.
    Input = 3,
    /// The engine that was asked for is absent.
    NoEngine = 4,
    /// The result differs from the CPU reference.
    Verification = 5,
    /// `doctor` found something that stops builds or runs, a tool of NVIDIA's is missing, or ptxas refused a kernel.
    Toolchain = 6,
    /// `check` found errors.
    Findings = 7,
    /// A kernel is over its budget.
    Budget = 8,
}

/// A message and its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { code: kind as u8, message: message.into() }
    }

    /// The model or the prompt cannot be used.
    pub fn input(error: impl std::fmt::Display) -> Self {
        Self::new(Kind::Input, error.to_string())
    }

    /// The command line makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A program that the command ran has ended with this code.
    pub fn program(code: u8, name: &str) -> Self {
        Self { code, message: format!("{name} ended with exit code {code}") }
    }

    /// A file cannot be written.
    pub fn write(path: &Path, error: &std::io::Error) -> Self {
        Self::new(Kind::Operation, format!("cannot write {}: {error}", path.display()))
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: Kind) -> bool {
        self.code == kind as u8
    }

    /// The code that the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = if matches!(error, Error::NoEngine { .. }) { Kind::NoEngine } else { Kind::Operation };
        Self::new(kind, error.to_string())
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Runtime(error) => error.into(),
            DecodeError::Capture { .. }
            | DecodeError::GraphNodes { .. }
            | DecodeError::Memory { .. }
            | DecodeError::Rank { .. }
            | DecodeError::Collective(_) => Self::new(Kind::Operation, error.to_string()),
            _ => Self::input(error),
        }
    }
}
