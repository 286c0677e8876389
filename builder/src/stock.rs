//! The stock generator: rustc's own NVPTX backend, for each architecture.
//!
//! Every architecture has a target directory of its own, because cargo locks one for a whole build
//! and the architectures are to be compiled side by side. What runs on the host (procedural macros,
//! build scripts) is the same for all, so a new directory starts with a copy of another's.

use std::path::{Path, PathBuf};

use crate::BuildError;
use crate::arch::Arch;
use crate::cache::{DirLock, copy_tree, hash, write_if_changed};
use crate::cargo::{Compilation, Compiled, PROFILE};
use crate::compile::compile;
use crate::output::{Generated, Writer};
use crate::plan::{Backend, Isa, Output, Plan};
use crate::process::join;
use crate::sysroot::COMMON_FLAGS;

pub(crate) fn build(plan: &Plan) -> Result<Output, BuildError> {
    let mut warnings: Vec<String> = plan.toolchain.check_release()?.into_iter().collect();
    let kernels = Kernels { plan, dir: kernels_dir(plan)? };
    let compiled = {
        // Held until the texts are read: another build could put its own in the same place.
        let _lock = DirLock::acquire(&kernels.dir, ".warpsmith.lock", "kernels")?;
        kernels.compile_all()?
    };
    let mut generated = Vec::new();
    for ((arch, isa), compiled) in plan.archs.iter().zip(compiled) {
        let is_new = |file: &&PathBuf| {
            !plan.package.inputs.iter().any(|input| file.starts_with(input)) && !file.starts_with(&plan.cache)
        };
        plan.speaker.watch(compiled.inputs.iter().filter(is_new).map(PathBuf::as_path));
        for warning in compiled.warnings {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        generated.push(Generated { arch: *arch, isa: Some(*isa), ptx: compiled.ptx, fresh: compiled.fresh });
    }
    let writer = Writer {
        library: &plan.package.name,
        backend: Backend::Stock.name(),
        generator: format!("rustc {}", plan.toolchain.release),
        out_dir: &plan.out_dir,
        allow_local: &plan.allow_local,
        refuse_local: true,
        cubins: plan.cubins.as_ref(),
    };
    let mut output = writer.write(generated)?;
    warnings.append(&mut output.warnings);
    output.warnings = warnings;
    Ok(output)
}

/// The folder of the nested target directories: one for each workspace, because cargo names what it compiles by the path within
/// the workspace and would take one workspace's crate for another's; and in it for each kernels crate, because `RUSTC_BOOTSTRAP`
/// names the crates of one, and build scripts of procedural macros' dependencies run again where it changed: crates that are built
/// in turns would each undo what is compiled of the others.
fn kernels_dir(plan: &Plan) -> Result<PathBuf, BuildError> {
    let workspace = plan.package.workspace_root.to_string_lossy();
    let dir = plan.cache.join("kernels").join(hash(&[&workspace, &plan.package.name]));
    write_if_changed(&dir.join("workspace"), workspace.as_bytes())?;
    Ok(dir)
}

struct Kernels<'a> {
    plan: &'a Plan,
    dir: PathBuf,
}

impl Kernels<'_> {
    /// In the order of the plan. The caller holds the lock.
    fn compile_all(&self) -> Result<Vec<Compiled>, BuildError> {
        let archs = &self.plan.archs;
        // The first of all builds compiles what runs on the host, alone; the others take it over.
        let mut done = Vec::new();
        if let Some((arch, isa)) = archs.first()
            && self.donor().is_none()
        {
            done.push(self.compile(*arch, *isa)?);
        }
        let rest = archs.get(done.len()..).unwrap_or_default();
        if let Some(donor) = self.donor() {
            for (arch, _) in rest {
                let host = self.dir.join(arch.to_string()).join(PROFILE);
                if !host.is_dir() {
                    copy_tree(&donor, &host)?;
                }
            }
        }
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        for group in rest.chunks(at_once) {
            let results = std::thread::scope(|scope| {
                let handles: Vec<_> =
                    group.iter().map(|(arch, isa)| scope.spawn(move || self.compile(*arch, *isa))).collect();
                handles.into_iter().map(join).collect::<Vec<_>>()
            });
            for result in results {
                done.push(result?);
            }
        }
        Ok(done)
    }

    /// What one architecture's directory holds for the host.
    fn donor(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).ok()?.flatten();
        let mut hosts: Vec<PathBuf> = entries.map(|entry| entry.path().join(PROFILE)).filter(|p| p.is_dir()).collect();
        hosts.sort();
        hosts.into_iter().next()
    }

    /// Compiles for one architecture. What a full disk or an interrupted copy left damaged is made anew, once.
    fn compile(&self, arch: Arch, isa: Isa) -> Result<Compiled, BuildError> {
        let target_dir = self.dir.join(arch.to_string());
        match self.compile_in(&target_dir, arch, isa) {
            Err(BuildError::Damaged { path }) => {
                eprintln!("warpsmith: {} is damaged; the kernels are compiled anew for {arch}", path.display());
                std::fs::remove_dir_all(&target_dir).map_err(BuildError::io("remove", &target_dir))?;
                self.compile_in(&target_dir, arch, isa)
            }
            other => other,
        }
    }

    fn compile_in(&self, target_dir: &Path, arch: Arch, isa: Isa) -> Result<Compiled, BuildError> {
        let compilation = Compilation {
            package: &self.plan.package,
            toolchain: &self.plan.toolchain,
            target_dir,
            cache: &self.plan.cache,
            rustflags: &rustflags(self.plan, arch, isa),
            features: &self.plan.features,
            default_features: self.plan.default_features,
            allow_local: &self.plan.allow_local,
            arch: arch.to_string(),
        };
        compile(&compilation)
    }
}

fn rustflags(plan: &Plan, arch: Arch, isa: Isa) -> Vec<String> {
    let mut flags: Vec<String> = COMMON_FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push(format!("-Ctarget-cpu={arch}"));
    if plan.toolchain.compares_target_cpu() {
        // `core` is compiled once, for no architecture. Older compilers do not know the word.
        flags.push("-Cunsafe-allow-abi-mismatch=target-cpu".to_owned());
    }
    flags.push(format!("-Ctarget-feature=+ptx{}{}", isa.0, isa.1));
    // Arrays of up to some hundred accumulators stay in registers only if their loops are unrolled.
    flags.push("-Cllvm-args=-unroll-threshold=2000".to_owned());
    // Anything more than line directives is refused by ptxas.
    flags.push(format!("-Cdebuginfo={}", if plan.line_info { "line-directives-only" } else { "none" }));
    if plan.line_info {
        // LLVM then writes the calls that a place was inlined through behind its `.loc`, which has no field for them.
        flags.push("-Zverbose-asm".into());
    }
    flags
}
