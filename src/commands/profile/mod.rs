//! `warpsmith profile`: what launches do, counted, by Nsight Compute's names and rules; and what that would mean on a GPU.

pub mod counted;
pub mod gpus;
mod print;
pub mod roofline;

use std::sync::Arc;

use serde_json::{Value, json};
use warpsmith_arch::Gpu as Sheet;
use warpsmith_builder::{Arch, ptxas};
use warpsmith_check::Checks;
use warpsmith_check::record::Record;
use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_host::gpu_kernels::cases::Failure as CaseFailure;

use super::approximate::Approximate;
use super::check::bench::{Gpu, Kernels};
use super::check::{cases, plural, program, subjects};
use super::project::Project;
use crate::cli::ProfileArgs;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table, bytes, count};
use counted::Counted;
use roofline::Roofline;

const PROFILE: Checks = Checks { init: false, races: false, sync: false, profile: true, seed: 0 };

/// Runs the command.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let gpu = gpus::find(&args.gpu).map_err(Failure::usage)?;
    let sm = args.sm.unwrap_or(gpu.sm);
    if !args.program.is_empty() {
        return of_program(args, gpu, sm);
    }
    if let Some(project) = Project::here(&args.place)? {
        return of_project(args, &project, gpu, sm);
    }
    let Some(kernel) = &args.kernel else {
        return Err(Failure::usage("name a kernel, or a program after `--`; `warpsmith kernels` lists the kernels"));
    };
    let launches = launches(&Kernels::new(sm), kernel, args.shape.as_deref().unwrap_or_default())?;
    let (_, text) = warpsmith_host::builtin_image().code_of(kernel, sm)?;
    let found = registers(&text, kernel, sm)?;
    let counted = launches.into_iter().map(|(shape, launch)| {
        let mut counted = Counted::read(launch.to_json());
        if let Some(registers) = found {
            counted.assembled(registers);
        }
        (format!(" with {shape}"), Some(shape), counted)
    });
    print_all(args, gpu, counted.collect());
    Ok(())
}

/// Prints launches, each with the words behind its name and with its shape if it is one of a kernel that ships.
fn print_all(args: &ProfileArgs, gpu: &'static Sheet, launches: Vec<(String, Option<String>, Counted)>) {
    let mut printed = Vec::new();
    for (words, shape, launch) in launches {
        let projection = Roofline::new(&launch, gpu);
        if args.json {
            let mut value = launch.to_json();
            value["shape"] = json!(shape);
            value["projection"] = projection.to_json();
            printed.push(value);
        } else {
            print::print(&launch, &words, &projection, args.lines);
        }
    }
    if args.json {
        println!("{:#}", json!({ "launches": printed }));
    }
}

/// Launches of the project's kernel, as its tests do them.
fn of_project(args: &ProfileArgs, project: &Project, gpu: &'static Sheet, sm: u32) -> Result<(), Failure> {
    if args.shape.is_some() {
        return Err(Failure::usage(
            "--shape is for kernels that ship; a project's are profiled as its tests launch them",
        ));
    }
    let built = project.build(!args.json)?;
    let named: Vec<String> = args.kernel.iter().cloned().collect();
    built.know(&named)?;
    let variables = [("WARPSMITH_PROFILE", "1".to_owned()), ("WARPSMITH_SM", sm.to_string())];
    let ran = built.tests(&named, &variables)?;
    ran.passed()?;
    let own = |p: &Value| p["kernel"].as_str().is_some_and(|k| built.has(k) && (named.is_empty() || named[0] == k));
    let mut all = Vec::new();
    for profile in ran.profiles.iter().filter(|p| own(p)) {
        let mut counted = Counted::read(profile.clone());
        if let Some(text) = built.text(&counted.kernel, sm)?
            && let Some(registers) = registers(&text, &counted.kernel, sm)?
        {
            counted.assembled(registers);
        }
        let launches = plural(counted.launches as usize, "launch", "launches");
        all.push((format!(", {launches}"), None, counted));
    }
    if all.is_empty() {
        let what = args.kernel.as_ref().map_or_else(|| "a kernel of the project".to_owned(), |k| format!("`{k}`"));
        return Err(Failure::usage(format!("no test that was run launches {what}")));
    }
    print_all(args, gpu, all);
    Ok(())
}

/// Launches of a kernel that ships, in those sizes or in those of a layer of a small model, each with its case.
pub fn launches(code: &Arc<Kernels>, kernel: &str, shape: &str) -> Result<Vec<(String, LaunchProfile)>, Failure> {
    let mut launches = Vec::new();
    for case in cases(subjects(&[kernel.to_owned()])?, shape)? {
        let mut device = Gpu::new(code, PROFILE);
        case.run(&mut device).map_err(|e| match e {
            CaseFailure::Launch(text) => Failure::new(Kind::Operation, text),
            CaseFailure::Size(unknown) => Failure::new(Kind::Operation, unknown.to_string()),
            CaseFailure::Wrong(text) => Failure::new(Kind::Verification, format!("{kernel} {case}: {text}")),
        })?;
        launches.extend(device.profiles.into_iter().filter(|p| p.kernel == *kernel).map(|p| (case.to_string(), p)));
    }
    Ok(launches)
}

/// Registers by ptxas, if it is found.
fn registers(text: &str, kernel: &str, sm: u32) -> Result<Option<u32>, Failure> {
    let Some(assembler) = ptxas::find() else {
        return match std::env::var_os("WARPSMITH_PTXAS").filter(|p| !p.is_empty()) {
            Some(path) => Err(Failure::usage(format!("WARPSMITH_PTXAS={} is no ptxas", path.display()))),
            None => Ok(None),
        };
    };
    let name = format!("sm_{sm}");
    let arch: Arch = name.parse().map_err(|e| Failure::new(Kind::Operation, format!("{e}")))?;
    let refused = |e| Failure::new(Kind::Toolchain, format!("ptxas refuses `{kernel}` on {name}: {e}"));
    let found = assembler.assemble_entry(text, kernel, arch).map_err(refused)?;
    Ok(found.map(|r| r.registers))
}

/// A program's launches, as its driver wrote them down.
fn of_program(args: &ProfileArgs, gpu: &'static Sheet, sm: u32) -> Result<(), Failure> {
    if args.kernel.is_some() || args.shape.is_some() {
        return Err(Failure::usage("either a kernel or a program after `--`, not both"));
    }
    let ran = program::start(&args.program, sm, &[("WARPSMITH_PROFILE", "1".to_owned())])?;
    let mut launches: Vec<Value> = ran.lines.into_iter().filter_map(Record::into_profile).collect();
    let projections: Vec<Roofline> = launches.iter().map(|l| Roofline::new(&Counted::read(l.clone()), gpu)).collect();
    if args.json {
        for (launch, projection) in launches.iter_mut().zip(&projections) {
            launch["projection"] = projection.to_json();
        }
        println!("{:#}", json!({ "launches": launches }));
    } else {
        let mut table = Table::new([
            ("kernel", Align::Left),
            ("grid", Align::Right),
            ("block", Align::Right),
            ("launches", Align::Right),
            ("lane instructions", Align::Right),
            ("lanes", Align::Right),
            ("sectors/load", Align::Right),
            ("conflicts", Align::Right),
            ("DRAM at least", Align::Right),
            ("at most", Align::Right),
            ("projected", Align::Right),
            ("by", Align::Left),
        ]);
        for (l, projection) in launches.iter().zip(&projections) {
            let number = |name: &str| l["metrics"][name].as_u64().unwrap_or(0);
            let ratio = |name: &str| l["metrics"][name].as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.1}"));
            let conflicts = ["ld", "st", "atom"]
                .map(|op| number(&format!("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum")));
            table.row(vec![
                l["kernel"].as_str().unwrap_or_default().to_owned(),
                dimensions(&l["grid"]),
                dimensions(&l["block"]),
                l["launches"].to_string(),
                count(number("smsp__thread_inst_executed_pred_on.sum")),
                ratio("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"),
                ratio("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"),
                count(conflicts.iter().sum()),
                bytes(l["dram_bytes"]["at_least"].as_u64().unwrap_or(0)),
                bytes(l["dram_bytes"]["at_most"].as_u64().unwrap_or(0)),
                format!("{:.2} us", projection.longest().1),
                projection.longest().0.to_owned(),
            ]);
        }
        print!("{table}");
        println!(
            "projected: what a launch takes at least on {}, from counted PTX and data sheets; no measurement\n",
            gpu.title
        );
        let mut approximate = Approximate::default();
        for l in &launches {
            let list = l["approximate"].as_array().cloned().unwrap_or_default();
            approximate.add(l["kernel"].as_str().unwrap_or_default(), list);
        }
        approximate.print();
    }
    if ran.code != 0 {
        return Err(Failure::program(ran.code, &args.program[0].to_string_lossy()));
    }
    Ok(())
}

fn dimensions(value: &Value) -> String {
    let all: Vec<String> = value.as_array().map(|a| a.iter().map(Value::to_string).collect()).unwrap_or_default();
    all.join("x")
}
