//! Budgets of products with many columns on tensor cores: issue slots a multiply-add in the loops of the machine code, the share of
//! their rate that tensor cores reach there, and bytes of memory.
//!
//! The rate is what `mma.sync` reaches on sm_90, [`OF_PEAK`] of the data sheet's, which only `wgmma` does. With two bytes an activation
//! takes two instructions, which count as they are.

use std::sync::Arc;

use serde_json::{Value, json};
use warpsmith_host::gpu_kernels::cases::{Case, Measured, Product, Subject};
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::gpu_kernels::gemv::budget::{MANY, OfMany, of_many};
use warpsmith_host::gpu_kernels::gemv::{Activations, QuantizedProduct, tensor};
use warpsmith_host::gpu_kernels::list::listed;

use super::families;
use super::known::{Held, Miss};
use super::pipes::Pipe;
use super::slots::Work;
use super::weighed::Weighed;
use super::{Assembled, profiles};
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};

/// What `mma.sync` reaches of the peak of a data sheet (arXiv 2402.13499).
const OF_PEAK: f64 = 0.629;
/// Rows of weights and of activations that are run: a block of threads, as every other is.
const ROWS: usize = 128;
const COLS: usize = 4096;
/// Columns that are run: as many as a block has, and fewer.
const COLUMNS: [usize; 4] = [12, 16, 32, 64];
/// Bytes of memory by those that are needed.
const TRAFFIC: f64 = 1.1;

/// A product that is run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    format: Format,
    activations: Activations,
    product: Product,
    columns: usize,
}

impl Run {
    /// Those of a filter: of each entry point, with the first format of its layout.
    pub fn chosen(filter: Option<&str>) -> Vec<Run> {
        let held: Vec<&str> =
            listed().iter().filter(|k| matches!(k.budget, Measured::By(MANY))).map(|k| k.meta.name).collect();
        let mut all: Vec<Run> = Vec::new();
        for format in Format::ALL {
            for (activations, product) in
                [(Activations::Int8, Product::GemmInt8), (Activations::Int16, Product::GemmInt16)]
            {
                let of = QuantizedProduct::of(format, activations).and_then(QuantizedProduct::kernel_of_many);
                let Some(kernel) = of.map(|k| k.name).filter(|k| held.contains(k)) else { continue };
                if all.iter().any(|r| r.kernel() == kernel) {
                    continue;
                }
                all.extend(COLUMNS.map(|columns| Run { format, activations, product, columns }));
            }
        }
        let named = |r: &Run, f: &str| MANY.contains(&f.to_lowercase()) || r.kernel().contains(f);
        all.retain(|r| filter.is_none_or(|f| named(r, f)));
        all
    }

    /// The kernel that is launched.
    pub fn kernel(self) -> String {
        self.product.kernel(self.format)
    }

    fn case(self) -> Result<Case, Failure> {
        let subject = Subject::Gemv { format: self.format, product: self.product };
        let text = format!("rows={ROWS},cols={COLS},columns={}", self.columns);
        subject.parse(&text).map_err(|e| Failure::usage(format!("{} with {text}: {e}", self.kernel())))
    }

    /// As a budget.
    pub fn name(self) -> String {
        format!("{MANY}, {} and {} of {} columns", self.format, self.activations, self.columns)
    }

    /// Multiply-adds.
    fn products(self) -> f64 {
        (ROWS * COLS * self.columns) as f64
    }

    /// What a full block is held to.
    fn budget(self) -> Option<OfMany> {
        (self.columns == tensor::COLUMNS as usize).then(|| of_many(self.format.layout()))
    }
}

/// What a run costs.
pub struct Cost {
    run: Run,
    weighed: Weighed,
    /// Bytes that have to move.
    floor: u64,
}

/// Runs and weighs.
pub fn cost(run: Run, code: &Arc<Assembled>) -> Result<Cost, Failure> {
    let (name, case) = (run.kernel(), run.case()?);
    let operation = |e: &str| Failure::new(Kind::Operation, format!("{name} with {case}: {e}"));
    let launch = profiles(&case)?.into_iter().find(|p| p.kernel == name);
    let launch = launch.ok_or_else(|| operation("it was not launched"))?;
    let weights = run.format.tensor_bytes(ROWS, COLS).map_err(|e| Failure::usage(e.to_string()))?;
    let columns = run.columns * (families::bytes(run.activations, COLS) + 4 * ROWS);
    let floor = (weights + columns) as u64;
    Ok(Cost { run, weighed: Weighed::new(launch, weights as u64, code, 1.0)?, floor })
}

impl Cost {
    fn loops(&self) -> Option<&Work> {
        self.weighed.slots.loops.as_ref()
    }

    fn per_product(&self, slots: f64) -> f64 {
        32.0 * slots / self.run.products()
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
pub fn print(costs: &[Cost]) {
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
