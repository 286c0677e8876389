//! A SIMT machine: runs PTX on the CPU.
//!
//! The crate knows PTX and nothing of any CUDA API. It has three layers, used in this order:
//!
//! 1. [`Module::load`] parses PTX text ([`ptx`], a crate of its own) and lowers it to an executable form. Whatever the
//!    machine cannot execute is an error here, with its text and line; there are no wrong answers
//!    later.
//! 2. [`Machine`] owns one device's [`Memory`] and [instantiates](Machine::instantiate) modules:
//!    an [`Instance`] gives the module's variables their places in that memory.
//! 3. [`Machine::launch`] runs a kernel to its end and returns its [`Counters`], or the [`Fault`]
//!    that stopped it.
//!
//! Who wants to know more of a launch [watches](observer) it; the machine publishes what it does and knows nothing of what
//! observers look for.
//!
//! Execution is deterministic: blocks run in order of their index, or on several cores where the
//! result cannot differ. Lanes are scheduled independently, as on Volta and later.
//!
//! ```
//! use std::sync::Arc;
//! use warpsmith_simt::{Launch, LoadOptions, Machine, MachineConfig, Module};
//!
//! let ptx = r#"
//! .version 7.0
//! .target sm_80
//! .address_size 64
//! .visible .entry fill(.param .u64 p) {
//!     .reg .b32 %r<2>; .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [p];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd2, %r1, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     st.global.u32 [%rd3], %r1;
//!     ret;
//! }"#;
//! let module = Arc::new(Module::load(ptx, &LoadOptions { sm: 90 })?);
//! let machine = Machine::new(MachineConfig::default());
//! let instance = machine.instantiate(module)?;
//! let p = machine.memory().alloc(4 * 64, 256)?;
//! machine.launch(&instance, "fill", &Launch::new([1, 1, 1], [64, 1, 1]), &p.to_le_bytes())?;
//! let mut out = [0; 4];
//! machine.memory().read(p + 4 * 63, &mut out)?;
//! assert_eq!(u32::from_le_bytes(out), 63);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod approx;
mod counters;
#[doc(hidden)]
mod exec;
mod fault;
mod launch;
mod load;
mod lower;
#[doc(hidden)]
pub mod machine;
mod memory;
mod module;
#[doc(hidden)]
pub mod note;
pub mod observer;
#[doc(hidden)]
pub mod program;
#[doc(hidden)]
pub mod shadow;
mod source;
#[doc(hidden)]
pub mod testing;

pub use approx::{Approximation, BOUNDS_FROM, approximations};
pub use counters::Counters;
pub use exec::progress::StillRunning;
pub use fault::{
    AccessKind, BadAccess, BarrierDispute, Fault, FaultKind, LaunchRefusal, ObjectMisuse, Place, Problem, Reason,
    Stuck, Waiter, Waits,
};
pub use launch::{Ended, Instance, Launch, Machine, MachineConfig, Progress, Start, Waiting};
pub use load::LoadOptions;
pub use memory::{AllocationInfo, Interprocess, Memory, MemoryError, Nearest, Origin, POISON};
pub use module::{KernelInfo, LoadError, Module, ParamInfo};
pub use note::Class;
pub use source::Frame;
pub use warpsmith_ptx::{self as ptx, Diagnostic};
