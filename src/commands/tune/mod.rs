//! `warpsmith tune`: which activations are fastest, by architecture, format and shape, as the table that decoders read.

mod fit;
mod model;
mod shapes;
mod table;
mod time;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde_json::{Value, json};
use warpsmith_arch::Gpu;
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::gpu_kernels::gemv::{Activations, PROVENANCE, TUNED, Tuned};
use warpsmith_host::{Device, Engine};

use super::budget::Tools;
use super::budget::families::product;
use super::estimate::figures::Figures;
use super::profile::gpus;
use crate::cli::{TuneArgs, TuneBy};
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};
use fit::Timed;
pub use model::GPUS;
use model::{Alike, Modelled};
use table::Origin;

/// The activations that are compared for a format: two f16 cost more than one, and more than 16 bits.
fn candidates(format: Format) -> Vec<Activations> {
    Activations::ALL.into_iter().filter(|a| *a != Activations::F16x2 && a.take(format)).collect()
}

/// How rows were found, as the table has it.
const BY_MODEL: &str = "model";
const BY_TIME: &str = "time";

/// What was found for one architecture.
struct Found {
    origin: Origin,
    sm: u32,
    /// Times of all shapes, by format.
    evidence: Vec<(Format, Vec<Timed>)>,
}

/// Runs the command.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    let formats: Vec<Format> =
        Format::ALL.into_iter().filter(|f| Activations::Int16.take(*f) || Activations::Int8.take(*f)).collect();
    let found = match gpu(args)? {
        Some(device) => vec![by_time(&device, &formats)?],
        None => by_models(args, &formats)?,
    };
    let rows: Vec<Tuned> = found.iter().flat_map(Found::rows).collect();
    print(&found, &rows, args);
    if args.write {
        write(&found, &rows)?;
    }
    if args.check { check(&rows) } else { Ok(()) }
}

/// The GPU to be measured, if any is.
fn gpu(args: &TuneArgs) -> Result<Option<Device>, Failure> {
    match args.by {
        TuneBy::Model => return Ok(None),
        TuneBy::Auto if args.gpu.is_some() || args.check => return Ok(None),
        TuneBy::Time if args.gpu.is_some() => {
            return Err(Failure::usage("--gpu names a GPU of the model; --by time measures the one that is here"));
        }
        _ => {}
    }
    let device = Device::open(args.device)?;
    match args.by {
        TuneBy::Auto if device.is_software() => Ok(None),
        TuneBy::Time if device.is_software() => {
            let text = "--by time needs a GPU: the software driver's times say nothing about one; --by model does";
            Err(Failure::new(Kind::NoEngine, text))
        }
        _ => Ok(Some(device)),
    }
}

/// A bar of so many steps, with what is being done.
fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Of the GPU that was named, or of one for each architecture; with `--check` those that were not measured.
fn by_models(args: &TuneArgs, formats: &[Format]) -> Result<Vec<Found>, Failure> {
    let measured = |gpu: &Gpu| PROVENANCE.iter().any(|p| p.sm == gpu.sm && p.by != BY_MODEL);
    let gpus: Vec<&'static Gpu> = match &args.gpu {
        Some(name) => vec![gpus::find(name).map_err(Failure::usage)?],
        None => model::GPUS.iter().map(|name| gpus::find(name).map_err(Failure::usage)).collect::<Result<_, _>>()?,
    };
    let gpus = gpus.into_iter().filter(|g| !args.check || !measured(g));
    let gpus = gpus.map(|g| Figures::new(g, args.rates.as_deref())).collect::<Result<Vec<_>, _>>()?;
    let (tools, images) = (Tools::find("tune")?, warpsmith_host::builtin_image().architectures()?);
    let bar = progress(gpus.len() * formats.len());
    let mut alike: BTreeMap<u32, Alike> = BTreeMap::new();
    for figures in gpus {
        let sm = figures.gpu.sm;
        // Of none the first launch says so.
        let image = images.iter().copied().filter(|image| *image <= sm).max().unwrap_or(sm);
        alike.entry(image).or_insert_with(|| Alike::new(image)).gpus.push(Modelled::new(figures, formats, &tools)?);
    }
    let runs: Vec<(&Alike, Format)> = alike.values().flat_map(|a| formats.iter().map(move |f| (a, *f))).collect();
    let timed: Vec<Vec<Vec<Timed>>> =
        runs.into_par_iter().map(|(alike, format)| by_model(alike, format, &bar)).collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    let mut timed = timed.into_iter();
    let mut found = Vec::new();
    for alike in alike.values() {
        let mut all: Vec<Found> = alike.gpus.iter().map(|gpu| modelled(gpu, &tools)).collect();
        for (format, timed) in formats.iter().zip(timed.by_ref()) {
            all.iter_mut().zip(timed).for_each(|(found, timed)| found.evidence.push((*format, timed)));
        }
        found.extend(all);
    }
    Ok(found)
}

impl Found {
    /// Rows of the table.
    fn rows(&self) -> Vec<Tuned> {
        let of = |(format, shapes): &(Format, Vec<Timed>)| {
            let allowed = [Activations::Int16, Activations::Int8].into_iter().filter(|a| a.take(*format));
            allowed.map(|a| fit::row(self.sm, *format, a, shapes)).collect::<Vec<_>>()
        };
        self.evidence.iter().flat_map(of).collect()
    }
}

/// Times on a GPU that is here.
fn by_time(device: &Device, formats: &[Format]) -> Result<Found, Failure> {
    let stream = device.stream()?;
    let all = shapes::all();
    let bar = progress(formats.len() * all.len());
    let mut evidence = Vec::new();
    for &format in formats {
        let mut timed = Vec::new();
        for (shape, rows, cols) in all.clone() {
            bar.set_message(format!("{format} {shape}"));
            let size = u32::try_from(rows).ok().zip(u32::try_from(cols).ok());
            let size = size.ok_or_else(|| Failure::new(Kind::Operation, format!("{shape} is too large")))?;
            let times = time::times(&stream, format, size, time::SAMPLES);
            let times = times.map_err(|e| Failure::new(Kind::Operation, format!("{format} {shape}: {e}")))?;
            timed.push(Timed { shape, size: (rows, cols), times });
            bar.inc(1);
        }
        evidence.push((format, timed));
    }
    bar.finish_and_clear();
    let driver = match device.engine() {
        Engine::Cuda { version, .. } => format!("driver of CUDA {}.{}, ", version / 1000, version % 1000 / 10),
        Engine::Software { .. } => String::new(),
    };
    let with = format!("{driver}warpsmith {}", env!("CARGO_PKG_VERSION"));
    let origin = Origin { sm: device.sm(), by: BY_TIME.to_owned(), gpu: device.name().to_owned(), with };
    Ok(Found { sm: origin.sm, origin, evidence })
}

/// Times that instructions and bytes of products with weights of a format would take on each of some GPUs.
fn by_model(alike: &Alike, format: Format, bar: &ProgressBar) -> Result<Vec<Vec<Timed>>, Failure> {
    let mut known = HashMap::new();
    let mut timed: Vec<Vec<Timed>> = alike.gpus.iter().map(|_| Vec::new()).collect();
    for (shape, rows, cols) in shapes::all() {
        for timed in &mut timed {
            timed.push(Timed { shape: shape.clone(), size: (rows, cols), times: Vec::new() });
        }
        for activations in candidates(format) {
            let costs: &mut Vec<model::ProductCost> = match known.entry((activations, cols)) {
                Entry::Occupied(costs) => costs.into_mut(),
                Entry::Vacant(new) => {
                    let costs = model::costs(alike, format, product(activations), cols as usize);
                    let failed = |e| Failure::new(Kind::Operation, format!("{format} with {activations}: {e}"));
                    new.insert(costs.map_err(failed)?)
                }
            };
            for ((cost, gpu), timed) in costs.iter().zip(&alike.gpus).zip(&mut timed) {
                let time = (activations, cost.time(&gpu.figures, rows));
                timed.last_mut().into_iter().for_each(|timed| timed.times.push(time));
            }
        }
    }
    bar.set_message(format.to_string());
    bar.inc(alike.gpus.len() as u64);
    Ok(timed)
}

/// A GPU of the model, of which nothing was found yet.
fn modelled(gpu: &Modelled, tools: &Tools) -> Found {
    let rates = gpu.figures.measured_on().map_or(String::new(), |device| format!(", rates measured on {device}"));
    let with = format!("ptxas {}, warpsmith {}{rates}", tools.ptxas.release(), env!("CARGO_PKG_VERSION"));
    let Gpu { sm, title, .. } = gpu.figures.gpu;
    let origin = Origin { sm: *sm, by: BY_MODEL.to_owned(), gpu: (*title).to_owned(), with };
    Found { origin, sm: *sm, evidence: Vec::new() }
}

fn print(found: &[Found], rows: &[Tuned], args: &TuneArgs) {
    if args.json {
        let of = |f: &Found| -> Value {
            let shapes = f.evidence.iter().flat_map(|(format, timed)| {
                timed.iter().map(move |t| {
                    let times: serde_json::Map<String, Value> =
                        t.times.iter().map(|(a, us)| (a.to_string(), json!(us))).collect();
                    json!({ "format": format.name(), "shape": t.shape, "rows": t.size.0, "cols": t.size.1, "us": times })
                })
            });
            let rows = rows.iter().filter(|r| r.sm == f.sm).map(|r| {
                json!({
                    "format": r.format.name(),
                    "allowed": r.allowed.to_string(),
                    "fastest": r.fastest.to_string(),
                    "from_weights": (r.from != u64::MAX).then_some(r.from),
                })
            });
            json!({
                "sm": f.sm,
                "by": f.origin.by,
                "gpu": f.origin.gpu,
                "with": f.origin.with,
                "rows": rows.collect::<Vec<_>>(),
                "shapes": shapes.collect::<Vec<_>>(),
            })
        };
        println!("{:#}", json!({ "architectures": found.iter().map(of).collect::<Vec<_>>() }));
        return;
    }
    for f in found {
        println!("{} (sm_{}), by {} with {}\n", f.origin.gpu, f.sm, f.origin.by, f.origin.with);
        let mut out = Table::new([
            ("format", Align::Left),
            ("allowed", Align::Left),
            ("fastest", Align::Left),
            ("from weights", Align::Right),
            ("8b-down, us: f32", Align::Right),
            ("int16", Align::Right),
            ("f16", Align::Right),
            ("int8", Align::Right),
        ]);
        for r in rows.iter().filter(|r| r.sm == f.sm) {
            let shapes = f.evidence.iter().find(|e| e.0 == r.format).map(|e| &e.1);
            let down = shapes.and_then(|s| s.iter().find(|t| t.shape == "8b-down"));
            let time = |a: Activations| {
                let us = down.and_then(|t| t.times.iter().find(|t| t.0 == a));
                us.map_or_else(|| "-".to_owned(), |t| format!("{:.2}", t.1))
            };
            let never = r.from == u64::MAX;
            let instead =
                if r.allowed == Activations::Int8 && Activations::Int16.take(r.format) { "as int16" } else { "f32" };
            let mut row = vec![
                r.format.to_string(),
                r.allowed.to_string(),
                if never { instead.to_owned() } else { r.fastest.to_string() },
                if never { "never".to_owned() } else { r.from.to_string() },
            ];
            row.extend(Activations::ALL.map(time));
            out.row(row);
        }
        println!("{out}");
    }
    if found.iter().any(|f| f.origin.by == BY_TIME) {
        println!(
            "by time: medians of {} graphs of {} products each, which quantize what they compute, over weights that no cache holds",
            time::SAMPLES,
            time::PRODUCTS
        );
    } else {
        println!("by model: instructions and bytes over the rates of data sheets; not measured");
    }
}

/// Replaces the rows of the architectures that were looked at, and keeps the others.
fn write(found: &[Found], rows: &[Tuned]) -> Result<(), Failure> {
    let path = Path::new(table::PATH);
    if !path.is_file() {
        let text = format!("--write: {} is not here; run it at the root of a checkout of warpsmith", table::PATH);
        return Err(Failure::usage(text));
    }
    let new = |sm: u32| found.iter().any(|f| f.sm == sm);
    let text = |s: &str| s.to_owned();
    let kept = PROVENANCE.iter().filter(|p| !new(p.sm));
    let mut origins: Vec<Origin> =
        kept.map(|p| Origin { sm: p.sm, by: text(p.by), gpu: text(p.gpu), with: text(p.with) }).collect();
    origins.extend(found.iter().map(|f| f.origin.clone()));
    origins.sort_by_key(|o| o.sm);
    let mut all: Vec<Tuned> = TUNED.iter().copied().filter(|t| !new(t.sm)).chain(rows.iter().copied()).collect();
    all.sort_by_key(|t| (t.sm, t.format, t.allowed));
    std::fs::write(path, table::source(&origins, &all))
        .map_err(|e| Failure::new(Kind::Operation, format!("{}: {e}", path.display())))?;
    println!("written: {}", path.display());
    Ok(())
}

/// Whether the table that is built in says the same.
fn check(rows: &[Tuned]) -> Result<(), Failure> {
    let show = |t: &Tuned| match t.from {
        u64::MAX => "never".to_owned(),
        from => format!("{} from {from}", t.fastest),
    };
    let differ = rows.iter().filter_map(|new| {
        let old = TUNED.iter().find(|t| (t.sm, t.format, t.allowed) == (new.sm, new.format, new.allowed));
        let what = format!("sm_{} {} {}", new.sm, new.format, new.allowed);
        match old {
            Some(old) if old == new => None,
            Some(old) => Some(format!("{what}: {} is {} now", show(old), show(new))),
            None => Some(format!("{what}: not in the table")),
        }
    });
    match differ.collect::<Vec<_>>() {
        all if all.is_empty() => Ok(()),
        all => Err(Failure::new(
            Kind::Budget,
            format!("the table is stale (warpsmith tune --write renews it): {}", all.join("; ")),
        )),
    }
}
