//! Functions by NCCL's names that write down how they are called. `nccl.rs` compiles it as a library of its own.

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;

type P = *mut c_void;

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id([u8; 128]);

fn note(line: String) {
    let path = std::env::var_os("FAKE_NCCL_CALLS").unwrap();
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { *version = 22807 };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: *mut Id) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { (*id).0 = std::array::from_fn(|i| i as u8 + 1) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(comm: *mut P, ranks: c_int, id: Id, rank: c_int) -> c_int {
    assert!(id.0.windows(2).all(|w| w[0] + 1 == w[1]));
    note(format!("ncclCommInitRank {ranks} {rank} of {}..{}", id.0[0], id.0[127]));
    // SAFETY: the caller's variable.
    unsafe { *comm = std::ptr::without_provenance_mut(0xc0) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(comm: P) -> c_int {
    note(format!("ncclCommDestroy {comm:?}"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(comm: P) -> c_int {
    note(format!("ncclCommAbort {comm:?}"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(_: P, state: *mut c_int) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { *state = 0 };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    if code == 5 { c"text of 5".as_ptr() } else { std::ptr::null() }
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(send: P, recv: P, count: usize, kind: c_int, op: c_int, comm: P, stream: P) -> c_int {
    note(format!("ncclAllReduce {send:?} {recv:?} {count} {kind} {op} {comm:?} {stream:?}"));
    if count == 999 { 5 } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(send: P, recv: P, count: usize, kind: c_int, op: c_int, comm: P, stream: P) -> c_int {
    note(format!("ncclReduceScatter {send:?} {recv:?} {count} {kind} {op} {comm:?} {stream:?}"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(send: P, recv: P, count: usize, kind: c_int, comm: P, stream: P) -> c_int {
    note(format!("ncclAllGather {send:?} {recv:?} {count} {kind} {comm:?} {stream:?}"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(send: P, recv: P, count: usize, kind: c_int, root: c_int, comm: P, stream: P) -> c_int {
    note(format!("ncclBroadcast {send:?} {recv:?} {count} {kind} {root} {comm:?} {stream:?}"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(buffer: P, count: usize, kind: c_int, peer: c_int, comm: P, stream: P) -> c_int {
    note(format!("ncclSend {buffer:?} {count} {kind} {peer} {comm:?} {stream:?}"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(buffer: P, count: usize, kind: c_int, peer: c_int, comm: P, stream: P) -> c_int {
    note(format!("ncclRecv {buffer:?} {count} {kind} {peer} {comm:?} {stream:?}"));
    0
}
