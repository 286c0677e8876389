//! Kernels that follow addresses out of device memory.

use warpsmith_device::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Link {
    pub next: DeviceAddress,
    pub count: u64,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Plain {
    pub next: u64,
}

/// Follows them.
#[kernel(block = 32)]
pub unsafe fn follow(links: In<Link>, y: Out<u32>) {}

/// Carries them along.
#[kernel(block = 32, addresses = "ignored")]
pub unsafe fn carry(links: In<Link>, y: Out<u32>) {}

/// Takes one by value.
#[kernel(block = 32)]
pub unsafe fn one(link: Link, y: Out<u32>) {}

/// No such promise.
#[kernel(block = 32, addresses = "checked")]
pub unsafe fn checked(links: In<Link>) {}

macro_rules! contracts {
    ($($Name:ident)*) => { $(
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(1)
            }
            fn check(&self) -> Result<(), ContractError> {
                Ok(())
            }
        }
    )* };
}
contracts!(Follow Carry One);

struct Stream;

impl Launcher for Stream {
    type Error = ();
    unsafe fn launch_any(&mut self, _: &dyn warpsmith_device::AnyKernel) -> Result<(), ()> {
        Ok(())
    }
}

fn launches(s: &mut Stream, links: &DeviceSlice<Link>, y: &mut DeviceSlice<u32>) {
    s.launch(Carry { links, y }).unwrap();
    unsafe { s.launch_unchecked(Follow { links, y }) }.unwrap();
    s.launch(Follow { links, y }).unwrap();
    s.launch(One { link: Link { next: y.address(), count: 1 }, y }).unwrap();
    s.launch_unchecked(Follow { links, y }).unwrap();
}

fn addresses(y: &DeviceSlice<u32>) {
    let _ = Plain { next: y.address() };
    let _ = Link { next: 0x1000, count: 1 };
}

fn main() {}
