//! A launch as a report file has it: of a kernel that ships, of a program, or of a project's tests.

use serde_json::{Value, json};
use warpsmith_check::Metrics;
use warpsmith_driver_api::software::Occupancy;

/// What a launch did.
#[derive(Clone, Debug)]
pub struct Counted {
    pub kernel: String,
    pub sm: u32,
    pub grid: [u64; 3],
    pub block: [u64; 3],
    /// How many launches; the counters are their sum.
    pub launches: u64,
    pub registers: u32,
    /// Whether ptxas said so.
    pub by_ptxas: bool,
    pub static_shared: u32,
    pub dynamic_shared: u32,
    pub total: Metrics,
    /// Name, instructions of warps, instructions of lanes.
    pub classes: Vec<(String, u64, u64)>,
    /// With perfect caches, and with none.
    pub dram: (u64, u64),
    pub approximate: Vec<Value>,
    /// Lines of the source, or of PTX where there is no line information.
    pub lines: Vec<(String, Metrics)>,
    value: Value,
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

fn metrics(value: &Value) -> Metrics {
    Metrics::named(|name| number(value, name))
}

fn dimensions(value: &Value) -> [u64; 3] {
    std::array::from_fn(|i| value[i].as_u64().unwrap_or(1))
}

impl Counted {
    /// Reads a line of a report file.
    pub fn read(value: Value) -> Counted {
        let list = |name: &str| value[name].as_array().into_iter().flatten();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let of = &value["metrics"];
        let class = |c: &Value| (text(&c["class"]), number(c, "warp_instructions"), number(c, "lane_instructions"));
        let source = |l: &Value| (format!("{}:{}", text(&l["file"]), number(l, "line")), metrics(&l["metrics"]));
        let ptx = |l: &Value| (format!("PTX {}: {}", number(l, "line"), text(&l["text"])), metrics(&l["metrics"]));
        let mut lines: Vec<_> = list("source").map(source).collect();
        if lines.is_empty() {
            lines = list("ptx").map(ptx).collect();
        }
        Counted {
            kernel: text(&value["kernel"]),
            sm: number(&value, "sm") as u32,
            grid: dimensions(&value["grid"]),
            block: dimensions(&value["block"]),
            launches: number(&value, "launches").max(1),
            registers: number(of, "launch__registers_per_thread") as u32,
            by_ptxas: value["registers_from"] == "ptxas",
            static_shared: number(of, "launch__shared_mem_per_block_static") as u32,
            dynamic_shared: number(of, "launch__shared_mem_per_block_dynamic") as u32,
            total: metrics(of),
            classes: list("classes").map(class).collect(),
            dram: (number(&value["dram_bytes"], "at_least"), number(&value["dram_bytes"], "at_most")),
            approximate: list("approximate").cloned().collect(),
            lines,
            value,
        }
    }

    /// Blocks on a multiprocessor, and what limits them; `None` for an architecture without figures.
    pub fn occupancy(&self) -> Option<Occupancy> {
        let threads = self.block.iter().product::<u64>();
        Occupancy::of(self.sm, self.registers, self.static_shared, self.dynamic_shared, u32::try_from(threads).ok()?)
    }

    /// Takes ptxas' number of registers for the estimate.
    pub fn assembled(&mut self, registers: u32) {
        (self.registers, self.by_ptxas) = (registers, true);
        self.value["registers_from"] = json!("ptxas");
        let occupancy = self.occupancy();
        let metrics = &mut self.value["metrics"];
        metrics["launch__registers_per_thread"] = json!(registers);
        if let Some(o) = occupancy {
            metrics["launch__occupancy_limit_registers"] = json!(o.by_registers);
            metrics["sm__maximum_warps_per_active_cycle_pct"] = json!(o.percent());
        }
    }

    /// As the report file has it.
    pub fn to_json(&self) -> Value {
        self.value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_read_under_its_name() {
        let names: Vec<&str> = Metrics::default().iter().map(|(name, _)| name).collect();
        let of: serde_json::Map<String, Value> =
            names.iter().enumerate().map(|(i, name)| ((*name).to_owned(), json!(i + 1))).collect();
        let counted = Counted::read(json!({
            "type": "profile", "kernel": "k", "sm": 90, "grid": [3, 2, 1], "block": [64, 1, 1], "launches": 2,
            "registers_from": "estimate", "metrics": of, "dram_bytes": { "at_least": 5, "at_most": 9 },
            "classes": [{ "class": "special", "warp_instructions": 1, "lane_instructions": 32 }],
            "ptx": [{ "line": 7, "text": "ret;", "metrics": {} }],
        }));
        let values: Vec<u64> = counted.total.iter().map(|(_, n)| n).collect();
        assert_eq!(values, (1..=names.len() as u64).collect::<Vec<_>>());
        assert_eq!((counted.grid, counted.dram, counted.lines[0].0.as_str()), ([3, 2, 1], (5, 9), "PTX 7: ret;"));
    }

    #[test]
    fn registers_of_ptxas_are_those_of_the_report() {
        let of = json!({ "launch__registers_per_thread": 16 });
        let mut counted = Counted::read(json!({ "sm": 90, "block": [1024, 1, 1], "metrics": of }));
        counted.assembled(128);
        let value = counted.to_json();
        // 128 registers of 1024 threads are more than a multiprocessor has.
        assert_eq!(value["metrics"]["launch__registers_per_thread"], 128);
        assert_eq!(value["metrics"]["launch__occupancy_limit_registers"], 0);
        assert_eq!(value["registers_from"], "ptxas");
    }
}
