//! Every kernel, compiled to PTX and run on the software machine, against the f64 references.
//!
//! Outputs are poisoned before a launch and have guards on both sides; inputs come from a generator
//! with a fixed seed; golden vectors come from `tests/vectors`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod argmax;
mod attention;
mod cases;
mod columns;
mod cost;
mod delta;
mod embed;
mod exact_prompts;
mod gemv;
mod half;
mod int8;
mod kv;
mod large;
mod machine;
mod manifest;
mod norm;
mod persistent;
mod planes;
mod prompts;
mod query_tiles;
mod rope;
mod sixteen;
mod step;
mod support;

/// Where the golden vectors are.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");
