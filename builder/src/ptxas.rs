//! NVIDIA's assembler, where it is found: registers, spills and occupancy of each kernel, and machine code beside PTX.
//!
//! Needed by no build but one that [asks for machine code](crate::KernelCrate::cubins). `pip install nvidia-cuda-nvcc` in an active virtual environment is the
//! smallest way to have it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpsmith_arch::{Demand, Occupancy, Target};

use crate::BuildError;
use crate::arch::Arch;
use crate::process::{clean_command, find_on_path, is_executable, probe_stdout, run};

/// An assembler that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
    release: String,
}

/// What the assembler says of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Name of the entry.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of stack of a thread.
    pub stack: u32,
    /// Bytes stored because registers ran out.
    pub spill_stores: u32,
    /// Bytes loaded because registers ran out.
    pub spill_loads: u32,
    /// Bytes of declared shared memory.
    pub static_shared: u32,
    /// Hardware barriers.
    pub barriers: u32,
}

impl Resources {
    /// Blocks of `threads` threads that one multiprocessor holds at once, by registers, shared
    /// memory (declared and `dynamic_shared`) and threads.
    pub fn blocks_per_multiprocessor(&self, arch: Arch, threads: u32, dynamic_shared: u32) -> u32 {
        let shared = self.static_shared.saturating_add(dynamic_shared);
        Occupancy::on(arch.limits(), Demand { registers: self.registers, threads, shared }).blocks()
    }
}

/// Looks for the assembler: `WARPSMITH_PTXAS`, PATH, `CUDA_PATH`, `/usr/local/cuda`, and the wheels of
/// an active Python environment.
pub fn find() -> Option<Ptxas> {
    if let Some(path) = std::env::var_os("WARPSMITH_PTXAS").filter(|p| !p.is_empty()) {
        return Ptxas::at(Path::new(&path));
    }
    candidates("ptxas").iter().find_map(|path| Ptxas::at(path))
}

/// Executable files of this name where NVIDIA's tools are kept.
pub(crate) fn candidates(tool: &str) -> Vec<PathBuf> {
    let name = format!("{tool}{}", std::env::consts::EXE_SUFFIX);
    let mut found: Vec<PathBuf> = find_on_path(tool).into_iter().collect();
    for variable in ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT"] {
        found.extend(std::env::var_os(variable).map(|root| Path::new(&root).join("bin").join(&name)));
    }
    found.push(Path::new("/usr/local/cuda/bin").join(&name));
    if let Some(venv) = std::env::var_os("VIRTUAL_ENV") {
        found.extend(wheel_binaries(Path::new(&venv), &name));
    }
    found.retain(|path| is_executable(path));
    found
}

/// `lib/python*/site-packages/nvidia/*/bin/<name>`.
fn wheel_binaries(venv: &Path, name: &str) -> Vec<PathBuf> {
    let folders = |dir: PathBuf| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        found.sort();
        found
    };
    let mut found = Vec::new();
    for lib in folders(venv.join("lib")).into_iter().chain([venv.join("Lib")]) {
        found.extend(folders(lib.join("site-packages/nvidia")).into_iter().map(|wheel| wheel.join("bin").join(name)));
    }
    found
}

impl Ptxas {
    /// The assembler at this path, if it is one.
    pub fn at(path: &Path) -> Option<Ptxas> {
        let text = probe_stdout(Command::new(path).arg("--version"), Duration::from_secs(10))?;
        Some(Ptxas { path: path.to_path_buf(), release: release_in(&text)? })
    }

    /// One that is never run.
    #[cfg(test)]
    pub(crate) fn named(path: &str) -> Ptxas {
        Ptxas { path: path.into(), release: "13.5".to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its CUDA release, such as `13.0`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Assembles a PTX file for an architecture and answers what each entry needs, in the order of the
    /// text. The machine code is thrown away.
    pub fn assemble(&self, ptx: &Path, arch: Arch) -> Result<Vec<Resources>, BuildError> {
        self.assemble_some(ptx, &arch, &[], None)
    }

    /// The same of some entries of the file. The others cost no time, and one that it does not have is refused.
    pub fn assemble_entries(&self, ptx: &Path, entries: &[&str], arch: Arch) -> Result<Vec<Resources>, BuildError> {
        let options: Vec<&str> = entries.iter().flat_map(|entry| ["--entry", entry]).collect();
        self.assemble_some(ptx, &arch, &options, None)
    }

    /// What one entry of a text needs; `None` if the text has no such entry. The others cost no time.
    pub fn assemble_entry(&self, ptx: &str, entry: &str, arch: Arch) -> Result<Option<Resources>, BuildError> {
        let file = scratch_file("ptx");
        std::fs::write(&file, ptx).map_err(BuildError::io("write", &file))?;
        let result = self.assemble_some(&file, &arch, &["--entry", entry], None);
        let _ = std::fs::remove_file(&file);
        Ok(result?.into_iter().find(|r| r.kernel == entry))
    }

    /// The same, and the machine code with the lines of the PTX text that its instructions are from, for
    /// [`Nvdisasm`](crate::nvdisasm::Nvdisasm).
    pub fn compile_entry(
        &self,
        ptx: &str,
        entry: &str,
        arch: Arch,
    ) -> Result<Option<(Resources, Vec<u8>)>, BuildError> {
        let (all, cubin) = self.compile_entries(ptx, &[entry], arch)?;
        Ok(all.into_iter().find(|r| r.kernel == entry).map(|resources| (resources, cubin)))
    }

    /// The same of several entries of a text, in one file of machine code.
    pub(crate) fn compile_entries(
        &self,
        ptx: &str,
        entries: &[&str],
        arch: Arch,
    ) -> Result<(Vec<Resources>, Vec<u8>), BuildError> {
        let options: Vec<&str> =
            ["-lineinfo"].into_iter().chain(entries.iter().flat_map(|entry| ["--entry", entry])).collect();
        self.kept(ptx, &arch, &options)
    }

    /// The machine code of a text for a target.
    pub(crate) fn cubin(&self, ptx: &str, target: Target) -> Result<Vec<u8>, BuildError> {
        Ok(self.kept(ptx, &target, &[])?.1)
    }

    /// Assembles a text, and reads what was made.
    fn kept(
        &self,
        ptx: &str,
        target: &dyn std::fmt::Display,
        options: &[&str],
    ) -> Result<(Vec<Resources>, Vec<u8>), BuildError> {
        let (file, cubin) = (scratch_file("ptx"), scratch_file("cubin"));
        std::fs::write(&file, ptx).map_err(BuildError::io("write", &file))?;
        let result = self.assemble_some(&file, target, options, Some(&cubin));
        let _ = std::fs::remove_file(&file);
        let both = result
            .and_then(|resources| Ok((resources, std::fs::read(&cubin).map_err(BuildError::io("read", &cubin))?)));
        let _ = std::fs::remove_file(&cubin);
        both
    }

    /// `keep`: where the machine code stays.
    fn assemble_some(
        &self,
        ptx: &Path,
        target: &dyn std::fmt::Display,
        options: &[&str],
        keep: Option<&Path>,
    ) -> Result<Vec<Resources>, BuildError> {
        let output = keep.map_or_else(|| scratch_file("cubin"), Path::to_path_buf);
        let mut command = clean_command(&self.path);
        command.arg("-v").arg(format!("-arch={target}")).args(options);
        let result = run(command.arg(ptx).arg("-o").arg(&output));
        if keep.is_none() {
            let _ = std::fs::remove_file(&output);
        }
        let result = result?;
        let mut text = String::from_utf8_lossy(&result.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&result.stderr));
        if !result.status.success() {
            return Err(BuildError::Command {
                what: format!("assembling {} for {target} (ptxas {})", ptx.display(), self.release),
                status: result.status.to_string(),
                stderr: text,
            });
        }
        Ok(read_verbose(&text))
    }

    /// The same for a text in memory, such as one that is embedded in a program.
    pub fn assemble_text(&self, ptx: &str, arch: Arch) -> Result<Vec<Resources>, BuildError> {
        self.assemble_text_entries(ptx, &[], arch)
    }

    /// The same of some entries of a text, or of all if none is named.
    pub fn assemble_text_entries(&self, ptx: &str, entries: &[&str], arch: Arch) -> Result<Vec<Resources>, BuildError> {
        let file = scratch_file("ptx");
        std::fs::write(&file, ptx).map_err(BuildError::io("write", &file))?;
        let result = self.assemble_entries(&file, entries, arch);
        let _ = std::fs::remove_file(&file);
        result
    }
}

/// `13.0` in `Cuda compilation tools, release 13.0, V13.0.48`.
pub(crate) fn release_in(version: &str) -> Option<String> {
    let release = version.lines().find_map(|line| line.split_once("release ")?.1.split(',').next())?;
    Some(release.trim().to_owned())
}

/// A name in the system's temporary folder that no other call uses.
pub(crate) fn scratch_file(extension: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("warpsmith-{}-{number}.{extension}", std::process::id()))
}

/// Reads what `ptxas -v` prints.
fn read_verbose(text: &str) -> Vec<Resources> {
    let mut kernels: Vec<Resources> = Vec::new();
    // Functions have properties too; only those of the entry named last count.
    let mut of_entry = false;
    for line in text.lines() {
        let line = line.trim().trim_start_matches("ptxas info").trim_start_matches([' ', ':']);
        if let Some(rest) = line.strip_prefix("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(Resources { kernel, ..Resources::default() });
            of_entry = true;
        } else if let Some(name) = line.strip_prefix("Function properties for ") {
            of_entry = kernels.last().is_some_and(|k| k.kernel == name.trim());
        } else if let Some(kernel) = kernels.last_mut() {
            if line.starts_with("Used ") {
                read_counts(line.trim_start_matches("Used "), kernel);
            } else if of_entry && line.contains("stack frame") {
                read_counts(line, kernel);
            }
        }
    }
    kernels
}

fn read_counts(line: &str, kernel: &mut Resources) {
    for part in line.split(',') {
        let mut words = part.split_whitespace();
        let Some(count) = words.next().and_then(|n| n.parse().ok()) else {
            continue;
        };
        match words.collect::<Vec<_>>().as_slice() {
            ["registers"] => kernel.registers = count,
            ["barriers"] => kernel.barriers = count,
            ["bytes", "smem"] => kernel.static_shared = count,
            ["bytes", "stack", "frame"] => kernel.stack = count,
            ["bytes", "spill", "stores"] => kernel.spill_stores = count,
            ["bytes", "spill", "loads"] => kernel.spill_loads = count,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by ptxas 13.5 (names shortened).
    const VERBOSE: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'conv3' for 'sm_80'
ptxas info    : Function properties for conv3
    8 bytes stack frame, 4 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 2048 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 3.718 ms
ptxas info    : Function properties for helper
    96 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'other' for 'sm_80'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, 400 bytes cmem[0]
";

    #[test]
    fn verbose_output_is_read() {
        let kernels = read_verbose(VERBOSE);
        assert_eq!(kernels.len(), 2);
        let first = &kernels[0];
        assert_eq!((first.kernel.as_str(), first.registers, first.static_shared), ("conv3", 10, 2048));
        assert_eq!((first.stack, first.spill_stores, first.spill_loads), (8, 4, 16));
        assert_eq!((kernels[1].registers, kernels[1].stack, kernels[1].barriers), (255, 0, 0));
    }

    #[test]
    fn occupancy_by_each_limit() {
        let of = |registers, static_shared| Resources { registers, static_shared, ..Resources::default() };
        let ampere: Arch = "sm_80".parse().unwrap();
        // 2048 threads, 65536 registers, 164 KiB and 32 slots: CUDA programming guide, technical specifications.
        assert_eq!(of(32, 0).blocks_per_multiprocessor(ampere, 256, 0), 8);
        assert_eq!(of(64, 0).blocks_per_multiprocessor(ampere, 256, 0), 4);
        assert_eq!(of(32, 40 * 1024).blocks_per_multiprocessor(ampere, 256, 0), 4);
        assert_eq!(of(16, 0).blocks_per_multiprocessor(ampere, 32, 0), 32);
        assert_eq!(of(255, 0).blocks_per_multiprocessor(ampere, 1024, 0), 0);
        assert_eq!(of(32, 0).blocks_per_multiprocessor("sm_75".parse().unwrap(), 256, 0), 4);
        // As the software driver says: 16 blocks at most, and warps in fours.
        assert_eq!(of(16, 0).blocks_per_multiprocessor("sm_86".parse().unwrap(), 32, 0), 16);
        assert_eq!(of(96, 0).blocks_per_multiprocessor("sm_90".parse().unwrap(), 672, 0), 0);
    }
}
