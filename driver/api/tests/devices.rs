//! Several devices of the software engine: peer access, copies between them, events and graphs across them, and races.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use software::{Checks, check, take_findings};
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: every pointer is null on purpose, or to a live value of the
/// type and length that the function documents.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

/// Three devices, of which the first is current.
struct Devices {
    contexts: [CUcontext; 3],
    _gpu: Gpu,
}

fn devices() -> Devices {
    // SAFETY: every test of this file begins here with the same value, and nothing else reads the environment meanwhile.
    unsafe { std::env::set_var("WARPSMITH_DEVICES", "3") };
    let first = gpu();
    let mut contexts = [first.context; 3];
    for (ordinal, context) in contexts.iter_mut().enumerate().skip(1) {
        ok(cu!(cuDevicePrimaryCtxRetain(context, ordinal as i32)));
    }
    Devices { contexts, _gpu: first }
}

impl Devices {
    fn on(&self, ordinal: usize) {
        ok(cu!(cuCtxSetCurrent(self.contexts[ordinal])));
    }

    /// Kernels of device `from` may access memory of device `to`.
    fn enable(&self, from: usize, to: usize) -> CUresult {
        self.on(from);
        cu!(cuCtxEnablePeerAccess(self.contexts[to], 0))
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for ordinal in 1..3 {
            cu!(cuDevicePrimaryCtxReset_v2(ordinal));
        }
    }
}

#[test]
fn peers_are_asked_for_enabled_and_disabled() {
    let devices = devices();
    let mut can = -1;
    ok(cu!(cuDeviceCanAccessPeer(&mut can, 0, 2)));
    assert_eq!(can, 1);
    ok(cu!(cuDeviceCanAccessPeer(&mut can, 1, 1)));
    assert_eq!(can, 0, "a device is no peer of itself");
    is(cu!(cuDeviceCanAccessPeer(&mut can, 0, 3)), 101);
    let attribute = |attribute, peer| {
        let mut value = -1;
        (cu!(cuDeviceGetP2PAttribute(&mut value, attribute, 0, peer)), value)
    };
    // Access and atomics between devices; not between a device and itself.
    assert_eq!((attribute(2, 1), attribute(3, 1)), ((0, 1), (0, 1)));
    assert_eq!(attribute(2, 0).0, 1);
    ok(devices.enable(0, 1));
    is(devices.enable(0, 1), 704);
    is(devices.enable(0, 0), 101);
    is(cu!(cuCtxEnablePeerAccess(devices.contexts[2], 1)), 1);
    ok(cu!(cuCtxDisablePeerAccess(devices.contexts[1])));
    is(cu!(cuCtxDisablePeerAccess(devices.contexts[1])), 705);
}

/// Kernels reach a peer's memory only with access, in the direction that it was enabled for, and while it is.
#[test]
fn kernels_reach_memory_of_peers_with_access_alone() {
    let devices = devices();
    devices.on(1);
    let far = upload(&[5]);
    devices.on(0);
    let step = function(load(PTX), "step");
    ok(devices.enable(0, 1));
    ok(launch_step(step, far, CUstream::NULL));
    ok(cu!(cuCtxSynchronize()));
    devices.on(1);
    assert_eq!(download(far, 1), [16]);
    // The other direction was not asked for.
    devices.on(0);
    let near = upload(&[7]);
    devices.on(1);
    let back = function(load(PTX), "step");
    let code = launch_step(back, near, CUstream::NULL);
    assert!(code == 700 || code == 0);
    is(cu!(cuCtxSynchronize()), 700);
    let report = software::take_report().unwrap();
    assert!(report.contains("memory of device 0") && report.contains("cuCtxEnablePeerAccess"), "{report}");
    devices.on(0);
    assert_eq!(download(near, 1), [7]);
    ok(cu!(cuCtxDisablePeerAccess(devices.contexts[1])));
    launch_step(step, far, CUstream::NULL);
    is(cu!(cuCtxSynchronize()), 700);
}

#[test]
fn copies_between_devices_need_no_access() {
    let devices = devices();
    let near = upload(&[1, 2, 3, 4]);
    devices.on(1);
    let far = upload(&[0; 4]);
    ok(cu!(cuMemcpyPeer(far, devices.contexts[1], near, devices.contexts[0], 8)));
    assert_eq!(download(far, 4), [1, 2, 0, 0]);
    // Unified addresses say where they are.
    ok(cu!(cuMemcpy(far + 8, near + 8, 4)));
    ok(cu!(cuMemcpyDtoD_v2(far + 12, near, 4)));
    assert_eq!(download(far, 4), [1, 2, 3, 1]);
    let s = stream();
    ok(cu!(cuMemcpyPeerAsync(near, devices.contexts[0], far + 8, devices.contexts[1], 8, s)));
    ok(cu!(cuStreamSynchronize(s)));
    devices.on(0);
    assert_eq!(download(near, 4), [3, 1, 3, 4]);
    is(cu!(cuMemcpyPeer(far, devices.contexts[1], near, devices.contexts[0], 20)), 1);
    is(cu!(cuMemcpyPeer(far, CUcontext::NULL, near, devices.contexts[0], 4)), 201);
}

/// A device's stream waits for another's work, also for work that itself waits.
#[test]
fn events_order_streams_of_two_devices() {
    let devices = devices();
    let _guard = check(Checks::ALL);
    let (p, a, done) = (upload(&[1]), stream(), event());
    let step = function(load(PTX), "step");
    ok(launch_step(step, p, a));
    ok(cu!(cuEventRecord(done, a)));
    devices.on(1);
    let (b, q) = (stream(), upload(&[0]));
    ok(cu!(cuStreamWaitEvent(b, done, 0)));
    ok(cu!(cuMemcpyPeerAsync(q, devices.contexts[1], p, devices.contexts[0], 4, b)));
    ok(cu!(cuStreamSynchronize(b)));
    assert_eq!(download(q, 1), [4]);
    assert_eq!(rules(), [""; 0]);
}

#[test]
fn graphs_copy_between_devices_at_each_launch() {
    let devices = devices();
    devices.on(1);
    let far = upload(&[0]);
    devices.on(0);
    let (near, s) = (upload(&[1]), stream());
    let step = function(load(PTX), "step");
    begin(s, 2);
    ok(launch_step(step, near, s));
    ok(cu!(cuMemcpyPeerAsync(far, devices.contexts[1], near, devices.contexts[0], 4, s)));
    let graph = end(s).unwrap();
    assert_eq!(node_count(graph), 2);
    let exec = instantiate(graph);
    for expected in [4, 13] {
        ok(cu!(cuGraphLaunch(exec, s)));
        ok(cu!(cuStreamSynchronize(s)));
        devices.on(1);
        assert_eq!(download(far, 1), [expected]);
        devices.on(0);
    }
    ok(cu!(cuGraphExecDestroy(exec)));
    ok(cu!(cuGraphDestroy(graph)));
}

fn rules() -> Vec<String> {
    let mut rules: Vec<String> = take_findings().iter().map(|r| r.finding.rule.name().to_owned()).collect();
    rules.dedup();
    rules
}

#[test]
fn launches_of_two_devices_race_as_those_of_two_streams() {
    let devices = devices();
    let s0 = stream();
    let near = function(load(PTX), "step");
    let p = upload(&[1]);
    ok(devices.enable(1, 0));
    let (s1, far) = (stream(), function(load(PTX), "step"));
    let _guard = check(Checks::ALL);
    // On the device that has the memory, and on one that has access.
    devices.on(0);
    ok(launch_step(near, p, s0));
    devices.on(1);
    ok(launch_step(far, p, s1));
    assert_eq!(rules(), ["race::stream"]);
    // A copy reads what a launch of the other device writes.
    devices.on(0);
    let q = alloc(4);
    ok(cu!(cuMemcpyDtoDAsync_v2(q, p, 4, s0)));
    assert_eq!(rules(), ["race::stream"]);
    ok(cu!(cuCtxSynchronize()));
    devices.on(1);
    ok(cu!(cuCtxSynchronize()));
    ok(launch_step(far, p, s1));
    assert_eq!(rules(), [""; 0], "the host has waited");
}

/// `write`: data, then a flag; `read`: waits for the flag, then reads the data and stores it. `{store}` and `{load}` say how.
fn messages(store: &str, load: &str) -> String {
    format!(
        ".version 7.0\n.target sm_75\n.address_size 64\n
.visible .entry write(.param .u64 data, .param .u64 flag) {{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [flag];
    mov.u32 %r1, 42; mov.u32 %r2, 1;
    {store}
    ret;
}}
.visible .entry read(.param .u64 data, .param .u64 flag, .param .u64 out) {{
    .reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [flag]; ld.param.u64 %rd3, [out];
    {load}
    st.global.u32 [%rd3], %r1;
    ret;
}}"
    )
}

const WRITE: &str = "st.global.u32 [%rd1], %r1; st.release.sys.global.u32 [%rd2], %r2;";
const READ: &str =
    "AGAIN: ld.acquire.sys.global.u32 %r2, [%rd2]; setp.eq.u32 %p1, %r2, 0; @%p1 bra AGAIN; ld.global.u32 %r1, [%rd1];";

/// The reader, on device 1, waits; then the writer runs on device 0.
fn send(devices: &Devices, store: &str, load_data: &str) -> (u32, Vec<String>) {
    let ptx = messages(store, load_data);
    devices.on(0);
    let (data, flag, write, s0) = (upload(&[0]), upload(&[0]), function(load(&ptx), "write"), stream());
    let code = devices.enable(1, 0);
    assert!(code == 0 || code == 704);
    let (out, read, s1) = (upload(&[0]), function(load(&ptx), "read"), stream());
    let found = {
        let _guard = check(Checks::ALL);
        ok(launch(read, 1, 1, 0, s1, &[arg(&data), arg(&flag), arg(&out)]));
        devices.on(0);
        ok(launch(write, 1, 1, 0, s0, &[arg(&data), arg(&flag)]));
        devices.on(1);
        ok(cu!(cuStreamSynchronize(s1)));
        // What comes behind the reader is behind the writer too.
        ok(cu!(cuMemcpyDtoDAsync_v2(out, data, 4, s1)));
        rules()
    };
    (download(out, 1)[0], found)
}

#[test]
fn flags_of_system_scope_order_launches_of_two_devices() {
    let devices = devices();
    assert_eq!(send(&devices, WRITE, READ), (42, vec![]));
    // With fences instead.
    let write = "st.global.u32 [%rd1], %r1; fence.acq_rel.sys; st.relaxed.sys.global.u32 [%rd2], %r2;";
    let read = READ.replace("acquire", "relaxed").replace("ld.global.u32 %r1", "fence.acq_rel.sys; ld.global.u32 %r1");
    assert_eq!(send(&devices, write, &read), (42, vec![]));
    // The scope of a device does not reach another one.
    let race = vec!["race::stream".to_owned()];
    assert_eq!(send(&devices, &WRITE.replace("sys", "gpu"), READ), (42, race.clone()));
    assert_eq!(send(&devices, WRITE, &READ.replace("sys", "gpu")), (42, race.clone()));
    // A flag that orders nothing.
    assert_eq!(send(&devices, &WRITE.replace("release", "relaxed"), READ).1, race);
    assert_eq!(send(&devices, WRITE, &READ.replace("acquire", "relaxed")).1, race);
    // Data behind the flag.
    let late = "st.release.sys.global.u32 [%rd2], %r2; st.global.u32 [%rd1], %r1;";
    assert_eq!(send(&devices, late, READ).1, race);
}
