//! The stock generator: rustc's own NVPTX backend, for each architecture.

use std::path::PathBuf;

use crate::BuildError;
use crate::cache::{DirLock, hash, write_if_changed};
use crate::cargo::Compilation;
use crate::kernel_crate::{Backend, Output, Plan};
use crate::output::{Generated, Writer};
use crate::sysroot::{self, COMMON_FLAGS};

pub(crate) fn build(plan: &Plan) -> Result<Output, BuildError> {
    let mut warnings: Vec<String> = plan.toolchain.check_release()?.into_iter().collect();
    let sysroot = sysroot::ensure(&plan.toolchain, &plan.cache)?;
    let target_dir = kernels_dir(plan)?;
    let mut generated = Vec::new();
    {
        // Held until the text is read: another build could put its own in the same place.
        let _lock = DirLock::acquire(&target_dir, ".warpsmith.lock", "kernels")?;
        for (arch, isa) in &plan.archs {
            let mut rustflags = vec![format!("--sysroot={}", sysroot.display())];
            rustflags.extend(COMMON_FLAGS.iter().map(|flag| (*flag).to_owned()));
            rustflags.push(format!("-Ctarget-cpu={arch}"));
            rustflags.push(format!("-Ctarget-feature=+ptx{}{}", isa.0, isa.1));
            // Arrays of up to some hundred accumulators stay in registers only if their loops are unrolled.
            rustflags.push("-Cllvm-args=-unroll-threshold=2000".to_owned());
            // Anything more than line directives is refused by ptxas.
            rustflags.push(format!("-Cdebuginfo={}", if plan.line_info { "line-directives-only" } else { "none" }));
            let compiled = Compilation {
                package: &plan.package,
                toolchain: &plan.toolchain,
                target_dir: &target_dir,
                rustflags: &rustflags,
                features: &plan.features,
                default_features: plan.default_features,
                arch: arch.to_string(),
            }
            .run()?;
            let outside: Vec<_> = compiled
                .inputs
                .iter()
                .filter(|file| !plan.package.inputs.iter().any(|input| file.starts_with(input)))
                .filter(|file| !file.starts_with(&plan.cache))
                .collect();
            plan.speaker.watch(outside.into_iter().map(|p| p.as_path()));
            for warning in compiled.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            generated.push(Generated { arch: *arch, isa: Some(*isa), ptx: compiled.ptx, fresh: compiled.fresh });
        }
    }
    let writer = Writer {
        library: &plan.package.name,
        backend: Backend::Stock.name(),
        generator: format!("rustc {}", plan.toolchain.release),
        out_dir: &plan.out_dir,
        allow_local: &plan.allow_local,
    };
    let mut output = writer.write(generated)?;
    warnings.append(&mut output.warnings);
    output.warnings = warnings;
    Ok(output)
}

/// The nested cargo's target directory: one for each workspace, because cargo names what it
/// compiles by the path within the workspace and would take one workspace's crate for another's.
fn kernels_dir(plan: &Plan) -> Result<PathBuf, BuildError> {
    let workspace = plan.package.workspace_root.to_string_lossy();
    let dir = plan.cache.join("kernels").join(hash(&[&workspace]));
    write_if_changed(&dir.join("workspace"), &workspace)?;
    Ok(dir)
}
