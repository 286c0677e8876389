//! What a profile counts, and by which rules.
//!
//! Names and rules are those of Nsight Compute, as far as its documentation states them ("Kernel Profiling Guide": metrics
//! structure, memory tables) and NVIDIA's "CUDA C++ Programming Guide" does (device memory accesses, shared memory banks).
//! What is counted is the PTX that ran, not the machine code that an assembler would make of it.
//!
//! - **Sectors** are aligned pieces of 32 bytes. A request is one warp's execution of one access; it costs the distinct
//!   sectors that its active lanes touch, so a warp that loads 4, 8 or 16 consecutive bytes a lane costs 4, 8 or 16.
//! - **Bytes used** of a request are the distinct bytes that its lanes ask for; lanes that share a byte use it once.
//! - **Wavefronts** are passes over shared memory's 32 banks of 4 bytes. Lanes are served 32 at a time for up to 4 bytes
//!   a lane, 16 for 8 and 8 for 16 or more; a group needs as many passes as the busiest bank has distinct words to give.
//!   **Conflicts** are the passes beyond one for each group that has an active lane.
//! - **Uniform** is an execution of a conditional or indexed branch whose lanes all go one way.
//! - **FLOP** are additions and multiplications one each, fused multiply-adds two, both halves of packed types, and for
//!   matrix instructions two for each element of the product's volume.

use std::ops::AddAssign;

use super::note::{Access, Does, Where};
use super::touched::Touched;
use crate::exec::bounds::Place;
use crate::exec::lanes::{lane_of, lanes_of};
use crate::exec::space::{Pattern, SHARED_WINDOW, classify, place_of};
use crate::exec::{Cx, LANES, Op};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident = $ncu:literal,)*) => {
        /// Sums over the executions of a line, or of a launch.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Metrics {
            fn add_assign(&mut self, other: Metrics) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }

        impl Metrics {
            /// Nsight Compute's name and the value of every sum, in declaration order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($ncu, self.$name)),*].into_iter()
            }
        }
    };
}

metrics! {
    /// Instructions that warps issued.
    warp_instructions = "smsp__inst_executed.sum",
    /// Lanes that were active at them, those whose guard was false included.
    thread_instructions = "smsp__thread_inst_executed.sum",
    /// Lanes that executed them.
    lane_instructions = "smsp__thread_inst_executed_pred_on.sum",
    /// Warp-wide loads from global memory.
    global_load_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    /// Their sectors.
    global_load_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    /// Their distinct bytes.
    global_load_bytes = "smsp__sass_data_bytes_mem_global_op_ld.sum",
    /// Warp-wide stores to global memory.
    global_store_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    /// Their sectors.
    global_store_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    /// Their distinct bytes.
    global_store_bytes = "smsp__sass_data_bytes_mem_global_op_st.sum",
    /// Warp-wide asynchronous copies from global to shared memory.
    global_copy_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
    /// Their sectors.
    global_copy_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    /// Their distinct bytes.
    global_copy_bytes = "smsp__sass_data_bytes_mem_global_op_ldgsts.sum",
    /// Warp-wide atomics in global memory that give the old value.
    global_atom_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    /// Their sectors.
    global_atom_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    /// Warp-wide reductions in global memory.
    global_red_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    /// Their sectors.
    global_red_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    /// Lanes' atomics and reductions, in global and shared memory.
    atomic_lanes = "smsp__thread_inst_executed_op_atom.sum",
    /// Warp-wide loads from local memory.
    local_load_requests = "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    /// Their sectors.
    local_load_sectors = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    /// Warp-wide stores to local memory.
    local_store_requests = "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    /// Their sectors.
    local_store_sectors = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    /// Warp-wide loads from shared memory.
    shared_load_requests = "smsp__inst_executed_op_shared_ld.sum",
    /// Their passes.
    shared_load_wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    /// Their passes beyond the ideal.
    shared_load_conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    /// Warp-wide stores to shared memory, by asynchronous copies too.
    shared_store_requests = "smsp__inst_executed_op_shared_st.sum",
    /// Their passes.
    shared_store_wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    /// Their passes beyond the ideal.
    shared_store_conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    /// Warp-wide atomics in shared memory.
    shared_atom_requests = "smsp__inst_executed_op_shared_atom.sum",
    /// Their passes.
    shared_atom_wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    /// Their passes beyond the ideal.
    shared_atom_conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    /// Executions of conditional and indexed branches.
    branches = "smsp__sass_branch_targets.sum",
    /// Those whose lanes disagreed.
    divergent_branches = "smsp__sass_branch_targets_threads_divergent.sum",
    /// Arrivals of warps at block barriers.
    barriers = "smsp__inst_executed_op_barrier.sum",
    /// Lanes' f32 additions.
    fadd = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    /// Lanes' f32 multiplications.
    fmul = "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    /// Lanes' f32 fused multiply-adds.
    ffma = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    /// Lanes' f64 additions.
    dadd = "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
    /// Lanes' f64 multiplications.
    dmul = "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
    /// Lanes' f64 fused multiply-adds.
    dfma = "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
    /// Additions in f16 and bf16, two for a packed one.
    hadd = "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum",
    /// Multiplications in f16 and bf16, two for a packed one.
    hmul = "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum",
    /// Fused multiply-adds in f16 and bf16, two for a packed one.
    hfma = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum",
    /// Operations of matrix instructions: two for each element of the product's volume.
    tensor = "sm__ops_path_tensor.sum",
}

impl Metrics {
    /// Mean lanes that execute an instruction, of 32.
    pub fn lanes_active(&self) -> f64 {
        ratio(self.lane_instructions, self.warp_instructions)
    }

    /// Floating-point operations outside matrix instructions.
    pub fn flop(&self) -> u64 {
        let (once, twice) =
            (self.fadd + self.fmul + self.dadd + self.dmul + self.hadd + self.hmul, self.ffma + self.dfma + self.hfma);
        once + 2 * twice
    }

    /// Sectors between the multiprocessors and the L2 cache if no cache in between helped: loads and stores once, atomics
    /// there and back.
    pub fn global_sectors(&self) -> u64 {
        let once = self.global_load_sectors + self.global_store_sectors + self.global_copy_sectors;
        once + 2 * (self.global_atom_sectors + self.global_red_sectors)
    }

    /// Passes over the banks of shared memory.
    pub fn shared_wavefronts(&self) -> u64 {
        self.shared_load_wavefronts + self.shared_store_wavefronts + self.shared_atom_wavefronts
    }

    /// Passes beyond the ideal.
    pub fn shared_conflicts(&self) -> u64 {
        self.shared_load_conflicts + self.shared_store_conflicts + self.shared_atom_conflicts
    }

    /// Nsight Compute's names and values of the quotients; those of nothing are left out.
    pub fn ratios(&self) -> Vec<(&'static str, f64)> {
        let uniform = 100.0 * ratio(self.branches - self.divergent_branches, self.branches);
        let all = [
            (
                "smsp__thread_inst_executed_per_inst_executed.ratio",
                self.thread_instructions,
                self.warp_instructions,
                1.0,
            ),
            (
                "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
                self.lane_instructions,
                self.warp_instructions,
                1.0,
            ),
            (
                "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
                self.global_load_sectors,
                self.global_load_requests,
                1.0,
            ),
            (
                "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
                self.global_store_sectors,
                self.global_store_requests,
                1.0,
            ),
            (
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
                self.global_load_bytes,
                self.global_load_sectors,
                1.0,
            ),
            (
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
                self.global_store_bytes,
                self.global_store_sectors,
                1.0,
            ),
            ("smsp__sass_average_branch_targets_threads_uniform.pct", 0, self.branches, uniform),
        ];
        let value = |(name, a, b, scale): (&'static str, u64, u64, f64)| {
            (b != 0).then(|| (name, if name.ends_with(".pct") { scale } else { ratio(a, b) * scale }))
        };
        all.into_iter().filter_map(value).collect()
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Floating-point work of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    #[default]
    None,
    Fadd,
    Fmul,
    Ffma,
    Dadd,
    Dmul,
    Dfma,
    /// With the number of elements.
    Hadd(u8),
    Hmul(u8),
    Hfma(u8),
    /// Operations of the warp.
    Tensor(u32),
}

impl Metrics {
    pub(super) fn work(&mut self, work: Work, lanes: u64) {
        match work {
            Work::None => {}
            Work::Fadd => self.fadd += lanes,
            Work::Fmul => self.fmul += lanes,
            Work::Ffma => self.ffma += lanes,
            Work::Dadd => self.dadd += lanes,
            Work::Dmul => self.dmul += lanes,
            Work::Dfma => self.dfma += lanes,
            Work::Hadd(n) => self.hadd += lanes * u64::from(n),
            Work::Hmul(n) => self.hmul += lanes * u64::from(n),
            Work::Hfma(n) => self.hfma += lanes * u64::from(n),
            Work::Tensor(n) => self.tensor += u64::from(n),
        }
    }

    /// Counts an access by the active lanes.
    ///
    /// # Safety
    /// The contract of handlers: `access` describes `op`.
    pub(super) unsafe fn access(&mut self, cx: &Cx, op: &Op, access: &Access, result: bool, touched: &mut Touched) {
        let bytes = access.bytes();
        if matches!(access.at, Where::Param | Where::Const) {
            return;
        }
        // SAFETY: by the contract.
        if access.does != Does::Atomic && unsafe { self.regular(cx, op, access, touched) } {
            return;
        }
        let mut global = Lanes::new();
        let mut shared = Lanes::new();
        let mut local = Lanes::new();
        // SAFETY: by the contract, row `a` has lanes of the width that the access names.
        let at = |lane: usize, wide: bool| unsafe {
            let row = cx.src(op.a);
            let base = if wide { lane_of::<u64>(row, lane) } else { u64::from(lane_of::<u32>(row, lane)) };
            base.wrapping_add(op.imm)
        };
        for lane in lanes_of(cx.active) {
            match access.at {
                Where::Global => global.push(lane, at(lane, true)),
                Where::Shared32 => shared.push(lane, at(lane, false)),
                Where::Shared64 => shared.push(lane, at(lane, true) & 0xffff_ffff),
                Where::Local32 => local.push(lane, at(lane, false)),
                Where::Local64 => local.push(lane, at(lane, true)),
                Where::Frame => local.push(lane, u64::from(cx.local_base).wrapping_add(op.imm)),
                Where::Param | Where::Const => {}
                Where::Generic => {
                    let address = at(lane, true);
                    match place_of(address) {
                        Place::Global => global.push(lane, address),
                        Place::Shared => shared.push(lane, address.wrapping_sub(SHARED_WINDOW)),
                        Place::Local => local.push(lane, address & 0xffff_ffff),
                        Place::Param => {}
                    }
                }
            }
        }
        if access.does == Does::Atomic {
            self.atomic_lanes += u64::from(cx.active.count_ones());
        }
        self.global(&global, bytes, access.does, result, touched);
        self.shared(&shared, bytes, access.does);
        self.local(&local, bytes, access.does);
    }

    /// Counts a load or store by a whole warp whose lanes step by the size of the access, or all use one address; `false` if
    /// it is another, and nothing is counted.
    ///
    /// # Safety
    /// As for [`access`](Metrics::access).
    unsafe fn regular(&mut self, cx: &Cx, op: &Op, access: &Access, touched: &mut Touched) -> bool {
        let bytes = access.bytes();
        if cx.active != !0 || bytes == 0 {
            return false;
        }
        // SAFETY: by the contract, row `a` has lanes of the width that the access names; `fast` says what the CPU has.
        let pattern = unsafe {
            let row = cx.src(op.a);
            match (access.at, touched.fast) {
                (Where::Global | Where::Generic | Where::Shared64, true) => {
                    classify::<u64, true>(row, !0, op.imm, bytes)
                }
                (Where::Global | Where::Generic | Where::Shared64, false) => {
                    classify::<u64, false>(row, !0, op.imm, bytes)
                }
                (Where::Shared32, true) => classify::<u32, true>(row, !0, op.imm, bytes),
                (Where::Shared32, false) => classify::<u32, false>(row, !0, op.imm, bytes),
                _ => return false,
            }
        };
        let (first, span) = match pattern {
            Pattern::Linear(first) => (first, 32 * bytes),
            Pattern::Same(first) => (first, bytes),
            Pattern::Mixed => return false,
        };
        let store = access.does == Does::Store;
        match access.at {
            Where::Shared32 | Where::Shared64 => {
                let Some(passes) = regular_passes(bytes) else { return false };
                if store {
                    self.shared_store_requests += 1;
                    self.shared_store_wavefronts += passes;
                } else {
                    self.shared_load_requests += 1;
                    self.shared_load_wavefronts += passes;
                }
            }
            _ => {
                let last = first.wrapping_add(span - 1);
                if last < first || place_of(first) != Place::Global || place_of(last) != Place::Global {
                    return false;
                }
                let sectors = touched.mark_all(first >> 5, last >> 5, store);
                if store {
                    self.global_store_requests += 1;
                    self.global_store_sectors += sectors;
                    self.global_store_bytes += span;
                } else {
                    self.global_load_requests += 1;
                    self.global_load_sectors += sectors;
                    self.global_load_bytes += span;
                }
            }
        }
        true
    }

    /// Counts an asynchronous copy: a request to global memory, and its stores to shared memory.
    ///
    /// # Safety
    /// The contract of [`copy_async`](crate::exec::mem::copy_async).
    pub(super) unsafe fn copy_async(&mut self, cx: &Cx, op: &Op, touched: &mut Touched) {
        let bytes = (op.imm >> 32).max(1);
        let (mut from, mut to) = (Lanes::new(), Lanes::new());
        // SAFETY: by the contract: the list holds the site, the offset of the source and whether `a` is 64-bit.
        unsafe {
            let (offset, wide) = (cx.list(op, 1) as i32 as i64 as u64, cx.list(op, 2) != 0);
            for lane in lanes_of(cx.active) {
                let row = cx.src(op.a);
                let base = if wide { lane_of::<u64>(row, lane) } else { u64::from(lane_of::<u32>(row, lane)) };
                to.push(lane, base.wrapping_add(op.imm as u32 as i32 as i64 as u64) & 0xffff_ffff);
                if lane_of::<u32>(cx.src(op.c), lane) != 0 {
                    from.push(lane, lane_of::<u64>(cx.src(op.b), lane).wrapping_add(offset));
                }
            }
        }
        let (sectors, used) = from.sectors(bytes, |sector| touched.mark(sector, true, false));
        self.global_copy_requests += 1;
        self.global_copy_sectors += sectors;
        self.global_copy_bytes += used;
        self.shared(&to, bytes, Does::Store);
    }

    fn global(&mut self, lanes: &Lanes, bytes: u64, does: Does, result: bool, touched: &mut Touched) {
        if lanes.count == 0 {
            return;
        }
        let (load, store) = (does != Does::Store, does != Does::Load);
        let (sectors, used) = lanes.sectors(bytes, |sector| touched.mark(sector, load, store));
        match does {
            Does::Load => {
                self.global_load_requests += 1;
                self.global_load_sectors += sectors;
                self.global_load_bytes += used;
            }
            Does::Store => {
                self.global_store_requests += 1;
                self.global_store_sectors += sectors;
                self.global_store_bytes += used;
            }
            Does::Atomic if result => {
                self.global_atom_requests += 1;
                self.global_atom_sectors += sectors;
            }
            Does::Atomic => {
                self.global_red_requests += 1;
                self.global_red_sectors += sectors;
            }
        }
    }

    fn shared(&mut self, lanes: &Lanes, bytes: u64, does: Does) {
        if lanes.count == 0 {
            return;
        }
        let (passes, groups) = lanes.wavefronts(bytes);
        let (requests, wavefronts, conflicts) = match does {
            Does::Load => {
                (&mut self.shared_load_requests, &mut self.shared_load_wavefronts, &mut self.shared_load_conflicts)
            }
            Does::Store => {
                (&mut self.shared_store_requests, &mut self.shared_store_wavefronts, &mut self.shared_store_conflicts)
            }
            Does::Atomic => {
                (&mut self.shared_atom_requests, &mut self.shared_atom_wavefronts, &mut self.shared_atom_conflicts)
            }
        };
        *requests += 1;
        *wavefronts += passes;
        *conflicts += passes - groups;
    }

    /// Local memory lies interleaved: word `w` of lane `l` is word `32 w + l`, so that lanes that use one offset use a
    /// contiguous row.
    fn local(&mut self, lanes: &Lanes, bytes: u64, does: Does) {
        if lanes.count == 0 {
            return;
        }
        let mut words = std::collections::BTreeSet::new();
        for (lane, at) in lanes.iter() {
            for word in at / 4..(at + bytes).div_ceil(4) {
                words.insert((32 * word + lane as u64) / 8);
            }
        }
        let (requests, sectors) = match does {
            Does::Store => (&mut self.local_store_requests, &mut self.local_store_sectors),
            _ => (&mut self.local_load_requests, &mut self.local_load_sectors),
        };
        *requests += 1;
        *sectors += words.len() as u64;
    }
}

/// Passes of a whole warp whose lanes step by `bytes`, or use one address: one for each group of lanes.
fn regular_passes(bytes: u64) -> Option<u64> {
    match bytes {
        0..=4 => Some(1),
        5..=8 => Some(2),
        9..=16 => Some(4),
        _ => None,
    }
}

/// The lanes of a request in one space, with their addresses, in the order of lanes.
struct Lanes {
    count: usize,
    lane: [u8; LANES],
    address: [u64; LANES],
}

impl Lanes {
    fn new() -> Lanes {
        Lanes { count: 0, lane: [0; LANES], address: [0; LANES] }
    }

    fn push(&mut self, lane: usize, address: u64) {
        (self.lane[self.count], self.address[self.count]) = (lane as u8, address);
        self.count += 1;
    }

    fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.lane[..self.count].iter().zip(&self.address).map(|(&lane, &address)| (usize::from(lane), address))
    }

    /// Distinct sectors, each of which is given to `each`, and distinct bytes. Accesses are aligned to their size, so two
    /// of them are the same or apart.
    fn sectors(&self, bytes: u64, mut each: impl FnMut(u64)) -> (u64, u64) {
        let mut sorted = self.address;
        let sorted = &mut sorted[..self.count];
        if !sorted.is_sorted() {
            sorted.sort_unstable();
        }
        let (mut sectors, mut used) = (0, 0);
        let (mut address_before, mut sector_before) = (None, None);
        for &address in sorted.iter() {
            if address_before == Some(address) {
                continue;
            }
            address_before = Some(address);
            used += bytes;
            for sector in address >> 5..=(address + bytes - 1) >> 5 {
                if sector_before.is_none_or(|before| sector > before) {
                    sector_before = Some(sector);
                    sectors += 1;
                    each(sector);
                }
            }
        }
        (sectors, used)
    }

    /// Passes over the banks, and groups of lanes that need at least one.
    fn wavefronts(&self, bytes: u64) -> (u64, u64) {
        let group = match bytes {
            0..=4 => 32,
            5..=8 => 16,
            _ => 8,
        };
        let (mut passes, mut groups) = (0, 0);
        let mut at = 0;
        while at < self.count {
            let of = usize::from(self.lane[at]) / group;
            let end = (at..self.count).find(|&i| usize::from(self.lane[i]) / group != of).unwrap_or(self.count);
            // Lanes of more than 16 bytes take several turns of 16.
            for part in 0..bytes.div_ceil(16).max(1) {
                let piece = (bytes - 16 * part).min(16);
                groups += 1;
                passes += passes_of(&self.address[at..end], 16 * part, piece);
            }
            at = end;
        }
        (passes, groups)
    }
}

/// The most distinct words that one of the 32 banks has to give to lanes that access `bytes` at `offset` of their addresses.
fn passes_of(addresses: &[u64], offset: u64, bytes: u64) -> u64 {
    // A group asks for at most 32 words: 32 lanes of one, 16 of two, 8 of four.
    let mut words = [0u64; LANES];
    let mut n = 0;
    for &address in addresses {
        let first = (address + offset) >> 2;
        for word in first..=(address + offset + bytes - 1) >> 2 {
            if n < LANES {
                words[n] = word;
                n += 1;
            }
        }
    }
    let words = &mut words[..n];
    if words.windows(2).all(|w| w[1] == w[0] + 1) {
        return 1;
    }
    words.sort_unstable();
    let mut banks = [0u8; 32];
    let mut before = None;
    for &word in words.iter() {
        if before != Some(word) {
            banks[(word & 31) as usize] += 1;
            before = Some(word);
        }
    }
    u64::from(banks.into_iter().max().unwrap_or(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_warps_count_like_any_other() {
        for bytes in [1, 2, 4, 8, 16, 32] {
            for (start, step) in [(0, bytes), (bytes, bytes), (4096 * 32 - 64, bytes), (64, 0)] {
                let warp = lanes(!0, |l| start + l * step);
                let (mut one_by_one, mut at_once) = (Touched::default(), Touched::default());
                for store in [false, true, false] {
                    let (sectors, used) = warp.sectors(bytes, |s| one_by_one.mark(s, !store, store));
                    let first = 0x1_0000 + start;
                    let span = if step == 0 { bytes } else { 32 * bytes };
                    assert_eq!((at_once.mark_all(first >> 5, (first + span - 1) >> 5, store), span), (sectors, used));
                    assert_eq!((at_once.loaded, at_once.stored), (one_by_one.loaded, one_by_one.stored));
                }
                if let Some(passes) = regular_passes(bytes) {
                    assert_eq!((passes, passes), warp.wavefronts(bytes), "{bytes} bytes, step {step}");
                }
            }
        }
    }

    /// Lane `l` of `lanes` at `base + f(l)`.
    fn lanes(active: u32, f: impl Fn(u64) -> u64) -> Lanes {
        let mut all = Lanes::new();
        for lane in lanes_of(active) {
            all.push(lane, 0x1_0000 + f(lane as u64));
        }
        all
    }

    fn sectors(lanes: &Lanes, bytes: u64) -> (u64, u64) {
        lanes.sectors(bytes, |_| {})
    }

    /// By hand, from the definition of a sector: 32 lanes of b bytes that lie s bytes apart touch ceil(32 s / 32) sectors for
    /// s up to 32 (base aligned to a sector), and one each beyond.
    #[test]
    fn sectors_of_strided_and_shared_accesses() {
        for (bytes, stride, want, used) in [
            (4, 4, 4, 128),
            (8, 8, 8, 256),
            (16, 16, 16, 512),
            (4, 8, 8, 128),
            (4, 32, 32, 128),
            (4, 128, 32, 128),
            (1, 1, 1, 32),
            (2, 2, 2, 64),
            (4, 0, 1, 4),
            (32, 32, 32, 1024),
        ] {
            assert_eq!(sectors(&lanes(!0, |l| l * stride), bytes), (want, used), "{bytes} bytes every {stride}");
        }
        // One element past alignment: five sectors instead of four.
        assert_eq!(sectors(&lanes(!0, |l| 4 + 4 * l), 4), (5, 128));
        // The order of lanes does not matter; half of the lanes touch half of the sectors.
        assert_eq!(sectors(&lanes(!0, |l| 4 * (31 - l)), 4), (4, 128));
        assert_eq!(sectors(&lanes(0xffff, |l| 4 * l), 4), (2, 64));
        // Pairs of lanes share an address.
        assert_eq!(sectors(&lanes(!0, |l| l / 2 * 4), 4), (2, 64));
    }

    /// By hand: bank = word mod 32; words of one bank that differ take a pass each ("CUDA C++ Programming Guide", shared
    /// memory, figures "Strided Shared Memory Accesses" and "Irregular Shared Memory Accesses").
    #[test]
    fn wavefronts_of_shared_accesses() {
        for (bytes, stride, passes, groups) in [
            (4, 4, 1, 1),
            (4, 8, 2, 1),    // stride of two words: two-way conflict
            (4, 12, 1, 1),   // stride of three words: none
            (4, 128, 32, 1), // all lanes in one bank
            (4, 132, 1, 1),  // padded column
            (4, 0, 1, 1),    // broadcast
            (1, 1, 1, 1),    // four lanes a word
            (2, 2, 1, 1),
            (8, 8, 2, 2),   // 64 bits: half-warps
            (8, 16, 4, 2),  // each half-warp two-way
            (16, 16, 4, 4), // 128 bits: quarter-warps
            (16, 32, 8, 4),
            (16, 0, 4, 4),
        ] {
            assert_eq!(lanes(!0, |l| l * stride).wavefronts(bytes), (passes, groups), "{bytes} bytes every {stride}");
        }
        // A half-warp that is not there needs no pass.
        assert_eq!(lanes(0xffff, |l| 8 * l).wavefronts(8), (1, 1));
        assert_eq!(lanes(0xff00_00ff, |l| 16 * l).wavefronts(16), (2, 2));
        // Lanes 0 and 16 of one half of the mask each: both halves.
        assert_eq!(lanes(0x0001_0001, |l| 8 * l).wavefronts(8), (2, 2));
    }

    #[test]
    fn touched_sectors_are_counted_once() {
        let mut touched = Touched::default();
        for sector in [0, 1, 1, 4096, 1 << 40, 0] {
            touched.mark(sector, true, false);
        }
        assert_eq!((touched.loaded, touched.stored), (4, 0));
        // Stored to, then loaded: nothing has to come from memory.
        touched.mark(7, false, true);
        touched.mark(7, true, false);
        touched.mark(0, false, true);
        assert_eq!((touched.loaded, touched.stored), (4, 2));
    }

    #[test]
    fn a_fused_operation_counts_twice() {
        let mut m = Metrics::default();
        m.work(Work::Fadd, 32);
        m.work(Work::Ffma, 10);
        m.work(Work::Hfma(2), 3);
        m.work(Work::Tensor(4096), 32);
        assert_eq!((m.flop(), m.tensor, m.hfma), (32 + 20 + 12, 4096, 6));
    }
}
