//! What a launch needs before it begins: that it is allowed, its constants, its parameters.

use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use warpsmith_arch::{Architecture, DEFAULT_SHARED, MAX_BLOCK, MAX_GRID, MAX_LOCAL, MAX_THREADS};

use super::machine::{Instance, Machine, gpu};
use super::run::Run;
use super::start::{Launch, Start};
use crate::exec::layout::{LANES, RESERVED, Row};
use crate::exec::progress::Pulse;
use crate::fault::{Fault, FaultKind, LaunchRefusal, Reason};
use crate::memory::{Memory, MemoryError, Snapshot};
use crate::module::Module;
use crate::program::{Entry, Grid, Overlap, Program};

/// Bytes of shared memory that a block may have at most on an architecture; before the first that is known what every GPU has.
fn max_shared(sm: u32) -> u32 {
    Architecture::up_to(sm).map_or(DEFAULT_SHARED, |a| a.shared_optin)
}

/// A launch that is allowed, with everything that it refers to.
pub(super) struct Prepared<I> {
    pub instance: I,
    pub kernel: String,
    launch: Launch,
    threads: u32,
    shared_bytes: u32,
    function: u32,
    overlap: Overlap,
    pools: Vec<Vec<Row>>,
    params: Vec<u8>,
    param_bytes: u32,
    memory: Snapshot,
    limit: u64,
    pulse: Option<Arc<Pulse>>,
    reserved: u32,
    workspace: Option<Workspace>,
    multiprocessors: u32,
    /// How many are run.
    blocks: u64,
}

/// Global memory of a cooperative launch: its size, and the barrier of its blocks.
struct Workspace {
    memory: Arc<Memory>,
    address: u64,
}

impl Workspace {
    /// Words of it; what is behind the barrier is for others of the driver's own.
    const WORDS: [u32; 4] = [16, 0, 0, 0];

    fn new(memory: &Arc<Memory>) -> Result<Workspace, MemoryError> {
        let address = memory.alloc(16, 256)?;
        let workspace = Workspace { memory: Arc::clone(memory), address };
        let bytes: Vec<u8> = Workspace::WORDS.iter().flat_map(|w| w.to_le_bytes()).collect();
        memory.write(address, &bytes)?;
        Ok(workspace)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Nobody else knows the address: it is there.
        let _ = self.memory.free(self.address);
    }
}

impl<I: Deref<Target = Instance>> Prepared<I> {
    /// What its blocks have in common.
    pub fn grid(&self) -> Grid<'_> {
        Grid {
            program: &self.instance.module.program,
            pools: &self.pools,
            entry: self.function,
            grid: self.launch.grid,
            multiprocessors: self.multiprocessors,
            block: self.launch.block,
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            dynamic_shared: self.launch.dynamic_shared,
            reserved: self.reserved,
            workspace: self.workspace.as_ref().map(|w| w.address),
        }
    }

    /// It is set aside, and runs no more for a while.
    pub fn waits(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.waits();
        }
    }

    /// How many blocks are run.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn is_limited(&self) -> bool {
        self.limit != u64::MAX
    }

    pub fn run<'a>(&'a self, machine: &'a Machine, grid: &'a Grid<'a>) -> Run<'a> {
        Run {
            machine,
            grid,
            params: &self.params,
            param_bytes: self.param_bytes,
            memory: self.memory.clone(),
            blocks: self.blocks,
            overlap: self.overlap,
            limit: self.limit,
            pulse: self.pulse.clone(),
        }
    }
}

impl Machine {
    /// Checks a launch and gets together what it needs.
    pub(super) fn prepare<I: Deref<Target = Instance>>(
        &self,
        instance: I,
        start: &Start<'_>,
    ) -> Result<Prepared<I>, Box<Fault>> {
        let (kernel, launch) = (start.kernel, start.launch);
        let module = &instance.module;
        let bad = |refusal| {
            let reason = Some(Reason::Refused(refusal));
            Box::new(Fault { reason, ..Fault::new(FaultKind::BadLaunch, kernel) })
        };
        let program = &module.program;
        let at = module.kernels().position(|k| k.name == kernel);
        let entry = at.and_then(|i| program.entries.get(i)).ok_or_else(|| bad(LaunchRefusal::NoKernel))?;
        let own = self.check(module, kernel, entry, launch, start.params).map_err(bad)?;
        let reserved = if entry.reserved { RESERVED } else { 0 };
        let shared_bytes = if entry.reserved { own.next_multiple_of(16) + RESERVED } else { own };
        let no_room = |_| bad(LaunchRefusal::Workspace);
        let workspace = launch.cooperative.then(|| Workspace::new(&self.memory)).transpose().map_err(no_room)?;
        let pools = pools(program, entry, &instance.addresses);
        let (function, overlap) = (entry.function, entry.overlap);
        let param_bytes = module.kernel(kernel).map_or(0, |k| k.param_bytes);
        let mut params = start.params.to_vec();
        params.resize(params.len().next_multiple_of(16) + 16, 0);
        let sink = self.progress.read().unwrap_or_else(PoisonError::into_inner).clone();
        let pulse = sink.map(|sink| {
            let module = Arc::clone(module);
            let places = Box::new(move |pc| {
                let (line, location) = module.place(pc);
                (line, location.map(|l| module.source(l)))
            });
            Arc::new(Pulse::new(kernel, places, self.config.progress_after, sink))
        });
        let limit = match start.instruction_limit.unwrap_or(self.config.instruction_limit) {
            0 => u64::MAX,
            n => n,
        };
        let blocks = launch.grid.iter().fold(1u64, |p, &n| p.saturating_mul(n.into()));
        Ok(Prepared {
            kernel: kernel.to_owned(),
            launch: *launch,
            // At most 1024, as was checked.
            threads: launch.block.iter().product(),
            shared_bytes,
            function,
            overlap,
            pools,
            params,
            param_bytes,
            memory: self.memory.snapshot(),
            limit,
            pulse,
            reserved,
            workspace,
            multiprocessors: gpu(self.config.sm).multiprocessors,
            blocks: start.first_blocks.map_or(blocks, |first| first.min(blocks)),
            instance,
        })
    }

    /// Checks the launch; gives the block's bytes of shared memory.
    fn check(
        &self,
        module: &Module,
        kernel: &str,
        entry: &Entry,
        launch: &Launch,
        params: &[u8],
    ) -> Result<u32, LaunchRefusal> {
        let Some(info) = module.kernel(kernel) else { return Err(LaunchRefusal::NoKernel) };
        let (grid, block) = (launch.grid, launch.block);
        if launch.grid.contains(&0) || launch.block.contains(&0) {
            return Err(LaunchRefusal::Empty { grid, block });
        }
        let over = |of: [u32; 3], most: [u32; 3]| of.iter().zip(most).any(|(n, most)| *n > most);
        if over(launch.grid, MAX_GRID) {
            return Err(LaunchRefusal::Grid { grid });
        }
        let threads = block.iter().fold(1u64, |p, &n| p.saturating_mul(n.into()));
        if threads > MAX_THREADS.into() || over(launch.block, MAX_BLOCK) {
            return Err(LaunchRefusal::Block { block });
        }
        let limit = info.max_threads.map(|m| m.iter().fold(1u64, |p, &n| p.saturating_mul(n.max(1).into())));
        if let Some(most) = limit.filter(|&l| threads > l) {
            return Err(LaunchRefusal::MaxThreads { threads, most });
        }
        if let Some(required) = info.required_threads {
            let required = required.map(|n| n.max(1));
            if required != block {
                return Err(LaunchRefusal::RequiredThreads { block, required });
            }
        }
        let dynamic = launch.dynamic_shared;
        let own = entry.shared_bytes;
        let allowed = launch.max_dynamic_shared.max(DEFAULT_SHARED.saturating_sub(own));
        if dynamic > allowed {
            return Err(LaunchRefusal::Dynamic { bytes: dynamic, allowed });
        }
        let total = own.saturating_add(dynamic);
        let most = max_shared(self.config.sm);
        if total > most {
            return Err(LaunchRefusal::Shared { bytes: total, most, sm: self.config.sm });
        }
        let local = module.program.functions.get(entry.function as usize).map_or(0, |f| f.local_bytes);
        if local > MAX_LOCAL {
            return Err(LaunchRefusal::Local { bytes: local });
        }
        if params.len() < info.param_bytes as usize {
            return Err(LaunchRefusal::Parameters { bytes: params.len() as u64, takes: info.param_bytes });
        }
        Ok(total)
    }
}

/// Constant pools of the functions that an entry reaches.
fn pools(program: &Program, entry: &Entry, globals: &[u64]) -> Vec<Vec<Row>> {
    let mut pools: Vec<Vec<Row>> = vec![Vec::new(); program.functions.len()];
    for &f in &entry.reachable {
        let function = &program.functions[f as usize];
        let mut rows = vec![Row([0; LANES]); (function.const_bytes / 128) as usize];
        for constant in &function.consts {
            let value = constant.value.resolve(globals, &entry.shared);
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
