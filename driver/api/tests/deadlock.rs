//! A kernel that waits for device memory, which only calls of the driver change. One test: no other thread calls the driver, so
//! that nobody is left who could end the wait when this one waits too.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use warpsmith_driver_api::*;

const WAIT: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry wait(.param .u64 flag) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}";

#[test]
fn a_wait_that_nobody_can_end_is_a_deadlock_when_the_host_waits_for_it() {
    let _gpu = gpu();
    let (wait, flag, s) = (function(load(WAIT), "wait"), upload(&[0]), stream());
    ok(launch(wait, 2, 64, 0, s, &[arg(&flag)]));
    // The host can still end it.
    // SAFETY: no pointers.
    is(unsafe { cuStreamQuery(s) }, 600);
    // SAFETY: no pointers.
    is(unsafe { cuStreamSynchronize(s) }, 719);
    let report = software::last_report().unwrap();
    for part in ["error[deadlock]", "kernel `wait`", "warp 1, lanes 0xffffffff, PTX line 8: spin"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}
