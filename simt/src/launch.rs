//! The machine: instantiates modules and runs kernels.

use std::sync::Arc;

use crate::counters::Counters;
use crate::fault::{Fault, FaultKind};
use crate::memory::{Memory, MemoryError};
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
    /// Times in a row that a block's warps may spin without any memory changing before that is
    /// called a deadlock; 0 means no limit.
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

/// A module whose variables have places in a machine's memory; dropping it frees them.
pub struct Instance {
    module: Arc<Module>,
    memory: Arc<Memory>,
    globals: Vec<(String, u64, u64)>,
}

impl Instance {
    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// Address and size of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.iter().find(|g| g.0 == name).map(|g| (g.1, g.2))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        for (_, base, _) in &self.globals {
            // Freed by somebody else already: nothing is left to do.
            let _ = self.memory.free(*base);
        }
    }
}

/// One device; `Send + Sync`.
pub struct Machine {
    config: MachineConfig,
    memory: Arc<Memory>,
}

impl Machine {
    /// A machine with empty memory.
    pub fn new(config: MachineConfig) -> Machine {
        Machine { config, memory: Arc::new(Memory::new(config.total_memory)) }
    }

    /// The configuration.
    pub fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// The device's global memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Gives a module's `.global` and `.const` variables their places: initialised, the rest zero.
    pub fn instantiate(&self, module: Arc<Module>) -> Result<Instance, MemoryError> {
        Ok(Instance { module, memory: self.memory.clone(), globals: Vec::new() })
    }

    /// Runs a kernel to its end. `params` is the parameter block.
    pub fn launch(&self, instance: &Instance, kernel: &str, launch: &Launch, params: &[u8]) -> Result<Counters, Box<Fault>> {
        let _ = (instance, launch, params);
        Err(Box::new(Fault {
            kind: FaultKind::BadLaunch("not lowered yet".into()),
            kernel: kernel.to_string(),
            block: [0; 3],
            thread: [0; 3],
            ptx_line: 0,
            ptx_text: String::new(),
            source: None,
            address: None,
            detail: String::new(),
        }))
    }
}
