//! What a launch is given.

use std::sync::Arc;

use crate::module::Module;
use crate::observer::Observer;
use crate::program::Grid;

/// Geometry of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The most dynamic shared memory that the kernel has opted in to; 0 means what fits into 48 KiB.
    pub max_dynamic_shared: u32,
    /// All blocks run at once and may wait for each other: kernels find a workspace for that by `%envreg1` and `%envreg2`, as
    /// cooperative groups do.
    pub cooperative: bool,
}

impl Launch {
    /// A launch without dynamic shared memory.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Launch {
        Launch { grid, block, dynamic_shared: 0, max_dynamic_shared: 0, cooperative: false }
    }
}

/// What is to be launched.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The kernel.
    pub kernel: &'a str,
    /// Its geometry.
    pub launch: &'a Launch,
    /// The parameter block.
    pub params: &'a [u8],
    /// Makes who watches it.
    pub watch: Option<Watch<'a>>,
    /// Shuffles the order of blocks, warps and lanes; 0 is the reference order.
    pub seed: u64,
    /// Instructions that one block may execute, 0 for no limit; `None`: as the machine's configuration says.
    pub instruction_limit: Option<u64>,
    /// Runs only so many blocks, the first in the reference order, and leaves the others out; `None` runs all. For counting what
    /// blocks do that all do the same.
    pub first_blocks: Option<u64>,
}

impl<'a> Start<'a> {
    /// A launch that nobody watches.
    pub fn new(kernel: &'a str, launch: &'a Launch, params: &'a [u8]) -> Start<'a> {
        Start { kernel, launch, params, watch: None, seed: 0, instruction_limit: None, first_blocks: None }
    }
}

/// Makes the observer of a launch that is about to begin.
pub type Watch<'a> = &'a dyn Fn(&Launching<'_>) -> Box<dyn Observer>;

/// A launch that is about to begin.
pub struct Launching<'a> {
    /// The kernel's module.
    pub module: &'a Arc<Module>,
    /// The kernel.
    pub kernel: &'a str,
    /// What its blocks have in common.
    #[doc(hidden)]
    pub grid: &'a Grid<'a>,
    /// Address of each of the module's global variables, in the order of its program.
    pub globals: &'a [u64],
}
