//! Findings about undefined data.

use std::collections::HashMap;

use super::super::checker::{Checker, RawFinding, RawSite};
use super::super::story::{self, Story};
use super::super::{Rule, Severity, Site};
use super::place::Place;
use super::warp;
use warpsmith_simt::machine::Cx;
use warpsmith_simt::machine::memory::{Snapshot, lookup};

/// A load that brought undefined bytes into registers: the last one at its position with the same past.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub pc: u32,
    pub thread: (u64, u32, u32),
    pub place: Place,
    pub address: u64,
    /// Bytes of the access, and which of them are undefined.
    pub bytes: u64,
    pub missing: u64,
    /// How the bytes came to where they were loaded from.
    pub past: Past,
}

impl Origin {
    /// Where the first undefined byte is.
    fn first(&self) -> u64 {
        self.address.wrapping_add(self.missing.trailing_zeros().into())
    }

    /// The same, if that is an address of global memory.
    fn global(&self) -> Option<u64> {
        matches!(self.place, Place::Global | Place::Other).then(|| self.first())
    }
}

/// How undefined bytes of memory came there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Past {
    /// Nothing has been stored there.
    #[default]
    Unwritten,
    /// This launch has stored what has this origin, to shared or local memory.
    Stored(u32),
    /// A launch or a copy has stored it to global memory.
    Told(u32),
}

/// The origin of registers that nobody has written.
pub(super) const UNSET: u32 = 0;

/// Where undefined values came from, by their numbers from 1.
#[derive(Default)]
pub(super) struct Origins {
    list: Vec<Origin>,
    known: HashMap<(u32, Past), u32>,
    /// Stores of undefined data to global memory: what it came from, position, and the number of their story; and stores to
    /// allocations, with the first thread.
    stores: HashMap<(u32, u32), (u32, Thread)>,
    writers: HashMap<u32, (u32, Thread)>,
}

type Thread = (u64, u32, u32);

/// Loads and stores that a story goes back.
const STEPS: u32 = 4;

impl Origins {
    /// The number of an origin. The past of what was stored in this launch is that of its first load, so that a value which
    /// goes round and round has one origin.
    pub(super) fn add(&mut self, mut origin: Origin) -> u32 {
        if let Past::Stored(before) = origin.past
            && let Some(Origin { past: past @ (Past::Stored(_) | Past::Told(_)), .. }) = self.get(before)
        {
            origin.past = past;
        }
        let list = &mut self.list;
        let id = *self.known.entry((origin.pc, origin.past)).or_insert_with(|| {
            list.push(origin);
            list.len() as u32
        });
        list[id as usize - 1] = origin;
        id
    }

    fn get(&self, id: u32) -> Option<Origin> {
        self.list.get((id as usize).checked_sub(1)?).copied()
    }

    /// The number of the story that the operation at `pc` of a program stores undefined data to global memory.
    pub(super) fn stored(&mut self, program: u64, origin: u32, pc: u32, thread: Thread) -> u32 {
        let first = self.get(origin).map_or(u64::MAX, |o| u64::from(o.pc));
        // What was read from global memory has a story of its own.
        let past = match self.get(origin).map(|o| o.past) {
            Some(Past::Told(number)) => number,
            _ => 0,
        };
        let key = (program, u64::from(pc) << 32 | u64::from(past), first);
        self.stores.entry((origin, pc)).or_insert_with(|| (story::number(key), thread)).0
    }

    /// The number of the story that the operation at `pc` of a program stores to an allocation.
    pub(super) fn wrote(&mut self, program: u64, pc: u32, thread: Thread) -> u32 {
        self.writers.entry(pc).or_insert_with(|| (story::number((program, u64::from(pc), u64::MAX - 1)), thread)).0
    }

    /// Tells the stories of the launch's stores; `follows` says which finding explains a load's undefined bytes.
    pub(super) fn tell(
        &self,
        kernel: &str,
        memory: &Snapshot,
        follows: &dyn Fn(u32) -> Option<Rule>,
        finish: &dyn Fn(RawSite) -> Site,
    ) {
        let site = |label: &str, thread: Thread, pc: u32| {
            finish(RawSite { label: label.to_string(), thread: Some(thread), pc, note: String::new() })
        };
        for (&pc, &(number, thread)) in &self.writers {
            let sites = vec![site("store", thread, pc)];
            story::tell(number, Story { kernel: kernel.to_string(), sites, ..Story::default() });
        }
        let own: HashMap<u32, (u32, u32, Thread)> =
            self.stores.iter().map(|(&(origin, pc), &(number, thread))| (number, (origin, pc, thread))).collect();
        for (&(origin, pc), &(number, thread)) in &self.stores {
            let mut sites = vec![site("store of undefined data", thread, pc)];
            let mut told = Story { kernel: kernel.to_string(), ..Story::default() };
            told.help = "initialise the value on every path that leads here".to_string();
            let (mut at, mut steps) = (origin, 0);
            loop {
                let Some(o) = self.get(at) else {
                    told.source = "a register that nothing has written before it is read".to_string();
                    break;
                };
                sites.push(site("undefined bytes loaded", o.thread, o.pc));
                told.source = describe(memory, &o);
                told.address = o.global();
                told.follows = told.follows.or_else(|| follows(o.pc));
                steps += 1;
                at = match o.past {
                    Past::Stored(before) if steps < STEPS => before,
                    Past::Told(number) if steps < STEPS => match own.get(&number) {
                        Some(&(before, pc, thread)) => {
                            sites.push(site("stored before", thread, pc));
                            before
                        }
                        None => {
                            told.inherit(number, &mut sites);
                            break;
                        }
                    },
                    _ => break,
                };
            }
            told.sites = sites;
            story::tell(number, told);
        }
    }
}

/// Reports that what an operation does depends on undefined data.
pub(super) fn deciding(c: &mut Checker, cx: &Cx, rule: Rule, pc: u32, lanes: u32, origin: u32, what: &str) {
    let from = c.init.origins.get(origin);
    if lanes == 0 || c.findings.again(rule, pc, from.map_or(u32::MAX, |o| o.pc)) {
        return;
    }
    let lane = lanes.trailing_zeros() & 31;
    let (label, help) = match rule {
        Rule::UndefinedBranch => ("decision", "initialise the value on every path that leads here"),
        Rule::UndefinedAddress => ("access", "initialise what the address is computed from"),
        _ => ("operation", "initialise the operand on every path that leads here"),
    };
    let others = lanes.count_ones() - 1;
    let mut sites = vec![RawSite {
        label: label.to_string(),
        thread: Some((c.block.index, warp(cx) as u32, lane)),
        pc,
        note: if others == 0 { String::new() } else { format!("and {others} other lanes of the warp") },
    }];
    let addresses = from.and_then(|o| o.global()).into_iter().collect();
    let memory = match from {
        None => "a register that nothing has written before it is read".to_string(),
        Some(o) => {
            let loaded = |o: &Origin| RawSite {
                label: "undefined bytes loaded".to_string(),
                thread: Some(o.thread),
                pc: o.pc,
                note: String::new(),
            };
            sites.push(loaded(&o));
            if let Past::Stored(before) = o.past {
                sites.extend(c.init.origins.get(before).as_ref().map(loaded));
            }
            describe(&cx.memory, &o)
        }
    };
    let message = format!("{what} depends on undefined data");
    let severity = Severity::Error;
    c.findings.add(RawFinding {
        rule,
        severity,
        message,
        sites,
        memory,
        help: help.to_string(),
        addresses,
        interval: None,
    });
}

/// Says in words which bytes are undefined, and why.
fn describe(memory: &Snapshot, o: &Origin) -> String {
    let count = o.missing.count_ones();
    let at = o.first();
    let which = format!("{count} of {} bytes", o.bytes);
    let why = |nobody: &str| match o.past {
        Past::Unwritten => nobody.to_string(),
        Past::Stored(_) => "last written with undefined data".to_string(),
        Past::Told(number) => match story::told(number).filter(|s| !s.kernel.is_empty()) {
            Some(s) => format!("last written with undefined data, by `{}`", s.kernel),
            None => "last written with undefined data".to_string(),
        },
    };
    match o.place {
        Place::Global => match lookup(memory, at) {
            Some(e) => format!(
                "{which}, from byte {} of the allocation of {} bytes at {:#x}: {}",
                at - e.base,
                e.size,
                e.base,
                why("never written")
            ),
            None => format!("{which} at {at:#x}"),
        },
        Place::Shared => format!("{which}, from offset {at} of shared memory: {}", why("never written in this block")),
        Place::Local => format!("{which}, from offset {at} of local memory: {}", why("never written by this thread")),
        Place::Other => format!("{which} at {at:#x}"),
    }
}
