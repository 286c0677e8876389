//! Time of a product without a GPU: instructions of machine code and bytes of memory over the rates of a data sheet.
//!
//! ```text
//! launch  = step + max(memory, issue, pipe)
//! memory  = DRAM bytes / min(bandwidth, bytes in flight / latency)
//! issue   = instructions of warps / (4 a clock and busy multiprocessor)
//! pipe    = the same, with the slots that issue while the busiest pipe works
//! product = its launch; if it quantizes what it computes, 2 latencies more
//! ```
//!
//! The last block of a group of outputs counts it, and reads it again: two ways to memory and back, one after the other.
//!
//! A block of rows costs what every other costs, so a few rows are run, and the rest is their multiple.

use warpsmith_arch::{Gpu as Sheet, Occupancy, PARTITIONS, Rates};
use warpsmith_host::gpu_kernels::cases::{Product, Subject};
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_simt::Module;

use crate::commands::budget::pipes::Pipe;
use crate::commands::budget::{Assembled, PROFILE, Tools, assemble, slots};
use crate::commands::check::bench::Gpu;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows that are run.
const ROWS: u64 = 128;
/// From a launch to one that depends on it, in microseconds, in a graph on an H200 (gpu-benches, small kernels).
pub const STEP: f64 = 1.31;
/// Of a load from memory, in microseconds.
const LATENCY: f64 = 0.65;
/// Share of a data sheet's bandwidth that a stream of reads reaches (BabelStream Dot on an H200: 4.48 of 4.8 TB/s).
const READS: f64 = 0.933;

/// The GPUs that stand for the architectures that are claimed.
pub const GPUS: [&str; 6] = ["t4", "a100", "rtx3090", "rtx4090", "h200", "rtx5090"];

/// Time of the tensor cores for an instruction by that on sm_90: of `BMMA`, and where there is none of the `IMMA` that the
/// assembler makes of it.
fn tensor(rates: &Rates) -> f64 {
    let (own, hopper) = match rates.tensor_b1 {
        0 => (rates.tensor_int8, Rates::SM90.tensor_int8),
        b1 => (b1, Rates::SM90.tensor_b1),
    };
    f64::from(hopper) / f64::from(own)
}

/// Slots that issue while the pipe works, by those on sm_90, which is what [`slots`] gives.
fn by_pipe(gpu: &Sheet, pipe: Pipe) -> f64 {
    match pipe {
        Pipe::F32 => f64::from(Rates::SM90.fp32) / f64::from(gpu.rates.fp32),
        Pipe::Tensor => tensor(&gpu.rates),
        _ => 1.0,
    }
}

/// Machine code of kernels for one architecture, made once.
pub struct Codes<'a> {
    tools: &'a Tools,
    sm: u32,
    module: Arc<Module>,
    text: Cow<'static, str>,
    codes: HashMap<String, Assembled>,
}

/// What a product with some activations costs in rows of one length.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Blocks and instructions of warps, issued and by the busiest pipe, for [`ROWS`] rows.
    blocks: f64,
    issue: f64,
    pipe: f64,
    /// Bytes of memory that a block has on the way.
    in_flight: f64,
    /// Blocks that a multiprocessor holds.
    resident: f64,
    /// Whether it quantizes what it computes.
    quantizes: bool,
    /// Bytes of a row of weights on the device.
    row: f64,
}

impl<'a> Codes<'a> {
    pub fn new(tools: &'a Tools, sm: u32) -> Result<Codes<'a>, String> {
        let module = crate::commands::check::module(sm).map_err(|e| e.to_string())?;
        let (_, text) = warpsmith_host::builtin_image().code_for(sm).map_err(|e| e.to_string())?;
        Ok(Codes { tools, sm, module, text, codes: HashMap::new() })
    }

    /// Compiles a kernel, if that was not done yet.
    fn code(&mut self, kernel: &str) -> Result<&Assembled, String> {
        if !self.codes.contains_key(kernel) {
            let code = assemble(kernel, &self.text, self.sm, self.tools).map_err(|e| e.to_string())?;
            self.codes.insert(kernel.to_owned(), code);
        }
        self.codes.get(kernel).ok_or_else(|| format!("no code of {kernel}"))
    }

    /// Runs a product, and weighs its machine code.
    pub fn cost(&mut self, gpu: &Sheet, format: Format, product: Product, cols: usize) -> Result<Cost, String> {
        let subject = Subject::Gemv { format, product };
        let written = product.quant_format(format);
        let asked = written.map_or(String::new(), |c| format!(",quant_format={}", c as u32));
        let case = subject.parse(&format!("rows={ROWS},cols={cols}{asked}")).map_err(|e| e.to_string())?;
        let mut bench = Gpu::new(self.sm, &self.module, PROFILE)?;
        case.run(&mut bench).map_err(|e| format!("{case}: {e}"))?;
        let own = product.kernel(format);
        let bytes = 16 * format.tensor_vectors(ROWS as usize, cols).map_err(|e| e.to_string())?;
        // Codes without scales take whole bits.
        let weights = ROWS as usize * cols;
        let codes = bytes * 8 / weights * weights / 8;
        // Those that only round are not its own.
        let profile = bench.profiles.iter().find(|p| p.kernel == own).ok_or_else(|| format!("{case} ran no {own}"))?;
        let sm = self.sm;
        let code = self.code(&own)?;
        let slots = slots::weigh(&code.code, &profile.profile.lines, codes as u64);
        let loops = slots.loops.as_ref();
        let busiest = loops.map_or(0.0, |l| l.pressure.iter().map(|(p, s)| s * by_pipe(gpu, *p)).fold(0.0, f64::max));
        let threads = profile.launch.block.iter().product();
        let occupancy =
            Occupancy::of(sm, code.registers, profile.static_shared, profile.launch.dynamic_shared, threads);
        let occupancy = occupancy.ok_or_else(|| format!("no limits of sm_{sm} are known"))?;
        Ok(Cost {
            blocks: profile.launch.grid.iter().map(|g| f64::from(*g)).product(),
            issue: slots.kernel,
            // What is not in a loop issues before or after it.
            pipe: busiest + slots.kernel - loops.map_or(0.0, |l| l.slots),
            in_flight: slots.block_in_flight(threads),
            resident: f64::from(occupancy.blocks()),
            quantizes: written.is_some(),
            row: bytes as f64 / ROWS as f64,
        })
    }
}

impl Cost {
    /// Microseconds of a matrix of so many rows on a GPU.
    pub fn time(&self, gpu: &Sheet, rows: u64) -> f64 {
        let more = rows as f64 / ROWS as f64;
        let blocks = (self.blocks * more).ceil().max(1.0);
        let multiprocessors = f64::from(gpu.multiprocessors);
        let busy = blocks.min(multiprocessors);
        let resident = blocks.min(self.resident * multiprocessors);
        let clocks = busy * f64::from(gpu.clock_mhz);
        let issue = self.issue.max(self.pipe) * more / f64::from(PARTITIONS) / clocks;
        // Bytes a microsecond.
        let full = gpu.bandwidth * 1e3 * READS;
        let reached = if self.in_flight > 0.0 { full.min(self.in_flight * resident / LATENCY) } else { full };
        let memory = self.row * rows as f64 / reached;
        STEP + issue.max(memory) + if self.quantizes { 2.0 * LATENCY } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::profile::gpus;

    fn cost(issue: f64, quantizes: bool) -> Cost {
        Cost { blocks: 16.0, issue, pipe: issue, in_flight: 1e6, resident: 4.0, quantizes, row: 4096.0 * 18.0 / 128.0 }
    }

    #[test]
    fn memory_binds_where_instructions_are_few() {
        let gpu = gpus::find("h200").unwrap();
        // 4096 columns of one bit and a scale for each 128: 14.2 MB of gates and ups take 3.2 us at 4.48 TB/s.
        let time = cost(1.0, false).time(gpu, 24576);
        assert!((time - STEP - 3.16).abs() < 0.02, "{time}");
        // One slot a weight: 24576 * 4096 lanes at 33.45 T a second.
        let slots = ROWS as f64 * 4096.0 / 32.0;
        let time = cost(4.0 * slots, false).time(gpu, 24576);
        assert!((time - STEP - 12.04).abs() < 0.02, "{time}");
        let [with, without] = [true, false].map(|quantizes| cost(1.0, quantizes).time(gpu, 24576));
        assert!((with - without - 2.0 * LATENCY).abs() < 1e-9);
    }

    #[test]
    fn small_matrices_do_not_fill_a_gpu() {
        let gpu = gpus::find("h200").unwrap();
        let slots = ROWS as f64 * 4096.0 / 32.0 * 4.0;
        // 16 blocks keep 16 of 132 multiprocessors busy.
        let [few, many] = [128, 1280].map(|rows| cost(slots, false).time(gpu, rows) - STEP);
        assert!(many < 2.0 * few, "{few} {many}");
    }

    #[test]
    fn memory_is_asked_for_by_the_blocks_that_are_resident() {
        let gpu = gpus::find("h200").unwrap();
        // 9 KiB a block of 16 rows, four of which fit on a multiprocessor.
        let few = Cost { blocks: 8.0, in_flight: 9216.0, ..cost(1.0, false) };
        let memory = |rows: u64| few.time(gpu, rows) - STEP;
        let bytes = |rows: u64| few.row * rows as f64;
        // 132 blocks: one on each multiprocessor, 1.87 TB/s, however many would fit.
        assert!((bytes(2112) / memory(2112) / 1e6 - 132.0 * 9216.0 / LATENCY / 1e6).abs() < 1e-6);
        // Eight times as many: four on each, which is more than memory delivers.
        assert!((bytes(16896) / memory(16896) / 1e6 - 4.8 * READS).abs() < 1e-6);
    }
}
