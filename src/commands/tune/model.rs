//! Time of a product without a GPU: what it asks for, by [`estimate`](crate::commands::estimate).
//!
//! A block of rows costs what every other costs, so a few rows are run, and the rest is their multiple.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_host::gpu_kernels::cases::{Product, Subject};
use warpsmith_host::gpu_kernels::format::Format;

use crate::commands::budget::families::product;
use crate::commands::budget::{Assembled, PROFILE, Tools, assemble_all};
use crate::commands::check::bench::{Gpu, Kernels};
use crate::commands::estimate::figures::Figures;
use crate::commands::estimate::{Demand, counted};
use crate::failure::Failure;

/// Rows that are run.
const ROWS: u64 = 128;

/// The GPUs that stand for the architectures that are claimed.
pub const GPUS: [&str; 6] = ["t4", "a100", "rtx3090", "rtx4090", "h200", "rtx5090"];

/// A GPU of the model, and the machine code of kernels for it.
pub struct Modelled {
    pub figures: Figures,
    codes: BTreeMap<String, Arc<Assembled>>,
}

/// What a product with some activations costs in rows of one length.
#[derive(Clone, Debug)]
pub struct ProductCost {
    /// Of [`ROWS`] rows.
    few: Demand,
}

impl Modelled {
    /// Compiles the products with weights of some formats.
    pub fn new(figures: Figures, formats: &[Format], tools: &Tools) -> Result<Modelled, Failure> {
        let of = |format: Format| {
            super::candidates(format).into_iter().map(move |activations| product(activations).kernel(format))
        };
        let names: BTreeSet<String> = formats.iter().flat_map(|format| of(*format)).collect();
        let codes = assemble_all(names, figures.gpu.sm, tools)?;
        Ok(Modelled { figures, codes })
    }

    /// Weighs the machine code of what was run.
    fn cost(&self, profile: &LaunchProfile, bytes: f64) -> Result<ProductCost, String> {
        let profile = LaunchProfile { sm: self.figures.gpu.sm, ..profile.clone() };
        let code = self.codes.get(&profile.kernel).ok_or_else(|| format!("{} was not assembled", profile.kernel))?;
        let few = counted::demand(&self.figures, &profile, Some(code), (bytes, 0.0))?;
        Ok(ProductCost { few })
    }
}

/// Runs a product, and weighs it on GPUs that run the same text of PTX, and so count the same.
pub fn costs(alike: &Alike, format: Format, product: Product, cols: usize) -> Result<Vec<ProductCost>, String> {
    let subject = Subject::Gemv { format, product };
    let written = product.quant_format(format);
    let asked = written.map_or(String::new(), |c| format!(",quant_format={}", c as u32));
    let case = subject.parse(&format!("rows={ROWS},cols={cols}{asked}")).map_err(|e| e.to_string())?;
    let mut bench = Gpu::new(&alike.kernels, PROFILE);
    case.run(&mut bench).map_err(|e| format!("{case}: {e}"))?;
    let own = product.kernel(format);
    let bytes = 16 * format.tensor_vectors(ROWS as usize, cols).map_err(|e| e.to_string())?;
    // Those that only round are not its own.
    let profile = bench.profiles.iter().find(|p| p.kernel == own).ok_or_else(|| format!("{case} ran no {own}"))?;
    alike.gpus.iter().map(|gpu| gpu.cost(profile, bytes as f64)).collect()
}

/// GPUs that run the same text of PTX.
pub struct Alike {
    kernels: Arc<Kernels>,
    pub gpus: Vec<Modelled>,
}

impl Alike {
    /// Nothing, for an image of code for sm_`image`.
    pub fn new(image: u32) -> Alike {
        Alike { kernels: Kernels::new(image), gpus: Vec::new() }
    }
}

impl ProductCost {
    /// Microseconds of a matrix of so many rows on a GPU.
    pub fn time(&self, figures: &Figures, rows: u64) -> f64 {
        let more = rows as f64 / ROWS as f64;
        let Demand { blocks, dram, issue, pipe, .. } = self.few;
        let [dram, issue, pipe] = [dram, issue, pipe].map(|each| each * more);
        let all = Demand { blocks: (blocks * more).ceil().max(1.0), dram, issue, pipe, ..self.few };
        all.time(figures, false).total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::estimate::{EDGE, LATENCY};
    use crate::commands::profile::gpus;

    fn cost(issue: f64, trips: f64) -> ProductCost {
        // 4096 columns of one bit and a scale for each 128, in blocks of eight rows.
        let dram = ROWS as f64 * 4096.0 * 18.0 / 128.0;
        let few = Demand {
            blocks: 16.0,
            issue,
            pipe: issue,
            in_flight: 1e6,
            resident: 4.0,
            trips,
            dram,
            ..Demand::default()
        };
        ProductCost { few }
    }

    #[test]
    fn memory_binds_where_instructions_are_few() {
        let gpu = &Figures::from(gpus::find("h200").unwrap());
        // 14.2 MB of gates and ups take 3.2 us at 4.48 TB/s; 3072 blocks wait once in each of six waves, 3.9 us.
        let time = cost(1.0, 0.0).time(gpu, 24576);
        assert!((time - EDGE - 6.0 * LATENCY).abs() < 1e-9, "{time}");
        let few_waves = ProductCost { few: Demand { resident: 8.0, ..cost(1.0, 0.0).few } };
        assert!((few_waves.time(gpu, 24576) - EDGE - 3.16).abs() < 0.02);
        // Four slots a weight, and 24 blocks on the fullest multiprocessor where 23.3 are on each.
        let slots = ROWS as f64 * 4096.0 / 32.0;
        let time = cost(4.0 * slots, 0.0).time(gpu, 24576);
        assert!((time - EDGE - 12.04 * 24.0 / 23.27).abs() < 0.02, "{time}");
        let [with, without] = [2.0, 0.0].map(|trips| cost(1.0, trips).time(gpu, 24576));
        assert!((with - without - 2.0 * LATENCY).abs() < 1e-9);
    }

    #[test]
    fn small_matrices_do_not_fill_a_gpu() {
        let gpu = &Figures::from(gpus::find("h200").unwrap());
        let slots = ROWS as f64 * 4096.0 / 32.0 * 4.0;
        // 16 blocks keep 16 of 132 multiprocessors busy, and 132 all of them.
        let [few, many] = [128, 1056].map(|rows| cost(slots, 0.0).time(gpu, rows) - EDGE);
        assert!((many - few).abs() < 1e-9, "{few} {many}");
    }
}
