//! [`Launcher`]: what takes launches.

use super::{AnyKernel, ArgSink, Confined, Contract, ContractError, Geometry, KernelMeta};

/// Takes launches in order: a stream that runs them, a capture that records them, a test that looks
/// at them. Code that issues launches and is generic over this runs eagerly or into a graph.
pub trait Launcher {
    /// Why a launch was refused.
    type Error;

    /// Checks `kernel`'s contract and launches (or records) it after everything launched before: what an implementation
    /// says, of kernels of any type.
    ///
    /// # Safety
    /// As for [`launch_unchecked`](Launcher::launch_unchecked).
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Self::Error>;

    /// Checks `kernel`'s contract and launches (or records) it after everything launched before. Takes kernels too that
    /// follow addresses in device memory, of which only the arguments themselves are checked.
    ///
    /// # Safety
    /// Every address that the kernel follows leads to device memory that stays allocated until the launch has ended (of a
    /// recording: every launch of the graph). What it reads there nobody writes meanwhile, and what it writes there nobody
    /// reads or writes meanwhile, which includes its own arguments and work on other streams.
    unsafe fn launch_unchecked<K: Contract>(&mut self, kernel: K) -> Result<(), Self::Error>
    where
        Self: Sized,
    {
        // SAFETY: the caller's promise.
        unsafe { self.launch_any(&kernel) }
    }

    /// Checks `kernel`'s contract and launches (or records) it after everything launched before.
    fn launch<K: Contract + Confined>(&mut self, kernel: K) -> Result<(), Self::Error>
    where
        Self: Sized,
    {
        // SAFETY: it follows no address.
        unsafe { self.launch_any(&kernel) }
    }

    /// [`launch_unchecked`](Launcher::launch_unchecked), with `programmatic` as a [`Programmatic`](super::Programmatic) launch.
    ///
    /// # Safety
    /// As for [`launch_unchecked`](Launcher::launch_unchecked), and with `programmatic` as for
    /// [`Programmatic::new`](super::Programmatic::new).
    unsafe fn launch_programmatic<K: Contract>(&mut self, kernel: K, programmatic: bool) -> Result<(), Self::Error>
    where
        Self: Sized,
    {
        // SAFETY: the caller's promise.
        unsafe { if programmatic { self.launch_any(&Begins(&kernel)) } else { self.launch_any(&kernel) } }
    }
}

/// [`Programmatic`](super::Programmatic), of kernels of any type.
struct Begins<'a>(&'a dyn AnyKernel);

impl AnyKernel for Begins<'_> {
    fn meta(&self) -> &'static KernelMeta {
        self.0.meta()
    }
    fn geometry(&self) -> Geometry {
        self.0.geometry().programmatic()
    }
    fn check(&self) -> Result<(), ContractError> {
        self.0.check()
    }
    fn args(&self, sink: &mut dyn ArgSink) {
        self.0.args(sink);
    }
}

impl<L: Launcher + ?Sized> Launcher for &mut L {
    type Error = L::Error;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe { L::launch_any(self, kernel) }
    }
}
