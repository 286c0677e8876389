//! From an operation to the runs of bytes that its lanes access.

use super::order::wide;
use super::shadow::{CHUNK, Span, TOGETHER, flag};
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::memory::lookup;
use warpsmith_simt::machine::note::{Access, Does, Order, Where};
use warpsmith_simt::machine::space::{Pattern, SHARED_WINDOW, classify, place_of};
#[cfg(target_arch = "x86_64")]
use warpsmith_simt::machine::vector;
use warpsmith_simt::machine::words::{Plain, Words};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// Lanes that access bytes of one place: side by side, `1 << shift` each, or all the same ([`TOGETHER`]).
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub place: Place,
    pub first: u64,
    pub bytes: u64,
    pub lanes: u32,
    pub shift: u8,
}

/// A lane's address as its register and the operation give it, and the place that it is in.
///
/// # Safety
/// The contract of handlers; `access` is the operation's.
unsafe fn address(cx: &Cx, op: &Op, access: &Access, lane: usize) -> (Place, u64) {
    // SAFETY: by the contract, `at` says what kind of row `a` is.
    unsafe {
        match access.at {
            Where::Shared32 => (Place::Shared, u64::from(lane_of::<u32>(cx.src(op.a), lane)).wrapping_add(op.imm)),
            Where::Shared64 => (Place::Shared, lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm)),
            Where::Global => (Place::Global, lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm)),
            _ => {
                let address = lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm);
                match place_of(address) {
                    Place::Shared => (Place::Shared, address.wrapping_sub(SHARED_WINDOW)),
                    place => (place, address),
                }
            }
        }
    }
}

/// Adds to `list` where the active lanes access memory that others can access too; nothing if the access will fault.
///
/// # Safety
/// As for [`address`]; with `fast`, the CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn runs(cx: &Cx, op: &Op, access: &Access, fast: bool, list: &mut Vec<Run>) {
    let bytes = access.bytes();
    if !bytes.is_power_of_two() || matches!(access.at, Where::Local32 | Where::Local64 | Where::Frame) {
        return;
    }
    if matches!(access.at, Where::Param | Where::Const) {
        return;
    }
    let active = cx.active;
    let first = active.trailing_zeros() as usize % LANES;
    // SAFETY: by the contract.
    unsafe {
        let (place, at) = address(cx, op, access, first);
        let row = cx.src(op.a);
        let pattern = match (access.at, fast) {
            (Where::Shared32, true) => classify::<u32, true>(row, active, op.imm, bytes),
            (Where::Shared32, false) => classify::<u32, false>(row, active, op.imm, bytes),
            (_, true) => classify::<u64, true>(row, active, op.imm, bytes),
            (_, false) => classify::<u64, false>(row, active, op.imm, bytes),
        };
        let shared = matches!(place, Place::Global | Place::Shared);
        let (shift, length) = match pattern {
            Pattern::Mixed => {
                let wide = matches!(access.at, Where::Global | Where::Generic) && active == !0;
                if !(wide && rising(cx, op, bytes, fast, list)) {
                    mixed(cx, op, access, list);
                }
                return;
            }
            Pattern::Linear(_) => (bytes.trailing_zeros() as u8, 32 * bytes),
            Pattern::Same(_) => (TOGETHER, bytes),
        };
        let run = Run { place, first: at, bytes: length, lanes: active, shift };
        if shared && at & (bytes - 1) == 0 && inside(cx, &run) {
            list.push(run);
        }
    }
}

/// Whether shared memory has these bytes. Wild global addresses only cost a page.
fn inside(cx: &Cx, run: &Run) -> bool {
    run.place != Place::Shared || run.first.checked_add(run.bytes).is_some_and(|end| end <= cx.shared_bytes.into())
}

/// Takes lanes whose addresses of global memory rise as runs; `false`, and nothing is added, if they are not that.
///
/// # Safety
/// As for [`address`]; the address row is of 64 bits, and all lanes are active; with `fast`, the CPU has AVX2.
#[inline(always)]
unsafe fn rising(cx: &Cx, op: &Op, bytes: u64, fast: bool, list: &mut Vec<Run>) -> bool {
    let mut at = [0u64; LANES + 1];
    // SAFETY: by the contract.
    let found = unsafe {
        let row = cx.src(op.a);
        #[cfg(target_arch = "x86_64")]
        if fast {
            vector::rises(row, op.imm, bytes, &mut at)
        } else {
            rises(row, op.imm, bytes, &mut at)
        }
        #[cfg(not(target_arch = "x86_64"))]
        rises(row, op.imm, bytes, &mut at)
    };
    // Lanes that do not follow the one before directly.
    let Some(mut apart) = found else { return false };
    let (first, last) = (at[0], at[LANES - 1]);
    // Windows have 4 GiB, so that what lies between two global addresses of the same is global.
    if last < first || first >> 32 != last >> 32 || place_of(first) != Place::Global {
        return false;
    }
    while apart != 0 {
        let from = apart.trailing_zeros();
        apart &= apart - 1;
        let to = if apart == 0 { LANES as u32 } else { apart.trailing_zeros() };
        let lanes = (u32::MAX >> (32 - (to - from))) << from;
        let shift = if to - from == 1 { TOGETHER } else { bytes.trailing_zeros() as u8 };
        let first = at[from as usize % LANES];
        list.push(Run { place: Place::Global, first, bytes: u64::from(to - from) * bytes, lanes, shift });
    }
    true
}

/// Writes 32 addresses of a row of 64 bits to `at`; lanes that do not begin where the one before ends, if none begins before
/// that and all are aligned.
///
/// # Safety
/// `row` points to such a row.
unsafe fn rises(row: *const u8, offset: u64, bytes: u64, at: &mut [u64; LANES + 1]) -> Option<u32> {
    for (lane, at) in at.iter_mut().take(LANES).enumerate() {
        // SAFETY: by the contract.
        *at = unsafe { lane_of::<u64>(row, lane) }.wrapping_add(offset);
    }
    let (mut apart, mut wrong) = (1u32, at[0] & (bytes - 1));
    for lane in 1..LANES {
        let step = at[lane].wrapping_sub(at[lane - 1]);
        apart |= u32::from(step != bytes) << lane;
        wrong |= (at[lane] & (bytes - 1)) | u64::from((step as i64) < bytes as i64);
    }
    (wrong == 0).then_some(apart)
}

#[inline(never)]
unsafe fn mixed(cx: &Cx, op: &Op, access: &Access, list: &mut Vec<Run>) {
    let bytes = access.bytes();
    let inside = |place: Place, first: u64| {
        let run = Run { place, first, bytes, lanes: 0, shift: TOGETHER };
        first & (bytes - 1) == 0 && matches!(place, Place::Global | Place::Shared) && inside(cx, &run)
    };
    let lanes = lanes_of(cx.active).filter_map(|lane| {
        // SAFETY: by the contract of `runs`.
        let (place, first) = unsafe { address(cx, op, access, lane) };
        inside(place, first).then_some((lane, place, first))
    });
    gather(lanes, bytes, list);
}

/// Adds the runs of lanes that access `bytes` bytes each, aligned.
pub(super) fn gather(lanes: impl Iterator<Item = (usize, Place, u64)>, bytes: u64, list: &mut Vec<Run>) {
    // Which addresses have been seen, roughly.
    let mut seen = 0u64;
    for (lane, place, first) in lanes {
        let run = Run { place, first, bytes, lanes: 1 << lane, shift: TOGETHER };
        let bit = 1u64 << ((first >> bytes.trailing_zeros()) & 63);
        let again = seen & bit != 0;
        seen |= bit;
        let same = |r: &&mut Run| (r.place, r.first) == (place, first);
        let known = if again { list.iter_mut().find(same) } else { None };
        match known {
            Some(known) => known.lanes |= run.lanes,
            None => list.push(run),
        }
    }
    // Neighbouring lanes side by side become one run.
    let mut to = 0;
    for from in 0..list.len() {
        let run = list[from];
        let last = &mut list[to.max(1) - 1];
        let next = last.lanes != 0 && run.lanes == (1 << (31 - last.lanes.leading_zeros())) << 1;
        let single = last.shift != TOGETHER || last.lanes & last.lanes.wrapping_sub(1) == 0;
        if to > 0 && next && single && last.place == run.place && last.first.checked_add(last.bytes) == Some(run.first)
        {
            last.shift = bytes.trailing_zeros() as u8;
            last.lanes |= run.lanes;
            last.bytes += bytes;
        } else {
            list[to] = run;
            to += 1;
        }
    }
    list.truncate(to);
}

/// The spans of a run, by chunk address. `like` says who and when.
#[inline(always)]
pub(super) fn spans(run: &Run, like: Span, mut f: impl FnMut(u64, &Span)) {
    // What passes the end of addresses is refused.
    let Some(end) = run.first.checked_add(run.bytes) else { return };
    let mut at = run.first;
    let from = at % CHUNK;
    if from + run.bytes <= CHUNK {
        let to = (from + run.bytes) as u8;
        f(at - from, &Span { from: from as u8, to, lanes: run.lanes, shift: run.shift, ..like });
        return;
    }
    let first_lane = run.lanes.trailing_zeros();
    while at < end {
        let chunk = at / CHUNK * CHUNK;
        let stop = end.min(chunk + CHUNK);
        let lanes = if run.shift == TOGETHER {
            run.lanes
        } else {
            let low = first_lane + ((at - run.first) >> run.shift) as u32;
            let high = first_lane + ((stop - 1 - run.first) >> run.shift) as u32;
            (u32::MAX >> (31 - (high & 31))) & (u32::MAX << (low & 31))
        };
        let (from, to) = ((at - chunk) as u8, (stop - chunk) as u8);
        f(chunk, &Span { from, to, lanes, shift: run.shift, ..like });
        at = stop;
    }
}

/// The flags of an access.
pub(super) fn flags(access: &Access) -> u8 {
    let mut flags = 0;
    if access.writes() {
        flags |= flag::WRITE;
    }
    if access.order.strong() || access.seed {
        flags |= flag::STRONG;
    }
    if access.seed || access.order.strong() && wide(access.scope) {
        flags |= flag::WIDE;
    }
    if access.nc {
        flags |= flag::NC;
    }
    flags
}

/// Whether an atomic has no ordering where the source may have asked for one.
pub(super) fn bare(access: &Access) -> bool {
    access.does == Does::Atomic && access.order == Order::Relaxed && !access.cas
}

/// What memory holds, up to 8 bytes; `None` for addresses outside it.
pub(super) fn held(cx: &Cx, place: Place, address: u64, bytes: u64) -> Option<u64> {
    let n = bytes.min(8);
    let (host, key) = match place {
        Place::Shared => {
            let inside = address.checked_add(n)? <= cx.shared_bytes.into();
            // SAFETY: the offset is inside the block's shared memory.
            (if inside { Some(unsafe { cx.shared.add(address as usize) }) } else { None }?, 0)
        }
        Place::Global => {
            let entry = lookup(&cx.memory, address)?;
            let at = address - entry.base;
            // SAFETY: the offset is inside the allocation, which the snapshot keeps alive.
            (if n <= entry.size - at { Some(unsafe { entry.host().add(at as usize) }) } else { None }?, entry.key)
        }
        _ => return None,
    };
    let mut value = [0u8; 8];
    for (i, byte) in value.iter_mut().enumerate().take(n as usize) {
        // SAFETY: `n` bytes lie there, as was checked.
        *byte = unsafe { host.add(i).read() } ^ key as u8;
    }
    Some(u64::from_le_bytes(value))
}

/// Element `i` that a lane stores, or the operand of its atomic.
///
/// # Safety
/// As for [`address`]; the access writes, and has the element.
pub(super) unsafe fn given(cx: &Cx, op: &Op, access: &Access, lane: usize, i: u32) -> u64 {
    // SAFETY: by the contract: elements follow the site in a store's list; rows of 8-byte elements have 64-bit lanes.
    unsafe {
        let row = if access.does == Does::Atomic { cx.src(op.b) } else { cx.src(Plain::row(cx, op, i as usize)) };
        match access.size {
            8 => lane_of::<u64>(row, lane),
            1 => u64::from(lane_of::<u32>(row, lane) as u8),
            2 => u64::from(lane_of::<u32>(row, lane) as u16),
            _ => lane_of::<u32>(row, lane).into(),
        }
    }
}

/// Whether a store leaves what it overwrites as it is.
///
/// # Safety
/// As for [`given`].
pub(super) unsafe fn silent(cx: &Cx, op: &Op, access: &Access, lane: usize, place: Place, first: u64) -> bool {
    access.does == Does::Store
        && (0..access.count).all(|i| {
            let at = first + u64::from(i * access.size);
            // SAFETY: by the contract.
            held(cx, place, at, access.size.into()) == Some(unsafe { given(cx, op, access, lane, i) })
        })
}

/// The lane's address in the run.
pub(super) fn lane_address(run: &Run, lane: usize) -> u64 {
    if run.shift == TOGETHER {
        return run.first;
    }
    run.first + (u64::from(lane as u32 - run.lanes.trailing_zeros()) << run.shift)
}

/// Whether the atomics of `lanes` will find what they compare with, in lane order; all bits for others than `cas`.
///
/// # Safety
/// As for [`given`], for an atomic.
pub(super) unsafe fn succeed(cx: &Cx, op: &Op, access: &Access, runs: &[Run]) -> u32 {
    if !access.cas {
        return !0;
    }
    let mut success = 0;
    for run in runs {
        let mut known: Option<(u64, u64)> = None;
        for lane in lanes_of(run.lanes) {
            let at = lane_address(run, lane);
            let old = match known {
                Some((address, value)) if address == at => Some(value),
                _ => held(cx, run.place, at, access.size.into()),
            };
            // SAFETY: by the contract; the new value is in row `c`, as wide as `b`.
            let (compare, new) = unsafe {
                let c = cx.src(op.c);
                let new = if access.size == 8 { lane_of::<u64>(c, lane) } else { lane_of::<u32>(c, lane).into() };
                (given(cx, op, access, lane, 0), if access.size == 2 { new & 0xffff } else { new })
            };
            let Some(old) = old else { continue };
            success |= u32::from(old == compare) << lane;
            known = Some((at, if old == compare { new } else { old }));
        }
    }
    success
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_lanes_are_found_alike() {
        let base = 1u64 << 48;
        type Case<'a> = (u64, Option<u32>, &'a dyn Fn(u64) -> u64);
        let cases: [Case<'_>; 6] = [
            (4, Some(0x1111_1111), &|i| base + i / 4 * 512 + i % 4 * 4),
            (16, Some(1), &|i| base + 16 * i),
            (4, Some(!0), &|i| base + 8 * i),
            (4, None, &|i| base + 4 * (i ^ 1)),
            (4, None, &|i| base + 4 * i + u64::from(i == 31)),
            (8, None, &|i| base + 4 * i),
        ];
        for (bytes, want, f) in cases {
            let row: [u64; LANES] = std::array::from_fn(|i| f(i as u64).wrapping_sub(12));
            let (mut at, mut fast) = ([0; LANES + 1], [0; LANES + 1]);
            // SAFETY: the row has 32 words.
            assert_eq!(unsafe { rises(row.as_ptr().cast(), 12, bytes, &mut at) }, want);
            assert!((0..LANES).all(|i| at[i] == f(i as u64)));
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above; AVX2 was detected.
                assert_eq!(unsafe { vector::rises(row.as_ptr().cast(), 12, bytes, &mut fast) }, want);
                assert_eq!(at[..LANES], fast[..LANES]);
            }
        }
    }
}
