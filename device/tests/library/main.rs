//! The newer parts of the device library, each run on the SIMT machine under every check, from the PTX of each
//! architecture, and compared with what the CPU computes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

#[path = "../fixtures/all-device/src/lib.rs"]
#[allow(dead_code)]
mod all_device;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/gpu.rs"]
mod gpu;

mod atomics;
mod elementary;
mod examples;
mod generic;
mod grids;
mod matrices;
mod memory;
mod narrow;
mod nvvm;
mod pipelines;
mod printing;
mod tiles;
