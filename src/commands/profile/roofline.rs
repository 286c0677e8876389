//! What a launch would take on a GPU at least, resource by resource. A projection, not a measurement.

use serde_json::{Value, json};
use warpsmith_arch::{Gpu, PARTITIONS};
use warpsmith_check::Class;

use super::counted::Counted;
use crate::commands::estimate::{Demand, Time};

/// Times of one launch in microseconds, each as if its resource were the only one that is used up.
pub struct Roofline {
    pub gpu: &'static Gpu,
    /// Multiprocessors that get a block.
    pub busy: u64,
    /// Memory, with perfect caches and with none.
    pub dram: (f64, f64),
    /// The other resources, by name.
    pub others: Vec<(&'static str, f64)>,
    /// Behind a launch that it depends on, as `warpsmith project` has it.
    pub launch: Time,
}

impl Roofline {
    pub fn new(launch: &Counted, gpu: &'static Gpu) -> Roofline {
        let n = launch.launches.max(1) as f64;
        let total = &launch.total;
        let blocks: u64 = launch.grid.iter().product();
        let busy = blocks.clamp(1, u64::from(gpu.multiprocessors));
        let (low, high) = launch.dram;
        let bytes_per_us = gpu.bandwidth * 1e3;
        let lanes = |class: Class| launch.classes.iter().find(|c| c.0 == class.name()).map_or(0, |c| c.2);
        let f32_operations = (total.fadd + total.fmul + total.ffma) as f64 / f64::from(gpu.rates.fp32);
        let f64_operations = (total.dadd + total.dmul + total.dfma) as f64 / f64::from(gpu.rates.fp64);
        // Clocks of a multiprocessor, for all of a launch.
        let all = [
            ("issue", total.warp_instructions as f64 / f64::from(PARTITIONS)),
            ("f32", f32_operations),
            ("f64", f64_operations),
            ("special functions", lanes(Class::Special) as f64 / f64::from(gpu.rates.special)),
            ("shared memory", total.shared_wavefronts() as f64),
        ];
        let all = all.map(|(name, clocks)| (name, f64::from(PARTITIONS) * clocks / n));
        let demand = Demand {
            blocks: blocks as f64,
            resident: launch.occupancy().map_or(1.0, |o| f64::from(o.blocks())),
            dram: low as f64 / n,
            issue: total.warp_instructions as f64 / n,
            pipe: all.iter().fold(0.0, |most, (_, slots)| slots.max(most)),
            trips: if total.global_atom_requests > 0 { 2.0 } else { 0.0 },
            ..Demand::default()
        };
        Roofline {
            gpu,
            busy,
            launch: demand.time(&gpu.into(), false),
            dram: (low as f64 / n / bytes_per_us, high as f64 / n / bytes_per_us),
            others: all
                .into_iter()
                .filter(|a| a.1 > 0.0)
                .map(|(name, slots)| (name, demand.issuing(gpu, slots)))
                .collect(),
        }
    }

    /// The longest of the times, with the lower bound for memory, and its name.
    pub fn longest(&self) -> (&'static str, f64) {
        let all = self.others.iter().copied().chain([("DRAM", self.dram.0)]);
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("DRAM", 0.0))
    }

    pub fn to_json(&self) -> Value {
        let (limiter, at_least) = self.longest();
        let others: serde_json::Map<String, Value> =
            self.others.iter().map(|(name, us)| ((*name).to_owned(), json!(us))).collect();
        json!({
            "projection": true,
            "gpu": self.gpu.title,
            "multiprocessors_busy": self.busy,
            "dram_us": { "at_least": self.dram.0, "at_most": self.dram.1 },
            "others_us": others,
            "at_least_us": at_least,
            "limiter": limiter,
            "launch_us": self.launch.total(),
        })
    }
}
