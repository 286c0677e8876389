//! A machine and what lives on it: its memory, instances of modules, workers.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use warpsmith_arch::{Architecture, Demand, Gpu, Occupancy};

use crate::exec::Cx;
use crate::exec::block::Block;
use crate::exec::context::Sample;
use crate::exec::progress::{Sink, StillRunning};
use crate::exec::services::Services;
use crate::memory::{Memory, MemoryError, Snapshot};
use crate::module::Module;

/// How a machine is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// Architecture, e.g. 90.
    pub sm: u32,
    /// Bytes of global memory.
    pub total_memory: u64,
    /// Host threads for independent blocks; 0 means one per core.
    pub threads: usize,
    /// Instructions that one block's warps may execute before the launch is stopped; 0 means no limit.
    pub instruction_limit: u64,
    /// Rounds of spinning warps without any memory changing before that is called a deadlock; 0 means no limit.
    pub spin_limit: u64,
    /// How long a launch takes before somebody is told ([`Machine::on_progress`]).
    pub progress_after: Duration,
}

impl Default for MachineConfig {
    fn default() -> MachineConfig {
        MachineConfig {
            sm: 90,
            total_memory: 16 << 30,
            threads: 0,
            instruction_limit: 0,
            spin_limit: 1 << 20,
            progress_after: Duration::from_secs(10),
        }
    }
}

/// The GPU that stands for an architecture, or for the newest before it that one is known of.
pub(super) fn gpu(sm: u32) -> &'static Gpu {
    let known = || Gpu::standing().filter(|g| g.sm <= sm).last().or_else(|| Gpu::standing().next());
    Gpu::of(sm).or_else(known).unwrap_or(const { &Gpu::ALL[0] })
}

/// Blocks of so many threads that its multiprocessors hold, if nothing but warps and blocks limits them.
pub(super) fn resident(sm: u32, threads: u32) -> u32 {
    let gpu = gpu(sm);
    let limits = Architecture::up_to(sm).unwrap_or(const { &Architecture::ALL[0] });
    let block = Demand { registers: 1, threads, shared: 0 };
    gpu.multiprocessors * Occupancy::on(limits, block).blocks().max(1)
}

/// Grids below this number of threads are not worth waking other cores for.
pub(super) const PARALLEL_THREADS: u64 = 4096;

/// A module whose variables have places in a machine's memory; dropping it frees them.
pub struct Instance {
    pub(super) module: Arc<Module>,
    pub(super) memory: Arc<Memory>,
    /// Address of each of the program's globals.
    pub(super) addresses: Vec<u64>,
}

impl Instance {
    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// Address and size of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        let at = self.module.program.globals.iter().position(|g| g.name == name)?;
        Some((*self.addresses.get(at)?, self.module.program.globals[at].size))
    }

    /// Name, address and size of every variable that has a place.
    pub fn globals(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.module.program.globals.iter().zip(&self.addresses).map(|(g, at)| (g.name.as_str(), *at, g.size))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        for &base in &self.addresses {
            // Freed by somebody else already: nothing is left to do.
            let _ = self.memory.free(base);
        }
    }
}

/// Buffers of a host thread that runs blocks.
pub(super) struct Worker {
    pub cx: Cx,
    pub blocks: Vec<Block>,
}

// SAFETY: the raw pointers of the context point into the worker's own blocks or are set anew before each use.
unsafe impl Send for Worker {}

/// One device; `Send + Sync`.
pub struct Machine {
    pub(super) config: MachineConfig,
    pub(super) memory: Arc<Memory>,
    pub(super) services: Arc<Services>,
    idle: Mutex<Vec<Worker>>,
    pool: OnceLock<Option<rayon::ThreadPool>>,
    pub(super) progress: RwLock<Option<Sink>>,
}

impl Machine {
    /// A machine with empty memory.
    pub fn new(config: MachineConfig) -> Machine {
        let memory = Arc::new(Memory::new(config.total_memory));
        let services = Arc::new(Services::new(memory.clone()));
        let (idle, pool) = (Mutex::new(Vec::new()), OnceLock::new());
        Machine { config, memory, services, idle, pool, progress: RwLock::new(None) }
    }

    /// The configuration.
    pub fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// Gives what kernels print (`vprintf`) to `sink`, as it comes; it goes to standard output otherwise.
    pub fn on_print(&self, sink: impl Fn(&[u8]) + Send + Sync + 'static) {
        *self.services.printer.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(sink);
    }

    /// Sets how much kernels may have allocated with `malloc` at once; 8 MiB unless told.
    pub fn set_heap_limit(&self, bytes: u64) {
        self.services.set_heap_limit(bytes);
    }

    /// The device's global memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Gives a module's `.global` and `.const` variables their places: initialised, the rest zero.
    pub fn instantiate(&self, module: Arc<Module>) -> Result<Instance, MemoryError> {
        let mut instance = Instance { module, memory: self.memory.clone(), addresses: Vec::new() };
        let module = instance.module.clone();
        for global in &module.program.globals {
            let address = self.memory.alloc(global.size.max(1), u64::from(global.align.max(1)))?;
            instance.addresses.push(address);
            self.memory.fill(address, &[0], global.size)?;
            let bytes = global.init.len().min(global.size as usize);
            self.memory.write(address, &global.init[..bytes])?;
            if global.constant {
                self.memory.protect(address);
            }
        }
        for (global, &base) in module.program.globals.iter().zip(&instance.addresses) {
            for &(at, value) in &global.addresses {
                let value = value.resolve(&instance.addresses, &[]);
                self.memory.write(base.saturating_add(at), &value.to_le_bytes())?;
            }
        }
        Ok(instance)
    }

    /// Gives what is said of launches that take their time to `sink`: after [`MachineConfig::progress_after`], and from then on
    /// each time they have taken twice as long. Nobody is told otherwise.
    pub fn on_progress(&self, sink: impl Fn(&StillRunning) + Send + Sync + 'static) {
        *self.progress.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sink));
    }

    pub(super) fn pool(&self) -> Option<&rayon::ThreadPool> {
        let make = || {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let threads = if self.config.threads == 0 { cores } else { self.config.threads };
            if threads < 2 {
                return None;
            }
            let name = |i| format!("warpsmith-simt-{i}");
            rayon::ThreadPoolBuilder::new().num_threads(threads.min(256)).thread_name(name).build().ok()
        };
        self.pool.get_or_init(make).as_ref()
    }

    pub(super) fn worker(&self) -> Worker {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| Worker { cx: Cx::empty(), blocks: Vec::new() })
    }

    pub(super) fn put_back(&self, mut worker: Worker) {
        // The snapshot would keep freed memory alive.
        worker.cx.memory = Snapshot::default();
        worker.blocks.truncate(1);
        (worker.cx.following, worker.cx.counting, worker.cx.dice) = (false, false, 0);
        (worker.cx.parallel, worker.cx.early) = (false, false);
        (worker.cx.pulse, worker.cx.sample) = (None, Sample::default());
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
}
