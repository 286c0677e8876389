//! The executor on one of our kernels: what checks cost, and how fast modules load.

use std::sync::Arc;
use std::time::Instant;

use gpu_kernels::format::Format;
use gpu_kernels::gemv::Gemv;
use gpu_kernels::gemv::naive::GemvF32V1;
use warpsmith_check::{CheckedMemory, Checks, Inspect};
use warpsmith_device::launch::param_block;
use warpsmith_device::{AnyKernel, DeviceSlice, Launcher, U32x4};
use warpsmith_host::builtin_image;
use warpsmith_simt::{Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

use crate::{Outcome, median};

const SM: u32 = 90;
const ROWS: u32 = 1024;
const COLS: u32 = 4096;

/// A machine with a GEMV ready to launch.
struct Rig {
    machine: Machine,
    instance: Instance,
    recorded: Recorded,
}

/// A launch as the machine takes it.
struct Recorded {
    kernel: &'static str,
    launch: Launch,
    params: Vec<u8>,
}

/// Keeps the last launch that was asked for.
struct Recorder(Option<Recorded>);

impl Launcher for Recorder {
    type Error = String;

    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.check().map_err(|e| e.to_string())?;
        let geometry = kernel.geometry();
        geometry.check(kernel.meta()).map_err(|e| e.to_string())?;
        let mut launch = Launch::new(geometry.grid, geometry.block_for(kernel.meta()));
        (launch.dynamic_shared, launch.max_dynamic_shared) = (geometry.dynamic_shared, geometry.dynamic_shared);
        self.0 = Some(Recorded { kernel: kernel.meta().name, launch, params: param_block(|sink| kernel.args(sink)) });
        Ok(())
    }
}

/// A way to launch a product of f32 weights (in units of 16 bytes) with a column: weights, the column, what is written.
type Product = fn(&mut Recorder, &DeviceSlice<U32x4>, &DeviceSlice<f32>, &mut DeviceSlice<f32>) -> Result<(), String>;

const PRODUCTS: [Product; 2] = [
    |on, weights, x, y| on.launch(GemvF32V1 { weights, x, y, rows: ROWS, cols: COLS }),
    |on, weights, x, y| Gemv::new(Format::F32, weights, ROWS, COLS, x, y).launch(on),
];

impl Rig {
    fn new(product: Product, threads: usize, track: bool) -> Outcome<Rig> {
        let machine = Machine::new(MachineConfig { sm: SM, threads, ..MachineConfig::default() });
        machine.memory().track(track);
        let (_, text) = builtin_image().code_for(SM)?;
        let instance = machine.instantiate(Arc::new(Module::load(&text, &LoadOptions { sm: SM })?))?;
        let memory = machine.memory();
        let upload = |n: u32| -> Outcome<u64> {
            let values: Vec<u8> = (0..n).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect();
            let at = memory.alloc(values.len() as u64, 256)?;
            memory.write(at, &values)?;
            Ok(at)
        };
        let (w, x) = (upload(ROWS * COLS)?, upload(COLS)?);
        let y = memory.alloc(u64::from(ROWS) * 4, 256)?;
        let mut recorder = Recorder(None);
        // SAFETY: allocations of these lengths, of memory that lives as long as the machine, which the rig keeps.
        let (w, x, y) = unsafe {
            let weights = DeviceSlice::from_raw(w, (ROWS * COLS / 4) as usize);
            (weights, DeviceSlice::from_raw(x, COLS as usize), DeviceSlice::from_raw_mut(y, ROWS as usize))
        };
        product(&mut recorder, w, x, y)?;
        let recorded = recorder.0.ok_or("the product launched nothing")?;
        Ok(Rig { machine, instance, recorded })
    }

    /// Seconds of one launch, and its lane instructions.
    fn run(&self, checks: Option<&Checks>) -> Outcome<(f64, u64)> {
        let Recorded { kernel, launch, params } = &self.recorded;
        let start = Instant::now();
        let counters = match checks {
            None => self.machine.launch(&self.instance, kernel, launch, params)?,
            Some(checks) => {
                let inspection = self.machine.inspect(&self.instance, kernel, launch, params, checks);
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
    for product in PRODUCTS {
        let plain = Rig::new(product, 1, false)?;
        let two = Rig::new(product, 2, false)?;
        let tracked = Rig::new(product, 1, true)?;
        let kernel = plain.recorded.kernel;
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
                rig.run(*checks)?;
                let (seconds, n) = rig.run(*checks)?;
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
