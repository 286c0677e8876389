//! The modules that a device makes of kernel images.
//!
//! An image holds a module for each kernel, and a device loads one (a GPU's driver compiles it) when one of its kernels is
//! first used or warmed: looked up, launched, captured. A capture of ours is relaxed, so that the driver lets a module be
//! loaded within it; what is warm by then costs it nothing. A module lives as long as its device, or until another image of
//! its library takes its place: then it is unloaded at a later load, once no graph keeps it and
//! every stream has done its work, so that a kernel that runs never loses its code.
//!
//! A graph's launches may have modules of their own, with [constants](Constants) in them.
//!
//! A launch is bound to its module once: arguments, kinds, sizes, offsets and the block are
//! compared between the program's own description (`Kernel::META`) and the manifest of what was
//! loaded. A difference is [`Error::StaleModule`], before anything runs.

use crate::constants::Constants;
use crate::image::{self, KernelImage, SHIPPED};
use crate::load::ModuleCode;
use crate::memory::lock;
use crate::sys::{self, cu};
use crate::{DeviceInner, Error};
use cust::function::FunctionAttribute;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use warpsmith_device::KernelMeta;
use warpsmith_driver_api::CUfunction;
use warpsmith_image::{ArgEntry, KernelEntry, Manifest};

/// A library on a device.
struct Library {
    image: KernelImage,
    manifest: Arc<Manifest>,
    modules: image::Modules,
    /// Each when it is first wanted.
    loaded: Vec<OnceLock<Arc<LoadedModule>>>,
    /// Those that have [constants](Constants) in them.
    special: Mutex<Vec<Arc<LoadedModule>>>,
}

/// A module on a device.
pub struct LoadedModule {
    functions: HashMap<String, Function>,
    // Unloads the code when it is dropped, which only the device does, after its last work.
    module: cust::module::Module,
}

#[derive(Clone, Copy)]
struct Function {
    handle: CUfunction,
    max_threads: u32,
    static_shared: u32,
}

/// A kernel of the program, and its code on the device: known to fit each other.
pub struct BoundKernel {
    pub function: CUfunction,
    /// Threads of a block that the compiled code allows.
    pub max_threads: u32,
    pub static_shared: u32,
    /// Whether it waits for all blocks of its grid.
    pub grid_barrier: bool,
    /// Whether it waits for the launches before it; `None`: such code cannot.
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
pub struct DeviceModules {
    table: RwLock<Table>,
    loading: Mutex<()>,
}

#[derive(Default)]
struct Table {
    libraries: BTreeMap<String, Arc<Library>>,
    /// Replaced by a newer image of the same library; their kernels may still run.
    retired: Vec<Arc<LoadedModule>>,
    /// By the address of `Kernel::META`: a static, so the same address is the same kernel. And by what are constants in it.
    bound: HashMap<(usize, Constants), Arc<BoundKernel>>,
}

/// Modules with [constants](Constants) that a library keeps, though no graph has them any more.
const MOST_SPECIAL: usize = 256;

impl DeviceModules {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_table<R>(&self, f: impl FnOnce(&mut Table) -> R) -> R {
        f(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn libraries(&self) -> Vec<String> {
        self.table().libraries.keys().cloned().collect()
    }

    /// Takes an image: its text as a whole if it is one module, else none yet. The device's context is current.
    pub fn load(&self, device: &DeviceInner, image: &KernelImage) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.loading);
        if self.table().libraries.get(image.library()).is_some_and(|library| library.image == *image) {
            return Ok(());
        }
        let library = Arc::new(Library::new(device, image)?);
        if !library.modules.are_cut() {
            library.load(device, 0)?;
        }
        self.with_table(|table| {
            if let Some(old) = table.libraries.insert(image.library().into(), library) {
                let special = std::mem::take(&mut *lock(&old.special));
                let gone: Vec<_> = old.loaded.iter().filter_map(OnceLock::get).cloned().chain(special).collect();
                table.bound.retain(|_, bound| !gone.iter().any(|module| Arc::ptr_eq(&bound.module, module)));
                table.retired.extend(gone);
            }
        });
        Ok(())
    }

    /// Loads every module of an image, which the device has taken. Its context is current.
    pub fn load_all(&self, device: &DeviceInner, image: &KernelImage) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.loading);
        let library = self.table().libraries.get(image.library()).cloned();
        // Another thread may have put another image in its place, whose user asks for what he wants himself.
        let Some(library) = library.filter(|library| library.image == *image) else { return Ok(()) };
        (0..library.loaded.len()).try_for_each(|module| library.load(device, module).map(drop))
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

    /// The code of a kernel, checked against the program's description of it. Loads its module if that is not.
    pub fn bind(&self, device: &DeviceInner, meta: &'static KernelMeta) -> Result<Arc<BoundKernel>, Error> {
        self.bind_special(device, meta, Constants::default())
    }

    /// The same with constants in it, where there may be [such code](Library::special).
    pub fn bind_special(
        &self,
        device: &DeviceInner,
        meta: &'static KernelMeta,
        constants: Constants,
    ) -> Result<Arc<BoundKernel>, Error> {
        let key = (std::ptr::from_ref(meta).addr(), constants);
        if let Some(bound) = self.table().bound.get(&key) {
            return Ok(bound.clone());
        }
        self.load_shipped(device, meta)?;
        // While this is held no other image takes the library's place.
        let _one_at_a_time = lock(&self.loading);
        // Another thread may have been before.
        if let Some(bound) = self.table().bound.get(&key) {
            return Ok(bound.clone());
        }
        let library = self.library_of(meta)?;
        let bound = Arc::new(library.bind(device, meta, &key.1)?);
        self.with_table(|table| {
            table.bound.insert(key, bound.clone());
            table.retire_idle(&library);
        });
        Ok(bound)
    }

    /// Whether the code of a kernel waits for the launches before it; `None`: such code cannot. Loads no module.
    pub fn waits(&self, device: &DeviceInner, meta: &'static KernelMeta) -> Result<Option<bool>, Error> {
        self.load_shipped(device, meta)?;
        let library = self.library_of(meta)?;
        Ok(library.waits(library.entry(meta)?.0))
    }

    /// Takes the image that the program ships with a kernel's library, if none of it was taken.
    fn load_shipped(&self, device: &DeviceInner, meta: &'static KernelMeta) -> Result<(), Error> {
        match SHIPPED.iter().find(|image| image.library() == meta.library) {
            Some(image) if !self.table().libraries.contains_key(meta.library) => self.load(device, image),
            _ => Ok(()),
        }
    }

    fn library_of(&self, meta: &'static KernelMeta) -> Result<Arc<Library>, Error> {
        let table = self.table();
        table.libraries.get(meta.library).cloned().ok_or_else(|| Error::KernelNotLoaded {
            kernel: meta.name,
            library: meta.library,
            loaded: table.libraries.keys().cloned().collect(),
        })
    }
}

impl Table {
    /// Retires the modules with constants of a library that nothing but this refers to, if it has many.
    fn retire_idle(&mut self, library: &Library) {
        let mut special = lock(&library.special);
        if special.len() <= MOST_SPECIAL {
            return;
        }
        // One reference is the library's, one of each kernel that is bound to it.
        let is_idle = |module: &Arc<LoadedModule>, bound: &Arc<BoundKernel>| {
            Arc::ptr_eq(&bound.module, module) && Arc::strong_count(module) == 2 && Arc::strong_count(bound) == 1
        };
        let idle: Vec<_> =
            special.extract_if(.., |module| self.bound.values().any(|bound| is_idle(module, bound))).collect();
        self.bound.retain(|_, bound| !idle.iter().any(|module| Arc::ptr_eq(&bound.module, module)));
        self.retired.extend(idle);
    }
}

impl Library {
    fn new(device: &DeviceInner, image: &KernelImage) -> Result<Library, Error> {
        let manifest = image.manifest()?;
        // Machine code is for GPUs.
        let modules = match device.is_software() {
            true => image.modules_for(device.sm)?,
            false => image.modules_with_cubins_for(device.sm)?,
        };
        if let Some(entry) = manifest.kernels.iter().find(|entry| modules.of(&entry.name).is_none()) {
            return Err(image.refuse(format!("its code for sm_{} has no kernel `{}`", modules.sm, entry.name)));
        }
        let loaded = std::iter::repeat_with(OnceLock::new).take(modules.count()).collect();
        Ok(Library { image: *image, manifest, modules, loaded, special: Mutex::default() })
    }

    /// What the manifest says of a kernel, and where its arguments start.
    fn entry(&self, meta: &'static KernelMeta) -> Result<(&KernelEntry, Vec<u32>), Error> {
        let missing = || stale(meta, "it has no kernel of this name".into());
        let entry = self.manifest.kernel(meta.name).ok_or_else(missing)?;
        Ok((entry, compare(meta, entry).map_err(|difference| stale(meta, difference))?))
    }

    /// Whether a kernel waits for the launches before it; `None`: such code cannot.
    fn waits(&self, entry: &KernelEntry) -> Option<bool> {
        self.manifest.can_wait(self.modules.sm).then_some(entry.waits)
    }

    fn bind(
        &self,
        device: &DeviceInner,
        meta: &'static KernelMeta,
        constants: &Constants,
    ) -> Result<BoundKernel, Error> {
        let (entry, offsets) = self.entry(meta)?;
        let missing = || stale(meta, "it has no kernel of this name".into());
        let number = self.modules.of(meta.name).ok_or_else(missing)?;
        let module = match self.special(device, number, meta.name, constants)? {
            Some(special) => special,
            None => self.load(device, number)?,
        };
        let function = *module.functions.get(meta.name).ok_or_else(missing)?;
        let param_bytes = offsets.iter().zip(meta.args).map(|(offset, arg)| offset + arg.size).max().unwrap_or(0);
        Ok(BoundKernel {
            function: function.handle,
            max_threads: function.max_threads,
            static_shared: function.static_shared,
            grid_barrier: entry.grid_barrier,
            waits: self.waits(entry),
            offsets,
            param_bytes,
            module,
            dynamic_raised: AtomicBool::new(false),
        })
    }

    /// A module, loaded now if it was not. The caller holds the lock on loading.
    fn load(&self, device: &DeviceInner, number: usize) -> Result<Arc<LoadedModule>, Error> {
        let missing = || self.image.refuse(format!("it has no module {number}"));
        let place = self.loaded.get(number).ok_or_else(missing)?;
        if let Some(module) = place.get() {
            return Ok(module.clone());
        }
        let own = self.manifest.kernels.iter().filter(|entry| self.modules.of(&entry.name) == Some(number));
        let names: Vec<&str> = own.map(|entry| entry.name.as_str()).collect();
        let code = ModuleCode { image: &self.image, modules: &self.modules, number, kernels: &names };
        let load = || LoadedModule::new(&code, code.load(device.code_cache.as_ref(), with_lines(device))?);
        let module = sys::relaxed(load)?;
        Ok(place.get_or_init(|| Arc::new(module)).clone())
    }

    /// The module of a kernel with constants in it, loaded now. `None` without constants, and where the code for all launches is taken:
    /// where the program carries machine code for the device, so that nothing has to be compiled, and where there may be no second copy of
    /// it ([`Constants::in_text`]). The caller holds the lock on loading.
    fn special(
        &self,
        device: &DeviceInner,
        number: usize,
        kernel: &str,
        constants: &Constants,
    ) -> Result<Option<Arc<LoadedModule>>, Error> {
        if constants.is_empty() || !self.modules.are_cut() || self.modules.have_cubins() {
            return Ok(None);
        }
        let text = self.modules.text(number, with_lines(device))?;
        let Some(text) = constants.in_text(&text, kernel) else { return Ok(None) };
        let code = ModuleCode { image: &self.image, modules: &self.modules, number, kernels: &[kernel] };
        let load = || LoadedModule::new(&code, code.load_text(device.code_cache.as_ref(), &text)?);
        let module = Arc::new(sys::relaxed(load)?);
        lock(&self.special).push(module.clone());
        Ok(Some(module))
    }
}

/// Whether PTX has the lines of its source: the software driver reports by them; a GPU's has no use for them.
fn with_lines(device: &DeviceInner) -> bool {
    device.is_software()
}

impl LoadedModule {
    fn new(code: &ModuleCode<'_>, module: cust::module::Module) -> Result<LoadedModule, Error> {
        let ModuleCode { image, modules: image::Modules { sm, .. }, kernels, .. } = code;
        let mut functions = HashMap::new();
        for &name in *kernels {
            if name.contains('\0') {
                return Err(image.refuse(format!("its manifest names a kernel {name:?}")));
            }
            let function = sys::cust("cuModuleGetFunction", module.get_function(name))
                .map_err(|error| image.refuse(format!("its code for sm_{sm} has no kernel `{name}`: {error}")))?;
            // Asking for an attribute also makes a lazy driver load the code now: a first launch
            // inside a capture must not have to.
            let attribute = |a| -> Result<u32, Error> {
                let value = sys::cust("cuFuncGetAttribute", function.get_attribute(a))?;
                Ok(u32::try_from(value).unwrap_or(0))
            };
            let function = Function {
                handle: CUfunction(function.to_raw().cast()),
                max_threads: attribute(FunctionAttribute::MaxThreadsPerBlock)?,
                static_shared: attribute(FunctionAttribute::SharedMemorySizeBytes)?,
            };
            functions.insert(name.to_owned(), function);
        }
        tracing::debug!(library = image.library(), sm, ?kernels, "module loaded");
        Ok(LoadedModule { functions, module })
    }

    /// Unloads the code; the module if the driver could not, though the device is not lost.
    fn unload(self, device: &DeviceInner) -> Option<LoadedModule> {
        let LoadedModule { functions, module } = self;
        let (error, module) = match cust::module::Module::drop(module) {
            Ok(()) => return None,
            Err(failed) => failed,
        };
        let error = Error::driver("cuModuleUnload", error as u32 as i32);
        let lost = error.is_device_lost();
        device.defer_error(error);
        (!lost).then_some(LoadedModule { functions, module })
    }
}

impl BoundKernel {
    /// How many blocks of `threads` threads a multiprocessor holds at the same time.
    pub fn blocks_per_multiprocessor(&self, threads: u32, dynamic_shared: u32) -> Result<u32, Error> {
        let mut blocks = 0;
        // SAFETY: the function belongs to a loaded module, which `self` holds; `blocks` is a live integer.
        unsafe {
            cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function,
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
                self.function,
                sys::FUNCTION_MAX_DYNAMIC_SHARED,
                i32::try_from(most).unwrap_or(i32::MAX)
            ))
        }?;
        self.dynamic_raised.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn stale(meta: &'static KernelMeta, difference: String) -> Error {
    Error::StaleModule { kernel: meta.name, library: meta.library, difference }
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
