//! What all costs have in common: a launch on the software driver beside the machine code of its kernel.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_arch::Gpu;
use warpsmith_driver_api::software::LaunchProfile;

use super::Assembled;
use super::families::IN_FLIGHT;
use super::known::Miss;
use super::pipes::Pipe;
use super::slots::{self, Slots, Work};
use crate::failure::{Failure, Kind};

/// A launch and its kernel's code for [`super::SM`].
pub struct Weighed {
    pub assembled: Arc<Assembled>,
    pub slots: Slots,
    pub launch: LaunchProfile,
    /// Blocks of the launch that is meant, of which the one that ran may be a part.
    grid: u64,
    gpu: &'static Gpu,
}

impl Weighed {
    /// `data` bytes are read by the loop that is looked for; what ran stands for a launch that is `scale` times as large.
    pub fn new(
        mut launch: LaunchProfile,
        data: u64,
        assembled: &Arc<Assembled>,
        scale: f64,
    ) -> Result<Weighed, Failure> {
        let gpu = Gpu::of(super::SM)
            .ok_or_else(|| Failure::new(Kind::Operation, format!("no GPU stands for sm_{}", super::SM)))?;
        let slots = slots::weigh(&assembled.code, &launch.profile.lines, data);
        (launch.registers, launch.registers_from) = (assembled.resources.registers, "ptxas");
        let grid = launch.launch.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        let grid = (grid as f64 * scale).ceil() as u64;
        Ok(Weighed { assembled: Arc::clone(assembled), slots, launch, grid, gpu })
    }

    /// Blocks of the launch on the fullest multiprocessor.
    pub fn resident(&self) -> Option<u32> {
        Some(self.launch.occupancy()?.resident(self.grid, self.gpu.multiprocessors))
    }

    /// Bytes of memory that the fullest multiprocessor has on the way if each of its warps waits for those of one iteration.
    pub fn in_flight(&self) -> Option<f64> {
        let block = self.slots.block_in_flight(self.launch.launch.block.iter().product());
        (block > 0.0).then_some(block * f64::from(self.resident()?))
    }

    pub fn conflicts(&self) -> u64 {
        self.launch.profile.total.shared_conflicts()
    }

    pub fn occupancy(&self) -> Option<f64> {
        self.launch.occupancy().map(|o| o.percent())
    }

    /// Registers, local memory and occupancy, as tables have them.
    pub fn resources(&self) -> [String; 3] {
        let occupancy = self.occupancy().map_or_else(|| "-".to_owned(), |o| format!("{o:.0} %"));
        [self.launch.registers.to_string(), self.assembled.local().to_string(), occupancy]
    }

    /// What binds, in words, with slots in the unit that `per` makes of them.
    pub fn binding(work: Option<&Work>, per: impl Fn(f64) -> f64) -> String {
        let Some(work) = work else { return "no loop".to_owned() };
        let b = work.binding();
        let slots = per(b.slots);
        if b.issue {
            format!("issue ({} {slots:.2})", b.pipe.name())
        } else {
            format!("{} pipe ({slots:.2})", b.pipe.name())
        }
    }

    /// Bank conflicts. What is missed by local memory is said of all kernels.
    pub fn misses(&self) -> Vec<Miss> {
        let n = self.conflicts();
        let miss = || Miss::larger("conflicts", n as f64, format!("{n} bank conflicts"));
        (n > 0).then(miss).into_iter().collect()
    }

    /// Too few bytes on the way for the memory's latency.
    pub fn exposed(&self) -> Option<Miss> {
        let bytes = self.in_flight().filter(|b| *b < IN_FLIGHT)?;
        let (have, need) = (bytes / 1024.0, IN_FLIGHT / 1024.0);
        let text = format!("{have:.1} KiB on the way to a multiprocessor, {need:.0} hide the latency");
        Some(Miss::smaller("KiB in flight", have, text))
    }

    /// For machines: `more` of the kernel, `of_loop` of its hot loop, whose slots are in the unit that `per` makes of them.
    pub fn json(&self, per: impl Fn(f64) -> f64, more: Value, of_loop: Value) -> Value {
        let by_pipe = |all: &BTreeMap<Pipe, f64>| -> Value {
            all.iter().map(|(p, n)| (p.name().to_owned(), json!(per(*n)))).collect::<Map<_, _>>().into()
        };
        let of_work = |w: &Work| {
            let b = w.binding();
            json!({
                "slots": by_pipe(&w.pipes),
                "pipe_pressure": by_pipe(&w.pressure),
                "binds": { "resource": if b.issue { "issue" } else { "pipe" }, "class": b.pipe.name(), "slots": per(b.slots) },
                "share_of_kernel": w.slots / self.slots.kernel,
            })
        };
        let code = &self.assembled.code;
        let hot = self.slots.hot.as_ref().map(|h| {
            let blocks = &code.loops[h.index];
            let head = &code.instructions[code.blocks[blocks.head].range.start];
            let place = json!({
                "address": head.address,
                "instructions": code.of(&blocks.blocks).count(),
                "iterations": h.iterations,
            });
            merged(merged(of_work(&h.work), place), of_loop)
        });
        let common = json!({
            "hot_loop": hot,
            "loops": self.slots.loops.as_ref().map(of_work),
            "registers": self.launch.registers,
            "local_bytes": self.assembled.local(),
            "occupancy_percent": self.occupancy(),
            "resident_blocks": self.resident(),
            "bytes_in_flight": self.in_flight(),
            "bank_conflicts": self.conflicts(),
        });
        merged(more, common)
    }
}

/// The entries of both objects.
fn merged(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            a.extend(b);
            a.into()
        }
        (a, _) => a,
    }
}
