//! The argument types of a kernel's signature, as the host sees them: names only.
//!
//! On the device these are pointers with accessors; on the host, `#[kernel]` turns an argument of
//! such a type into a field that borrows a [`DeviceSlice`](super::DeviceSlice). There are no
//! values of these types here.

use core::{convert::Infallible, marker::PhantomData};

/// A buffer that the kernel only reads: `&DeviceSlice<T>` in the launch struct.
pub struct In<T>(Infallible, PhantomData<T>);

/// A buffer that the kernel only reads, once it has waited for the launches before it: `&DeviceSlice<T>` in the launch struct.
pub struct Awaited<T>(Infallible, PhantomData<T>);

/// A buffer that the kernel only writes: `&mut DeviceSlice<T>` in the launch struct.
pub struct Out<T>(Infallible, PhantomData<T>);

/// A buffer that the kernel reads and writes: `&mut DeviceSlice<T>` in the launch struct.
pub struct InOut<T>(Infallible, PhantomData<T>);
