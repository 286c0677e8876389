//! [`Device`]: a GPU, or one of the software driver's.
//!
//! A `Device` is a handle that is cheap to clone. Streams, buffers, modules and graphs each hold
//! one, so the order in which a program drops them does not matter: the context is released when
//! the last of them is gone. It is the device's primary context, which is shared with `cust` and
//! other users of it in the process. All calls may be made from any thread: each makes the context
//! current on its thread first.
//!
//! ```no_run
//! use warpsmith_runtime::Device;
//! let device = Device::open(0)?;
//! println!("{} on {}", device.name(), device.engine());
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32, 2.0, 3.0])?;
//! assert_eq!(stream.read(&x)?, [1.0, 2.0, 3.0]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

mod inner;

use crate::code_cache::CodeCache;
use crate::launch::{LaunchCode, Owners, Prepared, check_shared};
use crate::memory::{Memory, lock};
use crate::module::DeviceModules;
use crate::stream::StreamInner;
use crate::sys::{self, cu};
use crate::{Buffer, Error, KernelImage, Pinned, Stream, findings, foreign};
use cust::device::DeviceAttribute;
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use warpsmith_device::{AnyKernel, Element, KernelMeta};
use warpsmith_driver_api::CUcontext;
use warpsmith_driver_api::Engine;

/// A device of the engine.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<DeviceInner>,
}

/// What a device can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of a grid in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block without further ado.
    pub shared: u32,
    /// Bytes of shared memory of a block that opts in, which a launch does by itself.
    pub shared_optin: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of the level-2 cache.
    pub l2_cache: u32,
}

/// Device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can still be allocated, fragmentation aside.
    pub free: u64,
    /// Bytes of the device.
    pub total: u64,
}

pub(crate) struct DeviceInner {
    pub ordinal: u32,
    pub engine: Engine,
    pub name: String,
    pub sm: u32,
    pub limits: Limits,
    pub memory: Memory,
    pub modules: DeviceModules,
    pub code_cache: Option<CodeCache>,
    deferred: Mutex<Vec<Error>>,
    streams: Mutex<Vec<Weak<StreamInner>>>,
    // Released last: fields are dropped in the order of their declaration. No kernel of `modules`
    // runs any more by then: each stream has waited for its work when it was dropped.
    context: Context,
}

/// A context of the driver.
enum Context {
    /// The device's primary one, retained.
    Primary(cust::context::Context),
    /// One that somebody else made and keeps.
    Borrowed(CUcontext),
}

/// Errors of `drop` that are kept; more say nothing new.
const DEFERRED_ERRORS: usize = 16;

thread_local! {
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that the calling thread captures, or does so no more.
pub(crate) fn set_capturing(on: bool) {
    CAPTURING.with(|c| c.set(on));
}

/// The devices of this process, so that an error can say whose memory an address is.
static OPEN: Mutex<Vec<Weak<DeviceInner>>> = Mutex::new(Vec::new());

/// The devices of this process that are open.
pub(crate) fn open() -> Vec<Arc<DeviceInner>> {
    lock(&OPEN).iter().filter_map(Weak::upgrade).collect()
}

impl Device {
    /// Opens the device of this ordinal and starts the engine if no device was opened before.
    pub fn open(ordinal: u32) -> Result<Device, Error> {
        let count = Device::count()?;
        let engine = running_engine()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count, engine: engine.to_string() });
        }
        let device = sys::cust("cuDeviceGet", cust::device::Device::get_device(ordinal))?;
        Self::of(engine, ordinal, device, || {
            let context = sys::cust("cuDevicePrimaryCtxRetain", cust::context::Context::new(device))?;
            Ok(Context::Primary(context))
        })
    }

    /// The device of a context that other code of this process has made on the same driver, such as `cust` or `cudarc`. What is
    /// made with it lives in that context. Not needed for the device's primary context: [`Device::open`] shares it.
    ///
    /// # Safety
    /// `context` is a live `CUcontext`, and stays so until this device and everything made with it have been dropped.
    pub unsafe fn from_context(context: *mut c_void) -> Result<Device, Error> {
        const CALL: &str = "Device::from_context";
        let count = Device::count()?;
        let engine = running_engine()?;
        foreign::one_driver(CALL)?;
        let raw = CUcontext(context);
        let mut number = 0;
        // SAFETY: the caller's promise; `number` is a live integer.
        let found = unsafe { cu!(cuCtxSetCurrent(raw)).and_then(|()| cu!(cuCtxGetDevice(&mut number))) };
        found.map_err(|error| foreign::explain(CALL, error))?;
        for ordinal in 0..count {
            let device = sys::cust("cuDeviceGet", cust::device::Device::get_device(ordinal))?;
            if device.as_raw() == number {
                return Self::of(engine, ordinal, device, || Ok(Context::Borrowed(raw)));
            }
        }
        Err(Error::NoDevice { ordinal: u32::try_from(number).unwrap_or(u32::MAX), count, engine: engine.to_string() })
    }

    /// The context that its handles live in, a `CUcontext`: for other code on the same driver.
    pub fn raw_context(&self) -> *mut c_void {
        self.inner.raw_context().0
    }

    fn of(
        engine: Engine,
        ordinal: u32,
        device: cust::device::Device,
        context: impl FnOnce() -> Result<Context, Error>,
    ) -> Result<Device, Error> {
        let name = sys::cust("cuDeviceGetName", device.name())?;
        let read = |attribute| -> Result<u32, Error> {
            let value = sys::cust("cuDeviceGetAttribute", device.get_attribute(attribute))?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let sm = read(DeviceAttribute::ComputeCapabilityMajor)? * 10 + read(DeviceAttribute::ComputeCapabilityMinor)?;
        let shared = read(DeviceAttribute::MaxSharedMemoryPerBlock)?;
        let mut optin = 0;
        // SAFETY: `optin` is a live integer; the device handle is the one just opened.
        unsafe { cu!(cuDeviceGetAttribute(&mut optin, sys::DEVICE_SHARED_OPTIN, device.as_raw())) }?;
        let limits = Limits {
            grid: [
                read(DeviceAttribute::MaxGridDimX)?,
                read(DeviceAttribute::MaxGridDimY)?,
                read(DeviceAttribute::MaxGridDimZ)?,
            ],
            block: [
                read(DeviceAttribute::MaxBlockDimX)?,
                read(DeviceAttribute::MaxBlockDimY)?,
                read(DeviceAttribute::MaxBlockDimZ)?,
            ],
            threads: read(DeviceAttribute::MaxThreadsPerBlock)?,
            shared,
            shared_optin: u32::try_from(optin).unwrap_or(0).max(shared),
            multiprocessors: read(DeviceAttribute::MultiprocessorCount)?,
            l2_cache: read(DeviceAttribute::L2CacheSize)?,
        };
        let context = context()?;
        let code_cache = CodeCache::of(&engine, sm);
        let inner = Arc::new(DeviceInner {
            ordinal,
            engine,
            name,
            sm,
            limits,
            memory: Memory::default(),
            modules: DeviceModules::default(),
            code_cache,
            deferred: Mutex::default(),
            streams: Mutex::default(),
            context,
        });
        // `Context::new` ignores whether it could make the context current.
        inner.bind()?;
        let mut open = lock(&OPEN);
        open.retain(|device| device.strong_count() > 0);
        open.push(Arc::downgrade(&inner));
        drop(open);
        tracing::debug!(ordinal, name = %inner.name, engine = %inner.engine, sm, "device opened");
        Ok(Device { inner })
    }

    /// How many devices the engine has. Starts the engine.
    pub fn count() -> Result<u32, Error> {
        start_engine()?;
        match cust::device::Device::num_devices() {
            Ok(n) => Ok(n),
            Err(cust::error::CudaError::NoDevice) => Ok(0),
            Err(error) => sys::cust("cuDeviceGetCount", Err(error)),
        }
    }

    /// The engine that runs: a GPU driver, or the software driver.
    pub fn engine(&self) -> Engine {
        self.inner.engine.clone()
    }

    /// Whether the software driver runs.
    pub fn is_software(&self) -> bool {
        self.inner.is_software()
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its ordinal.
    pub fn ordinal(&self) -> u32 {
        self.inner.ordinal
    }

    /// Its compute capability as one number: 90 is 9.0.
    pub fn sm(&self) -> u32 {
        self.inner.sm
    }

    /// What it can do at most.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// How many blocks of a kernel (`RmsNorm::META`, say), with so many bytes of dynamic shared memory each, can be on the
    /// device at the same time: what a [cooperative](warpsmith_device::Geometry::cooperative) launch may have at most.
    pub fn resident_blocks(&self, meta: &'static KernelMeta, dynamic_shared: u32) -> Result<u64, Error> {
        self.inner.enter("Device::resident_blocks")?;
        let bound = self.inner.modules.bind(&self.inner, meta)?;
        check_shared(&self.inner, &bound, meta, dynamic_shared)?;
        let per_multiprocessor = bound.blocks_per_multiprocessor(meta.threads(), dynamic_shared)?;
        Ok(u64::from(per_multiprocessor) * u64::from(self.inner.limits.multiprocessors))
    }

    /// Whether launches of a kernel (`RmsNorm::META`, say) can be
    /// [programmatic](warpsmith_device::Geometry::programmatic) here. Where the device has no such launches, or the code that was
    /// loaded cannot wait, they are ordinary ones.
    ///
    /// # Errors
    /// If the kernel's library is not known to the device, or is of another build than the program.
    pub fn has_programmatic(&self, meta: &'static KernelMeta) -> Result<bool, Error> {
        self.inner.enter("Device::has_programmatic")?;
        Ok(self.inner.modules.waits(&self.inner, meta)?.is_some())
    }

    /// Its memory, free and in all.
    pub fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.inner.enter("Device::memory_info")?;
        self.inner.memory_info()
    }

    /// A new stream. It is ordered with no other stream, the null stream included.
    pub fn stream(&self) -> Result<Stream, Error> {
        Stream::new(self)
    }

    /// Memory for `len` elements, which are not initialised: the software driver fills them with
    /// a pattern that shows. Not possible while the thread captures.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        self.inner.enter("Device::alloc")?;
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
        let allocation = DeviceInner::alloc(&self.inner, bytes)?;
        Ok(Buffer::new(allocation, len))
    }

    /// Page-locked host memory for `len` elements, zeroed.
    pub fn pinned<T: Element>(&self, len: usize) -> Result<Pinned<T>, Error> {
        Pinned::new(self, len)
    }

    /// Makes the kernels of `image` known, so that they can be launched on this device.
    ///
    /// The code for the newest architecture that the device can run is chosen. Each kernel is loaded, which on a GPU compiles
    /// it, at its first use; [`warm`](Device::warm) does so ahead. An image that is
    /// known already costs nothing; another image of the same library takes its place for later
    /// launches, while graphs keep the one that they were captured with. What nothing refers to any
    /// more is unloaded, after the work of the device's streams so far.
    pub fn load(&self, image: &KernelImage) -> Result<(), Error> {
        self.inner.enter("Device::load")?;
        self.inner.modules.load(&self.inner, image)?;
        self.inner.modules.unload_retired(&self.inner);
        Ok(())
    }

    /// Loads kernels ahead of their first use (`[RmsNorm::META]`, say), so that no launch and no capture waits for a compiler.
    pub fn warm(&self, kernels: impl IntoIterator<Item = &'static KernelMeta>) -> Result<(), Error> {
        self.inner.enter("Device::warm")?;
        kernels.into_iter().try_for_each(|meta| self.inner.modules.bind(&self.inner, meta).map(drop))
    }

    /// Loads the code of its own that a launch gets in a capture that [specialises](crate::Capture::specialise), ahead of it.
    pub fn warm_specialised(&self, launch: &dyn AnyKernel) -> Result<(), Error> {
        self.inner.enter("Device::warm_specialised")?;
        Prepared::new(&self.inner, launch, LaunchCode::Special, Owners::Any).map(drop)
    }

    /// [Loads](Device::load) the image, and every kernel of it ahead of its first use.
    pub fn warm_all(&self, image: &KernelImage) -> Result<(), Error> {
        self.load(image)?;
        self.inner.modules.load_all(&self.inner, image)
    }

    /// The libraries whose kernels are loaded.
    pub fn libraries(&self) -> Vec<String> {
        self.inner.modules.libraries()
    }

    /// Waits for all work on the streams of this handle and its clones.
    pub fn synchronize(&self) -> Result<(), Error> {
        const CALL: &str = "Device::synchronize";
        self.inner.enter(CALL)?;
        self.inner.settle(CALL)?;
        findings()
    }

    /// How many allocations are alive, those that graphs hold included.
    pub fn live_allocations(&self) -> usize {
        self.inner.memory.live()
    }

    /// The oldest error of a `drop` on this device that nobody has taken yet.
    pub fn take_deferred_error(&self) -> Option<Error> {
        let mut deferred = lock(&self.inner.deferred);
        if deferred.is_empty() { None } else { Some(deferred.remove(0)) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("ordinal", &self.inner.ordinal)
            .field("name", &self.inner.name)
            .field("sm", &self.inner.sm)
            .finish_non_exhaustive()
    }
}

fn start_engine() -> Result<(), Error> {
    match warpsmith_driver_api::init_quietly(|| cust::init(cust::CudaFlags::empty())) {
        Ok(()) => Ok(()),
        Err(error) => {
            let error = Error::driver("cuInit", error as u32 as i32);
            Err(match warpsmith_driver_api::engine() {
                Some(_) => error,
                None => {
                    Error::NoEngine { reason: warpsmith_driver_api::init_error().unwrap_or_else(|| error.to_string()) }
                }
            })
        }
    }
}

fn running_engine() -> Result<Engine, Error> {
    warpsmith_driver_api::engine()
        .ok_or_else(|| Error::NoEngine { reason: "cuInit succeeded without an engine".into() })
}
