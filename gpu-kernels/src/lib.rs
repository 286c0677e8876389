//! The kernels of an LLM decode step, written in Rust
