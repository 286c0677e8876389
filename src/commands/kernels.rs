//! `warpsmith kernels`: the list of kernels, and what ptxas says of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use serde::Serialize;
use warpsmith_arch::Gpu;
use warpsmith_builder::listing::without_source;
use warpsmith_builder::{Arch, ptxas};
use warpsmith_host::KernelEntry;

use super::project::{Library, Project};
use crate::cli::KernelsArgs;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};

/// Architectures that every kernel is assembled for: those of the GPUs that times are told for.
pub fn claimed() -> impl Iterator<Item = u32> {
    super::tune::GPUS.iter().filter_map(|name| Gpu::find(name)).map(|gpu| gpu.sm)
}

/// What ptxas makes of a kernel.
#[derive(Clone, Debug, Serialize)]
struct Resources {
    arch: String,
    registers: u32,
    spill_stores: u32,
    spill_loads: u32,
    stack: u32,
    blocks_per_multiprocessor: u32,
}

#[derive(Debug, Serialize)]
struct ListedKernel {
    #[serde(flatten)]
    kernel: KernelEntry,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<Resources>,
}

#[derive(Debug, Serialize)]
struct List<'a> {
    library: &'a str,
    backend: &'a str,
    /// What it is assembled for.
    architectures: Vec<String>,
    ptxas: Option<String>,
    kernels: Vec<ListedKernel>,
}

/// Registers and spills of every kernel, by architecture.
type ResourcesByArch = BTreeMap<String, Vec<Resources>>;

fn parse_arch(name: &str) -> Result<Arch, Failure> {
    name.parse().map_err(|e| Failure::new(Kind::Operation, format!("{e}")))
}

fn assemble(
    assembler: &ptxas::Ptxas,
    library: &Library,
    entries: &[KernelEntry],
    archs: &[String],
) -> Result<ResourcesByArch, Failure> {
    let io = |e: std::io::Error| Failure::new(Kind::Operation, format!("cannot write PTX for ptxas: {e}"));
    let dir = tempfile::tempdir().map_err(io)?;
    let wanted: Vec<&str> = entries.iter().map(|k| k.name.as_str()).collect();
    // A whole library takes ptxas minutes, on one core for each architecture.
    let bar = ProgressBar::new(archs.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("ptxas: {pos} of {len} architectures, {elapsed}") {
        bar.set_style(style);
    }
    if archs.len() < 2 {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    let one = |name: &String| {
        let arch = parse_arch(name)?;
        let (sm, text) = library.code_for(arch.sm())?;
        let path = dir.path().join(format!("kernels.{name}.ptx"));
        std::fs::write(&path, without_source(text)).map_err(io)?;
        let found = if wanted.len() < library.manifest.kernels.len() {
            assembler.assemble_entries(&path, &wanted, arch)
        } else {
            assembler.assemble(&path, arch)
        };
        let found = found
            .map_err(|e| Failure::new(Kind::Toolchain, format!("ptxas refuses the PTX for sm_{sm} on {name}: {e}")))?;
        let of_kernel = |kernel: &KernelEntry| {
            let Some(r) = found.iter().find(|r| r.kernel == kernel.name) else {
                return Err(Failure::new(
                    Kind::Toolchain,
                    format!("ptxas made no code of `{}` for {name}", kernel.name),
                ));
            };
            let threads = kernel.block.iter().product();
            Ok(Resources {
                arch: name.clone(),
                registers: r.registers,
                spill_stores: r.spill_stores,
                spill_loads: r.spill_loads,
                stack: r.stack,
                blocks_per_multiprocessor: r.blocks_per_multiprocessor(arch, threads, 0),
            })
        };
        bar.inc(1);
        entries.iter().map(of_kernel).collect::<Result<Vec<Resources>, Failure>>()
    };
    let found = archs.par_iter().map(one).collect::<Result<Vec<_>, Failure>>();
    bar.finish_and_clear();
    let mut all = ResourcesByArch::new();
    for of_arch in found? {
        for (kernel, resources) in entries.iter().zip(of_arch) {
            all.entry(kernel.name.clone()).or_default().push(resources);
        }
    }
    Ok(all)
}

/// Writes an image as the builder leaves it.
fn export(library: &Library, dir: &Path, json: bool) -> Result<(), Failure> {
    let written = || -> std::io::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(dir)?;
        let mut files = vec![(dir.join("manifest.json"), &library.text)];
        files.extend(library.code.iter().map(|(sm, ptx)| (dir.join(format!("sm_{sm}.ptx")), ptx)));
        files.into_iter().map(|(path, text)| std::fs::write(&path, text).map(|()| path)).collect()
    };
    let files = written().map_err(|e| Failure::new(Kind::Operation, format!("--export {}: {e}", dir.display())))?;
    if json {
        println!("{:#}", serde_json::json!({ "library": library.manifest.library, "files": files }));
    } else {
        files.iter().for_each(|f| println!("{}", f.display()));
    }
    Ok(())
}

/// Runs the command.
pub fn run(args: &KernelsArgs) -> Result<(), Failure> {
    let libraries = match Project::here(&args.place)? {
        Some(project) => project.build(!args.json)?.libraries,
        None => vec![Library::shipped(warpsmith_host::builtin_image())?],
    };
    if let Some(dir) = &args.export {
        return match libraries.as_slice() {
            [one] => export(one, dir, args.json),
            several => several.iter().try_for_each(|l| export(l, &dir.join(&l.manifest.library), args.json)),
        };
    }
    let lists = libraries.iter().filter_map(|l| list(args, l).transpose()).collect::<Result<Vec<_>, _>>()?;
    if lists.is_empty() {
        let filter = args.filter.as_deref().unwrap_or_default();
        return Err(Failure::new(Kind::Operation, format!("no kernel has `{filter}` in its name or family")));
    }
    if args.json {
        let text = match lists.as_slice() {
            [one] => serde_json::to_string_pretty(one),
            several => serde_json::to_string_pretty(several),
        };
        println!("{}", text.map_err(|e| Failure::new(Kind::Operation, e.to_string()))?);
        return Ok(());
    }
    lists.iter().for_each(|list| print(args, list));
    Ok(())
}

/// The kernels of a library that are meant, and what ptxas says of them.
fn list<'a>(args: &KernelsArgs, library: &'a Library) -> Result<Option<List<'a>>, Failure> {
    let manifest = &library.manifest;
    let wanted =
        |k: &&KernelEntry| args.filter.as_ref().is_none_or(|f| k.name.contains(f) || k.family.contains(f.as_str()));
    let mut entries: Vec<KernelEntry> = manifest.kernels.iter().filter(wanted).cloned().collect();
    entries.sort_by(|a, b| (&a.family, &a.name).cmp(&(&b.family, &b.name)));
    if entries.is_empty() {
        return Ok(None);
    }
    let assembler = ptxas::find();
    let archs = archs(args, library)?;
    if archs.is_empty() {
        let claimed: Vec<String> = claimed().map(|sm| format!("sm_{sm}")).collect();
        let but = if args.except.is_empty() { "" } else { " but what --except leaves out" };
        let reason = format!("`{}` has no code for any of {}{but}", manifest.library, claimed.join(", "));
        return Err(Failure::new(Kind::Operation, reason));
    }
    let assembled = match &assembler {
        Some(assembler) => assemble(assembler, library, &entries, &archs)?,
        None if args.assemble => {
            let fix = "pip install nvidia-cuda-nvcc in an active virtual environment, or set WARPSMITH_PTXAS";
            return Err(Failure::new(Kind::Toolchain, format!("--assemble needs ptxas, which was not found; {fix}")));
        }
        None => ResourcesByArch::new(),
    };

    let row = |kernel: KernelEntry| ListedKernel {
        resources: assembled.get(&kernel.name).cloned().unwrap_or_default(),
        kernel,
    };
    Ok(Some(List {
        library: &manifest.library,
        backend: &manifest.backend,
        architectures: archs,
        ptxas: assembler.as_ref().map(|a| a.release().to_owned()),
        kernels: entries.into_iter().map(row).collect(),
    }))
}

/// The architectures that are asked for: with `--assemble` the claimed ones that the library has code for, but for those that are left out.
fn archs(args: &KernelsArgs, library: &Library) -> Result<Vec<String>, Failure> {
    if !args.assemble {
        return Ok(vec![args.arch.clone()]);
    }
    let name = |sm: u32| format!("sm_{sm}");
    let claimed: Vec<u32> = claimed().collect();
    if let Some(other) = args.except.iter().find(|except| !claimed.iter().any(|sm| name(*sm) == **except)) {
        let all = claimed.into_iter().map(name).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("--except {other} is none of {all}")));
    }
    let has = claimed.into_iter().filter(|sm| library.code_for(*sm).is_ok()).map(name);
    Ok(has.filter(|name| !args.except.contains(name)).collect())
}

fn print(args: &KernelsArgs, list: &List<'_>) {
    let mut table = Table::new([
        ("family", Align::Left),
        ("kernel", Align::Left),
        ("variant", Align::Left),
        ("block", Align::Right),
        ("shared", Align::Right),
        ("regs", Align::Right),
        ("spills", Align::Right),
        ("blocks/SM", Align::Right),
        ("arguments", Align::Left),
    ]);
    for row in &list.kernels {
        let k = &row.kernel;
        let shared =
            if k.dynamic_shared_used { format!("{}+dyn", k.static_shared) } else { k.static_shared.to_string() };
        let worst = row.resources.iter().max_by_key(|r| (r.spill_stores + r.spill_loads, r.registers));
        let figure = |f: fn(&Resources) -> u32| worst.map_or_else(|| "-".to_owned(), |r| f(r).to_string());
        let block = if k.block[1] * k.block[2] == 1 {
            k.block[0].to_string()
        } else {
            k.block.map(|d| d.to_string()).join("x")
        };
        let args: Vec<String> = k.args.iter().map(|a| format!("{}: {}", a.name, a.ty)).collect();
        table.row(vec![
            k.family.clone(),
            k.name.clone(),
            k.variant.clone(),
            block,
            shared,
            figure(|r| r.registers),
            figure(|r| r.spill_stores + r.spill_loads),
            figure(|r| r.blocks_per_multiprocessor),
            args.join(", "),
        ]);
    }
    print!("{table}");
    println!();
    let (archs_text, number) = (list.architectures.join(", "), list.kernels.len());
    match &list.ptxas {
        Some(release) if args.assemble => {
            println!(
                "{} kernels assembled for {archs_text} by ptxas {release}; registers and spills are the worst of them",
                number
            );
        }
        Some(release) => {
            println!("{} kernels; registers, spills and blocks per SM on {archs_text} from ptxas {release}", number)
        }
        None => {
            println!("{} kernels; registers and spills need ptxas (warpsmith doctor says how to get it)", number)
        }
    }
}
