//! The executor: handlers for operations, and the machinery that runs warps and blocks.
//!
//! Code is an array of [`Op`]s; each carries a pointer to the *handler* that executes it for all
//! active lanes of a warp at once. Registers are rows of 32 lanes; operands are byte offsets of
//! rows. A handler writes only the lanes in [`Cx::active`].
//!
//! **Contract of handlers** (why they are `unsafe fn`): the caller guarantees that every row,
//! predicate, list and target that the `Op` names lies inside the current frame, the constant
//! pool, or the program. Lowering is the only maker of `Op`s and checks widths and ranges as it
//! makes them; addresses that a *program* computes are checked by the handlers themselves.

pub(crate) mod alloca;
pub(crate) mod arrival;
pub(crate) mod atom;
pub(crate) mod barrier;
pub(crate) mod block;
pub(crate) mod bounds;
pub(crate) mod bulk;
pub(crate) mod collective;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod cvt;
pub(crate) mod dot;
pub(crate) mod element;
pub(crate) mod exchange;
pub(crate) mod fill;
pub(crate) mod float;
pub(crate) mod format;
pub(crate) mod fragment;
pub(crate) mod frames;
pub(crate) mod half;
pub(crate) mod int;
pub(crate) mod lanes;
pub(crate) mod layout;
pub(crate) mod library;
pub(crate) mod limit;
pub(crate) mod local;
pub(crate) mod mbarrier;
pub(crate) mod mem;
pub(crate) mod mma;
pub(crate) mod permute;
pub(crate) mod power;
pub(crate) mod product;
pub(crate) mod progress;
pub(crate) mod publish;
pub(crate) mod remote;
pub(crate) mod rendezvous;
#[cfg(target_arch = "x86_64")]
pub(crate) mod scattered;
pub(crate) mod scheduler;
pub(crate) mod services;
pub(crate) mod soft;
pub(crate) mod space;
pub(crate) mod stack;
pub(crate) mod strong;
pub(crate) mod tensor;
pub(crate) mod truth;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vector;
pub(crate) mod video;
pub(crate) mod warp;
pub(crate) mod widen;
pub(crate) mod words;

pub use context::{Cx, Flow, Op, OpFn, RawFault, Site};
pub use layout::{CONST, LANES, PRED_CARRY, PRED_FIRST, PRED_SINK, PRED_TRUE, ROW, uniform};
