//! The manifest: what a host needs to know of the kernels, as JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// [`Manifest::backend`] of stock rustc.
pub const STOCK: &str = "stock";
/// [`Manifest::backend`] of rust-cuda's `cuda_builder`.
pub const CUDA_BUILDER: &str = "cuda_builder";

/// Everything that was found out about a kernels crate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Package name of the kernels crate.
    pub library: String,
    /// [`STOCK`] or [`CUDA_BUILDER`].
    #[serde(default)]
    pub backend: String,
    /// The code generator, such as `rustc 1.95.0`.
    #[serde(default)]
    pub generator: String,
    /// The PTX texts, by rising architecture.
    #[serde(default)]
    pub images: Vec<ImageEntry>,
    /// The kernels, by name.
    pub kernels: Vec<KernelEntry>,
}

/// One PTX text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageEntry {
    /// Architecture: 80 for `sm_80`.
    pub sm: u32,
    /// PTX ISA version, such as `7.4`.
    pub isa: String,
    /// File name, beside the manifest.
    pub file: String,
}

/// One kernel. Where the architectures differ, the largest value stands here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// Name of the PTX entry.
    pub name: String,
    /// Kernels of one family compute the same.
    #[serde(default)]
    pub family: String,
    /// Which one of the family; empty if there is one only.
    #[serde(default, deserialize_with = "null_as_default")]
    pub variant: String,
    /// First line of its documentation.
    #[serde(default)]
    pub summary: String,
    /// Source file.
    #[serde(default)]
    pub file: String,
    /// Source line.
    #[serde(default)]
    pub line: u32,
    /// Threads of a block: x, y, z.
    pub block: [u32; 3],
    /// Blocks that must fit on a multiprocessor; 0 if none is asked for.
    #[serde(default)]
    pub min_blocks: u32,
    /// Bytes of shared memory that the kernel declares.
    #[serde(default)]
    pub static_shared: u32,
    /// Whether it uses the shared memory given at launch.
    #[serde(default)]
    pub dynamic_shared_used: bool,
    /// Whether it has barriers of the whole grid, so that its launch has to be cooperative.
    #[serde(default)]
    pub grid_barrier: bool,
    /// Whether it waits for the launches before it, from sm_90 on, so that its launch may be programmatic.
    #[serde(default)]
    pub waits: bool,
    /// Bytes of local memory that LLVM reserved for a thread. Normally 0.
    #[serde(default)]
    pub local_bytes: u32,
    /// Number of collective instructions, by kind: `barrier`, `shfl`, `vote`, `match`, `redux`, `mma`.
    /// They rise when a compiler clones code that must not be cloned.
    #[serde(default)]
    pub collectives: BTreeMap<String, u32>,
    /// The architectures that have it.
    #[serde(default)]
    pub archs: Vec<u32>,
    /// The arguments in order.
    pub args: Vec<ArgEntry>,
    /// What else the metadata line said.
    #[serde(flatten)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// One argument of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgEntry {
    /// Name in the signature.
    pub name: String,
    /// Type as written, such as `In<f32>`.
    #[serde(rename = "type")]
    pub ty: String,
    /// `in`, `out`, `inout`, `scalar` or `struct`.
    pub kind: String,
    /// Element type of a pointer, else the type.
    #[serde(default, deserialize_with = "null_as_default")]
    pub element: String,
    /// Bytes in the parameter block.
    pub size: u32,
    /// Alignment in the parameter block.
    pub align: u32,
    /// Offset in the parameter block, as the PTX has it.
    #[serde(default)]
    pub offset: u32,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A manifest that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be opened.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what a build writes.
    #[error("{} is no manifest of kernels: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
}

impl Manifest {
    /// Whether code for this architecture can wait for the launches before it, so that launches of kernels that do may be
    /// programmatic: `griddepcontrol` came with sm_90, and rust-cuda's code has for every architecture the forms of sm_75.
    pub fn can_wait(&self, sm: u32) -> bool {
        sm >= 90 && self.backend != CUDA_BUILDER
    }

    /// Reads a manifest that a build wrote.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is no manifest.
    pub fn read(path: &Path) -> Result<Manifest, ManifestError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ManifestError::Io { path: path.to_owned(), source })?;
        Manifest::parse(&text).map_err(|source| ManifestError::Json { path: path.to_owned(), source })
    }

    /// Reads the text of a manifest.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn parse(json: &str) -> Result<Manifest, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&KernelEntry> {
        self.kernels.iter().find(|k| k.name == name)
    }
}
