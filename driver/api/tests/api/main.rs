//! The driver API on the software engine, called as C would call it: devices, contexts, memory,
//! modules, launches, errors.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use common::*;
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: every pointer is null on purpose, or to a live value of the
/// type and length that the function documents.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

mod kernels;
mod memory;

#[test]
fn devices_answer_every_attribute() {
    let _gpu = gpu();
    let (mut count, mut device, mut version) = (0, -1, 0);
    ok(cu!(cuDeviceGetCount(&mut count)));
    ok(cu!(cuDeviceGet(&mut device, 0)));
    ok(cu!(cuDriverGetVersion(&mut version)));
    assert_eq!((count, device, version), (1, 0, 13050));
    is(cu!(cuDeviceGet(&mut device, 1)), 101);
    is(cu!(cuDeviceGet(&mut device, -1)), 101);
    for id in 1..150 {
        let mut value = i32::MIN;
        ok(cu!(cuDeviceGetAttribute(&mut value, id, 0)));
        assert!(value >= 0, "attribute {id}");
    }
    let attribute = |id| {
        let mut value = 0;
        ok(cu!(cuDeviceGetAttribute(&mut value, id, 0)));
        value
    };
    // Threads of a block, warp, shared memory and opt-in, capability: an sm_90 device.
    assert_eq!([1, 10, 8, 97, 75, 76].map(attribute), [1024, 32, 49152, 232_448, 9, 0]);
    is(cu!(cuDeviceGetAttribute(null_mut(), 1, 0)), 1);
    let mut name = [1 as c_char; 64];
    ok(cu!(cuDeviceGetName(name.as_mut_ptr(), 64, 0)));
    // SAFETY: just written, NUL-terminated.
    let text = unsafe { CStr::from_ptr(name.as_ptr()) };
    assert_eq!(text.to_str(), Ok("warpsmith software driver (sm_90)"));
    ok(cu!(cuDeviceGetName(name.as_mut_ptr(), 5, 0)));
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }.to_str(), Ok("warp"));
    let mut bytes = 0;
    ok(cu!(cuDeviceTotalMem_v2(&mut bytes, 0)));
    assert_eq!(bytes, 16 << 30);
    assert_eq!(engine(), Some(Engine::Software { sm: 90, devices: 1 }));
}

#[test]
fn error_strings_end_with_nul() {
    for code in [0, 1, 2, 209, 218, 700, 719, 901, 918, 999] {
        let (mut name, mut text) = (null(), null());
        ok(cu!(cuGetErrorName(code, &mut name)));
        ok(cu!(cuGetErrorString(code, &mut text)));
        // SAFETY: the driver answers static NUL-terminated strings.
        let (name, text) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(text)) };
        assert_eq!(name.to_str(), Ok(result_name(code)));
        assert_eq!(text.to_str(), Ok(result_text(code)));
    }
    let mut text = c"x".as_ptr();
    is(cu!(cuGetErrorString(31337, &mut text)), 1);
    assert!(text.is_null());
    is(cu!(cuGetErrorString(0, null_mut())), 1);
}

#[test]
fn contexts_stack_and_die() {
    let gpu = gpu();
    let (mut a, mut b, mut current) = (CUcontext::NULL, CUcontext::NULL, CUcontext::NULL);
    ok(cu!(cuCtxCreate_v2(&mut a, 0, 0)));
    ok(cu!(cuCtxCreate_v2(&mut b, 0, 0)));
    is(cu!(cuCtxCreate_v2(&mut b, 0, 7)), 101);
    is(cu!(cuCtxCreate_v2(&mut b, 0x8000, 0)), 1);
    ok(cu!(cuCtxGetCurrent(&mut current)));
    assert_eq!(current, b);
    let in_b = alloc(64);
    ok(cu!(cuCtxPopCurrent_v2(&mut current)));
    assert_eq!(current, b);
    ok(cu!(cuCtxGetCurrent(&mut current)));
    assert_eq!(current, a);
    // An address is the device's, not the context's.
    let mut word = [0u8; 4];
    ok(cu!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), in_b, 4)));
    ok(cu!(cuCtxDestroy_v2(b)));
    is(cu!(cuCtxDestroy_v2(b)), 201);
    is(cu!(cuCtxSetCurrent(b)), 201);
    is(cu!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), in_b, 4)), 1);
    // Destroyed while another thread has it.
    let s = stream();
    ok(cu!(cuCtxDestroy_v2(a)));
    is(cu!(cuStreamSynchronize(s)), 400);
    ok(cu!(cuCtxGetCurrent(&mut current)));
    assert_eq!(current, gpu.context);
    is(cu!(cuCtxDestroy_v2(gpu.context)), 201);

    // A thread without a context.
    std::thread::spawn(move || {
        let mut p = 0;
        is(cu!(cuMemAlloc_v2(&mut p, 4)), 201);
        is(cu!(cuCtxPopCurrent_v2(null_mut())), 201);
        ok(cu!(cuCtxPushCurrent_v2(gpu.context)));
        ok(cu!(cuMemAlloc_v2(&mut p, 4)));
        ok(cu!(cuMemFree_v2(p)));
    })
    .join()
    .unwrap();

    let (mut flags, mut active) = (0, 0);
    ok(cu!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active)));
    assert_eq!(active, 1);
    ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
    is(cu!(cuCtxSynchronize()), 709);
    is(cu!(cuDevicePrimaryCtxRelease_v2(0)), 201);
    is(cu!(cuDevicePrimaryCtxRelease_v2(3)), 101);
}

#[test]
fn invented_stale_and_foreign_handles_are_errors() {
    let _gpu = gpu();
    let module = load(PTX);
    let nothing = function(module, "nothing");
    let (s, e) = (stream(), event());
    let bogus = |at: usize| at as *mut c_void;
    for bad in [3usize, 0x1000, usize::MAX, s.0 as usize + 1, e.0 as usize] {
        is(cu!(cuStreamSynchronize(CUstream(bogus(bad)))), 400);
        is(launch(nothing, 1, 1, 0, CUstream(bogus(bad)), &[]), 400);
        is(cu!(cuStreamDestroy_v2(CUstream(bogus(bad)))), 400);
        is(cu!(cuModuleUnload(CUmodule(bogus(bad)))), 400);
        is(launch(CUfunction(bogus(bad)), 1, 1, 0, s, &[]), 400);
        is(cu!(cuCtxSetCurrent(CUcontext(bogus(bad)))), 201);
        is(cu!(cuGraphDestroy(CUgraph(bogus(bad)))), 1);
        is(cu!(cuGraphLaunch(CUgraphExec(bogus(bad)), s)), 1);
        is(cu!(cuGraphExecDestroy(CUgraphExec(bogus(bad)))), 1);
        is(cu!(cuGraphDestroyNode(CUgraphNode(bogus(bad)))), 1);
    }
    is(cu!(cuEventSynchronize(CUevent(s.0))), 400);
    ok(cu!(cuEventDestroy_v2(e)));
    is(cu!(cuEventDestroy_v2(e)), 400);
    is(cu!(cuEventRecord(e, s)), 400);
    assert_ne!(event(), e, "handles are not used again");
    ok(cu!(cuStreamDestroy_v2(s)));
    is(cu!(cuStreamDestroy_v2(s)), 400);
    ok(cu!(cuModuleUnload(module)));
    is(launch(nothing, 1, 1, 0, CUstream::NULL, &[]), 400);
    is(cu!(cuStreamDestroy_v2(CUstream::NULL)), 400);
}

#[test]
fn streams_and_events() {
    let _gpu = gpu();
    let (s, t, start, stop) = (stream(), blocking_stream(), event(), event());
    let (mut flags, mut priority, mut ms) = (9, 9, -1.0);
    ok(cu!(cuStreamGetFlags(s, &mut flags)));
    assert_eq!(flags, 1);
    let mut urgent = CUstream::NULL;
    ok(cu!(cuStreamCreateWithPriority(&mut urgent, 1, -99)));
    ok(cu!(cuStreamGetPriority(urgent, &mut priority)));
    assert_eq!(priority, -5);
    is(cu!(cuStreamCreate(&mut urgent, 2)), 1);
    is(cu!(cuEventElapsedTime(&mut ms, start, stop)), 400);
    ok(cu!(cuEventRecord(start, s)));
    ok(cu!(cuStreamWaitEvent(t, start, 0)));
    std::thread::sleep(std::time::Duration::from_millis(5));
    ok(cu!(cuEventRecord(stop, t)));
    ok(cu!(cuEventQuery(stop)));
    ok(cu!(cuEventSynchronize(stop)));
    ok(cu!(cuEventElapsedTime(&mut ms, start, stop)));
    assert!((5.0..1000.0).contains(&ms), "{ms}");
    let mut plain = CUevent::NULL;
    ok(cu!(cuEventCreate(&mut plain, 2)));
    ok(cu!(cuEventRecord(plain, s)));
    is(cu!(cuEventElapsedTime(&mut ms, start, plain)), 400);
    is(cu!(cuEventCreate(&mut plain, 64)), 1);
}

extern "C" fn note(data: *mut c_void) {
    let mut p = 0;
    // SAFETY: a live place.
    let code = unsafe { cuMemAlloc_v2(&mut p, 4) };
    // SAFETY: the test gave the address of a live pair.
    unsafe { data.cast::<(i32, u32)>().write((code, std::process::id())) };
}

#[test]
fn host_functions_run_in_order_and_may_not_call_cuda() {
    let _gpu = gpu();
    let s = stream();
    let mut seen = (0, 0);
    ok(cu!(cuLaunchHostFunc(s, Some(note), (&raw mut seen).cast())));
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(seen, (800, std::process::id()));
    is(cu!(cuLaunchHostFunc(s, None, null_mut())), 1);
    // The calling thread itself may, afterwards.
    alloc(4);
}

struct Meeting {
    ask: std::sync::mpsc::Sender<()>,
    answer: std::sync::mpsc::Receiver<i32>,
}

extern "C" fn meet(data: *mut c_void) {
    // SAFETY: the test gave the address of a live meeting, which nobody else uses meanwhile.
    let meeting = unsafe { &*data.cast::<Meeting>() };
    let _ = meeting.ask.send(());
    assert_eq!(meeting.answer.recv(), Ok(0));
}

/// A host function that waits for another thread's calls must find the driver free.
#[test]
fn host_functions_hold_no_lock() {
    let gpu = gpu();
    let (module, context) = (load(PTX), gpu.context);
    let step = function(module, "step");
    let (ask, asked) = std::sync::mpsc::channel();
    let (reply, answer) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        asked.recv().unwrap();
        ok(cu!(cuCtxSetCurrent(context)));
        let p = upload(&[1]);
        let code = launch_step(step, p, stream());
        assert_eq!(download(p, 1), [4]);
        reply.send(code).unwrap();
    });
    let (mut meeting, s) = (Meeting { ask, answer }, stream());
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut meeting).cast())));
    other.join().unwrap();
    // It may still be reading the answer.
    ok(cu!(cuStreamSynchronize(s)));
}

#[test]
fn injected_failures_and_counts() {
    let _gpu = gpu();
    software::reset_call_counts();
    let guard = software::inject_failure(Some("cuMemAlloc_v2"), 1, 2);
    let mut p = 0;
    ok(cu!(cuMemAlloc_v2(&mut p, 4)));
    p = 77;
    is(cu!(cuMemAlloc_v2(&mut p, 4)), 2);
    assert_eq!(p, 77, "an injected failure does nothing");
    assert!(guard.fired());
    ok(cu!(cuMemAlloc_v2(&mut p, 4)));
    assert_eq!(software::call_counts().get("cuMemAlloc_v2"), 3);
    let _unknown = software::inject_failure(None, 0, 719);
    is(cu!(cuCtxSynchronize()), 719);
    ok(cu!(cuCtxSynchronize()));
}

#[test]
fn whatever_is_not_there_says_so() {
    let _gpu = gpu();
    let mut texture = 0u64;
    is(cu!(cuTexObjectCreate((&raw mut texture).cast(), null_mut(), null_mut(), null_mut())), 801);
    assert_eq!(software::last_report().as_deref(), Some("cuTexObjectCreate is not supported by the software driver"));
    is(cu!(cuMulticastCreate(null_mut(), null_mut())), 801);
}

#[test]
fn threads_share_one_device() {
    let gpu = gpu();
    let module = load(PTX);
    let step = function(module, "step");
    let (module_handle, context) = (step, gpu.context);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                ok(cu!(cuCtxSetCurrent(context)));
                let (s, p) = (stream(), upload(&[1]));
                for _ in 0..20 {
                    ok(launch_step(module_handle, p, s));
                }
                ok(cu!(cuStreamSynchronize(s)));
                let expected = (0..20).fold(1u32, |x, _| x.wrapping_mul(3).wrapping_add(1));
                assert_eq!(download(p, 1), [expected]);
                ok(cu!(cuMemFree_v2(p)));
                ok(cu!(cuStreamDestroy_v2(s)));
            });
        }
    });
}
