//! Compiles one crate to PTX with rust-cuda: `warpsmith-cuda-builder CRATE ARCH TARGET_DIR OUT [PACKAGE MIR]…`.
//!
//! `ARCH` is of the form `compute_80`. Of each `PACKAGE` rustc's MIR goes into the file `MIR`, with places: the builder reads
//! there what this generator miscompiles. The compiler's messages go to stderr as cargo renders them.
//! Exit code 0 if `OUT` was written, 1 if the build failed, 2 if the arguments are wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kernels, arch, target_dir, out, mir @ ..] = args.as_slice() else {
        eprintln!("usage: warpsmith-cuda-builder CRATE ARCH TARGET_DIR OUT [PACKAGE MIR]…");
        return ExitCode::from(2);
    };
    let arch: NvvmArch = match arch.parse() {
        Ok(arch) => arch,
        Err(reason) => {
            eprintln!("{arch}: {reason}");
            return ExitCode::from(2);
        }
    };
    // Without this flag barriers and shuffles are cloned into divergent branches. cuda_builder replaces RUSTFLAGS, so a profile
    // is the only way in.
    const ONE_BARRIER: &str = "-Zmir-enable-passes=-JumpThreading";
    let mut arguments = vec![
        "--target-dir".to_owned(),
        target_dir.clone(),
        "-Zprofile-rustflags".to_owned(),
        "--config".to_owned(),
        format!("profile.release.rustflags=[{ONE_BARRIER:?}]"),
    ];
    for pair in mir.chunks_exact(2) {
        let emit = format!("--emit=mir={}", pair[1]);
        let flags = format!("[{ONE_BARRIER:?}, \"-Zmir-include-spans=on\", {emit:?}]");
        arguments.extend(["--config".to_owned(), format!("profile.release.package.{:?}.rustflags={flags}", pair[0])]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = CudaBuilder::new(PathBuf::from(kernels))
        .arch(arch)
        // Kernels say `fma` where they mean it, so that both generators give the same bits.
        .fma_contraction(false)
        .build_args(&arguments)
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
