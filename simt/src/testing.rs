//! Switches for tests.

pub use crate::exec::lanes::{Vectors, limit_vectors};
