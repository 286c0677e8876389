//! The files that a build leaves in `OUT_DIR`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::cache::write_if_changed;
use crate::cubin::Cubins;
use crate::process::join;
use crate::ptx::{self, Rules};
use crate::{BuildError, Image, Output};
use warpsmith_image::{ImageEntry, KernelEntry, Manifest, pack};

/// The PTX of one architecture, as the code generator wrote it.
pub(crate) struct Generated {
    pub(crate) arch: Arch,
    /// What `.version` must say; `None`: whatever it says.
    pub(crate) isa: Option<(u32, u32)>,
    /// [Compact](ptx::compact).
    pub(crate) ptx: String,
    pub(crate) fresh: bool,
}

/// What both generators share: names, rules, and where to write.
pub(crate) struct Writer<'a> {
    pub(crate) library: &'a str,
    pub(crate) backend: &'a str,
    pub(crate) generator: String,
    pub(crate) out_dir: &'a Path,
    pub(crate) allow_local: &'a [String],
    pub(crate) refuse_local: bool,
    /// Machine code that the pack is to have beside the texts.
    pub(crate) cubins: Option<&'a Cubins>,
}

impl Writer<'_> {
    /// Checks and completes the texts, then writes everything. Writes nothing if one is refused.
    pub(crate) fn write(&self, generated: Vec<Generated>) -> Result<Output, BuildError> {
        let stem = self.library.replace('-', "_");
        let folder = self.out_dir.join(&stem);
        let mut kernels: BTreeMap<String, KernelEntry> = BTreeMap::new();
        let mut warnings: Vec<String> = Vec::new();
        let mut texts: Vec<(Image, String)> = Vec::new();
        for one in generated {
            let refuse = |problems: Vec<String>| BuildError::Ptx {
                library: self.library.to_owned(),
                arch: one.arch.to_string(),
                problems,
            };
            let rules =
                Rules { arch: one.arch, isa: one.isa, allow_local: self.allow_local, refuse_local: self.refuse_local };
            let checked = ptx::check(&one.ptx, &rules).map_err(refuse)?;
            let conflicts = join_architectures(&mut kernels, one.arch.sm(), checked.kernels);
            if !conflicts.is_empty() {
                return Err(refuse(conflicts));
            }
            for warning in checked.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            let image = Image {
                sm: one.arch.sm(),
                isa: checked.isa,
                path: folder.join(format!("{}.ptx", one.arch)),
                fresh: one.fresh,
            };
            texts.push((image, checked.text));
        }

        let manifest = Manifest {
            library: self.library.to_owned(),
            backend: self.backend.to_owned(),
            generator: self.generator.clone(),
            images: texts
                .iter()
                .map(|(image, _)| ImageEntry {
                    sm: image.sm,
                    isa: format!("{}.{}", image.isa.0, image.isa.1),
                    file: format!("sm_{}.ptx", image.sm),
                })
                .collect(),
            kernels: kernels.into_values().collect(),
        };
        let manifest_path = folder.join("manifest.json");
        let json = serde_json::to_string_pretty(&manifest)
            .map_err(|error| BuildError::Answer { what: "the manifest".to_owned(), reason: error.to_string() })?;
        let pack_path = folder.join("kernels.pack");
        let pack = std::thread::scope(|scope| {
            let written = scope
                .spawn(|| texts.iter().try_for_each(|(image, text)| write_if_changed(&image.path, text).map(drop)));
            let pack = self.pack(&texts);
            join(written)?;
            pack
        })?;
        write_if_changed(&pack_path, &pack)?;
        write_if_changed(&manifest_path, &json)?;
        let images: Vec<Image> = texts.into_iter().map(|(image, _)| image).collect();
        let rust_path = self.out_dir.join(format!("{stem}.rs"));
        write_if_changed(&rust_path, expression(self.library, &manifest_path, &pack_path)?)?;
        Ok(Output { images, manifest, manifest_path, rust_path, warnings })
    }

    fn pack(&self, texts: &[(Image, String)]) -> Result<Vec<u8>, BuildError> {
        let mut cut = Vec::with_capacity(texts.len());
        let mut modules = Vec::new();
        for (image, text) in texts {
            let (bare, directives) = ptx::strip(text);
            let split = ptx::split(&bare).map_err(|problems| BuildError::Ptx {
                library: self.library.to_owned(),
                arch: format!("sm_{}", image.sm),
                problems,
            })?;
            if self.cubins.is_some() {
                let text = |module| split.text(&bare, module);
                modules.push((image.sm, (0..split.modules.len()).map(text).collect()));
            }
            cut.push(pack::Text { sm: image.sm, bare, directives, modules: split.modules, pieces: split.pieces });
        }
        let machine = self.cubins.map(|cubins| cubins.assemble(&modules)).transpose()?.unwrap_or_default();
        // One architecture is what someone iterates with.
        let shipped = cut.len() > 1 && std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
        pack::write(&cut, &machine, if shipped { pack::Effort::Small } else { pack::Effort::Fast })
            .map_err(|error| BuildError::Answer { what: "the pack".to_owned(), reason: error.to_string() })
    }
}

/// Joins the kernels of one architecture with those of the others.
fn join_architectures(kernels: &mut BTreeMap<String, KernelEntry>, sm: u32, found: Vec<KernelEntry>) -> Vec<String> {
    let mut conflicts = Vec::new();
    for mut kernel in found {
        kernel.archs = vec![sm];
        let Some(known) = kernels.get_mut(&kernel.name) else {
            kernels.insert(kernel.name.clone(), kernel);
            continue;
        };
        if known.args != kernel.args || known.block != kernel.block || known.min_blocks != kernel.min_blocks {
            conflicts.push(format!(
                "kernel `{}` has other arguments or another block than for sm_{}; a launch does not know the \
                 architecture, so these must be the same for all",
                kernel.name,
                known.archs.first().copied().unwrap_or_default()
            ));
        }
        known.archs.push(sm);
        known.static_shared = known.static_shared.max(kernel.static_shared);
        known.dynamic_shared_used |= kernel.dynamic_shared_used;
        known.grid_barrier |= kernel.grid_barrier;
        known.waits |= kernel.waits;
        known.local_bytes = known.local_bytes.max(kernel.local_bytes);
        for (kind, count) in kernel.collectives {
            let known = known.collectives.entry(kind).or_default();
            *known = (*known).max(count);
        }
    }
    conflicts
}

/// The expression of `<library>.rs`.
fn expression(library: &str, manifest: &Path, pack: &Path) -> Result<String, BuildError> {
    Ok(format!("({library:?}, include_str!({}), include_bytes!({}))\n", literal(manifest)?, literal(pack)?))
}

fn literal(path: &Path) -> Result<String, BuildError> {
    match path.to_str() {
        Some(text) => Ok(format!("{text:?}")),
        None => Err(BuildError::Setting {
            setting: "output directory".to_owned(),
            reason: format!("{} is not UTF-8 and cannot stand in Rust source; build elsewhere", path.display()),
        }),
    }
}

/// An existing directory or one to be created, as an absolute path.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, BuildError> {
    std::path::absolute(path).map_err(BuildError::io("find", path))
}
