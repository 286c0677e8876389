//! What CUDA allows: calls and work while a stream captures, and launches of a kernel.

pub(crate) mod capture;
pub(crate) mod limits;
