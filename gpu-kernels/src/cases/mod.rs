//! Cases: each kernel in the shapes that it has to get right, with the f64 reference that says what right is.
//!
//! Tests and `warpsmith check` go through the same list. A case is an [`Operation`], a kernel or a chain of them, and a shape;
//! what it runs on is a [`Bench`]. Inputs come from a generator that the shape seeds, so a case gives the same bits every time.
//!
//! Here is only what all cases share. Which operations there are, [the list](crate::list) says; the cases of each stand beside
//! its kernels.

mod bench;
mod compare;
mod data;
mod operation;

pub use crate::attention::cases::{StepArgs, StepOutputs, attend};
pub use crate::gemv::cases::{Inputs, Outputs, Product, multiply};
pub use crate::list::{Case, Subject, all};
pub use bench::{Bench, Failure};
pub use compare::{Outcome, close, refused, same};
pub use data::{Rng, Tensor, make_sized, make_sound, set_scale};
pub use operation::{BYTES, Listed, Measured, NamedSizes, Operation, Plain, Shape, UnknownSize, why};
