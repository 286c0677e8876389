//! `warpsmith budget`: what a weight costs, by machine code and by count, held to the budgets of its family; and what
//! [attention] does.
//!
//! Machine code is ptxas' for sm_90, weighed by executions on the software driver (see [`slots`]); counts are that
//! driver's, of PTX. Neither is time. A lane that takes one instruction for a weight takes one issue slot for it.

mod attention;
mod families;
pub mod pipes;
mod report;
pub mod sass;
pub mod slots;
mod weighed;

use warpsmith_builder::{Arch, nvdisasm, ptxas};
use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_host::KernelEntry;
use warpsmith_host::gpu_kernels::cases::{Case, Inputs, Rng, Subject, Tensor, multiply};
use warpsmith_host::gpu_kernels::gemv::{self, Activations};
use warpsmith_simt::Checks;

use super::check::bench::Gpu;
use super::check::module;
use super::project::{self, Project};
use crate::cli::BudgetArgs;
use crate::failure::{Failure, Kind};
use families::{Family, TRAFFIC};
use weighed::Weighed;

pub const PROFILE: Checks = Checks { init: false, races: false, sync: false, profile: true, seed: 0 };
const SM: u32 = 90;
/// The release that CI pins; others give other code.
const PTXAS: &str = "nvidia-cuda-nvcc==13.5.37";
const NVDISASM: &str = "nvidia-cuda-nvdisasm==13.5.37";

/// What a kernel costs.
pub struct Cost {
    family: &'static Family,
    kernel: String,
    shape: String,
    weights: u64,
    activations: Activations,
    /// Largest distance from the f64 reference, as a share of the row's `sum |w * x|`.
    error: Option<f64>,
    limit: Option<f64>,
    weighed: Weighed,
    /// Bytes that have to move.
    floor: u64,
}

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

/// Runs the command.
pub fn run(args: &BudgetArgs) -> Result<(), Failure> {
    if let Some(project) = Project::here(&args.place)? {
        return project::budget(args, &project);
    }
    let wanted = |family: &Family, kernel: &str| {
        args.filter.as_ref().is_none_or(|f| family.is_named(f) || kernel.contains(f.as_str()))
    };
    let manifest = warpsmith_host::kernels()?;
    let mut chosen: Vec<(&'static Family, &KernelEntry)> = Vec::new();
    for family in &families::ALL {
        let of_family = manifest.kernels.iter().filter(|k| family.has(&k.name) && wanted(family, &k.name));
        chosen.extend(of_family.map(|k| (family, k)));
    }
    let runs = attention::Run::chosen(args.filter.as_deref());
    if chosen.is_empty() && runs.is_empty() {
        let names: Vec<&str> = families::ALL.iter().map(|f| f.name).chain(["attention", "prefill"]).collect();
        let filter = args.filter.as_deref().unwrap_or_default();
        let text = format!(
            "no family and no kernel with a budget has `{filter}` in its name: families are {}",
            names.join(", ")
        );
        return Err(Failure::usage(text));
    }
    let tools = Tools::find("budget")?;
    let mut costs = Vec::new();
    for (family, kernel) in chosen {
        costs.push(cost(family, kernel, args, &tools)?);
    }
    let attention = runs.into_iter().map(|r| attention::cost(r, &tools)).collect::<Result<Vec<_>, _>>()?;
    let missed = report::print(&costs, &attention, args, &tools.ptxas, &tools.nvdisasm);
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Kind::Budget, format!("over budget: {}", missed.join("; "))))
}

/// The case that runs a kernel over a family's weights.
fn case(family: &Family, kernel: &str, args: &BudgetArgs) -> Result<Case, Failure> {
    let launches = |s: &&Subject| s.kernels().iter().any(|k| k == kernel);
    let of_format = |s: &&Subject| matches!(s, Subject::Gemv { format, .. } if *format == family.format);
    let all = Subject::all();
    let subject = all.iter().filter(launches).find(of_format).or_else(|| all.iter().find(launches));
    let subject = subject.ok_or_else(|| Failure::new(Kind::Operation, format!("no case launches `{kernel}`")))?;
    let text = format!("rows={},cols={}", args.rows, args.cols);
    subject.parse(&text).map_err(|e| Failure::usage(format!("{kernel} with {text}: {e}")))
}

/// How far off a product is for a few rows and activations of which one is 26 times their root mean square.
fn error(family: &Family, case: &Case, cols: usize) -> Result<Option<f64>, String> {
    const ROWS: usize = 64;
    let Subject::Gemv { product, .. } = case.subject() else { return Ok(None) };
    let mut rng = Rng(cols as u64);
    let t = Tensor::random(&mut rng, family.format, ROWS, cols);
    let mut x = rng.floats(cols);
    // The others are evenly spread up to 1.
    x[cols / 3] = 15.0;
    let weights = family.format.decode(&t.bytes, ROWS, cols).map_err(|e| e.to_string())?;
    let mut gpu = Gpu::new(SM, &module(SM).map_err(|e| e.to_string())?, Checks::default())?;
    let got = multiply(&mut gpu, &t, product, &Inputs::one(&x, ROWS)).map_err(|e| e.to_string())?;
    let wanted = gemv::reference(&weights, &x, None).into_iter().zip(gemv::magnitudes(&weights, &x));
    let off = got.y.iter().zip(wanted).map(|(y, (want, scale))| (f64::from(*y) - want).abs() / scale);
    Ok(Some(off.fold(0.0, f64::max)))
}

/// The launches of a case, which is compared with its reference too.
fn profiles(case: &Case) -> Result<Vec<LaunchProfile>, Failure> {
    let operation = |e: String| Failure::new(Kind::Operation, format!("{case}: {e}"));
    let mut gpu = Gpu::new(SM, &module(SM)?, PROFILE).map_err(operation)?;
    case.run(&mut gpu).map_err(|e| operation(e.to_string()))?;
    Ok(gpu.profiles)
}

/// A kernel's machine code for an architecture, its registers, and bytes of spills.
pub fn assemble(name: &str, sm: u32, tools: &Tools) -> Result<(sass::Code, u32, u32), Failure> {
    let toolchain = |e: String| Failure::new(Kind::Toolchain, format!("{name}: {e}"));
    let arch: Arch = format!("sm_{sm}").parse().map_err(|e| toolchain(format!("{e}")))?;
    let (_, ptx) = warpsmith_host::builtin_image().code_of(name, sm)?;
    let compiled = tools.ptxas.compile_entry(&ptx, name, arch).map_err(|e| toolchain(e.to_string()))?;
    let (resources, cubin) = compiled.ok_or_else(|| toolchain("ptxas made no code of it".to_owned()))?;
    let text = tools.nvdisasm.disassemble(&cubin).map_err(|e| toolchain(e.to_string()))?;
    let code = sass::read(&text, name).map_err(toolchain)?;
    Ok((code, resources.registers, resources.spill_stores + resources.spill_loads))
}

fn cost(family: &'static Family, kernel: &KernelEntry, args: &BudgetArgs, tools: &Tools) -> Result<Cost, Failure> {
    let name = &kernel.name;
    let activations = families::activations(name);
    let case = case(family, name, args)?;
    let floor = family.format.tensor_bytes(args.rows, args.cols).map_err(|e| Failure::usage(e.to_string()))?
        + 4 * args.rows
        + families::bytes(activations, args.cols);

    let operation = |e: String| Failure::new(Kind::Operation, format!("{name} with {case}: {e}"));
    let ran = profiles(&case)?.into_iter().find(|p| p.kernel == *name);
    let launch = ran.ok_or_else(|| operation("it was not launched".to_owned()))?;
    let weights = (args.rows * args.cols) as u64;
    Ok(Cost {
        family,
        kernel: name.clone(),
        shape: case.to_string(),
        weights,
        activations,
        error: error(family, &case, args.cols).map_err(operation)?,
        limit: family.limit(activations),
        weighed: Weighed::new(launch, weights * family.code_bits as u64 / 8, tools)?,
        floor: floor as u64,
    })
}

impl Cost {
    fn per_weight(&self, slots: f64) -> f64 {
        32.0 * slots / self.weights as f64
    }

    /// Issue slots a weight in the hot loop; of the whole kernel if it has no loop.
    pub fn loop_slots(&self) -> f64 {
        self.per_weight(self.weighed.slots.hot.as_ref().map_or(self.weighed.slots.kernel, |h| h.slots))
    }

    /// The same of the whole kernel.
    pub fn kernel_slots(&self) -> f64 {
        self.per_weight(self.weighed.slots.kernel)
    }

    /// The same by the software driver: instructions of PTX.
    pub fn counted_slots(&self) -> f64 {
        self.per_weight(self.weighed.launch.profile.total.warp_instructions as f64)
    }

    /// Bytes of memory, each sector once, by those that have to move.
    pub fn traffic(&self) -> f64 {
        self.weighed.launch.profile.dram_bytes().0 as f64 / self.floor as f64
    }

    /// Share of the bytes that the hot loop loads by 16 bytes a lane.
    pub fn wide(&self) -> Option<f64> {
        let hot = self.weighed.slots.hot.as_ref().filter(|h| h.bytes > 0)?;
        Some((hot.bytes - hot.narrow_bytes) as f64 / hot.bytes as f64)
    }

    /// Every part of the budget that is missed.
    pub fn misses(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(limit) = self.limit {
            if self.loop_slots() > limit {
                let binds = self.binding();
                all.push(format!(
                    "{:.2} issue slots a weight in its loop, budget {limit}; {binds} binds",
                    self.loop_slots()
                ));
            }
            if self.counted_slots() > limit {
                all.push(format!("{:.2} instructions a weight counted, budget {limit}", self.counted_slots()));
            }
        }
        all.extend(self.weighed.misses());
        if self.traffic() > TRAFFIC {
            all.push(format!("{:.3} times the bytes that have to move, budget {TRAFFIC}", self.traffic()));
        }
        if let Some(hot) = &self.weighed.slots.hot {
            let codes = self.weights * self.family.code_bits as u64 / 8;
            if hot.holds_codes && hot.bytes - hot.narrow_bytes < codes {
                all.push("codes loaded by less than 16 bytes a lane".to_owned());
            }
        }
        all.extend(self.weighed.exposed());
        all
    }

    /// What binds the hot loop, in words.
    pub fn binding(&self) -> String {
        self.weighed.binding(|slots| self.per_weight(slots))
    }
}

#[cfg(test)]
mod tests;
