//! Counters by operation, and by line.

use super::finding::Frame;
use super::note::{Class, Note, Notes, Role};
use crate::counters::Counters;
use crate::exec::Cx;
use crate::module::Module;
use crate::program::Program;

/// Counters of a launch by operation.
#[derive(Default)]
pub(crate) struct Counts {
    by_op: Vec<Counters>,
    before: Counters,
}

impl Counts {
    pub(crate) fn new(ops: usize) -> Counts {
        Counts { by_op: vec![Counters::default(); ops], before: Counters::default() }
    }

    pub(crate) fn before(&mut self, cx: &Cx, pc: u32, note: &Note) {
        if let Some(c) = self.by_op.get_mut(pc as usize) {
            if note.first {
                c.warp_instructions += 1;
                c.lane_instructions += u64::from(cx.active.count_ones());
            }
            if note.role != Role::Plain {
                self.before = cx.counters;
            }
        }
    }

    pub(crate) fn after(&mut self, cx: &Cx, pc: u32) {
        if let Some(c) = self.by_op.get_mut(pc as usize) {
            let (warps, lanes) = (c.warp_instructions, c.lane_instructions);
            *c += cx.counters.since(&self.before);
            (c.warp_instructions, c.lane_instructions) = (warps, lanes);
        }
    }

    /// Sums up by line of the PTX text, in its order.
    pub(crate) fn finish(self, module: &Module, program: &Program, notes: &Notes) -> Profile {
        let mut lines: std::collections::BTreeMap<u32, LineProfile> = std::collections::BTreeMap::new();
        for ((op, note), counters) in program.ops.iter().zip(&notes.notes).zip(self.by_op) {
            if counters == Counters::default() {
                continue;
            }
            let debug = program.debug.get(op.debug as usize).copied().unwrap_or_default();
            let line = lines.entry(debug.line).or_insert_with(|| LineProfile {
                ptx_line: debug.line,
                ptx_text: module.line(debug.line).trim().to_string(),
                source: program.locations.get(debug.location as usize).map(|l| module.frames(l)).unwrap_or_default(),
                class: note.class,
                counters: Counters::default(),
            });
            line.counters += counters;
        }
        Profile { lines: lines.into_values().collect() }
    }
}

/// Counters of a launch by line.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Lines of the PTX text that ran, in its order.
    pub lines: Vec<LineProfile>,
}

/// Counters of one line of PTX text.
#[derive(Clone, Debug)]
pub struct LineProfile {
    /// Line, from 1.
    pub ptx_line: u32,
    /// Its text.
    pub ptx_text: String,
    /// Source places, innermost first; empty without line information.
    pub source: Vec<Frame>,
    /// What its instruction is.
    pub class: Class,
    /// What it did.
    pub counters: Counters,
}
