//! From a typed launch to the driver's arguments, checked on the way.

use crate::constants::Constants;
use crate::module::BoundKernel;
use crate::order::Use;
use crate::sys::{self, cu};
use crate::{DeviceInner, Error, Pinned};
use std::ffi::c_void;
use std::sync::Arc;
use warpsmith_device::launch::Start;
use warpsmith_device::{Access, AnyKernel, ArgMeta, ArgSink, DeviceSlice, Element, Geometry, KernelMeta};
use warpsmith_driver_api::{CUgraph, CUgraphNode, CUstream, KernelNodeParams, LaunchAttribute, LaunchConfig};

/// What takes launches and copies in order: a [`Stream`](crate::Stream) runs them, a
/// [`Capture`](crate::Capture) records them.
///
/// It adds copies to [`warpsmith_device::Launcher`], which takes launches. Code that is generic
/// over it is written once and runs eagerly or into a graph:
///
/// ```
/// use warpsmith_runtime::{Buffer, Error, Launcher};
/// fn step(on: &mut impl Launcher, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<(), Error> {
///     on.fill(y, 0.0)?;
///     on.copy(&x[..16], &mut y[..16])
/// }
/// ```
///
/// All of it is asynchronous, in the order of the calls.
pub trait Launcher: warpsmith_device::Launcher<Error = Error> {
    /// Copies between device slices of one length.
    fn copy<T: Element>(&mut self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<(), Error>;

    /// Sets every element. The value must be a repeated pattern of 1, 2 or 4 bytes, which each
    /// number of up to 4 bytes is, and zero of every type.
    fn fill<T: Element>(&mut self, to: &mut DeviceSlice<T>, value: T) -> Result<(), Error>;

    /// Copies staging memory, as it is when the copy runs, to the device.
    fn write_pinned<T: Element>(&mut self, from: &Pinned<T>, to: &mut DeviceSlice<T>) -> Result<(), Error>;

    /// Copies device memory to staging memory. [`Pinned::get`] waits for it.
    fn read_pinned<T: Element>(&mut self, from: &DeviceSlice<T>, to: &Pinned<T>) -> Result<(), Error>;
}

/// Implements both traits by the inherent methods of the same names.
macro_rules! launchers {
    ($($on:ty => $inherent:ty),* $(,)?) => { $(
        impl warpsmith_device::Launcher for $on {
            type Error = $crate::Error;
            unsafe fn launch_any(&mut self, kernel: &dyn warpsmith_device::AnyKernel) -> Result<(), $crate::Error> {
                // SAFETY: the caller's promise.
                unsafe { <$inherent>::launch_any(self, kernel) }
            }
        }
        impl $crate::Launcher for $on {
            fn copy<T: Element>(
                &mut self,
                from: &DeviceSlice<T>,
                to: &mut DeviceSlice<T>,
            ) -> Result<(), $crate::Error> {
                <$inherent>::copy(self, from, to)
            }
            fn fill<T: Element>(
                &mut self,
                to: &mut DeviceSlice<T>,
                value: T,
            ) -> Result<(), $crate::Error> {
                <$inherent>::fill(self, to, value)
            }
            fn write_pinned<T: Element>(
                &mut self,
                from: &Pinned<T>,
                to: &mut DeviceSlice<T>,
            ) -> Result<(), $crate::Error> {
                <$inherent>::write_pinned(self, from, to)
            }
            fn read_pinned<T: Element>(
                &mut self,
                from: &DeviceSlice<T>,
                to: &Pinned<T>,
            ) -> Result<(), $crate::Error> {
                <$inherent>::read_pinned(self, from, to)
            }
        }
    )* };
}
pub(crate) use launchers;

/// A checked launch, ready for the driver.
pub struct Prepared {
    pub kernel: Arc<BoundKernel>,
    pub name: &'static str,
    /// The owners of the buffers, where the device knows them.
    pub owners: Vec<Use>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    start: Start,
    params: Params,
}

/// Whose memory a launch may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Also memory that the device does not know, which is the caller's to keep alive.
    Any,
    /// Only memory that can be kept alive.
    Known,
}

/// Which code of its kernel a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchCode {
    /// The same for all launches.
    General,
    /// With the launch's [constants](Constants).
    Special,
}

impl LaunchCode {
    /// What is constant in the code of a launch.
    fn constants(self, kernel: &dyn AnyKernel) -> Constants {
        match self {
            LaunchCode::General => Constants::default(),
            LaunchCode::Special => Constants::of(kernel),
        }
    }
}

impl Prepared {
    /// Checks everything about the launch of `kernel` that can be known before it runs.
    pub fn new(
        device: &DeviceInner,
        kernel: &dyn AnyKernel,
        code: LaunchCode,
        accept: Owners,
    ) -> Result<Prepared, Error> {
        let meta = kernel.meta();
        kernel.check()?;
        let geometry = kernel.geometry();
        geometry.check(meta)?;
        let bound = device.modules.bind_special(device, meta, code.constants(kernel))?;
        let block = geometry.block_for(meta);
        check_limits(device, &bound, meta, geometry.grid, block)?;
        check_shared(device, &bound, meta, geometry.dynamic_shared)?;
        let start = check_start(device, &bound, meta, &geometry)?;

        let mut params = Params::new(meta, &bound);
        kernel.args(&mut params);
        params.finish()?;
        let mut owners = Vec::with_capacity(params.buffers.len());
        for &(argument, address, bytes, access) in &params.buffers {
            match device.owner(meta.name, argument, address, bytes)? {
                Some(owner) => owners.push((owner, access != Access::Read)),
                None if accept == Owners::Known && bytes > 0 => {
                    return Err(Error::UnknownOwner { operation: meta.name, argument, address });
                }
                None => {}
            }
        }
        Ok(Prepared {
            kernel: bound,
            name: meta.name,
            owners,
            grid: geometry.grid,
            block,
            dynamic_shared: geometry.dynamic_shared,
            start,
            params,
        })
    }

    /// Hands it to the driver.
    ///
    /// # Safety
    /// The stream is alive, its device's context is current, and it is this launch's device.
    pub unsafe fn enqueue(&mut self, stream: CUstream) -> Result<(), Error> {
        let [grid_x, grid_y, grid_z] = self.grid;
        let [block_x, block_y, block_z] = self.block;
        let mut pointers = self.params.pointers();
        let function = self.kernel.function;
        // SAFETY: the function belongs to a loaded module, which `self.kernel` holds; `pointers`
        // has an entry per parameter, each to as many bytes as the manifest (which was compared)
        // says the parameter has. The driver copies them, and the attribute, before it returns.
        unsafe {
            match self.start {
                Start::Ordered => cu!(cuLaunchKernel(
                    function,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    self.dynamic_shared,
                    stream,
                    pointers.as_mut_ptr(),
                    std::ptr::null_mut(),
                )),
                Start::Cooperative => cu!(cuLaunchCooperativeKernel(
                    function,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    self.dynamic_shared,
                    stream,
                    pointers.as_mut_ptr(),
                )),
                Start::Programmatic => {
                    let mut attribute = LaunchAttribute { id: sys::LAUNCH_PROGRAMMATIC, pad: [0; 4], value: flag() };
                    let config = LaunchConfig {
                        grid: self.grid,
                        block: self.block,
                        shared_mem_bytes: self.dynamic_shared,
                        stream,
                        attributes: &mut attribute,
                        num_attributes: 1,
                    };
                    cu!(cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), std::ptr::null_mut()))
                }
            }
        }
    }
}

/// The value of a launch attribute that is on.
fn flag() -> [u32; 16] {
    let mut value = [0; 16];
    value[0] = 1;
    value
}

impl Prepared {
    /// The buffers among its arguments: name, address, bytes, and what the kernel does with them.
    pub fn touches(&self) -> impl Iterator<Item = (&'static str, u64, u64, Access)> {
        self.params.buffers.iter().copied()
    }

    /// Adds it to a graph as a node behind others.
    ///
    /// # Safety
    /// The graph is alive and its device's context current; `follows` are nodes of it.
    pub unsafe fn add_to(
        &mut self,
        graph: CUgraph,
        follows: &[CUgraphNode],
        node: *mut CUgraphNode,
    ) -> Result<(), Error> {
        let mut pointers = self.params.pointers();
        let launch = KernelNodeParams {
            func: self.kernel.function,
            grid: self.grid,
            block: self.block,
            shared_mem_bytes: self.dynamic_shared,
            kernel_params: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        };
        // SAFETY: as in `enqueue`.
        unsafe { cu!(cuGraphAddKernelNode(node, graph, follows.as_ptr(), follows.len(), &launch)) }?;
        match self.start {
            // SAFETY: the node was added just now; the value is copied.
            Start::Cooperative => unsafe {
                cu!(cuGraphKernelNodeSetAttribute(*node, sys::LAUNCH_COOPERATIVE, flag().as_ptr().cast()))
            },
            Start::Ordered | Start::Programmatic => Ok(()),
        }
    }
}

fn check_limits(
    device: &DeviceInner,
    bound: &BoundKernel,
    meta: &'static KernelMeta,
    grid: [u32; 3],
    block: [u32; 3],
) -> Result<(), Error> {
    const GRID: [&str; 3] = ["blocks in x", "blocks in y", "blocks in z"];
    const BLOCK: [&str; 3] = ["threads in x", "threads in y", "threads in z"];
    let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
    let most = bound.max_threads.min(device.limits.threads);
    let dimensions =
        (0..3).flat_map(|i| [(GRID[i], grid[i], device.limits.grid[i]), (BLOCK[i], block[i], device.limits.block[i])]);
    let all = dimensions.map(|(what, requested, limit)| (what, u64::from(requested), u64::from(limit))).chain([(
        "threads of a block",
        threads,
        u64::from(most),
    )]);
    for (what, requested, limit) in all {
        if requested > limit {
            return Err(Error::LaunchLimit { kernel: meta.name, what, requested, limit });
        }
    }
    Ok(())
}

/// Shared memory: below 48 KiB it is just there; above, the function has to be told.
pub fn check_shared(
    device: &DeviceInner,
    bound: &BoundKernel,
    meta: &'static KernelMeta,
    dynamic: u32,
) -> Result<(), Error> {
    let total = u64::from(dynamic) + u64::from(bound.static_shared);
    if dynamic == 0 || total <= u64::from(device.limits.shared) {
        return Ok(());
    }
    let limit = device.limits.shared_optin;
    if total > u64::from(limit) {
        return Err(Error::LaunchLimit {
            kernel: meta.name,
            what: "bytes of shared memory (static and dynamic)",
            requested: total,
            limit: limit.into(),
        });
    }
    bound.raise_dynamic_shared(limit)
}

/// How the launch starts: all blocks of a cooperative one have to be on the device at the same time.
fn check_start(
    device: &DeviceInner,
    bound: &BoundKernel,
    meta: &'static KernelMeta,
    geometry: &Geometry,
) -> Result<Start, Error> {
    match geometry.start {
        Start::Cooperative => {}
        _ if bound.grid_barrier => return Err(Error::NotCooperative { kernel: meta.name }),
        // Older devices refuse the attribute, and older code has no wait; the order that it relaxes gives the same results.
        Start::Programmatic => {
            return match bound.waits {
                None => Ok(Start::Ordered),
                Some(true) => Ok(Start::Programmatic),
                Some(false) => Err(Error::NeverWaits { kernel: meta.name }),
            };
        }
        Start::Ordered => return Ok(Start::Ordered),
    }
    let threads = geometry.block_for(meta).iter().product();
    let per_multiprocessor = bound.blocks_per_multiprocessor(threads, geometry.dynamic_shared)?;
    let multiprocessors = device.limits.multiprocessors;
    let resident = u64::from(per_multiprocessor) * u64::from(multiprocessors);
    let blocks = geometry.grid.iter().map(|&n| u64::from(n)).fold(1, u64::saturating_mul);
    if blocks <= resident {
        return Ok(Start::Cooperative);
    }
    Err(Error::TooManyResident { kernel: meta.name, blocks, resident, per_multiprocessor, multiprocessors })
}

/// The parameters of a launch, laid out as the kernel wants them.
struct Params {
    meta: &'static KernelMeta,
    bound: Arc<BoundKernel>,
    /// Aligned to 16, which is the largest alignment of an element.
    words: Vec<u128>,
    given: usize,
    buffers: Vec<(&'static str, u64, u64, Access)>,
    wrong: Option<String>,
}

impl Params {
    fn new(meta: &'static KernelMeta, bound: &Arc<BoundKernel>) -> Params {
        Params {
            meta,
            bound: bound.clone(),
            words: vec![0; (bound.param_bytes as usize).div_ceil(16)],
            given: 0,
            buffers: Vec::with_capacity(meta.args.len()),
            wrong: None,
        }
    }

    /// Puts the next argument into its place.
    fn put(&mut self, arg: &'static ArgMeta, value: &[u8]) {
        let index = self.given;
        self.given += 1;
        let expected = self.meta.args.get(index).map(|a| (a.name, a.size));
        if expected != Some((arg.name, arg.size)) || value.len() != arg.size as usize {
            self.wrong.get_or_insert_with(|| {
                format!("argument {index} was handed over as `{}` with {} bytes", arg.name, value.len())
            });
            return;
        }
        let start = self.bound.offsets.get(index).map_or(0, |&o| o as usize);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        if let Some(place) = bytes.get_mut(start..start + value.len()) {
            place.copy_from_slice(value);
        }
    }

    /// Whether every argument was given, once and in order.
    fn finish(&mut self) -> Result<(), Error> {
        if self.wrong.is_none() && self.given != self.meta.args.len() {
            self.wrong = Some(format!("{} of {} arguments were handed over", self.given, self.meta.args.len()));
        }
        match self.wrong.take() {
            None => Ok(()),
            Some(difference) => {
                Err(Error::StaleModule { kernel: self.meta.name, library: self.meta.library, difference })
            }
        }
    }

    fn pointers(&mut self) -> Vec<*mut c_void> {
        let base = self.words.as_mut_ptr().cast::<u8>();
        let at = |&offset: &u32| base.wrapping_add(offset as usize).cast();
        self.bound.offsets.iter().map(at).collect()
    }
}

impl ArgSink for Params {
    fn buffer(&mut self, arg: &'static ArgMeta, address: u64, bytes: u64, access: Access) {
        self.buffers.push((arg.name, address, bytes, access));
        self.put(arg, &address.to_ne_bytes());
    }

    fn scalar(&mut self, arg: &'static ArgMeta, bytes: &[u8]) {
        self.put(arg, bytes);
    }
}
