//! Budgets of products with many columns on tensor cores: issue slots a multiply-add in the loops of the machine code, the share of
//! their rate that tensor cores reach there, and bytes of memory.
//!
//! The rate is what `mma.sync` reaches on sm_90, [`OF_PEAK`] of the data sheet's, which only `wgmma` does. With two bytes an activation
//! takes two instructions, which count as they are.

use std::sync::Arc;

use serde_json::{Value, json};
use warpsmith_device::U32x4;
use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_host::gpu_kernels::cases::{Bench, Measured, Product};
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::gpu_kernels::gemv::budget::{self, MANY, OfMany, of_many};
use warpsmith_host::gpu_kernels::gemv::{Activations, Gemv, QuantizedProduct};
use warpsmith_host::gpu_kernels::list::listed;

use super::families;
use super::known::{Held, Miss};
use super::pipes::Pipe;
use super::slots::Work;
use super::weighed::Weighed;
use super::{Assembled, KERNELS, PROFILE};
use crate::commands::check::bench::Gpu;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};

/// What `mma.sync` reaches of the peak of a data sheet (arXiv 2402.13499).
const OF_PEAK: f64 = 0.629;
/// Rows of weights and of activations. One block of threads is run, as every other is.
const ROWS: usize = 4096;
const COLS: usize = 4096;
/// Columns that are run.
const COLUMNS: [usize; 8] = [2, 4, 8, 12, 16, 32, 64, 512];
/// Bytes of memory by those that are needed.
const TRAFFIC: f64 = 1.1;

/// A product that is run.
#[derive(Clone, Copy, Debug)]
pub struct GemmRun {
    format: Format,
    activations: Activations,
    product: Product,
    columns: usize,
}

impl GemmRun {
    /// Those of a filter: of each entry point, with the first format of its layout.
    pub fn chosen(filter: Option<&str>) -> Vec<GemmRun> {
        let held: Vec<&str> =
            listed().iter().filter(|k| matches!(k.budget, Measured::By(MANY))).map(|k| k.meta.name).collect();
        let mut all: Vec<GemmRun> = Vec::new();
        for format in Format::ALL {
            for (activations, product) in [
                (Activations::Int8, Product::GemmInt8),
                (Activations::Int16, Product::GemmInt16),
                (Activations::F16, Product::GemmHalf),
            ] {
                let of = QuantizedProduct::of(format, activations).and_then(QuantizedProduct::kernel_of_many);
                let Some(kernel) = of.map(|k| k.name).filter(|k| held.contains(k)) else { continue };
                if all.iter().any(|r| r.product.kernel(r.format) == kernel) {
                    continue;
                }
                all.extend(COLUMNS.map(|columns| GemmRun { format, activations, product, columns }));
            }
        }
        let many = |r: &GemmRun| r.product.kernel(r.format);
        let named = |r: &GemmRun, f: &str| MANY.contains(&f.to_lowercase()) || many(r).contains(f);
        all.retain(|r| filter.is_none_or(|f| named(r, f)));
        all
    }

    /// The kernel that is launched.
    pub fn kernel(self) -> String {
        let of = QuantizedProduct::of(self.format, self.activations);
        let many = of.is_some_and(|of| of.takes_many(ROWS as u32, self.columns as u32));
        (if many { self.product } else { budget::product(self.activations) }).kernel(self.format)
    }

    /// Launches it on a device of the right size, which runs the first block. What the numbers are does not matter to what is counted.
    fn launch(self) -> Result<LaunchProfile, String> {
        let mut gpu = Gpu::new(&KERNELS, PROFILE);
        gpu.first_blocks = Some(1);
        let of = QuantizedProduct::of(self.format, self.activations).ok_or("it has no such activations")?;
        let vectors = self.format.tensor_vectors(ROWS, COLS).map_err(|e| e.to_string())?;
        let weights = gpu.output::<U32x4>(vectors)?;
        let (rows, cols, columns) = (ROWS as u32, COLS as u32, self.columns as u32);
        let x = gpu.output::<U32x4>(self.columns * of.quant_format().len(cols) as usize)?;
        let mut y = gpu.output::<f32>(ROWS * self.columns)?;
        Gemv::quantized(of, &weights, rows, cols, &x, &mut y).columns(columns, cols, rows).launch(&mut gpu)?;
        gpu.profiles.into_iter().next().ok_or_else(|| "it was not launched".to_owned())
    }

    /// As a budget.
    pub fn name(self) -> String {
        format!("{MANY}, {} and {} of {} columns", self.format, self.activations, self.columns)
    }

    /// What many columns are held to.
    pub fn budget(self) -> Option<OfMany> {
        Some(of_many(self.format.layout())).filter(|_| COLUMNS.ends_with(&[self.columns]))
    }
}

/// What a run costs.
pub struct GemmCost {
    run: GemmRun,
    weighed: Weighed,
    /// Bytes that have to move for a block.
    floor: u64,
    /// Its multiply-adds.
    products: f64,
}

/// Runs and weighs.
pub fn cost(run: GemmRun, code: &Arc<Assembled>) -> Result<GemmCost, Failure> {
    let failed = |e: String| Failure::new(Kind::Operation, format!("{} of {} columns: {e}", run.kernel(), run.columns));
    let launch = run.launch().map_err(failed)?;
    // Of the block.
    let [rows, columns] = [0, 1].map(|i| launch.launch.grid[i] as usize);
    let (rows, columns) = (ROWS / rows, run.columns / columns);
    let weights = run.format.tensor_bytes(rows, COLS).map_err(|e| Failure::usage(e.to_string()))?;
    let floor = (weights + columns * (families::bytes(run.activations, COLS) + 4 * rows)) as u64;
    let weighed = Weighed::new(launch, weights as u64, code, 1.0)?;
    Ok(GemmCost { run, weighed, floor, products: (rows * COLS * columns) as f64 })
}

impl GemmCost {
    fn loops(&self) -> Option<&Work> {
        self.weighed.slots.loops.as_ref()
    }

    fn per_product(&self, slots: f64) -> f64 {
        32.0 * slots / self.products
    }

    /// Issue slots of a lane for a multiply-add, in all loops.
    fn slots(&self) -> f64 {
        self.per_product(self.loops().map_or(self.weighed.slots.kernel, |w| w.slots))
    }

    /// Share of the rate of tensor cores that the loops allow.
    fn rate(&self) -> f64 {
        let of = |w: &Work| Some(*w.pressure.get(&Pipe::Tensor)? / w.time());
        self.loops().and_then(of).unwrap_or(0.0) / OF_PEAK
    }

    fn traffic(&self) -> f64 {
        self.weighed.launch.profile.dram_bytes().0 as f64 / self.floor as f64
    }

    fn binding(&self) -> String {
        Weighed::binding(self.loops(), |slots| self.per_product(slots))
    }

    fn misses(&self) -> Vec<Miss> {
        let mut all = self.weighed.misses();
        if let Some(OfMany { slots, rate }) = self.run.budget() {
            if self.slots() > slots {
                let text =
                    format!("{:.3} issue slots a product, budget {slots}; {} binds", self.slots(), self.binding());
                all.push(Miss::larger("slots a product", self.slots(), text));
            }
            if self.rate() < rate {
                let [have, need] = [self.rate(), rate].map(|r| 100.0 * r);
                let text = format!("{have:.0} % of the rate of `mma.sync`, budget {need:.0} %");
                all.push(Miss::smaller("tensor", self.rate(), text));
            }
        }
        if self.traffic() > TRAFFIC {
            let text = format!("{:.3} times the bytes that have to move, budget {TRAFFIC}", self.traffic());
            all.push(Miss::larger("DRAM/floor", self.traffic(), text));
        }
        all
    }

    /// As a budget.
    pub fn held(&self) -> Held {
        Held { budget: self.run.name(), kernel: self.run.kernel(), misses: self.misses() }
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let more = json!({
            "kernel": self.run.kernel(),
            "format": self.run.format.name(),
            "activations": self.run.activations.to_string(),
            "columns": self.run.columns,
            "loop_slots_per_product": self.slots(),
            "kernel_slots_per_product": self.per_product(self.weighed.slots.kernel),
            "tensor_rate": self.rate(),
            "dram_bytes_per_floor": self.traffic(),
            "misses": super::report::texts(&self.misses()),
        });
        self.weighed.json(|slots| self.per_product(slots), more, json!({}))
    }
}

/// Prints the table.
pub fn print(costs: &[GemmCost]) {
    let mut table = Table::new([
        ("family", Align::Left),
        ("kernel", Align::Left),
        ("columns", Align::Right),
        ("loop", Align::Right),
        ("kernel", Align::Right),
        ("tensor", Align::Right),
        ("binds", Align::Left),
        ("regs", Align::Right),
        ("local", Align::Right),
        ("occupancy", Align::Right),
        ("DRAM/floor", Align::Right),
        ("conflicts", Align::Right),
        ("", Align::Left),
    ]);
    for c in costs {
        let [registers, local, occupancy] = c.weighed.resources();
        table.row(vec![
            MANY.to_owned(),
            c.run.kernel(),
            c.run.columns.to_string(),
            format!("{:.3}", c.slots()),
            format!("{:.3}", c.per_product(c.weighed.slots.kernel)),
            format!("{:.0} %", 100.0 * c.rate()),
            c.binding(),
            registers,
            local,
            occupancy,
            format!("{:.3}", c.traffic()),
            c.weighed.conflicts().to_string(),
            if c.misses().is_empty() { "held" } else { "missed" }.to_owned(),
        ]);
    }
    print!("{table}");
    println!(
        "\nissue slots a multiply-add on sm_90, rows of {COLS}: in all loops and in the whole kernel; tensor: share of the rate that \
         `mma.sync` reaches which the loops let tensor cores have; not time\n"
    );
}
