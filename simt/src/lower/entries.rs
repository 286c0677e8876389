//! What each kernel of a module needs, and which cannot run.

use super::Lowering;
use crate::module::{KernelInfo, ParamInfo};
use crate::program::{Const, Dependents, Entry, Overlap};
use crate::ptx::Diagnostic;
use crate::ptx::ast::{Linkage, Space};

/// Statically declared shared memory of a kernel.
const MAX_STATIC_SHARED: u64 = 48 << 10;

impl Lowering<'_> {
    /// Works out what each kernel needs, callees included; and which cannot run, and why.
    pub(super) fn entries(&mut self) -> (Vec<KernelInfo>, Vec<(String, Vec<Diagnostic>)>) {
        let (mut kernels, mut refused) = (Vec::new(), Vec::new());
        let constants =
            self.module.variables.iter().filter(|v| v.space == Space::Const && v.linkage != Linkage::Extern);
        // `declare` has refused more than fits.
        let constants =
            constants.fold(0u64, |end, v| end.next_multiple_of(v.align.max(1).into()).saturating_add(v.size));
        let constants = u32::try_from(constants).unwrap_or(u32::MAX);
        for (index, function) in self.module.functions.iter().enumerate() {
            if !function.is_entry || function.body.is_none() {
                continue;
            }
            let reachable = self.reachable(index as u32);
            let reasons = reachable.iter().filter_map(|i| self.refused.get(i)).flatten().cloned();
            let reasons: Vec<Diagnostic> = reasons.collect();
            if !reasons.is_empty() {
                refused.push((function.name.clone(), reasons));
                continue;
            }
            let of = |i: &u32| &self.program.functions[*i as usize];
            let mut variables: Vec<u32> = reachable.iter().flat_map(|i| of(i).shared.iter().copied()).collect();
            variables.sort_unstable();
            variables.dedup();
            let (mut shared, mut end, mut dynamic) = (Vec::new(), 0u64, 1u64);
            for &i in &variables {
                let v = &self.program.shared[i as usize];
                if v.size == 0 {
                    dynamic = dynamic.max(v.align.into());
                    continue;
                }
                end = end.next_multiple_of(v.align.into());
                shared.push((i, end as u32));
                end = end.saturating_add(v.size);
                if end > MAX_STATIC_SHARED {
                    break;
                }
            }
            if end > MAX_STATIC_SHARED {
                let name = &function.name;
                let message = format!(
                    "Entry function '{name}' uses too much shared data ({end:#x} bytes, {MAX_STATIC_SHARED:#x} max)"
                );
                self.errors.push(Diagnostic::new(function.pos, message));
            }
            let start = end.next_multiple_of(dynamic.clamp(16, 4096));
            let start = if dynamic > 1 || variables.len() > shared.len() { start } else { end };
            let start = start as u32;
            shared
                .extend(variables.iter().filter(|&&i| self.program.shared[i as usize].size == 0).map(|&i| (i, start)));
            let reductions = reachable.iter().fold(0, |kinds, i| kinds | of(i).reductions);
            // Reductions of different kinds do not commute with each other.
            let mixed = if reductions.count_ones() > 1 { Overlap::UntilTurn } else { Overlap::Whole };
            let overlap = reachable.iter().map(|i| of(i).overlap).fold(mixed, Overlap::max);
            let local = reachable.iter().map(|i| of(i).declared_local).fold(0, u32::saturating_add);
            let registers = reachable.iter().map(|i| of(i).registers).max().unwrap_or(0);
            let param_bytes = function.params.iter().map(|p| p.offset.saturating_add(p.size)).max().unwrap_or(0);
            kernels.push(KernelInfo {
                name: function.name.clone(),
                params: function
                    .params
                    .iter()
                    .map(|p| ParamInfo { name: p.name.clone(), offset: p.offset, size: p.size, align: p.align })
                    .collect(),
                param_bytes,
                max_threads: function.directives.maxntid,
                required_threads: function.directives.reqntid,
                min_blocks: function.directives.minnctapersm,
                static_shared: start,
                local_bytes: local,
                // A few for addresses and scratch that an assembler always needs.
                registers: (registers + 8).min(255).min(function.directives.maxnreg.unwrap_or(255)),
                const_bytes: constants,
            });
            let approximate = reachable.iter().fold(0, |set, i| set | of(i).approximate);
            let reserved = reachable.iter().any(|i| of(i).reserved);
            let lets_behind_wait = self.lets_behind_wait(index as u32, &reachable);
            let (function, shared_bytes) = (index as u32, start);
            let entry =
                Entry { function, reachable, shared, shared_bytes, overlap, approximate, reserved, lets_behind_wait };
            self.program.entries.push(entry);
        }
        (kernels, refused)
    }

    /// Whether a kernel lets the launch behind it begin only behind its own wait: what it calls may not let it begin at all.
    fn lets_behind_wait(&self, kernel: u32, reachable: &[u32]) -> bool {
        reachable.iter().all(|&i| match self.program.functions[i as usize].dependents {
            Dependents::BehindWait => i == kernel,
            Dependents::Unnamed => i != kernel,
            Dependents::Early => false,
        })
    }

    fn reachable(&self, from: u32) -> Vec<u32> {
        let mut seen = vec![false; self.program.functions.len()];
        let mut list = vec![from];
        seen[from as usize] = true;
        // Functions whose addresses stand in variables can be called from anywhere.
        let addressed = self.program.globals.iter().flat_map(|g| g.addresses.iter()).filter_map(|a| match a.1 {
            Const::Function(i) => Some(i),
            _ => None,
        });
        for i in addressed {
            if !std::mem::replace(&mut seen[i as usize], true) {
                list.push(i);
            }
        }
        let mut next = 0;
        while let Some(&f) = list.get(next) {
            next += 1;
            for &callee in &self.program.functions[f as usize].callees {
                if !std::mem::replace(&mut seen[callee as usize], true) {
                    list.push(callee);
                }
            }
        }
        list
    }
}
