//! How many blocks, threads and bytes of shared memory a launch takes.

use super::{ArgSink, Confined, Contract, ContractError, Kernel, KernelMeta, contract};

/// The shape of a launch. Numbers that do not fit saturate, and [`Geometry::check`] refuses them:
/// a launch that is too large is an error, never a smaller launch.
///
/// ```
/// use warpsmith_device::Geometry;
/// let rows = 4097usize;
/// let g = Geometry::blocks(rows.div_ceil(8)).shared(1024);
/// assert_eq!((g.grid, g.block, g.dynamic_shared), ([513, 1, 1], None, 1024));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Geometry {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block; `None` takes the block of the kernel's attribute.
    pub block: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// When its blocks start.
    pub start: Start,
}

/// When the blocks of a launch start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// Behind everything before it on the stream, as many at a time as fit.
    #[default]
    Ordered,
    /// All at the same time, so that they can wait for one another: [`Geometry::cooperative`].
    Cooperative,
    /// While the launch before it ends: [`Geometry::programmatic`].
    Programmatic,
}

fn saturate(n: impl TryInto<u64>) -> u32 {
    n.try_into().ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX)
}

impl Geometry {
    /// Blocks that every GPU takes in x, y and z.
    pub const MAX_GRID: [u32; 3] = warpsmith_arch::MAX_GRID;
    /// Threads that every GPU takes in x, y and z of a block; 1024 in all.
    pub const MAX_BLOCK: [u32; 3] = warpsmith_arch::MAX_BLOCK;
    /// Threads of a block in all.
    pub const MAX_THREADS: u32 = warpsmith_arch::MAX_THREADS;

    /// `n` blocks in x.
    pub fn blocks(n: impl TryInto<u64>) -> Geometry {
        Geometry { grid: [saturate(n), 1, 1], block: None, dynamic_shared: 0, start: Start::Ordered }
    }

    /// A grid of up to three dimensions.
    pub fn grid(x: impl TryInto<u64>, y: impl TryInto<u64>, z: impl TryInto<u64>) -> Geometry {
        Geometry {
            grid: [saturate(x), saturate(y), saturate(z)],
            block: None,
            dynamic_shared: 0,
            start: Start::Ordered,
        }
    }

    /// The same with `bytes` of dynamic shared memory.
    #[must_use]
    pub fn shared(mut self, bytes: impl TryInto<u64>) -> Geometry {
        self.dynamic_shared = saturate(bytes);
        self
    }

    /// The same with other blocks than the attribute's; not more threads than it names.
    #[must_use]
    pub fn block(mut self, block: [u32; 3]) -> Geometry {
        self.block = Some(block);
        self
    }

    /// The same with all blocks on the GPU at the same time (`cuLaunchCooperativeKernel`), which a kernel with
    /// `grid::sync` needs. More blocks than fit are an error of the launch; the host's `Device::resident_blocks` says how many
    /// do.
    ///
    /// ```
    /// use warpsmith_device::{Geometry, launch::Start};
    /// assert_eq!(Geometry::blocks(132u32).cooperative().start, Start::Cooperative);
    /// ```
    #[must_use]
    pub fn cooperative(mut self) -> Geometry {
        self.start = Start::Cooperative;
        self
    }

    /// The same with blocks that start as soon as those of the launch before it on the stream let them, by
    /// `grid::launch_dependents` or by ending (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`): what it takes to
    /// start, and work that does not depend on that launch, costs no time of its own.
    ///
    /// The kernel calls `grid::wait_dependencies` before it touches what earlier launches wrote, or writes what they touch; what
    /// it reads of them is an `Awaited`. A kernel whose code never waits is refused. Before sm_90, with code for before sm_90,
    /// and as a node of a graph builder, it is an ordinary launch, with the same results.
    ///
    /// ```
    /// use warpsmith_device::{Geometry, launch::Start};
    /// assert_eq!(Geometry::blocks(132u32).programmatic().start, Start::Programmatic);
    /// ```
    #[must_use]
    pub fn programmatic(mut self) -> Geometry {
        self.start = Start::Programmatic;
        self
    }

    /// Threads of a block in x, y and z for the kernel of `meta`.
    pub fn block_for(&self, meta: &KernelMeta) -> [u32; 3] {
        self.block.unwrap_or(meta.block)
    }

    /// Whether any GPU could run it: no dimension is zero, none is over its limit, and the block
    /// has no more threads than the kernel was compiled for.
    pub fn check(&self, meta: &'static KernelMeta) -> Result<(), ContractError> {
        let block = self.block_for(meta);
        let fits = |v: [u32; 3], max: [u32; 3]| (0..3).all(|i| v[i] >= 1 && v[i] <= max[i]);
        contract::require(
            meta,
            fits(self.grid, Self::MAX_GRID),
            "grid",
            format_args!("1 to {:?} blocks", Self::MAX_GRID),
            format_args!("{:?}", self.grid),
        )?;
        contract::require(
            meta,
            fits(block, Self::MAX_BLOCK),
            "block",
            format_args!("1 to {:?} threads", Self::MAX_BLOCK),
            format_args!("{block:?}"),
        )?;
        let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
        let bound = u64::from(meta.threads());
        contract::require(
            meta,
            threads <= bound,
            "block",
            format_args!("at most {bound} threads (the kernel is compiled for {:?})", meta.block),
            format_args!("{block:?}, which is {threads}"),
        )
    }
}

/// A launch as its contract has it, but [programmatic](Geometry::programmatic).
///
/// ```
/// use warpsmith_device::{Contract, Geometry, Programmatic, launch::Start};
/// fn starts<K: Contract>(kernel: K) -> Start {
///     // SAFETY: nothing is launched.
///     unsafe { Programmatic::new(kernel) }.geometry().start
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Programmatic<K>(K);

impl<K> Programmatic<K> {
    /// Lets `kernel` begin while the launch before it ends.
    ///
    /// # Safety
    /// Wherever it is launched, what its `In` arguments refer to was written before the launch before it began: it may read
    /// them before it waits. What it reads of that launch is an `Awaited`.
    pub const unsafe fn new(kernel: K) -> Programmatic<K> {
        Programmatic(kernel)
    }
}

// SAFETY: the kernel's own metadata and arguments.
unsafe impl<K: Kernel> Kernel for Programmatic<K> {
    const META: &'static KernelMeta = K::META;
    fn args(&self, sink: &mut dyn ArgSink) {
        self.0.args(sink);
    }
}

// SAFETY: the kernel's own arguments and code.
unsafe impl<K: Confined> Confined for Programmatic<K> {}

impl<K: Contract> Contract for Programmatic<K> {
    fn geometry(&self) -> Geometry {
        self.0.geometry().programmatic()
    }
    fn check(&self) -> Result<(), ContractError> {
        self.0.check()
    }
}
