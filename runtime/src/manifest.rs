//! What the builder says about the kernels of an image.

use serde::{Deserialize, Serialize};

/// The kernels of one library, as the builder wrote them next to the PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The package that the kernels stand in.
    pub library: String,
    /// The code generator, such as `stock`.
    #[serde(default)]
    pub backend: String,
    /// The kernels.
    pub kernels: Vec<KernelEntry>,
}

/// One kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// The PTX entry.
    pub name: String,
    /// The kernels that it belongs with.
    #[serde(default)]
    pub family: String,
    /// Which of several versions of one kernel it is; empty if there is one.
    #[serde(default)]
    pub variant: String,
    /// First line of its documentation.
    #[serde(default)]
    pub summary: String,
    /// Source file.
    #[serde(default)]
    pub file: String,
    /// Line in `file`.
    #[serde(default)]
    pub line: u32,
    /// Threads of a block, which is the launch bound too.
    pub block: [u32; 3],
    /// Blocks that one multiprocessor should hold at a time; 0 says nothing.
    #[serde(default)]
    pub min_blocks: u32,
    /// Bytes of static shared memory.
    #[serde(default)]
    pub static_shared: u32,
    /// Whether it uses dynamic shared memory.
    #[serde(default)]
    pub dynamic_shared_used: bool,
    /// Whether it has barriers of the whole grid, so that its launch has to be cooperative.
    #[serde(default)]
    pub grid_barrier: bool,
    /// Whether it waits for the launches before it, from sm_90 on, so that its launch may be programmatic.
    #[serde(default)]
    pub waits: bool,
    /// Bytes of local memory that the compiler reserved for a thread. Normally 0.
    #[serde(default)]
    pub local_bytes: u32,
    /// The architectures that have it, as numbers: 80 is sm_80.
    #[serde(default)]
    pub archs: Vec<u32>,
    /// The arguments, in order.
    pub args: Vec<ArgEntry>,
}

/// One argument of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgEntry {
    /// Its name.
    pub name: String,
    /// Its type as written, such as `In<f32>`.
    #[serde(rename = "type")]
    pub ty: String,
    /// `in`, `out`, `inout`, `scalar` or `struct`.
    pub kind: String,
    /// For a buffer the type of its elements, else the type itself.
    #[serde(default)]
    pub element: String,
    /// Bytes of the parameter.
    pub size: u32,
    /// Alignment of the parameter.
    pub align: u32,
    /// Where it starts among the parameters.
    pub offset: u32,
}

impl Manifest {
    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&KernelEntry> {
        self.kernels.iter().find(|k| k.name == name)
    }
}
