//! A process that was forked off one that uses the driver. One test, so that no other thread calls the driver meanwhile.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(unix)]

mod common;

use common::*;
use warpsmith_driver_api::*;

#[test]
fn the_driver_is_refused_after_a_fork_and_works_on_before_it() {
    let _gpu = gpu();
    let p = upload(&[7]);
    // SAFETY: the child calls the driver, which answers from its own statics, and ends without unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut q = 0;
        // SAFETY: every pointer is to a live value, where there is one.
        let codes = unsafe { [cuMemAlloc_v2(&mut q, 4), cuInit(0), cuCtxSynchronize(), cuMemFree_v2(p)] };
        let right = codes == [3; 4] && result_name(3) == "CUDA_ERROR_NOT_INITIALIZED";
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right { 17 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a live place.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 17, "{status:#x}");
    assert_eq!(download(p, 1), [7]);
}
