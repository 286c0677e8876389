//! How much memory is on the way to a multiprocessor of an H200 at each product of the models: by Little's law it is what hides the
//! latency of memory. A matrix that has less than that altogether has to be asked for at once.
//!
//! Each kernel is launched as for that product, in its grid and with its rows; what is on the way is that of the blocks that are
//! resident, by occupancy and by the grid, if each of their warps waits for the loads of one iteration. Blocks do all the same, so
//! some of them are run.

use std::sync::Arc;

use rayon::prelude::*;
use serde_json::{Value, json};
use warpsmith_arch::Gpu as Sheet;
use warpsmith_device::U32x4;
use warpsmith_host::gpu_kernels::cases::Bench;
use warpsmith_host::gpu_kernels::gemv::{Gemv, OutputQuantization, QuantizedProduct, quant_format};
use warpsmith_host::model::{ModelShape, ProductShape};

use super::cost::FamilyProduct;
use super::families::PRODUCT_IN_FLIGHT;
use super::known::{Held, Miss};
use super::{Assembled, KERNELS, PROFILE, SM};
use crate::cli::BudgetArgs;
use crate::commands::check::bench::Gpu;
use crate::commands::estimate::{Demand, counted};
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};

/// Blocks that are run: enough that what they share is most of the time in a cache.
const BLOCKS: u64 = 8;
/// What may be missing of the bytes of a matrix: sectors are counted where warps ask for them.
const NEAR: f64 = 0.98;

/// Memory on the way at a product.
#[derive(Clone, Debug)]
pub struct Flight {
    kernel: String,
    model: &'static str,
    part: &'static str,
    /// Rows of weights, and columns.
    size: (usize, usize),
    /// Bytes on the way to a multiprocessor, over all of them.
    bytes: f64,
    /// Bytes that have to be.
    needed: f64,
    demand: Demand,
}

impl Flight {
    /// Every kernel at every product of the models; of those of one width, if one was asked for.
    pub fn all<'a>(
        args: &BudgetArgs,
        subjects: &[FamilyProduct],
        code: impl Fn(&str) -> Result<&'a Arc<Assembled>, Failure> + Sync,
    ) -> Result<Vec<Flight>, Failure> {
        let products = ModelShape::QWEN3.iter().flat_map(|m| m.products().map(|p| (m.name, p)));
        let wanted: Vec<_> = products.filter(|(_, p)| args.cols.is_none_or(|cols| cols == p.cols)).collect();
        let all: Vec<_> = subjects.iter().flat_map(|s| wanted.iter().map(move |w| (s, *w))).collect();
        let flight = |(s, (model, product)): (&FamilyProduct, (&'static str, ProductShape))| {
            let kernel = s.kernel();
            Flight::of(s, model, product, code(&kernel)?).map_err(|e| {
                let what = format!("{kernel} at {model}-{}: {e}", product.part);
                Failure::new(Kind::Operation, what)
            })
        };
        all.into_par_iter().map(flight).collect()
    }

    fn of(s: &FamilyProduct, model: &'static str, product: ProductShape, code: &Assembled) -> Result<Flight, String> {
        let sheet = Sheet::of(SM).ok_or_else(|| format!("no GPU stands for sm_{SM}"))?;
        let (format, rows, cols) = (s.family.format, product.rows, product.cols);
        let vectors = format.tensor_vectors(product.weight_rows(), cols).map_err(|e| e.to_string())?;
        let mut gpu = Gpu::new(&KERNELS, PROFILE);
        gpu.first_blocks = Some(BLOCKS);
        // What the numbers are does not matter to what is asked for.
        let weights = gpu.output::<U32x4>(vectors)?;
        let (n, m) = (rows as u32, cols as u32);
        let of = QuantizedProduct::of(format, s.activations).map(|p| (p, p.quant_format()));
        let x = gpu.output::<f32>(cols)?;
        let quantized_x = gpu.output::<U32x4>(of.map_or(1, |(_, c)| c.len(m) as usize))?;
        let mut y = gpu.output::<f32>(rows)?;
        let mut quantized = gpu.output::<U32x4>(of.map_or(1, |(_, c)| c.len(n) as usize))?;
        let mut group_counters = gpu.output::<u32>(quant_format::groups(n) as usize)?;
        let gemv = match of {
            None => Gemv::new(format, &weights, n, m, &x, &mut y),
            Some((p, c)) => {
                let written =
                    OutputQuantization { format: c, quantized: &mut quantized, group_counters: &mut group_counters };
                let written = Some(written).filter(|_| n.is_multiple_of(c.block()));
                Gemv::quantized(p, &weights, n, m, &quantized_x, &mut y).quantize_output(written)
            }
        };
        let gemv = if product.swiglu { gemv.swiglu() } else { gemv };
        gemv.launch(&mut gpu)?;
        let kernel = s.kernel();
        let ran = gpu.profiles.iter().find(|p| p.kernel == kernel).ok_or("it was not launched")?;
        let bytes = 16.0 * vectors as f64;
        let demand = counted::demand(&sheet.into(), ran, Some(code), (bytes, 0.0))?;
        Ok(Flight {
            kernel,
            model,
            part: product.part,
            size: (product.weight_rows(), cols),
            bytes: demand.on_the_way(sheet),
            needed: needed(bytes, sheet),
            demand,
        })
    }

    /// As a budget.
    pub fn held(&self) -> Held {
        let [have, need] = [self.bytes, self.needed].map(|b| b / 1024.0);
        let text = || format!("{have:.1} KiB on the way to a multiprocessor, {need:.1} hide the latency or are all");
        let miss = (self.bytes < NEAR * self.needed).then(|| Miss::smaller("KiB in flight", have, text()));
        Held { budget: self.name(), kernel: self.kernel.clone(), misses: miss.into_iter().collect() }
    }

    fn name(&self) -> String {
        name(&self.kernel, self.model, self.part)
    }

    /// For machines.
    pub fn json(&self) -> Value {
        json!({
            "kernel": self.kernel,
            "shape": format!("{}-{}", self.model, self.part),
            "rows": self.size.0,
            "columns": self.size.1,
            "blocks": self.demand.blocks,
            "resident_blocks": self.demand.resident,
            "bytes_in_flight": self.bytes,
            "bytes_needed": self.needed,
        })
    }
}

/// Of a matrix of so many bytes.
fn needed(bytes: f64, gpu: &Sheet) -> f64 {
    PRODUCT_IN_FLIGHT.min(bytes / f64::from(gpu.multiprocessors))
}

/// As the list of what is known has it.
pub fn name(kernel: &str, model: &str, part: &str) -> String {
    format!("{kernel}, {model}-{part}")
}

/// Prints a line for each kernel and model.
pub fn print(flights: &[Flight]) {
    let parts = ["qkv", "o", "gate-up", "down", "head"];
    let columns = [("kernel", Align::Left), ("model", Align::Left)];
    let mut table = Table::new(columns.into_iter().chain(parts.map(|p| (p, Align::Right))));
    for of_model in flights.chunk_by(|a, b| a.kernel == b.kernel && a.model == b.model) {
        let cell = |part: &&str| {
            let flight = of_model.iter().find(|f| f.part == *part);
            flight.map_or_else(
                || "-".to_owned(),
                |f| {
                    let missed = if f.held().misses.is_empty() { "" } else { "!" };
                    format!("{missed}{:.1} of {:.1}", f.bytes / 1024.0, f.needed / 1024.0)
                },
            )
        };
        let first = of_model.iter().take(1).flat_map(|f| [f.kernel.clone(), f.model.to_owned()]);
        table.row(first.chain(parts.iter().map(cell)).collect());
    }
    print!("\n{table}");
    println!(
        "\nKiB of memory on the way to a multiprocessor, of those that hide its latency or are its share of the matrix; !: too few\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(bytes: f64, needed: f64) -> Flight {
        let (kernel, demand) = ("k".to_owned(), Demand::default());
        Flight { kernel, model: "8b", part: "o", size: (1, 1), bytes, needed, demand }
    }

    #[test]
    fn a_matrix_is_on_the_way_as_a_whole_or_as_much_as_hides_the_latency() {
        let h200 = Sheet::of(90).unwrap();
        // 1024 rows of 1024 weights of one bit, with a scale of 16 bits for each 128: 144 KiB over 132 multiprocessors.
        assert_eq!(needed(147_456.0, h200), 147_456.0 / 132.0);
        assert_eq!(needed(1e9, h200), 25.0 * 1024.0);
        let misses = |bytes, needed| flight(bytes, needed).held().misses;
        assert_eq!((misses(1100.0, 1117.0).len(), misses(25_000.0, 25_600.0).len()), (0, 1));
        let held = flight(20_480.0, 25_600.0).held();
        assert_eq!((held.budget.as_str(), held.misses[0].figure), ("k, 8b-o", 20.0));
    }
}
