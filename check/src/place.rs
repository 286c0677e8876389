//! Where a lane's operation goes: what holds the bytes, and where in it they are.

use warpsmith_simt::machine::lanes::lane_of;
use warpsmith_simt::machine::note::{Access, Where};
use warpsmith_simt::machine::space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use warpsmith_simt::machine::words::{CopyAsync, Words};
use warpsmith_simt::machine::{Cx, Op};

/// What holds a byte that a thread accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Global,
    Shared,
    Local,
    /// Parameters and constants: always defined.
    Other,
}

/// The address of a lane's access.
///
/// # Safety
/// The contract of handlers; `at` is the operation's.
#[inline(always)]
pub(crate) unsafe fn address(cx: &Cx, op: &Op, at: Where, lane: usize) -> (Place, u64) {
    // SAFETY: by the contract: `a` is a row of the width that the note says.
    unsafe {
        let narrow = || u64::from(lane_of::<u32>(cx.src(op.a), lane)).wrapping_add(op.imm);
        let wide = || lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm);
        match at {
            Where::Global => (Place::Global, wide()),
            Where::Shared32 => (Place::Shared, narrow()),
            Where::Shared64 => (Place::Shared, wide()),
            Where::Generic => generic(wide()),
            Where::Local32 => (Place::Local, narrow()),
            Where::Local64 => (Place::Local, wide()),
            Where::Frame => (Place::Local, u64::from(cx.local_base).wrapping_add(op.imm)),
            Where::Param | Where::Const => (Place::Other, 0),
        }
    }
}

fn generic(address: u64) -> (Place, u64) {
    match address >> 32 {
        w if w == SHARED_WINDOW >> 32 => (Place::Shared, address - SHARED_WINDOW),
        w if w == LOCAL_WINDOW >> 32 => (Place::Local, address - LOCAL_WINDOW),
        w if w == PARAM_WINDOW >> 32 => (Place::Other, 0),
        _ => (Place::Global, address),
    }
}

/// Where in shared memory a lane's access goes, if it goes there.
///
/// # Safety
/// The contract of handlers: the operation is that access.
pub(crate) unsafe fn shared_address(cx: &Cx, op: &Op, access: &Access, lane: usize) -> Option<u64> {
    // SAFETY: by the contract.
    match unsafe { address(cx, op, access.at, lane) } {
        (Place::Shared, at) => Some(at),
        _ => None,
    }
}

/// Where in shared memory a lane's asynchronous copy goes.
///
/// # Safety
/// The contract of handlers: the operation is such a copy.
pub(crate) unsafe fn copy_target(cx: &Cx, op: &Op, lane: usize) -> u64 {
    // SAFETY: by the contract, as in `exec::mem::copy_async`.
    unsafe {
        let CopyAsync { wide, .. } = CopyAsync::of(cx, op);
        let base = if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
        let base = if wide && base >> 32 == SHARED_WINDOW >> 32 { base & 0xffff_ffff } else { base };
        base.wrapping_add(op.imm as u32 as i32 as i64 as u64)
    }
}
