//! Undefined data: kernels with one planted defect each, and their clean twins.
//!
//! What is a defect follows from the PTX ISA: "the contents of uninitialized variables/registers are undefined" (state
//! spaces), and from what a program can observe: copying undefined bytes around is harmless, deciding by them is not. The line of a
//! defect is marked in the text by `//!`, the load that brought the undefined bytes by `//?`.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../simt/tests/common/mod.rs"]
mod common;
mod frame;

mod copies;
mod decisions;
mod ways;
