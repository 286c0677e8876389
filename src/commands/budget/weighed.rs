//! What all costs have in common: a launch on the software driver beside the machine code of its kernel.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use warpsmith_driver_api::software::LaunchProfile;

use super::families::IN_FLIGHT;
use super::pipes::Pipe;
use super::slots::{self, Slots};
use super::{Tools, assemble, sass};
use crate::failure::Failure;

/// A launch and its kernel's code for [`super::SM`].
pub struct Weighed {
    pub code: sass::Code,
    pub slots: Slots,
    pub launch: LaunchProfile,
    pub spills: u32,
}

impl Weighed {
    /// `data` bytes are read by the loop that is looked for.
    pub fn new(mut launch: LaunchProfile, data: u64, tools: &Tools) -> Result<Weighed, Failure> {
        let (code, registers, spills) = assemble(&launch.kernel, super::SM, tools)?;
        let slots = slots::weigh(&code, &launch.profile.lines, data);
        (launch.registers, launch.registers_from) = (registers, "ptxas");
        Ok(Weighed { code, slots, launch, spills })
    }

    /// Bytes that a full multiprocessor has on the way if each lane waits for the loads of one iteration.
    pub fn in_flight(&self) -> Option<f64> {
        self.slots.in_flight(&self.launch)
    }

    pub fn conflicts(&self) -> u64 {
        self.launch.profile.total.shared_conflicts()
    }

    pub fn occupancy(&self) -> Option<f64> {
        self.launch.occupancy().map(|o| o.percent())
    }

    /// What binds the hot loop, in words, with slots in the unit that `per` makes of them.
    pub fn binding(&self, per: impl Fn(f64) -> f64) -> String {
        let Some(hot) = &self.slots.hot else { return "no loop".to_owned() };
        let b = hot.binding();
        let slots = per(b.slots);
        if b.issue {
            format!("issue ({} {slots:.2})", b.pipe.name())
        } else {
            format!("{} pipe ({slots:.2})", b.pipe.name())
        }
    }

    /// Spills and bank conflicts.
    pub fn misses(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.spills > 0 {
            all.push(format!("{} bytes of spills", self.spills));
        }
        if self.conflicts() > 0 {
            all.push(format!("{} bank conflicts", self.conflicts()));
        }
        all
    }

    /// Too few bytes on the way for the memory's latency.
    pub fn exposed(&self) -> Option<String> {
        let bytes = self.in_flight().filter(|b| *b < IN_FLIGHT)?;
        let (have, need) = (bytes / 1024.0, IN_FLIGHT / 1024.0);
        Some(format!("{have:.0} KiB on the way to a multiprocessor, {need:.0} hide the latency"))
    }

    /// For machines: `more` of the kernel, `of_loop` of its hot loop, whose slots are in the unit that `per` makes of them.
    pub fn json(&self, per: impl Fn(f64) -> f64, more: Value, of_loop: Value) -> Value {
        let by_pipe = |all: &BTreeMap<Pipe, f64>| -> Value {
            all.iter().map(|(p, n)| (p.name().to_owned(), json!(per(*n)))).collect::<Map<_, _>>().into()
        };
        let hot = self.slots.hot.as_ref().map(|h| {
            let b = h.binding();
            let blocks = &self.code.loops[h.index];
            let head = &self.code.instructions[self.code.blocks[blocks.head].range.start];
            let common = json!({
                "address": head.address,
                "instructions": self.code.of(&blocks.blocks).count(),
                "iterations": h.iterations,
                "slots": by_pipe(&h.pipes),
                "pipe_pressure": by_pipe(&h.pressure),
                "binds": { "resource": if b.issue { "issue" } else { "pipe" }, "class": b.pipe.name(), "slots": per(b.slots) },
                "share_of_kernel": h.slots / self.slots.kernel,
            });
            merged(common, of_loop)
        });
        let common = json!({
            "hot_loop": hot,
            "registers": self.launch.registers,
            "spill_bytes": self.spills,
            "occupancy_percent": self.occupancy(),
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
