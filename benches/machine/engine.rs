//! The executor on one of our kernels: what checks cost, and how fast modules load.

use std::sync::Arc;
use std::time::Instant;

use warpsmith_check::{CheckedMemory, Checks, Inspect};
use warpsmith_host::{Manifest, builtin_image};
use warpsmith_simt::{Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

use crate::{Outcome, median};

const SM: u32 = 90;
const ROWS: u32 = 1024;
const COLS: u32 = 4096;

/// A machine with a GEMV ready to launch.
struct Rig {
    machine: Machine,
    instance: Instance,
    launch: Launch,
    params: Vec<u8>,
}

impl Rig {
    fn new(kernel: &str, threads: usize, track: bool) -> Outcome<Rig> {
        let machine = Machine::new(MachineConfig { sm: SM, threads, ..MachineConfig::default() });
        machine.memory().track(track);
        let (_, text) = builtin_image().code_for(SM)?;
        let instance = machine.instantiate(Arc::new(Module::load(&text, &LoadOptions { sm: SM })?))?;
        let manifest: Manifest = builtin_image().manifest()?;
        let entry = manifest.kernel(kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?;
        let memory = machine.memory();
        let upload = |n: u32| -> Outcome<u64> {
            let values: Vec<u8> = (0..n).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect();
            let at = memory.alloc(values.len() as u64, 256)?;
            memory.write(at, &values)?;
            Ok(at)
        };
        let (w, x) = (upload(ROWS * COLS)?, upload(COLS)?);
        let y = memory.alloc(u64::from(ROWS) * 4, 256)?;
        let mut params = Vec::new();
        for arg in &entry.args {
            let value = match arg.name.as_str() {
                "weights" => w,
                "x" => x,
                "y" => y,
                "rows" => ROWS.into(),
                "cols" | "x_stride" => COLS.into(),
                "y_stride" => ROWS.into(),
                "columns" => 1,
                // What is added, norms, and codes of outputs, are off.
                "add" | "sums" | "next_weight" | "scaled" | "next_sums" | "quantized" | "group_counters" => y,
                "add_stride" | "parts" | "block_units" | "flags" | "codes" | "eps" => 0,
                other => {
                    return Err(
                        format!("`{kernel}` has an argument `{other}` that this benchmark does not know").into()
                    );
                }
            };
            params.resize(arg.offset as usize, 0);
            params.extend(&value.to_le_bytes()[..arg.size as usize]);
        }
        // A warp takes a row, or two.
        let rows = entry.block[0] / 32 * if kernel.ends_with("_v1") { 1 } else { 2 };
        let launch = Launch::new([ROWS.div_ceil(rows), 1, 1], entry.block);
        Ok(Rig { machine, instance, launch, params })
    }

    /// Seconds of one launch, and its lane instructions.
    fn run(&self, kernel: &str, checks: Option<&Checks>) -> Outcome<(f64, u64)> {
        let start = Instant::now();
        let counters = match checks {
            None => self.machine.launch(&self.instance, kernel, &self.launch, &self.params)?,
            Some(checks) => {
                let inspection = self.machine.inspect(&self.instance, kernel, &self.launch, &self.params, checks);
                if let Some(fault) = inspection.fault {
                    return Err(fault);
                }
                if let Some(finding) = inspection.findings.first() {
                    return Err(format!("a finding in a kernel that has no fault: {finding}").into());
                }
                inspection.counters
            }
        };
        Ok((start.elapsed().as_secs_f64(), counters.lane_instructions))
    }
}

/// The f32 GEMV: plain, on two cores, and under each kind of check.
pub fn checks(rounds: usize) -> Outcome {
    let off = Checks::default();
    let init = Checks { init: true, ..off };
    let races = Checks { races: true, sync: true, ..init };
    let all = Checks { profile: true, ..races };
    for kernel in ["gemv_f32_v1", "gemv_f32"] {
        let plain = Rig::new(kernel, 1, false)?;
        let two = Rig::new(kernel, 2, false)?;
        let tracked = Rig::new(kernel, 1, true)?;
        let columns: [(&str, &Rig, Option<&Checks>); 5] = [
            ("one core, bounds checked", &plain, None),
            ("two cores", &two, None),
            ("+ undefined data", &tracked, Some(&init)),
            ("+ races and barriers", &tracked, Some(&races)),
            ("+ counters by line", &tracked, Some(&all)),
        ];
        let mut times = vec![Vec::new(); columns.len()];
        let mut lanes = 0;
        for _ in 0..=rounds {
            for ((_, rig, checks), times) in columns.iter().zip(&mut times) {
                // What ran before left the caches to its own memory, and threads asleep.
                rig.run(kernel, *checks)?;
                let (seconds, n) = rig.run(kernel, *checks)?;
                lanes = n;
                times.push(seconds);
            }
        }
        // The first round warmed up.
        for times in &mut times {
            times.remove(0);
        }
        let base = median(&mut times[0]);
        let best = times[0][0];
        println!("{kernel}, {ROWS} × {COLS}, {lanes} lane instructions, medians of {rounds}:");
        for ((name, ..), times) in columns.iter().zip(&mut times) {
            let seconds = median(times);
            println!(
                "  {name:26} {:7.2} ms  {:5.2} G lane instructions/s  {:5.2} x the time of the first line (best {:.2} ms, {:.2} x)",
                seconds * 1e3,
                lanes as f64 / seconds / 1e9,
                seconds / base,
                times[0] * 1e3,
                times[0] / best,
            );
        }
    }
    Ok(())
}

/// How fast modules load.
pub fn load(rounds: usize) -> Outcome {
    let (_, text) = builtin_image().code_for(SM)?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let module = Module::load(&text, &LoadOptions { sm: SM })?;
        times.push(start.elapsed().as_secs_f64());
        drop(module);
    }
    println!(
        "module load: {:.1} MB of PTX a second (our kernels, {} KB, median of {rounds})",
        text.len() as f64 / median(&mut times) / 1e6,
        text.len() / 1000
    );
    Ok(())
}
