//! Weak loads that only seed a compare-and-swap loop.
//!
//! Compilers build atomic operations that the hardware lacks from a loop around `atom.cas`, which starts from a weak load
//! of the same place. The load races with the other threads' swaps, but whatever it reads, the swap finds out. A
//! load counts as such a seed if its value, through moves, arithmetic and predicates, reaches nothing but operands of
//! `atom.cas` at the same address, and comparisons with what such an `atom.cas` has returned.

use std::collections::HashSet;

use super::dataflow::{DefUse, computes, has, mentions, registers};
use crate::ptx::ast::{Body, Instruction, Reg};

/// Indices of the loads.
pub(super) fn seeds(body: &Body) -> HashSet<usize> {
    let is_cas = |i: &Instruction| i.opcode == "atom" && has(i, "cas");
    if !body.instructions.iter().any(is_cas) {
        return HashSet::new();
    }
    let flow = DefUse::new(body);
    let candidates = body.instructions.iter().enumerate().filter(|(_, i)| {
        let plain = !["relaxed", "acquire", "nc", "param", "local", "const"].iter().any(|m| has(i, m));
        i.opcode == "ld" && plain
    });
    candidates.filter(|(at, _)| flow.only_feeds_cas(*at).is_some()).map(|(at, _)| at).collect()
}

impl DefUse<'_> {
    /// `Some` if the value loaded at `at` reaches nothing but compare-and-swaps of its place.
    fn only_feeds_cas(&self, at: usize) -> Option<()> {
        let load = &self.body.instructions[at];
        let place = self.address(load.operands.get(1)?)?;
        let swaps = |i: &Instruction| {
            i.opcode == "atom" && has(i, "cas") && {
                i.operands.get(1).and_then(|a| self.address(a)).is_some_and(|a| a == place)
            }
        };
        let mut returned = Vec::new();
        for i in self.body.instructions.iter().filter(|i| swaps(i)) {
            registers(i.operands.first()?, &mut |r| returned.push(r));
        }
        if returned.is_empty() {
            return None;
        }
        let returned = self.closure(returned, computes);
        let mut tainted: HashSet<Reg> = HashSet::new();
        let mut work = Vec::new();
        registers(load.operands.first()?, &mut |r| work.push(r));
        tainted.extend(&work);
        // A loop passes on what the swap has returned in the register that was loaded first.
        let loaded = self.closure(work.clone(), computes);
        let mut swapped = false;
        while let Some(r) = work.pop() {
            for &at in self.reads.get(&r).map_or(&[][..], Vec::as_slice) {
                let i = &self.body.instructions[at];
                if swaps(i) {
                    // As what to compare with or to store, not as the address.
                    let used = i.operands.iter().skip(2).any(|o| mentions(o, r));
                    if !used || i.operands.get(1).is_some_and(|o| mentions(o, r)) {
                        return None;
                    }
                    swapped = true;
                    continue;
                }
                let guarded = i.guard.is_some_and(|g| g.0 == r);
                if !computes(i) || guarded {
                    return None;
                }
                // Whether the swap took place: decided by what the swap has returned.
                let compares = i.opcode == "setp"
                    && i.operands.iter().skip(1).any(|o| {
                        let mut found = false;
                        registers(o, &mut |r| found |= returned.contains(&r) && !loaded.contains(&r));
                        found
                    });
                if compares {
                    continue;
                }
                registers(i.operands.first()?, &mut |r| {
                    if tainted.insert(r) {
                        work.push(r);
                    }
                });
            }
        }
        swapped.then_some(())
    }
}
