//! Counters by operation, and by line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::metrics::Metrics;
use super::touched::Touched;
use warpsmith_simt::machine::note::{Access, Class, Note, Role};
use warpsmith_simt::machine::program::Program;
use warpsmith_simt::machine::{Cx, Op};
use warpsmith_simt::{Frame, Module};

/// Counters of a launch by operation.
#[derive(Default)]
pub(crate) struct Counts {
    /// Of the operations that have run, and for each operation its number there, from 1; 0: it has not.
    ran: Vec<Metrics>,
    numbers: Vec<u32>,
    accesses: Vec<Access>,
    touched: Touched,
    /// Branches, divergent branches and arrivals at barriers before the operation.
    before: [u64; 3],
}

impl Counts {
    /// Of a launch that finds these addresses in caches.
    pub(crate) fn new(program: &Program, cached: &[Range<u64>]) -> Counts {
        let accesses = program.notes.accesses.clone();
        let touched = Touched::with_cached(cached);
        Counts { numbers: vec![0; program.ops.len()], accesses, touched, ..Counts::default() }
    }

    /// The counters of an operation.
    #[inline(always)]
    fn of<'a>(ran: &'a mut Vec<Metrics>, numbers: &mut [u32], pc: u32) -> Option<&'a mut Metrics> {
        let number = numbers.get_mut(pc as usize)?;
        if *number == 0 {
            ran.push(Metrics::default());
            *number = ran.len() as u32;
        }
        ran.get_mut(*number as usize - 1)
    }

    /// An operation that no lane executes: its guard is false for all.
    pub(crate) fn skipped(&mut self, cx: &Cx, pc: u32) {
        let weight = weight(cx, pc);
        if let Some(m) = Counts::of(&mut self.ran, &mut self.numbers, pc) {
            m.warp_instructions += weight;
            m.thread_instructions += weight * u64::from(cx.mask.count_ones());
        }
    }

    /// # Safety
    /// The contract of handlers.
    pub(crate) unsafe fn before(&mut self, cx: &Cx, op: &Op, pc: u32, note: &Note) {
        let Some(m) = Counts::of(&mut self.ran, &mut self.numbers, pc) else { return };
        let lanes = u64::from(cx.active.count_ones());
        let weight = weight(cx, pc);
        m.warp_instructions += weight;
        m.thread_instructions += weight * u64::from(cx.mask.count_ones());
        m.lane_instructions += weight * lanes;
        if note.first {
            m.work(note.work, lanes);
        }
        let first = self.touched.first;
        match note.role {
            Role::Plain => {}
            Role::Access(i) => {
                if let Some(access) = self.accesses.get(i as usize) {
                    // SAFETY: by the contract; the note is the operation's.
                    unsafe { m.access(cx, op, access, note.writes > 0, &mut self.touched) }
                }
            }
            // SAFETY: by the contract; the note is the operation's.
            Role::CopyAsync => unsafe { m.copy_async(cx, op, &mut self.touched) },
            // SAFETY: by the contract; the note is the operation's.
            Role::CopyBulk => unsafe { m.copy_bulk(cx, op, &mut self.touched) },
            // SAFETY: by the contract; the note is the operation's.
            Role::StoreAsync => unsafe { m.store_async(cx, op) },
            // SAFETY: by the contract; the note is the operation's.
            Role::StoreBulk => unsafe { m.store_bulk(cx, op) },
            // SAFETY: by the contract; the note is the operation's.
            Role::MatrixAccess => unsafe { m.matrix(cx, op, note.taint, &mut self.touched) },
            _ => self.before = seen(cx),
        }
        m.global_first_sectors += self.touched.first - first;
    }

    pub(crate) fn after(&mut self, cx: &Cx, pc: u32, note: &Note) {
        if !matches!(note.role, Role::Branch | Role::Barrier) {
            return;
        }
        if let Some(m) = Counts::of(&mut self.ran, &mut self.numbers, pc) {
            let now = seen(cx);
            m.branches += now[0].wrapping_sub(self.before[0]);
            m.divergent_branches += now[1].wrapping_sub(self.before[1]);
            if note.role == Role::Barrier {
                m.barriers += 1;
            }
        }
    }

    /// Sums up by line of the PTX text, in its order.
    pub(crate) fn finish(self, module: &Module) -> Profile {
        let program = &module.program;
        let mut lines: BTreeMap<u32, LineProfile> = BTreeMap::new();
        let mut total = Metrics::default();
        for ((op, note), number) in program.ops.iter().zip(&program.notes.notes).zip(self.numbers) {
            let Some(&metrics) = (number as usize).checked_sub(1).and_then(|at| self.ran.get(at)) else { continue };
            if metrics == Metrics::default() {
                continue;
            }
            total += metrics;
            let debug = program.debug.get(op.debug as usize).copied().unwrap_or_default();
            let line = lines.entry(debug.line).or_insert_with(|| LineProfile {
                ptx_line: debug.line,
                ptx_text: module.line(debug.line).trim().to_string(),
                source: program.locations.get(debug.location as usize).map(|l| module.frames(l)).unwrap_or_default(),
                class: note.class,
                metrics: Metrics::default(),
            });
            if note.first {
                line.class = note.class;
            }
            line.metrics += metrics;
        }
        Profile {
            lines: lines.into_values().collect(),
            total,
            sectors_loaded_once: self.touched.loaded,
            sectors_stored_once: self.touched.stored,
            touched: Arc::new(self.touched),
        }
    }
}

fn seen(cx: &Cx) -> [u64; 3] {
    [cx.counters.branches, cx.counters.divergent_branches, cx.counters.barriers]
}

/// PTX instructions that an operation stands for.
pub(crate) fn weight(cx: &Cx, pc: u32) -> u64 {
    // SAFETY: there is one weight more than there are operations.
    u64::from(unsafe { *cx.weights.add(pc as usize + 1) - *cx.weights.add(pc as usize) })
}

/// Counters of a launch by line.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Lines of the PTX text that ran, in its order.
    pub lines: Vec<LineProfile>,
    /// All lines together.
    pub total: Metrics,
    /// Sectors of global memory that were loaded before the launch had stored to them, each once.
    pub sectors_loaded_once: u64,
    /// Sectors that were stored to, each once.
    pub sectors_stored_once: u64,
    /// Which they are, of one launch.
    touched: Arc<Touched>,
}

impl Profile {
    /// Bytes of the sectors that the launch has touched, each once: all of them, and those of these ranges of addresses, which do not
    /// overlap. Nothing after [`add`](Profile::add).
    pub fn touched(&self, ranges: &[Range<u64>]) -> (u64, u64) {
        let of = |range: &Range<u64>| self.touched.count(range.start >> 5, range.end.div_ceil(32));
        (32 * self.touched.count(0, u64::MAX >> 5), 32 * ranges.iter().map(of).sum::<u64>())
    }

    /// Adds another launch of the same kernel.
    pub fn add(&mut self, other: Profile) {
        self.touched = Arc::default();
        self.total += other.total;
        self.sectors_loaded_once += other.sectors_loaded_once;
        self.sectors_stored_once += other.sectors_stored_once;
        for line in other.lines {
            match self.lines.binary_search_by_key(&line.ptx_line, |l| l.ptx_line) {
                Ok(at) => self.lines[at].metrics += line.metrics,
                Err(at) => self.lines.insert(at, line),
            }
        }
    }

    /// Bytes between global memory and the chip: at least if every cache were perfect and empty at first (each sector once),
    /// at most if there were none (each sector of each request).
    pub fn dram_bytes(&self) -> (u64, u64) {
        (32 * (self.sectors_loaded_once + self.sectors_stored_once), 32 * self.total.global_sectors())
    }

    /// Warp and lane instructions by class, in the order of [`Class::ALL`].
    pub fn classes(&self) -> Vec<(Class, u64, u64)> {
        let sum = |class: Class| {
            let of_class = self.lines.iter().filter(|l| l.class == class);
            of_class.fold((class, 0, 0), |s, l| {
                (class, s.1 + l.metrics.warp_instructions, s.2 + l.metrics.lane_instructions)
            })
        };
        Class::ALL.into_iter().map(sum).filter(|s| s.1 > 0).collect()
    }
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
    pub metrics: Metrics,
}
