//! The files that a build leaves in `OUT_DIR`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::cache::write_if_changed;
use crate::cubin::Cubins;
use crate::process::join;
use crate::ptx::{self, Complete, Rules};
use crate::{BuildError, Image, Output};
use warpsmith_image::pack::{self, Text};
use warpsmith_image::{ImageEntry, KernelEntry, Manifest};

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
        let (mut images, mut texts) = (Vec::new(), Vec::new());
        for one in generated {
            let refuse = |problems: Vec<String>| BuildError::Ptx {
                library: self.library.to_owned(),
                arch: one.arch.to_string(),
                problems,
            };
            let rules =
                Rules { arch: one.arch, isa: one.isa, allow_local: self.allow_local, refuse_local: self.refuse_local };
            let Complete { text, isa, kernels: found, warnings: told } =
                ptx::complete(&one.ptx, &rules).map_err(refuse)?;
            let conflicts = join_architectures(&mut kernels, one.arch.sm(), found);
            if !conflicts.is_empty() {
                return Err(refuse(conflicts));
            }
            for warning in told {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            images.push(Image {
                sm: one.arch.sm(),
                isa,
                path: folder.join(format!("{}.ptx", one.arch)),
                fresh: one.fresh,
            });
            texts.push(text);
        }

        let manifest = Manifest {
            library: self.library.to_owned(),
            backend: self.backend.to_owned(),
            generator: self.generator.clone(),
            images: images
                .iter()
                .map(|image| ImageEntry {
                    sm: image.sm,
                    isa: format!("{}.{}", image.isa.0, image.isa.1),
                    file: format!("sm_{}.ptx", image.sm),
                })
                .collect(),
            kernels: kernels.into_values().collect(),
        };
        let manifest_path = folder.join("manifest.json");
        // Without blanks, which would be half of what programs embed.
        let json = serde_json::to_string(&manifest)
            .map_err(|error| BuildError::Answer { what: "the manifest".to_owned(), reason: error.to_string() })?;
        let pack_path = folder.join("kernels.pack");
        let pack = std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                let mut all = images.iter().zip(&texts);
                all.try_for_each(|(image, text)| spell_out(image, text))
            });
            let pack = self.pack(&texts, &std::fs::read(&pack_path).unwrap_or_default());
            join(written)?;
            pack
        })?;
        write_if_changed(&pack_path, &pack)?;
        write_if_changed(&manifest_path, &json)?;
        let rust_path = self.out_dir.join(format!("{stem}.rs"));
        write_if_changed(&rust_path, expression(self.library, &manifest_path, &pack_path)?)?;
        Ok(Output { images, manifest, manifest_path, rust_path, warnings })
    }

    fn pack(&self, texts: &[Text], earlier: &[u8]) -> Result<Vec<u8>, BuildError> {
        let modules_of = |text: &Text| (text.sm, (0..text.modules.len()).map(|nth| text.module(nth)).collect());
        let modules: Vec<(u32, Vec<String>)> = match self.cubins {
            Some(_) => texts.iter().map(modules_of).collect(),
            None => Vec::new(),
        };
        let machine = self.cubins.map(|cubins| cubins.assemble(&modules)).transpose()?.unwrap_or_default();
        // One architecture is what someone iterates with.
        let shipped = texts.len() > 1 && std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
        let effort = if shipped { pack::Effort::Small } else { pack::Effort::Fast };
        pack::write(texts, &machine, effort, earlier)
            .map_err(|error| BuildError::Answer { what: "the pack".to_owned(), reason: error.to_string() })
    }
}

/// Writes the text for those who read it. It has some ten megabytes: what was compiled anew is not compared with what was there.
fn spell_out(image: &Image, text: &Text) -> Result<(), BuildError> {
    let path = &image.path;
    let failed = BuildError::io("write", path);
    if image.fresh {
        let mut all = Vec::new();
        text.spell_out(&mut all).map_err(failed)?;
        return write_if_changed(path, all).map(drop);
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(BuildError::io("create", parent))?;
    }
    let write = || {
        let mut out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
        text.spell_out(&mut out)?;
        std::io::Write::flush(&mut out)
    };
    write().map_err(failed)
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
