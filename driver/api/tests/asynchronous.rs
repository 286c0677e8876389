//! Work that depends on what the host does after it was issued: host functions, kernels that wait for mapped memory or for
//! another stream, and what comes after them.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use common::*;
use software::Checks;
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: every pointer is to a live value of the type and length that the function documents.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

/// `wait` spins until a flag is not 0 and copies it; `set` sets one.
const WAITING: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry wait(.param .u64 flag, .param .u64 out) {
    .reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [flag];
    ld.param.u64 %rd2, [out];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry set(.param .u64 flag, .param .u32 value) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
    ld.param.u32 %r1, [value];
    st.volatile.global.u32 [%rd1], %r1;
    ret;
}
";

/// Mapped host memory of one word, which kernels and the host write.
struct Mapped(*mut u32);

impl Mapped {
    fn new() -> Mapped {
        let mut place: *mut c_void = null_mut();
        ok(cu!(cuMemHostAlloc(&mut place, 4, 2)));
        let mapped = Mapped(place.cast());
        mapped.write(0);
        mapped
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }

    fn write(&self, value: u32) {
        // SAFETY: the allocation is live, and the other side uses volatile accesses of the word too.
        unsafe { self.0.write_volatile(value) };
    }
}

fn launch_wait(f: CUfunction, flag: u64, out: u64, s: CUstream) -> CUresult {
    launch(f, 1, 1, 0, s, &[arg(&flag), arg(&out)])
}

struct Meeting {
    entered: Sender<()>,
    leave: Receiver<()>,
}

impl Meeting {
    /// A host function's data, its start as the host hears of it, and what lets it end.
    fn new() -> (Box<Meeting>, Receiver<()>, Sender<()>) {
        let ((entered, hears), (lets, leave)) = (channel(), channel());
        (Box::new(Meeting { entered, leave }), hears, lets)
    }
}

extern "C" fn meet(data: *mut c_void) {
    // SAFETY: the test gave the address of a live meeting, which nobody else uses meanwhile.
    let meeting = unsafe { &*data.cast::<Meeting>() };
    let _ = meeting.entered.send(());
    let _ = meeting.leave.recv();
}

#[test]
fn a_host_function_may_wait_for_what_its_caller_does_next() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, t, other, p, passed) = (stream(), stream(), stream(), upload(&[1]), event());
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    // The call has returned; what comes after the function waits for it, in both streams.
    ok(launch_step(step, p, s));
    ok(cu!(cuEventRecord(passed, s)));
    ok(cu!(cuStreamWaitEvent(t, passed, 0)));
    ok(launch_step(step, p, t));
    entered.recv().unwrap();
    is(cu!(cuStreamQuery(s)), 600);
    is(cu!(cuStreamQuery(t)), 600);
    is(cu!(cuEventQuery(passed)), 600);
    let mut ms = 0.0;
    is(cu!(cuEventElapsedTime(&mut ms, passed, passed)), 600);
    // A stream that has nothing to do with it goes on, and its results are there.
    let q = upload(&[5]);
    ok(launch_step(step, q, other));
    ok(cu!(cuStreamSynchronize(other)));
    assert_eq!((download(q, 1), download(p, 1)), (vec![16], vec![1]));
    leave.send(()).unwrap();
    ok(cu!(cuEventSynchronize(passed)));
    ok(cu!(cuStreamSynchronize(t)));
    assert_eq!(download(p, 1), [13]);
    ok(cu!(cuStreamQuery(s)));
    ok(cu!(cuEventElapsedTime(&mut ms, passed, passed)));
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, p) = (blocking_stream(), upload(&[1]));
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    ok(launch_step(step, p, CUstream::NULL));
    let later = blocking_stream();
    ok(launch_step(step, p, later));
    entered.recv().unwrap();
    is(cu!(cuStreamQuery(later)), 600);
    leave.send(()).unwrap();
    // A copy that returns when it is done waits for the default stream, and so for all of it.
    ok(cu!(cuStreamSynchronize(later)));
    assert_eq!(download(p, 1), [13]);
}

#[test]
fn a_kernel_that_waits_for_the_host_does_not_hold_its_launch() {
    let _gpu = gpu();
    let wait = function(load(WAITING), "wait");
    let step = function(load(PTX), "step");
    for checks in [Checks::default(), Checks::ALL] {
        let _guard = software::check(checks);
        let (flag, out, s) = (Mapped::new(), upload(&[0]), stream());
        ok(launch_wait(wait, flag.address(), out, s));
        ok(launch_step(step, out, s));
        is(cu!(cuStreamQuery(s)), 600);
        // Work elsewhere goes on meanwhile.
        let q = upload(&[1]);
        ok(launch_step(step, q, CUstream::NULL));
        assert_eq!(download(q, 1), [4]);
        flag.write(5);
        ok(cu!(cuStreamSynchronize(s)));
        assert_eq!(download(out, 1), [16]);
        assert_eq!(software::take_findings().len(), 0);
    }
    // Another thread sets it while this one waits.
    let (flag, out) = (Mapped::new(), upload(&[0]));
    ok(launch_wait(wait, flag.address(), out, CUstream::NULL));
    let place = flag.address();
    let other = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        Mapped(place as *mut u32).write(9);
    });
    ok(cu!(cuCtxSynchronize()));
    other.join().unwrap();
    assert_eq!(download(out, 1), [9]);
}

#[test]
fn a_kernel_that_waits_for_another_stream_goes_on_when_that_has_run() {
    let _gpu = gpu();
    let module = load(WAITING);
    let (wait, set) = (function(module, "wait"), function(module, "set"));
    let (flag, out, s, t) = (upload(&[0]), upload(&[0]), stream(), stream());
    ok(launch_wait(wait, flag, out, s));
    let value = 3u32;
    ok(launch(set, 1, 1, 0, t, &[arg(&flag), arg(&value)]));
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(download(out, 1), [3]);
    // The same by a copy.
    ok(cu!(cuMemsetD32_v2(flag, 0, 1)));
    ok(launch_wait(wait, flag, out, s));
    let value = [8u32];
    ok(cu!(cuMemcpyHtoDAsync_v2(flag, value.as_ptr().cast(), 4, t)));
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(download(out, 1), [8]);
}

/// The same between branches of one graph: the one that waits comes first in the order of its nodes.
#[test]
fn branches_of_a_graph_overlap_where_one_waits_for_the_other() {
    let _gpu = gpu();
    let module = load(WAITING);
    let (wait, set, step) = (function(module, "wait"), function(module, "set"), function(load(PTX), "step"));
    let (flag, out, s) = (upload(&[0]), upload(&[0]), stream());
    let mut graph = CUgraph::NULL;
    ok(cu!(cuGraphCreate(&mut graph, 0)));
    let add = |f: CUfunction, deps: &[CUgraphNode], args: &[*const c_void]| {
        let mut list: Vec<*mut c_void> = args.iter().map(|a| a.cast_mut()).collect();
        let params = KernelNodeParams {
            func: f,
            grid: [1, 1, 1],
            block: [1, 1, 1],
            shared_mem_bytes: 0,
            kernel_params: list.as_mut_ptr(),
            extra: null_mut(),
        };
        let mut node = CUgraphNode::NULL;
        ok(cu!(cuGraphAddKernelNode(&mut node, graph, deps.as_ptr(), deps.len(), &params)));
        node
    };
    let value = 6u32;
    let first = add(wait, &[], &[arg(&flag), arg(&out)]);
    let second = add(set, &[], &[arg(&flag), arg(&value)]);
    add(step, &[first, second], &[arg(&out)]);
    let mut exec = CUgraphExec::NULL;
    ok(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)));
    ok(cu!(cuGraphLaunch(exec, s)));
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(download(out, 1), [19]);
    // A second launch behind one that has not ended.
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    ok(cu!(cuGraphLaunch(exec, s)));
    ok(cu!(cuGraphLaunch(exec, stream())));
    entered.recv().unwrap();
    ok(cu!(cuGraphExecDestroy(exec)));
    leave.send(()).unwrap();
    ok(cu!(cuCtxSynchronize()));
    assert_eq!(download(out, 1), [19]);
}

static TOLD: AtomicI32 = AtomicI32::new(-1);
static CALLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn told(_: CUstream, status: CUresult, _: *mut c_void) {
    TOLD.store(status, Ordering::SeqCst);
}

extern "C" fn called(_: *mut c_void) {
    CALLED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_fault_behind_a_host_function_is_answered_by_the_call_that_waits() {
    let _gpu = gpu();
    let module = load(PTX);
    let (poke, step) = (function(module, "poke"), function(module, "step"));
    let (s, p, bad) = (stream(), upload(&[1]), 0u64);
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    ok(launch(poke, 1, 1, 0, s, &[arg(&bad)]));
    ok(launch_step(step, p, s));
    ok(cu!(cuStreamAddCallback(s, Some(told), null_mut(), 0)));
    ok(cu!(cuLaunchHostFunc(s, Some(called), null_mut())));
    entered.recv().unwrap();
    let guard = software::check(Checks::ALL);
    leave.send(()).unwrap();
    is(cu!(cuStreamSynchronize(s)), 700);
    is(cu!(cuStreamQuery(s)), 700);
    is(launch_step(step, p, s), 700);
    assert!(software::last_report().unwrap().contains("kernel `poke`"));
    assert_eq!((TOLD.load(Ordering::SeqCst), CALLED.load(Ordering::SeqCst)), (700, 0));
    drop(guard);
}

/// What the checks find in work that ran later belongs to the thread that issued it, with the place where it did.
#[test]
fn findings_of_work_that_runs_later_are_the_issuers() {
    let _gpu = gpu();
    let poke = function(load(PTX), "poke");
    let (s, bad) = (stream(), 0u64);
    let _guard = software::check(Checks::ALL);
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    ok(launch(poke, 1, 1, 0, s, &[arg(&bad)]));
    entered.recv().unwrap();
    leave.send(()).unwrap();
    is(cu!(cuStreamSynchronize(s)), 700);
    let found = software::take_findings();
    assert_eq!(found.len(), 1);
    let text = found[0].to_string();
    assert!(text.contains("memory::null-pointer") && text.contains("cuLaunchKernel"), "{text}");
    assert!(text.contains("findings_of_work_that_runs_later_are_the_issuers"), "{text}");
}

#[test]
fn pageable_memory_is_read_when_the_copy_is_issued() {
    let _gpu = gpu();
    let (s, p) = (stream(), upload(&[0]));
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    let mut word = Box::new(7u32);
    ok(cu!(cuMemcpyHtoDAsync_v2(p, (&raw const *word).cast(), 4, s)));
    *word = 8;
    entered.recv().unwrap();
    leave.send(()).unwrap();
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(download(p, 1), [7]);
}

#[test]
fn memory_is_freed_in_the_streams_order() {
    let _gpu = gpu();
    let step = function(load(PTX), "step");
    let (s, mut p) = (stream(), 0u64);
    ok(cu!(cuMemAllocAsync(&mut p, 4, s)));
    ok(cu!(cuMemsetD32Async(p, 1, 1, s)));
    let (mut meeting, entered, leave) = Meeting::new();
    ok(cu!(cuLaunchHostFunc(s, Some(meet), (&raw mut *meeting).cast())));
    ok(launch_step(step, p, s));
    ok(cu!(cuMemFreeAsync(p, s)));
    entered.recv().unwrap();
    assert_eq!(download(p, 1), [1], "it is still there");
    leave.send(()).unwrap();
    ok(cu!(cuStreamSynchronize(s)));
    let mut word = 0u32;
    is(cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), p, 4)), 1);
}

#[test]
fn the_end_of_a_context_ends_what_waits_in_it() {
    let _gpu = gpu();
    let mut context = CUcontext::NULL;
    ok(cu!(cuCtxCreate_v2(&mut context, 0, 0)));
    let wait = function(load(WAITING), "wait");
    let (flag, out) = (upload(&[0]), upload(&[0]));
    ok(launch_wait(wait, flag, out, CUstream::NULL));
    ok(launch_wait(wait, flag, out, CUstream::NULL));
    is(cu!(cuStreamQuery(CUstream::NULL)), 600);
    ok(cu!(cuCtxDestroy_v2(context)));
    let p = upload(&[2]);
    assert_eq!(download(p, 1), [2]);
}

#[test]
fn a_limit_ends_a_kernel_that_does_not_end() {
    const ENDLESS: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry endless() {\n.reg .b32 %r<2>;\n\
        mov.u32 %r1, 0;\nLOOP:\nadd.s32 %r1, %r1, 1;\nbra LOOP;\n}";
    assert_eq!(software::instruction_limit(), 0);
    {
        let _guard = software::check(Checks::default());
        assert_eq!(software::instruction_limit(), software::DEFAULT_LIMIT);
    }
    let _gpu = gpu();
    let endless = function(load(ENDLESS), "endless");
    software::set_instruction_limit(Some(1_000_000));
    ok(launch(endless, 1, 32, 0, CUstream::NULL, &[]));
    software::set_instruction_limit(None);
    is(cu!(cuCtxSynchronize()), 702);
    let report = software::last_report().unwrap();
    for part in [
        "error[instruction limit]",
        "kernel `endless`",
        "thread (0,0,0)",
        "limit is 1000000",
        "PTX line 8: the loop begins here",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}
