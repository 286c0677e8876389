//! Profiles of launches, kept per kernel and shape.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use warpsmith_check::{Metrics, Profile, own_frame};
use warpsmith_simt::{Approximation, Instance, KernelInfo, Launch, Module};

use crate::lock::lock;
use warpsmith_arch::Occupancy;

/// What the launches of one kernel in one shape did.
#[derive(Clone, Debug)]
pub struct LaunchProfile {
    /// The kernel.
    pub kernel: String,
    /// Architecture of the device.
    pub sm: u32,
    /// Shape.
    pub launch: Launch,
    /// How many launches; the profile is their sum.
    pub launches: u64,
    /// Registers of a thread.
    pub registers: u32,
    /// Where that number is from: `ptxas`, or `estimate` by the liveness of PTX registers.
    pub registers_from: &'static str,
    /// Bytes of shared memory that the kernel declares.
    pub static_shared: u32,
    /// Its approximate instructions.
    pub approximate: Vec<&'static Approximation>,
    /// Counters.
    pub profile: Profile,
}

type Key = (String, [u32; 3], [u32; 3], u32);

static PROFILES: Mutex<BTreeMap<Key, LaunchProfile>> = Mutex::new(BTreeMap::new());

/// Per kernel and shape, for the whole process: what launches did while they were profiled.
pub fn launch_profiles() -> Vec<LaunchProfile> {
    super::settled();
    lock(&PROFILES).values().cloned().collect()
}

/// Forgets them.
pub fn reset_launch_profiles() {
    super::settled();
    lock(&PROFILES).clear();
}

pub(super) fn record(sm: u32, instance: &Instance, kernel: &str, launch: &Launch, profile: Profile) {
    let module = instance.module();
    let Some(info) = module.kernel(kernel) else { return };
    let key = (kernel.to_owned(), launch.grid, launch.block, launch.dynamic_shared);
    let mut profiles = lock(&PROFILES);
    match profiles.get_mut(&key) {
        Some(known) => {
            known.launches += 1;
            known.profile.add(profile);
        }
        None => {
            profiles.insert(key, LaunchProfile::new(sm, module, info, launch, profile));
        }
    }
}

/// Counters of the PTX lines that a source line became.
struct SourceLine {
    file: String,
    line: u32,
    metrics: Metrics,
}

impl LaunchProfile {
    /// Of one launch, with registers estimated.
    pub fn new(sm: u32, module: &Module, info: &KernelInfo, launch: &Launch, profile: Profile) -> LaunchProfile {
        LaunchProfile {
            kernel: info.name.clone(),
            sm,
            launch: *launch,
            launches: 1,
            registers: info.registers,
            registers_from: "estimate",
            static_shared: info.static_shared,
            approximate: module.approximations(&info.name),
            profile,
        }
    }

    /// Blocks on a multiprocessor, and what limits them; `None` for an architecture without figures.
    pub fn occupancy(&self) -> Option<Occupancy> {
        let threads = self.launch.block.iter().product();
        Occupancy::of(self.sm, self.registers, self.static_shared, self.launch.dynamic_shared, threads)
    }

    /// Counters by source line: file, line, sums. Empty without line information.
    pub fn source_lines(&self) -> Vec<(String, u32, Metrics)> {
        let mut lines: BTreeMap<(&str, u32), SourceLine> = BTreeMap::new();
        for line in &self.profile.lines {
            // Line 0 is what the compiler could not say a line of.
            let Some(frame) = own_frame(&line.source).or(line.source.last()) else { continue };
            let entry = lines.entry((&frame.file, frame.line)).or_insert_with(|| SourceLine {
                file: frame.file.clone(),
                line: frame.line,
                metrics: Metrics::default(),
            });
            entry.metrics += line.metrics;
        }
        lines.into_values().map(|l| (l.file, l.line, l.metrics)).collect()
    }

    /// As one line of a report file, and as `warpsmith profile --json` prints it. Keys are Nsight Compute's names where it
    /// has one.
    pub fn to_json(&self) -> Value {
        let threads: u64 = self.launch.block.iter().map(|n| u64::from(*n)).product();
        let blocks: u64 = self.launch.grid.iter().map(|n| u64::from(*n)).product();
        let (low, high) = self.profile.dram_bytes();
        let mut all = numbers(&self.profile.total);
        all.insert("launch__grid_size".into(), json!(blocks));
        all.insert("launch__block_size".into(), json!(threads));
        all.insert("launch__registers_per_thread".into(), json!(self.registers));
        all.insert("launch__shared_mem_per_block_static".into(), json!(self.static_shared));
        all.insert("launch__shared_mem_per_block_dynamic".into(), json!(self.launch.dynamic_shared));
        if let Some(o) = self.occupancy() {
            all.insert("launch__occupancy_limit_blocks".into(), json!(o.by_blocks));
            all.insert("launch__occupancy_limit_warps".into(), json!(o.by_warps));
            all.insert("launch__occupancy_limit_registers".into(), json!(o.by_registers));
            all.insert("launch__occupancy_limit_shared_mem".into(), json!(o.by_shared));
            all.insert("sm__maximum_warps_per_active_cycle_pct".into(), json!(o.percent()));
        }
        let classes: Vec<Value> = (self.profile.classes().into_iter())
            .map(|(class, warps, lanes)| {
                json!({ "class": class.name(), "warp_instructions": warps, "lane_instructions": lanes })
            })
            .collect();
        let ptx: Vec<Value> = (self.profile.lines.iter())
            .map(|l| {
                let place = own_frame(&l.source).map(|f| json!({ "file": f.file, "line": f.line }));
                json!({
                    "line": l.ptx_line,
                    "text": l.ptx_text,
                    "class": l.class.name(),
                    "source": place,
                    "metrics": nonzero(&l.metrics),
                })
            })
            .collect();
        let source: Vec<Value> = (self.source_lines().into_iter())
            .map(|(file, line, m)| json!({ "file": file, "line": line, "metrics": nonzero(&m) }))
            .collect();
        json!({
            "type": "profile",
            "kernel": self.kernel,
            "sm": self.sm,
            "grid": self.launch.grid,
            "block": self.launch.block,
            "launches": self.launches,
            "registers_from": self.registers_from,
            "approximate": approximate_json(&self.approximate),
            "metrics": all,
            "flop": self.profile.total.flop(),
            "dram_bytes": { "at_least": low, "at_most": high },
            "classes": classes,
            "source": source,
            "ptx": ptx,
        })
    }
}

/// Approximate instructions as reports have them: name, bound of the PTX ISA, and what is computed here.
pub fn approximate_json(list: &[&Approximation]) -> Vec<Value> {
    let one = |a: &&Approximation| json!({ "instruction": a.instruction, "bound": a.bound, "computed": a.computed });
    list.iter().map(one).collect()
}

fn numbers(metrics: &Metrics) -> Map<String, Value> {
    let mut all: Map<String, Value> = metrics.iter().map(|(name, n)| (name.to_owned(), json!(n))).collect();
    all.extend(metrics.ratios().into_iter().map(|(name, x)| (name.to_owned(), json!(x))));
    all
}

fn nonzero(metrics: &Metrics) -> Map<String, Value> {
    metrics.iter().filter(|(_, n)| *n != 0).map(|(name, n)| (name.to_owned(), json!(n))).collect()
}
