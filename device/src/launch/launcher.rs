//! [`Launcher`]: what takes launches.

use super::{Contract, Programmatic};

/// Takes launches in order: a stream that runs them, a capture that records them, a test that looks
/// at them. Code that issues launches and is generic over this runs eagerly or into a graph.
pub trait Launcher {
    /// Why a launch was refused.
    type Error;
    /// Checks `kernel`'s contract and launches (or records) it after everything launched before.
    fn launch<K: Contract>(&mut self, kernel: K) -> Result<(), Self::Error>;
    /// The same, with `ahead` as a [`Programmatic`] launch.
    fn launch_ahead<K: Contract>(&mut self, kernel: K, ahead: bool) -> Result<(), Self::Error> {
        if ahead { self.launch(Programmatic(kernel)) } else { self.launch(kernel) }
    }
}

impl<L: Launcher> Launcher for &mut L {
    type Error = L::Error;
    fn launch<K: Contract>(&mut self, kernel: K) -> Result<(), L::Error> {
        L::launch(self, kernel)
    }
}
