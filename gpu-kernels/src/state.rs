//! The device cell that a decode step reads: what changes from token to token.
//!
//! `state` is u32 `[token, position]` in device memory. Kernels read it when they run, so a captured
//! graph stays valid for every token: write the cell, replay.

/// Index of the token that is fed.
pub const TOKEN: usize = 0;
/// Index of the token's position, which is the number of tokens before it.
pub const POSITION: usize = 1;
/// Words of the cell.
pub const WORDS: usize = 2;
