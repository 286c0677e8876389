//! The cases of attention.

pub(crate) mod cache;
pub(crate) mod capped;
mod decode;
mod prefill;
mod step;

pub use cache::attend;
pub use capped::Capped;
pub use decode::{InOne, InThree};
pub use prefill::{ExactPrompts, Prompts, exact_kernel as prompt_kernel, kernel as prefill_kernel};
pub use step::{ColumnStores, StepArgs, StepOutputs, Steps, kernel as step_kernel};
