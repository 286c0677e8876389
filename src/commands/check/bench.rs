//! A simulated device for one case: memory that knows what is defined, and launches under the checks.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use warpsmith_check::{CheckedMemory, Checks, Inspect, Start};
use warpsmith_device::launch::param_block;
use warpsmith_device::{AnyKernel, DeviceSlice, Element, Launcher};
use warpsmith_driver_api::software::{LaunchProfile, Report, approximate_json, finding_of};
use warpsmith_host::gpu_kernels::cases::Bench;
use warpsmith_simt::{Counters, Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

use crate::commands::approximate::Approximate;

/// The kernels that ship, for devices of one architecture: each is loaded from the text of its own, once, when it is asked for first.
pub struct Kernels {
    sm: u32,
    loaded: Mutex<HashMap<String, Arc<Module>>>,
}

impl Kernels {
    pub fn new(sm: u32) -> Arc<Kernels> {
        Arc::new(Kernels { sm, loaded: Mutex::default() })
    }

    /// The module that has this one alone.
    pub fn of(&self, kernel: &str) -> Result<Arc<Module>, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded.get(kernel) {
            return Ok(Arc::clone(module));
        }
        let module = single(kernel, self.sm)?;
        loaded.insert(kernel.to_owned(), Arc::clone(&module));
        Ok(module)
    }
}

/// The module of a kernel that ships, of its own text, which is what a launch of it runs.
pub fn single(kernel: &str, sm: u32) -> Result<Arc<Module>, String> {
    let (_, text) = warpsmith_host::builtin_image().code_of(kernel, sm).map_err(|e| e.to_string())?;
    Module::load(&text, &LoadOptions { sm })
        .map(Arc::new)
        .map_err(|e| format!("{kernel} does not load for sm_{sm}: {e}"))
}

/// A device with the kernels on it, and what was found there.
pub struct Gpu {
    machine: Arc<Machine>,
    kernels: Arc<Kernels>,
    instances: HashMap<&'static str, Instance>,
    /// Launches run only so many of their blocks.
    pub first_blocks: Option<u64>,
    checks: Checks,
    /// What is wrong so far.
    pub reports: Vec<Report>,
    /// One a launch, if the checks ask for profiles.
    pub profiles: Vec<LaunchProfile>,
    /// All launches together.
    pub counters: Counters,
    /// Approximate instructions of what was launched.
    pub approximate: Approximate,
    launched: HashSet<&'static str>,
    outputs: DefaultHasher,
    /// The kernel that was launched last.
    last: &'static str,
}

impl Gpu {
    /// An empty device.
    pub fn new(kernels: &Arc<Kernels>, checks: Checks) -> Gpu {
        let machine = Machine::new(MachineConfig { sm: kernels.sm, threads: 1, ..MachineConfig::default() });
        machine.memory().track(checks.init);
        let (reports, profiles, counters, approximate, launched) = Default::default();
        Gpu {
            machine: Arc::new(machine),
            kernels: Arc::clone(kernels),
            instances: HashMap::new(),
            first_blocks: None,
            checks,
            reports,
            profiles,
            counters,
            approximate,
            launched,
            outputs: DefaultHasher::new(),
            last: "",
        }
    }

    /// Of everything that was read.
    pub fn digest(&self) -> u64 {
        self.outputs.finish()
    }
}

impl Launcher for Gpu {
    type Error = String;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.check().map_err(|e| e.to_string())?;
        let (meta, geometry, params) = (kernel.meta(), kernel.geometry(), &param_block(|sink| kernel.args(sink)));
        geometry.check(meta).map_err(|e| e.to_string())?;
        self.last = meta.name;
        let mut launch = Launch::new(geometry.grid, geometry.block_for(meta));
        // As the runtime does, which tells the function.
        (launch.dynamic_shared, launch.max_dynamic_shared) = (geometry.dynamic_shared, geometry.dynamic_shared);
        let instance = match self.instances.entry(meta.name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let module = self.kernels.of(meta.name)?;
                entry.insert(self.machine.instantiate(module).map_err(|e| e.to_string())?)
            }
        };
        let (module, first_blocks) = (instance.module(), self.first_blocks);
        let start = Start { checks: self.checks, first_blocks, ..Start::new(meta.name, &launch, params) };
        let ran = self.machine.inspect_start(instance, start);
        self.counters += ran.counters;
        if self.launched.insert(meta.name) {
            let list = module.approximations(meta.name);
            self.approximate.add(meta.name, approximate_json(&list));
        }
        if let (Some(profile), Some(info)) = (ran.profile, module.kernel(meta.name)) {
            self.profiles.push(LaunchProfile::new(self.machine.config().sm, module, info, &launch, profile));
        }
        let fault = ran.fault.iter().filter(|_| !ran.fault_told).map(|f| finding_of(f));
        for finding in ran.findings.into_iter().chain(fault) {
            self.reports.push(Report { launch: Some(launch), ..Report::new(finding) });
        }
        ran.fault.map_or(Ok(()), |fault| Err(fault.to_string()))
    }
}

impl Bench for Gpu {
    type Buffer<T: Element> = Buffer<T>;

    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Buffer<T>, String> {
        let buffer = self.output(data.len())?;
        if !data.is_empty() {
            let bytes = bytemuck::cast_slice(data);
            self.machine.memory().write(buffer.base, bytes).map_err(|e| e.to_string())?;
        }
        Ok(buffer)
    }

    fn output<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, String> {
        let bytes = (len * size_of::<T>()).max(1) as u64;
        let base = self.machine.memory().alloc(bytes, 256).map_err(|e| e.to_string())?;
        Ok(Buffer { machine: Arc::clone(&self.machine), base, len, element: std::marker::PhantomData })
    }

    fn read<T: Element>(&mut self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        let mut bytes = vec![0u8; buffer.len * size_of::<T>()];
        if !bytes.is_empty() {
            self.machine.memory().read(buffer.base, &mut bytes).map_err(|e| e.to_string())?;
        }
        if self.checks.init
            && let Some(mut finding) = self.machine.memory().undefined_output(buffer.base, bytes.len() as u64)
        {
            if finding.kernel.is_empty() {
                finding.kernel = self.last.to_owned();
            }
            self.reports.push(Report::new(finding));
        }
        self.outputs.write(&bytes);
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }
}

/// Memory of a [`Gpu`].
pub struct Buffer<T> {
    machine: Arc<Machine>,
    base: u64,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // It is an allocation of the machine's; nothing else frees it.
        let _ = self.machine.memory().free(self.base);
    }
}

impl<T: Element> std::ops::Deref for Buffer<T> {
    type Target = DeviceSlice<T>;
    fn deref(&self) -> &DeviceSlice<T> {
        // SAFETY: `len` elements of an allocation that lives as long as `self`.
        unsafe { DeviceSlice::from_raw(self.base, self.len) }
    }
}

impl<T: Element> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        // SAFETY: as in `deref`; the buffer is borrowed exclusively.
        unsafe { DeviceSlice::from_raw_mut(self.base, self.len) }
    }
}
