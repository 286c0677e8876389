//! `warpsmith budget`: what a weight costs, by machine code and by count, held to the budgets of its family; what [attention]
//! does; and local memory of [every] kernel.
//!
//! Machine code is ptxas' for sm_90, weighed by executions on the software driver (see [`slots`]); counts are that
//! driver's, of PTX. Neither is time. A lane that takes one instruction for a weight takes one issue slot for it.

mod attention;
mod bytes;
mod cost;
mod every;
pub mod families;
mod flight;
mod gemm;
mod known;
pub mod pipes;
mod report;
pub mod sass;
pub mod slots;
mod weighed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use rayon::prelude::*;
use warpsmith_builder::listing::{Listing, Source, without_source};
use warpsmith_builder::ptxas::Resources;
use warpsmith_builder::{Arch, listing, nvdisasm, ptxas};
use warpsmith_check::Checks;
use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_host::gpu_kernels::cases::{BYTES, Case};

use super::check::bench::{Gpu, Kernels};
use super::project::{self, Project};
use crate::cli::BudgetArgs;
use crate::failure::{Failure, Kind};
use cost::{Cost, FamilyProduct};

pub const PROFILE: Checks = Checks { init: false, races: false, sync: false, profile: true, seed: 0 };
const SM: u32 = 90;
/// Loaded once for all that runs them.
static KERNELS: LazyLock<Arc<Kernels>> = LazyLock::new(|| Kernels::new(SM));
/// The release that CI pins; others give other code.
const PTXAS: &str = "nvidia-cuda-nvcc==13.5.37";
const NVDISASM: &str = "nvidia-cuda-nvdisasm==13.5.37";

/// Columns of the products that the models of 0.6, 1.7, 4 and 8 billion weights have.
const WIDTHS: [usize; 6] = [1024, 2048, 2560, 3072, 4096, 12288];
/// Rows of weights that are run: each block of rows costs what every other does.
const ROWS: usize = 128;

/// The two tools, which have to be there.
pub struct Tools {
    pub ptxas: ptxas::Ptxas,
    pub nvdisasm: nvdisasm::Nvdisasm,
}

impl Tools {
    /// Looks for both; `who` needs them.
    pub fn find(who: &str) -> Result<Tools, Failure> {
        let ptxas = ptxas_for(who)?;
        let nvdisasm =
            nvdisasm::find(Some(&ptxas)).ok_or_else(|| missing(who, "nvdisasm", NVDISASM, "WARPSMITH_NVDISASM"))?;
        Ok(Tools { ptxas, nvdisasm })
    }
}

/// Looks for ptxas; `who` needs it.
pub fn ptxas_for(who: &str) -> Result<ptxas::Ptxas, Failure> {
    ptxas::find().ok_or_else(|| missing(who, "ptxas", PTXAS, "WARPSMITH_PTXAS"))
}

fn missing(who: &str, name: &str, package: &str, variable: &str) -> Failure {
    let path = std::env::var_os(variable).filter(|p| !p.is_empty());
    let what =
        path.map_or_else(|| format!("{name} was not found"), |p| format!("{variable}={} is no {name}", p.display()));
    Failure::new(
        Kind::Toolchain,
        format!(
            "{what}, and {who} reads machine code: pip install {package} in an active virtual environment, or set {variable}"
        ),
    )
}

/// Kernels that are measured, with the family whose budget holds them.
#[cfg(test)]
fn budgets() -> BTreeSet<(String, &'static str)> {
    let runs = attention::AttentionRun::chosen(None).into_iter().map(|r| (r.kernel(), r.family()));
    let held = gemm::GemmRun::chosen(None).into_iter().filter(|r| r.budget().is_some());
    let many = held.map(|r| (r.kernel(), families::MANY));
    let bytes = bytes::kernels().into_iter().map(|kernel| (kernel, BYTES));
    FamilyProduct::chosen(None)
        .iter()
        .map(|s| (s.kernel(), s.family.name))
        .chain(runs)
        .chain(many)
        .chain(bytes)
        .collect()
}

/// Everything that was measured.
struct Measured {
    costs: Vec<Cost>,
    /// Memory on the way, at the products of models.
    flights: Vec<flight::Flight>,
    attention: Vec<attention::AttentionCost>,
    /// Products with many columns.
    many: Vec<gemm::GemmCost>,
    /// What moves bytes.
    bytes: Vec<bytes::Traffic>,
    /// Of every kernel, if all were assembled.
    resources: Vec<Resources>,
}

/// Runs the command.
pub fn run(args: &BudgetArgs) -> Result<(), Failure> {
    if let Some(project) = Project::here(&args.place)? {
        return project::budget(args, &project);
    }
    let subjects = FamilyProduct::chosen(args.filter.as_deref());
    let runs = attention::AttentionRun::chosen(args.filter.as_deref());
    let many = gemm::GemmRun::chosen(args.filter.as_deref());
    if subjects.is_empty() && runs.is_empty() && many.is_empty() && !bytes::wanted(args.filter.as_deref()) {
        let others = ["attention", "prefill", families::MANY, BYTES];
        let names: Vec<&str> = families::FAMILIES.iter().map(|f| f.name).chain(others).collect();
        let filter = args.filter.as_deref().unwrap_or_default();
        let text = format!(
            "no family and no kernel with a budget has `{filter}` in its name: families are {}",
            names.join(", ")
        );
        return Err(Failure::usage(text));
    }
    let tools = Tools::find("budget")?;
    let measured = measure(args, &tools, &subjects, (runs, many))?;
    let held = held(args, &measured);
    let whole = args.filter.is_none() && args.cols.is_none();
    // The list is of the sizes that are run unless told otherwise.
    let listed = if args.rows.is_none() { known::built_in()? } else { known::Known::new() };
    if args.write {
        known::write(&known::renewed(&held, &listed, whole))?;
        return Ok(());
    }
    let mut verdict = known::judge(&held, (&listed, known::PATH), whole && args.rows.is_none());
    let local = known::judge(
        &every::local(&measured.resources),
        (&every::allowed(), every::ALLOWED),
        !measured.resources.is_empty(),
    );
    verdict.failures.extend(local.failures);
    verdict.known.extend(local.known);
    report::print(&measured, &verdict, &every::unbudgeted(), args, &tools);
    match verdict.failures {
        none if none.is_empty() => Ok(()),
        failures => Err(Failure::new(Kind::Budget, format!("over budget: {}", failures.join("; ")))),
    }
}

/// Assembles each kernel once, and runs it at every width.
fn measure(
    args: &BudgetArgs,
    tools: &Tools,
    subjects: &[FamilyProduct],
    (runs, many): (Vec<attention::AttentionRun>, Vec<gemm::GemmRun>),
) -> Result<Measured, Failure> {
    let others = runs.iter().map(|r| r.kernel()).chain(many.iter().map(|r| r.kernel()));
    let names: BTreeSet<String> = subjects.iter().map(FamilyProduct::kernel).chain(others).collect();
    let assembled = assemble_all(names, SM, tools)?;
    let code = |name: &str| {
        assembled.get(name).ok_or_else(|| Failure::new(Kind::Operation, format!("{name} was not assembled")))
    };
    let widths = args.cols.map_or(WIDTHS.to_vec(), |cols| vec![cols]);
    let shapes: Vec<(&FamilyProduct, usize)> =
        subjects.iter().flat_map(|s| widths.iter().map(move |w| (s, *w))).collect();
    let rows = args.rows.unwrap_or(ROWS);
    let costs = shapes.into_par_iter().map(|(s, cols)| Cost::new(s, (rows, cols), code(&s.kernel())?));
    let costs = costs.collect::<Result<_, _>>()?;
    let flights = flight::Flight::all(args, subjects, code)?;
    let attention = runs.into_par_iter().map(|r| attention::cost(r, code(&r.kernel())?)).collect::<Result<_, _>>()?;
    let many = many.into_par_iter().map(|r| gemm::cost(r, code(&r.kernel())?)).collect::<Result<_, _>>()?;
    let bytes = bytes::costs(args.filter.as_deref())?;
    let resources = match args.filter {
        Some(_) => Vec::new(),
        None => resources(&assembled, tools)?,
    };
    Ok(Measured { costs, flights, attention, many, bytes, resources })
}

/// What ptxas says of every kernel that ships: of those that were assembled, and of the others.
fn resources(assembled: &BTreeMap<String, Arc<Assembled>>, tools: &Tools) -> Result<Vec<Resources>, Failure> {
    let kernels = &warpsmith_host::kernels()?.kernels;
    let others: Vec<&str> =
        kernels.iter().map(|k| k.name.as_str()).filter(|name| !assembled.contains_key(*name)).collect();
    let mut all: Vec<Resources> = assembled.values().map(|a| a.resources.clone()).collect();
    if !others.is_empty() {
        let (_, text) = warpsmith_host::builtin_image().code_for(SM)?;
        let arch: Arch = format!("sm_{SM}").parse().map_err(|e| Failure::new(Kind::Operation, format!("{e}")))?;
        let of_others = tools.ptxas.assemble_text_entries(&without_source(&text), &others, arch);
        all.extend(of_others.map_err(|e| Failure::new(Kind::Toolchain, e.to_string()))?);
    }
    Ok(all)
}

/// All budgets: of a family's path at each width by the kernel that comes closest, and of every run of attention.
fn held(args: &BudgetArgs, measured: &Measured) -> Vec<known::Held> {
    let mut all = Vec::new();
    let widths: BTreeSet<usize> = measured.costs.iter().map(|c| c.cols).collect();
    for (family, cols) in families::FAMILIES.iter().flat_map(|f| widths.iter().map(move |w| (f, *w))) {
        // A filter by kernel leaves out others that may come closer.
        if args.filter.as_ref().is_some_and(|f| !family.is_named(f)) {
            continue;
        }
        for (path, _) in family.limits {
            let on_path = measured.costs.iter().filter(|c| c.is_of(family, cols, *path));
            let best = on_path
                .map(|c| (c.misses(), c))
                .min_by(|(a, c), (b, d)| a.len().cmp(&b.len()).then(c.loop_slots().total_cmp(&d.loop_slots())));
            let title = path.map_or_else(|| family.name.to_owned(), |p| format!("{} {p}", family.name));
            let (misses, kernel) = best.map(|(misses, c)| (misses, c.kernel.clone())).unwrap_or_default();
            all.push(known::Held { budget: format!("{title}, {cols} columns"), kernel, misses });
        }
    }
    all.extend(measured.flights.iter().map(flight::Flight::held));
    let attention = measured.attention.iter();
    all.extend(attention.map(|c| known::Held { budget: c.name(), kernel: c.run.kernel(), misses: c.misses() }));
    all.extend(measured.many.iter().map(gemm::GemmCost::held));
    all.extend(measured.bytes.iter().map(bytes::Traffic::held));
    all
}

/// The launches of a case, which is compared with its reference too.
fn profiles(case: &Case) -> Result<Vec<LaunchProfile>, Failure> {
    let operation = |e: String| Failure::new(Kind::Operation, format!("{case}: {e}"));
    let mut gpu = Gpu::new(&KERNELS, PROFILE);
    case.run(&mut gpu).map_err(|e| operation(e.to_string()))?;
    Ok(gpu.profiles)
}

/// A kernel's machine code for an architecture, and what ptxas says of it.
pub struct Assembled {
    pub code: sass::Code,
    pub resources: Resources,
}

impl Assembled {
    /// Bytes of local memory of a thread.
    pub fn local(&self) -> u32 {
        local_bytes(&self.resources)
    }
}

/// Bytes of local memory: the frame, in which spills lie.
fn local_bytes(r: &Resources) -> u32 {
    r.stack.max(r.spill_stores).max(r.spill_loads)
}

/// How many kernels are assembled at a time: so many that tools are hardly waited for to begin, and few enough for all cores.
const TOGETHER: usize = 12;

/// Assembles kernels that ship, of the texts that [`Gpu`] runs.
pub fn assemble_all(
    names: impl IntoIterator<Item = String>,
    sm: u32,
    tools: &Tools,
) -> Result<BTreeMap<String, Arc<Assembled>>, Failure> {
    let names: Vec<String> = names.into_iter().collect();
    let toolchain = |e: String| Failure::new(Kind::Toolchain, e);
    let arch: Arch = format!("sm_{sm}").parse().map_err(|e| toolchain(format!("{e}")))?;
    let image = warpsmith_host::builtin_image();
    let some = |names: &[String]| {
        let texts = names.iter().map(|name| Ok(image.code_of(name, sm)?.1)).collect::<Result<Vec<_>, Failure>>()?;
        let sources: Vec<Source<'_>> = names.iter().zip(&texts).map(|(kernel, text)| Source { kernel, text }).collect();
        let listings = listing::listings((&tools.ptxas, &tools.nvdisasm), &sources, arch);
        let listings = listings.map_err(|e| toolchain(e.to_string()))?;
        let read = |(name, Listing { resources, text }): (&String, Listing)| {
            let code = sass::read(&text, name).map_err(|e| toolchain(format!("{name}: {e}")))?;
            Ok((name.clone(), Arc::new(Assembled { code, resources })))
        };
        names.iter().zip(listings).map(read).collect::<Result<Vec<_>, Failure>>()
    };
    let all = names.par_chunks(TOGETHER).map(some).collect::<Result<Vec<_>, Failure>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Assembles a kernel of a text: of the one that is run, as lines of PTX are what ties counts to machine code.
pub fn assemble(name: &str, ptx: &str, sm: u32, tools: &Tools) -> Result<Assembled, Failure> {
    let toolchain = |e: String| Failure::new(Kind::Toolchain, format!("{name}: {e}"));
    let arch: Arch = format!("sm_{sm}").parse().map_err(|e| toolchain(format!("{e}")))?;
    let compiled = tools.ptxas.compile_entry(ptx, name, arch).map_err(|e| toolchain(e.to_string()))?;
    let (resources, cubin) = compiled.ok_or_else(|| toolchain("ptxas made no code of it".to_owned()))?;
    let text = tools.nvdisasm.disassemble(&cubin).map_err(|e| toolchain(e.to_string()))?;
    let code = sass::read(&text, name).map_err(toolchain)?;
    Ok(Assembled { code, resources })
}

#[cfg(test)]
mod tests;
