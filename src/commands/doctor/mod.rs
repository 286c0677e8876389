//! `warpsmith doctor`: what is found, what is missing, the fix. Builds and fetches nothing.

mod devices;
mod project;

use serde::Serialize;
use warpsmith_builder::{ProbeState, Scope, probe};

use super::check::plural;
use crate::cli::DoctorArgs;
use crate::failure::{Failure, Kind};
use crate::table::bytes;
use warpsmith_host::code_cache;

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    name: String,
    /// `build`, `optional`, `cuda_builder` or `run`: who needs it.
    needed_for: &'static str,
    /// `ok`, `missing` or `warning`.
    state: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    probes: Vec<Finding>,
    /// Whether kernels can be built and run.
    ok: bool,
}

fn toolchain() -> impl Iterator<Item = Finding> {
    probe().into_iter().map(|p| Finding {
        name: p.name,
        needed_for: match p.scope {
            Scope::Required => "build",
            Scope::Optional => "optional",
            Scope::CudaBuilder => "cuda_builder",
        },
        state: match p.state {
            ProbeState::Ok => "ok",
            ProbeState::Missing => "missing",
            ProbeState::Warning => "warning",
        },
        detail: p.detail,
        fix: p.fix,
    })
}

/// The real driver and its devices, and the software driver, which is always there.
fn engines() -> Vec<Finding> {
    let finding = |name: &str, needed_for, state, detail, fix: &str| Finding {
        name: name.to_owned(),
        needed_for,
        state,
        detail,
        fix: fix.to_owned(),
    };
    let install = "install NVIDIA's driver for a CUDA GPU; without one, everything runs on the software driver";
    let mut found = Vec::new();
    match warpsmith_driver_api::probe_real() {
        Ok(real) => {
            let version = format!("{}.{}", real.version / 1000, real.version % 1000 / 10);
            found.push(finding("driver (cuda)", "optional", "ok", format!("{}, CUDA {version}", real.library), ""));
            if real.devices.is_empty() {
                found.push(finding("device (cuda)", "optional", "missing", "the driver has no device".into(), install));
            }
            for (i, (name, (major, minor))) in real.devices.iter().enumerate() {
                let detail = format!("{i}: {name}, sm_{major}{minor}");
                found.push(match super::kernels::claimed().min() {
                    Some(oldest) if i64::from(*major) * 10 + i64::from(*minor) < i64::from(oldest) => {
                        let fix = format!("kernels are built for sm_{oldest} and later: set WARPSMITH_DRIVER=software");
                        finding("device (cuda)", "optional", "warning", detail, &fix)
                    }
                    _ => finding("device (cuda)", "optional", "ok", detail, ""),
                });
            }
        }
        Err(reason) => {
            found.push(finding("driver (cuda)", "optional", "missing", reason, install));
        }
    }
    found.push(finding("driver (software)", "run", "ok", "built in".into(), ""));
    if let Err(reason) = warpsmith_driver_api::probe_settings() {
        let fix = "unset the variable, or give it a value that it takes: without any, the real driver is used if it can be, \
                   else the software one";
        found.push(finding("engine", "run", "missing", reason, fix));
    }
    found
}

/// What this program carries for a device.
fn kernels() -> Finding {
    let image = warpsmith_host::builtin_image();
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let carried = image.architectures().and_then(|texts| {
        let texts = list(texts.iter().map(|sm| format!("sm_{sm}")).collect());
        Ok(format!("PTX: {texts}; machine code: {}", list(image.cubins()?)))
    });
    let (state, detail, fix) = match carried {
        Ok(detail) => ("ok", detail, ""),
        Err(error) => ("missing", error.to_string(), "build or install the program again"),
    };
    Finding { name: format!("kernels of {}", image.library()), needed_for: "run", state, detail, fix: fix.to_owned() }
}

/// Where compiled code is kept.
fn code_cache() -> Finding {
    let status = code_cache::status();
    let name = code_cache::VARIABLE;
    let (state, detail, fix) = match (status.folder, status.error) {
        (None, _) => ("ok", format!("off: {}", status.why), String::new()),
        (Some(folder), None) => {
            let entries = plural(status.entries, "entry", "entries");
            let (size, most) = (bytes(status.bytes), bytes(code_cache::BOUND));
            let place = folder.display();
            ("ok", format!("on: {entries}, {size} of at most {most}, in {place} ({})", status.why), String::new())
        }
        (Some(folder), Some(error)) => {
            let fix = format!("name a folder that can be written in {name}, or switch the cache off with {name}=0");
            ("warning", format!("{}: {error}", folder.display()), fix)
        }
    };
    Finding { name: "compiled code".to_owned(), needed_for: "optional", state, detail, fix }
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let here = std::env::current_dir().unwrap_or_default();
    let mut probes: Vec<Finding> =
        toolchain().chain(project::project(&here)).chain(project::book(&here)).chain(engines()).collect();
    probes.extend([kernels(), code_cache()]);
    probes.extend(devices::devices());
    // Stable: what every build needs, then what runs it, then what only the other code generator needs.
    probes.sort_by_key(|p| match p.needed_for {
        "build" => 0,
        "cuda_builder" => 2,
        _ => 1,
    });
    let needed = |p: &&Finding| matches!(p.needed_for, "build" | "run") && p.state == "missing";
    let blockers = probes.iter().filter(needed).count();
    let report = Diagnosis { probes, ok: blockers == 0 };
    if args.json {
        crate::output::json(&report)?;
    } else {
        let width = report.probes.iter().map(|p| p.name.len()).max().unwrap_or(0);
        let mut heading = "";
        for probe in &report.probes {
            let section = match probe.needed_for {
                "build" => "needed to build",
                "cuda_builder" => "needed for the cuda_builder backend only",
                _ => "engines and extras",
            };
            if section != heading {
                println!("{section}");
                heading = section;
            }
            let mark = match probe.state {
                "ok" => "ok     ",
                "warning" => "warning",
                _ => "missing",
            };
            println!("  {mark}  {:width$}  {}", probe.name, probe.detail);
            if !probe.fix.is_empty() {
                println!("           {:width$}  fix: {}", "", probe.fix);
            }
        }
    }
    match blockers {
        0 => Ok(()),
        1 => Err(Failure::new(Kind::Toolchain, "one thing that builds or runs need is missing; its fix is above")),
        n => Err(Failure::new(
            Kind::Toolchain,
            format!("{n} things that builds or runs need are missing; their fixes are above"),
        )),
    }
}
