//! Errors of loading weights and of decoding.

use super::KvType;
use crate::model::ModelError;
use gpu_kernels::format::FormatError;
use std::fmt;
use warpsmith_runtime::Error;

/// Why a model cannot be loaded or a token cannot be fed.
///
/// A sequence whose call failed is as it was before the call: the same length, the same cached
/// positions. It can go on, unless the text says that the device is lost.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The runtime or the driver.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// The model file.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model file cannot be read any more, as a result is compared with the reference.
    #[error("{problem}")]
    Reference {
        /// What the file says.
        problem: String,
    },
    /// A tensor's bytes.
    #[error("tensor `{tensor}`: {source}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// More device memory than is free, found before anything was allocated.
    #[error("{what} needs {needed} bytes of device memory ({parts}), but {free} of {total} are free\nhint: {hint}")]
    Memory {
        /// The weights or a sequence.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// What they are for.
        parts: String,
        /// Bytes free.
        free: u64,
        /// Bytes of the device.
        total: u64,
        /// What to change.
        hint: &'static str,
    },
    /// A size that no kernel argument can hold.
    #[error("{what} is {size}, more than kernels can address ({limit})")]
    Size {
        /// Which size.
        what: String,
        /// Its value.
        size: u64,
        /// The greatest that is possible.
        limit: u64,
    },
    /// A cache for more positions than the model was made for, or for none.
    #[error("a context of {capacity} positions was asked for; the model allows 1 to {most}")]
    Capacity {
        /// Positions asked for.
        capacity: usize,
        /// `context_length` of the model.
        most: usize,
    },
    /// A smaller cache than what is in use.
    #[error("the sequence has {length} positions, which a context of {capacity} cannot hold; roll back first")]
    CapacityInUse {
        /// Positions asked for.
        capacity: usize,
        /// Positions in use.
        length: usize,
    },
    /// A token that the model does not have.
    #[error("token {token} (number {index} of the input) is not in the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Its place in the input, from 0.
        index: usize,
        /// Number of tokens.
        vocab: usize,
    },
    /// No token was given where at least one is needed.
    #[error("the prompt is empty: there is nothing to predict from")]
    EmptyPrompt,
    /// More tokens than the cache has room for; none of them was fed.
    #[error(
        "{tokens} tokens do not fit: {length} of {capacity} positions are in use\nhint: roll back, reset, or make the context larger (the model allows {most})"
    )]
    ContextFull {
        /// Tokens in the input.
        tokens: usize,
        /// Positions in use.
        length: usize,
        /// Positions of the cache.
        capacity: usize,
        /// `context_length` of the model.
        most: usize,
    },
    /// A rollback to a position that was not reached.
    #[error("cannot roll back to {to} positions: the sequence has {length}")]
    Rollback {
        /// Positions asked for.
        to: usize,
        /// Positions there are.
        length: usize,
    },
    /// A rollback to a position whose window has left the pool.
    #[error(
        "cannot roll back to {to} positions: the pages before position {first} were given back, as no layer looked that far back any more"
    )]
    GivenBack {
        /// Positions asked for.
        to: usize,
        /// The first position that is still there.
        first: usize,
    },
    /// Sizes of a pool that there cannot be.
    #[error(
        "a pool of {positions} positions in pages of {page}: there is at least one, and a page has a multiple of 16, up to 65536"
    )]
    Pages {
        /// Positions asked for.
        positions: usize,
        /// Positions of a page.
        page: usize,
    },
    /// A pool has no page left, and no sequence has lost any.
    #[error(
        "the pool is full: {needed} pages of {page} positions are needed, and {available} of {pages} are available\nhint: drop or roll back a sequence, or make a larger pool"
    )]
    PoolFull {
        /// Pages that are needed at once.
        needed: usize,
        /// Pages that are free, or kept for nobody.
        available: usize,
        /// Pages of the pool.
        pages: usize,
        /// Positions of a page.
        page: usize,
    },
    /// A sequence in a pool of another model or cache type.
    #[error("the sequence does not belong in this pool: {reason}")]
    OtherPool {
        /// What differs.
        reason: String,
    },
    /// A snapshot of another model, cache type or size.
    #[error("the snapshot does not fit this sequence: {reason}")]
    Snapshot {
        /// What differs.
        reason: String,
    },
    /// Logits were asked for, but the last step computed none.
    #[error("there are no logits: feed a token first (after a reset, rollback or failed call there are none)")]
    NoLogits,
    /// Every logit is NaN.
    #[error(
        "all logits at position {position} (sequence {place} of the step) are NaN or not allowed; the weights or an earlier value overflowed, or no allowed token is left"
    )]
    NotANumber {
        /// The position that was fed.
        position: usize,
        /// The place of the sequence in the step.
        place: usize,
    },
    /// More columns than a decoder has, or none.
    #[error("{what}: {given}; 1 to {most} are possible")]
    Batch {
        /// What was counted.
        what: &'static str,
        /// How many were asked for.
        given: usize,
        /// The most that there can be.
        most: usize,
    },
    /// A number that no token can be chosen by.
    #[error("{what} is {value}; expected {expected}")]
    Sampling {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f32,
        /// What would do.
        expected: &'static str,
    },
    /// A sequence of another loaded model than the decoder's.
    #[error("the sequence belongs to another loaded model than the decoder")]
    OtherModel,
    /// Sequences in one step that store keys and values differently.
    #[error(
        "the sequences of a step must have one cache type, but there are {first} and {other}; feed them in steps of their own"
    )]
    MixedCaches {
        /// That of the first.
        first: KvType,
        /// Another.
        other: KvType,
    },
    /// No device, or one that is named twice.
    #[error("a model over devices {ordinals:?}: one device or several different ones are needed")]
    Devices {
        /// What was given.
        ordinals: Vec<u32>,
    },
    /// What runs on one device alone.
    #[error("not over several devices: {what}; this model is on {devices}")]
    OneDevice {
        /// What was asked for.
        what: &'static str,
        /// How many devices the model is on.
        devices: usize,
    },
    /// A second decoder of a model that processes run together.
    #[error("the model has a decoder already: where several processes run a model, it has one at a time")]
    OneDecoder,
    /// What this process does not have of a model that several run.
    #[error("{what}: rank {rank} of {ranks} does not have them; {hint}")]
    Elsewhere {
        /// What was asked for.
        what: &'static str,
        /// This process's rank.
        rank: usize,
        /// How many there are.
        ranks: usize,
        /// Who has them.
        hint: &'static str,
    },
    /// Processes that run a model together and differ in what they have to have in common.
    #[error("rank {rank} has {what} than rank {other}: all processes have to have the same")]
    Disagree {
        /// This process's rank.
        rank: usize,
        /// The first that differs.
        other: usize,
        /// In what.
        what: &'static str,
    },
    /// One of several devices that run a model together failed. What the others had queued was ended.
    #[error("rank {rank} (device {device}): {source}")]
    Rank {
        /// Its place among the model's devices.
        rank: usize,
        /// Its number.
        device: u32,
        /// What it says.
        source: Error,
    },
    /// Ranks that wait for each other.
    #[error(transparent)]
    Collective(#[from] warpsmith_collectives::Error),
    /// The step could not be captured; nothing was run.
    #[error(
        "the decode step could not be captured as a graph (nothing was run): {source}\nhint: Mode::Eager runs the same launches without a graph"
    )]
    Capture {
        /// What the runtime said.
        source: Error,
    },
    /// A captured graph lacks launches, or has others.
    #[error("the captured graph has {nodes} nodes, but an eager step makes {launches} launches: it is not used")]
    GraphNodes {
        /// Nodes of the graph.
        nodes: usize,
        /// Launches of the same step run eagerly.
        launches: usize,
    },
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
