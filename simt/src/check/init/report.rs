//! Findings about undefined data.

use std::collections::HashMap;

use super::super::checker::{Checker, RawFinding, RawSite};
use super::super::{Rule, Severity};
use super::place::Place;
use super::warp;
use crate::exec::Cx;
use crate::memory::lookup;

/// A load that brought undefined bytes into registers: the last one at its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub pc: u32,
    pub thread: (u64, u32, u32),
    pub place: Place,
    pub address: u64,
    /// Bytes of the access, and which of them are undefined.
    pub bytes: u64,
    pub missing: u32,
}

/// Where undefined values came from. Number 0 stands for registers that nobody has written.
#[derive(Default)]
pub(super) struct Origins {
    list: Vec<Origin>,
    known: HashMap<u32, u32>,
}

impl Origins {
    /// The number of an origin.
    pub(super) fn add(&mut self, origin: Origin) -> u32 {
        let list = &mut self.list;
        let id = *self.known.entry(origin.pc).or_insert_with(|| {
            list.push(origin);
            list.len() as u32
        });
        list[id as usize - 1] = origin;
        id
    }

    fn get(&self, id: u32) -> Option<Origin> {
        self.list.get((id as usize).checked_sub(1)?).copied()
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
    let memory = match from {
        None => "a register that nothing has written before it is read".to_string(),
        Some(o) => {
            sites.push(RawSite {
                label: "undefined bytes loaded".to_string(),
                thread: Some(o.thread),
                pc: o.pc,
                note: String::new(),
            });
            memory(cx, &o)
        }
    };
    let message = format!("{what} depends on undefined data");
    let severity = Severity::Error;
    c.findings.add(RawFinding { rule, severity, message, sites, memory, help: help.to_string() });
}

/// Says in words which bytes are undefined.
fn memory(cx: &Cx, o: &Origin) -> String {
    let (first, count) = (u64::from(o.missing.trailing_zeros()), o.missing.count_ones());
    let at = o.address.wrapping_add(first);
    let which = format!("{count} of {} bytes", o.bytes);
    match o.place {
        Place::Global => match lookup(&cx.memory, at) {
            Some(e) => {
                let stored = e.shadow().is_some_and(|s| s.stored());
                let why = if stored { "never written, or last with undefined data" } else { "never written" };
                format!(
                    "{which}, from byte {} of the allocation of {} bytes at {:#x}: {why}",
                    at - e.base,
                    e.size,
                    e.base
                )
            }
            None => format!("{which} at {at:#x}"),
        },
        Place::Shared => {
            format!("{which}, from offset {at} of shared memory: not written in this block, or with undefined data")
        }
        Place::Local => {
            format!("{which}, from offset {at} of local memory: not written by this thread, or with undefined data")
        }
        Place::Other => format!("{which} at {at:#x}"),
    }
}
