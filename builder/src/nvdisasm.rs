//! NVIDIA's disassembler, where it is found: the machine code of a kernel as text.
//!
//! Never needed for a build. `pip install nvidia-cuda-nvdisasm` in an active virtual environment is the smallest way to
//! have it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::BuildError;
use crate::process::{clean_command, probe_stdout, run};
use crate::ptxas::{Ptxas, candidates, release_in, scratch_file};

/// A disassembler that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvdisasm {
    path: PathBuf,
    release: String,
}

/// Looks for the disassembler: `WARPSMITH_NVDISASM`, beside `ptxas`, and where [`ptxas::find`](crate::ptxas::find) looks.
pub fn find(ptxas: Option<&Ptxas>) -> Option<Nvdisasm> {
    if let Some(path) = std::env::var_os("WARPSMITH_NVDISASM").filter(|p| !p.is_empty()) {
        return Nvdisasm::at(Path::new(&path));
    }
    let name = format!("nvdisasm{}", std::env::consts::EXE_SUFFIX);
    let beside = ptxas.and_then(|p| Nvdisasm::at(&p.path().with_file_name(name)));
    beside.or_else(|| candidates("nvdisasm").iter().find_map(|path| Nvdisasm::at(path)))
}

impl Nvdisasm {
    /// The disassembler at this path, if it is one.
    pub fn at(path: &Path) -> Option<Nvdisasm> {
        let text = probe_stdout(Command::new(path).arg("--version"), Duration::from_secs(10))?;
        Some(Nvdisasm { path: path.to_path_buf(), release: release_in(&text)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its CUDA release, such as `13.0`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The text of what [`Ptxas::compile_entry`] made, each instruction after a comment with its line of PTX.
    pub fn disassemble(&self, cubin: &[u8]) -> Result<String, BuildError> {
        let file = scratch_file("cubin");
        std::fs::write(&file, cubin).map_err(BuildError::io("write", &file))?;
        let result = run(clean_command(&self.path).args(["-c", "-gp"]).arg(&file));
        let _ = std::fs::remove_file(&file);
        let result = result?;
        if !result.status.success() {
            return Err(BuildError::Command {
                what: format!("disassembling machine code (nvdisasm {})", self.release),
                status: result.status.to_string(),
                stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&result.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disassembler_is_not_taken_for_one() {
        assert_eq!(Nvdisasm::at(Path::new("/nonexistent/nvdisasm")), None);
        // It runs, and answers without a release.
        assert_eq!(Nvdisasm::at(Path::new(env!("CARGO"))), None);
    }
}
