//! Loads and stores of whole warps whose lanes do not lie side by side but in one allocation, with AVX2.

use std::array::from_fn;

use super::element::Elem;
use super::lanes::lane_of;
use super::space::{Pattern, Space, count, count_banks, count_sectors, sectors};
use super::vector::{self, Survey};
use super::words::{Plain, Words};
use super::{Cx, LANES, Op, Site};

/// Where all lanes' addresses are, if they are all in one allocation and aligned.
#[inline(always)]
unsafe fn located<S: Space, const WRITE: bool>(
    cx: &mut Cx,
    op: &Op,
    offset: u64,
    bytes: u64,
    to: &mut [u64; LANES + 1],
) -> Option<(Site, Survey)> {
    // SAFETY: the contract of handlers: `a` is a row of addresses; the caller runs with AVX2.
    unsafe {
        let row = cx.src(op.a);
        let wide = size_of::<S::Address>() == 8;
        let first = if wide { lane_of::<u64>(row, 0) } else { lane_of::<u32>(row, 0).into() };
        let site = S::region::<WRITE>(cx, Plain::of(cx, op).site as usize, first.wrapping_add(offset))?;
        let range = (site.base, site.size.checked_sub(bytes)?);
        let found = match wide {
            true => vector::survey::<true>(row, offset, bytes, range, to),
            false => vector::survey::<false>(row, offset, bytes, range, to),
        };
        found.inside.then_some((site, found))
    }
}

/// Counts an access that was [`located`].
#[inline(always)]
unsafe fn counted<S: Space>(cx: &mut Cx, store: bool, at: &[u64; LANES + 1], bytes: u64, found: &Survey) {
    count::<S>(cx, store, LANES as u32, bytes, Pattern::Mixed);
    if S::SHARED {
        // SAFETY: the caller runs with AVX2.
        if !unsafe { vector::permutes(at, bytes) } {
            count_banks(cx, &at[..LANES], bytes);
        }
    } else {
        let n = if found.rises {
            (u64::from(found.changes) + 1) * bytes.div_ceil(32)
        } else {
            sectors(&at[..LANES], bytes)
        };
        count_sectors(cx, store, n);
    }
}

/// A load of all lanes from anywhere in one allocation; `false`, and nothing is done, if it is not that.
///
/// # Safety
/// The contract of handlers; all lanes are active, and the CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn load_each<S: Space, E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> bool {
    let bytes = (N * size_of::<E>()) as u64;
    let mut at = [0; LANES + 1];
    // SAFETY: the contract of handlers; what is located lies in the allocation.
    unsafe {
        let Some((site, found)) = located::<S, false>(cx, op, offset, bytes, &mut at) else { return false };
        counted::<S>(cx, false, &at, bytes, &found);
        let to: [*mut u8; N] = from_fn(|j| cx.dst(Plain::row(cx, op, j)));
        let from = |lane: usize| site.host.cast_const().wrapping_add(at[lane].wrapping_sub(site.base) as usize);
        if size_of::<E>() == 4 && N == 4 {
            vector::gather(from, site.key as u32, &from_fn(|j| to[j % N]));
            return true;
        }
        if N == 1 && found.quads {
            // Four lanes at a time.
            for k in 0..LANES / 4 {
                let four: [E; 4] = from(4 * k).cast::<[E; 4]>().read_unaligned();
                to[0].cast::<[E::Raw; 4]>().add(k).write(four.map(|v| v.xor(site.key).put()));
            }
            return true;
        }
        for lane in 0..LANES {
            let values = from(lane).cast::<[E; N]>().read_unaligned();
            for (value, to) in values.into_iter().zip(to) {
                to.cast::<E::Raw>().add(lane).write(value.xor(site.key).put());
            }
        }
    }
    true
}

/// A store of all lanes to anywhere in one allocation, as [`load_each`]. Of lanes that store to one address, the highest
/// wins.
///
/// # Safety
/// As for [`load_each`].
#[inline(always)]
pub(super) unsafe fn store_each<S: Space, E: Elem, const N: usize>(cx: &mut Cx, op: &Op, offset: u64) -> bool {
    let bytes = (N * size_of::<E>()) as u64;
    let mut at = [0; LANES + 1];
    // SAFETY: the contract of handlers; what is located lies in the allocation.
    unsafe {
        let Some((site, found)) = located::<S, true>(cx, op, offset, bytes, &mut at) else { return false };
        cx.progress += 1;
        counted::<S>(cx, true, &at, bytes, &found);
        let from: [*const u8; N] = from_fn(|j| cx.src(Plain::row(cx, op, j)));
        for (lane, at) in at[..LANES].iter().enumerate() {
            let values: [E; N] = from_fn(|j| lane_of::<E>(from[j], lane).xor(site.key));
            let to = site.host.wrapping_add(at.wrapping_sub(site.base) as usize);
            to.cast::<[E; N]>().write_unaligned(values);
        }
    }
    true
}
