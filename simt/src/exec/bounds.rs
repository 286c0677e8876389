//! Faults of memory accesses: the cold side of every bounds check.

use super::layout::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::{Cx, Flow, Op};
pub use crate::fault::Place;
use crate::fault::{AccessKind, BadAccess, FaultKind, Problem};
use crate::memory::lookup;

/// Addresses below this are taken for null pointers with an offset.
const NULL_PAGE: u64 = 64 << 10;

/// One lane's access that must not happen: says why.
#[cold]
#[inline(never)]
pub fn refuse(cx: &mut Cx, op: &Op, place: Place, lane: usize, address: u64, bytes: u64, what: AccessKind) -> Flow {
    refuse_aligned(cx, op, lane, (place, address), bytes, bytes, what)
}

/// The same of an access whose address need not be a multiple of its bytes, but of `align`.
#[cold]
#[inline(never)]
pub fn refuse_aligned(
    cx: &mut Cx,
    op: &Op,
    lane: usize,
    (place, address): (Place, u64),
    bytes: u64,
    align: u64,
    what: AccessKind,
) -> Flow {
    let (kind, problem) = match place {
        _ if address & (align - 1) != 0 => (FaultKind::Misaligned, Problem::Misaligned(align)),
        Place::Global if address < NULL_PAGE => (FaultKind::NullPointer, Problem::Null),
        Place::Global if lookup(&cx.memory, address).is_some_and(|e| e.read_only) && what != AccessKind::Load => {
            (FaultKind::OutOfBounds, Problem::ReadOnly)
        }
        Place::Global => {
            let problem = match address & !0xffff_ffff {
                SHARED_WINDOW => Problem::OtherSpace(Place::Shared),
                LOCAL_WINDOW => Problem::OtherSpace(Place::Local),
                PARAM_WINDOW => Problem::OtherSpace(Place::Param),
                _ => Problem::Outside(0),
            };
            (FaultKind::OutOfBounds, problem)
        }
        Place::Shared => (FaultKind::OutOfBounds, Problem::Outside(cx.shared_bytes.into())),
        Place::Local => (FaultKind::OutOfBounds, Problem::Outside(cx.local_top.into())),
        Place::Param if what == AccessKind::Load => (FaultKind::OutOfBounds, Problem::Outside(cx.param_bytes.into())),
        Place::Param => (FaultKind::OutOfBounds, Problem::ReadOnly),
    };
    let flow = cx.raise(op, kind, lane as u32, Some(address), None);
    if let Some(fault) = &mut cx.fault {
        fault.access = Some(BadAccess { what, bytes, place, address, problem });
    }
    flow
}
