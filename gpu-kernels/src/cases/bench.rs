//! What a case runs on.

use super::operation::UnknownSize;
use warpsmith_device::{DeviceSlice, Element, Launcher};

/// What a case runs on: device memory, and launches that have ended when the call returns.
pub trait Bench: Launcher<Error = String> {
    /// Device memory.
    type Buffer<T: Element>: std::ops::DerefMut<Target = DeviceSlice<T>>;
    /// A copy of `data` in device memory.
    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Self::Buffer<T>, String>;
    /// Memory for an output: an element that is not written must show as NaN, or as undefined.
    fn output<T: Element>(&mut self, len: usize) -> Result<Self::Buffer<T>, String>;
    /// The contents of a buffer, all of which must be defined.
    fn read<T: Element>(&mut self, buffer: &Self::Buffer<T>) -> Result<Vec<T>, String>;
}

/// Why a case fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A launch, or an operation on memory, failed.
    #[error("{0}")]
    Launch(String),
    /// A result is further from its reference than it may be.
    #[error("{0}")]
    Wrong(String),
    /// The case asks for a size that its operation does not have.
    #[error(transparent)]
    Size(#[from] UnknownSize),
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Launch(text)
    }
}
