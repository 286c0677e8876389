use warpsmith_device::prelude::*;

/// Arguments.
#[device(inline)]
pub unsafe fn arguments() {}

/// Inlining is what it does.
#[device]
#[inline(never)]
pub unsafe fn inlined() {}

/// Later.
#[device]
pub async fn later() {}

/// An ABI.
#[device]
pub extern "C" fn abi() {}

/// Not a function.
#[device]
pub struct NotAFunction;

fn main() {}
