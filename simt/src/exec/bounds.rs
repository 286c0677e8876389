//! Faults of memory accesses: the cold side of every bounds check.

use super::space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::{Cx, Flow, Op};
use crate::fault::FaultKind;
use crate::memory::lookup;

/// A state space as reports name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Global,
    Shared,
    Local,
    Param,
}

/// Addresses below this are taken for null pointers with an offset.
const NULL_PAGE: u64 = 64 << 10;

/// One lane's access that must not happen: says why.
#[cold]
#[inline(never)]
pub(crate) fn refuse(cx: &mut Cx, op: &Op, place: Place, lane: usize, address: u64, bytes: u64, what: &str) -> Flow {
    let lane = lane as u32;
    if address & (bytes - 1) != 0 {
        let detail = format!("{what} of {bytes} bytes needs an address that is a multiple of {bytes}");
        return cx.raise(op, FaultKind::Misaligned, lane, Some(address), detail);
    }
    let detail = match place {
        Place::Global if address < NULL_PAGE => {
            let detail = format!("{what} of {bytes} bytes at a null pointer plus {address}");
            return cx.raise(op, FaultKind::NullPointer, lane, Some(address), detail);
        }
        Place::Global if lookup(&cx.memory, address).is_some_and(|e| e.read_only) && what != "load" => {
            format!("{what} of {bytes} bytes in constant memory, which kernels may only read")
        }
        Place::Global => {
            let window = match address & !0xffff_ffff {
                SHARED_WINDOW => " (a shared-memory address, used as a global one)",
                LOCAL_WINDOW => " (a local-memory address, used as a global one)",
                PARAM_WINDOW => " (a parameter address, used as a global one)",
                _ => "",
            };
            format!("{what} of {bytes} bytes in global memory{window}")
        }
        Place::Shared => {
            let size = cx.shared_bytes;
            format!("{what} of {bytes} bytes at shared offset {address}; the block has {size} bytes of shared memory")
        }
        Place::Local => {
            let size = cx.local_top;
            format!("{what} of {bytes} bytes at local offset {address}; the thread has {size} bytes of local memory")
        }
        Place::Param if what == "load" => {
            let size = cx.param_bytes;
            format!("{what} of {bytes} bytes at parameter offset {address}; the kernel has {size} bytes of parameters")
        }
        Place::Param => {
            format!("{what} of {bytes} bytes at parameter offset {address}: kernel parameters are read-only")
        }
    };
    cx.raise(op, FaultKind::OutOfBounds, lane, Some(address), detail)
}
