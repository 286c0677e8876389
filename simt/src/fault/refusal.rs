//! Why a launch does not begin.

use std::fmt;

use serde::{Deserialize, Serialize};
use warpsmith_arch::{MAX_BLOCK, MAX_GRID, MAX_LOCAL, MAX_THREADS};

/// What is wrong with a launch that nothing ran of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LaunchRefusal {
    /// The module has no such kernel.
    NoKernel,
    /// A dimension is 0.
    Empty {
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
    },
    /// More blocks than a grid can have.
    Grid {
        /// Blocks.
        grid: [u32; 3],
    },
    /// More threads than a block can have.
    Block {
        /// Threads of a block.
        block: [u32; 3],
    },
    /// More threads than the kernel was compiled for.
    MaxThreads {
        /// Threads of a block.
        threads: u64,
        /// The most.
        most: u64,
    },
    /// Another block than the one that the kernel was compiled for.
    RequiredThreads {
        /// Threads of a block.
        block: [u32; 3],
        /// Those that it needs.
        required: [u32; 3],
    },
    /// More dynamic shared memory than is allowed for the kernel.
    Dynamic {
        /// The bytes.
        bytes: u32,
        /// Those that are allowed.
        allowed: u32,
    },
    /// More shared memory than a block can have.
    Shared {
        /// The bytes.
        bytes: u32,
        /// The most.
        most: u32,
        /// The architecture.
        sm: u32,
    },
    /// More local memory than a thread can have.
    Local {
        /// The bytes.
        bytes: u32,
    },
    /// Fewer parameters than the kernel takes.
    Parameters {
        /// Their bytes.
        bytes: u64,
        /// Those that it takes.
        takes: u32,
    },
    /// There is no room for the workspace of a cooperative launch.
    Workspace,
}

impl fmt::Display for LaunchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = |[x, y, z]: [u32; 3]| format!("{x}×{y}×{z}");
        match *self {
            LaunchRefusal::NoKernel => f.write_str("the module has no such kernel"),
            LaunchRefusal::Empty { grid, block } => {
                write!(f, "grid {} of blocks {}: no dimension may be 0", sizes(grid), sizes(block))
            }
            LaunchRefusal::Grid { grid } => write!(f, "grid {}: the most is {}", sizes(grid), sizes(MAX_GRID)),
            LaunchRefusal::Block { block } => {
                write!(f, "block {}: the most is {MAX_THREADS} threads in {}", sizes(block), sizes(MAX_BLOCK))
            }
            LaunchRefusal::MaxThreads { threads, most } => {
                write!(f, "block of {threads} threads, but the kernel was compiled for at most {most} (.maxntid)")
            }
            LaunchRefusal::RequiredThreads { block, required } => {
                write!(f, "block {}, but the kernel requires {} (.reqntid)", sizes(block), sizes(required))
            }
            LaunchRefusal::Dynamic { bytes, allowed } => write!(
                f,
                "{bytes} bytes of dynamic shared memory, but {allowed} are allowed (raise the kernel's maximum dynamic \
                 shared size)"
            ),
            LaunchRefusal::Shared { bytes, most, sm } => {
                write!(f, "{bytes} bytes of shared memory, but a block has at most {most} on sm_{sm}")
            }
            LaunchRefusal::Local { bytes } => {
                write!(f, "{bytes} bytes of local memory, but a thread has at most {MAX_LOCAL}")
            }
            LaunchRefusal::Parameters { bytes, takes } => {
                write!(f, "{bytes} bytes of parameters, but the kernel takes {takes}")
            }
            LaunchRefusal::Workspace => f.write_str("there is no room for the workspace of a cooperative launch"),
        }
    }
}
