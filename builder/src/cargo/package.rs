//! What a kernels crate consists of, as `cargo metadata` says it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{cargo_command, configured};
use crate::BuildError;
use crate::dependency::Patch;
use crate::process::stdout_of;
use crate::sysroot::TARGET;
use crate::toolchain::Toolchain;

/// The kernels crate and what it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// As in Cargo.toml.
    pub(crate) name: String,
    /// Crate name of the library target.
    pub(crate) crate_name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) features: BTreeSet<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
    /// Crate names of everything that is compiled for the GPU.
    pub(crate) device_crates: Vec<String>,
    /// Those of them that lie on this machine as source, as in their Cargo.toml.
    pub(crate) device_packages: Vec<String>,
    /// Files and directories of every package that lies on this machine as source.
    pub(crate) inputs: BTreeSet<PathBuf>,
    /// What is taken in place of the registry's.
    pub(crate) patches: Vec<Patch>,
}

impl Package {
    /// The name with `_` for `-`, as files are called.
    pub(crate) fn file_stem(&self) -> String {
        self.name.replace('-', "_")
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetaPackage>,
    resolve: Option<Resolve>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}
#[derive(Deserialize)]
struct MetaPackage {
    id: String,
    name: String,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<MetaTarget>,
    features: BTreeMap<String, Vec<String>>,
}
#[derive(Deserialize)]
struct MetaTarget {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}
#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}
#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}
#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}
#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

impl MetaPackage {
    fn library(&self) -> Option<&MetaTarget> {
        self.targets.iter().find(|t| {
            t.kind
                .iter()
                .any(|k| matches!(k.as_str(), "lib" | "rlib" | "cdylib" | "dylib" | "staticlib" | "proc-macro"))
        })
    }

    fn is_proc_macro(&self) -> bool {
        self.targets.iter().any(|t| t.kind.iter().any(|k| k == "proc-macro"))
    }

    /// What to watch: the manifest and the folder of each source root that is built here.
    fn add_inputs(&self, inputs: &mut BTreeSet<PathBuf>) {
        inputs.insert(self.manifest_path.clone());
        let root = self.manifest_path.parent();
        for target in &self.targets {
            let is_lib = target.kind.iter().any(|k| k.contains("lib") || k == "proc-macro");
            let is_script = target.kind.iter().any(|k| k == "custom-build");
            match target.src_path.parent() {
                // A source root beside Cargo.toml: its folder also holds `target`, so only the file.
                Some(folder) if is_lib && Some(folder) != root => inputs.insert(folder.to_path_buf()),
                _ if is_lib || is_script => inputs.insert(target.src_path.clone()),
                _ => false,
            };
        }
    }
}

/// The name of the package in `dir`, without looking at its dependencies.
pub(crate) fn package_name(toolchain: &Toolchain, dir: &Path) -> Result<String, BuildError> {
    #[derive(Deserialize)]
    struct Answer {
        name: String,
    }
    let manifest = dir.join("Cargo.toml");
    let text = stdout_of(
        cargo_command(toolchain, dir).args(["read-manifest", "--offline", "--manifest-path"]).arg(&manifest),
        &format!("reading {} (cargo read-manifest)", manifest.display()),
    )?;
    let answer: Answer = serde_json::from_str(&text)
        .map_err(|e| BuildError::Answer { what: "cargo read-manifest".to_owned(), reason: e.to_string() })?;
    Ok(answer.name)
}

/// Asks cargo what the package in `dir` consists of when it is built for the GPU.
pub(crate) fn package(toolchain: &Toolchain, dir: &Path, patches: Vec<Patch>) -> Result<Package, BuildError> {
    let manifest = dir.join("Cargo.toml");
    let text = stdout_of(
        cargo_command(toolchain, dir)
            .args(["metadata", "--format-version=1", "--filter-platform", TARGET, "--manifest-path"])
            .arg(&manifest)
            .args(configured(&patches)),
        &format!("reading {} (cargo metadata)", manifest.display()),
    )?;
    let unreadable = |reason: String| BuildError::Answer { what: "cargo metadata".to_owned(), reason };
    let metadata: Metadata = serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
    read_metadata(metadata, dir, &manifest, patches)
}

fn read_metadata(metadata: Metadata, dir: &Path, manifest: &Path, patches: Vec<Patch>) -> Result<Package, BuildError> {
    let refuse = |reason: &str| BuildError::KernelCrate { path: dir.to_path_buf(), reason: reason.to_owned() };
    let same = |a: &Path, b: &Path| a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    let root = metadata.packages.iter().find(|p| same(&p.manifest_path, manifest)).ok_or_else(|| {
        refuse("its Cargo.toml has no [package]; give the folder of the package, not of the workspace")
    })?;
    let library = root.library().ok_or_else(|| refuse("it has no library (src/lib.rs), and kernels live in one"))?;
    if root.is_proc_macro() {
        return Err(refuse("it is a procedural macro crate; kernels live in a library crate"));
    }

    let packages: BTreeMap<&str, &MetaPackage> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let edges: BTreeMap<&str, &[NodeDep]> =
        metadata.resolve.iter().flat_map(|r| &r.nodes).map(|n| (n.id.as_str(), n.deps.as_slice())).collect();
    // What is reached only through build dependencies or procedural macros runs on the host.
    let mut device = BTreeSet::new();
    let mut all = BTreeSet::new();
    let mut open = vec![(root.id.as_str(), true)];
    while let Some((id, on_device)) = open.pop() {
        let Some(package) = packages.get(id) else {
            continue;
        };
        let on_device = on_device && !package.is_proc_macro();
        let newly_all = all.insert(id);
        let newly_device = on_device && device.insert(id);
        if !newly_all && !newly_device {
            continue;
        }
        for edge in edges.get(id).copied().unwrap_or_default() {
            let kinds = || edge.dep_kinds.iter().map(|k| k.kind.as_deref());
            if kinds().any(|k| k.is_none()) {
                open.push((&edge.pkg, on_device));
            } else if kinds().any(|k| k == Some("build")) {
                open.push((&edge.pkg, false));
            }
        }
    }

    let mut inputs = BTreeSet::new();
    for package in all.iter().filter_map(|id| packages.get(id)).filter(|p| p.source.is_none()) {
        package.add_inputs(&mut inputs);
    }
    for name in ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"] {
        let path = metadata.workspace_root.join(name);
        if path.is_file() {
            inputs.insert(path);
        }
    }
    Ok(Package {
        name: root.name.clone(),
        crate_name: library.name.replace('-', "_"),
        manifest: root.manifest_path.clone(),
        features: root.features.keys().cloned().collect(),
        workspace_root: metadata.workspace_root.clone(),
        target_directory: metadata.target_directory.clone(),
        device_crates: device
            .iter()
            .filter_map(|id| packages.get(id)?.library())
            .map(|t| t.name.replace('-', "_"))
            .collect(),
        device_packages: device
            .iter()
            .filter_map(|id| packages.get(id))
            .filter(|p| p.source.is_none())
            .map(|p| p.name.clone())
            .collect(),
        inputs,
        patches,
    })
}
