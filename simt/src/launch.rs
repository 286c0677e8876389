//! The machine: instantiates modules and runs kernels.
//!
//! **Order of blocks.** The reference is: blocks run one after the other, in order of their linear
//! index. A kernel without anything by which blocks could communicate in an order (outside shared memory no volatile,
//! relaxed, acquiring or releasing accesses, no fences beyond the block, no atomics but relaxed integer reductions of one
//! kind whose results nobody reads: those commute) runs on several cores, with the same result; of several faults the one
//! of the lowest block is reported, as in serial order. All other kernels run serially. That is bit-identical for every
//! kernel whose blocks do not race; one machine thread (`MachineConfig::threads` = 1) makes it so for those that do. If the
//! current block only spins, it waits for another: then the next block starts beside it, as blocks on a GPU are resident
//! together.

mod run;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::check::checker::{self, Checker, RawSite};
use crate::check::race::sync_fault;
use crate::check::{self, Checks, Inspection};
use crate::counters::Counters;
use crate::exec::block::{Block, Grid};
use crate::exec::library::Services;
use crate::exec::space::CODE_WINDOW;
use crate::exec::warp::Row;
use crate::exec::{Cx, LANES, uniform};
use crate::fault::{Fault, FaultKind};
use crate::memory::{Memory, MemoryError, Snapshot};
use crate::module::Module;
use crate::program::{Const, Entry, Program};
use run::{Failure, Run};

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
}

impl Default for MachineConfig {
    fn default() -> MachineConfig {
        MachineConfig { sm: 90, total_memory: 16 << 30, threads: 0, instruction_limit: 0, spin_limit: 1 << 20 }
    }
}

/// Geometry of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The most dynamic shared memory that the kernel has opted in to; 0 means what fits into 48 KiB.
    pub max_dynamic_shared: u32,
}

impl Launch {
    /// A launch without dynamic shared memory.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Launch {
        Launch { grid, block, dynamic_shared: 0, max_dynamic_shared: 0 }
    }
}

/// Local memory of a thread.
const MAX_LOCAL: u32 = 512 << 10;
/// Shared memory of a block without opting in to more.
const DEFAULT_SHARED: u32 = 48 << 10;
/// Multiprocessors of the device, and threads that each holds.
const MULTIPROCESSORS: u32 = 132;
const RESIDENT_THREADS: u32 = 2048;
/// Grids below this number of threads are not worth waking other cores for.
const PARALLEL_THREADS: u64 = 4096;

/// A module whose variables have places in a machine's memory; dropping it frees them.
pub struct Instance {
    module: Arc<Module>,
    memory: Arc<Memory>,
    /// Address of each of the program's globals.
    addresses: Vec<u64>,
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
struct Worker {
    cx: Cx,
    blocks: Vec<Block>,
}

// SAFETY: the raw pointers of the context point into the worker's own blocks or are set anew before each use.
unsafe impl Send for Worker {}

/// One device; `Send + Sync`.
pub struct Machine {
    config: MachineConfig,
    memory: Arc<Memory>,
    services: Arc<Services>,
    idle: Mutex<Vec<Worker>>,
    pool: OnceLock<Option<rayon::ThreadPool>>,
}

/// Bytes of shared memory that a block may have at most on an architecture.
fn max_shared(sm: u32) -> u32 {
    let kib = match sm {
        ..=69 => 48,
        70..=74 => 96,
        75..=79 => 64,
        80 | 87 => 163,
        81..=89 => 99,
        90..=119 => 227,
        _ => 99,
    };
    kib << 10
}

impl Machine {
    /// A machine with empty memory.
    pub fn new(config: MachineConfig) -> Machine {
        let memory = Arc::new(Memory::new(config.total_memory));
        let services = Arc::new(Services::new(memory.clone()));
        Machine { config, memory, services, idle: Mutex::new(Vec::new()), pool: OnceLock::new() }
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
        }
        for (global, &base) in module.program.globals.iter().zip(&instance.addresses) {
            for &(at, value) in &global.addresses {
                let value = resolve(value, &instance.addresses, &[]);
                self.memory.write(base.saturating_add(at), &value.to_le_bytes())?;
            }
        }
        Ok(instance)
    }

    /// Runs a kernel to its end. `params` is the parameter block.
    ///
    /// # Errors
    /// The fault that stopped it. Memory then holds what had been written until then.
    pub fn launch(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
    ) -> Result<Counters, Box<Fault>> {
        let module = &instance.module;
        let ran = self.with_grid(instance, &module.program, kernel, launch, params, |run| {
            let threads = u64::from(run.grid.threads);
            let worth = run.blocks > 1 && run.blocks.saturating_mul(threads) >= PARALLEL_THREADS;
            let result = match self.pool().filter(|_| !run.serial && worth) {
                Some(pool) => run.parallel(pool),
                None => run.serial(None).0,
            };
            result.map_err(|failure| Box::new(self.report(module, kernel, run.grid, failure)))
        });
        // Nobody has followed which bytes the kernel wrote.
        self.memory.define_all();
        ran.flatten()
    }

    /// Runs a kernel as [`launch`](Machine::launch) does, serially, and watches it.
    pub fn inspect(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        checks: &Checks,
    ) -> Inspection {
        self.inspect_with(instance, kernel, launch, params, checks, None)
    }

    /// As [`inspect`](Machine::inspect), for a launch that other operations of the host program may overlap: with
    /// [`Checks::races`], what it accesses in global memory is compared with what earlier operations did that are not ordered
    /// before it, and recorded for later ones.
    pub fn inspect_ordered(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        checks: &Checks,
        ordering: &check::Ordering<'_>,
    ) -> Inspection {
        self.inspect_with(instance, kernel, launch, params, checks, Some(ordering))
    }

    fn inspect_with(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        checks: &Checks,
        ordering: Option<&check::Ordering<'_>>,
    ) -> Inspection {
        let module = &instance.module;
        let nothing = |fault| Inspection {
            counters: Counters::default(),
            findings: Vec::new(),
            profile: None,
            fault: Some(fault),
        };
        let Some(program) = module.checked() else {
            return nothing(Box::new(bad_launch(kernel, "the module cannot be prepared for checks".to_string())));
        };
        let ran = self.with_grid(instance, program, kernel, launch, params, |run| {
            let mut checker = Box::new(Checker::new(*checks, run.grid));
            let variables = program.globals.iter().zip(&instance.addresses);
            checker.races.early = ordering.and_then(|o| o.early).map(|_| Vec::new());
            checker.races.statics = variables.map(|(g, &address)| (address, g.size, g.name.clone())).collect();
            let (result, checker) = run.serial(Some(checker));
            let (findings, counts, uses, early) = checker.map_or_else(Default::default, |c| {
                let uses = if ordering.is_some() { c.races.uses() } else { Vec::new() };
                (c.findings, c.counts, uses, check::race::joined(c.races.early.unwrap_or_default()))
            });
            let profile =
                checker::notes(program).filter(|_| checks.profile).map(|notes| counts.finish(module, program, notes));
            let mut findings = findings;
            if let Err((block, warp, raw)) = &result
                && checks.sync
            {
                sync_fault(&mut findings, *block, *warp, raw);
            }
            let (counters, fault) = match result {
                Ok(counters) => (counters, None),
                Err(failure) => (Counters::default(), Some(Box::new(self.report(module, kernel, run.grid, failure)))),
            };
            let mut findings = findings.finish(module, kernel, run.grid);
            if let Some(ordering) = ordering {
                let label = |write| format!("{} by kernel `{kernel}`", if write { "write" } else { "read" });
                let site = |(pc, thread), write| {
                    RawSite { label: label(write), thread: Some(thread), pc, note: String::new() }
                        .finish(module, run.grid)
                };
                findings.extend(self.memory.overtaken(kernel, &early, ordering, &site));
                findings.extend(self.memory.record(kernel, &uses, ordering, &site));
            }
            Inspection { counters, findings, profile, fault }
        });
        if !checks.init {
            self.memory.define_all();
        }
        ran.unwrap_or_else(nothing)
    }

    /// Checks a launch and runs `f` on it.
    fn with_grid<R>(
        &self,
        instance: &Instance,
        program: &Program,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        f: impl FnOnce(&Run<'_>) -> R,
    ) -> Result<R, Box<Fault>> {
        let module = &instance.module;
        let at = module.kernels().position(|k| k.name == kernel);
        let entry = at.and_then(|i| program.entries.get(i));
        let checked = match entry {
            None => Err("the module has no such kernel".to_string()),
            Some(entry) => self.check(module, kernel, entry, launch, params).map(|shared| (entry, shared)),
        };
        let (entry, shared_bytes) = checked.map_err(|why| Box::new(bad_launch(kernel, why)))?;
        // At most 1024, as was checked.
        let threads = launch.block.iter().product::<u32>();
        let pools = pools(program, entry, &instance.addresses);
        let grid = Grid {
            program,
            pools: &pools,
            entry: entry.function,
            grid: launch.grid,
            block: launch.block,
            threads,
            shared_bytes,
            dynamic_shared: launch.dynamic_shared,
        };
        let mut params = params.to_vec();
        params.resize(params.len().next_multiple_of(16) + 16, 0);
        let run = Run {
            machine: self,
            grid: &grid,
            params: &params,
            param_bytes: module.kernel(kernel).map_or(0, |k| k.param_bytes),
            memory: self.memory.snapshot(),
            blocks: launch.grid.iter().fold(1u64, |p, &n| p.saturating_mul(n.into())),
            serial: entry.serial,
        };
        Ok(f(&run))
    }

    fn pool(&self) -> Option<&rayon::ThreadPool> {
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

    /// Checks the launch; gives the block's bytes of shared memory.
    fn check(
        &self,
        module: &Module,
        kernel: &str,
        entry: &Entry,
        launch: &Launch,
        params: &[u8],
    ) -> Result<u32, String> {
        let Some(info) = module.kernel(kernel) else { return Err("the module has no such kernel".into()) };
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        if launch.grid.contains(&0) || launch.block.contains(&0) {
            return Err(format!("grid {gx}×{gy}×{gz} of blocks {bx}×{by}×{bz}: no dimension may be 0"));
        }
        if gx > i32::MAX as u32 || gy > 65535 || gz > 65535 {
            return Err(format!("grid {gx}×{gy}×{gz}: the most is 2147483647×65535×65535"));
        }
        let threads = u64::from(bx).saturating_mul(by.into()).saturating_mul(bz.into());
        if threads > 1024 || bz > 64 {
            return Err(format!("block {bx}×{by}×{bz}: the most is 1024 threads in 1024×1024×64"));
        }
        let limit = info.max_threads.map(|m| m.iter().fold(1u64, |p, &n| p.saturating_mul(n.max(1).into())));
        if let Some(limit) = limit.filter(|&l| threads > l) {
            return Err(format!(
                "block of {threads} threads, but the kernel was compiled for at most {limit} (.maxntid)"
            ));
        }
        if let Some(required) = info.required_threads {
            let required = required.map(|n| n.max(1));
            if required != launch.block {
                let [x, y, z] = required;
                return Err(format!("block {bx}×{by}×{bz}, but the kernel requires {x}×{y}×{z} (.reqntid)"));
            }
        }
        let dynamic = launch.dynamic_shared;
        let own = entry.shared_bytes;
        let allowed = launch.max_dynamic_shared.max(DEFAULT_SHARED.saturating_sub(own));
        if dynamic > allowed {
            return Err(format!(
                "{dynamic} bytes of dynamic shared memory, but {allowed} are allowed (raise the kernel's maximum dynamic shared size)"
            ));
        }
        let total = own.saturating_add(dynamic);
        let most = max_shared(self.config.sm);
        if total > most {
            return Err(format!(
                "{total} bytes of shared memory, but a block has at most {most} on sm_{}",
                self.config.sm
            ));
        }
        let local = module.program.functions.get(entry.function as usize).map_or(0, |f| f.local_bytes);
        if local > MAX_LOCAL {
            return Err(format!("{local} bytes of local memory, but a thread has at most {MAX_LOCAL}"));
        }
        if params.len() < info.param_bytes as usize {
            return Err(format!("{} bytes of parameters, but the kernel takes {}", params.len(), info.param_bytes));
        }
        Ok(total)
    }

    /// Turns a raw fault into a report.
    fn report(&self, module: &Module, kernel: &str, grid: &Grid<'_>, (block, warp, raw): Failure) -> Fault {
        let program = grid.program;
        let debug = program.ops.get(raw.pc as usize).and_then(|op| program.debug.get(op.debug as usize));
        let line = debug.map_or(0, |d| d.line);
        let location = debug.and_then(|d| program.locations.get(d.location as usize));
        let mut detail = raw.detail;
        for w in &raw.waiters {
            let debug = program.ops.get(w.pc as usize).and_then(|op| program.debug.get(op.debug as usize));
            let line = debug.map_or(0, |d| d.line);
            detail += &format!("\nwarp {}, lanes {:#010x}, PTX line {line}: {}", w.warp, w.lanes, w.what);
            if let Some(location) = debug.and_then(|d| program.locations.get(d.location as usize)) {
                detail += &format!(" ({})", module.source(location));
            }
        }
        let memory_fault = matches!(raw.kind, FaultKind::OutOfBounds | FaultKind::Misaligned);
        if let Some(address) = raw.address.filter(|&a| memory_fault && a >= 1 << 32) {
            detail += "\n";
            detail += &self.memory.describe(address);
        }
        Fault {
            kind: raw.kind,
            kernel: kernel.to_string(),
            block: grid.coordinates(block),
            thread: grid.thread(warp, raw.lane),
            lane: raw.lane,
            ptx_line: line,
            ptx_text: module.line(line).to_string(),
            source: location.map(|l| module.source(l)),
            frames: location.map(|l| module.frames(l)).unwrap_or_default(),
            address: raw.address,
            detail,
        }
    }

    fn worker(&self) -> Worker {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| Worker { cx: empty_context(), blocks: Vec::new() })
    }

    fn put_back(&self, mut worker: Worker) {
        // The snapshot would keep freed memory alive.
        worker.cx.memory = Snapshot::default();
        worker.blocks.truncate(1);
        (worker.cx.tainted, worker.cx.counting, worker.cx.dice) = (false, false, 0);
        worker.cx.parallel = false;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
}

fn bad_launch(kernel: &str, why: String) -> Fault {
    Fault {
        kind: FaultKind::BadLaunch(why),
        kernel: kernel.to_string(),
        block: [0; 3],
        thread: [0; 3],
        lane: 0,
        ptx_line: 0,
        ptx_text: String::new(),
        source: None,
        frames: Vec::new(),
        address: None,
        detail: String::new(),
    }
}

/// The value of a constant, with the kernel's places of shared variables.
fn resolve(value: Const, globals: &[u64], shared: &[(u32, u32)]) -> u64 {
    match value {
        Const::Bits(bits) => bits,
        Const::Global(i, offset) => globals.get(i as usize).copied().unwrap_or(0).wrapping_add_signed(offset),
        Const::Shared(i, offset) => {
            let at = shared.iter().find(|s| s.0 == i).map_or(0, |s| s.1);
            u64::from(at).wrapping_add_signed(offset)
        }
        Const::Function(i) => CODE_WINDOW + 16 * u64::from(i),
    }
}

/// Constant pools of the functions that an entry reaches.
fn pools(program: &Program, entry: &Entry, globals: &[u64]) -> Vec<Vec<Row>> {
    let mut pools: Vec<Vec<Row>> = vec![Vec::new(); program.functions.len()];
    for &f in &entry.reachable {
        let function = &program.functions[f as usize];
        let mut rows = vec![Row([0; LANES]); (function.const_bytes / 128) as usize];
        for constant in &function.consts {
            let value = resolve(constant.value, globals, &entry.shared);
            let at = (constant.at / 128) as usize;
            if !constant.wide {
                rows[at].0 = [value as u32; LANES];
                continue;
            }
            // A row of 64-bit lanes: low and high words alternate over two rows.
            let words = [value as u32, (value >> 32) as u32];
            for row in &mut rows[at..at + 2] {
                row.0 = std::array::from_fn(|i| words[i % 2]);
            }
        }
        pools[f as usize] = rows;
    }
    pools
}

fn empty_context() -> Cx {
    Cx {
        regs: std::ptr::null_mut(),
        consts: std::ptr::null(),
        preds: std::ptr::null_mut(),
        active: 0,
        mask: 0,
        live: 0,
        next: 0,
        taken: 0,
        stop: 0,
        spins: 0,
        sync_seen: false,
        parallel: false,
        progress: 0,
        executed: 0,
        limit: u64::MAX,
        code: std::ptr::null(),
        lists: std::ptr::null(),
        weights: std::ptr::null(),
        memory: Snapshot::default(),
        sites: Vec::new(),
        shared: std::ptr::null_mut(),
        shared_bytes: 0,
        local: std::ptr::null_mut(),
        local_base: 0,
        local_top: 0,
        services: None,
        stack: std::ptr::null_mut(),
        params: std::ptr::null(),
        param_bytes: 0,
        tid: [std::ptr::null(); 3],
        uniform: [0; uniform::COUNT],
        counters: Counters::default(),
        fault: None,
        checker: None,
        notes: std::ptr::null(),
        tainted: false,
        watching: false,
        counting: false,
        dice: 0,
        interrupts: 0,
        frame_row: 0,
        frame_pred: 0,
    }
}
