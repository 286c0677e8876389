//! Kernel images and the modules that a device makes of them.
//!
//! An image is what the builder puts into a program: PTX per architecture, and a manifest. Loading
//! compiles the PTX for the device and looks up every kernel, so that a launch, also one inside a
//! capture, only has to find it. A module lives as long as its device, or until another image of
//! its library takes its place: then it is unloaded at a later load, once no graph keeps it and
//! every stream has done its work, so that a kernel that runs never loses its code.
//!
//! A launch is bound to its module once: arguments, kinds, sizes, offsets and the block are
//! compared between the program's own description (`Kernel::META`) and the manifest of what was
//! loaded. A difference is [`Error::StaleModule`], before anything runs.

use super::manifest::{ArgEntry, KernelEntry, Manifest};
use super::memory::lock;
use super::sys::{self, Handle, cu};
use super::{DeviceInner, Error};
use cust::function::FunctionAttribute;
use cust::sys::CUfunc_st;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use warpsmith_device::KernelMeta;

/// The compiled kernels of one library: PTX per architecture, and the manifest.
///
/// ```ignore
/// use warpsmith_host::{KernelImage, include_kernels};
/// // build.rs: warpsmith_builder::KernelCrate::new("kernels").archs(["sm_75"]).build()
/// static KERNELS: KernelImage = include_kernels!("my_kernels");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KernelImage {
    library: &'static str,
    manifest: &'static str,
    code: &'static [(u32, &'static str)],
}

impl KernelImage {
    /// From what the builder's generated file holds: the library's name, its manifest as JSON, and
    /// PTX by compute capability (`75` is sm_75). [`include_kernels!`](crate::include_kernels) is the safe way.
    ///
    /// # Safety
    /// All three are of one run of the builder: code and manifest of the kernels of this program's `#[kernel]` functions. What a
    /// launch may touch follows from those functions and their contracts; other code under their names would touch anything.
    ///
    /// ```compile_fail,E0133
    /// use warpsmith_host::KernelImage;
    /// KernelImage::from_parts(("gpu-kernels", "{}", &[]));
    /// ```
    pub const unsafe fn from_parts(
        (library, manifest, code): (&'static str, &'static str, &'static [(u32, &'static str)]),
    ) -> KernelImage {
        KernelImage { library, manifest, code }
    }

    /// The library's name.
    pub const fn library(&self) -> &'static str {
        self.library
    }

    /// PTX by compute capability.
    pub const fn code(&self) -> &'static [(u32, &'static str)] {
        self.code
    }

    /// The manifest as the builder wrote it.
    pub const fn manifest_text(&self) -> &'static str {
        self.manifest
    }

    /// What the builder says about the kernels.
    pub fn manifest(&self) -> Result<Manifest, Error> {
        let refuse = |problem| Error::Image { library: self.library.into(), problem };
        let manifest: Manifest = serde_json::from_str(self.manifest)
            .map_err(|error| refuse(format!("its manifest does not parse: {error}")))?;
        if manifest.library != self.library {
            return Err(refuse(format!("its manifest is of library `{}`", manifest.library)));
        }
        Ok(manifest)
    }

    /// The code for the newest architecture that a device of capability `sm` can run.
    pub fn code_for(&self, sm: u32) -> Result<(u32, &'static str), Error> {
        let best = self.code.iter().filter(|(of, _)| *of <= sm).max_by_key(|(of, _)| *of);
        best.copied().ok_or_else(|| Error::NoCodeForDevice {
            library: self.library.into(),
            sm,
            available: self.code.iter().map(|(of, _)| *of).collect(),
        })
    }

    fn same(&self, other: &KernelImage) -> bool {
        self.manifest == other.manifest && self.code == other.code
    }
}

/// The image that the builder made of a kernels crate in this package's build script. The name is
/// the kernels package's, with `_` for `-`.
#[macro_export]
macro_rules! include_kernels {
    ($library:literal) => {{
        let parts: (&str, &str, &[(u32, &str)]) = include!(env!(
            concat!("WARPSMITH_KERNELS_", $library),
            concat!(
                "no kernels are called `",
                $library,
                "`: it is the name of the kernels crate, with `_` for `-`, that the build script of this package compiles with \
                 `warpsmith_builder::KernelCrate`"
            )
        ));
        // SAFETY: what the builder wrote into the folder that is its own.
        unsafe { $crate::KernelImage::from_parts(parts) }
    }};
}

/// A library on a device.
pub struct LoadedModule {
    image: KernelImage,
    manifest: Manifest,
    functions: HashMap<String, Function>,
    /// What the code is for.
    sm: u32,
    // Unloads the code when it is dropped, which only the device does, after its last work.
    module: cust::module::Module,
}

#[derive(Clone, Copy)]
struct Function {
    handle: Handle<CUfunc_st>,
    max_threads: u32,
    static_shared: u32,
}

/// A kernel of the program, and its code on the device: known to fit each other.
pub struct BoundKernel {
    pub function: Handle<CUfunc_st>,
    /// Threads of a block that the compiled code allows.
    pub max_threads: u32,
    pub static_shared: u32,
    /// Whether it waits for all blocks of its grid.
    pub grid_barrier: bool,
    /// Whether it waits for the launches before it; `None`: the code is for architectures that cannot.
    pub waits: Option<bool>,
    /// Where each argument starts among the parameters.
    pub offsets: Vec<u32>,
    pub param_bytes: u32,
    /// Keeps the code; held by graphs.
    pub module: Arc<LoadedModule>,
    dynamic_raised: AtomicBool,
}

/// The modules of a device.
#[derive(Default)]
pub struct Modules {
    table: RwLock<Table>,
    loading: Mutex<()>,
}

#[derive(Default)]
struct Table {
    libraries: BTreeMap<String, Arc<LoadedModule>>,
    /// Replaced by a newer image of the same library; their kernels may still run.
    retired: Vec<Arc<LoadedModule>>,
    /// By the address of `Kernel::META`: a static, so the same address is the same kernel.
    bound: HashMap<usize, Arc<BoundKernel>>,
}

impl Modules {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_table<R>(&self, f: impl FnOnce(&mut Table) -> R) -> R {
        f(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn libraries(&self) -> Vec<String> {
        self.table().libraries.keys().cloned().collect()
    }

    /// Loads an image. The device's context is current.
    pub fn load(&self, device: &DeviceInner, image: &KernelImage) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.loading);
        if self.table().libraries.get(image.library).is_some_and(|m| m.image.same(image)) {
            return Ok(());
        }
        let module = Arc::new(LoadedModule::new(device, image)?);
        self.with_table(|table| {
            if let Some(old) = table.libraries.insert(image.library.into(), module) {
                table.bound.retain(|_, bound| !Arc::ptr_eq(&bound.module, &old));
                table.retired.push(old);
            }
        });
        Ok(())
    }

    /// Unloads what was replaced and nobody refers to any more. Kernels of it may still run: the streams are waited for. What
    /// cannot be unloaded now, as while a stream is captured, is tried again at the next load. The device's context is
    /// current, and the thread is not in the middle of using a stream.
    pub fn unload_retired(&self, device: &DeviceInner) {
        // Who holds no reference can get none: the table alone has one, and binds nothing to what is retired.
        let idle = |module: &mut Arc<LoadedModule>| Arc::strong_count(module) == 1;
        let idle: Vec<_> = self.with_table(|table| table.retired.extract_if(.., idle).collect());
        if idle.is_empty() {
            return;
        }
        let settled = if device.memory.capturing() { Ok(false) } else { device.settle("Device::load").map(|()| true) };
        let mut kept = Vec::new();
        for module in idle {
            match (settled.as_ref().is_ok_and(|done| *done), Arc::try_unwrap(module)) {
                (true, Ok(module)) => kept.extend(module.unload(device).map(Arc::new)),
                (false, Ok(module)) => kept.push(Arc::new(module)),
                (_, Err(module)) => kept.push(module),
            }
        }
        self.with_table(|table| table.retired.extend(kept));
        match settled {
            Ok(_) | Err(Error::StreamCapturing { .. }) => {}
            Err(error) => device.defer_error(error),
        }
    }

    /// The code of a kernel, checked against the program's description of it.
    pub fn bind(&self, device: &DeviceInner, meta: &'static KernelMeta) -> Result<Arc<BoundKernel>, Error> {
        let key = std::ptr::from_ref(meta).addr();
        if let Some(bound) = self.table().bound.get(&key) {
            return Ok(bound.clone());
        }
        let loaded = self.table().libraries.get(meta.library).cloned();
        let module = match loaded {
            Some(module) => module,
            None => {
                // The kernels that come with this crate need no call to `Device::load`.
                if let Some(image) = super::builtin::image(meta.library) {
                    self.load(device, image)?;
                }
                let table = self.table();
                table.libraries.get(meta.library).cloned().ok_or_else(|| Error::KernelNotLoaded {
                    kernel: meta.name,
                    library: meta.library,
                    loaded: table.libraries.keys().cloned().collect(),
                })?
            }
        };
        let bound = Arc::new(BoundKernel::new(module, meta)?);
        self.with_table(|table| {
            // Only if the module was not replaced meanwhile.
            let current = table.libraries.get(meta.library);
            if current.is_some_and(|m| Arc::ptr_eq(m, &bound.module)) {
                table.bound.insert(key, bound.clone());
            }
        });
        Ok(bound)
    }
}

impl LoadedModule {
    fn new(device: &DeviceInner, image: &KernelImage) -> Result<LoadedModule, Error> {
        let manifest = image.manifest()?;
        let (sm, ptx) = image.code_for(device.sm)?;
        let refuse = |problem| Error::Image { library: image.library.into(), problem };
        if ptx.contains('\0') {
            return Err(refuse(format!("its code for sm_{sm} holds a zero byte")));
        }
        let module = match cust::module::Module::from_ptx(ptx, &[]) {
            Ok(module) => module,
            Err(error) => {
                // `cust` has no option for the compiler's log: try again, to hear the reason.
                let error = Error::driver("cuModuleLoadDataEx", error as u32 as i32);
                let source = Box::new(with_versions(with_log(error, ptx), ptx));
                return Err(Error::ModuleLoad { library: image.library.into(), sm, source });
            }
        };
        let mut functions = HashMap::new();
        for entry in &manifest.kernels {
            let name = &entry.name;
            if name.contains('\0') {
                return Err(refuse(format!("its manifest names a kernel {name:?}")));
            }
            let function = sys::cust("cuModuleGetFunction", module.get_function(name))
                .map_err(|error| refuse(format!("its code for sm_{sm} has no kernel `{name}`: {error}")))?;
            // Asking for an attribute also makes a lazy driver load the code now: a first launch
            // inside a capture must not have to.
            let attribute = |a| -> Result<u32, Error> {
                let value = sys::cust("cuFuncGetAttribute", function.get_attribute(a))?;
                Ok(u32::try_from(value).unwrap_or(0))
            };
            let function = Function {
                handle: Handle(function.to_raw()),
                max_threads: attribute(FunctionAttribute::MaxThreadsPerBlock)?,
                static_shared: attribute(FunctionAttribute::SharedMemorySizeBytes)?,
            };
            functions.insert(name.clone(), function);
        }
        tracing::debug!(library = image.library, sm, kernels = functions.len(), "module loaded");
        Ok(LoadedModule { image: *image, manifest, functions, sm, module })
    }
}

impl LoadedModule {
    /// Unloads the code; the module if the driver could not, though the device is not lost.
    fn unload(self, device: &DeviceInner) -> Option<LoadedModule> {
        let LoadedModule { image, manifest, functions, sm, module } = self;
        let (error, module) = match cust::module::Module::drop(module) {
            Ok(()) => return None,
            Err(failed) => failed,
        };
        let error = Error::driver("cuModuleUnload", error as u32 as i32);
        let lost = error.is_device_lost();
        device.defer_error(error);
        (!lost).then_some(LoadedModule { image, manifest, functions, sm, module })
    }
}

/// Says which versions meet, where the driver is older than the code.
fn with_versions(error: Error, ptx: &str) -> Error {
    match error {
        Error::Driver { call, code, name, text, detail: None, hint } if code == sys::code::UNSUPPORTED_PTX_VERSION => {
            let isa =
                ptx.lines().find_map(|l| l.trim().strip_prefix(".version")).map_or("of an unknown version", str::trim);
            let needed = cuda_of(isa).map_or_else(String::new, |cuda| format!(", which came with CUDA {cuda}"));
            let installed = warpsmith_driver_api::engine().map_or_else(String::new, |e| format!("; installed is {e}"));
            let detail = Some(format!("the code is PTX ISA {isa}{needed}{installed}"));
            Error::Driver { call, code, name, text, detail, hint }
        }
        other => other,
    }
}

/// The CUDA that brought a version of the PTX ISA. Source: PTX ISA, release notes.
fn cuda_of(isa: &str) -> Option<String> {
    let (major, minor) = isa.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(match (major, minor) {
        (6, 0..=2) => format!("9.{minor}"),
        (6, 3..=5) => format!("10.{}", minor - 3),
        (7, 0..=8) => format!("11.{minor}"),
        (8, 0..=5) => format!("12.{minor}"),
        (8, 6..=8) => format!("12.{}", minor + 1),
        (9, _) => format!("13.{minor}"),
        _ => return None,
    })
}

/// Loads `ptx` once more for the compiler's log, and adds that to `error`.
fn with_log(error: Error, ptx: &str) -> Error {
    const LOG_BYTES: usize = 16 * 1024;
    let Ok(text) = CString::new(ptx) else { return error };
    let mut log = vec![0u8; LOG_BYTES];
    let mut names = [sys::JIT_ERROR_LOG_BUFFER, sys::JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver takes numbers in the place of pointers here.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = std::ptr::null_mut();
    // SAFETY: the image is a C string; two options with two values; the log buffer has the size
    // that is given and outlives the call.
    let again = unsafe {
        cu!(cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, names.as_mut_ptr(), values.as_mut_ptr()))
    };
    if again.is_ok() {
        // The first failure had another reason than the code; it stands.
        // SAFETY: the module was loaded just now and nothing of it is used.
        let _ = unsafe { cu!(cuModuleUnload(module)) };
    }
    let log = String::from_utf8_lossy(&log);
    let log = log.split('\0').next().unwrap_or_default().trim();
    match error {
        Error::Driver { call, code, name, text, detail, hint } if !log.is_empty() => {
            let detail = detail.or_else(|| Some(log.to_owned()));
            Error::Driver { call, code, name, text, detail, hint }
        }
        other => other,
    }
}

impl BoundKernel {
    fn new(module: Arc<LoadedModule>, meta: &'static KernelMeta) -> Result<BoundKernel, Error> {
        let stale = |difference| Error::StaleModule { kernel: meta.name, library: meta.library, difference };
        let entry = module.manifest.kernel(meta.name);
        let function = module.functions.get(meta.name);
        let (Some(entry), Some(&function)) = (entry, function) else {
            return Err(stale("it has no kernel of this name".into()));
        };
        let offsets = compare(meta, entry).map_err(stale)?;
        let param_bytes = offsets.iter().zip(meta.args).map(|(offset, arg)| offset + arg.size).max().unwrap_or(0);
        Ok(BoundKernel {
            function: function.handle,
            max_threads: function.max_threads,
            static_shared: function.static_shared,
            grid_barrier: entry.grid_barrier,
            waits: (module.sm >= 90).then_some(entry.waits),
            offsets,
            param_bytes,
            module,
            dynamic_raised: AtomicBool::new(false),
        })
    }

    /// How many blocks of `threads` threads a multiprocessor holds at the same time.
    pub fn blocks_per_multiprocessor(&self, threads: u32, dynamic_shared: u32) -> Result<u32, Error> {
        let mut blocks = 0;
        // SAFETY: the function belongs to a loaded module, which `self` holds; `blocks` is a live integer.
        unsafe {
            cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function.0,
                i32::try_from(threads).unwrap_or(i32::MAX),
                dynamic_shared as usize
            ))
        }?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Allows launches with as much dynamic shared memory as the device has.
    pub fn raise_dynamic_shared(&self, limit: u32) -> Result<(), Error> {
        if self.dynamic_raised.load(Ordering::Relaxed) {
            return Ok(());
        }
        let most = limit.saturating_sub(self.static_shared);
        // SAFETY: the function belongs to a loaded module, which `self` holds.
        unsafe {
            cu!(cuFuncSetAttribute(
                self.function.0,
                sys::FUNCTION_MAX_DYNAMIC_SHARED,
                i32::try_from(most).unwrap_or(i32::MAX)
            ))
        }?;
        self.dynamic_raised.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Compares the program's description of a kernel with the manifest's. The offsets of the
/// arguments if they agree, else what differs.
fn compare(meta: &'static KernelMeta, entry: &KernelEntry) -> Result<Vec<u32>, String> {
    if meta.block != entry.block {
        return Err(format!("this program launches blocks of {:?}, it was compiled for {:?}", meta.block, entry.block));
    }
    if meta.args.len() != entry.args.len() {
        return Err(format!("this program passes {} arguments, it takes {}", meta.args.len(), entry.args.len()));
    }
    let mut offsets = Vec::with_capacity(meta.args.len());
    let mut end = 0u32;
    for (arg, loaded) in meta.args.iter().zip(&entry.args) {
        let offset = end.next_multiple_of(arg.align.max(1));
        end = offset + arg.size;
        let ours = ArgEntry {
            name: arg.name.into(),
            ty: loaded.ty.clone(), // The words in the source; what they mean is compared.
            kind: arg.kind.name().into(),
            element: arg.element.into(),
            size: arg.size,
            align: arg.align,
            offset,
        };
        if ours != *loaded {
            return Err(format!(
                "argument {}: this program passes {}, it takes {}",
                offsets.len(),
                describe(&ours),
                describe(loaded)
            ));
        }
        offsets.push(offset);
    }
    Ok(offsets)
}

fn describe(arg: &ArgEntry) -> String {
    format!(
        "`{}` ({} {}, {} bytes aligned to {} at offset {})",
        arg.name, arg.kind, arg.element, arg.size, arg.align, arg.offset
    )
}
