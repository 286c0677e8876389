//! Rates of instructions and barriers of the GPU that is there.
//!
//! One block of 1024 threads a multiprocessor runs loops of one instruction each; the clocks around the loop give lanes a
//! tick, whatever the frequency is. Every loop's result is compared with what the CPU computes. The software driver runs the
//! same loops, few iterations of them, and nothing is called a rate there.

use std::process::ExitCode;

use clap::Parser;
use rate_kernels::{
    CHAINS, PRODUCTS, RateDp4a, RateFfma, RateGridBarrier, RateLop3, RateMmaB1, RateMmaF16, RateMmaS8, RatePopc,
    RateShuffle, THREADS, UNROLL, product_reference, reference, start, step,
};
use serde_json::{Value, json};
use warpsmith_host::{Device, KernelImage, Stream, include_kernels};

static KERNELS: KernelImage = include_kernels!("rate_kernels");

/// Measure what the tables of NVIDIA leave open: lanes a tick of instructions, multiply-additions of tensor cores, barriers.
#[derive(Parser)]
#[command(name = "warpsmith-rates", version)]
struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Runs of each loop, of which the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

type Failed = Box<dyn std::error::Error>;

/// A loop's best run.
struct Rate {
    name: &'static str,
    /// What a tick of a multiprocessor does so many of.
    unit: &'static str,
    /// In all of a block's loop.
    work: f64,
    /// Ticks of the slowest block, in the fastest run.
    ticks: u64,
}

impl Rate {
    fn value(&self) -> f64 {
        self.work / self.ticks.max(1) as f64
    }
}

struct Bench {
    device: Device,
    stream: Stream,
    blocks: usize,
    runs: u32,
    /// Of every loop.
    iterations: u32,
}

/// What a launch is given: results, ticks, iterations.
macro_rules! launch {
    ($Kernel:ident) => {
        |bench: &Bench, sums: &mut _, ticks: &mut _| {
            bench.stream.launch($Kernel { sums, ticks, iterations: bench.iterations })
        }
    };
}

impl Bench {
    fn open(runs: u32) -> Result<Bench, Failed> {
        let device = Device::open(0)?;
        device.load(&KERNELS)?;
        let stream = device.stream()?;
        let (blocks, iterations) = match device.is_software() {
            true => (2, 2),
            false => (device.limits().multiprocessors as usize, 4096),
        };
        Ok(Bench { device, stream, blocks, runs, iterations })
    }

    /// Runs a loop, compares thread `t` of every block with `expected(t)`, and gives the ticks of the slowest block.
    fn ticks(
        &self,
        name: &str,
        launch: impl Fn(
            &Bench,
            &mut warpsmith_host::Buffer<u32>,
            &mut warpsmith_host::Buffer<u64>,
        ) -> Result<(), warpsmith_host::Error>,
        expected: impl Fn(u32) -> u32,
    ) -> Result<u64, Failed> {
        let mut sums = self.stream.zeros::<u32>(self.blocks * THREADS as usize)?;
        let mut ticks = self.stream.zeros::<u64>(self.blocks)?;
        let expected: Vec<u32> = (0..THREADS).map(expected).collect();
        let mut best = u64::MAX;
        for _ in 0..self.runs {
            launch(self, &mut sums, &mut ticks)?;
            for (b, block) in self.stream.read(&sums)?.chunks_exact(THREADS as usize).enumerate() {
                if let Some(t) = (0..block.len()).find(|t| block[*t] != expected[*t]) {
                    let (found, wanted) = (block[t], expected[t]);
                    return Err(format!("{name}: block {b}, thread {t} gives {found:#x}, not {wanted:#x}").into());
                }
            }
            best = best.min(self.stream.read(&ticks)?.into_iter().max().unwrap_or(u64::MAX));
        }
        Ok(best)
    }

    fn all(&self) -> Result<Vec<Rate>, Failed> {
        let lanes = f64::from(THREADS) * f64::from(self.iterations);
        let mut rates = Vec::new();
        macro_rules! lanes {
            ($name:literal, $Kernel:ident, $step:path) => {{
                let ticks = self.ticks($name, launch!($Kernel), |t| reference($step, t, self.iterations))?;
                rates.push(Rate { name: $name, unit: "lanes", work: lanes * (CHAINS * UNROLL) as f64, ticks });
            }};
        }
        lanes!("FFMA", RateFfma, step::ffma);
        lanes!("LOP3 (and an IADD)", RateLop3, step::lop3);
        lanes!("POPC (and a LOP3)", RatePopc, step::popc);
        lanes!("IDP.4A", RateDp4a, step::dp4a);

        // An even number of exchanges leaves the values where they were.
        let exchanged = |t: u32| {
            let added = 3u32.wrapping_mul(self.iterations).wrapping_mul(UNROLL as u32);
            (0..CHAINS).fold(0, |sum, c| sum ^ start(t, c).wrapping_add(added))
        };
        let ticks = self.ticks("SHFL", launch!(RateShuffle), exchanged)?;
        rates.push(Rate { name: "SHFL (and an IADD)", unit: "lanes", work: lanes * (CHAINS * UNROLL) as f64, ticks });

        macro_rules! products {
            ($name:literal, $Kernel:ident, $depth:literal) => {{
                let ticks = self.ticks($name, launch!($Kernel), |_| product_reference($depth, self.iterations))?;
                let work = lanes / 32.0 * PRODUCTS as f64 * f64::from(16 * 8 * $depth);
                rates.push(Rate { name: $name, unit: "multiply-additions", work, ticks });
            }};
        }
        products!("mma m16n8k16 f16", RateMmaF16, 16u32);
        products!("mma m16n8k32 s8", RateMmaS8, 32u32);
        products!("mma m16n8k128 b1 and.popc", RateMmaB1, 128u32);
        Ok(rates)
    }

    /// Ticks from one barrier of all blocks to the next.
    fn barrier(&self) -> Result<f64, Failed> {
        let barriers = if self.device.is_software() { 5 } else { 1001 };
        let mut ticks = self.stream.zeros::<u64>(self.blocks)?;
        let mut best = f64::INFINITY;
        let mut word = self.stream.zeros::<u32>(1)?;
        for run in 1..=self.runs {
            self.stream.launch(RateGridBarrier { word: &mut word, ticks: &mut ticks, barriers })?;
            // Each barrier flips the upper bit.
            let (found, expected) = (self.stream.read(&word)?, (barriers * run) << 31);
            if found != [expected] {
                return Err(format!("grid barrier: {:#x} blocks have arrived and not left", found[0] ^ expected).into());
            }
            let slowest = self.stream.read(&ticks)?.into_iter().max().unwrap_or_default();
            best = best.min(slowest as f64 / f64::from(barriers));
        }
        Ok(best)
    }
}

fn run(args: &Args) -> Result<(), Failed> {
    let bench = Bench::open(args.runs)?;
    let (rates, barrier) = (bench.all()?, bench.barrier()?);
    let measured = !bench.device.is_software();
    if args.json {
        let rate = |r: &Rate| -> Value {
            json!({ "name": r.name, "unit": r.unit, "per_tick_and_multiprocessor": measured.then(|| r.value()), "ticks": measured.then_some(r.ticks) })
        };
        let object = json!({
            "device": bench.device.name(),
            "engine": bench.device.engine().to_string(),
            "multiprocessors": bench.blocks,
            "iterations": bench.iterations,
            "rates": rates.iter().map(rate).collect::<Vec<_>>(),
            "ticks_per_grid_barrier": measured.then_some(barrier),
        });
        println!("{object:#}");
        return Ok(());
    }
    println!(
        "device  {} ({}), {} blocks of {THREADS} threads",
        bench.device.name(),
        bench.device.engine(),
        bench.blocks
    );
    for rate in &rates {
        match measured {
            true => println!("{:<28} {:10.1} {} a tick and multiprocessor", rate.name, rate.value(), rate.unit),
            false => println!("{:<28} result as on the CPU", rate.name),
        }
    }
    match measured {
        true => println!("{:<28} {barrier:10.0} ticks", "barrier of the grid"),
        false => println!(
            "{:<28} all blocks arrived\n\nthe software driver has no clock of a GPU: no rates",
            "barrier of the grid"
        ),
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
