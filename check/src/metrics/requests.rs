//! What accesses cost.

use super::Metrics;
use super::lanes::{Lanes, regular_passes};
use crate::touched::Touched;
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::{Access, Does, Taint, Where};
use warpsmith_simt::machine::space::{Pattern, SHARED_WINDOW, classify, place_of};
#[cfg(target_arch = "x86_64")]
use warpsmith_simt::machine::vector;
use warpsmith_simt::machine::words::{Bulk, CopyAsync, Words};
use warpsmith_simt::machine::{Cx, Op, bulk, fill, fragment, remote};

impl Metrics {
    /// Counts an access by the active lanes.
    ///
    /// # Safety
    /// The contract of handlers: `access` describes `op`.
    pub(crate) unsafe fn access(&mut self, cx: &Cx, op: &Op, access: &Access, result: bool, touched: &mut Touched) {
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
            // SAFETY: by the contract.
            Pattern::Mixed => return unsafe { self.banked(cx, op, access, touched.fast) },
        };
        let store = access.does == Does::Store;
        match access.at {
            Where::Shared32 | Where::Shared64 => {
                let Some(passes) = regular_passes(bytes) else { return false };
                self.undisturbed(store, passes);
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

    /// Counts an access of shared memory by a whole warp without bank conflicts.
    fn undisturbed(&mut self, store: bool, passes: u64) {
        if store {
            self.shared_store_requests += 1;
            self.shared_store_wavefronts += passes;
        } else {
            self.shared_load_requests += 1;
            self.shared_load_wavefronts += passes;
        }
    }

    /// Counts a load or store by a whole warp whose lanes together use every bank once a pass, in any order; `false` if it is
    /// another, or there is no fast way to tell.
    ///
    /// # Safety
    /// As for [`access`](Metrics::access); with `fast`, the CPU has AVX2.
    unsafe fn banked(&mut self, cx: &Cx, op: &Op, access: &Access, fast: bool) -> bool {
        let wide = match access.at {
            Where::Shared32 => false,
            Where::Shared64 => true,
            _ => return false,
        };
        let bytes = access.bytes();
        let Some(passes) = regular_passes(bytes).filter(|_| fast && bytes.is_power_of_two()) else { return false };
        // SAFETY: by the contract.
        let at = std::array::from_fn(|lane| unsafe {
            let (row, lane) = (cx.src(op.a), lane.min(31));
            let base = if wide { lane_of::<u64>(row, lane) } else { lane_of::<u32>(row, lane).into() };
            base.wrapping_add(op.imm) & 0xffff_ffff
        });
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by the contract.
        if at.iter().all(|at| at & (bytes - 1) == 0) && unsafe { vector::permutes(&at, bytes) } {
            self.undisturbed(access.does == Does::Store, passes);
            return true;
        }
        let _: ([u64; 33], u64) = (at, passes);
        false
    }

    /// Counts an asynchronous copy: a request to global memory, and its stores to shared memory.
    ///
    /// # Safety
    /// The contract of [`copy_async`](warpsmith_simt::machine::mem::copy_async).
    pub(crate) unsafe fn copy_async(&mut self, cx: &Cx, op: &Op, touched: &mut Touched) {
        let bytes = (op.imm >> 32).max(1);
        let (mut from, mut to) = (Lanes::new(), Lanes::new());
        // SAFETY: by the contract, the list is a `CopyAsync`.
        unsafe {
            let CopyAsync { from_offset, wide, .. } = CopyAsync::of(cx, op);
            let offset = from_offset.bits();
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

    /// Counts `ldmatrix`, `stmatrix`, `wmma.load` or `wmma.store`.
    ///
    /// # Safety
    /// The contract of handlers: `taint` says which of them `op` is.
    pub(crate) unsafe fn matrix(&mut self, cx: &Cx, op: &Op, taint: Taint, touched: &mut Touched) {
        if cx.active != !0 {
            // It will be executed when all lanes are here, or refused.
            return;
        }
        let does = match taint {
            Taint::StoreMatrix | Taint::StoreTile => Does::Store,
            _ => Does::Load,
        };
        let (mut addresses, mut shared, mut bytes) = (Vec::new(), false, 1);
        // SAFETY: by the contract; all lanes are here.
        unsafe {
            if matches!(taint, Taint::LoadMatrix | Taint::StoreMatrix) {
                let mut lanes = Lanes::new();
                fragment::matrix_rows(cx, op, |lane, at| lanes.push(lane, at));
                self.shared(&lanes, 16, does);
                return;
            }
            fragment::tile_pieces(cx, op, |p| {
                (shared, bytes) = (p.shared, p.bytes);
                addresses.push(p.at);
            });
        }
        let store = does == Does::Store;
        let cost = fragment::Cost::of(&mut addresses, bytes);
        match (shared, store) {
            (true, false) => {
                self.shared_load_requests += 1;
                self.shared_load_wavefronts += cost.passes;
                self.shared_load_conflicts += cost.passes - cost.ideal;
            }
            (true, true) => {
                self.shared_store_requests += 1;
                self.shared_store_wavefronts += cost.passes;
                self.shared_store_conflicts += cost.passes - cost.ideal;
            }
            (false, _) => {
                cost.sectors.iter().for_each(|&sector| touched.mark(sector, !store, store));
                let sums = match store {
                    false => {
                        [&mut self.global_load_requests, &mut self.global_load_sectors, &mut self.global_load_bytes]
                    }
                    true => {
                        [&mut self.global_store_requests, &mut self.global_store_sectors, &mut self.global_store_bytes]
                    }
                };
                for (sum, new) in sums.into_iter().zip([1, cost.sectors.len() as u64, cost.bytes]) {
                    *sum += new;
                }
            }
        }
    }

    /// Counts `st.async` and `red.async`.
    ///
    /// # Safety
    /// The contract of [`store_async`](remote::store_async).
    pub(crate) unsafe fn store_async(&mut self, cx: &Cx, op: &Op) {
        let mut lanes = Lanes::new();
        let (mut bytes, mut does) = (1, Does::Store);
        for lane in lanes_of(cx.active) {
            // SAFETY: by the contract.
            let target = unsafe { remote::Target::of(cx, op, lane) };
            lanes.push(lane, target.to.1);
            bytes = target.bytes();
            does = if target.reduces() { Does::Atomic } else { Does::Store };
        }
        self.shared(&lanes, bytes, does);
    }

    /// Counts the bulk stores of the active lanes: a wavefront for each 128 bytes, since each lane's are contiguous.
    ///
    /// # Safety
    /// The contract of [`fill`](warpsmith_simt::machine::fill).
    pub(crate) unsafe fn store_bulk(&mut self, cx: &Cx, op: &Op) {
        self.shared_store_requests += 1;
        for lane in lanes_of(cx.active) {
            // SAFETY: by the contract.
            let (_, bytes) = unsafe { fill::range(cx, op, lane) };
            self.shared_store_wavefronts += bytes.div_ceil(128);
        }
    }

    /// Counts the bulk copies of the active lanes: their side in global memory.
    ///
    /// # Safety
    /// The contract of [`bulk_copy`](bulk::bulk_copy).
    pub(crate) unsafe fn copy_bulk(&mut self, cx: &Cx, op: &Op, touched: &mut Touched) {
        for lane in lanes_of(cx.active) {
            // SAFETY: by the contract; the list is a `Bulk`.
            let (bytes, to, from, reduces) = unsafe {
                let list = Bulk::of(cx, op);
                let (to, from) = bulk::ends(cx, op, &list, lane);
                (u64::from(lane_of::<u32>(cx.src(op.c), lane)), to, from, list.reduction != bulk::NO_REDUCTION)
            };
            let store = to.0 == Place::Global;
            let (place, at) = if store { to } else { from };
            // What cannot be copied stops the launch.
            if place != Place::Global || bytes == 0 || !bulk::reaches(cx, at, bytes) {
                continue;
            }
            let sectors = touched.mark_all(at >> 5, (at + bytes - 1) >> 5, store);
            let (requests, sum, used) = match (store, reduces) {
                (false, _) => {
                    (&mut self.global_copy_requests, &mut self.global_copy_sectors, Some(&mut self.global_copy_bytes))
                }
                (true, false) => (
                    &mut self.global_store_requests,
                    &mut self.global_store_sectors,
                    Some(&mut self.global_store_bytes),
                ),
                (true, true) => (&mut self.global_red_requests, &mut self.global_red_sectors, None),
            };
            *requests += 1;
            *sum += sectors;
            if let Some(used) = used {
                *used += bytes;
            }
        }
    }

    fn global(&mut self, lanes: &Lanes, bytes: u64, does: Does, result: bool, touched: &mut Touched) {
        if lanes.count == 0 {
            return;
        }
        let (load, store) = (does != Does::Store, does != Does::Load);
        // Sectors come in their order: 64 of them are marked at once.
        let (mut word, mut bits) = (0, 0);
        let (sectors, used) = lanes.sectors(bytes, |sector| {
            if sector >> 6 != word {
                touched.mark_word(word, bits, load, store);
                (word, bits) = (sector >> 6, 0);
            }
            bits |= 1 << (sector & 63);
        });
        touched.mark_word(word, bits, load, store);
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
            for word in at / 4..at.saturating_add(bytes).div_ceil(4) {
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
