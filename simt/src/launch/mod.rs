//! The machine: instantiates modules and runs kernels.
//!
//! **Order of blocks.** The reference is: blocks run one after the other, in order of their linear
//! index. A kernel without anything by which blocks could communicate in an order (outside shared memory no volatile,
//! relaxed, acquiring or releasing accesses, no fences beyond the block, no atomics but relaxed integer reductions of one
//! kind whose results nobody reads: those commute) runs on several cores, with the same result; of several faults the one
//! of the lowest block is reported, as in serial order. Blocks of other kernels run beside each other until they come to the first such
//! thing, and wait there for those before them to end (`ordered`). Kernels that print, allocate, or may wait for other blocks in a
//! loop run serially. All of that is bit-identical for every
//! kernel whose blocks do not race; one machine thread (`MachineConfig::threads` = 1) makes it so for those that do. If the
//! current block only spins, it waits for another: then the next block starts beside it, as blocks on a GPU are resident
//! together.

mod flight;
mod machine;
mod ordered;
mod prepare;
mod report;
mod run;
mod start;

pub use flight::{Ended, Progress, Waiting};
pub use machine::{Instance, Machine, MachineConfig};
pub use start::{Launch, Launching, Start, Watch};
