//! `mbarrier` objects in shared memory.
//!
//! An object is one 64-bit word, opaque to programs: expected arrivals of the next phase (20 bits), pending arrivals of
//! the current one (20), pending transaction bytes (21, signed), the phase's parity, and a mark of initialised
//! objects that neither zero nor poison has. A token that `arrive` returns is the word as it was before.
//!
//! **Where addresses are.** As for atomics: row `op.a` plus `op.imm`, read as the second word of the list says;
//! the list begins with the cache site. An object has 8 bytes.

use super::atom::address;
use super::bounds::{Place, refuse};
use super::lanes::{lane_of, lanes_of, set_lane};
use super::space::{Shared, Space};
use super::words::{Barrier, Via, Words};
use super::{Cx, Flow, Op};
use crate::fault::{AccessKind, FaultKind, ObjectMisuse, Reason};

/// The largest count that an object holds.
const MOST: u32 = (1 << 20) - 1;
const MARK: u64 = 1 << 62;
const PHASE: u64 = 1 << 61;

/// A decoded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    expected: u32,
    pending: u32,
    /// Bytes that are still to come.
    bytes: i32,
    odd: bool,
}

impl Object {
    fn pack(self) -> u64 {
        u64::from(self.expected)
            | u64::from(self.pending) << 20
            | (self.bytes as u64 & 0x1f_ffff) << 40
            | if self.odd { PHASE } else { 0 }
            | MARK
    }

    fn unpack(word: u64) -> Option<Object> {
        (word >> 62 == 1).then_some(Object {
            expected: word as u32 & MOST,
            pending: (word >> 20) as u32 & MOST,
            bytes: ((word >> 40) as i32) << 11 >> 11,
            odd: word & PHASE != 0,
        })
    }

    /// Begins the next phase if nothing is missing in this one.
    fn advance(mut self) -> Object {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.expected;
            self.odd = !self.odd;
        }
        self
    }

    /// Whether the phase that a test asks about is complete.
    ///
    /// # Safety
    /// The contract of handlers; the operation is a test.
    unsafe fn passed(self, cx: &Cx, op: &Op, lane: usize, word: u64) -> bool {
        // SAFETY: by the contract: row `b` has 32 bits for a parity and 64 for a token.
        unsafe {
            if Barrier::of(cx, op).what & act::PARITY != 0 {
                (lane_of::<u32>(cx.src(op.b), lane) & 1 != 0) != self.odd
            } else {
                (lane_of::<u64>(cx.src(op.b), lane) ^ word) & PHASE != 0
            }
        }
    }

    fn arrive(mut self, count: u32, drop: bool) -> Result<Object, ObjectMisuse> {
        if count == 0 || count > self.pending {
            return Err(ObjectMisuse::Arrivals { count, pending: self.pending });
        }
        self.pending -= count;
        if drop {
            self.expected = self.expected.saturating_sub(count);
        }
        Ok(self)
    }

    fn expect(mut self, bytes: i64) -> Result<Object, ObjectMisuse> {
        let sum = i64::from(self.bytes) + bytes;
        if sum.unsigned_abs() > u64::from(MOST) {
            return Err(ObjectMisuse::Bytes { bytes: sum, most: MOST });
        }
        self.bytes = sum as i32;
        Ok(self)
    }
}

/// What an operation does; the third word of its list.
pub mod act {
    /// `op.b`: the count.
    pub const INIT: u32 = 0;
    pub const INVAL: u32 = 1;
    /// `op.b`: how many arrive; with [`EXPECT`], `op.c`: bytes to wait for; `op.d`: the token, unless [`SILENT`].
    pub const ARRIVE: u32 = 2;
    /// `op.b`: bytes.
    pub const EXPECT_TX: u32 = 3;
    pub const COMPLETE_TX: u32 = 4;
    /// `op.p`: whether the phase of the token in `op.b` (64 bits), or of the parity there, is complete.
    pub const TEST: u32 = 5;
    /// `cp.async.mbarrier.arrive`: the thread's copies are complete already, so that it arrives at once; without
    /// `.noinc` it had been added to the pending ones, which leaves all as it was.
    pub const ASYNC: u32 = 6;
    pub const KIND: u32 = 15;
    pub const DROP: u32 = 16;
    pub const EXPECT: u32 = 32;
    pub const NO_COMPLETE: u32 = 64;
    pub const PARITY: u32 = 128;
    pub const NO_INC: u32 = 256;
    pub const SILENT: u32 = 512;
    /// `.relaxed`: orders nothing, which only the check of races asks for.
    pub const RELAXED: u32 = 1024;
}

/// The object at a lane's address: where it is in host memory.
unsafe fn object(cx: &mut Cx, op: &Op, lane: usize) -> Result<*mut u64, Flow> {
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        let (place, at) = address(cx, op, lane);
        let site = Via::of(cx, op).site as usize;
        let inside = place == Place::Shared && at & 7 == 0;
        match if inside { Shared::<u64>::resolve::<true>(cx, site, at, 8) } else { None } {
            Some((host, _)) => Ok(host.cast()),
            None => Err(refuse(cx, op, place, lane, at, 8, AccessKind::Mbarrier)),
        }
    }
}

/// Tells the observer that a phase of the object at this offset has ended.
fn ended(cx: &mut Cx, at: usize) {
    cx.observe(|o, _| o.phase_ended(at as u64));
}

/// What an operation is about to do to the order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A new object: what was known of the old one does not count.
    New,
    /// An arrival.
    Release,
    /// A wait that finds its phase complete.
    Acquire,
}

/// The edge of a lane, the object's offset in shared memory, and whether the operation itself is ordered (else fences
/// have to be).
///
/// # Safety
/// The contract of handlers, for `mbarrier`.
pub unsafe fn edge(cx: &mut Cx, op: &Op, lane: usize) -> Option<(u64, Edge, bool)> {
    // SAFETY: by the contract; `resolve` vouches for the range that it returns.
    unsafe {
        let (place, at) = address(cx, op, lane);
        if place != Place::Shared || at & 7 != 0 {
            return None;
        }
        let Barrier { at: Via { site, .. }, what } = Barrier::of(cx, op);
        let ordered = what & act::RELAXED == 0;
        match what & act::KIND {
            act::INIT => Some((at, Edge::New, true)),
            act::ARRIVE | act::ASYNC => Some((at, Edge::Release, ordered)),
            act::TEST => {
                let (host, _) = Shared::<u64>::resolve::<true>(cx, site as usize, at, 8)?;
                let word = host.cast::<u64>().read_unaligned();
                Object::unpack(word)?.passed(cx, op, lane, word).then_some((at, Edge::Acquire, ordered))
            }
            _ => None,
        }
    }
}

fn misuse(cx: &mut Cx, op: &Op, lane: usize, misuse: ObjectMisuse) -> Flow {
    cx.raise(op, FaultKind::BarrierMisuse, lane as u32, None, Some(Reason::Object(misuse)))
}

/// The handler of every `mbarrier` operation on an object.
pub unsafe fn mbarrier(cx: &mut Cx, op: &Op) -> Flow {
    use act::{ARRIVE, ASYNC, COMPLETE_TX, EXPECT_TX, INIT, INVAL, KIND, TEST};
    // SAFETY: the contract of handlers: rows have the widths that `act` says.
    unsafe {
        let what = Barrier::of(cx, op).what;
        let (mut passed, active) = (0u32, cx.active);
        for lane in lanes_of(active) {
            let at = match object(cx, op, lane) {
                Ok(at) => at,
                Err(flow) => return flow,
            };
            let word = at.read_unaligned();
            if what & KIND == INIT {
                let count = lane_of::<u32>(cx.src(op.b), lane);
                if count == 0 || count > MOST {
                    return misuse(cx, op, lane, ObjectMisuse::Count { count, most: MOST });
                }
                let new = Object { expected: count, pending: count, bytes: 0, odd: false };
                at.write_unaligned(new.pack());
                cx.progress += 1;
                continue;
            }
            let Some(old) = Object::unpack(word) else {
                return misuse(cx, op, lane, ObjectMisuse::Uninitialised);
            };
            let new = match what & KIND {
                INVAL => {
                    at.write_unaligned(0);
                    cx.progress += 1;
                    continue;
                }
                TEST => {
                    passed |= u32::from(old.passed(cx, op, lane, word)) << lane;
                    continue;
                }
                ARRIVE => {
                    let count = lane_of::<u32>(cx.src(op.b), lane);
                    let waited = match what & act::EXPECT {
                        0 => Ok(old),
                        _ => old.expect(lane_of::<u32>(cx.src(op.c), lane).into()),
                    };
                    waited.and_then(|o| o.arrive(count, what & act::DROP != 0)).map(Object::advance)
                }
                EXPECT_TX => old.expect(lane_of::<u32>(cx.src(op.b), lane).into()),
                COMPLETE_TX => old.expect(-i64::from(lane_of::<u32>(cx.src(op.b), lane))).map(Object::advance),
                ASYNC if what & act::NO_INC != 0 => old.arrive(1, false).map(Object::advance),
                _ => Ok(old),
            };
            let new = match new {
                Ok(new) => new,
                Err(wrong) => return misuse(cx, op, lane, wrong),
            };
            if what & act::NO_COMPLETE != 0 && new.odd != old.odd {
                return misuse(cx, op, lane, ObjectMisuse::Completes);
            }
            at.write_unaligned(new.pack());
            cx.progress += 1;
            if new.odd != old.odd {
                ended(cx, at as usize - cx.shared as usize);
            }
            if what & (KIND | act::SILENT) == ARRIVE {
                set_lane::<u64>(cx.dst(op.d), lane, word);
            }
        }
        if what & KIND == TEST {
            cx.set_pred(op.p, passed);
            cx.sync_seen = true;
            if passed != active {
                // Whoever waits in a loop makes way at its next turn.
                cx.spins = cx.spins.saturating_add(super::context::SPINS);
            }
        }
    }
    Flow::Next
}

/// `mbarrier.pending_count`: row `d` (32 bits) gets the pending arrivals in the token in row `a`.
pub unsafe fn pending_count(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers: `a` is a row of 64 bits, `d` one of 32.
    unsafe {
        for lane in lanes_of(cx.active) {
            let token = lane_of::<u64>(cx.src(op.a), lane);
            match Object::unpack(token) {
                Some(object) => set_lane::<u32>(cx.dst(op.d), lane, object.pending),
                None => return misuse(cx, op, lane, ObjectMisuse::Token),
            }
        }
    }
    Flow::Next
}

/// Bytes of an asynchronous copy have come: completes them at the object at shared offset `at`.
pub(super) unsafe fn complete(
    cx: &mut Cx,
    op: &Op,
    lane: usize,
    (place, at): (Place, u64),
    bytes: u64,
) -> Option<Flow> {
    // SAFETY: `resolve` vouches for the range that it returns.
    unsafe {
        let inside = place == Place::Shared && at & 7 == 0;
        let Some((host, _)) = (if inside { Shared::<u64>::resolve::<true>(cx, 0, at, 8) } else { None }) else {
            return Some(refuse(cx, op, place, lane, at, 8, AccessKind::Mbarrier));
        };
        let host = host.cast::<u64>();
        let new = match Object::unpack(host.read_unaligned()) {
            Some(object) => object.expect(-(bytes.min(1 << 40) as i64)).map(Object::advance),
            None => Err(ObjectMisuse::CopyUninitialised),
        };
        let new = match new {
            Ok(new) => new,
            Err(wrong) => return Some(misuse(cx, op, lane, wrong)),
        };
        let old = host.read_unaligned();
        host.write_unaligned(new.pack());
        if (new.pack() ^ old) & PHASE != 0 {
            ended(cx, host as usize - cx.shared as usize);
        }
    }
    cx.progress += 1;
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_survive_packing() {
        for bytes in [0, 1, -1, MOST as i32, -(MOST as i32)] {
            for (expected, pending, odd) in [(1, 1, false), (MOST, MOST, true), (5, 0, true)] {
                let object = Object { expected, pending, bytes, odd };
                assert_eq!(Object::unpack(object.pack()), Some(object));
            }
        }
        assert_eq!(Object::unpack(0), None);
        assert_eq!(Object::unpack(crate::memory::POISON_KEY), None);
    }

    #[test]
    fn phases_end_when_arrivals_and_bytes_are_complete() {
        let start = Object { expected: 2, pending: 2, bytes: 0, odd: false };
        let one = start.arrive(1, false).unwrap().advance();
        assert_eq!((one.pending, one.odd), (1, false));
        let waiting = one.expect(64).unwrap().arrive(1, false).unwrap().advance();
        assert_eq!((waiting.pending, waiting.bytes, waiting.odd), (0, 64, false));
        let next = waiting.expect(-64).unwrap().advance();
        assert_eq!(next, Object { odd: true, ..start });
        assert!(start.arrive(3, false).is_err());
        assert!(start.expect(1 << 20).is_err());
        let dropped = start.arrive(1, true).unwrap().advance().arrive(1, false).unwrap().advance();
        assert_eq!((dropped.pending, dropped.expected), (1, 1));
    }
}
