//! Races under the PTX memory model: small kernels with one defect each, and their clean twins.
//!
//! What is a race follows from the PTX ISA 8.x, chapter "Memory Consistency Model" (8.10: release and acquire patterns,
//! synchronises-with, causality order; 8.7: morally strong operations), and from what `bar.sync`, `bar.warp.sync` and `.nc`
//! are defined to do.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../simt/tests/common/mod.rs"]
mod common;
mod frame;

mod block;
mod grid;
mod waits;
