//! [`Launcher`]: what takes launches.

use super::{Confined, Contract, Programmatic};

/// Takes launches in order: a stream that runs them, a capture that records them, a test that looks
/// at them. Code that issues launches and is generic over this runs eagerly or into a graph.
pub trait Launcher {
    /// Why a launch was refused.
    type Error;

    /// Checks `kernel`'s contract and launches (or records) it after everything launched before. Takes kernels too that
    /// follow addresses in device memory, of which only the arguments themselves are checked.
    ///
    /// # Safety
    /// Every address that the kernel follows leads to device memory that stays allocated until the launch has ended (of a
    /// recording: every launch of the graph). What it reads there nobody writes meanwhile, and what it writes there nobody
    /// reads or writes meanwhile, which includes its own arguments and work on other streams.
    unsafe fn launch_unchecked<K: Contract>(&mut self, kernel: K) -> Result<(), Self::Error>;

    /// Checks `kernel`'s contract and launches (or records) it after everything launched before.
    fn launch<K: Contract + Confined>(&mut self, kernel: K) -> Result<(), Self::Error> {
        // SAFETY: it follows no address.
        unsafe { self.launch_unchecked(kernel) }
    }

    /// [`launch_unchecked`](Launcher::launch_unchecked), with `programmatic` as a [`Programmatic`] launch.
    ///
    /// # Safety
    /// As for [`launch_unchecked`](Launcher::launch_unchecked), and with `programmatic` as for [`Programmatic::new`].
    unsafe fn launch_programmatic<K: Contract>(&mut self, kernel: K, programmatic: bool) -> Result<(), Self::Error> {
        // SAFETY: the caller's promise.
        unsafe {
            if programmatic { self.launch_unchecked(Programmatic::new(kernel)) } else { self.launch_unchecked(kernel) }
        }
    }
}

impl<L: Launcher> Launcher for &mut L {
    type Error = L::Error;
    unsafe fn launch_unchecked<K: Contract>(&mut self, kernel: K) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe { L::launch_unchecked(self, kernel) }
    }
}
