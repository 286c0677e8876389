//! Compiles one crate to PTX with rust-cuda: `warpsmith-cuda-builder CRATE ARCH TARGET_DIR OUT`.
//!
//! `ARCH` is of the form `compute_80`. The compiler's messages go to stderr as cargo renders them.
//! Exit code 0 if `OUT` was written, 1 if the build failed, 2 if the arguments are wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kernels, arch, target_dir, out] = args.as_slice() else {
        eprintln!("usage: warpsmith-cuda-builder CRATE ARCH TARGET_DIR OUT");
        return ExitCode::from(2);
    };
    let arch: NvvmArch = match arch.parse() {
        Ok(arch) => arch,
        Err(reason) => {
            eprintln!("{arch}: {reason}");
            return ExitCode::from(2);
        }
    };
    let result = CudaBuilder::new(PathBuf::from(kernels))
        .arch(arch)
        // Kernels say `fma` where they mean it, so that both generators give the same bits.
        .fma_contraction(false)
        .build_args(&[
            "--target-dir",
            target_dir,
            // Without this flag barriers and shuffles are cloned into divergent branches. cuda_builder
            // replaces RUSTFLAGS, so a profile is the only way in.
            "-Zprofile-rustflags",
            "--config",
            "profile.release.rustflags=[\"-Zmir-enable-passes=-JumpThreading\"]",
        ])
        .copy_to(out)
        .build();
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
