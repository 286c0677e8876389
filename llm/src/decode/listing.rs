//! The launches of a step as a driver would be given them, without launching any.

use super::together::{Member, StepLauncher};
use warpsmith_collectives::{Elements, Operation};
use warpsmith_device::{Access, AnyKernel, ArgMeta, ArgSink, Geometry, KernelMeta, Launcher};
use warpsmith_runtime::{Constants, Device, Error};

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedValue {
    /// A buffer.
    Buffer {
        /// Where it starts on the device.
        address: u64,
        /// Its bytes.
        bytes: u64,
        /// What the kernel may do with it.
        access: Access,
    },
    /// A value, as its bytes.
    Value(Vec<u8>),
}

/// A launch of a step: its kernel, its geometry, and its arguments in the order of the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLaunch {
    /// The kernel.
    pub kernel: &'static KernelMeta,
    /// Blocks and shared memory, and when they start.
    pub geometry: Geometry,
    /// The arguments.
    pub arguments: Vec<(&'static ArgMeta, ListedValue)>,
    /// What are constants of its code, if it has [code of its own](super::DecoderOptions::specialise).
    pub constants: Constants,
}

impl ListedLaunch {
    /// The parameter block that a driver is given.
    #[must_use]
    pub fn parameters(&self) -> Vec<u8> {
        let mut block: Vec<u8> = Vec::new();
        for (meta, value) in &self.arguments {
            block.resize(block.len().next_multiple_of(meta.align.max(1) as usize), 0);
            match value {
                ListedValue::Buffer { address, .. } => block.extend_from_slice(&address.to_le_bytes()),
                ListedValue::Value(bytes) => block.extend_from_slice(bytes),
            }
        }
        block
    }

    /// The value of a 32-bit argument of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        let (_, value) = self.arguments.iter().find(|(meta, _)| meta.name == name)?;
        match value {
            ListedValue::Value(bytes) => Some(u32::from_le_bytes(bytes.as_slice().try_into().ok()?)),
            ListedValue::Buffer { .. } => None,
        }
    }

    /// Its buffers: address, bytes and access.
    pub fn buffers(&self) -> impl Iterator<Item = (u64, u64, Access)> {
        self.arguments.iter().filter_map(|(_, value)| match *value {
            ListedValue::Buffer { address, bytes, access } => Some((address, bytes, access)),
            ListedValue::Value(_) => None,
        })
    }
}

impl ArgSink for ListedLaunch {
    fn buffer(&mut self, arg: &'static ArgMeta, address: u64, bytes: u64, access: Access) {
        self.arguments.push((arg, ListedValue::Buffer { address, bytes, access }));
    }
    fn scalar(&mut self, arg: &'static ArgMeta, bytes: &[u8]) {
        self.arguments.push((arg, ListedValue::Value(bytes.to_vec())));
    }
}

/// Checks every launch's contract and writes it down.
#[derive(Default)]
pub(super) struct Listing {
    pub launches: Vec<ListedLaunch>,
    /// Whether launches get code of their own.
    pub specialises: bool,
}

impl Launcher for Listing {
    type Error = Error;

    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        kernel.check()?;
        let (meta, geometry) = (kernel.meta(), kernel.geometry());
        geometry.check(meta)?;
        let arguments = Vec::with_capacity(meta.args.len());
        let constants = if self.specialises { Constants::of(kernel) } else { Constants::default() };
        let mut launch = ListedLaunch { kernel: meta, geometry, arguments, constants };
        kernel.args(&mut launch);
        self.launches.push(launch);
        Ok(())
    }
}

/// Loads the code that launches get which have code of their own.
pub(super) struct Warming<'a>(pub &'a Device);

impl Launcher for Warming<'_> {
    type Error = Error;

    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        self.0.warm_specialised(kernel)
    }
}

/// What ranks do together is no launch.
macro_rules! without_others {
    ($($launcher:ty),*) => { $(
        impl StepLauncher for $launcher {
            fn together(&mut self, _: &Member, _: Operation, _: Elements<'_>) -> Result<(), Error> {
                Ok(())
            }
        }
    )* };
}

without_others!(Listing, Warming<'_>);

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_kernels::norm::RmsNorm;
    use warpsmith_device::Kernel;

    #[test]
    fn a_number_is_found_by_its_name_and_a_buffer_is_none() {
        let value = |arg: &ArgMeta| match arg.name {
            "cols" => ListedValue::Value(4096u32.to_le_bytes().to_vec()),
            "eps" => ListedValue::Value(1f32.to_le_bytes().to_vec()),
            _ => ListedValue::Buffer { address: 512, bytes: 64, access: Access::Read },
        };
        let arguments = RmsNorm::META.args.iter().map(|arg| (arg, value(arg))).collect();
        let (geometry, constants) = (Geometry::blocks(1u32), Constants::default());
        let launch = ListedLaunch { kernel: RmsNorm::META, geometry, arguments, constants };
        assert_eq!(
            ["cols", "eps", "x", "rows"].map(|name| launch.number(name)),
            [Some(4096), Some(0x3f80_0000), None, None]
        );
    }
}
