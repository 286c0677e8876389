//! Accesses of matrix instructions: which bytes each lane reads or writes.

use super::access::Run;
use super::copy::{record, weak};
use super::shadow::TOGETHER;
use super::state::RaceCheck;
use crate::pieces;
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::fragment::Piece;
use warpsmith_simt::machine::note::{Does, Note};
use warpsmith_simt::machine::{Cx, Op};

/// Before `ldmatrix`, `stmatrix`, `wmma.load` or `wmma.store`.
///
/// # Safety
/// The contract of handlers; the note is the operation's.
pub(super) unsafe fn accessed(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32, note: &Note) {
    if cx.active != cx.live || cx.active != !0 {
        // It will be executed when all lanes are here, or refused.
        return;
    }
    // SAFETY: by the contract.
    let (mut pieces, stores) = unsafe { pieces::of_matrix(cx, op, note.taint) };
    let inside = |p: &Piece| !p.shared || p.at.checked_add(p.bytes).is_some_and(|end| end <= cx.shared_bytes.into());
    if pieces.iter().any(|p| p.at % p.bytes != 0 || !inside(p)) {
        return;
    }
    let bytes: u64 = pieces.iter().filter(|p| p.lane == 0).map(|p| p.bytes).sum();
    let access = weak(if stores { Does::Store } else { Does::Load }, bytes as u32);
    // SAFETY: by the contract.
    unsafe { record(c, cx, op, (pc, warp), &access, &runs(&mut pieces), None) }
}

/// Pieces as runs: what a lane has side by side together, then neighbouring lanes side by side.
fn runs(pieces: &mut [Piece]) -> Vec<Run> {
    pieces.sort_unstable_by_key(|p| (p.shared, p.at, p.lane));
    let mut parts: Vec<Run> = Vec::new();
    for p in pieces.iter() {
        let (place, lanes) = (if p.shared { Place::Shared } else { Place::Global }, 1u32 << p.lane);
        match parts.last_mut() {
            Some(last) if (last.place, last.first, last.bytes) == (place, p.at, p.bytes) => last.lanes |= lanes,
            Some(last)
                if (last.place, last.first.wrapping_add(last.bytes), last.lanes) == (place, p.at, lanes)
                    && last.bytes == p.bytes
                    && last.first % (2 * p.bytes) == 0 =>
            {
                last.bytes *= 2;
            }
            _ => parts.push(Run { place, first: p.at, bytes: p.bytes, lanes, shift: TOGETHER }),
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    // Bytes of one lane of the last run.
    let mut each = 0;
    for part in parts {
        match runs.last_mut() {
            Some(run)
                if part.bytes == each
                    && part.bytes.is_power_of_two()
                    && (part.place, part.first) == (run.place, run.first.wrapping_add(run.bytes))
                    && (run.shift != TOGETHER || run.lanes.is_power_of_two())
                    && u64::from(part.lanes) == 2 << (31 - run.lanes.leading_zeros()) =>
            {
                run.lanes |= part.lanes;
                run.bytes += part.bytes;
                run.shift = each.trailing_zeros() as u8;
            }
            _ => {
                each = part.bytes;
                runs.push(part);
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(lane: usize, at: u64, bytes: u64) -> Piece {
        Piece { lane, row: 0, wide: false, bit: 0, shared: true, at, bytes }
    }

    #[test]
    fn rows_of_a_matrix_are_runs_of_four_bytes_a_lane() {
        // `ldmatrix`, by the ISA: lane l holds elements 2 (l mod 4) and the next of row l / 4, of 2 bytes each. Rows 16 bytes apart
        // are one run of 32 lanes, rows 80 bytes apart eight of four.
        for (step, count) in [(16, 1), (80, 8)] {
            let mut pieces: Vec<Piece> =
                (0..64).map(|i| piece(i / 2, (i as u64 / 8) * step + (i as u64 % 8) * 2, 2)).collect();
            let runs = runs(&mut pieces);
            assert_eq!(runs.len(), count);
            for (r, run) in runs.iter().enumerate() {
                let lanes = if count == 1 { !0 } else { 15 << (4 * r) };
                assert_eq!((run.first, run.lanes, run.shift), (r as u64 * step, lanes, 2));
                assert_eq!(run.bytes, 128 / count as u64);
            }
        }
    }

    #[test]
    fn lanes_that_share_a_place_are_together() {
        let mut pieces = [piece(3, 8, 2), piece(9, 8, 2), piece(3, 10, 2)];
        let runs = runs(&mut pieces);
        assert_eq!(runs.len(), 2);
        assert_eq!((runs[0].lanes, runs[0].shift, runs[0].bytes), (1 << 3 | 1 << 9, TOGETHER, 2));
        assert_eq!((runs[1].first, runs[1].lanes), (10, 1 << 3));
    }
}
